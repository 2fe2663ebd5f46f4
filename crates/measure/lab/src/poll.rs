// SPDX-License-Identifier: MIT OR Apache-2.0
//! The epoll of a thread: waits for sockets and processes of many users, and for times finer than the milliseconds of
//! epoll. Engines, such as `message_engine`, read the sockets.
//!
//! Most waits have no timeout, because setting a timer before each one costs more than the system call, especially in a
//! virtual machine. A periodic timer ends them.

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

/// Event data of the one-shot timer.
const TIMER: u64 = u64::MAX;
/// Event data of the periodic timer.
const TICKS: u64 = TIMER - 1;
/// Maximum duration of a wait.
const TICK: Duration = Duration::from_millis(5);
/// Maximum number of events of a wait.
const EVENTS_MAX: usize = 256;

/// The epoll of a thread.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    ticks: OwnedFd,
}

/// An event of a user's socket or process.
#[derive(Clone, Copy, Debug)]
pub struct ReadyEvent {
    /// The user.
    pub user: usize,
    /// Whether the other side has closed. The engine then reads to the end, because no further event follows.
    pub is_last: bool,
}

impl Poller {
    /// Creates the epoll of the calling thread. Sets the timer slack of the thread to the minimum, because the default of
    /// 50 µs is large for a reply within a millisecond.
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

    /// Adds a source. Events are edge-triggered, so the engine reads to the end. Closing the source removes it.
    pub fn add(&self, source: impl AsFd, user: usize) -> io::Result<()> {
        self.watch(source, user, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)
    }

    /// Adds a UDP socket without events for writing, which would follow every sent datagram.
    pub fn add_datagrams(&self, source: impl AsFd, user: usize) -> io::Result<()> {
        self.watch(source, user, EventFlags::IN)
    }

    fn watch(&self, source: impl AsFd, user: usize, events: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(user as u64);
        Ok(epoll::add(&self.epoll, source, data, events | EventFlags::ET)?)
    }

    /// Waits for events, for `at_most` or a few milliseconds.
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
            // The caller checks the flag of the signal.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.clear();
        let last = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        for event in buffer.iter() {
            let flags = event.flags;
            match event.data.u64() {
                TIMER => {}
                // A read arms the edge for the next tick.
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
