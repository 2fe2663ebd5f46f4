// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two sets of accounts: those of SSSD's cache, and those that Roster serves. `cache` reads the accounts of
//! SSSD. This module makes no lookups.

use crate::sssd::EMPTY_SHELL;
use std::collections::{BTreeMap, BTreeSet};

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Uid.
    pub uid: u32,
    /// Primary gid.
    pub gid: u32,
    /// Full name and further text.
    pub gecos: String,
    /// Home directory.
    pub home: String,
    /// Shell.
    pub shell: String,
    /// Names of the supplementary groups. `None` if the cache does not know all of them.
    pub groups: Option<BTreeSet<String>>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Gid.
    pub gid: u32,
    /// Names of the members. `None` if the cache does not know all of them.
    pub members: Option<BTreeSet<String>>,
}

/// The accounts of one side, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Users.
    pub users: BTreeMap<String, User>,
    /// Groups.
    pub groups: BTreeMap<String, Group>,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // `name` has the words
pub enum Kind {
    UserOnlyInSssd,
    UserOnlyInRoster,
    GroupOnlyInSssd,
    GroupOnlyInRoster,
    Name,
    Uid,
    Gid,
    Gecos,
    Home,
    Shell,
    Groups,
    GroupName,
    GroupGid,
    Members,
}

impl Kind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::UserOnlyInSssd,
        Self::UserOnlyInRoster,
        Self::GroupOnlyInSssd,
        Self::GroupOnlyInRoster,
        Self::Name,
        Self::Uid,
        Self::Gid,
        Self::Gecos,
        Self::Home,
        Self::Shell,
        Self::Groups,
        Self::GroupName,
        Self::GroupGid,
        Self::Members,
    ];

    /// Returns the word for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UserOnlyInSssd => "user-only-in-sssd",
            Self::UserOnlyInRoster => "user-only-in-roster",
            Self::GroupOnlyInSssd => "group-only-in-sssd",
            Self::GroupOnlyInRoster => "group-only-in-roster",
            Self::Name => "name",
            Self::Uid => "uid",
            Self::Gid => "gid",
            Self::Gecos => "gecos",
            Self::Home => "home",
            Self::Shell => "shell",
            Self::Groups => "groups",
            Self::GroupName => "group-name",
            Self::GroupGid => "group-gid",
            Self::Members => "members",
        }
    }
}

/// A difference of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The difference's kind.
    pub kind: Kind,
    /// Name of the user or group.
    pub name: String,
    /// Value in SSSD's cache.
    pub sssd: String,
    /// Value that Roster serves.
    pub roster: String,
}

/// Compares the accounts. Entries that only Roster has are differences if the cache is `enumerated`: otherwise SSSD has
/// only entries that programs asked for. Calls `progress` with the number of compared entries.
pub fn compare(
    sssd: &Accounts,
    roster: &Accounts,
    enumerated: bool,
    mut progress: impl FnMut(u64),
) -> Vec<Difference> {
    let mut found = Vec::new();
    let uids: BTreeMap<u32, &String> =
        roster.users.iter().map(|(name, user)| (user.uid, name)).collect();
    let gids: BTreeMap<u32, &String> =
        roster.groups.iter().map(|(name, group)| (group.gid, name)).collect();
    let mut done = 0;
    let mut renamed_users = BTreeSet::new();
    for (name, user) in &sssd.users {
        match roster.users.get(name) {
            Some(other) => user_differences(name, user, other, &mut found),
            None => match uids.get(&user.uid).filter(|other| !sssd.users.contains_key(**other)) {
                Some(other) => {
                    renamed_users.insert((*other).clone());
                    push(&mut found, Kind::Name, name, name, other);
                    user_differences(name, user, &roster.users[*other], &mut found);
                }
                None => push(&mut found, Kind::UserOnlyInSssd, name, &user.uid.to_string(), ""),
            },
        }
        done += 1;
        progress(done);
    }
    let mut renamed_groups = BTreeSet::new();
    for (name, group) in &sssd.groups {
        match roster.groups.get(name) {
            Some(other) => group_differences(name, group, other, &mut found),
            None => match gids.get(&group.gid).filter(|other| !sssd.groups.contains_key(**other)) {
                Some(other) => {
                    renamed_groups.insert((*other).clone());
                    push(&mut found, Kind::GroupName, name, name, other);
                }
                None => push(&mut found, Kind::GroupOnlyInSssd, name, &group.gid.to_string(), ""),
            },
        }
        done += 1;
        progress(done);
    }
    if enumerated {
        for (name, user) in &roster.users {
            if !sssd.users.contains_key(name) && !renamed_users.contains(name) {
                push(&mut found, Kind::UserOnlyInRoster, name, "", &user.uid.to_string());
            }
        }
        for (name, group) in &roster.groups {
            let is_known = sssd.groups.contains_key(name) || renamed_groups.contains(name);
            if !is_known && !is_private(name, group, sssd) {
                push(&mut found, Kind::GroupOnlyInRoster, name, "", &group.gid.to_string());
            }
        }
    }
    found.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    found
}

