// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access control: `roster access` explains rules and accounts, and the module enforces them, with the directory and
//! without it. Also keys for a real sshd.

use roster_messages::table::login;
use roster_system_tests::pam::{self, FIRST_LOGIN_UID, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::Relay;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, ProgramOutput, Rosterd, Schema, Slapd, Sshd,
    find_tool, needs_root, run, wait_for,
};
use serde_json::Value;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RULES: &str = r#"
[domain.corp.access]
denied_groups = ["suspended"]
account_checks = ["shadow-expire", "password-age", "password-policy", "account-lock", "active-directory"]
filter = "(!(description=contractor))"
ssh_key_options = ["from", "no-pty"]

[domain.corp.access.service.login]
allowed_groups = ["admins"]

[domain.corp.access.service.cron]
allowed_users = ["bob"]
"#;

struct World {
    slapd: Slapd,
    rosterd: Rosterd,
    people: LdifBuilder,
}

impl World {
    fn start(names: &[&str], change: impl FnOnce(&Slapd, &LdifBuilder)) -> Self {
        Self::start_with(names, change, |domain| domain)
    }

    fn start_with(
        names: &[&str],
        change: impl FnOnce(&Slapd, &LdifBuilder),
        configure: impl FnOnce(DomainTable) -> DomainTable,
    ) -> Self {
        let slapd = pam::slapd_with_users(names);
        let people = LdifBuilder::new(Schema::Rfc2307);
        slapd.change(&people.group("admins", 30_000, &["alice"]));
        slapd.change(&people.group("suspended", 30_001, &["carol"]));
        change(&slapd, &people);
        let domain = pam::domain(&slapd).with("connect_timeout", "\"1s\"");
        let rosterd = pam::start_daemon(&[configure(domain)], RULES);
        let world = Self { slapd, rosterd, people };
        let pam = world.pam();
        for service in ["sshd", "login", "cron"] {
            pam.service(service, pam::ROSTER_ONLY_STACK);
        }
        world
    }

    fn pam(&self) -> PamHost<'_> {
        PamHost::on(&self.rosterd, "alice")
    }

    /// The answer of `roster access`.
    fn access(&self, user: &str, service: &str) -> (i32, Value) {
        let told = self.rosterd.roster(&["access", user, "--service", service, "--json"]);
        let said: Value = serde_json::from_slice(&told.stdout)
            .unwrap_or_else(|_| panic!("{}\n{}", told.error(), self.rosterd.log()));
        (told.code, said)
    }

    /// Waits for a verdict, of `roster access` and of the module in a program.
    #[track_caller]
    fn expect(&self, user: &str, service: &str, verdict: &str) {
        wait_for(SOON, || {
            let (code, said) = self.access(user, service);
            let lets_in = said["allowed"] == true;
            assert_eq!(code, if lets_in { 0 } else { 3 });
            let module = self.pam().run_pamtester(service, user, &["acct_mgmt"], &[]);
            let is_in = lets_in && verdict != "password must be changed";
            let is_it = said["verdict"] == verdict && (module.code == 0) == is_in;
            if is_it { Ok(()) } else { Err(format!("{said}: {module:?}\n{}", self.rosterd.log())) }
        });
    }

    /// The explanation of the rule of that name.
    fn saw(&self, user: &str, service: &str, rule: &str) -> String {
        let (_, said) = self.access(user, service);
        let rules = said["rules"].as_array().expect("rules");
        let found = rules.iter().find(|found| found["rule"] == rule);
        found.unwrap_or_else(|| panic!("no {rule}: {said}"))["saw"].as_str().unwrap().to_owned()
    }

    fn host_restarts(&mut self) {
        pam::restart(&mut self.rosterd, "alice");
    }

    fn directory_goes(&mut self) {
        pam::stop_server(&mut self.slapd, &self.rosterd);
    }

    fn keys(&self, user: &str) -> ProgramOutput {
        run(self.pam().command("setpriv").args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "/run/bin/roster",
            "ssh-keys",
            user,
        ]))
    }
}

