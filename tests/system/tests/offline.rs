//! Log-ins while the directory is away: what is kept of passwords, for how long, and what ends it. The real
//! module in `pamtester`, a real daemon with its roles under users of their own, a real slapd that is
//! stopped.

use roster_system_tests::pam::{self, PASSWORD, Pam};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{POLICY, Relay};
use roster_system_tests::{
    Directory, Domain, Rosterd, Schema, Server, Slapd, needs_root, wait_for,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

const RIGHT: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
const AWAY: &str = "Authentication service cannot retrieve authentication info";
const LOCKED: &str = "Permission denied";

struct World {
    slapd: Slapd,
    rosterd: Rosterd,
}

impl World {
    fn start() -> Self {
        let slapd = pam::directory(&["alice", "bob", "carol"]);
        let uri = slapd.uri();
        Self::through(slapd, &[&uri])
    }

    /// With the server behind these addresses of it.
    fn through(slapd: Slapd, uris: &[&str]) -> Self {
        let domain = Domain::ldap_through("corp", &slapd, uris)
            .with("auth", "\"ldap\"")
            .with("allow_clear_user_passwords", "true")
            .with("connect_timeout", "\"1s\"")
            .with("auth_timeout", "\"3s\"")
            .with("offline_failures", "3")
            .with("offline_lockout", "\"1h\"")
            .with("password_hash_time", "\"10ms\"");
        let mut rosterd = Rosterd::installed(&[domain]);
        pam::prepare(&rosterd);
        rosterd.launch();
        let world = Self { slapd, rosterd };
        world.pam();
        world
    }

    fn pam(&self) -> Pam<'_> {
        Pam::on(&self.rosterd, "alice")
    }

    fn says(&self, user: &str, password: &str) -> String {
        let said = self.pam().authenticate(user, password);
        said.rsplit("pamtester: ").next().unwrap_or_default().to_owned()
    }

    /// Logs in while the directory answers, and waits until that is kept.
    fn log_in(&self, user: &str, password: &str) {
        wait_for(SOON, || {
            let said = self.says(user, password);
            if said == RIGHT { Ok(()) } else { Err(format!("{said}: {}", self.rosterd.log())) }
        });
        wait_for(SOON, || match self.kept(user) {
            Ok(Some(_)) => Ok(()),
            kept => Err(format!("{kept:?}: {}", self.rosterd.log())),
        });
    }

    /// What is kept of a user, as `roster cache credentials` tells it, if it can.
    fn kept(&self, user: &str) -> Result<Option<Value>, String> {
        let told = self.rosterd.roster(&["cache", "credentials", "--json"]);
        let all: Vec<Value> = serde_json::from_slice(&told.stdout).map_err(|_| told.error())?;
        Ok(all.into_iter().find(|kept| kept["user"] == user))
    }

    fn wait_until_forgotten(&self, user: &str) {
        wait_for(SOON, || match self.kept(user) {
            Ok(None) => Ok(()),
            kept => Err(format!("{kept:?}: {}", self.rosterd.log())),
        });
    }

    /// The daemon and its caches begin anew.
    fn host_restarts(&mut self) {
        self.rosterd.stop();
        self.rosterd.launch();
        self.wait_until_ready();
    }

    /// Waits until the daemon knows its users again.
    fn wait_until_ready(&self) {
        wait_for(SOON, || match self.rosterd.roster(&["access", "alice"]) {
            told if matches!(told.code, 0 | 3) => Ok(()),
            told => Err(told.error()),
        });
    }

    fn directory_goes(&mut self) {
        self.slapd.stop();
        self.rosterd.expect_of_domain("corp", "online", false);
    }

    fn directory_comes(&mut self) {
        self.slapd.start();
        self.rosterd.expect_of_domain("corp", "online", true);
    }
}

