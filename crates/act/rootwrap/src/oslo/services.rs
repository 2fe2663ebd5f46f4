//! What the connections of the daemon share: the policy, what judges and runs by it, the key, and the names of
//! objects.

use super::client_table::ClientTable;
use super::command_io::TransferLimits;
use super::hmac_handshake::KEY_BYTES;
use crate::exec::Executor;
use crate::host_facts::LocalHost;
use crate::rootwrap_policy::RootwrapPolicy;
use crate::syslog::Syslog;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all connections share.
pub(super) struct OsloServices {
    pub(super) policy: RootwrapPolicy,
    pub(super) host: LocalHost,
    pub(super) executor: Executor,
    pub(super) syslog: Syslog,
    pub(super) transfer_limits: TransferLimits,
    pub(super) key: [u8; KEY_BYTES],
    pub(super) clients: ClientTable,
    pub(super) objects: ObjectNames,
    /// A byte in it ends the daemon.
    pub(super) end_pipe: UnixStream,
}

impl OsloServices {
    /// Ends the daemon in good order.
    pub(super) fn request_end(&self) {
        // A full pipe ends it as well.
        let _ = (&self.end_pipe).write(b"!");
    }
}

/// The names of the objects that were handed out.
#[derive(Default)]
pub(super) struct ObjectNames(AtomicU64);

impl ObjectNames {
    /// A name that no object had.
    pub(super) fn next_object(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether an object of that name was handed out.
    pub(super) fn has_object(&self, name: Option<&[u8]>) -> bool {
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let number = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        number.is_some_and(|number| (1..=self.0.load(Ordering::Relaxed)).contains(&number))
    }
}