#[test]
fn rules_keep_people_out_with_the_directory_and_without_it() {
    if !needs_root() {
        return;
    }
    let mut world = World::start(&["alice", "bob", "carol", "dave"], |slapd, people| {
        slapd.set(&people.user_dn("dave"), "description", &["contractor"]);
    });
    let all = |world: &World| {
        for (user, service, verdict) in [
            ("alice", "sshd", "allowed"),
            ("bob", "sshd", "allowed"),
            ("carol", "sshd", "denied"),
            ("dave", "sshd", "denied"),
            ("alice", "login", "allowed"),
            ("bob", "login", "denied"),
            ("alice", "cron", "denied"),
            ("bob", "cron", "allowed"),
        ] {
            world.expect(user, service, verdict);
        }
        assert_eq!(world.saw("carol", "sshd", "denied_groups"), "the user is in suspended");
        assert_eq!(
            world.saw("bob", "login", "service.login.allowed_groups"),
            "the user is in none of them"
        );
    };
    all(&world);
    assert_eq!(
        world.saw("dave", "sshd", "filter"),
        "the user does not match (!(description=contractor))"
    );
    // A change of a group counts.
    world.slapd.change(&world.people.membership("suspended", "bob", true));
    world.expect("bob", "sshd", "denied");
    world.slapd.change(&world.people.membership("suspended", "bob", false));
    world.expect("bob", "sshd", "allowed");

    world.directory_goes();
    all(&world);
    world.host_restarts();
    all(&world);
    assert!(world.saw("alice", "sshd", "filter").contains("s ago"));

    // No result of the filter is known for these users: they were never checked.
    let local = world.rosterd.roster(&["access", "local"]);
    assert_eq!(local.code, 4);
    assert!(local.error().contains("[RST-9019]"), "{}", local.error());
    let stranger = world.rosterd.roster(&["access", "stranger"]);
    assert_eq!(stranger.code, 4);
    assert!(stranger.error().contains("[RST-9020]"), "{}", stranger.error());
}

#[test]
fn rules_hold_for_users_who_are_asked_for_on_demand() {
    if !needs_root() {
        return;
    }
    let change = |slapd: &Slapd, people: &LdifBuilder| {
        slapd.set(&people.user_dn("bob"), "shadowExpire", &["10"]);
    };
    let mut world = World::start_with(&["alice", "bob", "carol", "dave"], change, |domain| {
        domain.with("mode", "\"on-demand\"").with("refresh_interval", "\"1s\"")
    });
    let all = |world: &World| {
        for (user, service, verdict) in [
            ("alice", "login", "allowed"),
            ("bob", "sshd", "expired"),
            ("carol", "sshd", "denied"),
            ("dave", "sshd", "allowed"),
            ("dave", "login", "denied"),
        ] {
            world.expect(user, service, verdict);
        }
        assert_eq!(world.saw("carol", "sshd", "denied_groups"), "the user is in suspended");
    };
    all(&world);
    world.slapd.change(&world.people.membership("suspended", "dave", true));
    world.expect("dave", "sshd", "denied");
    world.slapd.change(&world.people.membership("suspended", "dave", false));
    world.expect("dave", "sshd", "allowed");
    world.directory_goes();
    all(&world);
    world.host_restarts();
    all(&world);
}

#[test]
fn who_is_locked_in_389_ds_is_out_whoever_has_authenticated_them() {
    if !needs_root() {
        return;
    }
    let mut server = Ds389::serving(&pam::login_users_ldif(&["alice", "bob"]));
    let people = LdifBuilder::new(Schema::Rfc2307);
    let rosterd = pam::start_daemon(&[pam::domain(&server)], "");
    let pam = PamHost::on(&rosterd, "alice");
    let account = |user: &str| pam.run_pamtester("alone", user, &["acct_mgmt"], &[]).code;
    let expect = |user: &str, code: i32| {
        wait_for(SOON, || {
            let told = rosterd.roster(&["access", user]);
            if told.code == code { Ok(()) } else { Err(format!("{told:?}")) }
        });
        assert_eq!(account(user) == 0, code == 0, "{user}");
    };
    expect("alice", 0);
    server.set(&people.user_dn("alice"), "nsAccountLock", &["true"]);
    expect("alice", 3);
    expect("bob", 0);
    pam::stop_server(&mut server, &rosterd);
    expect("alice", 3);
    expect("bob", 0);
}

#[test]
fn account_expired_or_locked_is_denied_offline_too() {
    if !needs_root() {
        return;
    }
    let mut world = World::start(&["alice", "bob", "carol", "erin", "frank"], |slapd, people| {
        slapd.set(&people.user_dn("bob"), "shadowExpire", &["10"]);
        slapd.set(&people.user_dn("erin"), "pwdAccountLockedTime", &["000001010000Z"]);
        slapd.set(&people.user_dn("frank"), "shadowLastChange", &["0"]);
    });
    let all = |world: &World| {
        world.expect("alice", "sshd", "allowed");
        world.expect("bob", "sshd", "expired");
        world.expect("erin", "sshd", "locked");
        world.expect("frank", "sshd", "password must be changed");
        assert_eq!(world.saw("bob", "sshd", "shadowExpire"), "the account expired on day 10");
        let said = world.pam().run_pamtester("sshd", "bob", &["acct_mgmt"], &[]);
        assert!(said.error().contains("expired"), "{said:?}");
    };
    all(&world);
    // As soon as the directory has the change.
    world.slapd.set(&world.people.user_dn("alice"), "shadowExpire", &["10"]);
    world.expect("alice", "sshd", "expired");
    world.slapd.set(&world.people.user_dn("alice"), "shadowExpire", &["-1"]);
    world.expect("alice", "sshd", "allowed");
    world.slapd.set(&world.people.user_dn("alice"), "shadowExpire", &["99999"]);
    world.expect("alice", "sshd", "allowed");

    world.directory_goes();
    all(&world);
    world.host_restarts();
    all(&world);
}

