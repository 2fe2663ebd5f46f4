// SPDX-License-Identifier: MIT OR Apache-2.0
//! The executor: it starts commands with an [`AllowedCommand`] of the evaluation, or a [`Permit`] of roster-exec, and
//! no others. It decides nothing, and does not know the purpose of streams.
//!
//! A command gets the credentials of its user, descriptors 0 to 2 of the caller, default signals, and the configured
//! limit of open files.
//!
//! - Commands as the same user are started by `posix_spawn`. A daemon does so from threads with separate descriptor
//!   tables (`spawn_threads`), so that no start waits for descriptors of another client.
//! - For another user the program starts itself again as a `setuid_stage`, which takes the rights and becomes the
//!   command. Code between fork and exec would be unsafe, and a thread with other rights could be killed by their
//!   owner. `stage_pool` starts the next stage ahead.
//! - A command with a timeout starts in a cgroup if this process may create one (`cgroup`).
//!
//! In strict mode the executable is opened, checked, and executed by its descriptor. A script is executed by its path,
//! because its interpreter opens it again. Signals go through a pidfd in the place of kill(1), so that no other process
//! gets them.

mod cgroup;
mod checked_executable;
mod credentials;
mod process_tree;
mod rlimits;
mod setuid_stage;
mod signal;
mod spawn_threads;
mod stage_pool;
mod stage_request;
mod streams;

use crate::diagnostic::coded;
use crate::evaluate::AllowedCommand;
use crate::exec_daemon::rule_match::Permit;
use crate::host_facts::LocalHost;
use crate::interpreter::distrust_of_interpreters;
use crate::mode::Mode;
use crate::path_trust::distrust;
use crate::python_strings::{dirname, join, os_string};
use crate::rootwrap_conf::default_path_dirs;
use cgroup::Cgroups;
use checked_executable::CheckedExecutable;
use credentials::Credentials;
use parking_lot::Mutex;
use rlimits::CommandRlimit;
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::fs::OFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spawn_threads::{IsolatedSpawner, SpawnFds, SpawnSpec, Spawner};
use stage_pool::StagePool;
use stage_request::{StageAction, StageRequest};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub use cgroup::Cgroup;
pub use credentials::Account;
pub use process_tree::kill_descendants;
pub use setuid_stage::run_if_staged;
pub use streams::StdStreams;

/// Directories in which Python looks for a name without `$PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// With fewer open files no command can start.
const FILES_MIN: u64 = 64;

/// Time for which the credentials of a user are valid.
const USER_CACHE_TTL: Duration = Duration::from_secs(5);

/// The process after its preparation for commands.
#[derive(Debug)]
pub struct Executor {
    own_credentials: Credentials,
    users: Mutex<HashMap<String, (Instant, Credentials)>>,
    spawner: Spawner,
    stages: StagePool,
    /// Stages in cgroups, or the reason for which there are none.
    cgroup_stages: io::Result<CgroupStages>,
}

#[derive(Debug)]
struct CgroupStages {
    cgroups: Cgroups,
    stages: StagePool,
}

/// A running command.
#[derive(Debug)]
pub struct StartedCommand {
    /// The first process.
    pub child: Child,
    /// The cgroup of all processes. Without one, the first process adopts orphans of its descendants.
    pub cgroup: Option<Cgroup>,
}

/// User, environment and directory of a permitted command.
#[derive(Debug)]
pub struct ExecContext<'s> {
    /// The user of the command.
    pub account: &'s Account,
    pub environment: &'s [(OsString, OsString)],
    /// The working directory, even if the user may not list it.
    pub working_dir: &'s OwnedFd,
}

/// Reasons for which a permitted command did not start.
#[derive(Debug)]
pub enum StartError {
    /// The executable does not exist.
    NotFound,
    /// The kernel does not execute the file, or other users can change it.
    NotExecutable(Box<CodedError>),
    /// The system refused a resource.
    Failed(Box<CodedError>),
    /// The command did not start in time.
    TimedOut(Box<CodedError>, StartTimeout),
}

