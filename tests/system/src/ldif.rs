// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invented users and groups as LDIF, in either schema, below `ou=people` and `ou=groups`.

use crate::servers::{BASE, Schema};
use std::fmt::Write as _;

/// Ids of the numbered users and groups start here, above the local ids of a host.
pub const FIRST_UID: u32 = 100_000;
/// See [`FIRST_UID`].
pub const FIRST_GID: u32 = 300_000;

/// Groups that `big` is in, when there are so many.
const GROUPS_OF_BIG: u32 = 500;

/// The base and the schema of the entries.
#[derive(Clone, Debug)]
pub struct LdifBuilder {
    base: String,
    schema: Schema,
}

impl LdifBuilder {
    /// Below [`BASE`].
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        Self::below_base(BASE, schema)
    }

    /// Below another base.
    #[must_use]
    pub fn below_base(base: &str, schema: Schema) -> Self {
        Self { base: base.to_owned(), schema }
    }

    /// A user's DN.
    #[must_use]
    pub fn user_dn(&self, name: &str) -> String {
        format!("uid={name},ou=people,{}", self.base)
    }

    /// A group's DN.
    #[must_use]
    pub fn group_dn(&self, name: &str) -> String {
        format!("cn={name},ou=groups,{}", self.base)
    }

    /// The base and the two containers.
    #[must_use]
    pub fn tree(&self) -> String {
        let base = &self.base;
        let dc = base.trim_start_matches("dc=").split(',').next().expect("a first RDN");
        format!(
            "dn: {base}\nobjectClass: domain\ndc: {dc}\n\n\
             dn: ou=people,{base}\nobjectClass: organizationalUnit\nou: people\n\n\
             dn: ou=groups,{base}\nobjectClass: organizationalUnit\nou: groups\n\n"
        )
    }

    /// A user and a primary group of the same number.
    #[must_use]
    pub fn user(&self, name: &str, uid: u32) -> String {
        self.user_in(name, uid, uid)
    }

    /// A user.
    #[must_use]
    pub fn user_in(&self, name: &str, uid: u32, gid: u32) -> String {
        format!(
            "dn: {}\nobjectClass: account\nobjectClass: posixAccount\nuid: {name}\ncn: {name}\n\
             uidNumber: {uid}\ngidNumber: {gid}\nhomeDirectory: /home/{name}\n\
             loginShell: /bin/sh\ngecos: {name} of {}\n\n",
            self.user_dn(name),
            self.base,
        )
    }

    /// A group of users.
    #[must_use]
    pub fn group<N: AsRef<str>>(&self, name: &str, gid: u32, users: &[N]) -> String {
        self.group_of_groups(name, gid, users, &[])
    }

    /// A group of users and, in RFC2307bis, groups.
    #[must_use]
    pub fn group_of_groups<N: AsRef<str>>(
        &self,
        name: &str,
        gid: u32,
        users: &[N],
        groups: &[&str],
    ) -> String {
        let mut text = format!("dn: {}\n", self.group_dn(name));
        if self.schema == Schema::Rfc2307bis {
            text.push_str("objectClass: groupOfMembers\n");
        }
        let _ = write!(text, "objectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n");
        for user in users {
            let _ = match self.schema {
                Schema::Rfc2307 => writeln!(text, "memberUid: {}", user.as_ref()),
                Schema::Rfc2307bis => writeln!(text, "member: {}", self.user_dn(user.as_ref())),
            };
        }
        for group in groups {
            let _ = writeln!(text, "member: {}", self.group_dn(group));
        }
        text.push('\n');
        text
    }

    /// One change that makes a user a member of a group, or ends that.
    #[must_use]
    pub fn membership(&self, group: &str, user: &str, member: bool) -> String {
        let (attribute, value) = match self.schema {
            Schema::Rfc2307 => ("memberUid", user.to_owned()),
            Schema::Rfc2307bis => ("member", self.user_dn(user)),
        };
        let verb = if member { "add" } else { "delete" };
        format!(
            "dn: {}\nchangetype: modify\n{verb}: {attribute}\n{attribute}: {value}\n-\n\n",
            self.group_dn(group)
        )
    }

    /// The tree with `users` users `u0` …, and `groups` groups `g0` … of `members` members each. It also has the
    /// special cases of real directories. User `big` is in 500 groups. Some members do not exist. A user and a group
    /// have several names, of which the RDN counts. In RFC2307bis, groups are in groups, two of them in each other.
    /// Members there are named in other spellings of their DN.
    #[must_use]
    pub fn populated(&self, users: u32, groups: u32, members: u32) -> String {
        let mut text = self.tree();
        for i in 0..users {
            text.push_str(&self.user_in(&format!("u{i}"), FIRST_UID + i, FIRST_GID + i % groups));
        }
        text.push_str(&self.user("big", FIRST_UID - 1));
        text.push_str(&self.user("lonely", FIRST_UID - 2));
        for i in 0..groups {
            let mut names: Vec<_> =
                (0..members).map(|k| format!("u{}", (i * 7 + k * 13) % users)).collect();
            names.sort_unstable();
            names.dedup();
            names.extend((i < GROUPS_OF_BIG).then(|| "big".to_owned()));
            text.push_str(&self.group(&format!("g{i}"), FIRST_GID + i, &names));
        }
        let others = FIRST_GID - 100;
        text.push_str(&self.group("strangers", others, &["nobody-knows", "u1", "who"]));
        text.push_str(&self.group::<&str>("empty", others + 1, &[]));
        text.push_str(&self.alias_lines(others + 2));
        if self.schema == Schema::Rfc2307bis {
            text.push_str(&self.group_of_groups("outer", others + 3, &["lonely"], &["g0", "g1"]));
            text.push_str(&self.group_of_groups(
                "outermost",
                others + 4,
                &["u5"],
                &["outer", "none"],
            ));
            text.push_str(&self.group_of_groups("loopa", others + 5, &["u1"], &["loopb"]));
            text.push_str(&self.group_of_groups("loopb", others + 6, &["u2"], &["loopa", "loopb"]));
            let odd = self.user_dn("u3").replace("uid=", "UID = ").replace(",ou=", " , OU=");
            let mut spelt = self.group("spelt", others + 7, &["u4"]);
            spelt.truncate(spelt.trim_end().len());
            let _ = write!(spelt, "\nmember: {odd}\n\n");
            text.push_str(&spelt);
        }
        text
    }

    fn alias_lines(&self, id: u32) -> String {
        let user = self.user("several", id).replace("uid: several\n", "uid: alias\nuid: several\n");
        let mut group = self.group("team", id, &["several", "u0"]);
        group = group.replace("cn: team\n", "cn: another\ncn: team\n");
        format!("{user}{group}")
    }
}

/// A line of LDIF for any bytes.
#[must_use]
pub fn ldif_line(attribute: &str, value: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("{attribute}:: ");
    for bytes in value.chunks(3) {
        let bits = bytes.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - bytes.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= bytes.len() { digit.into() } else { '=' });
        }
    }
    text.push('\n');
    text
}
