//! Under which user each role runs.
//!
//! Every role has a user of its own, so that the kernel keeps them apart and the bus can tell who
//! speaks. Their primary group is one, the bus's: it opens the folder of the bus's socket to roles and to
//! nobody else, who could otherwise keep the bus busy by connecting and saying nothing. Back-ends are numbered by their domain's place in the configuration. Read from the text of
//! /etc/passwd: a directory has no say in this.

use roster_bus::names::Role;
use roster_nscd::server::rights::HELPER as NSCD_HELPER;
use roster_record::text::{Line, passwd_line};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The user of the bus.
pub const BUS: &str = "roster-bus";
/// The user of the publisher.
pub const PUBLISHER: &str = "roster-publisher";
/// Responders, and their users.
pub const RESPONDERS: [(&str, &str); 4] = [
    ("nss", "roster-nss"),
    ("pam", "roster-pam"),
    ("metrics", "roster-metrics"),
    ("nscd", "roster-nscd"),
];
/// The users of back-ends, without their numbers.
pub const BACKEND: &str = "roster-backend-";

/// A user and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Ids {
    /// The owner of a file.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }
}

/// Who runs what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Everything runs as whoever started the monitor.
    Invoking(Ids),
    /// Each role has its own.
    Separate {
        /// The bus.
        bus: Ids,
        /// The publisher.
        publisher: Ids,
        /// The responders, by name, of those whose users are there. What is not configured needs none.
        responders: BTreeMap<&'static str, Ids>,
        /// The helpers of the responder in place of nscd, with a group of their own; none without such a user.
        nscd_helper: Option<Ids>,
        /// Back-ends, by their domain's place.
        backends: Vec<Ids>,
        /// Uids of all back-ends' users, those without a domain included.
        backend_uids: BTreeSet<u32>,
    },
}

/// Whether the text of /etc/passwd has a user of that id.
pub fn has(passwd: &[u8], uid: u32) -> bool {
    let mut lines = passwd.split(|&byte| byte == b'\n');
    lines.any(|line| matches!(passwd_line(line), Line::Entry(user) if user.uid == uid))
}

impl Users {
    /// The users of that many domains, out of the text of /etc/passwd. An error is the names of those
    /// that are missing, or that are no good.
    pub fn separate(passwd: &[u8], domains: usize) -> Result<Self, Vec<String>> {
        let mut known = HashMap::new();
        for line in passwd.split(|&byte| byte == b'\n') {
            if let Line::Entry(user) = passwd_line(line) {
                // The first line of a name is the one that counts.
                known.entry(user.name).or_insert(Ids { uid: user.uid, gid: user.gid });
            }
        }
        let group = known.get(BUS.as_bytes()).map(|ids| ids.gid);
        let mut missing = Vec::new();
        let mut seen = HashMap::new();
        let mut find = |name: String| {
            let ids =
                known.get(name.as_bytes()).copied().filter(|ids| ids.uid != 0 && ids.gid != 0);
            let ids = ids.filter(|ids| Some(ids.gid) == group);
            // Two roles with one uid would be one to the kernel and to the bus.
            let ids = ids.filter(|ids| seen.insert(ids.uid, name.clone()).is_none());
            if ids.is_none() {
                missing.push(name);
            }
            ids.unwrap_or(Ids { uid: u32::MAX, gid: u32::MAX })
        };
        let bus = find(BUS.into());
        let publisher = find(PUBLISHER.into());
        let there = RESPONDERS.into_iter().filter(|(_, user)| known.contains_key(user.as_bytes()));
        let responders = there.map(|(name, user)| (name, find(user.into()))).collect();
        // In the group of the roles it could reach the bus.
        let is_apart = |ids: &Ids| ids.uid != 0 && ids.gid != 0 && Some(ids.gid) != group;
        let nscd_helper = known.get(NSCD_HELPER.as_bytes()).copied().filter(is_apart);
        let is_backend = |name: &[u8], ids: &Ids| {
            name.starts_with(BACKEND.as_bytes()) && ids.uid != 0 && Some(ids.gid) == group
        };
        let backend_uids = known
            .iter()
            .filter(|(name, ids)| is_backend(name, ids))
            .map(|(_, ids)| ids.uid)
            .collect();
        let backends = (0..domains).map(|place| find(format!("{BACKEND}{place}"))).collect();
        let nscd_helper = nscd_helper.filter(|ids| !seen.contains_key(&ids.uid));
        if missing.is_empty() {
            Ok(Self::Separate { bus, publisher, responders, nscd_helper, backends, backend_uids })
        } else {
            Err(missing)
        }
    }