#[test]
fn who_logged_in_before_logs_in_while_the_directory_is_away_and_after_a_restart_of_the_host() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    world.log_in("alice", PASSWORD);
    world.log_in("bob", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    world.pam().expect_logged("alice", "offline");
    assert_eq!(world.says("alice", "wrong"), WRONG);
    assert_eq!(world.says("alice", ""), WRONG);
    assert_eq!(world.says("carol", PASSWORD), AWAY, "she never logged in here");

    // The host is restarted while the directory is away.
    world.host_restarts();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    let said = world.pam().test("alone", "alice", &["authenticate", "acct_mgmt"], &[PASSWORD]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(world.says("carol", PASSWORD), AWAY);

    // Whoever wants it can have it forgotten.
    let told = world.rosterd.roster(&["cache", "expire", "--credentials", "--user", "alice"]);
    assert_eq!(told.text(), "what was kept of 1 password is forgotten");
    assert_eq!(world.says("alice", PASSWORD), AWAY);
    assert_eq!(world.says("bob", PASSWORD), RIGHT);
}

#[test]
fn what_is_kept_is_for_the_back_end_alone_and_holds_no_password() {
    if !needs_root() {
        return;
    }
    let world = World::start();
    world.log_in("alice", PASSWORD);
    let folder = world.rosterd.host().state().join("domains/corp");
    let file = folder.join("credentials.redb");
    let (folder, metadata) = (fs::metadata(&folder).unwrap(), fs::metadata(&file).unwrap());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.permissions().mode() & 0o077, 0, "{:o}", folder.permissions().mode());
    let role = world.rosterd.wait_for_role("backend:corp").as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{role}/status")).unwrap();
    assert!(status.contains(&format!("Uid:\t{}\t", metadata.uid())), "{status}");
    let bytes = fs::read(&file).unwrap();
    let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    assert!(has(b"$argon2id$v=19$m=") && has(b"alice"));
    assert!(!has(PASSWORD.as_bytes()));
    assert!(!world.rosterd.log().contains(PASSWORD));
}

#[test]
fn wrong_passwords_lock_a_user_out_whatever_becomes_of_the_daemon() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    world.log_in("alice", PASSWORD);
    world.directory_goes();
    for failures in 1..=3 {
        assert_eq!(world.says("alice", &format!("guess {failures}")), WRONG);
        // Killed as soon as the verdict is known.
        world.rosterd.kill_role("backend:corp");
        wait_for(SOON, || match world.kept("alice") {
            Ok(Some(kept)) if kept["failures"] == failures => Ok(()),
            kept => Err(format!("{kept:?}: {}", world.rosterd.log())),
        });
    }
    assert_eq!(world.says("alice", PASSWORD), LOCKED);
    world.rosterd.process().kill();
    world.rosterd.launch();
    world.wait_until_ready();
    assert_eq!(world.says("alice", PASSWORD), LOCKED);
    // The directory has the last word.
    world.directory_comes();
    world.log_in("alice", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
}

#[test]
fn a_password_that_was_changed_elsewhere_ends_with_the_next_word_of_the_directory() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let people = Directory::new(Schema::Rfc2307);
    world.log_in("alice", PASSWORD);
    world.log_in("bob", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);

    // Changed while this host is cut off.
    world.slapd.start();
    for user in ["alice", "bob"] {
        world.slapd.set(&people.user_dn(user), "userPassword", &["another one"]);
    }
    world.rosterd.expect_of_domain("corp", "online", true);
    // Somebody tries the old one; somebody else logs in with the new one.
    wait_for(SOON, || match world.says("alice", PASSWORD) {
        said if said == WRONG => Ok(()),
        said => Err(said),
    });
    world.wait_until_forgotten("alice");
    world.log_in("bob", "another one");
    wait_for(SOON, || {
        let log = world.rosterd.log();
        if log.contains("bob") { Ok(()) } else { Err(log) }
    });
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), AWAY);
    wait_for(SOON, || match world.says("bob", "another one") {
        said if said == RIGHT => Ok(()),
        said => Err(said),
    });
    assert_eq!(world.says("bob", PASSWORD), WRONG);
}

#[test]
fn who_was_locked_meanwhile_is_out_as_soon_as_the_directory_says_so() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let people = Directory::new(Schema::Rfc2307);
    world.log_in("alice", PASSWORD);
    world.log_in("bob", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);

    world.slapd.start();
    world.slapd.set(&format!("{POLICY},{}", world.slapd.base()), "pwdLockout", &["TRUE"]);
    world.slapd.set(&people.user_dn("alice"), "pwdAccountLockedTime", &["000001010000Z"]);
    world.slapd.delete(&[people.user_dn("bob")]);
    world.rosterd.expect_of_domain("corp", "online", true);
    wait_for(SOON, || match world.says("alice", PASSWORD) {
        said if said != RIGHT => Ok(()),
        said => Err(said),
    });
    world.wait_until_forgotten("alice");
    world.rosterd.expect("passwd", "bob", None);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), AWAY);
    assert_ne!(world.says("bob", PASSWORD), RIGHT, "he is gone from the domain");
}

