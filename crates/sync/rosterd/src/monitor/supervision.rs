// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides when a role is started, stopped, killed and restarted: a pure state machine for each process, without clock
//! and without processes. `spawn` starts and ends the processes.
//!
//! A role that ends is restarted, first soon and then with growing pauses, without a limit. A role that hangs is killed
//! and restarted: it does not become ready, or does not reply.

use std::time::{Duration, Instant};

/// Times for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisionTimes {
    /// Pause before the first restart. Doubles with every further one.
    pub pause_first: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// A process that ran for this time resets the pause to the first one.
    pub healthy: Duration,
    /// Time limit from the start of a process to its readiness.
    pub start: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub stop: Duration,
    /// Consecutive pings without a reply after which a role is killed.
    pub missed_pings_max: u32,
}

impl SupervisionTimes {
    /// For roles. Opening a large cache that was not closed may take its time.
    pub const ROLE: Self = Self {
        pause_first: Duration::from_millis(100),
        pause_max: Duration::from_secs(10),
        healthy: Duration::from_secs(30),
        start: Duration::from_secs(120),
        stop: Duration::from_secs(5),
        missed_pings_max: 3,
    };
    /// For the bus. It reads and writes no files.
    pub const BUS: Self =
        Self { start: Duration::from_secs(10), stop: Duration::from_secs(2), ..Self::ROLE };
}

/// The phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessPhase {
    /// There is no process until its socket is used.
    Idle,
    /// There is no process until then, or longer if the preconditions are not met.
    Waiting {
        /// The earliest start.
        until: Instant,
    },
    /// The process runs and is not ready.
    Starting {
        /// Time at which it is killed.
        until: Instant,
    },
    /// The process runs and is ready.
    Running {
        /// Pings without a reply.
        misses: u32,
    },
    /// The process got a stop request.
    Stopping {
        /// Time at which it is killed; `None` if it was.
        until: Option<Instant>,
        /// The next phase.
        then: NextPhase,
    },
    /// The role ended for good.
    Gone,
}

/// The phase after the requested end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPhase {
    /// The role restarts at once.
    Start,
    /// The role restarts after a pause, because it failed.
    Pause,
    /// The role ends for good.
    End,
}

/// The state that decisions about one process depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessState {
    /// The present phase.
    pub phase: ProcessPhase,
    /// Start of the present or last process.
    pub started: Instant,
    /// The next pause before a restart.
    pub pause: Duration,
    /// Processes started so far.
    pub starts: u32,
    /// Whether a process starts only when its socket is used.
    pub is_socket_activated: bool,
}

/// Events of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Time has passed. `may_start` states whether the precondition of the role, the bus, is met.
    Tick {
        /// Whether a start is possible.
        may_start: bool,
    },
    /// A client connected to its socket.
    SocketUsed,
    /// The role has its name on the bus.
    Ready,
    /// The role replied to a ping.
    PingAnswered,
    /// The role did not reply to a ping in time.
    PingMissed,
    /// The process ended, or could not be started.
    Ended,
    /// The role must end and start again with other settings.
    Restart,
    /// The role lost the bus, and must end if it has not yet. This counts as a failure: a bus that drops all connections
    /// repeatedly causes no more starts than a role that ends repeatedly.
    BusLost,
    /// The role must end.
    Stop,
}

/// Actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessAction {
    /// Nothing.
    Nothing,
    /// Start a process.
    Start,
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
}

impl ProcessState {
    /// Makes the state before the first start.
    #[must_use]
    pub fn new(now: Instant, times: &SupervisionTimes, on_use: bool) -> Self {
        let phase = if on_use { ProcessPhase::Idle } else { ProcessPhase::Waiting { until: now } };
        Self {
            phase,
            started: now,
            pause: times.pause_first,
            starts: 0,
            is_socket_activated: on_use,
        }
    }

