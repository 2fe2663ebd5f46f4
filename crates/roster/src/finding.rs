//! What a diagnosis finds: `roster doctor` and `roster status` print it.

use crate::output::{Colour, Paint};
use serde::Serialize;
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    Ok,
    /// It works, with a drawback.
    Warning,
    /// Some program does not see the snapshot's users, or should not trust it.
    Problem,
}

/// One line of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: FindingLevel,
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

/// A finding that all is well.
pub fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { level: FindingLevel::Ok, check, message: message.into(), advice: None }
}

/// A finding of a drawback.
pub fn warning(
    check: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding {
        level: FindingLevel::Warning,
        check,
        message: message.into(),
        advice: Some(advice.into()),
    }
}

/// A finding of something that does not work.
pub fn problem(
    check: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding {
        level: FindingLevel::Problem,
        check,
        message: message.into(),
        advice: Some(advice.into()),
    }
}

pub fn marked_line(finding: &Finding, paint: Paint) -> String {
    let mark = match finding.level {
        FindingLevel::Ok => paint.text(Colour::Green, "✓"),
        FindingLevel::Warning => paint.text(Colour::Yellow, "!"),
        FindingLevel::Problem => paint.text(Colour::Red, "✗"),
    };
    format!("{mark} {finding}")
}
