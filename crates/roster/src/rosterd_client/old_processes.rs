// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds processes that use files of an older version: a module that was replaced while they ran, or a snapshot of an
//! older format. Both continue to work, without later changes of the snapshot. The module reads `/proc` only, and sees
//! the processes that this user may examine. The fix is a restart of the unit. `status` prints them.

use crate::finding::{Finding, warning};
use crate::output::{count_with_noun, printable};
use roster_messages::table::status;
use roster_snapshot::layout::VERSION;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MODULE: &str = "libnss_roster.so.2";
const LIBRARY_DIRS: [&str; 2] = ["/usr/", "/lib"];
/// Directories of snapshots and of their copies in memory.
const SNAPSHOT_DIRS: [&str; 2] = ["/var/lib/roster/snap/", "/run/roster/snap/"];
/// Suffix of the kernel for the path of a mapped file that was removed.
const DELETED: &str = " (deleted)";
/// Processes that a finding names.
const NAMES_MAX: usize = 10;
/// Units that systemd cannot restart on a running host.
const NEEDS_REBOOT: [&str; 2] = ["dbus.service", "dbus-broker.service"];
const INIT: &str = "init.scope";

/// A process that maps an older file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OldProcess {
    pid: u32,
    name: String,
    /// The process's service. `None` for a process of a login session or a container.
    unit: Option<String>,
    file: OldFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum OldFile {
    Module,
    Snapshot,
}

/// Returns the processes below `proc` that map an older module or snapshot, by process id.
pub(super) fn old_processes(proc: &Path) -> Vec<OldProcess> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = pids.filter_map(|pid| old_process(proc, pid)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn old_process(proc: &Path, pid: u32) -> Option<OldProcess> {
    let text = |name| fs::read(proc.join(pid.to_string()).join(name)).ok();
    let file = old_file(&String::from_utf8_lossy(&text("maps")?))?;
    let name = String::from_utf8_lossy(&text("comm").unwrap_or_default()).trim().to_owned();
    let unit = unit(&String::from_utf8_lossy(&text("cgroup").unwrap_or_default()));
    Some(OldProcess { pid, name, unit, file })
}

/// Returns the first older file in the text of `/proc/PID/maps`.
fn old_file(maps: &str) -> Option<OldFile> {
    maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        let (path, is_deleted) = match path.strip_suffix(DELETED) {
            Some(path) => (path, true),
            None => (path, false),
        };
        let is_library = LIBRARY_DIRS.iter().any(|dir| path.starts_with(dir));
        if is_deleted && is_library && path.ends_with(&format!("/{MODULE}")) {
            return Some(OldFile::Module);
        }
        let name = SNAPSHOT_DIRS.iter().find_map(|dir| path.strip_prefix(dir))?;
        (!name.starts_with('.') && version(name) < VERSION).then_some(OldFile::Snapshot)
    })
}

/// Returns the version in a name such as `roster.v3.snap` or `v3.00000000000000ff`. Names before version 3 had none.
fn version(name: &str) -> u32 {
    let number = name.split('.').find_map(|part| part.strip_prefix('v')?.parse().ok());
    number.unwrap_or(0)
}

/// Returns the unit of the host in the text of `/proc/PID/cgroup`. Services of containers are below a scope, and do not
/// count. A restart of `user@UID.service` would end all sessions of that user, so its processes have no unit here.
fn unit(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if path == INIT {
        return Some(INIT.to_owned());
    }
    let unit = path.split('/').find(|part| !part.ends_with(".slice"))?;
    // A container can choose the names in its part of the tree.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.@-\\".contains(&byte);
    let is_service = unit.ends_with(".service") && !unit.starts_with("user@");
    (is_service && unit.bytes().all(is_plain)).then(|| unit.to_owned())
}

/// Returns the finding about these processes. `None` without any.
pub(super) fn check(processes: &[OldProcess]) -> Option<Finding> {
    let (first, rest) = processes.split_at(processes.len().min(NAMES_MAX));
    let names: Vec<_> = first
        .iter()
        .map(|process| format!("{} ({})", printable(&process.name), process.pid))
        .collect();
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let count = count_with_noun(processes.len() as u64, "process");
    let verb = if processes.len() == 1 { "uses" } else { "use" };
    let text = format!(
        "{count} {verb} a module or snapshot of an older version: {}{more}",
        names.join(", ")
    );
    (!processes.is_empty())
        .then(|| warning("processes", &status::OLD_FILES_IN_USE, text).advice(remedy(processes)))
}

