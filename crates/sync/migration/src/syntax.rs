// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits and errors of all parsers of configurations. The grammars are in `ini`, `nslcd_lines` and `krb5_conf`.

/// Limit of one file.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;

/// Limit of the settings of all files.
pub(crate) const SETTINGS_MAX: usize = 20_000;

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line, from 1. 0 for the file as a whole.
    pub line: u32,
    /// The defect, a predicate to "the line".
    pub text: String,
}

impl SyntaxError {
    pub(crate) fn new(line: u32, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// Returns the bytes of a configuration as text without NUL.
pub(crate) fn text_of_file(bytes: &[u8]) -> Result<&str, SyntaxError> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(SyntaxError::new(0, "is larger than 1 MiB"));
    }
    let line_of = |end: usize| {
        let lines = bytes[..end].iter().filter(|&&byte| byte == b'\n').count();
        u32::try_from(lines).map_or(0, |lines| lines + 1)
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| SyntaxError::new(line_of(error.valid_up_to()), "is not UTF-8"))?;
    match text.find('\0') {
        Some(place) => Err(SyntaxError::new(line_of(place), "has a NUL character")),
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}
