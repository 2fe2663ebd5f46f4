//! The trust boundary: decides whether a host may serve an entry of a directory. Each entry that any interface serves
//! has passed [`Rules::user`] or [`Rules::group`]. The publisher decides between domains that claim the same name or
//! id.
#![forbid(unsafe_code)]

mod locals;

pub use locals::{IdRanges, LocalFiles, Locals};

use roster_config::{AdmissionExceptions, DomainConfig, HostConfig, USERS_GID};
use roster_passwd_format::{Group, User};
use std::fmt;

/// Limit of the name of a user or group. glibc's LOGIN_NAME_MAX is 256 with its NUL.
pub const NAME_BYTES_MAX: usize = 255;
/// Limit of GECOS, home directory and shell.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Ids with a special meaning on every host: root, `nobody`, and the ends of 16 and 32 bits.
const RESERVED: [u32; 4] = [0, 65_534, 65_535, u32::MAX];
/// Names of accounts that programs and distributions create, sorted: privileged groups, and users and groups of
/// services. A directory entry with such a name would get the rights of a package that is installed later.
const PRIVILEGED: [&str; 72] = [
    "_apt",
    "_chrony",
    "_ssh",
    "adm",
    "admin",
    "apache",
    "avahi",
    "backup",
    "bin",
    "chrony",
    "colord",
    "crontab",
    "daemon",
    "dbus",
    "disk",
    "dnsmasq",
    "docker",
    "gdm",
    "geoclue",
    "google-sudoers",
    "incus",
    "incus-admin",
    "input",
    "kmem",
    "kvm",
    "libvirt",
    "libvirt-qemu",
    "lp",
    "lpadmin",
    "lxc",
    "lxd",
    "mail",
    "man",
    "messagebus",
    "microk8s",
    "mysql",
    "named",
    "netdev",
    "news",
    "nginx",
    "nobody",
    "nogroup",
    "ntp",
    "operator",
    "podman",
    "polkitd",
    "postfix",
    "postgres",
    "proxy",
    "qemu",
    "redis",
    "render",
    "rpc",
    "rtkit",
    "sambashare",
    "sgx",
    "shadow",
    "sshd",
    "ssl-cert",
    "sssd",
    "sudo",
    "sys",
    "tape",
    "tss",
    "tty",
    "utmp",
    "uucp",
    "vboxusers",
    "video",
    "wheel",
    "wireshark",
    "www-data",
];
/// Length of the longest of these names.
const PRIVILEGED_BYTES_MAX: usize = 14;
/// Fault of a name that [`AdmissionExceptions`] can allow.
pub const OTHER_CHARACTERS: &str =
    "has characters other than letters, digits, '.', '_', '-', '@' and '+'";
/// Prefixes of the names of other such accounts.
const PRIVILEGED_PREFIXES: [&str; 2] = ["systemd-", "roster-"];

/// The rules of one domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Smallest uid and gid.
    pub min_id: u32,
    /// Largest.
    pub max_id: u32,
    /// Primary gids that are allowed although they are below `min_id` or belong to a local group.
    pub allowed_local_gids: Vec<u32>,
    /// Other exceptions.
    pub exceptions: AdmissionExceptions,
}

/// A type that has the fields of a user.
pub trait AsUser {
    /// Returns the fields.
    fn as_user(&self) -> User<'_>;
}

/// A type that has the fields of a group.
pub trait AsGroup {
    /// Returns the name.
    fn name(&self) -> &[u8];
    /// Returns the gid.
    fn gid(&self) -> u32;
}

impl AsUser for User<'_> {
    fn as_user(&self) -> User<'_> {
        *self
    }
}

impl AsGroup for Group<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }

    fn gid(&self) -> u32 {
        self.gid
    }
}

/// Proof that an entry passed the rules. Only this module makes it.
pub struct Admitted<'a, T>(&'a T);

impl<'a, T> Admitted<'a, T> {
    /// Returns the entry.
    #[must_use]
    pub fn entry(&self) -> &'a T {
        self.0
    }
}

/// The kind of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Id {
    Uid,
    Gid,
    PrimaryGid,
}

