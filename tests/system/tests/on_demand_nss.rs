// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's requests for incomplete records. It sends a request only for these. With any behaviour of the responder
//! the caller gets the right answer or "unavailable", within 3 s.
//!
//! The responder is one of this file, which answers as each test wants, and lies if need be.

use roster_passwd_format::{Group, User};
use roster_request::LookupKind;
use roster_snapshot::layout::SnapshotKind as FileKind;
use roster_snapshot_build::{IncompleteFlags, MemberVisibility, SnapshotBuilder};
use roster_system_tests::test_host::{ROSTER_NSSWITCH, find_tool};
use roster_system_tests::wait::SOON;
use roster_system_tests::{
    Corpus, NssCaller, TestHost, c_program, c_program_with, command_with_snapshot, library_dir,
    needs_root, run, wait_until,
};
use roster_wire::{NssRequestHeader, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, encode};
use rustix::net::RecvFlags;
use rustix::net::sockopt::socket_peercred;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::{NamedTempFile, TempDir};

/// The longest wait of the module, in milliseconds.
const PATIENCE_MS: u64 = 3_000;

const UNAVAILABLE: &str = "UNAVAIL EIO";
const ABSENT: &str = "NOTFOUND ENOENT";

const WHOLE: IncompleteFlags = IncompleteFlags { responder_first: false, list_unknown: false };
const ASK_FIRST: IncompleteFlags = IncompleteFlags { responder_first: true, list_unknown: false };
const LIST_UNKNOWN: IncompleteFlags =
    IncompleteFlags { responder_first: false, list_unknown: true };

/// A snapshot that leaves something open: alice and staff are sure, bob and club may be displaced,
/// carol's groups and crowd's members are not known.
fn write_snapshot(path: &Path, responder: &Path) {
    write_snapshot_from(path, responder, 1000);
}

/// The same, with that smallest id in the header.
fn write_snapshot_from(path: &Path, responder: &Path, min_id: u32) {
    let mut builder = SnapshotBuilder::new(min_id);
    builder.responder(responder.as_os_str().as_encoded_bytes()).expect("a short path");
    let users = [("alice", 1000, WHOLE), ("bob", 1001, ASK_FIRST), ("carol", 1002, LIST_UNKNOWN)];
    for (name, uid, gaps) in users {
        builder.user(&user(name, uid), gaps).expect("room for a user");
    }
    let groups = [("staff", 5000, WHOLE), ("club", 5001, ASK_FIRST), ("crowd", 5002, LIST_UNKNOWN)];
    for (name, gid, gaps) in groups {
        let members = [&b"alice"[..], b"bob"].into_iter();
        builder
            .group(&group(name, gid), members, MemberVisibility::GroupAndInitgroups, gaps)
            .expect("room for a group");
    }
    let image = builder.finish(FileKind::Accounts).expect("an image").image;
    let mut file = File::create(path).expect("create the snapshot");
    image.write(&mut file, 1).expect("write the snapshot");
    file.set_permissions(fs::Permissions::from_mode(0o644)).expect("everybody may read it");
}

fn user(name: &str, uid: u32) -> User<'_> {
    let name = name.as_bytes();
    let (gecos, dir, shell) = (Some(&b"here"[..]), Some(&b"/home"[..]), Some(&b"/bin/sh"[..]));
    User { name, passwd: Some(b"*"), uid, gid: 100, gecos, dir, shell }
}

fn group(name: &str, gid: u32) -> Group<'_> {
    Group { name: name.as_bytes(), passwd: Some(b"*"), gid }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
struct Asked {
    kind: LookupKind,
    name: String,
    id: u32,
}

