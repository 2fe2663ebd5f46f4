//! Who may log in: a pure decision over what is known of an account, rule by rule.
//!
//! Every rule is asked, whatever the others say, so that an explanation shows all of them, and all
//! have to allow. What a rule needs and does not have is never an allowance: an account of which
//! nothing is known, a value that cannot be read, a group that nobody knows or a filter that nobody
//! could ask denies. Whoever decides brings what it is about ([`Facts`]); nothing here asks anybody.

mod time;

use crate::account::{Account, Fact, One};
use roster_config::{Access, AccountCheck, Lists};
use std::fmt;
use std::time::Duration;

pub use time::generalized;

/// Active Directory: the account is disabled.
const CONTROL_DISABLED: i64 = 0x2;
/// Active Directory: the account is locked after too many failures.
const CONTROL_LOCKED: i64 = 0x10;
/// Active Directory: the password has expired.
const CONTROL_PASSWORD_EXPIRED: i64 = 0x80_0000;
/// From 1601, with which `accountExpires` begins, to 1970.
const FROM_1601_TO_1970_SECS: i64 = 11_644_473_600;
/// Parts of a second in which `accountExpires` counts.
const FILE_TIME_PER_SEC: i64 = 10_000_000;
const DAY_SECS: u64 = 86_400;

/// Whether somebody is in a group, directly or through others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Yes.
    Member,
    /// No.
    NotMember,
    /// The domain has no such group.
    NoSuchGroup,
    /// That cannot be told at the moment.
    Unknown,
}

/// Whether the directory finds the user by the filter of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// It was asked now.
    Now(bool),
    /// It cannot be asked, and said so then.
    Before {
        /// What it said.
        matched: bool,
        /// How long ago.
        age: Duration,
    },
    /// It cannot be asked, and what it said before is not known or too old.
    Unknown(String),
}

/// What is known of somebody who wants to log in.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The user's name.
    pub name: &'a str,
    /// What for, the name of the PAM service.
    pub service: &'a str,
    /// Seconds since 1970.
    pub now_unix: u64,
    /// What the directory says of the account; `None` where that is not known.
    pub account: Option<&'a Account<'a>>,
    /// Whether the user is in a group.
    pub membership: &'a dyn Fn(&str) -> Membership,
    /// Whether the filter finds the user; means nothing where no filter is configured.
    pub matched: &'a Matched,
}

/// What comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The user may in.
    Allowed,
    /// The user may in after changing the password.
    MustChange,
    /// What a rule needs is not known.
    Unknown,
    /// A list or the filter says no.
    Denied,
    /// The account is locked for a time, or until somebody unlocks it.
    Locked,
    /// The password is older than it may be to be changed.
    PasswordExpired,
    /// The account has expired.
    Expired,
    /// The account is disabled.
    Disabled,
}

impl Verdict {
    /// As it is written in logs and reports.
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

    /// Whether the user may in, perhaps with another password.
    #[must_use]
    pub fn lets_in(self) -> bool {
        matches!(self, Self::Allowed | Self::MustChange)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule, and what it says of somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The key of the configuration, or the attribute.
    pub name: String,
    /// What it says; the worst of all rules is the decision.
    pub verdict: Verdict,
    /// What it saw, in words.
    pub saw: String,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What came out.
    pub verdict: Verdict,
    /// All rules that there are for this domain and service, in the order of the configuration.
    pub rules: Vec<Rule>,
    /// What the user is to be told.
    pub messages: Vec<String>,
}

impl Decision {
    /// The rule that decided, where it was not that all allow.
    #[must_use]
    pub fn reason(&self) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.verdict == self.verdict && !self.is_plain())
    }

    fn is_plain(&self) -> bool {
        self.verdict == Verdict::Allowed
    }
}

/// Decides whether somebody may in.
#[must_use]
pub fn decide(access: &Access, facts: &Facts<'_>) -> Decision {
    let mut rules = Rules { rules: Vec::new(), messages: Vec::new() };
    match facts.account {
        Some(account) => {
            for check in &access.account_checks {
                rules.check(*check, account, facts.now_unix, access.temporary_lock);
            }
        }
        None if access.account_checks.is_empty() => {}
        None => rules.add(
            "account",
            Verdict::Unknown,
            "nothing is known of the account: it was not read since log-ins were configured",
        ),
    }
    rules.lists("", &access.lists, facts);
    if let Some(filter) = &access.filter {
        rules.filter(filter, facts.matched);
    }
    if let Some(lists) = access.services.get(facts.service) {
        rules.lists(&format!("service.{}.", facts.service), lists, facts);
    }
    let verdict = rules.rules.iter().map(|rule| rule.verdict).max().unwrap_or(Verdict::Allowed);
    Decision { verdict, rules: rules.rules, messages: rules.messages }
}