/// The reason that an entry is not served. Entries with the same fault display the same text, so that they can be
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The id is below the smallest one.
    Below(Id, u32, u32),
    /// The id is above the largest one.
    Above(Id, u32, u32),
    /// The id is in `RESERVED`.
    Reserved(Id, u32),
    /// A local user has the name.
    LocalUserName,
    /// A local group has the name.
    LocalGroupName,
    /// A local user or group has the id.
    Local(Id, u32),
    /// The gid is the primary gid of a local user, and no local group has it.
    Unnamed(Id, u32),
    /// A local user may use the id in a user namespace.
    Subordinate(Id, u32),
    /// The name is in `PRIVILEGED`.
    Privileged,
    /// The name is invalid, with the reason.
    Name(&'static str),
    /// A text is invalid: the field and the reason.
    Text(&'static str, &'static str),
    /// An entry of higher priority has the name.
    NameTaken(Owner),
    /// An entry of higher priority has the id.
    IdTaken(Id, u32, Owner),
    /// The primary group belongs to a higher-priority domain.
    ForeignGroup(u32),
    /// The gid is the primary gid of a user of a higher-priority domain, which would become a member.
    ForeignMembers(u32),
    /// The nested groups of this group, and of the domain's groups before it, exceed a limit.
    Nested,
}

/// The owner of the entry with priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Another entry of the same domain.
    SameDomain,
    /// An entry of a higher-priority domain.
    EarlierDomain,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uid => "uid",
            Self::Gid => "gid",
            Self::PrimaryGid => "primary gid",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(Id::Uid, id, min) => write!(f, "uid {id} is below min_id ({min})"),
            Self::Below(_, id, min) => write!(f, "gid {id} is below min_id ({min})"),
            Self::Above(Id::Uid, id, max) => write!(f, "uid {id} is above max_id ({max})"),
            Self::Above(_, id, max) => write!(f, "gid {id} is above max_id ({max})"),
            Self::Reserved(kind, id) => write!(f, "{kind} {id} is reserved"),
            Self::LocalUserName => write!(f, "a local user has this name"),
            Self::LocalGroupName => write!(f, "a local group has this name"),
            Self::Local(Id::Uid, id) => write!(f, "uid {id} is a local user's"),
            Self::Local(kind, id) => write!(f, "{kind} {id} is a local group's"),
            Self::Unnamed(kind, id) => write!(f, "{kind} {id} is a local user's primary gid"),
            Self::Subordinate(kind, id) => {
                write!(f, "{kind} {id} is a subordinate id of a local user")
            }
            Self::Privileged => write!(f, "the name belongs to a privileged account on many hosts"),
            Self::Name(fault) => write!(f, "the name {fault}"),
            Self::Text(what, fault) => write!(f, "the {what} {fault}"),
            Self::NameTaken(owner) => write!(f, "{owner} has this name"),
            Self::IdTaken(kind, id, owner) => write!(f, "{owner} has {kind} {id}"),
            Self::Nested => write!(f, "the groups within the domain's groups add up to too much"),
            Self::ForeignGroup(gid) => {
                write!(f, "primary gid {gid} is a group of an earlier domain")
            }
            Self::ForeignMembers(gid) => {
                write!(f, "gid {gid} is the primary gid of an earlier domain's user")
            }
        }
    }
}

impl Refusal {
    /// Describes the fault without the id, for counts of many entries.
    #[must_use]
    pub fn without_id(&self) -> String {
        match self {
            Self::Below(Id::Uid, _, min) => format!("uids below min_id ({min})"),
            Self::Below(_, _, min) => format!("gids below min_id ({min})"),
            Self::Above(Id::Uid, _, max) => format!("uids above max_id ({max})"),
            Self::Above(_, _, max) => format!("gids above max_id ({max})"),
            Self::Reserved(kind, _) => format!("{kind}s that are reserved"),
            Self::Local(Id::Uid, _) => "uids of local users".into(),
            Self::Local(kind, _) => format!("{kind}s of local groups"),
            Self::Unnamed(kind, _) => format!("{kind}s that are primary gids of local users"),
            Self::Subordinate(kind, _) => {
                format!("{kind}s that are subordinate ids of local users")
            }
            Self::IdTaken(kind, _, owner) => format!("{kind}s that {owner} has"),
            Self::ForeignGroup(_) => "primary gids that are groups of an earlier domain".into(),
            Self::ForeignMembers(_) => {
                "gids that are primary gids of an earlier domain's users".into()
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameDomain => "an earlier entry of this domain",
            Self::EarlierDomain => "an earlier domain",
        })
    }
}

