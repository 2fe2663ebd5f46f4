// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of packaging/systemd: the report of `systemd-analyze security` on them, and rosterd's work with the
//! capabilities that its unit leaves it.

use roster_system_tests::nscd::SOON;
use roster_system_tests::{SystemdHost, find_tool, needs_root, run, wait_for, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
const NSSWITCH: &str = "passwd: files roster\ngroup: files roster\n";
/// Bits of CAP_CHOWN, CAP_KILL, CAP_SETGID and CAP_SETUID.
const CAPABILITIES: &str = "00000000000000e1";

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn configured(domains: &str) -> String {
    let domain = |name: &str| {
        format!(
            "[domain.{name}]\nprovider = \"files\"\npasswd = \"/etc/{name}/passwd\"\n\
             group = \"/etc/{name}/group\"\n"
        )
    };
    format!("[host]\ndomains = [{domains}]\n{}{}", domain("lab"), domain("corp"))
}

/// The exposure of a unit, in tenths.
fn exposure(unit: &Path) -> u32 {
    let mut command = Command::new(find_tool("systemd-analyze", "systemd"));
    let done = run(command.args(["security", "--offline=true", "--no-pager"]).arg(unit));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("Overall exposure level")).expect(&text);
    let figure = line.rsplit(": ").next().and_then(|rest| rest.split(' ').next());
    tenths(figure.expect(line))
}

fn tenths(figure: &str) -> u32 {
    figure.replace('.', "").parse().unwrap_or_else(|_| panic!("{figure} is not a figure"))
}

#[test]
fn unit_exposure_within_documented_figures() {
    let page = fs::read_to_string(in_tree("SECURITY.md")).expect("read SECURITY.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(".service` | "));
    let mut documented: Vec<_> = rows
        .map(|(unit, rest)| (unit.to_owned(), rest.split(' ').next().unwrap_or_default()))
        .collect();
    documented.sort_unstable();
    let folder = in_tree("packaging/systemd");
    let files = fs::read_dir(&folder).expect("list units").flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut units: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".service")?.to_owned()))
        // Commands are its children: a sandbox of it would be one of theirs.
        .filter(|name| name != "roster-exec")
        .collect();
    units.sort_unstable();
    assert_eq!(
        documented.iter().map(|(unit, _)| unit).collect::<Vec<_>>(),
        units.iter().collect::<Vec<_>>()
    );
    for (unit, figure) in documented {
        let found = exposure(&folder.join(format!("{unit}.service")));
        assert!(found <= tenths(figure), "{unit}: {found} tenths, SECURITY.md: {figure}");
    }
}

/// Caches change their owner, roles are stopped and restarted, and files of the bus are reached, without a capability
/// to override modes.
#[test]
fn unit_rosterd_hands_caches_over_without_overrides() {
    if !needs_root() {
        return;
    }
    let both = configured("\"lab\", \"corp\"");
    let etc = [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("nsswitch.conf", NSSWITCH),
        ("roster/roster.toml", &both),
        ("lab/passwd", "ann:x:5000:5000:Ann:/home/ann:/bin/sh\n"),
        ("lab/group", "lab:x:5000:\n"),
        ("corp/passwd", "ben:x:6000:6000:Ben:/home/ben:/bin/sh\n"),
        ("corp/group", "corp:x:6000:\n"),
    ];
    let wanted = ["systemd-sysusers.service", "systemd-tmpfiles-setup.service", "rosterd.service"];
    let host = SystemdHost::start(&etc, &[], &wanted);
    let served = |name: &str| {
        wait_until(SOON, name, || host.run("getent", &["-s", "roster", "passwd", name]).code == 0);
    };
    served("ann");
    served("ben");
    let owners = "cd /var/lib/roster/domains; stat -c '%n %U %a' corp lab corp/* lab/*";
    let files = |corp: &str, lab: &str| {
        format!(
            "corp {corp} 700\nlab {lab} 700\ncorp/cache.redb {corp} 600\nlab/cache.redb {lab} 600"
        )
    };
    let expect = |wanted: &str| {
        wait_for(SOON, || {
            let found = String::from_utf8_lossy(&host.shell(owners).stdout).trim().to_owned();
            if found == wanted { Ok(()) } else { Err(found) }
        });
    };
    expect(&files("roster-backend-1", "roster-backend-0"));
    let main = host.run("systemctl", &["show", "-P", "MainPID", "rosterd"]).text();
    let status = host.shell(&format!("cat /proc/{main}/status")).text();
    assert!(status.contains(&format!("CapBnd:\t{CAPABILITIES}\n")), "{status}");
    // The copy of the snapshot is on a dedicated file system with huge pages, and the publisher owns it.
    let mounts = host.shell("cat /proc/self/mounts").text();
    let mount =
        mounts.lines().find(|line| line.starts_with("tmpfs /run/roster/snap ")).expect(&mounts);
    assert!(mount.contains("huge=within_size"), "{mount}");
    wait_until(SOON, "the snapshot has a copy", || {
        host.shell("stat -c '%n %U' /run/roster/snap/*").text()
            == host.shell("cd /var/lib/roster/snap; printf '/run/roster/snap/v3.%016x roster-publisher' $(stat -c %i roster.v3.snap)").text()
    });
    let configure = |text: &str| {
        let script =
            format!("cat >/etc/roster/roster.toml <<'E'\n{text}\nE\nsystemctl reload rosterd");
        assert_eq!(host.shell(&script).text(), "");
    };
    // Each has the other's place, and with it the other's user.
    configure(&configured("\"corp\", \"lab\""));
    expect(&files("roster-backend-0", "roster-backend-1"));
    served("ann");
    served("ben");
    // A domain that is gone leaves its cache to root, until it comes back. Its backend was asked to end.
    configure(&configured("\"lab\""));
    expect(&files("root", "roster-backend-0"));
    configure(&both);
    expect(&files("roster-backend-1", "roster-backend-0"));
    served("ben");
    // All processes end in good order.
    assert_eq!(host.run("systemctl", &["stop", "rosterd"]).code, 0);
    let ended = host.run("systemctl", &["show", "-P", "Result", "rosterd"]).text();
    assert_eq!(ended, "success");
    assert_ne!(host.run("pgrep", &["-u", "roster-publisher"]).code, 0);
}

#[test]
fn journal_catalog_explains_each_message() {
    let root = tempfile::tempdir().expect("make a directory");
    let folder = root.path().join("usr/lib/systemd/catalog");
    fs::create_dir_all(&folder).expect("make directories");
    fs::create_dir_all(root.path().join("var/lib/systemd/catalog")).expect("make directories");
    let source = in_tree("packaging/systemd/roster.catalog");
    fs::copy(&source, folder.join("roster.catalog")).expect("copy");
    let journalctl = |option: &str| {
        let mut command = Command::new(find_tool("journalctl", "systemd"));
        run(command.arg(option).arg("--root").arg(root.path()))
    };
    let made = journalctl("--update-catalog");
    assert_eq!(made.code, 0, "{}", made.error());
    let listed = journalctl("--list-catalog").text();
    let text = fs::read_to_string(source).expect("text");
    let expected = text.lines().filter(|line| line.starts_with("-- ")).count();
    assert!(expected > 0 && listed.lines().count() == expected, "{expected}: {listed}");
}
