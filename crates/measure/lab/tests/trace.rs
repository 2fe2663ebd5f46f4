// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab trace`: the probes of a real daemon show the time of each stage.

mod common;

use common::{assert_fits_widths, count, has_code, lab, number, run};
use roster_lab::trace::bpftrace_script::Probe;
use roster_lab::trace::{rosterd_probes, sssd_probes};
use roster_messages::table::lab as messages;
use roster_system_tests::servers::{Relay, Sssd};
use roster_system_tests::{
    DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, find_tool, needs_root,
    run as exec, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Delay of the slow directory.
const SLOW: Duration = Duration::from_millis(300);
const SLOW_MS: f64 = 300.0;
/// Times in a report are rounded to this.
const ROUNDING_MS: f64 = 0.001;
/// Limit of a wait for probes.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Duration that no test reaches.
const LONG: &str = "120";

/// Stages of a request that reaches a directory. The first is the whole request.
const HOPS: [&str; 9] = [
    "request",
    "responder",
    "bus to publisher",
    "publisher",
    "bus to backend",
    "backend",
    "directory",
    "bus from backend",
    "bus from publisher",
];

/// Running `roster-lab trace` with its output directory.
struct Trace {
    child: Child,
    folder: TempDir,
}

impl Trace {
    /// Starts a trace of the daemon.
    fn start(rosterd: &mut Rosterd) -> Self {
        let monitor = rosterd.process().pid().as_raw_nonzero().to_string();
        Self::with(&["--pid", &monitor])
    }

    fn with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        let mut command = lab(&["trace", "--duration", LONG]);
        command.args(arguments);
        command.arg("--json").arg(folder.path().join("trace.json"));
        command.arg("--html").arg(folder.path().join("trace.html"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start roster-lab");
        let errors = child.stderr.take().expect("piped");
        let (sender, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(errors).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let line = said.recv_timeout(READY_WITHIN).expect("a word that it looks");
        assert!(line.starts_with("tracing "), "{line}");
        Self { child, folder }
    }

    /// Ends the trace as Ctrl-C does. Returns its text and its report.
    fn end(mut self) -> (String, Value) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("tell it to end");
        let mut text = String::new();
        let mut out = self.child.stdout.take().expect("piped");
        out.read_to_string(&mut text).expect("what it says");
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), Some(130), "{text}");
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).expect(name);
        let page = read("trace.html");
        assert!(page.contains("<svg") && !page.contains("http"), "it needs no other file");
        assert_fits_widths(&[&self.folder.path().join("trace.html")]);
        println!("{text}");
        (text, serde_json::from_str(&read("trace.json")).expect("JSON"))
    }
}

/// Returns the row of a stage, and of a provider if the stage has one.
fn row<'a>(report: &'a Value, hop: &str, provider: Option<&str>) -> &'a Value {
    let rows = report["hops"].as_array().expect("a list");
    let found = rows.iter().find(|row| row["hop"] == hop && row["provider"].as_str() == provider);
    found.unwrap_or_else(|| panic!("{hop} {provider:?}: {report}"))
}

fn percentile(row: &Value, wanted: f64) -> f64 {
    let all = row["percentiles_ms"].as_array().expect("a list");
    let found = all.iter().find(|pair| pair[0] == wanted);
    found.unwrap_or_else(|| panic!("{wanted}: {row}"))[1].as_f64().expect("a time")
}

fn provider(hop: &str) -> Option<&'static str> {
    let has_one = hop.contains("backend") || hop == "directory";
    has_one.then_some("corp (ldap)")
}

/// Returns whether a single query on the host of an installed daemon finds the user.
fn finds(rosterd: &Rosterd, user: &str) -> bool {
    let mut command = rosterd.command_inside(&find_tool("getent", "libc-bin"));
    let done = exec(command.args(["-s", "roster", "passwd", user]));
    assert!([0, 2].contains(&done.code), "{user}: {}", done.error());
    done.code == 0
}

fn on_demand(name: &str, slapd: &Slapd, relay: &Relay) -> DomainTable {
    DomainTable::ldap_through(name, slapd, &[&relay.uri()]).with("mode", "\"on-demand\"")
}

fn ready(mut rosterd: Rosterd, names: &[&str]) -> Rosterd {
    rosterd.launch();
    rosterd.wait_for_snapshot();
    for name in names {
        rosterd.expect_domain_status(name, "online", true);
    }
    rosterd
}

