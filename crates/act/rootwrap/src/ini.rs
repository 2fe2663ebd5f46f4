// SPDX-License-Identifier: MIT OR Apache-2.0
//! A parser of Python's `RawConfigParser` format, with the line of each entry. Its callers give the entries their
//! meaning.
//!
//! - An indented line continues the value above it, with comments and empty lines between.
//! - `#` and `;` begin a comment only at the start of a line.
//! - The first `=` or `:` ends a name.
//! - Names are converted to lower case, and names of sections are not.
//! - Text behind the last `]` of a section's line is ignored.
//! - Each section inherits the entries of `[DEFAULT]`.

use crate::diagnostic::error;
use crate::python_strings::{is_space, strip};
use roster_messages::table::commands;
use roster_messages::{Diagnostic, Message};
use std::collections::HashMap;
use std::path::Path;

/// Limit of a file: a hundred times the largest of OpenStack.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;

/// Limit of reported syntax errors.
const SYNTAX_ERRORS_MAX: usize = 20;

/// Handling of a repeated name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DuplicateHandling {
    /// An error, as in rootwrap.conf.
    Refused,
    /// The last value replaces the first one, as in filter files.
    LastWins,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IniEntry {
    /// The name in lower case.
    pub name: String,
    /// The lines, joined by newlines.
    pub value: String,
    /// The first line of the value, from 1.
    pub line: usize,
}

/// Entries in the order of their first occurrence.
#[derive(Clone, Debug, Default)]
pub(crate) struct IniSection {
    entries: Vec<IniEntry>,
    positions: HashMap<String, usize>,
}

impl IniSection {
    fn set(&mut self, entry: IniEntry) -> usize {
        if let Some(&position) = self.positions.get(&entry.name) {
            self.entries[position] = entry;
            return position;
        }
        self.positions.insert(entry.name.clone(), self.entries.len());
        self.entries.push(entry);
        self.entries.len() - 1
    }

    pub fn get(&self, name: &str) -> Option<&IniEntry> {
        self.positions.get(name).map(|&position| &self.entries[position])
    }
}

/// A parsed file.
#[derive(Clone, Debug, Default)]
pub(crate) struct IniFile {
    /// The section `[DEFAULT]`.
    pub defaults: IniSection,
    sections: HashMap<String, IniSection>,
}

impl IniFile {
    /// Returns the entries of a section with inherited ones first. An own value replaces an inherited one. `None`: the
    /// section does not exist.
    pub fn items(&self, section: &str) -> Option<Vec<IniEntry>> {
        let mut items = self.defaults.clone();
        for entry in &self.sections.get(section)?.entries {
            items.set(entry.clone());
        }
        Some(items.entries)
    }
}

/// The present section.
enum ReaderPosition {
    Nowhere,
    Defaults,
    Section(String),
}

/// Parses a file. The errors are all faulty lines.
pub(crate) fn parse(
    file: &Path,
    bytes: &[u8],
    duplicates: DuplicateHandling,
) -> Result<IniFile, Vec<Diagnostic>> {
    let text = decode_utf8(file, bytes).map_err(|problem| vec![*problem])?;
    let mut reader = IniReader {
        file,
        duplicates,
        ini: IniFile::default(),
        position: ReaderPosition::Nowhere,
        open: None,
        indent: 0,
        seen_sections: HashMap::new(),
        seen_names: HashMap::new(),
        syntax_errors: Vec::new(),
    };
    for (number, line) in (1..).zip(lines(text)) {
        if let Err(fatal) = reader.line(number, line) {
            reader.syntax_errors.push(*fatal);
            break;
        }
    }
    reader.finish()
}

fn decode_utf8<'b>(file: &Path, bytes: &'b [u8]) -> Result<&'b str, Box<Diagnostic>> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(error(&commands::POLICY_TOO_LARGE, file, 0, "larger than 1 MiB").into());
    }
    str::from_utf8(bytes).map_err(|invalid| {
        let line = lines(&String::from_utf8_lossy(&bytes[..invalid.valid_up_to()])).count().max(1);
        error(&commands::POLICY_NOT_UTF8, file, line, "not UTF-8").into()
    })
}

/// Splits lines as Python's text files do: at `\n`, `\r` or both.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.find(['\n', '\r']) else {
            return Some(std::mem::take(&mut rest));
        };
        let line = &rest[..end];
        let ending = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + ending..];
        Some(line)
    })
}

