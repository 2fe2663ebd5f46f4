// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that connections share: the policy, the executor, the key, and the names of objects. `daemon` creates it.

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

/// The shared state.
pub(super) struct OsloServices {
    pub(super) policy: RootwrapPolicy,
    pub(super) host: LocalHost,
    pub(super) executor: Executor,
    pub(super) syslog: Syslog,
    pub(super) transfer_limits: TransferLimits,
    pub(super) key: [u8; KEY_BYTES],
    pub(super) clients: ClientTable,
    pub(super) objects: ObjectNames,
    /// A byte in this pipe stops the daemon.
    pub(super) end_pipe: UnixStream,
}

impl OsloServices {
    /// Stops the daemon.
    pub(super) fn request_end(&self) {
        // A full pipe stops it as well.
        let _ = (&self.end_pipe).write(b"!");
    }
}

/// Names of objects.
#[derive(Default)]
pub(super) struct ObjectNames(AtomicU64);

impl ObjectNames {
    /// Returns a new name.
    pub(super) fn next_object(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true if an object of this name was created.
    pub(super) fn has_object(&self, name: Option<&[u8]>) -> bool {
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let number = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        number.is_some_and(|number| (1..=self.0.load(Ordering::Relaxed)).contains(&number))
    }
}