#[test]
fn trace_counts_each_hop_and_slow_directory() {
    if !needs_root() {
        return;
    }
    let ldif = LdifBuilder::new(Schema::Rfc2307).populated(100, 10, 5);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif);
    let relay = Relay::to(slapd.port());
    // The daemon is installed as by a package: each role has its own user, and only its mounts contain the program.
    let rosterd = Rosterd::installed(&[on_demand("corp", &slapd, &relay)]);
    let mut rosterd = ready(rosterd, &["corp"]);

    let trace = Trace::start(&mut rosterd);
    let before = slapd.searches();
    // Absent users precede the found ones: a snapshot that is published during a lookup keeps its reply out of the
    // responder's cache.
    assert!(!finds(&rosterd, "nobody-there"));
    // The responder answers the second lookup from its cache.
    assert!(!finds(&rosterd, "nobody-there"));
    for user in 0..20 {
        assert!(finds(&rosterd, &format!("u{user}")), "u{user}");
    }
    let searches = slapd.searches() - before;
    let (text, report) = trace.end();
    assert_eq!(count(&report, "/requests"), 22);
    assert_eq!(count(&report, "/unfinished"), 0);
    assert_eq!(count(&report, "/lost_events"), 0);
    assert_eq!(count(&report, "/kinds/user_by_name"), 22);
    assert_eq!((count(&report, "/results/found"), count(&report, "/results/absent")), (20, 2));
    for hop in HOPS {
        let times = count(row(&report, hop, provider(hop)), "/count");
        assert_eq!(times, if ["request", "responder"].contains(&hop) { 22 } else { 21 }, "{hop}");
        assert!(text.contains(hop), "{text}");
    }
    // Backends also check at times whether the server is available.
    assert!(searches >= 21, "{searches} searches");

    relay.set_delay(SLOW);
    let trace = Trace::start(&mut rosterd);
    for user in 20..30 {
        assert!(finds(&rosterd, &format!("u{user}")), "u{user}");
    }
    let (_, report) = trace.end();
    let least = HOPS.map(|hop| {
        let row = row(&report, hop, provider(hop));
        assert_eq!(count(row, "/count"), 10, "{hop}");
        let least = percentile(row, 0.0);
        let is_slow = ["request", "directory"].contains(&hop);
        assert!(!is_slow || least >= SLOW_MS, "{hop}: {least} ms");
        least
    });
    // The delay of the directory counts in its own stage only. Otherwise the sum would exceed the request.
    let hops: f64 = least[1..].iter().sum();
    assert!(hops <= least[0] + ROUNDING_MS, "{hops} ms of {} ms: {report}", least[0]);
    assert!(number(&report, "/seconds") >= 10.0 * SLOW.as_secs_f64());
}

#[test]
fn of_two_providers_the_slow_one_is_named() {
    if !needs_root() {
        return;
    }
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let empty = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory.tree());
    let slapd =
        Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory.populated(100, 10, 5));
    let (first, second) = (Relay::to(empty.port()), Relay::to(slapd.port()));
    let domains = [on_demand("corp", &empty, &first), on_demand("lab", &slapd, &second)];
    let mut rosterd = ready(Rosterd::prepared(&domains), &["corp", "lab"]);
    first.set_delay(SLOW);

    let trace = Trace::start(&mut rosterd);
    for user in 0..5 {
        assert!(rosterd.getent("passwd", &format!("u{user}")).is_some(), "u{user}");
    }
    let (_, report) = trace.end();
    assert_eq!(count(&report, "/requests"), 5);
    let (slow, quick) = ("corp (ldap)", "lab (ldap)");
    let (corp, lab) =
        (row(&report, "directory", Some(slow)), row(&report, "directory", Some(quick)));
    // corp gets two queries for each user: first by name, then by number.
    assert!(count(corp, "/count") > 5, "{corp}");
    assert!(percentile(corp, 0.0) >= SLOW_MS, "{corp}");
    // The delay of the slow directory counts neither for the other directory nor for a backend. The machine does not
    // delay all requests by as much.
    assert!(count(lab, "/count") == 5 && percentile(lab, 0.0) < SLOW_MS, "{lab}");
    for place in [slow, quick] {
        assert!(percentile(row(&report, "backend", Some(place)), 0.0) < SLOW_MS, "{place}");
    }
}

