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

#[test]
fn a_change_that_a_replica_brings_in_late_is_found_by_the_sweep() {
    let directory = Directory::new(SCHEMA);
    let setup = Setup { syncprov: false, ..Setup::new(SCHEMA) };
    let slapd = Slapd::serving(setup, &directory.populated(20, 5, 3));
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("all users", |book| book.users().len() >= 20);
    assert_eq!(mirror.ldap.tracking(), "polling");
    // Newer stamps are known, so no poll asks for this one.
    slapd.change_relaxed(&format!(
        "dn: {}\nchangetype: modify\nreplace: loginShell\nloginShell: /bin/late\n-\n\
         replace: modifyTimestamp\nmodifyTimestamp: 20200101000000Z\n-\n",
        directory.user_dn("u7")
    ));
    let late = slapd.search(slapd.base(), "(modifyTimestamp=20200101000000Z)", &["uid"]);
    assert!(String::from_utf8_lossy(&late).contains("uid: u7"), "stamped as it would be");
    mirror.until("her shell", |book| book.users()["u7"].shell == "/bin/late");
}