impl Rules {
    /// Returns the rules of a configured domain.
    #[must_use]
    pub fn new(domain: &DomainConfig, host: &HostConfig) -> Self {
        Self {
            min_id: domain.min_id,
            max_id: domain.max_id,
            allowed_local_gids: host.allowed_local_gids.clone(),
            exceptions: host.exceptions.clone(),
        }
    }

    /// Returns rules that allow an id if any of these domains allows it, for an entry of an unknown domain. All domains
    /// have the exceptions of the host. `None` without a domain.
    #[must_use]
    pub fn any_of<'r>(all: &(impl Iterator<Item = &'r Self> + Clone)) -> Option<Self> {
        let gids = all.clone().flat_map(|rules| rules.allowed_local_gids.iter().copied());
        Some(Self {
            min_id: all.clone().map(|rules| rules.min_id).min()?,
            max_id: all.clone().map(|rules| rules.max_id).max()?,
            allowed_local_gids: gids.collect(),
            exceptions: all.clone().next()?.exceptions.clone(),
        })
    }

    /// Checks whether the user may be served.
    ///
    /// # Errors
    ///
    /// The reason if not.
    pub fn user<'a, U: AsUser>(
        &self,
        entry: &'a U,
        locals: &Locals,
    ) -> Result<Admitted<'a, U>, Refusal> {
        let user = entry.as_user();
        self.name(user.name)?;
        self.id(Id::Uid, user.uid)?;
        self.primary_gid(user.gid, locals)?;
        if !self.exceptions.subordinate_ids && locals.subuids.contains(user.uid) {
            return Err(Refusal::Subordinate(Id::Uid, user.uid));
        }
        if locals.user_names.contains(user.name) {
            return Err(Refusal::LocalUserName);
        }
        if locals.uids.contains(&user.uid) {
            return Err(Refusal::Local(Id::Uid, user.uid));
        }
        text("GECOS", user.gecos.unwrap_or_default())?;
        folder("home folder", user.dir.unwrap_or_default())?;
        let shell = user.shell.unwrap_or_default();
        if !shell.is_empty() {
            folder("shell", shell)?;
        }
        Ok(Admitted(entry))
    }

    /// Checks whether the group may be served.
    ///
    /// # Errors
    ///
    /// The reason if not.
    pub fn group<'a, G: AsGroup>(
        &self,
        group: &'a G,
        locals: &Locals,
    ) -> Result<Admitted<'a, G>, Refusal> {
        let gid = group.gid();
        self.name(group.name())?;
        self.id(Id::Gid, gid)?;
        if locals.group_names.contains(group.name()) {
            return Err(Refusal::LocalGroupName);
        }
        if locals.gids.contains(&gid) {
            return Err(Refusal::Local(Id::Gid, gid));
        }
        self.shared_gid(Id::Gid, gid, locals)?;
        Ok(Admitted(group))
    }

    /// Checks that no program misinterprets the name, and that it gives no local rights.
    fn name(&self, name: &[u8]) -> Result<(), Refusal> {
        let AdmissionExceptions { names, name_characters, .. } = &self.exceptions;
        check_name(name, name_characters.as_bytes()).map_err(Refusal::Name)?;
        if is_privileged(name) && !names.iter().any(|one| one.as_bytes() == name) {
            return Err(Refusal::Privileged);
        }
        Ok(())
    }

    fn id(&self, kind: Id, id: u32) -> Result<(), Refusal> {
        if RESERVED.contains(&id) {
            return Err(Refusal::Reserved(kind, id));
        }
        if id < self.min_id {
            return Err(Refusal::Below(kind, id, self.min_id));
        }
        if id > self.max_id {
            return Err(Refusal::Above(kind, id, self.max_id));
        }
        Ok(())
    }

    /// Checks a primary gid, which makes its user a member. A local group has to be allowed for that.
    fn primary_gid(&self, gid: u32, locals: &Locals) -> Result<(), Refusal> {
        let is_users = gid == USERS_GID && locals.has_users_group;
        if is_users || gid != 0 && self.allowed_local_gids.contains(&gid) {
            return Ok(());
        }
        self.id(Id::PrimaryGid, gid)?;
        if locals.gids.contains(&gid) {
            return Err(Refusal::Local(Id::PrimaryGid, gid));
        }
        self.shared_gid(Id::PrimaryGid, gid, locals)
    }

    /// Checks a gid without a local group, which may still give access to files of local users.
    fn shared_gid(&self, kind: Id, gid: u32, locals: &Locals) -> Result<(), Refusal> {
        let AdmissionExceptions { unnamed_gids, subordinate_ids, .. } = &self.exceptions;
        if locals.primary_gids.contains(&gid) && !unnamed_gids.contains(&gid) {
            return Err(Refusal::Unnamed(kind, gid));
        }
        if !subordinate_ids && locals.subgids.contains(gid) {
            return Err(Refusal::Subordinate(kind, gid));
        }
        Ok(())
    }
}

