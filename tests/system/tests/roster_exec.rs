// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands for users by a policy: `roster-exec` and `roster-rootwrap-daemon --native`, in normal use and under attack.

use roster_system_tests::artifacts::rootwrap_daemon_program;
use roster_system_tests::exec::{ALICE, BOB, CAROL, JournalEntry};
use roster_system_tests::wait::SOON;
use roster_system_tests::{
    ExecHost, c_program_with, needs_root, rootwrap_program, run, wait_until,
};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The limit of a wait for many commands.
const MINUTES: Duration = Duration::from_secs(180);

/// A shell for alice's group and for bob. Other rules that a test needs stand above it.
const SHELL: &str = "
[[rule]]
name = \"shell\"
groups = [\"ops\"]
users = [\"bob\"]
command = \"/bin/sh\"
args = [\"-c\", \".*\"]
keep_env = [\"LC_*\", \"LD_*\", \"PATH\", \"BASH_ENV\", \"ROSTER_*\", \"KEPT\"]
";

macro_rules! root_or_return {
    () => {
        if !needs_root() {
            return;
        }
    };
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}

/// The output of `exec_client.py` on a case, run by bob.
fn says(exec: &ExecHost, case: &str) -> String {
    let mut command = exec.as_user(BOB, "python3");
    let script = fs::read_to_string(script("exec_client.py")).expect("read the script");
    run(command.args(["-c", &script]).arg(exec.socket()).arg(case)).text()
}

fn is_running(marker: &str) -> bool {
    run(Command::new("pgrep").args(["-f", marker])).code == 0
}

#[test]
fn users_and_groups_of_a_directory_run_what_the_policy_lets_them() {
    root_or_return!();
    let policy = format!(
        "{SHELL}
        [[rule]]
        name = \"as-carol\"
        users = [\"alice\"]
        command = \"/usr/bin/id\"
        run_as = \"carol\"
        any_args = true
        [[rule]]
        name = \"as-db\"
        users = [\"bob\"]
        command = \"/usr/bin/id\"
        run_as = \"alice\"
        run_as_group = \"db\"
        args = [\"-ng\"]
        [[rule]]
        name = \"elsewhere\"
        users = [\"carol\"]
        hosts = [\"no-such-host\"]
        command = \"/usr/bin/id\"
        "
    );
    let exec = ExecHost::start(&policy);
    assert_eq!(exec.run(ALICE, &["sh", "-c", "id -u; echo $ROSTER_USER"]).text(), "0\nalice");
    assert_eq!(exec.run(ALICE, &["-u", "carol", "id", "-nG"]).text(), "carol db");
    assert_eq!(exec.run(BOB, &["-u", "alice", "/usr/bin/id", "-ng"]).text(), "db");
    for (uid, args) in [
        (CAROL, &["sh", "-c", "id"][..]),
        (CAROL, &["id"]),
        (BOB, &["-u", "carol", "id"]),
        (ALICE, &["sh", "id"]),
        (ALICE, &["sh", "-c", "id", "more"]),
        (ALICE, &["cat", "/etc/shadow"]),
        (54321, &["sh", "-c", "id"]),
    ] {
        let refused = exec.run(uid, args);
        assert_eq!((refused.code, refused.stdout.len()), (126, 0), "{uid} {args:?}");
        assert!(refused.error().starts_with("roster-exec: "), "{}", refused.error());
    }
}

#[test]
fn kept_variables_name_no_files_of_caller() {
    root_or_return!();
    let policy = SHELL.replace("\"KEPT\"", "\"KEPT\", \"LANG*\", \"TZ\"");
    let exec = ExecHost::start(&policy);
    let print = |variables: &[&str]| {
        let mut client = exec.as_user(ALICE, "env");
        client.args(variables).arg(exec.host.path("roster-exec")).arg("-s").arg(exec.socket());
        run(client.args(["sh", "-c", "echo $LANGUAGE $LC_ALL $TZ"])).text()
    };
    assert_eq!(print(&["LANGUAGE=de", "LC_ALL=C", "TZ=UTC"]), "de C UTC");
    let kept = print(&["LANGUAGE=../../../tmp/messages", "LC_ALL=%n", "TZ=:/tmp/zone"]);
    assert_eq!(kept, "", "values of the caller are kept");
}

#[test]
fn script_interpreter_of_others_does_not_run() {
    root_or_return!();
    let exec = ExecHost::start("");
    let [script, interpreter] = ["script", "interpreter"].map(|name| exec.host.path(name));
    fs::copy("/bin/echo", &interpreter).expect("copy");
    fs::write(&script, format!("#!{}\n", interpreter.display())).expect("write");
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    };
    set_mode(&script, 0o755);
    exec.write_policy(&format!(
        "[[rule]]\nname = \"script\"\nusers = [\"alice\"]\ncommand = {script:?}\n"
    ));
    exec.signal("HUP");
    set_mode(&interpreter, 0o755);
    wait_until(SOON, "the policy counts", || exec.run(ALICE, &["script"]).code == 0);
    set_mode(&interpreter, 0o777);
    let refused = exec.run(ALICE, &["script"]);
    assert_eq!(refused.code, 126, "{}", String::from_utf8_lossy(&refused.stdout));
    assert!(refused.error().contains("is writable by all"), "{}", refused.error());
    let mut check = Command::new(rootwrap_program());
    let told = run(check.arg("check-policy").arg(exec.host.path("exec.toml"))).text();
    assert!(told.contains("script is a script, and the interpreter is not trusted: "), "{told}");
}

#[test]
fn journal_escapes_characters_that_change_lines() {
    root_or_return!();
    let exec = ExecHost::start("");
    assert_eq!(exec.run(BOB, &["ls", "a\u{202e}b\u{2028}c"]).code, 126);
    let command = &exec.next_end_record()["ROSTER_COMMAND"];
    assert_eq!(command, r"ls $'a\xe2\x80\xaeb\xe2\x80\xa8c'");
}

#[test]
fn exec_record_escapes_and_cuts_requested_user() {
    root_or_return!();
    let exec = ExecHost::start("");
    let forged = "root by rule web: exit 0\nalice (uid 51001) ran sh";
    assert_eq!(exec.run(BOB, &["-u", forged, "ls"]).code, 126);
    let record = exec.next_end_record();
    let escaped = r"$'root by rule web: exit 0\nalice (uid 51001) ran sh'";
    assert_eq!(record["ROSTER_RUN_AS"], escaped);
    let message = format!("bob (uid 51002) did not run ls as {escaped}: ");
    assert!(record["MESSAGE"].starts_with(&message), "{record:?}");
    // A name that is too long for the journal does not keep the record from it.
    let mut client = exec.as_user(BOB, "python3");
    let script = fs::read_to_string(script("exec_client.py")).unwrap();
    run(client.args(["-c", &script]).arg(exec.socket()).arg("long_user"));
    let record = exec.next_end_record();
    assert_eq!(record["ROSTER_VERDICT"], "refused");
    assert!(record["ROSTER_RUN_AS"].ends_with("xxx…"), "{}", record["ROSTER_RUN_AS"].len());
}

#[test]
fn a_command_gets_a_clean_environment() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let mut client = exec.as_user(ALICE, "env");
    for variable in [
        "LD_PRELOAD=/evil.so",
        "LD_LIBRARY_PATH=/evil",
        "PATH=/evil",
        "BASH_ENV=/evil",
        "ENV=/evil",
        "IFS=x",
        "PYTHONPATH=/evil",
        "ROSTER_USER=root",
        "HOME=/evil",
        "KEPT=a b\nc",
        "LC_TIME=C",
    ] {
        client.arg(variable);
    }
    client.arg(exec.host.path("roster-exec")).arg("-s").arg(exec.socket());
    let environment = run(client.args(["sh", "-c", "env"])).text();
    assert!(!environment.contains("evil"), "{environment}");
    for line in ["KEPT=a b", "c", "LC_TIME=C", "ROSTER_USER=alice", "HOME=/root", "USER=root"] {
        assert!(environment.lines().any(|found| found == line), "{line} in {environment}");
    }
    assert!(!environment.contains("IFS=x"), "{environment}");
}

#[test]
fn exec_command_has_streams_directory_and_signals() {
    root_or_return!();
    let policy = format!("{SHELL}\nrun_as = \"root\"\n\n{}", as_bob("sleeper", ""));
    let exec = ExecHost::start(&policy);
    let client = exec.host.path("roster-exec");
    let (client, socket) = (client.to_str().unwrap(), exec.socket());
    let script = "ls /proc/$$/fd; pwd; grep -E 'Sig(Blk|Ign)' /proc/self/status; \
                  ps -o pgid= -p $$ | tr -d ' ' | grep -qx $$ && echo leads; cat /proc/$$/comm";
    for user in ["root", "bob"] {
        // With a descriptor left open, a signal ignored and another directory.
        let outer = format!(
            "exec 9</dev/null; trap '' USR1; cd /usr/share; \
             exec {client} -s {} -u {user} sh -c \"$1\"",
            socket.display()
        );
        let text = run(exec.as_user(ALICE, "sh").args(["-c", &outer, "sh", script])).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["0", "1", "2", "/usr/share"], "{user}: {text}");
        // The C library ignores its two internal signals in programs that it spawns.
        let ignored = lines[5].trim_end_matches("0000000180000000");
        assert!(lines[4].ends_with("0000000000000000"), "{user}: {text}");
        assert!(ignored.len() < lines[5].len() || ignored.ends_with("0000000000000000"), "{text}");
        assert_eq!(lines[6], "leads", "{user}: {text}");
        // As the file is, not as a number of a descriptor.
        assert!(lines[7].ends_with("sh"), "{user}: {text}");
    }
    // The same holds for a directory that its user may not search: relative names lead to the same files.
    let script = "readlink /proc/self/cwd; ls -d ./etc ./. 2>/dev/null || echo none";
    let outer = format!(
        "mkdir -m 700 $1/private; cd $1/private && exec {client} -s {} -u bob sh -c '{script}'",
        socket.display()
    );
    fs::set_permissions(exec.host.path("etc"), Permissions::from_mode(0o755)).unwrap();
    let mut inside = exec.as_user(0, "sh");
    exec.write_policy(&format!("{policy}\n[[rule]]\nname = \"root\"\nusers = [\"root\"]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \".*\"]\nrun_as = \"bob\""));
    exec.signal("HUP");
    wait_until(SOON, "the policy is taken over", || {
        exec.log().contains("policy reloaded, rules: 3")
    });
    let told = run(inside.args(["-c", &outer, "sh"]).arg(exec.host.path("etc"))).text();
    let private = exec.host.path("etc").join("private");
    assert_eq!(told, format!("{}\nnone", private.display()));
}

/// A shell that alice runs as bob, with more keys.
fn as_bob(name: &str, more: &str) -> String {
    format!(
        "[[rule]]\nname = \"{name}\"\nusers = [\"alice\"]\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", \".*\"]\nrun_as = \"bob\"\n{more}\n"
    )
}

#[test]
fn it_ends_as_the_command_did() {
    root_or_return!();
    let exec = ExecHost::start(&format!("{SHELL}{}", as_bob("bobs", "")));
    for user in ["root", "bob"] {
        let run = |script: &str| {
            let mut client = exec.client(ALICE, &["-u", user, "sh", "-c", script]);
            client.output().unwrap()
        };
        let done = run("echo out; echo err >&2; exit 7");
        assert_eq!((&*done.stdout, &*done.stderr), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(done.status.code(), Some(7));
        for signal in [1, 2, 6, 9, 11, 13, 14, 15] {
            let status = run(&format!("kill -{signal} $$")).status;
            assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
        }
    }
    let missing = |path: &str| {
        exec.write_policy(&format!(
            "[[rule]]\nname = \"x\"\nusers = [\"bob\"]\ncommand = \"{path}\"\nany_args = true"
        ));
        exec.signal("HUP");
        wait_until(SOON, "a reload", || exec.log().contains("policy reloaded, rules: 1"));
        exec.run(BOB, &[path]).code
    };
    assert_eq!(missing("/usr/bin/no-such-thing"), 127);
    let nobody = run(exec.client(BOB, &[]).arg("-s").arg("/no/socket").arg("ls"));
    assert_eq!(nobody.code, 125);
    assert!(nobody.error().contains("/no/socket"), "{}", nobody.error());
    assert_eq!(exec.run(BOB, &["--no-such-option"]).code, 125);
    assert!(exec.run(BOB, &["--help"]).text().contains("126"));
    assert!(exec.run(BOB, &["--version"]).text().starts_with("roster-exec "));
}

#[test]
fn signals_reach_the_command() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("USR1", 10)] {
        let script =
            format!("trap 'echo got it; exit 4' {name}; echo ready; while :; do sleep 0.1; done");
        let mut client = exec.client(ALICE, &["sh", "-c", &script]);
        let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = client.stdout.take().unwrap();
        out.read_exact(&mut [0; 6]).unwrap();
        let kill = ["-s", &number.to_string(), &client.id().to_string()].map(str::to_owned);
        assert_eq!(run(Command::new("kill").args(kill)).code, 0);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), client.wait().unwrap().code()), ("got it\n", Some(4)), "{name}");
    }
}

#[test]
fn a_command_that_is_stopped_stops_its_caller_wherever_its_streams_lead() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let mut client = exec.client(ALICE, &["sh", "-c", "exec sleep 60523"]);
    // In a separate process group: TSTP never stops a group without another one in its session.
    client.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut client = client.spawn().unwrap();
    let process = client.id().to_string();
    wait_until(SOON, "it runs", || is_running("^sleep 60523$"));
    let kill = |name: &str| assert_eq!(run(Command::new("kill").args([name, &process])).code, 0);
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit(')').next().is_some_and(|behind| behind.starts_with(" T"))
    };
    for _ in 0..2 {
        kill("-TSTP");
        wait_until(SOON, "the caller has stopped", is_stopped);
        kill("-CONT");
        wait_until(SOON, "the caller goes on", || !is_stopped());
    }
    kill("-TERM");
    assert_eq!(client.wait().unwrap().signal(), Some(15));
}