/// The reply of a truthful responder. Every user and group exists, with its id at the end of its name, except `nobody`
/// and 4000.
fn truth(asked: &Asked) -> Vec<u8> {
    let mut frame = Vec::new();
    let number = |name: &str| name.trim_start_matches(char::is_alphabetic).parse().unwrap_or(7000);
    let exists = asked.name != "nobody" && asked.id != 4000;
    let said = match asked.kind {
        _ if !exists => {
            frame.extend(encode::ABSENT);
            Ok(())
        }
        LookupKind::UserByName => {
            encode::user(&mut frame, &there(&asked.name, number(&asked.name)))
        }
        LookupKind::UserByUid => encode::user(&mut frame, &there("someone", asked.id)),
        LookupKind::GroupByName => {
            encode::group(&mut frame, &group(&asked.name, number(&asked.name)), members())
        }
        LookupKind::GroupByGid => encode::group(&mut frame, &group("some", asked.id), members()),
        LookupKind::GroupsOf => encode::groups(&mut frame, [6000, 6001, 6002].into_iter()),
    };
    said.expect("a small entry");
    frame
}

fn there(name: &str, uid: u32) -> User<'_> {
    User { gecos: Some(b"there"), shell: None, ..user(name, uid) }
}

fn members() -> impl Iterator<Item = &'static [u8]> + Clone {
    [&b"alice"[..], b"a-member-with-a-longer-name", b"z"].into_iter()
}

/// A socket to which programs of every user may connect.
fn listen(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).expect("listen");
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("open it");
    listener
}

/// A responder and a snapshot that names it, in a private directory.
struct OnDemand {
    folder: TempDir,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The files of callers' clocks, which a caller opens some time after its start.
    clocks: Mutex<Vec<Clock>>,
}

impl OnDemand {
    /// `answer` gets each request with its connection.
    fn new(answer: impl Fn(&Asked, UnixStream) + Send + Sync + 'static) -> Self {
        let on_demand = Self::silent();
        let listener = listen(&on_demand.socket());
        let (asked, answer) = (Arc::clone(&on_demand.asked), Arc::new(answer));
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(question) = read_question(&connection) {
                        asked.lock().expect("no test panics with it").push(question.clone());
                        answer(&question, connection);
                    }
                });
            }
        });
        on_demand
    }

    /// A responder that sends true replies.
    fn truthful() -> Self {
        Self::new(|asked, mut connection| {
            let _ = connection.write_all(&truth(asked));
        })
    }

    /// A responder that sends those bytes to any request.
    fn saying(bytes: Vec<u8>) -> Self {
        Self::new(move |_, mut connection| {
            let _ = connection.write_all(&bytes);
        })
    }

    /// A socket without a listener.
    fn silent() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open it");
        let on_demand = Self { folder, asked: Arc::default(), clocks: Mutex::default() };
        write_snapshot(&on_demand.snapshot(), &on_demand.socket());
        on_demand
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nss")
    }

    fn snapshot(&self) -> PathBuf {
        self.folder.path().join("roster.v3.snap")
    }

    fn caller(&self) -> NssCaller {
        NssCaller::with_snapshot(&self.snapshot())
    }

    /// A caller with a clock that the test moves. While it stands still no wait of the module ends by time.
    fn caller_by(&self, clock: &Clock) -> NssCaller {
        self.clocks.lock().expect("no test panics with it").push(clock.clone());
        let mut command = command_with_snapshot(c_program("nss_caller"), &self.snapshot());
        clock.give_to(&mut command);
        NssCaller::start(command.arg("roster"))
    }

    fn questions(&self) -> usize {
        self.asked.lock().expect("no test panics with it").len()
    }
}

/// The monotonic clock of a program: it stands still until the test moves it.
#[derive(Clone)]
struct Clock(Arc<NamedTempFile>);

impl Clock {
    const START_MS: u64 = 1_000_000;

    fn stopped() -> Self {
        let clock = Self(Arc::new(NamedTempFile::new().expect("a file for the clock")));
        clock.set(0);
        clock
    }

    /// Sets the clock to so many milliseconds after its start.
    fn set(&self, ms: u64) {
        let bytes = (Self::START_MS + ms).to_ne_bytes();
        self.0.as_file().write_all_at(&bytes, 0).expect("set the clock");
    }

