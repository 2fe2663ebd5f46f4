// SPDX-License-Identifier: MIT OR Apache-2.0
//! 389-ds mirrored: the same claims as of OpenLDAP, against a server that follows the same standards in different ways.

use roster_system_tests::rosterd::OracleSource;
use roster_system_tests::{DomainTable, Ds389, LdifBuilder, Rosterd, Schema, mirror_scenario};

#[test]
fn a_directory_is_mirrored_and_followed() {
    let server = Ds389::serving(&LdifBuilder::new(Schema::Rfc2307bis).populated(10_000, 10_000, 5));
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", &server)]);
    rosterd.wait_for_snapshot();
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    mirror_scenario::changes_are_seen(&server, &rosterd, mirror_scenario::DeletionReports::Named);
    mirror_scenario::changes_in_a_gap_are_seen(&server, &mut rosterd);
}
