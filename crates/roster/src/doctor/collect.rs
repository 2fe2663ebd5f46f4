// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the state of a host, or of a directory with the root of another host. Each read has a limit: only regular files
//! of limited size, and no wait for a device or pipe. A failed read is part of the state. The module evaluates nothing:
//! [`checks`](super::checks) does.

use super::kernel_features::KernelFeature;
use crate::finding::Finding;
use crate::get::EXIT_NOT_FOUND;
use crate::paths::{CONFIG, RUN_DIR, STATE_DIR};
use crate::rosterd_client::{has_code, status_checks, status_report};
use crate::snapshot_file::{DEFAULT_SHADOW, DEFAULT_SNAPSHOT};
use roster_config::{
    ConfigFiles, FileTree, ParsedConfig, SecretFile, VerificationProblem, parse_files,
};
use roster_messages::Diagnostic;
use roster_messages::table::tools;
use roster_snapshot::Floor;
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::floor_file::{self, FloorError};
use roster_snapshot_build::verify::verify;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// File name of the NSS module.
pub const NSS_MODULE: &str = "libnss_roster.so.2";

/// File name of the PAM module.
const PAM_MODULE: &str = "pam_roster.so";
/// Directory of the PAM stacks.
const PAM_STACK_DIR: &str = "/etc/pam.d";

