// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of environment variables by their danger. Strict mode passes a few known ones on. Programs load code by
//! others, or read them as files or options that are equal to code. No rule can set or keep those, in strict mode or
//! for roster-exec. The parent module `evaluate` applies the classes.
//!
//! A prefix excludes a family that grows with versions. Variables that only one program reads are the responsibility of
//! the rule. docs/reference/rootwrap-differences.md has the list.

/// Prefixes of dangerous names.
const DANGEROUS_PREFIXES: [&str; 38] = [
    "BASH",
    "BUNDLE_",
    "COMPlus_",
    "CORECLR_",
    "DBUS_",
    "DOTNET_",
    "ERL_",
    "GDK_",
    "GEM_",
    "GIO_",
    "GSS_",
    "GST_",
    "GTK",
    "GUILE_",
    "JAVA",
    "JDK_",
    "KRB5_",
    "LD_",
    "LIBMYSQL_",
    "LIBVIRT_",
    "LUA_",
    "MALLOC_",
    "MONO_",
    "NODE_",
    "NPM_CONFIG_",
    "OPENSSL_",
    "P11_KIT_",
    "PERL",
    "PHP",
    "PKCS11_",
    "PYTHON",
    "QT_",
    "RUBY",
    "R_",
    "TCL",
    "_JAVA_",
    "fish_",
    "npm_config_",
];

const DANGEROUS_NAMES: [&str; 46] = [
    "AWKLIBPATH",
    "AWKPATH",
    "CAML_LD_LIBRARY_PATH",
    "CDPATH",
    "CLASSPATH",
    "ENV",
    "FPATH",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GHCRTS",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "HOSTALIASES",
    "IFS",
    "IP6TABLES_LIB_DIR",
    "IPTABLES_LIB_DIR",
    "IP_LIB_DIR",
    "LOCALDOMAIN",
    "LOCPATH",
    "MODPROBE_OPTIONS",
    "NIS_PATH",
    "NLSPATH",
    "NULLCMD",
    "OCAMLRUNPARAM",
    "PROMPT_COMMAND",
    "PS4",
    "QEMU_MODULE_DIR",
    "READNULLCMD",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "SASL_PATH",
    "SHELLOPTS",
    "SOFTHSM2_CONF",
    "SSLKEYLOGFILE",
    "TC_LIB_DIR",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMPATH",
    "TEXTDOMAINDIR",
    "TK_LIBRARY",
    "TMPDIR",
    "TMPPREFIX",
    "TZDIR",
    "XTABLES_LIBDIR",
    "ZDOTDIR",
];

/// Variables that strict mode passes on to every command: they are about display and the caller.
const PASSED_THROUGH: [&str; 8] =
    ["HOME", "LANG", "LANGUAGE", "LOGNAME", "SHELL", "TERM", "TZ", "USER"];
const PASSED_THROUGH_PREFIXES: [&str; 2] = ["LC_", "SUDO_"];

/// Returns true if a command of strict mode has the variable without a rule.
pub(super) fn is_passed_through(name: &[u8]) -> bool {
    PASSED_THROUGH.iter().any(|known| known.as_bytes() == name)
        || PASSED_THROUGH_PREFIXES.iter().any(|start| name.starts_with(start.as_bytes()))
}

/// Returns true if programs load code by a variable. `PATH` does not count, because every command has it.
pub(crate) fn is_dangerous(name: &[u8]) -> bool {
    DANGEROUS_NAMES.iter().any(|known| known.as_bytes() == name)
        || DANGEROUS_PREFIXES.iter().any(|start| name.starts_with(start.as_bytes()))
}

/// Variables by which programs choose files below a directory of root. glibc ignores them in programs with raised
/// rights, and sudo checks them (`env_check`). The value may not lead out of that directory.
const CHECKED: [&str; 5] = ["COLORTERM", "LANG", "LANGUAGE", "LINGUAS", "TERM"];
const CHECKED_PREFIX: &str = "LC_";
const ZONEINFO: &[u8] = b"/usr/share/zoneinfo/";
const PATH_BYTES_MAX: usize = 4096;

/// Returns true if the value of a variable names neither a file of the caller nor a format.
pub(crate) fn is_safe_value(name: &[u8], value: &[u8]) -> bool {
    if name == b"TZ" {
        return is_safe_timezone(value);
    }
    let is_checked = name.starts_with(CHECKED_PREFIX.as_bytes())
        || CHECKED.iter().any(|known| known.as_bytes() == name);
    !is_checked || !value.iter().any(|byte| matches!(byte, b'/' | b'%'))
}