#[test]
fn the_probes_that_sssd_has_tell_of_its_searches_too() {
    if !needs_root() {
        return;
    }
    let ldif = LdifBuilder::new(Schema::Rfc2307).populated(100, 10, 5);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif);
    let relay = Relay::to(slapd.port());
    let sssd = Sssd::for_server(&slapd, &relay.uri());
    // A found user proves that SSSD has a connection.
    wait_for(READY_WITHIN, || match sssd.getent("passwd", "u99") {
        done if done.code == 0 => Ok(()),
        done => Err(done.error()),
    });
    relay.set_delay(SLOW);
    let pid = sssd.backend_pid().expect("a backend").as_raw_nonzero().to_string();
    let trace = Trace::with(&["--sssd", "--pid", &pid]);
    for user in 0..5 {
        assert_eq!(sssd.getent("passwd", &format!("u{user}")).code, 0, "u{user}");
    }
    let (_, report) = trace.end();
    assert_eq!(count(&report, "/kinds/Account"), 5);
    assert_eq!(count(&report, "/results/answered"), count(&report, "/requests"));
    let of = |hop| row(&report, hop, Some("corp"));
    assert_eq!(count(of("LDAP provider"), "/count"), 5);
    assert!(count(of("directory"), "/count") >= 5 && count(of("cache"), "/count") >= 5);
    for hop in ["LDAP provider", "directory"] {
        let median = percentile(of(hop), 50.0);
        assert!(median >= SLOW_MS, "{hop}: {median} ms");
    }
    // A lookup has a search and then a transaction of the cache.
    let parts = percentile(of("directory"), 0.0) + percentile(of("cache"), 0.0);
    let longest = percentile(of("LDAP provider"), 100.0);
    assert!(parts <= longest + ROUNDING_MS, "{parts} ms of {longest} ms: {report}");
}

/// Runs a command that fails. Returns its exit code and its standard error.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let done = command.output().expect("start roster-lab");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Process with the name of another program.
struct Impostor {
    child: Child,
    _folder: TempDir,
}

