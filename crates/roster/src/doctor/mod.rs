//! `roster doctor`: what stands between the snapshot and the programs of this host.
//!
//! [`collect`] looks and draws no conclusion, [`checks`] concludes and touches nothing, so that every
//! verdict is a table test. Nothing is changed or repaired here.

mod checks;
mod collect;
mod snapshot_checks;

use crate::finding::{Finding, FindingLevel, marked_line};
use crate::output::Paint;
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// Examines the tree under `root` and prints the findings. `true`: no problems.
pub fn run(root: &Path, json: bool, out: &mut dyn Write) -> Result<bool> {
    let facts = collect::HostState::collect(root, SystemTime::now())
        .with_context(|| format!("cannot examine {}", root.display()))?;
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

/// What makes enabling pointless for now: no module, no snapshot, or the file's own lines.
pub fn before_enabling(nsswitch: &str) -> Vec<Finding> {
    let mut findings = checks::nsswitch_text(nsswitch);
    if let Ok(facts) = collect::HostState::collect(Path::new("/"), SystemTime::now()) {
        findings.extend(checks::module(&facts));
        findings.extend(checks::snapshot(&facts));
    }
    findings.retain(|finding| finding.level > FindingLevel::Ok);
    findings
}

/// The findings that keep programs from using `snapshot`, which rosterd publishes by the configuration `config`.
/// `for_all`: programs of all users are to read it.
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

    #[test]
    fn findings_are_marked_counted_and_followed_by_advice() {
        let finding = |level, message: &str, advice: Option<&str>| Finding {
            level,
            check: "test",
            message: message.to_owned(),
            advice: advice.map(str::to_owned),
        };
        let findings = [
            finding(FindingLevel::Ok, "glibc 2.36", None),
            finding(FindingLevel::Warning, "nscd is running", Some("stop it")),
            finding(FindingLevel::Problem, "no snapshot", Some("compile one")),
        ];
        let mut out = Vec::new();
        print(&findings, Paint::plain(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "✓ glibc 2.36\n\
             ! nscd is running\n    → stop it\n\
             ✗ no snapshot\n    → compile one\n\
             \n1 problem and 1 warning.\n"
        );
    }
}