    fn give_to(&self, command: &mut Command) {
        let library = c_program_with("preload_clock", "clock.so", &["-shared", "-fPIC"]);
        command.env("LD_PRELOAD", library).env("ROSTER_TEST_MONOTONIC", self.0.path());
    }
}

fn read_question(mut connection: &UnixStream) -> Option<Asked> {
    let mut header = [0; REQUEST_HEADER_BYTES];
    connection.read_exact(&mut header).ok()?;
    let header = NssRequestHeader::parse(&header).expect("the module asks properly");
    let mut name = vec![0; header.name_bytes()];
    connection.read_exact(&mut name).ok()?;
    let request = header.with_name(&name).expect("the module asks properly");
    let name = String::from_utf8_lossy(request.name).into_owned();
    Some(Asked { kind: request.kind, name, id: request.id })
}

#[test]
fn what_the_snapshot_leaves_open_is_asked_for() {
    let on_demand = OnDemand::truthful();
    let mut caller = on_demand.caller();
    for (look_up, wanted) in [
        ("getpwnam zoe1234", "SUCCESS zoe1234:*:1234:100:there:/home:"),
        ("getpwuid 4321", "SUCCESS someone:*:4321:100:there:/home:"),
        ("getgrnam team6789", "SUCCESS team6789:*:6789:alice,a-member-with-a-longer-name,z"),
        ("getgrgid 9876", "SUCCESS some:*:9876:alice,a-member-with-a-longer-name,z"),
        ("initgroups zoe1234 6002", "SUCCESS 6002 6000 6001"),
        ("getpwnam nobody", ABSENT),
        ("getpwuid 4000", ABSENT),
        ("getgrnam nobody", ABSENT),
        ("getgrgid 4000", ABSENT),
        ("initgroups nobody 100", "NOTFOUND ENOENT 100"),
        // A higher-priority domain may have another bob, and club.
        ("getpwnam bob", "SUCCESS bob:*:7000:100:there:/home:"),
        ("getpwuid 1001", "SUCCESS someone:*:1001:100:there:/home:"),
        ("getgrnam club", "SUCCESS club:*:7000:alice,a-member-with-a-longer-name,z"),
        ("initgroups bob 7", "SUCCESS 7 6000 6001 6002"),
        // Their lists are not known.
        ("initgroups carol 7", "SUCCESS 7 6000 6001 6002"),
        ("getgrgid 5002", "SUCCESS some:*:5002:alice,a-member-with-a-longer-name,z"),
    ] {
        let before = on_demand.questions();
        assert_eq!(caller.send_command(look_up), wanted, "{look_up}");
        assert_eq!(on_demand.questions(), before + 1, "{look_up}");
    }
    assert_eq!(caller.send_command("descriptors"), on_demand.caller().send_command("descriptors"));
}

#[test]
fn what_the_snapshot_can_answer_is_not_asked_for() {
    let on_demand = OnDemand::truthful();
    let mut caller = on_demand.caller();
    for (look_up, wanted) in [
        ("getpwnam alice", "SUCCESS alice:*:1000:100:here:/home:/bin/sh"),
        ("getpwuid 1000", "SUCCESS alice:*:1000:100:here:/home:/bin/sh"),
        ("getgrnam staff", "SUCCESS staff:*:5000:alice,bob"),
        ("getgrgid 5000", "SUCCESS staff:*:5000:alice,bob"),
        ("initgroups alice 100", "SUCCESS 100 5000 5001 5002"),
        // Only her groups are open, not herself.
        ("getpwnam carol", "SUCCESS carol:*:1002:100:here:/home:/bin/sh"),
        ("getpwent", "SUCCESS alice:*:1000:100:here:/home:/bin/sh"),
        // Bob may be another user, which is not looked up.
        ("getpwent", "SUCCESS carol:*:1002:100:here:/home:/bin/sh"),
        ("getpwent", ABSENT),
        ("getgrent", "SUCCESS staff:*:5000:alice,bob"),
        ("getgrent", "SUCCESS crowd:*:5002:alice,bob"),
        ("getgrent", ABSENT),
        ("getspnam zoe", "UNAVAIL ENOENT"),
        // No user can have such a name or id.
        ("getpwnam root", ABSENT),
        ("initgroups root 0", "NOTFOUND ENOENT 0"),
        ("getpwuid 0", ABSENT),
        ("getgrgid 999", ABSENT),
    ] {
        assert_eq!(caller.send_command(look_up), wanted, "{look_up}");
    }
    let long = format!("getpwnam {}", "n".repeat(1025));
    assert_eq!(caller.send_command(&long), ABSENT);
    assert_eq!(on_demand.questions(), 0);
}

