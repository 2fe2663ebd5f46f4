// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: it reads one request after the other, checks the caller, requests the decision of `rule_match`,
//! starts the command, and replies. It runs in its own thread. `daemon` accepts connections.

use super::audit_record::{AuditRecord, ExecOutcome, quote_command};
use super::environment::build_environment;
use super::exec_toml::ExecPolicy;
use super::frame_reader::{FrameReader, ReceivedRequest};
use super::nss_lookups::{self, LookupUnavailable};
use super::peer::PeerProcess;
use super::resource_limits::ConnectionSlot;
use super::rule_match::{Caller, Denial, ExecRequest, Permit, decide};
use super::services::ExecServices;
use super::supervise::{EndedCommand, RunningCommand};
use crate::exec::{ExecContext, StartError, StartTimeout, StdStreams};
use roster_exec::protocol::{CommandEnd, CommandReply, CommandRequest, DenyCode};
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::isatty;
use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Limit of the wait for the first request of a connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the wait for a further request.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit of the wait for a client to read a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time of matching after which the client is checked.
const MATCH_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Limit of matching.
const MATCH_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason for which a command does not run.
struct RunFailure {
    code: DenyCode,
    error: Box<CodedError>,
    /// The signal by which the caller cancelled the command.
    signal: Option<u32>,
    /// A process that did not start in time. It ends after the reply.
    start_timeout: Option<StartTimeout>,
}

impl RunFailure {
    fn new(code: DenyCode, error: impl Into<Box<CodedError>>) -> Self {
        Self { code, error: error.into(), signal: None, start_timeout: None }
    }

    fn unsupervised(error: io::Error) -> Self {
        let failed = CodedError::new(&commands::SUPERVISION_FAILED, "cannot be supervised");
        Self::new(DenyCode::Failed, failed.caused_by(error))
    }

    fn reply(&self) -> CommandReply {
        match self.signal {
            Some(signal) => CommandReply::Ended(CommandEnd::Died(signal)),
            None => CommandReply::Denied(self.code, self.error.to_string()),
        }
    }
}

impl From<LookupUnavailable> for RunFailure {
    fn from(_: LookupUnavailable) -> Self {
        let text = "the name service of this host does not answer";
        Self::new(DenyCode::Failed, CodedError::new(&commands::NAME_SERVICE_UNAVAILABLE, text))
    }
}

/// Serves a connection until the client closes it.
pub(super) fn serve(services: &ExecServices, place: &ConnectionSlot) -> io::Result<()> {
    let stream = place.stream();
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let peer = PeerProcess::from_stream(stream)?;
    let mut session =
        ConnectionHandler { services, slot: place, peer, frames: FrameReader::new(stream) };
    let (mut begins_in, mut is_first) = (FIRST_REQUEST_TIMEOUT, true);
    loop {
        let mut room = None;
        let received = session.frames.next_request(begins_in, |bytes| {
            room = place.reserve_bytes(bytes);
            room.is_some()
        });
        let received = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            Err(error) => {
                services.counters.malformed.add();
                if error.kind() == ErrorKind::OutOfMemory {
                    let text = "no memory is left for the request";
                    let full = CodedError::new(&commands::REQUESTS_TOO_LARGE, text);
                    session.send_reply(&RunFailure::new(DenyCode::Busy, full).reply())?;
                }
                return Err(error);
            }
        };
        // A process that has changed its user has to connect again.
        if !is_first && !session.peer.is_same_user() {
            return Ok(());
        }
        is_first = false;
        place.mark_busy();
        session.handle_request(received)?;
        services.executor.prestart_stages();
        if !place.mark_idle() {
            return Ok(());
        }
        begins_in = NEXT_REQUEST_TIMEOUT;
    }
}

struct ConnectionHandler<'d> {
    services: &'d ExecServices,
    slot: &'d ConnectionSlot,
    peer: PeerProcess,
    frames: FrameReader<'d>,
}

