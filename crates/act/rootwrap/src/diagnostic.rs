//! What is wrong with a configuration or a filter file, where, and what to write instead.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The rest is used; this is not, or most likely not as it was meant.
    Warning,
    /// Nothing can be judged by this policy.
    Error,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or the folder.
    pub file: PathBuf,
    /// Line in it, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead, or to do.
    pub fix: String,
}

impl Diagnostic {
    /// A mistake for which nothing can be judged.
    pub(crate) fn error(
        file: &Path,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        let (what, instead) = (what.into(), instead.into());
        Self { severity: Severity::Error, file: file.to_owned(), line, message: what, fix: instead }
    }

    /// Something that is passed over.
    pub(crate) fn warning(
        file: &Path,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(file, line, what, instead) }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        let warning = if self.severity == Severity::Warning { " warning:" } else { "" };
        write!(f, "{warning} {}; {}", self.message, self.fix)
    }
}