impl Impostor {
    fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        let path = folder.path().join(name);
        fs::copy("/bin/sleep", &path).expect("copy a program");
        let child = Command::new(&path).arg("300").spawn().expect("start it");
        let exe = format!("/proc/{}/exe", child.id());
        wait_for(READY_WITHIN, || {
            let runs = fs::read_link(&exe).is_ok_and(|link| link == path);
            if runs { Ok(()) } else { Err("it does not run yet".to_owned()) }
        });
        Self { child, _folder: folder }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_keeps_it_from_looking_is_said_with_what_to_do() {
    if !needs_root() {
        return;
    }
    let (impostor, peer) = (Impostor::start("rosterd"), Impostor::start("sssd_be"));
    let peer = peer.child.id().to_string();
    let pid = impostor.child.id().to_string();
    let trace = |arguments: &[&str]| lab(&[&["trace", "--duration", "0.3"], arguments].concat());
    // Another user can execute the copy.
    let shared = tempfile::Builder::new()
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("make a directory");
    let program = shared.path().join("roster-lab");
    fs::copy(env!("CARGO_BIN_EXE_roster-lab"), &program).expect("copy the program");
    let mut as_nobody = Command::new(&program);
    as_nobody.args(["trace", "--pid", &pid]).uid(65534).gid(65534);
    let mut without_bpftrace = trace(&["--pid", &pid]);
    without_bpftrace.env("PATH", "/nowhere");
    for (command, message) in [
        (&mut as_nobody, &messages::TRACE_NEEDS_ROOT),
        (&mut without_bpftrace, &messages::BPFTRACE_MISSING),
        (&mut trace(&["--pid", &pid]), &messages::ROSTERD_PROBES_MISSING),
        (&mut trace(&["--pid", "1"]), &messages::ROSTERD_PID_UNKNOWN),
        (&mut trace(&["--sssd", "--pid", &pid]), &messages::SSSD_PID_UNKNOWN),
        (&mut trace(&["--sssd", "--pid", &peer]), &messages::SSSD_PROBES_MISSING),
    ] {
        let (code, error) = refused(command);
        assert_eq!(code, Some(1), "{error}");
        assert!(has_code(&error, message), "{message}: {error}");
    }
    let wrong = run(&["trace", "--duration", "soon"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn that_nobody_asked_is_said_and_no_report_is_written() {
    if !needs_root() {
        return;
    }
    let slapd = Slapd::serving(
        SlapdOptions::new(Schema::Rfc2307),
        &LdifBuilder::new(Schema::Rfc2307).tree(),
    );
    let relay = Relay::to(slapd.port());
    let mut rosterd = Rosterd::prepared(&[on_demand("corp", &slapd, &relay)]);
    // bpftrace traces every process of an executable, so no other test's daemon may run this file.
    let own = rosterd.host().path("rosterd").display().to_string();
    rosterd.set_start_script(&format!("cp \"$1\" {own}; shift; exec {own} \"$@\""));
    let rosterd = ready(rosterd, &["corp"]);
    // --pid accepts any process of rosterd.
    let pid = rosterd.wait_for_role("backend:corp").as_raw_nonzero().to_string();
    let folder = tempfile::tempdir().expect("make a directory");
    let file = folder.path().join("trace.json");
    let file = file.to_str().expect("a plain path");
    let (code, error) =
        refused(&mut lab(&["trace", "--pid", &pid, "--duration", "0.5", "--json", file]));
    assert_eq!(code, Some(1), "{error}");
    assert!(has_code(&error, &messages::TRACE_NO_REQUESTS), "{error}");
    assert!(!Path::new(file).exists());
}

/// Directory with a shell script in place of bpftrace. It lists all probes, and then runs `$TRACE`.
fn scripted_bpftrace() -> TempDir {
    let folder = tempfile::tempdir().expect("make a directory");
    let names = |probes: &[Probe]| probes.iter().map(|probe| probe.name).collect::<Vec<_>>();
    let names = [names(&rosterd_probes::PROBES), names(&sssd_probes::PROBES)].concat().join(" ");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != -l ] || exec printf 'usdt:file:provider:%s\\n' {names}\neval \"$TRACE\"\n"
    );
    let path = folder.path().join("bpftrace");
    fs::write(&path, script).expect("write the script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it a program");
    folder
}

#[test]
fn trace_bpftrace_without_requests_has_code() {
    if !needs_root() {
        return;
    }
    let (impostor, peer) = (Impostor::start("rosterd"), Impostor::start("sssd_be"));
    let [pid, peer] = [&impostor, &peer].map(|one| one.child.id().to_string());
    let folder = scripted_bpftrace();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.path().display());
    let event = |pid: &str| format!("echo ready; printf 'request_received\\t{pid}\\t1\\t7\\t0\\n'");
    let rosterd = ["--pid", &pid];
    for (arguments, script, message) in [
        (&rosterd[..], "echo broken >&2; exit 1", &messages::PROBES_NOT_ATTACHED),
        (&rosterd, "echo ready; exit 1", &messages::BPFTRACE_ENDED),
        (&rosterd, &event(&pid), &messages::TRACE_TOO_SHORT),
        (&rosterd, &event("999999999"), &messages::TRACE_OTHER_PID_NAMESPACE),
        (&["--sssd", "--pid", &peer], "echo ready", &messages::TRACE_NO_REQUESTS_SSSD),
    ] {
        let mut trace = lab(&[&["trace", "--duration", "0.3"], arguments].concat());
        let (code, error) = refused(trace.env("PATH", &path).env("TRACE", script));
        assert_eq!(code, Some(1), "{error}");
        assert!(has_code(&error, message), "{message}: {error}");
    }
    let no_program = folder.path().join("bpftrace");
    fs::set_permissions(&no_program, fs::Permissions::from_mode(0o644)).expect("change its mode");
    let mut trace = lab(&[&["trace"], &rosterd[..]].concat());
    let (_, error) = refused(trace.env("PATH", folder.path()));
    assert!(has_code(&error, &messages::BPFTRACE_FAILED), "{error}");
}

#[test]
fn trace_processes_none_or_several_has_code() {
    if !needs_root() {
        return;
    }
    let _impostors = [Impostor::start("rosterd"), Impostor::start("rosterd")];
    let (_, error) = refused(&mut lab(&["trace"]));
    assert!(has_code(&error, &messages::ROSTERD_SEVERAL), "{error}");
    for (arguments, message) in [
        (&["trace"][..], &messages::ROSTERD_NOT_RUNNING),
        (&["trace", "--sssd"], &messages::SSSD_NOT_RUNNING),
    ] {
        let mut alone = Command::new("unshare");
        alone.args(["--map-root-user", "--pid", "--fork", "--mount-proc"]);
        let (code, error) = refused(alone.arg(lab(&[]).get_program()).args(arguments));
        assert!(code == Some(1) && has_code(&error, message), "{message}: {error}");
    }
}
