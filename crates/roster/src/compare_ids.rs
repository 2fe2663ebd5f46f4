// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster domain compare-ids`: compares the cache of SSSD with a domain of the snapshot. `roster-migration` reads the cache
//! and compares; this module reads the snapshot and prints.

use crate::args::CompareIdsArgs;
use crate::output::{Align, Progress, count, count_with_noun, print_stderr, printable, table};
use crate::paths::SSSD_CONF;
use crate::snapshot_file;
use anyhow::Result;
use roster_config::ETC_SHELLS;
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_migration::cache::{self, CacheOptions, CachedAccounts, CachedSlice, HomeShell};
use roster_migration::compare::{Accounts, Difference, Group, Kind, User, compare};
use roster_migration::sssd::SssdConf;
use roster_snapshot::{Damage, Domain, Snapshot};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const EQUAL: u8 = 0;
const DIFFERENT: u8 = 1;
const FAILED: u8 = 2;

/// Differences of a kind that are listed as text.
const SHOWN_MAX: usize = 50;

/// Compares, prints the differences, and returns the exit code.
pub fn run(args: &CompareIdsArgs, out: &mut dyn Write) -> u8 {
    match compare_and_print(args, out) {
        Ok(true) => EQUAL,
        Ok(false) => DIFFERENT,
        Err(error) => {
            let _ = out.flush();
            print_stderr(format_args!("roster: {error:#}"));
            FAILED
        }
    }
}

fn compare_and_print(args: &CompareIdsArgs, out: &mut dyn Write) -> Result<bool> {
    let (cached, sssd_domain) = read_cache(args)?;
    // Before the first start of rosterd there is no snapshot, and the slices are needed for the configuration.
    if !args.json {
        out.write_all(slices_text(&args.name, &sssd_domain, &cached.slices).as_bytes())?;
    }
    let bytes = snapshot_file::read(&args.snapshot)?;
    let invalid = |error: &dyn std::fmt::Display| snapshot_file::invalid(&args.snapshot, error);
    let snapshot = Snapshot::open(&bytes).map_err(|error| invalid(&error))?;
    let domain = find_domain(&snapshot, &args.name, &args.snapshot)?;
    let served =
        accounts(&snapshot, &domain, &args.name, &cached).map_err(|damage| invalid(&damage))?;
    let entries = (cached.accounts.users.len() + cached.accounts.groups.len()) as u64;
    let mut progress = Progress::new(entries, "entries compared");
    let differences = compare(&cached.accounts, &served, args.enumerated, |done| progress.at(done));
    drop(progress);
    let report = Report {
        args,
        sssd_domain: &sssd_domain,
        cached: &cached,
        served: &served,
        differences: &differences,
    };
    if args.json {
        writeln!(out, "{:#}", report.json())?;
    } else {
        out.write_all(report.text().as_bytes())?;
    }
    Ok(differences.is_empty())
}

fn read_cache(args: &CompareIdsArgs) -> Result<(CachedAccounts, String), CodedError> {
    let domain = sssd_domain(args);
    let conf = match SssdConf::read(&args.sssd) {
        Ok(conf) => conf,
        Err(error) if error.is_missing() => {
            if args.sssd != Path::new(SSSD_CONF) {
                return Err(error.into());
            }
            SssdConf::default()
        }
        Err(error) => return Err(error.into()),
    };
    // SSSD reads no shells of a file that it cannot read.
    let shells = roster_admission::read_shells(Path::new(ETC_SHELLS)).unwrap_or_default();
    let shells = shells.iter().map(|shell| String::from_utf8_lossy(shell).into_owned());
    let home_shell = HomeShell::for_domain(&conf, &domain).with_etc_shells(shells);
    let [cache_path, times_path] = cache::paths(&args.cache_dir, &domain);
    let cache_bytes = cache::read(&cache_path)?;
    let times = times_path.exists().then(|| cache::read(&times_path)).transpose()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let options = CacheOptions {
        domain: &domain,
        now,
        include_expired: args.expired,
        home_shell: &home_shell,
    };
    let found = cache::accounts(&cache_bytes, times.as_deref(), &options)
        .map_err(|error| cache::invalid(&cache_path, error))?;
    Ok((found, domain))
}

