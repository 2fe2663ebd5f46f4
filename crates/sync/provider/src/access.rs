// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access rules: a pure decision whether a user may log in, from the known facts of an account.
//!
//! All rules are evaluated, so that an explanation shows each of them, and all of them must allow. A missing fact never
//! allows: an account without data, an unreadable value, an unknown group and an unavailable filter deny. The caller
//! provides the facts ([`AccessFacts`]). This module queries nothing.

mod generalized_time;
mod value_list;

use crate::account::{Account, AccountFact, FactValue, LIST_BYTES_MAX};
use roster_config::{AccessConfig, AccessLists, AccountCheck};
use std::fmt;
use std::time::Duration;
use value_list::{ListMatch, ListedValues, match_list};

pub use generalized_time::parse_generalized_time;

/// Active Directory: the account is disabled.
const CONTROL_DISABLED: i64 = 0x2;
/// Active Directory: the account is locked after too many failures.
const CONTROL_LOCKED: i64 = 0x10;
/// Active Directory: the password has expired.
const CONTROL_PASSWORD_EXPIRED: i64 = 0x80_0000;
/// Seconds from 1601, the epoch of `accountExpires`, to 1970.
const FROM_1601_TO_1970_SECS: i64 = 11_644_473_600;
/// Units of `accountExpires` in a second.
const FILE_TIME_PER_SEC: i64 = 10_000_000;
const DAY_SECS: u64 = 86_400;

/// Membership of a user in a group, directly or through others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The user is a member.
    Member,
    /// The user is not a member.
    NotMember,
    /// The domain has no such group.
    NoSuchGroup,
    /// The domain has several such groups, and the one that is meant is unknown.
    Ambiguous,
    /// The membership cannot be determined now.
    Unknown,
}

/// The kind of a list with groups. It decides which of several groups of one name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// The list allows. Only the group that is served counts.
    Allow,
    /// The list denies. All groups of the name count.
    Deny,
}

/// Whether the directory finds the user by the filter of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterOutcome {
    /// The directory was queried now.
    Now(bool),
    /// The directory is unavailable, and gave this result before.
    Cached {
        /// The earlier result.
        matched: bool,
        /// The result's age.
        age: Duration,
    },
    /// The directory is unavailable, and an earlier result is unknown or too old.
    Unknown(String),
}

/// The known facts of a login.
#[derive(Clone, Copy)]
pub struct AccessFacts<'a> {
    /// The user's name on this host.
    pub name: &'a str,
    /// The user's name in the directory. A denial means it, too: a local override must not open the host.
    pub directory_name: &'a str,
    /// The name of the PAM service.
    pub service: &'a str,
    /// The remote host as the program reports it. Empty for a local login.
    pub remote_host: &'a str,
    /// The names of this host.
    pub host_names: &'a [String],
    /// Seconds since 1970.
    pub now_unix: u64,
    /// The account data of the directory. `None` if unknown.
    pub account: Option<&'a Account<'a>>,
    /// Whether the user is in a group of a list.
    pub membership: &'a dyn Fn(ListKind, &str) -> Membership,
    /// The filter of this login. Empty if it has templates and a value is unknown.
    pub filter: &'a str,
    /// Whether the filter finds the user. Ignored without a configured filter.
    pub filter_outcome: &'a FilterOutcome,
    /// The day on which the user changed the password here, if the account data are older.
    pub changed_day: Option<i64>,
}

/// A decision of a rule, or of all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessDecision {
    /// The user may log in.
    Allowed,
    /// The user may log in after a change of the password.
    MustChange,
    /// A fact that a rule needs is unknown.
    Unknown,
    /// A list or the filter denies.
    Denied,
    /// The account is locked for a time, or until an administrator unlocks it.
    Locked,
    /// The password has expired and cannot be changed any more.
    PasswordExpired,
    /// The account has expired.
    Expired,
    /// The account is disabled.
    Disabled,
}

