//! When a role is started, stopped, killed and started again: a pure state machine for each process,
//! without clock and without processes.
//!
//! A role that ends is started again, at first soon and then less and less often; nothing is ever
//! given up. One that hangs, by not getting ready or not answering, is killed and started again.

use std::time::{Duration, Instant};

/// The times that decisions go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Pause before the first restart. Doubles with every further one.
    pub pause_first: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// A life of this length makes the next pause the first one again.
    pub healthy: Duration,
    /// From the start of a process to its readiness.
    pub start: Duration,
    /// From SIGTERM to SIGKILL.
    pub stop: Duration,
    /// Pings without an answer, one after the other, after which a role is killed.
    pub misses: u32,
}

impl Times {
    /// For roles. Opening a large cache that was not closed may take its time.
    pub const ROLE: Self = Self {
        pause_first: Duration::from_millis(100),
        pause_max: Duration::from_secs(10),
        healthy: Duration::from_secs(30),
        start: Duration::from_secs(120),
        stop: Duration::from_secs(5),
        misses: 3,
    };
    /// For the bus, which has nothing to read or write.
    pub const BUS: Self =
        Self { start: Duration::from_secs(10), stop: Duration::from_secs(2), ..Self::ROLE };
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none until its socket is used.
    Idle,
    /// There is none until then, or later if what it needs is not there.
    Waiting {
        /// The earliest start.
        until: Instant,
    },
    /// It runs and is not ready.
    Starting {
        /// When it is given up on.
        until: Instant,
    },
    /// It runs and is ready.
    Running {
        /// Pings without an answer.
        misses: u32,
    },
    /// It was told to end.
    Stopping {
        /// When it is killed; none when it was.
        until: Option<Instant>,
        /// What comes after.
        then: Then,
    },
    /// It ended and is not to come back.
    Gone,
}

/// What follows when a process that is to end has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It starts again at once.
    Start,
    /// It starts again after a pause, for it did not work.
    Pause,
    /// Nothing.
    Gone,
}

/// Everything that decisions about one process depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Where it stands.
    pub phase: Phase,
    /// When the present or last process was started.
    pub started: Instant,
    /// The next pause before a restart.
    pub pause: Duration,
    /// Processes started so far.
    pub starts: u32,
    /// Whether a process is started by the use of its socket only.
    pub on_use: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time went by. `may_start` tells whether what the role needs, the bus, is there.
    Time {
        /// Whether a start makes sense.
        may_start: bool,
    },
    /// Somebody connected to its socket.
    Used,
    /// It has its name on the bus.
    Ready,
    /// It answered a ping.
    Answered,
    /// It did not answer a ping in time.
    Missed,
    /// The process ended, or could not be started.
    Ended,
    /// It must end and come back: it is to run by other settings, or has lost the bus.
    Restart,
    /// It must end.
    Stop,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Start a process.
    Start,
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
}

impl State {
    /// Before the first start.
    #[must_use]
    pub fn new(now: Instant, times: &Times, on_use: bool) -> Self {
        let phase = if on_use { Phase::Idle } else { Phase::Waiting { until: now } };
        Self { phase, started: now, pause: times.pause_first, starts: 0, on_use }
    }

    /// When [`Event::Time`] may lead to something, if ever.
    #[must_use]
    pub fn wake(&self, may_start: bool) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { .. } if !may_start && !self.on_use => None,
            Phase::Waiting { until } | Phase::Starting { until } => Some(until),
            Phase::Stopping { until, .. } => until,
            Phase::Idle | Phase::Running { .. } | Phase::Gone => None,
        }
    }

    fn is_process(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. }
        )
    }
}

/// The state after `event`, and what to do.
#[must_use]
pub fn decide(now: Instant, state: State, event: Event, times: &Times) -> (State, Action) {
    let to = |phase, action| (State { phase, ..state }, action);
    let killed = to(Phase::Stopping { until: None, then: Then::Pause }, Action::Kill);
    let nothing = (state, Action::Nothing);
    match (event, state.phase) {
        (Event::Time { may_start }, Phase::Waiting { until }) if until <= now => {
            match (state.on_use, may_start) {
                (true, _) => to(Phase::Idle, Action::Nothing),
                (false, true) => start(now, state, times),
                (false, false) => nothing,
            }
        }
        (Event::Time { .. }, Phase::Starting { until }) if until <= now => killed,
        (Event::Time { .. }, Phase::Stopping { until: Some(until), then }) if until <= now => {
            to(Phase::Stopping { until: None, then }, Action::Kill)
        }
        (Event::Time { .. }, _) => nothing,

        (Event::Used, Phase::Idle) => start(now, state, times),
        (Event::Used, _) => nothing,

        (Event::Ready, Phase::Starting { .. }) => to(Phase::Running { misses: 0 }, Action::Nothing),
        (Event::Ready, _) => nothing,

        (Event::Answered, Phase::Running { .. }) => {
            to(Phase::Running { misses: 0 }, Action::Nothing)
        }
        (Event::Missed, Phase::Running { misses }) if misses + 1 < times.misses => {
            to(Phase::Running { misses: misses + 1 }, Action::Nothing)
        }
        (Event::Missed, Phase::Running { .. }) => killed,
        (Event::Answered | Event::Missed, _) => nothing,

        (Event::Ended, Phase::Stopping { then: Then::Gone, .. }) => {
            to(Phase::Gone, Action::Nothing)
        }
        (Event::Ended, Phase::Stopping { then: Then::Start, .. }) => {
            to(Phase::Waiting { until: now }, Action::Nothing)
        }
        (Event::Ended, _) if state.is_process() => pause(now, state, times),
        (Event::Ended, _) => nothing,

        (Event::Restart, Phase::Starting { .. } | Phase::Running { .. }) => {
            stop(now, state, Then::Start, times)
        }
        (Event::Restart, Phase::Waiting { .. }) => {
            let phase = Phase::Waiting { until: now };
            (State { phase, pause: times.pause_first, ..state }, Action::Nothing)
        }
        (Event::Restart, Phase::Stopping { until, .. }) => {
            to(Phase::Stopping { until, then: Then::Start }, Action::Nothing)
        }
        (Event::Restart, Phase::Gone) => {
            to(State::new(now, times, state.on_use).phase, Action::Nothing)
        }
        (Event::Restart, Phase::Idle) => nothing,

        (Event::Stop, Phase::Starting { .. } | Phase::Running { .. }) => {
            stop(now, state, Then::Gone, times)
        }
        (Event::Stop, Phase::Stopping { until, .. }) => {
            to(Phase::Stopping { until, then: Then::Gone }, Action::Nothing)
        }
        (Event::Stop, _) => to(Phase::Gone, Action::Nothing),
    }
}

fn start(now: Instant, state: State, times: &Times) -> (State, Action) {
    let phase = Phase::Starting { until: now + times.start };
    (State { phase, started: now, starts: state.starts + 1, ..state }, Action::Start)
}

fn stop(now: Instant, state: State, then: Then, times: &Times) -> (State, Action) {
    let phase = Phase::Stopping { until: Some(now + times.stop), then };
    (State { phase, ..state }, Action::Terminate)
}

/// A process ended that should not have, or had to be killed.
fn pause(now: Instant, state: State, times: &Times) -> (State, Action) {
    let lived = now.saturating_duration_since(state.started);
    let pause = if lived >= times.healthy { times.pause_first } else { state.pause };
    let phase = Phase::Waiting { until: now + pause };
    (State { phase, pause: (pause * 2).min(times.pause_max), ..state }, Action::Nothing)
}
