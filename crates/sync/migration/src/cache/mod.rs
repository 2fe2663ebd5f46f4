// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads users and groups from SSSD's cache: `cache_DOMAIN.ldb`, and `timestamps_DOMAIN.ldb` beside it.
//!
//! The files are read as a whole under a shared lock of TDB, so that SSSD may run. Nothing is written. [`tdb`] reads
//! records, [`ldb`] reads entries, and this module knows the tree that SSSD keeps in them.

mod error;
mod home_shell;
pub mod ldb;
pub mod tdb;

pub use error::SssdCacheError;
pub use home_shell::HomeShell;

use crate::compare::{Accounts, Group, User};
use ldb::Entry;
use roster_messages::CodedError;
use roster_messages::table::tools;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit of a file. Its offsets have 32 bits.
const FILE_BYTES_MAX: u64 = 1 << 32;

/// Attempts to lock a file, and the pause between them: 10 s together.
const LOCK_ATTEMPTS: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Accounts of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedAccounts {
    /// Users and groups that count.
    pub accounts: Accounts,
    /// Users with expired entries.
    pub expired_users: BTreeSet<String>,
    /// Groups with expired entries.
    pub expired_groups: BTreeSet<String>,
    /// Entries with local overrides, which are applied.
    pub overridden: u64,
    /// Slices of ids from SIDs, in the order of the domains' names.
    pub slices: Vec<CachedSlice>,
}

/// The slice that SSSD gave to a domain of Active Directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedSlice {
    /// Name of the domain: that of SSSD's domain, or of one that it trusts.
    pub domain: String,
    /// SID of the domain.
    pub sid: String,
    /// Number of the slice.
    pub slice: u32,
}

impl CachedSlice {
    /// Reads an entry with the object class `id_mapping`. `None`: the entry lacks a value.
    fn from_entry(entry: &Entry<'_>) -> Option<Self> {
        Some(Self {
            domain: entry.text("name")?.to_owned(),
            sid: entry.text("objectSID")?.to_owned(),
            slice: entry.text("slice")?.parse().ok()?,
        })
    }
}

/// Choices of [`accounts`].
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions<'a> {
    /// Name of SSSD's domain.
    pub domain: &'a str,
    /// Time now, in seconds since 1970. Entries that expire later count.
    pub now: u64,
    /// Count expired entries as well.
    pub include_expired: bool,
    /// SSSD's settings for homes and shells.
    pub home_shell: &'a HomeShell,
}

/// Returns the paths of a domain's cache and of its timestamps.
#[must_use]
pub fn paths(directory: &Path, domain: &str) -> [PathBuf; 2] {
    ["cache", "timestamps"].map(|kind| directory.join(format!("{kind}_{domain}.ldb")))
}

/// Reads a whole file while no other process writes to it.
///
/// # Errors
///
/// The file cannot be read, or SSSD holds its lock for 10 s.
pub fn read(path: &Path) -> Result<Vec<u8>, CodedError> {
    let failed = |error: io::Error| {
        let text = format!("{}: cannot be read", path.display());
        CodedError::new(&tools::SSSD_CACHE_UNREADABLE, text).caused_by(error)
    };
    // The flag avoids a wait for a pipe of that name.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let attempt = || rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
    lock(path, attempt, LOCK_PAUSE)?;
    let mut bytes = Vec::new();
    (&file).take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Takes the lock of a reader. It ends when the file is closed.
fn lock(
    path: &Path,
    mut attempt: impl FnMut() -> Result<(), Errno>,
    pause: Duration,
) -> Result<(), CodedError> {
    for _ in 0..LOCK_ATTEMPTS {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) => std::thread::sleep(pause),
            Err(errno) => {
                let text = format!("{}: cannot be locked", path.display());
                let error = CodedError::new(&tools::SSSD_CACHE_UNREADABLE, text);
                return Err(error.caused_by(io::Error::from(errno)));
            }
        }
    }
    let text = format!("{}: SSSD writes to it without a pause", path.display());
    Err(CodedError::new(&tools::SSSD_CACHE_BUSY, text))
}

/// Returns the error of a cache that cannot be parsed.
#[must_use]
pub fn invalid(path: &Path, error: SssdCacheError) -> CodedError {
    let text = format!("{}: cannot be parsed", path.display());
    match error {
        SssdCacheError::Tdb(tdb::TdbError::Interrupted) => {
            CodedError::new(&tools::SSSD_CACHE_INTERRUPTED, text).caused_by(error)
        }
        error => CodedError::new(&tools::SSSD_CACHE_INVALID, text).caused_by(error),
    }
}

