// SPDX-License-Identifier: MIT OR Apache-2.0
//! The step to a command with other rights: the same executable, started again with an empty environment. It receives a
//! request over a socket, takes the rights of the user, and becomes the command or sends a signal. Its process id is
//! that of the command. `stage_request` has the request.
//!
//! The socket closes when the stage becomes the command. Before that it returns an error of the system.

use super::cgroup::{Cgroup, Cgroups};
use super::checked_executable::{self, CheckedExecutable};
use super::rlimits::CommandRlimit;
use super::spawn_threads::{SpawnSpec, Spawner};
use super::stage_request::{STAGE_REQUEST_BYTES_MAX, StageAction, StageRequest};
use super::{StartedCommand, StdStreams, enter_error, execute_first, signal};
use nix::unistd::execve;
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Uid, getpid, set_child_subreaper};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitCode};
use std::time::Duration;

/// Limit of the start, because the file system of the directory may not answer.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// The first argument of a stage.
const NAME: &str = "roster-rootwrap: stage";

/// A stage that waits for a request. Without one it ends with this process.
#[derive(Debug)]
pub(super) struct ReadyStage {
    child: Child,
    socket: UnixStream,
    cgroup: Option<Cgroup>,
}

impl ReadyStage {
    /// Starts a stage, with a process group if commands have one, and a cgroup if possible. A single failure of a
    /// cgroup does not prevent the command.
    pub(super) fn new(
        starters: &Spawner,
        own_group: bool,
        cgroups: Option<&Cgroups>,
    ) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(EXEC_TIMEOUT))?;
        let null = File::options().write(true).open("/dev/null")?;
        let (stdin, null) = (theirs.as_fd(), null.as_fd());
        let streams = StdStreams { stdin, stdout: null, stderr: null };
        let wanted = SpawnSpec {
            program: "/proc/self/exe".into(),
            argv: vec![NAME.into()],
            environment: Vec::new(),
            leads_group: own_group,
        };
        let child = starters.start(wanted, streams.into())?;
        let cgroup = cgroups.and_then(|cgroups| cgroups.create_with(Pid::from_child(&child)).ok());
        Ok(Self { child, socket, cgroup })
    }

    /// Returns true if the stage is in its own cgroup.
    pub(super) fn has_cgroup(&self) -> bool {
        self.cgroup.is_some()
    }

    /// Sends the request, and returns when the stage has become the command. An error has the stage, which remains to
    /// be ended.
    pub(super) fn send_request(
        mut self,
        order: &StageRequest,
        image: Option<&CheckedExecutable>,
        folder: Option<&OwnedFd>,
        streams: StdStreams<'_>,
    ) -> Result<StartedCommand, (io::Error, Self)> {
        let sent = send(&mut self.socket, order, streams, [folder, image.map(|image| &image.dir)]);
        match sent.and_then(|()| receive_error(&mut self.socket)) {
            Ok(None) => Ok(StartedCommand { child: self.child, cgroup: self.cgroup }),
            Ok(Some(error)) | Err(error) => Err((error, self)),
        }
    }

    /// Ends a stage without a request.
    pub(super) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns true if the stage has not ended.
    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }
}

fn send(
    to: &mut UnixStream,
    order: &StageRequest,
    streams: StdStreams<'_>,
    folders: [Option<&OwnedFd>; 2],
) -> io::Result<()> {
    let StdStreams { stdin, stdout, stderr } = streams;
    let mut fds = vec![stdin, stdout, stderr];
    fds.extend(folders.into_iter().flatten().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&*to, &[IoSlice::new(b"O")], &mut control, SendFlags::NOSIGNAL)?;
    to.write_all(&order.encode())?;
    to.shutdown(Shutdown::Write)
}

fn receive_error(from: &mut UnixStream) -> io::Result<Option<io::Error>> {
    let mut number = [0; 4];
    match from.read_exact(&mut number).map(|()| i32::from_le_bytes(number)) {
        // A negative number is about the directory, as sent below.
        Ok(number) if number < 0 => {
            let error = io::Error::from_raw_os_error(number.saturating_neg());
            Ok(Some(enter_error(&error)))
        }
        Ok(number) => Ok(Some(io::Error::from_raw_os_error(number))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let text = "did not start in time: a file system that it needs does not answer";
            Err(io::Error::new(
                ErrorKind::TimedOut,
                CodedError::new(&commands::START_TIMED_OUT, text),
            ))
        }
        Err(error) => Err(error),
    }
}

/// Runs the stage if this process was started as one. A program that runs commands calls it first. It returns only
/// after a signal or an error.
#[must_use]
pub fn run_if_staged() -> Option<ExitCode> {
    (std::env::args_os().next()? == NAME).then(|| match SetuidStage::receive() {
        Ok(stage) => stage.run(),
        Err(_) => ExitCode::FAILURE,
    })
}

struct SetuidStage {
    socket: UnixStream,
    request: StageRequest,
    working_dir: Option<OwnedFd>,
    executable_dir: Option<OwnedFd>,
}

impl SetuidStage {
    fn receive() -> io::Result<Self> {
        let mut socket =
            UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        let maker = rustix::net::sockopt::socket_peercred(&socket)?;
        if !is_own_parent(maker.pid, maker.uid) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut fds = receive_descriptors(&socket)?.into_iter();
        let mut next = || fds.next().ok_or(ErrorKind::UnexpectedEof);
        rustix::stdio::dup2_stdin(next()?)?;
        rustix::stdio::dup2_stdout(next()?)?;
        rustix::stdio::dup2_stderr(next()?)?;
        let mut bytes = Vec::new();
        (&mut socket).take(STAGE_REQUEST_BYTES_MAX).read_to_end(&mut bytes)?;
        let order = StageRequest::decode(&bytes)?;
        let folder = if order.has_working_dir { fds.next() } else { None };
        Ok(Self { socket, request: order, working_dir: folder, executable_dir: fds.next() })
    }