impl AccessDecision {
    /// Returns the name in logs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::MustChange => "password must be changed",
            Self::Denied => "denied",
            Self::Unknown => "not known",
            Self::Locked => "locked",
            Self::PasswordExpired => "password expired",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
        }
    }

    /// Returns whether the user may log in, perhaps after a change of the password.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed | Self::MustChange)
    }
}

impl fmt::Display for AccessDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleResult {
    /// The key of the configuration, or the attribute.
    pub name: String,
    /// The result. The worst result of all rules is the decision.
    pub decision: AccessDecision,
    /// A description of the fact.
    pub observed: String,
}

/// The decision and its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEvaluation {
    /// The decision.
    pub decision: AccessDecision,
    /// All rules for this domain and service, in the order of the configuration.
    pub rules: Vec<RuleResult>,
    /// Messages for the user.
    pub messages: Vec<String>,
}

impl AccessEvaluation {
    /// Returns the rule that decided. `None` if all rules allow.
    #[must_use]
    pub fn reason(&self) -> Option<&RuleResult> {
        self.rules.iter().find(|rule| rule.decision == self.decision && !self.is_plain())
    }

    fn is_plain(&self) -> bool {
        self.decision == AccessDecision::Allowed
    }
}

/// Evaluates all rules for a login.
#[must_use]
pub fn decide(access: &AccessConfig, facts: &AccessFacts<'_>) -> AccessEvaluation {
    let mut rules = RuleChecks { rules: Vec::new(), messages: Vec::new() };
    match facts.account {
        Some(account) => {
            for check in &access.account_checks {
                rules.check(*check, account, facts, access.temporary_lock);
            }
        }
        None if access.account_checks.is_empty() => {}
        None => rules.add(
            "account",
            AccessDecision::Unknown,
            "the account data is unknown: the user was not read since logins were configured",
        ),
    }
    rules.check_lists("", &access.lists, facts);
    if let Some(template) = &access.filter {
        let filter = if facts.filter.is_empty() { template } else { facts.filter };
        rules.check_filter(filter, facts.filter_outcome);
    }
    if let Some(lists) = access.services.get(facts.service) {
        rules.check_lists(&format!("service.{}.", facts.service), lists, facts);
    }
    let verdict =
        rules.rules.iter().map(|rule| rule.decision).max().unwrap_or(AccessDecision::Allowed);
    AccessEvaluation { decision: verdict, rules: rules.rules, messages: rules.messages }
}

struct RuleChecks {
    rules: Vec<RuleResult>,
    messages: Vec<String>,
}

impl RuleChecks {
    fn add(&mut self, name: impl Into<String>, verdict: AccessDecision, saw: impl Into<String>) {
        self.rules.push(RuleResult { name: name.into(), decision: verdict, observed: saw.into() });
    }

    fn check(
        &mut self,
        check: AccountCheck,
        account: &Account<'_>,
        facts: &AccessFacts<'_>,
        lock: Duration,
    ) {
        let now = facts.now_unix;
        match check {
            AccountCheck::ShadowExpire => self.shadow_expire(account, now),
            AccountCheck::PasswordAge => self.password_age(account, now, facts.changed_day),
            AccountCheck::PasswordPolicy => self.password_policy(account, now, lock),
            AccountCheck::AccountLock => self.account_lock(account),
            AccountCheck::ActiveDirectory => self.active_directory(account, now, lock),
            AccountCheck::Host => {
                let names: Vec<&str> = facts.host_names.iter().map(String::as_str).collect();
                self.value_list("host", account, AccountFact::Host, &names);
            }
            AccountCheck::AuthorizedService => {
                let service: &[&str] =
                    if facts.service.is_empty() { &[] } else { &[facts.service] };
                let name = "authorizedService";
                self.value_list(name, account, AccountFact::AuthorizedService, service);
            }
            AccountCheck::RemoteHost if facts.remote_host.is_empty() => {
                self.add("rhost", AccessDecision::Allowed, "the login has no remote host");
            }
            AccountCheck::RemoteHost => {
                self.value_list("rhost", account, AccountFact::RemoteHost, &[facts.remote_host]);
            }
        }
    }

