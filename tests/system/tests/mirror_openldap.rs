//! OpenLDAP mirrored: 10,000 users and groups are served exactly as a script of its own works them out
//! of what ldapsearch prints, and so is every change, in both schemas.

use roster_system_tests::rosterd::Source;
use roster_system_tests::scenario::Deletions;
use roster_system_tests::{Directory, Domain, Rosterd, Schema, Setup, Slapd, scenario};

const USERS: u32 = 10_000;
const GROUPS: u32 = 10_000;
const MEMBERS: u32 = 10;

fn mirrored(schema: Schema) {
    let ldif = Directory::new(schema).populated(USERS, GROUPS, MEMBERS);
    let slapd = Slapd::serving(Setup::new(schema), &ldif);
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd)]);
    rosterd.wait_for_snapshot();
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    scenario::changes_are_seen(&slapd, &rosterd, Deletions::Named);
    scenario::changes_in_a_gap_are_seen(&slapd, &mut rosterd);
}

#[test]
fn a_directory_with_member_names_is_mirrored_and_followed() {
    mirrored(Schema::Rfc2307);
}

#[test]
fn a_directory_with_member_dns_and_groups_in_groups_is_mirrored_and_followed() {
    mirrored(Schema::Rfc2307bis);
}

/// The server has no way to tell of changes: it is polled.
#[test]
fn a_directory_that_cannot_be_followed_is_polled() {
    let directory = Directory::new(Schema::Rfc2307);
    let mut setup = Setup::new(Schema::Rfc2307);
    setup.syncprov = false;
    let slapd = Slapd::serving(setup, &directory.populated(500, 20, 5));
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd).with("poll", "\"1s\"")]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    scenario::changes_are_seen(&slapd, &rosterd, Deletions::Unnamed);
    scenario::changes_in_a_gap_are_seen(&slapd, &mut rosterd);
}

/// As a whole department is moved: the entry of the folder is all that changes, and with it the DN of
/// everybody below. Servers announce nothing about those.
#[test]
fn a_moved_subtree_is_seen() {
    use roster_system_tests::Server;
    let directory = Directory::new(Schema::Rfc2307bis);
    let slapd = Slapd::serving(Setup::new(Schema::Rfc2307bis), &directory.populated(50, 20, 5));
    let rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    slapd.rename("ou=people,dc=example,dc=com", "ou=persons", None);
    slapd.set(
        &directory.group_dn("g1"),
        "member",
        &["uid=u3,ou=persons,dc=example,dc=com", "uid=u4,ou=persons,dc=example,dc=com"],
    );
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
}

/// Not the password, but the uid at the server's socket says who asks.
#[test]
fn a_directory_is_mirrored_over_its_socket_by_sasl_external() {
    let mut setup = Setup::new(Schema::Rfc2307);
    setup.anonymous = false;
    let slapd = Slapd::serving(setup, &Directory::new(Schema::Rfc2307).populated(50, 20, 5));
    let domain = Domain::ldap_through("corp", &slapd, &[&slapd.ldapi_uri()])
        .without("bind_dn")
        .without("bind_password_file")
        .with("bind", "\"external\"");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
}
