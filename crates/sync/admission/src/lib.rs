// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trust boundary: decides whether a host may serve an entry of a directory. Each entry that any interface serves
//! has passed [`Rules::user`] or [`Rules::group`]. The publisher decides between domains that claim the same name or
//! id.
#![forbid(unsafe_code)]

mod domain_names;
mod locals;
mod name_set;
mod reserved;
mod shells;

pub use domain_names::DomainNames;
pub use locals::{IdRanges, LocalFiles, Locals, read_shells};
pub use name_set::NameSet;
pub use reserved::{OverriddenFields, ReservedIdentities};

use roster_config::{
    AdmissionExceptions, DomainConfig, HostConfig, NameConfig, ServingConfig, USERS_GID,
};
use roster_messages::{Message, table::directory};
use roster_passwd_format::{Group, User};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

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
    /// Names of the entries.
    pub names: DomainNames,
    /// Home directories and shells of the users.
    pub serving: ServingConfig,
    /// Names and ids that local overrides give.
    pub reserved: Arc<ReservedIdentities>,
}

/// A type that has the fields of a user.
pub trait AsUser {
    /// Returns the fields.
    fn as_user(&self) -> User<'_>;

    /// Returns the fields that a local override gives.
    fn overridden(&self) -> OverriddenFields {
        OverriddenFields::default()
    }
}

/// A type that has the fields of a group.
pub trait AsGroup {
    /// Returns the name.
    fn name(&self) -> &[u8];
    /// Returns the gid.
    fn gid(&self) -> u32;

    /// Returns the fields that a local override gives.
    fn overridden(&self) -> OverriddenFields {
        OverriddenFields::default()
    }
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

/// Proof that an entry passed the rules under a name. Only this module makes it.
pub struct Admitted<'a, T> {
    entry: &'a T,
    name: Cow<'a, [u8]>,
    /// The shell of a user that replaces the shell of the entry.
    replacement_shell: Option<&'a [u8]>,
}

impl<'a, T> Admitted<'a, T> {
    /// Returns the entry.
    #[must_use]
    pub fn entry(&self) -> &'a T {
        self.entry
    }

    /// Returns the name under which the entry may be served.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

impl<'a, U: AsUser> Admitted<'a, U> {
    /// Returns the shell with which the user may be served.
    #[must_use]
    pub fn shell(&self) -> &'a [u8] {
        self.replacement_shell.unwrap_or_else(|| self.entry.as_user().shell.unwrap_or_default())
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
    /// The name is invalid.
    Name(NameFault),
    /// A text is invalid: the field and the fault.
    Text(TextField, TextFault),
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
    /// The private group of the user is rejected, and all users of the domain must have one.
    PrivateGroup,
    /// The name means an entry of another domain.
    OtherDomain,
    /// A local override gives the name to another entry.
    NameOverridden,
    /// A local override gives the id to another entry.
    IdOverridden(Id, u32),
    /// The name means another entry of the domain: it has the form `alice@corp`, and `corp` is the domain.
    OwnDomain,
    /// The name is the number of a local id, of an id below the smallest one, or of another entry's id.
    NumberIsId,
}

/// Faults of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // names say it
pub enum NameFault {
    Empty,
    TooLong,
    NotUtf8,
    ControlCharacters,
    InvisibleCharacters,
    Separator,
    Root,
    Dots,
    EdgeCharacter,
    Number,
    /// The name has ASCII characters that only [`AdmissionExceptions`] can allow.
    OtherCharacters,
}

/// Fields with text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // names say it
pub enum TextField {
    Gecos,
    Home,
    Shell,
}

/// Faults of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // names say it
pub enum TextFault {
    Empty,
    TooLong,
    NotUtf8,
    ControlCharacters,
    Colon,
    RelativePath,
    ParentDirectory,
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
            Self::Below(kind, id, min) => write!(f, "{kind} {id} is below min_id ({min})"),
            Self::Above(kind, id, max) => write!(f, "{kind} {id} is above max_id ({max})"),
            Self::Reserved(kind, id) => write!(f, "{kind} {id} is reserved"),
            Self::LocalUserName => write!(f, "a local user has this name"),
            Self::LocalGroupName => write!(f, "a local group has this name"),
            Self::Local(Id::Uid, id) => write!(f, "uid {id} belongs to a local user"),
            Self::Local(kind, id) => write!(f, "{kind} {id} belongs to a local group"),
            Self::Unnamed(kind, id) => {
                write!(f, "{kind} {id} is the primary gid of a local user")
            }
            Self::Subordinate(kind, id) => {
                write!(f, "{kind} {id} is a subordinate id of a local user")
            }
            Self::Privileged => write!(f, "the name belongs to a privileged account"),
            Self::Name(fault) => write!(f, "the name {fault}"),
            Self::Text(what, fault) => write!(f, "the {what} {fault}"),
            Self::NameTaken(owner) => write!(f, "{owner} has this name"),
            Self::IdTaken(kind, id, owner) => write!(f, "{owner} has {kind} {id}"),
            Self::Nested => write!(f, "nested groups exceed the membership limit"),
            Self::PrivateGroup => write!(f, "the private group of the user is rejected"),
            Self::OtherDomain => write!(f, "the name has the form of a name in another domain"),
            Self::NameOverridden => write!(f, "an override gives this name to another entry"),
            Self::IdOverridden(kind, id) => {
                write!(f, "an override gives {kind} {id} to another entry")
            }
            Self::OwnDomain => write!(f, "the name has the form NAME@DOMAIN of this domain"),
            Self::NumberIsId => write!(f, "the name is the number of another id"),
            Self::ForeignGroup(gid) => {
                write!(f, "primary gid {gid} is a group of a higher-priority domain")
            }
            Self::ForeignMembers(gid) => {
                write!(f, "gid {gid} is the primary gid of a higher-priority domain's user")
            }
        }
    }
}

