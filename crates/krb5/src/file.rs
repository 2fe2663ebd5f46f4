//! The file of a credential cache, version 4, as MIT Kerberos describes it ("Credential cache file
//! format") and every implementation reads it. Written here, so that a ticket travels in the form in
//! which it is kept; read by libkrb5.

/// What stands beside the ticket itself is seldom longer.
pub const OTHER_BYTES_USUAL: usize = 2 << 10;

/// A principal's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'t> {
    /// Its type, of RFC 4120.
    pub kind: i32,
    /// The realm.
    pub realm: &'t [u8],
    /// What stands between slashes.
    pub parts: Vec<&'t [u8]>,
}

/// A ticket as it stands in the file. Never logged, hence no `Debug`.
pub struct Ticket<'t> {
    /// Whose it is; the file's too.
    pub client: &'t Name<'t>,
    /// What it is for.
    pub server: &'t Name<'t>,
    /// Of the session key.
    pub enctype: i32,
    /// The session key.
    pub key: &'t [u8],
    /// When it was given, from when to when it holds, and until when it may be renewed.
    pub times: [u32; 4],
    /// Whether it is encrypted in another ticket's key.
    pub is_skey: bool,
    /// Flags of RFC 4120.
    pub flags: i32,
    /// The ticket itself.
    pub ticket: &'t [u8],
    /// The other ticket.
    pub second_ticket: &'t [u8],
}

/// Writes a file that holds this ticket, behind what `out` has. Addresses and authorization data are
/// nothing that this project asks for, and left out.
pub fn write(out: &mut Vec<u8>, ticket: &Ticket<'_>) {
    out.extend_from_slice(&[5, 4, 0, 0]);
    name(out, ticket.client);
    name(out, ticket.client);
    name(out, ticket.server);
    // Its type has two bytes here, and is never more than that.
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

fn name(out: &mut Vec<u8>, name: &Name<'_>) {
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

/// A reader refuses a file in which this is not the length.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
