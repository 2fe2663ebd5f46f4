// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes descriptors that a client has sent. Closing the last descriptor of a socket with SO_LINGER waits as long as
//! the client chooses. Closing a connection with such an unreceived descriptor waits too, so any client could block
//! every thread. A timer therefore sends a signal that ends the wait. The kernel still sends the socket's remaining
//! data. `socket_options` rejects descriptors before they arrive.
//!
//! A FUSE file system of the sender can block the closing thread as long as its server chooses. Signals do not end that
//! wait. The closing then counts for the sender, and the thread holds no lock.

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;
use parking_lot::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

/// Maximum wait of one operation.
const WAIT: Duration = Duration::from_millis(5);
/// Maximum duration of a round of a loop before waits in it are interrupted. Normally no operation in a round waits.
const ROUND: Duration = Duration::from_millis(20);
/// Maximum wait of each operation after that.
const WAIT_IN_ROUND: Duration = Duration::from_millis(1);
/// Signal of the timer; its default action is to ignore it.
const SIGNAL: Signal = Signal::SIGURG;
/// Stack size of a closing thread, which needs little.
const STACK_BYTES: usize = 128 << 10;

thread_local! {
    static TIMER: RefCell<Option<Timer>> = RefCell::new(timer().ok());
}

/// Whether the signal has a handler. An ignored signal does not interrupt a wait.
static SIGNAL_IS_HANDLED: LazyLock<bool> = LazyLock::new(|| {
    signal_hook::flag::register(SIGNAL as i32, Arc::new(AtomicBool::new(false))).is_ok()
});

/// Creates a timer that signals this thread.
fn timer() -> nix::Result<Timer> {
    if !*SIGNAL_IS_HANDLED {
        return Err(nix::errno::Errno::EINVAL);
    }
    let thread_id = gettid().as_raw();
    let event =
        SigEvent::new(SigevNotify::SigevThreadId { signal: SIGNAL, thread_id, si_value: 0 });
    Timer::new(ClockId::CLOCK_MONOTONIC, event)
}

fn set(expiration: Expiration) {
    let flags = TimerSetTimeFlags::empty();
    // Without a free timer, operations wait.
    let set = |timer: &mut Option<Timer>| timer.as_mut()?.set(expiration, flags).ok();
    let _ = TIMER.try_with(|timer| set(&mut timer.borrow_mut()));
}

/// Runs `work`, which may close a client's descriptor, and limits each wait in it.
pub fn limit_wait<T>(work: impl FnOnce() -> T) -> T {
    // Repeated, because the signal may arrive just before a wait begins.
    set(Expiration::IntervalDelayed(WAIT.into(), WAIT.into()));
    let done = work();
    end_round();
    done
}

/// Begins a round of a loop that serves many clients. Waits are limited until [`end_round`]. Reading past a descriptor
/// closes it, too.
pub fn begin_round() {
    set(Expiration::IntervalDelayed(ROUND.into(), WAIT_IN_ROUND.into()));
}

/// Ends the limit, before the loop itself waits.
pub fn end_round() {
    set(Expiration::OneShot(Duration::ZERO.into()));
}

/// A value from a client, or one that may hold a client's descriptors.
#[derive(Debug)]
pub struct BoundedClose<T>(Option<T>);

impl<T> BoundedClose<T> {
    /// Wraps a value that [`limit_wait`] closes.
    pub fn new(what: T) -> Self {
        Self(Some(what))
    }
}

impl<T: Default> BoundedClose<T> {
    /// Takes the value and leaves the default.
    pub fn take_value(&mut self) -> T {
        self.0.replace(T::default()).unwrap_or_default()
    }
}

impl<T> Deref for BoundedClose<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only drop takes the value")
    }
}

impl<T> DerefMut for BoundedClose<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only drop takes the value")
    }
}

impl<T> Drop for BoundedClose<T> {
    fn drop(&mut self) {
        limit_wait(|| drop(self.0.take()));
    }
}