impl Refusal {
    /// Describes the fault without the id, for counts of many entries.
    #[must_use]
    pub fn without_id(&self) -> String {
        match self {
            Self::Below(kind, _, min) => format!("{kind}s below min_id ({min})"),
            Self::Above(kind, _, max) => format!("{kind}s above max_id ({max})"),
            Self::Reserved(kind, _) => format!("{kind}s that are reserved"),
            Self::Local(Id::Uid, _) => "uids of local users".into(),
            Self::Local(kind, _) => format!("{kind}s of local groups"),
            Self::Unnamed(kind, _) => format!("{kind}s that are primary gids of local users"),
            Self::Subordinate(kind, _) => {
                format!("{kind}s that are subordinate ids of local users")
            }
            Self::IdTaken(kind, _, owner) => format!("{kind}s that {owner} has"),
            Self::IdOverridden(kind, _) => format!("{kind}s that overrides give to other entries"),
            Self::ForeignGroup(_) => {
                "primary gids that are groups of a higher-priority domain".into()
            }
            Self::ForeignMembers(_) => {
                "gids that are primary gids of a higher-priority domain's users".into()
            }
            _ => self.to_string(),
        }
    }
}

impl Refusal {
    /// Returns the row of the table.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Below(Id::PrimaryGid, ..) => &directory::PRIMARY_GID_BELOW_MIN,
            Self::Below(..) => &directory::ID_BELOW_MIN,
            Self::Above(..) => &directory::ID_ABOVE_MAX,
            Self::Reserved(..) => &directory::ID_RESERVED,
            Self::LocalUserName => &directory::LOCAL_USER_NAME,
            Self::LocalGroupName => &directory::LOCAL_GROUP_NAME,
            Self::Local(Id::Uid, _) => &directory::LOCAL_UID,
            Self::Local(Id::Gid, _) => &directory::LOCAL_GID,
            Self::Local(Id::PrimaryGid, _) => &directory::PRIMARY_GID_LOCAL,
            Self::Unnamed(..) => &directory::GID_OF_LOCAL_USERS,
            Self::Subordinate(..) => &directory::SUBORDINATE_ID,
            Self::Privileged => &directory::PRIVILEGED_NAME,
            Self::Name(fault) => fault.message(),
            Self::Text(_, fault) => fault.message(),
            Self::NameTaken(Owner::SameDomain) => &directory::NAME_OF_SAME_DOMAIN,
            Self::NameTaken(Owner::EarlierDomain) => &directory::NAME_OF_HIGHER_DOMAIN,
            Self::IdTaken(_, _, Owner::SameDomain) => &directory::ID_OF_SAME_DOMAIN,
            Self::IdTaken(_, _, Owner::EarlierDomain) => &directory::ID_OF_HIGHER_DOMAIN,
            Self::ForeignGroup(_) => &directory::GROUP_OF_HIGHER_DOMAIN,
            Self::ForeignMembers(_) => &directory::GID_OF_HIGHER_DOMAIN_USERS,
            Self::Nested => &directory::GROUPS_NESTED_TOO_LARGE,
            Self::PrivateGroup => &directory::PRIVATE_GROUP_REJECTED,
            Self::OtherDomain => &directory::NAME_OF_OTHER_DOMAIN,
            Self::NameOverridden => &directory::NAME_OF_OVERRIDE,
            Self::IdOverridden(..) => &directory::ID_OF_OVERRIDE,
            Self::OwnDomain => &directory::NAME_OF_OWN_DOMAIN,
            Self::NumberIsId => &directory::NUMERIC_NAME_IS_ID,
        }
    }

    /// Returns the fix with the id at hand. `None`: that of the table.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::Below(Id::PrimaryGid, gid, _) => Some(format!(
                "For a primary group of the host, set `allowed_local_gids = [{gid}]` under [host]. For a \
                 group of the directory, lower `min_id`."
            )),
            Self::Local(Id::PrimaryGid, gid) => Some(format!(
                "If users may have this group of the host, set `allowed_local_gids = [{gid}]` under [host]."
            )),
            Self::Unnamed(_, gid) => Some(format!(
                "If the directory may share the gid, set `allowed_unnamed_gids = [{gid}]` under [host]."
            )),
            _ => None,
        }
    }
}

