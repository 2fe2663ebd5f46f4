// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader's permissions decide how a host resumes. With all attributes of docs/reference/directory-servers.md
//! readable, it gets only the changes. Without the stamps it reads everything.

use roster_messages::table::directory;
use roster_system_tests::rosterd::OracleSource;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
};

const MAPPED: [&str; 9] = [
    "objectClass",
    "uid",
    "cn",
    "uidNumber",
    "gidNumber",
    "gecos",
    "homeDirectory",
    "loginShell",
    "member",
];
const NEVER_RESUMED: &str = "syncrepl, never resumed";

/// Changes while the host is away are seen when it is back.
fn gap_is_seen<S: DirectoryServer>(server: &S, stamp: &str, is_shown: bool) {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", server)]);
    let is_right = |rosterd: &Rosterd| {
        rosterd.expect_mirror(&[OracleSource::Server(server)]);
        let tracking = if is_shown { "syncrepl" } else { NEVER_RESUMED };
        rosterd.expect_domain_status("corp", "tracking", tracking);
    };
    is_right(&rosterd);
    // Changes that the server sends as they happen show the stamps like all others.
    server.change(&directory.user("before", 70_001));
    server.set(&directory.user_dn("u5"), "loginShell", &["/bin/before"]);
    is_right(&rosterd);
    rosterd.stop();
    server.change(&directory.user("meanwhile", 70_002));
    server.change(&directory.membership("g1", "lonely", true));
    server.set(&directory.user_dn("u5"), "loginShell", &["/bin/meanwhile"]);
    server.delete(&[directory.user_dn("before")]);
    rosterd.launch();
    is_right(&rosterd);
    let log = rosterd.log();
    assert_eq!(log.contains(&format!("{stamp} is not readable")), !is_shown, "{log}");
    let status = String::from_utf8(rosterd.roster(&["status"]).stdout).expect("UTF-8");
    assert_eq!(status.contains(stamp), !is_shown, "{status}");
    server.delete(&[directory.user_dn("meanwhile")]);
    server.change(&directory.membership("g1", "lonely", false));
    is_right(&rosterd);
}

#[test]
fn openldap_shows_changes_by_entry_csn() {
    let ldif = LdifBuilder::new(Schema::Rfc2307bis).populated(50, 20, 5);
    for (session_log, is_shown) in [(10_000, false), (10_000, true), (0, false), (0, true)] {
        let setup = SlapdOptions { session_log, ..SlapdOptions::new(Schema::Rfc2307bis) };
        let mut slapd = Slapd::loaded(setup, &ldif);
        let stamp = if is_shown { ",entryCSN" } else { "" };
        let attributes = MAPPED.join(",");
        let rule =
            format!("attrs=entry,children,{attributes},entryUUID,modifyTimestamp{stamp} by dn");
        slapd.edit_conf(|text| text.replacen("access to * by dn", &format!("access to {rule}"), 1));
        slapd.start();
        gap_is_seen(&slapd, "entryCSN", is_shown);
    }
}

/// A server that has to be polled shows when users were changed, and hides it of groups.
#[test]
fn polling_sees_changes_of_entries_that_hide_when_they_were_changed() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let setup = SlapdOptions { syncprov: false, ..SlapdOptions::new(Schema::Rfc2307bis) };
    let mut slapd = Slapd::loaded(setup, &directory.populated(20, 5, 3));
    slapd.use_cn_config();
    slapd.start();
    let rule = "{0}to dn.subtree=\"ou=groups,dc=example,dc=com\" attrs=modifyTimestamp by * none";
    slapd.configure_database(&format!("add: olcAccess\nolcAccess: {rule}\n"));
    let rosterd =
        Rosterd::start(&[DomainTable::ldap("corp", &slapd).with("poll_interval", "\"1s\"")]);
    let is_right = |tracking: &str| {
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        rosterd.expect_domain_status("corp", "tracking", tracking);
    };
    is_right("polling, everything each time");
    slapd.change(&directory.membership("g1", "lonely", true));
    is_right("polling, everything each time");
    slapd.change(&directory.membership("g1", "lonely", false));
    is_right("polling, everything each time");
    let log = rosterd.log();
    let warned = |line: &str| {
        line.contains(directory::STAMP_UNREADABLE_POLL.code) && line.contains("modifyTimestamp")
    };
    assert!(log.lines().any(warned), "{log}");
    let status = String::from_utf8(rosterd.roster(&["status"]).stdout).expect("UTF-8");
    assert!(status.contains("[RST-3016]"), "{status}");

    slapd.configure_database("delete: olcAccess\nolcAccess: {0}\n");
    is_right("polling");
    slapd.change(&directory.membership("g1", "lonely", true));
    is_right("polling");
}

#[test]
fn ds389_is_believed_by_modify_timestamp() {
    let server = Ds389::serving(&LdifBuilder::new(Schema::Rfc2307bis).populated(50, 20, 5));
    for stamp in ["", "modifyTimestamp"] {
        let attributes = [&MAPPED[..], &["nsUniqueId", stamp]].concat();
        let attributes = attributes.join(" || ");
        let rule = format!(
            "(targetattr=\"{}\")(version 3.0; acl \"the reader\"; \
             allow (read, search, compare) userdn=\"ldap:///{}\";)",
            attributes.trim_end_matches(" || "),
            server.reader_dn()
        );
        server.set(server.base(), "aci", &[&rule]);
        gap_is_seen(&server, "modifyTimestamp", !stamp.is_empty());
    }
}
