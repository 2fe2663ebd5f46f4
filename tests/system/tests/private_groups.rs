// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private groups of users, mirrored and on demand: made, changed, replaced by groups of the directory, and rejected.

use roster_system_tests::rosterd::{LOCAL_GROUP, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_for,
    wait_until,
};
use rustix::process::Signal;
use std::fs;

const MODES: [&str; 2] = ["replicate", "on-demand"];

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

/// alice and carl have equal ids, carl a group too. bob has the primary group of others.
fn served() -> Slapd {
    let corp = directory();
    let ldif = [
        corp.tree(),
        corp.user("alice", 5000),
        corp.user_in("bob", 5001, 6000),
        corp.user("carl", 5002),
        corp.group("staff", 6000, &["bob"]),
        corp.group("guests", 6001, &["alice"]),
        corp.group("carls", 5002, &["bob"]),
    ];
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif.concat())
}

fn domain(slapd: &Slapd, mode: &str, kind: &str) -> DomainTable {
    let domain = DomainTable::ldap("corp", slapd)
        .with("mode", &format!("{mode:?}"))
        .with("private_groups", &format!("{kind:?}"));
    match mode {
        "on-demand" => domain.with("refresh_interval", "\"1s\"").with("negative_ttl", "\"1s\""),
        _ => domain,
    }
}

