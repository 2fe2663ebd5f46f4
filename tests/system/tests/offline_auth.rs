// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins while the directory is away: the cached credentials, their lifetime, and their end. The real module in
//! `pamtester`, a real daemon with its roles under dedicated users, a real slapd that is stopped.

use roster_system_tests::pam::{self, PASSWORD, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{POLICY_RDN, Relay};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, needs_root, process_memory,
    run, wait_for,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const RIGHT: &str = "successfully authenticated";
const WRONG: &str = "Authentication failure";
const AWAY: &str = "Authentication service cannot retrieve authentication info";
const LOCKED: &str = "Permission denied";

/// Access rules that allow an account without known data.
const NO_RULES: &str = "[domain.corp.access]\naccount_checks = []\n";

struct World {
    slapd: Slapd,
    rosterd: Rosterd,
}

impl World {
    fn start() -> Self {
        let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
        let uri = slapd.uri();
        Self::through(slapd, &[&uri])
    }

    /// A host on which alice and bob have logged in, and the directory is away since.
    fn cut_off() -> Self {
        let mut world = Self::start();
        world.log_in("alice", PASSWORD);
        world.log_in("bob", PASSWORD);
        world.directory_goes();
        world
    }

    /// With the server behind these addresses of it.
    fn through(slapd: Slapd, uris: &[&str]) -> Self {
        Self::with(slapd, uris, |domain| domain)
    }

    fn with(
        slapd: Slapd,
        uris: &[&str],
        configure: impl FnOnce(DomainTable) -> DomainTable,
    ) -> Self {
        let domain = DomainTable::ldap_through("corp", &slapd, uris)
            .with("auth", "\"ldap\"")
            .with("connect_timeout", "\"1s\"")
            .with("auth_timeout", "\"3s\"")
            .with("offline_failed_login_attempts", "3")
            .with("offline_failed_login_delay", "\"1h\"")
            .with("argon2_target_time", "\"10ms\"");
        let rosterd = pam::start_daemon(&[configure(domain)], "");
        let world = Self { slapd, rosterd };
        world.pam();
        world
    }

    fn pam(&self) -> PamHost<'_> {
        PamHost::on(&self.rosterd, "alice")
    }

    fn says(&self, user: &str, password: &str) -> String {
        let said = self.pam().authenticate(user, password);
        said.rsplit("pamtester: ").next().unwrap_or_default().to_owned()
    }

    /// Logs in while the directory answers, and waits until the credentials are cached.
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

    /// The cached credentials of a user, as `roster cache credentials` lists them, if it can.
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

    fn host_restarts(&mut self) {
        pam::restart(&mut self.rosterd, "alice");
    }

    fn directory_goes(&mut self) {
        pam::stop_server(&mut self.slapd, &self.rosterd);
    }

    fn directory_comes(&mut self) {
        self.slapd.start();
        self.rosterd.expect_domain_status("corp", "online", true);
    }
}

#[test]
fn offline_login_works_after_host_restart() {
    if !needs_root() {
        return;
    }
    let mut world = World::cut_off();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    world.pam().expect_logged("alice", "offline");
    assert_eq!(world.says("alice", "wrong"), WRONG);
    assert_eq!(world.says("alice", ""), WRONG);
    assert_eq!(world.says("carol", PASSWORD), AWAY, "she never logged in here");

    // The host is restarted while the directory is away.
    world.host_restarts();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    let said =
        world.pam().run_pamtester("alone", "alice", &["authenticate", "acct_mgmt"], &[PASSWORD]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(world.says("carol", PASSWORD), AWAY);

    // An administrator can delete the credentials of a user.
    let told = world.rosterd.roster(&["cache", "expire", "--credentials", "--user", "alice"]);
    assert_eq!(told.text(), "1 cached credential removed");
    assert_eq!(world.says("alice", PASSWORD), AWAY);
    assert_eq!(world.says("bob", PASSWORD), RIGHT);
}

#[test]
fn offline_on_demand_user_survives_restart() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let uri = slapd.uri();
    let on_demand = |domain: DomainTable| domain.with("mode", "\"on-demand\"");
    let mut world = World::with(slapd, &[&uri], on_demand);
    world.log_in("bob", PASSWORD);
    world.directory_goes();
    world.rosterd.stop();
    world.rosterd.launch();
    // The first thing that the daemon hears of him is his password.
    let whole = ["authenticate", "acct_mgmt", "open_session"];
    wait_for(SOON, || match world.pam().run_pamtester("alone", "bob", &whole, &[PASSWORD]) {
        said if said.code == 0 => Ok(()),
        said => Err(format!("{said:?}: {}", world.rosterd.log())),
    });
    assert_eq!(world.says("bob", "wrong"), WRONG);
    assert_eq!(world.says("carol", PASSWORD), AWAY);
    let account = world.pam().run_pamtester("alone", "carol", &["acct_mgmt"], &[]);
    assert!(pam::last_message(&account).ends_with(AWAY), "{account:?}");
}

