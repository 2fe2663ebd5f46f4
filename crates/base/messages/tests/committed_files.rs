// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of messages and the journal's catalog are made from the table. `ROSTER_WRITE=1 cargo test -p
//! roster-messages` writes both.

use roster_messages::table::AREAS;
use std::fmt::Write as _;
use std::path::Path;

const PAGE: &str = "docs/reference/messages.md";
const PAGE_HEAD: &str = "# Messages

For administrators. Errors, warnings, findings and refusals end with a code such as `[RST-1001]`. In the journal, the
code is in the field `CODE`: `journalctl CODE=RST-4001`. `roster explain RST-1001` prints a row of this page. A code
keeps its meaning in later releases. The wording of a message may change. Errors about options, with exit status 2, have
no code.
";

const CATALOG: &str = "packaging/systemd/roster.catalog";
const CATALOG_HEAD: &str = "# Explanations for `journalctl -x`. `ROSTER_WRITE=1 cargo test -p roster-messages` writes this file.
";

fn page() -> String {
    let mut page = PAGE_HEAD.to_owned();
    for area in AREAS {
        let _ = write!(
            page,
            "\n## {}\n\n| Code | Condition | Cause | Fix |\n|---|---|---|---|\n",
            area.name
        );
        for message in area.messages {
            let cells =
                [message.title, message.cause, message.fix].map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(page, "| {} | {} |", message.code, cells.join(" | "));
        }
    }
    page
}

fn catalog() -> String {
    let mut catalog = CATALOG_HEAD.to_owned();
    for message in AREAS.iter().flat_map(|area| area.messages) {
        let _ = write!(
            catalog,
            "\n-- {}\nSubject: {} [{}]\nDefined-By: Roster\n\n{}\n\n{}\n",
            message.journal_id, message.title, message.code, message.cause, message.fix
        );
    }
    catalog
}

fn assert_committed(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
    if std::env::var_os("ROSTER_WRITE").is_some() {
        std::fs::write(&path, expected).expect("the file can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let first = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(
        found == expected,
        "{name} differs from the table, first in {first:?}. Run: ROSTER_WRITE=1 cargo test -p roster-messages"
    );
}

#[test]
fn messages_page_equals_table() {
    assert_committed(PAGE, &page());
}

#[test]
fn journal_catalog_equals_table() {
    assert_committed(CATALOG, &catalog());
}