#[test]
fn what_nobody_waits_for_any_more_does_not_begin() {
    root_or_return!();
    // Two commands of a user at once.
    let exec = ExecHost::start_under(SHELL, &["prlimit", "--nofile=160", "--"]);
    let spawn = |script: &str| exec.client(ALICE, &["sh", "-c", script]).spawn().unwrap();
    let mut first = [spawn("exec sleep 4.60514"), spawn("exec sleep 4.60515")];
    let both = ["^sleep 4.60514$", "^sleep 4.60515$"];
    wait_until(SOON, "both run", || both.into_iter().all(is_running));
    let mark = exec.host.path("began");
    let script = format!("touch {}", mark.display());
    let (mut killed, mut told) = (spawn(&script), spawn(&script));
    std::thread::sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(run(Command::new("kill").args(["-TERM", &told.id().to_string()])).code, 0);
    assert_eq!(told.wait().unwrap().signal(), Some(15));
    for client in &mut first {
        assert_eq!(client.wait().unwrap().code(), Some(0));
    }
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
    assert!(!mark.exists());
}

/// As under nohup(1). The user may be in so many groups that a process's status begins with pages of them.
#[test]
fn a_signal_that_is_ignored_is_ignored_for_the_command_as_well() {
    root_or_return!();
    let exec = ExecHost::start(&SHELL.replace("[\"bob\"]", "[\"bob\", \"root\"]"));
    let groups: Vec<String> = (0..1000).map(|n| (2_000_000_000 + n).to_string()).collect();
    for (uid, by) in [(ALICE, &["env"][..]), (0, &["setpriv", "--groups", &groups.join(",")])] {
        let mut client = exec.as_user(uid, by[0]);
        client.args(&by[1..]).args(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
        client.arg(exec.host.path("roster-exec")).arg("-s").arg(exec.socket());
        client.args(["sh", "-c", "echo ready; read line; exit 4"]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        client.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
        assert_eq!(run(Command::new("kill").args(["-HUP", &client.id().to_string()])).code, 0);
        client.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(4), "{by:?}");
    }
}

/// A daemon that is ending makes clients repeat their request. The next daemon must not run a request of a client that
/// has ended.
#[test]
fn who_is_told_to_end_asks_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("exec");
    let door = UnixListener::bind(&socket).unwrap();
    let mut client = Command::new(roster_system_tests::exec_program());
    let mut client = client.arg("-s").arg(&socket).arg("true").spawn().unwrap();
    let hear = |mut connection: &UnixStream| {
        assert!(connection.read(&mut [0; 1 << 16]).unwrap() > 0);
    };
    let busy = b"D\0\0\0\x08\0\0\0\x04\0\0\0busy";
    // The client repeats its request.
    for _ in 0..2 {
        let (mut connection, _) = door.accept().unwrap();
        hear(&connection);
        connection.write_all(busy).unwrap();
    }
    let (mut connection, _) = door.accept().unwrap();
    hear(&connection);
    assert_eq!(run(Command::new("kill").args(["-INT", &client.id().to_string()])).code, 0);
    // The signal comes as a frame; then the daemon is busy.
    hear(&connection);
    connection.write_all(busy).unwrap();
    assert_eq!(client.wait().unwrap().signal(), Some(2));
    door.set_nonblocking(true).unwrap();
    assert!(door.accept().is_err());
}