/// Returns an error of a start with the code that it carries, or with the code of its kind.
#[must_use]
pub fn start_error(error: io::Error) -> Box<CodedError> {
    let (message, text) = match error.kind() {
        _ if is_refused_by_kernel(&error) => (&commands::EXECUTABLE_REFUSED, "cannot be executed"),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            (&commands::EXECUTABLE_MISSING, "cannot be executed")
        }
        _ => (&commands::START_FAILED, "cannot be started"),
    };
    coded(error, message, text).into()
}

fn is_refused_by_kernel(error: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied};
    matches!(error.kind(), PermissionDenied | ExecutableFileBusy)
        || error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
}

/// A process that did not start in time. Its drop kills it and waits for it, which may take long.
#[derive(Debug)]
pub struct StartTimeout(Option<setuid_stage::ReadyStage>);

impl Drop for StartTimeout {
    fn drop(&mut self) {
        let _ = self.0.take().map(setuid_stage::ReadyStage::end);
    }
}

impl Executor {
    /// Prepares this process for commands: it closes inherited descriptors except 0 to 2, restores signals, limits open
    /// files, and takes root's groups as root. The process must have one thread and no open files.
    pub fn new(files_max: i64) -> io::Result<Self> {
        close_inherited(None)?;
        signal::reset()?;
        limit_files(files_max)?;
        Self::with_stages(StagePool::new(false, None), Err(io::ErrorKind::Unsupported.into()))
    }

    /// Prepares the process with its present limits, and keeps one descriptor. Each command gets a process group.
    pub fn new_for_exec_daemon(kept: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        close_inherited(kept)?;
        signal::reset()?;
        let timed = Cgroups::new().map(|cgroups| {
            let stages = StagePool::new(true, Some(cgroups.clone()));
            CgroupStages { cgroups, stages }
        });
        Self::with_stages(StagePool::new(true, None), timed)
    }

    /// Creates an executor that does not change the process.
    #[cfg(test)]
    pub(crate) fn for_tests() -> io::Result<Self> {
        Self::with_stages(StagePool::new(true, None), Err(io::ErrorKind::Unsupported.into()))
    }

    fn with_stages(stages: StagePool, timed: io::Result<CgroupStages>) -> io::Result<Self> {
        let own = Credentials::normalized()?;
        Ok(Self {
            own_credentials: own,
            users: Mutex::default(),
            spawner: Spawner::Inline(None),
            stages,
            cgroup_stages: timed,
        })
    }

    /// Excludes later descriptors from the table with which a command starts. A daemon calls it before it serves
    /// clients. Handlers of signals must be installed before, because they write to a descriptor by its number in any
    /// thread.
    pub fn isolate_spawner(&mut self) {
        self.spawner =
            IsolatedSpawner::new().map_or_else(|why| Spawner::Inline(Some(why)), Spawner::Isolated);
    }

    /// Returns the reason if the isolation failed.
    pub fn isolation_error(&self) -> Option<&io::Error> {
        match &self.spawner {
            Spawner::Inline(why) => why.as_ref(),
            Spawner::Isolated(_) => None,
        }
    }

    /// Returns the directory of the cgroups, or the reason for which there are none.
    pub fn cgroups(&self) -> Result<&Path, &io::Error> {
        self.cgroup_stages.as_ref().map(|timed| timed.cgroups.path())
    }

