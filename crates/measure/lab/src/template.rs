// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts with variable parts: `uid=u{0..999},ou=people`. They are parsed once, and written per request into a reused
//! buffer.
//!
//! Identities and values of requests are such texts, because repeated requests would measure the caches of a server. The
//! order of requests is in [`load_thread`](crate::load_thread).

use std::fs::File;
use std::io::Read;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum size of a file of identities: ten million names.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A text with variable parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Vec<u8>),
    /// `{A..B}`, padded with zeros to the width of `A` if that begins with one.
    Range {
        first: u64,
        count: u64,
        width: usize,
    },
    /// `{@FILE}`, its lines.
    Lines(Arc<[Vec<u8>]>),
    /// `{n}`, the number of the request.
    Number,
}

impl TemplatePart {
    /// Returns the number of values.
    fn count(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Range { count, .. } => *count,
            Self::Lines(lines) => lines.len() as u64,
            Self::Number => u64::MAX,
        }
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(path) => Ok(Self { parts: vec![TemplatePart::Lines(lines(path)?)] }),
            None => Self::read(text, false),
        }
    }
}

impl Template {
    /// Creates a text without variable parts.
    #[must_use]
    pub fn constant(text: Vec<u8>) -> Self {
        Self { parts: vec![TemplatePart::Text(text)] }
    }

    /// Creates a text that is each of these in turn. The list must not be empty.
    #[must_use]
    pub fn from_list(texts: Vec<Vec<u8>>) -> Self {
        Self { parts: vec![TemplatePart::Lines(texts.into())] }
    }

    /// Parses a value of a search filter, in which `\28` is a parenthesis.
    pub fn from_filter_value(text: &str) -> Result<Self, String> {
        Self::read(text, true)
    }

    fn read(text: &str, escapes: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&first, behind)) = rest.split_first() {
            rest = behind;
            match first {
                b'{' | b'}' if rest.first() == Some(&first) => {
                    plain.push(first);
                    rest = &rest[1..];
                }
                b'{' => {
                    let end = rest.iter().position(|&byte| byte == b'}');
                    let end = end.ok_or_else(|| format!("{text:?}: {{ without }}"))?;
                    // The text is cut at ASCII characters, so it stays valid UTF-8.
                    let inner = String::from_utf8_lossy(&rest[..end]);
                    if !plain.is_empty() {
                        parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(parse_part(&inner)?);
                    rest = &rest[end + 1..];
                }
                b'}' => {
                    return Err(format!(
                        "{text:?}: }} without {{. Write }}}} for a literal brace."
                    ));
                }
                b'\\' if escapes => {
                    let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
                    let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
                    plain.push(byte.ok_or_else(|| {
                        format!("{text:?}: \\ without two hexadecimal digits, such as \\2a")
                    })?);
                    rest = &rest[2..];
                }
                byte => plain.push(byte),
            }
        }
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Self { parts })
    }

    /// Returns the number of different texts, the maximum for `{n}`.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.iter().map(TemplatePart::count).fold(1, u64::saturating_mul)
    }

    /// Returns whether the text contains `{n}`, so that no two requests have the same.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        self.parts.contains(&TemplatePart::Number)
    }

    /// Returns the number of requests after which all parts except `{n}` repeat.
    #[must_use]
    pub fn period(&self) -> u64 {
        let parts = self.parts.iter().filter(|&part| *part != TemplatePart::Number);
        parts.map(TemplatePart::count).fold(1, u64::saturating_mul)
    }

    /// Appends the text of a request. Several ranges count like the digits of a number, the first one fastest, so that
    /// every combination occurs.
    pub fn write(&self, request: u64, out: &mut Vec<u8>) {
        let mut turn = request;
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Range { first, count, width } => {
                    write_number(first + turn % count, *width, out);
                    turn /= count;
                }
                TemplatePart::Lines(lines) => {
                    let count = lines.len() as u64;
                    let line = usize::try_from(turn % count).ok().and_then(|at| lines.get(at));
                    out.extend_from_slice(line.map_or(&[], Vec::as_slice));
                    turn /= count;
                }
                TemplatePart::Number => write_number(request, 0, out),
            }
        }
    }

    #[must_use]
    pub fn text(&self, request: u64) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(request, &mut out);
        out
    }
}

/// Returns the number of requests after which several texts repeat together.
pub fn period<'t>(texts: impl IntoIterator<Item = &'t Template>) -> u64 {
    texts.into_iter().fold(1, |all, text| least_common_multiple(all, text.period()))
}

/// Returns the least common multiple, saturating.
#[must_use]
pub fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

