// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of enable, disable and doctor on directories with the files of a host. No test uses the configuration of this
//! machine.

#![allow(missing_docs)]

mod common;

use common::{Bench, Run};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

const DEBIAN: &str = "# /etc/nsswitch.conf\n\
                      passwd:         files systemd\n\
                      group:          files systemd\n\
                      shadow:         files systemd\n\
                      hosts:          files dns\n";

const ENABLE: &str = "enable --file nsswitch.conf";
const DISABLE: &str = "disable --file nsswitch.conf";

fn host() -> Bench {
    let bench = Bench::new();
    bench.write("nsswitch.conf", DEBIAN);
    bench
}

#[test]
fn enable_shows_diff_and_writes_backup() {
    let bench = host();
    let run = bench.roster(ENABLE).expect(0);
    assert_eq!(
        run.out,
        "--- nsswitch.conf\n\
         +++ nsswitch.conf\n\
         @@ -1,5 +1,5 @@\n \
         # /etc/nsswitch.conf\n\
         -passwd:         files systemd\n\
         -group:          files systemd\n\
         +passwd:         files roster systemd\n\
         +group:          files roster systemd\n \
         shadow:         files systemd\n \
         hosts:          files dns\n\
         \n\
         Roster is enabled. Backup: nsswitch.conf.roster-backup\n"
    );
    assert_eq!(run.err, "");
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf", "nsswitch.conf.roster-backup"]);
}

#[test]
fn enable_dry_run_changes_nothing() {
    let bench = host();
    let run = bench.roster(&format!("{ENABLE} --dry-run")).expect(2);
    assert!(run.out.contains("+passwd:         files roster systemd\n"));
    assert_eq!(bench.read("nsswitch.conf"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
}

#[test]
fn dry_run_status_tells_pending_change() {
    let bench = host();
    let [enable, disable] = [ENABLE, DISABLE].map(|command| format!("{command} --dry-run"));
    bench.roster(&disable).expect(0);
    bench.roster(ENABLE).expect(0);
    bench.roster(&enable).expect(0);
    bench.roster(&format!("{enable} --shadow")).expect(2);
    let enabled = bench.read("nsswitch.conf");
    let run = bench.roster(&disable).expect(2);
    assert!(run.out.contains("-passwd:         files roster systemd\n"), "{}", run.out);
    assert_eq!(bench.read("nsswitch.conf"), enabled);
    for wrong in [&enable, &disable] {
        bench.roster(&format!("{wrong} --no-such-option")).expect(1);
    }
}

#[test]
fn enable_twice_keeps_original_backup() {
    let bench = host();
    bench.roster(ENABLE).expect(0);
    let enabled = bench.read("nsswitch.conf");
    let run = bench.roster(ENABLE).expect(0);
    assert_eq!(run.out, "nsswitch.conf: Roster is already enabled\n");
    bench.roster(&format!("{ENABLE} --shadow")).expect(0);
    assert!(bench.read("nsswitch.conf").contains("shadow:         files roster systemd\n"));
    assert_ne!(bench.read("nsswitch.conf"), enabled);
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), DEBIAN);
}

#[test]
fn disable_restores_file_and_removes_backup() {
    let bench = host();
    bench.roster(&format!("{ENABLE} --shadow")).expect(0);
    let run = bench.roster(DISABLE).expect(0);
    assert!(run.out.ends_with("\nRoster is disabled.\n"), "{}", run.out);
    assert_eq!(bench.read("nsswitch.conf"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
    let run = bench.roster(DISABLE).expect(0);
    assert_eq!(run.out, "nsswitch.conf: Roster is not enabled\n");
}

#[test]
fn disable_keeps_later_edits_and_backup() {
    let bench = host();
    bench.roster(ENABLE).expect(0);
    bench.write("nsswitch.conf", bench.read("nsswitch.conf") + "sudoers: files\n");
    let run = bench.roster(DISABLE).expect(0);
    assert!(run.out.contains("The backup stays: nsswitch.conf.roster-backup"), "{}", run.out);
    assert_eq!(bench.read("nsswitch.conf"), format!("{DEBIAN}sudoers: files\n"));

    // The next original is another one, and so is its backup.
    bench.roster(ENABLE).expect(0);
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), format!("{DEBIAN}sudoers: files\n"));
}