/// The rule of sudo.
fn is_safe_timezone(value: &[u8]) -> bool {
    // The C library reads the rest as a path.
    let path = value.strip_prefix(b":").unwrap_or(value);
    (!path.starts_with(b"/") || path.starts_with(ZONEINFO))
        && path.len() < PATH_BYTES_MAX
        && path.iter().all(u8::is_ascii_graphic)
        && path.split(|&byte| byte == b'/').all(|element| element != b"..")
}

/// Prefixes of variables that some programs use as a command, or as the name of a file with commands. The danger
/// depends on the command, so a rule may name them.
const COMMAND_VARIABLE_PREFIXES: [&str; 14] = [
    "AWS_",
    "BORG_",
    "CARGO",
    "CEPH_",
    "DOCKER_",
    "GIT_",
    "LESS",
    "LIBGUESTFS_",
    "MAKE",
    "PIP_",
    "RESTIC_",
    "SVN_",
    "SYSTEMD_",
    "XDG_",
];

const COMMAND_VARIABLES: [&str; 30] = [
    "ANSIBLE_CONFIG",
    "APT_CONFIG",
    "BROWSER",
    "CURL_HOME",
    "CVS_RSH",
    "EDITOR",
    "EMACSLOADPATH",
    "EXINIT",
    "GNUPGHOME",
    "GS_OPTIONS",
    "HGRCPATH",
    "HOME",
    "INPUTRC",
    "KUBECONFIG",
    "LVM_SYSTEM_DIR",
    "MANPAGER",
    "MYSQL_HOME",
    "PAGER",
    "PGSERVICEFILE",
    "PSQL_PAGER",
    "RSYNC_RSH",
    "SHELL",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "TAR_OPTIONS",
    "VIM",
    "VIMINIT",
    "VIMRUNTIME",
    "VISUAL",
    "WGETRC",
];

/// Returns true if a name, or a name with this prefix, is such a variable.
pub(crate) fn is_command_variable(name: &[u8], is_beginning: bool) -> bool {
    let starts = |start: &&str| {
        name.starts_with(start.as_bytes()) || is_beginning && start.as_bytes().starts_with(name)
    };
    let is = |known: &&str| {
        known.as_bytes() == name || is_beginning && known.as_bytes().starts_with(name)
    };
    COMMAND_VARIABLE_PREFIXES.iter().any(starts) || COMMAND_VARIABLES.iter().any(is)
}

