// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the other output (percentiles, JSON, manual pages, completions) and of wrong usage.

mod common;

use common::{count, has_code, lab, number, run};
use roster_lab::command::CommandSettings;
use roster_messages::Message;
use roster_messages::table::lab as messages;
use roster_system_tests::wait::{SOON, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn reports_go_where_they_are_asked_to() {
    let folder = tempfile::tempdir().expect("make a directory");
    let (json, hdr) = (folder.path().join("run.json"), folder.path().join("run.hgrm"));
    let paths = [&json, &hdr].map(|path| path.to_str().expect("a plain path"));
    let brief = ["--users", "1", "--duration", "200ms", "--warm-up", "0"];
    let files = ["--json", paths[0], "--hdr", paths[1], "--probe", "0", "--", "true"];
    let output = run(&[&["command"], &brief[..], &files].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("latency    p50 "), "{said}");
    let json = fs::read(&json).expect("the report");
    let report: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    for (field, least) in [("p50", 1e-3), ("p999", 1e-3), ("max", 1e-3)] {
        assert!(number(&report, &format!("/latency_ms/{field}")) > least, "{report}");
    }
    let origin = &report["origin"];
    assert_eq!(origin["plan"]["load"], "command");
    assert_eq!(origin["plan"]["command"], serde_json::json!(["true"]));
    assert!(count(origin, "/host/processors") > 0 && count(origin, "/time") > 1_700_000_000);
    let twice = run(&["compare", paths[0], paths[0]]);
    let said = String::from_utf8_lossy(&twice.stderr);
    assert!(has_code(&said, &messages::REPORT_TWICE), "{said}");
    let hdr = fs::read_to_string(hdr).expect("the percentiles");
    let total = format!("Total count    = {:12}]", count(&report, "/requests"));
    assert!(hdr.starts_with("       Value ") && hdr.contains(&total), "{hdr}");
}

#[test]
fn no_report_has_the_passwords_of_its_options() {
    let brief = ["--users", "1", "--duration", "200ms", "--warm-up", "0", "--probe", "0"];
    let words = ["--", "sh", "-c", "PASSWORD=geheim; exit 0", "--password", "geheim"];
    let output = run(&[&["command", "--json", "-"], &brief[..], &words].concat());
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("(left out)") && !report.contains("geheim"), "{report}");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_run() {
    for option in ["--json", "--hdr"] {
        let output = run(&["command", option, "/no/such/folder/file", "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("/no/such/folder/file: cannot be written"), "{said}");
        assert!(has_code(&said, &messages::FILE_UNWRITABLE), "{said}");
    }
}

#[test]
fn a_full_disk_costs_no_figures() {
    for option in ["--json", "--hdr", "--html"] {
        let brief = ["--users", "1", "--duration", "2", "--warm-up", "0", "--probe", "0"];
        let output =
            run(&[&["command", option, "/dev/full"], &brief[..], &["--", "true"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1), "{said}");
        assert!(said.contains("/dev/full: cannot be written: No space left on device"), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("latency    p50 "), "{option}");
    }
}

#[test]
fn a_run_that_cannot_start_leaves_the_last_report_and_no_empty_one() {
    let folder = tempfile::tempdir().expect("make a directory");
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.html"));
    fs::write(&old, "the last report").expect("write it");
    let paths = [&old, &new].map(|path| path.to_str().expect("a plain path"));
    let nobody = ["ldap", "--uri", "ldap://127.0.0.1:1", "--dn", "cn=x", "--password", "y"];
    let output = run(&[&nobody[..], &["--json", paths[0], "--html", paths[1]]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&old).expect("still there"), "the last report");
    assert!(!new.exists());
}

#[test]
fn no_live_view_is_drawn_where_there_is_no_terminal() {
    let output = run(&[
        "command",
        "--users",
        "1",
        "--duration",
        "700ms",
        "--warm-up",
        "0",
        "--probe",
        "0",
        "--",
        "true",
    ]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    // A busy machine may delay a command, and roster-lab then waits for it.
    let said: Vec<_> = said.lines().filter(|line| !line.contains("waiting for the last")).collect();
    assert!(said.is_empty(), "nothing but mistakes and warnings goes to standard error: {said:?}");
}

#[test]
fn threads_have_their_open_files_whatever_a_shell_allows() {
    let command = lab(&["nss", "--lookup", "passwd", "--key", "root", "--users", "40"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 100 && exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args()).args(["--probe", "0", "--duration", "300ms"]);
    let output = shell.stdin(Stdio::null()).output().expect("start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lab_closed_terminal_ends_run_with_report() {
    for (program, code, duration) in [("env", 130, "600"), ("nohup", 0, "2")] {
        let folder = tempfile::tempdir().expect("make a directory");
        let (json, begun) = (folder.path().join("run.json"), folder.path().join("begun"));
        let how = ["--users", "1", "--probe", "0", "--warm-up", "0", "--duration", duration];
        let mut command = Command::new(program);
        command.arg(lab(&[]).get_program()).args(["command", "--json"]).arg(&json).args(how);
        command.args(["--", "touch"]).arg(&begun);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start");
        wait_until(SOON, "the run begins", || begun.exists());
        kill_process(Pid::from_child(&child), Signal::HUP).expect("signal");
        let output = child.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(code), "{program}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(has_code(&text, &messages::RUN_INTERRUPTED), code == 130, "{program}: {text}");
        let report = fs::read(json).expect("the report");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        let rate = number(&report, "/rate");
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        let seconds = count(&report, "/requests") as f64 / rate;
        let is_whole = seconds >= 1.9;
        assert!(
            if program == "nohup" { is_whole } else { seconds < 599.0 },
            "{program}: {seconds}"
        );
    }
}

#[test]
fn wrong_use_is_told_and_pages_and_completions_are_written() {
    for wrong in [&["ldap"][..], &["command"], &["dns", "--name", "x"], &["no-such"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let folder = tempfile::tempdir().expect("make a directory");
    let output = run(&["man", folder.path().to_str().expect("a plain path")]);
    assert!(output.status.success());
    assert!(folder.path().join("roster-lab.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(script.contains("start-tls"), "{shell}");
    }
}

/// Self-signed certificate, which only fills a file of `--tls-ca`.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBgjCCASegAwIBAgIUMzC0sqisthjb2k4nYATcahe86fgwCgYIKoZIzj0EAwIw\n\
    FTETMBEGA1UEAwwKcm9zdGVyLWxhYjAgFw0yNjExMjcwMzA5MzVaGA8yMTI2MTEw\n\
    MzAzMDkzNVowFTETMBEGA1UEAwwKcm9zdGVyLWxhYjBZMBMGByqGSM49AgEGCCqG\n\
    SM49AwEHA0IABAYKVyVZoYnjpcNj7UcOkyOkVzbDy7Kc+b4/MaHfh2O2wxxh8Ric\n\
    VLU9IZFfhJF6sHhHmebr+s/EXggySWCavxmjUzBRMB0GA1UdDgQWBBQDg08xdfa3\n\
    P3UQHtYhmX1UUaNEZTAfBgNVHSMEGDAWgBQDg08xdfa3P3UQHtYhmX1UUaNEZTAP\n\
    BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDZrIhXNcP1W48ie/0j\n\
    7Q2Mi6yR1V2pbyUgon+FYGF5hgIhANydrg/kdcchbq9cVTRTKmzmEPmUmQtkisHf\n\
    As848ByN\n\
    -----END CERTIFICATE-----\n";

/// Runs a command that fails, and requires exit code 1 and the code of the message.
fn assert_fails(command: &mut Command, message: &Message) {
    let output = command.stdin(Stdio::null()).output().expect("start");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
    assert!(has_code(&said, message), "{message}: {command:?}: {said}");
}

#[test]
fn lab_invalid_options_have_codes() {
    let folder = tempfile::tempdir().expect("make a directory");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("write a file");
        path.to_str().expect("a plain path").to_owned()
    };
    let long = |name: &str, bytes: u64| {
        let path = file(name, "");
        fs::File::options().write(true).open(&path).expect("open").set_len(bytes).expect("grow");
        path
    };
    let (no_pem, bad_pem) =
        (file("empty.pem", ""), file("bad.pem", &CERTIFICATE.replace("MII", "AAA")));
    let pem = file("good.pem", CERTIFICATE);
    let nul = file("nul.toml", "[pam]\nservice = \"a\\u0000\"\nuser = \"u\"\npassword = \"p\"\n");
    let (plan, report) = (long("plan.toml", (1 << 20) + 1), long("run.json", (64 << 20) + 1));
    let file_as_folder = format!("{no_pem}/x");
    let users = vec!["1"; 101].join(",");
    let bind = |uri| format!("ldap --dn x --password y --uri {uri}");
    let ldap = |op| format!("ldap --dn x --uri ldap://127.0.0.1:1 --op {op}");
    let run = "command --probe 0 --duration 50ms --warm-up 0";
    let krb5 = "krb5 --kdc 127.0.0.1:1 --realm R --principal u";
    let dns = "dns --server 127.0.0.1:1 --name x --protocol tcp --connections new";
    let short = "--probe 0 --duration 100ms --warm-up 0 --timeout 1";
    for (words, message) in [
        (bind("ldap://127.0.0.1:1 --source ::1"), &messages::SOURCE_FAMILY),
        (bind("ldaps://127.0.0.1:1 --start-tls"), &messages::START_TLS_WITH_LDAPS),
        (bind(&format!("ldaps://127.0.0.1:1 --tls-ca {bad_pem}")), &messages::CA_FILE_INVALID),
        (bind(&format!("ldaps://127.0.0.1:1 --tls-ca {no_pem}")), &messages::CA_FILE_EMPTY),
        (bind(&format!("ldaps://127.1:1 --tls-ca {pem}")), &messages::SERVER_NAME_INVALID),
        (ldap("compare --value abc"), &messages::VALUE_SYNTAX),
        (ldap("modify --value a={x"), &messages::TEMPLATE_SYNTAX),
        (ldap("search --filter (uid"), &messages::FILTER_SYNTAX),
        (format!("{krb5} --op tgs --no-preauth"), &messages::TGS_WITHOUT_PASSWORD),
        (format!("{run} --knee 5ms --rate 5,6 true"), &messages::KNEE_RATE),
        (format!("{run} --knee 5ms --rate 5..6 true"), &messages::KNEE_RATE),
        (format!("{run} --users {users} true"), &messages::TOO_MANY_RUNS),
        (format!("{run} --server-unit a/b true"), &messages::UNIT_NAME_INVALID),
        (format!("{run} --server-unit roster-no-such true"), &messages::UNIT_UNREADABLE),
        (format!("{run} {no_pem}"), &messages::COMMAND_NOT_EXECUTABLE),
        (format!("{dns} --rate 1000000 {short}"), &messages::PORTS_SHORT),
        (format!("run {nul}"), &messages::NUL_IN_OPTION),
        (format!("run {plan}"), &messages::PLAN_TOO_LONG),
        (format!("man {file_as_folder}"), &messages::DIRECTORY_NOT_CREATED),
        (format!("compare {report} --names a,b"), &messages::NAMES_COUNT),
        (format!("compare {report}"), &messages::REPORT_TOO_LONG),
        (
            "locust --workers 1 --source 127.0.0.2,127.0.0.3".to_owned(),
            &messages::WORKERS_AND_SOURCES,
        ),
        (format!("--tied-to {} /no/such", std::process::id()), &messages::CHILD_NOT_STARTED),
    ] {
        assert_fails(&mut lab(&words.split(' ').collect::<Vec<_>>()), message);
    }
    let error = CommandSettings::new(&[]).expect_err("no words").to_string();
    assert!(has_code(&error, &messages::COMMAND_MISSING), "{error}");
}

#[test]
fn lab_unfit_environment_has_codes() {
    let run = ["command", "--probe", "0", "--duration", "50ms", "--warm-up", "0"];
    let mut full = lab(&[&run[..], &["true"]].concat());
    let disk = fs::File::options().write(true).open("/dev/full").expect("open");
    let output = full.stdout(disk).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1), "{said}");
    assert!(has_code(&said, &messages::OUTPUT_UNWRITABLE), "{said}");

    let mut without_ca = lab(&["ldap", "--uri", "ldaps://127.0.0.1:1", "--dn", "x"]);
    without_ca.args(["--password", "y"]).env("SSL_CERT_FILE", "/dev/null");
    without_ca.env("SSL_CERT_DIR", "/no/such");
    assert_fails(&mut without_ca, &messages::HOST_CA_MISSING);

    // No address space has room for such a stack.
    let mut without_stack = lab(&[&run[..], &["true"]].concat());
    without_stack.env("RUST_MIN_STACK", (1_u64 << 50).to_string());
    assert_fails(&mut without_stack, &messages::THREAD_NOT_STARTED);

    let folder = tempfile::tempdir().expect("make a directory");
    let mut empty_library = Command::new("cc");
    empty_library.args(["-shared", "-x", "c", "/dev/null", "-o"]);
    empty_library.arg(folder.path().join("libpam.so.0"));
    assert!(empty_library.status().expect("start cc").success());
    let mut old_pam = lab(&["pam", "--service", "x", "--user", "u", "--password", "p"]);
    assert_fails(old_pam.env("LD_LIBRARY_PATH", folder.path()), &messages::PAM_TOO_OLD);

    let crowd = lab(&[&run[..], &["--users", "200", "true"]].concat());
    let mut few_files = Command::new("sh");
    few_files.args(["-c", "ulimit -n 90 && exec \"$0\" \"$@\""]).arg(crowd.get_program());
    assert_fails(few_files.args(crowd.get_args()), &messages::FD_LIMIT);
}

/// Runs roster-lab as root of a user namespace, after a script has changed the mounts.
fn mounted(script: &str, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("{script} && exec \"$0\" \"$@\"");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
    command.arg(lab(&[]).get_program()).args(words);
    command
}

#[test]
fn lab_missing_host_directories_have_codes() {
    let folder = tempfile::tempdir().expect("make a directory");
    let (json, png) = (folder.path().join("run.json"), folder.path().join("run.png"));
    let paths = [&json, &png].map(|path| path.to_str().expect("a plain path"));
    let brief = ["command", "--users", "1", "--duration", "1", "--warm-up", "0"];
    let made = run(&[&brief[..], &["--probe", "0", "--json", paths[0], "true"]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let no_fonts = "for fonts in /usr/share/fonts /usr/local/share/fonts; do
         [ ! -d $fonts ] || mount -t tmpfs none $fonts || exit; done";
    for (script, words, message) in [
        (no_fonts, &["compare", paths[0], "--png", paths[1]][..], &messages::FONTS_MISSING),
        (
            "mount -t tmpfs none /proc",
            &["locust", "--port", "0", "--", "--headless"],
            &messages::PROGRAM_PATH_UNKNOWN,
        ),
        ("mount -t tmpfs none /sys", &["trace"], &messages::NO_UPROBES),
    ] {
        assert_fails(&mut mounted(script, words), message);
    }
}