impl ConnectionHandler<'_> {
    /// Runs one command, and reports it to the caller and the journal.
    fn handle_request(&mut self, received: ReceivedRequest) -> io::Result<()> {
        let began = Instant::now();
        let mut record = self.new_record(&received.request);
        let mut late = None;
        let (answer, verdict, ended) = match self.run_command(received, &mut record) {
            Ok(ended) => {
                (CommandReply::Ended(ended.end), ExecOutcome::Ended(ended.end), Some(ended))
            }
            Err(mut not_run) => {
                late = not_run.start_timeout.take();
                let RunFailure { code, ref error, .. } = not_run;
                let outcome = ExecOutcome::Denied(code, error.message, error.to_string());
                (not_run.reply(), outcome, None)
            }
        };
        let told = self.send_reply(&answer);
        record.duration = began.elapsed();
        record.bytes = ended.and_then(EndedCommand::reap);
        record.outcome = verdict;
        record.counters = Some(self.services.counters.fields());
        self.services.journal.enqueue_record(record);
        // The connection occupies its slot until the process has ended.
        drop(late);
        told
    }

    fn new_record(&self, request: &CommandRequest) -> AuditRecord {
        AuditRecord {
            uid: self.peer.uid,
            pid: self.peer.pid,
            id: self.services.journal.next_id(),
            command_pid: None,
            user: "?".into(),
            executable: self.peer.executable.clone(),
            command: quote_command(&request.argv),
            // The caller may name any string.
            run_as: quote_command(&[request.run_as.as_deref().unwrap_or("root").into()]),
            rule: None,
            outcome: ExecOutcome::Starting,
            duration: Duration::ZERO,
            bytes: None,
            counters: None,
        }
    }

    fn run_command(
        &mut self,
        received: ReceivedRequest,
        record: &mut AuditRecord,
    ) -> Result<EndedCommand, RunFailure> {
        let ReceivedRequest { request, fds } = received;
        self.check_caller()?;
        let policy = self.services.policy();
        let (permit, gids) = self.find_permit(&policy, &request, record)?;
        let rule = permit.rule();
        record.rule = Some(rule.name.clone());
        record.run_as.clone_from(&rule.run_as);
        record.command = quote_command(permit.argv());
        let _turn = self.slot.reserve_command().ok_or_else(|| {
            let text = "too many concurrent commands";
            RunFailure::new(DenyCode::Busy, CodedError::new(&commands::COMMANDS_TOO_MANY, text))
        })?;
        let names = &self.services.nss_lookups;
        let absent = |message, name: &str| {
            let text = format!("rule {}: {name} does not exist", rule.name);
            RunFailure::new(DenyCode::Failed, CodedError::new(message, text))
        };
        let account = names.lookup_account(&rule.run_as)?;
        let mut account = account.ok_or_else(|| {
            absent(&commands::RULE_USER_UNKNOWN, &format!("user {}", rule.run_as))
        })?;
        if let Some(group) = &rule.run_as_group {
            let gid = names
                .lookup_group(group)?
                .ok_or_else(|| absent(&commands::RULE_GROUP_UNKNOWN, &format!("group {group}")))?;
            account = account.with_group(gid).into();
        }
        let caller = (self.peer.uid, record.user.as_str());
        let environment = build_environment(&account, caller, permit.kept_environment());
        let [stdin, stdout, stderr, folder] = &*fds;
        let on_terminal = [stdin, stdout, stderr].into_iter().any(isatty);
        let setting =
            ExecContext { account: &account, environment: &environment, working_dir: folder };
        let streams =
            StdStreams { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() };
        // The daemon enters the directory as root. If the command has only the rights of the caller, the kernel checks
        // them.
        let has_own_rights = account.uid() == self.peer.uid && rule.run_as_group.is_none();
        if !has_own_rights && !self.peer.may_enter(folder, &gids) {
            let text = "the caller may not enter the directory";
            let forbidden = CodedError::new(&commands::DIRECTORY_FORBIDDEN, text);
            return Err(RunFailure::new(DenyCode::Failed, forbidden));
        }
        if !has_own_rights && let Some(fault) = streams.fault() {
            return Err(RunFailure::new(DenyCode::Failed, fault));
        }
        // The caller may have ended while the command waited for its slot.
        self.check_cancelled()?;
        self.services.journal.send_start(record);
        let started = self.services.executor.start_permitted(&permit, &setting, streams)?;
        drop(fds);
        let _running = self.services.counters.running.hold();
        let running = RunningCommand::new(started, rule.timeout, on_terminal)
            .map_err(RunFailure::unsupervised)?;
        record.command_pid = Some(running.pid());
        // The supervision detects a caller that has gone.
        let stream = self.frames.stream();
        let _ = write_reply(stream, &CommandReply::Started(running.pid()));
        running
            .supervise(&mut self.frames, |answer| write_reply(stream, answer))
            .map_err(RunFailure::unsupervised)
    }

    /// Returns an error if the process that connected has ended. Another process may have inherited the connection.
    fn check_caller(&self) -> Result<(), RunFailure> {
        match self.peer.is_alive() {
            true => Ok(()),
            false => {
                let text = "the process that connected has ended";
                let gone = CodedError::new(&commands::CALLER_GONE, text);
                Err(RunFailure::new(DenyCode::Refused, gone))
            }
        }
    }

    /// Returns an error if the caller has ended, or has cancelled the command by a signal.
    fn check_cancelled(&mut self) -> Result<(), RunFailure> {
        self.check_caller()?;
        let failure =
            |message, text| RunFailure::new(DenyCode::Failed, CodedError::new(message, text));
        let gone = "the client disconnected before the command started";
        self.frames.read_all().map_err(|_| failure(&commands::CALLER_GONE, gone))?;
        match self.frames.termination_signal() {
            None => Ok(()),
            signal => {
                let text = "cancelled by the client before it started";
                let not_run = failure(&commands::CALLER_CANCELLED, text);
                Err(RunFailure { signal, ..not_run })
            }
        }
    }

    /// Returns true while both the caller and the daemon continue.
    fn is_awaited(&self) -> bool {
        self.peer.is_alive() && !self.slot.is_ending() && !is_closed(self.frames.stream())
    }

    /// Returns the permit of the policy for the request, and the groups of the caller.
    fn find_permit<'p>(
        &self,
        policy: &'p ExecPolicy,
        request: &CommandRequest,
        record: &mut AuditRecord,
    ) -> Result<(Permit<'p>, Vec<u32>), RunFailure> {
        let uid = self.peer.uid;
        let Some(user) = self
            .services
            .nss_lookups
            .lookup_caller(uid, self.services.subuid_owners.find_owner(uid))?
        else {
            let text = format!("this host knows no user with uid {uid}");
            let unknown = CodedError::new(&commands::CALLER_UNKNOWN, text);
            return Err(RunFailure::new(DenyCode::Refused, unknown));
        };
        record.user.clone_from(&user.name);
        let began = Instant::now();
        let asked = Cell::new(Duration::ZERO);
        let is_in = |group: &str| {
            // Several lookups without an answer take no longer than one.
            let is_time = began.elapsed() < nss_lookups::LOOKUP_TIMEOUT;
            let before = Instant::now();
            let gid = is_time.then(|| self.services.nss_lookups.lookup_group(group).ok()).flatten();
            asked.set(asked.get() + before.elapsed());
            Some(gid?.is_some_and(|gid| user.gids.contains(&gid)))
        };
        let caller = Caller { user: &user.name, is_in: &is_in };
        let goes_on = || {
            let time = began.elapsed().saturating_sub(asked.get());
            time < MATCH_CHECK_INTERVAL || time < MATCH_TIMEOUT && self.is_awaited()
        };
        let wanted = ExecRequest {
            argv: &request.argv,
            run_as: request.run_as.as_deref(),
            environment: &request.environment,
            is_awaited: &goes_on,
        };
        let host = rustix::system::uname();
        let permit = decide(policy, &host.nodename().to_string_lossy(), &caller, &wanted);
        let permit = permit.map_err(|denial| {
            let why = match denial {
                Denial::LookupUnavailable | Denial::Abandoned => DenyCode::Failed,
                _ => DenyCode::Refused,
            };
            RunFailure::new(why, CodedError::new(denial.message(), denial.to_string()))
        })?;
        Ok((permit, user.gids.clone()))
    }

    fn send_reply(&self, answer: &CommandReply) -> io::Result<()> {
        write_reply(self.frames.stream(), answer)
    }
}

