// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason of a state, a rejection or a refusal: its row of the table of codes, and a text with the values at hand.
//! The rows are in `roster_messages::table`.

use roster_messages::Message;
use std::fmt;

/// A reason. Its `Display` is the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The row of the table.
    pub message: &'static Message,
    /// The reason with the values at hand, without a period.
    pub text: String,
}

impl Reason {
    /// Returns a reason.
    pub fn new(message: &'static Message, text: impl Into<String>) -> Self {
        Self { message, text: text.into() }
    }

    /// Adds the object in front of the text.
    #[must_use]
    pub fn for_object(mut self, object: impl fmt::Display) -> Self {
        self.text = format!("{object}: {}", self.text);
        self
    }

    /// Returns the text and its code, for a caller that only shows it.
    #[must_use]
    pub fn with_code(&self) -> String {
        format!("{} [{}]", self.text, self.message.code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
