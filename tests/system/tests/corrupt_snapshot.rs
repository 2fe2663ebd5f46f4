// SPDX-License-Identifier: MIT OR Apache-2.0
//! A snapshot that is missing, damaged or not trusted is UNAVAIL. It is never "no such user", a crash, or a wrong
//! answer. A good snapshot is used again.

use roster_system_tests::{Corpus, NssCaller, TestHost};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The module checks for a new file at most this often.
const REFRESH: Duration = Duration::from_millis(100);

const LOOK_UPS: [&str; 9] = [
    "getpwnam alice",
    "getpwuid 1000",
    "getgrnam staff",
    "getgrgid 50",
    "initgroups alice 1000",
    "getpwent",
    "getgrent",
    "getpwnam nobody",
    "getgrgid 77",
];

fn corpus() -> Corpus {
    Corpus::new(
        "",
        b"alice:x:1000:1000:Alice:/home/alice:/bin/sh\nbob:x:1001:1001:::\n",
        b"staff:x:50:alice,bob\nwheel:x:10:alice\n",
        b"alice:*:1:2:3:4:5:6:7\n",
    )
}

fn host() -> TestHost {
    TestHost::serving(&corpus(), "")
}

/// The status and errno of a lookup that finds no usable snapshot.
#[track_caller]
fn assert_all(caller: &mut NssCaller, outcome: &str, why: &str) {
    for look_up in LOOK_UPS.into_iter().chain(["getspnam alice"]) {
        let answer = caller.send_command(look_up);
        assert!(answer == outcome || answer == format!("{outcome} 1000"), "{why}: {answer}");
    }
}

#[track_caller]
fn assert_refused(snapshot: &Path, why: &str) {
    assert_all(&mut NssCaller::with_snapshot(snapshot), "UNAVAIL EIO", why);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// As a publisher would: a new file, moved into place.
fn replace(path: &Path, bytes: &[u8]) {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, bytes).expect("write");
    set_mode(&fresh, 0o644);
    fs::rename(&fresh, path).expect("rename");
}

#[test]
fn no_snapshot_is_unavail_with_enoent() {
    let host = TestHost::new(&corpus(), "");
    assert_all(&mut NssCaller::with_snapshot(&host.snapshot_path()), "UNAVAIL ENOENT", "no file");
    let nowhere = host.path("state/nowhere/roster.v3.snap");
    assert_all(&mut NssCaller::with_snapshot(&nowhere), "UNAVAIL ENOENT", "no folder");
}

#[test]
fn what_is_no_snapshot_is_unavail_with_eio() {
    let host = host();
    let good = fs::read(host.snapshot_path()).expect("read");
    let mut wrong_version = good.clone();
    // The version follows the eight bytes of the magic number.
    wrong_version[8] ^= 0x55;
    for (why, bytes) in [
        ("empty", &b""[..]),
        ("text", b"alice:x:1000:1000:::\n"),
        ("zeros", &[0; 8192]),
        ("cut in half", &good[..good.len() / 2]),
        ("one byte short", &good[..good.len() - 1]),
        ("wrong version", &wrong_version),
    ] {
        replace(&host.snapshot_path(), bytes);
        replace(&host.shadow_snapshot_path(), bytes);
        assert_refused(&host.snapshot_path(), why);
    }
}

#[test]
fn what_is_no_file_is_unavail_with_eio() {
    let host = host();
    for name in ["roster.v3.snap", "shadow.v3.snap"] {
        let path = host.snapshots_dir().join(name);
        fs::remove_file(&path).expect("remove");
        fs::create_dir(&path).expect("create a folder in its place");
    }
    assert_refused(&host.snapshot_path(), "a folder");
}

/// A process that opened a fifo would wait for ever for a writer.
#[test]
fn a_fifo_in_place_of_the_snapshot_does_not_block() {
    let host = host();
    for name in ["roster.v3.snap", "shadow.v3.snap"] {
        let path = host.snapshots_dir().join(name);
        fs::remove_file(&path).expect("remove");
        let made = std::process::Command::new("mkfifo").arg("-m644").arg(&path).status();
        assert!(made.expect("run mkfifo").success());
    }
    assert_refused(&host.snapshot_path(), "a fifo");
}

/// On the default path, which no environment variable sets, the same rules hold for file and directory.
#[test]
fn a_snapshot_that_others_could_write_is_unavail_with_eio() {
    for (name, mode) in [("roster.v3.snap", 0o646), ("roster.v3.snap", 0o666), ("", 0o777)] {
        let host = host();
        set_mode(&host.snapshots_dir().join(name), mode);
        let mut caller = NssCaller::start(default_caller(&host).arg("roster"));
        let answer = caller.send_command("getpwnam alice");
        assert_eq!(answer, "UNAVAIL EIO", "{name} {mode:o}");
    }
}

#[test]
fn a_strangers_snapshot_is_unavail_with_eio() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = host();
    chown(host.snapshot_path(), Some(12345), None).expect("chown");
    let mut caller = NssCaller::start(default_caller(&host).arg("roster"));
    assert_eq!(caller.send_command("getpwnam alice"), "UNAVAIL EIO");
}