fn remedy(processes: &[OldProcess]) -> String {
    let units: BTreeSet<_> =
        processes.iter().filter_map(|process| process.unit.as_deref()).collect();
    let mut steps = Vec::new();
    if units.iter().any(|unit| NEEDS_REBOOT.contains(unit)) {
        return "Restart the host: dbus cannot be restarted alone.".to_owned();
    }
    let quoted = |unit: &&str| match unit.contains('\\') {
        true => format!("'{unit}'"),
        false => (*unit).to_owned(),
    };
    let services: Vec<_> = units.iter().filter(|unit| **unit != INIT).map(quoted).collect();
    if !services.is_empty() {
        steps.push(format!("run `systemctl restart {}`", services.join(" ")));
    }
    if units.contains(INIT) {
        steps.push("run `systemctl daemon-reexec`".to_owned());
    }
    if processes.iter().any(|process| process.unit.is_none()) {
        steps.push("start the processes of login sessions and containers again".to_owned());
    }
    let steps = steps.join(", then ");
    format!("{}{}.", steps[..1].to_uppercase(), &steps[1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::FindingLevel;

    const MODULE_LINE: &str =
        "7f00-7f01 r-xp 00001000 fe:00 131   /usr/lib/x86_64-linux-gnu/libnss_roster.so.2";

    #[test]
    fn old_files_found_in_maps() {
        let of = |path: &str| old_file(&format!("7f00-7f01 r--s 00000000 fe:00 9   {path}\n"));
        assert_eq!(old_file(&format!("{MODULE_LINE}\n")), None);
        assert_eq!(old_file(&format!("{MODULE_LINE} (deleted)\n")), Some(OldFile::Module));
        for current in [
            "/var/lib/roster/snap/roster.v3.snap",
            "/var/lib/roster/snap/roster.v3.snap (deleted)",
            "/run/roster/snap/v3.00000000000000ff (deleted)",
            "/run/roster/snap/v4.00000000000000ff",
            "/var/lib/roster/snap/.roster.v2.snap.new",
            "/usr/lib/libc.so.6 (deleted)",
            "/home/roster.v2.snap",
            "/tmp/build/libnss_roster.so.2 (deleted)",
        ] {
            assert_eq!(of(current), None, "{current}");
        }
        for old in [
            "/var/lib/roster/snap/roster.snap (deleted)",
            "/var/lib/roster/snap/roster.v2.snap",
            "/run/roster/snap/00000000000000ff",
            "/run/roster/snap/v2.00000000000000ff (deleted)",
        ] {
            assert_eq!(of(old), Some(OldFile::Snapshot), "{old}");
        }
        assert_eq!(old_file("7f00-7f01 rw-p 00000000 00:00 0\n"), None);
    }

    #[test]
    fn unit_read_from_cgroup() {
        for (cgroup, found) in [
            ("0::/system.slice/ssh.service\n", Some("ssh.service")),
            ("12:pids:/x\n0::/init.scope\n", Some("init.scope")),
            (
                "0::/system.slice/system-getty.slice/getty@tty1.service\n",
                Some("getty@tty1.service"),
            ),
            ("0::/user.slice/user-0.slice/user@0.service/app.slice/a.service\n", None),
            ("0::/machine.slice/x.scope/payload/system.slice/cron.service\n", None),
            ("0::/machine.slice/x.scope/init.scope\n", None),
            ("0::/docker/4711/system.slice/dbus.service\n", None),
            ("0::/system.slice/$(reboot).service\n", None),
            ("0::/user.slice/user-0.slice/session-3.scope\n", None),
            ("", None),
        ] {
            assert_eq!(unit(cgroup).as_deref(), found, "{cgroup}");
        }
    }

    #[test]
    fn old_processes_named_with_restart_command() {
        let proc = tempfile::tempdir().expect("a directory");
        let add = |pid: u32, name: &str, cgroup: &str, maps: &str| {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).expect("create");
            for (file, text) in [("comm", name), ("cgroup", cgroup), ("maps", maps)] {
                fs::write(dir.join(file), format!("{text}\n")).expect("write");
            }
        };
        let deleted = format!("{MODULE_LINE} (deleted)");
        add(30, "cron", "0::/system.slice/cron.service", &deleted);
        add(7, "sshd", "0::/system.slice/ssh.service", MODULE_LINE);
        fs::create_dir(proc.path().join("self")).expect("create");
        let found = old_processes(proc.path());
        let finding = check(&found).expect("a finding");
        assert_eq!(finding.level, FindingLevel::Warning);
        assert_eq!(finding.message, Some(&status::OLD_FILES_IN_USE));
        assert_eq!(
            finding.text,
            "1 process uses a module or snapshot of an older version: cron (30)"
        );
        assert_eq!(finding.advice.as_deref(), Some("Run `systemctl restart cron.service`."));
        add(1, "systemd", "0::/init.scope", &deleted);
        add(40, "bash", "0::/user.slice/user-0.slice/session-3.scope", &deleted);
        let found = old_processes(proc.path());
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [1, 30, 40]);
        let advice = check(&found).and_then(|finding| finding.advice);
        let steps = "Run `systemctl restart cron.service`, then run `systemctl daemon-reexec`, then \
                     start the processes of login sessions and containers again.";
        assert_eq!(advice.as_deref(), Some(steps));
        add(50, "dbus-daemon", "0::/system.slice/dbus.service", &deleted);
        let advice = check(&old_processes(proc.path())).and_then(|finding| finding.advice);
        assert_eq!(advice.as_deref(), Some("Restart the host: dbus cannot be restarted alone."));
        assert_eq!(check(&[]), None);
    }
}