    /// Evaluates a list of hosts or services. `names` is empty if the host or the service is unknown.
    fn value_list(&mut self, name: &str, account: &Account<'_>, fact: AccountFact, names: &[&str]) {
        let kind = match fact {
            AccountFact::AuthorizedService => ListedValues::Services,
            _ => ListedValues::Hosts,
        };
        let (decision, saw) = if account.is_truncated(fact) {
            (AccessDecision::Unknown, format!("the values exceed {} KiB", LIST_BYTES_MAX >> 10))
        } else if names.is_empty() {
            (AccessDecision::Unknown, "the name to compare with is unknown".to_owned())
        } else {
            match match_list(kind, account.values_of(fact), names) {
                ListMatch::DeniedBy(value) => {
                    (AccessDecision::Denied, format!("{} denies", quoted(value)))
                }
                ListMatch::AllowedBy(value) => {
                    (AccessDecision::Allowed, format!("{} allows", quoted(value)))
                }
                ListMatch::NoMatch => {
                    let names: Vec<_> = names.iter().map(|name| quoted(name.as_bytes())).collect();
                    (AccessDecision::Denied, format!("no value is {}", names.join(" or ")))
                }
                ListMatch::Empty => (AccessDecision::Denied, "the entry has no value".to_owned()),
            }
        };
        self.add(name, decision, saw);
    }

    /// Returns the number in a fact. Adds a failed rule for any other value.
    fn read_number(
        &mut self,
        name: &str,
        account: &Account<'_>,
        fact: AccountFact,
    ) -> Result<Option<i64>, ()> {
        let value = match account.value_of(fact) {
            FactValue::Absent => return Ok(None),
            FactValue::Single(value) => value,
            FactValue::Several => {
                self.add(name, AccessDecision::Unknown, "there are several values");
                return Err(());
            }
        };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        if number.is_none() {
            self.add(name, AccessDecision::Unknown, format!("{} is not a number", quoted(value)));
        }
        number.map(Some).ok_or(())
    }

    fn shadow_expire(&mut self, account: &Account<'_>, now: u64) {
        let name = "shadowExpire";
        let Ok(day) = self.read_number(name, account, AccountFact::ExpireDay) else { return };
        match day {
            None | Some(-1) => {
                self.add(name, AccessDecision::Allowed, "the account does not expire");
            }
            Some(day) if today(now) >= day => {
                self.add(
                    name,
                    AccessDecision::Expired,
                    format!("the account expired on day {day}"),
                );
            }
            Some(day) => {
                self.add(
                    name,
                    AccessDecision::Allowed,
                    format!("the account expires on day {day}"),
                );
            }
        }
    }