    fn run(mut self) -> ExitCode {
        let StageRequest { credentials, limits, adopts_orphans: adopts, action, .. } = self.request;
        // Root may enter nearly every directory. Some file systems allow only the user.
        let entered = enter_dir(self.working_dir.as_ref());
        let mut is_folder = false;
        let prepared = set_subreaper(adopts).and_then(|()| credentials.assume()).and_then(|()| {
            let entered = entered.or_else(|_| enter_dir(self.working_dir.as_ref()));
            entered.inspect_err(|_| is_folder = true)
        });
        let error = match (prepared, action) {
            (Err(error), _) => error,
            (Ok(()), StageAction::Signal(kill)) => {
                drop(self.socket);
                return signal::send(kill);
            }
            (
                Ok(()),
                StageAction::Run { candidates, executable_name: image, argv, environment },
            ) => {
                let image = self.executable_dir.take().zip(image);
                let image = image.map(|(folder, name)| CheckedExecutable { dir: folder, name });
                become_command(candidates, image.as_ref(), &argv, &environment, &limits)
            }
        };
        let number = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
        let number = if is_folder { -number } else { number };
        let _ = self.socket.write_all(&number.to_le_bytes());
        ExitCode::FAILURE
    }
}

/// Returns true if the process at the socket is the parent, with the same user and executable.
fn is_own_parent(pid: Pid, uid: Uid) -> bool {
    let executable = |process: &str| {
        let status = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((status.dev(), status.ino()))
    };
    let parent = executable(&pid.as_raw_nonzero().to_string());
    rustix::process::getppid() == Some(pid)
        && rustix::process::geteuid() == uid
        && parent.is_some()
        && parent == executable("self")
}

/// Lets this process, and the command that it becomes, adopt orphans of descendants.
fn set_subreaper(adopts: bool) -> io::Result<()> {
    match adopts {
        true => Ok(set_child_subreaper(Some(getpid()))?),
        false => Ok(()),
    }
}

fn enter_dir(folder: Option<&OwnedFd>) -> io::Result<()> {
    folder.map_or(Ok(()), |folder| Ok(rustix::process::fchdir(folder)?))
}

fn become_command(
    candidates: Vec<OsString>,
    image: Option<&CheckedExecutable>,
    argv: &[OsString],
    environment: &[(OsString, OsString)],
    limits: &[CommandRlimit],
) -> io::Error {
    let candidates = match image {
        Some(CheckedExecutable { dir: folder, name }) => {
            vec![checked_executable::exec_path(folder.as_fd(), name)]
        }
        None => candidates,
    };
    let variable = |(name, value): &(OsString, OsString)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let argv: Result<Vec<_>, _> = argv.iter().map(|word| CString::new(word.as_bytes())).collect();
    let environment: Result<Vec<_>, _> = environment.iter().map(variable).collect();
    let failed = execute_first(candidates, |path| -> io::Result<()> {
        let (path, argv, environment) =
            (CString::new(path.as_bytes())?, argv.as_ref(), environment.as_ref());
        let (argv, environment) = argv.ok().zip(environment.ok()).ok_or(ErrorKind::InvalidInput)?;
        signal::default_pipe()?;
        // The limits come last, because they also apply to this process.
        limits.iter().try_for_each(|limit| limit.impose())?;
        // execvp(3) would pass a file without `#!` to a shell.
        Ok(execve(&path, argv, environment).map(drop)?)
    });
    failed.err().unwrap_or_else(|| ErrorKind::NotFound.into())
}

fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(fds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::credentials::Credentials;
    use crate::exec::start_error;
    use rustix::io::Errno;
    use std::process::Command;

    #[test]
    fn a_stage_that_does_not_begin_is_given_back_in_time() {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let child = Command::new("sleep").arg("600").stdin(OwnedFd::from(theirs)).spawn().unwrap();
        let stage = ReadyStage { child, socket, cgroup: None };
        let order = StageRequest {
            credentials: Credentials::normalized().unwrap(),
            limits: Vec::new(),
            adopts_orphans: false,
            has_working_dir: false,
            action: StageAction::Run {
                candidates: Vec::new(),
                executable_name: None,
                argv: Vec::new(),
                environment: Vec::new(),
            },
        };
        let null = File::open("/dev/null").unwrap();
        let null = null.as_fd();
        let streams = StdStreams { stdin: null, stdout: null, stderr: null };
        let (error, mut stage) = stage.send_request(&order, None, None, streams).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(start_error(error).message, &commands::START_TIMED_OUT);
        assert!(stage.is_alive());
        stage.end();
    }

    #[test]
    fn stage_failure_has_code() {
        let number = |errno: Errno| errno.raw_os_error();
        for (sent, message) in [
            (-number(Errno::ACCESS), &commands::DIRECTORY_UNAVAILABLE),
            (number(Errno::ACCESS), &commands::EXECUTABLE_REFUSED),
            (number(Errno::AGAIN), &commands::START_FAILED),
        ] {
            let (mut socket, mut stage) = UnixStream::pair().unwrap();
            stage.write_all(&sent.to_le_bytes()).unwrap();
            let error = receive_error(&mut socket).unwrap().unwrap();
            assert_eq!(start_error(error).message, message, "{sent}");
        }
    }
}
