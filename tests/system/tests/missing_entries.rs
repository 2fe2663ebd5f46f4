// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that replies with success and leaves entries out: from its listings, from searches by
//! their keys too, or all of them. Each entry stays served until it is sure that it is gone.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::servers::{Relay, ServerFault};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_for,
    wait_until,
};
use std::thread::sleep;
use std::time::Duration;

const USERS: u32 = 200;
const GROUPS: u32 = 20;
/// Looks, a fifth of a second apart: in the meantime there are several refreshes on demand, and a removal
/// would show.
const LOOKS: u32 = 25;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

fn served() -> Slapd {
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(USERS, GROUPS, 5))
}

/// Every minute rosterd checks entries with a pending removal.
const MINUTES: Duration = Duration::from_secs(180);

/// The number in the name of a user or group of [`LdifBuilder::populated`].
fn number(dn: &str) -> Option<u32> {
    let name = dn.strip_prefix("uid=u").or_else(|| dn.strip_prefix("cn=g"))?;
    name.split_once(',')?.0.parse().ok()
}

fn is_of_quarter(dn: &str) -> bool {
    number(dn).is_some_and(|number| number % 4 == 1)
}

fn is_of_most(dn: &str) -> bool {
    number(dn).is_some_and(|number| number % 5 > 1)
}

/// Selects all entries except the root DSE.
fn is_any(dn: &str) -> bool {
    !dn.is_empty()
}

