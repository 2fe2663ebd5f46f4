// SPDX-License-Identifier: MIT OR Apache-2.0
//! The account data of a directory beside the fields of passwd(5): validity, expiry and ssh keys.
//!
//! Values are stored as the directory has them, and interpreted by `access` and `ssh_keys`. An explanation can
//! therefore show the original value, and an unreadable value still denies.

use std::borrow::Cow;

/// Stored values of a single-valued fact. The second one shows that the fact has several.
const VALUES_MAX: usize = 2;
/// Limit of the keys of one account.
pub const SSH_KEYS_MAX: usize = 64;
/// Limit of the bytes in all values of a list, such as the hosts of a user. Four bytes come with each value.
pub const LIST_BYTES_MAX: usize = 16 << 10;
/// Limit of a value. The longest common key is shorter, and other values are much shorter.
pub const VALUE_BYTES_MAX: usize = 16 << 10;
/// Limit of [`Account::to_bytes`].
pub const ACCOUNT_BYTES_MAX: usize = 128 << 10;

/// The meaning of a value. The cache stores the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AccountFact {
    /// Day of the last change of the password, `shadowLastChange`.
    LastChange = 1,
    /// Days until the password must be changed, `shadowMax`.
    MaxDays = 2,
    /// Days of warning before that, `shadowWarning`.
    WarnDays = 3,
    /// Days after it in which the password can still be changed, `shadowInactive`.
    InactiveDays = 4,
    /// Day on which the account expires, `shadowExpire`.
    ExpireDay = 5,
    /// Time at which the server locked the account, `pwdAccountLockedTime`.
    LockedTime = 6,
    /// Whether the password must be changed now, `pwdReset`.
    MustChange = 7,
    /// Whether an administrator locked the account, `nsAccountLock`.
    AccountLock = 8,
    /// A value of `nsRole` that locks the account.
    LockingRole = 9,
    /// Bits of Active Directory, `userAccountControl`.
    Control = 10,
    /// Time at which the account expires, `accountExpires`.
    Expires = 11,
    /// An ssh key, `sshPublicKey`.
    SshKey = 12,
    /// Bits that Active Directory computes, `msDS-User-Account-Control-Computed`.
    ControlComputed = 13,
    /// Time at which Active Directory locked the account, `lockoutTime`.
    LockoutTime = 14,
    /// A host that the user may log in to, `host`.
    Host = 15,
    /// A PAM service that the user may use, `authorizedService`.
    AuthorizedService = 16,
    /// A host that the user may log in from, `rhost`.
    RemoteHost = 17,
}

impl AccountFact {
    /// All facts.
    pub const ALL: [Self; 17] = [
        Self::LastChange,
        Self::MaxDays,
        Self::WarnDays,
        Self::InactiveDays,
        Self::ExpireDay,
        Self::LockedTime,
        Self::MustChange,
        Self::AccountLock,
        Self::LockingRole,
        Self::Control,
        Self::Expires,
        Self::SshKey,
        Self::ControlComputed,
        Self::LockoutTime,
        Self::Host,
        Self::AuthorizedService,
        Self::RemoteHost,
    ];

    /// Returns whether all values count.
    fn is_list(self) -> bool {
        matches!(self, Self::Host | Self::AuthorizedService | Self::RemoteHost)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| *fact as u8 == number)
    }
}

/// The values of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account<'a> {
    values: Vec<(AccountFact, Cow<'a, [u8]>)>,
}

/// The value of a single-valued fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactValue<'a> {
    /// The directory has no value.
    Absent,
    /// The directory has this value.
    Single(&'a [u8]),
    /// The directory has several values, or one that is too long to store.
    Several,
}

impl<'a> Account<'a> {
    /// Adds a value. Drops values beyond the limit, and keys that are too long. Another value that is too long makes
    /// the fact [`FactValue::Several`].
    pub fn add(&mut self, fact: AccountFact, value: Cow<'a, [u8]>) {
        if fact.is_list() {
            return self.add_to_list(fact, value);
        }
        let most = if fact == AccountFact::SshKey { SSH_KEYS_MAX } else { VALUES_MAX };
        if self.values_of(fact).count() >= most {
            return;
        }
        if value.len() <= VALUE_BYTES_MAX {
            self.values.push((fact, value));
        } else if fact != AccountFact::SshKey {
            // Two empty values mean [`FactValue::Several`].
            self.values.retain(|(kept, _)| *kept != fact);
            self.values.extend([(fact, Cow::Borrowed(&b""[..])), (fact, Cow::Borrowed(&b""[..]))]);
        }
    }

