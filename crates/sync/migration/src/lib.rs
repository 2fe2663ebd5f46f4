// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way from SSSD or nslcd to Roster: [`sssd`] and [`nslcd`] convert configurations into a [`Plan`], [`render`] writes
//! it as roster.toml, and [`check`] parses the result as rosterd does. [`cache`] reads the cache of SSSD, and [`compare`]
//! compares it with the entries of a snapshot.
//!
//! A setting that restricts logins or entries and has no counterpart stops the conversion. The tables of settings are in
//! `sssd/settings.rs` and `nslcd.rs`. Every parser of this crate accepts any bytes and has bounds.
#![forbid(unsafe_code)]

pub mod cache;
pub mod compare;
pub mod ini;
pub mod krb5_conf;
pub mod nslcd;
pub mod nslcd_lines;
mod pending_keys;
mod plan;
mod render;
mod source_file;
pub mod sssd;
mod values;

pub use pending_keys::{PENDING_KEYS, check, without_pending_keys};
pub use plan::{DomainPlan, Item, Origin, Outcome, Password, Plan, TomlTable, Waivers};
pub use render::render;
pub use source_file::{SourceError, SourceErrorKind};

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
    if bytes.len() > ini::FILE_BYTES_MAX {
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
