// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups name members in `memberUid`, `member` and `uniqueMember`. A group has the members of all three, through
//! nested groups, under both schemas, mirrored and on demand. A key narrows that.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_for,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const SCHEMAS: [Schema; 2] = [Schema::Rfc2307, Schema::Rfc2307bis];

const USERS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];
const FIRST_ID: u32 = 70_001;

/// Each group, with all of its members and with the members of one attribute each: `memberUid`, `member`,
/// `uniqueMember`.
type Group = (&'static str, u32, &'static [&'static str], [&'static [&'static str]; 3]);

const GROUPS: [Group; 6] = [
    ("names", 71_001, &["alice"], [&["alice"], &[], &[]]),
    ("dns", 71_002, &["bob"], [&[], &["bob"], &[]]),
    ("uniques", 71_003, &["carol", "dave"], [&[], &[], &["carol", "dave"]]),
    ("mixed", 71_004, &["alice", "bob"], [&["alice"], &["alice"], &["bob"]]),
    ("outer", 71_005, &["alice", "bob", "erin"], [&["erin"], &[], &["bob"]]),
    ("ring", 71_006, &["alice", "bob", "erin"], [&[], &[], &["bob"]]),
];

/// A UID, which may follow the DN in a value of `uniqueMember`.
const UID: &str = "#'0101'B";

/// The groups with own lists that name members both by name and by DN.
const MIXED: u32 = 2;

/// `uid` follows a value of `uniqueMember`.
fn directory(schema: Schema, uid: &str) -> String {
    let directory = LdifBuilder::new(schema);
    let (user, group) =
        (|name: &str| directory.user_dn(name), |name: &str| directory.group_dn(name));
    let mut text = directory.tree();
    for (name, uid) in USERS.into_iter().zip(FIRST_ID..) {
        text.push_str(&directory.user(name, uid));
    }
    let lists: [(&str, Vec<(&str, String)>); 6] = [
        ("names", vec![("memberUid", "alice".to_owned()), ("memberUid", "stranger".to_owned())]),
        ("dns", vec![("member", user("bob")), ("member", user("stranger"))]),
        ("uniques", vec![("uniqueMember", user("carol") + uid), ("uniqueMember", user("dave"))]),
        (
            "mixed",
            vec![
                ("memberUid", "alice".to_owned()),
                ("member", user("alice")),
                ("uniqueMember", user("bob")),
            ],
        ),
        (
            "outer",
            vec![
                ("memberUid", "erin".to_owned()),
                ("member", group("names")),
                ("uniqueMember", group("mixed")),
            ],
        ),
        ("ring", vec![("uniqueMember", group("outer")), ("uniqueMember", group("ring"))]),
    ];
    // The classes of either schema lack one of the attributes.
    let class = match schema {
        Schema::Rfc2307 => "posixGroup\nobjectClass: extensibleObject",
        Schema::Rfc2307bis => {
            "groupOfMembers\nobjectClass: posixGroup\nobjectClass: extensibleObject"
        }
    };
    for ((name, members), gid) in lists.into_iter().zip(71_001..) {
        let dn = group(name);
        let _ = write!(text, "dn: {dn}\nobjectClass: {class}\ncn: {name}\ngidNumber: {gid}\n");
        for (attribute, value) in members {
            let _ = writeln!(text, "{attribute}: {value}");
        }
        text.push('\n');
    }
    text
}

fn served(schema: Schema, uid: &str) -> Slapd {
    Slapd::serving(SlapdOptions::new(schema), &directory(schema, uid))
}

/// Names of a group's members; each is there once.
fn members(rosterd: &Rosterd, group: &str) -> BTreeSet<String> {
    let line =
        rosterd.getent("group", group).unwrap_or_else(|| panic!("there is no group {group}"));
    let list = line.rsplit(':').next().unwrap_or_default();
    let names: Vec<String> =
        list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "{line}");
    set
}

fn named(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[track_caller]
fn expect_members(rosterd: &Rosterd, group: &str, names: &[&str]) {
    wait_for(SOON, || {
        let found = members(rosterd, group);
        if found == named(names) {
            Ok(())
        } else {
            Err(format!("{group}: {found:?}, not {names:?}"))
        }
    });
}

/// Each user's gids out of the members of its groups.
fn gids_of(user: &str, members: impl Fn(&Group) -> &'static [&'static str]) -> Vec<u32> {
    let uid = USERS.into_iter().zip(FIRST_ID..).find(|(name, _)| *name == user).expect("a user").1;
    let groups = GROUPS.iter().filter(|group| members(group).contains(&user));
    groups.map(|(_, gid, ..)| *gid).chain([uid]).collect()
}

/// Every user's groups, and every group's members.
#[track_caller]
fn expect_all(rosterd: &Rosterd, members: impl Fn(&Group) -> &'static [&'static str]) {
    for (user, gid) in USERS.into_iter().zip(FIRST_ID..) {
        rosterd.expect_groups(user, gid, &gids_of(user, &members));
    }
    for group in &GROUPS {
        expect_members(rosterd, group.0, members(group));
    }
}

/// A daemon that is ready.
fn started(domain: DomainTable) -> Rosterd {
    let rosterd = Rosterd::start(&[domain]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd
}

#[test]
fn mirror_serves_members_of_all_attributes() {
    for schema in SCHEMAS {
        let slapd = served(schema, UID);
        let mut rosterd = started(DomainTable::ldap("corp", &slapd));
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        expect_all(&rosterd, |group| group.2);
        rosterd.expect_domain_status("corp", "mixed_groups", MIXED);
        let shown = rosterd.roster(&["status"]).text();
        assert!(shown.contains("corp: 2 groups name members both by name and by DN"), "{shown}");

        // Changes in each attribute, to groups that had no such members.
        let directory = LdifBuilder::new(schema);
        let change = |group: &str, verb: &str, attribute: &str, value: &str| {
            let dn = directory.group_dn(group);
            slapd.change(&format!(
                "dn: {dn}\nchangetype: modify\n{verb}: {attribute}\n{attribute}: {value}\n-\n\n"
            ));
        };
        let dave = directory.user_dn("dave");
        for (group, attribute, value) in [
            ("dns", "memberUid", "dave"),
            ("names", "member", dave.as_str()),
            ("names", "uniqueMember", dave.as_str()),
        ] {
            let of_group = GROUPS.iter().find(|one| one.0 == group).expect("a group").2;
            change(group, "add", attribute, value);
            expect_members(&rosterd, group, &[of_group, &["dave"]].concat());
            rosterd.expect_domain_status("corp", "mixed_groups", MIXED + 1);
            change(group, "delete", attribute, value);
            expect_members(&rosterd, group, of_group);
            rosterd.expect_domain_status("corp", "mixed_groups", MIXED);
        }
        // The member stays in one of the two lists.
        change("mixed", "delete", "member", &directory.user_dn("alice"));
        change("mixed", "delete", "uniqueMember", &directory.user_dn("bob"));
        expect_members(&rosterd, "mixed", &["alice"]);
        expect_members(&rosterd, "ring", &["alice", "erin"]);
        change("mixed", "add", "member", &directory.user_dn("alice"));
        change("mixed", "delete", "memberUid", "alice");
        rosterd.expect_domain_status("corp", "mixed_groups", MIXED - 1);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        expect_members(&rosterd, "mixed", &["alice"]);

        rosterd.stop();
        change("mixed", "add", "memberUid", "erin");
        rosterd.launch();
        rosterd.expect_domain_status("corp", "mixed_groups", MIXED);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    }
}

/// A list counts a new name or DN of a user from then on.
#[test]
fn mirror_follows_renamed_members() {
    for schema in SCHEMAS {
        let slapd = served(schema, UID);
        let rosterd = started(DomainTable::ldap("corp", &slapd));
        let directory = LdifBuilder::new(schema);
        expect_members(&rosterd, "mixed", &["alice", "bob"]);
        slapd.rename(&directory.user_dn("dave"), "uid=stranger", None);
        expect_members(&rosterd, "names", &["alice", "stranger"]);
        expect_members(&rosterd, "dns", &["bob", "stranger"]);
        expect_members(&rosterd, "uniques", &["carol"]);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    }
}

#[test]
fn on_demand_asks_all_attributes() {
    for schema in SCHEMAS {
        let slapd = served(schema, "");
        let asked = DomainTable::ldap("corp", &slapd).with("mode", "\"on-demand\"");
        let rosterd = started(asked.clone());
        expect_all(&rosterd, |group| group.2);
        rosterd.expect_domain_status("corp", "mixed_groups", MIXED);
        drop(rosterd);

        // Members first, which are still unknown. A search by DN would not find the value with a UID.
        let carol = LdifBuilder::new(schema).user_dn("carol") + UID;
        let dave = LdifBuilder::new(schema).user_dn("dave");
        let uniques = LdifBuilder::new(schema).group_dn("uniques");
        slapd.set(&uniques, "uniqueMember", &[&carol, &dave]);
        let rosterd = started(asked);
        for group in GROUPS.iter().rev() {
            assert_eq!(members(&rosterd, group.0), named(group.2), "{}", group.0);
        }
    }
}

#[test]
fn narrowed_key_serves_one_attribute() {
    let attributes = ["memberUid", "member", "uniqueMember"];
    for schema in SCHEMAS {
        let slapd = served(schema, "");
        for (number, attribute) in attributes.iter().enumerate() {
            for mode in ["replicate", "on-demand"] {
                let domain = DomainTable::ldap("corp", &slapd)
                    .with("member_attributes", &format!("[{attribute:?}]"))
                    .with("mode", &format!("{mode:?}"));
                let rosterd = started(domain);
                expect_all(&rosterd, |group| group.3[number]);
                rosterd.expect_domain_status("corp", "mixed_groups", 0);
            }
        }
    }
}
