// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster explain`: prints rows of the table of codes. `roster-messages` has the table.

use crate::output::print_error;
use anyhow::Result;
use roster_messages::table::tools;
use roster_messages::{CodedError, Message, find};
use std::io::Write;

/// Prints the row of each code. Returns false if a code has no row.
pub fn run(codes: &[String], json: bool, out: &mut dyn Write) -> Result<bool> {
    let mut known = Vec::new();
    let mut unknown = false;
    for code in codes {
        match find(code) {
            Some(message) => known.push(message),
            None => {
                unknown = true;
                print_error(&CodedError::new(
                    &tools::UNKNOWN_CODE,
                    format!("{code}: unknown code"),
                ));
            }
        }
    }
    if json {
        let rows: Vec<_> = known.iter().map(|message| row(message)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        for (index, Message { code, title, cause, fix, .. }) in known.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{code}: {title}\n  Cause: {cause}\n  Fix:   {fix}")?;
        }
    }
    Ok(!unknown)
}

fn row(message: &Message) -> serde_json::Value {
    let Message { code, title, cause, fix, journal_id } = message;
    serde_json::json!({
        "code": code, "title": title, "cause": cause, "fix": fix, "message_id": journal_id
    })
}
