// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each served user matches `user_filter`, and each served group `group_filter`, even if its entry has other kinds,
//! too. `ldapsearch` with the filters gives the expected entries, in every way of following changes.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    wait_for,
};
use std::collections::BTreeSet;

const USERS: &str = "(&(objectClass=posixAccount)(!(loginShell=/bin/false)))";
const GROUPS: &str = "(&(objectClass=posixGroup)(!(description=hidden)))";
const CLASSES: (&str, &str) = ("(objectClass=posixAccount)", "(objectClass=posixGroup)");

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307bis)
}

/// An entry with further lines. Further object classes come last, beside the others.
fn also(entry: &str, lines: &str) -> String {
    entry.replacen("objectClass:", &format!("{lines}objectClass:"), 1)
}

/// Every kind of entry that could evade a filter. It has the class of a container, that of the other kind, or the
/// attributes of a user alone.
fn ldif() -> String {
    let directory = directory();
    let user = |name: &str, uid, shell: &str, lines: &str| {
        also(&directory.user(name, uid).replace("/bin/sh", shell), lines)
    };
    let group = |name: &str, gid, lines: &str| also(&directory.group(name, gid, &["good"]), lines);
    let container = "dc: part\nobjectClass: dcObject\n";
    let hidden = "description: hidden\n";
    [
        directory.tree(),
        user("good", 5001, "/bin/sh", ""),
        user("locked", 5002, "/bin/false", ""),
        user("folder", 5003, "/bin/sh", container),
        user("locked-folder", 5004, "/bin/false", container),
        user("user-alone", 5005, "/bin/sh", &format!("{hidden}objectClass: posixGroup\n")),
        user("group-alone", 5006, "/bin/false", "objectClass: posixGroup\n"),
        group("staff", 6001, ""),
        group("secret", 6002, hidden),
        group("part", 6003, container),
        group("secret-part", 6004, &format!("{hidden}{container}")),
        also(
            &directory.user("no-account", 5007).replace("posixAccount", "extensibleObject"),
            container,
        ),
    ]
    .concat()
}

fn domain<S: DirectoryServer>(server: &S) -> DomainTable {
    DomainTable::ldap("corp", server).with("poll_interval", "\"1s\"")
}

fn filtered<S: DirectoryServer>(server: &S) -> DomainTable {
    let text = |filter: &str| format!("{filter:?}");
    domain(server).with("user_filter", &text(USERS)).with("group_filter", &text(GROUPS))
}

/// Values of an attribute of the entries that match.
fn found<S: DirectoryServer>(server: &S, filter: &str, attribute: &str) -> BTreeSet<String> {
    let found = String::from_utf8(server.search(server.base(), filter, &[attribute]));
    let start = format!("{attribute}: ");
    let found = found.expect("ASCII");
    found.lines().filter_map(|line| Some(line.strip_prefix(&start)?.to_owned())).collect()
}

fn serves_what_matches<S: DirectoryServer>(
    server: &S,
    rosterd: &Rosterd,
    (users, groups): (&str, &str),
) {
    let all = |attribute| found(server, &format!("({attribute}=*)"), attribute);
    for (database, filter, attribute) in [("passwd", users, "uid"), ("group", groups, "cn")] {
        let expected = found(server, filter, attribute);
        assert!(!expected.is_empty());
        wait_for(SOON, || {
            let all = all(attribute).into_iter();
            let served: BTreeSet<String> =
                all.filter(|name| rosterd.getent(database, name).is_some()).collect();
            if served == expected {
                Ok(())
            } else {
                Err(format!("{database}: {served:?} are served, not {expected:?}"))
            }
        });
    }
}

/// As the directory is, and as entries come to match and cease to.
fn is_followed<S: DirectoryServer>(server: &S, tracking: &str) {
    let rosterd = Rosterd::start(&[filtered(server)]);
    let filters = (USERS, GROUPS);
    rosterd.expect_domain_status("corp", "tracking", tracking);
    serves_what_matches(server, &rosterd, filters);
    let directory = directory();
    for (shells, descriptions) in
        [(["/bin/sh", "/bin/false"], "shown"), (["/bin/false", "/bin/sh"], "hidden")]
    {
        for (name, shell) in ["locked-folder", "folder"].into_iter().zip(shells) {
            server.set(&directory.user_dn(name), "loginShell", &[shell]);
        }
        server.set(&directory.group_dn("secret-part"), "description", &[descriptions]);
        server.set(&directory.user_dn("user-alone"), "description", &[descriptions]);
        serves_what_matches(server, &rosterd, filters);
    }
}

#[test]
fn openldap_followed_and_polled() {
    for (syncprov, tracking) in [(true, "syncrepl"), (false, "polling")] {
        let setup = SlapdOptions { syncprov, ..SlapdOptions::new(Schema::Rfc2307bis) };
        is_followed(&Slapd::serving(setup, &ldif()), tracking);
    }
}

#[test]
fn ds389_followed_by_both_of_its_ways() {
    let mut server = Ds389::serving(&ldif());
    is_followed(&server, "syncrepl");
    let plugin = "cn=Content Synchronization,cn=plugins,cn=config";
    server.set(plugin, "nsslapd-pluginEnabled", &["off"]);
    server.stop();
    server.start();
    is_followed(&server, "persistent search");
}

#[test]
fn openldap_asked_on_demand() {
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307bis), &ldif());
    let rosterd = Rosterd::start(&[filtered(&slapd).with("mode", "\"on-demand\"")]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    serves_what_matches(&slapd, &rosterd, (USERS, GROUPS));
}

/// One search finds users and groups, distinguished by their classes.
#[test]
fn openldap_followed_by_classes_alone() {
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307bis), &ldif());
    let rosterd = Rosterd::start(&[domain(&slapd)]);
    rosterd.expect_domain_status("corp", "tracking", "syncrepl");
    serves_what_matches(&slapd, &rosterd, CLASSES);
}
