// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviour that every mirrored directory has to show with any server: run by the tests of each.

use crate::ldif::{FIRST_GID, FIRST_UID, LdifBuilder};
use crate::rosterd::{LONG_WAIT, OracleSource, Rosterd};
use crate::servers::{DirectoryServer, Schema};
use crate::wait::wait_until;

/// The way in which the daemon learns of deleted entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReports {
    /// The server names each.
    Named,
    /// A listing lacks them, so that many at once wait for a confirmation.
    Unnamed,
}

/// Checks that changes are seen through getent and id: users and groups come, change, are renamed, move, change
/// memberships, and go. At the end the host serves the same as the directory.
///
/// # Panics
/// If a step is not seen.
pub fn changes_are_seen(
    server: &dyn DirectoryServer,
    rosterd: &Rosterd,
    deletions: DeletionReports,
) {
    let directory = LdifBuilder::new(server.schema());
    let base = server.base();
    let groups = |name: &str| {
        let done = rosterd.host().run("id", &["-Gn", name]);
        let mut names: Vec<_> = done.text().split(' ').map(str::to_owned).collect();
        names.sort_unstable();
        names.join(" ")
    };

    // Added.
    server.change(&directory.user("anna", 70_001));
    server.change(&directory.group("crew", 70_001, &["anna", "u1"]));
    let anna = format!("anna:*:70001:70001:anna of {base}:/home/anna:/bin/sh");
    rosterd.expect("passwd", "anna", Some(&anna));
    rosterd.expect("passwd", "70001", Some(&anna));
    rosterd.expect("group", "crew", Some("crew:*:70001:anna,u1"));
    assert_eq!(groups("anna"), "crew");

    // Modified.
    server.set(&directory.user_dn("anna"), "loginShell", &["/bin/zsh"]);
    rosterd.expect("passwd", "anna", Some(&anna.replace("/bin/sh", "/bin/zsh")));
    server.set(&directory.user_dn("anna"), "uidNumber", &["70002"]);
    let anna = anna.replace(":70001:70001:", ":70002:70001:").replace("/bin/sh", "/bin/zsh");
    rosterd.expect("passwd", "70002", Some(&anna));
    rosterd.expect("passwd", "70001", None);
    server.set(&directory.group_dn("crew"), "gidNumber", &["70003"]);
    rosterd.expect("group", "70003", Some("crew:*:70003:anna,u1"));
    server.set(&directory.user_dn("anna"), "gidNumber", &["70003"]);
    rosterd.expect("passwd", "anna", Some(&anna.replace(":70001:", ":70003:")));

    // Members come and go.
    server.change(&directory.membership("crew", "u1", false));
    rosterd.expect("group", "crew", Some("crew:*:70003:anna"));
    server.change(&directory.membership("g2", "anna", true));
    let g2 = FIRST_GID + 2;
    rosterd.expect_groups("anna", 70_003, &[70_003, g2]);
    assert_eq!(groups("anna"), "crew g2");

    // Renamed, and moved to another place at once. With most servers, member lists follow only when an administrator
    // changes them.
    server.change(&format!("dn: ou=staff,{base}\nobjectClass: organizationalUnit\nou: staff\n\n"));
    server.rename(&directory.user_dn("anna"), "uid=anne", Some(&format!("ou=staff,{base}")));
    let anne = anna.replace(":70001:", ":70003:").replacen("anna", "anne", 1);
    rosterd.expect("passwd", "anne", Some(&anne));
    rosterd.expect("passwd", "anna", None);
    rosterd.expect("passwd", "70002", Some(&anne));
    if !server.repairs_member_lists() {
        rosterd.expect("group", "crew", Some("crew:*:70003:"));
    }
    let member = match server.schema() {
        Schema::Rfc2307 => "anne".to_owned(),
        Schema::Rfc2307bis => format!("uid=anne,ou=staff,{base}"),
    };
    let attribute = match server.schema() {
        Schema::Rfc2307 => "memberUid",
        Schema::Rfc2307bis => "member",
    };
    server.set(&directory.group_dn("crew"), attribute, &[&member]);
    rosterd.expect("group", "crew", Some("crew:*:70003:anne"));
    server.rename(&directory.group_dn("crew"), "cn=team2", None);
    rosterd.expect("group", "team2", Some("team2:*:70003:anne"));
    rosterd.expect("group", "crew", None);

    // Deleted, and created again under the same name.
    server.delete(&[format!("uid=anne,ou=staff,{base}")]);
    rosterd.expect("passwd", "anne", None);
    rosterd.expect("passwd", "70002", None);
    rosterd.expect("group", "team2", Some("team2:*:70003:"));
    server.delete(&[directory.group_dn("team2")]);
    rosterd.expect("group", "team2", None);
    rosterd.expect("group", "70003", None);
    server.change(&directory.user("anna", 70_009));
    rosterd.expect(
        "passwd",
        "70009",
        Some(&format!("anna:*:70009:70009:anna of {base}:/home/anna:/bin/sh")),
    );

    // Many changes at once; lookups come in the middle of them.
    let mut changes = String::new();
    for i in 0..200 {
        changes.push_str(&directory.user(&format!("many{i}"), 71_000 + i));
        changes.push_str(&directory.membership("g3", &format!("many{i}"), true));
    }
    server.change(&changes);
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
    let gone: Vec<_> = (0..200).map(|i| directory.user_dn(&format!("many{i}"))).collect();
    server.delete(&gone);
    if deletions == DeletionReports::Unnamed {
        let held = || rosterd.pending_removals("corp").is_ok_and(|held| held > 0);
        wait_until(LONG_WAIT, "removals wait", held);
        rosterd.expect_mirror_approving_removals("corp", &[OracleSource::Server(server)]);
    }
    rosterd.expect_mirror(&[OracleSource::Server(server)]);

    // The entries that no step touched are as before.
    let first = format!("u0:*:{FIRST_UID}:{FIRST_GID}:u0 of {base}:/home/u0:/bin/sh");
    assert_eq!(rosterd.getent("passwd", "u0").as_deref(), Some(first.as_str()));
}

/// Checks that changes made while no daemon ran are seen after its start. It goes on serving the entries that it served
/// before.
///
/// # Panics
/// If not.
pub fn changes_in_a_gap_are_seen(server: &dyn DirectoryServer, rosterd: &mut Rosterd) {
    let directory = LdifBuilder::new(server.schema());
    rosterd.stop();
    assert!(rosterd.getent("passwd", "u1").is_some(), "the snapshot serves without a daemon");
    server.change(&directory.user("gap", 72_000));
    server.change(&directory.user("short", 72_001));
    server.change(&directory.membership("g4", "gap", true));
    server.set(&directory.user_dn("u2"), "loginShell", &["/bin/gap"]);
    server.delete(&[directory.user_dn("u6"), directory.group_dn("g6")]);
    server.delete(&[directory.user_dn("short")]);
    server.rename(&directory.user_dn("u7"), "uid=u7new", None);
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
    // The daemon is alive after that, too.
    server.set(&directory.user_dn("u2"), "loginShell", &["/bin/later"]);
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
}
