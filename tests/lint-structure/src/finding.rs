// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finding, and the lists of the baseline that findings may stand in.

/// A list of the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    Circles,
    Functions,
    Structs,
    Types,
    FunctionNames,
    TestNames,
}

/// Something that a check rejects.
pub struct Finding {
    /// The finding's list in the baseline; `None` if the baseline accepts no such finding.
    pub list: Option<List>,
    /// The finding's entry there, without the file: a move changes no entry. A circle is its files.
    pub key: String,
    pub path: String,
    pub line: usize,
    pub message: String,
    pub fix: &'static str,
    /// Further lines, as they are printed.
    pub details: Vec<String>,
}

impl List {
    pub const ALL: [Self; 6] = [
        Self::Circles,
        Self::Functions,
        Self::Structs,
        Self::Types,
        Self::FunctionNames,
        Self::TestNames,
    ];

    /// The list's key in the baseline.
    pub fn name(self) -> &'static str {
        match self {
            Self::Circles => "circles",
            Self::Functions => "functions",
            Self::Structs => "structs",
            Self::Types => "types",
            Self::FunctionNames => "function_names",
            Self::TestNames => "test_names",
        }
    }
}

impl Finding {
    /// A finding that no baseline accepts.
    pub fn new(path: impl Into<String>, line: usize, message: String, fix: &'static str) -> Self {
        let (path, key, details) = (path.into(), String::new(), Vec::new());
        Self { list: None, key, path, line, message, fix, details }
    }

    /// The same finding with an entry in the baseline.
    pub fn listed(self, list: List, key: String) -> Self {
        Self { list: Some(list), key, ..self }
    }

    /// `FILE:LINE: message. Fix.`, and the details below it.
    pub fn render(&self) -> String {
        let mut text = format!("{}:{}: {}. {}.\n", self.path, self.line, self.message, self.fix);
        text.extend(self.details.iter().map(|line| format!("    {line}\n")));
        text
    }
}
