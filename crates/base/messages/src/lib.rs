// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of codes: each error, warning, finding and refusal that an administrator may see has a stable code, a
//! cause and a fix.
//!
//! The program that prints a message words it with the values at hand and adds the code. This crate holds the texts
//! that do not depend on values, and prints nothing itself. `roster explain` and `docs/reference/messages.md` show
//! them.
//!
//! A code keeps its meaning. A message that is no longer printed loses its row, and its number is not used again.

#![forbid(unsafe_code)]

mod diagnostic;
mod error;
mod login_refusal;
mod request_number;
pub mod table;

pub use diagnostic::{Diagnostic, Severity};
pub use error::CodedError;
pub use login_refusal::login_refusal;
pub use request_number::{EnteredRequest, RequestNumber};

use std::fmt;

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The code, such as `RST-1001`.
    pub code: &'static str,
    /// Identifier of the message in the journal, 32 hexadecimal digits that end with the code's number: field
    /// `MESSAGE_ID` of systemd.journal-fields(7).
    pub journal_id: &'static str,
    /// The condition in a few words, without values.
    pub title: &'static str,
    /// Origin of the condition.
    pub cause: &'static str,
    /// Steps of the administrator.
    pub fix: &'static str,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// Returns the row of a code, in the form `RST-1001`, `rst-1001` or `1001`.
#[must_use]
pub fn find(code: &str) -> Option<&'static Message> {
    let number = match code.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("RST-") => &code[4..],
        _ => code,
    };
    all().find(|message| message.code.strip_prefix("RST-") == Some(number))
}

/// Returns all rows in the order of their codes.
pub fn all() -> impl Iterator<Item = &'static Message> {
    table::AREAS.iter().flat_map(|area| area.messages.iter().copied())
}

/// Declares the messages of one area as constants, and their list.
macro_rules! messages {
    ($($name:ident = $number:literal, $title:literal, cause: $cause:literal, fix: $fix:literal;)*) => {
        $(
            #[doc = concat!("The row of RST-", $number, ".")]
            pub static $name: $crate::Message = $crate::Message {
                code: concat!("RST-", $number),
                journal_id: concat!("6f1d2a7c93b84e05a1c4d87e52f0", $number),
                title: $title,
                cause: $cause,
                fix: $fix,
            };
        )*
        /// All messages of this area, in the order of their codes.
        pub static MESSAGES: &[&$crate::Message] = &[$(&$name),*];
    };
}
pub(crate) use messages;

/// Logs an event with its code: `log!(WARN, &table::publisher::DISK_FULL, path = %path, "{path}: no space left")`. The
/// caller depends on `tracing`.
#[macro_export]
macro_rules! log {
    ($level:ident, $message:expr, $($rest:tt)+) => {{
        let message: &'static $crate::Message = $message;
        ::tracing::event!(
            ::tracing::Level::$level,
            message_id = message.journal_id,
            code = message.code,
            $($rest)+
        )
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_within_their_area() {
        for area in table::AREAS {
            let numbers: Vec<u32> = area
                .messages
                .iter()
                .map(|message| message.code["RST-".len()..].parse().expect("a number"))
                .collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{}: {numbers:?}", area.name);
            assert!(numbers.iter().all(|number| area.numbers.contains(number)), "{}", area.name);
        }
    }

    #[test]
    fn rows_are_whole_sentences() {
        for message in all() {
            let Message { code, title, cause, fix, journal_id } = message;
            assert_eq!(journal_id.len(), 32, "{code}");
            assert!(
                !title.is_empty() && !title.ends_with('.') && title.len() <= 72,
                "{code}: {title}"
            );
            for text in [cause, fix] {
                assert!(text.ends_with('.') && !text.contains("  "), "{code}: {text}");
                assert!(text.starts_with(|first: char| !first.is_whitespace()), "{code}: {text}");
            }
        }
    }

    #[test]
    fn find_accepts_code_and_number() {
        let first = all().next().expect("there are messages");
        let number = &first.code["RST-".len()..];
        for spelling in [first.code, number, &first.code.to_lowercase()] {
            assert_eq!(find(spelling), Some(first), "{spelling}");
        }
        for wrong in ["", "RST-", "RST-0000", "XYZ-1001", "RST-1", "é", "rsté"] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }
}