/// A client's own message ends with any state of its streams.
#[test]
fn its_own_words_end_nothing() {
    let client = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(roster_system_tests::exec_program());
        run(&mut command).text()
    };
    // A standard error without a reader, one that is closed, and no memory.
    let nobody = "\"$1\" -s /nowhere true";
    assert_eq!(client(&format!("exec 3>&1; {{ {nobody} 2>&1 >&3; echo $? >&3; }} | true")), "125");
    assert_eq!(client(&format!("{nobody} <&- 2>&-; echo $?")), "125");
    let spent = client(&format!("ulimit -v 400; {nobody} 2>&1; echo $?"));
    assert_eq!(spent, "roster-exec: out of memory [RST-7102]\n125");
}

/// Failures of the client itself, which need no daemon.
#[test]
fn exec_client_failure_has_code() {
    let no_files = "import os, resource, sys
os.close(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
os.execv(sys.argv[1], [sys.argv[1], 'true'])";
    // Without the other end, descriptor 0 would not be a terminal.
    let no_terminal = "import os, pty, resource, sys
end, terminal = pty.openpty()
os.set_inheritable(end, True)
os.dup2(terminal, 0)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
os.execv(sys.argv[1], [sys.argv[1], '-u', 'nobody', 'true'])";
    for (interpreter, script, code) in [
        ("sh", "\"$0\" --help >/dev/full", "[RST-7090]"),
        ("sh", "\"$0\" -s \"$(printf %0200d 0)\" true", "[RST-7096]"),
        ("python3", no_files, "[RST-7098]"),
        ("sh", "\"$0\" --no-such true", "[RST-7099]"),
        ("sh", "\"$0\" true $(seq 70000)", "[RST-7100]"),
        ("python3", no_terminal, "[RST-7101]"),
    ] {
        let mut command = Command::new(interpreter);
        let failed = run(command.args(["-c", script]).arg(roster_system_tests::exec_program()));
        assert_eq!(failed.code, 125, "{script}");
        let error = failed.error();
        assert!(error.trim_end().ends_with(code), "{script}: {error}");
    }
}

/// The output of `exec_pty.py` for a case.
fn at_a_terminal(case: &str) -> String {
    let exec = ExecHost::start(SHELL);
    let mut person = exec.as_user(ALICE, "python3");
    let script = fs::read_to_string(script("exec_pty.py")).unwrap();
    person.args(["-c", &script]).arg(exec.host.path("roster-exec")).arg(exec.socket());
    let told = run(person.arg(case));
    format!("{}{}", told.text(), told.error())
}

#[test]
fn exec_terminal_keys_and_sizes_reach_command() {
    root_or_return!();
    let told = at_a_terminal("keys");
    assert!(told.ends_with("job ended with 9, modes kept"), "{told}");
}

#[test]
fn exec_terminal_is_not_read_by_leftovers() {
    root_or_return!();
    let told = at_a_terminal("leftovers");
    assert!(told.ends_with("shell got secret"), "{told}");
}

#[test]
fn exec_terminal_behind_pipe_keeps_keys_and_modes() {
    root_or_return!();
    let told = at_a_terminal("pipeline");
    assert!(told.ends_with("job died of 15"), "{told}");
}

#[test]
fn exec_terminal_job_in_foreground_gets_keys() {
    root_or_return!();
    let told = at_a_terminal("foreground");
    assert!(told.ends_with("got hello"), "{told}");
}

#[test]
fn exec_terminal_option_hands_on_own() {
    root_or_return!();
    let told = at_a_terminal("own");
    let told: Vec<_> = told.split_whitespace().collect();
    assert_eq!(told, ["end", "other", "end", "own"]);
}

#[test]
fn limits_hold_and_time_ends_the_whole_group() {
    root_or_return!();
    let limits = "timeout = \"2s\"\nmax_files = 40\nmax_memory = \"256MiB\"\nmax_cpu = \"9s\"";
    let exec = ExecHost::start(&as_bob("limited", limits));
    let run = |script: &str| exec.run(ALICE, &["-u", "bob", "sh", "-c", script]);
    assert_eq!(run("ulimit -n; ulimit -v; ulimit -t").text(), "40\n262144\n9");
    // The timeout also kills its children, and a process that ignores every possible signal.
    let over = run("trap '' TERM HUP INT; sleep 60511 & sleep 60511");
    assert_eq!(over.code, 124);
    assert!(over.error().trim_end().ends_with("[RST-7097]"), "{}", over.error());
    wait_until(SOON, "the group is gone", || !is_running("^sleep 60511$"));
    exec.next_end_record();
    assert_eq!(exec.next_end_record()["ROSTER_STATUS"], "timeout");
}

#[test]
fn nobody_outlives_the_time_of_a_command_by_leaving_its_group() {
    root_or_return!();
    let policy = format!("{SHELL}timeout = \"3s\"\n{}", as_bob("bobs", "timeout = \"3s\""));
    time_is_kept_for_all_who_leave(&ExecHost::start(&policy), ["60513", "60514"]);
    let exec = ExecHost::start_under(&policy, &["sh", "-c", NO_CGROUPS]);
    let is_told = || exec.log().contains("RST-7088");
    wait_until(SOON, "it is told", is_told);
    time_is_kept_for_all_who_leave(&exec, ["60520", "60521"]);
}

/// Starts its arguments on a host without cgroups.
const NO_CGROUPS: &str = r#"mount -t tmpfs tmpfs /sys/fs/cgroup; exec "$0" "$@""#;

fn time_is_kept_for_all_who_leave(exec: &ExecHost, [roots, bobs]: [&str; 2]) {
    for (user, seconds) in [("root", roots), ("bob", bobs)] {
        // In a separate session; and a daemon, which has no parent any more.
        let script = format!(
            "trap '' TERM HUP; setsid sleep {seconds} & \
             setsid sh -c 'setsid sleep {seconds} & exit' & sleep {seconds}"
        );
        // The sleeps take most of a day.
        assert_eq!(exec.run(ALICE, &["-u", user, "sh", "-c", &script]).code, 124, "{user}");
        assert!(!is_running(&format!("^sleep {seconds}$")), "{user}");
        // A process that a command leaves behind before its timeout stays.
        let script = format!("setsid sleep 6{seconds} >/dev/null 2>&1 & exit 3");
        assert_eq!(exec.run(ALICE, &["-u", user, "sh", "-c", &script]).code, 3, "{user}");
        let left = format!("^sleep 6{seconds}$");
        // It may be on its way to becoming that when the command has ended.
        wait_until(SOON, "what was left behind is there", || is_running(&left));
        assert_eq!(run(Command::new("pkill").args(["-f", &left])).code, 0);
    }
}

fn cgroups(exec: &ExecHost) -> PathBuf {
    exec.cgroup_dir().unwrap_or_else(|| panic!("{}", exec.log()))
}

#[test]
fn nobody_outlives_the_time_of_a_command_who_is_made_to_get_away() {
    root_or_return!();
    // It makes another and ends, over and over, so a list of processes never shows it twice. The first process wants no
    // orphans. If the test fails, its processes end within 40 seconds.
    let runs_away = "import ctypes, os, sys, time
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
until = time.monotonic() + 40
if os.fork() == 0:
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(40)
    os._exit(0)
time.sleep(600)";
    let policy = format!("{SHELL}timeout = \"2s\"\n{}", as_bob("bobs", "timeout = \"2s\""));
    let exec = ExecHost::start(&policy);
    let program = exec.host.path("runs-away.py");
    fs::write(&program, runs_away).unwrap();
    let program = program.display();
    for (user, marker) in [("root", "runs-away-60516"), ("bob", "runs-away-60517")] {
        let script = format!("exec python3 {program} {marker}");
        // A process that holds the output pipe would block the test.
        let mut client = exec.client(ALICE, &["-u", user, "sh", "-c", &script]);
        let done = client.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(done.code(), Some(124), "{user}");
        assert!(!is_running(&format!("{marker}$")), "{user}");
    }
    assert!(cgroups(&exec).is_dir());
}

#[test]
fn no_cgroup_outlives_its_command_or_its_daemon() {
    root_or_return!();
    let policy = format!("{SHELL}timeout = \"10m\"");
    let mut exec = ExecHost::start(&policy);
    // The next daemon ends a process that a killed daemon leaves running, and removes its cgroup.
    let mut client = exec.client(ALICE, &["sh", "-c", "setsid sleep 60518"]);
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(SOON, "it runs", || is_running("^sleep 60518$"));
    let left = cgroups(&exec);
    exec.signal("KILL");
    exec.wait();
    assert_eq!(client.wait().unwrap().code(), Some(125));
    // Any that begins in the same cgroup does, another test's too.
    exec.launch(&[]);
    assert!(!is_running("^sleep 60518$") && !left.exists());
    // A process that a command leaves behind in time goes on, when its cgroup is gone and when the daemon is.
    let script = "setsid sleep 60519 >/dev/null 2>&1 & exit 3";
    assert_eq!(exec.run(ALICE, &["sh", "-c", script]).code, 3);
    wait_until(SOON, "what was left behind is there", || is_running("^sleep 60519$"));
    let own = cgroups(&exec);
    assert_ne!(own, left);
    exec.signal("TERM");
    assert_eq!(exec.wait(), Some(0));
    assert!(!own.exists() && is_running("^sleep 60519$"));
    assert_eq!(run(Command::new("pkill").args(["-f", "^sleep 60519$"])).code, 0);
}

#[test]
fn a_killed_client_takes_its_command_along() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let script = "trap '' HUP; echo ready; sleep 60512 & sleep 60512; sleep 60512";
    let mut client = exec.client(ALICE, &["sh", "-c", script]);
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    client.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    wait_until(SOON, "it runs", || is_running("^sleep 60512$"));
    client.kill().unwrap();
    assert_eq!(client.wait().unwrap().signal(), Some(9));
    wait_until(SOON, "the group is gone", || !is_running("^sleep 60512$"));
    assert_eq!(exec.next_end_record()["ROSTER_STATUS"], "signal 9");
    assert_eq!(exec.run(BOB, &["sh", "-c", "exit 3"]).code, 3);
}

