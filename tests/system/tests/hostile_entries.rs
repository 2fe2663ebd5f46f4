// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories with entries that may never be served, among good ones. Exactly the good ones are served. An
//! administrator finds the reason for each of the others.

use roster_system_tests::ldif::ldif_line;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    wait_for,
};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A user entry with an RDN that is not its name, so that the name may be anything.
struct User {
    rdn: &'static str,
    /// The fault of the entry.
    fault: &'static str,
    name: Vec<u8>,
    uids: Vec<&'static str>,
    gid: &'static str,
    gecos: Vec<u8>,
    home: Vec<u8>,
    shell: Vec<u8>,
}

impl User {
    fn new(rdn: &'static str, fault: &'static str) -> Self {
        Self {
            rdn,
            fault,
            name: rdn.into(),
            // Only tests of equal uids set a uid here. All other entries get one from their position.
            uids: Vec::new(),
            gid: "80000",
            gecos: b"Gecos".to_vec(),
            home: b"/home/h".to_vec(),
            shell: b"/bin/sh".to_vec(),
        }
    }

    fn named(rdn: &'static str, fault: &'static str, name: &[u8]) -> Self {
        Self { name: name.to_vec(), ..Self::new(rdn, fault) }
    }

    fn with_uid(rdn: &'static str, fault: &'static str, uid: &'static str) -> Self {
        Self { uids: vec![uid], ..Self::new(rdn, fault) }
    }

    fn ldif(&self, place: usize) -> String {
        let own = (81_000 + place).to_string();
        let uids = if self.uids.is_empty() { vec![own.as_str()] } else { self.uids.clone() };
        let mut text = format!(
            "dn: cn={0},ou=people,dc=example,dc=com\nobjectClass: account\nobjectClass: posixAccount\n\
             cn: {0}\ngidNumber: {1}\n",
            self.rdn, self.gid
        );
        text.push_str(&ldif_line("uid", &self.name));
        for uid in uids {
            text.push_str(&ldif_line("uidNumber", uid.as_bytes()));
        }
        text.push_str(&ldif_line("homeDirectory", &self.home));
        if !self.shell.is_empty() {
            text.push_str(&ldif_line("loginShell", &self.shell));
        }
        if !self.gecos.is_empty() {
            text.push_str(&ldif_line("gecos", &self.gecos));
        }
        text.push('\n');
        text
    }
}

/// Entries that any server accepts.
fn bad_users() -> Vec<User> {
    let long = vec![b'x'; 300];
    let mut users = vec![
        User::with_uid("zero", "uid 0", "0"),
        User::with_uid("one", "below min_id", "1"),
        User::with_uid("low", "below min_id", "999"),
        User::with_uid("minus", "-1", "-1"),
        User::with_uid("nobodys", "reserved", "65534"),
        User::with_uid("short", "reserved", "65535"),
        User::with_uid("all-ones", "reserved", "4294967295"),
        User::with_uid("wraps", "more than 32 bits", "4294967296"),
        User::with_uid("wraps-to-good", "more than 32 bits", "4295048296"),
        User::with_uid("huge", "more than 64 bits", "99999999999999999999"),
        User::with_uid("local-uid", "a local user's uid", "1500"),
        User::named("colon", "name", b"col:on"),
        User::named("newline", "name", b"new\nline"),
        User::named("injection", "name", b"evil:x:0:0::/:/bin/sh\nevil2"),
        User::named("slash", "name", b"sla/sh"),
        User::named("up", "name", b".."),
        User::named("dash", "name", b"-rf"),
        User::named("plus", "NIS", b"+"),
        User::named("comma", "name", b"com,ma"),
        User::named("number", "name", b"12345"),
        User::named("space-within", "name", b"two words"),
        User::named("star", "name", b"*"),
        User::named("filter", "name", b"x)(uid=*"),
        User::named("privileged", "name", b"docker"),
        User::named("long", "name", &long),
        User::named("local-root", "local", b"root"),
        User::named("local-daemon", "local", b"daemon"),
        User::named("local-local", "local", b"local"),
    ];
    for (rdn, gid) in [
        ("gid-0", "0"),
        ("gid-42", "42"),
        ("gid-99", "99"),
        ("gid-local", "1500"),
        ("gid-max", "4294967295"),
    ] {
        users.push(User { gid, ..User::new(rdn, "primary gid") });
    }
    let texts: [(_, fn(&mut User)); 6] = [
        ("gecos-newline", |user| user.gecos = b"a\nroot:x:0:0::/:/bin/sh".to_vec()),
        ("gecos-colon", |user| user.gecos = b"a:b".to_vec()),
        ("home-relative", |user| user.home = b"home".to_vec()),
        ("home-up", |user| user.home = b"/home/../root".to_vec()),
        ("home-newline", |user| user.home = b"/home\n/x".to_vec()),
        ("shell-newline", |user| user.shell = b"/bin/sh\nroot::0:0::/:".to_vec()),
    ];
    for (rdn, spoil) in texts {
        let mut user = User::new(rdn, "text");
        spoil(&mut user);
        users.push(user);
    }
    users
}

