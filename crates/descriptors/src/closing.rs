//! Closing what somebody else has sent. The last descriptor of a socket with SO_LINGER is closed for as long as its
//! owner likes, and so is a connection in which such a descriptor waits to be received: whoever may connect
//! could have every thread of ours wait. So it is done with a timer whose signal ends the wait; what the
//! socket still holds the kernel sends all the same.
//!
//! What no signal ends, such as a file system whose server is the sender's, holds the thread that closes; who
//! serves it counts it for the sender until then, and no lock is held.

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;
use std::cell::RefCell;
use std::net::Shutdown;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// How long anything is waited for.
const WAIT: Duration = Duration::from_millis(5);
/// How long a round of a loop may take before anything in it is cut short: nothing in it should wait,
const ROUND: Duration = Duration::from_millis(20);
/// and how long each thing then.
const WAIT_IN_ROUND: Duration = Duration::from_millis(1);
/// Which does nothing where it is not handled.
const SIGNAL: Signal = Signal::SIGURG;
/// Nothing here goes deep.
const STACK_BYTES: usize = 128 << 10;
/// Threads that close connections at once, and connections that wait for one.
const THREADS_MAX: usize = 64;
const LEFT_MAX: usize = 64;

thread_local! {
    static TIMER: RefCell<Option<Timer>> = RefCell::new(timer().ok());
}

/// Without a handler a signal that is ignored ends no wait.
static IS_HANDLED: LazyLock<bool> = LazyLock::new(|| {
    signal_hook::flag::register(SIGNAL as i32, Arc::new(AtomicBool::new(false))).is_ok()
});

/// Signals this thread.
fn timer() -> nix::Result<Timer> {
    if !*IS_HANDLED {
        return Err(nix::errno::Errno::EINVAL);
    }
    let thread_id = gettid().as_raw();
    let event =
        SigEvent::new(SigevNotify::SigevThreadId { signal: SIGNAL, thread_id, si_value: 0 });
    Timer::new(ClockId::CLOCK_MONOTONIC, event)
}

fn set(expiration: Expiration) {
    let flags = TimerSetTimeFlags::empty();
    // A system that has no timer left has to wait.
    let set = |timer: &mut Option<Timer>| timer.as_mut()?.set(expiration, flags).ok();
    let _ = TIMER.try_with(|timer| set(&mut timer.borrow_mut()));
}

/// Does what may close something of somebody else's, and keeps short what waits in it.
pub fn cut_short<T>(work: impl FnOnce() -> T) -> T {
    // Again and again: the signal may come just before something is waited for.
    set(Expiration::IntervalDelayed(WAIT.into(), WAIT.into()));
    let done = work();
    end_round();
    done
}

/// For a thread that serves everybody in a loop, when it goes on with what has come: keeps short what waits until the
/// loop waits itself. Reading past a descriptor closes it, too.
pub fn begin_round() {
    set(Expiration::IntervalDelayed(ROUND.into(), WAIT_IN_ROUND.into()));
}

/// The same, before the loop waits.
pub fn end_round() {
    set(Expiration::OneShot(Duration::ZERO.into()));
}

/// What somebody else has sent, or could have sent something into.
#[derive(Debug)]
pub struct Sent<T>(Option<T>);

impl<T> Sent<T> {
    /// To be closed by [`cut_short`].
    pub fn new(what: T) -> Self {
        Self(Some(what))
    }
}

impl<T: Default> Sent<T> {
    /// All of it, with nothing in its place.
    pub fn take(&mut self) -> T {
        self.0.replace(T::default()).unwrap_or_default()
    }
}

impl<T> Deref for Sent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Sent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Sent<T> {
    fn drop(&mut self) {
        cut_short(|| drop(self.0.take()));
    }
}

/// Closes connections that are not served, beside the thread that takes connections. Those for which there is no thread
/// wait for one; when too many do, no more should be taken, so that no descriptor is lost.
#[derive(Clone, Debug)]
pub struct Closers<T = Sent<UnixStream>>(Arc<Mutex<Waiting<T>>>);

#[derive(Debug)]
struct Waiting<T> {
    threads: usize,
    left: Vec<T>,
}

impl<T> Default for Closers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Waiting { threads: 0, left: Vec::new() })))
    }
}

impl Closers {
    /// Closes one for good, at once for its client.
    pub fn close(&self, stream: UnixStream) {
        let _ = stream.shutdown(Shutdown::Both);
        // From now on nothing comes into it; and where nothing is, nothing is waited for.
        if rustix::io::ioctl_fionread(&stream).is_ok_and(|bytes| bytes == 0) {
            return;
        }
        self.drop_elsewhere(Sent::new(stream));
    }
}

impl<T: Send + 'static> Closers<T> {
    /// Whether so many wait that nothing more is to be taken which may have to be closed.
    pub fn are_behind(&self) -> bool {
        self.waiting().left.len() >= LEFT_MAX
    }

    fn drop_elsewhere(&self, what: T) {
        let mut waiting = self.waiting();
        waiting.left.push(what);
        if waiting.threads >= THREADS_MAX {
            return;
        }
        waiting.threads += 1;
        drop(waiting);
        let closers = Self(Arc::clone(&self.0));
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("closing".into());
        if thread.spawn(move || while closers.drop_next() {}).is_err() {
            // Whoever comes next tries again.
            self.waiting().threads -= 1;
        }
    }

    /// False, and one thread less, if there is nothing more.
    fn drop_next(&self) -> bool {
        let mut waiting = self.waiting();
        let next = waiting.left.pop();
        waiting.threads -= usize::from(next.is_none());
        drop(waiting);
        next.is_some()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().expect("a thread that panics ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::wait::{SOON, wait_for};
    use std::sync::mpsc::{Receiver, channel};

    /// Cannot be closed before it is told so.
    struct Hangs(Receiver<()>);

    impl Drop for Hangs {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_hangs_is_bounded_and_closed_when_it_can_be() {
        let closers: Closers<Hangs> = Closers::default();
        let are = |threads, left| {
            wait_for(SOON, || {
                let waiting = closers.waiting();
                let found = (waiting.threads, waiting.left.len());
                if found == (threads, left) { Ok(()) } else { Err(format!("{found:?}")) }
            });
        };
        let (holds, told): (Vec<_>, Vec<_>) =
            (0..THREADS_MAX + LEFT_MAX).map(|_| channel()).unzip();
        told.into_iter().for_each(|told| closers.drop_elsewhere(Hangs(told)));
        are(THREADS_MAX, LEFT_MAX);
        assert!(closers.are_behind());
        drop(holds);
        are(0, 0);
        assert!(!closers.are_behind());
    }
}
