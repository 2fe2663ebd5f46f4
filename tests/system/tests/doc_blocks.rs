// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fenced blocks of all documents: commands run or are parsed, configuration is read by its program. See
//! tests/system/python/doc_blocks.py.

use roster_system_tests::artifacts::{pam_module, rootwrap_daemon_program, rootwrap_program};
use roster_system_tests::pam_stacks::profiles_dir;
use roster_system_tests::{
    ProgramOutput, SystemdHost, exec_program, library_dir, needs_root, roster_program, run,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Programs beside the one under test.
const PROGRAMS: [&str; 5] =
    ["roster", "rosterd", "roster-rootwrap", "roster-rootwrap-daemon", "roster-lab"];

/// Files on the booted host. The documents name most of them.
const FILES: [(&str, &str); 15] = [
    ("/srv/corp/passwd", CORP_PASSWD),
    ("/srv/corp/group", "staff:x:5000:alice,bob\nops:x:5001:alice\n"),
    ("/run/documents/corp.passwd", CORP_PASSWD),
    ("/run/documents/corp.group", "staff:x:5000:alice,bob\n"),
    ("/run/documents/corp.password", "secret\n"),
    ("/run/documents/sssd.conf", SSSD_CONF),
    ("/run/documents/nslcd.conf", "uri ldap://ldap1.example.com\nbase dc=example,dc=com\n"),
    ("/etc/roster/exec.toml", EXEC_TOML),
    (
        "/etc/roster/roster.toml",
        "[host]\ndomains = [\"corp\"]\n\n[domain.corp]\nprovider = \"files\"\n\
         passwd = \"/srv/corp/passwd\"\ngroup = \"/srv/corp/group\"\n\n\
         [domain.corp.access]\nallowed_groups = [\"staff\"]\n\n\
         [metrics]\nlisten = \"127.0.0.1:9273\"\n",
    ),
    ("/etc/nova/rootwrap.conf", "[DEFAULT]\nfilters_path=/etc/nova/rootwrap.d\n"),
    (
        "/etc/nova/rootwrap.d/network.filters",
        "[Filters]\nip: IpNetnsExecFilter, ip, root\nls: CommandFilter, ls, root\n",
    ),
    ("/etc/cinder/rootwrap.conf", "[DEFAULT]\n"),
    ("/etc/neutron/rootwrap.conf", "[DEFAULT]\n"),
    ("/etc/systemd/system/nginx.service", "[Service]\nExecStart=/bin/sleep 1000\n"),
    ("/var/lib/pam/seen", ""),
];
const EXEC_UNITS: [&str; 2] =
    ["/usr/lib/systemd/system/roster-exec.service", "/usr/lib/systemd/system/roster-exec.socket"];
const CORP_PASSWD: &str = "alice:x:5000:5000:Alice:/home/alice:/bin/sh\n\
                           bob:x:5001:5000:Bob:/home/bob:/bin/sh\n";
const SSSD_CONF: &str = "[sssd]\nservices = nss, pam\ndomains = corp\n\n[domain/corp]\n\
                         id_provider = ldap\nauth_provider = none\naccess_provider = permit\n\
                         ldap_uri = ldap://ldap1.example.com\n\
                         ldap_search_base = dc=example,dc=com\n";
const EXEC_TOML: &str = "[[rule]]\nname = \"restart-web\"\ngroups = [\"ops\"]\n\
                         command = \"/usr/bin/systemctl\"\n\
                         args = [\"restart\", \"nginx|apache2\"]\ntimeout = \"30s\"\n";
/// Starts daemons, and keeps the files that blocks change.
const PREPARE: &str = "ip link set lo up
    cp /run/pam_roster.so \"$(dirname \"$(find /usr/lib -name pam_unix.so -print -quit)\")\"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ca \
        -keyout /dev/null -out /etc/ssl/certs/corp.pem
    systemd-sysusers
    systemd-tmpfiles --create
    mkdir -p /run/documents/target/release
    ln -s /usr/bin/roster /run/documents/target/release/roster
    cp -a /etc/roster /etc/roster.start
    systemctl start rosterd roster-exec.socket
    roster enable";

fn python() -> Command {
    // Debian's, for which its packages are: another may come first in PATH.
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-B").arg(root().join("python/doc_blocks.py"));
    python
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The number at the beginning of the last line.
#[track_caller]
fn count(done: &ProgramOutput) -> u32 {
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.code, 0, "{text}{}", done.error());
    let first = text.lines().last().and_then(|line| line.split(' ').next()?.parse().ok());
    first.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn documents_commands_run_on_booted_host() {
    if !needs_root() {
        return;
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n";
    let etc = [
        ("passwd", passwd),
        ("group", "root:x:0:\nnogroup:x:65534:\nops:x:1500:root\n"),
        ("nsswitch.conf", "passwd: files systemd\ngroup: files systemd\n"),
    ];
    let journal = ["systemd-journald.socket", "systemd-journald.service"];
    let host = SystemdHost::start(&etc, &[], &journal);
    let programs = roster_program().parent().expect("a directory");
    for (file, place) in [
        (programs.join("roster-lab"), "/usr/bin/roster-lab"),
        (exec_program().to_owned(), "/usr/bin/roster-exec"),
        (rootwrap_program().to_owned(), "/usr/sbin/roster-rootwrap"),
        (rootwrap_daemon_program().to_owned(), "/usr/sbin/roster-rootwrap-daemon"),
        (pam_module().to_owned(), "/run/pam_roster.so"),
        (profiles_dir().join("roster.pam-config"), "/usr/share/pam-configs/roster"),
        (root().join("../../packaging/systemd/roster-exec.service"), EXEC_UNITS[0]),
        (root().join("../../packaging/systemd/roster-exec.socket"), EXEC_UNITS[1]),
    ] {
        host.install_at(&file, place);
    }
    for (place, text) in FILES {
        host.write(place, text);
    }
    let prepare = [&host.enter()[..], &["sh".into(), "-exc".into(), PREPARE.into()]].concat();
    let done = run(Command::new(&prepare[0]).args(&prepare[1..]));
    assert_eq!(done.code, 0, "{}", done.error());
    let done = run(python().arg("--on-host").arg(root().join("../..")).args(host.enter()));
    assert!(count(&done) > 60, "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn documents_blocks_run_and_parse() {
    let programs = tempfile::tempdir().expect("make a directory");
    fs::set_permissions(programs.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let folder = roster_program().parent().expect("a directory").to_owned();
    for name in PROGRAMS {
        symlink(folder.join(name), programs.path().join(name)).expect("link");
    }
    symlink(exec_program(), programs.path().join("roster-exec")).expect("link");
    let done = run(python().arg(root().join("../..")).arg(programs.path()).arg(library_dir()));
    assert!(count(&done) > 90, "{}", String::from_utf8_lossy(&done.stdout));
}