    /// Returns the next time at which [`ProcessEvent::Tick`] may have an effect, if any.
    #[must_use]
    pub fn next_wake(&self, may_start: bool) -> Option<Instant> {
        match self.phase {
            ProcessPhase::Waiting { .. } if !may_start && !self.is_socket_activated => None,
            ProcessPhase::Waiting { until } | ProcessPhase::Starting { until } => Some(until),
            ProcessPhase::Stopping { until, .. } => until,
            ProcessPhase::Idle | ProcessPhase::Running { .. } | ProcessPhase::Gone => None,
        }
    }

    fn is_process(&self) -> bool {
        matches!(
            self.phase,
            ProcessPhase::Starting { .. }
                | ProcessPhase::Running { .. }
                | ProcessPhase::Stopping { .. }
        )
    }
}

/// Returns the state after `event`, and the action.
#[must_use]
pub fn decide(
    now: Instant,
    state: ProcessState,
    event: ProcessEvent,
    times: &SupervisionTimes,
) -> (ProcessState, ProcessAction) {
    let to = |phase, action| (ProcessState { phase, ..state }, action);
    let killed =
        to(ProcessPhase::Stopping { until: None, then: NextPhase::Pause }, ProcessAction::Kill);
    let nothing = (state, ProcessAction::Nothing);
    match (event, state.phase) {
        (ProcessEvent::Tick { may_start }, ProcessPhase::Waiting { until }) if until <= now => {
            match (state.is_socket_activated, may_start) {
                (true, _) => to(ProcessPhase::Idle, ProcessAction::Nothing),
                (false, true) => start(now, state, times),
                (false, false) => nothing,
            }
        }
        (ProcessEvent::Tick { .. }, ProcessPhase::Starting { until }) if until <= now => killed,
        (ProcessEvent::Tick { .. }, ProcessPhase::Stopping { until: Some(until), then })
            if until <= now =>
        {
            to(ProcessPhase::Stopping { until: None, then }, ProcessAction::Kill)
        }
        (ProcessEvent::Tick { .. }, _) => nothing,

        (ProcessEvent::SocketUsed, ProcessPhase::Idle) => start(now, state, times),
        (ProcessEvent::SocketUsed, _) => nothing,

        (ProcessEvent::Ready, ProcessPhase::Starting { .. }) => {
            to(ProcessPhase::Running { misses: 0 }, ProcessAction::Nothing)
        }
        (ProcessEvent::Ready, _) => nothing,

        (ProcessEvent::PingAnswered, ProcessPhase::Running { .. }) => {
            to(ProcessPhase::Running { misses: 0 }, ProcessAction::Nothing)
        }
        (ProcessEvent::PingMissed, ProcessPhase::Running { misses })
            if misses + 1 < times.missed_pings_max =>
        {
            to(ProcessPhase::Running { misses: misses + 1 }, ProcessAction::Nothing)
        }
        (ProcessEvent::PingMissed, ProcessPhase::Running { .. }) => killed,
        (ProcessEvent::PingAnswered | ProcessEvent::PingMissed, _) => nothing,

        (ProcessEvent::Ended, ProcessPhase::Stopping { then: NextPhase::End, .. }) => {
            to(ProcessPhase::Gone, ProcessAction::Nothing)
        }
        (ProcessEvent::Ended, ProcessPhase::Stopping { then: NextPhase::Start, .. }) => {
            to(ProcessPhase::Waiting { until: now }, ProcessAction::Nothing)
        }
        (ProcessEvent::Ended, _) if state.is_process() => pause(now, state, times),
        (ProcessEvent::Ended, _) => nothing,

        (ProcessEvent::Restart, _) => restart(now, state, times),

        (ProcessEvent::BusLost, ProcessPhase::Starting { .. } | ProcessPhase::Running { .. }) => {
            stop(now, state, NextPhase::Pause, times)
        }
        (ProcessEvent::BusLost, _) => nothing,

        (ProcessEvent::Stop, ProcessPhase::Starting { .. } | ProcessPhase::Running { .. }) => {
            stop(now, state, NextPhase::End, times)
        }
        (ProcessEvent::Stop, ProcessPhase::Stopping { until, .. }) => {
            to(ProcessPhase::Stopping { until, then: NextPhase::End }, ProcessAction::Nothing)
        }
        (ProcessEvent::Stop, _) => to(ProcessPhase::Gone, ProcessAction::Nothing),
    }
}

