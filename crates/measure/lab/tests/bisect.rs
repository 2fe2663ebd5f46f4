// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab bisect` with a program that is slow from one release on.

mod common;

use common::{has_code, lab, run};
use roster_messages::table::lab as messages;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Program with the releases 1 to 16. Releases from 11 on take a hundred times as long, and 8 cannot be installed.
struct Product {
    folder: TempDir,
    /// Seconds that a slow release takes: more than a busy machine adds to the fast ones.
    slow: f64,
}

impl Product {
    fn new() -> Self {
        let product = Self { folder: tempfile::tempdir().expect("make a directory"), slow: 4.0 };
        let program = product.path("program");
        let plan = format!(
            "[command]\ncommand = [\"sh\", \"{}\"]\nusers = 1\nduration = 0.5\nwarm-up = 0\nprobe = 0\n",
            program.display()
        );
        fs::write(product.path("plan.toml"), plan).expect("write the plan");
        product
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bisect(&self, good: &str, bad: &str) -> (Option<i32>, String) {
        let cmd = format!(
            "echo {{version}} >>{log}; [ {{version}} != 8 ] || exit 1
             [ {{version}} -ge 11 ] && echo sleep {slow} >{program} || echo sleep 0.04 >{program}",
            log = self.path("installed").display(),
            program = self.path("program").display(),
            slow = self.slow,
        );
        let versions: Vec<String> = (1..=16).map(|version| version.to_string()).collect();
        self.run_bisect(&[
            "--versions",
            &versions.join(","),
            "--good",
            good,
            "--bad",
            bad,
            "--cmd",
            &cmd,
            "--figure",
            "p50",
        ])
    }

    fn run_bisect(&self, options: &[&str]) -> (Option<i32>, String) {
        let (plan, state) = (self.path("plan.toml"), self.path("state.json"));
        let files = ["--plan", path(&plan), "--state", path(&state)];
        let output = run(&[&["bisect"], options, &files].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    fn installed(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("installed")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn bisect_finds_changed_release_measuring_once() {
    let product = Product::new();
    let (code, said) = product.bisect("1", "16");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("The figure changed with 11."), "{said}");
    let installed = product.installed();
    assert!(installed.len() <= 8 && installed.contains(&"8".to_owned()), "{installed:?}");
    assert!(said.contains("untestable"), "{said}");
    assert!(has_code(&said, &messages::INSTALL_FAILED), "{said}");
    // A repeated command installs nothing and has the same result.
    let (code, again) = product.bisect("1", "16");
    assert!(code == Some(0) && again.contains("The figure changed with 11."), "{again}");
    assert_eq!(product.installed(), installed);
    // An interrupted bisection continues from its state. Here only the last release is unknown.
    let text = fs::read_to_string(product.path("state.json")).expect("the state");
    let mut state: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    state["known"].as_object_mut().expect("releases").remove("11");
    fs::write(product.path("state.json"), state.to_string()).expect("write the state");
    let (code, again) = product.bisect("1", "16");
    assert!(code == Some(0) && again.contains("The figure changed with 11."), "{again}");
    assert_eq!(product.installed().len(), installed.len() + 1);
    let (code, said) = product.bisect("2", "16");
    assert!(code == Some(1) && has_code(&said, &messages::BISECT_STATE_OTHER), "{said}");
}

#[test]
fn releases_that_do_not_differ_and_one_that_cannot_be_tested_are_told() {
    let product = Product::new();
    let plan = fs::read_to_string(product.path("plan.toml")).expect("the plan");
    let longer = plan.replace("duration = 0.5", "duration = 12");
    fs::write(product.path("plan.toml"), longer).expect("write the plan");
    let (code, said) = product.bisect("12", "14");
    assert!(code == Some(1) && has_code(&said, &messages::FIGURES_TOO_CLOSE), "{said}");
    fs::remove_file(product.path("state.json")).expect("there is one");
    let (code, said) = product.bisect("8", "16");
    assert!(code == Some(1) && said.contains("8: could not be tested"), "{said}");
    assert!(has_code(&said, &messages::VERSION_UNTESTABLE), "{said}");
    let (code, said) = product.bisect("1", "99");
    assert!(code == Some(1) && said.contains("--bad 99: not in --versions"), "{said}");
    assert!(has_code(&said, &messages::VERSION_NOT_LISTED), "{said}");
}

#[test]
fn a_release_whose_requests_fail_at_once_is_not_a_fast_one() {
    let product = Product::new();
    // In release 2, 19 of 20 requests fail at once.
    let plan = format!(
        "[command]\ncommand = [\"sh\", \"{}\", \"{{n}}\"]\nusers = 1\nduration = 0.6\nwarm-up = 0\n\
         probe = 0\n",
        product.path("program").display()
    );
    fs::write(product.path("plan.toml"), plan).expect("write the plan");
    let program = product.path("program");
    let program = program.display();
    let cmd = format!(
        "[ {{version}} -ge 3 ] && echo sleep 0.4 >{program} || echo sleep 0.04 >{program}
         [ {{version}} != 2 ] || echo '[ $(($1 % 20)) = 7 ] || exit 1' >{program}"
    );
    let said =
        product.run_bisect(&["--versions", "1,2,3", "--good", "1", "--bad", "3", "--cmd", &cmd]).1;
    assert!(said.contains("2: not measured: 9"), "{said}");
    assert!(said.contains("of the requests failed: exit code 1 ["), "{said}");
    assert!(has_code(&said, &messages::TOO_MANY_FAILED), "{said}");
    assert!(said.contains("changed with one of 2, 3"), "{said}");
}

#[test]
fn bisect_invalid_options_have_codes() {
    let product = Product::new();
    let many = product.path("versions");
    let lines: String = (0..10_001).map(|version| format!("{version}\n")).collect();
    fs::write(&many, lines).expect("write the releases");
    let many = format!("@{}", path(&many));
    for (versions, bad, cmd, message) in [
        ("1,2", "2", "true", &messages::VERSION_PLACEHOLDER),
        (&many, "2", "echo {version}", &messages::TOO_MANY_VERSIONS),
        ("1,$(id)", "1", "echo {version}", &messages::VERSION_CHARACTERS),
        ("1,2", "1", "echo {version}", &messages::VERSIONS_EQUAL),
    ] {
        let options = ["--versions", versions, "--good", "1", "--bad", bad, "--cmd", cmd];
        let (code, said) = product.run_bisect(&options);
        assert!(code == Some(1) && has_code(&said, message), "{message}: {said}");
    }
    fs::write(product.path("state.json"), "{}").expect("write the state");
    let options = ["--versions", "1,2", "--good", "1", "--bad", "2", "--cmd", "echo {version}"];
    let (code, said) = product.run_bisect(&options);
    assert!(code == Some(1) && has_code(&said, &messages::BISECT_STATE_FORMAT), "{said}");
}

#[test]
fn bisect_release_without_figure_has_code() {
    let product = Product::new();
    let quick =
        "[command]\ncommand = [\"true\"]\nduration = 1\nwarm-up = 0\nprobe = 0\nusers = 1\n";
    // A signal ends the run, as Ctrl-C does.
    let killed = quick.replace("\"true\"", "\"sh\", \"-c\", \"kill -INT $PPID; sleep 1\"");
    let killed = killed.replace("duration = 1", "duration = 60");
    let endless = ["--cmd", "sleep 600 # {version}", "--cmd-timeout", "100ms"];
    let install = ["--cmd", "true {version}"];
    for (plan, options, message) in [
        (quick, &endless[..], &messages::INSTALL_TIMEOUT),
        ("[command]\n", &install, &messages::PLAN_FAILED),
        (&killed, &install, &messages::BISECT_INTERRUPTED),
        (quick, &[&install[..], &["--figure", "server-cpu"]].concat(), &messages::FIGURE_MISSING),
    ] {
        fs::write(product.path("plan.toml"), plan).expect("write the plan");
        let _ = fs::remove_file(product.path("state.json"));
        let versions = ["--versions", "1,2", "--good", "1", "--bad", "2"];
        let (code, said) = product.run_bisect(&[&versions[..], options].concat());
        assert!(code == Some(1) && has_code(&said, message), "{message}: {said}");
    }
    let (plan, state) = (product.path("plan.toml"), product.path("state.json"));
    let _ = fs::remove_file(&state);
    let mut without_shell = lab(&["bisect", "--versions", "1,2", "--good", "1", "--bad", "2"]);
    without_shell.args(install).arg("--plan").arg(plan).arg("--state").arg(state);
    let output = without_shell.env("PATH", "/nowhere").output().expect("start");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(has_code(&said, &messages::SHELL_NOT_STARTED), "{said}");
}
