// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays out the source of a man page as `mandoc -Tlint` demands. Knows the macros of man(7), and no page. `page_text`
//! has the prose.

/// Maximum length of a text line in bytes.
const LINE_BYTES_MAX: usize = 80;
/// Text of no width. After a sentence, it prevents an additional space. Before a control character, it makes text of it.
const NO_EFFECT: &str = "\\&";

/// Returns the page without macros that have no effect, and with its text in short lines. The rendered page is the same.
/// Lines of literal text, tags of lists, and words longer than a line stay as they are.
pub fn lay_out(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut before = "";
    let mut is_literal = false;
    let lines = page.lines().enumerate().filter(|&(at, line)| at < 2 || !is_preamble(line));
    let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
    for (at, line) in lines.iter().enumerate() {
        if has_no_effect(before, line, lines.get(at + 1).copied().unwrap_or_default()) {
            continue;
        }
        is_literal = line.starts_with(".nf") || is_literal && !line.starts_with(".fi");
        if is_literal || line.starts_with('.') || before == ".TP" {
            text.push_str(line);
        } else {
            wrap(line, &mut text);
        }
        text.push('\n');
        before = line;
    }
    text
}

/// Whether the line defines the apostrophe. `clap_mangen` repeats the definition for each section.
fn is_preamble(line: &str) -> bool {
    line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds Aq")
}

fn has_no_effect(before: &str, line: &str, after: &str) -> bool {
    match line {
        ".PP" => before.starts_with(".SH") || before.starts_with(".SS"),
        ".br" => is_space(before) || is_space(after),
        _ => false,
    }
}

/// An empty line is an empty line on the page, too.
fn is_space(line: &str) -> bool {
    line.is_empty() || line == ".sp"
}

/// Adds a text in lines. No line begins with a control character, or ends as a sentence does.
fn wrap(line: &str, text: &mut String) {
    let start = text.len();
    let mut column = 0;
    for word in line.split(' ') {
        let is_full = column + 1 + length(word) > LINE_BYTES_MAX;
        if text.len() > start && is_full && !word.is_empty() && !text.ends_with(['\\', ' ']) {
            if ends_sentence(text) {
                text.push_str(NO_EFFECT);
            }
            text.push('\n');
            if word.starts_with(['.', '\'']) {
                text.push_str(NO_EFFECT);
            }
            column = length(word);
        } else {
            if text.len() > start {
                text.push(' ');
            }
            column += 1 + length(word);
        }
        text.push_str(word);
    }
}

/// The bytes of a word in a line. mandoc reads a character beyond ASCII as an escape of up to nine bytes.
fn length(word: &str) -> usize {
    let bytes: usize = word.chars().map(|character| if character.is_ascii() { 1 } else { 9 }).sum();
    bytes + if ends_sentence(word) { NO_EFFECT.len() } else { 0 }
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches([')', '"', '\'']).ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_drops_macros_without_effect() {
        let page = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.SH A\n.ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.PP\na\n.PP\nb\n\
                    .br\n.sp\n.br\nc\n.br\n\nd\n";
        let expected = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.SH A\na\n.PP\nb\n.sp\nc\n\nd\n";
        assert_eq!(lay_out(page), expected);
    }

    #[test]
    fn layout_wraps_text_but_no_tags() {
        let words = "word ".repeat(14) + "end. Nextword .x 'y";
        let page = format!(".SH A\n{words}\n.TP\n{words}\n.nf\n{words}\n.fi\n");
        let wrapped = "word ".repeat(14) + "end.\\&\nNextword .x 'y";
        let expected = format!(".SH A\n{wrapped}\n.TP\n{words}\n.nf\n{words}\n.fi\n");
        assert_eq!(lay_out(&page), expected);
    }

    #[test]
    fn layout_never_begins_line_with_control_character() {
        let page = "word ".repeat(16) + ".nf 'x word\n";
        assert_eq!(lay_out(&page), "word ".repeat(15) + "word\n\\&.nf 'x word\n");
    }

    #[test]
    fn layout_counts_other_characters_as_escapes() {
        let page = "✓✗… ".repeat(3) + "word\n";
        assert_eq!(lay_out(&page), "✓✗… ✓✗…\n✓✗… word\n");
    }
}
