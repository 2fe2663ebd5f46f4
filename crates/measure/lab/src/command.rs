// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of commands: each request is a process, from its start to its end. The output of commands is discarded.
//! `commands::engines` selects it, and `poll` waits for the processes.
//!
//! posix_spawn(3) starts processes without a copy of memory. A pidfd reports their end, so one thread serves any number.

use crate::coded::{Coded, bail_coded, ensure_coded};
use crate::load_thread::{Engine, RequestProgress};
use crate::poll::{Poller, ReadyEvent};
use crate::request_error::{RequestError, SystemCall};
use crate::template::Template;
use anyhow::Result;
use roster_messages::table::lab;
use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The command of all requests.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    program: CommandProgram,
    arguments: Vec<Template>,
}

#[derive(Clone, Debug)]
enum CommandProgram {
    /// The path of a constant program.
    Found(PathBuf),
    /// A program that varies with each request.
    Varies(Template),
}

impl CommandSettings {
    /// Creates settings from the program and its arguments.
    pub fn new(words: &[Template]) -> Result<Self> {
        let Some((program, arguments)) = words.split_first() else {
            bail_coded!(COMMAND_MISSING, "the command is empty")
        };
        let program = if program.count() == 1 {
            CommandProgram::Found(find_program(&OsString::from_vec(program.text(0)))?)
        } else {
            CommandProgram::Varies(program.clone())
        };
        Ok(Self { program, arguments: arguments.to_vec() })
    }

    /// Returns a command that does nothing, true(1).
    pub fn nothing() -> Result<Self> {
        let program = CommandProgram::Found(find_program(OsStr::new("true"))?);
        Ok(Self { program, arguments: Vec::new() })
    }

    fn command(&self, request: u64) -> Command {
        let mut command = match &self.program {
            CommandProgram::Found(path) => Command::new(path),
            CommandProgram::Varies(name) => Command::new(OsString::from_vec(name.text(request))),
        };
        command
            .args(self.arguments.iter().map(|word| OsString::from_vec(word.text(request))))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at the terminal goes to roster-lab only, which then waits for running commands. A command that
            // exceeds its timeout is killed with its children.
            .process_group(0);
        command
    }
}

/// Finds a program as a shell does.
fn find_program(name: &OsStr) -> Result<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let shown = name.display();
    if Path::new(name).components().count() > 1 {
        let path = PathBuf::from(name);
        ensure_coded!(is_program(&path), COMMAND_NOT_EXECUTABLE, "{shown}: not an executable file");
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|one| is_program(one));
    found.coded(&lab::COMMAND_NOT_FOUND, format_args!("{shown}: not in PATH"))
}

#[derive(Debug)]
struct ChildProcess {
    pid: Pid,
    pidfd: OwnedFd,
}

/// The users of one thread.
#[derive(Debug)]
pub struct CommandEngine {
    settings: Arc<CommandSettings>,
    processes: Vec<Option<ChildProcess>>,
}

impl CommandEngine {
    #[must_use]
    pub fn new(settings: Arc<CommandSettings>, users: usize) -> Self {
        Self { settings, processes: (0..users).map(|_| None).collect() }
    }

    fn spawn(&mut self, user: usize, request: u64, poll: &Poller) -> Result<(), RequestError> {
        let failed = |error: io::Error| RequestError::system(SystemCall::Spawn, &error);
        let mut child = self.settings.command(request).spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let watched = pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| poll.add(&pidfd, user).map(|()| pidfd));
        match watched {
            Ok(pidfd) => {
                self.processes[user] = Some(ChildProcess { pid, pidfd });
                Ok(())
            }
            Err(error) => {
                // Without a pidfd nothing would report its end.
                let _ = child.kill();
                let _ = child.wait();
                Err(RequestError::system(SystemCall::PidfdOpen, &error))
            }
        }
    }
}

impl Engine for CommandEngine {
    fn prepare(&mut self, _: usize, _: &Poller) -> RequestProgress {
        RequestProgress::Done(Ok(()))
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poller) -> RequestProgress {
        match self.spawn(user, request, poll) {
            Ok(()) => RequestProgress::Waiting,
            Err(failure) => RequestProgress::Done(Err(failure)),
        }
    }

    fn advance(&mut self, ReadyEvent { user, .. }: ReadyEvent, _: &Poller) -> RequestProgress {
        let Some(process) = &self.processes[user] else { return RequestProgress::Waiting };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::PidFd(process.pidfd.as_fd()), options) {
            Ok(Some(status)) => status,
            Ok(None) => return RequestProgress::Waiting,
            Err(error) => {
                self.processes[user] = None;
                let failure = RequestError::system(SystemCall::Waitid, &error.into());
                return RequestProgress::Done(Err(failure));
            }
        };
        self.processes[user] = None;
        RequestProgress::Done(match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(RequestError::Exited(code)),
            (None, signal) => Err(RequestError::Killed(signal.unwrap_or_default())),
        })
    }

    fn handle_idle_event(&mut self, _: ReadyEvent) {}

    fn abandon(&mut self, user: usize) {
        let Some(process) = self.processes[user].take() else { return };
        let _ = kill_process_group(process.pid, Signal::KILL);
        let _ = waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