impl NameFault {
    fn message(self) -> &'static Message {
        match self {
            Self::Empty => &directory::NAME_EMPTY,
            Self::TooLong => &directory::NAME_TOO_LONG,
            Self::NotUtf8 => &directory::NAME_NOT_UTF8,
            Self::ControlCharacters => &directory::NAME_WITH_CONTROL_CHARACTERS,
            Self::InvisibleCharacters => &directory::NAME_WITH_INVISIBLE_CHARACTERS,
            Self::Separator => &directory::NAME_WITH_SEPARATOR,
            Self::Root => &directory::NAME_ROOT,
            Self::Dots => &directory::NAME_DOTS,
            Self::EdgeCharacter => &directory::NAME_EDGE_CHARACTER,
            Self::Number => &directory::NAME_IS_NUMBER,
            Self::OtherCharacters => &directory::NAME_CHARACTERS,
        }
    }
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::TooLong => "is longer than 255 bytes",
            Self::NotUtf8 => "is not UTF-8",
            Self::ControlCharacters => "has control characters",
            Self::InvisibleCharacters => {
                "has invisible characters or characters that change the direction of text"
            }
            Self::Separator => "has a ':', ',' or '/'",
            Self::Root => "is reserved (root)",
            Self::Dots => "is '.' or '..'",
            Self::EdgeCharacter => "starts with '-', '+' or '~', or starts or ends with a space",
            Self::Number => "is a number",
            Self::OtherCharacters => {
                "has characters other than letters, digits, '.', '_', '-', '@' and '+'"
            }
        })
    }
}

impl TextFault {
    fn message(self) -> &'static Message {
        match self {
            Self::Empty => &directory::HOME_EMPTY,
            Self::TooLong => &directory::TEXT_TOO_LONG,
            Self::NotUtf8 => &directory::TEXT_NOT_UTF8,
            Self::ControlCharacters => &directory::TEXT_WITH_CONTROL_CHARACTERS,
            Self::Colon => &directory::TEXT_WITH_COLON,
            Self::RelativePath => &directory::PATH_RELATIVE,
            Self::ParentDirectory => &directory::PATH_WITH_DOTS,
        }
    }
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::TooLong => "is longer than 1,024 bytes",
            Self::NotUtf8 => "is not UTF-8",
            Self::ControlCharacters => "has control characters",
            Self::Colon => "has a ':'",
            Self::RelativePath => "is not an absolute path",
            Self::ParentDirectory => "has a '..'",
        })
    }
}