#[test]
fn programs_see_what_was_asked_for() {
    let on_demand = OnDemand::truthful();
    let host = TestHost::new(&Corpus::new("", b"", b"", b""), ROSTER_NSSWITCH);
    write_snapshot(&host.snapshot_path(), &on_demand.socket());
    assert_eq!(
        host.run("getent", &["passwd", "zoe1234"]).text(),
        "zoe1234:*:1234:100:there:/home:"
    );
    let id = host.run("id", &["zoe1234"]).text();
    assert_eq!(id, "uid=1234(someone) gid=100 groups=100,6000(some),6001(some),6002(some)");
    assert_eq!(host.run("getent", &["passwd", "nobody"]).code, 2);
}

#[test]
fn a_buffer_of_any_length_gets_the_right_answer_or_erange() {
    let on_demand = OnDemand::truthful();
    let mut caller = on_demand.caller();
    for look_up in ["getpwnam zoe1234", "getpwuid 4321", "getgrnam team6789", "getgrgid 9876"] {
        let answer = caller.send_command(&format!("lengths-{look_up}"));
        assert!(answer.starts_with("enough from "), "{look_up}: {answer}");
    }
}

#[test]
fn an_array_of_groups_grows_up_to_its_limit() {
    let mut frame = Vec::new();
    encode::groups(&mut frame, 2000..12_000).expect("a small list");
    let on_demand = OnDemand::saying(frame);
    let mut caller = on_demand.caller();
    let all: Vec<_> =
        (2000..12_000).filter(|&gid| gid != 3000).map(|gid| gid.to_string()).collect();
    assert_eq!(
        caller.send_command("initgroups zoe 3000"),
        format!("SUCCESS 3000 {}", all.join(" "))
    );
    assert_eq!(caller.send_command("initgroups zoe 3000 1 4"), "SUCCESS 3000 2000 2001 2002");
}

/// A payload of 64 MiB that never comes: the header is sufficient.
#[test]
fn module_too_large_reply_is_not_awaited() {
    let mut frame = Vec::new();
    encode::user(&mut frame, &there("zoe", 1234)).expect("a small entry");
    frame[8..12].copy_from_slice(&(64_u32 << 20).to_le_bytes());
    frame.truncate(REPLY_HEADER_BYTES);
    let on_demand = OnDemand::new(move |_, mut connection| {
        let _ = connection.write_all(&frame);
        wait_for_end(&connection);
    });
    let mut caller = on_demand.caller_by(&Clock::stopped());
    assert_eq!(caller.send_command("getpwnam zoe"), "TRYAGAIN ERANGE");
}

