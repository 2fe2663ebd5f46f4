// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab worker` and `locust` with a real Locust master: its figures equal the servers' counters.

mod common;

use common::{DN, PASSWORD, has_code, lab, python, slapd, slapd_that_is_not_started};
use resvg::tiny_skia::Pixmap;
use roster_messages::table::lab as messages;
use roster_system_tests::servers::ServerProcess;
use roster_system_tests::wait::{SOON, wait_for};
use roster_system_tests::{DirectoryServer, Slapd, find_tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Limit of a wait for a run of several seconds.
const MINUTES: Duration = Duration::from_secs(180);

/// Limit of a wait for processes that end after another one, on a busy machine.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Directory and port of one master.
struct Bench {
    folder: TempDir,
    port: u16,
}

impl Bench {
    fn new(locustfile: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a directory");
        fs::write(folder.path().join("locustfile.py"), locustfile).expect("write the locustfile");
        Self { folder, port: free_port() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a master with these options. It writes its figures to files `run_…`.
    fn master(&self, options: &[&str]) -> ServerProcess {
        let mut command = Command::new(python());
        command.args(["-B", "-m", "locust", "--master", "--master-bind-host", "127.0.0.1"]);
        command.args(["--master-bind-port", &self.port.to_string(), "--csv", "run"]);
        command.args(["--html", "run.html", "-f", "locustfile.py"]).args(options);
        command.current_dir(self.folder.path()).env("PYTHONPATH", package());
        command.env("ROSTER_LAB", env!("CARGO_BIN_EXE_roster-lab"));
        ServerProcess::start(&mut command, &self.path("master.log"))
    }

    /// Starts `roster-lab locust` with its own options, followed by Locust's.
    fn up(&self, options: &[&str]) -> ServerProcess {
        let mut up = lab(&["locust", "--port", &self.port.to_string(), "--python"]);
        up.arg(python()).args(options).current_dir(self.folder.path()).env("PYTHONPATH", package());
        ServerProcess::start(&mut up, &self.path("master.log"))
    }

    fn worker(&self, options: &[&str]) -> ServerProcess {
        let mut command = lab(&["worker", "--master", &format!("127.0.0.1:{}", self.port)]);
        command.args(options);
        let number = fs::read_dir(self.folder.path()).expect("the directory").count();
        ServerProcess::start(&mut command, &self.path(&format!("worker-{number}.log")))
    }

    /// Returns the log of the master.
    fn log(&self) -> String {
        fs::read_to_string(self.path("master.log")).unwrap_or_default()
    }

    /// Waits until the log of the master contains a text.
    fn wait_for(&self, what: &str) {
        wait_for(SOON, || {
            let log = self.log();
            if log.contains(what) { Ok(()) } else { Err(format!("{what}: {log}")) }
        });
    }

    /// Returns a column of the row `name` in the master's last figures.
    fn figure(&self, name: &str, column: &str) -> f64 {
        let text = fs::read_to_string(self.path("run_stats.csv")).expect("the master's figures");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let at = lines[0].iter().position(|title| *title == column).expect("a column");
        let line = lines.iter().find(|line| line.get(1) == Some(&name));
        let line = line.unwrap_or_else(|| panic!("{name}: {text}{}", self.log()));
        line[at].parse().unwrap_or_else(|error| panic!("{name} {column}: {error}: {text}"))
    }

    fn count(&self, name: &str, column: &str) -> u64 {
        self.figure(name, column) as u64
    }
}

/// Returns the path of the Python package for locustfiles.
fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python/src")
}

/// Waits until the process ends, and requires exit code 0.
fn ended_well(mut process: ServerProcess, what: &str) {
    wait_for(MINUTES, || {
        if process.is_running() {
            Err(format!("{what} goes on: {}", process.log()))
        } else {
            Ok(())
        }
    });
    assert_eq!(process.exit_code(), Some(0), "{what}: {}", process.log());
}

/// Returns a locustfile with one class, `Binds`.
fn binds(slapd: &Slapd, more: &str) -> String {
    format!(
        "from roster_locust import LdapUser\n\nclass Binds(LdapUser):\n    uri = \"{}\"\n    \
         dn = \"{DN}\"\n    password = \"{PASSWORD}\"\n    probe = 0\n{more}",
        slapd.uri()
    )
}

/// Returns the end of a locustfile: `users` users while the Python expression `holds` is true, then a stop, which waits
/// for the last reports of the workers. (A run time limit ends the master after half a second, with or without them.)
/// The expression may use `told`, the number of reported requests. The file `told` contains it too.
fn shape(users: u32, holds: &str) -> String {
    format!(
        "\nimport os\nfrom locust import LoadTestShape\n\nclass Shape(LoadTestShape):\n    def tick(self):\n        \
         told = self.runner.stats.total.num_requests\n        \
         with open('told.new', 'w') as file:\n            file.write(str(told))\n        \
         os.replace('told.new', 'told')\n        \
         return ({users}, {users}) if {holds} else None\n"
    )
}

/// Condition that is true until the test creates the file `over`.
const UNTIL_OVER: &str = "not os.path.exists('over')";

/// Returns the number of binds that the server has completed, without the one of this query.
fn bound(slapd: &Slapd) -> u64 {
    let base = "cn=Bind,cn=Operations,cn=Monitor";
    let text = slapd.search(base, "(objectClass=*)", &["monitorOpCompleted"]);
    let text = String::from_utf8(text).expect("LDIF");
    let value = text.lines().find_map(|line| line.strip_prefix("monitorOpCompleted: "));
    value.and_then(|value| value.parse::<u64>().ok()).expect("cn=Monitor counts") - 1
}

const HEADLESS: [&str; 3] = ["--headless", "--only-summary", "--expect-workers"];

#[test]
fn figures_of_a_master_with_two_workers_are_what_the_server_counted() {
    let slapd = slapd(|_| {});
    let bench = Bench::new(&binds(&slapd, &shape(8, "told < 1000")));
    let before = bound(&slapd);
    let master = bench.master(&[&HEADLESS[..], &["2"]].concat());
    let workers = [bench.worker(&["--source", "127.0.0.2"]), bench.worker(&["--threads", "2"])];
    ended_well(master, "the master");
    for worker in workers {
        ended_well(worker, "a worker");
    }
    let made = bound(&slapd) - before - 1;
    assert_eq!(bench.count("Aggregated", "Request Count"), made, "{}", bench.log());
    assert_eq!(bench.count("Binds", "Request Count"), made);
    assert_eq!(bench.count("Binds", "Failure Count"), 0);
    assert!(made >= 1000, "{made}");
    // Binds of a small slapd take less than a millisecond. A worker of Locust would round them to 0.
    let median = bench.figure("Binds", "50%");
    assert!(median > 0.0 && median.fract() > 0.0, "{median}");
    let page = fs::read_to_string(bench.path("run.html")).expect("the master's page");
    assert!(page.contains("LDAP bind"));
}

#[test]
fn workers_in_network_namespaces_of_their_own_serve_one_master() {
    let slapd = slapd_that_is_not_started();
    let file =
        binds(&slapd, &shape(4, "told < 1000")).replace(&slapd.uri(), "ldap://10.0.1.1:3890");
    let bench = Bench::new(&file);
    let script = format!(
        "ip link set lo up || exit
         slapd -d 0 -f {conf} -h ldap://0.0.0.0:3890 & slapd=$!
         bound() {{
            ldapsearch -x -LLL -H ldap://127.0.0.1:3890 -D {admin} -w 'may do anything' \
                -b cn=Bind,cn=Operations,cn=Monitor -s base monitorOpCompleted | sed -n 's/^monitorOpCompleted: //p'
         }}
         tries=0
         until bound > /dev/null 2>&1; do [ $((tries += 1)) -lt 300 ] && sleep 0.1 || exit; done
         before=$(bound)
         for n in 1 2; do
            unshare --net sleep 120 & host=$!
            until [ \"$(readlink /proc/$host/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.1; done
            ip link add h$n type veth peer name w$n netns $host
            ip address add 10.0.$n.1/24 dev h$n && ip link set h$n up
            nsenter --net --target $host sh -c \"ip link set lo up; ip address add 10.0.$n.2/24 dev w$n
                ip link set w$n up; ip route add default via 10.0.$n.1\"
            nsenter --net --target $host {lab} worker --master 10.0.$n.1:{port} &
            hosts=\"$hosts $host\"
         done
         {python} -B -m locust --master --master-bind-port {port} --headless --only-summary --csv run \
            -f locustfile.py --expect-workers 2 > master.log 2>&1
         after=$(bound)
         echo $((after - before - 1))
         kill $slapd $hosts; wait",
        conf = slapd.server_dir().join("slapd.conf").display(),
        admin = slapd.admin_dn(),
        lab = env!("CARGO_BIN_EXE_roster-lab"),
        port = bench.port,
        python = python().display(),
    );
    let mut command = Command::new("unshare");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    command.args(["--map-root-user", "--net", "sh", "-c", &script]).env("PATH", path);
    command.env("PYTHONPATH", package());
    let output = command.current_dir(bench.folder.path()).output().expect("start unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    let made = String::from_utf8_lossy(&output.stdout).trim().parse::<u64>();
    let made = made.unwrap_or_else(|error| panic!("{error}: {said}{}", bench.log()));
    assert_eq!(bench.count("Binds", "Request Count"), made, "{said}{}", bench.log());
    assert!(made >= 1000, "{made}");
    assert!(bench.log().contains("2 workers connected"), "{}", bench.log());
}

#[test]
fn a_crowd_larger_than_a_shell_allows_open_files_is_served() {
    let slapd = slapd(|_| {});
    let shape = shape(300, "told < 2000 or self.runner.user_count < 300");
    let bench = Bench::new(&binds(&slapd, &format!("    think = \"200ms\"\n{shape}")));
    let master = bench.master(&[&HEADLESS[..], &["1"]].concat());
    let master_port = format!("127.0.0.1:{}", bench.port);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 120 && exec \"$0\" worker --master \"$1\""]);
    shell.arg(lab(&[]).get_program()).arg(master_port);
    let worker = ServerProcess::start(&mut shell, &bench.path("worker.log"));
    ended_well(master, "the master");
    ended_well(worker, "the worker");
    assert!(bench.count("Binds", "Request Count") >= 2000, "{}", bench.log());
    assert_eq!(bench.count("Binds", "Failure Count"), 0);
}

#[test]
fn users_come_and_go_and_a_stop_loses_no_request() {
    let slapd = slapd(|_| {});
    // 40 users, more than a wave has places, start at ten per second, then 35 of them stop, and then the run. Each
    // number is reached before the next step.
    let shape = "\nfrom locust import LoadTestShape\n\nclass Shape(LoadTestShape):\n    \
                 goals = [(40, 10), (5, 100)]\n    def tick(self):\n        \
                 if self.get_current_user_count() == self.goals[0][0]:\n            \
                 self.goals.pop(0)\n        \
                 return self.goals[0] if self.goals else None\n";
    let bench = Bench::new(&binds(&slapd, &format!("    think = \"20ms\"\n{shape}")));
    let before = bound(&slapd);
    let master = bench.master(&[&HEADLESS[..], &["1"]].concat());
    let worker = bench.worker(&[]);
    ended_well(master, "the master");
    ended_well(worker, "the worker");
    assert_eq!(
        bench.count("Binds", "Request Count"),
        bound(&slapd) - before - 1,
        "{}",
        bench.log()
    );
    // Each user had its own connection, and closed it when it stopped.
    let log = bench.log();
    assert!(!log.contains("Traceback"), "{log}");
}

#[test]
fn a_worker_that_is_killed_takes_no_other_s_counts_with_it() {
    let slapd = slapd(|_| {});
    let file = format!("    think = \"5ms\"\n{}", shape(4, UNTIL_OVER));
    let bench = Bench::new(&binds(&slapd, &file));
    let before = bound(&slapd);
    let master = bench.master(&[&HEADLESS[..], &["2"]].concat());
    let mut killed = bench.worker(&[]);
    let stays = bench.worker(&[]);
    bench.wait_for("All users spawned");
    let reported =
        || fs::read_to_string(bench.path("told")).map_or(0, |told| told.parse().unwrap_or(0));
    wait_until(SOON, "both are at work", || reported() > 500_u64);
    let told_before = reported();
    killed.kill();
    let at_the_kill = bound(&slapd);
    bench.wait_for("failed to send heartbeat");
    wait_until(SOON, "the other goes on", || reported() > told_before + 500);
    fs::write(bench.path("over"), "").expect("write");
    ended_well(master, "the master");
    ended_well(stays, "the other worker");
    let (told, made) = (bench.count("Binds", "Request Count"), bound(&slapd) - before - 2);
    // The killed worker loses only its requests since its last report. At most all requests were unreported when it was
    // killed, plus one of each user that the server had not counted.
    let lost = made.checked_sub(told).unwrap_or_else(|| panic!("{told} of {made}"));
    let not_reported = at_the_kill - before - 1 + 4 - told_before;
    assert!(lost <= not_reported, "{lost} of {not_reported}: {told} of {made}");
}

#[test]
fn locust_fault_is_exception_failure_is_figure() {
    let slapd = slapd(|_| {});
    let mut file = binds(&slapd, "");
    let _ = write!(
        file,
        "\nclass Wrong(LdapUser):\n    uri = \"{}\"\n    dn = \"{DN}\"\n    password = \"no\"\n    \
         probe = 0\n    think = \"10ms\"\n\nclass Slip(LdapUser):\n    uri = \"{0}\"\n    userz = 5\n    \
         probe = 0\n\nclass Nobody(LdapUser):\n    uri = \"ldap://127.0.0.1:1\"\n    dn = \"cn=x\"\n    \
         password = \"x\"\n    probe = 0\n\nfrom roster_locust import CommandUser\n\n\
         class Shell(CommandUser):\n    command = [\"id\"]\n    probe = 0\n\nfrom locust import User, task\n\n\
         class Other(User):\n    @task\n    def nothing(self):\n        pass\n",
        slapd.uri()
    );
    let bench = Bench::new(&file);
    let run = ["1", "-u", "6", "-r", "6", "-t", "4s"];
    let master = bench.master(&[&HEADLESS[..], &run].concat());
    let worker = bench.worker(&[]);
    let mut master = master;
    wait_for(MINUTES, || if master.is_running() { Err(bench.log()) } else { Ok(()) });
    ended_well(worker, "the worker");
    let exceptions = fs::read_to_string(bench.path("run_exceptions.csv")).expect("exceptions");
    for (what, message) in [
        ("Slip: userz: unknown key", &messages::PLAN_UNKNOWN_KEY),
        ("Shell: ", &messages::COMMANDS_NOT_ALLOWED),
        ("Other: ", &messages::CLASS_UNDEFINED),
    ] {
        assert!(exceptions.contains(what), "{what}: {exceptions}");
        assert!(has_code(&exceptions, message), "{what}: {exceptions}");
    }
    let failed = bench.count("Wrong", "Failure Count");
    assert!(failed > 0 && failed == bench.count("Wrong", "Request Count"));
    assert_eq!(bench.count("Binds", "Failure Count"), 0);
    let failures = fs::read_to_string(bench.path("run_failures.csv")).expect("failures");
    let rejected = format!("LDAP 49 invalidCredentials [{}]", messages::LDAP_RESULT.code);
    assert!(failures.contains(&rejected), "{failures}");
    // An unreachable server fails requests and not the class, because it may return.
    assert!(failures.contains("connect: Connection refused"), "{failures}");
    assert!(bench.count("Nobody", "Failure Count") > 0);
}

#[test]
fn lab_server_back_is_served_to_waiting_users() {
    let mut slapd = slapd(|_| {});
    let shape = "\nfrom locust import LoadTestShape\n\nclass Shape(LoadTestShape):\n    \
                 def tick(self):\n        is_there = __import__('os').path.exists\n        \
                 if is_there('over'):\n            return None\n        \
                 return (60, 100) if is_there('more') else (10, 10)\n";
    let bench = Bench::new(&binds(&slapd, &format!("    think = \"50ms\"\n{shape}")));
    let mut master = bench.master(&[&HEADLESS[..], &["1"]].concat());
    let worker = bench.worker(&[]);
    bench.wait_for("All users spawned: {\"Binds\": 10}");
    slapd.process().kill();
    fs::write(bench.path("more"), "").expect("write");
    bench.wait_for("All users spawned: {\"Binds\": 60}");
    thread::sleep(Duration::from_secs(1));
    slapd.start();
    // The restarted server counts from 0, and counts the bind of each query.
    let mut looks = 0..;
    wait_until(SOON, "users bind", || bound(&slapd) >= 60 + looks.next().expect("endless"));
    fs::write(bench.path("over"), "").expect("write");
    wait_for(MINUTES, || if master.is_running() { Err(bench.log()) } else { Ok(()) });
    ended_well(worker, "the worker");
    let (all, failed) =
        (bench.count("Binds", "Request Count"), bench.count("Binds", "Failure Count"));
    assert!(failed > 0 && all > failed, "{failed} of {all}: {}", bench.log());
    let exceptions = fs::read_to_string(bench.path("run_exceptions.csv")).expect("exceptions");
    assert_eq!(exceptions.lines().count(), 1, "{exceptions}");
}

#[test]
fn locust_users_are_for_own_workers_only() {
    let made = tempfile::tempdir().expect("make a directory");
    let mark = made.path().join("mark");
    let file = format!(
        "from roster_locust import CommandUser\n\nclass Run(CommandUser):\n    \
         command = [\"touch\", \"{}\"]\n    think = \"50ms\"\n    probe = 0\n",
        mark.display()
    );
    // A foreign process of this host connects like a worker.
    let bench = Bench::new(&file);
    let stranger = bench.worker(&["--allow-commands", "--patience", "60"]);
    let headless = ["--headless", "--only-summary", "--expect-workers", "2", "--csv", "run"];
    let run = ["-u", "4", "-r", "4", "-t", "4s"];
    let mut up = bench.up(&[&["--workers", "1", "--"], &headless[..], &run].concat());
    wait_for(MINUTES, || if up.is_running() { Err(bench.log()) } else { Ok(()) });
    ended_well(stranger, "the stranger");
    assert!(mark.exists() && bench.count("Run", "Request Count") > 0, "{}", bench.log());
    let exceptions = fs::read_to_string(bench.path("run_exceptions.csv")).expect("exceptions");
    assert!(has_code(&exceptions, &messages::CLASS_UNDEFINED), "{exceptions}");
    // A foreign master has the port and sends a command.
    fs::remove_file(&mark).expect("remove the mark");
    let bench = Bench::new(&file);
    let mut master = bench.master(&[&HEADLESS[..], &["1"], &run].concat());
    let worker = bench.worker(&["--classes", "/no/such/file"]);
    wait_for(MINUTES, || if master.is_running() { Err(bench.log()) } else { Ok(()) });
    ended_well(worker, "the worker");
    let exceptions = fs::read_to_string(bench.path("run_exceptions.csv")).expect("exceptions");
    let is_undefined = has_code(&exceptions, &messages::CLASS_UNDEFINED);
    assert!(is_undefined && !mark.exists(), "{exceptions}");
    // A port in use is reported before the start.
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("its number").port().to_string();
    let output = lab(&["locust", "--port", &port]).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("--port: cannot listen"), "{said}");
    assert!(has_code(&said, &messages::LISTEN_FAILED), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Runs a Python program that can import the package. Returns its output.
fn python_says(program: &str, more: &[(&str, &Path)]) -> String {
    let mut command = Command::new(python());
    command.args(["-B", "-c", program]).env("PYTHONPATH", package()).envs(more.iter().copied());
    let output = command.output().expect("start Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn locust_host_is_per_user_without_password() {
    let classes = "from roster_locust import LdapUser, DnsUser, master\n\
                   class Binds(LdapUser):\n    dn = 'cn=x'\n    password = 'geheim'\n\
                   class Names(DnsUser):\n    server = '127.0.0.1:53'\n    name = 'x\"y'\n\
                   Binds.host = Names.host = 'ldap://other'\n";
    let told = python_says(&format!("{classes}print(Binds.options(), Names.options())"), &[]);
    assert!(told.contains("'uri': 'ldap://other'") && told.contains("'127.0.0.1:53'"), "{told}");
    // A script in place of roster-lab prints its arguments and its standard input.
    let folder = tempfile::tempdir().expect("make a directory");
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nplan=$(cat)\necho \"$* <$plan>\" >&2\n").expect("write");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it run");
    let program = format!("{classes}print(master.check(Binds)['failed'])");
    let told = python_says(&program, &[("ROSTER_LAB", &script)]);
    let (arguments, plan) = told.split_once('<').expect("a plan");
    assert!(!arguments.contains("geheim") && plan.contains("password = \"geheim\""), "{told}");
    fs::write(&script, "#!/bin/sh\nexec cat >/dev/null\n").expect("write");
    let told = python_says(&program, &[("ROSTER_LAB", &script)]);
    assert!(has_code(&told, &messages::LOCUST_CHECK_SILENT), "{told}");
    fs::write(&script, "#!/bin/sh\nexec sleep 60\n").expect("write");
    let slow =
        format!("{classes}master.CHECK_SECONDS_MAX = 0.1\nprint(master.check(Binds)['failed'])");
    let told = python_says(&slow, &[("ROSTER_LAB", &script)]);
    assert!(has_code(&told, &messages::CHECK_TOO_LONG), "{told}");
    let told = python_says(&program, &[("PATH", folder.path())]);
    assert!(has_code(&told, &messages::CHECK_PROGRAM_MISSING), "{told}");
    let alone = "try:\n    Binds.made_by_a_worker(Binds.__new__(Binds))\n\
                 except RuntimeError as error:\n    print(error)\n";
    let told = python_says(&format!("{classes}{alone}"), &[]);
    assert!(has_code(&told, &messages::LOCUST_NO_WORKER), "{told}");
    // The real roster-lab accepts the same input.
    let lab = Path::new(env!("CARGO_BIN_EXE_roster-lab"));
    let told = python_says(&format!("{classes}print(master.check(Names))"), &[("ROSTER_LAB", lab)]);
    assert!(told.contains("findings") || told.contains("probes"), "{told}");
}

/// Returns the reply of the master's page.
fn page(port: u16, path: &str, form: Option<&str>) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect to the page");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set a deadline");
    let body = form.unwrap_or_default();
    let method = if form.is_some() { "POST" } else { "GET" };
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200"), "{answer}");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

#[test]
fn locust_tab_shows_typed_host_since_reset() {
    let slapd = slapd(|_| {});
    let file = binds(&slapd, "    think = \"5ms\"\n");
    let file = file.replace(&format!("uri = \"{}\"", slapd.uri()), "host = \"ldap://127.0.0.1:1\"");
    let bench = Bench::new(&file.replace("    probe = 0\n", "    probe = \"100ms\"\n"));
    let web = free_port();
    let mut up = bench.up(&["--workers", "1", "--web", &format!("127.0.0.1:{web}")]);
    bench.wait_for("the page is http://");
    let data =
        || -> Value { serde_json::from_str(&page(web, "/roster-lab/data", None)).expect("JSON") };
    let failed = |data: &Value| data["warnings"].to_string().contains("not checked");
    let until = |what: &str, mut holds: Box<dyn FnMut(&Value) -> bool + '_>| {
        wait_for(SOON, || {
            let data = data();
            if holds(&data) { Ok(()) } else { Err(format!("{what}: {data} {}", bench.log())) }
        });
    };
    until("the host of the file is dead", Box::new(&failed));
    bench.wait_for("1 workers connected");
    let form = format!("user_count=4&spawn_rate=4&host={}", slapd.uri());
    page(web, "/swarm", Some(&form));
    let made = |data: &Value| data["curves"][0]["requests"].as_u64().unwrap_or_default();
    until("requests", Box::new(|data| made(data) > 100));
    assert!(!failed(&data()), "{}", data());
    thread::sleep(Duration::from_secs(10));
    let cost = |data: &Value| data["client_cpu_us"].as_f64().unwrap_or_default();
    let before = cost(&data());
    page(web, "/stats/reset", Some(""));
    until("requests after the reset", Box::new(|data| made(data) > 300 && cost(data) > 0.0));
    let after = cost(&data());
    assert!(before > 0.0 && after < 2.5 * before, "{before} {after}");
    up.signal(Signal::INT);
    wait_for(SOON, || if up.is_running() { Err(bench.log()) } else { Ok(()) });
}

#[test]
fn every_kind_of_users_is_served_and_a_plan_says_what_others_do() {
    let file = "from roster_locust import CommandUser, NssUser\n\nclass Look(NssUser):\n    \
                lookup = \"passwd\"\n    key = \"root\"\n    think = \"1ms\"\n    probe = 0\n\n\
                class Run(CommandUser):\n    command = [\"true\"]\n    probe = 0\n\n\
                from locust import User, task\n\nclass Other(User):\n    @task\n    \
                def nothing(self):\n        pass\n";
    let bench = Bench::new(file);
    let plan = bench.path("plan.toml");
    fs::write(&plan, "[nss]\nlookup = \"group\"\nkey = \"root\"\nthink = \"1ms\"\n")
        .expect("write");
    let run = ["1", "-u", "6", "-r", "6", "-t", "3s"];
    let master = bench.master(&[&HEADLESS[..], &run].concat());
    let worker = bench.worker(&["--allow-commands", "--plan", plan.to_str().expect("plain")]);
    ended_well(master, "the master");
    ended_well(worker, "the worker");
    for (class, method) in [("Look", "NSS passwd"), ("Run", "command"), ("Other", "NSS group")] {
        assert!(bench.count(class, "Request Count") > 0, "{class}");
        assert_eq!(bench.count(class, "Failure Count"), 0, "{class}");
        let stats = fs::read_to_string(bench.path("run_stats.csv")).expect("figures");
        assert!(stats.contains(&format!("{method},{class}")), "{stats}");
    }
}

#[test]
fn locust_worker_without_master_ends_with_cause() {
    let nobody = free_port();
    let http = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = http.local_addr().expect("its number").port();
    thread::spawn(move || {
        for mut stream in http.incoming().flatten() {
            let _ = stream.read(&mut [0; 64]);
            let _ = std::io::Write::write_all(&mut stream, &[b'x'; 64]);
        }
    });
    for (port, message) in
        [(nobody, &messages::MASTER_UNREACHABLE), (other, &messages::MASTER_NOT_ZMTP)]
    {
        let master = format!("127.0.0.1:{port}");
        let output = lab(&["worker", "--master", &master, "--patience", "1"]).output();
        let output = output.expect("start");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(has_code(&said, message) && said.contains(&master), "{said}");
    }
    for (arguments, message) in [
        (&["--master", "a/b"][..], &messages::ADDRESS_SYNTAX),
        (&["--master", "localhost", "--plan", "/no/plan"], &messages::FILE_UNREADABLE),
    ] {
        let output = lab(&[&["worker"], arguments].concat()).output().expect("start");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(has_code(&said, message), "{said}");
    }
}

#[test]
fn worker_master_killed_worker_ends() {
    let slapd = slapd(|_| {});
    let bench = Bench::new(&binds(&slapd, "    think = \"5ms\"\n"));
    let mut master = bench.master(&[&HEADLESS[..], &["1", "-u", "4", "-r", "4"]].concat());
    // The worker ignores this long wait after the first reply of a master.
    let mut worker = bench.worker(&["--patience", "3600"]);
    bench.wait_for("All users spawned");
    master.kill();
    wait_until(ENDED_WITHIN, "the worker ends", || !worker.is_running());
    assert_eq!(worker.exit_code(), Some(1), "{}", worker.log());
    assert!(has_code(&worker.log(), &messages::MASTER_UNREACHABLE), "{}", worker.log());
}

#[test]
fn up_killed_master_and_workers_end() {
    let slapd = slapd(|_| {});
    let bench = Bench::new(&binds(&slapd, "    think = \"5ms\"\n"));
    let run = ["--headless", "--only-summary", "-u", "4", "-r", "4"];
    let mut up = bench.up(&[&["--workers", "2", "--"], &run[..]].concat());
    bench.wait_for("All users spawned");
    let pid = up.pid().as_raw_nonzero();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    assert_eq!(children.split_whitespace().count(), 3, "a master and two workers: {children}");
    up.kill();
    wait_until(ENDED_WITHIN, "the master and the workers end", || {
        children.split_whitespace().all(|child| !Path::new("/proc").join(child).exists())
    });
}

#[test]
fn ctrl_c_ends_a_worker_which_tells_its_master() {
    let slapd = slapd(|_| {});
    let bench = Bench::new(&binds(&slapd, "    think = \"5ms\"\n"));
    let before = bound(&slapd);
    let run = ["1", "-u", "4", "-r", "4"];
    let mut master = bench.master(&[&HEADLESS[..], &run].concat());
    let mut worker = lab(&["worker", "--master", &format!("127.0.0.1:{}", bench.port)]);
    let mut worker = worker.stderr(Stdio::null()).spawn().expect("start");
    bench.wait_for("All users spawned");
    thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&worker), Signal::INT).expect("signal");
    assert_eq!(worker.wait().expect("wait").code(), Some(130));
    // A master without a page ends with its last worker.
    wait_for(SOON, || if master.is_running() { Err(bench.log()) } else { Ok(()) });
    assert!(bench.log().contains("The last worker quit"), "{}", bench.log());
    assert_eq!(bench.count("Binds", "Request Count"), bound(&slapd) - before - 1);
}

