// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenLDAP mirrored. 10,000 users and groups are served exactly as a separate script computes them from the output of
//! ldapsearch. The same holds after every change, in both schemas.

use roster_system_tests::mirror_scenario::DeletionReports;
use roster_system_tests::rosterd::OracleSource;
use roster_system_tests::{
    DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, mirror_scenario,
};

const USERS: u32 = 10_000;
const GROUPS: u32 = 10_000;
const MEMBERS: u32 = 10;

fn mirrored(schema: Schema) {
    let ldif = LdifBuilder::new(schema).populated(USERS, GROUPS, MEMBERS);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.wait_for_snapshot();
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    mirror_scenario::changes_are_seen(&slapd, &rosterd, DeletionReports::Named);
    mirror_scenario::changes_in_a_gap_are_seen(&slapd, &mut rosterd);
}

#[test]
fn a_directory_with_member_names_is_mirrored_and_followed() {
    mirrored(Schema::Rfc2307);
}

#[test]
fn mirror_nested_groups_by_dn_are_followed() {
    mirrored(Schema::Rfc2307bis);
}

/// The server cannot report changes: it is polled.
#[test]
fn a_directory_that_cannot_be_followed_is_polled() {
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.syncprov = false;
    let slapd = Slapd::serving(setup, &directory.populated(500, 20, 5));
    let mut rosterd =
        Rosterd::start(&[DomainTable::ldap("corp", &slapd).with("poll_interval", "\"1s\"")]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    mirror_scenario::changes_are_seen(&slapd, &rosterd, DeletionReports::Unnamed);
    mirror_scenario::changes_in_a_gap_are_seen(&slapd, &mut rosterd);
}

/// A whole department is moved. Only the entry of the container changes, and with it the DN of all entries below.
/// Servers do not report those.
#[test]
fn a_moved_subtree_is_seen() {
    use roster_system_tests::DirectoryServer;
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let slapd =
        Slapd::serving(SlapdOptions::new(Schema::Rfc2307bis), &directory.populated(50, 20, 5));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    slapd.rename("ou=people,dc=example,dc=com", "ou=persons", None);
    slapd.set(
        &directory.group_dn("g1"),
        "member",
        &["uid=u3,ou=persons,dc=example,dc=com", "uid=u4,ou=persons,dc=example,dc=com"],
    );
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// The uid at the server's socket identifies the client, not a password.
#[test]
fn a_directory_is_mirrored_over_its_socket_by_sasl_external() {
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.anonymous = false;
    let slapd = Slapd::serving(setup, &LdifBuilder::new(Schema::Rfc2307).populated(50, 20, 5));
    let domain = DomainTable::ldap_through("corp", &slapd, &[&slapd.ldapi_uri()])
        .without("bind_dn")
        .without("bind_password_file")
        .with("bind", "\"external\"");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}