/// The snapshot goes on serving users that the backend does not know any more.
#[test]
fn offline_lost_cache_leaves_passwords() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    world.log_in("alice", PASSWORD);
    world.directory_goes();
    let cache = world.rosterd.host().state_dir().join("domains/corp/cache.redb");
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("it is damaged", |cache| {
            let mut bytes = fs::read(cache).expect("the domain has a cache");
            bytes[..4096].fill(0x5a);
            fs::write(cache, bytes).expect("damage the cache");
        }),
        ("it is gone", |cache| fs::remove_file(cache).expect("remove the cache")),
        ("it is another's", |cache| fs::write(cache, "another file").expect("replace the cache")),
    ];
    for (damage, apply) in damages {
        world.rosterd.stop();
        apply(&cache);
        // Rules that need nothing of the cache, and then rules that need data of the account.
        for (rules, outcome) in [(NO_RULES, None), ("", Some(AWAY))] {
            world.rosterd.stop();
            world.rosterd.set_tables(rules);
            world.rosterd.launch();
            wait_for(SOON, || match world.says("alice", PASSWORD) {
                said if said == RIGHT => Ok(()),
                said => Err(format!("{damage}: {said}: {}", world.rosterd.log())),
            });
            world.pam().expect_logged("alice", "offline");
            assert_eq!(world.says("alice", "wrong"), WRONG, "{damage}");
            assert_eq!(world.says("alice", PASSWORD), RIGHT, "{damage}");
            assert_eq!(world.says("carol", PASSWORD), AWAY, "she never logged in here");
            let account = world.pam().run_pamtester("alone", "alice", &["acct_mgmt"], &[]);
            match outcome {
                None => assert_eq!(account.code, 0, "{damage}: {account:?}"),
                Some(outcome) => {
                    assert!(
                        pam::last_message(&account).ends_with(outcome),
                        "{damage}: {account:?}"
                    );
                }
            }
        }
    }
    // The directory decides.
    world.directory_comes();
    world.log_in("alice", PASSWORD);
    let account = world.pam().run_pamtester("alone", "alice", &["acct_mgmt"], &[]);
    assert_eq!(account.code, 0, "{account:?}");
}

