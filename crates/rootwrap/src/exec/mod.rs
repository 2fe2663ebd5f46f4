//! Runs what the judge lets run, a [`Verdict`], or what a policy of roster-exec does, a [`Permit`], and
//! nothing else.
//!
//! A command gets the uid, the gid and the supplementary groups of its user, the descriptors 0 to 2
//! that the caller gives it and no other, default signals, and the bound on open files of the
//! configuration. Most commands run as root, which is what this process is: they are started by
//! `posix_spawn`, in a daemon by threads with tables of descriptors of their own (`starters`), so that no command's
//! start waits for what another client has sent. For another user the program starts itself anew as a
//! `stage`, which takes on the user's rights and becomes the command: code between fork and exec
//! would be unsafe, and a thread with other rights could be killed by whoever has those. Once one was
//! needed the next is started ahead (`pool`). What has a time is started by one in a cgroup of its own, where
//! this process may make that (`cgroup`).
//!
//! In strict mode the executable is opened, looked at, and executed by its descriptor; a script is
//! executed by its path, which its interpreter opens again. Processes are signalled here rather than
//! by kill(1), by a descriptor that no other process can get.
//!
//! Judges nothing, and does not know where streams lead.

mod cgroup;
mod credentials;
mod image;
mod limit;
mod order;
mod pool;
mod signal;
mod stage;
mod starters;
mod tree;

use crate::conf::default_path;
use crate::host::ThisHost;
use crate::interpreter::distrust_of_interpreters;
use crate::judge::{Mode, Verdict};
use crate::native::decide::Permit;
use crate::python::{dirname, join};
use crate::trust::distrust;
use cgroup::Cgroups;
use credentials::Credentials;
use image::Image;
use limit::Limit;
use order::{Action, Order};
use pool::Pool;
use rustix::fs::OFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use starters::{Apart, Held, Starters, Wanted};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub use cgroup::Cgroup;
pub use credentials::Account;
pub use stage::run_if_staged;
pub use tree::kill_descendants;

/// Where Python looks for a name without a slash when there is no `$PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// With fewer open files nothing can be run at all.
const FILES_MIN: u64 = 64;

/// How long it counts who a user is.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// Where a command's descriptors 0 to 2 lead.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'s> {
    /// What it reads.
    pub stdin: BorrowedFd<'s>,
    /// What it writes.
    pub stdout: BorrowedFd<'s>,
    /// What it complains to.
    pub stderr: BorrowedFd<'s>,
}

/// This process, made ready to start commands.
#[derive(Debug)]
pub struct Executor {
    own: Credentials,
    users: Mutex<HashMap<String, (Instant, Credentials)>>,
    starters: Starters,
    stages: Pool,
    /// Those in cgroups; or why commands that have a time are without.
    timed: io::Result<Timed>,
}

#[derive(Debug)]
struct Timed {
    cgroups: Cgroups,
    stages: Pool,
}

/// A command that runs.
#[derive(Debug)]
pub struct Started {
    /// Its first process.
    pub child: Child,
    /// All that comes of it, where that can be; else whom a descendant leaves behind is its first process's child.
    pub cgroup: Option<Cgroup>,
}

/// As whom, with what and where a permitted command runs.
#[derive(Debug)]
pub struct Setting<'s> {
    /// The user.
    pub account: &'s Account,
    /// All of its environment.
    pub environment: &'s [(OsString, OsString)],
    /// Where it runs, whether or not its user may look around there.
    pub folder: &'s OwnedFd,
}

/// Why a permitted command did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// There is no such executable.
    Absent,
    /// It cannot be executed, or others could have changed it.
    Unfit(String),
    /// The system would not start anything.
    System(io::Error),
    /// It did not begin in time.
    Late(io::Error, Late),
}

/// What did not begin in time: ended, and waited for, when this is dropped, which may take as long as what holds it.
#[derive(Debug)]
pub struct Late(Option<stage::Ready>);

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.0.take().map(stage::Ready::end);
    }
}

impl Executor {
    /// Makes this process what commands are to inherit from: without descriptors of its parent but 0 to
    /// 2, with its signals as a program finds them, with at most so many open files and, as root,
    /// with root's groups. To be called before there are threads or open files.
    pub fn new(files_max: i64) -> io::Result<Self> {
        close_inherited(None)?;
        signal::reset()?;
        limit_files(files_max)?;
        Self::with(Pool::new(false, None), Err(io::ErrorKind::Unsupported.into()))
    }

    /// The same with the limits that there are, and one descriptor that stays open; each command is to
    /// have a process group of its own.
    pub fn new_native(kept: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        close_inherited(kept)?;
        signal::reset()?;
        let timed = Cgroups::new().map(|cgroups| {
            let stages = Pool::new(true, Some(cgroups.clone()));
            Timed { cgroups, stages }
        });
        Self::with(Pool::new(true, None), timed)
    }