struct IniReader<'f> {
    file: &'f Path,
    duplicates: DuplicateHandling,
    ini: IniFile,
    position: ReaderPosition,
    /// The entry that an indented line continues.
    open: Option<usize>,
    /// Indentation of the entry's first line.
    indent: usize,
    seen_sections: HashMap<String, usize>,
    seen_names: HashMap<(String, String), usize>,
    syntax_errors: Vec<Diagnostic>,
}

impl IniReader<'_> {
    /// Parses a line. An error ends the parser, and syntax errors are collected.
    fn line(&mut self, number: usize, line: &str) -> Result<(), Box<Diagnostic>> {
        let content = strip(line);
        if content.starts_with(['#', ';']) {
            return Ok(());
        }
        if content.is_empty() {
            self.continue_value("");
            return Ok(());
        }
        let indent = line.chars().take_while(|&char| is_space(char)).count();
        if indent > self.indent && self.continue_value(content) {
            return Ok(());
        }
        self.indent = indent;
        match header(content) {
            Some(name) => self.section(number, name),
            None => self.entry(number, content),
        }
    }

    /// Adds a line to the open entry, if there is one.
    fn continue_value(&mut self, content: &str) -> bool {
        let Some(position) = self.open else { return false };
        let Some(section) = self.current() else { return false };
        let value = &mut section.entries[position].value;
        value.push('\n');
        value.push_str(content);
        true
    }

    fn current(&mut self) -> Option<&mut IniSection> {
        match &self.position {
            ReaderPosition::Nowhere => None,
            ReaderPosition::Defaults => Some(&mut self.ini.defaults),
            ReaderPosition::Section(name) => self.ini.sections.get_mut(name),
        }
    }

    fn section(&mut self, number: usize, name: &str) -> Result<(), Box<Diagnostic>> {
        self.open = None;
        if name == "DEFAULT" {
            self.position = ReaderPosition::Defaults;
            return Ok(());
        }
        if let Some(first) = self.seen_sections.get(name)
            && self.duplicates == DuplicateHandling::Refused
        {
            let text = format!("section [{name}] is already in line {first}");
            return Err(error(&commands::INI_DUPLICATE_SECTION, self.file, number, text).into());
        }
        self.seen_sections.insert(name.to_owned(), number);
        self.ini.sections.entry(name.to_owned()).or_default();
        self.position = ReaderPosition::Section(name.to_owned());
        Ok(())
    }

    fn entry(&mut self, number: usize, content: &str) -> Result<(), Box<Diagnostic>> {
        let section_name = match &self.position {
            ReaderPosition::Nowhere => {
                let text = "line before the first section";
                let message = &commands::INI_LINE_BEFORE_SECTION;
                return Err(error(message, self.file, number, text).into());
            }
            ReaderPosition::Defaults => "DEFAULT".to_owned(),
            ReaderPosition::Section(name) => name.clone(),
        };
        let Some((name, value)) = content.split_once(['=', ':']) else {
            let text = "line with neither = nor :";
            self.add_syntax_error(&commands::INI_LINE_WITHOUT_SEPARATOR, number, text);
            return Ok(());
        };
        let name = strip(name).to_lowercase();
        if name.is_empty() {
            self.add_syntax_error(&commands::INI_LINE_WITHOUT_NAME, number, "line without a name");
            return Ok(());
        }
        let key = (section_name, name);
        if let Some(first) = self.seen_names.get(&key)
            && self.duplicates == DuplicateHandling::Refused
        {
            let text = format!("{} is already in line {first}", key.1);
            return Err(error(&commands::INI_DUPLICATE_NAME, self.file, number, text).into());
        }
        let entry = IniEntry { name: key.1.clone(), value: strip(value).to_owned(), line: number };
        self.seen_names.insert(key, number);
        self.open = self.current().map(|section| section.set(entry));
        Ok(())
    }

    fn add_syntax_error(&mut self, message: &'static Message, number: usize, text: &str) {
        if self.syntax_errors.len() < SYNTAX_ERRORS_MAX {
            self.syntax_errors.push(error(message, self.file, number, text));
        }
    }

    fn finish(mut self) -> Result<IniFile, Vec<Diagnostic>> {
        if !self.syntax_errors.is_empty() {
            return Err(self.syntax_errors);
        }
        let sections = self.ini.sections.values_mut().chain([&mut self.ini.defaults]);
        for entry in sections.flat_map(|section| &mut section.entries) {
            let end = entry.value.trim_end_matches(is_space).len();
            entry.value.truncate(end);
        }
        Ok(self.ini)
    }
}

