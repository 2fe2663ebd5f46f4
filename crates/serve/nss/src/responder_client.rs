// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries the responder for incomplete records. `exports` decides whether a record is incomplete.
//!
//! Each request uses one connection, which is closed after the reply, so no descriptor remains open. The snapshot is
//! not pinned meanwhile, and the needed parts are copied. A process with waiting threads can therefore still unmap old
//! generations. A query takes [`QUERY_MS_MAX`] at most, even if the responder hangs. Each failure means "unavailable":
//! a missing reply is not a missing entry.
#![forbid(unsafe_code)]

use crate::generations::ACCOUNTS;
use crate::status::Miss;
use roster_module_sys::syscalls::ErrnoGuard;
use roster_module_sys::unix_client::UnixClient;
use roster_request::LookupKind;
use roster_snapshot::layout::RESPONDER_BYTES;
use roster_snapshot::{Damage, IdLimits, ServedIds, Snapshot};
use roster_wire::{
    Malformed, NssReply, NssReplyHeader, NssRequest, REPLY_HEADER_BYTES, REQUEST_BYTES_MAX,
};

/// Time limit from the first system call to the last byte of the reply.
const QUERY_MS_MAX: u64 = 3_000;
/// A directory cannot have a user or group with this name. Root must be able to log in without a wait for the
/// responder.
const NEVER_QUERIED: &[u8] = b"root";

/// Returns the outcome for an entry that the snapshot does not have.
pub fn absent(snapshot: &Snapshot<'_>) -> Miss {
    if snapshot.responder().is_some() { Miss::NeedsResponder } else { Miss::Absent }
}

/// Returns whether a snapshot with a responder has all groups of that user.
#[cold]
#[inline(never)]
pub fn has_all_groups(snapshot: &Snapshot<'_>, user: &[u8]) -> Result<bool, Damage> {
    Ok(snapshot.user_by_any_name(user)?.is_some_and(|user| user.has_complete_groups()))
}

/// Queries the responder. `None` stands for a name that no request can carry, and that no entry has.
#[cold]
#[inline(never)]
pub fn query_responder(request: Option<NssRequest<'_>>) -> Result<ResponderReply, Miss> {
    let responder =
        ACCOUNTS.with_outlined(ResponderClient::from_snapshot).map_err(Miss::Unavailable)??;
    let request = request.filter(|request| responder.can_have(request)).ok_or(Miss::Absent)?;
    let kept = ErrnoGuard::new();
    let (connection, header) = responder.send_request(&request).ok_or(NO_REPLY)?;
    let answer =
        ResponderReply { connection, header, limits: responder.limits, _saved_errno: kept };
    if answer.matches(&request)? { Ok(answer) } else { Err(Malformed.into()) }
}

/// Address of the responder. It is a copy, which outlives the generation.
struct ResponderClient {
    path: [u8; RESPONDER_BYTES],
    path_bytes: usize,
    /// Uid of the owner of the snapshot with this path.
    owner: u32,
    /// Limits of the ids in a reply.
    limits: IdLimits,
}

impl ResponderClient {
    /// Copies the address from a snapshot. A newer snapshot may have no responder and complete records. The outcome is
    /// then [`Miss::NeedsResponder`], with which the caller may try again.
    fn from_snapshot(snapshot: &Snapshot<'_>, owner: u32) -> Result<Self, Miss> {
        let named = snapshot.responder().ok_or(Miss::NeedsResponder)?;
        let mut path = [0; RESPONDER_BYTES];
        for (to, from) in path.iter_mut().zip(named) {
            *to = *from;
        }
        Ok(Self { path, path_bytes: named.len(), owner, limits: *snapshot.limits() })
    }

    fn path(&self) -> &[u8] {
        self.path.get(..self.path_bytes).unwrap_or_default()
    }

    /// Sends the request and reads the header of the reply.
    fn send_request(&self, request: &NssRequest<'_>) -> Option<(UnixClient, NssReplyHeader)> {
        let connection = UnixClient::new(QUERY_MS_MAX)?;
        connection.connect(self.path())?;
        let peer = connection.peer_uid()?;
        if peer != 0 && peer != self.owner {
            return None;
        }
        connection.send(request.write(&mut [0; REQUEST_BYTES_MAX]))?;
        let mut header = [0; REPLY_HEADER_BYTES];
        connection.receive(&mut header)?;
        Some((connection, NssReplyHeader::parse(&header).ok()?))
    }

    /// Returns whether the responder can have an entry for the request.
    fn can_have(&self, request: &NssRequest<'_>) -> bool {
        if request.kind.is_by_name() {
            request.name != NEVER_QUERIED
        } else {
            request.id >= self.limits.min_id() && self.limits.ids().has(request.id)
        }
    }
}

/// One outcome for all failures, because the caller cannot act on the cause.
const NO_REPLY: Miss = Miss::Unavailable(libc::EIO);

/// A reply with a header that matches the request. Dropping it restores the thread's errno.
pub struct ResponderReply {
    connection: UnixClient,
    header: NssReplyHeader,
    limits: IdLimits,
    /// Last, so that it outlives the connection.
    _saved_errno: ErrnoGuard,
}

impl ResponderReply {
    /// Returns the header's content.
    pub fn reply(&self) -> NssReply {
        self.header.reply
    }

    pub fn payload_bytes(&self) -> usize {
        self.header.payload_bytes
    }

    /// Reads the payload into `place`, which must have its size.
    pub fn read(&mut self, place: &mut [u8]) -> Result<(), Miss> {
        if place.len() != self.payload_bytes() {
            return Err(Malformed.into());
        }
        self.connection.receive(place).ok_or(NO_REPLY)
    }

    /// Returns whether all ids are at or above the minimum.
    pub fn may_be_ids(&self, ids: &[u32]) -> bool {
        ids.iter().all(|&id| id >= self.limits.min_id())
    }

    /// Returns the gids that are served.
    pub fn served(&self) -> ServedIds {
        self.limits.ids()
    }

    /// Returns whether the password must be hidden.
    pub fn has_floor(&self) -> bool {
        self.limits.has_floor()
    }

    /// Returns whether the reply matches the request. A negative reply is an error.
    fn matches(&self, request: &NssRequest<'_>) -> Result<bool, Miss> {
        let found = |id| {
            let is_served = self.may_be_ids(&[id]) && self.served().has(id);
            is_served && (request.kind.is_by_name() || request.id == id)
        };
        Ok(match (self.header.reply, request.kind) {
            (NssReply::Absent, _) => return Err(Miss::Absent),
            (NssReply::Unavailable, _) => return Err(NO_REPLY),
            (NssReply::User { uid, gid }, LookupKind::UserByName | LookupKind::UserByUid) => {
                found(uid) && self.limits.has_primary(gid)
            }
            (NssReply::Group { gid, .. }, LookupKind::GroupByName | LookupKind::GroupByGid) => {
                found(gid)
            }
            (NssReply::Groups { .. }, LookupKind::GroupsOf) => true,
            _ => false,
        })
    }
}
