// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster doctor`: finds the faults that keep programs of this host from the snapshot. [`collect`] reads the host and
//! evaluates nothing. [`checks`] evaluates and reads nothing, so that each finding has a table test. No module changes
//! the host.

mod checks;
mod collect;
mod kernel_features;
mod snapshot_checks;

use crate::finding::{Finding, FindingLevel, marked_line};
use crate::output::Paint;
use anyhow::Result;
use roster_messages::CodedError;
use roster_messages::table::tools;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// Examines the tree under `root` and prints the findings. Returns whether no finding is a problem.
pub fn run(root: &Path, json: bool, out: &mut dyn Write) -> Result<bool> {
    let facts = collect::HostState::collect(root, SystemTime::now()).map_err(|error| {
        let text = format!("{}: cannot be examined", root.display());
        CodedError::new(&tools::ROOT_NOT_EXAMINED, text).caused_by(error)
    })?;
    let findings = checks::check_all(&facts.with_lookup(root).with_daemon(root));
    let worst = findings.iter().map(|finding| finding.level).max();
    let well = worst < Some(FindingLevel::Problem);
    if json {
        let report = json!({"ok": well, "findings": findings});
        writeln!(out, "{report:#}")?;
    } else {
        print(&findings, Paint::stdout(), out)?;
    }
    Ok(well)
}

/// Returns the findings that keep programs from the snapshot after `roster enable`: about the module, the snapshot and
/// the lines of nsswitch.conf.
pub fn before_enabling(nsswitch: &str) -> Vec<Finding> {
    let mut findings = checks::nsswitch_text(nsswitch);
    if let Ok(facts) = collect::HostState::collect(Path::new("/"), SystemTime::now()) {
        findings.extend(checks::module(&facts));
        findings.extend(checks::snapshot(&facts));
    }
    findings.retain(|finding| finding.level > FindingLevel::Ok);
    findings
}

/// Returns the findings that keep programs from `snapshot`, which rosterd publishes with the configuration `config`.
/// `for_all`: programs of all users must be able to read it.
pub fn check_files(snapshot: &Path, config: &Path, for_all: bool) -> Vec<Finding> {
    let Ok((snapshot, floors)) = collect::snapshot_and_floors(snapshot, config) else {
        return Vec::new();
    };
    let mut findings = snapshot_checks::check_snapshot(&snapshot, SystemTime::now(), true, for_all);
    if let Some(floors) = floors {
        findings.extend(checks::check_floor(&floors, config));
    }
    findings.retain(|finding| finding.level > FindingLevel::Ok);
    findings
}

fn print(findings: &[Finding], paint: Paint, out: &mut dyn Write) -> std::io::Result<()> {
    for finding in findings {
        writeln!(out, "{}", marked_line(finding, paint))?;
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let counted = |number, what| crate::output::count_with_noun(number as u64, what);
    match (count(FindingLevel::Problem), count(FindingLevel::Warning)) {
        (0, 0) => writeln!(out, "\nAll well."),
        (0, warnings) => writeln!(out, "\nIt works; {}.", counted(warnings, "warning")),
        (problems, 0) => writeln!(out, "\n{}.", counted(problems, "problem")),
        (problems, warnings) => writeln!(
            out,
            "\n{} and {}.",
            counted(problems, "problem"),
            counted(warnings, "warning")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{ok, problem, warning};
    use roster_messages::table::host;

    #[test]
    fn doctor_findings_have_mark_fix_and_code() {
        let findings = [
            ok("test", "glibc 2.36"),
            warning("test", &host::NSCD_CACHES_REPLIES, "nscd is running").advice("Stop it."),
            problem("test", &host::SERVICE_NOT_NAMED, "roster is missing"),
        ];
        let mut out = Vec::new();
        print(&findings, Paint::plain(), &mut out).unwrap();
        let json = serde_json::to_value(&findings[2]).unwrap();
        let fields = json!({"level": "problem", "check": "test", "code": "RST-2006",
            "message": "roster is missing", "advice": "Run `roster enable`."});
        assert_eq!(json, fields);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "✓ glibc 2.36\n\
             ! nscd is running\n    → Stop it. [RST-2056]\n\
             ✗ roster is missing\n    → Run `roster enable`. [RST-2006]\n\
             \n1 problem and 1 warning.\n"
        );
    }
}
