// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 session`: caches of tickets for sessions, as klist, the kernel and a KDC see them.
//! Becoming a user takes root.

mod common;

use common::{Program, SOON, commands, realm, setup};
use roster_krb5_helper::ipc::HelperOperation;
use roster_krb5_helper::realm::Realm;
use roster_krb5_helper::session_ticket::SessionTicket;
use roster_messages::table::login;
use roster_system_tests::servers::{Kcm, Kdc};
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{c_program, c_program_with, program_under_test, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// An id that is unused on test machines.
const UID: u32 = 1_734_005;
const GID: u32 = 1_734_006;
/// The user with a session in which a ticket is renewed.
const RENEWED_UID: u32 = 1_734_007;
/// Executes `$2 …` in a private mount namespace with `$1` as /etc/passwd.
const WITH_USERS: &str = r#"mount --bind "$1" /etc/passwd; shift; exec "$@""#;

struct World {
    kdc: Kdc,
    folder: tempfile::TempDir,
    /// The host's local users, and the users of these tests.
    passwd: tempfile::NamedTempFile,
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
        let mut passwd = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(passwd.path(), fs::Permissions::from_mode(0o644)).unwrap();
        passwd.write_all(&fs::read("/etc/passwd").unwrap()).unwrap();
        for uid in [UID, RENEWED_UID] {
            writeln!(passwd, "test-{uid}:x:{uid}:{GID}::/nonexistent:/bin/sh").unwrap();
        }
        Self { kdc, folder, passwd, life_seconds }
    }

    /// Returns a command that executes this program in a namespace with the users of these tests.
    fn on_host(&self, program: &str) -> Command {
        let mut command = Command::new(find_tool("unshare", "util-linux"));
        command.env_clear().args(self.arguments(program));
        command
    }

    /// Returns the arguments of unshare(1) for that.
    fn arguments(&self, program: &str) -> [String; 7] {
        let passwd = self.passwd.path().to_str().unwrap();
        ["-m", "sh", "-ec", WITH_USERS, "host", passwd, program].map(str::to_owned)
    }

    fn session(&self, words: &[&str], input: &[u8]) -> Output {
        let program = program_under_test("roster-krb5", env!("CARGO_BIN_EXE_roster-krb5"));
        let mut command = self.on_host(program.to_str().unwrap());
        fed(command.arg("session").args(words), input)
    }

    /// Runs an operation for the usual user, and returns the name of the cache.
    #[track_caller]
    fn does(&self, words: &[&str], input: &[u8]) -> String {
        let ids = [UID.to_string(), GID.to_string()];
        let words = [&words[..1], &[&ids[0], &ids[1]], &words[1..]].concat();
        let done = self.session(&words, input);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    #[track_caller]
    fn is_refused(&self, words: &[&str], input: &[u8], why: &str) {
        let done = self.session(words, input);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && said.contains(why), "{said}");
    }

    /// Returns the ticket of a login.
    fn tickets(&self, user: &str, cache: &str) -> Vec<u8> {
        self.fields(user, cache).encode().to_vec()
    }

    fn fields(&self, user: &str, cache: &str) -> SessionTicket {
        let realm = realm(&self.kdc);
        let mut setup = setup(&realm, None);
        setup.life_seconds = self.life_seconds;
        let reply = Program::ready(&setup).exchange(HelperOperation::Ticket, user, "secret", "");
        SessionTicket { cache: cache.into(), realm, renew: true, file: reply.ticket }
    }

    fn file_cache(&self) -> String {
        format!("FILE:{}/krb5cc_XXXXXX", self.folder.path().display())
    }

    /// Returns the output of klist as the user.
    fn klist(&self, cache: &str) -> Output {
        self.klist_as(UID, cache)
    }

    fn klist_as(&self, uid: u32, cache: &str) -> Output {
        let mut command = Command::new(find_tool("klist", "krb5-user"));
        command.args(["-f", "-c", cache]).uid(uid).gid(GID).env_clear().output().unwrap()
    }
}

fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_cache_is_the_users_alone_and_goes_when_it_is_told_to() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let name = world.does(&["store"], &alice);
    let path = name.strip_prefix("FILE:").unwrap();
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode()), (UID, GID, 0o100_600));
    let listed = text(&world.klist(&name));
    assert!(listed.contains("Default principal: alice@LAB.TEST"), "{listed}");
    assert!(listed.contains("krbtgt/LAB.TEST@LAB.TEST"), "{listed}");

    // Another session has another cache.
    let other = world.does(&["store"], &alice);
    assert_ne!(other, name);

    // A later login in the same session refills it. A login of another user does not.
    let before = fs::read(path).unwrap();
    assert_eq!(world.does(&["refresh", &name], &world.tickets("alice", "KCM:")), name);
    assert_ne!(fs::read(path).unwrap(), before);
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!((found.uid(), found.mode()), (UID, 0o100_600));
    let ids = [UID.to_string(), GID.to_string()];
    let bob = world.tickets("bob", "KCM:");
    world.is_refused(&["refresh", &ids[0], &ids[1], &name], &bob, "belongs to alice@LAB.TEST");
    world.is_refused(&["refresh", &ids[0], &ids[1], &name], &bob, login::KRB5_CACHE_OWNER.code);

    world.does(&["delete", &name], b"");
    assert!(!Path::new(path).exists() && world.klist(&other).status.success());
    world.does(&["delete", &name], b"");
    world.does(&["delete", &other], b"");
    assert_eq!(fs::read_dir(world.folder.path()).unwrap().count(), 0);
}

