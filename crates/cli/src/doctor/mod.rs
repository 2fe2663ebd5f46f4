//! `roster doctor`: what stands between the snapshot and the programs of this host.
//!
//! [`facts`] looks and draws no conclusion, [`judge`] concludes and touches nothing, so that every
//! verdict is a table test. Nothing is changed or repaired here.

mod facts;
mod judge;

use crate::terminal::{Colour, Paint};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// It works, with a drawback.
    Warning,
    /// Some program does not see the snapshot's users, or should not trust it.
    Problem,
}

/// One line of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// What was looked at, for programs that read the JSON.
    pub check: &'static str,
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n    → {advice}"),
            None => Ok(()),
        }
    }
}

/// Examines the tree under `root` and prints the findings. `true`: no problems.
pub fn run(root: &Path, json: bool, out: &mut dyn Write) -> Result<bool> {
    let facts = facts::Facts::gather(root, SystemTime::now())
        .with_context(|| format!("cannot examine {}", root.display()))?;
    let findings = judge::all(&facts.with_lookup(root).with_daemon(root));
    let worst = findings.iter().map(|finding| finding.level).max();
    let well = worst < Some(Level::Problem);
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
    let mut findings = judge::nsswitch_text(nsswitch);
    if let Ok(facts) = facts::Facts::gather(Path::new("/"), SystemTime::now()) {
        findings.extend(judge::module(&facts));
        findings.extend(judge::snapshot(&facts));
    }
    findings.retain(|finding| finding.level > Level::Ok);
    findings
}

/// What keeps programs from using the snapshot that rosterd publishes to `snapshot`. `for_all`: programs of all
/// users are to read it.
pub fn of_files(snapshot: &Path, for_all: bool) -> Vec<Finding> {
    let Ok((snapshot, floor)) = facts::files(snapshot) else { return Vec::new() };
    let mut findings = judge::published(&snapshot, SystemTime::now(), true, for_all);
    if let Some((floor, configured)) = floor {
        findings.extend(judge::floor_of(&floor, configured.as_ref()));
    }
    findings.retain(|finding| finding.level > Level::Ok);
    findings
}

/// A finding with its mark.
pub fn marked(finding: &Finding, paint: Paint) -> String {
    let mark = match finding.level {
        Level::Ok => paint.text(Colour::Green, "✓"),
        Level::Warning => paint.text(Colour::Yellow, "!"),
        Level::Problem => paint.text(Colour::Red, "✗"),
    };
    format!("{mark} {finding}")
}

fn print(findings: &[Finding], paint: Paint, out: &mut dyn Write) -> std::io::Result<()> {
    for finding in findings {
        writeln!(out, "{}", marked(finding, paint))?;
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let counted = |number, what| crate::terminal::counted(number as u64, what);
    match (count(Level::Problem), count(Level::Warning)) {
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
            finding(Level::Ok, "glibc 2.36", None),
            finding(Level::Warning, "nscd is running", Some("stop it")),
            finding(Level::Problem, "no snapshot", Some("compile one")),
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