#[test]
fn locust_page_starts_run_and_gives_report() {
    let mut slapd = slapd(|_| {});
    let server = slapd.process().pid().as_raw_nonzero();
    let file = binds(&slapd, &format!("    server_pid = {server}\n    think = \"2ms\"\n"));
    let bench = Bench::new(&file.replace("    probe = 0\n", "    probe = \"200ms\"\n"));
    let web = free_port();
    let mut up =
        bench.up(&["--source", "127.0.0.2,127.0.0.3", "--web", &format!("127.0.0.1:{web}")]);
    bench.wait_for("Starting web interface");
    let before = bound(&slapd);
    let mut browser = Command::new(python());
    browser.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser.py"));
    browser.arg(format!("http://127.0.0.1:{web}/")).arg(bench.folder.path());
    let seen = browser.arg(find_tool("chromium", "chromium")).output().expect("start the browser");
    let said = String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.success(), "{said}{}", bench.log());
    let counted: u64 = String::from_utf8_lossy(&seen.stdout).trim().parse().expect("a number");
    // The server also counts the pre-run checks, which are not part of the figures.
    let made = bound(&slapd) - before - 1;
    assert!(counted > 0 && counted <= made, "{counted} of {made}");
    let picture = Pixmap::load_png(bench.path("tab.png")).expect("a picture");
    let colours: std::collections::BTreeSet<_> =
        picture.pixels().iter().map(|one| (one.red(), one.green(), one.blue())).collect();
    assert!(colours.len() > 50, "the tab is drawn: {}", colours.len());
    up.signal(Signal::INT);
    wait_for(SOON, || if up.is_running() { Err(bench.log()) } else { Ok(()) });
    assert_eq!(up.exit_code(), Some(130), "{}", bench.log());
    // No process of the run is left.
    assert!(TcpListener::bind(("127.0.0.1", bench.port)).is_ok());
}

