// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `roster-rootwrap`, with real processes.

use roster_messages::table::commands;
use roster_system_tests::wait::{SOON, wait_for, wait_until};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Creates a rootwrap.conf with one filter file.
fn lay_out(folder: &Path, filters: &str) -> PathBuf {
    let rules = folder.join("rules");
    fs::create_dir(&rules).unwrap();
    fs::write(rules.join("a.filters"), filters).unwrap();
    let conf = folder.join("rootwrap.conf");
    let text = format!("[DEFAULT]\nfilters_path={}\nexec_dirs=/usr/bin,/bin\n", rules.display());
    fs::write(&conf, text).unwrap();
    for (path, mode) in [(&rules, 0o755), (&rules.join("a.filters"), 0o644), (&conf, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    conf
}

/// Returns exit code and output, without the name of the directory.
fn run(folder: &Path, args: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_roster-rootwrap");
    let output = Command::new(program).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap().replace(&format!("{}/", folder.display()), "");
    (output.status.code().unwrap(), text)
}

const RULES: &str = "[Filters]\nls: RegExpFilter, ls, root, ls, -l|-a\n\
                     x: NoFilter, x\nid: CommandFilter, id, nobody\n";

#[test]
fn check_lists_mistakes_and_mode_differences() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let (code, text) = run(folder.path(), &["check", conf.to_str().unwrap()]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len()), (0, 4), "{text}");
    assert!(lines[0].starts_with("rules/a.filters:3: warning: x: unknown class \"NoFilter\""));
    assert!(lines[0].ends_with(&in_brackets(&commands::FILTER_CLASS_UNKNOWN)));
    let expected = "rules/a.filters:2: ls (RegExpFilter): compat mode lets a word continue behind the pattern \
                    \"-l|-a\"; strict mode matches whole words";
    assert_eq!(lines[1], format!("{expected}{}", in_brackets(&commands::CHECK_MODES_DIFFER)));
    assert!(lines[2].starts_with("built in: privsep-helper (CommandFilter): compat mode allows"));
    assert_eq!(
        lines[3],
        "rootwrap.conf: errors: 0, warnings: 1, rules that differ in strict mode: 2"
    );
}

#[test]
fn check_fails_where_nothing_can_be_judged_and_speaks_json() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), "[Filters]\nls: CommandFilter, ls\n");
    let (code, text) = run(folder.path(), &["check", "--json", conf.to_str().unwrap()]);
    assert_eq!(code, 1);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["ok"], &report["problems"][0]["line"]), (&false.into(), &2.into()));
    assert_eq!(report["problems"][0]["severity"], "error");
    assert_eq!(report["problems"][0]["code"], commands::FILTER_ARGUMENTS_MISSING.code);
}

/// Returns the end of a line with a message.
fn in_brackets(message: &roster_messages::Message) -> String {
    format!(" [{message}]")
}

#[test]
fn explain_names_the_rule_and_has_the_exit_code_of_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let conf = conf.to_str().unwrap();
    let (code, text) = run(folder.path(), &["explain", conf, "--", "id", "-u"]);
    assert_eq!(code, 0);
    assert!(text.ends_with(
        "(CommandFilter): allows the command\ncompat: runs as nobody: /usr/bin/id -u\n"
    ));
    let explained =
        |mode| run(folder.path(), &["explain", "--mode", mode, conf, "--", "ls", "-lx"]);
    assert_eq!((explained("compat").0, explained("strict").0), (0, 99));
    assert!(
        explained("strict").1.contains("a.filters:2: ls (RegExpFilter): argument 1 does not match")
    );
    assert_eq!(run(folder.path(), &["explain", "/no/such.conf", "--", "ls"]).0, 97);
}

const RUNNABLE: &str = "[Filters]\nsh: CommandFilter, sh, root\nls: CommandFilter, /no/such/ls, root\n\
                        id: CommandFilter, id, nobody\nchosen: CommandFilter, sh2, nobody\n\
                        kill: KillFilter, root, /usr/bin/sleep, -9\n";

#[test]
fn a_daemons_folder_is_everybodys_to_enter_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("exec.toml");
    fs::write(&policy, "").unwrap();
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o644)).unwrap();
    let socket = folder.path().join("run/roster/exec");
    let mut daemon = Command::new("/bin/sh")
        .args(["-c", "umask 077; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_roster-rootwrap-daemon")])
        .args(["--native", "--policy"])
        .arg(&policy)
        .arg("--socket")
        .arg(&socket)
        .spawn()
        .unwrap();
    wait_until(SOON, "the daemon listens", || socket.exists());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let modes = socket.ancestors().take(3).map(mode).collect::<Vec<_>>();
    // A killed daemon would leave its cgroup to the next one.
    let told = Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
    assert!(told.success());
    daemon.wait().unwrap();
    assert_eq!(modes, [0o666, 0o755, 0o755]);
}

