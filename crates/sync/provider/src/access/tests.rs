// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the access rules. Logins are tested in `tests/system`.

use super::*;
use roster_config::AccountCheck as Check;
use std::borrow::Cow;

const TODAY: i64 = 20_000;
const NOW: u64 = 20_000 * DAY_SECS + 3600;

fn account(values: &[(AccountFact, &'static str)]) -> Account<'static> {
    let mut account = Account::default();
    values.iter().for_each(|(fact, value)| account.add(*fact, Cow::Borrowed(value.as_bytes())));
    account
}

fn access() -> AccessConfig {
    let checks = Check::ALL.into_iter().filter(|check| !LIST_CHECKS.contains(check));
    AccessConfig { account_checks: checks.collect(), ..AccessConfig::default() }
}

/// Checks that deny an account without data.
const LIST_CHECKS: [Check; 3] = [Check::Host, Check::AuthorizedService, Check::RemoteHost];

fn texts(texts: &[&str]) -> Option<Vec<String>> {
    Some(texts.iter().map(|&text| text.to_owned()).collect())
}

/// Alice is in staff and, through it, in the group `everybody`. The members of `hidden` are unknown.
fn membership(group: &str) -> Membership {
    match group {
        "staff" | "everybody" => Membership::Member,
        "admins" => Membership::NotMember,
        "hidden" => Membership::Unknown,
        _ => Membership::NoSuchGroup,
    }
}

const NO_MATCH: &FilterOutcome = &FilterOutcome::Now(false);

/// Facts without an account, without a group and without a filter.
fn facts<'a>(name: &'a str, service: &'a str) -> AccessFacts<'a> {
    AccessFacts {
        name,
        directory_name: name,
        service,
        remote_host: "",
        host_names: &[],
        now_unix: NOW,
        account: None,
        membership: &|_, _| Membership::Unknown,
        filter: "",
        filter_outcome: NO_MATCH,
        changed_day: None,
    }
}

fn decided(
    access: &AccessConfig,
    account: Option<&Account<'_>>,
    matched: &FilterOutcome,
) -> AccessEvaluation {
    let (name, service) = ("alice", "sshd");
    let membership = &|_: ListKind, group: &str| membership(group);
    decide(
        access,
        &AccessFacts { account, membership, filter_outcome: matched, ..facts(name, service) },
    )
}

fn verdict_of(values: &[(AccountFact, &'static str)]) -> AccessDecision {
    decided(&access(), Some(&account(values)), &FilterOutcome::Unknown(String::new())).decision
}

fn listed(lists: AccessLists) -> AccessDecision {
    let access = AccessConfig { lists, ..access() };
    decided(&access, Some(&Account::default()), &FilterOutcome::Unknown(String::new())).decision
}

#[test]
fn an_account_of_which_nothing_is_said_may_in() {
    assert_eq!(verdict_of(&[]), AccessDecision::Allowed);
}

#[test]
fn an_account_that_was_not_read_may_not() {
    let matched = FilterOutcome::Unknown(String::new());
    assert_eq!(decided(&access(), None, &matched).decision, AccessDecision::Unknown);
    let unchecked = AccessConfig { account_checks: vec![], ..access() };
    assert_eq!(decided(&unchecked, None, &matched).decision, AccessDecision::Allowed);
}

#[test]
fn an_account_ends_on_the_day_that_shadow_expire_names() {
    for (day, verdict) in [
        ("-1", AccessDecision::Allowed),
        ("20001", AccessDecision::Allowed),
        ("20000", AccessDecision::Expired),
        ("19999", AccessDecision::Expired),
        ("0", AccessDecision::Expired),
        ("-2", AccessDecision::Expired),
        ("", AccessDecision::Unknown),
        ("soon", AccessDecision::Unknown),
        ("99999999999999999999", AccessDecision::Unknown),
    ] {
        assert_eq!(verdict_of(&[(AccountFact::ExpireDay, day)]), verdict, "{day}");
    }
    let two = [(AccountFact::ExpireDay, "-1"), (AccountFact::ExpireDay, "-1")];
    assert_eq!(verdict_of(&two), AccessDecision::Unknown);
}

#[test]
fn a_password_ages_as_shadow_says() {
    use AccountFact::{InactiveDays, LastChange, MaxDays, WarnDays};
    for (values, verdict) in [
        (vec![(LastChange, "0")], AccessDecision::MustChange),
        (vec![(LastChange, "19990")], AccessDecision::Allowed),
        (vec![(LastChange, "19990"), (MaxDays, "10")], AccessDecision::Allowed),
        (vec![(LastChange, "19989"), (MaxDays, "10")], AccessDecision::MustChange),
        (vec![(LastChange, "19989"), (MaxDays, "-1")], AccessDecision::Allowed),
        (
            vec![(LastChange, "19984"), (MaxDays, "10"), (InactiveDays, "5")],
            AccessDecision::PasswordExpired,
        ),
        (
            vec![(LastChange, "19985"), (MaxDays, "10"), (InactiveDays, "5")],
            AccessDecision::MustChange,
        ),
        (
            vec![(LastChange, "19000"), (MaxDays, "10"), (InactiveDays, "-1")],
            AccessDecision::MustChange,
        ),
        (vec![(LastChange, "20001"), (MaxDays, "10")], AccessDecision::Allowed),
        (vec![(MaxDays, "10")], AccessDecision::Allowed),
        (vec![(LastChange, "19000"), (MaxDays, "x")], AccessDecision::Unknown),
        (vec![(LastChange, "19000"), (MaxDays, "10"), (WarnDays, "x")], AccessDecision::Unknown),
    ] {
        assert_eq!(verdict_of(&values), verdict, "{values:?}");
    }
}

#[test]
fn who_has_to_change_a_password_soon_is_told() {
    let told = |age: i64, warn: &'static str| {
        let changed = (TODAY - age).to_string();
        let mut account = account(&[(AccountFact::MaxDays, "90"), (AccountFact::WarnDays, warn)]);
        account.add(AccountFact::LastChange, Cow::Owned(changed.into_bytes()));
        decided(&access(), Some(&account), &FilterOutcome::Unknown(String::new())).messages
    };
    assert_eq!(told(83, "7"), Vec::<String>::new());
    assert_eq!(told(84, "7"), ["Your password has to be changed within 6 days."]);
    assert_eq!(told(89, "7"), ["Your password has to be changed within 1 day."]);
    assert_eq!(told(90, "7"), ["Your password has to be changed today."]);
    assert_eq!(told(90, "-1"), Vec::<String>::new());
}

#[test]
fn lockout_lasts_as_long_as_policy_says() {
    // 20,000 days and an hour after 1970 it is 2024-10-04, 01:00.
    for (value, lock_secs, verdict) in [
        ("000001010000Z", 1, AccessDecision::Locked),
        ("00000101000000Z", 1, AccessDecision::Locked),
        ("000001010000+0000", 1, AccessDecision::Locked),
        ("00000101000000.0Z", 1, AccessDecision::Locked),
        ("19691231235959Z", 1, AccessDecision::Locked),
        ("20241004005900Z", 0, AccessDecision::Locked),
        ("20241004005900Z", 61, AccessDecision::Locked),
        ("20241004005900Z", 60, AccessDecision::Allowed),
        ("20251004005900Z", 60, AccessDecision::Locked),
        ("20200101000000Z", 0, AccessDecision::Locked),
        ("never", 60, AccessDecision::Locked),
    ] {
        let access = AccessConfig { temporary_lock: Duration::from_secs(lock_secs), ..access() };
        let account = account(&[(AccountFact::LockedTime, value)]);
        let decision = decided(&access, Some(&account), &FilterOutcome::Unknown(String::new()));
        assert_eq!(decision.decision, verdict, "{value} {lock_secs}");
    }
    assert_eq!(verdict_of(&[(AccountFact::MustChange, "TRUE")]), AccessDecision::MustChange);
    assert_eq!(verdict_of(&[(AccountFact::MustChange, "FALSE")]), AccessDecision::Allowed);
    assert_eq!(verdict_of(&[(AccountFact::MustChange, "maybe")]), AccessDecision::Unknown);
}

#[test]
fn locks_of_389_and_bits_of_active_directory_count() {
    for (fact, value, verdict) in [
        (AccountFact::AccountLock, "TRUE", AccessDecision::Disabled),
        (AccountFact::AccountLock, "false", AccessDecision::Allowed),
        (AccountFact::AccountLock, "1", AccessDecision::Unknown),
        (AccountFact::LockingRole, "cn=nsdisabledrole,dc=x", AccessDecision::Disabled),
        (AccountFact::Control, "512", AccessDecision::Allowed),
        (AccountFact::Control, "514", AccessDecision::Disabled),
        (AccountFact::Control, "528", AccessDecision::Locked),
        (AccountFact::Control, "8389120", AccessDecision::MustChange),
        (AccountFact::Control, "0x202", AccessDecision::Unknown),
        (AccountFact::Control, "", AccessDecision::Unknown),
        (AccountFact::Expires, "0", AccessDecision::Allowed),
        (AccountFact::Expires, "9223372036854775807", AccessDecision::Allowed),
        (AccountFact::Expires, "133724736000000000", AccessDecision::Expired),
        (AccountFact::Expires, "133735968000000000", AccessDecision::Allowed),
        (AccountFact::Expires, "-1", AccessDecision::Expired),
    ] {
        assert_eq!(verdict_of(&[(fact, value)]), verdict, "{fact:?} {value}");
    }
}

/// The entry of a user in Active Directory after a lock at 00:59 on 2024-10-04.
#[test]
fn ad_computed_groups_count_and_lock_ends() {
    let locked = (AccountFact::LockoutTime, "133724771400000000");
    let computed = |bits| (AccountFact::ControlComputed, bits);
    for (facts, lock_secs, verdict) in [
        (&[computed("0")][..], 0, AccessDecision::Allowed),
        (&[computed("16"), locked], 0, AccessDecision::Locked),
        (&[computed("16"), locked], 61, AccessDecision::Locked),
        (&[computed("16"), locked], 60, AccessDecision::Allowed),
        (&[computed("16")], 60, AccessDecision::Locked),
        (&[computed("16"), (AccountFact::LockoutTime, "0")], 60, AccessDecision::Locked),
        (&[computed("8388608")], 0, AccessDecision::MustChange),
        (&[computed("8388624"), locked], 0, AccessDecision::Locked),
        (&[computed("8388624"), locked], 60, AccessDecision::MustChange),
        (&[computed("0x10")], 0, AccessDecision::Unknown),
        (&[computed("16"), (AccountFact::LockoutTime, "then")], 60, AccessDecision::Unknown),
        // The time of a lock that has ended according to the server.
        (&[computed("0"), locked], 0, AccessDecision::Allowed),
        (&[computed("0"), (AccountFact::Control, "514")], 0, AccessDecision::Disabled),
    ] {
        let access = AccessConfig { temporary_lock: Duration::from_secs(lock_secs), ..access() };
        let account = account(facts);
        let decision = decided(&access, Some(&account), &FilterOutcome::Unknown(String::new()));
        assert_eq!(decision.decision, verdict, "{facts:?} {lock_secs}");
    }
}

#[test]
fn a_check_that_is_not_configured_is_not_made() {
    let access = AccessConfig { account_checks: vec![Check::ShadowExpire], ..access() };
    let account = account(&[(AccountFact::AccountLock, "true"), (AccountFact::LastChange, "0")]);
    let matched = FilterOutcome::Unknown(String::new());
    assert_eq!(decided(&access, Some(&account), &matched).decision, AccessDecision::Allowed);
}

#[test]
fn lists_allow_by_name_or_by_group_and_deny_over_all() {
    let users = |allowed_users| AccessLists { allowed_users, ..AccessLists::default() };
    let groups = |allowed_groups| AccessLists { allowed_groups, ..AccessLists::default() };
    assert_eq!(listed(users(texts(&["bob", "alice"]))), AccessDecision::Allowed);
    assert_eq!(listed(users(texts(&["bob"]))), AccessDecision::Denied);
    assert_eq!(listed(users(texts(&[]))), AccessDecision::Denied);
    assert_eq!(listed(groups(texts(&["admins", "everybody"]))), AccessDecision::Allowed);
    assert_eq!(listed(groups(texts(&["admins"]))), AccessDecision::Denied);
    assert_eq!(listed(groups(texts(&["gone"]))), AccessDecision::Denied);
    assert_eq!(listed(groups(texts(&["hidden"]))), AccessDecision::Unknown);
    let either = |user, group| AccessLists {
        allowed_users: texts(&[user]),
        allowed_groups: texts(&[group]),
        ..AccessLists::default()
    };
    assert_eq!(listed(either("alice", "admins")), AccessDecision::Allowed);
    assert_eq!(listed(either("bob", "staff")), AccessDecision::Allowed);
    assert_eq!(listed(either("bob", "admins")), AccessDecision::Denied);
    let denied = |user, group| AccessLists {
        allowed_users: texts(&["alice"]),
        allowed_groups: texts(&["staff"]),
        denied_users: texts(&[user]),
        denied_groups: texts(&[group]),
    };
    assert_eq!(listed(denied("bob", "admins")), AccessDecision::Allowed);
    assert_eq!(listed(denied("alice", "admins")), AccessDecision::Denied);
    assert_eq!(listed(denied("bob", "everybody")), AccessDecision::Denied);
    assert_eq!(listed(denied("bob", "hidden")), AccessDecision::Unknown);
    assert_eq!(listed(denied("bob", "renamed")), AccessDecision::Unknown);
}

#[test]
fn rules_of_a_service_are_asked_for_that_service_only() {
    let lists = AccessLists { allowed_users: texts(&["bob"]), ..AccessLists::default() };
    let with = |service: &str| AccessConfig {
        services: [(service.to_owned(), lists.clone())].into(),
        ..access()
    };
    let matched = FilterOutcome::Unknown(String::new());
    let verdict =
        |access: &AccessConfig| decided(access, Some(&Account::default()), &matched).decision;
    assert_eq!(verdict(&with("sshd")), AccessDecision::Denied);
    assert_eq!(verdict(&with("cron")), AccessDecision::Allowed);
}

#[test]
fn ldap_filter_unanswered_uses_last_then_denies() {
    let access = AccessConfig { filter: Some("(employee=yes)".into()), ..access() };
    let verdict = |matched| decided(&access, Some(&Account::default()), &matched).decision;
    let before = |matched| FilterOutcome::Cached { matched, age: Duration::from_secs(60) };
    assert_eq!(verdict(FilterOutcome::Now(true)), AccessDecision::Allowed);
    assert_eq!(verdict(FilterOutcome::Now(false)), AccessDecision::Denied);
    assert_eq!(verdict(before(true)), AccessDecision::Allowed);
    assert_eq!(verdict(before(false)), AccessDecision::Denied);
    assert_eq!(
        verdict(FilterOutcome::Unknown("no server answers".into())),
        AccessDecision::Unknown
    );
}

#[test]
fn every_rule_is_told_and_the_one_that_decided() {
    let mut access = access();
    access.lists.denied_users = texts(&["alice"]);
    access.filter = Some("(a=b)".into());
    let account = account(&[(AccountFact::AccountLock, "true")]);
    let decision = decided(&access, Some(&account), &FilterOutcome::Now(true));
    let named: Vec<&str> = decision.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(
        named,
        [
            "shadowExpire",
            "shadowLastChange",
            "pwdAccountLockedTime",
            "pwdReset",
            "nsAccountLock",
            "userAccountControl",
            "accountExpires",
            "denied_users",
            "filter",
        ]
    );
    assert_eq!(decision.decision, AccessDecision::Disabled);
    assert_eq!(decision.reason().map(|rule| rule.name.as_str()), Some("nsAccountLock"));
}

/// Removes facts one by one from each combination of rules that allow. A missing fact never turns a denial into an
/// allowance, and rules that need the fact deny.
#[test]
fn what_is_not_known_never_becomes_an_allowance() {
    let account = Account::default();
    let lists = [
        AccessLists { allowed_groups: texts(&["staff"]), ..AccessLists::default() },
        AccessLists { denied_groups: texts(&["admins"]), ..AccessLists::default() },
        AccessLists {
            allowed_users: texts(&["bob"]),
            allowed_groups: texts(&["staff"]),
            denied_groups: texts(&["admins"]),
            ..AccessLists::default()
        },
    ];
    let matched = [FilterOutcome::Now(true), FilterOutcome::Unknown(String::new())];
    for lists in &lists {
        for with_filter in [false, true] {
            for in_service in [false, true] {
                let mut access = access();
                access.filter = with_filter.then(|| "(a=b)".to_owned());
                match in_service {
                    true => drop(access.services.insert("sshd".into(), lists.clone())),
                    false => access.lists = lists.clone(),
                }
                for matched in &matched {
                    for known in [true, false] {
                        for has_account in [true, false] {
                            let answer = move |_: ListKind, group: &str| match known {
                                true => membership(group),
                                false => Membership::Unknown,
                            };
                            let facts = AccessFacts {
                                account: has_account.then_some(&account),
                                membership: &answer,
                                filter_outcome: matched,
                                ..facts("alice", "sshd")
                            };
                            let all = known
                                && has_account
                                && (!with_filter || matches!(matched, FilterOutcome::Now(_)));
                            let verdict = decide(&access, &facts).decision;
                            let expected =
                                if all { AccessDecision::Allowed } else { AccessDecision::Unknown };
                            assert_eq!(verdict, expected, "{access:?} {known} {matched:?}");
                        }
                    }
                }
            }
        }
    }
}

/// Returns the decision of one list check.
fn list_decision(
    check: Check,
    values: &[(AccountFact, &'static str)],
    facts: AccessFacts<'_>,
) -> (AccessDecision, String) {
    let access = AccessConfig { account_checks: vec![check], ..AccessConfig::default() };
    let account = account(values);
    let said = decide(&access, &AccessFacts { account: Some(&account), ..facts });
    (said.decision, said.rules[0].observed.clone())
}

#[test]
fn access_list_checks_compare_their_own_attribute() {
    use AccessDecision::{Allowed, Denied, Unknown};
    let names = ["web1".to_owned(), "web1.example.com".to_owned()];
    let login =
        AccessFacts { remote_host: "192.0.2.7", host_names: &names, ..facts("alice", "sshd") };
    let all = [
        (AccountFact::Host, "web1.example.com"),
        (AccountFact::AuthorizedService, "sshd"),
        (AccountFact::RemoteHost, "192.0.2.7"),
    ];
    for (check, (fact, value)) in LIST_CHECKS.into_iter().zip(all) {
        let (decision, saw) = list_decision(check, &all, login);
        assert_eq!((decision, saw), (Allowed, format!("“{value}” allows")), "{check:?}");
        let others: Vec<_> = all.into_iter().filter(|(other, _)| *other != fact).collect();
        assert_eq!(list_decision(check, &others, login).0, Denied, "{check:?}: no value");
        assert_eq!(list_decision(check, &[(fact, "other")], login).0, Denied, "{check:?}");
    }
    let saw = list_decision(Check::Host, &[(AccountFact::Host, "!WEB1"), all[0]], login);
    assert_eq!(saw, (Denied, "“!WEB1” denies".to_owned()));
    // The host and the service are always known, or the login is refused.
    let unknown = AccessFacts { host_names: &[], service: "", ..login };
    assert_eq!(list_decision(Check::Host, &[(AccountFact::Host, "*")], unknown).0, Unknown);
    let any = [(AccountFact::AuthorizedService, "*")];
    assert_eq!(list_decision(Check::AuthorizedService, &any, unknown).0, Unknown);
    let local = AccessFacts { remote_host: "", ..login };
    assert_eq!(list_decision(Check::RemoteHost, &[], local).0, Allowed);
}

#[test]
fn access_truncated_list_denies() {
    let names = ["web1".to_owned()];
    let mut long = account(&[(AccountFact::Host, "*")]);
    long.add(AccountFact::Host, Cow::Owned(vec![b'x'; LIST_BYTES_MAX]));
    let access = AccessConfig { account_checks: vec![Check::Host], ..AccessConfig::default() };
    let facts = AccessFacts { account: Some(&long), host_names: &names, ..facts("alice", "sshd") };
    assert_eq!(decide(&access, &facts).decision, AccessDecision::Unknown);
}

#[test]
fn access_password_changed_here_is_not_old() {
    let values = [(AccountFact::LastChange, "15000"), (AccountFact::MaxDays, "90")];
    let decision = |changed_day| {
        let account = account(&values);
        let facts = AccessFacts { changed_day, account: Some(&account), ..facts("alice", "sshd") };
        decide(&access(), &facts).decision
    };
    assert_eq!(decision(None), AccessDecision::MustChange);
    assert_eq!(decision(Some(TODAY)), AccessDecision::Allowed);
    assert_eq!(decision(Some(TODAY - 91)), AccessDecision::MustChange);
    assert_eq!(decision(Some(0)), AccessDecision::MustChange);
}

/// A local override gives alice the name al. An old rule must not open the host.
#[test]
fn access_overridden_user_has_name_of_host() {
    let list = |name: &str| Some(vec![name.to_owned()]);
    let overridden = AccessFacts { directory_name: "alice", ..facts("al", "sshd") };
    for (name, allowed, denied) in [
        ("al", AccessDecision::Allowed, AccessDecision::Denied),
        ("alice", AccessDecision::Denied, AccessDecision::Denied),
        ("bob", AccessDecision::Denied, AccessDecision::Allowed),
    ] {
        let none = AccessLists::default;
        for (lists, wanted) in [
            (AccessLists { allowed_users: list(name), ..none() }, allowed),
            (AccessLists { denied_users: list(name), ..none() }, denied),
        ] {
            let access = AccessConfig { lists, ..AccessConfig::default() };
            assert_eq!(decide(&access, &overridden).decision, wanted, "{access:?}");
            let services = [("sshd".to_owned(), access.lists.clone())].into_iter().collect();
            let access = AccessConfig { services, ..AccessConfig::default() };
            assert_eq!(decide(&access, &overridden).decision, wanted, "{access:?}");
        }
    }
}
