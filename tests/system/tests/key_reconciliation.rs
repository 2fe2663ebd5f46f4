// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries that begin or cease to match a search although they did not change. No server reports this. rosterd finds it
//! by listing the keys of all entries. The same holds for groups with members that the server computes: these are read
//! again.

use roster_messages::table::directory;
use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    wait_until,
};
use std::thread::sleep;
use std::time::Duration;

/// Filter of the users that may log in.
const STAFF: &str = "(&(objectClass=posixAccount)(memberOf=cn=staff,ou=groups,dc=example,dc=com))";
/// Two overlays that compute `memberOf`: one stores it in the entries, the other computes it for each request.
const MEMBEROF: &str = "overlay memberof\nmemberof-group-oc groupOfMembers\n\
                        memberof-member-ad member\nmemberof-refint FALSE\n";
const DYNLIST: &str = "overlay dynlist\n\
                       dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfMembers\n";
const SCHEMA: Schema = Schema::Rfc2307bis;

fn directory() -> LdifBuilder {
    LdifBuilder::new(SCHEMA)
}

/// A slapd with an overlay, `u0` to `u29`, and a group `staff` of these.
fn with_overlay(overlay: &str, staff: &[&str]) -> Slapd {
    let directory = directory();
    let users: String =
        (0..30).map(|i| directory.user_in(&format!("u{i}"), 5000 + i, 7000)).collect();
    let group = directory.group("all", 7000, &["u0"]);
    let mut slapd =
        Slapd::loaded(SlapdOptions::new(SCHEMA), &format!("{}{users}{group}", directory.tree()));
    slapd.edit_conf(|text| {
        let modules = "moduleload memberof\nmoduleload dynlist\ninclude ";
        text.replacen("include ", &format!("modulepath /usr/lib/ldap\n{modules}"), 1)
            .replacen(
                "inetorgperson.schema\n",
                "inetorgperson.schema\ninclude /etc/ldap/schema/dyngroup.schema\n",
                1,
            )
            // The first overlay of the database sees an answer last.
            .replacen("overlay syncprov", &format!("{overlay}overlay syncprov"), 1)
    });
    slapd.start();
    slapd.change(&directory.group("staff", 6000, staff));
    slapd
}

fn staff_of(slapd: &Slapd) -> DomainTable {
    // Several pages.
    DomainTable::ldap("corp", slapd)
        .with("user_filter", &format!("{STAFF:?}"))
        .with("page_size", "2")
}

fn is_served(rosterd: &Rosterd, name: &str) -> bool {
    rosterd.getent("passwd", name).is_some()
}

/// Long before everything is compared every quarter of an hour.
#[test]
fn who_joins_or_leaves_the_group_of_a_filter_is_seen_soon_after() {
    for overlay in [MEMBEROF, DYNLIST] {
        let directory = directory();
        let slapd = with_overlay(overlay, &["u0", "u1", "u2", "u3"]);
        let mut rosterd = Rosterd::start(&[staff_of(&slapd)]);
        wait_until(SOON, "it is mirrored", || is_served(&rosterd, "u3"));
        assert!(!is_served(&rosterd, "u9"));
        let change = |user: &str, is_member| {
            slapd.change(&directory.membership("staff", user, is_member));
        };
        change("u9", true);
        change("u1", false);
        wait_until(SOON, "who joined is served", || is_served(&rosterd, "u9"));
        wait_until(SOON, "who left is not", || !is_served(&rosterd, "u1"));
        rosterd.expect_groups("u9", 7000, &[6000, 7000]);

        // While no daemon follows.
        rosterd.stop();
        change("u8", true);
        change("u2", false);
        rosterd.launch();
        wait_until(SOON, "who joined is served", || is_served(&rosterd, "u8"));
        wait_until(SOON, "who left is not", || !is_served(&rosterd, "u2"));
        assert!(["u0", "u3", "u9"].iter().all(|name| is_served(&rosterd, name)));
        rosterd.expect_domain_status("corp", "tracking", "syncrepl");
    }
}

