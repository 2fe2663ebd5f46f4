//! 389-ds mirrored: the same claims as of OpenLDAP, against a server that follows the same standards in
//! ways of its own.

use roster_system_tests::rosterd::Source;
use roster_system_tests::{Directory, Domain, Ds389, Rosterd, Schema, scenario};
use std::time::Instant;

#[test]
fn a_directory_is_mirrored_and_followed() {
    let server = Ds389::serving(&Directory::new(Schema::Rfc2307bis).populated(10_000, 10_000, 5));
    let start = Instant::now();
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &server)]);
    rosterd.wait_for_snapshot();
    println!("first snapshot after {:?}", start.elapsed());
    rosterd.expect_mirror(&[Source::Server(&server)]);
    println!("mirrored after {:?}", start.elapsed());
    scenario::changes_are_seen(&server, &rosterd);
    scenario::changes_in_a_gap_are_seen(&server, &mut rosterd);
    println!("all changes seen after {:?}", start.elapsed());
}
