//! Closing what somebody else has sent. The last descriptor of a socket with SO_LINGER is closed for as long as its
//! owner likes, and so is a connection in which such a descriptor waits to be received: whoever may connect
//! could have every thread of ours wait. So it is done with a timer whose signal ends the wait; what the
//! socket still holds the kernel sends all the same.
//!
//! A file system (FUSE) of the sender's holds the thread that closes for as long as its server likes: signals do not end that.
//! The closing counts for the sender until then, and no lock is held.

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;
use std::cell::RefCell;
use std::collections::BTreeMap;
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

/// Closings that have not ended, by the uid that connected.
pub type Pending = BTreeMap<u32, usize>;

/// Closes connections that are not served, each in a thread of its own: one that hangs delays no other. The
/// owner of the listening socket bounds them: it learns of each change and refuses users whose closings hang.
pub struct Closers<T = Sent<UnixStream>>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Box<dyn Fn(&Pending) + Send + Sync>,
}

struct State<T> {
    pending: Pending,
    /// Connections that wait for a thread.
    left: Vec<(u32, T)>,
}

impl<T> Clone for Closers<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Closers<T> {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl<T> Closers<T> {
    /// `changed` is called after each change, one call at a time, and must not wait.
    pub fn new(changed: impl Fn(&Pending) + Send + Sync + 'static) -> Self {
        let state = Mutex::new(State { pending: Pending::new(), left: Vec::new() });
        Self(Arc::new(Shared { state, changed: Box::new(changed) }))
    }

    /// Closings that have not ended, of all users.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().pending.values().sum()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().expect("a thread that panics ends the process")
    }
}

impl Closers {
    /// Closes a connection of a user for good, at once for its client.
    pub fn close(&self, uid: u32, stream: UnixStream) {
        let _ = stream.shutdown(Shutdown::Both);
        // Nothing comes into it any more. An empty connection holds no descriptor that could hang.
        if rustix::io::ioctl_fionread(&stream).is_ok_and(|bytes| bytes == 0) {
            return;
        }
        self.drop_elsewhere(uid, Sent::new(stream));
    }
}

impl<T: Send + 'static> Closers<T> {
    fn drop_elsewhere(&self, uid: u32, what: T) {
        let mut state = self.state();
        *state.pending.entry(uid).or_default() += 1;
        (self.0.changed)(&state.pending);
        state.left.push((uid, what));
        drop(state);
        let closers = self.clone();
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("closing".into());
        // Without a thread it waits for the next one.
        let _ = thread.spawn(move || while closers.drop_next() {});
    }

    /// False if nothing is left.
    fn drop_next(&self) -> bool {
        let Some((uid, what)) = self.state().left.pop() else { return false };
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

    /// Its drop ends when the other end of the channel goes.
    struct Hangs(Receiver<()>);

    impl Drop for Hangs {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn closings_that_hang_delay_no_other() {
        let most = Arc::new(Mutex::new(Pending::new()));
        let told = Arc::clone(&most);
        let closers = Closers::<Hangs>::new(move |pending| *told.lock().unwrap() = pending.clone());
        let (holds, hanging): (Vec<_>, Vec<_>) = (0..300).map(|_| channel()).unzip();
        hanging.into_iter().for_each(|receiver| closers.drop_elsewhere(7, Hangs(receiver)));
        let (hold, other) = channel();
        drop(hold);
        closers.drop_elsewhere(8, Hangs(other));
        wait_until(SOON, "the other user's is closed", || {
            *most.lock().unwrap() == Pending::from([(7, 300)])
        });
        drop(holds);
        wait_until(SOON, "all are closed", || closers.pending() == 0);
        assert!(most.lock().unwrap().is_empty());
    }
}
