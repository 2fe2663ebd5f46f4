//! Requests that block their thread until they are over: each user has a thread, and a request is a
//! function of its number.

use crate::failure::Failure;
use crate::poll::{Poll, Ready};
use crate::worker::{Engine, Progress};

/// The one user of a thread.
#[derive(Debug)]
pub struct Blocking<F> {
    request: F,
}

impl<F: FnMut(u64) -> Result<(), Failure>> Blocking<F> {
    /// Makes its requests by this function.
    pub fn new(request: F) -> Self {
        Self { request }
    }
}

impl<F: FnMut(u64) -> Result<(), Failure>> Engine for Blocking<F> {
    const BLOCKS: bool = true;

    fn prepare(&mut self, _: usize, _: &Poll) -> Progress {
        Progress::Done(Ok(()))
    }

    fn begin(&mut self, _: usize, request: u64, _: &Poll) -> Progress {
        Progress::Done((self.request)(request))
    }

    fn advance(&mut self, _: Ready, _: &Poll) -> Progress {
        Progress::Waiting
    }

    fn disturbed(&mut self, _: Ready) {}

    fn give_up(&mut self, _: usize) {}
}
