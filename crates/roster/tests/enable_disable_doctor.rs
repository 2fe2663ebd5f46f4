//! enable, disable and doctor on files and folders that look like a host.

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
fn enable_shows_a_diff_and_keeps_a_backup() {
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
         Roster is enabled. The file as it was: nsswitch.conf.roster-backup\n"
    );
    assert_eq!(run.err, "");
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf", "nsswitch.conf.roster-backup"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let bench = host();
    let run = bench.roster(&format!("{ENABLE} --dry-run")).expect(0);
    assert!(run.out.contains("+passwd:         files roster systemd\n"));
    assert_eq!(bench.read("nsswitch.conf"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
}

#[test]
fn enabling_twice_keeps_the_original_backup() {
    let bench = host();
    bench.roster(ENABLE).expect(0);
    let enabled = bench.read("nsswitch.conf");
    let run = bench.roster(ENABLE).expect(0);
    assert_eq!(run.out, "nsswitch.conf: Roster is enabled already, nothing to change\n");
    bench.roster(&format!("{ENABLE} --shadow")).expect(0);
    assert!(bench.read("nsswitch.conf").contains("shadow:         files roster systemd\n"));
    assert_ne!(bench.read("nsswitch.conf"), enabled);
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), DEBIAN);
}

#[test]
fn disable_restores_the_file_and_takes_the_backup_away() {
    let bench = host();
    bench.roster(&format!("{ENABLE} --shadow")).expect(0);
    let run = bench.roster(DISABLE).expect(0);
    assert!(run.out.ends_with("\nRoster is disabled.\n"), "{}", run.out);
    assert_eq!(bench.read("nsswitch.conf"), DEBIAN);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
    let run = bench.roster(DISABLE).expect(0);
    assert_eq!(run.out, "nsswitch.conf: Roster is not enabled, nothing to change\n");
}

#[test]
fn disable_keeps_later_edits_and_then_the_backup_too() {
    let bench = host();
    bench.roster(ENABLE).expect(0);
    bench.write("nsswitch.conf", bench.read("nsswitch.conf") + "sudoers: files\n");
    let run = bench.roster(DISABLE).expect(0);
    assert!(run.out.contains("its backup is kept: nsswitch.conf.roster-backup"), "{}", run.out);
    assert_eq!(bench.read("nsswitch.conf"), format!("{DEBIAN}sudoers: files\n"));

    // The next original is another one, and so is its backup.
    bench.roster(ENABLE).expect(0);
    assert_eq!(bench.read("nsswitch.conf.roster-backup"), format!("{DEBIAN}sudoers: files\n"));
}