fn is_closed(stream: &UnixStream) -> bool {
    // poll(2) reports a hang-up without a request for it.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stream, PollFlags::empty())], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn write_reply(mut stream: &UnixStream, answer: &CommandReply) -> io::Result<()> {
    stream.write_all(&answer.encode())
}

impl From<StartError> for RunFailure {
    fn from(not_started: StartError) -> Self {
        match not_started {
            StartError::NotFound => {
                let text = "the executable does not exist";
                Self::new(DenyCode::NotFound, CodedError::new(&commands::EXECUTABLE_MISSING, text))
            }
            StartError::NotExecutable(error) => Self::new(DenyCode::NotExecutable, error),
            StartError::Failed(error) => Self::new(DenyCode::Failed, error),
            StartError::TimedOut(error, late) => {
                Self { start_timeout: Some(late), ..Self::new(DenyCode::Failed, error) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Executor;
    use crate::exec_daemon::resource_limits::ResourceLimits;
    use nix::unistd::{Uid, User};
    use roster_exec::protocol::encode_signal;
    use roster_fd_passing::deferred_close::BoundedClose;
    use roster_messages::Message;
    use std::fs::{File, Permissions};
    use std::io::Read;
    use std::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    /// A connection of this process to itself.
    struct TestConnection {
        services: ExecServices,
        client: UnixStream,
        slot: ConnectionSlot,
    }

    impl TestConnection {
        /// Creates it with a rule of more keys. The slot is that of a user with one command at a time.
        fn new(users: &str, keys: &str) -> Self {
            let rule = format!(
                "[[rule]]\nname = \"a\"\ncommand = \"/bin/true\"\nusers = [\"{users}\"]\n{keys}\n"
            );
            let policy = ExecPolicy::parse(Path::new("exec.toml"), &rule).unwrap();
            let executor = Arc::new(Executor::for_tests().unwrap());
            let services = ExecServices::new(policy, executor, Arc::default()).unwrap();
            let (client, stream) = UnixStream::pair().unwrap();
            let (admitted, _) = ResourceLimits::for_files(0, Duration::ZERO).admit(7, stream);
            let Ok(slot) = admitted else { panic!("no slot") };
            Self { services, client, slot }
        }

        /// Returns the row of the failure of a command of the rule.
        fn failure(&self, uid: u32, run_as: Option<&str>, directory: &Path) -> &'static Message {
            let mut peer = PeerProcess::from_stream(self.slot.stream()).unwrap();
            peer.uid = uid;
            let mut handler = ConnectionHandler {
                services: &self.services,
                slot: &self.slot,
                peer,
                frames: FrameReader::new(self.slot.stream()),
            };
            let request = CommandRequest {
                run_as: run_as.map(str::to_owned),
                argv: vec!["true".into()],
                environment: Vec::new(),
            };
            let fds = ["/dev/null".as_ref(), "/dev/null".as_ref(), "/dev/null".as_ref(), directory]
                .map(|path| OwnedFd::from(File::open(path).unwrap()));
            let mut record = handler.new_record(&request);
            let received = ReceivedRequest { request, fds: BoundedClose::new(fds) };
            match handler.run_command(received, &mut record) {
                Ok(_) => panic!("the command ran"),
                Err(failure) => failure.error.message,
            }
        }
    }

    /// The name of the user of this process, and the uid.
    fn own_user() -> (String, u32) {
        let uid = Uid::effective();
        (User::from_uid(uid).unwrap().unwrap().name, uid.as_raw())
    }

    #[test]
    fn request_that_names_unknown_account_has_code() {
        let (own, uid) = own_user();
        let here = Path::new(".");
        for (keys, uid, run_as, message) in [
            ("", 4_000_000_001, None, &commands::CALLER_UNKNOWN),
            ("run_as = \"no such\"", uid, Some("no such"), &commands::RULE_USER_UNKNOWN),
            ("run_as_group = \"no such\"", uid, None, &commands::RULE_GROUP_UNKNOWN),
        ] {
            let failure = TestConnection::new(&own, keys).failure(uid, run_as, here);
            assert_eq!(failure, message, "{keys}");
        }
    }

    #[test]
    fn request_in_closed_directory_has_code() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let connection = TestConnection::new("nobody", "");
        let failure = connection.failure(nobody.uid.as_raw(), None, folder.path());
        assert_eq!(failure, &commands::DIRECTORY_FORBIDDEN);
    }

    #[test]
    fn request_that_is_not_started_has_code() {
        let (own, uid) = own_user();
        let connection = TestConnection::new(&own, "");
        let failure = || connection.failure(uid, None, Path::new("."));
        let turn = connection.slot.reserve_command().unwrap();
        assert_eq!(failure(), &commands::COMMANDS_TOO_MANY);
        drop(turn);
        (&connection.client).write_all(&encode_signal(15)).unwrap();
        assert_eq!(failure(), &commands::CALLER_CANCELLED);
        connection.client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(failure(), &commands::CALLER_GONE);
    }

    #[test]
    fn request_without_memory_has_code() {
        let connection = TestConnection::new("x", "");
        let _room = connection.slot.reserve_bytes(16 << 20).unwrap();
        let mut head = *b"R\0\0\0\0\0\0\0";
        head[4..].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        (&connection.client).write_all(&head).unwrap();
        assert!(serve(&connection.services, &connection.slot).is_err());
        let mut reply = [0; 4096];
        let count = (&connection.client).read(&mut reply).unwrap();
        let reply = String::from_utf8_lossy(&reply[..count]);
        assert!(reply.contains(commands::REQUESTS_TOO_LARGE.code), "{reply}");
    }

    #[test]
    fn command_that_is_not_supervised_has_code() {
        let error = ErrorKind::OutOfMemory.into();
        let reply = RunFailure::unsupervised(error).reply();
        let CommandReply::Denied(DenyCode::Failed, text) = reply else { panic!("{reply:?}") };
        assert!(text.ends_with(&format!("[{}]", commands::SUPERVISION_FAILED)), "{text}");
    }
}