    /// Evaluates shadow(5) in the way of pam_unix(8). `changed_here` replaces an older day of the directory.
    fn password_age(&mut self, account: &Account<'_>, now: u64, changed_here: Option<i64>) {
        let name = "shadowLastChange";
        let mut days = [None; 4];
        let facts = [
            (name, AccountFact::LastChange),
            ("shadowMax", AccountFact::MaxDays),
            ("shadowWarning", AccountFact::WarnDays),
            ("shadowInactive", AccountFact::InactiveDays),
        ];
        for (day, (name, fact)) in days.iter_mut().zip(facts) {
            let Ok(number) = self.read_number(name, account, fact) else { return };
            // -1 means the same as no value, except for the day of the last change.
            *day = number.filter(|number| *number >= 0 || fact == AccountFact::LastChange);
        }
        let [changed, most, warn, inactive] = days;
        let changed = changed.map(|day| changed_here.map_or(day, |here| here.max(day)));
        let today = today(now);
        match (changed, most) {
            (Some(0), _) => {
                self.add(name, AccessDecision::MustChange, "0: the password is to be changed");
            }
            (None | Some(i64::MIN..0), _) => {
                self.add(
                    name,
                    AccessDecision::Allowed,
                    "the date of the last password change is unknown",
                );
            }
            (Some(changed), _) if changed > today => {
                self.add(name, AccessDecision::Allowed, "the password was changed in the future");
            }
            (Some(_), None) => self.add(name, AccessDecision::Allowed, "the password does not age"),
            (Some(changed), Some(most)) => {
                let age = today.saturating_sub(changed);
                let saw = format!("the password is {age} days old, {most} is the most");
                let last = inactive.map(|inactive| most.saturating_add(inactive));
                if last.is_some_and(|last| age > last) {
                    self.add(name, AccessDecision::PasswordExpired, saw);
                } else if age > most {
                    self.add(name, AccessDecision::MustChange, saw);
                } else {
                    if let Some(warn) = warn
                        && age > most.saturating_sub(warn)
                    {
                        self.messages.push(expires_in(most.saturating_sub(age)));
                    }
                    self.add(name, AccessDecision::Allowed, saw);
                }
            }
        }
    }

    fn password_policy(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "pwdAccountLockedTime";
        match account.value_of(AccountFact::LockedTime) {
            FactValue::Absent => {
                self.add(name, AccessDecision::Allowed, "the account is not locked");
            }
            FactValue::Several => {
                self.add(name, AccessDecision::Locked, "there are several values");
            }
            FactValue::Single(value) => match parse_generalized_time(value) {
                // 000001010000Z, or any time long before accounts existed, marks a lock that only an administrator
                // removes.
                Some(since) if since < 0 => {
                    self.add(name, AccessDecision::Locked, "locked by an administrator");
                }
                None => {
                    let saw = format!("{} is not a time", quoted(value));
                    self.add(name, AccessDecision::Locked, saw);
                }
                Some(since) => {
                    let since_then = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(since);
                    let lock = i64::try_from(lock.as_secs()).unwrap_or(i64::MAX);
                    let saw = format!("locked at {}", quoted(value));
                    if lock == 0 || since_then < lock {
                        self.add(name, AccessDecision::Locked, saw);
                    } else {
                        self.add(name, AccessDecision::Allowed, format!("{saw}, for {lock} s"));
                    }
                }
            },
        }
        self.flag("pwdReset", account, AccountFact::MustChange, AccessDecision::MustChange);
    }

    fn account_lock(&mut self, account: &Account<'_>) {
        self.flag("nsAccountLock", account, AccountFact::AccountLock, AccessDecision::Disabled);
        let role = account.values_of(AccountFact::LockingRole).next().map(quoted);
        if let Some(role) = role {
            self.add(
                "nsRole",
                AccessDecision::Disabled,
                format!("the account has the role {role}"),
            );
        }
    }

    /// Evaluates an attribute with the value TRUE or FALSE.
    fn flag(
        &mut self,
        name: &str,
        account: &Account<'_>,
        fact: AccountFact,
        when_true: AccessDecision,
    ) {
        let (verdict, saw) = match account.value_of(fact) {
            FactValue::Absent => (AccessDecision::Allowed, "not set".to_owned()),
            FactValue::Single(value) if value.eq_ignore_ascii_case(b"true") => {
                (when_true, "true".into())
            }
            FactValue::Single(value) if value.eq_ignore_ascii_case(b"false") => {
                (AccessDecision::Allowed, "false".into())
            }
            FactValue::Single(value) => {
                (AccessDecision::Unknown, format!("{} is neither true nor false", quoted(value)))
            }
            FactValue::Several => (AccessDecision::Unknown, "there are several values".to_owned()),
        };
        self.add(name, verdict, saw);
    }