#[test]
fn a_killed_daemon_is_told_of_and_the_next_one_takes_its_place() {
    root_or_return!();
    let mut exec = ExecHost::start(SHELL);
    let mut client = exec.client(ALICE, &["sh", "-c", "echo ready; sleep 3"]);
    let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    exec.signal("KILL");
    exec.wait();
    let done = client.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(125));
    // The command may write before the daemon has reported its start.
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(["[RST-7093]", "[RST-7094]"].iter().any(|code| error.contains(code)), "{error}");
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 125);
    exec.launch(&[]);
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
    // While one listens there, another does not begin.
    let second = run(&mut exec.daemon_command(&[]));
    assert_eq!(second.code, 1);
    assert!(second.error().contains("RST-7082"), "{}", second.error());
}

#[test]
fn a_daemon_that_is_told_to_end_lets_commands_end_first() {
    root_or_return!();
    let mut exec = ExecHost::start(SHELL);
    let mut client = exec.client(ALICE, &["sh", "-c", "echo ready; read line; exit 5"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    client.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    exec.signal("TERM");
    wait_until(SOON, "the socket is gone", || !exec.socket().exists());
    client.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(5));
    assert_eq!(exec.wait(), Some(0));
    assert_eq!(exec.next_end_record()["ROSTER_STATUS"], "exit 5");
}

#[test]
fn systemd_may_hand_the_socket_over() {
    root_or_return!();
    let mut exec = ExecHost::prepare(SHELL);
    fs::create_dir_all(exec.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(exec.socket()).unwrap();
    fs::set_permissions(exec.socket(), Permissions::from_mode(0o666)).unwrap();
    let hand = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 </dev/null";
    let mut daemon = exec.daemon_command(&["sh", "-c", hand, "sh"]);
    let mut daemon = daemon.stdin(std::os::fd::OwnedFd::from(listener)).spawn().unwrap();
    assert_eq!(exec.run(ALICE, &["sh", "-c", "ls /proc/$$/fd; exit 3"]).code, 3);
    // A daemon that waits for a running command makes other clients repeat their requests for a limited time only.
    let mut client = exec.client(ALICE, &["sh", "-c", "echo ready; read line; exit 5"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    client.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    assert_eq!(run(Command::new("kill").arg(daemon.id().to_string())).code, 0);
    let ending = exec.run(ALICE, &["sh", "-c", "exit 3"]);
    assert_eq!(ending.code, 125);
    assert!(ending.error().contains("RST-7068"), "{}", ending.error());
    client.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(5));
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(exec.socket().exists());
    fs::remove_file(exec.socket()).unwrap();
    exec.launch(&[]);
}

#[test]
fn a_policy_is_taken_over_whole_or_not_at_all() {
    root_or_return!();
    let mut exec = ExecHost::start(SHELL);
    let path = exec.host.path("exec.toml");
    let may = || exec.run(BOB, &["sh", "-c", "exit 3"]).code == 3;
    let stays = |times: usize| {
        exec.signal("HUP");
        let stayed = || exec.log().matches("RST-7086").count() == times;
        wait_until(SOON, "the old policy stays", stayed);
        assert!(may(), "{}", exec.log());
    };
    exec.write_policy("[[rule]]\nname = \"x\"\nusers = [\"carol\"]\n");
    stays(1);
    assert!(exec.log().contains("exec.toml:1: command: required key is missing"), "{}", exec.log());
    exec.write_policy("");
    fs::set_permissions(&path, Permissions::from_mode(0o646)).unwrap();
    stays(2);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    chown(&path, Some(BOB), None).unwrap();
    stays(3);
    assert!(exec.log().contains("RST-7032"), "{}", exec.log());
    chown(&path, Some(0), None).unwrap();
    exec.signal("HUP");
    wait_until(SOON, "it is taken over", || exec.log().contains("policy reloaded, rules: 0"));
    assert_eq!(exec.run(BOB, &["sh", "-c", "exit 3"]).code, 126);
    // A daemon does not start with an invalid policy.
    exec.signal("TERM");
    assert_eq!(exec.wait(), Some(0));
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(run(&mut exec.daemon_command(&[])).code, 97);
}

#[test]
fn nothing_runs_that_others_could_have_changed() {
    root_or_return!();
    let exec = ExecHost::prepare("");
    let folder = exec.host.path("apps");
    let make = |name: &str, owner: u32, mode: u32| {
        let app = folder.join(name);
        fs::create_dir_all(&app).unwrap();
        fs::write(app.join("tool"), "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(app.join("tool"), Permissions::from_mode(0o755)).unwrap();
        chown(&app, Some(owner), None).unwrap();
        fs::set_permissions(&app, Permissions::from_mode(mode)).unwrap();
        app.join("tool")
    };
    make("good", 0, 0o755);
    make("bobs", BOB, 0o755);
    make("open", 0, 0o777);
    let file = make("file", 0, 0o755);
    chown(&file, Some(BOB), None).unwrap();
    fs::set_permissions(make("mode", 0, 0o755), Permissions::from_mode(0o757)).unwrap();
    fs::set_permissions(make("not-executable", 0, 0o755), Permissions::from_mode(0o644)).unwrap();
    fs::create_dir(folder.join("link")).unwrap();
    symlink("../good/tool", folder.join("link/tool")).unwrap();
    fs::create_dir(folder.join("bobs-link")).unwrap();
    symlink("../good/tool", folder.join("bobs-link/tool")).unwrap();
    chown(folder.join("bobs-link"), Some(BOB), None).unwrap();
    let names =
        ["good", "bobs", "open", "file", "mode", "not-executable", "link", "bobs-link", "absent"];
    let rules = names.map(|name| {
        let path = folder.join(name).join("tool");
        format!(
            "[[rule]]\nname = \"{name}\"\nusers = [\"bob\"]\ncommand = \"{}\"\n",
            path.display()
        )
    });
    let mut exec = exec;
    exec.write_policy(&rules.concat());
    exec.launch(&[]);
    let codes = names.map(|name| {
        let path = folder.join(name).join("tool");
        (name, exec.run(BOB, &[path.to_str().unwrap()]).code)
    });
    let expected = [
        ("good", 0),
        ("bobs", 126),
        ("open", 126),
        ("file", 126),
        ("mode", 126),
        ("not-executable", 126),
        ("link", 0),
        ("bobs-link", 126),
        ("absent", 127),
    ];
    assert_eq!(codes, expected);
    // It is the same file when it is called by another path.
    for path in ["./tool", "../good/tool", "good/tool", "/apps/../apps/good/tool"] {
        let mut client = exec.client(BOB, &[path]);
        assert_eq!(run(client.current_dir(folder.join("good"))).code, 126, "{path}");
    }
}

/// An attacker swaps a directory on the path to the executable, as fast as possible, between a trusted one and one with
/// a different tool in it.
#[test]
fn an_executable_that_is_swapped_while_it_is_looked_at_never_runs() {
    root_or_return!();
    let mut exec = ExecHost::prepare("");
    let bobs = exec.host.path("bobs");
    let marker = exec.host.path("marker");
    for (name, owner) in [("fit", 0), ("evil", BOB)] {
        let folder = bobs.join(name);
        fs::create_dir_all(&folder).unwrap();
        let text =
            if name == "evil" { format!("touch {}", marker.display()) } else { String::new() };
        fs::write(folder.join("tool"), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(folder.join("tool"), Permissions::from_mode(0o755)).unwrap();
        chown(folder.join("tool"), Some(owner), None).unwrap();
        chown(&folder, Some(owner), None).unwrap();
    }
    chown(&bobs, Some(BOB), None).unwrap();
    let path = bobs.join("now/tool");
    exec.write_policy(&format!(
        "[[rule]]\nname = \"x\"\nusers = [\"bob\"]\ncommand = \"{}\"\n",
        path.display()
    ));
    exec.launch(&[]);
    let swap = "import os, sys\nos.chdir(sys.argv[1])\nprint(flush=True)\nwhile True:\n \
                for name in ('fit', 'evil'):\n  os.symlink(name, 'new')\n  os.rename('new', 'now')\n";
    let mut swapper = exec.as_user(BOB, "python3");
    let mut swapper = swapper.args(["-c", swap]).arg(&bobs).stdout(Stdio::piped()).spawn().unwrap();
    swapper.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    for _ in 0..100 {
        let code = exec.run(BOB, &[path.to_str().unwrap()]).code;
        assert!(code == 126 || code == 127, "{code}");
    }
    swapper.kill().unwrap();
    swapper.wait().unwrap();
    assert!(!marker.exists());
}

#[test]
fn what_no_client_would_send_is_the_end_of_its_connection_alone() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let told = says(&exec, "malformed");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "good: S E 0 0");
    assert!(lines.len() > 15 && lines[1..].iter().all(|line| line.ends_with(": end")), "{told}");
    assert_eq!(says(&exec, "several"), "S E 0 0\nS E 0 7\nS E 0 0");
    assert_eq!(says(&exec, "out_of_turn"), "S\nE 1 1");
    assert_eq!(says(&exec, "slow"), "end");
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
}

#[test]
fn large_requests_are_held_within_bounds() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let told = says(&exec, "large");
    let (first, counts) = told.split_once('\n').unwrap();
    assert_eq!(first, "True S E 0 0");
    let counts: Vec<usize> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
    // Sixteen MiB are four requests of nearly four; the others are refused while those are held.
    assert_eq!((counts[0], counts[1]), (4, 8), "{told}");
}

#[test]
fn a_connection_is_worth_nothing_to_who_inherits_it() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    assert_eq!(says(&exec, "inherited"), "D 1");
    assert_eq!(exec.next_end_record()["CODE"], "RST-7063");
}

#[test]
fn a_connection_is_worth_nothing_to_who_has_given_up_its_rights() {
    root_or_return!();
    let exec = ExecHost::start(&SHELL.replace("bob", "root"));
    let script = fs::read_to_string(script("exec_client.py")).expect("read the script");
    let mut client = exec.as_user(0, "python3");
    let told = run(client.args(["-c", &script]).arg(exec.socket()).arg("given_up")).text();
    assert_eq!(told, "S E 0 0 then end, as root again S E 0 0");
}

#[test]
fn silent_connections_change_nothing_for_who_speaks() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let script = fs::read_to_string(script("idle_clients.py")).unwrap();
    // Connections of a stranger, and then as many of the requesting user.
    for uid in [CAROL, ALICE] {
        let mut silent = exec.as_user(uid, "python3");
        silent.args(["-c", &script, "1500"]).arg(exec.socket());
        let silent = silent.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut silent = silent.unwrap();
        silent.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        for _ in 0..20 {
            assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3, "{uid}");
        }
        drop(silent.stdin.take());
        silent.wait().unwrap();
    }
}

