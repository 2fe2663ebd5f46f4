//! What is the case on a host, or in a folder that looks like one.
//!
//! Reads only, and every read has a bound. What cannot be read is a fact too.

use roster_snapshot::layout::Kind;
use roster_snapshot_build::verify::verify;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File name by which glibc loads the module.
pub const MODULE: &str = "libnss_roster.so.2";

/// Where libraries are found without the cache of ldconfig(8); the first is Debian's.
const LIBRARY_FOLDERS: [&str; 6] = ["lib", "usr/lib", "lib64", "usr/lib64", "lib/*", "usr/lib/*"];

/// The end of a log that is read.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Records of the kernel's log that are read: more than its ring holds by default.
const KERNEL_RECORDS_MAX: usize = 100_000;
/// Older denials may have been dealt with.
const DENIALS_SINCE: Duration = Duration::from_secs(24 * 3600);
/// Entries of a folder that are looked at: included configurations, or processes.
const ENTRIES_MAX: usize = 65_536;

/// Something to be read: there, not there, or not to be had.
#[derive(Clone, Debug)]
pub enum Read<T> {
    Have(T),
    Missing,
    Failed(String),
}

impl<T> From<io::Result<T>> for Read<T> {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Have(value),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// Everything that [`super::judge`] goes by.
#[derive(Clone, Debug)]
pub struct Facts {
    pub nsswitch: Read<String>,
    pub libc: Libc,
    /// Every copy of the module on the linker's path.
    pub modules: Vec<Module>,
    /// What modules must be built for.
    pub machine: Option<Machine>,
    pub snapshot: Snapshot,
    pub shadow: Snapshot,
    /// Who answers on nscd's socket: the name of the program, when it can be told.
    pub nscd: Option<Option<String>>,
    /// Whether our rules are there, on a host with AppArmor.
    pub apparmor: Option<bool>,
    pub selinux: Option<Selinux>,
    /// Log lines of the last day in which a program was denied something of ours.
    pub denials: Vec<String>,
    /// `ROSTER_SNAPSHOT` of the caller.
    pub redirected_to: Option<String>,
    pub now: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc(u32, u32),
    /// Has no nsswitch.conf.
    Musl,
    Unknown,
}

/// Class and machine of an ELF header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(pub u8, pub u16);

#[derive(Clone, Debug)]
pub struct Module {
    pub path: PathBuf,
    /// `None` where the file is no ELF file, or cannot be read.
    pub machine: Option<Machine>,
    pub mode: u32,
    /// In a folder that ld.so knows only from its cache, and not in that cache.
    pub needs_ldconfig: bool,
}

#[derive(Clone, Debug)]
pub struct Snapshot {
    /// As programs name it, without the root that was examined.
    pub path: PathBuf,
    pub state: Read<State>,
}

#[derive(Clone, Debug)]
pub struct State {
    pub regular: bool,
    pub owner: u32,
    pub mode: u32,
    pub folder_owner: u32,
    /// Folders on the way that others may write to.
    pub loose_folders: Vec<PathBuf>,
    /// Folders on the way that others may not pass.
    pub closed_folders: Vec<PathBuf>,
    pub bytes: u64,
    pub published: SystemTime,
    /// What reading all of it gave; `None` where that is not for this user.
    pub content: Option<Result<Content, String>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Content {
    pub generation: u64,
    pub users: u64,
    pub groups: u64,
    pub shadows: u64,
}

#[derive(Clone, Debug)]
pub struct Selinux {
    pub enforcing: bool,
    /// Label of the folder of the snapshots.
    pub label: Option<String>,
}

impl Facts {
    pub fn gather(root: &Path, now: SystemTime) -> Self {
        let host = Host { root };
        let here = root == Path::new("/");
        Self {
            nsswitch: host.text("etc/nsswitch.conf").into(),
            libc: host.libc(),
            modules: host.modules(),
            machine: Machine::of_this_program(),
            snapshot: host.snapshot("var/lib/roster/roster.snap", Kind::Accounts),
            shadow: host.snapshot("var/lib/roster/shadow.snap", Kind::Shadow),
            nscd: host.nscd(),
            apparmor: host.apparmor(),
            selinux: host.selinux(),
            denials: host.denials(here, now),
            redirected_to: std::env::var("ROSTER_SNAPSHOT").ok().filter(|_| here),
            now,
        }
    }
}

impl Machine {
    fn of_this_program() -> Option<Self> {
        Self::of(Path::new("/proc/self/exe"))
    }

