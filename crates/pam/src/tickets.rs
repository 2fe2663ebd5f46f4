//! The ticket of a user's session: what a log-in brings is kept until the program asks for credentials,
//! and then given to the program `roster-krb5`, which puts it into a cache as the user. What is in it is
//! none of this module's business.
#![forbid(unsafe_code)]

use crate::act::Person;
use crate::handle::{Item, Priority};
use crate::helper;
use core::ffi::CStr;
use roster_secret::Secret;
use roster_wire::pam::{BLOB_BYTES_MAX, ORIGIN_BYTES_MAX, USER_BYTES_MAX};

/// What a log-in brought, behind the user's name and a NUL: until the program asks for credentials it may
/// have come to think of another user.
const TICKETS: &CStr = c"roster_tickets";
/// The name of the cache that was made.
const CACHE: &CStr = c"roster_cache";
/// How the session finds it.
const VARIABLE: &CStr = c"KRB5CCNAME";
/// The same before a value.
const SETS: &[u8] = b"KRB5CCNAME=";
/// What a log-in brought on its way out of a process of sshd's that does nothing but authenticate, whose
/// variables alone come back: in hexadecimal digits, until the process with the session takes it away.
const CARRIED: &CStr = c"ROSTER_TICKETS";
/// The same before a value.
const CARRIES: &[u8] = b"ROSTER_TICKETS=";
/// The program that does so.
const CARRIER: &[u8] = b"sshd";
/// Longest name of a cache.
const NAME_BYTES_MAX: usize = 512;

/// Keeps what a log-in brought.
pub fn bring(person: &Person<'_>, blob: &Secret) {
    let Person { handle, name, .. } = person;
    let Some(kept) = joined(&[name.to_bytes(), b"\0", blob.as_bytes()]) else { return };
    if handle.said(Item::Service, ORIGIN_BYTES_MAX) == CARRIER {
        let text = joined_with(kept.as_bytes(), CARRIES);
        if let Some(text) = text.as_ref().and_then(text_of) {
            handle.set_variable(text);
        }
    }
    handle.keep(TICKETS, kept);
}

/// Makes a cache with it, once.
pub fn establish(person: &Person<'_>) {
    if person.handle.kept(CACHE).is_some() {
        return;
    }
    let Some(tickets) = take(person) else { return };
    store(person, c"store", None, tickets.as_bytes());
}

/// Fills the session's cache anew with it.
pub fn refresh(person: &Person<'_>) {
    let Some(tickets) = take(person) else { return };
    let kept = person.handle.kept(CACHE);
    let named = kept.as_ref().map(Secret::as_bytes).and_then(with_end);
    let name = match named.as_ref().and_then(text_of) {
        Some(name) => Some(name),
        None => match person.handle.variable(VARIABLE) {
            Some(name) => Some(name),
            None => helper::cache_of_this_process(),
        },
    };
    // A session that has none is not told of one that is made now.
    if let Some(name) = name {
        store(person, c"refresh", Some(name), tickets.as_bytes());
    }
}

/// Removes the cache that was made here.
pub fn remove(person: &Person<'_>) {
    let handle = person.handle;
    let Some(cache) = handle.kept(CACHE) else { return };
    handle.drop_kept(CACHE);
    if let (Some(name), Some((uid, gid))) = (with_end(cache.as_bytes()), handle.ids(person.name))
        && let Some(name) = text_of(&name)
    {
        handle.set_variable(VARIABLE);
        if helper::run(c"delete", uid, gid, Some(name), b"", &mut []).is_none() {
            person.log(Priority::Error, c"the credential cache could not be removed");
        }
    }
}

fn store(person: &Person<'_>, what: &CStr, name: Option<&CStr>, tickets: &[u8]) {
    let handle = person.handle;
    let Some((uid, gid)) = handle.ids(person.name) else { return };
    let mut said = [0; NAME_BYTES_MAX];
    let told = helper::run(what, uid, gid, name, tickets, &mut said);
    let told = told.and_then(|length| said.get(..length)?.strip_suffix(b"\n"));
    let is_name = |told: &&[u8]| !told.is_empty() && told.iter().all(u8::is_ascii_graphic);
    let Some(told) = told.filter(is_name) else {
        person.log(Priority::Error, c"the ticket could not be kept: the session has none");
        return;
    };
    if name.is_some() {
        return;
    }
    if let (Some(text), Some(cache)) = (joined(&[SETS, told, b"\0"]), Secret::copy_of(told))
        && let Some(text) = text_of(&text)
    {
        handle.set_variable(text);
        handle.keep(CACHE, cache);
    }
}

/// What a log-in brought for this user, which is given out once.
fn take(person: &Person<'_>) -> Option<Secret> {
    let handle = person.handle;
    let carried = handle.variable(CARRIED).and_then(|text| bytes_of(text.to_bytes()));
    if carried.is_some() {
        handle.set_variable(CARRIED);
    }
    let kept = handle.kept(TICKETS).or(carried)?;
    handle.drop_kept(TICKETS);
    let end = kept.as_bytes().iter().position(|&byte| byte == 0)?;
    let (user, tickets) = kept.as_bytes().split_at_checked(end)?;
    let tickets = tickets.get(1..)?;
    if user == person.name.to_bytes() { Secret::copy_of(tickets) } else { None }
}

/// Parts, one behind the other.
fn joined(parts: &[&[u8]]) -> Option<Secret> {
    let length = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    let mut all = Secret::with_room(length)?;
    for part in parts {
        all.extend(part)?;
    }
    Some(all)
}

fn with_end(bytes: &[u8]) -> Option<Secret> {
    joined(&[bytes, b"\0"])
}

fn text_of(bytes: &Secret) -> Option<&CStr> {
    CStr::from_bytes_until_nul(bytes.as_bytes()).ok()
}

/// A text, and behind it bytes in hexadecimal digits, and a NUL.
fn joined_with(bytes: &[u8], before: &[u8]) -> Option<Secret> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let length = bytes.len().checked_mul(2)?.checked_add(before.len())?.checked_add(1)?;
    let mut text = Secret::with_room(length)?;
    text.extend(before)?;
    let digit = |half: u8| DIGITS.get(usize::from(half & 15)).copied();
    for byte in bytes {
        text.extend(&[digit(byte.wrapping_shr(4))?, digit(*byte)?])?;
    }
    text.extend(b"\0")?;
    Some(text)
}

/// The bytes of hexadecimal digits; none of a text that is anything else, or too long.
fn bytes_of(text: &[u8]) -> Option<Secret> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    let (pairs, rest) = text.as_chunks::<2>();
    let longest = BLOB_BYTES_MAX.saturating_add(USER_BYTES_MAX).saturating_add(1);
    if !rest.is_empty() || pairs.len() > longest {
        return None;
    }
    let mut bytes = Secret::with_room(pairs.len())?;
    for [high, low] in pairs {
        bytes.extend(&[digit(*high)?.wrapping_shl(4) | digit(*low)?])?;
    }
    Some(bytes)
}