#[test]
fn exec_lingering_descriptors_delay_no_command() {
    root_or_return!();
    let exec = ExecHost::start_under(SHELL, &["prlimit", "--nofile=1024", "--"]);
    let script = fs::read_to_string(script("so_linger_fds.py")).unwrap();
    let mut stranger = exec.as_user(CAROL, "python3");
    stranger.args(["-c", &script]).arg(exec.socket()).arg("300");
    let mut stranger = stranger.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    stranger.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    // Each of the stranger's descriptors takes an hour to close.
    for user in [ALICE, BOB] {
        assert_eq!(exec.run(user, &["sh", "-c", "exit 3"]).code, 3);
    }
    assert!(stranger.try_wait().unwrap().is_none());
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

/// Checks that commands of two users end one after the other: no command start waits for a stranger's descriptors.
fn run_on_beside_a_stranger(exec: &ExecHost) {
    let script = "for i in $(seq 150); do \"$@\" || exit; done";
    let loops = [ALICE, BOB].map(|user| {
        let mut many = exec.as_user(user, "sh");
        many.args(["-c", script, "sh"]).arg(exec.host.path("roster-exec"));
        many.arg("-s").arg(exec.socket()).args(["sh", "-c", ":"]).spawn().unwrap()
    });
    let mut loops = Loops(loops);
    wait_until(MINUTES, "both loops end", || {
        loops.0.each_mut().into_iter().all(|many| many.try_wait().unwrap().is_some())
    });
    let ended = loops.0.each_mut().map(|many| many.wait().unwrap().code());
    assert_eq!(ended, [Some(0), Some(0)]);
}

/// Programs that end with the test.
struct Loops([Child; 2]);

impl Drop for Loops {
    fn drop(&mut self) {
        for many in &mut self.0 {
            let _ = many.kill();
            let _ = many.wait();
        }
    }
}

#[test]
fn no_command_waits_for_what_a_stranger_had_closed_while_it_began() {
    root_or_return!();
    let exec = ExecHost::start_under(SHELL, &["prlimit", "--nofile=1024", "--"]);
    let script = fs::read_to_string(script("so_linger_fds.py")).unwrap();
    let mut stranger = exec.as_user(CAROL, "python3");
    stranger.args(["-c", &script]).arg(exec.socket()).args(["9000", "8"]);
    let mut stranger = stranger.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    stranger.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    run_on_beside_a_stranger(&exec);
    assert!(stranger.try_wait().unwrap().is_none());
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

#[test]
fn no_command_waits_for_a_strangers_file_system() {
    root_or_return!();
    let exec = ExecHost::start_under(SHELL, &["prlimit", "--nofile=1024", "--"]);
    let folder = exec.host.path("silent");
    fs::create_dir(&folder).unwrap();
    let script = fs::read_to_string(script("fuse_fds.py")).unwrap();
    let mut stranger = exec.as_user(0, "python3");
    stranger.args(["-c", &script]).arg(&folder).arg(exec.socket()).arg(CAROL.to_string());
    let mut stranger = stranger.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    stranger.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let holds = || {
        let open = fs::read_dir(format!("/proc/{}/fd", exec.pid())).unwrap();
        let mut open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        open.any(|path| path.ends_with("silent"))
    };
    wait_until(SOON, "the daemon has such a file", holds);
    run_on_beside_a_stranger(&exec);
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

/// Connections of one user that hang when they are closed; they end with this.
struct Hanging(Child);

impl Hanging {
    /// Returns when `count` connections were made, or the user is refused.
    fn start(exec: &ExecHost, uid: u32, count: u32) -> Self {
        let folder = exec.host.path(&format!("hanging-{uid}"));
        fs::create_dir(&folder).unwrap();
        let script = fs::read_to_string(script("hanging_files.py")).unwrap();
        let mut command = exec.as_user(0, "python3");
        command.args(["-c", &script]).arg(&folder).arg(exec.socket());
        command.args([uid, count].map(|number| number.to_string()));
        let hanging = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut hanging = Self(hanging);
        let mut said = [0; 7];
        hanging.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert!(matches!(&said, b"refused" | b"connect"), "{said:?}");
        hanging
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Ends with the test.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn expect_answer(exec: &ExecHost, uid: u32) {
    let mut client = Client(exec.client(uid, &["sh", "-c", "exit 3"]).spawn().unwrap());
    let what = format!("a command of uid {uid} is answered");
    wait_until(SOON, &what, || client.0.try_wait().unwrap().is_some());
    assert_eq!(client.0.wait().unwrap().code(), Some(3), "{what}");
}

#[test]
fn exec_hanging_closes_delay_no_other_user() {
    root_or_return!();
    let policy = SHELL.replace("\"bob\"", "\"bob\", \"root\"");
    let exec = ExecHost::start_under(&policy, &["prlimit", "--nofile=1100", "--"]);
    let attacks = [BOB, CAROL].map(|uid| Hanging::start(&exec, uid, 300));
    for _ in 0..20 {
        [0, ALICE].into_iter().for_each(|uid| expect_answer(&exec, uid));
    }
    let refused = || exec.run(BOB, &["sh", "-c", "exit 3"]).error();
    assert!(refused().contains("[RST-7092]"), "{}", refused());
    drop(attacks);
    wait_until(SOON, "bob may connect again", || exec.run(BOB, &["sh", "-c", "exit 3"]).code == 3);
}

#[test]
fn exec_many_late_signals_end_connection() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    assert_eq!(says(&exec, "late_signals"), "S E 0 0\nend");
}

#[test]
fn exec_file_without_interpreter_is_not_executable() {
    root_or_return!();
    let mut exec = ExecHost::prepare("");
    let file = exec.host.path("file");
    fs::write(&file, "exit 3\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let rule = |name, run_as| {
        format!(
            "[[rule]]\nname = \"{name}\"\nusers = [\"alice\"]\ncommand = \"{}\"\nrun_as = \"{run_as}\"\n",
            file.display()
        )
    };
    exec.write_policy(&[rule("root", "root"), rule("bob", "bob")].concat());
    exec.launch(&[]);
    for user in ["root", "bob"] {
        let told = exec.run(ALICE, &["-u", user, file.to_str().unwrap()]);
        assert_eq!(told.code, 126, "{user}: {}", told.error());
    }
}

#[test]
fn exec_signals_that_daemon_ignores_are_default() {
    root_or_return!();
    let ignores = "import os, signal, sys; signal.signal(40, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])";
    let exec = ExecHost::start_under(SHELL, &["python3", "-c", ignores]);
    let text = exec.run(ALICE, &["sh", "-c", "grep SigIgn /proc/self/status"]).text();
    let ignored = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & 1 << 39, 0, "{text}");
}

#[test]
fn rootwrap_stage_takes_no_orders_of_others() {
    root_or_return!();
    let script = script("stage_order.py");
    let ordered = |uid: u32| {
        let mut command = Command::new("python3");
        run(command.arg(&script).arg(rootwrap_daemon_program()).arg(uid.to_string())).text()
    };
    assert_eq!([0, CAROL].map(ordered), ["ran nothing"; 2]);
}

/// Starts its arguments on a host that refuses unshare(2), as the filters of some containers do.
const NO_UNSHARE: &str = r#"
import ctypes, os, struct, sys
number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter))
assert ctypes.CDLL(None).prctl(22, 2, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn where_threads_have_no_descriptors_of_their_own_that_is_said() {
    root_or_return!();
    let policy = format!("{SHELL}{}", as_bob("bobs", ""));
    let exec = ExecHost::start_under(&policy, &["python3", "-c", NO_UNSHARE]);
    for user in ["root", "bob"] {
        assert_eq!(exec.run(ALICE, &["-u", user, "sh", "-c", "exit 3"]).code, 3, "{user}");
    }
    assert!(exec.log().contains("RST-7087"), "{}", exec.log());
}

#[test]
fn a_daemon_with_few_descriptors_goes_on() {
    root_or_return!();
    let exec = ExecHost::start_under(SHELL, &["prlimit", "--nofile=64", "--"]);
    let mut clients: Vec<_> = (0..40)
        .map(|_| exec.client(ALICE, &["sh", "-c", "sleep 0.2; exit 3"]).spawn().unwrap())
        .collect();
    let mut ran = 0;
    for client in &mut clients {
        let code = client.wait().unwrap().code();
        assert!(matches!(code, Some(3 | 125)), "{code:?}");
        ran += usize::from(code == Some(3));
    }
    assert!(ran > 0);
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
}

#[test]
fn data_that_nobody_reads_holds_nobody_up_and_passes_no_daemon() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let mut writer = exec.client(ALICE, &["sh", "-c", "head -c 50000000 /dev/zero"]);
    let mut writer = writer.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = writer.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    for _ in 0..5 {
        assert_eq!(exec.run(BOB, &["sh", "-c", "exit 3"]).code, 3);
        exec.next_end_record();
    }
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), writer.wait().unwrap().code()), (49_999_999, Some(0)));
    let written: u64 = exec.next_end_record()["ROSTER_BYTES_WRITTEN"].parse().unwrap();
    assert!(written >= 50_000_000, "{written}");
    let status = fs::read_to_string(format!("/proc/{}/status", exec.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 40 << 10, "{kib} KiB");
}

