//! What a server changes and tells nobody.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{Directory, Domain, Rosterd, Schema, Server, Setup, Slapd, wait_until};

/// A folder of a class that the search cannot name comes into the base with entries in it.
#[test]
fn everything_is_read_anew_from_time_to_time_and_published_if_it_is_another() {
    let directory = Directory::new(Schema::Rfc2307);
    let far = "dn: l=far,dc=example,dc=com\nobjectClass: locality\nl: far\n\n";
    let mover = directory.user("mover", 4000).replace("ou=people,", "l=far,");
    let ldif = directory.populated(20, 5, 3);
    let slapd = Slapd::serving(Setup::new(Schema::Rfc2307), &format!("{ldif}\n{far}{mover}"));
    let domain = Domain::ldap("corp", &slapd)
        .with("user_base", "\"ou=people,dc=example,dc=com\"")
        .with("full_refresh", "\"3s\"");
    let rosterd = Rosterd::start(&[domain]);
    wait_until(SOON, "it is mirrored", || rosterd.getent("passwd", "u1").is_some());
    let refreshed = || rosterd.domain("corp").ok()?["last_refresh_unix"].as_u64();
    let sequence = || rosterd.domain("corp").ok()?["sequence"].as_u64();
    wait_until(SOON, "it is current", || sequence() == Some(2) || sequence() == Some(1));
    let (first, before) = (sequence(), refreshed());
    wait_until(SOON, "it is read anew", || refreshed() > before);
    wait_until(SOON, "and again", || refreshed() > before.map(|unix| unix + 3));
    assert_eq!(sequence(), first, "nothing is another, and nothing is published");
    assert_eq!(rosterd.getent("passwd", "mover"), None);
    slapd.rename("l=far,dc=example,dc=com", "l=far", Some("ou=people,dc=example,dc=com"));
    wait_until(SOON, "who came is served", || rosterd.getent("passwd", "mover").is_some());
}
