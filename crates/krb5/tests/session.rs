//! `roster-krb5 session`: caches of tickets for sessions, as klist, the kernel and a KDC see them.
//! Becoming a user takes root.

mod common;

use common::{Program, SOON, commands, realm, setup};
use roster_krb5::message::Want;
use roster_krb5::tickets::Tickets;
use roster_system_tests::host::tool;
use roster_system_tests::servers::{Kcm, Kdc};
use roster_system_tests::wait_until;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Nobody else's on a machine of tests.
const UID: u32 = 1_734_005;
const GID: u32 = 1_734_006;
/// Who has a session in which a ticket is renewed.
const RENEWED_UID: u32 = 1_734_007;

struct World {
    kdc: Kdc,
    folder: tempfile::TempDir,
    life_seconds: u32,
}

impl World {
    fn new(life_seconds: u32) -> Self {
        assert!(rustix::process::geteuid().is_root(), "becoming another user takes root");
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let kdc = Kdc::start(
            &commands(&[
                "addprinc +requires_preauth -pw secret alice",
                "addprinc +requires_preauth -pw secret bob",
            ]),
            "max_renewable_life = 1d",
        );
        Self { kdc, folder, life_seconds }
    }

    /// What a log-in hands on.
    fn tickets(&self, user: &str, cache: &str) -> Vec<u8> {
        let realm = realm(&self.kdc);
        let mut setup = setup(&realm, None);
        setup.life_seconds = self.life_seconds;
        let reply = Program::ready(&setup).ask(Want::Ticket, user, "secret", "");
        let tickets = Tickets {
            cache: cache.into(),
            profile: realm.text(None),
            renew: true,
            file: reply.ticket,
        };
        tickets.encode().to_vec()
    }

    fn file_cache(&self) -> String {
        format!("FILE:{}/krb5cc_XXXXXX", self.folder.path().display())
    }

    /// What klist says as the user.
    fn klist(&self, cache: &str) -> Output {
        self.klist_as(UID, cache)
    }

    fn klist_as(&self, uid: u32, cache: &str) -> Output {
        let mut command = Command::new(tool("klist", "krb5-user"));
        command.args(["-f", "-c", cache]).uid(uid).gid(GID).env_clear().output().unwrap()
    }
}

fn session(words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roster-krb5"));
    fed(command.arg("session").args(words).env_clear(), input)
}

fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// For the usual user; gives the name of the cache.
#[track_caller]
fn does(words: &[&str], input: &[u8]) -> String {
    let ids = [UID.to_string(), GID.to_string()];
    let words = [&words[..1], &[&ids[0], &ids[1]], &words[1..]].concat();
    let done = session(&words, input);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn is_refused(words: &[&str], input: &[u8], why: &str) {
    let done = session(words, input);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && done.stdout.is_empty() && said.contains(why), "{said}");
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_cache_is_the_users_alone_and_goes_when_it_is_told_to() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let name = does(&["store"], &alice);
    let path = name.strip_prefix("FILE:").unwrap();
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode()), (UID, GID, 0o100_600));
    let listed = text(&world.klist(&name));
    assert!(listed.contains("Default principal: alice@LAB.TEST"), "{listed}");
    assert!(listed.contains("krbtgt/LAB.TEST@LAB.TEST"), "{listed}");

    // One more session has one of its own.
    let other = does(&["store"], &alice);
    assert_ne!(other, name);

    // A later log-in in the same session fills it anew, and another user's does not.
    let before = fs::read(path).unwrap();
    assert_eq!(does(&["refresh", &name], &world.tickets("alice", "KCM:")), name);
    assert_ne!(fs::read(path).unwrap(), before);
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!((found.uid(), found.mode()), (UID, 0o100_600));
    let ids = [UID.to_string(), GID.to_string()];
    let bob = world.tickets("bob", "KCM:");
    is_refused(&["refresh", &ids[0], &ids[1], &name], &bob, "alice@LAB.TEST's");

    does(&["delete", &name], b"");
    assert!(!Path::new(path).exists() && world.klist(&other).status.success());
    does(&["delete", &name], b"");
    does(&["delete", &other], b"");
    assert_eq!(fs::read_dir(world.folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_not_a_users_own_is_left_alone() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let ids = [UID.to_string(), GID.to_string()];
    is_refused(&["store", "0", "0"], &alice, "no tickets");
    is_refused(&["store", "-1", &ids[1]], &alice, "no tickets");
    is_refused(&["store", &ids[0], &ids[1]], b"nothing of ours", "not a message");
    let shared = world.tickets("alice", "FILE:/tmp/krb5cc_1");
    is_refused(&["store", &ids[0], &ids[1]], &shared, "would share it");
    // A file of root's by the name that a session is made to give back.
    let path = world.folder.path().join("root");
    fs::write(&path, "root's").unwrap();
    let name = format!("FILE:{}", path.display());
    is_refused(&["delete", &ids[0], &ids[1], &name], b"", "not permitted");
    symlink(&path, world.folder.path().join("link")).unwrap();
    let link = format!("FILE:{}/link", world.folder.path().display());
    is_refused(&["refresh", &ids[0], &ids[1], &link], &alice, "");
    assert_eq!(fs::read(&path).unwrap(), b"root's");
    // A folder in which the user may make nothing.
    let closed = world.tickets("alice", "FILE:/root/krb5cc_XXXXXX");
    is_refused(&["store", &ids[0], &ids[1]], &closed, "Permission denied");
}

#[test]
fn collections_have_a_cache_for_each_session() {
    let world = World::new(3600);
    let dir = world.folder.path().join("caches");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(UID), Some(GID)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    for collection in [format!("DIR:{}", dir.display()), format!("KEYRING:persistent:{UID}")] {
        let blob = world.tickets("alice", &collection);
        let (one, two) = (does(&["store"], &blob), does(&["store"], &blob));
        assert_ne!(one, two);
        assert_eq!(one.split(':').next(), collection.split(':').next());
        for name in [&one, &two] {
            let listed = text(&world.klist(name));
            assert!(listed.contains("alice@LAB.TEST"), "{name}: {listed}");
        }
        assert_eq!(does(&["refresh", &one], &blob), one);
        does(&["delete", &one], b"");
        assert!(!world.klist(&one).status.success(), "{one} is still there");
        assert!(world.klist(&two).status.success());
        does(&["delete", &two], b"");
    }
}

#[test]
fn a_server_of_caches_has_one_for_each_session_and_keeps_users_apart() {
    let world = World::new(3600);
    let kcm = Kcm::start();
    let blob = world.tickets("alice", "KCM:");
    let user = [UID.to_string(), GID.to_string()];
    let session = |words: &[&str], input: &[u8]| {
        let mut command = kcm.inside(env!("CARGO_BIN_EXE_roster-krb5"));
        let words = [&["session", words[0], &user[0], &user[1]], &words[1..]].concat();
        let done = fed(command.args(words), input);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        text(&done).trim().to_owned()
    };
    let klist = |uid: u32, cache: &str| {
        let mut command = kcm.inside("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={GID}"), "--clear-groups"]);
        text(&command.arg(tool("klist", "krb5-user")).args(["-c", cache]).output().unwrap())
    };
    let (one, two) = (session(&["store"], &blob), session(&["store"], &blob));
    assert!(one.starts_with("KCM:") && two.starts_with("KCM:") && one != two, "{one} {two}");
    for name in [&one, &two] {
        let listed = klist(UID, name);
        assert!(listed.contains("Default principal: alice@LAB.TEST"), "{name}: {listed}");
        assert!(listed.contains("krbtgt/LAB.TEST@LAB.TEST"), "{name}: {listed}");
        let others = klist(RENEWED_UID, name);
        assert!(!others.contains("alice"), "{name} is another user's, too: {others}");
    }
    // What programs of the user find that are told of none.
    assert!(klist(UID, "KCM:").contains("alice@LAB.TEST"));
    assert_eq!(session(&["refresh", &one], &blob), one);
    session(&["delete", &one], b"");
    assert!(!klist(UID, &one).contains("alice"), "{one} is still there");
    assert!(klist(UID, &two).contains("krbtgt/LAB.TEST@LAB.TEST"));
    session(&["delete", &two], b"");
}

