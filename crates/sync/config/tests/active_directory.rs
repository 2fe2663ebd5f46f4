// SPDX-License-Identifier: MIT OR Apache-2.0
//! `schema = "ad"`: its defaults, and the keys that contradict it.

use roster_config::{
    DirectorySchema, LdapConfig, MemberAttribute, MemberValues, NameCase, ParsedConfig,
    ProviderConfig, parse,
};
use std::time::Duration;

fn domain(keys: &str) -> String {
    format!(
        "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\n\
         uris = [\"ldaps://dc1\"]\nbase = \"dc=x\"\n{keys}\n"
    )
}

fn parsed(keys: &str) -> ParsedConfig {
    parse(&domain(keys)).unwrap_or_else(|problems| panic!("{keys}: {problems:?}"))
}

fn ldap(parsed: &ParsedConfig) -> &LdapConfig {
    match &parsed.config.domains[0].provider {
        ProviderConfig::Ldap(ldap) => ldap,
        ProviderConfig::Files(_) => panic!("not LDAP"),
    }
}

#[test]
fn ad_schema_sets_defaults() {
    let parsed = parsed("schema = \"ad\"");
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    let (domain, ldap) = (&parsed.config.domains[0], ldap(&parsed));
    assert_eq!(ldap.schema, DirectorySchema::ActiveDirectorySids);
    assert!(domain.sid_mapping().is_some());
    assert_eq!((domain.names.case, domain.names.spaces), (NameCase::Insensitive, true));
    assert!(domain.serving.nests_primary_groups);
    assert_eq!(domain.overrides.fallback_home.as_deref(), Some("/home/%d/%u"));
    assert_eq!(domain.overrides.fallback_shell.as_deref(), Some("/bin/bash"));
    assert_eq!(ldap.users.filter, "(&(objectClass=user)(sAMAccountType=805306368))");
    let member = MemberAttribute { name: "member".to_owned(), values: MemberValues::Dns };
    assert_eq!(ldap.member_attributes, [member]);
    let names = &ldap.attributes;
    assert_eq!([&names.user_name, &names.group_name], ["samaccountname"; 2]);
    assert_eq!([&names.user_uid, &names.user_gid], ["objectsid", "primarygroupid"]);
    assert_eq!([&names.group_gid, &names.user_home], ["objectsid", "unixhomedirectory"]);
    assert_eq!((ldap.poll, ldap.sweep), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!((ldap.page_size, ldap.member_range), (1000, 1500));
}

#[test]
fn ad_schema_without_key_changes_nothing() {
    let parsed = parsed("");
    let (domain, ldap) = (&parsed.config.domains[0], ldap(&parsed));
    assert_eq!((ldap.schema, domain.sid_mapping()), (DirectorySchema::Posix, None));
    assert_eq!((domain.names.case, domain.names.spaces), (NameCase::Sensitive, false));
    assert_eq!(domain.overrides.fallback_home, None);
    assert_eq!((ldap.poll, ldap.sweep), (Duration::from_secs(30), Duration::from_secs(900)));
    assert_eq!(ldap.attributes.user_uid, "uidnumber");
}

#[test]
fn ad_posix_ids_come_from_attributes() {
    let parsed = parsed("schema = \"ad\"\nid_mapping = \"posix\"");
    let ldap = ldap(&parsed);
    assert_eq!(ldap.schema, DirectorySchema::ActiveDirectoryPosix);
    assert_eq!(parsed.config.domains[0].sid_mapping(), None);
    let names = &ldap.attributes;
    assert_eq!(
        [&names.user_uid, &names.user_gid, &names.group_gid],
        ["uidnumber", "gidnumber", "gidnumber"]
    );
    assert!(ldap.users.filter.ends_with("(uidNumber=*))"), "{}", ldap.users.filter);
    assert!(ldap.groups.filter.ends_with("(gidNumber=*))"), "{}", ldap.groups.filter);
}

#[test]
fn ad_keys_replace_defaults() {
    let parsed = parsed(
        "schema = \"ad\"\ncase = \"preserving\"\nhome = \"/srv/%u\"\nshell = \"/bin/sh\"\n\
         user_filter = \"(objectClass=user)\"\npoll_interval = \"5s\"\n\
         [domain.corp.attributes]\nuser_name = \"cn\"",
    );
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    let (domain, ldap) = (&parsed.config.domains[0], ldap(&parsed));
    assert_eq!(domain.names.case, NameCase::Preserving);
    assert_eq!(domain.overrides.fallback_home, None);
    assert_eq!(domain.overrides.fallback_shell, None);
    assert_eq!(ldap.users.filter, "(objectClass=user)");
    assert_eq!((ldap.poll, &*ldap.attributes.user_name), (Duration::from_secs(5), "cn"));
}

#[test]
fn ad_contradicting_keys_are_errors() {
    for (keys, code) in [
        ("schema = \"ad\"\nmode = \"on-demand\"", "RST-1820"),
        ("schema = \"ad\"\nprivate_groups = \"always\"", "RST-1821"),
        ("schema = \"ad\"\n[domain.corp.attributes]\nuser_uid = \"uidNumber\"", "RST-1822"),
        ("id_mapping = \"sid\"", "RST-1823"),
        ("schema = \"rfc2307bis\"\nid_mapping = \"sid\"", "RST-1823"),
    ] {
        let problems = parse(&domain(keys)).err().unwrap_or_default();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].contains(code), "{keys}: {texts:?}");
    }
    let posix = "schema = \"ad\"\nid_mapping = \"posix\"\n[domain.corp.attributes]\n\
                 user_uid = \"employeeNumber\"";
    assert_eq!(ldap(&parsed(posix)).attributes.user_uid, "employeenumber");
}
