//! The list of accepted findings. Knows no Rust; `main` compares it with what `clocks` finds.

/// Accepted findings by file and function, each with a reason.
pub struct Exceptions {
    entries: Vec<Entry>,
}

struct Entry {
    line: usize,
    path: String,
    function: String,
    used: bool,
}

impl Exceptions {
    /// Parses lines `FILE: FUNCTION: REASON`; `#` begins a comment line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.splitn(3, ": ").map(str::trim).collect();
            let [path, function, reason] = fields[..] else {
                return Err(format!(
                    "exceptions: line {}: expected FILE: FUNCTION: REASON",
                    index + 1
                ));
            };
            if reason.is_empty() {
                return Err(format!("exceptions: line {}: the reason is missing", index + 1));
            }
            let (path, function) = (path.to_owned(), function.to_owned());
            entries.push(Entry { line: index + 1, path, function, used: false });
        }
        Ok(Self { entries })
    }

    /// Whether a finding in this function is accepted. Marks the entry as used.
    pub fn accept(&mut self, path: &str, function: &str) -> bool {
        let mut entries = self.entries.iter_mut();
        let found = entries.find(|entry| entry.path == path && entry.function == function);
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