/// The helper keeps no descriptor of the program of the login, which may have a listening socket or a terminal.
#[test]
fn session_inherited_descriptors_closed_on_any_kernel() {
    let world = World::new(3600);
    let program = program_under_test("roster-krb5", env!("CARGO_BIN_EXE_roster-krb5"));
    for launcher in ["env", c_program("old_kernel").to_str().unwrap()] {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
        let mut command = world.on_host(launcher);
        command.arg(&program).args(["session", "store", &UID.to_string(), &GID.to_string()]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        drop(writer);
        wait_until(SOON, "no process has the descriptor", || {
            let mut polled = [PollFd::new(&reader, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).unwrap();
            polled[0].revents().contains(PollFlags::HUP)
        });
        assert!(child.try_wait().unwrap().is_none(), "{launcher}: it waits for the ticket");
        drop(child.stdin.take());
        assert!(!child.wait().unwrap().success(), "{launcher}");
    }
}

#[test]
fn what_is_not_a_users_own_is_left_alone() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let ids = [UID.to_string(), GID.to_string()];
    world.is_refused(&["store", "0", "0"], &alice, "system user");
    world.is_refused(&["store", "0", "0"], &alice, login::KRB5_SESSION_USER.code);
    world.is_refused(&["store", "-1", &ids[1]], &alice, "not a uid");
    world.is_refused(&["store", "-1", &ids[1]], &alice, login::KRB5_USAGE.code);
    world.is_refused(&["store", &ids[0], &ids[1]], b"nothing of ours", "malformed message");
    world.is_refused(
        &["store", &ids[0], &ids[1]],
        b"nothing of ours",
        login::KRB5_SESSION_FAILED.code,
    );
    let shared = world.tickets("alice", "FILE:/tmp/krb5cc_1");
    world.is_refused(&["store", &ids[0], &ids[1]], &shared, "does not end in");
    world.is_refused(&["store", &ids[0], &ids[1]], &shared, login::KRB5_CACHE_NAME.code);
    // A root-owned file with the name of the cache that a session is to delete.
    let path = world.folder.path().join("root");
    fs::write(&path, "root's").unwrap();
    let name = format!("FILE:{}", path.display());
    world.is_refused(&["delete", &ids[0], &ids[1], &name], b"", "not permitted");
    symlink(&path, world.folder.path().join("link")).unwrap();
    let link = format!("FILE:{}/link", world.folder.path().display());
    world.is_refused(&["refresh", &ids[0], &ids[1], &link], &alice, "");
    assert_eq!(fs::read(&path).unwrap(), b"root's");
    // A directory without write access for the user.
    let closed = world.tickets("alice", "FILE:/root/krb5cc_XXXXXX");
    world.is_refused(&["store", &ids[0], &ids[1]], &closed, "Permission denied");
}

#[test]
fn session_system_users_and_foreign_groups_refused() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let [uid, gid] = [UID.to_string(), GID.to_string()];
    // Groups of devices and of /etc/shadow, and another user's group.
    for foreign in ["6", "42", "1734007", "0", "4294967295"] {
        world.is_refused(&["store", &uid, foreign], &alice, "the primary group of uid 1734005");
    }
    for (uid, gid) in [("33", "33"), ("33", "6"), ("65534", "65534"), ("0", &*gid)] {
        world.is_refused(&["store", uid, gid], &alice, "system user");
    }
    world.is_refused(&["store", "1734999", &gid], &alice, "cannot look up");
    let name = world.does(&["store"], &alice);
    world.is_refused(&["refresh", &uid, "6", &name], &alice, "the primary group");
    world.is_refused(&["delete", &uid, "6", &name], b"", "the primary group");
    assert_eq!(fs::read_dir(world.folder.path()).unwrap().count(), 1);
    world.does(&["delete", &name], b"");
}

#[test]
fn session_process_of_another_user_refused() {
    let world = World::new(3600);
    let alice = world.tickets("alice", &world.file_cache());
    let program = program_under_test("roster-krb5", env!("CARGO_BIN_EXE_roster-krb5"));
    let mut command = world.on_host(find_tool("setpriv", "util-linux").to_str().unwrap());
    command.args([&format!("--reuid={RENEWED_UID}"), &format!("--regid={GID}"), "--clear-groups"]);
    command.arg(program).args(["session", "store", &UID.to_string(), &GID.to_string()]);
    let done = fed(&mut command, &alice);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && done.stdout.is_empty(), "{said}");
    assert!(said.contains(login::KRB5_SESSION_PROCESS.code), "{said}");
}