    fn with(stages: Pool, timed: io::Result<Timed>) -> io::Result<Self> {
        let own = Credentials::normalized()?;
        Ok(Self { own, users: Mutex::default(), starters: Starters::Here(None), stages, timed })
    }

    /// From now on nothing that is opened is in the table of descriptors that a command begins with. To be called by
    /// who serves others, before it does. Signals must have their handlers, and these their pipes: one that
    /// writes to a number does so in whichever thread the signal comes.
    pub fn start_apart(&mut self) {
        self.starters = Apart::new().map_or_else(|why| Starters::Here(Some(why)), Starters::Apart);
    }

    /// Why that is not so, where it was to be.
    pub fn not_apart(&self) -> Option<&io::Error> {
        match &self.starters {
            Starters::Here(why) => why.as_ref(),
            Starters::Apart(_) => None,
        }
    }

    /// Where the cgroups are of commands that have a time; or why they have none.
    pub fn cgroups(&self) -> Result<&Path, &io::Error> {
        self.timed.as_ref().map(|timed| timed.cgroups.path())
    }

    /// Starts what a verdict says. An error is the system's, when it refuses to execute it.
    pub fn start(&self, verdict: &Verdict<'_>, streams: Streams<'_>) -> io::Result<Child> {
        let wanted = self.wanted(verdict)?;
        let image = match (verdict.mode(), verdict.kill()) {
            (Mode::Strict, None) => {
                verdict.argv().first().map_or(Ok(None), |first| image::open(first))?
            }
            _ => None,
        };
        let action = match verdict.kill() {
            Some(kill) => Action::Signal(kill),
            None if wanted == self.own => {
                return self.start_as_own(verdict, image.as_ref(), streams);
            }
            None => Action::Run {
                candidates: candidates(verdict),
                image: image.as_ref().map(|image| image.name.clone()),
                argv: verdict.argv().to_vec(),
                environment: verdict.environment().to_vec(),
            },
        };
        let (limits, adopts, has_folder) = (Vec::new(), false, false);
        let order = Order { credentials: wanted, limits, adopts, has_folder, action };
        let stage = self.stages.take(&self.starters)?;
        let started = stage.go(&order, image.as_ref(), None, streams);
        started.map(|started| started.child).map_err(|(error, stage)| {
            stage.end();
            error
        })
    }

    /// Starts what a policy of roster-exec permits, if nobody else could have changed it.
    pub fn start_permitted(
        &self,
        permit: &Permit<'_>,
        setting: &Setting<'_>,
        streams: Streams<'_>,
    ) -> Result<Started, NotStarted> {
        let path = permit.rule().command.as_os_str();
        let image = open_trusted(path)?;
        let of_executable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => NotStarted::Absent,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ExecutableFileBusy => {
                NotStarted::Unfit(format!("it cannot be executed: {error}"))
            }
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                NotStarted::Unfit(format!("it cannot be executed: {error}"))
            }
            _ => NotStarted::System(error),
        };
        let limits = limits_of(permit);
        let has_time = permit.rule().timeout.is_some();
        if limits.is_empty() && !has_time && setting.account.credentials == self.own {
            let child = self.start_permitted_as_own(permit, setting, image.as_ref(), streams);
            return child.map(|child| Started { child, cgroup: None }).map_err(of_executable);
        }
        let action = Action::Run {
            candidates: vec![path.to_owned()],
            image: image.as_ref().map(|image| image.name.clone()),
            argv: permit.argv().to_vec(),
            environment: setting.environment.to_vec(),
        };
        let credentials = setting.account.credentials.clone();
        let stages = match &self.timed {
            Ok(timed) if has_time => &timed.stages,
            _ => &self.stages,
        };
        let stage = stages.take(&self.starters).map_err(NotStarted::System)?;
        // What has a time is killed with all that came of it, which must not get out of sight.
        let adopts = has_time && !stage.has_cgroup();
        let order = Order { credentials, limits, adopts, has_folder: true, action };
        let started = stage.go(&order, image.as_ref(), Some(setting.folder), streams);
        started.map_err(|(error, stage)| {
            if error.kind() == io::ErrorKind::TimedOut {
                return NotStarted::Late(error, Late(Some(stage)));
            }
            stage.end();
            of_executable(error)
        })
    }

    /// A user as the name service has it; `None` if it has none.
    pub fn account(&self, name: &str) -> io::Result<Option<Account>> {
        Credentials::account(name, &self.own)
    }

    /// The user that this process is.
    pub fn own_account(&self) -> io::Result<Option<Account>> {
        self.own.owner()
    }

    /// What a verdict says, as who this process is.
    fn start_as_own(
        &self,
        verdict: &Verdict<'_>,
        image: Option<&Image>,
        streams: Streams<'_>,
    ) -> io::Result<Child> {
        let start = |program, image| {
            let (argv, environment) = (verdict.argv().to_vec(), verdict.environment().to_vec());
            let wanted = Wanted { program, argv, environment, leads: false };
            self.starters.start(wanted, Held { streams, folder: None, image })
        };
        if let Some(image) = image {
            return start(image.name.clone(), Some(image.folder.as_fd()));
        }
        execute_first(candidates(verdict), |path| {
            // To start a process only to find that out takes longer.
            match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
                _ => start(path, None),
            }
        })
    }

    /// What a policy permits, as who this process is.
    fn start_permitted_as_own(
        &self,
        permit: &Permit<'_>,
        setting: &Setting<'_>,
        image: Option<&Image>,
        streams: Streams<'_>,
    ) -> io::Result<Child> {
        // An error of the command's start does not tell which of the two it is of.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(setting.folder, ".", flags, rustix::fs::Mode::empty())
            .map_err(|error| not_entered(&error.into()))?;
        let path = || permit.rule().command.clone().into();
        let wanted = Wanted {
            program: image.map_or_else(path, |image| image.name.clone()),
            argv: permit.argv().to_vec(),
            environment: setting.environment.to_vec(),
            leads: true,
        };
        let image = image.map(|image| image.folder.as_fd());
        self.starters.start(wanted, Held { streams, folder: Some(setting.folder.as_fd()), image })
    }

    /// Starts what the next command may need ahead: called when nobody waits.
    pub fn make_ready(&self) {
        self.stages.make_ready(&self.starters);
        if let Ok(timed) = &self.timed {
            timed.stages.make_ready(&self.starters);
        }
    }

    /// Ends what was started ahead.
    pub fn finish(&self) {
        self.stages.end();
        if let Ok(timed) = &self.timed {
            timed.stages.end();
            timed.cgroups.remove();
        }
    }

    /// Who a verdict's command is to be. Without root's rights the original runs what is for root as
    /// its caller.
    fn wanted(&self, verdict: &Verdict<'_>) -> io::Result<Credentials> {
        let user = verdict.run_as();
        if self.own.uid == 0 {
            return self.credentials(user);
        }
        if user == "root" && verdict.mode() == Mode::Compat {
            return Ok(self.own.clone());
        }
        let wanted = self.credentials(user)?;
        if wanted.uid == self.own.uid {
            return Ok(wanted);
        }
        let what = format!("a command becomes {user} where root calls: call by sudo");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    }

    fn credentials(&self, user: &str) -> io::Result<Credentials> {
        let now = Instant::now();
        if let Some((until, known)) = locked(&self.users).get(user)
            && now < *until
        {
            return Ok(known.clone());
        }
        let found = Credentials::of_user(user, &self.own)?;
        locked(&self.users).insert(user.to_owned(), (now + KNOWN_FOR, found.clone()));
        Ok(found)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread that panics ends the process")
}

