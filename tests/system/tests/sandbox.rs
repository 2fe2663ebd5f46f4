// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's seccomp filters of running roles equal those of docs/internals/sandbox.md.

use roster_system_tests::rosterd::{Rosterd, SOON};
use roster_system_tests::{
    Corpus, DomainTable, LookupProgram, NscdServer, TestHost, c_program, needs_root, run, wait_for,
    wait_until,
};
use rustix::process::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TABLES: &str = "[responder.pam]\nenabled = true\n\
                      [metrics]\nlisten = \"unix:/run/roster/metrics\"\n";
/// Connects to each responder's socket, which starts responders that wait for a first request.
const CONNECT: &str = "import socket
for name in ('nss', 'pam', 'metrics'):
    socket.socket(socket.AF_UNIX).connect(f'/run/roster/{name}')";

/// One domain of text files with logins by Kerberos, and one of a directory that does not answer.
fn start(folder: &Path) -> Rosterd {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("chmod");
    let [passwd, group] = ["passwd", "group"].map(|name| folder.join(name));
    fs::write(&passwd, "ann:x:5000:5000:Ann:/home/ann:/bin/sh\n").expect("write");
    fs::write(&group, "lab:x:5000:\n").expect("write");
    let lab = DomainTable::files("lab", &passwd, &group)
        .with("auth", "\"krb5\"")
        .with("krb5_realm", "\"LAB.TEST\"")
        .with("krb5_kdcs", "[\"127.0.0.1:9\"]")
        .with("krb5_validate", "\"off\"");
    let corp = DomainTable::files("corp", &passwd, &group)
        .without("passwd")
        .without("group")
        .with("provider", "\"ldap\"")
        .with("uris", "[\"ldap://127.0.0.1:9\"]")
        .with("base", "\"dc=example,dc=com\"")
        .with("mode", "\"on-demand\"");
    let mut rosterd = Rosterd::installed(&[lab, corp]);
    rosterd.set_tables(TABLES);
    rosterd.launch();
    rosterd
}

/// A child of any thread of a process, with this word in its command line.
fn child(parent: Pid, word: &str) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())).ok()?.flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<_> = lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|found| found.ends_with(word.as_bytes()))
        })
        .collect();
    Pid::from_raw(children.first()?.parse().ok()?)
}

fn wait_for_child(parent: Pid, word: &str) -> Pid {
    wait_for(SOON, || child(parent, word).ok_or_else(|| format!("{word} does not run")))
}

/// The number of filters of a process.
fn filters(pid: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.unwrap_or_default().trim().to_owned()
}

fn is_running(rosterd: &Rosterd, role: &str) -> bool {
    let status = rosterd.status().unwrap_or_default();
    let roles = status["roles"].as_array().cloned().unwrap_or_default();
    roles.iter().any(|found| found["role"] == role && found["state"] == "running")
}

/// The processes of all roles, by the rows of the page, once they have given up their rights.
fn processes(rosterd: &Rosterd) -> Vec<(&'static str, Pid)> {
    let mut found = vec![("bus", rosterd.wait_for_role("bus"))];
    wait_until(SOON, "sockets are there", || {
        run(rosterd.command_inside(Path::new("python3")).args(["-c", CONNECT])).code == 0
    });
    for (row, role) in [
        ("publisher", "publisher"),
        ("backend, ldap", "backend:corp"),
        ("backend, files", "backend:lab"),
        ("responder nss", "responder:nss"),
        ("responder pam", "responder:pam"),
        ("responder metrics", "responder:metrics"),
    ] {
        wait_until(SOON, role, || is_running(rosterd, role));
        found.push((row, rosterd.wait_for_role(role)));
    }
    let lab = rosterd.wait_for_role("backend:lab");
    let krb5 = wait_for_child(lab, "roster-krb5");
    wait_until(SOON, "roster-krb5 has its filters", || filters(krb5) == filters(lab));
    found.push(("roster-krb5", krb5));
    found
}

/// A server of maps, and its helper, which has its filters once it has answered.
fn nscd_helper() -> (NscdServer, Pid) {
    let local = Corpus::new("", b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n", b"");
    let host = TestHost::in_memory(&local, "passwd: files systemd\ngroup: files systemd\n");
    let mut served = NscdServer::start(host);
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("carol").starts_with("none:"));
    let server = served.process().pid();
    // The server starts the helper itself in versions without a starter, which `scripts/prove` runs.
    let helper = wait_for(SOON, || {
        let parent = child(server, "nscd-starter").unwrap_or(server);
        child(parent, "nscd-helper").ok_or("nscd-helper does not run".to_owned())
    });
    (served, helper)
}

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn role_seccomp_filters_equal_documented_list() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let rosterd = start(folder.path());
    let mut command = Command::new("python3");
    command.arg(in_tree("tests/system/python/seccomp_programs.py"));
    command.arg(in_tree("docs/internals/sandbox.md"));
    let (_served, helper) = nscd_helper();
    for (role, pid) in [processes(&rosterd), vec![("helper of nscd", helper)]].concat() {
        command.arg(format!("{role}={}", pid.as_raw_nonzero()));
    }
    let told = run(&mut command);
    let differences = String::from_utf8_lossy(&told.stdout);
    assert!(told.code == 0 && differences.is_empty(), "{differences}{}", told.error());
}
