//! Whoever is served matches `user_filter` as a user and `group_filter` as a group, whatever else their
//! entry is: `ldapsearch` with the filters tells who that is, in every way of following changes.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    Directory, Domain, Ds389, Rosterd, Schema, Server, Setup, Slapd, wait_for,
};
use std::collections::BTreeSet;

const USERS: &str = "(&(objectClass=posixAccount)(!(loginShell=/bin/false)))";
const GROUPS: &str = "(&(objectClass=posixGroup)(!(description=hidden)))";
const CLASSES: (&str, &str) = ("(objectClass=posixAccount)", "(objectClass=posixGroup)");

fn directory() -> Directory {
    Directory::new(Schema::Rfc2307bis)
}

/// An entry with further lines, of which those of classes come last: beside the others.
fn also(entry: &str, lines: &str) -> String {
    entry.replacen("objectClass:", &format!("{lines}objectClass:"), 1)
}

/// Every kind of entry that a filter may be got round by: with the class of a container, with that of
/// the other kind, and with the attributes of a user alone.
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

fn domain<S: Server>(server: &S) -> Domain {
    Domain::ldap("corp", server).with("poll", "\"1s\"")
}

fn filtered<S: Server>(server: &S) -> Domain {
    let text = |filter: &str| format!("{filter:?}");
    domain(server).with("user_filter", &text(USERS)).with("group_filter", &text(GROUPS))
}

/// Values of an attribute of the entries that match.
fn found<S: Server>(server: &S, filter: &str, attribute: &str) -> BTreeSet<String> {
    let found = String::from_utf8(server.search(server.base(), filter, &[attribute]));
    let start = format!("{attribute}: ");
    let found = found.expect("ASCII");
    found.lines().filter_map(|line| Some(line.strip_prefix(&start)?.to_owned())).collect()
}

fn serves_what_matches<S: Server>(server: &S, rosterd: &Rosterd, (users, groups): (&str, &str)) {
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
fn is_followed<S: Server>(server: &S, tracking: &str) {
    let rosterd = Rosterd::start(&[filtered(server)]);
    let filters = (USERS, GROUPS);
    rosterd.expect_of_domain("corp", "tracking", tracking);
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
        let setup = Setup { syncprov, ..Setup::new(Schema::Rfc2307bis) };
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
    let slapd = Slapd::serving(Setup::new(Schema::Rfc2307bis), &ldif());
    let rosterd = Rosterd::start(&[filtered(&slapd).with("mode", "\"on-demand\"")]);
    rosterd.wait_for_snapshot();
    rosterd.expect_of_domain("corp", "online", true);
    serves_what_matches(&slapd, &rosterd, (USERS, GROUPS));
}

/// Where one search finds users and groups, told apart by their classes.
#[test]
fn openldap_followed_by_classes_alone() {
    let slapd = Slapd::serving(Setup::new(Schema::Rfc2307bis), &ldif());
    let rosterd = Rosterd::start(&[domain(&slapd)]);
    rosterd.expect_of_domain("corp", "tracking", "syncrepl");
    serves_what_matches(&slapd, &rosterd, CLASSES);
}
