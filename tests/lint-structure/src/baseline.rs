// SPDX-License-Identifier: MIT OR Apache-2.0
//! The findings that the tree still has, by list. The baseline only shrinks: a finding that is not in it
//! fails, and so does an entry without a finding.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::finding::{Finding, List};

/// The baseline of a tree, from its root.
pub const PATH: &str = "tests/lint-structure/baseline.toml";

const HEADER: &str = "\
# Findings that the tree still has. roster-lint-structure fails on others, and on entries that no longer
# occur. `cargo run --package roster-lint-structure -- --write-baseline` rewrites this file, and refuses
# if a list would grow. Entries have no paths, but for circles: a move changes none.
";

/// The entries of each list. A list may have an entry several times.
#[derive(Default)]
pub struct Baseline {
    entries: BTreeMap<List, Vec<String>>,
    text: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Name(String),
    Files(Vec<String>),
}

impl Baseline {
    /// Parses the text of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lists: BTreeMap<String, Vec<Entry>> =
            toml::from_str(text).map_err(|e| format!("{PATH}: {e}"))?;
        let mut baseline = Self { entries: BTreeMap::new(), text: text.to_owned() };
        for (name, entries) in lists {
            let list = List::ALL.into_iter().find(|list| list.name() == name);
            let list = list.ok_or_else(|| format!("{PATH}: {name}: unknown list"))?;
            let keys = entries.into_iter().map(|entry| match entry {
                Entry::Name(name) => name,
                Entry::Files(files) => files.join(" "),
            });
            baseline.entries.insert(list, keys.collect());
        }
        Ok(baseline)
    }

    /// The findings that are not in the baseline, then a finding for each entry of `lists` that no longer
    /// occurs.
    pub fn compare(&self, findings: Vec<Finding>, lists: &[List]) -> Vec<Finding> {
        let mut left = self.entries.clone();
        left.retain(|list, _| lists.contains(list));
        let mut rejected = Vec::new();
        for finding in findings {
            let entries = finding.list.and_then(|list| left.get_mut(&list));
            let known = entries.and_then(|entries| {
                let at = entries.iter().position(|entry| *entry == finding.key)?;
                Some(entries.remove(at))
            });
            if known.is_none() {
                rejected.push(finding);
            }
        }
        for (list, entries) in left {
            rejected.extend(entries.into_iter().map(|entry| self.stale(list, entry)));
        }
        rejected
    }

    fn stale(&self, list: List, entry: String) -> Finding {
        let header = format!("{} = [", list.name());
        let written = render_entry(list, &entry);
        let lines = self.text.lines().enumerate().skip_while(|(_, line)| *line != header);
        let found = lines.skip(1).find(|(_, line)| line.trim() == written);
        Finding {
            list: None,
            path: PATH.to_owned(),
            line: found.map_or(1, |(index, _)| index + 1),
            message: format!("{}: {entry} no longer occurs", list.name()),
            key: entry,
            fix: "Remove the entry, or run roster-lint-structure --write-baseline",
            details: Vec::new(),
        }
    }

    /// Takes the entries of `lists` from findings.
    pub fn replace(&mut self, findings: &[Finding], lists: &[List]) {
        for list in lists {
            let of_list = findings.iter().filter(|finding| finding.list == Some(*list));
            let mut keys: Vec<String> = of_list.map(|finding| finding.key.clone()).collect();
            keys.sort();
            self.entries.insert(*list, keys);
        }
    }

    /// The size of a list: its entries; the files in circles, for one circle may fall into several.
    pub fn size(&self, list: List) -> usize {
        let entries = self.entries.get(&list).into_iter().flatten();
        match list {
            List::Circles => entries.map(|entry| entry.split(' ').count()).sum(),
            _ => entries.count(),
        }
    }

    /// The text of the file.
    pub fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        for (list, entries) in &self.entries {
            let _ = write!(text, "\n{} = [\n", list.name());
            for entry in entries {
                let _ = writeln!(text, "    {}", render_entry(*list, entry));
            }
            text.push_str("]\n");
        }
        text
    }
}

fn render_entry(list: List, entry: &str) -> String {
    match list {
        List::Circles => {
            let files: Vec<String> = entry.split(' ').map(|file| format!("{file:?}")).collect();
            format!("[{}],", files.join(", "))
        }
        _ => format!("{entry:?},"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(list: List, key: &str) -> Finding {
        let (path, key) = ("a.rs".to_owned(), key.to_owned());
        let message = "found".to_owned();
        Finding { list: Some(list), key, path, line: 1, message, fix: "Mend it", details: vec![] }
    }

    fn circle_and_twins() -> Vec<Finding> {
        let twin = || finding(List::Types, "sync: Answer");
        vec![finding(List::Circles, "a.rs b.rs"), twin(), twin()]
    }

    fn written() -> Baseline {
        let mut baseline = Baseline::default();
        baseline.replace(&circle_and_twins(), &List::ALL);
        Baseline::parse(&baseline.render()).unwrap()
    }

    #[test]
    fn baseline_accepts_what_it_lists() {
        assert!(written().text.contains("    [\"a.rs\", \"b.rs\"],\n"));
        assert!(written().compare(circle_and_twins(), &List::ALL).is_empty());
        assert_eq!((written().size(List::Circles), written().size(List::Types)), (2, 2));
    }

    #[test]
    fn baseline_rejects_another_twin() {
        let mut findings = circle_and_twins();
        findings.push(finding(List::Types, "sync: Answer"));
        let rejected = written().compare(findings, &List::ALL);
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].render(), "a.rs:1: found. Mend it.\n");
    }

    #[test]
    fn baseline_rejects_stale_entry_with_line() {
        let mut findings = circle_and_twins();
        findings.remove(0);
        assert!(written().compare(Vec::new(), &[]).is_empty());
        let rejected = written().compare(findings, &List::ALL);
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].message, "circles: a.rs b.rs no longer occurs");
        let line = written().text.lines().nth(rejected[0].line - 1).map(str::to_owned);
        assert_eq!(line.as_deref(), Some("    [\"a.rs\", \"b.rs\"],"));
    }

    #[test]
    fn baseline_with_unknown_list_is_error() {
        assert!(Baseline::parse("typos = []").is_err());
    }
}