/// Returns the name of SSSD's domain: the given one, or that of a cache file with the same name in any case.
fn sssd_domain(args: &CompareIdsArgs) -> String {
    if let Some(name) = &args.sssd_domain {
        return name.clone();
    }
    let names = fs::read_dir(&args.cache_dir).into_iter().flatten().flatten();
    let mut names = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("cache_")?.strip_suffix(".ldb")?.to_owned())
    });
    names.find(|name| name.eq_ignore_ascii_case(&args.name)).unwrap_or_else(|| args.name.clone())
}

fn find_domain<'a>(snapshot: &Snapshot<'a>, name: &str, path: &Path) -> Result<Domain<'a>> {
    for domain in snapshot.domains().map_err(|error| snapshot_file::invalid(path, &error))? {
        let domain = domain.map_err(|error| snapshot_file::invalid(path, &error))?;
        if domain.name == name.as_bytes() {
            return Ok(domain);
        }
    }
    let text = format!("{}: has no domain {name:?}", path.display());
    Err(CodedError::new(&tools::COMPARE_DOMAIN_MISSING, text).into())
}

/// Returns the served accounts of a domain. Groups and members are read only where the cache knows them.
fn accounts(
    snapshot: &Snapshot<'_>,
    domain: &Domain<'_>,
    name: &str,
    cached: &CachedAccounts,
) -> Result<Accounts, Damage> {
    let plain = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        match text.rsplit_once('@') {
            Some((plain, of)) if of.eq_ignore_ascii_case(name) => plain.to_owned(),
            _ => text.into_owned(),
        }
    };
    let mut served = Accounts::default();
    let mut group_names: HashMap<u32, String> = HashMap::new();
    for position in domain.groups.clone() {
        let Some(group) = snapshot.group(position)?.filter(|group| !group.is_refused()) else {
            continue;
        };
        let name = plain(group.record().name);
        let is_wanted =
            cached.accounts.groups.get(&name).is_some_and(|group| group.members.is_some());
        let members = (is_wanted && !group.members_unknown())
            .then(|| group.members.iter().map(|member| member.map(plain)).collect())
            .transpose()?;
        group_names.insert(group.gid, name.clone());
        served.groups.insert(name, Group { gid: group.gid, members });
    }
    for position in domain.users.clone() {
        let Some(user) = snapshot.user(position)?.filter(|user| !user.is_refused()) else {
            continue;
        };
        let record = user.record();
        let name = plain(record.name);
        let is_wanted = cached.accounts.users.get(&name).is_some_and(|user| user.groups.is_some());
        let groups = (is_wanted && !user.groups_unknown())
            .then(|| supplementary(snapshot, record.name, user.gid, &group_names))
            .transpose()?;
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let user = User {
            uid: user.uid,
            gid: user.gid,
            gecos: text(record.gecos),
            home: text(record.dir),
            shell: text(record.shell),
            groups,
        };
        served.users.insert(name, user);
    }
    Ok(served)
}

fn supplementary(
    snapshot: &Snapshot<'_>,
    name: &[u8],
    primary: u32,
    names: &HashMap<u32, String>,
) -> Result<BTreeSet<String>, Damage> {
    let mut groups = BTreeSet::new();
    let Some(gids) = snapshot.supplementary(name)? else { return Ok(groups) };
    // The comparison leaves out groups of another domain.
    gids.each(|gid| {
        if let Some(name) = names.get(&gid).filter(|_| gid != primary) {
            groups.insert(name.clone());
        }
    })?;
    Ok(groups)
}

/// Returns whether SSSD gave the slice to the compared domain, not to one that it trusts.
fn is_own_slice(slice: &CachedSlice, sssd_domain: &str) -> bool {
    slice.domain.eq_ignore_ascii_case(sssd_domain)
}

