// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids from SIDs: ranges, slices, and ids that two domains could have.

use roster_config::{Config, parse};

const DIRECTORY: &str = "provider = 'ldap'\nuris = ['ldaps://x']\nbase = 'dc=x'\n";

/// Returns a configuration with the keys of the domains `a` and `b`.
fn text(a: &str, b: &str) -> String {
    let directory = |keys: &str| {
        let schema = if keys.contains("'sid'") { "ad" } else { "rfc2307" };
        format!("{DIRECTORY}schema = '{schema}'\n{keys}\n")
    };
    let (a, b) = (directory(a), directory(b));
    format!("[host]\ndomains = ['a', 'b']\n[domain.a]\n{a}[domain.b]\n{b}")
}

fn valid(a: &str, b: &str) -> (Config, Vec<String>) {
    let parsed = parse(&text(a, b)).expect("a valid configuration");
    (parsed.config, parsed.warnings.iter().map(ToString::to_string).collect())
}

fn errors(a: &str, b: &str) -> Vec<String> {
    parse(&text(a, b)).expect_err("mistakes").iter().map(ToString::to_string).collect()
}

const SEPARATE: &str = "max_id = 100_000";

#[test]
fn ids_defaults_are_those_of_sssd() {
    let (config, warnings) = valid("id_mapping = 'sid'", SEPARATE);
    let mapping = config.domains[0].sid_mapping().expect("ids from SIDs");
    assert_eq!((mapping.min, mapping.max, mapping.size), (200_000, 2_000_200_000, 200_000));
    assert_eq!((mapping.slice, mapping.slice_ids()), (None, None));
    assert_eq!(mapping.range().expect("a range").slices(), 10_000);
    assert_eq!((config.domains[1].sid_mapping(), warnings), (None, vec![]));
}

#[test]
fn ids_key_without_sids_is_warned() {
    let (_, warnings) = valid("id_slice = 5\nid_min = 5000", SEPARATE);
    let text =
        "roster.toml:9: warning: domain.a.id_min: has no effect without id_mapping = \"sid\".";
    assert!(warnings.len() == 2 && warnings[1].starts_with(text), "{warnings:?}");
    assert!(warnings.iter().all(|warning| warning.ends_with("[RST-1800]")), "{warnings:?}");
}

#[test]
fn ids_range_without_slices_is_error() {
    let found = errors("id_mapping = 'sid'\nid_max = 300_000", SEPARATE);
    let text =
        "roster.toml:9: domain.a.id_max: ids from 200000 to 300000 hold no slice of 200000 ids.";
    assert!(found[0].starts_with(text) && found[0].ends_with("[RST-1801]"), "{found:?}");
    let found = errors("id_mapping = 'sid'\nid_slice = 10_000", SEPARATE);
    let text = "roster.toml:9: domain.a.id_slice: 10000 is above the last slice, 9999.";
    assert!(found[0].starts_with(text) && found[0].ends_with("[RST-1802]"), "{found:?}");
}

#[test]
fn ids_of_two_domains_need_slices() {
    let sid = "id_mapping = 'sid'";
    let found = errors(sid, sid);
    let text = "roster.toml:9: domain.b.id_slice: this domain has no id_slice, and shares the ids 200000 to \
                2000199999 with domain a (roster.toml:3).";
    assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
    let named = "id_mapping = 'sid'\nid_slice = 7";
    let found = errors(sid, named);
    let text = "roster.toml:14: domain.b.id_mapping: a has no id_slice, and shares the ids";
    assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
    assert!(found[0].ends_with("[RST-1804]"), "{found:?}");
    // Separate ranges need no slices.
    let (config, warnings) = valid(
        "id_mapping = 'sid'\nid_max = 1_000_200_000",
        "id_mapping = 'sid'\nid_min = 1_000_200_000",
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.domains[1].sid_mapping().map(|mapping| mapping.reserved.len()), Some(0));
}

#[test]
fn ids_of_one_slice_name_both_lines() {
    let named = "id_mapping = 'sid'\nid_slice = 7";
    let found = errors(named, named);
    let text = "roster.toml:16: domain.b.id_slice: the ids 1600000 to 1799999 are also in the slice of domain a \
                (roster.toml:9: id_slice = 7, ids 1600000 to 1799999).";
    assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
    assert!(found[0].ends_with("[RST-1803]"), "{found:?}");
    // Slices of different sizes.
    let found = errors(named, "id_mapping = 'sid'\nid_range = 400_000\nid_slice = 3");
    assert!(found.len() == 1 && found[0].contains("the ids 1400000 to 1799999"), "{found:?}");
}

#[test]
fn ids_of_other_slices_are_reserved() {
    let (config, warnings) = valid(
        "id_mapping = 'sid'\nid_slice = 7",
        "id_mapping = 'sid'\nid_range = 400_000\nid_slice = 5",
    );
    let reserved = |place: usize| config.domains[place].sid_mapping().map(|m| m.reserved.clone());
    assert_eq!(reserved(0), Some(vec![(2_200_000, 2_599_999)]));
    assert_eq!(reserved(1), Some(vec![(1_600_000, 1_799_999)]));
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn ids_of_other_limits_are_warned() {
    let (_, warnings) = valid("id_mapping = 'sid'\nid_slice = 7\nmax_id = 1_700_000", SEPARATE);
    let text = "roster.toml:9: warning: domain.a.id_slice: the ids 1600000 to 1799999 are not all within min_id and \
                max_id of the domain (1000 to 1700000).";
    assert!(warnings.len() == 1 && warnings[0].starts_with(text), "{warnings:?}");
    assert!(warnings[0].ends_with("[RST-1805]"), "{warnings:?}");
    let (_, warnings) = valid("id_mapping = 'sid'", "");
    let text = "roster.toml:8: warning: domain.a.id_mapping: domain b may have ids from 1000 to 4294967294, and the \
                ids 200000 to 2000199999 belong to SIDs of this domain.";
    assert!(warnings.len() == 1 && warnings[0].starts_with(text), "{warnings:?}");
    assert!(warnings[0].ends_with("[RST-1806]"), "{warnings:?}");
}

#[test]
fn posix_denied_groups_are_warned() {
    let domain = |mapping: &str, rules: &str| {
        let keys = format!("schema = 'ad'\nid_mapping = '{mapping}'\n[domain.a.access]\n{rules}\n");
        let text = format!("[host]\ndomains = ['a']\n[domain.a]\n{DIRECTORY}{keys}");
        let parsed = parse(&text).expect("a valid configuration");
        parsed.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let denied = "denied_groups = ['domain users']";
    for rules in [denied.to_owned(), format!("[domain.a.access.service.sshd]\n{denied}")] {
        let found = domain("posix", &rules);
        let text = "roster.toml:8: warning: domain.a.id_mapping: denied_groups ignores primary groups of Active \
                    Directory.";
        assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
        assert!(found[0].ends_with("[RST-1824]"), "{found:?}");
        assert_eq!(domain("sid", &rules), Vec::<String>::new());
    }
    assert_eq!(domain("posix", "allowed_groups = ['staff']"), Vec::<String>::new());
}
