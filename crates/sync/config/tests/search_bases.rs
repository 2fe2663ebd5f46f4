// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search bases, and domains that are skipped while they are away.

use roster_config::explain::explain;
use roster_config::{
    LdapConfig, ParsedConfig, ProviderConfig, SearchBase, SearchScope, WhenAway, parse,
};

/// A configuration with these keys of its LDAP domain.
fn corp(keys: &str) -> String {
    format!(
        "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\n\
         uris = [\"ldaps://ldap1\"]\n{keys}\n"
    )
}

fn ldap(parsed: &ParsedConfig) -> &LdapConfig {
    match &parsed.config.domains[0].provider {
        ProviderConfig::Ldap(ldap) => ldap,
        ProviderConfig::Files(_) => panic!("not LDAP"),
    }
}

fn mistakes(text: &str) -> Vec<String> {
    let problems = parse(text).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn bases_list_of_dns_and_tables_is_read() {
    let parsed = parse(&corp(
        r#"base = "dc=x"
user_base = ["ou=people,dc=x", { base = "ou=staff,dc=x", scope = "one", filter = "(a=b)" }]"#,
    ));
    let parsed = parsed.unwrap();
    let ldap = ldap(&parsed);
    assert_eq!(ldap.bases, [SearchBase::subtree("dc=x")]);
    assert_eq!(ldap.groups.bases, ldap.bases);
    let staff = SearchBase {
        base: "ou=staff,dc=x".to_owned(),
        scope: SearchScope::One,
        filter: Some("(a=b)".to_owned()),
    };
    assert_eq!(ldap.users.bases, [SearchBase::subtree("ou=people,dc=x"), staff]);
    let explained = explain(&parsed.settings);
    for line in [
        "base = \"dc=x\"",
        "user_base = [\"ou=people,dc=x\", { base = \"ou=staff,dc=x\", scope = \"one\", filter = \"(a=b)\" }]",
        "group_base = \"dc=x\"",
    ] {
        assert!(explained.contains(line), "{line}: {explained}");
    }
}

#[test]
fn bases_mistakes_name_line_and_cure() {
    for (keys, said) in [
        (
            r#"base = "ou=people,dc=x?onelevel?(uid=a)""#,
            "roster.toml:6: domain.corp.base: \"ou=people,dc=x?onelevel?(uid=a)\" has the form of another \
             program. Write base = [{ base = \"ou=people,dc=x\", scope = \"one\", filter = \"(uid=a)\" }]. [RST-1720]",
        ),
        (
            r#"base = ["dc=y", "dc=x?base"]"#,
            "roster.toml:6: domain.corp.base: \"dc=x?base\" has the form of another program. Write \
             { base = \"dc=x\", scope = \"base\" }. [RST-1720]",
        ),
        (
            "base = []",
            "roster.toml:6: domain.corp.base: the list has 0 bases. Write a common base, or distribute the \
             bases over two domains. [RST-1721]",
        ),
        (
            r#"base = [{ base = "dc=x", scope = "sub" }]"#,
            "roster.toml:6: domain.corp.base: unknown scope \"sub\". Write \"subtree\", \"one\" or \"base\". [RST-1019]",
        ),
        (
            r#"base = [{ base = "dc=x", filters = "(a=b)" }]"#,
            "roster.toml:6: domain.corp.base: \"filters\" is not a key of a search base. Write base, scope \
             and filter only. [RST-1001]",
        ),
        (
            r#"base = ["dc=x", "dc=x"]"#,
            "roster.toml:6: domain.corp.base: the list contains \"dc=x\" twice. Remove one of the two. [RST-1020]",
        ),
    ] {
        assert_eq!(mistakes(&corp(keys)), [said]);
    }
    let many: Vec<String> = (0..9).map(|number| format!("\"dc={number}\"")).collect();
    let told = mistakes(&corp(&format!("base = [{}]", many.join(", "))));
    assert!(told[0].contains("the list has 9 bases") && told.len() == 1, "{told:?}");
    for keys in [r#"base = [{ scope = "one" }]"#, r#"base = [{ base = "dc=x", filter = "a=b" }]"#] {
        assert_eq!(mistakes(&corp(keys)).len(), 1, "{keys}");
    }
    assert!(mistakes(&corp("base = 5"))[0].contains("[RST-1017]"));
}

/// Two domains, of which the first is on demand.
fn two(first: &str, second: &str) -> String {
    format!(
        "[host]\ndomains = [\"corp\", \"lab\"]\n[domain.corp]\nprovider = \"ldap\"\n\
         uris = [\"ldaps://ldap1\"]\nbase = \"dc=x\"\n{first}\n[domain.lab]\nprovider = \"ldap\"\n\
         uris = [\"ldaps://ldap2\"]\nbase = \"dc=y\"\nmode = \"on-demand\"\n{second}\n"
    )
}

#[test]
fn when_away_next_needs_separate_id_range() {
    let next = "mode = \"on-demand\"\nwhen_away = \"next\"\n";
    let ranges = |first: &str, second: &str| two(&format!("{next}{first}"), second);
    let own = "min_id = 10000\nmax_id = 19999";
    let parsed = parse(&ranges(own, "min_id = 20000")).unwrap();
    let when_away = parsed.config.domains.iter().map(|domain| domain.when_away);
    assert_eq!(when_away.collect::<Vec<_>>(), [WhenAway::Next, WhenAway::Wait]);
    let told = mistakes(&ranges("min_id = 10000", "max_id = 9999"));
    assert!(
        told[0].contains("domain.corp.when_away") && told[0].contains("[RST-1722]"),
        "{told:?}"
    );
    let told = mistakes(&ranges(own, "min_id = 19999"));
    assert_eq!(
        told,
        [
            "roster.toml:8: domain.corp.when_away: when_away = \"next\": the ids 10000 to 19999 are also ids \
             of domain lab (19999 to 4294967294). Set min_id and max_id of both domains so that they share \
             no id, or when_away = \"wait\". [RST-1723]"
        ]
    );
    assert_eq!(mistakes(&ranges(own, "")).len(), 1);
    let unused = parse(&two("when_away = \"next\"", "")).unwrap();
    assert!(unused.warnings.iter().any(|warning| warning.to_string().contains("[RST-1066]")));
    assert_eq!(unused.config.domains[0].when_away, WhenAway::Wait);
}