fn restart(
    now: Instant,
    state: ProcessState,
    times: &SupervisionTimes,
) -> (ProcessState, ProcessAction) {
    let phase = match state.phase {
        ProcessPhase::Starting { .. } | ProcessPhase::Running { .. } => {
            return stop(now, state, NextPhase::Start, times);
        }
        ProcessPhase::Waiting { .. } => {
            let phase = ProcessPhase::Waiting { until: now };
            return (
                ProcessState { phase, pause: times.pause_first, ..state },
                ProcessAction::Nothing,
            );
        }
        ProcessPhase::Stopping { until, .. } => {
            ProcessPhase::Stopping { until, then: NextPhase::Start }
        }
        ProcessPhase::Gone => ProcessState::new(now, times, state.is_socket_activated).phase,
        ProcessPhase::Idle => state.phase,
    };
    (ProcessState { phase, ..state }, ProcessAction::Nothing)
}

fn start(
    now: Instant,
    state: ProcessState,
    times: &SupervisionTimes,
) -> (ProcessState, ProcessAction) {
    let phase = ProcessPhase::Starting { until: now + times.start };
    (ProcessState { phase, started: now, starts: state.starts + 1, ..state }, ProcessAction::Start)
}

fn stop(
    now: Instant,
    state: ProcessState,
    then: NextPhase,
    times: &SupervisionTimes,
) -> (ProcessState, ProcessAction) {
    let phase = ProcessPhase::Stopping { until: Some(now + times.stop), then };
    (ProcessState { phase, ..state }, ProcessAction::Terminate)
}

