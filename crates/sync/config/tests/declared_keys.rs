// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each key of roster.toml is declared once. The parser reads all declared keys, and documents name them.

use roster_config::keys::{ConfigKey, ConfigTable, KEYS};
use roster_config::parse;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every table, and a domain of each provider.
const EVERY_TABLE: &str = "
    [host]
    domains = ['lab', 'corp']
    [domain.lab]
    provider = 'files'
    passwd = '/p'
    group = '/g'
    [domain.corp]
    provider = 'ldap'
    uris = ['ldaps://x']
    base = 'dc=x'
    [domain.corp.attributes]
    [domain.corp.override.user.alice]
    uid = 6000
    [domain.corp.override.group.staff]
    gid = 7000
    [domain.corp.access]
    [domain.corp.access.service.sshd]
    [publisher]
    [responder.pam]
    [metrics]
    listen = '127.0.0.1:9'
    [log]
";

/// Returns the tables of the text above that contain the key.
fn table_paths(key: &ConfigKey) -> &'static [&'static str] {
    match (key.table, key.provider) {
        (ConfigTable::Host, _) => &["host"],
        (ConfigTable::Domain, Some("files")) => &["domain.lab"],
        (ConfigTable::Domain, Some(_)) => &["domain.corp"],
        (ConfigTable::Domain, None) => &["domain.lab", "domain.corp"],
        (ConfigTable::Attributes, _) => &["domain.corp.attributes"],
        (ConfigTable::OverrideUser, _) => &["domain.corp.override.user.alice"],
        (ConfigTable::OverrideGroup, _) => &["domain.corp.override.group.staff"],
        (ConfigTable::Access, _) => &["domain.lab.access", "domain.corp.access"],
        (ConfigTable::Service, _) => &["domain.corp.access.service.sshd"],
        (ConfigTable::Publisher, _) => &["publisher"],
        (ConfigTable::ResponderPam, _) => &["responder.pam"],
        (ConfigTable::Metrics, _) => &["metrics"],
        (ConfigTable::Log, _) => &["log"],
    }
}

#[test]
fn parser_reads_each_declared_key_once() {
    let parsed = parse(EVERY_TABLE).unwrap();
    let mut read: Vec<_> = parsed.settings.iter().map(|set| (&*set.table, set.key)).collect();
    let mut declared: Vec<_> = KEYS
        .iter()
        .flat_map(|key| table_paths(key).iter().map(|table| (*table, key.name)))
        .collect();
    read.sort_unstable();
    declared.sort_unstable();
    assert_eq!(read, declared);
}

#[test]
fn keys_have_distinct_names_per_table() {
    let mut seen = BTreeSet::new();
    for key in KEYS {
        assert!(seen.insert((key.table.header(), key.provider, key.name)), "{}", key.name);
    }
}

fn document(name: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    fs::read_to_string(root.join(name)).unwrap()
}

/// Returns the names in `` `name = value` ``.
fn assigned_names(text: &str) -> Vec<&str> {
    let is_name = |name: &&str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let code = text.split('`').skip(1).step_by(2);
    code.filter_map(|code| Some(code.split_once(" = ")?.0)).filter(is_name).collect()
}

#[test]
fn documents_name_declared_keys_only() {
    let mut found = 0;
    for name in ["docs/how-to/logins.md", "docs/reference/directory-servers.md"] {
        for assigned in assigned_names(&document(name)) {
            assert!(KEYS.iter().any(|key| key.name == assigned), "{name}: {assigned}");
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn configuration_page_lists_each_key() {
    let page = document("docs/reference/configuration.md");
    for key in KEYS {
        assert!(page.contains(&format!("| `{}` |", key.name)), "{}", key.name);
    }
}

#[test]
fn readme_configuration_has_no_mistake() {
    let readme = document("README.md");
    let (_, behind) = readme.split_once("roster.toml <<'END'\n").unwrap();
    let (text, _) = behind.split_once("\nEND\n").unwrap();
    assert!(parse(text).unwrap().warnings.is_empty());
}