    fn active_directory(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "userAccountControl";
        if account.value_of(AccountFact::Control) == FactValue::Single(b"") {
            let saw = "the server does not show it to the reader";
            self.add(name, AccessDecision::Unknown, saw);
        } else if let Ok(control) = self.read_number(name, account, AccountFact::Control) {
            let bits = control.unwrap_or_default();
            let (verdict, saw) = if bits & CONTROL_DISABLED != 0 {
                (AccessDecision::Disabled, format!("{bits:#x}: the account is disabled"))
            } else if bits & CONTROL_LOCKED != 0 {
                (AccessDecision::Locked, format!("{bits:#x}: the account is locked"))
            } else if bits & CONTROL_PASSWORD_EXPIRED != 0 {
                (AccessDecision::MustChange, format!("{bits:#x}: the password has expired"))
            } else {
                let saw = control.map_or("not set".to_owned(), |bits| format!("{bits:#x}"));
                (AccessDecision::Allowed, saw)
            };
            self.add(name, verdict, saw);
        }
        let name = "accountExpires";
        if let Ok(expires) = self.read_number(name, account, AccountFact::Expires) {
            let end = expires.unwrap_or_default();
            let end_unix = unix_of_file_time(end);
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            match end {
                0 | i64::MAX => {
                    self.add(name, AccessDecision::Allowed, "the account does not expire");
                }
                _ if now >= end_unix => {
                    self.add(
                        name,
                        AccessDecision::Expired,
                        format!("the account expired at {end}"),
                    );
                }
                _ => {
                    self.add(
                        name,
                        AccessDecision::Allowed,
                        format!("the account expires at {end}"),
                    );
                }
            }
        }
        self.active_directory_computed(account, now, lock);
    }

    /// Evaluates the bits that the server computed when the entry was read. The end of a lock changes no entry, so it
    /// is calculated from its start and duration, as for other directories.
    fn active_directory_computed(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "msDS-User-Account-Control-Computed";
        let Ok(Some(bits)) = self.read_number(name, account, AccountFact::ControlComputed) else {
            return;
        };
        let Ok(since) = self.read_number("lockoutTime", account, AccountFact::LockoutTime) else {
            return;
        };
        let since = since.filter(|since| *since > 0);
        let lock = i64::try_from(lock.as_secs()).unwrap_or(i64::MAX);
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let has_ended = since
            .is_some_and(|since| lock > 0 && now.saturating_sub(unix_of_file_time(since)) >= lock);
        let (verdict, saw) = if bits & CONTROL_LOCKED != 0 && !has_ended {
            (AccessDecision::Locked, format!("{bits:#x}: the account is locked"))
        } else if bits & CONTROL_PASSWORD_EXPIRED != 0 {
            (AccessDecision::MustChange, format!("{bits:#x}: the password has expired"))
        } else if bits & CONTROL_LOCKED != 0 {
            (AccessDecision::Allowed, format!("{bits:#x}: the account was locked, for {lock} s"))
        } else {
            (AccessDecision::Allowed, format!("{bits:#x}"))
        };
        self.add(name, verdict, saw);
    }

    fn check_lists(&mut self, at: &str, lists: &AccessLists, facts: &AccessFacts<'_>) {
        let has = |users: &[String], name| users.iter().any(|user| user == name);
        let named = |users: &[String]| has(users, facts.name);
        if let Some(rule) = &lists.denied_users {
            let (verdict, saw) = match named(rule) || has(rule, facts.directory_name) {
                true => (AccessDecision::Denied, "the user is in the list"),
                false => (AccessDecision::Allowed, "the user is not in the list"),
            };
            self.add(format!("{at}denied_users"), verdict, saw);
        }
        if let Some(groups) = &lists.denied_groups {
            self.denied_groups(format!("{at}denied_groups"), groups, facts);
        }
        match (&lists.allowed_users, &lists.allowed_groups) {
            (None, None) => {}
            (Some(users), _) if named(users) => {
                self.add(
                    format!("{at}allowed_users"),
                    AccessDecision::Allowed,
                    "the user is in the list",
                );
            }
            (Some(_), None) => {
                let saw = "the user is not in the list";
                self.add(format!("{at}allowed_users"), AccessDecision::Denied, saw);
            }
            (_, Some(groups)) => self.allowed_groups(format!("{at}allowed_groups"), groups, facts),
        }
    }