/// The group names a search in place of its members, and is not changed itself. In either order of the
/// overlays, with synchronization and without it.
#[test]
fn who_comes_into_a_group_that_names_a_search_is_seen_soon_after() {
    let directory = directory();
    let dynamic = "dn: cn=zsh,ou=groups,dc=example,dc=com\nobjectClass: groupOfURLs\n\
                   objectClass: posixGroup\ncn: zsh\ngidNumber: 6100\n\
                   memberURL: ldap:///ou=people,dc=example,dc=com??sub?(loginShell=/bin/zsh)\n\n";
    for way in ["after", "before", "polling"] {
        let mut slapd = with_overlay(DYNLIST, &["u0"]);
        slapd.stop();
        slapd.edit_conf(|text| {
            let (start, end) = text.split_once("overlay syncprov").expect("it is there");
            let (_, rest) = end.split_once("\n").expect("a line");
            let (_, rest) = rest.split_once("\n").expect("another");
            let start = start.replace(DYNLIST, "");
            match way {
                "before" => format!("{start}{DYNLIST}overlay syncprov\n{rest}"),
                "after" => format!("{start}overlay syncprov\n{DYNLIST}{rest}"),
                _ => format!("{start}{DYNLIST}{rest}"),
            }
        });
        slapd.start();
        slapd.change(dynamic);
        let set = |user: &str, shell: &str| {
            slapd.set(&directory.user_dn(user), "loginShell", &[shell]);
        };
        set("u1", "/bin/zsh");
        let domain = DomainTable::ldap("corp", &slapd).with("poll_interval", "\"1s\"");
        let mut rosterd = Rosterd::start(&[domain]);
        let group = |gid: u32, users: &str| Some(format!("zsh:*:{gid}:{users}"));
        let expect = |rosterd: &Rosterd, users: &str| {
            rosterd.expect("group", "zsh", group(6100, users).as_deref());
        };
        expect(&rosterd, "u1");
        let tracking = if way == "polling" { way } else { "syncrepl" };
        rosterd.expect_domain_status("corp", "tracking", tracking);
        set("u2", "/bin/zsh");
        set("u1", "/bin/sh");
        expect(&rosterd, "u2");
        rosterd.expect_groups("u2", 7000, &[6100, 7000]);
        // That may have been the reading at the start; after it comes a pause.
        let mut member = "u2";
        if way == "after" {
            member = "u4";
            set("u4", "/bin/zsh");
            set("u2", "/bin/sh");
            expect(&rosterd, member);
        }

        // A change of the group itself removes no member from it.
        slapd.set(&directory.group_dn("zsh"), "gidNumber", &["6101"]);
        let is_changed = || {
            let found = rosterd.getent("group", "zsh");
            assert!([6100, 6101].iter().any(|gid| found == group(*gid, member)), "{found:?}");
            found == group(6101, member)
        };
        wait_until(SOON, "its new number is seen", is_changed);
        slapd.set(&directory.group_dn("zsh"), "gidNumber", &["6100"]);
        expect(&rosterd, member);

        // While no daemon follows.
        rosterd.stop();
        set("u3", "/bin/zsh");
        set(member, "/bin/sh");
        rosterd.launch();
        expect(&rosterd, "u3");
    }
}

/// slapd uses the members that the group had when the search began. It reports users that left, but not users that
/// joined.
#[test]
fn dynamic_list_stale_server_hides_no_change() {
    judges_by_an_old_list(&with_overlay(DYNLIST, &["u0", "u1", "u2"]));
}

/// The server's stamps do not show the changed users either.
#[test]
fn so_it_is_where_the_server_does_not_show_when_users_were_changed() {
    let mut slapd = with_overlay(DYNLIST, &["u0", "u1", "u2"]);
    slapd.stop();
    let rule = "access to attrs=entryCSN by * none\naccess to attrs=userPassword";
    slapd.edit_conf(|text| text.replacen("access to attrs=userPassword", rule, 1));
    slapd.start();
    judges_by_an_old_list(&slapd);
}

