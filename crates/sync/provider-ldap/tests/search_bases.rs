// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several search bases in a real slapd, and referrals.

mod common;

use common::{Book, Mirror, domain, keys, secrets};
use roster_config::{DomainConfig, DomainMode, SearchBase, SearchScope};
use roster_messages::table::directory;
use roster_provider::{LookupQuery, Provider};
use roster_system_tests::servers::BASE;
use roster_system_tests::{DirectoryServer, Ds389, LdifBuilder, Schema, Slapd, SlapdOptions};

const SCHEMA: Schema = Schema::Rfc2307;

fn dn(rest: &str) -> String {
    format!("{rest},{BASE}")
}

fn unit(rest: &str) -> String {
    let (_, name) = rest.split(',').next().unwrap().split_once('=').unwrap();
    format!("dn: {}\nobjectClass: organizationalUnit\nou: {name}\n\n", dn(rest))
}

fn user(place: &str, name: &str, uid: u32) -> String {
    let text = LdifBuilder::new(SCHEMA).user(name, uid);
    text.replace(&format!("uid={name},ou=people,{BASE}"), &format!("uid={name},{place},{BASE}"))
}

/// Users in four places. `ou=deep` is below `ou=people`.
fn ldif() -> String {
    let builder = LdifBuilder::new(SCHEMA);
    builder.tree()
        + &unit("ou=deep,ou=people")
        + &unit("ou=staff")
        + &unit("ou=others")
        + &user("ou=people", "anna", 5001)
        + &user("ou=deep,ou=people", "dora", 5002)
        + &user("ou=staff", "stan", 5003)
        + &user("ou=others", "otto", 5004)
        + &builder.group("team", 7001, &["anna", "stan"])
}

fn slapd(syncprov: bool) -> Slapd {
    Slapd::serving(SlapdOptions { syncprov, ..SlapdOptions::new(SCHEMA) }, &ldif())
}

fn base(rest: &str, scope: SearchScope, filter: Option<&str>) -> SearchBase {
    SearchBase { base: dn(rest), scope, filter: filter.map(ToOwned::to_owned) }
}

/// Returns the configuration with these bases of users, and with a base of groups.
fn with_bases(server: &impl DirectoryServer, users: Vec<SearchBase>) -> DomainConfig {
    let mut domain = domain(server);
    let keys = keys(&mut domain);
    keys.users.bases = users;
    keys.groups.bases = vec![SearchBase::subtree(&dn("ou=groups"))];
    domain
}

fn names(book: &Book) -> Vec<String> {
    book.users().into_keys().collect()
}

#[test]
fn bases_with_scopes_and_filters_select_entries() {
    use SearchScope::{Base, One, Subtree};
    for syncprov in [true, false] {
        let slapd = slapd(syncprov);
        for (bases, wanted) in [
            (
                vec![base("ou=people", Subtree, None), base("ou=staff", Subtree, None)],
                "anna dora stan",
            ),
            (
                vec![base("ou=people", One, None), base("uid=otto,ou=others", Base, None)],
                "anna otto",
            ),
            // Overlapping bases serve each entry once, by the filter of either.
            (
                vec![SearchBase::subtree(BASE), base("ou=people", Subtree, None)],
                "anna dora otto stan",
            ),
            (
                vec![
                    SearchBase { filter: Some("(uid=s*)".to_owned()), ..SearchBase::subtree(BASE) },
                    base("ou=people", Subtree, Some("(uid=a*)")),
                    base("ou=others", One, Some("(uid=x*)")),
                ],
                "anna stan",
            ),
        ] {
            let wanted: Vec<&str> = wanted.split(' ').collect();
            let domain = with_bases(&slapd, bases);
            let mirror = Mirror::start(&domain, &secrets(None));
            mirror.until("users of the bases", |book| names(book) == wanted);
            mirror.until("the group", |book| book.groups().contains_key("team"));
            assert_eq!(mirror.book.rejected(), [].into());
            let asked = DomainConfig { mode: DomainMode::OnDemand, ..domain };
            let mirror = Mirror::start(&asked, &secrets(None));
            mirror.until("online", |book| book.online().is_some());
            for name in ["anna", "dora", "otto", "stan"] {
                let found = mirror.look_up(LookupQuery::UserByName(name.as_bytes().to_vec()));
                assert_eq!(found, Ok(wanted.contains(&name)), "{name} {wanted:?}");
            }
            assert_eq!(names(&mirror.book), wanted);
        }
    }
}