/// Returns the accounts of a cache. `timestamps` has newer times of expiry, if the file exists.
///
/// # Errors
///
/// A file is damaged or of an unknown format.
pub fn accounts(
    cache: &[u8],
    timestamps: Option<&[u8]>,
    options: &CacheOptions<'_>,
) -> Result<CachedAccounts, SssdCacheError> {
    let mut tree = Tree::new(options.domain);
    if let Some(file) = timestamps {
        tdb::for_each(file, |key, data| {
            if let Some(entry) = ldb::entry(key, data)? {
                tree.times.insert(folded(entry.dn), Times::from_entry(&entry));
            }
            Ok::<(), SssdCacheError>(())
        })?;
    }
    tdb::for_each(cache, |key, data| {
        if let Some(entry) = ldb::entry(key, data)? {
            tree.add(&entry);
        }
        Ok::<(), SssdCacheError>(())
    })?;
    Ok(tree.finish(options))
}

/// Times of expiry.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    data: Option<u64>,
    groups: Option<u64>,
}

impl Times {
    fn from_entry(entry: &Entry<'_>) -> Self {
        let time = |name| entry.text(name).and_then(|text| text.parse().ok());
        Self { data: time("dataExpireTimestamp"), groups: time("initgrExpireTimestamp") }
    }
}

/// Values that a local override or an entry of the directory has.
#[derive(Clone, Debug, Default)]
struct Values {
    name: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
    gecos: Option<String>,
    home: Option<String>,
    shell: Option<String>,
}

impl Values {
    fn from_entry(entry: &Entry<'_>) -> Self {
        let text = |name| entry.text(name).map(str::to_owned);
        let number = |name| entry.text(name).and_then(|text| text.parse().ok());
        Self {
            name: text("name"),
            uid: number("uidNumber"),
            gid: number("gidNumber"),
            // SSSD serves the full name in place of a missing gecos.
            gecos: text("gecos").or_else(|| text("fullName")),
            home: text("homeDirectory"),
            shell: text("loginShell"),
        }
    }

    fn overridden_by(self, other: &Self) -> Self {
        Self {
            name: other.name.clone().or(self.name),
            uid: other.uid.or(self.uid),
            gid: other.gid.or(self.gid),
            gecos: other.gecos.clone().or(self.gecos),
            home: other.home.clone().or(self.home),
            shell: other.shell.clone().or(self.shell),
        }
    }
}

/// A user or group of the tree.
#[derive(Debug)]
struct Node {
    dn: Vec<u8>,
    values: Values,
    times: Times,
    /// DNs of the groups of a user.
    member_of: Vec<Vec<u8>>,
    /// Names of the members of a group, with those that SSSD does not know as users yet.
    members: Vec<String>,
}

/// The entries of one domain.
struct Tree {
    users_base: Vec<u8>,
    groups_base: Vec<u8>,
    slices_base: Vec<u8>,
    slices: Vec<CachedSlice>,
    suffix: String,
    times: HashMap<Vec<u8>, Times>,
    users: Vec<Node>,
    groups: Vec<Node>,
    /// Local overrides, by the DN of their entry.
    overrides: HashMap<Vec<u8>, Values>,
}

/// Returns a DN in lower case. SSSD compares its DNs without case.
fn folded(dn: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(dn).to_lowercase().into_bytes()
}

impl Tree {
    fn new(domain: &str) -> Self {
        let base = |kind| format!(",cn={kind},cn={domain},cn=sysdb").to_lowercase().into_bytes();
        Self {
            users_base: base("users"),
            groups_base: base("groups"),
            slices_base: base("id_mappings"),
            slices: Vec::new(),
            suffix: domain.to_lowercase(),
            times: HashMap::new(),
            users: Vec::new(),
            groups: Vec::new(),
            overrides: HashMap::new(),
        }
    }

