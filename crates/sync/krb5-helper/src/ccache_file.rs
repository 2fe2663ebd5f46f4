// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file format of a credential cache, version 4, as MIT Kerberos describes it ("Credential cache file format") and
//! every implementation reads it. This module writes it, so that a ticket travels in its stored form; libkrb5 reads it.
//! Caches in use are in `libkrb5::cache`.

/// Usual limit of the bytes besides the ticket itself.
pub const OTHER_BYTES_USUAL: usize = 2 << 10;

/// A principal's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalName<'t> {
    /// The name's type, see RFC 4120.
    pub kind: i32,
    /// The realm.
    pub realm: &'t [u8],
    /// Components, between slashes.
    pub parts: Vec<&'t [u8]>,
}

/// A ticket as in the file. Never logged, hence no `Debug`.
pub struct CcacheTicket<'t> {
    /// Client of the ticket and of the file.
    pub client: &'t PrincipalName<'t>,
    /// Server of the ticket.
    pub server: &'t PrincipalName<'t>,
    /// Encryption type of the session key.
    pub enctype: i32,
    /// The session key.
    pub key: &'t [u8],
    /// Times of issue, start, end, and last renewal.
    pub times: [u32; 4],
    /// Whether the ticket is encrypted with another ticket's key.
    pub is_skey: bool,
    /// Flags of RFC 4120.
    pub flags: i32,
    /// The ticket itself.
    pub ticket: &'t [u8],
    /// The other ticket.
    pub second_ticket: &'t [u8],
}

/// Appends a file with this ticket to `out`. It has no addresses and authorization data, which Roster does not request.
pub fn write(out: &mut Vec<u8>, ticket: &CcacheTicket<'_>) {
    out.extend_from_slice(&[5, 4, 0, 0]);
    name(out, ticket.client);
    name(out, ticket.client);
    name(out, ticket.server);
    // The encryption type has two bytes here, and always fits.
    out.extend_from_slice(&(ticket.enctype as u16).to_be_bytes());
    bytes(out, ticket.key);
    for time in ticket.times {
        number(out, time);
    }
    out.push(ticket.is_skey.into());
    number(out, ticket.flags.cast_unsigned());
    number(out, 0);
    number(out, 0);
    bytes(out, ticket.ticket);
    bytes(out, ticket.second_ticket);
}

fn name(out: &mut Vec<u8>, name: &PrincipalName<'_>) {
    number(out, name.kind.cast_unsigned());
    number(out, length(name.parts.len()));
    bytes(out, name.realm);
    for part in &name.parts {
        bytes(out, part);
    }
}

fn number(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, length(value.len()));
    out.extend_from_slice(value);
}

/// Encodes a length. A reader rejects a file with a wrong length.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