/// Entries that only a server without checks accepts.
fn worse_users() -> Vec<User> {
    let mut users = vec![
        User::named("latin-1", "no UTF-8", b"caf\xe9"),
        User::named("half", "no UTF-8", b"half\xc3"),
        User::named("nul", "NUL", b"nul\0nul"),
        User::with_uid("word", "no number", "ten"),
        User::with_uid("blank", "no number", " 81999"),
        User::with_uid("fraction", "no number", "81999.5"),
        User { uids: vec!["81998", "0"], ..User::new("two-uids", "several uidNumbers") },
    ];
    let texts: [(_, fn(&mut User)); 2] = [
        ("home-empty", |user| user.home = Vec::new()),
        ("gecos-latin-1", |user| user.gecos = b"Ren\xe9".to_vec()),
    ];
    for (rdn, spoil) in texts {
        let mut user = User::new(rdn, "text");
        spoil(&mut user);
        users.push(user);
    }
    users
}

/// Users and groups that are valid but unusual.
fn good(directory: &LdifBuilder) -> String {
    let dot = User {
        gecos: "Zoë O'Brien, room 1 \"x\" (ü)".into(),
        ..User::named("dot", "", b"first.last")
    };
    [
        directory.user_in("good", 80_001, 80_000),
        dot.ldif(900),
        User { gecos: Vec::new(), shell: Vec::new(), ..User::new("bare", "") }.ldif(901),
        User::named("accents", "", "zoë".as_bytes()).ldif(902),
        User::named("dollar", "", b"machine$").ldif(903),
    ]
    .concat()
}

fn bad_groups(directory: &LdifBuilder) -> Vec<(&'static str, String)> {
    let named = |rdn: &'static str, name: &[u8], gid: u32| {
        // The name is a second cn; it counts when it is in the RDN. So these are named by ou.
        let text = directory.group::<&str>(rdn, gid, &[]);
        let text = text.replace(&format!("dn: cn={rdn}"), &format!("dn: description={rdn}"));
        let cn = format!("cn: {rdn}\n");
        (rdn, text.replace(&cn, &format!("description: {rdn}\n{}", ldif_line("cn", name))))
    };
    vec![
        named("group-root", b"root", 82_000),
        named("group-shadow", b"shadow", 82_001),
        named("group-0", b"zeros", 0),
        named("group-42", b"shadows", 42),
        named("group-100", b"everybody", 100),
        named("group-low", b"low-group", 999),
        named("group-max", b"max-group", u32::MAX),
        named("group-nogroup", b"no-group", 65_534),
        named("group-colon", b"gr:oup", 82_002),
        named("group-newline", b"gr\nroot:x:0:good", 82_003),
        named("group-slash", b"../etc", 82_004),
    ]
}

/// Names that getent lists.
fn listed(rosterd: &Rosterd, database: &str) -> Vec<String> {
    let done = rosterd.host().run("getent", &["-s", "roster", database]);
    let text = done.text();
    let mut names: Vec<_> =
        text.lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect();
    names.sort_unstable();
    names
}