    fn add(&mut self, entry: &Entry<'_>) {
        let dn = folded(entry.dn);
        if let Some(object) = entry.values("overrideObjectDN").first() {
            self.overrides.insert(folded(object), Values::from_entry(entry));
            return;
        }
        if dn.ends_with(&self.slices_base) {
            self.slices.extend(CachedSlice::from_entry(entry));
            return;
        }
        let is_user = dn.ends_with(&self.users_base);
        if !is_user && !dn.ends_with(&self.groups_base) {
            return;
        }
        let own = Times::from_entry(entry);
        let newer = self.times.get(&dn).copied().unwrap_or_default();
        let times = Times { data: newer.data.or(own.data), groups: newer.groups.or(own.groups) };
        let texts = |name: &str| {
            let values = entry.values(name).iter();
            values.map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
        };
        let mut members = texts("memberuid");
        members.extend(texts("ghost"));
        let node = Node {
            values: Values::from_entry(entry),
            times,
            member_of: entry.values("memberof").iter().map(|dn| folded(dn)).collect(),
            members,
            dn,
        };
        if is_user { self.users.push(node) } else { self.groups.push(node) }
    }

    /// Removes the domain from an internal name, `alice@corp`.
    fn plain(&self, name: &str) -> String {
        match name.rsplit_once('@') {
            Some((plain, domain)) if domain.to_lowercase() == self.suffix => plain.to_owned(),
            _ => name.to_owned(),
        }
    }

    fn finish(mut self, options: &CacheOptions<'_>) -> CachedAccounts {
        self.slices.sort();
        let slices = std::mem::take(&mut self.slices);
        let mut result = CachedAccounts { slices, ..CachedAccounts::default() };
        let (users, groups) = (std::mem::take(&mut self.users), std::mem::take(&mut self.groups));
        let mut group_names: HashMap<Vec<u8>, String> = HashMap::new();
        let mut posix_groups = Vec::new();
        let mut names_by_gid: HashMap<u32, String> = HashMap::new();
        for node in groups {
            let values = self.with_override(&node, &mut result);
            let (Some(name), Some(gid)) =
                (values.name.as_deref(), values.gid.filter(|gid| *gid != 0))
            else {
                continue;
            };
            let name = self.plain(name);
            if options.home_shell.hidden_groups.contains(&name) {
                continue;
            }
            group_names.insert(node.dn.clone(), name.clone());
            names_by_gid.insert(gid, name.clone());
            posix_groups.push((node, name, gid));
        }
        // Overrides rename users in the lists of members as well.
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        for node in users {
            let old = node.values.name.as_deref().map(|name| self.plain(name));
            let values = self.with_override(&node, &mut result);
            let (Some(name), Some(uid)) =
                (values.name.as_deref(), values.uid.filter(|uid| *uid != 0))
            else {
                continue;
            };
            let name = self.plain(name);
            if let Some(old) = old.filter(|old| *old != name) {
                renamed.insert(old, name.clone());
            }
            if options.home_shell.hidden_users.contains(&name) {
                continue;
            }
            if !options.is_fresh(node.times.data) {
                result.expired_users.insert(name);
                continue;
            }
            let primary = values.gid.and_then(|gid| names_by_gid.get(&gid));
            let groups = options.is_fresh(node.times.groups).then(|| {
                let names = node.member_of.iter().filter_map(|dn| group_names.get(dn).cloned());
                names.filter(|name| primary != Some(name)).collect()
            });
            let user = User {
                uid,
                gid: values.gid.unwrap_or(0),
                gecos: values.gecos.unwrap_or_default(),
                home: options.home_shell.home(&name, uid, options.domain, values.home.as_deref()),
                shell: options.home_shell.shell(values.shell.as_deref()),
                groups,
            };
            result.accounts.users.insert(name, user);
        }
        for (node, name, gid) in posix_groups {
            if !options.is_fresh(node.times.data) {
                result.expired_groups.insert(name);
                continue;
            }
            let members = node.members.iter().map(|member| {
                let plain = self.plain(member);
                renamed.get(&plain).cloned().unwrap_or(plain)
            });
            let members = members.filter(|name| !options.home_shell.hidden_users.contains(name));
            let members = Some(members.collect()).filter(|_| !options.home_shell.ignores_members);
            result.accounts.groups.insert(name, Group { gid, members });
        }
        result
    }

    fn with_override(&self, node: &Node, result: &mut CachedAccounts) -> Values {
        match self.overrides.get(&node.dn) {
            Some(values) => {
                result.overridden += 1;
                node.values.clone().overridden_by(values)
            }
            None => node.values.clone(),
        }
    }
}

impl CacheOptions<'_> {
    /// Returns whether an entry counts. Without a time it was never complete.
    fn is_fresh(&self, expires: Option<u64>) -> bool {
        // 0 of groups means that they were never looked up. 1 means that the entry was expired by a tool.
        match expires {
            None | Some(0) => false,
            Some(time) => self.include_expired || time > self.now,
        }
    }
}

#[cfg(test)]
mod tests;