struct Rules {
    rules: Vec<Rule>,
    messages: Vec<String>,
}

impl Rules {
    fn add(&mut self, name: impl Into<String>, verdict: Verdict, saw: impl Into<String>) {
        self.rules.push(Rule { name: name.into(), verdict, saw: saw.into() });
    }

    fn check(&mut self, check: AccountCheck, account: &Account<'_>, now: u64, lock: Duration) {
        match check {
            AccountCheck::ShadowExpire => self.shadow_expire(account, now),
            AccountCheck::PasswordAge => self.password_age(account, now),
            AccountCheck::PasswordPolicy => self.password_policy(account, now, lock),
            AccountCheck::AccountLock => self.account_lock(account),
            AccountCheck::ActiveDirectory => self.active_directory(account, now, lock),
        }
    }

    /// The number that a fact has; complains of anything else.
    fn number(&mut self, name: &str, account: &Account<'_>, fact: Fact) -> Result<Option<i64>, ()> {
        let value = match account.one(fact) {
            One::Absent => return Ok(None),
            One::Is(value) => value,
            One::Several => {
                self.add(name, Verdict::Unknown, "there are several values");
                return Err(());
            }
        };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        if number.is_none() {
            self.add(name, Verdict::Unknown, format!("{} is not a number", quoted(value)));
        }
        number.map(Some).ok_or(())
    }

    fn shadow_expire(&mut self, account: &Account<'_>, now: u64) {
        let name = "shadowExpire";
        let Ok(day) = self.number(name, account, Fact::ExpireDay) else { return };
        match day {
            None | Some(-1) => self.add(name, Verdict::Allowed, "the account does not expire"),
            Some(day) if today(now) >= day => {
                self.add(name, Verdict::Expired, format!("the account expired on day {day}"));
            }
            Some(day) => {
                self.add(name, Verdict::Allowed, format!("the account expires on day {day}"));
            }
        }
    }

    /// As pam_unix(8) reads shadow(5).
    fn password_age(&mut self, account: &Account<'_>, now: u64) {
        let name = "shadowLastChange";
        let mut days = [None; 4];
        let facts = [
            (name, Fact::LastChange),
            ("shadowMax", Fact::MaxDays),
            ("shadowWarning", Fact::WarnDays),
            ("shadowInactive", Fact::InactiveDays),
        ];
        for (day, (name, fact)) in days.iter_mut().zip(facts) {
            let Ok(number) = self.number(name, account, fact) else { return };
            // Nothing and -1 mean the same, but for the day of the last change.
            *day = number.filter(|number| *number >= 0 || fact == Fact::LastChange);
        }
        let [changed, most, warn, inactive] = days;
        let today = today(now);
        match (changed, most) {
            (Some(0), _) => {
                self.add(name, Verdict::MustChange, "0: the password is to be changed");
            }
            (None | Some(i64::MIN..0), _) => {
                self.add(name, Verdict::Allowed, "when the password was changed is not known");
            }
            (Some(changed), _) if changed > today => {
                self.add(name, Verdict::Allowed, "the password was changed in the future");
            }
            (Some(_), None) => self.add(name, Verdict::Allowed, "the password does not age"),
            (Some(changed), Some(most)) => {
                let age = today.saturating_sub(changed);
                let saw = format!("the password is {age} days old, {most} is the most");
                let last = inactive.map(|inactive| most.saturating_add(inactive));
                if last.is_some_and(|last| age > last) {
                    self.add(name, Verdict::PasswordExpired, saw);
                } else if age > most {
                    self.add(name, Verdict::MustChange, saw);
                } else {
                    if let Some(warn) = warn
                        && age > most.saturating_sub(warn)
                    {
                        self.messages.push(expires_in(most.saturating_sub(age)));
                    }
                    self.add(name, Verdict::Allowed, saw);
                }
            }
        }
    }