/// A key pair; the public line without its comment.
fn key(folder: &Path, name: &str, words: &[&str]) -> (PathBuf, String) {
    let path = folder.join(name);
    let mut command = Command::new(find_tool("ssh-keygen", "openssh-client"));
    command.args(["-q", "-N", "", "-C", name]).args(words).arg("-f").arg(&path);
    let _ = run(&mut command).text();
    let public = fs::read_to_string(path.with_extension("pub")).expect("a public key");
    (path, public.trim_end().to_owned())
}

#[test]
fn sshd_lets_people_in_by_keys_of_the_directory_that_may_be_away() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (good, good_line) = key(folder.path(), "good", &["-t", "ed25519"]);
    let (ecdsa, ecdsa_line) = key(folder.path(), "ecdsa", &["-t", "ecdsa", "-b", "384"]);
    let (_, weak_line) = key(folder.path(), "weak", &["-t", "rsa", "-b", "1024"]);
    let (forced, forced_line) = key(folder.path(), "forced", &["-t", "ed25519"]);
    let forced_line = format!("command=\"/bin/false\" {forced_line}");
    let from_line = format!("from=\"127.0.0.1\",no-pty {ecdsa_line}");
    let keys = [&*good_line, &from_line, &weak_line, &forced_line, "ssh-ed25519 AAAA broken"];
    let mut world = World::start(&["alice", "bob", "carol"], |slapd, people| {
        for user in ["alice", "carol"] {
            let dn = people.user_dn(user);
            slapd.change(&format!(
                "dn: {dn}\nchangetype: modify\nadd: objectClass\nobjectClass: ldapPublicKey\n"
            ));
            slapd.set(&dn, "sshPublicKey", &keys);
        }
    });
    wait_for(SOON, || {
        let told = world.keys("alice").text();
        if told.is_empty() { Err(world.rosterd.log()) } else { Ok(()) }
    });
    let told = world.keys("alice").text();
    let mut lines: Vec<_> = told.lines().collect();
    lines.sort_unstable();
    let mut wanted = vec![good_line.as_str(), from_line.as_str()];
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "no weak key, none without its command, none that is broken");
    let log = world.rosterd.log();
    for why in [&login::SSH_KEY_WEAK, &login::SSH_KEY_OPTION, &login::SSH_KEY_MALFORMED] {
        assert!(log.contains(why.code), "{why}: {log}");
    }
    assert_eq!(world.keys("bob").text(), "", "he has none");
    assert_eq!(world.keys("carol").text(), "", "she may not in");
    assert_eq!(world.keys("local").text(), "");
    assert_eq!(world.keys("stranger").text(), "");

    let sshd = Sshd::start(
        &world.rosterd,
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         AuthorizedKeysCommand /run/bin/roster ssh-keys %u\nAuthorizedKeysCommandUser nobody",
    );
    let id = format!("{FIRST_LOGIN_UID}");
    let in_by = |user: &str, key: &Path| sshd.run_with_key(user, key, "id -u");
    assert_eq!(in_by("alice", &good).text(), id, "{}", sshd.log());
    assert_eq!(in_by("alice", &ecdsa).text(), id);
    for (user, key) in [("alice", &forced), ("bob", &good), ("carol", &good)] {
        assert_ne!(in_by(user, key).code, 0, "{user} {}", key.display());
    }
    world.directory_goes();
    assert_eq!(in_by("alice", &good).text(), id, "{}", sshd.log());
    assert_ne!(in_by("carol", &good).code, 0);
}

/// The server shows the beginning of a list in a range, as Active Directory does, and no further one: no user is
/// known not to be in the group.
#[test]
fn ranged_denied_group_denies() {
    if !needs_root() {
        return;
    }
    let relay = OnceCell::new();
    let world = World::start_with(
        &["alice", "bob", "carol", "dave"],
        |slapd, people| {
            slapd.change(&people.membership("suspended", "dave", true));
            let _ = relay.set(Relay::to(slapd.port()));
        },
        |domain| domain.with("uris", &format!("[{:?}]", relay.get().expect("it was made").uri())),
    );
    world.expect("alice", "sshd", "allowed");
    world.expect("dave", "sshd", "denied");
    relay.get().expect("it was made").limit_range("memberUid", 1);
    let done = world.rosterd.roster(&["domain", "refresh", "corp"]);
    assert_eq!(done.code, 0, "{}", done.error());
    wait_for(SOON, || {
        let rejected = world.rosterd.roster(&["domain", "rejected", "corp"]).text();
        if rejected.contains("suspended") { Ok(()) } else { Err(rejected) }
    });
    for user in ["alice", "carol", "dave"] {
        let (_, said) = world.access(user, "sshd");
        assert_eq!(said["allowed"], false, "{user}: {said}");
        let module = world.pam().run_pamtester("sshd", user, &["acct_mgmt"], &[]);
        assert_ne!(module.code, 0, "{user}: {module:?}");
    }
}
