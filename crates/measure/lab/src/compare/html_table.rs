// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of a page. On a narrow screen each row becomes a block, and each cell shows its heading. `html` and
//! `trace::html` fill it.

use super::chart::escaped;
use std::fmt::Write as _;

/// A table with a heading for each column. The first column holds the names of the rows.
pub struct HtmlTable<'h> {
    heads: Vec<&'h str>,
    rows: String,
}

impl<'h> HtmlTable<'h> {
    /// Returns a table without rows. `heads` leaves out the column of names.
    #[must_use]
    pub fn new(heads: Vec<&'h str>) -> Self {
        Self { heads, rows: String::new() }
    }

    /// Adds a row. Name and cells are HTML. An empty cell is left out on a narrow screen.
    pub fn add_row(&mut self, name: &str, cells: &[String]) {
        let _ = write!(self.rows, "<tr><th scope=\"row\">{name}</th>");
        for (head, cell) in self.heads.iter().zip(cells) {
            let _ = write!(self.rows, "<td data-head=\"{}\">{cell}</td>", escaped(head));
        }
        self.rows.push_str("</tr>");
    }

    /// Returns the table as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let heads = self.heads.iter().fold(String::new(), |mut out, head| {
            let _ = write!(out, "<th>{}</th>", escaped(head));
            out
        });
        format!(
            "<table><thead><tr><th></th>{heads}</tr></thead><tbody>{}</tbody></table>",
            self.rows
        )
    }
}