    /// Starts an allowed command. The error may carry a code.
    pub fn start(
        &self,
        verdict: &AllowedCommand<'_>,
        streams: StdStreams<'_>,
    ) -> io::Result<Child> {
        let wanted = self.target_credentials(verdict)?;
        if verdict.mode() == Mode::Strict
            && let Some(fault) = streams.fault()
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, fault));
        }
        let image = match (verdict.mode(), verdict.kill()) {
            (Mode::Strict, None) => {
                verdict.argv().first().map_or(Ok(None), |first| checked_executable::open(first))?
            }
            _ => None,
        };
        let action = match verdict.kill() {
            Some(kill) => StageAction::Signal(kill),
            None if wanted == self.own_credentials => {
                return self.start_as_self(verdict, image.as_ref(), streams);
            }
            None => StageAction::Run {
                candidates: candidates(verdict),
                executable_name: image.as_ref().map(|image| image.name.clone()),
                argv: verdict.argv().to_vec(),
                environment: verdict.environment().to_vec(),
            },
        };
        let (limits, adopts, has_folder) = (Vec::new(), false, false);
        let order = StageRequest {
            credentials: wanted,
            limits,
            adopts_orphans: adopts,
            has_working_dir: has_folder,
            action,
        };
        let stage = self.stages.take_stage(&self.spawner)?;
        let started = stage.send_request(&order, image.as_ref(), None, streams);
        started.map(|started| started.child).map_err(|(error, stage)| {
            stage.end();
            error
        })
    }

    /// Starts a permitted command, if only root can change its executable.
    pub fn start_permitted(
        &self,
        permit: &Permit<'_>,
        setting: &ExecContext<'_>,
        streams: StdStreams<'_>,
    ) -> Result<StartedCommand, StartError> {
        let path = permit.rule().command.as_os_str();
        let image = open_trusted(path)?;
        let of_executable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StartError::NotFound,
            _ if is_refused_by_kernel(&error) => StartError::NotExecutable(start_error(error)),
            _ => StartError::Failed(start_error(error)),
        };
        let limits = rlimits_for(permit);
        let has_time = permit.rule().timeout.is_some();
        if limits.is_empty() && !has_time && setting.account.credentials == self.own_credentials {
            let child = self.start_permitted_as_self(permit, setting, image.as_ref(), streams);
            return child
                .map(|child| StartedCommand { child, cgroup: None })
                .map_err(of_executable);
        }
        let action = StageAction::Run {
            candidates: vec![path.to_owned()],
            executable_name: image.as_ref().map(|image| image.name.clone()),
            argv: permit.argv().to_vec(),
            environment: setting.environment.to_vec(),
        };
        let credentials = setting.account.credentials.clone();
        let stages = match &self.cgroup_stages {
            Ok(timed) if has_time => &timed.stages,
            _ => &self.stages,
        };
        let failed = |error| StartError::Failed(start_error(error));
        let stage = stages.take_stage(&self.spawner).map_err(failed)?;
        // Without a cgroup the first process adopts orphans, so that the timeout finds all processes.
        let adopts = has_time && !stage.has_cgroup();
        let order = StageRequest {
            credentials,
            limits,
            adopts_orphans: adopts,
            has_working_dir: true,
            action,
        };
        let started =
            stage.send_request(&order, image.as_ref(), Some(setting.working_dir), streams);
        started.map_err(|(error, stage)| {
            if error.kind() == io::ErrorKind::TimedOut {
                return StartError::TimedOut(start_error(error), StartTimeout(Some(stage)));
            }
            stage.end();
            of_executable(error)
        })
    }

    /// Returns the account of a user from the name service. `None`: unknown user.
    pub fn lookup_account(&self, name: &str) -> io::Result<Option<Account>> {
        Credentials::lookup_account(name, &self.own_credentials)
    }

    /// Returns the account of this process.
    pub fn lookup_own_account(&self) -> io::Result<Option<Account>> {
        self.own_credentials.lookup_owner()
    }

    /// Starts an allowed command as the user of this process.
    fn start_as_self(
        &self,
        verdict: &AllowedCommand<'_>,
        image: Option<&CheckedExecutable>,
        streams: StdStreams<'_>,
    ) -> io::Result<Child> {
        let start = |program, image| {
            let (argv, environment) = (verdict.argv().to_vec(), verdict.environment().to_vec());
            let wanted = SpawnSpec { program, argv, environment, leads_group: false };
            self.spawner
                .start(wanted, SpawnFds { streams, working_dir: None, executable_dir: image })
        };
        if let Some(image) = image {
            return start(image.name.clone(), Some(image.dir.as_fd()));
        }
        execute_first(candidates(verdict), |path| {
            // A start of a process only to find that out takes longer.
            match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
                _ => start(path, None),
            }
        })
    }

    /// Starts a permitted command as the user of this process.
    fn start_permitted_as_self(
        &self,
        permit: &Permit<'_>,
        setting: &ExecContext<'_>,
        image: Option<&CheckedExecutable>,
        streams: StdStreams<'_>,
    ) -> io::Result<Child> {
        // An error of the start does not distinguish the directory from the executable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(setting.working_dir, ".", flags, rustix::fs::Mode::empty())
            .map_err(|error| enter_error(&error.into()))?;
        let path = || permit.rule().command.clone().into();
        let wanted = SpawnSpec {
            program: image.map_or_else(path, |image| image.name.clone()),
            argv: permit.argv().to_vec(),
            environment: setting.environment.to_vec(),
            leads_group: true,
        };
        let image = image.map(|image| image.dir.as_fd());
        self.spawner.start(
            wanted,
            SpawnFds {
                streams,
                working_dir: Some(setting.working_dir.as_fd()),
                executable_dir: image,
            },
        )
    }

    /// Starts stages for the next command. Called while no client waits.
    pub fn prestart_stages(&self) {
        self.stages.prestart(&self.spawner);
        if let Ok(timed) = &self.cgroup_stages {
            timed.stages.prestart(&self.spawner);
        }
    }

    /// Ends waiting stages and removes the cgroups.
    pub fn finish(&self) {
        self.stages.end_stages();
        if let Ok(timed) = &self.cgroup_stages {
            timed.stages.end_stages();
            timed.cgroups.remove();
        }
    }

    /// Returns the credentials for an allowed command. Without root's rights, oslo.rootwrap runs commands for root as
    /// the caller.
    fn target_credentials(&self, verdict: &AllowedCommand<'_>) -> io::Result<Credentials> {
        let user = verdict.run_as();
        if self.own_credentials.uid == 0 {
            return self.credentials(user);
        }
        if user == "root" && verdict.mode() == Mode::Compat {
            return Ok(self.own_credentials.clone());
        }
        let wanted = self.credentials(user)?;
        if wanted.uid == self.own_credentials.uid {
            return Ok(wanted);
        }
        let text = format!("running commands as {user} requires root");
        let refused = CodedError::new(&commands::RUN_AS_REQUIRES_ROOT, text);
        Err(io::Error::new(io::ErrorKind::PermissionDenied, refused))
    }

    fn credentials(&self, user: &str) -> io::Result<Credentials> {
        let now = Instant::now();
        if let Some((until, known)) = self.users.lock().get(user)
            && now < *until
        {
            return Ok(known.clone());
        }
        let found = Credentials::lookup_user(user, &self.own_credentials)?;
        self.users.lock().insert(user.to_owned(), (now + USER_CACHE_TTL, found.clone()));
        Ok(found)
    }
}

