// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ticket of a user's session. The module stores the ticket of a login until the program requests credentials. It
//! then passes it to the program `roster-krb5`, which writes it to a cache as the user. The module does not parse it.
//! `krb5_helper` starts the program.
#![forbid(unsafe_code)]

use crate::krb5_helper;
use crate::pam_handle::{LogPriority, PamItem};
use crate::pam_user::PamUser;
use core::ffi::CStr;
use roster_request::auth::{BLOB_BYTES_MAX, ORIGIN_BYTES_MAX, USER_BYTES_MAX};
use roster_secret::Secret;

/// The ticket of a login, behind the user's name and a NUL. The program may change the user before it requests
/// credentials.
const TICKETS: &CStr = c"roster_tickets";
/// The name of the created cache.
const CACHE: &CStr = c"roster_cache";
/// The session's variable with that name.
const VARIABLE: &CStr = c"KRB5CCNAME";
/// The assignment of that variable, without its value.
const VARIABLE_PREFIX: &[u8] = b"KRB5CCNAME=";
/// The ticket on its way out of sshd's authentication process. Only PAM variables leave that process. The ticket is in
/// hexadecimal digits, until the process of the session removes it.
const CARRIED_TICKET: &CStr = c"ROSTER_TICKETS";
/// The assignment of that variable, without its value.
const CARRIED_PREFIX: &[u8] = b"ROSTER_TICKETS=";
/// The service with such a process.
const CARRYING_SERVICE: &[u8] = b"sshd";
/// Longest name of a cache.
const NAME_BYTES_MAX: usize = 512;

/// Stores the ticket of a login.
pub fn keep_ticket(person: &PamUser<'_>, blob: &Secret) {
    let (handle, name) = (person.handle, person.canonical_name());
    let Some(kept) = concat_bytes(&[name.to_bytes(), b"\0", blob.as_bytes()]) else { return };
    if handle.item_text(PamItem::Service, ORIGIN_BYTES_MAX) == CARRYING_SERVICE {
        let text = hex_assignment(kept.as_bytes(), CARRIED_PREFIX);
        if let Some(text) = text.as_ref().and_then(as_cstr) {
            handle.set_variable(text);
        }
    }
    handle.store_data(TICKETS, kept);
}

/// Creates a cache with it, once.
pub fn establish(person: &PamUser<'_>) {
    if person.handle.stored_data(CACHE).is_some() {
        return;
    }
    let Some(tickets) = take_ticket(person) else { return };
    run_helper(person, c"store", None, tickets.as_bytes());
}

/// Refills the session's cache with it.
pub fn refresh(person: &PamUser<'_>) {
    let Some(tickets) = take_ticket(person) else { return };
    let kept = person.handle.stored_data(CACHE);
    let named = kept.as_ref().map(Secret::as_bytes).and_then(with_nul);
    let name = match named.as_ref().and_then(as_cstr) {
        Some(name) => Some(name),
        None => match person.handle.variable(VARIABLE) {
            Some(name) => Some(name),
            None => krb5_helper::process_ccache_name(),
        },
    };
    // A session without a cache would not know the name of a new one.
    if let Some(name) = name {
        run_helper(person, c"refresh", Some(name), tickets.as_bytes());
    }
}

/// Removes the cache that this module created.
pub fn remove(person: &PamUser<'_>) {
    let handle = person.handle;
    let Some(cache) = handle.stored_data(CACHE) else { return };
    handle.remove_data(CACHE);
    if let (Some(name), Some((uid, gid))) = (with_nul(cache.as_bytes()), handle.ids(person.name))
        && let Some(name) = as_cstr(&name)
    {
        handle.set_variable(VARIABLE);
        if krb5_helper::run(c"delete", uid, gid, Some(name), b"", &mut []).is_none() {
            person.log(
                LogPriority::Error,
                c"cannot remove the credential cache. Remove it with `kdestroy`. [RST-6024]",
            );
        }
    }
}

fn run_helper(person: &PamUser<'_>, what: &CStr, name: Option<&CStr>, tickets: &[u8]) {
    let handle = person.handle;
    let Some((uid, gid)) = handle.ids(person.name) else { return };
    let mut said = [0; NAME_BYTES_MAX];
    let told = krb5_helper::run(what, uid, gid, name, tickets, &mut said);
    let told = told.and_then(|length| said.get(..length)?.strip_suffix(b"\n"));
    let is_name = |told: &&[u8]| !told.is_empty() && told.iter().all(u8::is_ascii_graphic);
    let Some(told) = told.filter(is_name) else {
        person.log(
            LogPriority::Error,
            c"cannot store the Kerberos ticket; the session has none. Check roster-krb5. [RST-6023]",
        );
        return;
    };
    if name.is_some() {
        return;
    }
    if let (Some(text), Some(cache)) =
        (concat_bytes(&[VARIABLE_PREFIX, told, b"\0"]), Secret::copy_of(told))
        && let Some(text) = as_cstr(&text)
    {
        handle.set_variable(text);
        handle.store_data(CACHE, cache);
    }
}

/// Returns the ticket of a login of this user, once.
fn take_ticket(person: &PamUser<'_>) -> Option<Secret> {
    let handle = person.handle;
    let carried = handle.variable(CARRIED_TICKET).and_then(|text| decode_hex(text.to_bytes()));
    if carried.is_some() {
        handle.set_variable(CARRIED_TICKET);
    }
    let kept = handle.stored_data(TICKETS).or(carried)?;
    handle.remove_data(TICKETS);
    let end = kept.as_bytes().iter().position(|&byte| byte == 0)?;
    let (user, tickets) = kept.as_bytes().split_at_checked(end)?;
    let tickets = tickets.get(1..)?;
    if user == person.canonical_name().to_bytes() { Secret::copy_of(tickets) } else { None }
}

/// Concatenates parts.
fn concat_bytes(parts: &[&[u8]]) -> Option<Secret> {
    let length = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    let mut all = Secret::with_capacity(length)?;
    for part in parts {
        all.extend(part)?;
    }
    Some(all)
}

fn with_nul(bytes: &[u8]) -> Option<Secret> {
    concat_bytes(&[bytes, b"\0"])
}

fn as_cstr(bytes: &Secret) -> Option<&CStr> {
    CStr::from_bytes_until_nul(bytes.as_bytes()).ok()
}

/// Returns a text, followed by bytes in hexadecimal digits, and a NUL.
fn hex_assignment(bytes: &[u8], before: &[u8]) -> Option<Secret> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let length = bytes.len().checked_mul(2)?.checked_add(before.len())?.checked_add(1)?;
    let mut text = Secret::with_capacity(length)?;
    text.extend(before)?;
    let digit = |half: u8| DIGITS.get(usize::from(half & 15)).copied();
    for byte in bytes {
        text.extend(&[digit(byte.wrapping_shr(4))?, digit(*byte)?])?;
    }
    text.extend(b"\0")?;
    Some(text)
}

/// Decodes hexadecimal digits. `None` for another text, or a too long one.
fn decode_hex(text: &[u8]) -> Option<Secret> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    let (pairs, rest) = text.as_chunks::<2>();
    let longest = BLOB_BYTES_MAX.saturating_add(USER_BYTES_MAX).saturating_add(1);
    if !rest.is_empty() || pairs.len() > longest {
        return None;
    }
    let mut bytes = Secret::with_capacity(pairs.len())?;
    for [high, low] in pairs {
        bytes.extend(&[digit(*high)?.wrapping_shl(4) | digit(*low)?])?;
    }
    Some(bytes)
}
