// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates roster.toml(5) from the table of keys, `roster_config::keys`, which the parser of the configuration uses.
//! `man_pages` writes the pages of commands.

use clap_mangen::roff::{Roff, bold, roman};
use roster_cli_docs::{begin_man_page, man_sections, write_man_page};
use roster_config::keys::{ConfigKey, ConfigTable, KEYS, KeyDefault};
use std::io::{self, Write};

/// The other text. Its section "Keys" is empty: the tables of keys replace it.
const TEXT: &str = include_str!("../man/roster.toml.txt");

/// Writes the page.
pub fn write(out: &mut dyn Write) -> io::Result<()> {
    let mut page = begin_man_page("roster.toml", "5");
    for section in man_sections(TEXT, "") {
        match &*section.title {
            "Keys" => ConfigTable::ALL.iter().for_each(|&table| table_section(&mut page, table)),
            _ => section.write_roff(&mut page),
        }
    }
    write_man_page(&page, out)
}

fn table_section(page: &mut Roff, table: ConfigTable) {
    page.control("SH", [table.header()]);
    page.text([roman(table.text())]);
    keys(page, table, None);
    for (provider, title) in
        [("files", "With the files provider"), ("ldap", "With the ldap provider")]
    {
        if table == ConfigTable::Domain {
            page.control("SS", [title]);
        }
        keys(page, table, Some(provider));
    }
}

fn keys(page: &mut Roff, table: ConfigTable, provider: Option<&str>) {
    for key in KEYS.iter().filter(|key| key.table == table && key.provider == provider) {
        page.control("TP", []);
        page.text([bold(key.name), roman(format!("  ({}; {})", key.kind.text(), default(key)))]);
        page.text([roman(key.text)]);
    }
}

fn default(key: &ConfigKey) -> String {
    match key.default {
        KeyDefault::Required => "required".to_owned(),
        KeyDefault::Value(value) => format!("default: {value}"),
        KeyDefault::Follows(how) => format!("default: {how}"),
        KeyDefault::Absent => "not set by default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_cli_docs::TextBlock;

    fn page() -> String {
        let mut text = Vec::new();
        write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_example_is_a_configuration_without_a_warning() {
        let sections = man_sections(TEXT, "");
        let blocks = sections.iter().filter(|section| section.title == "Examples");
        let example = blocks.flat_map(|section| &section.blocks).find_map(|block| match block {
            TextBlock::Literal(text) => Some(text),
            _ => None,
        });
        assert!(roster_config::parse(example.unwrap()).unwrap().warnings.is_empty());
    }

    #[test]
    fn every_key_is_documented_with_its_default() {
        let page = page();
        for key in KEYS {
            assert!(page.contains(&format!("\n\\fB{}\\fR  (", key.name)), "{}", key.name);
        }
        assert!(
            page.contains("\\fBmass_deletion_threshold\\fR  (number, 0 to 1; default: 0.5)"),
            "{page}"
        );
    }
}
