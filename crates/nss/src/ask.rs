//! Asks the responder for what the snapshot leaves open.
//!
//! One connection a question, closed when it is answered: no descriptor is kept. The snapshot is not
//! pinned meanwhile, so that a process whose threads wait can still give old generations back; what
//! is needed of it is copied. All of it takes [`ASK_MS_MAX`] at the most, whatever the responder
//! does, and whatever goes wrong is "unavailable": that nobody answered is not that nobody is there.
#![forbid(unsafe_code)]

use crate::generations::ACCOUNTS;
use crate::status::Miss;
use roster_calls::connection::Connection;
use roster_calls::system::KeptErrorNumber;
use roster_snapshot::layout::RESPONDER_BYTES;
use roster_snapshot::{Damage, Limits, ServedIds, Snapshot};
use roster_wire::{
    Kind, Malformed, REPLY_HEADER_BYTES, REQUEST_BYTES_MAX, Reply, ReplyHeader, Request,
};

/// From the first system call to the last byte of the answer.
const ASK_MS_MAX: u64 = 3_000;
/// No directory's user or group is called so: who must be able to log in whatever the responder does
/// is not kept waiting for it.
const NEVER_ASKED: &[u8] = b"root";

/// What it means that a snapshot has no such entry.
pub fn absent(snapshot: &Snapshot<'_>) -> Miss {
    if snapshot.responder().is_some() { Miss::LeftOpen } else { Miss::Absent }
}

/// Whether a snapshot that names a responder has all groups of that user.
#[cold]
#[inline(never)]
pub fn is_sure_of_groups(snapshot: &Snapshot<'_>, user: &[u8]) -> Result<bool, Damage> {
    Ok(snapshot.user_by_name(user)?.is_some_and(|user| user.is_sure_of_groups()))
}

/// Asks the responder; no request is one for something that nothing can be called.
#[cold]
#[inline(never)]
pub fn ask(request: Option<Request<'_>>) -> Result<Answer, Miss> {
    let responder = ACCOUNTS.with_apart(Responder::of).map_err(Miss::Unavailable)??;
    let request = request.filter(|request| responder.may_know(request)).ok_or(Miss::Absent)?;
    let kept = KeptErrorNumber::new();
    let (connection, header) = responder.put(&request).ok_or(NO_ANSWER)?;
    let answer = Answer { connection, header, limits: responder.limits, _kept: kept };
    if answer.is_to(&request)? { Ok(answer) } else { Err(Malformed.into()) }
}

/// Whom to ask; a copy, which outlives the generation.
struct Responder {
    path: [u8; RESPONDER_BYTES],
    path_bytes: usize,
    /// User id of the owner of the snapshot that names the path.
    owner: u32,
    /// Which ids an answer may have.
    limits: Limits,
}

impl Responder {
    /// The one that a snapshot names. It named one a moment ago, but another may have taken its
    /// place since, which leaves nothing open: then the caller may come again.
    fn of(snapshot: &Snapshot<'_>, owner: u32) -> Result<Self, Miss> {
        let named = snapshot.responder().ok_or(Miss::LeftOpen)?;
        let mut path = [0; RESPONDER_BYTES];
        for (to, from) in path.iter_mut().zip(named) {
            *to = *from;
        }
        Ok(Self { path, path_bytes: named.len(), owner, limits: *snapshot.limits() })
    }

    fn path(&self) -> &[u8] {
        self.path.get(..self.path_bytes).unwrap_or_default()
    }

    /// Puts the question, and reads the header of the answer.
    fn put(&self, request: &Request<'_>) -> Option<(Connection, ReplyHeader)> {
        let connection = Connection::new(ASK_MS_MAX)?;
        connection.connect(self.path())?;
        let peer = connection.peer_user()?;
        if peer != 0 && peer != self.owner {
            return None;
        }
        connection.send(request.write(&mut [0; REQUEST_BYTES_MAX]))?;
        let mut header = [0; REPLY_HEADER_BYTES];
        connection.receive(&mut header)?;
        Some((connection, ReplyHeader::parse(&header).ok()?))
    }

    /// Whether there can be an answer to that.
    fn may_know(&self, request: &Request<'_>) -> bool {
        if request.kind.is_by_name() {
            request.name != NEVER_ASKED
        } else {
            request.id >= self.limits.min_id() && self.limits.ids().has(request.id)
        }
    }
}

/// Whatever it was: a caller cannot help it, and is told of one thing.
const NO_ANSWER: Miss = Miss::Unavailable(libc::EIO);

/// An answer whose header was read, and is one to the question. When it is gone, the thread's error
/// number is what it was before.
pub struct Answer {
    connection: Connection,
    header: ReplyHeader,
    limits: Limits,
    /// Last, so that it outlives the connection.
    _kept: KeptErrorNumber,
}

impl Answer {
    /// What it says beside its payload.
    pub fn reply(&self) -> Reply {
        self.header.reply
    }

    /// Bytes of payload.
    pub fn payload_bytes(&self) -> usize {
        self.header.payload_bytes
    }

    /// Reads the payload, which fills `place`.
    pub fn read(&mut self, place: &mut [u8]) -> Result<(), Miss> {
        if place.len() != self.payload_bytes() {
            return Err(Malformed.into());
        }
        self.connection.receive(place).ok_or(NO_ANSWER)
    }

    /// Whether those can be ids of users or groups.
    pub fn may_be_ids(&self, ids: &[u32]) -> bool {
        ids.iter().all(|&id| id >= self.limits.min_id())
    }

    /// The gids of a user that are served.
    pub fn served(&self) -> ServedIds {
        self.limits.ids()
    }

    /// Whether the password is to be hidden.
    pub fn has_floor(&self) -> bool {
        self.limits.has_floor()
    }

    /// Whether it is an answer to that question at all; an error when it is that there is none.
    fn is_to(&self, request: &Request<'_>) -> Result<bool, Miss> {
        let found = |id| {
            let is_served = self.may_be_ids(&[id]) && self.served().has(id);
            is_served && (request.kind.is_by_name() || request.id == id)
        };
        Ok(match (self.header.reply, request.kind) {
            (Reply::Absent, _) => return Err(Miss::Absent),
            (Reply::Unavailable, _) => return Err(NO_ANSWER),
            (Reply::User { uid, gid }, Kind::UserByName | Kind::UserByUid) => {
                found(uid) && self.limits.has_primary(gid)
            }
            (Reply::Group { gid, .. }, Kind::GroupByName | Kind::GroupByGid) => found(gid),
            (Reply::Groups { .. }, Kind::GroupsOf) => true,
            _ => false,
        })
    }
}
