//! What a directory says of a user's account beside the fields of passwd(5): whether it may be used,
//! until when, and which ssh keys open it.
//!
//! Values are kept as the directory has them, and read where something is decided by them (`access`,
//! `ssh_keys`): so that an explanation can show what was seen, and so that what cannot be read is
//! still there to be refused.

use std::borrow::Cow;

/// Values of a fact that has one: the second is kept to show that it is not one.
const VALUES_MAX: usize = 2;
/// Keys of one account.
pub const KEYS_MAX: usize = 64;
/// Longest value: no key that anybody uses is longer, and no other value comes near.
pub const VALUE_BYTES_MAX: usize = 16 << 10;
/// Longest form of [`Account::to_bytes`].
pub const ACCOUNT_BYTES_MAX: usize = 128 << 10;

/// What a value says. The numbers are in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Fact {
    /// Day of the last change of the password, `shadowLastChange`.
    LastChange = 1,
    /// Days until it has to be changed, `shadowMax`.
    MaxDays = 2,
    /// Days before that on which the user is told, `shadowWarning`.
    WarnDays = 3,
    /// Days after it on which it can still be changed, `shadowInactive`.
    InactiveDays = 4,
    /// Day on which the account expires, `shadowExpire`.
    ExpireDay = 5,
    /// When the server locked the account, `pwdAccountLockedTime`.
    LockedTime = 6,
    /// Whether the password has to be changed now, `pwdReset`.
    MustChange = 7,
    /// Whether an administrator locked the account, `nsAccountLock`.
    AccountLock = 8,
    /// A role that locks the account, of `nsRole`.
    LockingRole = 9,
    /// Bits of Active Directory, `userAccountControl`.
    Control = 10,
    /// When the account expires, `accountExpires`.
    Expires = 11,
    /// A key, `sshPublicKey`.
    SshKey = 12,
    /// Bits that Active Directory works out, `msDS-User-Account-Control-Computed`.
    ControlComputed = 13,
    /// When it locked the account, `lockoutTime`.
    LockoutTime = 14,
}

impl Fact {
    /// All of them.
    pub const ALL: [Self; 14] = [
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
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| *fact as u8 == number)
    }
}

/// What is said of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account<'a> {
    values: Vec<(Fact, Cow<'a, [u8]>)>,
}

/// The value of a fact that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum One<'a> {
    /// The directory says nothing.
    Absent,
    /// It says this.
    Is(&'a [u8]),
    /// It says several things, or something that is too long to be kept.
    Several,
}

impl<'a> Account<'a> {
    /// Adds a value. Of those that are too many or too long it is kept that there are.
    pub fn add(&mut self, fact: Fact, value: Cow<'a, [u8]>) {
        let most = if fact == Fact::SshKey { KEYS_MAX } else { VALUES_MAX };
        if self.of(fact).count() >= most {
            return;
        }
        if value.len() <= VALUE_BYTES_MAX {
            self.values.push((fact, value));
        } else if fact != Fact::SshKey {
            // Twice nothing is [`One::Several`].
            self.values.retain(|(kept, _)| *kept != fact);
            self.values.extend([(fact, Cow::Borrowed(&b""[..])), (fact, Cow::Borrowed(&b""[..]))]);
        }
    }

    /// The values of a fact.
    pub fn of(&self, fact: Fact) -> impl Iterator<Item = &[u8]> {
        self.values.iter().filter(move |(kept, _)| *kept == fact).map(|(_, value)| &**value)
    }

    /// The value of a fact that has one.
    #[must_use]
    pub fn one(&self, fact: Fact) -> One<'_> {
        let mut values = self.of(fact);
        match (values.next(), values.next()) {
            (None, _) => One::Absent,
            (Some(value), None) => One::Is(value),
            (Some(_), Some(_)) => One::Several,
        }
    }

    /// For the cache: the number of the fact, the length of the value in three bytes, the value.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (fact, value) in &self.values {
            let length = value.len().to_le_bytes();
            if bytes.len() + 4 + value.len() > ACCOUNT_BYTES_MAX && *fact == Fact::SshKey {
                continue;
            }
            bytes.extend([*fact as u8, length[0], length[1], length[2]]);
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Reads that; `None` for anything that [`to_bytes`](Self::to_bytes) does not write.
    #[must_use]
    pub fn read(mut bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > ACCOUNT_BYTES_MAX {
            return None;
        }
        let mut account = Self::default();
        while let Some((&[fact, a, b, c], rest)) = bytes.split_first_chunk() {
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            let (value, rest) = rest.split_at_checked(length)?;
            let values = account.values.len();
            account.add(Fact::from_number(fact)?, Cow::Borrowed(value));
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

    fn account(values: &[(Fact, &'static [u8])]) -> Account<'static> {
        let mut account = Account::default();
        values.iter().for_each(|(fact, value)| account.add(*fact, Cow::Borrowed(value)));
        account
    }

    #[test]
    fn what_is_kept_is_what_was_said() {
        let said = account(&[
            (Fact::ExpireDay, b"20000"),
            (Fact::SshKey, b"ssh-ed25519 AAAA one"),
            (Fact::SshKey, b"ssh-ed25519 AAAA two"),
            (Fact::MustChange, b""),
        ]);
        let bytes = said.to_bytes();
        let read = Account::read(&bytes).unwrap();
        assert_eq!(read, said);
        assert_eq!(read.one(Fact::ExpireDay), One::Is(b"20000"));
        assert_eq!(read.one(Fact::MustChange), One::Is(b""));
        assert_eq!(read.one(Fact::SshKey), One::Several);
        assert_eq!(read.one(Fact::Control), One::Absent);
        assert_eq!(read.of(Fact::SshKey).count(), 2);
    }

    #[test]
    fn a_value_too_long_or_too_many_is_never_none() {
        let long = vec![b'1'; VALUE_BYTES_MAX + 1];
        let mut said = Account::default();
        said.add(Fact::ExpireDay, Cow::Borrowed(&long));
        assert_eq!(said.one(Fact::ExpireDay), One::Several);
        let bytes = said.to_bytes();
        assert_eq!(Account::read(&bytes).unwrap().one(Fact::ExpireDay), One::Several);
        let many: Vec<_> = (0..100).map(|_| (Fact::AccountLock, &b"false"[..])).collect();
        assert_eq!(account(&many).one(Fact::AccountLock), One::Several);
    }

    #[test]
    fn keys_are_bounded_and_other_facts_survive_them() {
        let key = vec![b'k'; VALUE_BYTES_MAX];
        let mut said = Account::default();
        (0..1000).for_each(|_| said.add(Fact::SshKey, Cow::Borrowed(&key)));
        said.add(Fact::AccountLock, Cow::Borrowed(b"true"));
        let bytes = said.to_bytes();
        assert!(bytes.len() <= ACCOUNT_BYTES_MAX);
        assert_eq!(Account::read(&bytes).unwrap().one(Fact::AccountLock), One::Is(b"true"));
    }

    #[test]
    fn bytes_of_anything_else_are_refused() {
        let bytes = account(&[(Fact::ExpireDay, b"1"), (Fact::Control, b"512")]).to_bytes();
        for cut in 1..bytes.len() {
            let read = Account::read(&bytes[..cut]);
            assert!(cut == 5 || read.is_none(), "{cut}");
        }
        assert_eq!(Account::read(&[99, 0, 0, 0]), None, "an unknown fact");
        assert_eq!(Account::read(&[1, 255, 255, 255]), None, "a length beyond the end");
        assert_eq!(Account::read(b""), Some(Account::default()));
    }
}