#[test]
fn disable_unreadable_backup_is_error() {
    let bench = host();
    bench.roster(ENABLE).expect(0);
    fs::remove_file(bench.path("nsswitch.conf.roster-backup")).unwrap();
    fs::create_dir(bench.path("nsswitch.conf.roster-backup")).unwrap();
    let run = bench.roster(DISABLE).expect(1);
    assert!(run.err.ends_with("[RST-9061]\n"), "{}", run.err);
    assert!(bench.read("nsswitch.conf").contains("roster"));
}

#[test]
fn enable_keeps_owner_mode_and_labels() {
    let bench = host();
    let path = bench.path("nsswitch.conf");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let labelled = setxattr(&path, "user.label", b"kept", XattrFlags::empty()).is_ok();
    let before = fs::metadata(&path).unwrap();
    bench.roster(ENABLE).expect(0);
    for name in ["nsswitch.conf", "nsswitch.conf.roster-backup"] {
        let after = fs::metadata(bench.path(name)).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert_ne!(after.ino(), before.ino());
        let mut label = [0; 4];
        let got = getxattr(bench.path(name), "user.label", &mut label[..]);
        // Some file systems have no attributes; there is nothing to keep on those.
        assert!(!labelled || got == Ok(4) && &label == b"kept");
    }
}

#[test]
fn enable_never_replaces_link() {
    let bench = host();
    fs::rename(bench.path("nsswitch.conf"), bench.path("real.conf")).unwrap();
    symlink("real.conf", bench.path("nsswitch.conf")).unwrap();
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(
        run.err,
        "roster: nsswitch.conf is a symbolic link to real.conf. If the target is yours to edit, pass it \
         with --file. [RST-9050]\n"
    );
    assert_eq!(bench.read("real.conf"), DEBIAN);

    fs::remove_file(bench.path("nsswitch.conf")).unwrap();
    symlink("/etc/authselect/nsswitch.conf", bench.path("nsswitch.conf")).unwrap();
    let run = bench.roster(ENABLE).expect(1);
    assert!(run.err.ends_with("[RST-9051]\n"), "{}", run.err);
}

#[test]
fn enable_warns_about_file_of_authselect() {
    let bench = host();
    bench.write("nsswitch.conf", format!("# Generated by authselect\n{DEBIAN}"));
    let run = bench.roster(ENABLE).expect(0);
    assert!(run.err.starts_with("roster: warning: nsswitch.conf: authselect"), "{}", run.err);
    assert!(run.err.ends_with("[RST-9052]\n"), "{}", run.err);
}

#[test]
fn enable_rejects_file_it_cannot_edit() {
    let bench = host();
    let hidden = "passwd: files [NOTFOUND=return] sss\ngroup: files\n";
    bench.write("nsswitch.conf", hidden);
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(
        run.err,
        "roster: nsswitch.conf:1: passwd: `files [NOTFOUND=return]` ends each lookup before `roster`; the \
         file was not changed. Remove that action, or put it behind roster. [RST-2008]\n"
    );
    bench.write("nsswitch.conf", b"passwd: files\n# caf\xe9\n");
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(
        run.err,
        "roster: nsswitch.conf:2: not UTF-8. Correct the line, and try again. [RST-9054]\n"
    );
    assert_eq!(bench.names(), ["nsswitch.conf"]);
    let run = bench.roster("enable --file nsswitch.conf/file").expect(1);
    assert!(run.err.ends_with("[RST-9055]\n"), "{}", run.err);
    let run = bench.roster("enable --file none.conf").expect(1);
    assert!(run.err.starts_with("roster: none.conf does not exist"), "{}", run.err);
    assert!(run.err.ends_with("[RST-2004]\n"), "{}", run.err);
}