/// Number of unfinished closings, by the uid of the client.
pub type PendingCloses = BTreeMap<u32, usize>;

/// Closes rejected connections, each in a dedicated thread: one that hangs does not delay another. The owner of the
/// listening socket limits them. It learns of each change, and rejects users with closings that hang.
pub struct DeferredCloser<T = BoundedClose<UnixStream>>(Arc<CloserShared<T>>);

struct CloserShared<T> {
    state: Mutex<CloseQueue<T>>,
    changed: Box<dyn Fn(&PendingCloses) + Send + Sync>,
}

struct CloseQueue<T> {
    pending: PendingCloses,
    /// Connections that wait for a thread.
    waiting: Vec<(u32, T)>,
}

impl<T> Clone for DeferredCloser<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for DeferredCloser<T> {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl<T> DeferredCloser<T> {
    /// Creates a closer. `changed` is called after each change, one call at a time, and must not wait.
    pub fn new(changed: impl Fn(&PendingCloses) + Send + Sync + 'static) -> Self {
        let state = Mutex::new(CloseQueue { pending: PendingCloses::new(), waiting: Vec::new() });
        Self(Arc::new(CloserShared { state, changed: Box::new(changed) }))
    }

    /// Returns the number of unfinished closings of all users.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.state().pending.values().sum()
    }

    fn state(&self) -> MutexGuard<'_, CloseQueue<T>> {
        self.0.state.lock()
    }
}

impl DeferredCloser {
    /// Closes a connection of a user. The client sees the end immediately.
    pub fn close(&self, uid: u32, stream: UnixStream) {
        let _ = stream.shutdown(Shutdown::Both);
        // The connection receives no more data. If it is empty, it holds no descriptor that could hang.
        if rustix::io::ioctl_fionread(&stream).is_ok_and(|bytes| bytes == 0) {
            return;
        }
        self.drop_in_thread(uid, BoundedClose::new(stream));
    }
}

impl<T: Send + 'static> DeferredCloser<T> {
    fn drop_in_thread(&self, uid: u32, what: T) {
        let mut state = self.state();
        *state.pending.entry(uid).or_default() += 1;
        (self.0.changed)(&state.pending);
        state.waiting.push((uid, what));
        drop(state);
        let closers = self.clone();
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("closing".into());
        // Without a thread, the connection waits for the next one.
        let _ = thread.spawn(move || while closers.drop_next() {});
    }

    /// Drops one value. Returns false if none is left.
    fn drop_next(&self) -> bool {
        let Some((uid, what)) = self.state().waiting.pop() else { return false };
        drop(what);
        let mut state = self.state();
        if let Some(count) = state.pending.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                state.pending.remove(&uid);
            }
        }
        (self.0.changed)(&state.pending);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::wait::{SOON, wait_until};
    use std::sync::mpsc::{Receiver, channel};

    /// A value with a drop that returns when the other end of the channel is dropped.
    struct HangingDrop(Receiver<()>);

    impl Drop for HangingDrop {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn closings_that_hang_delay_no_other() {
        let most = Arc::new(Mutex::new(PendingCloses::new()));
        let told = Arc::clone(&most);
        let closers = DeferredCloser::<HangingDrop>::new(move |pending| {
            *told.lock() = pending.clone();
        });
        let (holds, hanging): (Vec<_>, Vec<_>) = (0..300).map(|_| channel()).unzip();
        hanging.into_iter().for_each(|receiver| closers.drop_in_thread(7, HangingDrop(receiver)));
        let (hold, other) = channel();
        drop(hold);
        closers.drop_in_thread(8, HangingDrop(other));
        wait_until(SOON, "the other user's is closed", || {
            *most.lock() == PendingCloses::from([(7, 300)])
        });
        drop(holds);
        wait_until(SOON, "all are closed", || closers.pending_count() == 0);
        assert!(most.lock().is_empty());
    }
}
