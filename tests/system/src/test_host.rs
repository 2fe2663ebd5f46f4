// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pretend host: a private mount namespace with its own passwd, group, shadow, nsswitch.conf and /var/lib/roster.
//! Real programs find the module in it as if it were installed. Snapshots of both kinds lie in one directory of the
//! test, which is bound to both of their places. Needs no root if user namespaces are allowed. Never changes a file of
//! the machine.

use crate::artifacts::{library_dir, roster_program, scratch_dir, snapshots_dir};
use crate::corpus::Corpus;
use crate::old_names::snapshot_names;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The lines that README.md recommends.
pub const RECOMMENDED_NSSWITCH: &str = "passwd: files roster\ngroup: files roster\nshadow: files roster\n\
                               initgroups: files [SUCCESS=continue] roster\n";

/// Only `roster` answers.
pub const ROSTER_NSSWITCH: &str =
    "passwd: roster\ngroup: roster\nshadow: roster\ninitgroups: roster\n";

/// Binds the module to its place inside the namespace and adds it to the loader's cache. The cache serves set-uid and
/// static programs too, which LD_LIBRARY_PATH does not.
const SETUP_SCRIPT: &str = r#"set -e
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/roster /var/lib/roster-module
mount --bind "$1/state" /var/lib/roster
mount --bind "$1/state/$4" /var/lib/roster/shadow
mount --bind "$2" /var/lib/roster-module
if [ -d "$1/etc/roster" ]; then
    [ -d /etc/roster ] || mount -t overlay -o "lowerdir=$1/over:/etc" overlay /etc
    mount --bind "$1/etc/roster" /etc/roster
elif [ -d /etc/roster ]; then
    mount -t tmpfs -o mode=755 tmpfs /etc/roster
fi
for name in passwd group shadow nsswitch.conf; do
    mount --bind "$1/etc/$name" "/etc/$name"
done
if [ -d "$1/nscd" ]; then
    [ -d /run/nscd ] || { mount -t tmpfs -o mode=755 tmpfs /run; mkdir /run/nscd; }
    mount --bind "$1/nscd" /run/nscd
elif [ -d /run/nscd ]; then
    mount -t tmpfs tmpfs /run/nscd
fi
if [ "$3" ]; then mount --bind "$3" /etc/ld.so.cache; fi
shift 4
exec "$@"
"#;

/// A host with local files and a published snapshot. Dropping it removes its directory.
#[derive(Debug)]
pub struct TestHost {
    root: TempDir,
}

/// The output of a program, and its exit status in a shell (128 + signal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOutput {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code.
    pub code: i32,
}