    /// Adds a value of a list. A list that is too long becomes one empty value, because its missing part may deny.
    fn add_to_list(&mut self, fact: AccountFact, value: Cow<'a, [u8]>) {
        if self.is_truncated(fact) {
            return;
        }
        let bytes: usize = self.values_of(fact).map(|value| value.len() + 4).sum();
        if bytes + value.len() + 4 <= LIST_BYTES_MAX {
            self.values.push((fact, value));
        } else {
            self.values.retain(|(kept, _)| *kept != fact);
            self.values.push((fact, Cow::Borrowed(b"")));
        }
    }

    /// Records that a fact without a value is unknown, as an empty value.
    pub fn add_missing(&mut self, fact: AccountFact) {
        if self.value_of(fact) == FactValue::Absent {
            self.add(fact, Cow::Borrowed(b""));
        }
    }

    /// Returns whether a list was too long to store.
    #[must_use]
    pub fn is_truncated(&self, fact: AccountFact) -> bool {
        self.values_of(fact).any(<[u8]>::is_empty)
    }

    /// Returns the values of a fact.
    pub fn values_of(&self, fact: AccountFact) -> impl Iterator<Item = &[u8]> {
        self.values.iter().filter(move |(kept, _)| *kept == fact).map(|(_, value)| &**value)
    }