/// Returns true if all variables with this prefix are dangerous.
pub(crate) fn is_dangerous_prefix(start: &[u8]) -> bool {
    DANGEROUS_PREFIXES.iter().any(|known| start.starts_with(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_program_obeys_is_known_by_its_name_or_a_beginning() {
        for (name, is_beginning) in [
            ("HOME", false),
            ("GIT_SSH_COMMAND", false),
            ("PAGER", false),
            ("G", true),
            ("GIT_S", true),
        ] {
            assert!(is_command_variable(name.as_bytes(), is_beginning), "{name}");
        }
        for (name, is_beginning) in
            [("LC_", true), ("LANG", false), ("HO", false), ("HOMER", false)]
        {
            assert!(!is_command_variable(name.as_bytes(), is_beginning), "{name}");
        }
    }

    #[test]
    fn what_loads_code_is_kept_out_whatever_its_family_calls_it_next() {
        for name in [
            "LD_PRELOAD",
            "PYTHONUSERBASE",
            "PYTHONPYCACHEPREFIX",
            "PYTHON_OF_TOMORROW",
            "PERL5DB",
            "RUBYOPT",
            "NODE_PATH",
            "_JAVA_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "LUA_INIT",
            "LUA_PATH_5_4",
            "GEM_PATH",
            "PHPRC",
            "BASH_FUNC_ls%%",
            "ZDOTDIR",
            "TMPDIR",
            "TZDIR",
            "TC_LIB_DIR",
            "IP_LIB_DIR",
            "DBUS_SYSTEM_BUS_ADDRESS",
            "DBUS_SESSION_BUS_ADDRESS",
            "GSS_MECH_CONFIG",
            "LIBMYSQL_PLUGIN_DIR",
            "SSLKEYLOGFILE",
        ] {
            assert!(!is_passed_through(name.as_bytes()), "{name}");
            assert!(is_dangerous(name.as_bytes()), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "LC_ALL", "TERM", "TZ", "LVM_SYSTEM_DIR", "NETWORK_ID"]
        {
            assert!(!is_dangerous(name.as_bytes()), "{name}");
        }
        for name in ["HOME", "LANG", "LC_ALL", "TERM", "TZ", "SUDO_USER"] {
            assert!(is_passed_through(name.as_bytes()), "{name}");
        }
        for name in ["PATH", "LVM_SYSTEM_DIR", "NETWORK_ID", "SYSTEMD_PAGER", "LANG_OF_TOMORROW"] {
            assert!(!is_passed_through(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn values_that_leave_roots_directories_are_unsound() {
        let names =
            ["COLORTERM", "LANG", "LANGUAGE", "LC_ALL", "LC_OF_TOMORROW", "LINGUAS", "TERM"];
        for name in names {
            for (value, sound) in
                [("de_DE.UTF-8:en@x", true), ("", true), ("../x", false), ("%n", false)]
            {
                assert_eq!(
                    is_safe_value(name.as_bytes(), value.as_bytes()),
                    sound,
                    "{name}={value}"
                );
            }
        }
        assert!(is_safe_value(b"HOME", b"/%n") && is_safe_value(b"LANGUAGES", b"/"));
        let longest = [b'a'; PATH_BYTES_MAX];
        assert!(is_safe_value(b"TZ", &longest[1..]) && !is_safe_value(b"TZ", &longest));
        for value in ["", "UTC", "Europe/Berlin", ":Europe/Berlin", "CET-1CEST,M3.5.0/2", "..x"] {
            assert!(is_safe_value(b"TZ", value.as_bytes()), "{value}");
        }
        for value in [":/usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/UTC"] {
            assert!(is_safe_value(b"TZ", value.as_bytes()), "{value}");
        }
        for value in [
            "/etc/passwd",
            ":/tmp/x",
            "../x",
            "a/../x",
            "..",
            "a b",
            "a\tb",
            "\u{e9}",
            "\u{7f}",
            "/usr/share/zoneinfo",
        ] {
            assert!(!is_safe_value(b"TZ", value.as_bytes()), "{value}");
        }
    }

    /// The test has the variables that glibc removes from programs with raised rights.
    #[test]
    fn what_glibc_keeps_from_programs_with_raised_rights_is_among_them() {
        let names = "GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LD_AUDIT LD_BIND_NOT LD_BIND_NOW \
                     LD_DEBUG LD_DEBUG_OUTPUT LD_DYNAMIC_WEAK LD_HWCAP_MASK LD_LIBRARY_PATH LD_ORIGIN_PATH \
                     LD_PREFER_MAP_32BIT_EXEC LD_PRELOAD LD_PROFILE LD_SHOW_AUXV LD_VERBOSE LD_WARN \
                     LOCALDOMAIN LOCPATH MALLOC_ARENA_MAX MALLOC_ARENA_TEST MALLOC_CHECK_ \
                     MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ MALLOC_PERTURB_ MALLOC_TOP_PAD_ \
                     MALLOC_TRACE MALLOC_TRIM_THRESHOLD_ NIS_PATH NLSPATH RESOLV_HOST_CONF RES_OPTIONS \
                     TMPDIR TZDIR";
        for name in names.split_whitespace() {
            assert!(is_dangerous(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_documentation_has_the_whole_list() {
        let text = include_str!("../../../../../docs/reference/rootwrap-differences.md");
        let (_, section) = text.split_once("\n## Variables that no caller brings\n").unwrap();
        let (_, section) = section.split_once("\n- ").unwrap();
        let (section, _) = section.split_once("\nAll else").unwrap();
        let mut told: Vec<&str> = section.split('`').skip(1).step_by(2).collect();
        told.sort_unstable();
        let families = DANGEROUS_PREFIXES.map(|start| format!("{start}…"));
        let mut known: Vec<&str> =
            families.iter().map(String::as_str).chain(DANGEROUS_NAMES).collect();
        known.sort_unstable();
        assert_eq!(told, known);
        let row =
            text.lines().find(|line| line.starts_with("| all | the environment is passed on |"));
        let row = row.and_then(|row| row.split('|').nth(3)).unwrap();
        let told: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let families = PASSED_THROUGH_PREFIXES.map(|start| format!("{start}…"));
        let known = PASSED_THROUGH.into_iter().chain(families.iter().map(String::as_str));
        assert_eq!(told, known.collect::<Vec<_>>());
    }
}