fn started(slapd: &Slapd, mode: &str, kind: &str) -> Rosterd {
    let rosterd = Rosterd::start(&[domain(slapd, mode, kind)]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd
}

fn passwd(name: &str, uid: u32, gid: u32) -> String {
    format!("{name}:*:{uid}:{gid}:{name} of dc=example,dc=com:/home/{name}:/bin/sh")
}

/// Waits until id(1) prints this.
#[track_caller]
fn expect_id(rosterd: &Rosterd, user: &str, wanted: &str) {
    wait_for(SOON, || {
        let said = rosterd.host().run("id", &[user]);
        let text = if said.code == 0 { said.text() } else { said.error() };
        if text == wanted { Ok(()) } else { Err(format!("id {user}: {text}, not {wanted}")) }
    });
}

/// Waits until the list of rejected entries has these texts.
#[track_caller]
fn expect_rejected(rosterd: &Rosterd, texts: &[&str]) {
    wait_for(SOON, || {
        let said = rosterd.roster(&["domain", "rejected", "corp"]).text();
        let is_there = |text: &&str| said.contains(*text);
        if texts.iter().all(is_there) { Ok(()) } else { Err(format!("no {texts:?} in {said}")) }
    });
}

fn set_local_groups(rosterd: &Rosterd, more: &str) {
    let fresh = rosterd.host().path("etc/fresh");
    fs::write(&fresh, format!("{LOCAL_GROUP}{more}")).expect("write");
    fs::rename(&fresh, rosterd.host().path("etc/group")).expect("rename");
}

#[test]
fn private_groups_always_follow_users() {
    for mode in MODES {
        let slapd = served();
        let rosterd = started(&slapd, mode, "always");
        // The first question is about the group.
        rosterd.expect("group", "bob", Some("bob:*:5001:"));
        rosterd.expect("group", "5000", Some("alice:*:5000:"));
        rosterd.expect("passwd", "bob", Some(&passwd("bob", 5001, 5001)));
        rosterd.expect_groups("bob", 5001, &[5001, 5002, 6000]);
        let wanted = "uid=5001(bob) gid=5001(bob) groups=5001(bob),6000(staff),5002(carls)";
        wait_for(SOON, || {
            let said = rosterd.host().run("id", &["bob"]).text();
            let is_same = said.len() == wanted.len() && said.starts_with(&wanted[..40]);
            if is_same { Ok(()) } else { Err(said) }
        });
        expect_id(
            &rosterd,
            "alice",
            "uid=5000(alice) gid=5000(alice) groups=5000(alice),6001(guests)",
        );
        // The directory has a group with the gid.
        rosterd.expect("passwd", "carl", None);
        rosterd.expect("group", "5002", Some("carls:*:5002:bob"));
        expect_rejected(&rosterd, &["    user carl\n", "    group carl\n"]);
        wait_until(SOON, "getent lists alice", || {
            let all = rosterd.host().run("getent", &["-s", "roster", "group"]).text();
            all.lines().any(|line| line == "alice:*:5000:")
        });

        let alice = directory().user_dn("alice");
        slapd.set(&alice, "uidNumber", &["5010"]);
        rosterd.expect("passwd", "alice", Some(&passwd("alice", 5010, 5010)));
        rosterd.expect("group", "alice", Some("alice:*:5010:"));
        rosterd.expect("group", "5000", None);
        slapd.delete(&[alice]);
        rosterd.expect("group", "alice", None);
        rosterd.expect("group", "5010", None);
        rosterd.expect("passwd", "alice", None);
        slapd.change(&directory().user_in("alicia", 5010, 6000));
        rosterd.expect("group", "5010", Some("alicia:*:5010:"));
        rosterd.expect("group", "alicia", Some("alicia:*:5010:"));
        rosterd.expect("group", "alice", None);

        // A group of the directory that is added later.
        slapd.change(&directory().group("ops", 5010, &["bob"]));
        rosterd.expect("passwd", "alicia", None);
        rosterd.expect("group", "5010", Some("ops:*:5010:bob"));
        rosterd.expect("group", "alicia", None);
        slapd.delete(&[directory().group_dn("ops")]);
        rosterd.expect("passwd", "alicia", Some(&passwd("alicia", 5010, 5010)));
        rosterd.expect("group", "5010", Some("alicia:*:5010:"));

        set_local_groups(&rosterd, "alicia:x:1700:\n");
        rosterd.expect("passwd", "alicia", None);
        rosterd.expect("group", "5010", None);
        let reason = "rejected: a local group has this name\n    group alicia\n";
        expect_rejected(&rosterd, &[reason, "user alicia", "the private group of the user"]);
        let shown = rosterd.roster(&["cache", "show", "user", "alicia"]).text();
        assert!(shown.contains("[RST-5780]"), "{shown}");
        set_local_groups(&rosterd, "");
        rosterd.expect("passwd", "alicia", Some(&passwd("alicia", 5010, 5010)));
    }
}

#[test]
fn private_groups_same_id_yield_to_directory() {
    for mode in MODES {
        let slapd = served();
        let rosterd = started(&slapd, mode, "same-id");
        rosterd.expect("group", "5000", Some("alice:*:5000:"));
        rosterd.expect("group", "alice", Some("alice:*:5000:"));
        rosterd.expect("passwd", "alice", Some(&passwd("alice", 5000, 5000)));
        rosterd.expect("passwd", "bob", Some(&passwd("bob", 5001, 6000)));
        rosterd.expect("passwd", "carl", Some(&passwd("carl", 5002, 5002)));
        rosterd.expect("group", "bob", None);
        rosterd.expect("group", "carl", None);
        rosterd.expect("group", "5002", Some("carls:*:5002:bob"));
        expect_id(&rosterd, "carl", "uid=5002(carl) gid=5002(carls) groups=5002(carls)");

        slapd.change(&directory().group("ops", 5000, &["bob"]));
        rosterd.expect("group", "5000", Some("ops:*:5000:bob"));
        rosterd.expect("group", "alice", None);
        expect_id(&rosterd, "alice", "uid=5000(alice) gid=5000(ops) groups=5000(ops),6001(guests)");
        slapd.delete(&[directory().group_dn("ops")]);
        rosterd.expect("group", "5000", Some("alice:*:5000:"));

        slapd.set(&directory().user_dn("alice"), "gidNumber", &["6000"]);
        rosterd.expect("passwd", "alice", Some(&passwd("alice", 5000, 6000)));
        rosterd.expect("group", "5000", None);
        rosterd.expect("group", "alice", None);
        slapd.set(&directory().user_dn("alice"), "gidNumber", &["5000"]);
        rosterd.expect("group", "alice", Some("alice:*:5000:"));

        set_local_groups(&rosterd, "alice:x:1700:\n");
        rosterd.expect("group", "5000", None);
        rosterd.expect("passwd", "alice", Some(&passwd("alice", 5000, 5000)));
        expect_rejected(&rosterd, &["rejected: a local group has this name\n    group alice\n"]);
    }
}

/// Users log in and have their groups without the directory, also after a restart.
#[test]
fn private_groups_on_demand_work_offline() {
    let mut slapd = served();
    let mut rosterd = started(&slapd, "on-demand", "always");
    rosterd.expect("group", "alice", Some("alice:*:5000:"));
    let groups = "uid=5000(alice) gid=5000(alice) groups=5000(alice),6001(guests)";
    expect_id(&rosterd, "alice", groups);
    slapd.stop();
    rosterd.expect("passwd", "alice", Some(&passwd("alice", 5000, 5000)));
    rosterd.stop();
    rosterd.launch();
    wait_until(SOON, "rosterd answers", || rosterd.status().is_ok());
    rosterd.expect("passwd", "5000", Some(&passwd("alice", 5000, 5000)));
    rosterd.expect("group", "5000", Some("alice:*:5000:"));
    rosterd.expect("passwd", "alice", Some(&passwd("alice", 5000, 5000)));
}

#[test]
fn private_groups_follow_configuration() {
    for mode in MODES {
        let slapd = served();
        let mut rosterd = started(&slapd, mode, "off");
        rosterd.expect("passwd", "bob", Some(&passwd("bob", 5001, 6000)));
        rosterd.expect("group", "bob", None);
        for (kind, gid, alice) in [
            ("always", 5001, Some("alice:*:5000:")),
            ("same-id", 6000, Some("alice:*:5000:")),
            ("off", 6000, None),
        ] {
            rosterd.set_domains(&[domain(&slapd, mode, kind)]);
            rosterd.process().signal(Signal::HUP);
            wait_until(SOON, "the new rules hold", || {
                let groups = rosterd.host().run("getent", &["-s", "roster", "group", "alice"]);
                let found = (groups.code == 0).then(|| groups.text());
                found.as_deref() == alice
            });
            rosterd.expect("passwd", "bob", Some(&passwd("bob", 5001, gid)));
            let bob = (kind == "always").then_some("bob:*:5001:");
            rosterd.expect("group", "bob", bob);
        }
    }
}