#[test]
fn what_is_kept_is_for_the_back_end_alone_and_holds_no_password() {
    if !needs_root() {
        return;
    }
    let world = World::start();
    world.log_in("alice", PASSWORD);
    let folder = world.rosterd.host().state_dir().join("domains/corp");
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
fn password_is_in_locked_memory_during_request() {
    if !needs_root() {
        return;
    }
    const SECRET: &str = "a password that nothing else in any memory looks like";
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let uri = slapd.uri();
    // The connections last longer than the search of all memories.
    let patient = |domain: DomainTable| {
        domain.with("connect_timeout", "\"60s\"").with("auth_timeout", "\"60s\"")
    };
    let mut world = World::with(slapd, &[&uri], patient);
    let people = LdifBuilder::new(Schema::Rfc2307);
    world.slapd.set(&people.user_dn("bob"), "userPassword", &[SECRET]);
    let roles = ["bus", "publisher", "backend:corp", "responder:pam"];
    let (monitor, slapd) = (world.rosterd.process().pid(), world.slapd.process().pid());
    let traces = |world: &World| {
        let of = |role: &&str| {
            process_memory::find_mappings(world.rosterd.wait_for_role(role), SECRET.as_bytes())
        };
        let mut all: Vec<_> = roles.iter().map(of).collect();
        all.push(process_memory::find_mappings(monitor, SECRET.as_bytes()));
        all
    };
    // No log level writes secrets.
    world.log_in("alice", PASSWORD);
    let _ = world.rosterd.roster(&["log-level", "trace"]).text();

    kill_process(slapd, Signal::STOP).expect("freeze slapd");
    // The backend waits a few seconds for a frozen server. On a busy machine the search of all memories may miss that
    // time, so the user tries again until one search finds the password in both roles.
    let is_seen = AtomicBool::new(false);
    let waits = std::thread::scope(|scope| {
        let bob = scope.spawn(|| {
            while !is_seen.load(Ordering::Relaxed) {
                let _ = world.pam().authenticate("bob", SECRET);
            }
        });
        let found = catch_unwind(AssertUnwindSafe(|| {
            wait_for(SOON, || match traces(&world) {
                found if found[2].is_empty() || found[3].is_empty() => Err(format!("{found:?}")),
                found => Ok(found),
            })
        }));
        is_seen.store(true, Ordering::Relaxed);
        kill_process(slapd, Signal::CONT).expect("thaw slapd");
        bob.join().expect("pamtester");
        found.unwrap_or_else(|panic| resume_unwind(panic))
    });
    assert!(waits[0].is_empty() && waits[1].is_empty() && waits[4].is_empty(), "{waits:?}");
    let is_kept_well =
        |trace: &process_memory::MappingMatch| trace.is_locked && trace.is_excluded_from_dump;
    assert!(waits.concat().iter().all(is_kept_well), "{waits:?}");

    world.log_in("bob", SECRET);
    assert_eq!(world.says("bob", "another one"), WRONG);
    let after = wait_for(SOON, || match traces(&world) {
        found if found.iter().all(Vec::is_empty) => Ok(found),
        found => Err(format!("{found:?}")),
    });
    println!("{waits:?}, {after:?}");
    for role in roles {
        let pid = world.rosterd.wait_for_role(role);
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(core.contains(" 0 "), "{role}: {core}");
    }
    for secret in [SECRET, PASSWORD, "another one"] {
        assert!(!world.rosterd.log().contains(secret), "{}", world.rosterd.log());
    }
    assert!(world.rosterd.log().contains("log level: trace"), "{}", world.rosterd.log());
}

#[test]
fn wrong_passwords_lock_a_user_out_whatever_becomes_of_the_daemon() {
    if !needs_root() {
        return;
    }
    let mut world = World::cut_off();
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
    pam::wait_until_user_known(&world.rosterd, "alice");
    assert_eq!(world.says("alice", PASSWORD), LOCKED);
    // The number of parallel guesses that are compared is at most the number of allowed failures.
    let guess = include_str!("../python/try_passwords.py");
    let guesses = run(world.pam().command("python3").args(["-c", guess, "bob", "6"]));
    assert_eq!(guesses.text(), "1: 3, 7: 3");
    // The directory decides.
    world.directory_comes();
    world.log_in("alice", PASSWORD);
    world.directory_goes();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
}

#[test]
fn offline_password_changed_elsewhere_ends() {
    if !needs_root() {
        return;
    }
    let mut world = World::cut_off();
    let people = LdifBuilder::new(Schema::Rfc2307);
    assert_eq!(world.says("alice", PASSWORD), RIGHT);

    // Changed while this host is cut off.
    world.slapd.start();
    for user in ["alice", "bob"] {
        world.slapd.set(&people.user_dn(user), "userPassword", &["another one"]);
    }
    world.rosterd.expect_domain_status("corp", "online", true);
    // One user tries the old one; another logs in with the new one.
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
    let mut world = World::cut_off();
    let people = LdifBuilder::new(Schema::Rfc2307);
    assert_eq!(world.says("alice", PASSWORD), RIGHT);

    world.slapd.start();
    world.slapd.set(&format!("{POLICY_RDN},{}", world.slapd.base()), "pwdLockout", &["TRUE"]);
    world.slapd.set(&people.user_dn("alice"), "pwdAccountLockedTime", &["000001010000Z"]);
    world.slapd.delete(&[people.user_dn("bob")]);
    world.rosterd.expect_domain_status("corp", "online", true);
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
    let people = LdifBuilder::new(Schema::Rfc2307);
    world.log_in("alice", PASSWORD);
    world.log_in("bob", PASSWORD);
    world.slapd.set(&people.user_dn("alice"), "userPassword", &["another one"]);
    // The server would need hours to compare it. A user that may write its own password can set such a hash.
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
fn login_refused_by_present_server_stays_refused() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob"]);
    let bob = LdifBuilder::new(Schema::Rfc2307).user_dn("bob");
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

    // From now on the server reports "unavailable" for that bind only.
    world.slapd.edit_conf(|text| {
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
fn offline_silent_first_server_keeps_password_denied() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let relay = Relay::to(slapd.port());
    let uris = [relay.uri(), slapd.uri()];
    let world = World::through(slapd, &[&uris[0], &uris[1]]);
    world.log_in("alice", PASSWORD);
    let people = LdifBuilder::new(Schema::Rfc2307);
    world.slapd.set(&people.user_dn("alice"), "userPassword", &["another one"]);
    relay.drop_traffic();
    assert_eq!(world.says("alice", PASSWORD), WRONG, "{}", world.rosterd.log());
    assert_eq!(world.says("alice", "another one"), RIGHT, "{}", world.rosterd.log());
}

#[test]
fn offline_silent_directory_is_asked_once() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let relay = Relay::to(slapd.port());
    let world = World::through(slapd, &[&relay.uri()]);
    world.log_in("alice", PASSWORD);
    relay.drop_traffic();
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    // The first login has detected that the directory is away: the next one sends it no request.
    world.pam().expect_logged("password authentication offline", "[RST-6505]");
    let asked = relay.times_sent(PASSWORD);
    assert_eq!(world.says("alice", PASSWORD), RIGHT);
    assert_eq!(relay.times_sent(PASSWORD), asked);
}