/// Encodes a field of the blob.
fn field(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

#[test]
fn session_blob_with_plugins_refused() {
    // A ticket past half of its lifetime: a process would renew it at once.
    let world = World::new(2);
    let cache = world.file_cache();
    let fields = world.fields("alice", &cache);
    let plugin = world.folder.path().join("libkrb5/plugin.so");
    fs::create_dir(plugin.parent().unwrap()).unwrap();
    fs::set_permissions(plugin.parent().unwrap(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::copy(c_program_with("plugin", "plugin.so", &["-shared", "-fPIC"]), &plugin).unwrap();
    let lines = format!(
        "[libdefaults]\nplugin_base_dir = {}\n[plugins]\ntls = {{\nmodule = k5tls:{}\n}}\n",
        world.folder.path().display(),
        plugin.display(),
    );
    let kdc = world.kdc.address();
    let text =
        format!("{lines}[realms]\nLAB.TEST = {{\nkdc = https://{kdc}/KdcProxy\nkdc = {kdc}\n}}\n");
    // The format in which callers passed libkrb5's configuration as text.
    let mut before = [field(b"RKT1"), field(cache.as_bytes()), field(text.as_bytes())].concat();
    before.push(1);
    before.extend(field(&fields.file));
    let realm = |realm: Realm| SessionTicket { realm, ..fields.clone() }.encode().to_vec();
    let name = format!("LAB.TEST\n{lines}");
    let crafted = [
        before,
        realm(Realm { name, ..fields.realm.clone() }),
        realm(Realm { kdcs: vec![format!("{kdc}\n}}\n{lines}")], ..fields.realm.clone() }),
        realm(Realm { kdcs: vec![format!("https://{kdc}/KdcProxy")], ..fields.realm.clone() }),
        realm(Realm { kpasswds: vec![format!("{kdc}\n}}\n{lines}")], ..fields.realm.clone() }),
        SessionTicket { cache: format!("DIR:/tmp\n{lines}"), ..fields.clone() }.encode().to_vec(),
    ];
    let [uid, gid] = [UID.to_string(), GID.to_string()];
    let loaded = plugin.with_extension("so.loaded");
    let calls = [&["store", &uid, &gid][..], &["refresh", &uid, &gid, &cache]];
    let tries = || crafted.iter().flat_map(|blob| calls.map(|words| (words, blob)));
    for (words, blob) in tries() {
        // Another process renews an accepted ticket.
        if world.session(words, blob).status.success() {
            wait_until(SOON, "the plug-in is loaded", || loaded.exists());
        }
        assert!(!loaded.exists(), "roster-krb5 loads a plug-in that its caller names");
    }
    for (words, blob) in tries() {
        world.is_refused(words, blob, "malformed message");
    }
    let left = fs::read_dir(world.folder.path()).unwrap();
    assert_eq!(left.count(), 1, "a cache was made");
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
        let (one, two) = (world.does(&["store"], &blob), world.does(&["store"], &blob));
        assert_ne!(one, two);
        assert_eq!(one.split(':').next(), collection.split(':').next());
        for name in [&one, &two] {
            let listed = text(&world.klist(name));
            assert!(listed.contains("alice@LAB.TEST"), "{name}: {listed}");
        }
        assert_eq!(world.does(&["refresh", &one], &blob), one);
        world.does(&["delete", &one], b"");
        assert!(!world.klist(&one).status.success(), "{one} is still there");
        assert!(world.klist(&two).status.success());
        world.does(&["delete", &two], b"");
    }
}

#[test]
fn a_server_of_caches_has_one_for_each_session_and_keeps_users_apart() {
    let world = World::new(3600);
    let kcm = Kcm::start();
    let blob = world.tickets("alice", "KCM:");
    let user = [UID.to_string(), GID.to_string()];
    let session = |words: &[&str], input: &[u8]| {
        let mut command = kcm.command_inside("unshare");
        command.args(world.arguments(env!("CARGO_BIN_EXE_roster-krb5")));
        let words = [&["session", words[0], &user[0], &user[1]], &words[1..]].concat();
        let done = fed(command.args(words), input);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        text(&done).trim().to_owned()
    };
    let klist = |uid: u32, cache: &str| {
        let mut command = kcm.command_inside("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={GID}"), "--clear-groups"]);
        text(&command.arg(find_tool("klist", "krb5-user")).args(["-c", cache]).output().unwrap())
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
    // The cache of programs without a cache name.
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
    world.is_refused(&["store", &ids[0], &ids[1]], &blob, "KCM");
}

/// Returns the end of the ticket's validity, as klist prints it.
fn end_of_ticket(world: &World, name: &str) -> String {
    let listed = text(&world.klist_as(RENEWED_UID, name));
    let line = listed.lines().find(|line| line.contains("krbtgt/")).unwrap_or_default();
    line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(" ")
}

/// A program that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the processes of the program that renew.
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
    // A program with a session: it stores the ticket of a login, and continues.
    let script = "\"$1\" session store \"$2\" \"$3\" <\"$4\" >\"$5\"; echo; exec sleep 600";
    let name_file = world.folder.path().join("name");
    let program = world
        .on_host("sh")
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
    // The program ends without a notice.
    drop(program);
    wait_until(SOON, "the renewal has ended", || renewing().is_empty());
}