/// Returns the name in a section's line: all up to its last `]`.
fn header(content: &str) -> Option<&str> {
    let (name, _) = content.strip_prefix('[')?.rsplit_once(']')?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String, usize)>, Vec<usize>> {
        match parse(Path::new("f"), text.as_bytes(), DuplicateHandling::LastWins) {
            Ok(ini) => {
                let items = ini.items("Filters").unwrap_or_default();
                Ok(items.into_iter().map(|entry| (entry.name, entry.value, entry.line)).collect())
            }
            Err(problems) => Err(problems.iter().map(|problem| problem.line).collect()),
        }
    }

    fn one(text: &str) -> String {
        read(&format!("[Filters]\n{text}")).unwrap().remove(0).1
    }

    #[test]
    fn either_sign_ends_a_name_and_case_is_folded() {
        let entries = read("[Filters]\nKill = a:b\nx: a=b\n").unwrap();
        assert_eq!(entries[0], ("kill".into(), "a:b".into(), 2));
        assert_eq!(entries[1], ("x".into(), "a=b".into(), 3));
    }

    #[test]
    fn an_indented_line_goes_on_with_the_value_above_it() {
        assert_eq!(one("a: 1,\n  2\n# no\n\n  3\n\n"), "1,\n2\n\n3");
        assert_eq!(one("a: 1\r\n\t2\rb: 3"), "1\n2");
        // A # behind a value does not begin a comment.
        assert_eq!(one("a: 1 # 2 ; 3"), "1 # 2 ; 3");
    }

    #[test]
    fn an_indented_first_line_of_a_section_is_an_entry() {
        assert_eq!(read("[Filters]\n  a: 1\n  b: 2\n").unwrap().len(), 2);
    }

    #[test]
    fn defaults_show_through_and_the_last_of_two_takes_the_first_place() {
        let text = "[DEFAULT]\na: 1\nb: 2\n[Filters] x\nc: 3\nb: 4\nc: 5\n[filters]\nd: 6\n";
        let entries = read(text).unwrap();
        let pairs: Vec<_> = entries.iter().map(|(name, value, _)| (&**name, &**value)).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "4"), ("c", "5")]);
        assert_eq!(entries[2].2, 7);
    }

    #[test]
    fn every_line_that_says_nothing_is_told() {
        assert_eq!(read("[Filters]\nnothing\na: 1\n= 2\n"), Err(vec![2, 4]));
        assert_eq!(read("a: 1\n"), Err(vec![1]));
        assert_eq!(read("\u{feff}[Filters]\n"), Err(vec![1]));
        let problems = parse(Path::new("f"), b"[Filters]\na: \xff\n", DuplicateHandling::LastWins)
            .unwrap_err();
        assert_eq!((problems[0].message, problems[0].line), (&commands::POLICY_NOT_UTF8, 2));
    }

    #[test]
    fn twice_the_same_is_refused_where_it_is_to_be() {
        let refused = |text: &str| {
            let result = parse(Path::new("f"), text.as_bytes(), DuplicateHandling::Refused);
            result.map(|_| ()).map_err(|problems| problems[0].line)
        };
        assert_eq!(refused("[DEFAULT]\na: 1\n[DEFAULT]\nb: 2\n"), Ok(()));
        assert_eq!(refused("[DEFAULT]\na: 1\n[DEFAULT]\nA: 2\n"), Err(4));
        assert_eq!(refused("[x]\n[x]\n"), Err(2));
    }

    #[test]
    fn ini_faulty_file_has_code() {
        let large = "#".repeat(FILE_BYTES_MAX + 1);
        for (text, message, line) in [
            ("a: 1\n", &commands::INI_LINE_BEFORE_SECTION, 1),
            ("[x]\nnothing\n", &commands::INI_LINE_WITHOUT_SEPARATOR, 2),
            ("[x]\n= 2\n", &commands::INI_LINE_WITHOUT_NAME, 2),
            ("[x]\n[x]\n", &commands::INI_DUPLICATE_SECTION, 2),
            ("[x]\na: 1\nA: 2\n", &commands::INI_DUPLICATE_NAME, 3),
            (&*large, &commands::POLICY_TOO_LARGE, 0),
        ] {
            let problems =
                parse(Path::new("f"), text.as_bytes(), DuplicateHandling::Refused).unwrap_err();
            let [problem] = &problems[..] else { panic!("{text:?}: {problems:?}") };
            assert_eq!((problem.message, problem.line), (message, line));
        }
    }
}