impl fmt::Display for TextField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gecos => "GECOS",
            Self::Home => "home directory",
            Self::Shell => "shell",
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameDomain => "an earlier entry of this domain",
            Self::EarlierDomain => "a higher-priority domain",
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
            names: DomainNames::of_domain(domain),
            serving: domain.serving.clone(),
            reserved: Arc::default(),
        }
    }

    /// Returns rules that allow an id if any of these domains allows it, for an entry of an unknown domain. All domains
    /// have the exceptions of the host. No shell is replaced. `None` without a domain.
    #[must_use]
    pub fn any_of<'r>(all: &(impl Iterator<Item = &'r Self> + Clone)) -> Option<Self> {
        let gids = all.clone().flat_map(|rules| rules.allowed_local_gids.iter().copied());
        Some(Self {
            min_id: all.clone().map(|rules| rules.min_id).min()?,
            max_id: all.clone().map(|rules| rules.max_id).max()?,
            allowed_local_gids: gids.collect(),
            exceptions: all.clone().next()?.exceptions.clone(),
            names: DomainNames::default(),
            serving: ServingConfig {
                empty_homes: all.clone().any(|rules| rules.serving.empty_homes),
                ..ServingConfig::default()
            },
            reserved: Arc::default(),
        })
    }

    /// Checks whether the user may be served.
    ///
    /// # Errors
    ///
    /// The reason if not.
    pub fn user<'a, U: AsUser>(
        &'a self,
        entry: &'a U,
        locals: &Locals,
    ) -> Result<Admitted<'a, U>, Refusal> {
        let user = entry.as_user();
        let base = self.names.base(user.name);
        self.name(&base)?;
        let name = self.preferred_name(base)?;
        self.id(Id::Uid, user.uid)?;
        self.primary_gid(user.gid, locals)?;
        if !self.exceptions.subordinate_ids && locals.subuids.contains(user.uid) {
            return Err(Refusal::Subordinate(Id::Uid, user.uid));
        }
        if self.is_local_name(&locals.user_names, user.name, &name) {
            return Err(Refusal::LocalUserName);
        }
        if numeric_value(&name)
            .is_some_and(|value| self.is_host_id(value, &locals.uids, &locals.subuids))
        {
            return Err(Refusal::NumberIsId);
        }
        if locals.uids.contains(&user.uid) {
            return Err(Refusal::Local(Id::Uid, user.uid));
        }
        text(TextField::Gecos, user.gecos.unwrap_or_default())?;
        let (home, shell) = (user.dir.unwrap_or_default(), user.shell.unwrap_or_default());
        if !(home.is_empty() && self.serving.empty_homes) {
            folder(TextField::Home, home)?;
        }
        if !shell.is_empty() {
            folder(TextField::Shell, shell)?;
        }
        if !self.reserved.is_empty() {
            let key = self.names.config().override_key(user.name);
            self.reserved.check_user(&key, (user.uid, user.gid), entry.overridden())?;
        }
        let replacement_shell = self.replacement_shell(shell, locals);
        Ok(Admitted { entry, name, replacement_shell })
    }

    /// Returns the shell that is served instead of a shell that users may not have. `None`: they may have it.
    #[must_use]
    pub fn replacement_shell(&self, shell: &[u8], locals: &Locals) -> Option<&[u8]> {
        shells::replacement(&self.serving.shells, shell, &locals.shells)
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
        let base = self.names.base(group.name());
        self.name(&base)?;
        let name = self.preferred_name(base)?;
        self.id(Id::Gid, gid)?;
        if self.is_local_name(&locals.group_names, group.name(), &name) {
            return Err(Refusal::LocalGroupName);
        }
        if numeric_value(&name)
            .is_some_and(|value| self.is_host_id(value, &locals.gids, &locals.subgids))
        {
            return Err(Refusal::NumberIsId);
        }
        if locals.gids.contains(&gid) {
            return Err(Refusal::Local(Id::Gid, gid));
        }
        self.shared_gid(Id::Gid, gid, locals)?;
        if !self.reserved.is_empty() {
            let key = self.names.config().override_key(group.name());
            self.reserved.check_group(&key, gid, group.overridden())?;
        }
        Ok(Admitted { entry: group, name, replacement_shell: None })
    }

    /// Returns an admitted user under its name with the domain, because an entry of another domain has the name alone.
    ///
    /// # Errors
    ///
    /// The name with the domain may not be served.
    pub fn qualify_user<'a, U: AsUser>(
        &self,
        user: &Admitted<'a, U>,
        locals: &Locals,
    ) -> Result<Admitted<'a, U>, Refusal> {
        let name = self.qualified_name(user.entry.as_user().name, &locals.user_names)?;
        Ok(Admitted { entry: user.entry, name, replacement_shell: user.replacement_shell })
    }

    /// Returns an admitted group under its name with the domain, as [`Rules::qualify_user`].
    ///
    /// # Errors
    ///
    /// The name with the domain may not be served.
    pub fn qualify_group<'a, G: AsGroup>(
        &self,
        group: &Admitted<'a, G>,
        locals: &Locals,
    ) -> Result<Admitted<'a, G>, Refusal> {
        let name = self.qualified_name(group.entry.name(), &locals.group_names)?;
        Ok(Admitted { entry: group.entry, name, replacement_shell: None })
    }

    fn qualified_name<'a>(
        &self,
        native: &[u8],
        locals: &NameSet,
    ) -> Result<Cow<'a, [u8]>, Refusal> {
        let base = self.names.base(native);
        let name = self.names.qualified(&base);
        if name.len() > NAME_BYTES_MAX || locals.finds(&base, &name, &self.names) {
            return Err(Refusal::NameTaken(Owner::EarlierDomain));
        }
        Ok(Cow::Owned(name.into_owned()))
    }

    /// Returns the name under which an entry with a checked base name is served: the base name, or that with the domain.
    fn preferred_name<'a>(&self, base: Cow<'a, [u8]>) -> Result<Cow<'a, [u8]>, Refusal> {
        if !self.names.is_qualified() {
            return Ok(base);
        }
        let name = self.names.qualified(&base).into_owned();
        if name.len() > NAME_BYTES_MAX {
            return Err(Refusal::Name(NameFault::TooLong));
        }
        Ok(Cow::Owned(name))
    }

    /// Returns whether the name of a local account is the served name, or finds the entry.
    fn is_local_name(&self, locals: &NameSet, native: &[u8], served: &[u8]) -> bool {
        locals.finds(&self.names.base(native), served, &self.names)
    }

    /// Returns whether a number is an id of the host: below the smallest id of the domain, reserved, of a local account,
    /// or of a user namespace.
    fn is_host_id(&self, value: u64, local_ids: &HashSet<u32>, ranges: &IdRanges) -> bool {
        let Ok(id) = u32::try_from(value) else { return false };
        id < self.min_id || RESERVED.contains(&id) || local_ids.contains(&id) || ranges.contains(id)
    }

    /// Checks that no program misinterprets the name, and that it gives no local rights.
    fn name(&self, name: &[u8]) -> Result<(), Refusal> {
        let AdmissionExceptions { names, name_characters, .. } = &self.exceptions;
        let NameConfig { numeric, spaces, .. } = *self.names.config();
        let space = if spaces { " " } else { "" };
        let characters = [name_characters.as_bytes(), space.as_bytes()].concat();
        check_name(name, &characters, numeric).map_err(Refusal::Name)?;
        // A program finds the entry by the folded name as well.
        let found_by = self.names.comparable(name);
        if *found_by == *b"root" {
            return Err(Refusal::Name(NameFault::Root));
        }
        let is_allowed = |one: &String| self.names.matches(name, one.as_bytes());
        if is_privileged(&found_by) && !names.iter().any(is_allowed) {
            return Err(Refusal::Privileged);
        }
        if self.names.is_of_other_domain(name) {
            return Err(Refusal::OtherDomain);
        }
        if self.names.is_of_own_domain(name) {
            return Err(Refusal::OwnDomain);
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

/// Returns the value of a name of digits only. Values beyond 64 bits are equal.
#[must_use]
pub fn numeric_value(name: &[u8]) -> Option<u64> {
    if name.is_empty() || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |value: u64, digit: &u8| {
        value.saturating_mul(10).saturating_add(u64::from(digit.wrapping_sub(b'0')))
    };
    Some(name.iter().fold(0, add))
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
fn check_name(name: &[u8], also: &[u8], numbers: bool) -> Result<(), NameFault> {
    let is_usual =
        |byte: u8| !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
    let checked = name.strip_suffix(b"$").unwrap_or(name);
    let fault = if name.is_empty() {
        NameFault::Empty
    } else if name.len() > NAME_BYTES_MAX {
        NameFault::TooLong
    } else if std::str::from_utf8(name).is_err() {
        NameFault::NotUtf8
    } else if has_control_characters(name) {
        NameFault::ControlCharacters
    } else if has_invisible_characters(name) {
        NameFault::InvisibleCharacters
    } else if name.iter().any(|byte| matches!(byte, b':' | b',' | b'/')) {
        NameFault::Separator
    } else if name == b"root" {
        NameFault::Root
    } else if name == b"." || name == b".." {
        NameFault::Dots
    } else if matches!(name[0], b'-' | b'+' | b'~' | b' ') || name.ends_with(b" ") {
        NameFault::EdgeCharacter
    } else if !numbers && name.iter().all(u8::is_ascii_digit) {
        NameFault::Number
    } else if !checked.iter().all(|byte| is_usual(*byte) || also.contains(byte)) {
        NameFault::OtherCharacters
    } else {
        return Ok(());
    };
    Err(fault)
}

fn text(what: TextField, text: &[u8]) -> Result<(), Refusal> {
    let fault = if text.len() > TEXT_BYTES_MAX {
        TextFault::TooLong
    } else if std::str::from_utf8(text).is_err() {
        TextFault::NotUtf8
    } else if has_control_characters(text) {
        TextFault::ControlCharacters
    } else if text.contains(&b':') {
        TextFault::Colon
    } else {
        return Ok(());
    };
    Err(Refusal::Text(what, fault))
}

fn folder(what: TextField, path: &[u8]) -> Result<(), Refusal> {
    text(what, path)?;
    let fault = if path.is_empty() {
        TextFault::Empty
    } else if path[0] != b'/' {
        TextFault::RelativePath
    } else if path.split(|&byte| byte == b'/').any(|step| step == b"..") {
        TextFault::ParentDirectory
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
    use roster_config::{AllowedShells, NameCase, ShellRules};

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

    fn rules() -> Rules {
        Rules {
            min_id: 1000,
            max_id: 60_000,
            allowed_local_gids: Vec::new(),
            exceptions: AdmissionExceptions::default(),
            names: DomainNames::default(),
            serving: ServingConfig::default(),
            reserved: Arc::default(),
        }
    }

    fn locals() -> Locals {
        Locals {
            uids: [2000].into(),
            group_names: [b"wood".to_vec()].into(),
            gids: [2001].into(),
            primary_gids: [2002].into(),
            ..Locals::default()
        }
    }

    fn code_of_user(user: &User<'_>) -> &'static Message {
        rules().user(user, &locals()).map(|_| ()).expect_err("refused").message()
    }

    const USER: User<'_> = User {
        name: b"alice",
        passwd: None,
        uid: 5000,
        gid: 5000,
        gecos: None,
        dir: Some(b"/home/alice"),
        shell: None,
    };

    #[test]
    fn admission_invalid_name_has_code() {
        assert!(rules().user(&USER, &locals()).is_ok());
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for (name, message) in [
            (&b""[..], &directory::NAME_EMPTY),
            (long.as_bytes(), &directory::NAME_TOO_LONG),
            (b"al\xff", &directory::NAME_NOT_UTF8),
            (b"al\tice", &directory::NAME_WITH_CONTROL_CHARACTERS),
            ("al\u{200b}ice".as_bytes(), &directory::NAME_WITH_INVISIBLE_CHARACTERS),
            (b"al:ice", &directory::NAME_WITH_SEPARATOR),
            (b"root", &directory::NAME_ROOT),
            (b"..", &directory::NAME_DOTS),
            (b"-alice", &directory::NAME_EDGE_CHARACTER),
            (b"1000", &directory::NAME_IS_NUMBER),
            (b"al*ce", &directory::NAME_CHARACTERS),
        ] {
            let name = User { name, ..USER };
            assert_eq!(code_of_user(&name), message, "{}", name.name.escape_ascii());
        }
    }

    #[test]
    fn admission_invalid_text_has_code() {
        let long = vec![b'a'; TEXT_BYTES_MAX + 1];
        for (user, message) in [
            (User { gecos: Some(&long), ..USER }, &directory::TEXT_TOO_LONG),
            (User { gecos: Some(b"\xff"), ..USER }, &directory::TEXT_NOT_UTF8),
            (User { gecos: Some(b"a\nb"), ..USER }, &directory::TEXT_WITH_CONTROL_CHARACTERS),
            (User { gecos: Some(b"a:b"), ..USER }, &directory::TEXT_WITH_COLON),
            (User { dir: Some(b"home"), ..USER }, &directory::PATH_RELATIVE),
            (User { shell: Some(b"/bin/../sh"), ..USER }, &directory::PATH_WITH_DOTS),
        ] {
            assert_eq!(code_of_user(&user), message);
        }
    }

    #[test]
    fn admission_id_of_host_has_code() {
        for (uid, gid, message) in [
            (60_001, 5000, &directory::ID_ABOVE_MAX),
            (65_534, 5000, &directory::ID_RESERVED),
            (2000, 5000, &directory::LOCAL_UID),
            (5000, 2002, &directory::GID_OF_LOCAL_USERS),
        ] {
            assert_eq!(code_of_user(&User { uid, gid, ..USER }), message);
        }
        let code_of_group = |name: &[u8], gid| {
            let group = Group { name, passwd: None, gid };
            rules().group(&group, &locals()).map(|_| ()).expect_err("refused").message()
        };
        assert_eq!(code_of_group(b"wood", 5000), &directory::LOCAL_GROUP_NAME);
        assert_eq!(code_of_group(b"staff", 2001), &directory::LOCAL_GID);
    }

    fn with_names(config: &NameConfig) -> Rules {
        let names = DomainNames::new("corp", config, [("corp", ""), ("lab", "LAB")]);
        Rules { names, ..rules() }
    }

    fn with_case(case: NameCase) -> Rules {
        with_names(&NameConfig { case, ..NameConfig::default() })
    }

    fn refused(rules: &Rules, name: &[u8], locals: &Locals) -> Option<&'static Message> {
        rules.user(&User { name, ..USER }, locals).err().map(|refusal| refusal.message())
    }

    #[test]
    fn admission_other_spelling_of_local_name_refused() {
        let locals = Locals {
            user_names: [b"root".to_vec(), b"alice".to_vec()].into(),
            ..Locals::default()
        };
        for case in [NameCase::Insensitive, NameCase::Preserving] {
            let rules = with_case(case);
            assert_eq!(refused(&rules, b"ROOT", &locals), Some(&directory::NAME_ROOT));
            assert_eq!(refused(&rules, b"Alice", &locals), Some(&directory::LOCAL_USER_NAME));
            // The long s and the Kelvin sign fold to ASCII letters.
            let hidden = "\u{17f}udo".as_bytes();
            assert_eq!(refused(&rules, hidden, &locals), Some(&directory::PRIVILEGED_NAME));
            let hidden = "doc\u{212a}er".as_bytes();
            assert_eq!(refused(&rules, hidden, &locals), Some(&directory::PRIVILEGED_NAME));
            assert_eq!(refused(&rules, b"Bob", &locals), None);
        }
        assert_eq!(refused(&with_case(NameCase::Sensitive), b"Alice", &locals), None);
    }

    #[test]
    fn admission_name_of_other_domain_has_code() {
        let rules = with_case(NameCase::Sensitive);
        let locals = Locals::default();
        assert_eq!(refused(&rules, b"alice@Lab", &locals), Some(&directory::NAME_OF_OTHER_DOMAIN));
        assert_eq!(refused(&rules, b"alice@example.com", &locals), None);
    }

    #[test]
    fn admission_spaces_within_names_need_permission() {
        let locals = Locals::default();
        for (spaces, allowed) in [(false, Some(&directory::NAME_CHARACTERS)), (true, None)] {
            let rules = with_names(&NameConfig { spaces, ..NameConfig::default() });
            assert_eq!(refused(&rules, b"domain users", &locals), allowed);
            for name in [&b" users"[..], b"users ", b"a;b", b"a\tb"] {
                assert!(refused(&rules, name, &locals).is_some(), "{name:?}");
            }
        }
    }

    /// A rule for `alice` of the domain means `alice@corp` as well, and programs find `alice` by that name.
    #[test]
    fn admission_name_of_own_domain_has_code() {
        let locals = Locals::default();
        // A backslash in a name has to be allowed.
        let name_characters = "\\".to_owned();
        let exceptions = AdmissionExceptions { name_characters, ..AdmissionExceptions::default() };
        for (case, qualified) in [
            (NameCase::Sensitive, false),
            (NameCase::Sensitive, true),
            (NameCase::Insensitive, false),
            (NameCase::Preserving, true),
        ] {
            let short_name = "HQ".into();
            let config = NameConfig { case, qualified, short_name, ..NameConfig::default() };
            let rules = Rules { exceptions: exceptions.clone(), ..with_names(&config) };
            for name in [&b"alice@corp"[..], b"Alice@CORP", b"a@b@hq", b"hq\\alice"] {
                let code = refused(&rules, name, &locals);
                assert_eq!(code, Some(&directory::NAME_OF_OWN_DOMAIN), "{case:?} {name:?}");
                let group = Group { name, passwd: None, gid: 5000 };
                assert_eq!(rules.group(&group, &locals).err(), Some(Refusal::OwnDomain));
            }
            for name in [&b"alice"[..], b"corp", b"alice@corp.example", b"alice@example.com"] {
                assert_eq!(refused(&rules, name, &locals), None, "{name:?}");
            }
        }
    }

    #[test]
    fn admission_local_name_with_domain_refused() {
        let local =
            |name: &[u8]| Locals { user_names: [name.to_vec()].into(), ..Locals::default() };
        let rules = with_case(NameCase::Sensitive);
        assert_eq!(
            refused(&rules, b"alice", &local(b"alice@CORP")),
            Some(&directory::LOCAL_USER_NAME)
        );
        assert_eq!(refused(&rules, b"alice", &local(b"alice@lab")), None);
        let qualified = with_names(&NameConfig { qualified: true, ..NameConfig::default() });
        assert_eq!(refused(&qualified, b"alice", &local(b"alice")), None);
        let Ok(alice) = qualified.user(&USER, &local(b"alice")) else { panic!("admitted") };
        assert_eq!(alice.name(), b"alice@corp");
    }

    #[test]
    fn admission_number_of_host_id_has_code() {
        let numeric = with_names(&NameConfig { numeric: true, ..NameConfig::default() });
        let locals = Locals {
            uids: [2000].into(),
            subuids: IdRanges::new(vec![(100_000, 165_535)]),
            ..Locals::default()
        };
        for name in [&b"0"[..], b"007", b"999", b"2000", b"02000", b"65534", b"100001"] {
            let code = refused(&numeric, name, &locals);
            assert_eq!(code, Some(&directory::NUMERIC_NAME_IS_ID), "{}", name.escape_ascii());
        }
        for name in [&b"2001"[..], b"4294967296", b"99999999999999999999"] {
            assert_eq!(refused(&numeric, name, &locals), None, "{}", name.escape_ascii());
        }
        let group = Group { name: b"2001", passwd: None, gid: 5000 };
        let locals = Locals { gids: [2001].into(), ..Locals::default() };
        let refusal = numeric.group(&group, &locals).err();
        assert_eq!(refusal, Some(Refusal::NumberIsId));
    }

    #[test]
    fn admission_too_long_qualified_name_is_taken() {
        let long = [b'a'; NAME_BYTES_MAX];
        let user = User { name: &long, ..USER };
        let (rules, locals) = (with_case(NameCase::Sensitive), Locals::default());
        let Ok(admitted) = rules.user(&user, &locals) else { panic!("admitted") };
        let refusal = rules.qualify_user(&admitted, &locals).err().map(|refusal| refusal.message());
        assert_eq!(refusal, Some(&directory::NAME_OF_HIGHER_DOMAIN));
    }

    #[test]
    fn admission_empty_home_needs_key() {
        let homeless = User { dir: Some(b""), ..USER };
        assert_eq!(code_of_user(&homeless), &directory::HOME_EMPTY);
        let serving = ServingConfig { empty_homes: true, ..ServingConfig::default() };
        let rules = Rules { serving, ..rules() };
        assert!(rules.user(&homeless, &locals()).is_ok());
        assert!(rules.user(&User { dir: None, ..USER }, &locals()).is_ok());
        let relative = User { dir: Some(b"home"), ..USER };
        assert!(rules.user(&relative, &locals()).is_err());
        let any = Rules::any_of(&[rules].iter()).expect("rules");
        assert!(any.serving.empty_homes);
    }

    #[test]
    fn admission_refused_shell_is_replaced() {
        let shells = ShellRules {
            allowed: AllowedShells::EtcShells,
            refused: Vec::new(),
            replacement: "/no".to_owned(),
            unlisted: "/no".to_owned(),
        };
        let serving = ServingConfig { shells, ..ServingConfig::default() };
        let rules = Rules { serving, ..with_case(NameCase::Sensitive) };
        let locals = Locals { shells: [b"/bin/zsh".to_vec()].into(), ..locals() };
        for (shell, served) in [("/bin/zsh", "/bin/zsh"), ("/bin/x", "/no"), ("", "/no")] {
            let user = User { shell: Some(shell.as_bytes()), ..USER };
            let Ok(admitted) = rules.user(&user, &locals) else { panic!("admitted") };
            assert_eq!(admitted.shell(), served.as_bytes(), "{shell}");
            let Ok(qualified) = rules.qualify_user(&admitted, &locals) else { panic!("admitted") };
            assert_eq!(qualified.shell(), served.as_bytes(), "{shell}");
        }
        let relative = User { shell: Some(b"bash"), ..USER };
        assert!(rules.user(&relative, &locals).is_err(), "another shell hides no faulty entry");
    }

    /// A user with fields of an override.
    struct Overridden(User<'static>, OverriddenFields);

    impl AsUser for Overridden {
        fn as_user(&self) -> User<'_> {
            self.0
        }

        fn overridden(&self) -> OverriddenFields {
            self.1
        }
    }

    #[test]
    fn admission_value_of_override_is_reserved() {
        let text = "[host]\ndomains = ['lab']\n[domain.lab]\nprovider = 'files'\npasswd = '/p'\n\
                    group = '/g'\ncase = 'insensitive'\n[domain.lab.override]\n\
                    user.alice = { name = 'Al', uid = 6000 }\n\
                    group.staff = { name = 'Crew', gid = 7000 }\n";
        let config = roster_config::parse(text).unwrap().config;
        let overrides = &config.domains[0].local_overrides.entries;
        let reserved = ReservedIdentities::new(overrides, &config.domains[0].names);
        let rules = Rules {
            reserved: Arc::new(reserved),
            max_id: 60_000,
            ..Rules::new(&config.domains[0], &config.host)
        };
        let none = OverriddenFields::default();
        let all = OverriddenFields { name: true, id: true, primary_gid: true };
        for (name, uid, gid, own, message) in [
            ("bob", 5000, 5000, none, None),
            ("AL", 5000, 5000, none, Some(&directory::NAME_OF_OVERRIDE)),
            ("bob", 6000, 5000, none, Some(&directory::ID_OF_OVERRIDE)),
            ("bob", 5000, 7000, none, Some(&directory::ID_OF_OVERRIDE)),
            ("al", 6000, 7000, all, None),
            ("root", 6000, 7000, all, Some(&directory::NAME_ROOT)),
            ("sudo", 6000, 7000, all, Some(&directory::PRIVILEGED_NAME)),
            ("al", 0, 7000, all, Some(&directory::ID_RESERVED)),
        ] {
            let name = name.as_bytes();
            let dir = Some(&b"/home/x"[..]);
            let user = User { name, passwd: None, uid, gid, gecos: None, dir, shell: None };
            let refusal = rules.user(&Overridden(user, own), &Locals::default()).err();
            let found = refusal.map(|refusal| refusal.message());
            assert_eq!(found, message, "{} {uid} {gid}", name.escape_ascii());
        }
        for (name, gid, message) in [
            (&b"crew"[..], 5000, Some(&directory::NAME_OF_OVERRIDE)),
            (b"staff", 7000, Some(&directory::ID_OF_OVERRIDE)),
            (b"al", 6000, None),
        ] {
            let refusal = rules.group(&Group { name, passwd: None, gid }, &Locals::default()).err();
            assert_eq!(refusal.map(|refusal| refusal.message()), message, "{gid}");
        }
    }
}