#[test]
fn enable_failure_leaves_no_backup() {
    let bench = host();
    // As long as a file may get below, so that the backup can be written and the longer text not.
    let original = format!("{DEBIAN}{:#<1$}", "", 1024 - DEBIAN.len());
    bench.write("nsswitch.conf", &original);
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" enable --file nsswitch.conf";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_roster")]).current_dir(bench.folder());
    let run = Run::from_command(&mut shell).expect(1);
    let text = "roster: nsswitch.conf.roster-new cannot be written: ";
    assert!(run.err.starts_with(text) && run.err.ends_with("[RST-9059]\n"), "{}", run.err);
    assert_eq!(bench.read("nsswitch.conf"), original);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
}

/// Returns a directory with the files of a host without faults.
fn healthy_host() -> Bench {
    let bench = Bench::new();
    bench.write("etc/nsswitch.conf", DEBIAN);
    bench.roster("enable --file etc/nsswitch.conf").expect(0);
    let libc = b"\x7fELF GNU C Library (GNU libc) stable release version 2.36.\n";
    bench.write("usr/lib/libc.so.6", [&libc[..], &[0; 512]].concat());
    // Any file for this machine will do: doctor looks at its header only.
    let module = fs::read(env!("CARGO_BIN_EXE_roster")).unwrap();
    bench.write("usr/lib/libnss_roster.so.2", &module[..4096]);
    bench.roster("generate --users 10 --groups 10 --members 2 --shadow --output corpus").expect(0);
    let of_snapshots = ["var/lib/roster/snap", "var/lib/roster/shadow"];
    for folder in of_snapshots {
        fs::create_dir_all(bench.path(folder)).unwrap();
    }
    compile(&bench);
    let others = ["", "var", "var/lib", "var/lib/roster", "usr/lib/libnss_roster.so.2"];
    for folder in of_snapshots.into_iter().chain(others) {
        let rights = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bench.path(folder), rights).unwrap();
    }
    bench
}

const CONFIGURATION: &str = "[host]\ndomains = [\"lab\"]\n[domain.lab]\nprovider = \"files\"\n\
                             passwd = \"/p\"\ngroup = \"/g\"\n";

fn compile(bench: &Bench) {
    let sources =
        "--passwd corpus/passwd --group corpus/group --output var/lib/roster/snap/roster.v3.snap";
    let shadow = "--shadow corpus/shadow --shadow-output var/lib/roster/shadow/shadow.v3.snap";
    let shadow = if is_root() { shadow } else { "" };
    bench.roster(&format!("compile {sources} {shadow}")).expect(0);
}

/// Password hashes of another user's are a fault, so there are none without root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn doctor_healthy_host_has_no_fault() {
    let bench = healthy_host();
    let run = bench.roster("doctor --root .").expect(0);
    let marks: Vec<_> = run.out.lines().filter_map(|line| line.chars().next()).collect();
    let checks = if is_root() { 7 } else { 6 };
    let expected: Vec<_> = std::iter::repeat_n('✓', checks - 1).chain(['A']).collect();
    assert_eq!(marks, expected, "{}", run.out);
    assert!(run.out.ends_with("\nAll well.\n"), "{}", run.out);
    assert!(
        run.out
            .contains("✓ /var/lib/roster/snap/roster.v3.snap: generation 1, 10 users, 10 groups, ")
    );
    assert!(run.out.contains(", published just now\n"), "{}", run.out);
    assert!(run.out.contains("✓ module /usr/lib/libnss_roster.so.2\n"));
}

