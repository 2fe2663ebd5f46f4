// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies of version 2 of nscd's protocol, in native byte order. A connection carries one request. This
//! module has no access to accounts and makes no system calls. `connections` has the bytes of a client, and `dispatch`
//! the replies.

/// Protocol version, in every request and reply.
pub const VERSION: i32 = 2;
/// Bytes of a request before its key.
pub const REQUEST_HEADER_BYTES: usize = 12;
/// Maximum length of a key with its NUL.
pub const KEY_BYTES_MAX: usize = 1024;

/// Lookups that a prebuilt map answers. The protocol defines the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MapLookupKind {
    /// A user by name.
    UserByName = 0,
    /// A user by uid.
    UserByUid = 1,
    /// A group by name.
    GroupByName = 2,
    /// A group by gid.
    GroupByGid = 3,
    /// Supplementary groups of a user.
    GroupsOf = 15,
}

impl MapLookupKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::UserByName, Self::UserByUid, Self::GroupByName, Self::GroupByGid, Self::GroupsOf];

    /// Returns the map for this kind.
    #[must_use]
    pub fn table(self) -> Table {
        match self {
            Self::UserByName | Self::UserByUid => Table::Passwd,
            Self::GroupByName | Self::GroupByGid | Self::GroupsOf => Table::Group,
        }
    }

    /// Returns whether the keys are numbers.
    #[must_use]
    pub fn is_by_id(self) -> bool {
        matches!(self, Self::UserByUid | Self::GroupByGid)
    }

    /// Returns the kind with that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A table, with a map each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Users.
    Passwd,
    /// Groups and supplementary groups.
    Group,
}

impl Table {
    /// Both tables.
    pub const ALL: [Self; 2] = [Self::Passwd, Self::Group];

    /// Returns the name in nsswitch.conf(5), which clients use in requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passwd => "passwd",
            Self::Group => "group",
        }
    }

    /// Returns the table with that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name().as_bytes() == name)
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NscdRequest<'a> {
    /// A lookup; the key has no NUL.
    Lookup(MapLookupKind, &'a [u8]),
    /// A request for the descriptor of a map. The reply begins with the key as received.
    Map(Table, &'a [u8]),
    /// An admin request.
    Admin(AdminRequest<'a>),
    /// A request that this server does not support. The integers are the reply; it is empty for a closed connection.
    NotServed(&'static [i32]),
}

/// Requests that need permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRequest<'a> {
    /// Report statistics.
    Statistics,
    /// Rebuild the map with that name.
    Invalidate(&'a [u8]),
    /// Stop the server.
    Shutdown,
}

/// The state of the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest<'a> {
    /// A partial request.
    Incomplete,
    /// A complete request.
    Complete(NscdRequest<'a>),
    /// An invalid request, which gets no reply.
    Invalid,
}

/// Parses a request. Ignores bytes after it.
#[must_use]
pub fn parse(bytes: &[u8]) -> ParsedRequest<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_HEADER_BYTES>() else {
        return ParsedRequest::Incomplete;
    };
    let [version, number, key_bytes] = integers(header);
    let key_bytes = usize::try_from(key_bytes).ok().filter(|&bytes| bytes <= KEY_BYTES_MAX);
    let (VERSION, Some(key_bytes)) = (version, key_bytes) else { return ParsedRequest::Invalid };
    let Some(key) = rest.get(..key_bytes) else { return ParsedRequest::Incomplete };
    let Ok(number) = u8::try_from(number) else { return ParsedRequest::Invalid };
    request(number, key).map_or(ParsedRequest::Invalid, ParsedRequest::Complete)
}

fn request(number: u8, key: &[u8]) -> Option<NscdRequest<'_>> {
    if let Some(kind) = MapLookupKind::from_number(number) {
        let name = text(key)?;
        return Some(NscdRequest::Lookup(kind, name));
    }
    Some(match number {
        // 4 to 7: hosts by name and by address, for both families. 14: address lists.
        4..=7 => NscdRequest::NotServed(&[VERSION, -1, 0, 0, -1, -1, 0, 2]),
        8 => NscdRequest::Admin(AdminRequest::Shutdown),
        9 => NscdRequest::Admin(AdminRequest::Statistics),
        10 => NscdRequest::Admin(AdminRequest::Invalidate(text(key)?)),
        11 => NscdRequest::Map(Table::Passwd, key),
        12 => NscdRequest::Map(Table::Group, key),
        // Maps that do not exist. A closed connection is the negative reply.
        13 | 18 | 21 => NscdRequest::NotServed(&[]),
        14 => NscdRequest::NotServed(&[VERSION, -1, 0, 0, 0, 0]),
        // Services by name and by port.
        16 | 17 => NscdRequest::NotServed(&[VERSION, -1, 0, 0, 0, -1]),
        // Netgroups and their members.
        19 => NscdRequest::NotServed(&[VERSION, -1, 0, 0]),
        20 => NscdRequest::NotServed(&[VERSION, -1, 0]),
        _ => return None,
    })
}

/// Returns a key without its final NUL. Returns `None` without a final NUL, or with another NUL.
fn text(key: &[u8]) -> Option<&[u8]> {
    let (0, text) = key.split_last()? else { return None };
    (!text.contains(&0)).then_some(text)
}

/// Parses a key as an id, as nscd does.
#[must_use]
pub fn id(key: &[u8]) -> Option<u32> {
    let digits = !key.is_empty() && key.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(key).ok()?.parse().ok()).flatten()
}

/// Returns the reply for a missing entry.
#[must_use]
pub fn absent(kind: MapLookupKind) -> Vec<u8> {
    empty(kind, 0)
}

/// Returns the reply that redirects a client to the name services.
#[must_use]
pub fn not_served(kind: MapLookupKind) -> Vec<u8> {
    empty(kind, -1)
}