#[test]
fn a_responder_that_lies_is_unavailable() {
    let mut right = Vec::new();
    encode::user(&mut right, &there("zoe", 1234)).expect("a small entry");
    let mut team = Vec::new();
    encode::group(&mut team, &group("team", 1234), members()).expect("a small entry");
    let mut gids = Vec::new();
    encode::groups(&mut gids, [6000, 6001].into_iter()).expect("a short list");
    let changed = |frame: &[u8], place: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[place..place + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let unended = changed(&right, right.len() - 1, b"x");
    let early = changed(&right, REPLY_HEADER_BYTES + 1, b"\0");
    let fewer = changed(&team, 12, &[2]);
    let more = changed(&team, 12, &[4]);
    for (what, look_up, said) in [
        ("nothing", "getpwuid 1234", vec![]),
        ("noise", "getpwuid 1234", vec![0x5a; 4096]),
        ("another version", "getpwuid 1234", changed(&right, 4, &[2])),
        ("unavailable", "getpwuid 1234", encode::UNAVAILABLE.to_vec()),
        ("a group for a user", "getpwuid 1234", team.clone()),
        ("a user for a group", "getgrgid 1234", right.clone()),
        ("a user for groups", "initgroups zoe 100", right.clone()),
        ("groups for a user", "getpwuid 1234", gids.clone()),
        ("somebody else", "getpwuid 1235", right.clone()),
        ("another group", "getgrgid 1235", team.clone()),
        ("an id below the minimum", "getpwnam zoe", changed(&right, 16, &[0, 0, 0, 0])),
        ("a gid below the minimum", "initgroups zoe 100", changed(&gids, 28, &[27, 0, 0, 0])),
        ("a last string without end", "getpwuid 1234", unended),
        ("six strings", "getpwuid 1234", early),
        ("a member more than it says", "getgrgid 1234", fewer),
        ("a member less than it says", "getgrgid 1234", more),
        ("four billion members", "getgrgid 1234", changed(&team, 12, &[0xff; 4])),
        ("a payload of 4 GiB", "getpwuid 1234", changed(&right, 8, &[0xff; 4])),
    ] {
        let on_demand = OnDemand::saying(said);
        let answer = on_demand.caller_by(&Clock::stopped()).send_command(look_up);
        assert!(answer.starts_with(UNAVAILABLE), "{what}: {answer}");
    }
}

#[test]
fn an_answer_cut_anywhere_is_unavailable() {
    let whole = truth(&Asked { kind: LookupKind::GroupByGid, name: String::new(), id: 6000 });
    let left = Arc::new(AtomicUsize::new(0));
    let cut = Arc::clone(&left);
    let bytes = whole.clone();
    let on_demand = OnDemand::new(move |_, mut connection| {
        let _ = connection.write_all(&bytes[..cut.load(Ordering::Relaxed)]);
    });
    let mut caller = on_demand.caller();
    for len in 0..whole.len() {
        left.store(len, Ordering::Relaxed);
        assert_eq!(caller.send_command("getgrgid 6000"), UNAVAILABLE, "{len} bytes");
    }
    left.store(whole.len(), Ordering::Relaxed);
    assert!(caller.send_command("getgrgid 6000").starts_with("SUCCESS some:"));
}

#[test]
fn a_slow_answer_is_waited_for() {
    let on_demand = OnDemand::new(|asked, mut connection| {
        for byte in truth(asked) {
            thread::sleep(Duration::from_millis(10));
            let _ = connection.write_all(&[byte]);
        }
    });
    let answer = on_demand.caller().send_command("getpwnam zoe1234");
    assert_eq!(answer, "SUCCESS zoe1234:*:1234:100:there:/home:");
}

/// Holds a connection until the module closes it.
fn wait_for_end(mut connection: &UnixStream) {
    let _ = connection.read(&mut [0]);
}

#[test]
fn module_silent_responder_ends_wait_after_three_seconds() {
    let silent = OnDemand::new(|_, connection| wait_for_end(&connection));
    let clock = Clock::stopped();
    let (mut caller, is_answered) = (silent.caller_by(&clock), AtomicBool::new(false));
    assert_eq!(caller.send_command("getpwnam alice").split(' ').next(), Some("SUCCESS"));
    let before = caller.send_command("descriptors");
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_until(SOON, "the question", || silent.questions() == 1);
            clock.set(PATIENCE_MS - 1);
            thread::sleep(Duration::from_millis(300));
            assert!(!is_answered.load(Ordering::SeqCst), "the module gives up early");
            clock.set(PATIENCE_MS);
        });
        assert_eq!(caller.send_command("getpwnam zoe"), UNAVAILABLE);
        is_answered.store(true, Ordering::SeqCst);
    });
    assert_eq!(caller.send_command("descriptors"), before);
}