/// Mirrors `ou=people` and `ou=staff`, and expects each change at the server.
fn changes_are_seen(server: &impl DirectoryServer) -> Mirror {
    let subtree = |rest| base(rest, SearchScope::Subtree, None);
    let domain = with_bases(server, vec![subtree("ou=people"), subtree("ou=staff")]);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("three users", |book| names(book) == ["anna", "dora", "stan"]);
    server.change(&user("ou=staff", "sue", 5010));
    server.change(&user("ou=people", "andy", 5011));
    server.change(&user("ou=others", "olga", 5012));
    mirror.until("two more", |book| names(book) == ["andy", "anna", "dora", "stan", "sue"]);
    server.set(&dn("uid=sue,ou=staff"), "loginShell", &["/bin/zsh"]);
    mirror.until("her shell", |book| book.users()["sue"].shell == "/bin/zsh");
    // The entry moves between the bases, and out of both.
    server.rename(&dn("uid=andy,ou=people"), "uid=andy", Some(&dn("ou=staff")));
    mirror.until("andy at his new place", |book| {
        book.users().len() == 5 && book.reference("andy").is_some_and(|dn| dn.contains("ou=staff"))
    });
    server.delete(&[dn("uid=stan,ou=staff")]);
    server.rename(&dn("uid=dora,ou=deep,ou=people"), "uid=dora", Some(&dn("ou=others")));
    mirror.until("two fewer", |book| names(book) == ["andy", "anna", "sue"]);
    mirror
}

#[test]
fn bases_are_followed_in_389_ds() {
    changes_are_seen(&common::without_synchronization(&ldif()));
    changes_are_seen(&Ds389::serving(&ldif()));
}

#[test]
fn bases_changes_are_followed_in_each() {
    for syncprov in [true, false] {
        let slapd = slapd(syncprov);
        let mirror = changes_are_seen(&slapd);
        slapd.rename(&dn("ou=staff"), "ou=crew", None);
        mirror.until("a base is missing", |book| {
            book.offline().is_some_and(|why| why.contains("ou=staff,dc=example,dc=com"))
        });
        assert_eq!(names(&mirror.book), ["andy", "anna", "sue"], "nothing is removed");
        slapd.rename(&dn("ou=crew"), "ou=staff", None);
        mirror.until("online again", |book| book.online().is_some());
    }
}

#[test]
fn bases_resumed_mirror_continues_each() {
    let slapd = slapd(true);
    let domain = with_bases(
        &slapd,
        vec![SearchBase::subtree(BASE), base("ou=people", SearchScope::Subtree, Some("(uid=a*)"))],
    );
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("four users", |book| names(book).len() == 4);
    let book = mirror.stop();
    slapd.change(&user("ou=people", "andy", 5011));
    slapd.delete(&[dn("uid=stan,ou=staff")]);
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("the changes", |book| names(book) == ["andy", "anna", "dora", "otto"]);
}

#[test]
fn bases_missing_one_is_named() {
    let slapd = slapd(true);
    let nowhere = base("ou=nowhere", SearchScope::Subtree, None);
    for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
        let mut domain = with_bases(
            &slapd,
            vec![base("ou=people", SearchScope::Subtree, None), nowhere.clone()],
        );
        domain.mode = mode;
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("offline with the reason", |book| {
            book.offline().is_some_and(|why| why.contains("ou=nowhere,dc=example,dc=com"))
        });
    }
}

#[test]
fn referral_names_the_other_server() {
    let slapd = slapd(true);
    slapd.change_relaxed(&format!(
        "dn: {}\nchangetype: add\nobjectClass: referral\nobjectClass: extensibleObject\nou: abroad\n\
         ref: ldap://ldap2.example.com/ou=abroad,dc=example,dc=com\n\n",
        dn("ou=abroad")
    ));
    for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
        let domain = DomainConfig { mode, ..domain(&slapd) };
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("online", |book| book.online().is_some());
        if mode == DomainMode::OnDemand {
            let found = mirror.look_up(LookupQuery::UserByName(b"anna".to_vec()));
            assert_eq!(found, Ok(true));
        }
        mirror.until("the referral", |_| mirror.ldap.referred_servers() == ["ldap2.example.com"]);
        assert!(mirror.logged.has(directory::REFERRAL.code));
    }
}
