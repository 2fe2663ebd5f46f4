// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that is half dead, in every way of [`KINDS`]. Programs are answered as before, all the time. Changes
//! made meanwhile are served as soon as the directory is well again.

use roster_system_tests::rosterd::{LONG_WAIT, OracleSource, SOON};
use roster_system_tests::servers::{Relay, ServerFault};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, TestHost,
    wait_for, wait_until,
};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

const USERS: u32 = 200;
const GROUPS: u32 = 20;
/// Checks of all entries for each kind, a fifth of a second apart: in the meantime there are several refreshes on
/// demand, and a removal would show.
const LOOKS: u32 = 25;
/// `id` requests the groups of these users.
const IN_GROUPS: [&str; 5] = ["u1", "u13", "u14", "u66", "u199"];
/// Limit of entries in a search that ends too early.
const MOST: usize = 60;

const KINDS: [(&str, ServerFault); 30] = [
    ("1 byte a second", ServerFault::Trickles),
    ("close after bind", ServerFault::ClosesAfterBind),
    ("close on accept", ServerFault::ClosesOnAccept),
    ("no reply", ServerFault::DropsReplies),
    ("garbage", ServerFault::Garbles),
    ("a length of 2 GiB", ServerFault::ClaimsGigabytes),
    ("deep BER", ServerFault::Nests),
    ("51 to each search", ServerFault::EndsSearches(51)),
    ("52 to each search", ServerFault::EndsSearches(52)),
    ("4 to each search", ServerFault::EndsSearches(4)),
    ("11 to each search", ServerFault::EndsSearches(11)),
    ("3 to each search", ServerFault::EndsSearches(3)),
    ("53 to each search", ServerFault::EndsSearches(53)),
    ("1 to each search", ServerFault::EndsSearches(1)),
    ("32 to each search", ServerFault::EndsSearches(32)),
    ("50 to each search", ServerFault::EndsSearches(50)),
    ("80 to each search", ServerFault::EndsSearches(80)),
    ("51 to each operation", ServerFault::EndsOperations(51)),
    ("32 to each operation", ServerFault::EndsOperations(32)),
    ("60 entries, then 0", ServerFault::CutsSearches(MOST, 0)),
    ("60 entries, then 4", ServerFault::CutsSearches(MOST, 4)),
    ("60 entries, then 11", ServerFault::CutsSearches(MOST, 11)),
    ("60 entries, then 3", ServerFault::CutsSearches(MOST, 3)),
    ("60 entries, then 51", ServerFault::CutsSearches(MOST, 51)),
    ("60 entries, then 32", ServerFault::CutsSearches(MOST, 32)),
    ("60 % hidden", ServerFault::Hides(is_of_sixty, true)),
    ("30 % hidden", ServerFault::Hides(is_of_thirty, true)),
    ("nothing to each search", ServerFault::EndsSearches(0)),
    ("nothing to each operation", ServerFault::EndsOperations(0)),
    ("each entry twice", ServerFault::Repeats),
];

/// The kinds of `make test`. `ROSTER_KINDS=all` runs all; another text runs the kinds that have it in their names.
const SHORT: [&str; 8] = [
    "no reply",
    "a length of 2 GiB",
    "51 to each search",
    "32 to each operation",
    "60 entries, then 0",
    "60 % hidden",
    "nothing to each operation",
    "each entry twice",
];

fn kinds() -> Vec<(&'static str, ServerFault)> {
    let wanted = std::env::var("ROSTER_KINDS").ok();
    let is_wanted = |name: &str| match wanted.as_deref() {
        None => SHORT.contains(&name),
        Some("all") => true,
        Some(part) => name.contains(part),
    };
    let kinds: Vec<_> = KINDS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    assert!(!kinds.is_empty(), "ROSTER_KINDS={} names no kind", wanted.unwrap_or_default());
    kinds
}

/// The number in the name of a user or group of [`LdifBuilder::populated`].
fn number(dn: &str) -> Option<u32> {
    let name = dn.strip_prefix("uid=u").or_else(|| dn.strip_prefix("cn=g"))?;
    name.split_once(',')?.0.parse().ok()
}

fn is_of_sixty(dn: &str) -> bool {
    number(dn).is_some_and(|number| number % 5 > 1)
}

fn is_of_thirty(dn: &str) -> bool {
    number(dn).is_some_and(|number| number % 10 < 3)
}

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

/// Answers by request: lines of getent by its key, with members in order, and gids of `id`.
type Answers = BTreeMap<String, String>;

