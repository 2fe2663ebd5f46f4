// SPDX-License-Identifier: MIT OR Apache-2.0
//! 389 Directory Server: its variant of content synchronization, and persistent search.

mod common;

use common::{Mirror, domain, keys, secrets};
use roster_config::{DomainMode, SearchBase};
use roster_provider::{LookupQuery, Provider};
use roster_request::TrackingMethod;
use roster_system_tests::{DirectoryServer, Ds389, LdifBuilder, Schema};

const SCHEMA: Schema = Schema::Rfc2307bis;

fn few(directory: &LdifBuilder) -> String {
    directory.tree()
        + &directory.user("alice", 5001)
        + &directory.user("bob", 5002)
        + &directory.user("carol", 5003)
        + &directory.group("staff", 7001, &["alice", "bob"])
}

fn changes_are_followed(directory: &LdifBuilder, server: &Ds389, mirror: &Mirror) {
    let id = mirror.book.id("alice").unwrap();
    server.change(&directory.membership("staff", "carol", true));
    mirror.until("carol in staff", |book| book.groups()["staff"].1.contains("carol"));
    server.change(&directory.user("dave", 5004));
    mirror.until("dave", |book| book.users().contains_key("dave"));
    server.set(&directory.user_dn("dave"), "loginShell", &["/bin/zsh"]);
    mirror.until("his shell", |book| book.users()["dave"].shell == "/bin/zsh");
    server.rename(&directory.user_dn("alice"), "uid=alicia", None);
    mirror.until("alice is alicia", |book| book.users().contains_key("alicia"));
    assert_eq!(mirror.book.id("alicia"), Some(id), "the entry is the same");
    server.delete(&[directory.user_dn("dave")]);
    mirror.until("dave is gone", |book| !book.users().contains_key("dave"));

    let dn = directory.user_dn("carol");
    let (_, parent) = dn.split_once(',').unwrap();
    let (rdn, base) = parent.split_once(',').unwrap();
    server.rename(parent, "ou=moved", None);
    mirror.until("carol has moved with her parent", |book| {
        book.reference("carol").is_some_and(|dn| dn.contains("ou=moved"))
    });
    server.rename(&format!("ou=moved,{base}"), rdn, None);
    mirror.until("and back", |book| {
        book.reference("carol").is_some_and(|dn| !dn.contains("ou=moved"))
    });
}

#[test]
fn a_mirror_is_followed_and_resumed_without_losing_removals() {
    let directory = LdifBuilder::new(SCHEMA);
    let mut server = Ds389::serving(&few(&directory));
    let mut domain = domain(&server);
    // Two searches over one connection.
    keys(&mut domain).users.filter = "(&(objectClass=posixAccount)(uid=*))".to_owned();
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::Syncrepl));
    assert_eq!(mirror.ldap.parts().len(), 2);
    changes_are_followed(&directory, &server, &mirror);

    // The server updates carol's own list of groups, which is a change of her entry.
    server.change(&directory.membership("staff", "carol", false));
    mirror.until("carol out of staff", |book| !book.groups()["staff"].1.contains("carol"));
    let book = mirror.stop();
    let before = book.puts();
    server.change(&directory.user("erin", 5005));
    server.change(&directory.user("frank", 5006));
    server.delete(&[directory.user_dn("erin"), directory.user_dn("bob")]);
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("the state of now", |book| {
        book.users().into_keys().collect::<Vec<_>>() == ["alicia", "carol", "frank"]
    });
    assert!(mirror.book.puts() - before <= 4, "it was resumed: {}", mirror.book.puts() - before);

    let book = mirror.stop();
    server.change(&directory.user("gina", 5007));
    server.delete(&[directory.user_dn("frank")]);
    server.stop();
    server.reset_changelog();
    server.start();
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("everything anew", |book| {
        book.users().into_keys().collect::<Vec<_>>() == ["alicia", "carol", "gina"]
    });
}

/// After a restoration, numbers of changes are given a second time. Changes with numbers that the mirror has seen are
/// then not reported.
#[test]
fn an_entry_that_is_not_told_of_is_found_by_its_key() {
    let directory = LdifBuilder::new(SCHEMA);
    let mut server = Ds389::serving(&few(&directory));
    server.stop();
    let saved = server.save();
    server.start();
    let domain = domain(&server);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    for i in 0..2 {
        server.change(&directory.user(&format!("lost{i}"), 5010 + i));
    }
    mirror.until("five users", |book| book.users().len() == 5);
    let book = mirror.stop();
    server.stop();
    server.restore(&saved);
    server.start();
    for i in 0..3 {
        server.change(&directory.user(&format!("new{i}"), 5020 + i));
    }
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("the state of now", |book| {
        book.users().into_keys().eq(["alice", "bob", "carol", "new0", "new1", "new2"])
    });
}

