// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab pam` with the host's PAM and services of the test: reports equal a module's log.

mod common;

use common::{count, number, report, run};
use roster_messages::table::lab as messages;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// PAM services. `counts` accepts the password `secret` and logs each call with its kind. `denies` rejects all logins.
struct Services(TempDir);

impl Services {
    fn new() -> Self {
        let services = Self(tempfile::tempdir().expect("make a directory"));
        let script = services.path("check");
        let text = format!(
            "#!/bin/sh\nread -r password\n[ \"$PAM_TYPE\" != auth ] || [ \"$password\" = secret ] || exit 1\n\
             echo \"$PAM_TYPE $PAM_USER\" >>{}\n",
            services.path("log").display()
        );
        fs::write(&script, text).expect("write the script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it a program");
        let shown = script.display();
        let counts = format!(
            "auth required pam_exec.so expose_authtok quiet {shown}\n\
             account required pam_exec.so quiet {shown}\n\
             session required pam_exec.so quiet {shown}\n"
        );
        fs::write(services.path("counts"), counts).expect("write the service");
        fs::write(services.path("denies"), "auth required pam_deny.so\n")
            .expect("write the service");
        services
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lines(&self, begin: &str) -> u64 {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(begin)).count() as u64
    }

    fn report(&self, service: &str, more: &[&str]) -> (i32, serde_json::Value) {
        let folder = path(self.0.path());
        let what = ["pam", "--service", service, "--config-folder", folder, "--user", "u{0..4}"];
        // The duration permits five logins with four scripts each on a busy machine.
        let brief = ["--duration", "5", "--warm-up", "200ms", "--users", "2"];
        report(&[&what[..], more, &brief].concat())
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn log_ins_are_as_many_as_the_modules_write_down() {
    let services = Services::new();
    let steps = ["--password", "secret", "--steps", "auth,account,session"];
    let (code, report) = services.report("counts", &steps);
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{report}");
    let reported = count(&report, "/requests") + count(&report, "/warm_up_requests");
    assert!(
        count(&report, "/requests") > 0 && number(&report, "/latency_ms/p50") > 0.0,
        "{report}"
    );
    for call in ["auth ", "account ", "open_session ", "close_session "] {
        assert_eq!(services.lines(call), reported, "{call}: {report}");
    }
    for user in 0..5 {
        assert!(services.lines(&format!("auth u{user}")) > 0, "each had a turn");
    }
    // A busy machine has too few processors, but threads that wait for the module are not a limit.
    assert!(!report.to_string().contains(messages::GENERATOR_LIMIT.code), "{report}");
    assert!(!report.to_string().contains("secret"), "passwords stay out of reports");
}

#[test]
fn steps_are_made_that_are_asked_for() {
    let services = Services::new();
    let (_, report) = services.report("counts", &["--password", "secret", "--steps", "account"]);
    assert_eq!(count(&report, "/failures"), 0, "{report}");
    assert!(services.lines("account ") > 0 && services.lines("auth ") == 0, "{report}");
}

#[test]
fn refusals_are_failures_of_pams_kind() {
    let services = Services::new();
    // A missing service falls back to `other`, which the directory lacks too.
    for (service, password, kinds) in [
        ("counts", "wrong", &["PAM 4 PAM_SYSTEM_ERR"][..]),
        ("denies", "secret", &["PAM 7 PAM_AUTH_ERR"]),
        ("none", "secret", &["PAM 4 PAM_SYSTEM_ERR", "PAM 26 PAM_ABORT"]),
    ] {
        let more = ["--password", password, "--steps", "auth"];
        let (code, report) = services.report(service, &more);
        let by_kind = report["failures_by_kind"].as_object().expect("kinds");
        let found = kinds.iter().find_map(|kind| by_kind.get(*kind)?.as_u64());
        assert!(code == 1 && count(&report, "/failures") > 0, "{report}");
        assert_eq!(found, Some(count(&report, "/requests")), "{service}: {report}");
        let codes = report["failure_codes"].as_object().expect("codes");
        assert!(codes.values().all(|code| code == messages::PAM_ERROR.code), "{report}");
    }
    let output = run(&["pam", "--service", "x", "--user", "u"]);
    assert_eq!(output.status.code(), Some(2), "a password is needed");
}