#[test]
fn doctor_reports_each_fault_with_fix() {
    let bench = healthy_host();
    let fault = |code: &str, part: &str, breaking: &dyn Fn(), mending: &dyn Fn()| {
        breaking();
        let run = bench.roster("doctor --root .").expect(1);
        let lines: Vec<_> = run.out.lines().collect();
        let is_it = |pair: &[&str]| {
            pair[0].starts_with('✗')
                && pair[0].contains(part)
                && pair[1].starts_with("    → ")
                && pair[1].ends_with(&format!(". [{code}]"))
        };
        assert!(lines.windows(2).any(is_it), "no {part:?} [{code}] in\n{}", run.out);
        mending();
        bench.roster("doctor --root .").expect(0);
    };
    let mode = |name: &'static str, mode| {
        let path = bench.path(name);
        move || fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap()
    };
    let snapshot = "var/lib/roster/snap/roster.v3.snap";
    fault("RST-2035", "(mode 0666)", &mode(snapshot, 0o666), &mode(snapshot, 0o644));
    fault("RST-2036", "write to /var/lib", &mode("var/lib", 0o777), &mode("var/lib", 0o1777));
    let folder = "var/lib/roster/snap";
    fault("RST-2032", "write to /var/lib/roster/snap", &mode(folder, 0o1777), &mode(folder, 0o755));
    fault("RST-2024", "through /var", &mode("var", 0o700), &mode("var", 0o755));
    if is_root() {
        let (folder, shadow) = ("var/lib/roster/shadow", "var/lib/roster/shadow/shadow.v3.snap");
        fault("RST-2038", "(mode 0644)", &mode(shadow, 0o644), &mode(shadow, 0o640));
        for (name, code) in [(folder, "RST-2033"), (shadow, "RST-2034")] {
            let owner = |uid| {
                let path = bench.path(name);
                move || std::os::unix::fs::chown(&path, Some(uid), None).unwrap()
            };
            fault(code, "belongs to uid 902", &owner(902), &owner(0));
        }
        let floor = || bench.write("etc/roster/floor", "min_id 500\n");
        let configure = || {
            bench.write("etc/roster/roster.toml", CONFIGURATION);
            floor();
        };
        let unconfigure = || fs::remove_dir_all(bench.path("etc/roster")).unwrap();
        fault("RST-2040", "floor has ids from 500 on, and", &configure, &unconfigure);
        let malformed = || bench.write("etc/roster/floor", "500\n");
        fault("RST-2039", "floor is not in the format of a floor", &malformed, &unconfigure);
    }
    let module = "usr/lib/libnss_roster.so.2";
    fault("RST-2018", "(mode 0700)", &mode(module, 0o700), &mode(module, 0o644));
    fault(
        "RST-2026",
        "cut or appended",
        &|| {
            let bytes = fs::read(bench.path(snapshot)).unwrap();
            fs::write(bench.path(snapshot), &bytes[..999]).unwrap();
        },
        &|| compile(&bench),
    );
    fault(
        "RST-2009",
        "comes before `files`",
        &|| bench.write("etc/nsswitch.conf", "passwd: roster files\n"),
        &|| {
            bench.write("etc/nsswitch.conf", DEBIAN);
            bench.roster("enable --file etc/nsswitch.conf").expect(0);
        },
    );
    fault(
        "RST-2062",
        "AppArmor",
        &|| {
            bench.write("sys/module/apparmor/parameters/enabled", "Y\n");
            fs::create_dir_all(bench.path("etc/apparmor.d/abstractions")).unwrap();
        },
        &|| bench.write("etc/apparmor.d/abstractions/nameservice.d/roster", ""),
    );
}

#[test]
fn doctor_directory_service_before_roster_warns() {
    let bench = healthy_host();
    bench.write("etc/nsswitch.conf", "passwd: sss files\ngroup: files sss\n");
    bench.roster("enable --file etc/nsswitch.conf").expect(0);
    let run = bench.roster("doctor --root .").expect(0);
    let first = "! nsswitch.conf:1: passwd: `sss` comes before `roster`, and answers for its users";
    assert!(run.out.contains(first) && run.out.contains("[RST-2065]"), "{}", run.out);
    assert!(!run.out.contains("group: `sss`"), "{}", run.out);
}

