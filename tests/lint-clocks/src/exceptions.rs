// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of accepted findings. Knows no Rust; `main` compares it with the findings of `clocks`.

/// Accepted findings by file, function and source line, each with a reason.
pub struct Exceptions {
    entries: Vec<Entry>,
}

struct Entry {
    line: usize,
    path: String,
    function: String,
    text: String,
    used: bool,
}

impl Exceptions {
    /// Parses lines ``FILE: FUNCTION: `SOURCE LINE`: REASON`` on files that end with `suffix`; `#` begins
    /// a comment line.
    pub fn parse(text: &str, suffix: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = Entry::parse(index + 1, line).ok_or_else(|| {
                format!(
                    "exceptions: line {}: expected FILE: FUNCTION: `SOURCE LINE`: REASON",
                    index + 1
                )
            })?;
            if entry.path.ends_with(suffix) {
                entries.push(entry);
            }
        }
        Ok(Self { entries })
    }

    /// Whether a finding is accepted. Each entry accepts one finding.
    pub fn accept(&mut self, path: &str, function: &str, text: &str) -> bool {
        let found = self.entries.iter_mut().find(|entry| {
            !entry.used && entry.path == path && entry.function == function && entry.text == text
        });
        found.is_some_and(|entry| {
            entry.used = true;
            true
        })
    }

    /// Line, file and function of each entry that accepted nothing.
    pub fn unused(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        self.entries
            .iter()
            .filter(|entry| !entry.used)
            .map(|entry| (entry.line, entry.path.as_str(), entry.function.as_str()))
    }
}

impl Entry {
    fn parse(line: usize, entry: &str) -> Option<Self> {
        let (place, rest) = entry.split_once(": `")?;
        let (path, function) = place.split_once(": ")?;
        let (text, reason) = rest.rsplit_once("`: ")?;
        let [path, function, text] = [path, function, text].map(str::to_owned);
        (!reason.trim().is_empty()).then_some(Self { line, path, function, text, used: false })
    }
}