fn judges_by_an_old_list(slapd: &Slapd) {
    let directory = directory();
    let rosterd = Rosterd::start(&[staff_of(slapd).with("reconcile_interval", "\"2s\"")]);
    wait_until(SOON, "it is mirrored", || is_served(&rosterd, "u2"));
    slapd.change(&directory.membership("staff", "u1", false));
    slapd.change(&directory.membership("staff", "u9", true));
    wait_until(SOON, "who left is not served", || !is_served(&rosterd, "u1"));
    wait_until(SOON, "who joined is", || is_served(&rosterd, "u9"));
    for (name, shell) in [("u0", "/bin/bash"), ("u1", "/bin/bash"), ("u9", "/bin/bash")] {
        slapd.set(&directory.user_dn(name), "loginShell", &[shell]);
    }
    let has_shell = |name: &str| {
        let found = rosterd.getent("passwd", name);
        found.is_some_and(|line| line.ends_with("/bin/bash"))
    };
    for _ in 0..100 {
        assert!(!is_served(&rosterd, "u1"), "a former member does not come back");
        sleep(Duration::from_millis(20));
    }
    wait_until(SOON, "the change of a member is seen", || has_shell("u0"));
    wait_until(SOON, "so is that of who joined", || has_shell("u9"));
    assert!(!is_served(&rosterd, "u1"));
}

#[test]
fn a_group_that_is_emptied_waits_for_somebody_to_look() {
    let directory = directory();
    let names: Vec<_> = (0..30).map(|i| format!("u{i}")).collect();
    let staff: Vec<_> = names.iter().map(String::as_str).collect();
    let slapd = with_overlay(MEMBEROF, &staff);
    let rosterd = Rosterd::start(&[staff_of(&slapd).with("reconcile_interval", "\"2s\"")]);
    wait_until(SOON, "it is mirrored", || is_served(&rosterd, "u29"));
    slapd.set(&directory.group_dn("staff"), "member", &[&directory.user_dn("u0")]);
    rosterd.expect_domain_status("corp", "pending_removals", 29);
    sleep(Duration::from_secs(3));
    assert!(is_served(&rosterd, "u7"));
    let done = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(done.code, 0, "{}", done.error());
    wait_until(SOON, "they are gone", || !is_served(&rosterd, "u7"));
    assert!(is_served(&rosterd, "u0"));
}