    fn of(path: &Path) -> Option<Self> {
        let mut header = [0; 20];
        File::open(path).ok()?.read_exact(&mut header).ok()?;
        match header {
            [0x7f, b'E', b'L', b'F', class, .., low, high] => {
                // The byte order of the machine is that of the reader, or it is another machine.
                Some(Self(class, u16::from_ne_bytes([low, high])))
            }
            _ => None,
        }
    }
}

/// The tree under examination.
struct Host<'a> {
    root: &'a Path,
}

impl Host<'_> {
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The other way round: how programs of the host name it.
    fn name(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path.strip_prefix(self.root).unwrap_or(path))
    }

    fn text(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.path(path))?).into_owned())
    }

    fn libc(&self) -> Libc {
        for folder in self.library_folders() {
            let Ok(library) = fs::read(folder.join("libc.so.6")) else { continue };
            if let Some(version) = glibc_version(&library) {
                return version;
            }
        }
        let mut names = entries(&self.path("lib")).into_iter();
        let is_musl =
            |path: PathBuf| path.file_name()?.to_str()?.strip_prefix("ld-musl-").map(drop);
        if names.any(|path| is_musl(path).is_some()) { Libc::Musl } else { Libc::Unknown }
    }

    /// The linker's own folders; those of Debian are one level deeper, by architecture.
    fn library_folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for folder in LIBRARY_FOLDERS {
            match folder.strip_suffix("/*") {
                Some(parent) => {
                    let name = format!("{}-linux-gnu", std::env::consts::ARCH);
                    folders.push(self.path(parent).join(name));
                }
                None => folders.push(self.path(folder)),
            }
        }
        folders
    }

    fn modules(&self) -> Vec<Module> {
        let own = self.library_folders();
        let cache = fs::read(self.path("etc/ld.so.cache")).unwrap_or_default();
        let mut seen = BTreeSet::new();
        let mut modules = Vec::new();
        for folder in own.iter().cloned().chain(self.configured_folders()) {
            let path = folder.join(MODULE);
            let Ok(metadata) = fs::metadata(&path) else { continue };
            // /lib is a link to /usr/lib on most hosts.
            if !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            let name = self.name(&path);
            let needs_ldconfig = !own.contains(&folder) && !contains(&cache, name.to_str());
            modules.push(Module {
                machine: Machine::of(&path),
                mode: metadata.mode(),
                needs_ldconfig,
                path: name,
            });
        }
        modules
    }

    /// Folders of ld.so.conf(5) and of what it includes.
    fn configured_folders(&self) -> Vec<PathBuf> {
        let mut files = vec![self.path("etc/ld.so.conf")];
        files.extend(
            entries(&self.path("etc/ld.so.conf.d"))
                .into_iter()
                .filter(|path| path.extension().is_some_and(|extension| extension == "conf")),
        );
        let texts = files.iter().filter_map(|path| fs::read_to_string(path).ok());
        let lines: Vec<String> =
            texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        lines
            .iter()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter(|line| line.starts_with('/'))
            .map(|line| self.path(line))
            .collect()
    }

    fn snapshot(&self, path: &str, kind: Kind) -> Snapshot {
        let place = self.path(path);
        let state =
            fs::symlink_metadata(&place).map(|metadata| self.state(&place, &metadata, kind));
        Snapshot { path: self.name(&place), state: state.into() }
    }

    fn state(&self, place: &Path, metadata: &Metadata, kind: Kind) -> State {
        let mut state = State {
            regular: metadata.is_file(),
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
            folder_owner: u32::MAX,
            loose_folders: Vec::new(),
            closed_folders: Vec::new(),
            bytes: metadata.len(),
            published: metadata.modified().unwrap_or(UNIX_EPOCH),
            content: None,
        };
        for (level, folder) in place.ancestors().skip(1).enumerate() {
            let Ok(metadata) = fs::metadata(folder) else { continue };
            let mode = metadata.mode();
            if level == 0 {
                state.folder_owner = metadata.uid();
            }
            if mode & 0o022 != 0 && mode & 0o1000 == 0 {
                state.loose_folders.push(self.name(folder));
            }
            if mode & 0o001 == 0 {
                state.closed_folders.push(self.name(folder));
            }
            if folder == self.root {
                break;
            }
        }
        state.content = match fs::read(place) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(bytes) => {
                let shape = verify(&bytes, kind).map_err(|error| error.to_string());
                Some(shape.map(|shape| Content {
                    generation: shape.generation,
                    users: shape.users.into(),
                    groups: shape.groups.into(),
                    shadows: shape.shadows.into(),
                }))
            }
        };
        state
    }

    /// glibc asks whoever listens here before it asks any module.
    fn nscd(&self) -> Option<Option<String>> {
        let sockets = ["var/run/nscd/socket", "run/nscd/socket"];
        sockets.iter().find_map(|socket| UnixStream::connect(self.path(socket)).ok())?;
        let processes = entries(&self.path("proc")).into_iter();
        let mut names =
            processes.filter_map(|process| fs::read_to_string(process.join("comm")).ok());
        Some(names.find_map(|name| {
            let name = name.trim();
            ["nscd", "unscd", "nsncd"].contains(&name).then(|| name.to_owned())
        }))
    }

    fn apparmor(&self) -> Option<bool> {
        let enabled = self.text("sys/module/apparmor/parameters/enabled").ok()?;
        let profiles = self.path("etc/apparmor.d/abstractions");
        if !enabled.starts_with('Y') || !profiles.exists() {
            return None;
        }
        Some(profiles.join("nameservice.d/roster").exists())
    }

    fn selinux(&self) -> Option<Selinux> {
        let enforcing = self.text("sys/fs/selinux/enforce").ok()?.trim() == "1";
        let mut label = vec![0; 4096];
        let folder = self.path("var/lib/roster");
        let label = rustix::fs::getxattr(folder, "security.selinux", &mut label[..])
            .ok()
            .map(|len| String::from_utf8_lossy(&label[..len]).trim_end_matches('\0').to_owned());
        Some(Selinux { enforcing, label })
    }

    fn denials(&self, here: bool, now: SystemTime) -> Vec<String> {
        let mut log = tail(&self.path("var/log/audit/audit.log")).unwrap_or_default();
        if here {
            log += &kernel_log().unwrap_or_default();
        }
        denials(&log, now)
    }
}

