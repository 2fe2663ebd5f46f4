//! Commands: each request is a process, from its start to its end.
//!
//! Processes are started by posix_spawn(3), which copies no memory, and waited for by pidfd, so that
//! one thread looks after any number.

use crate::failure::Failure;
use crate::poll::{Poll, Ready};
use crate::template::Template;
use crate::worker::{Engine, Progress};
use anyhow::{Context, Result, bail};
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

/// What is run.
#[derive(Clone, Debug)]
pub struct Settings {
    program: Program,
    arguments: Vec<Template>,
}

#[derive(Clone, Debug)]
enum Program {
    /// Looked for once.
    Found(PathBuf),
    /// Another for each request.
    Varies(Template),
}

impl Settings {
    /// The command's words.
    pub fn new(words: &[Template]) -> Result<Self> {
        let Some((program, arguments)) = words.split_first() else { bail!("no command") };
        let program = if program.count() == 1 {
            Program::Found(find(&OsString::from_vec(program.text(0)))?)
        } else {
            Program::Varies(program.clone())
        };
        Ok(Self { program, arguments: arguments.to_vec() })
    }

    /// A command that does nothing but start and end.
    pub fn nothing() -> Result<Self> {
        let program = Program::Found(find(OsStr::new("true"))?);
        Ok(Self { program, arguments: Vec::new() })
    }

    fn command(&self, request: u64) -> Command {
        let mut command = match &self.program {
            Program::Found(path) => Command::new(path),
            Program::Varies(name) => Command::new(OsString::from_vec(name.text(request))),
        };
        command
            .args(self.arguments.iter().map(|word| OsString::from_vec(word.text(request))))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for us, who then wait for those that run; and whoever takes too long is ended
            // with all that it started.
            .process_group(0);
        command
    }
}

/// Where a program is, as a shell would find it.
fn find(name: &OsStr) -> Result<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let shown = name.display();
    if Path::new(name).components().count() > 1 {
        let path = PathBuf::from(name);
        anyhow::ensure!(is_program(&path), "{shown}: is no program");
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|one| is_program(one));
    found.with_context(|| format!("{shown}: no program of this name is in PATH"))
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

/// The users of one thread.
#[derive(Debug)]
pub struct Commands {
    settings: Arc<Settings>,
    processes: Vec<Option<Process>>,
}

impl Commands {
    /// For so many users.
    #[must_use]
    pub fn new(settings: Arc<Settings>, users: usize) -> Self {
        Self { settings, processes: (0..users).map(|_| None).collect() }
    }

    fn spawn(&mut self, user: usize, request: u64, poll: &Poll) -> Result<(), Failure> {
        let failed = |doing| move |error: io::Error| Failure::system(doing, &error);
        let mut child = self.settings.command(request).spawn().map_err(failed("start"))?;
        let pid = Pid::from_child(&child);
        let watched = pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| poll.add(&pidfd, user).map(|()| pidfd));
        match watched {
            Ok(pidfd) => {
                self.processes[user] = Some(Process { pid, pidfd });
                Ok(())
            }
            Err(error) => {
                // Nobody would ever learn of its end.
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::system("pidfd_open", &error))
            }
        }
    }
}

impl Engine for Commands {
    fn prepare(&mut self, _: usize, _: &Poll) -> Progress {
        Progress::Done(Ok(()))
    }

    fn begin(&mut self, user: usize, request: u64, poll: &Poll) -> Progress {
        match self.spawn(user, request, poll) {
            Ok(()) => Progress::Waiting,
            Err(failure) => Progress::Done(Err(failure)),
        }
    }

    fn advance(&mut self, Ready { user, .. }: Ready, _: &Poll) -> Progress {
        let Some(process) = &self.processes[user] else { return Progress::Waiting };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::PidFd(process.pidfd.as_fd()), options) {
            Ok(Some(status)) => status,
            Ok(None) => return Progress::Waiting,
            Err(error) => {
                self.processes[user] = None;
                return Progress::Done(Err(Failure::system("waitid", &error.into())));
            }
        };
        self.processes[user] = None;
        Progress::Done(match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(Failure::Exited(code)),
            (None, signal) => Err(Failure::Killed(signal.unwrap_or_default())),
        })
    }

    fn disturbed(&mut self, _: Ready) {}

    fn give_up(&mut self, user: usize) {
        let Some(process) = self.processes[user].take() else { return };
        let _ = kill_process_group(process.pid, Signal::KILL);
        let _ = waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