#[test]
fn rootwrap_exit_and_streams_are_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RUNNABLE);
    let conf = conf.to_str().unwrap();
    let call = |command: &[&str]| run(folder.path(), &[&[conf], command].concat());
    assert_eq!(call(&["sh", "-c", "echo out; echo err >&2; exit 7"]), (7, "out\nerr\n".into()));
    assert_eq!(call(&["sh", "-c", "kill -9 $$"]).0, 128 + 9);
    let (code, text) = call(&["ls"]);
    assert_eq!(code, 96);
    assert!(text.ends_with(": Executable not found: /no/such/ls (filter match = ls)\n"), "{text}");
    let (code, text) = call(&["rm", "-r f"]);
    assert_eq!(code, 99);
    assert!(text.ends_with(": Unauthorized command: rm '-r f' (no filter matched)\n"), "{text}");
    let (code, text) = call(&[]);
    assert_eq!(code, 98);
    assert!(text.ends_with(&(in_brackets(&commands::NO_COMMAND) + "\n")), "{text}");
    assert_eq!(run(folder.path(), &[]).0, 98);
    assert_eq!(run(folder.path(), &["/no/such.conf", "ls"]).0, 97);
}

#[test]
fn a_command_reads_what_the_caller_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), "[Filters]\ncat: CommandFilter, cat, root\n");
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"\xff\0a").unwrap();
    drop(writer);
    let program = env!("CARGO_BIN_EXE_roster-rootwrap");
    let output = Command::new(program).arg(&conf).arg("cat").stdin(reader).output().unwrap();
    assert_eq!(output.stdout, b"\xff\0a");
}

/// The test compares what a command sees of itself, as root and as another user, in both modes.
#[test]
fn a_command_has_its_users_rights_three_descriptors_and_default_signals() {
    if !needs_root() {
        return;
    }
    for mode in ["compat", "strict"] {
        let folder = tempfile::tempdir().unwrap();
        let rule = |user: &str| format!("{user}: RegExpFilter, sh, {user}, sh, -c, .*{user}\n");
        let conf =
            lay_out(folder.path(), &format!("[Filters]\n{}{}", rule("root"), rule("nobody")));
        let text = fs::read_to_string(&conf).unwrap();
        fs::write(&conf, format!("{text}roster_mode={mode}\nrlimit_nofile=100\n")).unwrap();
        for user in ["root", "nobody"] {
            let script = "id -u; id -g; id -G; ls /proc/self/fd; ulimit -n; cat /proc/$$/comm; \
                          grep -E 'Sig(Blk|Ign)' /proc/self/status; # ";
            // A parent that ignores SIGHUP, blocks SIGTERM and leaves a descriptor open.
            let parent = "import os, signal, sys\n\
                          signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
                          signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n\
                          os.dup2(1, 9)\n\
                          os.setgroups([12345])\n\
                          os.execv(sys.argv[1], sys.argv[1:])";
            let output = Command::new("python3")
                .args(["-c", parent, env!("CARGO_BIN_EXE_roster-rootwrap"), conf.to_str().unwrap()])
                .args(["sh", "-c", &format!("{script}{user}")])
                .output()
                .unwrap();
            let seen = String::from_utf8(output.stdout).unwrap();
            let told = |args: &[&str]| {
                let output = Command::new("id").args(args).arg(user).output().unwrap();
                String::from_utf8(output.stdout).unwrap()
            };
            let expected = [
                told(&["-u"]),
                told(&["-g"]),
                told(&["-G"]),
                // The fourth descriptor is that of ls, on the listed directory.
                "0\n1\n2\n3\n100\n".into(),
                if mode == "strict" { shell() } else { "sh\n".into() },
                "SigBlk:\t0000000000000000\n".into(),
            ]
            .concat();
            let (before, ignored) = seen.split_at(expected.len().min(seen.len()));
            assert_eq!(before, expected, "{mode}, {user}");
            // The C library reserves some signals.
            let ignored = ignored.trim().strip_prefix("SigIgn:\t").unwrap();
            assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff & !(1 << 24), 0);
        }
    }
}

