//! Servers without content synchronization.

mod common;

use common::{Mirror, domain, keys, secrets};
use roster_provider::Provider;
use roster_system_tests::{Directory, Schema, Server, Setup, Slapd};

const SCHEMA: Schema = Schema::Rfc2307bis;

#[test]
fn changes_are_polled_for_where_nothing_better_is_offered() {
    let directory = Directory::new(SCHEMA);
    let setup = Setup { syncprov: false, ..Setup::new(SCHEMA) };
    // More than a page of them.
    let slapd = Slapd::serving(setup, &directory.populated(600, 50, 10));
    for part_of_users in ["(objectClass=posixAccount)", "(&(objectClass=posixAccount)(uid=*))"] {
        let mut domain = domain(&slapd);
        keys(&mut domain).users.filter = part_of_users.to_owned();
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("all users", |book| book.users().len() >= 600 && book.groups().len() >= 50);
        assert_eq!(mirror.ldap.tracking(), "polling");
        slapd.change(&directory.user("zoe", 9001));
        mirror.until("zoe", |book| book.users().contains_key("zoe"));
        slapd.set(&directory.user_dn("zoe"), "loginShell", &["/bin/zsh"]);
        mirror.until("her shell", |book| book.users()["zoe"].shell == "/bin/zsh");
        slapd.rename(&directory.user_dn("zoe"), "uid=zoey", None);
        mirror.until("zoe is zoey", |book| book.users().contains_key("zoey"));
        slapd.delete(&[directory.user_dn("zoey")]);
        mirror.until("a sweep finds her gone", |book| !book.users().contains_key("zoey"));
        assert!(mirror.book.users().len() >= 600, "and nobody else");
    }
}
