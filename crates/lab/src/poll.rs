//! Waiting for sockets and processes of many users at once, and for times that are finer than the
//! milliseconds of epoll. Each thread has one.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// What the timer is called by.
const TIMER: u64 = u64::MAX;
/// Events that are taken at once.
const EVENTS_MAX: usize = 256;

/// A thread's epoll.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

/// Something happened to what a user waits for.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Whose it is.
    pub user: usize,
}

impl Poll {
    /// For the thread that calls, whose timers then are not put together with others to save power:
    /// 50 microseconds are much against an answer of one millisecond.
    pub fn new() -> io::Result<Self> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let data = EventData::new_u64(TIMER);
        epoll::add(&epoll, &timer, data, EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, timer })
    }

    /// Tells of everything that happens to a socket from now on, once for each time: whoever is told
    /// reads to the end. It is forgotten when it is closed.
    pub fn add(&self, source: impl AsFd, user: usize) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(user as u64);
        Ok(epoll::add(&self.epoll, source, data, flags)?)
    }

    /// Waits for events, at most so long. `fine` asks for better than milliseconds.
    pub fn wait(
        &self,
        at_most: Duration,
        fine: bool,
        buffer: &mut Vec<Event>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        let mut at_most = at_most;
        if fine && !at_most.is_zero() {
            self.arm(at_most)?;
            // The timer comes first; this is for the case that it does not.
            at_most += Duration::from_millis(1);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        buffer.clear();
        buffer.reserve(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(buffer), Some(&timeout)) {
            // A signal: whoever waits looks after it.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.clear();
        let users = buffer.iter().map(|event| event.data.u64()).filter(|&data| data != TIMER);
        ready.extend(users.filter_map(|user| Some(Ready { user: usize::try_from(user).ok()? })));
        Ok(())
    }

    fn arm(&self, after: Duration) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: never, it_value: after };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}