#[test]
fn every_decision_is_one_record() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    exec.run(ALICE, &["sh", "-c", "exit 7"]);
    let record = exec.next_end_record();
    for (field, value) in [
        ("SYSLOG_IDENTIFIER", "roster-exec"),
        ("PRIORITY", "6"),
        ("ROSTER_USER", "alice"),
        ("ROSTER_UID", "51001"),
        ("ROSTER_COMMAND", "/bin/sh -c 'exit 7'"),
        ("ROSTER_RUN_AS", "root"),
        ("ROSTER_RULE", "shell"),
        ("ROSTER_VERDICT", "allowed"),
        ("ROSTER_STATUS", "exit 7"),
    ] {
        assert_eq!(record.get(field).map(String::as_str), Some(value), "{field}: {record:?}");
    }
    assert_eq!(Path::new(&record["ROSTER_EXE"]), exec.host.path("roster-exec"));
    assert!(record["ROSTER_MICROSECONDS"].parse::<u64>().unwrap() > 0);
    assert!(record["ROSTER_BYTES_READ"].parse::<u64>().unwrap() > 0);
    exec.run(CAROL, &["sh", "-c", "x\nPRIORITY=0"]);
    let record = exec.next_end_record();
    assert_eq!((&*record["ROSTER_VERDICT"], &*record["PRIORITY"]), ("refused", "4"));
    assert_eq!(record["ROSTER_USER"], "carol");
}

