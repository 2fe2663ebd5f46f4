// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 session`: creates, refills, renews and removes a credential cache for a user's session, as the user.
//!
//! The PAM module starts it, often from a process of root. It checks uid and gid ([`crate::account`]), and becomes the
//! user before it opens anything. Names of files, files and keys of one user therefore cannot harm another. It prints
//! the name of the cache in the form of `KRB5CCNAME`.
//!
//! The caller may be a hijacked daemon with an AppArmor profile. Callers therefore choose neither a group nor a system
//! user, and no line of libkrb5's configuration ([`crate::krb5_conf`]).

use crate::libkrb5::{Ccache, KerberosTicket, LibraryContext, TicketTimes};
use crate::{account, coded, fork, krb5_conf, memory_lock};
use roster_krb5_helper::ipc::MESSAGE_BYTES_MAX;
use roster_krb5_helper::session_ticket::SessionTicket;
use roster_messages::table::login;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Gid, Pid, PidfdFlags, Uid, geteuid, pidfd_open, setsid};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Prefix of caches in files.
const FILE: &str = "FILE:";
/// Pattern in their names that is replaced by random characters.
const NAME_PATTERN: &str = "XXXXXX";
/// Attempts to find an unused name: each one is in use once in 10¹⁰ times.
const NAME_ATTEMPTS_MAX: usize = 16;
/// Shortest time between two attempts to renew a ticket.
const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// Interval of checks of a cache, which may be removed or have another ticket, and of the clock, which advances while
/// the host sleeps.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The start time in a line of /proc/PID/stat, counted from the field behind the name: field 22 of proc(5).
const START_TIME_FIELD: usize = 19;

/// Makes a cache with the ticket from standard input, and prints its name. If the ticket is renewable, a process stays
/// in the background to renew it, as long as the caller's process and the cache exist.
pub fn store(uid: &str, gid: &str) -> io::Result<()> {
    let session = rustix::process::getppid();
    become_user(uid, gid)?;
    let tickets = read_ticket()?;
    let context = LibraryContext::new(&krb5_conf::realm_profile(&tickets.realm))?;
    let name = if tickets.cache.starts_with(FILE) {
        new_file(&tickets.cache, &tickets.file)?
    } else {
        let held = MemoryCcache::new(&tickets.file)?;
        let (mut all, source) = held.read(&context)?;
        let collection = CcacheCollection::new(&tickets.cache)?;
        let cache = collection.cache()?;
        let principal = source.principal().map_err(io::Error::other)?;
        cache.fill(&principal, &mut all).map_err(io::Error::other)?;
        // For programs of the user outside of the session: timers, services.
        let _ = cache.make_default();
        cache.name().map_err(io::Error::other)?
    };
    let mut output = io::stdout();
    output.write_all(format!("{name}\n").as_bytes())?;
    output.flush()?;
    if tickets.renew
        && let Some(session) = session
        && let Ok(session) = SessionProcess::open(session)
    {
        fork::fork(&[], || {
            let _ = memory_lock::lock();
            let _ = renew(&context, &name, &session);
        })?;
    }
    Ok(())
}

/// The process of a session. Its end ends the renewals.
enum SessionProcess {
    /// A descriptor that reports the end as an event.
    Pidfd(OwnedFd),
    /// Before Linux 5.3 its end is seen at the next check. Another process with its number has another start time.
    Number { pid: Pid, started: u64 },
}

impl SessionProcess {
    fn open(pid: Pid) -> io::Result<Self> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Self::Pidfd(process)),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self::Number { pid, started: start_time(pid)? }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the process ends within that time.
    fn ends_within(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let polled = match self {
            Self::Pidfd(process) => {
                poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)).map(|ready| ready > 0)
            }
            Self::Number { pid, started } => {
                poll(&mut [], Some(&time)).map(|_| start_time(*pid).ok() != Some(*started))
            }
        };
        match polled {
            Err(Errno::INTR) => Ok(false),
            polled => Ok(polled?),
        }
    }
}

/// Returns the start time of a process, in clock ticks since the start of the host.
fn start_time(pid: Pid) -> io::Result<u64> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let line = std::fs::read_to_string(&path)?;
    // The name of the program, in parentheses, may have any character.
    let fields = line.rsplit_once(')').map(|(_, fields)| fields);
    let started = fields.and_then(|fields| fields.split_whitespace().nth(START_TIME_FIELD));
    let started = started.and_then(|field| field.parse().ok());
    started.ok_or_else(|| io::Error::other(format!("{path}: invalid line")))
}