    /// Returns the value of a single-valued fact.
    #[must_use]
    pub fn value_of(&self, fact: AccountFact) -> FactValue<'_> {
        let mut values = self.values_of(fact);
        match (values.next(), values.next()) {
            (None, _) => FactValue::Absent,
            (Some(value), None) => FactValue::Single(value),
            (Some(_), Some(_)) => FactValue::Several,
        }
    }

    /// Encodes the values for the cache: the number of the fact, the length of the value in three bytes, the value.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (fact, value) in &self.values {
            let length = value.len().to_le_bytes();
            if bytes.len() + 4 + value.len() > ACCOUNT_BYTES_MAX && *fact == AccountFact::SshKey {
                continue;
            }
            bytes.extend([*fact as u8, length[0], length[1], length[2]]);
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Decodes bytes of [`to_bytes`](Self::to_bytes). Returns `None` for other bytes.
    #[must_use]
    pub fn from_bytes(mut bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > ACCOUNT_BYTES_MAX {
            return None;
        }
        let mut account = Self::default();
        while let Some((&[fact, a, b, c], rest)) = bytes.split_first_chunk() {
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            let (value, rest) = rest.split_at_checked(length)?;
            let values = account.values.len();
            account.add(AccountFact::from_number(fact)?, Cow::Borrowed(value));
            if account.values.len() != values + 1 {
                return None;
            }
            bytes = rest;
        }
        bytes.is_empty().then_some(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(values: &[(AccountFact, &'static [u8])]) -> Account<'static> {
        let mut account = Account::default();
        values.iter().for_each(|(fact, value)| account.add(*fact, Cow::Borrowed(value)));
        account
    }

    #[test]
    fn what_is_kept_is_what_was_said() {
        let said = account(&[
            (AccountFact::ExpireDay, b"20000"),
            (AccountFact::SshKey, b"ssh-ed25519 AAAA one"),
            (AccountFact::SshKey, b"ssh-ed25519 AAAA two"),
            (AccountFact::MustChange, b""),
        ]);
        let bytes = said.to_bytes();
        let read = Account::from_bytes(&bytes).unwrap();
        assert_eq!(read, said);
        assert_eq!(read.value_of(AccountFact::ExpireDay), FactValue::Single(b"20000"));
        assert_eq!(read.value_of(AccountFact::MustChange), FactValue::Single(b""));
        assert_eq!(read.value_of(AccountFact::SshKey), FactValue::Several);
        assert_eq!(read.value_of(AccountFact::Control), FactValue::Absent);
        assert_eq!(read.values_of(AccountFact::SshKey).count(), 2);
    }

    #[test]
    fn a_value_too_long_or_too_many_is_never_none() {
        let long = vec![b'1'; VALUE_BYTES_MAX + 1];
        let mut said = Account::default();
        said.add(AccountFact::ExpireDay, Cow::Borrowed(&long));
        assert_eq!(said.value_of(AccountFact::ExpireDay), FactValue::Several);
        let bytes = said.to_bytes();
        assert_eq!(
            Account::from_bytes(&bytes).unwrap().value_of(AccountFact::ExpireDay),
            FactValue::Several
        );
        let many: Vec<_> = (0..100).map(|_| (AccountFact::AccountLock, &b"false"[..])).collect();
        assert_eq!(account(&many).value_of(AccountFact::AccountLock), FactValue::Several);
    }

    #[test]
    fn account_missing_fact_has_empty_value() {
        let mut said = account(&[(AccountFact::Expires, b"0")]);
        said.add_missing(AccountFact::Control);
        said.add_missing(AccountFact::Expires);
        let bytes = said.to_bytes();
        let read = Account::from_bytes(&bytes).unwrap();
        assert_eq!(read.value_of(AccountFact::Control), FactValue::Single(b""));
        assert_eq!(read.value_of(AccountFact::Expires), FactValue::Single(b"0"));
    }

    #[test]
    fn keys_are_bounded_and_other_facts_survive_them() {
        let key = vec![b'k'; VALUE_BYTES_MAX];
        let mut said = Account::default();
        (0..1000).for_each(|_| said.add(AccountFact::SshKey, Cow::Borrowed(&key)));
        said.add(AccountFact::AccountLock, Cow::Borrowed(b"true"));
        let bytes = said.to_bytes();
        assert!(bytes.len() <= ACCOUNT_BYTES_MAX);
        assert_eq!(
            Account::from_bytes(&bytes).unwrap().value_of(AccountFact::AccountLock),
            FactValue::Single(b"true")
        );
    }

    #[test]
    fn account_list_keeps_all_values_or_none() {
        let hosts: Vec<_> = (0..1000).map(|number| format!("web{number}")).collect();
        let list = |hosts: &[String]| {
            let mut said = Account::default();
            for host in hosts {
                said.add(AccountFact::Host, Cow::Owned(host.clone().into_bytes()));
            }
            let read = Account::from_bytes(&said.to_bytes()).map(|read| {
                (read.values_of(AccountFact::Host).count(), read.is_truncated(AccountFact::Host))
            });
            read.unwrap()
        };
        assert_eq!(list(&hosts), (1000, false));
        let long = "x".repeat(LIST_BYTES_MAX);
        assert_eq!(list(std::slice::from_ref(&long)), (1, true));
        assert_eq!(list(&["a".into(), long, "b".into()]), (1, true));
        let many: Vec<_> = (0..100_000).map(|number| number.to_string()).collect();
        assert_eq!(list(&many), (1, true));
        // All lists fit beside the keys.
        let mut said = Account::default();
        for fact in [AccountFact::Host, AccountFact::AuthorizedService, AccountFact::RemoteHost] {
            (0..4000).for_each(|_| said.add(fact, Cow::Borrowed(b"")));
            (0..4000).for_each(|_| said.add(fact, Cow::Borrowed(b"x")));
        }
        (0..100).for_each(|_| said.add(AccountFact::SshKey, Cow::Owned(vec![b'k'; 16_000])));
        assert!(Account::from_bytes(&said.to_bytes()).is_some());
    }

    #[test]
    fn bytes_of_anything_else_are_refused() {
        let bytes =
            account(&[(AccountFact::ExpireDay, b"1"), (AccountFact::Control, b"512")]).to_bytes();
        for cut in 1..bytes.len() {
            let read = Account::from_bytes(&bytes[..cut]);
            assert!(cut == 5 || read.is_none(), "{cut}");
        }
        assert_eq!(Account::from_bytes(&[99, 0, 0, 0]), None, "an unknown fact");
        assert_eq!(Account::from_bytes(&[1, 255, 255, 255]), None, "a length beyond the end");
        assert_eq!(Account::from_bytes(b""), Some(Account::default()));
    }
}
