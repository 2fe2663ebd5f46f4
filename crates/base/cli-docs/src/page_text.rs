// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with the prose of `--help` and of man pages, which programs include.
//!
//! A line `== NAME` begins a page. Lines before the first belong to the page without a name. A line without indentation, with
//! a colon at its end, begins a section. The blocks of a section are separate paragraphs:
//!
//! ```text
//! Files:
//!   /etc/tool.conf
//!       The meaning of the term above, on as many lines as it takes.
//!   /etc/other.conf
//!       Its meaning.
//!
//!   A paragraph: lines without a meaning below them.
//!
//!       Text as it is, such as an example of a file.
//! ```
//!
//! A paragraph that names terms of the page `shared`, with commas between them, stands for these terms.

use crate::STYLES;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::fmt::Write as _;

/// The width of a line in `--help`. clap does not wrap these lines.
const WIDTH: usize = 74;
const TERM_INDENT: &str = "  ";
const TEXT_INDENT: &str = "      ";
const SHARED: &str = "shared";

/// A part of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextBlock {
    /// A term and its meaning.
    Term(String, String),
    /// Text that is wrapped.
    Paragraph(String),
    /// Text that keeps its lines.
    Literal(String),
}

/// A section of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSection {
    /// The title.
    pub title: String,
    /// The text below it.
    pub blocks: Vec<TextBlock>,
}

/// The end of `--help` of a page.
#[must_use]
pub fn after_help(file: &str, page: &str) -> String {
    let style = STYLES.get_header();
    let mut text = String::new();
    for section in page_sections(file, page) {
        let _ = writeln!(text, "{style}{}:{style:#}", section.title);
        section.write_help(&mut text);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    // clap takes {n} for the end of a line. An empty style between the characters prevents that.
    text.replace("{n}", "{\x1b[0mn}")
}

/// The sections of a page in the order of man pages; none if the file has no such page.
#[must_use]
pub fn man_sections(file: &str, page: &str) -> Vec<PageSection> {
    let mut sections = page_sections(file, page);
    sections.sort_by_key(|section| match &*section.title {
        "See also" => 2,
        "Examples" => 1,
        _ => 0,
    });
    sections
}

fn page_sections(file: &str, page: &str) -> Vec<PageSection> {
    let sections = parse(page_lines(file, page));
    let shared = parse(page_lines(file, SHARED));
    let shared: Vec<TextBlock> = shared.into_iter().flat_map(|section| section.blocks).collect();
    let expand = |section: PageSection| {
        let blocks = section.blocks.into_iter().flat_map(|block| expand(block, &shared));
        PageSection { title: section.title, blocks: blocks.collect() }
    };
    sections.into_iter().map(expand).collect()
}

/// The names of the pages in a file.
pub fn page_names(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter_map(|line| line.strip_prefix("== ")).filter(|name| *name != SHARED)
}

fn page_lines<'f>(file: &'f str, page: &'f str) -> impl Iterator<Item = &'f str> {
    let mut current = "";
    file.lines().filter(move |line| {
        let name = line.strip_prefix("== ");
        current = name.unwrap_or(current);
        name.is_none() && current == page
    })
}

fn expand(block: TextBlock, shared: &[TextBlock]) -> Vec<TextBlock> {
    let TextBlock::Paragraph(text) = &block else { return vec![block] };
    let find = |name: &str| {
        shared.iter().find(|block| matches!(block, TextBlock::Term(term, _) if term == name))
    };
    let found: Option<Vec<_>> = text.split(", ").map(|name| find(name).cloned()).collect();
    found.unwrap_or_else(|| vec![block])
}

fn parse<'f>(lines: impl Iterator<Item = &'f str>) -> Vec<PageSection> {
    let mut sections: Vec<PageSection> = Vec::new();
    let (mut term, mut text): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // The empty line ends the last block.
    for line in lines.chain([""]) {
        if let Some(line) = line.strip_prefix(TEXT_INDENT) {
            text.push(line);
            continue;
        }
        let is_end = !line.starts_with(TERM_INDENT) || !text.is_empty();
        if is_end && let Some(section) = sections.last_mut() {
            match (section.blocks.last_mut(), block(&term, &text)) {
                (Some(TextBlock::Literal(before)), Some(TextBlock::Literal(text))) => {
                    *before += &format!("\n\n{text}");
                }
                (_, block) => section.blocks.extend(block),
            }
            (term, text) = (Vec::new(), Vec::new());
        }
        if let Some(line) = line.strip_prefix(TERM_INDENT) {
            term.push(line);
        } else if let Some(title) = line.strip_suffix(':') {
            sections.push(PageSection { title: title.to_owned(), blocks: Vec::new() });
        } else {
            debug_assert!(line.is_empty(), "unknown line {line:?} in a page");
        }
    }
    sections
}

