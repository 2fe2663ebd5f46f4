// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of the request that the current thread works on. Log lines have it, so that one request can be followed
//! through all roles.
//!
//! A responder numbers each request, and the number travels over the bus with it. A role enters the number while it
//! works on the request. A spawned task or thread starts without a number: its starter passes the number on.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// The number of a request: the process id of the role that received it in the upper half, and a count in the lower
/// half. 0 means none. The text form is `PID-COUNT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestNumber(pub u64);

impl RequestNumber {
    /// Returns the number that the current thread works on.
    #[must_use]
    pub fn current() -> Self {
        Self(CURRENT.get())
    }

    /// Whether there is a request.
    #[must_use]
    pub fn is_set(self) -> bool {
        self.0 != 0
    }

    /// Sets the number of the current thread until the result is dropped.
    #[must_use]
    pub fn enter(self) -> EnteredRequest {
        EnteredRequest { previous: CURRENT.replace(self.0), same_thread: PhantomData }
    }

    /// Runs a future with this number. The number is set while the future is polled, on any thread.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _entered = self.enter();
            future.as_mut().poll(context)
        })
        .await
    }
}

impl fmt::Display for RequestNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

/// Restores the previous number on drop.
#[derive(Debug)]
pub struct EnteredRequest {
    previous: u64,
    /// The number belongs to a thread. A future must not hold this value while it waits.
    same_thread: PhantomData<*const ()>,
}

impl Drop for EnteredRequest {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const FIRST: RequestNumber = RequestNumber(7 << 32 | 1);
    const SECOND: RequestNumber = RequestNumber(7 << 32 | 2);

    #[test]
    fn request_number_shows_process_and_count() {
        assert_eq!(FIRST.to_string(), "7-1");
        assert_eq!(RequestNumber(u64::MAX).to_string(), "4294967295-4294967295");
    }

    #[test]
    fn request_number_nests_and_is_restored() {
        assert!(!RequestNumber::current().is_set());
        let outer = FIRST.enter();
        {
            let _inner = SECOND.enter();
            assert_eq!(RequestNumber::current(), SECOND);
        }
        assert_eq!(RequestNumber::current(), FIRST);
        drop(outer);
        assert!(!RequestNumber::current().is_set());
    }

    /// A future that is ready at its second poll.
    struct Later(bool);

    impl Future for Later {
        type Output = RequestNumber;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<RequestNumber> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(RequestNumber::current())
            } else {
                Poll::Pending
            }
        }
    }

    #[test]
    fn request_number_follows_interleaved_futures() {
        let mut context = Context::from_waker(Waker::noop());
        let mut futures = [FIRST, SECOND].map(|number| Box::pin(number.scope(Later(false))));
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut context).is_pending());
            assert!(!RequestNumber::current().is_set());
        }
        let [first, second] = futures.each_mut().map(|future| future.as_mut().poll(&mut context));
        assert_eq!((first, second), (Poll::Ready(FIRST), Poll::Ready(SECOND)));
    }
}