/// Returns the processes that a process started, with their arguments.
fn children(pid: Pid) -> Vec<(Pid, String)> {
    let pid = pid.as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
    let with_arguments = children.map(|child| {
        let path = format!("/proc/{}/cmdline", child.as_raw_nonzero());
        (child, fs::read_to_string(path).unwrap_or_default())
    });
    with_arguments.collect()
}

#[test]
fn locust_worker_ended_early_has_code() {
    // A script takes the place of the master and waits.
    let bench = Bench::new("");
    let script = bench.path("python");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").expect("write the script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it run");
    let mut command = lab(&["locust", "--workers", "1", "--port", &bench.port.to_string()]);
    command.arg("--python").arg(&script).args(["--", "--headless"]);
    let mut up = ServerProcess::start(&mut command, &bench.path("master.log"));
    let pid = up.pid();
    let worker = || children(pid).into_iter().find(|(_, words)| words.contains("\0worker\0"));
    wait_until(SOON, "the worker starts", || worker().is_some());
    kill_process(worker().expect("it runs").0, Signal::KILL).expect("end the worker");
    bench.wait_for(&format!("[{}]", messages::WORKER_ENDED.code));
    up.signal(Signal::INT);
    wait_until(ENDED_WITHIN, "all processes end", || !up.is_running());
}
