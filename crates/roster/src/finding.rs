// SPDX-License-Identifier: MIT OR Apache-2.0
//! The findings of `roster doctor` and `roster status`. Checks make them; this module formats them.

use crate::output::{Colour, Paint};
use roster_messages::{CodedError, Message};
use serde::{Serialize, Serializer};
use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    Ok,
    /// The part works, with a drawback.
    Warning,
    /// Programs do not see the users of the snapshot, or should not trust it.
    Problem,
}

/// One finding. Its `Display` is the text, and for a warning or problem a second line with fix and code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: FindingLevel,
    /// The check, for programs that read the JSON.
    pub check: &'static str,
    /// The row of the table. `None` at level [`Ok`](FindingLevel::Ok).
    pub message: Option<&'static Message>,
    pub text: String,
    /// The fix with the values at hand, a sentence. `None`: the table's.
    pub advice: Option<String>,
}

impl Finding {
    /// Replaces the table's fix.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Returns the fix with the values at hand, or the table's. `None` at level [`Ok`](FindingLevel::Ok).
    pub fn fix(&self) -> Option<&str> {
        self.advice.as_deref().or(self.message.map(|message| message.fix))
    }

    /// Returns the problem of a request that failed. `otherwise` is the row of an error without a code.
    pub fn of_error(
        check: &'static str,
        error: &anyhow::Error,
        otherwise: &'static Message,
    ) -> Self {
        let Some(error) = error.downcast_ref::<CodedError>() else {
            return problem(check, otherwise, format!("{error:#}"));
        };
        let source = error.source.as_ref().map_or(String::new(), |source| format!(": {source}"));
        let text = format!("{}{source}", error.text);
        Self { advice: error.fix.clone(), ..problem(check, error.message, text) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match (self.fix(), self.message) {
            (Some(fix), Some(message)) => write!(f, "\n    → {fix} [{message}]"),
            _ => Ok(()),
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'f> {
            level: FindingLevel,
            check: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            code: Option<&'static str>,
            message: &'f str,
            #[serde(skip_serializing_if = "Option::is_none")]
            advice: Option<&'f str>,
        }
        let code = self.message.map(|message| message.code);
        let (message, advice) = (&*self.text, self.fix());
        Fields { level: self.level, check: self.check, code, message, advice }.serialize(serializer)
    }
}

/// Returns a finding without a fault.
pub fn ok(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { level: FindingLevel::Ok, check, message: None, text: text.into(), advice: None }
}

/// Returns the finding of a drawback.
pub fn warning(check: &'static str, message: &'static Message, text: impl Into<String>) -> Finding {
    Finding { level: FindingLevel::Warning, message: Some(message), ..ok(check, text) }
}

/// Returns the finding of a fault.
pub fn problem(check: &'static str, message: &'static Message, text: impl Into<String>) -> Finding {
    Finding { level: FindingLevel::Problem, ..warning(check, message, text) }
}

/// Splits the code off a line of roster nscd, or off an error of a role: `passwd: no map [RST-2057]`.
pub fn split_code(text: &str) -> (&str, Option<&'static Message>) {
    let split = || {
        let (text, code) = text.strip_suffix(']')?.rsplit_once(" [")?;
        Some((text, Some(roster_messages::find(code)?)))
    };
    split().unwrap_or((text, None))
}

/// Returns the finding with a mark for its level.
pub fn marked_line(finding: &Finding, paint: Paint) -> String {
    let mark = match finding.level {
        FindingLevel::Ok => paint.text(Colour::Green, "✓"),
        FindingLevel::Warning => paint.text(Colour::Yellow, "!"),
        FindingLevel::Problem => paint.text(Colour::Red, "✗"),
    };
    format!("{mark} {finding}")
}