#[test]
fn exec_records_tell_start_and_end() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    exec.run(ALICE, &["sh", "-c", "exit 7"]);
    let (start, end) = (exec.next_record(), exec.next_record());
    assert_eq!((&*start["ROSTER_EVENT"], &*end["ROSTER_EVENT"]), ("start", "end"));
    for field in ["ROSTER_COMMAND_ID", "ROSTER_COMMAND", "ROSTER_RULE", "ROSTER_PID"] {
        assert_eq!(start[field], end[field], "{field}");
    }
    assert!(end["ROSTER_COMMAND_PID"].parse::<u32>().unwrap() > 1);
    // A request that is refused has one record.
    exec.run(CAROL, &["sh", "-c", "exit 7"]);
    let refused = exec.next_record();
    assert_eq!((&*refused["ROSTER_EVENT"], &*refused["ROSTER_VERDICT"]), ("end", "refused"));
    assert_ne!(refused["ROSTER_COMMAND_ID"], end["ROSTER_COMMAND_ID"]);
}

#[test]
fn exec_killed_daemon_leaves_start_record() {
    root_or_return!();
    let mut exec = ExecHost::start(SHELL);
    let kills = format!("kill -9 {}", exec.pid());
    exec.run(ALICE, &["sh", "-c", &kills]);
    exec.wait();
    let record = exec.next_record();
    assert_eq!(record["ROSTER_COMMAND"], format!("/bin/sh -c '{kills}'"));
}

#[test]
fn exec_directory_of_others_is_refused() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let private = exec.host.path("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let mut client = exec.as_user(BOB, "python3");
    let script = fs::read_to_string(script("exec_client.py")).unwrap();
    client.args(["-c", &script]).arg(exec.socket()).args(["directories", "/", "/usr"]);
    let told = run(client.arg(&private).current_dir("/usr")).text();
    let private = private.display();
    assert_eq!(told, format!("/: S E 0 0\n/usr: S E 0 0\n{private}: D 5"));
}

#[test]
fn exec_directory_of_rules_group_is_refused() {
    root_or_return!();
    // The command is bob's own, with a group that bob is not in.
    let exec = ExecHost::start(
        "[[rule]]\nname = \"own\"\nusers = [\"bob\"]\ncommand = \"/bin/cat\"\nargs = [\"secret\"]\n\
         run_as = \"bob\"\nrun_as_group = \"ops\"\n",
    );
    let private = exec.host.path("private");
    fs::create_dir(&private).unwrap();
    fs::write(private.join("secret"), "of ops\n").unwrap();
    chown(&private, Some(0), Some(51010)).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o750)).unwrap();
    let mut client = exec.as_user(BOB, "python3");
    let script = fs::read_to_string(script("exec_client.py")).unwrap();
    client.args(["-c", &script]).arg(exec.socket()).arg("own_directory").arg(&private);
    assert_eq!(run(&mut client).text(), "D 5");
}