fn open_trusted(path: &OsStr) -> Result<Option<CheckedExecutable>, StartError> {
    let absent = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    if let Err(error) = fs::metadata(path)
        && absent(&error)
    {
        return Err(StartError::NotFound);
    }
    let host = LocalHost::with_environment(Vec::new());
    if let Some(why) = distrust(&host, path) {
        let text = format!("other users can change it: {why}");
        let untrusted = CodedError::new(&commands::EXECUTABLE_UNTRUSTED, text);
        return Err(StartError::NotExecutable(untrusted.into()));
    }
    if let Some(why) = distrust_of_interpreters(&host, path, &default_path_dirs) {
        let untrusted = CodedError::new(&commands::INTERPRETER_UNTRUSTED, why);
        return Err(StartError::NotExecutable(untrusted.into()));
    }
    checked_executable::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => StartError::NotExecutable(start_error(error)),
        _ if absent(&error) => StartError::NotFound,
        _ => StartError::Failed(start_error(error)),
    })
}

fn rlimits_for(permit: &Permit<'_>) -> Vec<CommandRlimit> {
    let limits = &permit.rule().limits;
    let (files, memory) =
        (limits.files.map(CommandRlimit::Files), limits.memory.map(CommandRlimit::Memory));
    let seconds = limits.cpu.map(|cpu| CommandRlimit::Seconds(cpu.as_secs()));
    files.into_iter().chain(seconds).chain(memory).collect()
}