/// Writes the ticket from standard input to an existing cache, if it has the same principal.
pub fn refresh(uid: &str, gid: &str, name: &str) -> io::Result<()> {
    become_user(uid, gid)?;
    let tickets = read_ticket()?;
    let context = LibraryContext::new(&krb5_conf::realm_profile(&tickets.realm))?;
    let held = MemoryCcache::new(&tickets.file)?;
    let (mut all, source) = held.read(&context)?;
    let principal = source.principal().map_err(io::Error::other)?;
    let cache = context.cache(name).map_err(io::Error::other)?;
    let owner = cache.principal().and_then(|owner| owner.text()).map_err(io::Error::other)?;
    if principal.text().map_err(io::Error::other)? != owner {
        let text = format!("{name}: the cache belongs to {owner}");
        return Err(coded(&login::KRB5_CACHE_OWNER, text));
    }
    match name.strip_prefix(FILE) {
        Some(path) => replace_file(Path::new(path), &tickets.file)?,
        None => cache.fill(&principal, &mut all).map_err(io::Error::other)?,
    }
    io::stdout().write_all(format!("{name}\n").as_bytes())
}

/// Removes a cache.
pub fn delete(uid: &str, gid: &str, name: &str) -> io::Result<()> {
    become_user(uid, gid)?;
    match name.strip_prefix(FILE) {
        Some(path) => match unlinkat(CWD, path, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        },
        None => {
            let context = LibraryContext::new(krb5_conf::EMPTY_PROFILE)?;
            let cache = context.cache(name).map_err(io::Error::other)?;
            cache.destroy().map_err(io::Error::other)
        }
    }
}

/// Drops all rights beyond this user's. Without root there are none to drop, and the process cannot become another
/// user.
fn become_user(uid: &str, gid: &str) -> io::Result<()> {
    let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else {
        return Err(coded(&login::KRB5_USAGE, format!("{uid} {gid}: not a uid and a gid")));
    };
    account::check(uid, gid)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if geteuid().is_root() {
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    if rustix::process::getuid() != uid || geteuid() != uid {
        let text = "the process belongs to another user";
        return Err(coded(&login::KRB5_SESSION_PROCESS, text));
    }
    let _ = rustix::thread::set_no_new_privs(true);
    // The memory may have come from root; from now on it has session keys.
    memory_lock::hide()?;
    // Depends on the limits of the session.
    let _ = memory_lock::lock();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::chdir("/")?;
    Ok(())
}

fn read_ticket() -> io::Result<SessionTicket> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
    io::stdin().take(MESSAGE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    SessionTicket::decode(&bytes).map_err(io::Error::other)
}

/// The bytes of a file of credentials, as a memfd.
struct MemoryCcache(File);

impl MemoryCcache {
    fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create("roster-tickets", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(Self(file))
    }

    /// Returns its tickets, and the cache.
    fn read<'c>(
        &self,
        context: &'c LibraryContext,
    ) -> io::Result<(Vec<KerberosTicket<'c>>, Ccache<'c>)> {
        let name = format!("{FILE}/proc/self/fd/{}", self.0.as_raw_fd());
        let cache = context.cache(&name).map_err(io::Error::other)?;
        let tickets = cache.tickets().map_err(io::Error::other)?;
        Ok((tickets, cache))
    }
}

/// A context that creates new caches in one collection.
struct CcacheCollection {
    context: LibraryContext,
    kind: String,
}

impl CcacheCollection {
    fn new(name: &str) -> io::Result<Self> {
        let kind = name.split(':').next().unwrap_or_default().to_owned();
        Ok(Self { context: LibraryContext::new(&krb5_conf::collection_profile(name))?, kind })
    }

    fn cache(&self) -> io::Result<Ccache<'_>> {
        self.context.new_cache(&self.kind).map_err(io::Error::other)
    }
}

