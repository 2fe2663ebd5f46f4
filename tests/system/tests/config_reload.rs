// SPDX-License-Identifier: MIT OR Apache-2.0
//! A change of roster.toml applies to all users as soon as the daemon reloads or restarts, independent of the cache.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_until,
};
use rustix::process::Signal;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307bis)
}

fn served() -> Slapd {
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307bis), &directory().populated(50, 20, 5))
}

/// From one configuration to another, by a reload or a restart.
fn turn(rosterd: &mut Rosterd, is_restart: bool, to: &DomainTable) {
    if is_restart {
        rosterd.stop();
    }
    rosterd.set_domains(std::slice::from_ref(to));
    if is_restart {
        rosterd.launch();
    } else {
        rosterd.process().signal(Signal::HUP);
    }
}

#[test]
fn homes_and_shells_are_those_of_the_present_configuration() {
    let slapd = served();
    let plain = DomainTable::ldap("corp", &slapd);
    let other = plain.clone().with("home", "\"/new/%u\"").with("shell", "\"/bin/zsh\"");
    let mut rosterd = Rosterd::start(std::slice::from_ref(&plain));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let ends = |rosterd: &Rosterd, end: &str| {
        wait_until(SOON, end, || {
            let lonely = rosterd.getent("passwd", "lonely");
            lonely.is_some_and(|line| line.ends_with(end))
        });
    };
    for is_restart in [false, true] {
        turn(&mut rosterd, is_restart, &other);
        ends(&rosterd, ":/new/lonely:/bin/zsh");
        turn(&mut rosterd, is_restart, &plain);
        ends(&rosterd, ":/home/lonely:/bin/sh");
    }
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// By a filter users and groups are searched for one after the other, without one together.
#[test]
fn nobody_stays_who_came_by_a_search_that_is_made_no_more() {
    let (slapd, directory) = (served(), directory());
    let plain = DomainTable::ldap("corp", &slapd);
    let filtered =
        plain.clone().with("user_filter", "\"(&(objectClass=posixAccount)(!(uid=lonely)))\"");
    let mut rosterd = Rosterd::start(std::slice::from_ref(&plain));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    for is_restart in [false, true] {
        turn(&mut rosterd, is_restart, &filtered);
        rosterd.expect("passwd", "lonely", None);
        turn(&mut rosterd, is_restart, &plain);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        let group = if is_restart { "g5" } else { "g6" };
        slapd.change(&directory.membership("g1", "lonely", !is_restart));
        slapd.delete(&[directory.group_dn(group)]);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    }
}