fn open_trusted(path: &OsStr) -> Result<Option<Image>, NotStarted> {
    let absent = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    if let Err(error) = fs::metadata(path)
        && absent(&error)
    {
        return Err(NotStarted::Absent);
    }
    let host = ThisHost::with_environment(Vec::new());
    if let Some(why) = distrust(&host, path) {
        return Err(NotStarted::Unfit(format!("others could have changed it: {why}")));
    }
    if let Some(why) = distrust_of_interpreters(&host, path, &default_path) {
        return Err(NotStarted::Unfit(format!("its interpreter is not trusted: {why}")));
    }
    image::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => NotStarted::Unfit(error.to_string()),
        _ if absent(&error) => NotStarted::Absent,
        _ => NotStarted::System(error),
    })
}

fn limits_of(permit: &Permit<'_>) -> Vec<Limit> {
    let limits = &permit.rule().limits;
    let (files, memory) = (limits.files.map(Limit::Files), limits.memory.map(Limit::Memory));
    let seconds = limits.cpu.map(|cpu| Limit::Seconds(cpu.as_secs()));
    files.into_iter().chain(seconds).chain(memory).collect()
}

/// In another folder relative names would be other files.
fn not_entered(error: &io::Error) -> io::Error {
    io::Error::other(format!("the caller's folder cannot be entered, call from another: {error}"))
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

/// Tries one path after the other as execvp does: the error that is told is the first that is not for want of a
/// file.
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

/// The paths that the first word may mean.
fn candidates(verdict: &Verdict<'_>) -> Vec<OsString> {
    let Some(first) = verdict.argv().first() else { return Vec::new() };
    if !dirname(first.as_bytes()).is_empty() {
        return vec![first.clone()];
    }
    let path = verdict.environment().iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, path)| path);
    let folders = crate::conf::split(path).map(OsStr::as_bytes);
    // An empty folder is this one, and must not be looked up once more.
    let folders = folders.map(|folder| if folder.is_empty() { b"." } else { folder });
    folders.map(|folder| crate::conf::os(join(folder, first.as_bytes()))).collect()
}

/// A descriptor that the parent forgot to close would be every command's.
fn close_inherited(kept: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // The folder's own descriptor is among them, and closed once they are all known.
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&number| number > 2 && kept.is_none_or(|kept| kept.as_raw_fd() != number))
        .collect();
    for number in open {
        // That of the folder is closed already.
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
