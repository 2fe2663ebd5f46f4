// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assigns a user to each role. `spawn` starts the processes.
//!
//! Every role has a separate user, so that the kernel isolates the roles, and the bus can identify senders. All have
//! the primary group of the bus. It opens the directory of the bus's socket to roles only. Other users could otherwise
//! occupy the bus with silent connections. Users of backends are numbered by the position of their domains in the
//! configuration. They are read from the text of /etc/passwd, so a directory cannot affect them.

use roster_bus::bus_names::RoleName;
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use roster_role::UserIds;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The user of the bus.
pub const BUS_USER: &str = "roster-bus";
/// The user of the publisher.
pub const PUBLISHER_USER: &str = "roster-publisher";
/// Responders, and their users.
pub const RESPONDER_USERS: [(&str, &str); 3] =
    [("nss", "roster-nss"), ("pam", "roster-pam"), ("metrics", "roster-metrics")];
/// Prefix of the users of backends.
pub const BACKEND_USER_PREFIX: &str = "roster-backend-";

/// Users of the roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleUsers {
    /// All processes run as the user of the monitor.
    Invoking(UserIds),
    /// Each role has a separate user.
    Separate {
        /// The bus.
        bus: UserIds,
        /// The publisher.
        publisher: UserIds,
        /// The responders with existing users, by name. A responder that is not configured needs no user.
        responders: BTreeMap<&'static str, UserIds>,
        /// Backends, by the position of their domain.
        backends: Vec<UserIds>,
        /// Uids of all backend users, including uids without a domain.
        backend_uids: BTreeSet<u32>,
    },
}

/// Whether the text of /etc/passwd has a user of that id.
pub fn has_uid(passwd: &[u8], uid: u32) -> bool {
    let mut lines = passwd.split(|&byte| byte == b'\n');
    lines.any(|line| matches!(passwd_line(line), ParsedLine::Entry(user) if user.uid == uid))
}

impl RoleUsers {
    /// Reads the users for that many domains from the text of /etc/passwd. An error has the names of missing or
    /// unsuitable users.
    pub fn from_passwd(passwd: &[u8], domains: usize) -> Result<Self, Vec<String>> {
        let mut known = HashMap::new();
        for line in passwd.split(|&byte| byte == b'\n') {
            if let ParsedLine::Entry(user) = passwd_line(line) {
                // The first line of a name counts, as in glibc.
                known.entry(user.name).or_insert(UserIds { uid: user.uid, gid: user.gid });
            }
        }
        let group = known.get(BUS_USER.as_bytes()).map(|ids| ids.gid);
        let mut missing = Vec::new();
        let mut seen = HashMap::new();
        let mut find = |name: String| {
            let ids =
                known.get(name.as_bytes()).copied().filter(|ids| ids.uid != 0 && ids.gid != 0);
            let ids = ids.filter(|ids| Some(ids.gid) == group);
            // The kernel and the bus could not distinguish two roles with one uid.
            let ids = ids.filter(|ids| seen.insert(ids.uid, name.clone()).is_none());
            if ids.is_none() {
                missing.push(name);
            }
            ids.unwrap_or(UserIds { uid: u32::MAX, gid: u32::MAX })
        };
        let bus = find(BUS_USER.into());
        let publisher = find(PUBLISHER_USER.into());
        let there =
            RESPONDER_USERS.into_iter().filter(|(_, user)| known.contains_key(user.as_bytes()));
        let responders = there.map(|(name, user)| (name, find(user.into()))).collect();
        let is_backend = |name: &[u8], ids: &UserIds| {
            name.starts_with(BACKEND_USER_PREFIX.as_bytes())
                && ids.uid != 0
                && Some(ids.gid) == group
        };
        let backend_uids = known
            .iter()
            .filter(|(name, ids)| is_backend(name, ids))
            .map(|(_, ids)| ids.uid)
            .collect();
        let backends =
            (0..domains).map(|place| find(format!("{BACKEND_USER_PREFIX}{place}"))).collect();
        if missing.is_empty() {
            Ok(Self::Separate { bus, publisher, responders, backends, backend_uids })
        } else {
            Err(missing)
        }
    }

    /// Whether roles have separate users.
    pub fn are_separate(&self) -> bool {
        matches!(self, Self::Separate { .. })
    }