impl ProgramOutput {
    /// Standard output of a program that must have succeeded, without the last newline.
    ///
    /// # Panics
    /// If the program failed.
    #[track_caller]
    #[must_use]
    pub fn text(&self) -> String {
        assert_eq!(self.code, 0, "{}", String::from_utf8_lossy(&self.stderr));
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Standard error, as text for messages.
    #[must_use]
    pub fn error(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl TestHost {
    /// A host with local files that hold `local`, an nsswitch.conf that holds `nsswitch`, and no snapshot.
    ///
    /// # Panics
    /// If the directory cannot be made; so do the other functions of this file.
    #[must_use]
    pub fn new(local: &Corpus, nsswitch: &str) -> Self {
        Self::at(&std::env::temp_dir(), local, nsswitch)
    }

    /// A host in memory, so that publications do not wait for a disk.
    #[must_use]
    pub fn in_memory(local: &Corpus, nsswitch: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::at(memory, local, nsswitch) } else { Self::new(local, nsswitch) }
    }

    fn at(folder: &Path, local: &Corpus, nsswitch: &str) -> Self {
        let root = tempfile::Builder::new()
            .prefix("roster-host-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(folder)
            .expect("make a folder for the host");
        let host = Self { root };
        fs::create_dir(host.path("etc")).expect("create etc");
        for folder in [host.state_dir(), host.snapshots_dir(), host.state_dir().join("shadow")] {
            fs::create_dir_all(&folder).expect("create a folder of state");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("chmod");
        }
        local.write(&host.path("etc"));
        fs::write(host.path("etc/nsswitch.conf"), nsswitch).expect("write nsswitch.conf");
        for (name, mode) in [("passwd", 0o644), ("group", 0o644), ("nsswitch.conf", 0o644)] {
            let file = host.path("etc").join(name);
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("chmod");
        }
        host
    }

    /// A host that has `corpus` in its local files and, compiled, in its snapshot.
    #[must_use]
    pub fn serving(corpus: &Corpus, nsswitch: &str) -> Self {
        let host = Self::new(corpus, nsswitch);
        host.publish(corpus);
        host
    }

    /// A path in the host's own directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The directory that programs on the host see as /var/lib/roster.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    /// The directory in it that programs on the host see as both directories of snapshots.
    #[must_use]
    pub fn snapshots_dir(&self) -> PathBuf {
        self.state_dir().join(snapshots_dir())
    }

    /// The path of the snapshot outside the namespace.
    #[must_use]
    pub fn snapshot_path(&self) -> PathBuf {
        self.snapshots_dir().join(snapshot_names()[0])
    }

    /// The path of the snapshot of password hashes.
    #[must_use]
    pub fn shadow_snapshot_path(&self) -> PathBuf {
        self.snapshots_dir().join(snapshot_names()[1])
    }

    /// Makes an /etc/roster on the host. Programs see files that are written to it.
    #[must_use]
    pub fn make_config_dir(&self) -> PathBuf {
        let folder = self.path("etc/roster");
        for folder in [&folder, &self.path("over/roster")] {
            fs::create_dir_all(folder).expect("create the folder of the configuration");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("chmod");
        }
        folder
    }

    /// Publishes `corpus` with the real `roster compile`.
    pub fn publish(&self, corpus: &Corpus) {
        let done = run(&mut self.compile(corpus));
        assert_eq!(done.code, 0, "roster compile: {}", done.error());
    }

    /// The command that publishes `corpus`; its text is put in place at once.
    #[must_use]
    pub fn compile(&self, corpus: &Corpus) -> Command {
        let source = self.path("source");
        fs::create_dir_all(&source).expect("create source");
        corpus.write(&source);
        let mut command = Command::new(roster_program());
        command
            .arg("compile")
            .arg("--passwd")
            .arg(source.join("passwd"))
            .arg("--group")
            .arg(source.join("group"))
            .arg("--shadow")
            .arg(source.join("shadow"))
            .arg("--output")
            .arg(self.snapshot_path())
            .arg("--shadow-output")
            .arg(self.shadow_snapshot_path());
        command
    }

    /// A command that runs on the host, with a plain environment.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        let mut command = unshare_command();
        command.args(["sh", "-c", SETUP_SCRIPT, "host"]).arg(self.root.path()).arg(library_dir());
        command.arg(loader_cache()).arg(snapshots_dir()).arg(program);
        command
    }

    /// Runs a program on the host to its end.
    #[must_use]
    pub fn run<S: AsRef<OsStr>>(&self, program: S, args: &[&str]) -> ProgramOutput {
        run(self.command(program).args(args))
    }

    /// Runs a shell script on the host.
    #[must_use]
    pub fn shell(&self, script: &str) -> ProgramOutput {
        self.run("sh", &["-ec", script])
    }
}

/// Runs a command to its end, with nothing on standard input unless the caller gave something.
pub fn run(command: &mut Command) -> ProgramOutput {
    let done = command.output().unwrap_or_else(|e| {
        panic!("{}: {e}: see packages.txt of the system tests", command.get_program().display())
    });
    let code = done.status.code().unwrap_or_else(|| 128 + done.status.signal().unwrap_or(0));
    ProgramOutput { stdout: done.stdout, stderr: done.stderr, code }
}

/// The path of a program that a test cannot do without.
///
/// # Panics
/// If it is not installed, naming the Debian package.
#[must_use]
pub fn find_tool(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{name} is missing: install the Debian package {package}"))
}

/// Whether to run a test that changes owners or user ids or takes a port of the system, which a user
/// namespace cannot show.
///
/// # Panics
/// Without root, so that a skipped test does not pass unnoticed; with `ROSTER_SKIP_ROOT_TESTS=1` it is skipped on
/// purpose.
#[must_use]
pub fn needs_root() -> bool {
    if is_root() {
        return true;
    }
    let skip = std::env::var_os("ROSTER_SKIP_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(skip, "this test needs root; run as root, or set ROSTER_SKIP_ROOT_TESTS=1");
    eprintln!("left out: needs root");
    false
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `unshare` into private mounts, by way of a user namespace unless the caller is root.
fn unshare_command() -> Command {
    let mut command = Command::new(find_tool("unshare", "util-linux"));
    command.arg(if is_root() { "-m" } else { "-Urm" });
    command.stdin(Stdio::null());
    plain_environment(&mut command);
    command
}

/// Sets the environment of programs on a fresh host, independent of the developer's own.
pub(crate) fn plain_environment(command: &mut Command) {
    command.env_clear();
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("LC_ALL", "C");
}

/// A loader cache of the machine's own libraries and the module at its place in the namespace.
fn loader_cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let folder =
            tempfile::tempdir_in(scratch_dir()).expect("make a folder for the loader cache");
        let config = folder.path().join("ld.so.conf");
        let module = "/var/lib/roster-module\ninclude /etc/ld.so.conf\n";
        fs::write(&config, module).expect("write ld.so.conf");
        let script = r#"mount -t tmpfs tmpfs /var/lib
            mkdir /var/lib/roster-module
            mount --bind "$1" /var/lib/roster-module
            if [ -d /var/cache/ldconfig ]; then mount -t tmpfs tmpfs /var/cache/ldconfig; fi
            exec "$2" -X -i -f "$3/ld.so.conf" -C "$3/ld.so.cache""#;
        let mut command = unshare_command();
        command.args(["sh", "-ec", script, "cache"]).arg(library_dir());
        command.arg(find_tool("ldconfig", "libc-bin")).arg(folder.path());
        let done = run(&mut command);
        assert_eq!(done.code, 0, "a private loader cache: {}", done.error());
        let cache = scratch_dir().join("ld.so.cache");
        fs::rename(folder.path().join("ld.so.cache"), &cache).expect("move the cache into place");
        cache
    })
}