/// Creates a file with these bytes. `XXXXXX` in the name becomes random characters. An existing file of that name, in
/// particular a link, stays untouched.
fn new_file(name: &str, bytes: &[u8]) -> io::Result<String> {
    let stem = name.strip_suffix(NAME_PATTERN).ok_or_else(|| {
        let text = format!("{name}: the name does not end in {NAME_PATTERN}");
        coded(&login::KRB5_CACHE_NAME, text)
    })?;
    let path = |name: &str| PathBuf::from(name.strip_prefix(FILE).unwrap_or(name));
    for _ in 0..NAME_ATTEMPTS_MAX {
        let name = format!("{stem}{}", random_letters()?);
        match create(&path(&name)) {
            Ok(mut file) => {
                if let Err(error) = file.write_all(bytes) {
                    let _ = std::fs::remove_file(path(&name));
                    return Err(error);
                }
                return Ok(name);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(coded(&login::KRB5_CACHE_NAME, format!("{name}: all names of this pattern exist")))
}

fn create(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Replaces a file of this user, in one step. The new file has a random name, because other users may create files in
/// the directory.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        let text = format!("{}: not a file of this user", path.display());
        return Err(coded(&login::KRB5_CACHE_OWNER, text));
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".");
    new.push(random_letters()?);
    let new = PathBuf::from(new);
    let done = create(&new).map_err(io::Error::from).and_then(|mut file| file.write_all(bytes));
    let done = done.and_then(|()| Ok(renameat(CWD, &new, CWD, path)?));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

fn random_letters() -> io::Result<String> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; NAME_PATTERN.len() + 2];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

/// Renews the ticket-granting ticket of a cache until the session's process ends, the cache is removed, or its ticket
/// is no longer renewable.
fn renew(context: &LibraryContext, name: &str, session: &SessionProcess) -> io::Result<()> {
    // The caller waits for the end of the output.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let _ = setsid();
    loop {
        let pause = {
            let cache = context.cache(name).map_err(io::Error::other)?;
            let Some(times) = tgt_times(&cache) else { return Ok(()) };
            match until_renewal(now(), times) {
                None => return Ok(()),
                Some(Duration::ZERO) => {
                    let principal = cache.principal().map_err(io::Error::other)?;
                    let renewed = cache.renew(&principal).map_err(io::Error::other);
                    match renewed.and_then(|ticket| replace_ticket(&cache, name, ticket)) {
                        Ok(()) => Duration::ZERO,
                        Err(_) => RENEWAL_PAUSE,
                    }
                }
                Some(pause) => pause.min(CHECK_INTERVAL),
            }
        };
        if session.ends_within(pause)? {
            return Ok(());
        }
    }
}

/// Returns the times of a cache's ticket-granting ticket; `None` if the cache was removed.
fn tgt_times(cache: &Ccache<'_>) -> Option<TicketTimes> {
    let tickets = cache.tickets().ok()?;
    tickets.iter().find(|ticket| ticket.is_tgt()).map(KerberosTicket::times)
}

/// Returns the time until half of a ticket's lifetime has passed; `None` if a renewal is useless.
fn until_renewal(now: u64, times: TicketTimes) -> Option<Duration> {
    let (start, end) = (u64::from(times.start), u64::from(times.end));
    if u64::from(times.renew_till?) <= end || now >= end {
        return None;
    }
    let middle = start + end.saturating_sub(start) / 2;
    Some(Duration::from_secs(middle.saturating_sub(now)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn replace_ticket(cache: &Ccache<'_>, name: &str, ticket: KerberosTicket<'_>) -> io::Result<()> {
    match name.strip_prefix(FILE) {
        Some(path) => replace_file(Path::new(path), &ticket.to_file()),
        None => {
            let principal = cache.principal().map_err(io::Error::other)?;
            cache.fill(&principal, &mut [ticket]).map_err(io::Error::other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn krb5_ticket_is_renewed_at_half_life() {
        let times = |end, renew_till| TicketTimes { start: 1000, end, renew_till };
        let pause = |now, times| until_renewal(now, times).map(|pause| pause.as_secs());
        assert_eq!(pause(1000, times(2000, Some(9000))), Some(500));
        assert_eq!(pause(1500, times(2000, Some(9000))), Some(0));
        assert_eq!(pause(1999, times(2000, Some(9000))), Some(0));
        assert_eq!(pause(2000, times(2000, Some(9000))), None, "it has expired");
        assert_eq!(pause(1000, times(2000, Some(2000))), None, "the last one");
        assert_eq!(pause(1000, times(2000, None)), None);
    }

    #[test]
    fn session_ccache_file_is_private_never_link() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("FILE:{}/krb5cc_1_XXXXXX", folder.path().display());
        let made = new_file(&name, b"ticket").unwrap();
        let path = Path::new(made.strip_prefix(FILE).unwrap());
        assert_eq!(std::fs::read(path).unwrap(), b"ticket");
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_ne!(new_file(&name, b"ticket").unwrap(), made);
        assert!(new_file("FILE:/tmp/krb5cc_1", b"ticket").is_err());
        let (aim, link) = (folder.path().join("aim"), folder.path().join("link"));
        symlink(&aim, &link).unwrap();
        assert_eq!(create(&link).unwrap_err(), Errno::EXIST);
        assert!(replace_file(&link, b"ticket").is_err());
        assert!(!aim.exists());
    }

    #[test]
    fn session_end_without_pidfd_seen_by_start_time() {
        let own = rustix::process::getpid();
        let started = start_time(own).unwrap();
        let ends = |pid, started| {
            SessionProcess::Number { pid, started }.ends_within(Duration::ZERO).unwrap()
        };
        assert!(!ends(own, started));
        assert!(ends(own, started - 1), "a later process with the same number");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        child.wait().unwrap();
        assert!(ends(pid, started));
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        std::fs::write(&path, "old").unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