/// Directories of libraries that need no cache of ldconfig(8). `*` is the directory of the architecture on Debian.
const LIBRARY_DIRS: [&str; 6] =
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/*", "/usr/lib/*"];

/// Name for a server of roster nscd.
const OWN_NSCD_NAME: &str = "roster";
/// Symbol of a glibc with a client of nscd. nscd itself uses it to disable the client.
const NSCD_CLIENT_SYMBOL: &str = "__nss_disable_nscd";

/// Bytes that are read from the end of a log.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Limit of records from the kernel log: more than its ring holds by default.
const KERNEL_RECORDS_MAX: usize = 100_000;
/// Age limit of denials. Older ones may be fixed.
const DENIALS_SINCE: Duration = Duration::from_secs(24 * 3600);
/// Limit of configuration files and files of the kernel.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Limit of programs in one finding.
const PROGRAMS_MAX: usize = 20;
/// Limit of the C library with all symbols, and of the cache of the linker.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;
/// Limit of Linux for names of attributes and their values.
const LABEL_BYTES_MAX: usize = 65_536;
/// Attempts to open a path while a directory on it is being renamed.
const OPENS_MAX: usize = 16;
/// Users that are examined to find one with an ordinary name.
const SAMPLES_MAX: u32 = 1000;
/// Timeout of a lookup, which usually takes a millisecond.
const LOOKUP_WAIT: Duration = Duration::from_secs(5);
/// Pause between two checks for its end.
const LOOKUP_PAUSE: Duration = Duration::from_millis(2);
/// Limit of entries of a directory: included configurations, or processes.
const ENTRIES_MAX: usize = 65_536;

/// Result of a read.
#[derive(Clone, Debug)]
pub enum ReadResult<T> {
    Present(T),
    Missing,
    Failed(String),
}

impl<T> From<io::Result<T>> for ReadResult<T> {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Present(value),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// The input of [`super::checks`].
#[derive(Clone, Debug)]
pub struct HostState {
    pub nsswitch: ReadResult<String>,
    pub libc: Libc,
    /// Of the running kernel, if the host is not a mounted root.
    pub missing_kernel_features: Vec<KernelFeature>,
    /// Whether the C library has a client of nscd.
    pub has_nscd_client: bool,
    pub modules: NssModules,
    pub snapshot: SnapshotLocation,
    pub shadow: SnapshotLocation,
    /// The snapshot in `ROSTER_SNAPSHOT` of the caller.
    pub redirected: Option<SnapshotLocation>,
    pub floors: FloorState,
    /// Result of a lookup by a program of this host, if one was made.
    pub lookup: Option<TestLookup>,
    pub nscd: NscdServer,
    pub security: SecurityModules,
    pub daemon: DaemonState,
    pub logins: LoginState,
    pub now: SystemTime,
}

/// The copies of the module in the directories of the linker.
#[derive(Clone, Debug)]
pub struct NssModules {
    pub files: Vec<NssModuleFile>,
    /// The required machine.
    pub machine: Option<ElfMachine>,
}

/// The floor of ids that programs apply to a snapshot that root does not own.
#[derive(Clone, Debug)]
pub struct FloorState {
    /// The floor in the file, if it exists.
    pub file: Result<Option<Floor>, String>,
    /// The floor that follows from the configuration, if it is valid.
    pub configured: Option<Floor>,
}

/// The server on the socket of nscd.
#[derive(Clone, Debug)]
pub enum NscdServer {
    None,
    /// A server of roster nscd with its statistics.
    Maps {
        figures: String,
        /// Running programs that use the module and have no map of that server.
        processes_without_map: Vec<String>,
    },
    /// A server of roster nscd without a reply. It replies only to root.
    Silent {
        is_root: bool,
    },
    /// The name of another program.
    Other(String),
}

/// Security modules, and their denials.
#[derive(Clone, Debug, Default)]
pub struct SecurityModules {
    /// Whether the rules of Roster are installed, on a host with AppArmor.
    pub apparmor: Option<bool>,
    pub selinux: Option<Selinux>,
    /// Log lines of the last day about denied access to files of Roster.
    pub denials: Vec<String>,
}

/// The configuration of logins.
#[derive(Clone, Debug, Default)]
pub struct LoginState {
    /// Domains with logins. `None` if the configuration is not available.
    pub domains: Option<Vec<String>>,
    /// The first stack that names the PAM module.
    pub stack: Option<String>,
    /// A name of the module in a stack that PAM does not find.
    pub missing: Option<String>,
    /// Domains that do not verify KDCs, or refuse logins because the keytab is missing. Only of this host: a mounted
    /// root need not have its keys.
    pub unverified: Vec<(String, VerificationProblem)>,
}

/// The state of rosterd.
#[derive(Clone, Debug)]
pub struct DaemonState {
    /// The daemon's configuration, or every mistake in it.
    pub config: ReadResult<Result<(), Vec<String>>>,
    pub running: DaemonActivity,
}

#[derive(Clone, Debug)]
pub enum DaemonActivity {
    /// Unknown, because the host is a mounted root.
    Unknown,
    No,
    /// rosterd runs, and does not allow queries of this user.
    NotAllowed,
    /// rosterd does not reply.
    Silent(Finding),
    Yes {
        /// The path of its snapshot.
        snapshot: Option<PathBuf>,
        /// The findings of its status.
        findings: Vec<Finding>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc(u32, u32),
    /// musl does not read nsswitch.conf.
    Musl,
    Unknown,
}

/// Class and machine of an ELF header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfMachine(pub u8, pub u16);

#[derive(Clone, Debug)]
pub struct NssModuleFile {
    pub path: PathBuf,
    /// `None` if the file is not an ELF file, or cannot be read.
    pub machine: Option<ElfMachine>,
    pub mode: u32,
    /// Whether the file is in a directory that ld.so finds only by its cache, and is not in that cache.
    pub needs_ldconfig: bool,
}

#[derive(Clone, Debug)]
pub struct SnapshotLocation {
    /// The path that programs use, without the examined root.
    pub path: PathBuf,
    pub kind: SnapshotKind,
    /// The user with this path in the environment. `None` for the default snapshot.
    pub chosen_by: Option<u32>,
    /// The existing directories of the path, `/` first.
    pub parents: Vec<ParentDir>,
    pub state: ReadResult<SnapshotMetadata>,
}

#[derive(Clone, Debug)]
pub struct ParentDir {
    pub path: PathBuf,
    pub is_link: bool,
    /// The owner of the directory itself, also behind a link.
    pub owner: u32,
    pub mode: u32,
}

#[derive(Clone, Debug)]
pub struct SnapshotMetadata {
    pub kind: FileKind,
    pub owner: u32,
    pub mode: u32,
    pub bytes: u64,
    pub published: SystemTime,
    /// The content. `None` if this user may not read it, or it is not a file.
    pub content: Option<Result<SnapshotContent, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Link,
    Other,
}

#[derive(Clone, Debug)]
pub struct SnapshotContent {
    pub generation: u64,
    pub users: u64,
    pub groups: u64,
    pub shadows: u64,
    /// A user of the snapshot, for a lookup.
    pub sample: Option<String>,
}

/// A lookup by getent(1), through glibc and only the NSS module.
#[derive(Clone, Debug)]
pub struct TestLookup {
    pub user: String,
    pub outcome: TestLookupOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestLookupOutcome {
    Found,
    NotFound,
    /// The exit status otherwise, for example a signal.
    Failed(String),
    TimedOut,
}

#[derive(Clone, Debug)]
pub struct Selinux {
    pub enforcing: bool,
    /// Label of the directory of the snapshots.
    pub label: Option<String>,
}

impl HostState {
    pub fn collect(root: &Path, now: SystemTime) -> io::Result<Self> {
        let host = ExaminedRoot::open(root)?;
        let here = host.is_here();
        let user = rustix::process::geteuid().as_raw();
        Ok(Self {
            nsswitch: host.text("/etc/nsswitch.conf").into(),
            libc: host.libc(),
            missing_kernel_features: if here { KernelFeature::missing() } else { Vec::new() },
            has_nscd_client: host.has_nscd_client(),
            modules: host.modules(),
            snapshot: host.snapshot(Path::new(DEFAULT_SNAPSHOT), SnapshotKind::Accounts, None),
            shadow: host.snapshot(Path::new(DEFAULT_SHADOW), SnapshotKind::Shadow, None),
            floors: host.floors(Path::new(CONFIG)),
            lookup: None,
            nscd: host.nscd(),
            security: SecurityModules {
                apparmor: host.apparmor(),
                selinux: host.selinux(),
                denials: host.denials(here, now),
            },
            // Programs of root ignore it.
            redirected: std::env::var_os("ROSTER_SNAPSHOT")
                .filter(|_| here && user != 0)
                .map(|path| host.snapshot(Path::new(&path), SnapshotKind::Accounts, Some(user))),
            daemon: DaemonState { config: host.daemon_config(), running: DaemonActivity::Unknown },
            logins: host.logins(),
            now,
        })
    }

    /// Adds the result of a lookup by a program of this host, if `root` is `/`.
    pub fn with_lookup(mut self, root: &Path) -> Self {
        if let (
            true,
            ReadResult::Present(SnapshotMetadata { content: Some(Ok(content)), .. }),
            false,
        ) = (is_here(root), &self.snapshot.state, self.modules.files.is_empty())
        {
            self.lookup = content.sample.as_deref().and_then(TestLookup::run_getent);
        }
        self
    }

    /// Adds the status of rosterd, if `root` is `/`.
    pub fn with_daemon(mut self, root: &Path) -> Self {
        if is_here(root) {
            self.daemon.running = DaemonActivity::query_daemon(Path::new(RUN_DIR));
        }
        self
    }
}

/// Returns a snapshot of this host. Adds the floors with that configuration if it is the default snapshot.
pub fn snapshot_and_floors(
    snapshot: &Path,
    config: &Path,
) -> io::Result<(SnapshotLocation, Option<FloorState>)> {
    let host = ExaminedRoot::open(Path::new("/"))?;
    let floors = (snapshot == Path::new(DEFAULT_SNAPSHOT)).then(|| host.floors(config));
    Ok((host.snapshot(snapshot, SnapshotKind::Accounts, None), floors))
}

impl DaemonActivity {
    fn query_daemon(run_dir: &Path) -> Self {
        match status_report::report_with_rejected(run_dir) {
            Ok(report) => {
                Self::Yes { snapshot: report.snapshot(), findings: status_checks::check(&report) }
            }
            Err(error) if has_code(&error, &tools::ROSTERD_NOT_RUNNING) => Self::No,
            Err(error) if has_code(&error, &tools::BUS_NOT_PERMITTED) => Self::NotAllowed,
            Err(error) => Self::Silent(Finding::of_error("daemon", &error, &tools::BUS_UNUSABLE)),
        }
    }
}

impl ElfMachine {
    fn from_file(mut file: &File) -> Option<Self> {
        let mut header = [0; 20];
        file.read_exact(&mut header).ok()?;
        match header {
            [0x7f, b'E', b'L', b'F', class, .., low, high] => {
                // A file in another byte order is for another machine, so its number does not matter.
                Some(Self(class, u16::from_ne_bytes([low, high])))
            }
            _ => None,
        }
    }
}

impl TestLookup {
    /// Makes a lookup through glibc and the module. `None` without getent(1).
    fn run_getent(user: &str) -> Option<Self> {
        let mut getent = Command::new("getent")
            .args(["-s", "roster", "passwd", user])
            // The lookup is about the default snapshot.
            .env_remove("ROSTER_SNAPSHOT")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let deadline = Instant::now() + LOOKUP_WAIT;
        let outcome = loop {
            match getent.try_wait().ok()? {
                Some(status) if status.success() => break TestLookupOutcome::Found,
                Some(status) if status.code() == Some(EXIT_NOT_FOUND.into()) => {
                    break TestLookupOutcome::NotFound;
                }
                Some(status) => break TestLookupOutcome::Failed(status.to_string()),
                None if Instant::now() < deadline => std::thread::sleep(LOOKUP_PAUSE),
                None => {
                    // Without a wait: a process that hangs in the kernel does not end.
                    let _ = getent.kill();
                    break TestLookupOutcome::TimedOut;
                }
            }
        };
        Some(Self { user: user.to_owned(), outcome })
    }
}

/// Returns the domains that do not verify KDCs. Only root can read a keytab, and only the service a credential.
fn unverified(domains: &[roster_config::DomainConfig]) -> Vec<(String, VerificationProblem)> {
    let was_used = roster_config::was_keytab_used(Path::new(STATE_DIR));
    let is_root = rustix::process::geteuid().is_root();
    let judged = domains.iter().filter_map(|domain| {
        let krb5 = domain.auth.krb5.as_ref()?;
        let found = krb5.verification_problem(&krb5.read_keytab(was_used, None))?;
        let is_visible = is_root && matches!(krb5.keytab, SecretFile::Path(_));
        (is_visible || !found.is_refused).then(|| (domain.name.clone(), found))
    });
    judged.collect()
}

impl FileTree for ExaminedRoot {
    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let how = OFlags::PATH | OFlags::NOFOLLOW;
        if let Err(error) = self.open_as(directory, how) {
            return if error.kind() == ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) };
        }
        let directory = self.open_as(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let names = Dir::read_from(&directory)?.map(|entry| {
            let name = entry?.file_name().to_bytes().to_vec();
            Ok(OsString::from_vec(name))
        });
        names.collect()
    }

    fn bytes(&self, file: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(file)?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn is_here(root: &Path) -> bool {
    root == Path::new("/")
}

/// The examined root. Paths are those of its own programs: an absolute link of a mounted root leads into that root.
struct ExaminedRoot {
    dir: File,
    resolve: ResolveFlags,
}

impl ExaminedRoot {
    fn open(root: &Path) -> io::Result<Self> {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(root, how, Mode::empty())?.into();
        let resolve = if is_here(root) { ResolveFlags::empty() } else { ResolveFlags::IN_ROOT };
        let host = Self { dir: folder, resolve };
        // Linux before 5.6, and some sandboxes, have only calls that follow links out of the root.
        match host.open_path("/") {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                Err(io::Error::other("this kernel cannot keep links inside it (openat2(2))"))
            }
            result => result.map(|_| host),
        }
    }

    fn is_here(&self) -> bool {
        self.resolve.is_empty()
    }

    fn open_as(&self, path: &Path, how: OFlags) -> io::Result<File> {
        let path = match path.strip_prefix("/").unwrap_or(path) {
            path if path.as_os_str().is_empty() => Path::new("."),
            path => path,
        };
        let how = how | OFlags::CLOEXEC;
        if self.is_here() {
            return Ok(rustix::fs::openat(&self.dir, path, how, Mode::empty())?.into());
        }
        let mut result = Err(Errno::AGAIN);
        for _ in 0..OPENS_MAX {
            result = rustix::fs::openat2(&self.dir, path, how, Mode::empty(), self.resolve);
            // A directory of the path was renamed.
            if result.as_ref().err() != Some(&Errno::AGAIN) {
                break;
            }
        }
        Ok(result?.into())
    }

    /// Opens the target of a path without access to its content, so without a wait.
    fn open_path(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_as(path.as_ref(), OFlags::PATH)
    }

    /// Returns the metadata of a path itself, also if it is a link.
    fn link_metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.open_as(path, OFlags::PATH | OFlags::NOFOLLOW)?.metadata()
    }

    /// Opens a regular file for reading. Fails without a wait for other types.
    fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_as(path.as_ref(), how)?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::other("not a regular file"))
        }
    }

    fn read(&self, path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path, TEXT_BYTES_MAX)?).into_owned())
    }

    /// Returns the names in a directory, sorted.
    fn names_in(&self, folder: &str) -> Vec<String> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(folder) = self.open_as(Path::new(folder), how) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&folder) else { return Vec::new() };
        let entries = entries.flatten().take(ENTRIES_MAX);
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .collect();
        names.sort();
        names
    }

    fn libc(&self) -> Libc {
        for folder in library_dirs() {
            let library = self.read(folder.join("libc.so.6"), LIBRARY_BYTES_MAX);
            if let Some(version) = library.ok().and_then(|library| glibc_version(&library)) {
                return version;
            }
        }
        let is_musl = self.names_in("/lib").iter().any(|name| name.starts_with("ld-musl-"));
        if is_musl { Libc::Musl } else { Libc::Unknown }
    }

    fn modules(&self) -> NssModules {
        let own = File::open("/proc/self/exe").ok();
        NssModules {
            files: self.module_files(),
            machine: own.and_then(|file| ElfMachine::from_file(&file)),
        }
    }

    fn module_files(&self) -> Vec<NssModuleFile> {
        let own = library_dirs();
        let cache = self.read("/etc/ld.so.cache", LIBRARY_BYTES_MAX).unwrap_or_default();
        let mut seen = BTreeSet::new();
        let mut modules = Vec::new();
        for folder in own.iter().cloned().chain(self.configured_dirs()) {
            let path = folder.join(NSS_MODULE);
            let Ok(metadata) = self.open_path(&path).and_then(|file| file.metadata()) else {
                continue;
            };
            // /lib is a link to /usr/lib on most hosts.
            if !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            modules.push(NssModuleFile {
                machine: self.open_file(&path).ok().and_then(|file| ElfMachine::from_file(&file)),
                mode: metadata.mode(),
                needs_ldconfig: !own.contains(&folder) && !contains(&cache, path.to_str()),
                path,
            });
        }
        modules
    }

    /// Returns the directories of ld.so.conf(5) and of its included files.
    fn configured_dirs(&self) -> Vec<PathBuf> {
        let included = self.names_in("/etc/ld.so.conf.d").into_iter();
        let included = included
            .filter(|name| name.ends_with(".conf"))
            .map(|name| format!("/etc/ld.so.conf.d/{name}"));
        let files = std::iter::once("/etc/ld.so.conf".to_owned()).chain(included);
        let mut folders = Vec::new();
        for text in files.filter_map(|file| self.text(file).ok()) {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
            folders.extend(lines.filter(|line| line.starts_with('/')).map(PathBuf::from));
        }
        folders
    }

    fn snapshot(
        &self,
        path: &Path,
        kind: SnapshotKind,
        chosen_by: Option<u32>,
    ) -> SnapshotLocation {
        SnapshotLocation {
            path: path.to_owned(),
            kind,
            chosen_by,
            parents: self.parent_dirs(path),
            state: self
                .link_metadata(path)
                .map(|metadata| self.state(path, &metadata, kind))
                .into(),
        }
    }

    fn parent_dirs(&self, path: &Path) -> Vec<ParentDir> {
        let mut folders = Vec::new();
        for path in path.ancestors().skip(1).filter(|path| path.is_absolute()) {
            let Ok(entry) = self.link_metadata(path) else { continue };
            let Ok(metadata) = self.open_path(path).and_then(|folder| folder.metadata()) else {
                continue;
            };
            folders.push(ParentDir {
                path: path.to_owned(),
                is_link: entry.is_symlink(),
                owner: metadata.uid(),
                mode: metadata.mode() & 0o7777,
            });
        }
        folders.reverse();
        folders
    }

    fn state(&self, path: &Path, metadata: &Metadata, kind: SnapshotKind) -> SnapshotMetadata {
        SnapshotMetadata {
            kind: match metadata.file_type() {
                file if file.is_file() => FileKind::File,
                file if file.is_symlink() => FileKind::Link,
                _ => FileKind::Other,
            },
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
            bytes: metadata.len(),
            published: metadata.modified().unwrap_or(UNIX_EPOCH),
            content: if metadata.is_file() { self.content(path, kind) } else { None },
        }
    }

    fn content(&self, path: &Path, kind: SnapshotKind) -> Option<Result<SnapshotContent, String>> {
        let read = || {
            let file = self.open_file(path)?;
            let len = file.metadata()?.len();
            let mut bytes = Vec::new();
            file.take(len).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Err(error) if io::Error::kind(&error) == ErrorKind::PermissionDenied => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(bytes) => Some(SnapshotContent::from_bytes(&bytes, kind)),
        }
    }

    /// Reads a configuration with its drop-ins. The outer error is about a file that cannot be read.
    fn read_config(&self, main: &Path) -> io::Result<Result<ParsedConfig, Vec<Diagnostic>>> {
        let files = ConfigFiles::read_from(self, main).map_err(|found| {
            let what = format!("{}: {}", found.path.display(), found.error);
            match found.error.kind() {
                _ if found.is_main => found.error,
                // A missing main file, without drop-ins, means a host without a configuration.
                ErrorKind::NotFound => io::Error::other(what),
                kind => io::Error::new(kind, what),
            }
        })?;
        Ok(parse_files(&files))
    }

    fn daemon_config(&self) -> ReadResult<Result<(), Vec<String>>> {
        let parsed = self.read_config(Path::new(CONFIG)).map(|parsed| {
            let lines =
                |problems: Vec<Diagnostic>| problems.iter().map(ToString::to_string).collect();
            parsed.map(drop).map_err(lines)
        });
        parsed.into()
    }

    fn floors(&self, config: &Path) -> FloorState {
        FloorState { file: self.floor(), configured: self.configured_floor(config) }
    }

    fn floor(&self) -> Result<Option<Floor>, String> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        match self.open_as(floor_file::path(), how) {
            Ok(file) => floor_file::parse(file).map(Some).map_err(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FloorError::from(error).to_string()),
        }
    }

    fn configured_floor(&self, config: &Path) -> Option<Floor> {
        let parsed = self.read_config(config).ok()?.ok()?;
        Some(parsed.config.host.floor())
    }

    fn logins(&self) -> LoginState {
        let config = match self.read_config(Path::new(CONFIG)) {
            Ok(parsed) => parsed.ok().map(|parsed| parsed.config.domains),
            Err(error) => (error.kind() == ErrorKind::NotFound).then(Vec::new),
        };
        let unverified = config.as_deref().filter(|_| self.is_here()).map(unverified);
        let log_in =
            |domain: roster_config::DomainConfig| domain.has_logins().then_some(domain.name);
        let domains = config.map(|domains| domains.into_iter().filter_map(log_in).collect());
        let unverified = unverified.unwrap_or_default();
        let mut found = LoginState { domains, unverified, ..LoginState::default() };
        for name in self.names_in(PAM_STACK_DIR) {
            let text = self.text(Path::new(PAM_STACK_DIR).join(&name)).unwrap_or_default();
            for module in pam_modules(&text) {
                if !self.has_pam_module(module) {
                    found.missing.get_or_insert_with(|| module.to_owned());
                }
                found.stack.get_or_insert_with(|| name.clone());
            }
        }
        found
    }

    /// Returns whether PAM finds a module: by its absolute path, or in a directory next to the libraries.
    fn has_pam_module(&self, name: &str) -> bool {
        let path = Path::new(name);
        let folders = if path.is_absolute() { vec![PathBuf::new()] } else { library_dirs() };
        folders.iter().any(|folder| self.open_path(folder.join("security").join(path)).is_ok())
    }

    fn nscd(&self) -> NscdServer {
        if let Some(figures) = self.is_here().then(nscd_statistics).flatten() {
            let processes_without_map = self.processes_without_map();
            return NscdServer::Maps { figures, processes_without_map };
        }
        let is_root = rustix::process::geteuid().is_root();
        match self.nscd_name() {
            None => NscdServer::None,
            Some(Some(name)) if name == OWN_NSCD_NAME => NscdServer::Silent { is_root },
            Some(name) => NscdServer::Other(name.unwrap_or_else(|| "nscd".to_owned())),
        }
    }

    /// Returns the name of the server on the socket of nscd. glibc asks it before any module.
    fn nscd_name(&self) -> Option<Option<String>> {
        let sockets = ["/var/run/nscd/socket", "/run/nscd/socket"];
        sockets
            .iter()
            .find(|socket| self.open_path(socket).is_ok_and(|socket| is_served(&socket)))?;
        let processes = self.names_in("/proc").into_iter();
        let processes: Vec<_> =
            processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
        let mut names =
            processes.iter().filter_map(|process| self.text(format!("/proc/{process}/comm")).ok());
        let other = names.find_map(|name| {
            let name = name.trim();
            ["nscd", "unscd", "nsncd"].contains(&name).then(|| name.to_owned())
        });
        let is_ours = |process: &String| {
            let words = self.text(format!("/proc/{process}/cmdline")).unwrap_or_default();
            is_server(&words)
        };
        Some(other.or_else(|| processes.iter().any(is_ours).then(|| OWN_NSCD_NAME.to_owned())))
    }

    /// Returns the first programs without a map that this user may examine.
    fn processes_without_map(&self) -> Vec<String> {
        let mut programs = Vec::new();
        for process in self.names_in("/proc") {
            if programs.len() >= PROGRAMS_MAX || !process.bytes().all(|byte| byte.is_ascii_digit())
            {
                continue;
            }
            let Ok(maps) = self.text(format!("/proc/{process}/maps")) else { continue };
            let has_map = ["passwd", "group"].map(|table| format!("nscd/{table}."));
            if maps.contains("/libnss_roster.so") && !has_map.iter().any(|map| maps.contains(map)) {
                let words = self.text(format!("/proc/{process}/cmdline")).unwrap_or_default();
                // The helper belongs to the server.
                if words.contains("\0nscd-helper\0") {
                    continue;
                }
                let name = self.text(format!("/proc/{process}/comm")).unwrap_or_default();
                programs.push(format!("{} (process {process})", name.trim()));
            }
        }
        programs
    }

    /// Returns whether the C library has a client of nscd. glibc of Fedora and Arch lacks it, and musl's client does
    /// not read maps. The path of the socket is not a sign: compilers split it into instructions.
    fn has_nscd_client(&self) -> bool {
        library_dirs().iter().any(|folder| {
            let library = self.read(folder.join("libc.so.6"), LIBRARY_BYTES_MAX);
            library.is_ok_and(|library| contains(&library, Some(NSCD_CLIENT_SYMBOL)))
        })
    }

    fn apparmor(&self) -> Option<bool> {
        let enabled = self.text("/sys/module/apparmor/parameters/enabled").ok()?;
        if !enabled.starts_with('Y') || self.open_path("/etc/apparmor.d/abstractions").is_err() {
            return None;
        }
        Some(self.open_path("/etc/apparmor.d/abstractions/nameservice.d/roster").is_ok())
    }

    fn selinux(&self) -> Option<Selinux> {
        let enforcing = self.text("/sys/fs/selinux/enforce").ok()?.trim() == "1";
        let label = self.open_path("/var/lib/roster").ok().and_then(|folder| {
            let mut label = vec![0; LABEL_BYTES_MAX];
            let len = rustix::fs::getxattr(fd_path(&folder), "security.selinux", &mut label[..]);
            Some(String::from_utf8_lossy(&label[..len.ok()?]).trim_end_matches('\0').to_owned())
        });
        Some(Selinux { enforcing, label })
    }

    fn denials(&self, here: bool, now: SystemTime) -> Vec<String> {
        let mut log = self.open_file("/var/log/audit/audit.log").and_then(tail).unwrap_or_default();
        if here {
            log += &kernel_log().unwrap_or_default();
        }
        denials(&log, now)
    }
}

/// Returns the names of the PAM module in a stack.
fn pam_modules(stack: &str) -> impl Iterator<Item = &str> {
    let lines = stack.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(str::split_whitespace).filter(|word| {
        word.strip_suffix(PAM_MODULE).is_some_and(|path| path.is_empty() || path.ends_with('/'))
    })
}

/// Returns the default directories of the linker. Debian's directories are one level deeper, by architecture.
fn library_dirs() -> Vec<PathBuf> {
    let debian = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folder = |folder: &str| match folder.strip_suffix("/*") {
        Some(parent) => Path::new(parent).join(&debian),
        None => PathBuf::from(folder),
    };
    LIBRARY_DIRS.into_iter().map(folder).collect()
}

/// Returns a path to an open file for calls that take no descriptor.
fn fd_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Returns whether a command line is that of a server of `roster nscd`.
fn is_server(command: &str) -> bool {
    let mut words = command.split('\0');
    let program = words.next().and_then(|program| program.rsplit('/').next());
    let rest: Vec<_> = words.collect();
    let admin_requests = ["-g", "--statistics", "-i", "--invalidate", "-K", "--shutdown"];
    let is_nscd = program == Some("roster") && rest.first() == Some(&"nscd");
    is_nscd && !rest.iter().any(|word| admin_requests.contains(word))
}

/// Returns the statistics of roster nscd.
fn nscd_statistics() -> Option<String> {
    let socket = Path::new(roster_nscd::server::socket::SOCKET);
    let figures = crate::nscd::statistics(socket).ok()?;
    let text = String::from_utf8(figures).ok()?;
    // The statistics of nscd are binary.
    text.starts_with("passwd: ").then_some(text)
}

/// Returns whether a process listens on a socket. Does not wait if its backlog is full.
fn is_served(socket: &File) -> bool {
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&client, &SocketAddrUnix::new(fd_path(socket))?)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN))
}

impl SnapshotContent {
    fn from_bytes(bytes: &[u8], kind: SnapshotKind) -> Result<Self, String> {
        let shape = verify(bytes, kind).map_err(|error| error.to_string())?;
        let sample = match kind {
            SnapshotKind::Accounts => {
                roster_snapshot::Snapshot::open(bytes).ok().and_then(|s| sample(&s))
            }
            SnapshotKind::Shadow => None,
        };
        Ok(Self {
            generation: shape.generation,
            users: shape.users.into(),
            groups: shape.groups.into(),
            shadows: shape.shadows.into(),
            sample,
        })
    }
}

/// Returns the first user with a name that getent(1) does not take for an id.
fn sample(snapshot: &roster_snapshot::Snapshot<'_>) -> Option<String> {
    (0..SAMPLES_MAX).find_map(|position| {
        let name = str::from_utf8(snapshot.user(position).ok()??.record().name).ok()?;
        name.starts_with(|first: char| first.is_ascii_alphabetic()).then(|| name.to_owned())
    })
}

/// Returns recent denials about files of Roster. Both kernel modules log in the format of audit(8),
/// `audit(SECONDS.MILLIS:SERIAL)`.
fn denials(log: &str, now: SystemTime) -> Vec<String> {
    let since = now.checked_sub(DENIALS_SINCE).and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let is_recent = |line: &str| {
        let time = line.split("audit(").nth(1).and_then(|rest| rest.split('.').next());
        let time = time.and_then(|seconds| seconds.parse().ok());
        time.is_none_or(|seconds: u64| since.is_none_or(|since| seconds >= since.as_secs()))
    };
    let ours = log.lines().filter(|line| {
        (line.contains("apparmor=\"DENIED\"") || line.contains("avc:  denied"))
            && (line.contains("/roster")
                || line.contains("libnss_roster")
                || line.contains("roster.v3.snap"))
            && is_recent(line)
    });
    ours.map(str::to_owned).collect()
}

fn tail(mut file: File) -> io::Result<String> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES_MAX)))?;
    let mut text = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads /dev/kmsg, which returns one record for each read. The flags avoid a wait after the last one.
fn kernel_log() -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut log = File::from(rustix::fs::open("/dev/kmsg", flags, Mode::empty())?);
    let mut text = String::new();
    let mut record = [0; 8192];
    for _ in 0..KERNEL_RECORDS_MAX {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(len) => text += &String::from_utf8_lossy(&record[..len]),
            // The oldest record was overwritten. The next read continues behind it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    Ok(text)
}

fn glibc_version(library: &[u8]) -> Option<Libc> {
    let banner = b"GNU C Library";
    let start = library.windows(banner.len()).position(|window| window == banner)?;
    let banner = String::from_utf8_lossy(library[start..].get(..256)?);
    let version = banner.split("release version ").nth(1)?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some(Libc::Glibc(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn contains(bytes: &[u8], text: Option<&str>) -> bool {
    text.is_some_and(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_ours_is_known_by_its_command() {
        for ours in ["roster\0nscd\0", "/usr/bin/roster\0nscd\0--user\0roster-nscd\0"] {
            assert!(is_server(ours), "{ours}");
        }
        for other in ["roster\0nscd\0-g\0", "roster\0doctor\0", "vi\0nscd\0", "nscd\0", ""] {
            assert!(!is_server(other), "{other}");
        }
    }

    #[test]
    fn recent_denials_of_our_files_are_found() {
        let log = "\
            type=AVC msg=audit(1700000000.1:1): avc:  denied  { read } path=\"/var/lib/roster/x\"\n\
            type=AVC msg=audit(1600000000.1:2): avc:  denied  { read } path=\"/var/lib/roster/x\"\n\
            type=AVC msg=audit(1700000000.1:3): avc:  denied  { read } path=\"/etc/shadow\"\n\
            5,1,2,-;audit: type=1400 audit(1700000000.9:4): apparmor=\"DENIED\" operation=\"open\" \
            name=\"/var/lib/roster/snap/roster.v3.snap\" comm=\"cupsd\"\n\
            5,1,2,-;audit: type=1400 audit(1700000000.9:5): apparmor=\"ALLOWED\" \
            name=\"/var/lib/roster/snap/roster.v3.snap\"\n";
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_100);
        let found = denials(log, now);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains(":1)") && found[1].contains("cupsd"));
    }

    #[test]
    fn our_module_is_found_in_a_stack() {
        let stack = "# auth required pam_roster.so\nauth [success=1 default=ignore]\tpam_roster.so use_first_pass\n\
                     -session optional /usr/local/lib/security/pam_roster.so\nauth required not_pam_roster.so\n";
        let found: Vec<_> = pam_modules(stack).collect();
        assert_eq!(found, ["pam_roster.so", "/usr/local/lib/security/pam_roster.so"]);
    }

    #[test]
    fn the_version_of_glibc_is_in_its_banner() {
        let mut library =
            b"\x7fELF...GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n"
                .to_vec();
        library.resize(1024, 0);
        assert_eq!(glibc_version(&library), Some(Libc::Glibc(2, 36)));
        assert_eq!(glibc_version(b"musl"), None);
    }
}
