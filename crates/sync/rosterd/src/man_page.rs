// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page rosterd(8), and the end of `--help`.

use roster_cli_docs::ManPage;

/// The page. Options come from [`crate::args`].
pub const PAGE: ManPage = ManPage {
    name: "rosterd",
    section: "8",
    synopsis: &["[--config FILE] [--state-dir DIR] [--run-dir DIR]"],
    text: include_str!("../man/rosterd.txt"),
};