    fn denied_groups(&mut self, name: String, groups: &[String], facts: &AccessFacts<'_>) {
        let mut found = (AccessDecision::Allowed, "the user is in none of them".to_owned());
        for group in groups {
            let (verdict, saw) = match (facts.membership)(ListKind::Deny, group) {
                Membership::NotMember => continue,
                Membership::Member => (AccessDecision::Denied, format!("the user is in {group}")),
                // Ignoring a renamed group would allow the users that it denied.
                Membership::NoSuchGroup => {
                    (AccessDecision::Unknown, format!("the domain has no group {group}"))
                }
                Membership::Ambiguous => (AccessDecision::Unknown, several_groups(group)),
                Membership::Unknown => {
                    (AccessDecision::Unknown, format!("the members of {group} are unknown"))
                }
            };
            if found.0 != AccessDecision::Denied {
                found = (verdict, saw);
            }
        }
        self.add(name, found.0, found.1);
    }

    fn allowed_groups(&mut self, name: String, groups: &[String], facts: &AccessFacts<'_>) {
        let mut found = (AccessDecision::Denied, "the user is in none of them".to_owned());
        for group in groups {
            match (facts.membership)(ListKind::Allow, group) {
                Membership::Member => {
                    found = (AccessDecision::Allowed, format!("the user is in {group}"));
                    break;
                }
                Membership::NotMember => {}
                Membership::NoSuchGroup => found.1 = format!("the domain has no group {group}"),
                Membership::Ambiguous => found.1 = several_groups(group),
                Membership::Unknown => {
                    found =
                        (AccessDecision::Unknown, format!("the members of {group} are unknown"));
                }
            }
        }
        self.add(name, found.0, found.1);
    }

    fn check_filter(&mut self, filter: &str, matched: &FilterOutcome) {
        let (verdict, saw) = match matched {
            FilterOutcome::Now(true) => {
                (AccessDecision::Allowed, format!("the user matches {filter}"))
            }
            FilterOutcome::Now(false) => {
                (AccessDecision::Denied, format!("the user does not match {filter}"))
            }
            FilterOutcome::Cached { matched, age } => {
                let verdict =
                    if *matched { AccessDecision::Allowed } else { AccessDecision::Denied };
                let said = if *matched { "matched" } else { "did not match" };
                (verdict, format!("the user {said} {filter} {} s ago", age.as_secs()))
            }
            FilterOutcome::Unknown(why) => (AccessDecision::Unknown, why.clone()),
        };
        self.add("filter", verdict, saw);
    }
}

fn several_groups(group: &str) -> String {
    format!("the domain has several groups {group}")
}

/// Returns the message about a password that must soon be changed.
fn expires_in(days: i64) -> String {
    match days {
        0 => "Your password has to be changed today.".to_owned(),
        1 => "Your password has to be changed within 1 day.".to_owned(),
        days => format!("Your password has to be changed within {days} days."),
    }
}

/// Converts a time of Active Directory to seconds since 1970.
fn unix_of_file_time(time: i64) -> i64 {
    time / FILE_TIME_PER_SEC - FROM_1601_TO_1970_SECS
}

/// Returns the day of a time, counted from 1970 in UTC.
#[must_use]
pub fn today(now_unix: u64) -> i64 {
    i64::try_from(now_unix / DAY_SECS).unwrap_or(i64::MAX)
}

fn quoted(value: &[u8]) -> String {
    format!("“{}”", value.escape_ascii())
}

#[cfg(test)]
mod tests;
