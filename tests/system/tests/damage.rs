//! A snapshot that is missing, damaged or not to be trusted is UNAVAIL, never "no such user", never
//! a crash, and never a wrong answer; a good one is taken up again.

use roster_system_tests::{Caller, Corpus, Host};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The module looks for a new file at most this often.
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

fn host() -> Host {
    Host::serving(&corpus(), "")
}

/// The status and errno of a look-up that finds no usable snapshot.
#[track_caller]
fn assert_all(caller: &mut Caller, outcome: &str, why: &str) {
    for look_up in LOOK_UPS.into_iter().chain(["getspnam alice"]) {
        let answer = caller.say(look_up);
        assert!(answer == outcome || answer == format!("{outcome} 1000"), "{why}: {answer}");
    }
}

#[track_caller]
fn assert_refused(snapshot: &Path, why: &str) {
    assert_all(&mut Caller::reading(snapshot), "UNAVAIL EIO", why);
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
    let host = Host::new(&corpus(), "");
    assert_all(&mut Caller::reading(&host.snapshot()), "UNAVAIL ENOENT", "no file");
    let nowhere = host.path("state/nowhere/roster.snap");
    assert_all(&mut Caller::reading(&nowhere), "UNAVAIL ENOENT", "no folder");
}

#[test]
fn what_is_no_snapshot_is_unavail_with_eio() {
    let host = host();
    let good = fs::read(host.snapshot()).expect("read");
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
        replace(&host.snapshot(), bytes);
        replace(&host.shadow_snapshot(), bytes);
        assert_refused(&host.snapshot(), why);
    }
}

#[test]
fn what_is_no_file_is_unavail_with_eio() {
    let host = host();
    for name in ["roster.snap", "shadow.snap"] {
        let path = host.snapshots().join(name);
        fs::remove_file(&path).expect("remove");
        fs::create_dir(&path).expect("create a folder in its place");
    }
    assert_refused(&host.snapshot(), "a folder");
}

/// A process that opened a fifo would wait for ever for somebody to write.
#[test]
fn a_fifo_in_place_of_the_snapshot_does_not_block() {
    let host = host();
    for name in ["roster.snap", "shadow.snap"] {
        let path = host.snapshots().join(name);
        fs::remove_file(&path).expect("remove");
        let made = std::process::Command::new("mkfifo").arg("-m644").arg(&path).status();
        assert!(made.expect("run mkfifo").success());
    }
    assert_refused(&host.snapshot(), "a fifo");
}

/// On the default path, where no environment is asked, the same rules hold for file and folder.
#[test]
fn a_snapshot_that_others_could_write_is_unavail_with_eio() {
    for (name, mode) in [("roster.snap", 0o646), ("roster.snap", 0o666), ("", 0o777)] {
        let host = host();
        set_mode(&host.snapshots().join(name), mode);
        let mut caller = Caller::start(default_caller(&host).arg("roster"));
        let answer = caller.say("getpwnam alice");
        assert_eq!(answer, "UNAVAIL EIO", "{name} {mode:o}");
    }
}

#[test]
fn a_strangers_snapshot_is_unavail_with_eio() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = host();
    chown(host.snapshot(), Some(12345), None).expect("chown");
    let mut caller = Caller::start(default_caller(&host).arg("roster"));
    assert_eq!(caller.say("getpwnam alice"), "UNAVAIL EIO");
}

/// A folder's owner may publish in it, as the publisher's own user does.
#[test]
fn a_snapshot_of_its_folders_owner_is_served() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = host();
    chown(host.snapshots(), Some(12345), None).expect("chown");
    chown(host.snapshot(), Some(12345), None).expect("chown");
    let mut caller = Caller::start(default_caller(&host).arg("roster"));
    assert!(caller.say("getpwnam alice").starts_with("SUCCESS alice:"));
}