/// Without root's rights no command gets another user. oslo.rootwrap runs commands for root anyway.
#[test]
fn rootwrap_compat_without_root_runs_as_caller() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("roster-rootwrap");
    fs::copy(env!("CARGO_BIN_EXE_roster-rootwrap"), &program).unwrap();
    let rules = "[Filters]\nid: CommandFilter, id, root\nls: CommandFilter, ls, daemon\n\
                 sh: CommandFilter, sh, nobody\n";
    let conf = lay_out(folder.path(), rules);
    let text = fs::read_to_string(&conf).unwrap();
    let call = |mode: &str, command: &[&str]| {
        fs::write(&conf, format!("{text}roster_mode={mode}\n")).unwrap();
        let nobody = "import os, pwd, sys\n\
                      user = pwd.getpwnam('nobody')\n\
                      os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)\n\
                      os.execv(sys.argv[1], sys.argv[1:])";
        let mut python = Command::new("python3");
        let output = python.args(["-c", nobody]).arg(&program).arg(&conf).args(command).output();
        let output = output.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    };
    assert_eq!(call("compat", &["id", "-un"]), (0, "nobody\n".into()));
    assert_eq!(call("strict", &["sh", "-c", "id -un"]), (0, "nobody\n".into()));
    for (mode, command, user) in
        [("strict", "id", "root"), ("compat", "ls", "daemon"), ("strict", "ls", "daemon")]
    {
        let (code, text) = call(mode, &[command]);
        assert_eq!(code, 1, "{mode} {command}: {text}");
        let told = in_brackets(&commands::RUN_AS_REQUIRES_ROOT) + "\n";
        assert!(text.contains(&format!("as {user} ")) && text.ends_with(&told), "{mode}: {text}");
    }
}

/// Returns the name of the shell behind `sh`.
fn shell() -> String {
    let real = fs::canonicalize("/usr/bin/sh").unwrap();
    format!("{}\n", real.file_name().unwrap().to_str().unwrap())
}

/// A rule of oslo.rootwrap lets a caller set variables. They must not affect processes that still run as root.
#[test]
fn a_setting_of_the_callers_reaches_the_command_and_not_who_starts_it() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), "[Filters]\nid: EnvFilter, env, nobody, LD_PRELOAD=, id\n");
    let text = fs::read_to_string(&conf).unwrap();
    let call =
        || run(folder.path(), &[conf.to_str().unwrap(), "env", "LD_PRELOAD=/no/such.so", "id"]);
    let (code, told) = call();
    assert_eq!(code, 0);
    // ld.so reports the missing library once for each program with the variable.
    assert_eq!(told.matches("/no/such.so").count(), 1, "{told}");
    fs::write(&conf, format!("{text}roster_mode=strict\n")).unwrap();
    assert_eq!(call().0, 99);
}

#[test]
fn strict_mode_signals_the_process_that_was_judged() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RUNNABLE);
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{text}roster_mode=strict\n")).unwrap();
    let mut sleeper = Command::new("/usr/bin/sleep").arg("600").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let call = |signal: &str| run(folder.path(), &[conf.to_str().unwrap(), "kill", signal, &pid]);
    assert_eq!(call("-15").0, 99);
    assert_eq!(call("-9"), (0, String::new()));
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    assert_eq!(call("-9").0, 99);
}

#[test]
fn strict_mode_sends_the_signal_that_was_judged_behind_whatever_words() {
    let folder = tempfile::tempdir().unwrap();
    let filters = "[Filters]\nkill: KillFilter, root, /usr/bin/sleep, -0, -HUP\n\
                   nice: ChainingRegExpFilter, nice, root, nice, -n, \\d+\n\
                   netns: IpNetnsExecFilter, ip, root\n";
    let conf = lay_out(folder.path(), filters);
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{text}roster_mode=strict\n")).unwrap();
    for before in [&["nice", "-n", "5"][..], &["ip", "netns", "exec", "no-such"]] {
        let mut sleeper = Command::new("/usr/bin/sleep").arg("600").spawn().unwrap();
        let pid = sleeper.id().to_string();
        let call = |signal: &str| {
            let words = [&[conf.to_str().unwrap()], before, &["kill", signal, &pid]].concat();
            run(folder.path(), &words)
        };
        assert_eq!(call("-0"), (0, String::new()), "{before:?}");
        std::thread::sleep(Duration::from_millis(100));
        assert!(sleeper.try_wait().unwrap().is_none(), "{before:?}");
        assert_eq!(call("-HUP"), (0, String::new()), "{before:?}");
        assert_eq!(sleeper.wait().unwrap().signal(), Some(1), "{before:?}");
    }
}

