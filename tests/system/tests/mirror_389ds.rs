//! 389-ds mirrored: the same claims as of OpenLDAP, against a server that follows the same standards in
//! ways of its own.

use roster_system_tests::rosterd::Source;
use roster_system_tests::{Directory, Domain, Ds389, Rosterd, Schema, scenario};

#[test]
fn a_directory_is_mirrored_and_followed() {
    let server = Ds389::serving(&Directory::new(Schema::Rfc2307bis).populated(10_000, 10_000, 5));
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &server)]);
    rosterd.wait_for_snapshot();
    rosterd.expect_mirror(&[Source::Server(&server)]);
    scenario::changes_are_seen(&server, &rosterd, scenario::Deletions::Named);
    scenario::changes_in_a_gap_are_seen(&server, &mut rosterd);
}
