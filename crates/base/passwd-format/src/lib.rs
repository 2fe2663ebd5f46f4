// SPDX-License-Identifier: MIT OR Apache-2.0
//! The basic types of all crates: a user, a group and a shadow entry, as borrowed bytes.
//!
//! [`lines`] reads them from passwd(5), group(5) and shadow(5) lines, by the rules of glibc's `files` service. This
//! crate does not decide which entries are safe to serve. It accepts the same text as `files`, and the publisher has
//! separate rules.

#![no_std]
#![forbid(unsafe_code)]

pub mod lines;

/// A passwd entry. `None` stands for a NULL of C, which differs from an empty string. `files` returns NULL for the
/// missing fields of a NIS line such as `+`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// Login name (`pw_name`).
    pub name: &'a [u8],
    /// Password field (`pw_passwd`), usually `x` or `*`.
    pub passwd: Option<&'a [u8]>,
    /// Uid.
    pub uid: u32,
    /// Primary gid.
    pub gid: u32,
    /// GECOS: real name and more.
    pub gecos: Option<&'a [u8]>,
    /// Home directory.
    pub dir: Option<&'a [u8]>,
    /// Login shell.
    pub shell: Option<&'a [u8]>,
}

/// A group entry without its members; their names are passed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Group name (`gr_name`).
    pub name: &'a [u8],
    /// Password field (`gr_passwd`).
    pub passwd: Option<&'a [u8]>,
    /// Gid.
    pub gid: u32,
}

/// A shadow entry. Days count from 1970-01-01, and −1 stands for an empty field (shadow(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow<'a> {
    /// Login name (`sp_namp`).
    pub name: &'a [u8],
    /// Encrypted password (`sp_pwdp`).
    pub passwd: Option<&'a [u8]>,
    /// Day of the last change.
    pub last_change: i32,
    /// Days before the password may be changed again.
    pub min: i32,
    /// Days until the password must be changed.
    pub max: i32,
    /// Days of warning before that.
    pub warn: i32,
    /// Days after the expiry of the password until the account is disabled.
    pub inactive: i32,
    /// Day on which the account expires.
    pub expire: i32,
    /// Reserved field; all ones when empty.
    pub flag: u64,
}

/// Returns whether `name` begins a NIS compatibility line. `files` enumerates such entries, and never finds them by
/// name or id.
#[must_use]
pub fn is_nis(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'+' | b'-'))
}