fn block(term: &[&str], text: &[&str]) -> Option<TextBlock> {
    match (term, text) {
        ([], []) => None,
        ([], text) => Some(TextBlock::Literal(text.join("\n"))),
        (paragraph, []) => Some(TextBlock::Paragraph(paragraph.join(" "))),
        (term, text) => Some(TextBlock::Term(term.join("\n"), text.join(" "))),
    }
}

fn wrap_text(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl PageSection {
    /// Adds the section to the end of `--help`.
    fn write_help(&self, text: &mut String) {
        for block in &self.blocks {
            let (lead, meaning) = match block {
                TextBlock::Term(term, meaning) => (format!("{TERM_INDENT}{term}"), meaning),
                TextBlock::Paragraph(paragraph) => {
                    for line in wrap_text(paragraph) {
                        let _ = writeln!(text, "{TERM_INDENT}{line}");
                    }
                    continue;
                }
                TextBlock::Literal(_) => continue,
            };
            let mut lines = wrap_text(meaning).into_iter();
            if lead.len() < TEXT_INDENT.len() {
                let first = lines.next().unwrap_or_default();
                let _ = writeln!(text, "{lead:<width$}{first}", width = TEXT_INDENT.len());
            } else {
                let _ = writeln!(text, "{}", lead.replace('\n', "\n  "));
            }
            for line in lines {
                let _ = writeln!(text, "{TEXT_INDENT}{line}");
            }
        }
    }

    /// Adds the section to a man page.
    pub fn write_roff(&self, roff: &mut Roff) {
        roff.control("SH", [self.title.to_uppercase().as_str()]);
        let is_examples = self.title == "Examples";
        let style: fn(&str) -> Inline =
            if self.title == "Files" { |term| italic(term) } else { |term| bold(term) };
        for (number, block) in self.blocks.iter().enumerate() {
            match block {
                TextBlock::Term(command, meaning) if is_examples => {
                    roff.control("PP", []);
                    roff.text([roman(meaning)]);
                    write_literal(roff, bold(command));
                }
                TextBlock::Term(term, meaning) => {
                    roff.control("TP", []);
                    roff.text([style(term)]);
                    roff.text([roman(meaning)]);
                }
                TextBlock::Paragraph(paragraph) => {
                    // lexgrog(1) reads the first paragraph of NAME, and no macro before it.
                    if number > 0 {
                        roff.control("PP", []);
                    }
                    roff.text([roman(paragraph)]);
                }
                TextBlock::Literal(text) => write_literal(roff, roman(text)),
            }
        }
    }
}

fn write_literal(roff: &mut Roff, text: Inline) {
    roff.control("PP", []);
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    roff.text([text]);
    roff.control("fi", []);
    roff.control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
Files:
  /etc/a
  /etc/b
      Both are
      read.
  /etc/c
      It is not.

  Neither is
  any other.

      key = 1

      other = 2
== sub
Exit status:
  0
      Done.

  1, 2

See also:
  a(1), b(1)
== shared
Codes:
  1
      Failed.
  2
      Wrong.
";

    fn term(term: &str, meaning: &str) -> TextBlock {
        TextBlock::Term(term.into(), meaning.into())
    }

    #[test]
    fn page_file_has_terms_paragraphs_and_literals() {
        let [files] = &page_sections(FILE, "")[..] else { panic!() };
        let expected = [
            term("/etc/a\n/etc/b", "Both are read."),
            term("/etc/c", "It is not."),
            TextBlock::Paragraph("Neither is any other.".into()),
            TextBlock::Literal("key = 1\n\nother = 2".into()),
        ];
        assert_eq!((&*files.title, &files.blocks[..]), ("Files", &expected[..]));
        assert_eq!(page_names(FILE).collect::<Vec<_>>(), ["sub"]);
    }

    #[test]
    fn page_file_paragraph_of_shared_terms_expands() {
        let [exit, see_also] = &page_sections(FILE, "sub")[..] else { panic!() };
        assert_eq!(exit.blocks, [term("0", "Done."), term("1", "Failed."), term("2", "Wrong.")]);
        assert_eq!(see_also.blocks, [TextBlock::Paragraph("a(1), b(1)".into())]);
        assert_eq!(page_sections(FILE, "other"), []);
    }
}