/// Returns whether SSSD makes the group from its user. Its cache has only the user then.
fn is_private(name: &str, group: &Group, sssd: &Accounts) -> bool {
    let is_empty = group.members.as_ref().is_none_or(BTreeSet::is_empty);
    let user = sssd.users.get(name).filter(|_| is_empty);
    user.is_some_and(|user| (user.uid, user.gid) == (group.gid, group.gid))
}

fn push(found: &mut Vec<Difference>, kind: Kind, name: &str, sssd: &str, roster: &str) {
    let [name, sssd, roster] = [name, sssd, roster].map(str::to_owned);
    found.push(Difference { kind, name, sssd, roster });
}

fn user_differences(name: &str, sssd: &User, roster: &User, found: &mut Vec<Difference>) {
    let numbers = |user: &User| [user.uid.to_string(), user.gid.to_string()];
    let ([uid, gid], [other_uid, other_gid]) = (numbers(sssd), numbers(roster));
    for (kind, one, other) in [
        (Kind::Uid, &uid, &other_uid),
        (Kind::Gid, &gid, &other_gid),
        (Kind::Gecos, &sssd.gecos, &roster.gecos),
        (Kind::Home, &sssd.home, &roster.home),
        (Kind::Shell, &sssd.shell, &roster.shell),
    ] {
        let has_same_shell = kind == Kind::Shell && shell(one) == shell(other);
        if one != other && !has_same_shell {
            push(found, kind, name, one, other);
        }
    }
    sets(Kind::Groups, name, sssd.groups.as_ref(), roster.groups.as_ref(), found);
}

/// Returns the shell that programs run.
fn shell(field: &str) -> &str {
    if field.is_empty() { EMPTY_SHELL } else { field }
}

fn group_differences(name: &str, sssd: &Group, roster: &Group, found: &mut Vec<Difference>) {
    if sssd.gid != roster.gid {
        push(found, Kind::GroupGid, name, &sssd.gid.to_string(), &roster.gid.to_string());
    }
    sets(Kind::Members, name, sssd.members.as_ref(), roster.members.as_ref(), found);
}

/// Limit of the names in one report.
const NAMES_MAX: usize = 20;