#[test]
fn doctor_never_waits_for_pipe() {
    let bench = healthy_host();
    let pipe = |name: &str| {
        let path = bench.path(name);
        let _ = fs::remove_file(&path);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    };
    for name in ["lib/libc.so.6", "etc/ld.so.conf", "etc/ld.so.cache", "var/log/audit/audit.log"] {
        fs::create_dir_all(bench.path(name).parent().unwrap()).unwrap();
        pipe(name);
    }
    bench.roster("doctor --root .").expect(0);
    pipe("var/lib/roster/snap/roster.v3.snap");
    let run = bench.roster("doctor --root .").expect(1);
    assert!(
        run.out.contains("✗ /var/lib/roster/snap/roster.v3.snap is not a regular file: "),
        "{}",
        run.out
    );
    pipe("etc/nsswitch.conf");
    let run = bench.roster("doctor --root .").expect(1);
    assert!(run.out.contains("cannot be read: not a regular file"), "{}", run.out);
}

#[test]
fn doctor_examines_folders_only() {
    let bench = Bench::new();
    bench.write("file", "");
    for (root, why) in [("none", "No such file or directory"), ("file", "Not a directory")] {
        let run = bench.roster(&format!("doctor --root {root}")).expect(1);
        let text = format!("roster: {root}: cannot be examined: {why}");
        assert!(run.err.starts_with(&text) && run.err.ends_with("[RST-9049]\n"), "{run:?}");
        assert_eq!(run.out, "");
    }
}

#[test]
fn doctor_links_stay_in_mounted_root() {
    let bench = healthy_host();
    // As authselect does it; this machine has no such file.
    bench.write("etc/elsewhere/nsswitch.conf", bench.read("etc/nsswitch.conf"));
    fs::remove_file(bench.path("etc/nsswitch.conf")).unwrap();
    symlink("/etc/elsewhere/nsswitch.conf", bench.path("etc/nsswitch.conf")).unwrap();
    fs::rename(bench.path("usr/lib"), bench.path("usr/lib64")).unwrap();
    symlink("/usr/lib64", bench.path("lib64")).unwrap();
    fs::rename(bench.path("var"), bench.path("data")).unwrap();
    symlink("/data", bench.path("var")).unwrap();
    bench.roster("doctor --root .").expect(0);

    // Readers follow no link in place of the last directory.
    fs::rename(bench.path("data/lib/roster/snap"), bench.path("data/snap")).unwrap();
    symlink("/data/snap", bench.path("data/lib/roster/snap")).unwrap();
    let run = bench.roster("doctor --root .").expect(1);
    assert!(run.out.contains("✗ /var/lib/roster/snap is a symbolic link"), "{}", run.out);
}

#[test]
fn doctor_names_server_on_nscd_socket() {
    let bench = healthy_host();
    fs::create_dir_all(bench.path("var/run/nscd")).unwrap();
    let path = bench.path("var/run/nscd/socket");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    bench.write("proc/42/comm", "unscd\n");
    let run = bench.roster("doctor --root .").expect(0);
    assert!(run.out.contains("! unscd is running"), "{}", run.out);
    assert!(run.out.ends_with("\nIt works; 1 warning.\n"), "{}", run.out);
    // Closing is not enough: a process that another test is starting may hold it for a moment yet.
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).unwrap();
    let run = bench.roster("doctor --root .").expect(0);
    assert!(run.out.ends_with("\nAll well.\n"), "a socket that nobody serves: {}", run.out);
}

#[test]
fn doctor_json_has_codes() {
    let bench = Bench::new();
    let run = bench.roster("doctor --root . --json").expect(1);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["ok"], false);
    let findings = report["findings"].as_array().unwrap();
    let snapshot = findings.iter().find(|finding| finding["check"] == "snapshot").unwrap();
    assert_eq!(
        *snapshot,
        serde_json::json!({
            "level": "problem",
            "check": "snapshot",
            "code": "RST-2021",
            "message": "/var/lib/roster/snap/roster.v3.snap does not exist",
            "advice": "Run `roster compile`, or let rosterd mirror a directory (roster.toml(5)).",
        })
    );
}