/// In another directory relative names would mean other files.
fn enter_error(error: &io::Error) -> io::Error {
    let text = format!("the directory of the caller cannot be entered: {error}");
    io::Error::other(CodedError::new(&commands::DIRECTORY_UNAVAILABLE, text))
}

fn command(path: &OsStr, argv: &[OsString], environment: &[(OsString, OsString)]) -> Command {
    let mut command = Command::new(path);
    if let Some(first) = argv.first() {
        command.arg0(first).args(&argv[1..]);
    }
    command.env_clear();
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Tries paths in order, as execvp(3). The error is the first one that is not about a missing file.
fn execute_first<T>(
    candidates: Vec<OsString>,
    mut execute: impl FnMut(OsString) -> io::Result<T>,
) -> io::Result<T> {
    let mut told = None;
    for path in candidates {
        let error = match execute(path) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let is_absent =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        if told.is_none() || !is_absent {
            told = Some(error);
            if !is_absent {
                break;
            }
        }
    }
    Err(told.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Returns the paths for the first word.
fn candidates(verdict: &AllowedCommand<'_>) -> Vec<OsString> {
    let Some(first) = verdict.argv().first() else { return Vec::new() };
    if !dirname(first.as_bytes()).is_empty() {
        return vec![first.clone()];
    }
    let path = verdict.environment().iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, path)| path);
    let folders = crate::rootwrap_conf::split_path(path).map(OsStr::as_bytes);
    // An empty directory means the present one, and no further search.
    let folders = folders.map(|folder| if folder.is_empty() { b"." } else { folder });
    folders.map(|folder| os_string(join(folder, first.as_bytes()))).collect()
}

/// Closes descriptors that the parent left open. Every command would inherit them.
fn close_inherited(kept: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // The descriptor of /proc/self/fd is in the list, and closed at the end of the loop.
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&number| number > 2 && kept.is_none_or(|kept| kept.as_raw_fd() != number))
        .collect();
    for number in open {
        // The descriptor of /proc/self/fd is already closed.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

fn limit_files(files_max: i64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(files_max).unwrap_or(0).max(FILES_MIN);
    if current.is_none_or(|current| wanted < current) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn start_error_of_kernel_has_code() {
        for (errno, message) in [
            (Errno::NOENT, &commands::EXECUTABLE_MISSING),
            (Errno::NOTDIR, &commands::EXECUTABLE_MISSING),
            (Errno::ACCESS, &commands::EXECUTABLE_REFUSED),
            (Errno::TXTBSY, &commands::EXECUTABLE_REFUSED),
            (Errno::NOEXEC, &commands::EXECUTABLE_REFUSED),
            (Errno::AGAIN, &commands::START_FAILED),
            (Errno::NOMEM, &commands::START_FAILED),
            (Errno::MFILE, &commands::START_FAILED),
        ] {
            assert_eq!(start_error(errno.into()).message, message, "{errno}");
        }
    }

    #[test]
    fn permitted_executable_of_others_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        for (name, text, mode, message) in [
            ("open", "", 0o777, &commands::EXECUTABLE_UNTRUSTED),
            (
                "script",
                &*format!("#!{}\n", open.display()),
                0o755,
                &commands::INTERPRETER_UNTRUSTED,
            ),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let Err(StartError::NotExecutable(error)) = open_trusted(file.as_os_str()) else {
                panic!("{name}")
            };
            assert_eq!(error.message, message, "{error}");
        }
    }
}