#[test]
fn module_endless_reply_does_not_renew_the_wait() {
    let clock = Clock::stopped();
    let hand = clock.clone();
    let endless = OnDemand::new(move |asked, mut connection| {
        for (count, byte) in (1..=10).zip(truth(asked)) {
            hand.set(400 * count);
            let _ = connection.write_all(&[byte]);
            thread::sleep(Duration::from_millis(10));
        }
        wait_for_end(&connection);
    });
    assert_eq!(endless.caller_by(&clock).send_command("getpwnam zoe"), UNAVAILABLE);
}

#[test]
fn module_unaccepted_connection_ends_wait_by_time() {
    // As a stopped responder: the kernel accepts connections, and no process sees them.
    let stopped = OnDemand::silent();
    let _listener = listen(&stopped.socket());
    // As a responder with a queue that strangers have filled.
    let full = OnDemand::silent();
    let backlog = listen(&full.socket());
    rustix::net::listen(&backlog, 1).expect("a short queue");
    let _strangers: Vec<_> = (0..2).map(|_| UnixStream::connect(full.socket())).collect();
    for (what, on_demand) in [("stopped", &stopped), ("full", &full)] {
        let clock = Clock::stopped();
        let (mut caller, is_answered) = (on_demand.caller_by(&clock), AtomicBool::new(false));
        let before = caller.send_command("descriptors");
        thread::scope(|scope| {
            scope.spawn(|| {
                // Nothing tells when the wait begins: by then the clock is at one of these two.
                clock.set(PATIENCE_MS - 1);
                thread::sleep(Duration::from_millis(300));
                assert!(!is_answered.load(Ordering::SeqCst), "{what}: the module gives up early");
                clock.set(2 * PATIENCE_MS);
            });
            assert_eq!(caller.send_command("getpwnam zoe"), UNAVAILABLE, "{what}");
            is_answered.store(true, Ordering::SeqCst);
        });
        assert_eq!(caller.send_command("descriptors"), before, "{what}");
    }
}