/// A changed access rule, a container of an unusual class, and a user, each with other entries below.
#[test]
fn who_is_hidden_shown_or_comes_along_is_seen_at_the_next_sweep() {
    let directory = directory();
    let far = "dn: ou=far,dc=example,dc=com\nobjectClass: organizationalUnit\nou: far\n\n\
               dn: l=hall,ou=far,dc=example,dc=com\nobjectClass: locality\nl: hall\n\n";
    let in_hall = directory.user("inhall", 4000).replace("ou=people,", "l=hall,ou=far,");
    let parent = directory.user("parent", 4001).replace("ou=people,", "ou=far,");
    let child = directory.user("child", 4002).replace("ou=people,", "uid=parent,ou=far,");
    let ldif = format!("{}\n{far}{in_hall}{parent}{child}", directory.populated(20, 5, 3));
    let mut slapd = Slapd::loaded(SlapdOptions::new(SCHEMA), &ldif);
    slapd.use_cn_config();
    slapd.start();
    let domain = DomainTable::ldap("corp", &slapd)
        .with("user_base", "\"ou=people,dc=example,dc=com\"")
        .with("group_base", "\"ou=groups,dc=example,dc=com\"")
        .with("page_size", "5")
        .with("reconcile_interval", "\"2s\"");
    let rosterd = Rosterd::start(&[domain]);
    wait_until(SOON, "it is mirrored", || is_served(&rosterd, "u3"));
    let people = Some("ou=people,dc=example,dc=com");
    slapd.rename("l=hall,ou=far,dc=example,dc=com", "l=hall", people);
    slapd.rename("uid=parent,ou=far,dc=example,dc=com", "uid=parent", people);
    wait_until(SOON, "who came is served", || is_served(&rosterd, "inhall"));
    wait_until(SOON, "and who came along", || is_served(&rosterd, "child"));

    let hide = |dn: &str| {
        let rule = format!("{{0}}to dn.exact=\"{dn}\" by * none");
        slapd.configure_database(&format!("add: olcAccess\nolcAccess: {rule}\n"));
    };
    let show = || slapd.configure_database("delete: olcAccess\nolcAccess: {0}\n");
    let (user, group) = (directory.user_dn("u3"), directory.group_dn("g1"));
    hide(&user);
    wait_until(SOON, "who is hidden is gone", || !is_served(&rosterd, "u3"));
    show();
    wait_until(SOON, "who is shown is served", || is_served(&rosterd, "u3"));
    hide(&group);
    wait_until(SOON, "a group goes as well", || rosterd.getent("group", "g1").is_none());
    show();
    wait_until(SOON, "and comes", || rosterd.getent("group", "g1").is_some());
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

#[test]
fn reconciliation_limit_removes_none_and_keeps_connection() {
    let directory = directory();
    let mut slapd = Slapd::loaded(SlapdOptions::new(SCHEMA), &directory.populated(20, 5, 3));
    slapd.use_cn_config();
    slapd.start();
    let rosterd =
        Rosterd::start(&[DomainTable::ldap("corp", &slapd).with("reconcile_interval", "\"2s\"")]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    slapd.configure_database("replace: olcSizeLimit\nolcSizeLimit: 5\n");
    let said = || rosterd.log().matches(directory::KEY_LISTING_FAILED.code).count();
    wait_until(SOON, "sweeps fail", || said() >= 2);
    slapd.delete(&[directory.user_dn("u1")]);
    slapd.change(&directory.user("newcomer", 4000));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert!(!rosterd.log().contains("connection to the directory lost"), "{}", rosterd.log());
}

/// A role is computed from attributes of its members, and changes without a change of them.
#[test]
fn who_comes_into_a_role_of_389ds_is_seen_at_the_next_sweep() {
    let directory = directory();
    let role = "cn=staff,ou=people,dc=example,dc=com";
    let of_shell = |shell: &str| format!("(&(objectClass=posixAccount)(loginShell={shell}))");
    let ldif = format!(
        "{}\ndn: {role}\nobjectClass: top\nobjectClass: ldapSubEntry\nobjectClass: nsRoleDefinition\n\
         objectClass: nsComplexRoleDefinition\nobjectClass: nsFilteredRoleDefinition\ncn: staff\n\
         nsRoleFilter: {}\n\n",
        directory.populated(20, 5, 3).replace("/bin/sh", "/bin/false"),
        of_shell("/bin/sh"),
    );
    let server = Ds389::serving(&ldif);
    server.set(&directory.user_dn("u1"), "loginShell", &["/bin/sh"]);
    server.set(&directory.user_dn("u2"), "loginShell", &["/bin/bash"]);
    let filter = format!("(&(objectClass=posixAccount)(nsRole={role}))");
    let domain = DomainTable::ldap("corp", &server)
        .with("user_filter", &format!("{filter:?}"))
        .with("page_size", "2")
        .with("reconcile_interval", "\"2s\"");
    let rosterd = Rosterd::start(&[domain]);
    wait_until(SOON, "it is mirrored", || is_served(&rosterd, "u1"));
    assert!(!is_served(&rosterd, "u2"));
    rosterd.expect_domain_status("corp", "tracking", "syncrepl");
    server.set(role, "nsRoleFilter", &[&of_shell("/bin/bash")]);
    wait_until(SOON, "the new member of the role is served", || is_served(&rosterd, "u2"));
    wait_until(SOON, "the former member is not served", || !is_served(&rosterd, "u1"));
}
