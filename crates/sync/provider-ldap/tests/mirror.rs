// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real slapd is mirrored, and its changes are followed.

mod common;

use common::{Mirror, domain, keys, secrets};
use roster_provider::UnlistedEntries;
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};

const SCHEMAS: [Schema; 2] = [Schema::Rfc2307, Schema::Rfc2307bis];

#[test]
fn everything_is_there_after_a_refresh() {
    for schema in SCHEMAS {
        let directory = LdifBuilder::new(schema);
        let slapd = Slapd::serving(SlapdOptions::new(schema), &directory.populated(300, 100, 20));
        let mirror = Mirror::start(&domain(&slapd), &secrets(None));
        mirror.until("a whole refresh", |book| !book.ends().is_empty());
        mirror.until("users and groups", |book| book.users().len() >= 300);
        assert!(mirror.book.groups().len() >= 100);
        assert_eq!(mirror.book.ends(), [UnlistedEntries::Missing], "one search brings both");
        let groups = mirror.book.groups();
        assert_eq!(groups["g0"].1.len(), 21, "20 users and big");
        assert!(groups["empty"].1.is_empty());
        assert!(groups["strangers"].1.contains("u1"), "known members beside unknown ones");
        assert_eq!(mirror.book.rejected(), [].into());
        assert_eq!(mirror.book.online(), Some(slapd.uri()));
    }
}

#[test]
fn users_with_language_options_are_served() {
    for schema in SCHEMAS {
        let directory = LdifBuilder::new(schema);
        let japanese = |ldif: String| {
            format!("{}\ncn;lang-ja: arisu\nuid;lang-ja: arisu\n\n", ldif.trim_end())
        };
        let users = [("alice", 5001), ("bob", 5002)];
        let users = users.map(|(name, uid)| japanese(directory.user(name, uid))).concat();
        let slapd = Slapd::serving(SlapdOptions::new(schema), &(directory.tree() + &users));
        let mirror = Mirror::start(&domain(&slapd), &secrets(None));
        mirror.until("both users", |book| book.users().len() == 2);
        assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["alice", "bob"]);
        assert_eq!(mirror.book.rejected(), [].into());
    }
}

#[test]
fn changes_are_seen_as_they_happen() {
    for schema in SCHEMAS {
        let directory = LdifBuilder::new(schema);
        let ldif = directory.tree()
            + &directory.user("alice", 5001)
            + &directory.user("bob", 5002)
            + &directory.group("staff", 7001, &["alice"]);
        let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
        let mirror = Mirror::start(&domain(&slapd), &secrets(None));
        mirror.until("both users", |book| book.users().len() == 2);
        let id = mirror.book.id("alice").unwrap();

        slapd.change(&directory.membership("staff", "bob", true));
        mirror.until("bob in staff", |book| {
            book.groups()["staff"].1 == ["alice".to_owned(), "bob".to_owned()].into()
        });
        slapd.change(&directory.user("carol", 5003));
        mirror.until("carol", |book| book.users().contains_key("carol"));
        slapd.set(&directory.user_dn("carol"), "loginShell", &["/bin/zsh"]);
        mirror.until("her shell", |book| book.users()["carol"].shell == "/bin/zsh");
        slapd.rename(&directory.user_dn("alice"), "uid=alicia", None);
        mirror.until("alice is alicia", |book| book.users().contains_key("alicia"));
        assert!(!mirror.book.users().contains_key("alice"));
        assert_eq!(mirror.book.id("alicia"), Some(id), "the entry is the same");
        slapd.delete(&[directory.user_dn("bob")]);
        mirror.until("bob is gone", |book| !book.users().contains_key("bob"));
        slapd.delete(&[directory.group_dn("staff")]);
        mirror.until("no group", |book| book.groups().is_empty());
        assert_eq!(
            mirror.book.ends(),
            [UnlistedEntries::Missing],
            "all of it without another refresh"
        );
    }
}

#[test]
fn entries_that_move_with_their_parent_are_found_again() {
    let schema = Schema::Rfc2307bis;
    let directory = LdifBuilder::new(schema);
    let base =
        directory.user_dn("x").split_once("dc=").map(|(_, rest)| format!("dc={rest}")).unwrap();
    let ldif = directory.tree()
        + &directory.user("alice", 5001)
        + &directory.group("staff", 7001, &["alice"]);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    for users in ["(objectClass=posixAccount)", "(&(objectClass=posixAccount)(uid=*))"] {
        let mut domain = domain(&slapd);
        keys(&mut domain).users.filter = users.to_owned();
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("alice in staff", |book| {
            book.groups().get("staff").is_some_and(|(_, members)| members.contains("alice"))
        });
        let parent = directory.user_dn("alice").split_once(',').unwrap().1.to_owned();
        let rdn = parent.split_once(',').unwrap().0;
        slapd.rename(&parent, "ou=moved", None);
        slapd.set(&directory.group_dn("staff"), "member", &[&format!("uid=alice,ou=moved,{base}")]);
        mirror.until("alice in staff by her new name", |book| {
            book.groups()["staff"].1 == ["alice".to_owned()].into()
                && book.groups()["staff"].0 == 7001
                && book.reference("alice").is_some_and(|dn| dn.contains("ou=moved"))
        });
        slapd.rename(&format!("ou=moved,{base}"), rdn, None);
        slapd.set(&directory.group_dn("staff"), "member", &[&directory.user_dn("alice")]);
        mirror.until("and by the old", |book| {
            book.groups()["staff"].1 == ["alice".to_owned()].into()
                && book.reference("alice").is_some_and(|dn| !dn.contains("ou=moved"))
        });
    }
}