#[test]
fn a_script_runs_in_strict_mode_and_what_cannot_be_executed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let rule = |name: &str| format!("{name}: CommandFilter, {}/{name}, root\n", root.display());
    let conf = lay_out(&root, &format!("[Filters]\n{}{}", rule("script"), rule("noise")));
    let text = fs::read_to_string(&conf).unwrap();
    for (name, text) in [("script", "#!/bin/sh\necho \"$0\" \"$1\"\n"), ("noise", "\x7fELF or not")]
    {
        fs::write(root.join(name), text).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for mode in ["compat", "strict"] {
        fs::write(&conf, format!("{text}roster_mode={mode}\n")).unwrap();
        let call = |command: &[&str]| run(&root, &[&[conf.to_str().unwrap()], command].concat());
        assert_eq!(call(&["script", "a b"]), (0, "script a b\n".into()), "{mode}");
        let (code, text) = call(&["noise"]);
        assert_eq!(code, 1);
        assert!(text.contains("noise: cannot be executed: Exec format error"), "{mode}: {text}");
        assert!(text.ends_with(&(in_brackets(&commands::EXECUTABLE_REFUSED) + "\n")), "{text}");
    }
}

/// Between the decision and the execution another directory takes the place of the checked one. Strict mode executes
/// the checked file. strace makes the kernel slow for the test.
#[test]
fn an_executable_that_is_replaced_before_it_is_executed_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let rule = format!("tool: CommandFilter, {}/current/tool, root\n", root.display());
    let conf = lay_out(&root, &format!("[Filters]\n{rule}"));
    let text = fs::read_to_string(&conf).unwrap();
    for name in ["judged", "other"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::copy("/bin/echo", root.join(name).join("tool")).unwrap();
    }
    fs::write(root.join("other/tool"), "#!/bin/sh\necho replaced\n").unwrap();
    for (mode, expected) in [("compat", "replaced\n"), ("strict", "judged\n")] {
        fs::write(&conf, format!("{text}roster_mode={mode}\n")).unwrap();
        let _ = fs::remove_file(root.join("current"));
        symlink("judged", root.join("current")).unwrap();
        let slow = "inject=execve:delay_enter=4000000";
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=execve", "-e", slow]);
        strace.arg(env!("CARGO_BIN_EXE_roster-rootwrap")).arg(&conf).args(["tool", "judged"]);
        let strace = strace.stdout(Stdio::piped()).spawn().unwrap();
        // The process that is about to become the command has this name. strace has other children before.
        let is_ours = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "roster-rootwrap\n")
        };
        let program = eventually(|| children(strace.id()).into_iter().find(is_ours));
        eventually(|| children(program).first().copied());
        symlink("other", root.join("next")).unwrap();
        fs::rename(root.join("next"), root.join("current")).unwrap();
        let output = strace.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{mode}");
    }
}

fn children(parent: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    listed.unwrap_or_default().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    wait_for(SOON, || found().ok_or_else(String::new))
}

#[test]
fn a_policy_is_checked_and_must_be_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exec.toml");
    fs::write(&file, "[[rule]]\nname = \"a\"\nusers = [\"nobody-here\"]\ncommand = \"/bin/ls\"\n")
        .unwrap();
    let check = || run(folder.path(), &["check-policy", file.to_str().unwrap()]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let warned = "exec.toml:1: warning: rule a: user nobody-here does not exist. Correct the name, or create the user.";
    let code = in_brackets(&commands::RULE_USER_UNKNOWN);
    let summary = "exec.toml: errors: 0, warnings: 1, rules: 1";
    assert_eq!(check(), (0, format!("{warned}{code}\n{summary}\n")));
    let known = "[[rule]]\nname = \"a\"\nusers = [\"daemon\"]\ncommand = \"/bin/ls\"\n";
    fs::write(&file, known).unwrap();
    assert_eq!(check(), (0, "exec.toml: errors: 0, warnings: 0, rules: 1\n".into()));
    fs::write(&file, format!("{known}keep_env = [\"LC_*\", \"LD_X\", \"GIT_*\", \"HOME\"]\n"))
        .unwrap();
    let (code, text) = check();
    assert_eq!(code, 0);
    let told = ["keep_env has LD_X: the daemon never", "keep_env has GIT_*: some", "HOME: some"];
    assert!(told.iter().all(|told| text.contains(told)) && !text.contains("LC_"), "{text}");
    fs::write(&file, format!("{known}keep_env = [\"*\"]\n")).unwrap();
    let (code, text) = check();
    assert!(code == 1 && text.contains("exec.toml:5: keep_env: invalid value"), "{text}");
    fs::write(&file, known).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (code, text) = check();
    assert_eq!(code, 1);
    assert!(text.contains(commands::EXEC_TOML_UNTRUSTED.code), "{text}");
}

