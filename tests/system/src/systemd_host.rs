// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host that systemd has booted: process 1 of private namespaces, over a writable view of the machine's own files
//! that goes away with it. Roster is installed there as a package would install it. Only the units that a test names
//! are started.

use crate::artifacts::{library_dir, roster_program, rosterd_program, unpack_package};
use crate::control_group::ControlGroup;
use crate::servers::ServerProcess;
use crate::test_host::{ProgramOutput, find_tool, plain_environment, run};
use crate::wait::{SOON, wait_until};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Arguments: directory of the host, programs, module, files of packaging. The machine's own files are below all that
/// is written; devices are the few that programs need.
const BOOT_SCRIPT: &str = r#"set -e
host=$1; root=$1/root
mount -t tmpfs -o mode=755 tmpfs "$host"
mkdir "$host/upper" "$host/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$host/upper,workdir=$host/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for folder in run dev tmp var/lib; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
chmod 1777 "$root/tmp"
mkdir "$root/dev/shm" "$root/dev/pts" "$root/var/lib/systemd"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mkfifo "$root/dev/console"
cat <>"$root/dev/console" &
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
rm -rf "$root/etc/systemd/system" "$root/etc/tmpfiles.d" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d"
mkdir -p "$root/etc/systemd/system" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d"
rm -f "$root/etc/machine-id" "$root/etc/systemd/system.conf"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
touch "$root/usr/bin/roster" "$root/usr/sbin/rosterd"
mount --bind "$2" "$root/usr/bin/roster"
mount --bind "$6" "$root/usr/sbin/rosterd"
cp "$3"/libnss_roster.so.2 "$(dirname "$(find "$root/usr/lib" -name libnss_systemd.so.2 | head -n 1)")"
cp "$4"/systemd/rosterd.service "$4"/systemd/roster-nscd.* "$4"/systemd/run-roster* "$root/usr/lib/systemd/system/"
cp "$4"/systemd/roster.sysusers.conf "$root/usr/lib/sysusers.d/roster.conf"
cp "$4"/systemd/roster.tmpfiles.conf "$root/usr/lib/tmpfiles.d/roster.conf"
cp -r "$5"/etc/. "$root/etc/"
cp "$5"/units/* "$root/etc/systemd/system/"
cd "$root"
mkdir old
pivot_root . old
umount -l old
exec env -i container=roster-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
    --unit=test.target --log-target=console --show-status=0
"#;

/// Runs a command in the control group that is the first argument.
const RUN_IN_CGROUP: &str = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;

/// A host under systemd. Dropping it ends all that runs there; in a test that fails it shows the log.
#[derive(Debug)]
pub struct SystemdHost {
    process: ServerProcess,
    /// Process 1 of the host, as the machine counts.
    init: i32,
    // Removed last: systemd's control groups, then its files.
    _group: ControlGroup,
    dir: TempDir,
}

impl SystemdHost {
    /// Boots with these files of /etc and these units, and starts `wanted` units of them or of the machine.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions of this file.
    #[must_use]
    pub fn start(etc: &[(&str, &str)], units: &[(&str, &str)], wanted: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("roster-booted-").tempdir();
        let folder = folder.expect("make a folder for the host");
        for name in ["host", "etc", "units"] {
            fs::create_dir(folder.path().join(name)).expect("make a folder");
        }
        for (name, text) in etc {
            let file = folder.path().join("etc").join(name);
            fs::create_dir_all(file.parent().expect("in a folder")).expect("make a folder");
            fs::write(file, text).expect("write a file of /etc");
        }
        for (name, text) in units {
            fs::write(folder.path().join("units").join(name), text).expect("write a unit");
        }
        let mut target = "[Unit]\nDefaultDependencies=no\n".to_owned();
        for unit in wanted {
            let _ = writeln!(target, "Wants={unit}\nAfter={unit}");
        }
        fs::write(folder.path().join("units/test.target"), target).expect("write the target");
        let group = ControlGroup::new("roster-booted");
        let mut command = Command::new("sh");
        plain_environment(&mut command);
        command
            .args(["-c", RUN_IN_CGROUP])
            .arg(group.path())
            .arg(find_tool("unshare", "util-linux"));
        command.args(["--mount", "--pid", "--fork", "--cgroup", "--ipc", "--uts", "--net"]);
        command
            .args(["--kill-child", "sh", "-c", BOOT_SCRIPT, "boot"])
            .arg(folder.path().join("host"));
        command.arg(roster_program()).arg(library_dir()).arg(packaging_dir()).arg(folder.path());
        command.arg(rosterd_program());
        let _ = find_tool("systemctl", "systemd");
        let process = ServerProcess::start(&mut command, &folder.path().join("log"));
        let mut booted = Self { process, init: 0, _group: group, dir: folder };
        wait_until(SOON, "systemd runs", || {
            assert!(booted.process.is_running(), "{}", booted.process.log());
            booted.init = booted.systemd_pid().unwrap_or_default();
            booted.init != 0
        });
        wait_until(SOON, "it has booted", || {
            booted.run("systemctl", &["is-active", "test.target"]).code == 0
        });
        booted
    }

    /// The one child of `unshare`, once it is systemd.
    fn systemd_pid(&self) -> Option<i32> {
        let pid = self.process.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let child = children.split_whitespace().next()?;
        let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        child.parse().ok().filter(|_| name.trim() == "systemd")
    }

    /// A command on the host.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        let mut command = Command::new(find_tool("nsenter", "util-linux"));
        plain_environment(&mut command);
        command.args(["-m", "-p", "-i", "-u", "-C", "-t", &self.init.to_string(), "--"]);
        command.arg(program);
        command
    }

    /// Runs a program there to its end.
    #[must_use]
    pub fn run<S: AsRef<OsStr>>(&self, program: S, arguments: &[&str]) -> ProgramOutput {
        run(self.command(program).args(arguments))
    }

    /// Puts the files of a Debian package onto the host, which the machine itself does not have, and has systemd read
    /// its units.
    pub fn unpack(&self, package: &str) {
        let root = format!("/proc/{}/root/", self.init);
        // Not /lib, which is a link there, and in /usr of the unpacked files.
        let script = "for folder in usr etc; do [ ! -d $folder ] || cp -a $folder \"$0\"; done";
        let mut copy = Command::new("sh");
        copy.args(["-ec", script, &root]).current_dir(unpack_package(package));
        let done = run(&mut copy);
        assert_eq!(done.code, 0, "{package}: {}", done.error());
        assert_eq!(self.run("systemctl", &["daemon-reload"]).code, 0);
    }

    /// Runs a shell script there.
    #[must_use]
    pub fn shell(&self, script: &str) -> ProgramOutput {
        self.run("sh", &["-ec", script])
    }

    /// Puts a program of the tests onto the host.
    #[must_use]
    pub fn install(&self, program: &Path) -> PathBuf {
        let name = program.file_name().expect("a program has a name");
        let place = Path::new("/run").join(name);
        self.install_at(program, place.to_str().expect("a path of ASCII"));
        place
    }

    /// Copies a file to an absolute path on the host. Its directory must exist.
    pub fn install_at(&self, file: &Path, place: &str) {
        let copy = format!("/proc/{}/root{place}", self.init);
        fs::copy(file, &copy).unwrap_or_else(|e| panic!("{} to {place}: {e}", file.display()));
    }

    /// Writes a file on the host, and its directories.
    pub fn write(&self, place: &str, text: &str) {
        let copy = PathBuf::from(format!("/proc/{}/root{place}", self.init));
        fs::create_dir_all(copy.parent().expect("an absolute path")).expect("make directories");
        fs::write(copy, text).unwrap_or_else(|e| panic!("{place}: {e}"));
    }

    /// The words that run a command on the host, in the network of the host.
    #[must_use]
    pub fn enter(&self) -> Vec<String> {
        let nsenter = find_tool("nsenter", "util-linux").display().to_string();
        let words = ["-m", "-p", "-i", "-u", "-C", "-n", "-t", &self.init.to_string(), "--"];
        std::iter::once(nsenter).chain(words.map(str::to_owned)).collect()
    }
}

impl Drop for SystemdHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the host in {}:\n{}", self.dir.path().display(), self.process.log());
        }
    }
}

fn packaging_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}