#[test]
fn owner_mode_and_labels_of_the_file_stay() {
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
fn a_link_is_never_replaced() {
    let bench = host();
    fs::rename(bench.path("nsswitch.conf"), bench.path("real.conf")).unwrap();
    symlink("real.conf", bench.path("nsswitch.conf")).unwrap();
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(
        run.err,
        "roster: nsswitch.conf is a link to real.conf: whatever made the link may undo an edit. \
         If that file is yours to edit, name it with --file\n"
    );
    assert_eq!(bench.read("real.conf"), DEBIAN);

    fs::remove_file(bench.path("nsswitch.conf")).unwrap();
    symlink("/etc/authselect/nsswitch.conf", bench.path("nsswitch.conf")).unwrap();
    let run = bench.roster(ENABLE).expect(1);
    assert!(run.err.contains("authselect create-profile"), "{}", run.err);
}

#[test]
fn a_file_that_authselect_made_is_edited_with_a_warning() {
    let bench = host();
    bench.write("nsswitch.conf", format!("# Generated by authselect\n{DEBIAN}"));
    let run = bench.roster(ENABLE).expect(0);
    assert!(run.err.starts_with("roster: warning: authselect made this file"), "{}", run.err);
}

#[test]
fn what_cannot_be_edited_is_left_alone_and_named() {
    let bench = host();
    let hidden = "passwd: files [NOTFOUND=return] sss\ngroup: files\n";
    bench.write("nsswitch.conf", hidden);
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(
        run.err,
        "roster: nsswitch.conf is left as it is: line 1: `files [NOTFOUND=return]` on the passwd \
         line ends a look-up before `roster` would be asked; remove that action, or put `roster` \
         where you want it by hand\n"
    );
    bench.write("nsswitch.conf", b"passwd: files\n# caf\xe9\n");
    let run = bench.roster(ENABLE).expect(1);
    assert_eq!(run.err, "roster: nsswitch.conf line 2: not UTF-8; correct it and try again\n");
    assert_eq!(bench.names(), ["nsswitch.conf"]);
    let run = bench.roster("enable --file none.conf").expect(1);
    assert!(run.err.starts_with("roster: none.conf does not exist"), "{}", run.err);
}

#[test]
fn an_enable_that_fails_leaves_no_backup() {
    let bench = host();
    // As long as a file may get below, so that the backup can be written and the longer text not.
    let text = format!("{DEBIAN}{:#<1$}", "", 1024 - DEBIAN.len());
    bench.write("nsswitch.conf", &text);
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" enable --file nsswitch.conf";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_roster")]).current_dir(bench.folder());
    let run = Run::from_command(&mut shell).expect(1);
    assert!(run.err.starts_with("roster: cannot write nsswitch.conf.roster-new: "), "{}", run.err);
    assert_eq!(bench.read("nsswitch.conf"), text);
    assert_eq!(bench.names(), ["nsswitch.conf"]);
}

/// A folder with everything in place.
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
fn doctor_finds_a_healthy_host_well() {
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
fn doctor_names_each_fault_and_what_to_do() {
    let bench = healthy_host();
    let fault = |part: &str, breaking: &dyn Fn(), mending: &dyn Fn()| {
        breaking();
        let run = bench.roster("doctor --root .").expect(1);
        let problems: Vec<_> = run.out.lines().filter(|line| line.starts_with('✗')).collect();
        assert!(problems.iter().any(|line| line.contains(part)), "no {part:?} in\n{}", run.out);
        assert!(run.out.contains("\n    → "), "{}", run.out);
        mending();
        bench.roster("doctor --root .").expect(0);
    };
    let mode = |name: &'static str, mode| {
        let path = bench.path(name);
        move || fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap()
    };
    let snapshot = "var/lib/roster/snap/roster.v3.snap";
    fault("can be written by others", &mode(snapshot, 0o666), &mode(snapshot, 0o644));
    fault("write to /var/lib", &mode("var/lib", 0o777), &mode("var/lib", 0o1777));
    let folder = "var/lib/roster/snap";
    fault("write to /var/lib/roster/snap", &mode(folder, 0o1777), &mode(folder, 0o755));
    fault("through /var", &mode("var", 0o700), &mode("var", 0o755));
    if is_root() {
        let (folder, shadow) = ("var/lib/roster/shadow", "var/lib/roster/shadow/shadow.v3.snap");
        fault("password hashes to everybody", &mode(shadow, 0o644), &mode(shadow, 0o640));
        for name in [folder, shadow] {
            let owner = |uid| {
                let path = bench.path(name);
                move || std::os::unix::fs::chown(&path, Some(uid), None).unwrap()
            };
            fault("belongs to uid 902", &owner(902), &owner(0));
        }
        let floor = || bench.write("etc/roster/floor", "min_id 500\n");
        let configure = || {
            bench.write("etc/roster/roster.toml", CONFIGURATION);
            floor();
        };
        let unconfigure = || fs::remove_dir_all(bench.path("etc/roster")).unwrap();
        fault("floor has ids from 500 on, and", &configure, &unconfigure);
        let malformed = || bench.write("etc/roster/floor", "500\n");
        fault("floor is not in the format of a floor", &malformed, &unconfigure);
    }
    let module = "usr/lib/libnss_roster.so.2";
    fault("cannot be read by everybody", &mode(module, 0o700), &mode(module, 0o644));
    fault(
        "cut or appended",
        &|| {
            let bytes = fs::read(bench.path(snapshot)).unwrap();
            fs::write(bench.path(snapshot), &bytes[..999]).unwrap();
        },
        &|| compile(&bench),
    );
    fault(
        "comes before `files`",
        &|| bench.write("etc/nsswitch.conf", "passwd: roster files\n"),
        &|| {
            bench.write("etc/nsswitch.conf", DEBIAN);
            bench.roster("enable --file etc/nsswitch.conf").expect(0);
        },
    );
    fault(
        "AppArmor is on without our rules",
        &|| {
            bench.write("sys/module/apparmor/parameters/enabled", "Y\n");
            fs::create_dir_all(bench.path("etc/apparmor.d/abstractions")).unwrap();
        },
        &|| bench.write("etc/apparmor.d/abstractions/nameservice.d/roster", ""),
    );
}

#[test]
fn doctor_waits_for_nothing() {
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
        run.out.contains("✗ /var/lib/roster/snap/roster.v3.snap is not a regular file"),
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
        assert!(run.err.starts_with(&format!("roster: cannot examine {root}: {why}")), "{run:?}");
        assert_eq!(run.out, "");
    }
}

#[test]
fn links_of_an_image_stay_in_the_image() {
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

    // Readers follow no link in the place of the last folder.
    fs::rename(bench.path("data/lib/roster/snap"), bench.path("data/snap")).unwrap();
    symlink("/data/snap", bench.path("data/lib/roster/snap")).unwrap();
    let run = bench.roster("doctor --root .").expect(1);
    assert!(run.out.contains("✗ /var/lib/roster/snap is a symbolic link"), "{}", run.out);
}

#[test]
fn doctor_sees_who_listens_on_the_socket_of_nscd() {
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
fn doctor_speaks_json() {
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
            "message": "/var/lib/roster/snap/roster.v3.snap does not exist",
            "advice": "make it with `roster compile`, or have rosterd mirror a directory into it (roster.toml(5))",
        })
    );
}
