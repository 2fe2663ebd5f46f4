//! Waiting for sockets and processes of many users at once, and for times that are finer than the
//! milliseconds of epoll. Each thread has one.
//!
//! No wait has a time of its own where it can be helped: to set a clock before each sleep costs more than
//! the system call, in a virtual machine above all. A timer that always ticks ends it.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, read};
use rustix::thread::set_current_timer_slack;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// What the timers are called by.
const TIMER: u64 = u64::MAX;
const TICKS: u64 = TIMER - 1;
/// The longest wait.
const TICK: Duration = Duration::from_millis(5);
/// Events that are taken at once.
const EVENTS_MAX: usize = 256;

/// A thread's epoll.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    ticks: OwnedFd,
}

/// Something happened to what a user waits for.
#[derive(Clone, Copy, Debug)]
pub struct ReadyEvent {
    /// Whose it is.
    pub user: usize,
    /// Whether the other side has said its last word, which then is to be read to the end: nothing more
    /// will be told.
    pub is_last: bool,
}

impl Poller {
    /// For the thread that calls, whose timers then are not put together with others to save power:
    /// 50 microseconds are much against an answer of one millisecond.
    pub fn new() -> io::Result<Self> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = |name| {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            epoll::add(&epoll, &timer, EventData::new_u64(name), EventFlags::IN | EventFlags::ET)?;
            io::Result::Ok(timer)
        };
        let (timer, ticks) = (timer(TIMER)?, timer(TICKS)?);
        set_timer(&ticks, TICK, TICK)?;
        Ok(Self { epoll, timer, ticks })
    }

    /// Tells of everything that happens to a socket from now on, once for each time: whoever is told
    /// reads to the end. It is forgotten when it is closed.
    pub fn add(&self, source: impl AsFd, user: usize) -> io::Result<()> {
        self.watch(source, user, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)
    }

    /// The same for a socket of datagrams, which never waits for room: each that was sent would be told
    /// of as room for the next.
    pub fn add_datagrams(&self, source: impl AsFd, user: usize) -> io::Result<()> {
        self.watch(source, user, EventFlags::IN)
    }

    fn watch(&self, source: impl AsFd, user: usize, events: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(user as u64);
        Ok(epoll::add(&self.epoll, source, data, events | EventFlags::ET)?)
    }

    /// Waits for events, at most a few milliseconds, or so long.
    pub fn wait(
        &self,
        at_most: Option<Duration>,
        buffer: &mut Vec<Event>,
        ready: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        let timeout = match at_most {
            Some(Duration::ZERO) => Some(Timespec::default()),
            Some(at_most) => {
                set_timer(&self.timer, at_most, Duration::ZERO)?;
                None
            }
            None => None,
        };
        buffer.clear();
        buffer.reserve(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(buffer), timeout.as_ref()) {
            // A signal: whoever waits looks after it.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.clear();
        let last = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        for event in buffer.iter() {
            let flags = event.flags;
            match event.data.u64() {
                TIMER => {}
                // It goes on only when it was read.
                TICKS => drop(read(&self.ticks, &mut [0; 8])),
                user => {
                    let user = usize::try_from(user).unwrap_or(usize::MAX);
                    ready.push(ReadyEvent { user, is_last: flags.intersects(last) });
                }
            }
        }
        Ok(())
    }
}

fn set_timer(timer: &OwnedFd, first: Duration, every: Duration) -> io::Result<()> {
    let spec = |time: Duration| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let times = Itimerspec { it_interval: spec(every), it_value: spec(first) };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &times)?;
    Ok(())
}
