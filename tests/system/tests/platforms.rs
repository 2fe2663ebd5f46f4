// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oldest systems of docs/reference/platforms.md: symbols of glibc, and system calls of Linux.

use roster_messages::table::status;
use roster_system_tests::pam::{self, PASSWORD, PamHost, last_message, stdin_with_lines};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    Rosterd, c_program, find_tool, library_dir, needs_root, pam_module, run, wait_for,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc for the modules.
const MODULE_GLIBC: &str = "2.17";

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn modules_need_no_newer_glibc_than_documented() {
    let page = std::fs::read_to_string(in_tree("docs/reference/platforms.md")).expect("the page");
    assert!(page.contains(&format!("| `libnss_roster.so.2`, `pam_roster.so` | {MODULE_GLIBC} |")));
    let mut script = Command::new(in_tree("scripts/symbol-versions"));
    script.arg(MODULE_GLIBC).arg(library_dir().join("libnss_roster.so.2")).arg(pam_module());
    let checked = run(&mut script);
    assert_eq!((checked.code, &*checked.error()), (0, ""));
}

/// Codes and texts of the findings of `roster doctor` under that launcher.
fn doctor_findings(rosterd: &Rosterd, launcher: &Path) -> Vec<(String, String)> {
    let mut command = rosterd.command_inside(launcher);
    let report = run(command.args(["/run/bin/roster", "doctor", "--json"]));
    let report: Value = serde_json::from_slice(&report.stdout).expect("a report");
    let findings = report["findings"].as_array().expect("findings");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    findings.iter().map(|found| (text(found, "code"), text(found, "message"))).collect()
}

/// The kernel has the system calls of Linux 4.10 for the daemon and its clients, so neither Landlock nor pidfd_open,
/// openat2, close_range, clone3, faccessat2 and statx.
#[test]
fn old_kernel_users_served_losses_named() {
    if !needs_root() {
        return;
    }
    let old_kernel = c_program("old_kernel");
    let slapd = pam::slapd_with_users(&["alice"]);
    let mut rosterd = Rosterd::installed(&[pam::domain(&slapd)]);
    pam::prepare(&rosterd);
    rosterd.set_launcher(&old_kernel);
    rosterd.launch();
    let host = PamHost::on(&rosterd, "alice");

    let shown = run(rosterd.command_inside(&old_kernel).args(["id", "alice"])).text();
    assert!(shown.starts_with("uid=20000(alice) "), "{shown}");
    let log_in = |password| {
        let pamtester = find_tool("pamtester", "pamtester");
        let mut command = rosterd.command_inside(&old_kernel);
        command.arg(pamtester).args(["alone", "alice", "authenticate", "open_session"]);
        last_message(&run(command.stdin(stdin_with_lines(&[password]))))
    };
    let opened = log_in(PASSWORD);
    assert!(opened.ends_with("fully opened a session"), "{opened}");
    assert!(log_in("swordfish").ends_with("Authentication failure"));
    assert_eq!(host.authenticate("alice", PASSWORD), "successfully authenticated");

    let kernel = status::KERNEL_FEATURE_MISSING.code;
    let found = doctor_findings(&rosterd, &old_kernel);
    for name in ["Landlock", "pidfd_open", "openat2"] {
        let start = format!("the kernel has no {name} (");
        let is_named = found.iter().any(|(code, text)| code == kernel && text.starts_with(&start));
        assert!(is_named, "{name}: {found:?}");
    }
    let roles = wait_for(SOON, || {
        let found = doctor_findings(&rosterd, &old_kernel);
        let roles = found.into_iter().find(|(code, _)| code == status::SANDBOX_INCOMPLETE.code);
        roles.map(|(_, text)| text).ok_or_else(|| "no finding about the sandbox".to_owned())
    });
    for role in ["publisher", "backend:corp", "responder:pam"] {
        assert!(roles.contains(role), "{role}: {roles}");
    }
    assert!(roles.contains("run without Landlock"), "{roles}");
}

#[test]
fn doctor_on_this_kernel_names_no_loss() {
    if !needs_root() {
        return;
    }
    let slapd = pam::slapd_with_users(&["alice"]);
    let rosterd = pam::start_daemon(&[pam::domain(&slapd)], "");
    let _ = PamHost::on(&rosterd, "alice");
    let found = doctor_findings(&rosterd, &find_tool("env", "coreutils"));
    let codes = [status::KERNEL_FEATURE_MISSING.code, status::SANDBOX_INCOMPLETE.code];
    assert!(!found.is_empty());
    assert!(!found.iter().any(|(code, _)| codes.contains(&&**code)), "{found:?}");
}