/// Handles an unexpected end of a process, or the end after a kill.
fn pause(
    now: Instant,
    state: ProcessState,
    times: &SupervisionTimes,
) -> (ProcessState, ProcessAction) {
    let lived = now.saturating_duration_since(state.started);
    let pause = if lived >= times.healthy { times.pause_first } else { state.pause };
    let phase = ProcessPhase::Waiting { until: now + pause };
    (
        ProcessState { phase, pause: (pause * 2).min(times.pause_max), ..state },
        ProcessAction::Nothing,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: SupervisionTimes = SupervisionTimes::ROLE;

    /// A state machine and its clock.
    struct TestMachine {
        zero: Instant,
        now: Instant,
        state: ProcessState,
    }

    impl TestMachine {
        fn new(on_use: bool) -> Self {
            let zero = Instant::now();
            Self { zero, now: zero, state: ProcessState::new(zero, &TIMES, on_use) }
        }

        /// Applies an event at that many seconds from the beginning, and returns the action.
        fn at(&mut self, seconds: f64, event: ProcessEvent) -> ProcessAction {
            self.now = self.zero + Duration::from_secs_f64(seconds);
            let (state, action) = decide(self.now, self.state, event, &TIMES);
            self.state = state;
            action
        }

        fn wakes_after(&self) -> Option<f64> {
            let wake = self.state.next_wake(true)?;
            Some(wake.saturating_duration_since(self.now).as_secs_f64())
        }
    }

    const TIME: ProcessEvent = ProcessEvent::Tick { may_start: true };
    const TIME_WITHOUT_BUS: ProcessEvent = ProcessEvent::Tick { may_start: false };

    #[test]
    fn pauses_double_up_to_a_bound_and_nothing_is_given_up() {
        let mut run = TestMachine::new(false);
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(run.at(now, TIME), ProcessAction::Start);
            assert_eq!(run.at(now, ProcessEvent::Ended), ProcessAction::Nothing);
            let pause = run.wakes_after().unwrap();
            assert_eq!(run.at(now + pause * 0.9, TIME), ProcessAction::Nothing, "too early");
            pauses.push(pause);
            now += pause + 0.001;
        }
        let expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0, 10.0];
        assert!(pauses.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pauses:?}");
        assert_eq!(run.state.starts, 12);
    }

    #[test]
    fn a_long_life_makes_the_next_pause_short_again() {
        let mut run = TestMachine::new(false);
        for start in [0.0, 1.0, 2.0] {
            run.at(start, TIME);
            run.at(start, ProcessEvent::Ended);
        }
        run.at(3.0, TIME);
        run.at(3.0, ProcessEvent::Ready);
        run.at(34.0, ProcessEvent::Ended);
        assert!((run.wakes_after().unwrap() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn nothing_starts_without_the_bus_and_nothing_spins_meanwhile() {
        let mut run = TestMachine::new(false);
        assert_eq!(run.at(0.0, TIME_WITHOUT_BUS), ProcessAction::Nothing);
        assert_eq!(run.state.next_wake(false), None);
        assert_eq!(run.at(9.0, TIME), ProcessAction::Start);
    }

    #[test]
    fn who_does_not_get_ready_is_killed_and_pauses() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        assert_eq!(run.at(119.0, TIME), ProcessAction::Nothing);
        assert_eq!(run.at(120.0, TIME), ProcessAction::Kill);
        assert_eq!(run.at(130.0, TIME), ProcessAction::Nothing, "killed once");
        assert_eq!(run.at(131.0, ProcessEvent::Ended), ProcessAction::Nothing);
        assert!(matches!(run.state.phase, ProcessPhase::Waiting { .. }));
    }

    #[test]
    fn three_pings_missed_in_a_row_are_too_many() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        run.at(1.0, ProcessEvent::Ready);
        for _ in 0..5 {
            assert_eq!(run.at(10.0, ProcessEvent::PingMissed), ProcessAction::Nothing);
            assert_eq!(run.at(20.0, ProcessEvent::PingMissed), ProcessAction::Nothing);
            assert_eq!(run.at(30.0, ProcessEvent::PingAnswered), ProcessAction::Nothing);
        }
        assert_eq!(run.at(40.0, ProcessEvent::PingMissed), ProcessAction::Nothing);
        assert_eq!(run.at(50.0, ProcessEvent::PingMissed), ProcessAction::Nothing);
        assert_eq!(run.at(60.0, ProcessEvent::PingMissed), ProcessAction::Kill);
        assert_eq!(
            run.at(70.0, ProcessEvent::PingMissed),
            ProcessAction::Nothing,
            "it is dead already"
        );
    }

    #[test]
    fn who_serves_a_socket_starts_with_its_use() {
        let mut run = TestMachine::new(true);
        assert_eq!(run.at(0.0, TIME), ProcessAction::Nothing);
        assert_eq!(run.at(5.0, ProcessEvent::SocketUsed), ProcessAction::Start);
        assert_eq!(run.at(5.1, ProcessEvent::SocketUsed), ProcessAction::Nothing, "once");
        run.at(5.2, ProcessEvent::Ready);
        run.at(6.0, ProcessEvent::Ended);
        assert_eq!(run.at(6.05, ProcessEvent::SocketUsed), ProcessAction::Nothing, "pauses first");
        assert_eq!(run.at(6.2, TIME), ProcessAction::Nothing);
        assert_eq!(run.state.phase, ProcessPhase::Idle);
        assert_eq!(run.at(6.3, ProcessEvent::SocketUsed), ProcessAction::Start);
    }

    #[test]
    fn who_must_end_gets_time_for_it_and_then_none() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        run.at(0.0, ProcessEvent::Ready);
        assert_eq!(run.at(1.0, ProcessEvent::Stop), ProcessAction::Terminate);
        assert_eq!(run.at(2.0, ProcessEvent::Stop), ProcessAction::Nothing, "once");
        assert_eq!(run.at(5.9, TIME), ProcessAction::Nothing);
        assert_eq!(run.at(6.0, TIME), ProcessAction::Kill);
        run.at(6.1, ProcessEvent::Ended);
        assert_eq!(run.state.phase, ProcessPhase::Gone);
        assert_eq!(run.at(7.0, TIME), ProcessAction::Nothing);
    }

    #[test]
    fn who_runs_by_other_settings_comes_back_at_once() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        run.at(0.0, ProcessEvent::Ready);
        assert_eq!(run.at(1.0, ProcessEvent::Restart), ProcessAction::Terminate);
        run.at(1.5, ProcessEvent::Ended);
        assert_eq!(run.at(1.5, TIME), ProcessAction::Start);
        // During a pause after a failure, a restart ends the pause.
        run.at(2.0, ProcessEvent::Ended);
        run.at(2.0, ProcessEvent::Restart);
        assert_eq!(run.at(2.0, TIME), ProcessAction::Start);
    }

    #[test]
    fn what_is_wanted_again_while_it_ends_comes_back() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        run.at(1.0, ProcessEvent::Stop);
        run.at(1.1, ProcessEvent::Restart);
        run.at(1.2, ProcessEvent::Ended);
        assert_eq!(run.at(1.2, TIME), ProcessAction::Start);
    }

    #[test]
    fn who_is_to_go_goes_though_the_bus_is_lost_meanwhile() {
        let mut run = TestMachine::new(false);
        run.at(0.0, TIME);
        run.at(0.1, ProcessEvent::Ready);
        run.at(1.0, ProcessEvent::Stop);
        assert_eq!(run.at(1.1, ProcessEvent::BusLost), ProcessAction::Nothing);
        run.at(1.2, ProcessEvent::Ended);
        assert_eq!(run.state.phase, ProcessPhase::Gone);
    }

    #[test]
    fn a_bus_that_drops_a_role_again_and_again_makes_its_pauses_longer() {
        let mut run = TestMachine::new(false);
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(run.at(now, TIME), ProcessAction::Start);
            run.at(now, ProcessEvent::Ready);
            assert_eq!(run.at(now, ProcessEvent::BusLost), ProcessAction::Terminate);
            run.at(now, ProcessEvent::Ended);
            // A process that waits already continues with the same pause.
            assert_eq!(run.at(now, ProcessEvent::BusLost), ProcessAction::Nothing);
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
            ProcessEvent::SocketUsed,
            ProcessEvent::Ready,
            ProcessEvent::PingAnswered,
            ProcessEvent::PingMissed,
            ProcessEvent::Ended,
            ProcessEvent::Restart,
            ProcessEvent::BusLost,
            ProcessEvent::Stop,
        ];
        let phases = [
            ProcessPhase::Idle,
            ProcessPhase::Waiting { until: now },
            ProcessPhase::Starting { until: now },
            ProcessPhase::Running { misses: 2 },
            ProcessPhase::Stopping { until: Some(now), then: NextPhase::Start },
            ProcessPhase::Stopping { until: None, then: NextPhase::Pause },
            ProcessPhase::Stopping { until: None, then: NextPhase::End },
            ProcessPhase::Gone,
        ];
        for phase in phases {
            for event in events {
                for on_use in [false, true] {
                    let state = ProcessState { phase, ..ProcessState::new(now, &TIMES, on_use) };
                    let (after, action) = decide(now, state, event, &TIMES);
                    let case = (phase, event, on_use, after.phase, action);
                    // A process is started only if there is none, and signalled only if there is one.
                    match action {
                        ProcessAction::Start => assert!(!state.is_process(), "{case:?}"),
                        ProcessAction::Terminate | ProcessAction::Kill => {
                            assert!(state.is_process(), "{case:?}");
                        }
                        ProcessAction::Nothing => {}
                    }
                    // Only its end removes a process.
                    if state.is_process() && event != ProcessEvent::Ended {
                        assert!(after.is_process(), "{case:?}");
                    }
                }
            }
        }
    }
}