#[test]
fn exec_stream_of_other_direction_is_refused() {
    root_or_return!();
    let exec = ExecHost::start("");
    let tool = exec.host.path("tool");
    fs::write(&tool, "#!/bin/sh\necho usage > /dev/stderr\n").unwrap();
    fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
    let rule =
        format!("[[rule]]\nname = \"tool\"\nusers = [\"bob\"]\ncommand = \"{}\"\n", tool.display());
    exec.write_policy(&rule);
    exec.signal("HUP");
    wait_until(SOON, "the policy is read", || exec.run(BOB, &["tool"]).code == 0);
    let script = "import os, sys; os.dup2(os.open(sys.argv[1], FLAGS), 2); os.execv(sys.argv[2], sys.argv[2:])";
    let (read_only, by_path) = ("os.O_RDONLY", "os.O_PATH");
    // The command opens the file again, as root. A descriptor for the path alone takes no right to the file.
    let secret = exec.host.path("secret");
    for (mode, flags) in [(0o644, read_only), (0o600, by_path)] {
        fs::write(&secret, "of root\n").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(mode)).unwrap();
        let mut client = exec.as_user(BOB, "python3");
        client.args(["-c", &script.replace("FLAGS", flags)]).arg(&secret);
        client.arg(exec.host.path("roster-exec")).arg("-s").arg(exec.socket()).arg("tool");
        assert_eq!(run(&mut client).code, 125, "{flags}");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of root\n", "{flags}");
    }
}

#[test]
fn exec_full_journal_delays_no_command() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do \"$@\"; done";
    let queue = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    let room: usize = queue.trim().parse().unwrap();
    assert!(room < 50, "the socket of the journal has room for all records");
    // The daemon drops a record that the journal does not take within a second. More of the records without room in the
    // journal's socket come after the commands: so their commands did not wait for the journal. If commands take long,
    // the daemon drops those records before the last command ends.
    let comes_later = || {
        for _ in 0..6 {
            let mut loops = exec.as_user(BOB, "sh");
            loops.args(["-ec", script, "sh"]).arg(exec.host.path("roster-exec"));
            assert_eq!(run(loops.arg("-s").arg(exec.socket()).args(["sh", "-c", ":"])).code, 0);
        }
        let records = exec.records_until_quiet();
        let of_bob =
            |record: &&JournalEntry| record.get("ROSTER_USER").is_some_and(|user| user == "bob");
        records.iter().filter(of_bob).count() > room + 5
    };
    assert!((0..30).any(|_| comes_later()), "commands waited for the journal");
}

/// A host with a name service that never answers about some users and a group.
fn with_a_name_service_that_hangs(policy: &str, by: &str) -> ExecHost {
    let mut exec = ExecHost::prepare(policy);
    let library = exec.host.path("lib");
    fs::create_dir(&library).unwrap();
    let module = c_program_with("nss_hang", "libnss_stuck.so.2", &["-shared", "-fPIC"]);
    fs::copy(module, library.join("libnss_stuck.so.2")).unwrap();
    fs::write(
        exec.host.path("etc/nsswitch.conf"),
        "passwd: files stuck roster\ngroup: files stuck roster\ninitgroups: files [SUCCESS=continue] roster\n",
    )
    .unwrap();
    let library = format!("LD_LIBRARY_PATH={}", library.display());
    exec.launch(&["env", &library, "sh", "-c", &format!(r#"{by} exec "$0" "$@""#)]);
    exec
}

#[test]
fn a_name_service_that_hangs_holds_up_nobody_else() {
    root_or_return!();
    let exec = with_a_name_service_that_hangs(SHELL, "");
    let mut stuck =
        exec.client(60_606, &["sh", "-c", "exit 3"]).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..5 {
        assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
    }
    assert!(stuck.try_wait().unwrap().is_none());
    let done = stuck.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(125));
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(words.contains("RST-7061"), "{words}");
}

#[test]
fn somebody_with_many_uids_asks_no_more_than_anybody_else() {
    root_or_return!();
    let given = r#"given=$(mktemp); echo carol:600000:65536 > "$given"; mount --bind "$given" /etc/subuid; rm "$given";"#;
    let exec = with_a_name_service_that_hangs(SHELL, given);
    let mut crowd = exec.host.command("sh");
    let program = r#"for uid in $(seq 600000 600079); do
        setpriv --reuid=$uid --regid=$uid --clear-groups "$0" --socket "$1" sh -c "exit 3" 2>/dev/null &
    done; echo; wait"#;
    crowd.args(["-c", program]).arg(exec.host.path("roster-exec")).arg(exec.socket());
    let mut crowd = crowd.stdout(Stdio::piped()).spawn().unwrap();
    crowd.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let threads = || fs::read_dir(format!("/proc/{}/task", exec.pid())).unwrap().count();
    // Users without permission are refused at once.
    let refused = || {
        let reason = exec.next_end_record().remove("CODE").unwrap_or_default();
        assert!(reason == "RST-7061", "{reason}");
    };
    (0..72).for_each(|_| refused());
    // A thread ends after its record is written.
    wait_until(SOON, "refused callers hold no thread", || threads() < 64);
    for user in [ALICE, BOB] {
        assert_eq!(exec.run(user, &["sh", "-c", "exit 3"]).code, 3);
    }
    crowd.wait().unwrap();
}

#[test]
fn a_group_that_is_not_answered_leaves_no_wider_rule_to_decide() {
    root_or_return!();
    let policy = format!(
        "[[rule]]
        name = \"narrow\"
        groups = [\"stuck\"]
        command = \"/bin/sh\"
        args = [\"-c\", \"exit .\"]
        max_files = 20
        {SHELL}"
    );
    let exec = with_a_name_service_that_hangs(&policy, "");
    let unanswered = exec.run(BOB, &["sh", "-c", "exit 3"]);
    assert_eq!(unanswered.code, 125);
    assert!(unanswered.error().contains("RST-7061"), "{}", unanswered.error());
    // If that rule could not match with any answer, the decision does not depend on it.
    assert_eq!(exec.run(BOB, &["sh", "-c", "exit 3;"]).code, 3);
}

#[test]
fn everybody_reaches_the_socket_whatever_the_daemons_umask() {
    root_or_return!();
    let exec = ExecHost::start_under(SHELL, &["sh", "-c", r#"umask 077; exec "$0" "$@""#]);
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
}

#[test]
fn exec_end_record_carries_counters() {
    root_or_return!();
    let exec = ExecHost::start(SHELL);
    assert_eq!(exec.run(ALICE, &["sh", "-c", "exit 3"]).code, 3);
    let record = exec.next_end_record();
    let counters = ["ROSTER_RUNNING", "ROSTER_CONNECTIONS", "ROSTER_RECORDS_DROPPED"];
    assert_eq!(counters.map(|name| record[name].as_str()), ["0", "1", "0"]);
}

#[test]
fn the_client_needs_no_library() {
    let program = roster_system_tests::exec_program();
    let headers = run(Command::new("readelf").arg("-lW").arg(program)).text();
    assert!(headers.contains("LOAD") && !headers.contains("INTERP"), "{headers}");
    assert!(fs::metadata(program).unwrap().len() < 2 << 20);
}