#[test]
fn where_no_server_of_caches_answers_that_is_said() {
    let world = World::new(3600);
    let ids = [UID.to_string(), GID.to_string()];
    let blob = world.tickets("alice", "KCM:");
    is_refused(&["store", &ids[0], &ids[1]], &blob, "KCM");
}

/// The end of the ticket, as klist prints it.
fn end_of_ticket(world: &World, name: &str) -> String {
    let listed = text(&world.klist_as(RENEWED_UID, name));
    let line = listed.lines().find(|line| line.contains("krbtgt/")).unwrap_or_default();
    line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(" ")
}

/// A program that ends, however the test does.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes of the program that renew.
fn renewing() -> Vec<String> {
    let uid = RENEWED_UID.to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    let is_one = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&byte| byte == 0).collect();
        words.contains(&b"session".as_slice()) && words.contains(&uid.as_bytes())
    };
    pids.filter(is_one).collect()
}

#[test]
fn a_ticket_is_renewed_for_as_long_as_its_session_lives() {
    let world = World::new(6);
    let blob = world.tickets("alice", &world.file_cache());
    let held = world.folder.path().join("blob");
    fs::write(&held, blob).unwrap();
    // A program with a session: it stores what a log-in brought, and goes on.
    let script = "\"$1\" session store \"$2\" \"$3\" <\"$4\" >\"$5\"; echo; exec sleep 600";
    let name_file = world.folder.path().join("name");
    let program = Command::new("sh")
        .args(["-c", script, "program", env!("CARGO_BIN_EXE_roster-krb5")])
        .args([RENEWED_UID.to_string(), GID.to_string()])
        .args([&held, &name_file])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let program = Ended(program);
    let name = || fs::read_to_string(&name_file).unwrap_or_default().trim().to_owned();
    wait_until(SOON, "there is a cache", || !name().is_empty());
    let name = name();
    let first = end_of_ticket(&world, &name);
    wait_until(SOON, "the ticket is renewed", || {
        let now = end_of_ticket(&world, &name);
        !now.is_empty() && now != first
    });
    let path = name.strip_prefix("FILE:").unwrap();
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!((found.uid(), found.mode()), (RENEWED_UID, 0o100_600));
    assert!(world.kdc.log().contains("TGS_REQ"), "{}", world.kdc.log());
    assert_eq!(renewing().len(), 1);
    // The program's own end, with nobody left to say so.
    drop(program);
    wait_until(SOON, "nobody renews it any more", || renewing().is_empty());
}
