// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of requests that block their thread: each user has a thread, and a request is a function of its number.
//! This module knows no protocol. `nss` and `dlopen` have the functions.

use crate::load_thread::{Engine, RequestProgress};
use crate::poll::{Poller, ReadyEvent};
use crate::request_error::RequestError;

/// The single user of a thread.
#[derive(Debug)]
pub struct BlockingEngine<F> {
    request: F,
}

impl<F: FnMut(u64) -> Result<(), RequestError>> BlockingEngine<F> {
    /// Creates an engine that makes its requests with this function.
    pub fn new(request: F) -> Self {
        Self { request }
    }
}

impl<F: FnMut(u64) -> Result<(), RequestError>> Engine for BlockingEngine<F> {
    const BLOCKS: bool = true;

    fn prepare(&mut self, _: usize, _: &Poller) -> RequestProgress {
        RequestProgress::Done(Ok(()))
    }

    fn begin(&mut self, _: usize, request: u64, _: &Poller) -> RequestProgress {
        RequestProgress::Done((self.request)(request))
    }

    fn advance(&mut self, _: ReadyEvent, _: &Poller) -> RequestProgress {
        RequestProgress::Waiting
    }

    fn handle_idle_event(&mut self, _: ReadyEvent) {}

    fn abandon(&mut self, _: usize) {}
}