#[test]
fn bash_completes_users_commands_and_no_options_of_ours_behind_them() {
    let daemon = env!("CARGO_BIN_EXE_roster-rootwrap-daemon");
    let output = Command::new(daemon).args(["completions", "bash", "--client"]).output().unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a-file"), "").unwrap();
    let complete = |words: &[&str]| {
        let ask = "eval \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _roster_exec; \
                   printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ask, &script, "roster-exec"]).args(words);
        let told = String::from_utf8(bash.current_dir(&folder).output().unwrap().stdout).unwrap();
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for words in [&["-u", "daem"][..], &["--user", "daem"], &["--user", "=", "daem"]] {
        assert_eq!(complete(words), ["daemon"], "{words:?}");
    }
    assert!(complete(&["--user", "="]).contains(&"daemon".into()));
    assert_eq!(complete(&["--us"]), ["--user"]);
    for words in [&["print"][..], &["-u", "daemon", "print"], &["--", "print"]] {
        assert!(complete(words).contains(&"printf".into()), "{words:?}");
    }
    assert_eq!(complete(&["-s", "a-"]), ["a-file"]);
    assert_eq!(complete(&["-u", "daemon", "cat", "a-"]), ["a-file"]);
    assert_eq!(complete(&["cat", "--us"]), [""]);
    assert_eq!(complete(&["--", "cat", "-u", "daem"]), [""]);
}

#[test]
fn output_to_full_device_has_code() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_roster-rootwrap"));
    let output = check.arg("check").arg(&conf).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.ends_with(&(in_brackets(&commands::OUTPUT_FAILED) + "\n")), "{text}");
}

#[test]
fn daemon_that_cannot_start_has_code() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let policy = folder.path().join("exec.toml");
    fs::write(&policy, "").unwrap();
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o600)).unwrap();
    let oslo = conf.display().to_string();
    let native = format!("--native --policy {}", policy.display());
    for (before, args, message) in [
        ("TMPDIR=/no/such", &oslo, &commands::DAEMON_START_FAILED),
        ("LISTEN_PID=$$ LISTEN_FDS=2", &native, &commands::SYSTEMD_SOCKET_COUNT),
        // Descriptor 3 is that of another file, or closed.
        ("3</dev/null LISTEN_PID=$$ LISTEN_FDS=1", &native, &commands::SYSTEMD_SOCKET_INVALID),
        ("3<&- LISTEN_PID=$$ LISTEN_FDS=1", &native, &commands::SYSTEMD_SOCKET_INVALID),
    ] {
        let daemon = env!("CARGO_BIN_EXE_roster-rootwrap-daemon");
        let script = format!("{before} exec {daemon} {args}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{before}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.ends_with(&(in_brackets(message) + "\n")), "{before}: {text}");
    }
}

/// Returns true as root. Otherwise the test fails, unless `ROSTER_SKIP_ROOT_TESTS=1` skips it.
fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let skip = std::env::var_os("ROSTER_SKIP_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(is_root || skip, "this test needs root; run as root, or set ROSTER_SKIP_ROOT_TESTS=1");
    is_root
}

/// `crates/act/exec` and `python/` contain codes as literals.
#[test]
fn literal_codes_of_clients_are_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut codes = std::collections::BTreeSet::new();
    for folder in ["crates/act/exec/src", "python/src/roster_exec", "python/src/roster_locust"] {
        for entry in fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            codes.extend(text.match_indices("RST-").map(|(at, _)| text[at..at + 8].to_owned()));
        }
    }
    let known: Vec<_> = commands::MESSAGES.iter().map(|message| message.code).collect();
    let first = known.iter().position(|code| *code == commands::CLIENT_NO_DAEMON.code).unwrap();
    for code in &known[first..] {
        assert!(codes.contains(*code), "{code} is in no client");
    }
    for code in &codes {
        assert!(roster_messages::find(code).is_some(), "{code} is not in the table");
    }
}