    fn password_policy(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "pwdAccountLockedTime";
        match account.one(Fact::LockedTime) {
            One::Absent => self.add(name, Verdict::Allowed, "the account is not locked"),
            One::Several => self.add(name, Verdict::Locked, "there are several values"),
            One::Is(value) => match generalized(value) {
                // 000001010000Z and whatever else is long before there were accounts: the mark of a lock that
                // only an administrator takes away.
                Some(since) if since < 0 => {
                    self.add(name, Verdict::Locked, "locked by an administrator");
                }
                None => {
                    let saw = format!("{} is not a time", quoted(value));
                    self.add(name, Verdict::Locked, saw);
                }
                Some(since) => {
                    let since_then = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(since);
                    let lock = i64::try_from(lock.as_secs()).unwrap_or(i64::MAX);
                    let saw = format!("locked at {}", quoted(value));
                    if lock == 0 || since_then < lock {
                        self.add(name, Verdict::Locked, saw);
                    } else {
                        self.add(name, Verdict::Allowed, format!("{saw}, for {lock} s"));
                    }
                }
            },
        }
        self.flag("pwdReset", account, Fact::MustChange, Verdict::MustChange);
    }

    fn account_lock(&mut self, account: &Account<'_>) {
        self.flag("nsAccountLock", account, Fact::AccountLock, Verdict::Disabled);
        let role = account.of(Fact::LockingRole).next().map(quoted);
        if let Some(role) = role {
            self.add("nsRole", Verdict::Disabled, format!("the account has the role {role}"));
        }
    }

    /// An attribute that is TRUE or FALSE.
    fn flag(&mut self, name: &str, account: &Account<'_>, fact: Fact, when_true: Verdict) {
        let (verdict, saw) = match account.one(fact) {
            One::Absent => (Verdict::Allowed, "not set".to_owned()),
            One::Is(value) if value.eq_ignore_ascii_case(b"true") => (when_true, "true".into()),
            One::Is(value) if value.eq_ignore_ascii_case(b"false") => {
                (Verdict::Allowed, "false".into())
            }
            One::Is(value) => {
                (Verdict::Unknown, format!("{} is neither true nor false", quoted(value)))
            }
            One::Several => (Verdict::Unknown, "there are several values".to_owned()),
        };
        self.add(name, verdict, saw);
    }

    fn active_directory(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "userAccountControl";
        if let Ok(control) = self.number(name, account, Fact::Control) {
            let bits = control.unwrap_or_default();
            let (verdict, saw) = if bits & CONTROL_DISABLED != 0 {
                (Verdict::Disabled, format!("{bits:#x}: the account is disabled"))
            } else if bits & CONTROL_LOCKED != 0 {
                (Verdict::Locked, format!("{bits:#x}: the account is locked"))
            } else if bits & CONTROL_PASSWORD_EXPIRED != 0 {
                (Verdict::MustChange, format!("{bits:#x}: the password has expired"))
            } else {
                let saw = control.map_or("not set".to_owned(), |bits| format!("{bits:#x}"));
                (Verdict::Allowed, saw)
            };
            self.add(name, verdict, saw);
        }
        let name = "accountExpires";
        if let Ok(expires) = self.number(name, account, Fact::Expires) {
            let end = expires.unwrap_or_default();
            let end_unix = unix_of_file_time(end);
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            match end {
                0 | i64::MAX => self.add(name, Verdict::Allowed, "the account does not expire"),
                _ if now >= end_unix => {
                    self.add(name, Verdict::Expired, format!("the account expired at {end}"));
                }
                _ => self.add(name, Verdict::Allowed, format!("the account expires at {end}")),
            }
        }
        self.active_directory_computed(account, now, lock);
    }

    /// What the server worked out when the entry was read. A lock that ends by itself changes no entry, so
    /// when it began and how long it is count as for other directories.
    fn active_directory_computed(&mut self, account: &Account<'_>, now: u64, lock: Duration) {
        let name = "msDS-User-Account-Control-Computed";
        let Ok(Some(bits)) = self.number(name, account, Fact::ControlComputed) else { return };
        let Ok(since) = self.number("lockoutTime", account, Fact::LockoutTime) else { return };
        let since = since.filter(|since| *since > 0);
        let lock = i64::try_from(lock.as_secs()).unwrap_or(i64::MAX);
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let has_ended = since
            .is_some_and(|since| lock > 0 && now.saturating_sub(unix_of_file_time(since)) >= lock);
        let (verdict, saw) = if bits & CONTROL_LOCKED != 0 && !has_ended {
            (Verdict::Locked, format!("{bits:#x}: the account is locked"))
        } else if bits & CONTROL_PASSWORD_EXPIRED != 0 {
            (Verdict::MustChange, format!("{bits:#x}: the password has expired"))
        } else if bits & CONTROL_LOCKED != 0 {
            (Verdict::Allowed, format!("{bits:#x}: the account was locked, for {lock} s"))
        } else {
            (Verdict::Allowed, format!("{bits:#x}"))
        };
        self.add(name, verdict, saw);
    }