    /// Returns uids of all backend users; empty if roles have no separate users.
    pub fn backend_uids(&self) -> BTreeSet<u32> {
        match self {
            Self::Invoking(_) => BTreeSet::new(),
            Self::Separate { backend_uids, .. } => backend_uids.clone(),
        }
    }

    /// Returns the user of the bus.
    pub fn bus(&self) -> UserIds {
        match self {
            Self::Invoking(ids) => *ids,
            Self::Separate { bus, .. } => *bus,
        }
    }

    /// Returns the user of a role. For a backend it depends on the position of its domain in `domains`.
    pub fn user_of_role(&self, role: &RoleName, domains: &[String]) -> Option<UserIds> {
        match (self, role) {
            (Self::Invoking(ids), _) => Some(*ids),
            (Self::Separate { .. }, RoleName::Monitor) => Some(UserIds { uid: 0, gid: 0 }),
            (Self::Separate { publisher, .. }, RoleName::Publisher) => Some(*publisher),
            (Self::Separate { responders, .. }, RoleName::Responder(name)) => {
                responders.get(name.as_str()).copied()
            }
            (Self::Separate { backends, .. }, RoleName::Backend(domain)) => {
                let place = domains.iter().position(|name| name == domain)?;
                backends.get(place).copied()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\n\
        roster-bus:x:901:901::/:/bin/false\n\
        roster-publisher:x:902:901::/:/bin/false\n\
        roster-nss:x:903:901::/:/bin/false\n\
        roster-metrics:x:904:901::/:/bin/false\n\
        roster-pam:x:905:901::/:/bin/false\n\
        roster-backend-0:x:910:901::/:/bin/false\n\
        roster-backend-1:x:911:901::/:/bin/false\n\
        roster-backend-1:x:0:0:second line of a name:/:/bin/false\n";

    #[test]
    fn every_role_has_a_user_and_back_ends_go_by_place() {
        let users = RoleUsers::from_passwd(PASSWD, 2).unwrap();
        let domains = ["lab".to_owned(), "corp".to_owned()];
        let uid = |role| users.user_of_role(&role, &domains).map(|ids| ids.uid);
        assert_eq!(users.bus().uid, 901);
        assert_eq!(uid(RoleName::Publisher), Some(902));
        assert_eq!(uid(RoleName::Responder("nss".into())), Some(903));
        assert_eq!(uid(RoleName::Responder("metrics".into())), Some(904));
        assert_eq!(uid(RoleName::Responder("pam".into())), Some(905));
        assert_eq!(uid(RoleName::Backend("lab".into())), Some(910));
        assert_eq!(uid(RoleName::Backend("corp".into())), Some(911));
        assert_eq!(uid(RoleName::Backend("other".into())), None);
    }

    #[test]
    fn users_that_are_missing_are_named() {
        assert_eq!(RoleUsers::from_passwd(PASSWD, 3), Err(vec!["roster-backend-2".to_owned()]));
        assert_eq!(RoleUsers::from_passwd(b"", 0).unwrap_err(), [BUS_USER, PUBLISHER_USER]);
    }

    #[test]
    fn responder_without_user_is_absent_bad_user_reported() {
        let text = String::from_utf8_lossy(PASSWD);
        let without = text.replace("roster-pam", "other");
        let users = RoleUsers::from_passwd(without.as_bytes(), 2).unwrap();
        let pam = RoleName::Responder("pam".into());
        assert_eq!(
            (
                users.user_of_role(&pam, &[]),
                users.user_of_role(&RoleName::Publisher, &[]).is_some()
            ),
            (None, true)
        );
        let shared = text.replace("905", "904");
        assert_eq!(RoleUsers::from_passwd(shared.as_bytes(), 2).unwrap_err(), ["roster-metrics"]);
    }

    #[test]
    fn two_roles_never_share_a_user_and_none_is_root() {
        let text = String::from_utf8_lossy(PASSWD);
        let shared = text.replace("911", "910");
        let wrong = RoleUsers::from_passwd(shared.as_bytes(), 2).unwrap_err();
        assert_eq!(wrong, ["roster-backend-1"]);
        let root = text.replace("902:901", "0:901");
        assert_eq!(RoleUsers::from_passwd(root.as_bytes(), 2).unwrap_err(), [PUBLISHER_USER]);
        let elsewhere = text.replace("902:901", "902:902");
        assert_eq!(RoleUsers::from_passwd(elsewhere.as_bytes(), 2).unwrap_err(), [PUBLISHER_USER]);
    }
}