/// Parses the text between braces.
fn parse_part(inner: &str) -> Result<TemplatePart, String> {
    if inner == "n" {
        return Ok(TemplatePart::Number);
    }
    if let Some(path) = inner.strip_prefix('@') {
        return Ok(TemplatePart::Lines(lines(path)?));
    }
    let form = || {
        format!("{{{inner}}} is not {{A..B}}, {{@FILE}} or {{n}}. Write {{{{ for a literal brace.")
    };
    let (first, last) = inner.split_once("..").ok_or_else(form)?;
    let number = |text: &str| -> Option<u64> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    let (Some(from), Some(to)) = (number(first), number(last)) else { return Err(form()) };
    let count = to.checked_sub(from).and_then(|less| less.checked_add(1));
    let count = count.ok_or_else(|| format!("{{{inner}}}: the end is before the start"))?;
    let width = if first.starts_with('0') { first.len() } else { 0 };
    Ok(TemplatePart::Range { first: from, count, width })
}

/// Reads the lines of a file that are not empty.
fn lines(path: &str) -> Result<Arc<[Vec<u8>]>, String> {
    let say = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    let file = File::open(path).map_err(|error| say(&error))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| say(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{path}: longer than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let lines: Arc<[Vec<u8>]> = bytes
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() { Err(format!("{path}: no lines")) } else { Ok(lines) }
}

fn write_number(number: u64, width: usize, out: &mut Vec<u8>) {
    // A u64 has at most 20 digits.
    let mut digits = [b'0'; 20];
    let (mut at, mut rest) = (digits.len(), number);
    while at > 0 {
        at -= 1;
        // The remainder of ten is one digit.
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for _ in digits.len() - at..width {
        out.push(b'0');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn texts(template: &str, requests: &[u64]) -> Vec<String> {
        let template: Template = template.parse().unwrap();
        requests.iter().map(|&request| String::from_utf8(template.text(request)).unwrap()).collect()
    }

    #[test]
    fn a_range_takes_its_identities_in_turn_and_begins_again() {
        assert_eq!(texts("u{8..10},x", &[0, 1, 2, 3]), ["u8,x", "u9,x", "u10,x", "u8,x"]);
        assert_eq!(texts("u{007..100}", &[0, 93]), ["u007", "u100"]);
        assert_eq!(
            texts("{18446744073709551615..18446744073709551615}", &[5]),
            ["18446744073709551615"]
        );
    }

    #[test]
    fn several_ranges_give_every_combination() {
        let all = texts("{0..1}-{a..b}".replace("{a..b}", "{5..7}").as_str(), &[0, 1, 2, 3, 4, 5]);
        assert_eq!(all, ["0-5", "1-5", "0-6", "1-6", "0-7", "1-7"]);
        assert_eq!("{0..1}-{5..7}".parse::<Template>().unwrap().count(), 6);
    }

    #[test]
    fn a_number_never_comes_twice_and_a_doubled_brace_is_one() {
        assert_eq!(texts("{{SSHA}}{n}", &[0, 1_234_567]), ["{SSHA}0", "{SSHA}1234567"]);
    }

    #[test]
    fn several_texts_are_as_they_were_when_all_of_them_are() {
        let read = |text: &str| text.parse::<Template>().unwrap();
        let texts = [read("u{0..3}"), read("p{0..5}-{n}"), read("x")];
        assert_eq!(period(&texts), 12);
        assert!(texts[1].is_endless() && !texts[0].is_endless());
        assert_eq!(period(&[read("{0..18446744073709551614}"), read("{0..1}")]), u64::MAX);
        assert_eq!(period(&[]), 1);
    }

    #[test]
    fn a_file_gives_its_lines_alone_or_within_a_text() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "alice\r\n\nbob\n").unwrap();
        let path = file.path().display();
        assert_eq!(texts(&format!("@{path}"), &[0, 1, 2]), ["alice", "bob", "alice"]);
        assert_eq!(texts(&format!("uid={{@{path}}},x"), &[1]), ["uid=bob,x"]);
    }

    #[test]
    fn a_filter_value_has_its_escapes_undone() {
        let template = Template::from_filter_value("a\\2a{1..2}\\7b").unwrap();
        assert_eq!(template.text(1), b"a*2{");
        assert!(Template::from_filter_value("a\\2").is_err());
    }

    #[test]
    fn template_error_names_mistake() {
        for (text, why) in [
            ("u{0..9", "{ without }"),
            ("u}", "} without {"),
            ("u{9..0}", "the end is before the start"),
            ("u{0-9}", "is not {A..B}"),
            ("u{-1..9}", "is not {A..B}"),
            ("u{..}", "is not {A..B}"),
            ("u{0..18446744073709551615}", "the end is before the start"),
            ("@/no/such/file", "No such file"),
        ] {
            let error = text.parse::<Template>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