/// Programs take ENOENT for "no such user".
#[test]
fn missing_snapshot_is_eio_once_published() {
    if !roster_system_tests::needs_root() {
        return;
    }
    let host = Host::new(&corpus(), "");
    let mark = host.configuration().join("published");
    let say = |request: &str| Caller::start(default_caller(&host).arg("roster")).say(request);
    assert_eq!(say("getpwnam alice"), "UNAVAIL ENOENT");
    fs::write(&mark, "").expect("write the mark");
    assert_eq!(say("getpwnam alice"), "UNAVAIL EIO");
    assert_eq!(say("getspnam alice"), "UNAVAIL ENOENT", "there need be no password hashes");
    host.publish(&corpus());
    assert!(say("getpwnam alice").starts_with("SUCCESS alice:"));
}

fn default_caller(host: &Host) -> std::process::Command {
    host.command(roster_system_tests::c_program("caller"))
}

#[test]
fn a_bad_new_file_leaves_the_old_generation_serving_and_a_good_one_is_taken_up() {
    let host = host();
    let mut caller = Caller::reading(&host.snapshot());
    let before = caller.say("getpwnam alice");
    assert!(before.starts_with("SUCCESS"), "{before}");
    for bad in [&b""[..], b"not a snapshot", &[0xff; 5000]] {
        replace(&host.snapshot(), bad);
        sleep(2 * REFRESH);
        assert_eq!(caller.say("getpwnam alice"), before);
    }
    fs::remove_file(host.snapshot()).expect("remove");
    sleep(2 * REFRESH);
    assert_eq!(caller.say("getpwnam alice"), before);
    let mut next = corpus();
    next.passwd = b"alice:x:2000:2000:second::\n".to_vec();
    host.publish(&next);
    sleep(2 * REFRESH);
    assert!(caller.say("getpwnam alice").starts_with("SUCCESS alice:x:2000:2000:second:"));
    assert_eq!(caller.say("maps roster.snap"), "1");
}

/// A process that asked too early is not left without users for ever.
#[test]
fn the_first_good_snapshot_is_taken_up_after_none_and_after_a_bad_one() {
    let host = Host::new(&corpus(), "");
    let mut caller = Caller::reading(&host.snapshot());
    assert_eq!(caller.say("getpwnam alice"), "UNAVAIL ENOENT");
    replace(&host.snapshot(), b"bad");
    sleep(2 * REFRESH);
    assert_eq!(caller.say("getpwnam alice"), "UNAVAIL EIO");
    host.publish(&corpus());
    sleep(2 * REFRESH);
    assert!(caller.say("getpwnam alice").starts_with("SUCCESS alice:"));
}

/// With any byte changed: the right answer or UNAVAIL, nothing else. A byte that nobody reads may
/// be wrong; a damaged record may not be served.
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
    let mut caller = Caller::reading(snapshot);
    LOOK_UPS.iter().chain(&["getspnam alice"]).map(|look_up| caller.say(look_up)).collect()
}

/// Puts damaged variants of both snapshots in place, one after the other, each for a fresh process.
#[track_caller]
fn assert_truth_or_unavail(variants: impl Fn(&[u8]) -> Vec<(String, Vec<u8>)>) {
    for name in ["roster.snap", "shadow.snap"] {
        let host = host();
        let truth = answers(&host.snapshot());
        let file = host.snapshots().join(name);
        let good = fs::read(&file).expect("read the snapshot");
        let mut noticed = 0;
        for (what, bytes) in variants(&good) {
            replace(&file, &bytes);
            let found = answers(&host.snapshot());
            for (answer, truth) in found.iter().zip(&truth) {
                let refused = answer == "UNAVAIL EIO" || answer == "UNAVAIL EIO 1000";
                assert!(answer == truth || refused, "{name}, {what}: {answer}");
            }
            noticed += usize::from(found != truth);
        }
        assert!(noticed > 0, "{name}: damage is never noticed");
    }
}
