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
    /// It must end and come back: it is to run by other settings.
    Restart,
    /// It lost the bus, without which it ends if it has not yet. That counts as a failure: a bus that
    /// drops everybody again and again gets no more starts than a role that dies again and again.
    Cut,
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

        (Event::Cut, Phase::Starting { .. } | Phase::Running { .. }) => {
            stop(now, state, Then::Pause, times)
        }
        (Event::Cut, _) => nothing,

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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times::ROLE;

    /// A state machine and its clock.
    struct Run {
        zero: Instant,
        now: Instant,
        state: State,
    }

    impl Run {
        fn new(on_use: bool) -> Self {
            let zero = Instant::now();
            Self { zero, now: zero, state: State::new(zero, &TIMES, on_use) }
        }

        /// The action at that many seconds from the beginning.
        fn at(&mut self, seconds: f64, event: Event) -> Action {
            self.now = self.zero + Duration::from_secs_f64(seconds);
            let (state, action) = decide(self.now, self.state, event, &TIMES);
            self.state = state;
            action
        }

        fn wakes_after(&self) -> Option<f64> {
            let wake = self.state.wake(true)?;
            Some(wake.saturating_duration_since(self.now).as_secs_f64())
        }
    }

    const TIME: Event = Event::Time { may_start: true };
    const TIME_WITHOUT_BUS: Event = Event::Time { may_start: false };

    #[test]
    fn pauses_double_up_to_a_bound_and_nothing_is_given_up() {
        let mut run = Run::new(false);
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(run.at(now, TIME), Action::Start);
            assert_eq!(run.at(now, Event::Ended), Action::Nothing);
            let pause = run.wakes_after().unwrap();
            assert_eq!(run.at(now + pause * 0.9, TIME), Action::Nothing, "too early");
            pauses.push(pause);
            now += pause + 0.001;
        }
        let expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0, 10.0];
        assert!(pauses.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pauses:?}");
        assert_eq!(run.state.starts, 12);
    }

    #[test]
    fn a_long_life_makes_the_next_pause_short_again() {
        let mut run = Run::new(false);
        for start in [0.0, 1.0, 2.0] {
            run.at(start, TIME);
            run.at(start, Event::Ended);
        }
        run.at(3.0, TIME);
        run.at(3.0, Event::Ready);
        run.at(34.0, Event::Ended);
        assert!((run.wakes_after().unwrap() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn nothing_starts_without_the_bus_and_nothing_spins_meanwhile() {
        let mut run = Run::new(false);
        assert_eq!(run.at(0.0, TIME_WITHOUT_BUS), Action::Nothing);
        assert_eq!(run.state.wake(false), None);
        assert_eq!(run.at(9.0, TIME), Action::Start);
    }

    #[test]
    fn who_does_not_get_ready_is_killed_and_pauses() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        assert_eq!(run.at(119.0, TIME), Action::Nothing);
        assert_eq!(run.at(120.0, TIME), Action::Kill);
        assert_eq!(run.at(130.0, TIME), Action::Nothing, "killed once");
        assert_eq!(run.at(131.0, Event::Ended), Action::Nothing);
        assert!(matches!(run.state.phase, Phase::Waiting { .. }));
    }

    #[test]
    fn three_pings_missed_in_a_row_are_too_many() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        run.at(1.0, Event::Ready);
        for _ in 0..5 {
            assert_eq!(run.at(10.0, Event::Missed), Action::Nothing);
            assert_eq!(run.at(20.0, Event::Missed), Action::Nothing);
            assert_eq!(run.at(30.0, Event::Answered), Action::Nothing);
        }
        assert_eq!(run.at(40.0, Event::Missed), Action::Nothing);
        assert_eq!(run.at(50.0, Event::Missed), Action::Nothing);
        assert_eq!(run.at(60.0, Event::Missed), Action::Kill);
        assert_eq!(run.at(70.0, Event::Missed), Action::Nothing, "it is dead already");
    }

    #[test]
    fn who_serves_a_socket_starts_with_its_use() {
        let mut run = Run::new(true);
        assert_eq!(run.at(0.0, TIME), Action::Nothing);
        assert_eq!(run.at(5.0, Event::Used), Action::Start);
        assert_eq!(run.at(5.1, Event::Used), Action::Nothing, "once");
        run.at(5.2, Event::Ready);
        run.at(6.0, Event::Ended);
        assert_eq!(run.at(6.05, Event::Used), Action::Nothing, "pauses first");
        assert_eq!(run.at(6.2, TIME), Action::Nothing);
        assert_eq!(run.state.phase, Phase::Idle);
        assert_eq!(run.at(6.3, Event::Used), Action::Start);
    }

    #[test]
    fn who_must_end_gets_time_for_it_and_then_none() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        run.at(0.0, Event::Ready);
        assert_eq!(run.at(1.0, Event::Stop), Action::Terminate);
        assert_eq!(run.at(2.0, Event::Stop), Action::Nothing, "once");
        assert_eq!(run.at(5.9, TIME), Action::Nothing);
        assert_eq!(run.at(6.0, TIME), Action::Kill);
        run.at(6.1, Event::Ended);
        assert_eq!(run.state.phase, Phase::Gone);
        assert_eq!(run.at(7.0, TIME), Action::Nothing);
    }

    #[test]
    fn who_runs_by_other_settings_comes_back_at_once() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        run.at(0.0, Event::Ready);
        assert_eq!(run.at(1.0, Event::Restart), Action::Terminate);
        run.at(1.5, Event::Ended);
        assert_eq!(run.at(1.5, TIME), Action::Start);
        // While it pauses after a failure the pause is over.
        run.at(2.0, Event::Ended);
        run.at(2.0, Event::Restart);
        assert_eq!(run.at(2.0, TIME), Action::Start);
    }

    #[test]
    fn what_is_wanted_again_while_it_ends_comes_back() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        run.at(1.0, Event::Stop);
        run.at(1.1, Event::Restart);
        run.at(1.2, Event::Ended);
        assert_eq!(run.at(1.2, TIME), Action::Start);
    }

    #[test]
    fn who_is_to_go_goes_though_the_bus_is_lost_meanwhile() {
        let mut run = Run::new(false);
        run.at(0.0, TIME);
        run.at(0.1, Event::Ready);
        run.at(1.0, Event::Stop);
        assert_eq!(run.at(1.1, Event::Cut), Action::Nothing);
        run.at(1.2, Event::Ended);
        assert_eq!(run.state.phase, Phase::Gone);
    }

    #[test]
    fn a_bus_that_drops_a_role_again_and_again_makes_its_pauses_longer() {
        let mut run = Run::new(false);
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(run.at(now, TIME), Action::Start);
            run.at(now, Event::Ready);
            assert_eq!(run.at(now, Event::Cut), Action::Terminate);
            run.at(now, Event::Ended);
            // Who pauses already pauses no longer and no shorter.
            assert_eq!(run.at(now, Event::Cut), Action::Nothing);
            let pause = run.wakes_after().unwrap();
            pauses.push(pause);
            now += pause + 0.001;
        }
        let expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0];
        assert!(pauses.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pauses:?}");
    }

    #[test]
    fn no_event_in_any_phase_is_out_of_place() {
        let now = Instant::now();
        let events = [
            TIME,
            TIME_WITHOUT_BUS,
            Event::Used,
            Event::Ready,
            Event::Answered,
            Event::Missed,
            Event::Ended,
            Event::Restart,
            Event::Cut,
            Event::Stop,
        ];
        let phases = [
            Phase::Idle,
            Phase::Waiting { until: now },
            Phase::Starting { until: now },
            Phase::Running { misses: 2 },
            Phase::Stopping { until: Some(now), then: Then::Start },
            Phase::Stopping { until: None, then: Then::Pause },
            Phase::Stopping { until: None, then: Then::Gone },
            Phase::Gone,
        ];
        for phase in phases {
            for event in events {
                for on_use in [false, true] {
                    let state = State { phase, ..State::new(now, &TIMES, on_use) };
                    let (after, action) = decide(now, state, event, &TIMES);
                    let case = (phase, event, on_use, after.phase, action);
                    // A process is started only where there is none, and signalled only where
                    // there is one.
                    match action {
                        Action::Start => assert!(!state.is_process(), "{case:?}"),
                        Action::Terminate | Action::Kill => assert!(state.is_process(), "{case:?}"),
                        Action::Nothing => {}
                    }
                    // Only its end makes a process be forgotten.
                    if state.is_process() && event != Event::Ended {
                        assert!(after.is_process(), "{case:?}");
                    }
                }
            }
        }
    }
}