/// A directory's owner may publish in it, as the publisher's own user does.
#[test]
fn a_snapshot_of_its_folders_owner_is_served() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = host();
    chown(host.snapshots_dir(), Some(12345), None).expect("chown");
    chown(host.snapshot_path(), Some(12345), None).expect("chown");
    let mut caller = NssCaller::start(default_caller(&host).arg("roster"));
    assert!(caller.send_command("getpwnam alice").starts_with("SUCCESS alice:"));
}

/// Programs take ENOENT for "no such user".
#[test]
fn missing_snapshot_is_eio_once_published() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = TestHost::new(&corpus(), "");
    let mark = host.make_config_dir().join("published");
    let say =
        |request: &str| NssCaller::start(default_caller(&host).arg("roster")).send_command(request);
    assert_eq!(say("getpwnam alice"), "UNAVAIL ENOENT");
    fs::write(&mark, "").expect("write the mark");
    assert_eq!(say("getpwnam alice"), "UNAVAIL EIO");
    assert_eq!(say("getspnam alice"), "UNAVAIL ENOENT", "there need be no password hashes");
    host.publish(&corpus());
    assert!(say("getpwnam alice").starts_with("SUCCESS alice:"));
}

fn default_caller(host: &TestHost) -> std::process::Command {
    host.command(roster_system_tests::c_program("nss_caller"))
}

#[test]
fn generations_bad_file_keeps_old_good_replaces() {
    let host = host();
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    let before = caller.send_command("getpwnam alice");
    assert!(before.starts_with("SUCCESS"), "{before}");
    for bad in [&b""[..], b"not a snapshot", &[0xff; 5000]] {
        replace(&host.snapshot_path(), bad);
        sleep(2 * REFRESH);
        assert_eq!(caller.send_command("getpwnam alice"), before);
    }
    fs::remove_file(host.snapshot_path()).expect("remove");
    sleep(2 * REFRESH);
    assert_eq!(caller.send_command("getpwnam alice"), before);
    let mut next = corpus();
    next.passwd = b"alice:x:2000:2000:second::\n".to_vec();
    host.publish(&next);
    sleep(2 * REFRESH);
    assert!(caller.send_command("getpwnam alice").starts_with("SUCCESS alice:x:2000:2000:second:"));
    assert_eq!(caller.send_command("maps roster.v3.snap"), "1");
}

/// A process with a lookup before the first good file gets users later.
#[test]
fn generations_first_good_file_is_taken() {
    let host = TestHost::new(&corpus(), "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    assert_eq!(caller.send_command("getpwnam alice"), "UNAVAIL ENOENT");
    replace(&host.snapshot_path(), b"bad");
    sleep(2 * REFRESH);
    assert_eq!(caller.send_command("getpwnam alice"), "UNAVAIL EIO");
    host.publish(&corpus());
    sleep(2 * REFRESH);
    assert!(caller.send_command("getpwnam alice").starts_with("SUCCESS alice:"));
}

/// With any byte changed: the right answer or UNAVAIL, nothing else. A byte without a reader may be wrong; a damaged
/// record may not be served.
#[test]
fn a_flipped_bit_in_any_byte_is_never_served_as_truth() {
    assert_truth_or_unavail(|good| {
        (0..good.len())
            .map(|at| {
                let mut bytes = good.to_vec();
                bytes[at] ^= 1 << (at % 8);
                (format!("byte {at} flipped"), bytes)
            })
            .collect()
    });
}

#[test]
fn a_snapshot_cut_at_any_length_is_never_served_as_truth() {
    assert_truth_or_unavail(|good| {
        let step = (good.len() / 200).max(1);
        let cut = |len| (format!("cut to {len} bytes"), good[..len].to_vec());
        (0..good.len()).step_by(step).map(cut).collect()
    });
}

fn answers(snapshot: &Path) -> Vec<String> {
    let mut caller = NssCaller::with_snapshot(snapshot);
    LOOK_UPS.iter().chain(&["getspnam alice"]).map(|look_up| caller.send_command(look_up)).collect()
}

/// Puts damaged variants of both snapshots in place, one after the other, each for a fresh process.
#[track_caller]
fn assert_truth_or_unavail(variants: impl Fn(&[u8]) -> Vec<(String, Vec<u8>)>) {
    for name in ["roster.v3.snap", "shadow.v3.snap"] {
        let host = host();
        let truth = answers(&host.snapshot_path());
        let file = host.snapshots_dir().join(name);
        let good = fs::read(&file).expect("read the snapshot");
        let mut noticed = 0;
        for (what, bytes) in variants(&good) {
            replace(&file, &bytes);
            let found = answers(&host.snapshot_path());
            for (answer, truth) in found.iter().zip(&truth) {
                let refused = answer == "UNAVAIL EIO" || answer == "UNAVAIL EIO 1000";
                assert!(answer == truth || refused, "{name}, {what}: {answer}");
            }
            noticed += usize::from(found != truth);
        }
        assert!(noticed > 0, "{name}: damage is never noticed");
    }
}