fn empty(kind: MapLookupKind, found: i32) -> Vec<u8> {
    let fields: &[i32] = match kind.table() {
        Table::Passwd => &[VERSION, found, 0, 0, -1, -1, 0, 0, 0],
        Table::Group if kind == MapLookupKind::GroupsOf => &[VERSION, found, 0],
        Table::Group => &[VERSION, found, 0, 0, -1, 0],
    };
    bytes(fields)
}

/// Encodes a user.
#[must_use]
pub fn user(uid: u32, gid: u32, strings: [&[u8]; 5]) -> Vec<u8> {
    let mut out = Vec::new();
    let lengths = strings.map(|string| string.len() + 1);
    push_user_header(&mut out, uid, gid, lengths);
    push_strings(&mut out, &strings);
    out
}

pub(crate) fn push_user_header(out: &mut Vec<u8>, uid: u32, gid: u32, lengths: [usize; 5]) {
    let [name, passwd, gecos, dir, shell] = lengths.map(length);
    let (uid, gid) = (uid.cast_signed(), gid.cast_signed());
    out.extend(bytes(&[VERSION, 1, name, passwd, uid, gid, gecos, dir, shell]));
}

/// Encodes a group.
#[must_use]
pub fn group(gid: u32, name: &[u8], passwd: &[u8], members: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    push_group_header(&mut out, gid, name.len() + 1, passwd.len() + 1, members.len());
    for member in members {
        out.extend(length(member.len() + 1).to_ne_bytes());
    }
    push_strings(&mut out, &[name, passwd]);
    push_strings(&mut out, members);
    out
}

pub(crate) fn push_group_header(
    out: &mut Vec<u8>,
    gid: u32,
    name: usize,
    passwd: usize,
    members: usize,
) {
    let [name, passwd, members] = [name, passwd, members].map(length);
    out.extend(bytes(&[VERSION, 1, name, passwd, gid.cast_signed(), members]));
}

/// Encodes the supplementary groups of a user.
#[must_use]
pub fn groups(gids: &[u32]) -> Vec<u8> {
    let mut out = bytes(&[VERSION, 1, length(gids.len())]);
    gids.iter().for_each(|gid| out.extend(gid.to_ne_bytes()));
    out
}

fn push_strings(out: &mut Vec<u8>, strings: &[&[u8]]) {
    for string in strings {
        out.extend_from_slice(string);
        out.push(0);
    }
}

/// Returns the size of the fixed part of a reply in bytes.
#[must_use]
pub fn fixed_bytes(kind: MapLookupKind) -> usize {
    match kind.table() {
        Table::Passwd => 36,
        Table::Group if kind == MapLookupKind::GroupsOf => 12,
        Table::Group => 24,
    }
}

/// Returns the found field of a reply: 1, 0, or −1 for "query the name services".
#[must_use]
pub fn found(answer: &[u8]) -> Option<i32> {
    answer.first_chunk::<8>().map(|bytes| integers::<2>(bytes)[1])
}

/// Encodes integers in native byte order.
#[must_use]
pub fn bytes(integers: &[i32]) -> Vec<u8> {
    integers.iter().flat_map(|integer| integer.to_ne_bytes()).collect()
}

fn integers<const N: usize>(bytes: &[u8]) -> [i32; N] {
    let mut integers = [0; N];
    for (integer, chunk) in integers.iter_mut().zip(bytes.chunks_exact(4)) {
        *integer = i32::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
    integers
}

/// Converts a length for a reply. Maps and helpers bound all lengths.
pub(crate) fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: i32, key: &[u8]) -> Vec<u8> {
        let mut request = bytes(&[VERSION, number, i32::try_from(key.len()).unwrap()]);
        request.extend(key);
        request
    }

    #[test]
    fn a_request_is_read_when_all_of_it_is_there() {
        let whole = asked(0, b"alice\0");
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), ParsedRequest::Incomplete, "{end}");
        }
        let look_up =
            ParsedRequest::Complete(NscdRequest::Lookup(MapLookupKind::UserByName, b"alice"));
        assert_eq!(parse(&whole), look_up);
        assert_eq!(parse(&[&whole[..], b"more"].concat()), look_up);
        let map = asked(12, b"group\0");
        assert_eq!(
            parse(&map),
            ParsedRequest::Complete(NscdRequest::Map(Table::Group, b"group\0"))
        );
    }

    #[test]
    fn lengths_and_versions_that_are_none_are_wrong() {
        for wrong in [
            bytes(&[VERSION, 0, -1]),
            bytes(&[VERSION, 0, i32::MIN]),
            bytes(&[VERSION, 0, 1025]),
            bytes(&[1, 0, 0]),
            bytes(&[VERSION, 22, 0]),
            bytes(&[VERSION, -1, 0]),
            asked(0, b""),
            asked(0, b"alice"),
            asked(0, b"al\0ce\0"),
        ] {
            assert_eq!(parse(&wrong), ParsedRequest::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_served_has_the_length_that_clients_wait_for() {
        for (number, integers) in [(4, 8), (7, 8), (13, 0), (14, 6), (16, 6), (19, 4), (20, 3)] {
            let ParsedRequest::Complete(NscdRequest::NotServed(answer)) =
                parse(&asked(number, b"x\0"))
            else {
                panic!("{number}");
            };
            assert_eq!(answer.len(), integers, "{number}");
            assert!(answer.is_empty() || answer[1] == -1);
        }
    }

    #[test]
    fn ids_are_plain_numbers() {
        assert_eq!(id(b"4294967295"), Some(u32::MAX));
        for wrong in [&b""[..], b"-1", b"+1", b"1x", b" 1", b"4294967296"] {
            assert_eq!(id(wrong), None);
        }
    }
}