/// Signals end system calls early. They neither end the request nor restart its timeout.
#[test]
fn module_interrupted_wait_keeps_time_and_errno() {
    let patient = |on_demand: &OnDemand, clock: &Clock| {
        let mut command =
            command_with_snapshot(c_program("lookup_under_signals"), &on_demand.snapshot());
        clock.give_to(&mut command);
        run(command.arg("zoe1234")).text()
    };
    let slow = OnDemand::new(|asked, mut connection| {
        thread::sleep(Duration::from_millis(300));
        let _ = connection.write_all(&truth(asked));
    });
    let clock = Clock::stopped();
    let told = patient(&slow, &clock);
    let fields: Vec<_> = told.split_whitespace().collect();
    assert_eq!([fields[0], fields[1], fields[3], fields[4]], ["1", "0", "kept", "interrupted"]);

    let clock = Clock::stopped();
    let hand = clock.clone();
    let silent = OnDemand::new(move |_, connection| {
        // Hundreds of signals, and the module still waits.
        thread::sleep(Duration::from_millis(300));
        let peeked =
            rustix::net::recv(&connection, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let late = if peeked.is_err() { PATIENCE_MS } else { 0 };
        hand.set(late);
        wait_for_end(&connection);
    });
    // Only the clock ends the wait.
    assert_eq!(patient(&silent, &clock), format!("-1 EIO {PATIENCE_MS} kept interrupted"));
}

#[test]
fn without_a_responder_nothing_is_absent() {
    let nobody = OnDemand::silent();
    let mut caller = nobody.caller_by(&Clock::stopped());
    for look_up in ["getpwnam zoe", "getgrgid 6000", "getpwnam bob", "initgroups carol 100"] {
        let answer = caller.send_command(look_up);
        assert!(answer.starts_with(UNAVAILABLE), "{look_up}: {answer}");
    }
    // Entries of the snapshot are still served.
    assert_eq!(
        caller.send_command("getpwnam alice"),
        "SUCCESS alice:*:1000:100:here:/home:/bin/sh"
    );
    // A file that is not a socket, and a socket without a listener.
    fs::write(nobody.socket(), "").expect("a file in its place");
    assert_eq!(caller.send_command("getpwnam zoe"), UNAVAILABLE);
    fs::remove_file(nobody.socket()).expect("remove it");
    drop(listen(&nobody.socket()));
    assert_eq!(caller.send_command("getpwnam zoe"), UNAVAILABLE);
}

/// A program that closed its standard error may write there all the same.
#[test]
fn the_connection_is_never_a_standard_descriptor() {
    let open = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&open);
    let on_demand = OnDemand::new(move |asked, mut connection| {
        let pid = socket_peercred(&connection).expect("who asks").pid;
        let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
        for entry in fs::read_dir(folder).expect("its descriptors") {
            let path = entry.expect("a descriptor").path();
            let number = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
            let target = fs::read_link(&path).map(|target| target.to_string_lossy().into_owned());
            let pair = (number.expect("a number"), target.unwrap_or_default());
            seen.lock().expect("no test panics with it").push(pair);
        }
        let _ = connection.write_all(&truth(asked));
    });
    let mut shell = command_with_snapshot("sh", &on_demand.snapshot());
    shell.args(["-c", r#"exec "$0" roster 2>&-"#]).arg(c_program("nss_caller"));
    let mut caller = NssCaller::start(&mut shell);
    assert!(caller.send_command("getpwnam zoe1234").starts_with("SUCCESS "));
    let open = open.lock().expect("no test panics with it");
    assert!(open.iter().all(|(number, _)| *number != 2), "{open:?}");
    let sockets =
        open.iter().filter(|(number, target)| *number > 2 && target.starts_with("socket:"));
    assert_eq!(sockets.count(), 1, "{open:?}");
}

/// The floor holds for replies of a responder that a compromised publisher names.
#[test]
fn module_applies_floor_to_answers() {
    const PUBLISHER: u32 = 12_345;
    if !needs_root() {
        return;
    }
    let said = |question: &str, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        fill(&mut frame);
        let on_demand = OnDemand::saying(frame);
        let host = TestHost::new(&Corpus::new("", b"", b"", b""), ROSTER_NSSWITCH);
        write_snapshot_from(&host.snapshot_path(), &on_demand.socket(), 0);
        for path in [host.snapshots_dir(), host.snapshot_path()] {
            chown(path, Some(PUBLISHER), None).expect("give it to the publisher");
        }
        NssCaller::start(host.command(c_program("nss_caller")).arg("roster")).send_command(question)
    };
    let found = "SUCCESS zoe:*:1234:1100:there:/home:";
    for (uid, gid, passwd, expected) in [
        (0, 1100, "*", UNAVAILABLE),
        (999, 1100, "*", UNAVAILABLE),
        (65_534, 1100, "*", UNAVAILABLE),
        (u32::MAX, 1100, "*", UNAVAILABLE),
        (1234, 0, "*", UNAVAILABLE),
        (1234, 100, "*", UNAVAILABLE),
        (1234, 65_535, "*", UNAVAILABLE),
        (1234, 1100, "", UNAVAILABLE),
        (1234, 1100, "*", found),
        (1234, 1100, "x", found),
        (1234, 1100, "$6$hash", found),
    ] {
        let zoe = User { gid, passwd: Some(passwd.as_bytes()), ..there("zoe", uid) };
        let answer = said("getpwnam zoe", &|frame| encode::user(frame, &zoe).expect("small"));
        assert_eq!(answer, expected, "{uid} {gid} {passwd:?}");
    }
    let found = "SUCCESS club:*:6000:alice,a-member-with-a-longer-name,z";
    for (gid, passwd, expected) in [
        (0, "*", UNAVAILABLE),
        (27, "*", UNAVAILABLE),
        (65_534, "*", UNAVAILABLE),
        (6000, "", UNAVAILABLE),
        (6000, "$6$hash", found),
    ] {
        let club = Group { passwd: Some(passwd.as_bytes()), ..group("club", gid) };
        let answer =
            said("getgrnam club", &|frame| encode::group(frame, &club, members()).expect("small"));
        assert_eq!(answer, expected, "{gid} {passwd:?}");
    }
    let groups: &[u32] = &[0, 1000, 27, 6000, 65_534, 65_535, u32::MAX, 6002];
    let answer = said("initgroups zoe 1100", &|frame| {
        encode::groups(frame, groups.iter().copied()).expect("small");
    });
    assert_eq!(answer, "SUCCESS 1100 1000 6000 6002");
}

/// A listener of that user, in a separate process, that sends the content of a file.
struct Stranger(std::process::Child);

impl Stranger {
    fn listen(uid: u32, socket: &Path, frame: &Path) -> Self {
        const SCRIPT: &str = "import os, socket, sys\n\
            os.setgroups([])\n\
            os.setuid(int(sys.argv[3]))\n\
            s = socket.socket(socket.AF_UNIX)\n\
            s.bind(sys.argv[1])\n\
            os.chmod(sys.argv[1], 0o666)\n\
            s.listen()\n\
            print('listening', flush=True)\n\
            while True:\n    c, _ = s.accept()\n    try:\n        c.recv(19, socket.MSG_WAITALL)\n        \
            c.sendall(open(sys.argv[2], 'rb').read())\n    except OSError:\n        pass\n    c.close()\n";
        let mut command = Command::new(find_tool("python3", "python3"));
        command.args(["-c", SCRIPT]).arg(socket).arg(frame).arg(uid.to_string());
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("start it");
        let mut line = [0; 10];
        let stdout = child.stdout.as_mut().expect("standard output was piped");
        stdout.read_exact(&mut line).expect("it listens");
        Self(child)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn only_root_and_the_snapshots_owner_are_believed() {
    const OWNER: u32 = 12_345;
    const OTHER: u32 = 54_321;
    if !needs_root() {
        return;
    }
    for (listener, owner, wanted) in [
        (OTHER, 0, UNAVAILABLE),
        (OWNER, 0, UNAVAILABLE),
        (OTHER, OWNER, UNAVAILABLE),
        (OWNER, OWNER, "SUCCESS zoe:*:1234:100:there:/home:"),
        (0, OWNER, "SUCCESS zoe:*:1234:100:there:/home:"),
        (0, 0, "SUCCESS zoe:*:1234:100:there:/home:"),
    ] {
        let on_demand = OnDemand::silent();
        let folder = on_demand.folder.path();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).expect("for everybody");
        chown(on_demand.snapshot(), Some(owner), None).expect("give the snapshot away");
        let mut frame = Vec::new();
        encode::user(&mut frame, &there("zoe", 1234)).expect("a small entry");
        fs::write(folder.join("frame"), frame).expect("write the answer");
        let _stranger = Stranger::listen(listener, &on_demand.socket(), &folder.join("frame"));
        let mut command = Command::new(find_tool("setpriv", "util-linux"));
        command.args([format!("--reuid={OWNER}"), format!("--regid={OWNER}")]);
        // Copies, because the tree may lie in a directory that user cannot enter. A program makes them: while this
        // process has a file open for writing, children of its other threads cannot run it.
        let mut copy = Command::new("cp");
        copy.arg(library_dir().join("libnss_roster.so.2")).arg(c_program("nss_caller")).arg(folder);
        assert_eq!(run(&mut copy).code, 0);
        command.arg("--clear-groups").arg(folder.join("nss_caller")).arg("roster");
        command.env("LD_LIBRARY_PATH", folder);
        command.env("ROSTER_SNAPSHOT", on_demand.snapshot());
        let mut caller = NssCaller::start(&mut command);
        assert_eq!(
            caller.send_command("getpwnam zoe"),
            wanted,
            "{owner}'s snapshot, answer of {listener}"
        );
    }
}
