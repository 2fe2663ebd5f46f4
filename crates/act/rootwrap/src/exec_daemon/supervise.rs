// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supervision of a running command: it forwards signals of the caller, reports stops, and kills the command after its
//! timeout or without its caller. `crate::exec` starts commands.

use super::frame_reader::{FrameReader, ReadOutcome};
use crate::exec::{Cgroup, StartedCommand, kill_descendants};
use roster_exec::protocol::{CommandEnd, CommandReply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    waitid,
};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// Time between SIGHUP, when the caller is gone, and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(5);
/// Interval at which a command is checked for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Signals that a caller may send: those of terminals, shells and services.
const FORWARDED: [Signal; 14] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::WINCH,
    Signal::KILL,
    Signal::STOP,
    Signal::ALARM,
    Signal::TTIN,
    Signal::TTOU,
];

/// Forwarded signals that stop a process.
const STOPPING: [Signal; 4] = [Signal::TSTP, Signal::STOP, Signal::TTIN, Signal::TTOU];

/// A command that has ended. The caller gets the reply before the rest of the work.
pub(super) struct EndedCommand {
    pub(super) end: CommandEnd,
    child: Child,
    _cgroup: Option<Cgroup>,
}

impl EndedCommand {
    /// Returns the bytes that the command and its waited-for children read and wrote. Afterwards another process may
    /// get its number.
    pub(super) fn reap(mut self) -> Option<IoBytes> {
        let bytes = fs::read_to_string(format!("/proc/{}/io", self.child.id())).ok();
        let _ = self.child.wait();
        parse_io_bytes(&bytes?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IoBytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// A running command. Its process group has its process id.
pub(super) struct RunningCommand {
    child: Child,
    cgroup: Option<Cgroup>,
    group: Pid,
    process: OwnedFd,
    deadline: Option<Instant>,
    has_timed_out: bool,
    /// The time at which it is killed after the loss of its caller.
    kill_deadline: Option<Instant>,
    /// True if the command may stop: on a terminal, and after a signal that stops. The kernel does not report a stop by
    /// the pidfd.
    may_stop: bool,
    /// The signal that stopped it, until it continues.
    stopped: Option<u32>,
    /// The stop has to be reported again.
    reports_stop_again: bool,
}

impl RunningCommand {
    /// An error: the command could not be supervised, and was killed.
    pub(super) fn new(
        started: StartedCommand,
        timeout: Option<Duration>,
        on_terminal: bool,
    ) -> io::Result<Self> {
        let StartedCommand { mut child, cgroup } = started;
        let group = Pid::from_child(&child);
        // The process was not waited for, so no other process has its number.
        match pidfd_open(group, PidfdFlags::empty()) {
            Ok(process) => Ok(Self {
                child,
                cgroup,
                group,
                process,
                deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
                has_timed_out: false,
                kill_deadline: None,
                may_stop: on_terminal,
                stopped: None,
                reports_stop_again: false,
            }),
            Err(error) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Supervises the command until it has ended.
    pub(super) fn supervise(
        mut self,
        incoming: &mut FrameReader<'_>,
        mut tell: impl FnMut(&CommandReply) -> io::Result<()>,
    ) -> io::Result<EndedCommand> {
        // Signals that arrived before the start are for the command, too.
        if self.forward_signals(incoming).is_err() {
            self.send_hangup();
        }
        loop {
            let Ok([has_ended, has_come]) = self.wait(incoming) else {
                self.kill();
                return self.into_ended();
            };
            if has_ended {
                return self.into_ended();
            }
            if has_come && self.read_signals(incoming).is_err() {
                self.send_hangup();
            }
            self.enforce_deadlines();
            if let Some(signal) = self.stopped_by()
                && tell(&CommandReply::Stopped(signal)).is_err()
            {
                self.send_hangup();
            }
        }
    }

    /// Waits for an event or a deadline. Returns whether the command has ended, and whether data has arrived.
    fn wait(&self, incoming: &FrameReader<'_>) -> io::Result<[bool; 2]> {
        let now = Instant::now();
        let look = self.may_stop.then(|| now + STOP_CHECK_INTERVAL);
        let next = [self.deadline, self.kill_deadline, look].into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = vec![PollFd::new(&self.process, PollFlags::IN)];
        if self.kill_deadline.is_none() {
            fds.push(PollFd::new(incoming.stream(), PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok([false; 2]),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok([is_ready(0), is_ready(1)])
    }

    /// An error: the caller is gone, or violated the protocol.
    fn read_signals(&mut self, incoming: &mut FrameReader<'_>) -> io::Result<()> {
        match incoming.read()? {
            ReadOutcome::End => Err(io::ErrorKind::ConnectionAborted.into()),
            ReadOutcome::Bytes | ReadOutcome::Nothing => self.forward_signals(incoming),
        }
    }

    fn forward_signals(&mut self, incoming: &mut FrameReader<'_>) -> io::Result<()> {
        if incoming.is_unexpected() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        while let Some(number) = incoming.next_signal()? {
            let passed_on = |signal: &&Signal| u32::try_from(signal.as_raw()) == Ok(number);
            if let Some(&signal) = FORWARDED.iter().find(passed_on) {
                self.signal(signal);
                let stops = STOPPING.contains(&signal);
                self.may_stop |= stops;
                // A client that stops the command again waits for a second report.
                self.reports_stop_again |= stops && self.stopped.is_some();
                self.stopped = self.stopped.filter(|_| signal != Signal::CONT);
            }
        }
        Ok(())
    }

    /// Kills all processes of the command, in its process group or not.
    fn kill(&mut self) {
        // The kill briefly stops the process, which is not to be reported.
        self.may_stop = false;
        if self.cgroup.as_mut().is_none_or(|cgroup| cgroup.kill().is_err()) {
            kill_descendants(self.group);
        }
        self.signal(Signal::KILL);
    }

    /// Signals the process group, which keeps its number until its first process is waited for.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    fn send_hangup(&mut self) {
        self.signal(Signal::HUP);
        self.signal(Signal::CONT);
        self.kill_deadline = Some(Instant::now() + KILL_DELAY);
        self.may_stop = false;
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        let is_past = |time: &mut Option<Instant>| time.take_if(|time| *time <= now).is_some();
        if is_past(&mut self.deadline) {
            self.has_timed_out = true;
            self.kill();
        }
        if self.kill_deadline.is_some_and(|time| time <= now) {
            self.kill();
            // A process that the kernel does not end yet is reported at its end.
            self.kill_deadline = now.checked_add(Duration::from_secs(86_400));
        }
    }

    fn stopped_by(&mut self) -> Option<u32> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status =
            if self.may_stop { waitid(WaitId::Pid(self.group), options) } else { Ok(None) };
        let signal = status.ok().flatten().and_then(|status| status.stopping_signal());
        let stopped = signal.and_then(|signal| u32::try_from(signal).ok());
        self.stopped = stopped.or(self.stopped);
        let tells_again = std::mem::take(&mut self.reports_stop_again);
        stopped.or(self.stopped.filter(|_| tells_again))
    }

    fn into_ended(self) -> io::Result<EndedCommand> {
        // The process stays a zombie, so that its number and its group's stay reserved.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = retry_on_intr(|| waitid(WaitId::Pid(self.group), options));
        // Without a caller or after the timeout the rest of the group is killed. After a normal end it may continue.
        if self.kill_deadline.is_some() || self.has_timed_out {
            self.signal(Signal::KILL);
        }
        let end = command_end(status?.as_ref(), self.has_timed_out);
        Ok(EndedCommand { end, child: self.child, _cgroup: self.cgroup })
    }
}

fn command_end(status: Option<&WaitIdStatus>, is_over: bool) -> CommandEnd {
    let number = |number: i32| u32::try_from(number).unwrap_or_default();
    match status.and_then(WaitIdStatus::terminating_signal) {
        Some(_) if is_over => CommandEnd::TimedOut,
        Some(signal) => CommandEnd::Died(number(signal)),
        None => CommandEnd::Exited(number(
            status.and_then(WaitIdStatus::exit_status).unwrap_or_default(),
        )),
    }
}

/// Parses /proc/PID/io.
fn parse_io_bytes(text: &str) -> Option<IoBytes> {
    let of =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(IoBytes { read: of("rchar:")?, written: of("wchar:")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    fn started(mut command: Command) -> StartedCommand {
        // Commands inherit an ignored SIGHUP, for example if the tests run under nohup(1).
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).unwrap();
        StartedCommand { child: command.spawn().unwrap(), cgroup: None }
    }

    fn run(script: &str, time: Option<Duration>, stream: &UnixStream) -> EndedCommand {
        run_with(script, time, &mut FrameReader::new(stream))
    }

    fn run_with(
        script: &str,
        time: Option<Duration>,
        incoming: &mut FrameReader<'_>,
    ) -> EndedCommand {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        let running = RunningCommand::new(started(command), time, false).unwrap();
        running.supervise(incoming, |_| Ok(())).unwrap()
    }

    #[test]
    fn the_end_is_told_as_it_was_with_the_bytes() {
        let (_client, stream) = UnixStream::pair().unwrap();
        assert_eq!(run("exit 7", None, &stream).end, CommandEnd::Exited(7));
        assert_eq!(run("kill -9 $$", None, &stream).end, CommandEnd::Died(9));
        // Both processes run forever.
        let endless = "sleep infinity & sleep infinity";
        let over = run(endless, Some(Duration::from_millis(50)), &stream);
        assert_eq!(over.end, CommandEnd::TimedOut);
        let bytes = run("head -c 100000 /dev/zero", None, &stream).reap();
        assert!(bytes.is_some_and(|bytes| bytes.read >= 100_000 && bytes.written >= 100_000));
    }

    #[test]
    fn that_it_is_stopped_is_told_to_whoever_stops_it_again() {
        use std::io::Write;
        let (mut client, stream) = UnixStream::pair().unwrap();
        let mut send = |signal| {
            client.write_all(&roster_exec::protocol::encode_signal(signal)).unwrap();
        };
        send(20);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec sleep infinity"]).process_group(0).stdin(Stdio::null());
        let running = RunningCommand::new(started(command), None, false).unwrap();
        let mut told = Vec::new();
        let ended = running.supervise(&mut FrameReader::new(&stream), |answer| {
            told.push(answer.encode());
            match told.len() {
                1 => send(20),
                _ => [18, 15].into_iter().for_each(&mut send),
            }
            Ok(())
        });
        assert_eq!(ended.unwrap().end, CommandEnd::Died(15));
        assert_eq!(told, [CommandReply::Stopped(20).encode(), CommandReply::Stopped(20).encode()]);
    }

    #[test]
    fn signals_reach_the_command_and_the_callers_end_ends_it() {
        use std::io::Write;
        let (mut client, stream) = UnixStream::pair().unwrap();
        // A signal that is not allowed has no effect. A signal in several pieces is one signal.
        client.write_all(&roster_exec::protocol::encode_signal(11)).unwrap();
        client.write_all(&roster_exec::protocol::encode_signal(15)).unwrap();
        assert_eq!(run("sleep infinity", None, &stream).end, CommandEnd::Died(15));
        // A signal that arrives with the request is handled.
        client.write_all(&roster_exec::protocol::encode_signal(15)).unwrap();
        let mut incoming = FrameReader::new(&stream);
        assert!(matches!(incoming.read().unwrap(), ReadOutcome::Bytes));
        assert_eq!(run_with("sleep infinity", None, &mut incoming).end, CommandEnd::Died(15));
        drop(client);
        assert_eq!(run("sleep infinity", None, &stream).end, CommandEnd::Died(1));
        // A frame out of order ends the command.
        let (mut client, stream) = UnixStream::pair().unwrap();
        client.write_all(b"R").unwrap();
        assert_eq!(run("sleep infinity", None, &stream).end, CommandEnd::Died(1));
    }
}