/// A mirror, or a domain with a request for each entry.
fn known(server: &Slapd, relay: &Relay, mode: &str) -> Rosterd {
    let corp = DomainTable::ldap_through("corp", server, &[&relay.uri()])
        .with("mode", &format!("\"{mode}\""))
        .with("refresh_interval", "\"2s\"");
    let rosterd = Rosterd::start(&[corp]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    if mode == "replicate" {
        rosterd.expect_mirror(&[OracleSource::Server(server)]);
    }
    assert_all_served(&rosterd, "at first");
    rosterd
}

#[track_caller]
fn assert_all_served(rosterd: &Rosterd, when: &str) {
    for (database, letter, count) in [("passwd", 'u', USERS), ("group", 'g', GROUPS)] {
        let names: Vec<String> = (0..count).map(|i| format!("{letter}{i}")).collect();
        let args: Vec<&str> = ["-s", "roster", database]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .collect();
        let found = rosterd.host().run("getent", &args);
        let lines = found.stdout.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!((found.code, lines), (0, count as usize), "{database} {when}");
    }
}

/// Makes rosterd read everything again, and checks for a while that each entry stays.
#[track_caller]
fn assert_all_stay(rosterd: &Rosterd, mode: &str, when: &str) {
    if mode == "replicate" {
        let done = rosterd.roster(&["domain", "refresh", "corp"]);
        assert_eq!(done.code, 0, "{}", done.error());
    }
    for _ in 0..LOOKS {
        assert_all_served(rosterd, when);
        sleep(Duration::from_millis(200));
    }
}

#[track_caller]
fn expect_held(rosterd: &Rosterd, least: u64) {
    wait_for(SOON, || match rosterd.pending_removals("corp")? {
        number if number >= least => Ok(()),
        number => Err(format!("{number} removals wait")),
    });
    let status = rosterd.roster(&["status"]);
    let said = String::from_utf8_lossy(&status.stdout);
    assert_ne!(status.code, 0, "{said}");
    assert!(said.contains("roster domain approve-removals corp"), "{said}");
}

fn listings_hide_a_quarter(mode: &str) {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let rosterd = known(&slapd, &relay, mode);
    relay.set_fault(ServerFault::Hides(is_of_quarter, false));
    assert_all_stay(&rosterd, mode, "with a quarter hidden from listings");
    if mode == "replicate" {
        assert_eq!(rosterd.pending_removals("corp"), Ok(0), "searches by key find each");
        // A change of a hidden entry is seen.
        slapd.set(&directory().user_dn("u1"), "loginShell", &["/bin/zsh"]);
        let done = rosterd.roster(&["domain", "refresh", "corp"]);
        assert_eq!(done.code, 0, "{}", done.error());
        wait_until(SOON, "the change is seen", || {
            rosterd.getent("passwd", "u1").is_some_and(|line| line.ends_with("/bin/zsh"))
        });
        relay.clear_fault();
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    }
}

#[test]
fn mirror_listing_hides_quarter_all_served() {
    listings_hide_a_quarter("replicate");
}

#[test]
fn on_demand_replies_hide_quarter_all_served() {
    listings_hide_a_quarter("on-demand");
}

/// Held entries that the directory shows again silently stop waiting.
fn all_searches_hide_a_quarter(mode: &str) {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let rosterd = known(&slapd, &relay, mode);
    relay.set_fault(ServerFault::Hides(is_of_quarter, true));
    assert_all_stay(&rosterd, mode, "with a quarter hidden from all searches");
    expect_held(&rosterd, u64::from(USERS / 4 + GROUPS / 4));
    relay.clear_fault();
    wait_until(MINUTES, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    assert_all_served(&rosterd, "with all shown again");
}

#[test]
fn mirror_all_searches_hide_quarter_held_until_shown() {
    all_searches_hide_a_quarter("replicate");
}

#[test]
fn on_demand_all_searches_hide_quarter_held_until_shown() {
    all_searches_hide_a_quarter("on-demand");
}

fn confirmation_after_most_were_hidden(mode: &str) {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let rosterd = known(&slapd, &relay, mode);
    relay.set_fault(ServerFault::Hides(is_of_most, true));
    assert_all_stay(&rosterd, mode, "with most hidden from all searches");
    expect_held(&rosterd, u64::from(USERS / 2));
    // An entry is gone indeed when the directory is whole again.
    slapd.delete(&[directory().user_dn("u2")]);
    relay.clear_fault();
    let confirmed = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    let said = confirmed.text();
    let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    if mode == "replicate" {
        assert!(said.starts_with("corp: 1 entry removed, "), "{said}");
        assert!(numbers[1] > u64::from(USERS / 2), "{said}");
    }
    wait_until(SOON, "it is gone", || rosterd.getent("passwd", "u2").is_none());
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    for i in (0..USERS).filter(|i| *i != 2) {
        assert!(rosterd.getent("passwd", &format!("u{i}")).is_some(), "u{i}");
    }
}

#[test]
fn mirror_confirm_keeps_entries_shown_again() {
    confirmation_after_most_were_hidden("replicate");
}

#[test]
fn on_demand_confirm_keeps_entries_shown_again() {
    confirmation_after_most_were_hidden("on-demand");
}

fn empty_success_to_everything(mode: &str) {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let rosterd = known(&slapd, &relay, mode);
    relay.set_fault(ServerFault::Hides(is_any, true));
    assert_all_stay(&rosterd, mode, "with an empty success to everything");
    expect_held(&rosterd, u64::from(USERS + GROUPS));
    // A single one neither: no reply is credible.
    relay.clear_fault();
    wait_until(MINUTES, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    assert_all_served(&rosterd, "with all shown again");
}

#[test]
fn mirror_empty_success_removes_nobody() {
    empty_success_to_everything("replicate");
}

#[test]
fn on_demand_empty_success_removes_nobody() {
    empty_success_to_everything("on-demand");
}

/// The cache is gone, the snapshot is there, and the backend begins with the entries of a listing.
#[test]
fn mirror_without_cache_lacks_quarter_held_until_read() {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    let mut rosterd = known(&slapd, &relay, "replicate");
    rosterd.stop();
    std::fs::remove_dir_all(rosterd.host().path("state/domains")).expect("remove the cache");
    relay.set_fault(ServerFault::Hides(is_of_quarter, true));
    rosterd.launch();
    expect_held(&rosterd, u64::from(USERS / 4));
    assert_all_served(&rosterd, "without the cache");
    relay.clear_fault();
    let confirmed = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    slapd.change(&directory().user("after", 70_000));
    wait_until(SOON, "it is followed", || rosterd.getent("passwd", "after").is_some());
    assert_all_served(&rosterd, "after the confirmation");
}

/// Hides an attribute of half of the users from all except the administrator.
const HALF_UNREADABLE: &str =
    "add: olcAccess\nolcAccess: {0}to dn.regex=\"^uid=u[0-9]*[0-4],\" attrs=uidNumber by * none\n";

/// An access rule makes users unreadable. Their removal waits as that of missing users, and an approval removes them.
#[test]
fn mirror_hidden_attribute_holds_users_until_confirmed() {
    let populated = directory().populated(USERS, GROUPS, 5);
    let mut slapd = Slapd::loaded(SlapdOptions::new(Schema::Rfc2307), &populated);
    slapd.use_cn_config();
    slapd.start();
    let relay = Relay::to(slapd.port());
    let rosterd = known(&slapd, &relay, "replicate");
    slapd.configure_database(HALF_UNREADABLE);
    assert_all_stay(&rosterd, "replicate", "with an attribute of half of them hidden");
    expect_held(&rosterd, u64::from(USERS / 2));
    slapd.configure_database("delete: olcAccess\nolcAccess: {0}\n");
    assert_all_stay(&rosterd, "replicate", "with the attribute shown again");
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));

    slapd.configure_database(HALF_UNREADABLE);
    let done = rosterd.roster(&["domain", "refresh", "corp"]);
    assert_eq!(done.code, 0, "{}", done.error());
    expect_held(&rosterd, u64::from(USERS / 2));
    let said = rosterd.roster(&["domain", "approve-removals", "corp"]).text();
    assert!(said.starts_with("corp: 100 entries removed"), "{said}");
    wait_until(SOON, "they are gone", || rosterd.getent("passwd", "u3").is_none());
    assert!(rosterd.getent("passwd", "u7").is_some());
}

/// Few enough for a small domain.
#[test]
fn few_removed_users_go_without_confirmation() {
    let slapd = served();
    let relay = Relay::to(slapd.port());
    for mode in ["replicate", "on-demand"] {
        let rosterd = known(&slapd, &relay, mode);
        let leaver = format!("leaver-{mode}");
        slapd.change(&directory().user(&leaver, 70_001));
        wait_until(SOON, "it is served", || rosterd.getent("passwd", &leaver).is_some());
        slapd.delete(&[directory().user_dn(&leaver)]);
        wait_until(SOON, "it is gone", || rosterd.getent("passwd", &leaver).is_none());
        assert_eq!(rosterd.pending_removals("corp"), Ok(0));
    }
}

/// An answered entry never reverts to an older state: it is in the cache before the publisher has it.
#[test]
fn on_demand_answer_survives_killed_backend() {
    let slapd = served();
    let corp = DomainTable::ldap("corp", &slapd).with("mode", "\"on-demand\"");
    let rosterd = Rosterd::start(&[corp]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    assert!(rosterd.getent("passwd", "u1").is_some());
    let mut last = rosterd.wait_for_role("backend:corp");
    for round in 0..8 {
        let value = format!("/bin/v{round}");
        slapd.set(&directory().user_dn("u1"), "loginShell", &[&value]);
        let expired = rosterd.roster(&["cache", "expire", "--user", "u1"]);
        assert_eq!(expired.code, 0, "{}", expired.error());
        let is_new = || rosterd.getent("passwd", "u1").is_some_and(|line| line.ends_with(&value));
        wait_until(SOON, "the new value is answered", is_new);
        rosterd.kill_role("backend:corp");
        last = wait_for(SOON, || match rosterd.role("backend:corp") {
            Some(pid) if pid != last => Ok(pid),
            _ => Err("it does not run again".to_owned()),
        });
        rosterd.expect_domain_status("corp", "online", true);
        for _ in 0..100 {
            let line = rosterd.getent("passwd", "u1").expect("known");
            assert!(line.ends_with(&value), "round {round}: {line}");
            sleep(Duration::from_millis(20));
        }
    }
}