/// Proposes the keys with which Roster gives the ids of SSSD. Empty if SSSD has no ids from SIDs.
fn slices_text(name: &str, sssd_domain: &str, slices: &[CachedSlice]) -> String {
    // A name with a dot is quoted in the header of a table.
    let table =
        if name.contains('.') { format!("domain.\"{name}\"") } else { format!("domain.{name}") };
    let mut text = String::new();
    for slice in slices {
        let CachedSlice { domain, sid, slice: number } = slice;
        let (domain, sid) = (printable(domain), printable(sid));
        text += &match is_own_slice(slice, sssd_domain) {
            true => format!(
                "SSSD gave slice {number} to {sid}: write id_slice = {number} in [{table}]\n"
            ),
            false => format!("SSSD gave slice {number} to {sid}, the trusted domain {domain}\n"),
        };
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

struct Report<'a> {
    args: &'a CompareIdsArgs,
    sssd_domain: &'a str,
    cached: &'a CachedAccounts,
    served: &'a Accounts,
    differences: &'a [Difference],
}

impl Report<'_> {
    fn by_kind(&self) -> BTreeMap<Kind, Vec<&Difference>> {
        let mut kinds: BTreeMap<Kind, Vec<&Difference>> = BTreeMap::new();
        for difference in self.differences {
            kinds.entry(difference.kind).or_default().push(difference);
        }
        kinds
    }

    /// Returns the numbers of users and groups that only Roster has, expired ones apart.
    fn only_served(&self) -> [usize; 2] {
        let CachedAccounts { accounts, expired_users, expired_groups, .. } = self.cached;
        let users = self.served.users.keys();
        let groups = self.served.groups.keys();
        [
            users
                .filter(|name| {
                    !accounts.users.contains_key(*name) && !expired_users.contains(*name)
                })
                .count(),
            groups
                .filter(|name| {
                    !accounts.groups.contains_key(*name) && !expired_groups.contains(*name)
                })
                .count(),
        ]
    }

    fn text(&self) -> String {
        let Accounts { users, groups } = &self.cached.accounts;
        let entries = |users: usize, groups: usize| {
            format!(
                "{}, {}",
                count_with_noun(users as u64, "user"),
                count_with_noun(groups as u64, "group")
            )
        };
        let mut text = format!(
            "{}: compared {} of SSSD's cache of {}\n",
            self.args.name,
            entries(users.len(), groups.len()),
            printable(self.sssd_domain)
        );
        let expired = entries(self.cached.expired_users.len(), self.cached.expired_groups.len());
        text += &format!("expired in the cache, not compared: {expired}\n");
        let [only_users, only_groups] = self.only_served();
        text +=
            &format!("not in the cache, served by Roster: {}\n", entries(only_users, only_groups));
        if self.cached.overridden > 0 {
            let entries = count_with_noun(self.cached.overridden, "entry");
            text += &format!("with local overrides of SSSD: {entries}\n");
        }
        if self.differences.is_empty() {
            text += "\nno differences\n";
            return text;
        }
        text += &format!("\n{}\n\n", count_with_noun(self.differences.len() as u64, "difference"));
        let mut rows = vec![["KIND", "NAME", "SSSD", "ROSTER"].map(str::to_owned).to_vec()];
        let mut more = String::new();
        for (kind, found) in self.by_kind() {
            for one in found.iter().take(SHOWN_MAX) {
                let row = [kind.name(), &one.name, &one.sssd, &one.roster];
                rows.push(
                    row.map(|cell| if cell.is_empty() { "-".to_owned() } else { printable(cell) })
                        .to_vec(),
                );
            }
            if found.len() > SHOWN_MAX {
                let left = count((found.len() - SHOWN_MAX) as u64);
                more += &format!("and {left} more of kind {}: see --json\n", kind.name());
            }
        }
        text += &table(&rows, &[Align::Left; 4]);
        text + &more
    }

    fn slices_json(&self) -> Vec<Value> {
        let json = |slice: &CachedSlice| {
            json!({
                "domain": slice.domain,
                "sid": slice.sid,
                "slice": slice.slice,
                "trusted": !is_own_slice(slice, self.sssd_domain),
            })
        };
        self.cached.slices.iter().map(json).collect()
    }

    fn json(&self) -> Value {
        let by_kind = self.by_kind();
        let counts: BTreeMap<&str, usize> = Kind::ALL
            .iter()
            .map(|kind| (kind.name(), by_kind.get(kind).map_or(0, Vec::len)))
            .collect();
        let differences: Vec<Value> = self
            .differences
            .iter()
            .map(|one| json!({"kind": one.kind.name(), "name": one.name, "sssd": one.sssd, "roster": one.roster}))
            .collect();
        let [only_users, only_groups] = self.only_served();
        json!({
            "domain": self.args.name,
            "sssd_domain": self.sssd_domain,
            "equal": self.differences.is_empty(),
            "compared": {
                "users": self.cached.accounts.users.len(),
                "groups": self.cached.accounts.groups.len(),
            },
            "expired": {
                "users": self.cached.expired_users.len(),
                "groups": self.cached.expired_groups.len(),
            },
            "only_in_roster": {"users": only_users, "groups": only_groups},
            "overridden": self.cached.overridden,
            "id_slices": self.slices_json(),
            "differences_by_kind": counts,
            "differences": differences,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_unknown_domain_has_code() {
        let bytes = include_bytes!("../../serve/snapshot/testdata/accounts.snap");
        let snapshot = Snapshot::open(bytes).unwrap();
        let found = find_domain(&snapshot, "corp", Path::new("/s")).unwrap();
        assert_eq!(found.users, 2..5);
        let error = find_domain(&snapshot, "Corp", Path::new("/s")).unwrap_err().to_string();
        assert!(error.ends_with(&format!("[{}]", tools::COMPARE_DOMAIN_MISSING.code)), "{error}");
    }

    #[test]
    fn compare_proposes_slices_of_sssd() {
        let slice = |domain: &str, sid: &str, slice| CachedSlice {
            domain: domain.to_owned(),
            sid: sid.to_owned(),
            slice,
        };
        let slices = [slice("Corp", "S-1-5-21-1-2-3", 3369), slice("lab", "S-1-5-21-4-5-6", 17)];
        assert_eq!(
            slices_text("corp", "corp", &slices),
            "SSSD gave slice 3369 to S-1-5-21-1-2-3: write id_slice = 3369 in [domain.corp]\n\
             SSSD gave slice 17 to S-1-5-21-4-5-6, the trusted domain lab\n\n"
        );
        assert_eq!(slices_text("corp", "corp", &[]), "");
        let quoted = slices_text("corp.test", "corp", &slices);
        assert!(quoted.contains(" in [domain.\"corp.test\"]\n"), "{quoted}");
    }

    #[test]
    fn compare_reads_groups_only_where_cached() {
        let bytes = include_bytes!("../../serve/snapshot/testdata/accounts.snap");
        let snapshot = Snapshot::open(bytes).unwrap();
        let domain = find_domain(&snapshot, "lab", Path::new("/s")).unwrap();
        let mut cached = CachedAccounts::default();
        let group = Group { gid: 10, members: Some(BTreeSet::new()) };
        cached.accounts.groups.insert("staff".to_owned(), group);
        let served = accounts(&snapshot, &domain, "lab", &cached).unwrap();
        let members = served.groups["staff"].members.as_ref().unwrap();
        assert!(members.contains("alice") && members.contains("bob"), "{members:?}");
        assert!(served.users["alice"].groups.is_none());
        let user = User { groups: Some(BTreeSet::new()), ..User::default() };
        cached.accounts.users.insert("alice".to_owned(), user);
        let served = accounts(&snapshot, &domain, "lab", &cached).unwrap();
        assert!(served.users["alice"].groups.as_ref().unwrap().contains("staff"));
    }
}