#[test]
fn one_users_slow_bind_takes_the_directory_away_from_nobody() {
    if !needs_root() {
        return;
    }
    let world = World::start();
    let people = Directory::new(Schema::Rfc2307);
    world.log_in("alice", PASSWORD);
    world.log_in("bob", PASSWORD);
    world.slapd.set(&people.user_dn("alice"), "userPassword", &["another one"]);
    // Which takes the server hours to compare, as whoever may write a password of their own can have it.
    let slow = "{CRYPT}$6$rounds=999999999$abcdefgh$abcdefgh";
    world.slapd.set(&people.user_dn("bob"), "userPassword", &[slow]);

    assert_eq!(world.says("bob", PASSWORD), AWAY, "the server is there, and has not said yes");
    world.pam().expect_logged("user=bob", "outcome=misconfigured");
    assert_eq!(world.says("alice", PASSWORD), WRONG, "the old password, while the server is there");
    assert_eq!(world.says("alice", "another one"), RIGHT);
    let log = world.rosterd.log();
    assert!(!log.contains("nobody can be asked"), "{log}");
}

#[test]
fn who_is_put_off_by_a_server_that_is_there_is_not_let_in_without_it() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice", "bob"]);
    let bob = Directory::new(Schema::Rfc2307).user_dn("bob");
    let (_, folder) = bob.split_once(',').expect("a DN of two parts");
    let odd = format!("ou=odd,{folder}");
    slapd.change(&format!(
        "dn: {odd}\nchangetype: add\nobjectClass: organizationalUnit\nou: odd\n\n\
         dn: {bob}\nchangetype: modrdn\nnewrdn: uid=bob\ndeleteoldrdn: 0\nnewsuperior: {odd}\n\n"
    ));
    let uri = slapd.uri();
    let mut world = World::through(slapd, &[&uri]);
    world.log_in("bob", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("bob", PASSWORD), RIGHT);

    // From now on it says of that bind alone that it is unavailable.
    world.slapd.edit(|text| {
        let overlay = format!(
            "overlay retcode\nretcode-parent \"{odd}\"\nretcode-item \"uid=bob\" 0x34 op=bind\n\
             database monitor\n"
        );
        text.replace("moduleload ppolicy\n", "moduleload ppolicy\nmoduleload retcode\n")
            .replace("database monitor\n", &overlay)
    });
    world.directory_comes();
    wait_for(SOON, || match world.says("bob", PASSWORD) {
        said if said == AWAY => Ok(()),
        said => Err(format!("{said}: {}", world.rosterd.log())),
    });
    world.pam().expect_logged("user=bob", "outcome=misconfigured");
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
}

#[test]
fn a_first_server_that_falls_silent_is_no_reason_to_believe_an_old_password() {
    if !needs_root() {
        return;
    }
    let slapd = pam::directory(&["alice"]);
    let relay = Relay::to(slapd.port());
    let uris = [relay.uri(), slapd.uri()];
    let world = World::through(slapd, &[&uris[0], &uris[1]]);
    world.log_in("alice", PASSWORD);
    let people = Directory::new(Schema::Rfc2307);
    world.slapd.set(&people.user_dn("alice"), "userPassword", &["another one"]);
    relay.fall_silent();
    assert_eq!(world.says("alice", PASSWORD), WRONG, "{}", world.rosterd.log());
    assert_eq!(world.says("alice", "another one"), RIGHT, "{}", world.rosterd.log());
}

#[test]
fn a_directory_that_falls_silent_costs_the_first_log_in_a_second_and_no_other() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    world.log_in("alice", PASSWORD);
    let bare = |world: &World| {
        let began = Instant::now();
        let said = world.pam().test("alone", "alice", &["acct_mgmt"], &[]);
        assert_eq!(said.code, 0, "{said:?}");
        began.elapsed()
    };
    let program = bare(&world);
    world.slapd.process().freeze();
    let began = Instant::now();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    let first = began.elapsed();
    let began = Instant::now();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    let second = began.elapsed();
    world.slapd.process().thaw();
    println!("program {program:?}, first {first:?}, second {second:?}");
    assert!(first < Duration::from_millis(2500), "{first:?}");
    assert!(second < first, "{second:?} after {first:?}");
}
