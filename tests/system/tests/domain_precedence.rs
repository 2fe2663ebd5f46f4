// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two directories on one host: precedence if both have the name, and the domains of group members.

use roster_system_tests::rosterd::{LOCAL_GROUP, LOCAL_PASSWD, OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_until,
};
use rustix::process::Signal;
use std::fs;

const LAB: &str = "dc=lab,dc=example";

struct Two {
    corp: Slapd,
    lab: Slapd,
}

impl Two {
    /// Both have a user alice, a group of the same name, a gid of the same number, and groups with alice. Only lab has
    /// some other users.
    fn start() -> Self {
        let corp = LdifBuilder::new(Schema::Rfc2307);
        let corp_ldif = [
            corp.tree(),
            corp.user("alice", 5000),
            corp.user("bert", 5001),
            corp.group("wheel-corp", 6000, &["alice", "bert", "carla"]),
            corp.group("shared", 6001, &["alice"]),
            corp.group("number-corp", 6002, &["bert"]),
        ]
        .concat();
        let lab = LdifBuilder::below_base(LAB, Schema::Rfc2307);
        let lab_ldif = [
            lab.tree(),
            lab.user("alice", 7000),
            lab.user("carla", 7001),
            // The uid of corp's bert.
            lab.user("dora", 5001),
            lab.group("wheel-lab", 8000, &["alice", "carla", "bert"]),
            lab.group("shared", 8001, &["carla"]),
            lab.group("number-lab", 6002, &["carla"]),
        ]
        .concat();
        let mut setup = SlapdOptions::new(Schema::Rfc2307);
        let corp = Slapd::serving(setup.clone(), &corp_ldif);
        setup.base = LAB.to_owned();
        Self { corp, lab: Slapd::serving(setup, &lab_ldif) }
    }
}

#[test]
fn domains_first_wins_and_groups_stay_inside() {
    let two = Two::start();
    let domains = [DomainTable::ldap("corp", &two.corp), DomainTable::ldap("lab", &two.lab)];
    let mut rosterd = Rosterd::start(&domains);
    rosterd.expect_mirror(&[OracleSource::Server(&two.corp), OracleSource::Server(&two.lab)]);
    let whole = |uid, base| format!("alice:*:{uid}:{uid}:alice of {base}:/home/alice:/bin/sh");
    rosterd.expect("passwd", "alice", Some(&whole(5000, "dc=example,dc=com")));
    let of_lab = format!("alice@lab:*:7000:7000:alice of {LAB}:/home/alice:/bin/sh");
    rosterd.expect("passwd", "7000", Some(&of_lab));
    for name in ["alice@lab", "alice@LAB", "lab\\alice"] {
        rosterd.expect("passwd", name, Some(&of_lab));
    }
    for name in ["alice@corp", "CORP\\alice"] {
        rosterd.expect("passwd", name, Some(&whole(5000, "dc=example,dc=com")));
    }
    rosterd.expect("passwd", "carla@corp", None);
    rosterd.expect("passwd", "dora", None);
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:alice,bert"));
    rosterd.expect("group", "wheel-lab", Some("wheel-lab:*:8000:alice@lab,carla"));
    rosterd.expect("group", "shared", Some("shared:*:6001:alice"));
    rosterd.expect("group", "shared@lab", Some("shared@lab:*:8001:carla"));
    rosterd.expect_groups("lab\\alice", 7000, &[7000, 8000]);
    rosterd.expect("group", "6002", Some("number-corp:*:6002:bert"));
    rosterd.expect_groups("alice", 5000, &[5000, 6000, 6001]);

    // The other way round, by a changed configuration.
    let [corp, lab] = domains;
    rosterd.set_domains(&[lab, corp]);
    rosterd.process().signal(Signal::HUP);
    rosterd.expect("passwd", "alice", Some(&whole(7000, LAB)));
    rosterd.expect_mirror(&[OracleSource::Server(&two.lab), OracleSource::Server(&two.corp)]);
    rosterd.expect_groups("alice", 7000, &[7000, 8000]);

    // The higher-priority entry is removed, and the other one replaces it at once.
    two.lab.delete(&[LdifBuilder::below_base(LAB, Schema::Rfc2307).user_dn("alice")]);
    rosterd.expect("passwd", "alice", Some(&whole(5000, "dc=example,dc=com")));
    // The group has its name with the domain, because lab has the name.
    rosterd.expect_groups("alice", 5000, &[5000, 6000, 6001]);
    rosterd.expect("group", "6001", Some("shared@corp:*:6001:alice"));
    rosterd.expect_mirror(&[OracleSource::Server(&two.lab), OracleSource::Server(&two.corp)]);
}

#[test]
fn local_account_displaces_directory_account_at_once() {
    let two = Two::start();
    let rosterd =
        Rosterd::start(&[DomainTable::ldap("corp", &two.corp), DomainTable::ldap("lab", &two.lab)]);
    let sources = [OracleSource::Server(&two.corp), OracleSource::Server(&two.lab)];
    rosterd.expect_mirror(&sources);
    // As useradd does: a new file replaces the old one.
    let write = |name: &str, text: &str| {
        let fresh = rosterd.host().path("etc/fresh");
        fs::write(&fresh, text).expect("write");
        fs::rename(&fresh, rosterd.host().path("etc").join(name)).expect("rename");
    };
    write("passwd", &format!("{LOCAL_PASSWD}alice:x:1600:1600::/home/alice:/bin/sh\n"));
    wait_until(SOON, "alice is local", || rosterd.getent("passwd", "alice").is_none());
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:bert"));
    rosterd.expect_mirror(&sources);
    write("passwd", LOCAL_PASSWD);
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:alice,bert"));
    rosterd.expect_mirror(&sources);

    // A uid alone, a group's name, a group's number.
    write("passwd", &format!("{LOCAL_PASSWD}someone:x:5001:1600::/home/someone:/bin/sh\n"));
    rosterd.expect("passwd", "bert", None);
    rosterd.expect_mirror(&sources);
    write("passwd", LOCAL_PASSWD);
    write("group", &format!("{LOCAL_GROUP}shared:x:1700:\nother:x:6000:\n"));
    rosterd.expect("group", "shared", None);
    rosterd.expect("group", "wheel-corp", None);
    rosterd.expect_mirror(&sources);
    write("group", LOCAL_GROUP);
    rosterd.expect("group", "shared", Some("shared:*:6001:alice"));
    rosterd.expect_mirror(&sources);
}