/// Denials that name us, without those that say themselves that they are old. Both kernel modules
/// log in the form of audit(8), `audit(SECONDS.MILLIS:SERIAL)`.
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
                || line.contains("roster.snap"))
            && is_recent(line)
    });
    ours.map(str::to_owned).collect()
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES_MAX)))?;
    let mut text = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// /dev/kmsg gives one record a read, and would wait after the last.
fn kernel_log() -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut log = File::from(rustix::fs::open("/dev/kmsg", flags, Mode::empty())?);
    let mut text = String::new();
    let mut record = [0; 8192];
    for _ in 0..KERNEL_RECORDS_MAX {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(len) => text += &String::from_utf8_lossy(&record[..len]),
            // The oldest record was overwritten while we read; the next read goes on behind it.
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

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().take(ENTRIES_MAX).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_denials_of_our_files_are_found() {
        let log = "\
            type=AVC msg=audit(1700000000.1:1): avc:  denied  { read } path=\"/var/lib/roster/x\"\n\
            type=AVC msg=audit(1600000000.1:2): avc:  denied  { read } path=\"/var/lib/roster/x\"\n\
            type=AVC msg=audit(1700000000.1:3): avc:  denied  { read } path=\"/etc/shadow\"\n\
            5,1,2,-;audit: type=1400 audit(1700000000.9:4): apparmor=\"DENIED\" operation=\"open\" \
            name=\"/var/lib/roster/roster.snap\" comm=\"cupsd\"\n\
            5,1,2,-;audit: type=1400 audit(1700000000.9:5): apparmor=\"ALLOWED\" \
            name=\"/var/lib/roster/roster.snap\"\n";
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_100);
        let found = denials(log, now);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains(":1)") && found[1].contains("cupsd"));
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
