// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configurations of cinder, neutron and nova, from their packages on PyPI: loaded in both modes, and Cinder's
//! commands through the client of oslo.rootwrap, with both daemons. `openstack_filters.py` has the commands.

mod pythons;

use pythons::{bounded, needs_root, own, python, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOTWRAP: &str = env!("CARGO_BIN_EXE_roster-rootwrap");
const DAEMON: &str = env!("CARGO_BIN_EXE_roster-rootwrap-daemon");
const MODES: [&str; 2] = ["compat", "strict"];
const SERVICES: [&str; 3] = ["cinder", "neutron", "nova"];

/// Returns the directory of the tools that `scripts/need test` installs.
fn tools() -> PathBuf {
    python().ancestors().nth(3).unwrap().to_owned()
}

/// Copies the configuration of a service into a directory, and returns the path of its rootwrap.conf. The lines are
/// added to it.
fn lay_out(folder: &Path, service: &str, lines: &str) -> PathBuf {
    let source = tools().join("openstack-filters").join(service);
    assert!(source.exists(), "{} is missing: run scripts/need test", source.display());
    let rules = folder.join(service).join("rootwrap.d");
    fs::create_dir_all(&rules).unwrap();
    for file in fs::read_dir(source.join("rootwrap.d")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), rules.join(file.file_name())).unwrap();
    }
    let text = fs::read_to_string(source.join("rootwrap.conf")).unwrap();
    let path = format!("filters_path={}\n{lines}\n#", rules.display());
    let text = text.replace("filters_path=", &path);
    // Without syslog, the client of oslo.rootwrap gets an exception from its daemon instead of a refusal.
    let text = text.replace("use_syslog=False", "use_syslog=True");
    let conf = folder.join(service).join("rootwrap.conf");
    fs::write(&conf, text).unwrap();
    for (path, mode) in [(folder, 0o755), (&folder.join(service), 0o755), (&rules, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    conf
}

/// Returns exit code and standard output.
fn rootwrap(args: &[&str]) -> (i32, String) {
    let output = Command::new(ROOTWRAP).args(args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Service, command, exit codes in compat and in strict mode. The commands are those of the services, or attacks.
const DECISIONS: [(&str, &str, [i32; 2]); 16] = [
    ("cinder", "env LC_ALL=C lvs --noheadings", [0, 0]),
    ("cinder", "env LC_ALL=C LVM_SYSTEM_DIR=/etc/cinder lvcreate -n v stack -L 1g", [0, 0]),
    ("cinder", "env LC_ALL=xx lvs --noheadings", [0, 99]),
    ("cinder", "env LVM_SYSTEM_DIR=/etc/cinder lvs", [99, 99]),
    ("cinder", "ionice -c3 dd if=/dev/zero of=/dev/null count=1", [0, 0]),
    ("cinder", "find /srv -maxdepth 1 -ignore_readdir_race -inum 7 -print0 -quit", [0, 0]),
    ("cinder", "find /srv -maxdepth 1 -delete", [99, 99]),
    ("neutron", "sleep 10", [0, 0]),
    ("neutron", "sleep infinity", [99, 99]),
    ("neutron", "ip link show", [0, 0]),
    ("neutron", "ip netns exec qrouter sleep 10", [0, 0]),
    ("neutron", "ip netns exec qrouter sh", [99, 99]),
    ("neutron", "ip -batch /tmp/commands", [0, 99]),
    ("nova", "sh", [99, 99]),
    ("nova", "privsep-helper --config-file /tmp/nova.conf", [96, 99]),
    (
        "nova",
        "privsep-helper --config-file /etc/nova/nova.conf --privsep_context \
         nova.privsep.sys_admin_pctxt --privsep_sock_path /tmp/t/privsep.sock",
        [96, 96],
    ),
];

#[test]
fn openstack_filters_decide_in_both_modes() {
    let folder = tempfile::tempdir().unwrap();
    for service in SERVICES {
        let conf = lay_out(folder.path(), service, "");
        for (at, mode) in MODES.into_iter().enumerate() {
            for (_, command, codes) in DECISIONS.into_iter().filter(|row| row.0 == service) {
                let mut args = vec!["explain", "--mode", mode, conf.to_str().unwrap(), "--"];
                args.extend(command.split_ascii_whitespace());
                let (code, text) = rootwrap(&args);
                assert_eq!(code, codes[at], "{service}, {mode}: {command}\n{text}");
            }
        }
    }
}

/// Returns the rules that behave differently in strict mode, one line for each effect: "EFFECT: NAME (CLASS), …".
fn differences(report: &serde_json::Value) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for row in report["differences"].as_array().expect("a list of differences") {
        let effect = row["strict"].as_str().unwrap().to_owned();
        let rule = row["rule"].as_str().unwrap().split_once(": ").expect("FILE:LINE: RULE").1;
        match lines.iter_mut().find(|(known, _)| *known == effect) {
            Some((_, rules)) => rules.push(rule.to_owned()),
            None => lines.push((effect, vec![rule.to_owned()])),
        }
    }
    lines.into_iter().map(|(effect, rules)| format!("{effect}: {}", rules.join(", "))).collect()
}

/// The rules of lvm2 for each set of variables, as in the filters of Cinder.
fn lvm_rules() -> String {
    let listing = ["", "2", "3", "4"]
        .iter()
        .flat_map(|set| ["pvs", "vgs", "lvs", "lvdisplay"].map(|name| format!("{name}{set}")));
    let changing = ["lvcreate", "lvextend"].into_iter().flat_map(|name| {
        ["", "_lvmconf", "_fdwarn", "_lvmconf_fdwarn"].map(|set| format!("{name}{set}"))
    });
    let rules = listing.chain(changing).map(|name| format!("{name} (EnvFilter)"));
    rules.collect::<Vec<_>>().join(", ")
}

#[test]
fn openstack_check_lists_strict_differences() {
    let folder = tempfile::tempdir().unwrap();
    let whole_paths = "evaluates and executes the whole path, and";
    let expected = |service| {
        match service {
        "cinder" => vec![
            format!("allows only LC_ALL=C: {}, qemu-img (EnvFilter)", lvm_rules()),
            "matches whole words: privsep-rootwrap (RegExpFilter), privsep-rootwrap-sys_admin (RegExpFilter), \
             netapp_nfs_find (RegExpFilter), find_maxdepth_inum (RegExpFilter)"
                .to_owned(),
            format!(
                "{whole_paths} matches whole words: ionice_1 (ChainingRegExpFilter), ionice_2 (ChainingRegExpFilter), \
                 cgexec (ChainingRegExpFilter)"
            ),
        ],
        "neutron" => vec![
            "allows the directory and paths below it: privsep (PathFilter)".to_owned(),
            "matches whole words: sleep (RegExpFilter), haproxy (RegExpFilter)".to_owned(),
            "refuses that, and options that it does not know: ip (IpFilter)".to_owned(),
            format!("{whole_paths} allows names only: ip_exec (IpNetnsExecFilter)"),
        ],
        _ => vec![
            "matches whole words: privsep-rootwrap-os_brick (RegExpFilter), \
             privsep-rootwrap-sys_admin (RegExpFilter)"
                .to_owned(),
        ],
    }
    };
    for service in SERVICES {
        let conf = lay_out(folder.path(), service, "");
        let (code, text) = rootwrap(&["check", "--json", conf.to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &report["ok"]), (0, &true.into()), "{service}: {report:#}");
        let mut lines = expected(service);
        lines.push("has no such rule: privsep-helper (CommandFilter)".to_owned());
        assert_eq!(differences(&report), lines, "{service}");
        let problems = report["problems"].as_array().unwrap();
        assert!(problems.iter().all(|problem| problem["severity"] == "warning"), "{report:#}");
    }
}

/// Runs a scenario with Cinder's filters in both modes, and with the clients and daemons of these versions. The
/// newest has the empty name.
fn cinder(scenario: &str, bytes: u32, versions: &[&str]) {
    let oslo = python().with_file_name("oslo-rootwrap-daemon");
    for mode in MODES {
        for version in versions {
            let folder = tempfile::tempdir().unwrap();
            let conf = lay_out(folder.path(), "cinder", &format!("roster_mode={mode}"));
            let mut command = bounded("unshare");
            command
                .args(["--mount", "--propagation", "private"])
                .args([&python(), &own("openstack_filters.py")])
                .arg(scenario)
                .args([&conf, folder.path()])
                .arg(bytes.to_string())
                .arg(DAEMON)
                .arg(format!("{} {}", python().display(), oslo.display()));
            if !version.is_empty() {
                command.env("PYTHONPATH", tools().join(format!("oslo-rootwrap-{version}")));
            }
            print!("{scenario}, {mode}, client {version}: {}", run(&mut command));
        }
    }
}

/// Returns whether `make test-long PART=openstack` runs the tests.
fn is_long() -> bool {
    std::env::var_os("ROSTER_OPENSTACK").is_some_and(|value| value == "all")
}

#[test]
fn cinder_volume_commands_equal_oslo() {
    if needs_root() {
        let versions: &[&str] = if is_long() { &["", "7.4", "7.0", "6.3"] } else { &[""] };
        cinder("volumes", 0, versions);
    }
}

/// The drivers of Sheepdog wrote images so.
#[test]
fn cinder_image_on_stdin_arrives() {
    if needs_root() {
        cinder("stdin", if is_long() { 200 << 20 } else { 8 << 20 }, &[""]);
    }
}
