use super::*;
use roster_config::AccountCheck as Check;
use std::borrow::Cow;

const TODAY: i64 = 20_000;
const NOW: u64 = 20_000 * DAY_SECS + 3600;

fn account(values: &[(Fact, &'static str)]) -> Account<'static> {
    let mut account = Account::default();
    values.iter().for_each(|(fact, value)| account.add(*fact, Cow::Borrowed(value.as_bytes())));
    account
}

fn access() -> Access {
    Access { account_checks: Check::ALL.to_vec(), ..Access::default() }
}

fn texts(texts: &[&str]) -> Option<Vec<String>> {
    Some(texts.iter().map(|&text| text.to_owned()).collect())
}

/// Alice is in staff and, through it, in everybody; of `hidden` nobody knows.
fn membership(group: &str) -> Membership {
    match group {
        "staff" | "everybody" => Membership::Member,
        "admins" => Membership::NotMember,
        "hidden" => Membership::Unknown,
        _ => Membership::NoSuchGroup,
    }
}

fn decided(access: &Access, account: Option<&Account<'_>>, matched: &Matched) -> Decision {
    let (name, service) = ("alice", "sshd");
    let membership = &membership;
    decide(access, &Facts { name, service, now_unix: NOW, account, membership, matched })
}

fn verdict_of(values: &[(Fact, &'static str)]) -> Verdict {
    decided(&access(), Some(&account(values)), &Matched::Unknown(String::new())).verdict
}

fn listed(lists: Lists) -> Verdict {
    let access = Access { lists, ..access() };
    decided(&access, Some(&Account::default()), &Matched::Unknown(String::new())).verdict
}

#[test]
fn an_account_of_which_nothing_is_said_may_in() {
    assert_eq!(verdict_of(&[]), Verdict::Allowed);
}

#[test]
fn an_account_that_was_not_read_may_not() {
    let matched = Matched::Unknown(String::new());
    assert_eq!(decided(&access(), None, &matched).verdict, Verdict::Unknown);
    let unchecked = Access { account_checks: vec![], ..access() };
    assert_eq!(decided(&unchecked, None, &matched).verdict, Verdict::Allowed);
}

#[test]
fn an_account_ends_on_the_day_that_shadow_expire_names() {
    for (day, verdict) in [
        ("-1", Verdict::Allowed),
        ("20001", Verdict::Allowed),
        ("20000", Verdict::Expired),
        ("19999", Verdict::Expired),
        ("0", Verdict::Expired),
        ("-2", Verdict::Expired),
        ("", Verdict::Unknown),
        ("soon", Verdict::Unknown),
        ("99999999999999999999", Verdict::Unknown),
    ] {
        assert_eq!(verdict_of(&[(Fact::ExpireDay, day)]), verdict, "{day}");
    }
    let two = [(Fact::ExpireDay, "-1"), (Fact::ExpireDay, "-1")];
    assert_eq!(verdict_of(&two), Verdict::Unknown);
}

#[test]
fn a_password_ages_as_shadow_says() {
    use Fact::{InactiveDays, LastChange, MaxDays, WarnDays};
    for (values, verdict) in [
        (vec![(LastChange, "0")], Verdict::MustChange),
        (vec![(LastChange, "19990")], Verdict::Allowed),
        (vec![(LastChange, "19990"), (MaxDays, "10")], Verdict::Allowed),
        (vec![(LastChange, "19989"), (MaxDays, "10")], Verdict::MustChange),
        (vec![(LastChange, "19989"), (MaxDays, "-1")], Verdict::Allowed),
        (
            vec![(LastChange, "19984"), (MaxDays, "10"), (InactiveDays, "5")],
            Verdict::PasswordExpired,
        ),
        (vec![(LastChange, "19985"), (MaxDays, "10"), (InactiveDays, "5")], Verdict::MustChange),
        (vec![(LastChange, "19000"), (MaxDays, "10"), (InactiveDays, "-1")], Verdict::MustChange),
        (vec![(LastChange, "20001"), (MaxDays, "10")], Verdict::Allowed),
        (vec![(MaxDays, "10")], Verdict::Allowed),
        (vec![(LastChange, "19000"), (MaxDays, "x")], Verdict::Unknown),
        (vec![(LastChange, "19000"), (MaxDays, "10"), (WarnDays, "x")], Verdict::Unknown),
    ] {
        assert_eq!(verdict_of(&values), verdict, "{values:?}");
    }
}

#[test]
fn who_has_to_change_a_password_soon_is_told() {
    let told = |age: i64, warn: &'static str| {
        let changed = (TODAY - age).to_string();
        let mut account = account(&[(Fact::MaxDays, "90"), (Fact::WarnDays, warn)]);
        account.add(Fact::LastChange, Cow::Owned(changed.into_bytes()));
        decided(&access(), Some(&account), &Matched::Unknown(String::new())).messages
    };
    assert_eq!(told(83, "7"), Vec::<String>::new());
    assert_eq!(told(84, "7"), ["Your password has to be changed within 6 days."]);
    assert_eq!(told(89, "7"), ["Your password has to be changed within 1 day."]);
    assert_eq!(told(90, "7"), ["Your password has to be changed today."]);
    assert_eq!(told(90, "-1"), Vec::<String>::new());
}

#[test]
fn a_lock_of_the_password_policy_lasts_as_long_as_it_is_configured_to() {
    // 20,000 days and an hour after 1970 it is 2024-10-04, 01:00.
    for (value, lock_secs, verdict) in [
        ("000001010000Z", 1, Verdict::Locked),
        ("00000101000000Z", 1, Verdict::Locked),
        ("000001010000+0000", 1, Verdict::Locked),
        ("00000101000000.0Z", 1, Verdict::Locked),
        ("19691231235959Z", 1, Verdict::Locked),
        ("20241004005900Z", 0, Verdict::Locked),
        ("20241004005900Z", 61, Verdict::Locked),
        ("20241004005900Z", 60, Verdict::Allowed),
        ("20251004005900Z", 60, Verdict::Locked),
        ("20200101000000Z", 0, Verdict::Locked),
        ("never", 60, Verdict::Locked),
    ] {
        let access = Access { temporary_lock: Duration::from_secs(lock_secs), ..access() };
        let account = account(&[(Fact::LockedTime, value)]);
        let decision = decided(&access, Some(&account), &Matched::Unknown(String::new()));
        assert_eq!(decision.verdict, verdict, "{value} {lock_secs}");
    }
    assert_eq!(verdict_of(&[(Fact::MustChange, "TRUE")]), Verdict::MustChange);
    assert_eq!(verdict_of(&[(Fact::MustChange, "FALSE")]), Verdict::Allowed);
    assert_eq!(verdict_of(&[(Fact::MustChange, "maybe")]), Verdict::Unknown);
}

#[test]
fn locks_of_389_and_bits_of_active_directory_count() {
    for (fact, value, verdict) in [
        (Fact::AccountLock, "TRUE", Verdict::Disabled),
        (Fact::AccountLock, "false", Verdict::Allowed),
        (Fact::AccountLock, "1", Verdict::Unknown),
        (Fact::LockingRole, "cn=nsdisabledrole,dc=x", Verdict::Disabled),
        (Fact::Control, "512", Verdict::Allowed),
        (Fact::Control, "514", Verdict::Disabled),
        (Fact::Control, "528", Verdict::Locked),
        (Fact::Control, "8389120", Verdict::MustChange),
        (Fact::Control, "0x202", Verdict::Unknown),
        (Fact::Expires, "0", Verdict::Allowed),
        (Fact::Expires, "9223372036854775807", Verdict::Allowed),
        (Fact::Expires, "133724736000000000", Verdict::Expired),
        (Fact::Expires, "133735968000000000", Verdict::Allowed),
        (Fact::Expires, "-1", Verdict::Expired),
    ] {
        assert_eq!(verdict_of(&[(fact, value)]), verdict, "{fact:?} {value}");
    }
}

/// The entry of a user in Active Directory, as it is when the account was locked at 00:59 on 2024-10-04.
#[test]
fn what_active_directory_works_out_counts_and_a_lock_ends_when_the_policy_says_so() {
    let locked = (Fact::LockoutTime, "133724771400000000");
    let computed = |bits| (Fact::ControlComputed, bits);
    for (facts, lock_secs, verdict) in [
        (&[computed("0")][..], 0, Verdict::Allowed),
        (&[computed("16"), locked], 0, Verdict::Locked),
        (&[computed("16"), locked], 61, Verdict::Locked),
        (&[computed("16"), locked], 60, Verdict::Allowed),
        (&[computed("16")], 60, Verdict::Locked),
        (&[computed("16"), (Fact::LockoutTime, "0")], 60, Verdict::Locked),
        (&[computed("8388608")], 0, Verdict::MustChange),
        (&[computed("8388624"), locked], 0, Verdict::Locked),
        (&[computed("8388624"), locked], 60, Verdict::MustChange),
        (&[computed("0x10")], 0, Verdict::Unknown),
        (&[computed("16"), (Fact::LockoutTime, "then")], 60, Verdict::Unknown),
        // The mark of a lock that the server says is over.
        (&[computed("0"), locked], 0, Verdict::Allowed),
        (&[computed("0"), (Fact::Control, "514")], 0, Verdict::Disabled),
    ] {
        let access = Access { temporary_lock: Duration::from_secs(lock_secs), ..access() };
        let account = account(facts);
        let decision = decided(&access, Some(&account), &Matched::Unknown(String::new()));
        assert_eq!(decision.verdict, verdict, "{facts:?} {lock_secs}");
    }
}

#[test]
fn a_check_that_is_not_configured_is_not_made() {
    let access = Access { account_checks: vec![Check::ShadowExpire], ..access() };
    let account = account(&[(Fact::AccountLock, "true"), (Fact::LastChange, "0")]);
    let matched = Matched::Unknown(String::new());
    assert_eq!(decided(&access, Some(&account), &matched).verdict, Verdict::Allowed);
}

#[test]
fn lists_allow_by_name_or_by_group_and_deny_over_all() {
    let users = |allowed_users| Lists { allowed_users, ..Lists::default() };
    let groups = |allowed_groups| Lists { allowed_groups, ..Lists::default() };
    assert_eq!(listed(users(texts(&["bob", "alice"]))), Verdict::Allowed);
    assert_eq!(listed(users(texts(&["bob"]))), Verdict::Denied);
    assert_eq!(listed(users(texts(&[]))), Verdict::Denied);
    assert_eq!(listed(groups(texts(&["admins", "everybody"]))), Verdict::Allowed);
    assert_eq!(listed(groups(texts(&["admins"]))), Verdict::Denied);
    assert_eq!(listed(groups(texts(&["gone"]))), Verdict::Denied);
    assert_eq!(listed(groups(texts(&["hidden"]))), Verdict::Unknown);
    let either = |user, group| Lists {
        allowed_users: texts(&[user]),
        allowed_groups: texts(&[group]),
        ..Lists::default()
    };
    assert_eq!(listed(either("alice", "admins")), Verdict::Allowed);
    assert_eq!(listed(either("bob", "staff")), Verdict::Allowed);
    assert_eq!(listed(either("bob", "admins")), Verdict::Denied);
    let denied = |user, group| Lists {
        allowed_users: texts(&["alice"]),
        allowed_groups: texts(&["staff"]),
        denied_users: texts(&[user]),
        denied_groups: texts(&[group]),
    };
    assert_eq!(listed(denied("bob", "admins")), Verdict::Allowed);
    assert_eq!(listed(denied("alice", "admins")), Verdict::Denied);
    assert_eq!(listed(denied("bob", "everybody")), Verdict::Denied);
    assert_eq!(listed(denied("bob", "hidden")), Verdict::Unknown);
    assert_eq!(listed(denied("bob", "renamed")), Verdict::Unknown);
}

#[test]
fn rules_of_a_service_are_asked_for_that_service_only() {
    let lists = Lists { allowed_users: texts(&["bob"]), ..Lists::default() };
    let with = |service: &str| Access {
        services: [(service.to_owned(), lists.clone())].into(),
        ..access()
    };
    let matched = Matched::Unknown(String::new());
    let verdict = |access: &Access| decided(access, Some(&Account::default()), &matched).verdict;
    assert_eq!(verdict(&with("sshd")), Verdict::Denied);
    assert_eq!(verdict(&with("cron")), Verdict::Allowed);
}

#[test]
fn a_filter_that_nobody_can_ask_goes_by_what_it_said_last_and_then_denies() {
    let access = Access { filter: Some("(employee=yes)".into()), ..access() };
    let verdict = |matched| decided(&access, Some(&Account::default()), &matched).verdict;
    let before = |matched| Matched::Before { matched, age: Duration::from_secs(60) };
    assert_eq!(verdict(Matched::Now(true)), Verdict::Allowed);
    assert_eq!(verdict(Matched::Now(false)), Verdict::Denied);
    assert_eq!(verdict(before(true)), Verdict::Allowed);
    assert_eq!(verdict(before(false)), Verdict::Denied);
    assert_eq!(verdict(Matched::Unknown("no server answers".into())), Verdict::Unknown);
}

#[test]
fn every_rule_is_told_and_the_one_that_decided() {
    let mut access = access();
    access.lists.denied_users = texts(&["alice"]);
    access.filter = Some("(a=b)".into());
    let account = account(&[(Fact::AccountLock, "true")]);
    let decision = decided(&access, Some(&account), &Matched::Now(true));
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
    assert_eq!(decision.verdict, Verdict::Disabled);
    assert_eq!(decision.reason().map(|rule| rule.name.as_str()), Some("nsAccountLock"));
}

/// Takes what is known away piece by piece, from every combination of rules that allow: whatever is
/// missing, an allowance never comes of what was none, and rules that need what is missing deny.
#[test]
fn what_is_not_known_never_becomes_an_allowance() {
    let account = Account::default();
    let lists = [
        Lists { allowed_groups: texts(&["staff"]), ..Lists::default() },
        Lists { denied_groups: texts(&["admins"]), ..Lists::default() },
        Lists {
            allowed_users: texts(&["bob"]),
            allowed_groups: texts(&["staff"]),
            denied_groups: texts(&["admins"]),
            ..Lists::default()
        },
    ];
    let matched = [Matched::Now(true), Matched::Unknown(String::new())];
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
                            let answer = move |group: &str| match known {
                                true => membership(group),
                                false => Membership::Unknown,
                            };
                            let facts = Facts {
                                name: "alice",
                                service: "sshd",
                                now_unix: NOW,
                                account: has_account.then_some(&account),
                                membership: &answer,
                                matched,
                            };
                            let all = known
                                && has_account
                                && (!with_filter || matches!(matched, Matched::Now(_)));
                            let verdict = decide(&access, &facts).verdict;
                            let expected = if all { Verdict::Allowed } else { Verdict::Unknown };
                            assert_eq!(verdict, expected, "{access:?} {known} {matched:?}");
                        }
                    }
                }
            }
        }
    }
}
