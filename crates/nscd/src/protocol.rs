//! What clients ask over the socket, and what they are answered: version 2 of nscd's protocol, in the
//! machine's own byte order. One request a connection. Knows no users and makes no system call.

/// Version of the protocol, in every request and reply.
pub const VERSION: i32 = 2;
/// Bytes of a request before its key.
pub const REQUEST_HEADER_BYTES: usize = 12;
/// The longest key, with its NUL.
pub const KEY_BYTES_MAX: usize = 1024;

/// What the prebuilt maps answer. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A user by name.
    UserByName = 0,
    /// A user by uid.
    UserByUid = 1,
    /// A group by name.
    GroupByName = 2,
    /// A group by gid.
    GroupByGid = 3,
    /// The groups of a user.
    GroupsOf = 15,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::UserByName, Self::UserByUid, Self::GroupByName, Self::GroupByGid, Self::GroupsOf];

    /// The map that has it.
    #[must_use]
    pub fn table(self) -> Table {
        match self {
            Self::UserByName | Self::UserByUid => Table::Passwd,
            Self::GroupByName | Self::GroupByGid | Self::GroupsOf => Table::Group,
        }
    }

    /// Whether its keys are numbers.
    #[must_use]
    pub fn is_by_id(self) -> bool {
        matches!(self, Self::UserByUid | Self::GroupByGid)
    }

    /// The kind of that number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Users.
    Passwd,
    /// Groups, and the groups of users.
    Group,
}

impl Table {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Passwd, Self::Group];

    /// As in nsswitch.conf(5), and as clients ask for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passwd => "passwd",
            Self::Group => "group",
        }
    }

    /// The table of that name.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name().as_bytes() == name)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// For an entry; the key has no NUL.
    LookUp(Kind, &'a [u8]),
    /// For the descriptor of a map; the key as it came, which the reply begins with.
    Map(Table, &'a [u8]),
    /// For something to be done.
    Order(Order<'a>),
    /// For something that is not served here; the bytes are the answer, none where there is none.
    NotServed(&'static [i32]),
}

/// What only some may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<'a> {
    /// To tell figures.
    Statistics,
    /// To make the map of that name anew.
    Invalidate(&'a [u8]),
    /// To end.
    Shutdown,
}

/// What the bytes that came so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The beginning of a request.
    More,
    /// A request.
    Whole(Request<'a>),
    /// Nothing that has an answer.
    Wrong,
}

/// Reads a request. What follows it is not looked at.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_HEADER_BYTES>() else {
        return Parsed::More;
    };
    let [version, number, key_bytes] = integers(header);
    let key_bytes = usize::try_from(key_bytes).ok().filter(|&bytes| bytes <= KEY_BYTES_MAX);
    let (VERSION, Some(key_bytes)) = (version, key_bytes) else { return Parsed::Wrong };
    let Some(key) = rest.get(..key_bytes) else { return Parsed::More };
    let Ok(number) = u8::try_from(number) else { return Parsed::Wrong };
    request(number, key).map_or(Parsed::Wrong, Parsed::Whole)
}

fn request(number: u8, key: &[u8]) -> Option<Request<'_>> {
    if let Some(kind) = Kind::of(number) {
        let name = text(key)?;
        return Some(Request::LookUp(kind, name));
    }
    Some(match number {
        // Hosts by name and by address, in both families; their addresses.
        4..=7 => Request::NotServed(&[VERSION, -1, 0, 0, -1, -1, 0, 2]),
        8 => Request::Order(Order::Shutdown),
        9 => Request::Order(Order::Statistics),
        10 => Request::Order(Order::Invalidate(text(key)?)),
        11 => Request::Map(Table::Passwd, key),
        12 => Request::Map(Table::Group, key),
        // Maps that there are not: closing the connection says so.
        13 | 18 | 21 => Request::NotServed(&[]),
        14 => Request::NotServed(&[VERSION, -1, 0, 0, 0, 0]),
        // Services by name and by port.
        16 | 17 => Request::NotServed(&[VERSION, -1, 0, 0, 0, -1]),
        // Netgroups, and who is in them.
        19 => Request::NotServed(&[VERSION, -1, 0, 0]),
        20 => Request::NotServed(&[VERSION, -1, 0]),
        _ => return None,
    })
}

/// A key without its NUL, which ends it and is nowhere else.
fn text(key: &[u8]) -> Option<&[u8]> {
    let (0, text) = key.split_last()? else { return None };
    (!text.contains(&0)).then_some(text)
}

/// The id that a key names, as nscd reads it.
#[must_use]
pub fn id(key: &[u8]) -> Option<u32> {
    let digits = !key.is_empty() && key.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(key).ok()?.parse().ok()).flatten()
}

/// The answer that nobody is there.
#[must_use]
pub fn absent(kind: Kind) -> Vec<u8> {
    empty(kind, 0)
}

/// The answer that sends a client to the name services.
#[must_use]
pub fn not_served(kind: Kind) -> Vec<u8> {
    empty(kind, -1)
}

fn empty(kind: Kind, found: i32) -> Vec<u8> {
    let fields: &[i32] = match kind.table() {
        Table::Passwd => &[VERSION, found, 0, 0, -1, -1, 0, 0, 0],
        Table::Group if kind == Kind::GroupsOf => &[VERSION, found, 0],
        Table::Group => &[VERSION, found, 0, 0, -1, 0],
    };
    bytes(fields)
}

/// A user.
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

/// A group.
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

/// The groups of a user.
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

/// Bytes of the fixed part of an answer.
#[must_use]
pub fn fixed_bytes(kind: Kind) -> usize {
    match kind.table() {
        Table::Passwd => 36,
        Table::Group if kind == Kind::GroupsOf => 12,
        Table::Group => 24,
    }
}

/// What an answer says of whether there is somebody: 1, 0, or −1 for "ask the name services".
#[must_use]
pub fn found(answer: &[u8]) -> Option<i32> {
    answer.first_chunk::<8>().map(|bytes| integers::<2>(bytes)[1])
}

/// Integers as they are sent.
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

/// Lengths are of what a map or a helper has, both of which are bounded.
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
            assert_eq!(parse(&whole[..end]), Parsed::More, "{end}");
        }
        let look_up = Parsed::Whole(Request::LookUp(Kind::UserByName, b"alice"));
        assert_eq!(parse(&whole), look_up);
        assert_eq!(parse(&[&whole[..], b"more"].concat()), look_up);
        let map = asked(12, b"group\0");
        assert_eq!(parse(&map), Parsed::Whole(Request::Map(Table::Group, b"group\0")));
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
            assert_eq!(parse(&wrong), Parsed::Wrong, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_served_has_the_length_that_clients_wait_for() {
        for (number, integers) in [(4, 8), (7, 8), (13, 0), (14, 6), (16, 6), (19, 4), (20, 3)] {
            let Parsed::Whole(Request::NotServed(answer)) = parse(&asked(number, b"x\0")) else {
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