fn sets(
    kind: Kind,
    name: &str,
    sssd: Option<&BTreeSet<String>>,
    roster: Option<&BTreeSet<String>>,
    found: &mut Vec<Difference>,
) {
    let (Some(sssd), Some(roster)) = (sssd, roster) else { return };
    if sssd == roster {
        return;
    }
    let only = |of: &BTreeSet<String>, other: &BTreeSet<String>| {
        let names: Vec<&String> = of.difference(other).collect();
        let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(|name| name.as_str()).collect();
        let more = names.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", shown.join(" "))
    };
    push(found, kind, name, &only(sssd, roster), &only(roster, sssd));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Option<BTreeSet<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn user(uid: u32) -> User {
        User { uid, gid: 100, home: "/h".into(), shell: "/bin/sh".into(), ..User::default() }
    }

    fn accounts(users: Vec<(&str, User)>, groups: Vec<(&str, Group)>) -> Accounts {
        Accounts {
            users: users.into_iter().map(|(name, user)| (name.to_owned(), user)).collect(),
            groups: groups.into_iter().map(|(name, group)| (name.to_owned(), group)).collect(),
        }
    }

    fn rows(
        sssd: &Accounts,
        roster: &Accounts,
        enumerated: bool,
    ) -> Vec<(&'static str, String, String, String)> {
        let found = compare(sssd, roster, enumerated, |_| {});
        found.into_iter().map(|one| (one.kind.name(), one.name, one.sssd, one.roster)).collect()
    }

    fn row(
        kind: &'static str,
        name: &str,
        sssd: &str,
        roster: &str,
    ) -> (&'static str, String, String, String) {
        (kind, name.to_owned(), sssd.to_owned(), roster.to_owned())
    }

    #[test]
    fn compare_lists_each_field() {
        let sssd = accounts(
            vec![
                ("a", User { groups: names(&["x", "y"]), ..user(1) }),
                ("b", user(2)),
                ("gone", user(3)),
                ("old", user(4)),
            ],
            vec![
                ("g", Group { gid: 7, members: names(&["a", "b"]) }),
                ("unknown", Group { gid: 8, members: None }),
                ("was", Group { gid: 9, members: None }),
            ],
        );
        let changed = User {
            gid: 101,
            gecos: "A".into(),
            home: "/home/a".into(),
            shell: "/bin/bash".into(),
            groups: names(&["y", "z"]),
            ..user(11)
        };
        let roster = accounts(
            vec![("a", changed), ("b", user(2)), ("new", user(4)), ("extra", user(5))],
            vec![
                ("g", Group { gid: 70, members: names(&["a"]) }),
                ("unknown", Group { gid: 8, members: names(&["b"]) }),
                ("is", Group { gid: 9, members: names(&[]) }),
            ],
        );
        let expected = [
            row("user-only-in-sssd", "gone", "3", ""),
            row("name", "old", "old", "new"),
            row("uid", "a", "1", "11"),
            row("gid", "a", "100", "101"),
            row("gecos", "a", "", "A"),
            row("home", "a", "/h", "/home/a"),
            row("shell", "a", "/bin/sh", "/bin/bash"),
            row("groups", "a", "x", "z"),
            row("group-name", "was", "was", "is"),
            row("group-gid", "g", "7", "70"),
            row("members", "g", "b", ""),
        ];
        assert_eq!(rows(&sssd, &roster, false), expected);
        let mut more = rows(&sssd, &roster, true);
        more.retain(|one| !expected.contains(one));
        assert_eq!(more, [row("user-only-in-roster", "extra", "", "5")]);
        assert!(rows(&sssd, &sssd, true).is_empty());
    }

    #[test]
    fn compare_empty_shell_equals_bin_sh() {
        let with =
            |shell: &str| accounts(vec![("a", User { shell: shell.into(), ..user(1) })], vec![]);
        assert!(rows(&with(""), &with("/bin/sh"), true).is_empty());
        assert_eq!(rows(&with(""), &with("/bin/bash"), true), [row("shell", "a", "", "/bin/bash")]);
    }

    #[test]
    fn compare_private_group_is_no_difference() {
        let own = |uid| User { gid: uid, ..user(uid) };
        let of = |gid, members: &[&str]| Group { gid, members: names(members) };
        let sssd = accounts(vec![("a", own(1)), ("b", own(2)), ("c", user(3))], vec![]);
        let groups = vec![("a", of(1, &[])), ("b", of(2, &["a"])), ("c", of(3, &[]))];
        let roster = accounts(vec![("a", own(1)), ("b", own(2)), ("c", user(3))], groups);
        let wanted =
            [row("group-only-in-roster", "b", "", "2"), row("group-only-in-roster", "c", "", "3")];
        assert_eq!(rows(&sssd, &roster, true), wanted);
    }
}