/// The answers that programs on the host get.
fn answers(host: &TestHost) -> Answers {
    let mut found = Answers::new();
    for (database, letter, count) in [("passwd", 'u', USERS), ("group", 'g', GROUPS)] {
        let names: Vec<String> = (0..count).map(|i| format!("{letter}{i}")).collect();
        let args = ["-s", "roster", database].into_iter().chain(names.iter().map(String::as_str));
        let done = host.run("getent", &args.collect::<Vec<_>>());
        for line in String::from_utf8_lossy(&done.stdout).lines() {
            let (name, _) = line.split_once(':').expect("fields");
            let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
            if database == "group" {
                let mut members: Vec<_> = fields[3].split(',').collect();
                members.sort_unstable();
                fields[3] = members.join(",");
            }
            found.insert(format!("{database} {name}"), fields.join(":"));
        }
    }
    let ids = host.shell(&format!("for user in {}; do id -G $user; done", IN_GROUPS.join(" ")));
    for (user, gids) in IN_GROUPS.iter().zip(String::from_utf8_lossy(&ids.stdout).lines()) {
        let mut gids: Vec<_> = gids.split(' ').collect();
        gids.sort_unstable();
        found.insert(format!("id {user}"), gids.join(" "));
    }
    found
}

/// The right answers, out of a mirror that the oracle has compared with the directory.
fn right_answers(slapd: &Slapd) -> Answers {
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(slapd)]);
    let right = answers(rosterd.host());
    assert_eq!(right.len(), (USERS + GROUPS) as usize + IN_GROUPS.len());
    right
}

/// The user that changes.
const CHANGED: &str = "u0";

/// Counts of wrong answers while the directory was half dead.
#[derive(Debug, Default)]
struct Tally {
    looks: u32,
    not_found: u32,
    wrong: u32,
    examples: Vec<String>,
}

impl Tally {
    /// Compares all answers. For the user that changes, the newer answer is right, too.
    fn look(&mut self, found: &Answers, right: &Answers, newer: &str) {
        self.looks += 1;
        for (question, answer) in right {
            let (count, example) = match found.get(question) {
                Some(found) if found == answer => continue,
                Some(found) if *question == format!("passwd {CHANGED}") && found == newer => {
                    continue;
                }
                None => (&mut self.not_found, format!("{question}: not found")),
                Some(found) => (&mut self.wrong, format!("{question}: {found}, not {answer}")),
            };
            *count += 1;
            if self.examples.len() < 3 {
                self.examples.push(format!("look {}: {example}", self.looks));
            }
        }
    }
}

fn half_dead(mode: &str) {
    let slapd = Slapd::serving(
        SlapdOptions::new(Schema::Rfc2307),
        &directory().populated(USERS, GROUPS, 5),
    );
    let mut right = right_answers(&slapd);
    let relay = Relay::to(slapd.port());
    let corp = DomainTable::ldap_through("corp", &slapd, &[&relay.uri()])
        .with("mode", &format!("\"{mode}\""))
        .with("refresh_interval", "\"2s\"")
        .with("connect_timeout", "\"2s\"")
        .with("search_timeout", "\"2s\"");
    let rosterd = Rosterd::start(&[corp]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    let expect_right = |right: &Answers, when: &str| {
        wait_for(SOON, || match answers(rosterd.host()) {
            found if found == *right => Ok(()),
            found => Err(format!("{when}: {found:?} and not {right:?}")),
        });
    };
    expect_right(&right, "at first");
    let mut tallies = Vec::new();
    for (round, (name, fault)) in kinds().into_iter().enumerate() {
        relay.set_fault(fault);
        // It may fail.
        let _ = rosterd.roster(&["domain", "refresh", "corp"]);
        let shell = format!("/bin/round{round}");
        slapd.set(&directory().user_dn(CHANGED), "loginShell", &[&shell]);
        let changed = right.get_mut(&format!("passwd {CHANGED}")).expect("it is there");
        let newer = format!("{}:{shell}", changed.rsplit_once(':').expect("fields").0);
        let mut tally = Tally::default();
        for _ in 0..LOOKS {
            tally.look(&answers(rosterd.host()), &right, &newer);
            sleep(Duration::from_millis(200));
        }
        relay.clear_fault();
        right.insert(format!("passwd {CHANGED}"), newer);
        wait_until(LONG_WAIT, "nothing waits", || {
            let _ = rosterd.roster(&["domain", "approve-removals", "corp"]);
            rosterd.pending_removals("corp") == Ok(0)
        });
        rosterd.expect_domain_status("corp", "online", true);
        wait_for(LONG_WAIT, || match answers(rosterd.host()) {
            found if found == right => Ok(()),
            found => {
                let missing: Vec<_> =
                    right.iter().filter(|(key, answer)| found.get(*key) != Some(answer)).collect();
                Err(format!("after {name}: {missing:?}: {:?}", rosterd.domain("corp")))
            }
        });
        println!("{mode}: {name}: {tally:?}");
        tallies.push((name, tally));
    }
    tallies.retain(|(_, tally)| tally.not_found + tally.wrong > 0);
    assert!(tallies.is_empty(), "{tallies:#?}");
}

#[test]
fn mirror_half_dead_directory_answers_stay_right() {
    half_dead("replicate");
}

#[test]
fn on_demand_half_dead_directory_answers_stay_right() {
    half_dead("on-demand");
}
