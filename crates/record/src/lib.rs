//! The vocabulary of every crate: a user, a group, a shadow entry, as borrowed bytes.
//!
//! [`text`] reads them from passwd(5), group(5) and shadow(5) lines with the verdicts of glibc's
//! `files` service. Nothing here judges whether an entry is wise to serve: text is admitted as
//! `files` admits it, and the publisher has its own rules.

#![no_std]
#![forbid(unsafe_code)]

pub mod text;

/// One passwd entry. `None` stands for C's NULL, which is not the empty string: `files` answers
/// NULL for the missing fields of a NIS line such as `+`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// Log-in name (`pw_name`).
    pub name: &'a [u8],
    /// Password field (`pw_passwd`), as a rule `x` or `*`.
    pub passwd: Option<&'a [u8]>,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// GECOS: real name and more.
    pub gecos: Option<&'a [u8]>,
    /// Home folder.
    pub dir: Option<&'a [u8]>,
    /// Log-in shell.
    pub shell: Option<&'a [u8]>,
}

/// One group entry without its members, which come as names beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Group name (`gr_name`).
    pub name: &'a [u8],
    /// Password field (`gr_passwd`).
    pub passwd: Option<&'a [u8]>,
    /// Group id.
    pub gid: u32,
}

/// One shadow entry; days count from 1970-01-01, −1 stands for an empty field (shadow(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow<'a> {
    /// Log-in name (`sp_namp`).
    pub name: &'a [u8],
    /// Encrypted password (`sp_pwdp`).
    pub passwd: Option<&'a [u8]>,
    /// Day of the last change.
    pub last_change: i32,
    /// Days before which the password may not change.
    pub min: i32,
    /// Days after which it must change.
    pub max: i32,
    /// Days of warning before it must.
    pub warn: i32,
    /// Days after expiry until the account is disabled.
    pub inactive: i32,
    /// Day on which the account expires.
    pub expire: i32,
    /// Reserved field; all ones when empty.
    pub flag: u64,
}

/// Whether `name` starts a NIS compatibility line. `files` enumerates such entries and never finds
/// them by name or id.
#[must_use]
pub fn is_nis(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'+' | b'-'))
}