fn without_synchronization(directory: &LdifBuilder) -> Ds389 {
    common::without_synchronization(&few(directory))
}

#[test]
fn persistent_search_serves_where_content_synchronization_is_off() {
    let directory = LdifBuilder::new(SCHEMA);
    let server = without_synchronization(&directory);
    let mirror = Mirror::start(&domain(&server), &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::PersistentSearch));
    changes_are_followed(&directory, &server, &mirror);
}

/// A persistent search with the mirror's own filter would report none of these changes.
#[test]
fn persistent_search_sees_who_leaves_the_filter_or_the_base() {
    let directory = LdifBuilder::new(SCHEMA);
    let server = without_synchronization(&directory);
    let dn = directory.user_dn("alice");
    let (_, people) = dn.split_once(',').unwrap();
    let (_, base) = people.split_once(',').unwrap();
    let mut domain = domain(&server);
    let search = &mut keys(&mut domain).users;
    search.filter = "(&(objectClass=posixAccount)(!(nsAccountLock=TRUE)))".to_owned();
    search.bases = vec![SearchBase::subtree(people)];
    let names = |book: &common::Book| book.users().into_keys().collect::<Vec<_>>();
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users", |book| names(book) == ["alice", "bob", "carol"]);
    assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::PersistentSearch));

    server.set(&dn, "nsAccountLock", &["TRUE"]);
    mirror.until("alice is locked out", |book| names(book) == ["bob", "carol"]);
    server.set(&dn, "nsAccountLock", &["FALSE"]);
    mirror.until("and let in", |book| names(book) == ["alice", "bob", "carol"]);
    server.rename(&dn, "uid=alice", Some(base));
    mirror.until("alice is elsewhere", |book| names(book) == ["bob", "carol"]);
    server.rename(&format!("uid=alice,{base}"), "uid=alice", Some(people));
    mirror.until("alice is back", |book| names(book) == ["alice", "bob", "carol"]);

    let roles = format!("cn=roles,{people}");
    server.change(&format!("dn: {roles}\nobjectClass: organizationalRole\ncn: roles\n\n"));
    server.rename(&directory.user_dn("bob"), "uid=bob", Some(&roles));
    mirror.until("bob has moved", |book| {
        book.reference("bob").is_some_and(|dn| dn.contains("cn=roles"))
    });
    server.rename(&roles, "cn=others", None);
    mirror.until("and what he is in is renamed", |book| {
        book.reference("bob").is_some_and(|dn| dn.contains("cn=others"))
    });
    server.rename(&format!("cn=others,{people}"), "cn=others", Some(base));
    mirror.until("and moved", |book| names(book) == ["alice", "carol"]);
}

#[test]
fn synchronization_sees_a_folder_that_leaves_the_base_after_a_restart() {
    let directory = LdifBuilder::new(SCHEMA);
    let dn = directory.user_dn("alice");
    let (_, people) = dn.split_once(',').unwrap();
    let (_, base) = people.split_once(',').unwrap();
    let folder = format!("ou=a,{people}");
    let ldif =
        few(&directory) + &format!("dn: {folder}\nobjectClass: organizationalUnit\nou: a\n\n");
    let server = Ds389::serving(&ldif);
    server.rename(&dn, "uid=alice", Some(&folder));
    let mut domain = domain(&server);
    keys(&mut domain).users.bases = vec![SearchBase::subtree(people)];
    let names = |book: &common::Book| book.users().into_keys().collect::<Vec<_>>();
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users and cookies", |book| {
        names(book) == ["alice", "bob", "carol"] && book.cookies().len() == 2
    });
    let mirror = Mirror::resume(&domain, &secrets(None), mirror.stop());
    mirror.until("both searches are resumed", |book| book.ends().len() == 4);
    server.rename(&folder, "ou=a", Some(base));
    mirror.until("alice is elsewhere", |book| names(book) == ["bob", "carol"]);
}

#[test]
fn look_ups_use_the_same_keys_as_the_mirror() {
    let directory = LdifBuilder::new(SCHEMA);
    let server = Ds389::serving(&few(&directory));
    let mut domain = domain(&server);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    let ids = [mirror.book.id("alice"), mirror.book.id("staff")];
    domain.mode = DomainMode::OnDemand;
    let mirror = Mirror::start(&domain, &secrets(None));
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(b"alice".to_vec())), Ok(true));
    assert_eq!([mirror.book.id("alice"), mirror.book.id("staff")], ids);
}