fn only_the_good_are_served(server: &dyn DirectoryServer, rosterd: &Rosterd, bad: &[User]) {
    let groups = bad_groups(&LdifBuilder::new(server.schema()));
    let users = ["bare", "first.last", "good", "machine$", "zoë"];
    wait_for(SOON, || {
        let found = (listed(rosterd, "passwd"), listed(rosterd, "group"));
        let right = found.0 == users && found.1 == ["mixed", "proper"];
        if right { Ok(()) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(rosterd.getent("passwd", "bare").as_deref(), Some("bare:*:81901:80000::/home/h:"));
    // A value that leads to no user adds no member.
    assert_eq!(rosterd.getent("group", "mixed").as_deref(), Some("mixed:*:80002:good"));
    for id in ["0", "1", "42", "100", "999", "1500", "65534", "65535", "4294967295", "81000"] {
        assert_eq!(rosterd.getent("passwd", id), None, "uid {id}");
        assert_eq!(rosterd.getent("group", id), None, "gid {id}");
    }
    rosterd.expect_groups("good", 80_000, &[80_000, 80_002]);
    let rejected = rosterd.roster(&["domain", "rejected", "--all", "corp"]).text();
    println!("{rejected}");
    for user in bad {
        // Entries with a printable name are found by it, the others by the name of the entry.
        let name = String::from_utf8_lossy(&user.name);
        let told = rejected.lines().any(|line| {
            line.contains(&*name) || line.contains(user.rdn) || line.contains(&format!("{name:?}"))
        });
        assert!(
            told || name.contains(char::is_control),
            "{}: {} is not told",
            user.rdn,
            user.fault
        );
    }
    let lines = rejected.lines().count();
    assert!(lines >= bad.len() + groups.len(), "{lines} of {}", bad.len() + groups.len());
}

/// Members of all kinds, of which one is a user.
fn mixed(directory: &LdifBuilder, schema: Schema) -> String {
    let mut text = directory.group("mixed", 80_002, &["good", "nobody-knows"]);
    text.truncate(text.trim_end().len());
    text.push('\n');
    match schema {
        Schema::Rfc2307 => {
            for member in
                ["root", "daemon", "local", "a:b", "a,good2", "x\nroot:x:0:good", "-", "zero"]
            {
                text.push_str(&ldif_line("memberUid", member.as_bytes()));
            }
        }
        Schema::Rfc2307bis => {
            for rdn in ["zero", "colon", "local-root", "gid-42", "no such entry"] {
                text.push_str(&format!("member: cn={rdn},ou=people,dc=example,dc=com\n"));
            }
            text.push_str(
                "member: dc=example,dc=com\nmember: cn=mixed,ou=groups,dc=example,dc=com\n",
            );
        }
    }
    text.push('\n');
    text
}

fn ldif(schema: Schema, bad: &[User]) -> String {
    let directory = LdifBuilder::new(schema);
    let mut text = directory.tree();
    text.push_str(&good(&directory));
    text.push_str(&directory.group("proper", 80_000, &["good"]));
    // "proper" is good's primary group, and has no other member.
    text.push_str(&mixed(&directory, schema));
    for (place, user) in bad.iter().enumerate() {
        text.push_str(&user.ldif(place));
    }
    for (_, group) in bad_groups(&directory) {
        text.push_str(&group);
    }
    text
}

#[test]
fn openldap_serves_the_good_ones_only() {
    let bad = bad_users();
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif(Schema::Rfc2307, &bad));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    only_the_good_are_served(&slapd, &rosterd, &bad);
}

#[test]
fn a_server_that_checks_nothing_serves_the_good_ones_only() {
    let mut bad = bad_users();
    bad.extend(worse_users());
    let server = Ds389::serving(&ldif(Schema::Rfc2307bis, &bad));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &server)]);
    only_the_good_are_served(&server, &rosterd, &bad);
}

/// At most one of two entries with one name or one uid is served, always the same. A good entry that turns bad is
/// removed, and a fixed one is added.
#[test]
fn entries_that_turn_bad_go_and_mended_ones_come() {
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let slapd = Slapd::serving(
        SlapdOptions::new(Schema::Rfc2307),
        &[
            directory.tree(),
            directory.user("first", 80_001),
            directory.user("same-uid", 80_001),
            directory.user("other", 80_003),
        ]
        .concat(),
    );
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect(
        "passwd",
        "other",
        Some("other:*:80003:80003:other of dc=example,dc=com:/home/other:/bin/sh"),
    );
    let names = listed(&rosterd, "passwd");
    assert!(names == ["first", "other"] || names == ["other", "same-uid"], "{names:?}");
    let (winner, loser) = if names.contains(&"first".to_owned()) {
        ("first", "same-uid")
    } else {
        ("same-uid", "first")
    };
    let by_uid = rosterd.getent("passwd", "80001").expect("somebody has the uid");
    assert!(by_uid.starts_with(winner), "{by_uid}");

    // The winner turns bad: the other one is served.
    slapd.set(&directory.user_dn(winner), "uidNumber", &["0"]);
    wait_for(SOON, || {
        let names = listed(&rosterd, "passwd");
        if names == ["other", loser] || names == [loser, "other"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    });
    assert_eq!(rosterd.getent("passwd", "0"), None);
    // Fixed, under a unique uid.
    slapd.set(&directory.user_dn(winner), "uidNumber", &["80009"]);
    wait_for(SOON, || {
        let names = listed(&rosterd, "passwd");
        if names == ["first", "other", "same-uid"] { Ok(()) } else { Err(format!("{names:?}")) }
    });
}