fn is_privileged(name: &[u8]) -> bool {
    let begins_with = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    let mut lower = [0; PRIVILEGED_BYTES_MAX];
    let is_listed = lower.get_mut(..name.len()).is_some_and(|lower| {
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        PRIVILEGED.binary_search_by(|one| one.as_bytes().cmp(lower)).is_ok()
    });
    is_listed || PRIVILEGED_PREFIXES.iter().any(begins_with)
}

/// Checks that no program takes the name for an id, an option, a NIS line, a path, a list, two names, or a shell
/// expression. `also` has further ASCII characters that are allowed.
fn check_name(name: &[u8], also: &[u8]) -> Result<(), &'static str> {
    let is_usual =
        |byte: u8| !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
    let checked = name.strip_suffix(b"$").unwrap_or(name);
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "is longer than 255 bytes"
    } else if std::str::from_utf8(name).is_err() {
        "is no UTF-8"
    } else if has_control_characters(name) {
        "has control characters"
    } else if has_invisible_characters(name) {
        "has characters that cannot be seen or turn the text around"
    } else if name.iter().any(|byte| matches!(byte, b':' | b',' | b'/')) {
        "has a ':', ',' or '/'"
    } else if name == b"root" {
        "is root's, whatever the host's own files say at the moment"
    } else if name == b"." || name == b".." {
        "is '.' or '..'"
    } else if matches!(name[0], b'-' | b'+' | b'~' | b' ') || name.ends_with(b" ") {
        "starts with '-', '+' or '~', or starts or ends with a space"
    } else if name.iter().all(u8::is_ascii_digit) {
        "is a number"
    } else if !checked.iter().all(|byte| is_usual(*byte) || also.contains(byte)) {
        OTHER_CHARACTERS
    } else {
        return Ok(());
    };
    Err(fault)
}

fn text(what: &'static str, text: &[u8]) -> Result<(), Refusal> {
    let fault = if text.len() > TEXT_BYTES_MAX {
        "is longer than 1,024 bytes"
    } else if std::str::from_utf8(text).is_err() {
        "is no UTF-8"
    } else if has_control_characters(text) {
        "has control characters"
    } else if text.contains(&b':') {
        "has a ':'"
    } else {
        return Ok(());
    };
    Err(Refusal::Text(what, fault))
}

fn folder(what: &'static str, path: &[u8]) -> Result<(), Refusal> {
    text(what, path)?;
    let fault = if path.is_empty() {
        "is empty"
    } else if path[0] != b'/' {
        "is no absolute path"
    } else if path.split(|&byte| byte == b'/').any(|step| step == b"..") {
        "has a '..'"
    } else {
        return Ok(());
    };
    Err(Refusal::Text(what, fault))
}

/// Returns whether a name has characters that can make two names look alike. These are Unicode's default-ignorable
/// characters without a use in names by UTS #39, characters for the direction of text, and spaces other than U+0020.
fn has_invisible_characters(name: &[u8]) -> bool {
    if name.is_ascii() {
        return false;
    }
    let is_invisible = |c| {
        matches!(c,
            '\u{ad}' | '\u{a0}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{1680}'
            | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}'
            | '\u{202a}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    };
    std::str::from_utf8(name).is_ok_and(|name| name.chars().any(is_invisible))
}

/// Returns whether a text has C0, DEL, or in UTF-8 C1 or the line and paragraph separators.
fn has_control_characters(text: &[u8]) -> bool {
    if text.is_ascii() {
        return text.iter().any(u8::is_ascii_control);
    }
    std::str::from_utf8(text).is_ok_and(|text| {
        text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_names_are_in_order() {
        assert!(PRIVILEGED.is_sorted());
        let longest = PRIVILEGED.iter().map(|name| name.len()).max();
        assert_eq!(longest, Some(PRIVILEGED_BYTES_MAX));
        assert!(
            is_privileged(b"docker") && is_privileged(b"Docker") && is_privileged(b"systemd-x")
        );
        assert!(!is_privileged(b"dockers") && !is_privileged(b"staff") && !is_privileged(b""));
    }
}