    /// Whether roles have users of their own.
    pub fn are_separate(&self) -> bool {
        matches!(self, Self::Separate { .. })
    }

    /// Uids of all back-ends' users; none where roles have no users of their own.
    pub fn backend_uids(&self) -> BTreeSet<u32> {
        match self {
            Self::Invoking(_) => BTreeSet::new(),
            Self::Separate { backend_uids, .. } => backend_uids.clone(),
        }
    }

    /// The user of the helpers of the responder in place of nscd.
    pub fn nscd_helper(&self) -> Option<Ids> {
        match self {
            Self::Invoking(ids) => Some(*ids),
            Self::Separate { nscd_helper, .. } => *nscd_helper,
        }
    }

    /// The user of the bus.
    pub fn bus(&self) -> Ids {
        match self {
            Self::Invoking(ids) => *ids,
            Self::Separate { bus, .. } => *bus,
        }
    }

    /// The user of a role; a back-end's goes by its domain's place in `domains`.
    pub fn of(&self, role: &Role, domains: &[String]) -> Option<Ids> {
        match (self, role) {
            (Self::Invoking(ids), _) => Some(*ids),
            (Self::Separate { .. }, Role::Monitor) => Some(Ids { uid: 0, gid: 0 }),
            (Self::Separate { publisher, .. }, Role::Publisher) => Some(*publisher),
            (Self::Separate { responders, .. }, Role::Responder(name)) => {
                responders.get(name.as_str()).copied()
            }
            (Self::Separate { backends, .. }, Role::Backend(domain)) => {
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
        let users = Users::separate(PASSWD, 2).unwrap();
        let domains = ["lab".to_owned(), "corp".to_owned()];
        let uid = |role| users.of(&role, &domains).map(|ids| ids.uid);
        assert_eq!(users.bus().uid, 901);
        assert_eq!(uid(Role::Publisher), Some(902));
        assert_eq!(uid(Role::Responder("nss".into())), Some(903));
        assert_eq!(uid(Role::Responder("metrics".into())), Some(904));
        assert_eq!(uid(Role::Responder("pam".into())), Some(905));
        assert_eq!(uid(Role::Backend("lab".into())), Some(910));
        assert_eq!(uid(Role::Backend("corp".into())), Some(911));
        assert_eq!(uid(Role::Backend("other".into())), None);
    }

    #[test]
    fn users_that_are_missing_are_named() {
        assert_eq!(Users::separate(PASSWD, 3), Err(vec!["roster-backend-2".to_owned()]));
        assert_eq!(Users::separate(b"", 0).unwrap_err(), [BUS, PUBLISHER]);
    }

    #[test]
    fn a_responder_without_a_user_is_none_and_one_whose_user_is_no_good_is_told() {
        let text = String::from_utf8_lossy(PASSWD);
        let without = text.replace("roster-pam", "other");
        let users = Users::separate(without.as_bytes(), 2).unwrap();
        let pam = Role::Responder("pam".into());
        assert_eq!((users.of(&pam, &[]), users.of(&Role::Publisher, &[]).is_some()), (None, true));
        let shared = text.replace("905", "904");
        assert_eq!(Users::separate(shared.as_bytes(), 2).unwrap_err(), ["roster-metrics"]);
    }

    #[test]
    fn nscd_helper_user_needs_own_ids() {
        let helper = |line: &str| {
            let text = [PASSWD, line.as_bytes()].concat();
            Users::separate(&text, 2).unwrap().nscd_helper()
        };
        assert_eq!(helper("roster-nscd-helper:x:930:930:::\n"), Some(Ids { uid: 930, gid: 930 }));
        for ids in ["905:930", "930:901", "0:930", "930:0"] {
            assert_eq!(helper(&format!("roster-nscd-helper:x:{ids}:::\n")), None, "{ids}");
        }
        assert_eq!(helper(""), None);
    }

    #[test]
    fn two_roles_never_share_a_user_and_none_is_root() {
        let text = String::from_utf8_lossy(PASSWD);
        let shared = text.replace("911", "910");
        let wrong = Users::separate(shared.as_bytes(), 2).unwrap_err();
        assert_eq!(wrong, ["roster-backend-1"]);
        let root = text.replace("902:901", "0:901");
        assert_eq!(Users::separate(root.as_bytes(), 2).unwrap_err(), [PUBLISHER]);
        let elsewhere = text.replace("902:901", "902:902");
        assert_eq!(Users::separate(elsewhere.as_bytes(), 2).unwrap_err(), [PUBLISHER]);
    }
}