    fn lists(&mut self, at: &str, lists: &Lists, facts: &Facts<'_>) {
        let named = |users: &[String]| users.iter().any(|user| user == facts.name);
        if let Some(rule) = &lists.denied_users {
            let (verdict, saw) = match named(rule) {
                true => (Verdict::Denied, "the user is in the list"),
                false => (Verdict::Allowed, "the user is not in the list"),
            };
            self.add(format!("{at}denied_users"), verdict, saw);
        }
        if let Some(groups) = &lists.denied_groups {
            self.denied_groups(format!("{at}denied_groups"), groups, facts);
        }
        match (&lists.allowed_users, &lists.allowed_groups) {
            (None, None) => {}
            (Some(users), _) if named(users) => {
                self.add(format!("{at}allowed_users"), Verdict::Allowed, "the user is in the list");
            }
            (Some(_), None) => {
                let saw = "the user is not in the list";
                self.add(format!("{at}allowed_users"), Verdict::Denied, saw);
            }
            (_, Some(groups)) => self.allowed_groups(format!("{at}allowed_groups"), groups, facts),
        }
    }

    fn denied_groups(&mut self, name: String, groups: &[String], facts: &Facts<'_>) {
        let mut found = (Verdict::Allowed, "the user is in none of them".to_owned());
        for group in groups {
            let (verdict, saw) = match (facts.membership)(group) {
                Membership::NotMember => continue,
                Membership::Member => (Verdict::Denied, format!("the user is in {group}")),
                // A group that was renamed would let everybody in whom it kept out.
                Membership::NoSuchGroup => {
                    (Verdict::Unknown, format!("the domain has no group {group}"))
                }
                Membership::Unknown => {
                    (Verdict::Unknown, format!("who is in {group} is not known"))
                }
            };
            if found.0 != Verdict::Denied {
                found = (verdict, saw);
            }
        }
        self.add(name, found.0, found.1);
    }

    fn allowed_groups(&mut self, name: String, groups: &[String], facts: &Facts<'_>) {
        let mut found = (Verdict::Denied, "the user is in none of them".to_owned());
        for group in groups {
            match (facts.membership)(group) {
                Membership::Member => {
                    found = (Verdict::Allowed, format!("the user is in {group}"));
                    break;
                }
                Membership::NotMember => {}
                Membership::NoSuchGroup => found.1 = format!("the domain has no group {group}"),
                Membership::Unknown => {
                    found = (Verdict::Unknown, format!("who is in {group} is not known"));
                }
            }
        }
        self.add(name, found.0, found.1);
    }

    fn filter(&mut self, filter: &str, matched: &Matched) {
        let (verdict, saw) = match matched {
            Matched::Now(true) => (Verdict::Allowed, format!("the user matches {filter}")),
            Matched::Now(false) => (Verdict::Denied, format!("the user does not match {filter}")),
            Matched::Before { matched, age } => {
                let verdict = if *matched { Verdict::Allowed } else { Verdict::Denied };
                let said = if *matched { "matched" } else { "did not match" };
                (verdict, format!("the user {said} {filter} {} s ago", age.as_secs()))
            }
            Matched::Unknown(why) => (Verdict::Unknown, why.clone()),
        };
        self.add("filter", verdict, saw);
    }
}

/// What somebody is told whose password will have to be changed.
fn expires_in(days: i64) -> String {
    match days {
        0 => "Your password has to be changed today.".to_owned(),
        1 => "Your password has to be changed within 1 day.".to_owned(),
        days => format!("Your password has to be changed within {days} days."),
    }
}

/// Seconds since 1970 of a time of Active Directory.
fn unix_of_file_time(time: i64) -> i64 {
    time / FILE_TIME_PER_SEC - FROM_1601_TO_1970_SECS
}

fn today(now_unix: u64) -> i64 {
    i64::try_from(now_unix / DAY_SECS).unwrap_or(i64::MAX)
}

fn quoted(value: &[u8]) -> String {
    format!("“{}”", value.escape_ascii())
}

#[cfg(test)]
mod tests;
