// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster get`: getent(1) for one snapshot, without glibc, nsswitch.conf or the NSS module. Output and exit statuses are
//! those of getent, so that diff(1) can compare both. One difference: getent reports "not found" for a database that it
//! cannot read, and this command reports the error.

use crate::output::{print_stderr, print_warning};
use crate::snapshot_file;
use anyhow::Result;
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_passwd_format::is_nis;
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot::{Damage, Gids, Group, LookupResult, Shadow, Snapshot, User};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Exit statuses of getent.
pub const EXIT_FOUND: u8 = 0;
pub const EXIT_WRONG_USE: u8 = 1;
pub const EXIT_NOT_FOUND: u8 = 2;
pub const EXIT_NO_ENUMERATION: u8 = 3;

/// The databases of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Database {
    Passwd,
    Group,
    Initgroups,
    Shadow,
}

impl Database {
    fn name(self) -> &'static str {
        match self {
            Self::Passwd => "passwd",
            Self::Group => "group",
            Self::Initgroups => "initgroups",
            Self::Shadow => "shadow",
        }
    }
}

/// Prints the entries of `keys`, or all of them, and returns the exit code.
pub fn run(
    database: Database,
    keys: &[OsString],
    snapshot: &Path,
    json: bool,
    out: &mut dyn Write,
) -> Result<u8> {
    if database == Database::Initgroups && keys.is_empty() {
        print_stderr("Enumeration not supported on initgroups");
        return Ok(EXIT_NO_ENUMERATION);
    }
    // An empty ROSTER_SNAPSHOT counts as unset.
    let snapshot = if snapshot.as_os_str().is_empty() {
        Path::new(snapshot_file::DEFAULT_SNAPSHOT)
    } else {
        snapshot
    };
    let path = match database {
        Database::Shadow => shadow_file(snapshot),
        _ => snapshot.to_owned(),
    };
    let bytes = snapshot_file::read(&path)?;
    let opened = match database {
        Database::Shadow => Snapshot::open_shadow(&bytes),
        _ => Snapshot::open(&bytes),
    };
    let opened = opened.map_err(|error| snapshot_file::invalid(&path, &error))?;
    let mut printer = EntryPrinter { database, json, out };
    let result = match keys {
        [] => printer.print_all(&opened),
        keys => printer.print_keys(&opened, keys),
    };
    result.map_err(|error| match error.downcast::<Damage>() {
        Ok(damage) => snapshot_file::invalid(&path, &damage).into(),
        Err(other) => other,
    })
}

/// Returns the file of password hashes. `snapshot` may name it, or the snapshot that it belongs to.
fn shadow_file(snapshot: &Path) -> PathBuf {
    if snapshot_file::kind_at(snapshot) == Some(SnapshotKind::Shadow) {
        return snapshot.to_owned();
    }
    snapshot_file::shadow_path(snapshot)
}

struct EntryPrinter<'o> {
    database: Database,
    json: bool,
    out: &'o mut dyn Write,
}

impl EntryPrinter<'_> {
    fn print_all(&mut self, snapshot: &Snapshot<'_>) -> Result<u8> {
        for position in 0.. {
            let entry = match self.database {
                Database::Passwd => snapshot.user(position)?.map(|user| EntryOutput::user(&user)),
                Database::Group => {
                    snapshot.group(position)?.map(|group| EntryOutput::group(&group)).transpose()?
                }
                Database::Shadow => snapshot.shadow(position)?.map(|s| EntryOutput::shadow(&s)),
                Database::Initgroups => None,
            };
            let Some(entry) = entry else { break };
            self.print_entry(&entry)?;
        }
        Ok(EXIT_FOUND)
    }

    fn print_keys(&mut self, snapshot: &Snapshot<'_>, keys: &[OsString]) -> Result<u8> {
        let mut code = EXIT_FOUND;
        for key in keys {
            match find(self.database, snapshot, key.as_bytes())? {
                Some(entry) => self.print_entry(&entry)?,
                None => code = EXIT_NOT_FOUND,
            }
        }
        Ok(code)
    }

    fn print_entry(&mut self, entry: &EntryOutput) -> Result<()> {
        if self.json {
            writeln!(self.out, "{}", entry.json)?;
        } else if entry.printable {
            self.out.write_all(&entry.line)?;
        } else {
            let line = String::from_utf8_lossy(&entry.line);
            let name = line.split(':').next().unwrap_or_default();
            let database = self.database.name();
            let text = format!("the {database} entry of {name:?} cannot be printed as a line");
            print_warning(&CodedError::new(&tools::ENTRY_NOT_PRINTABLE, text));
        }
        Ok(())
    }
}

fn find(database: Database, snapshot: &Snapshot<'_>, key: &[u8]) -> Result<Option<EntryOutput>> {
    let id = numeric(key);
    Ok(match database {
        Database::Passwd => {
            let user = match id {
                Some(uid) => snapshot.user_by_uid(uid),
                None => snapshot.user_by_name(key),
            };
            user?.map(|user| EntryOutput::user(&user))
        }
        Database::Group => {
            let group = match id {
                Some(gid) => snapshot.group_by_gid(gid),
                None => snapshot.group_by_name(key),
            };
            group?.map(|group| EntryOutput::group(&group)).transpose()?
        }
        Database::Initgroups => Some(EntryOutput::initgroups(key, snapshot.groups_of_user(key))?),
        Database::Shadow => {
            snapshot.shadow_by_name(key)?.map(|shadow| EntryOutput::shadow(&shadow))
        }
    })
}

/// Parses an id as getent does: any text that strtoul(3) reads to its end, truncated to 32 bits. So ` 5`, `+5` and
/// 4294967301 are all 5.
fn numeric(key: &[u8]) -> Option<u32> {
    let text = &key[key.iter().take_while(|byte| matches!(byte, b' ' | 9..=13)).count()..];
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let value = match value {
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
        None => u64::MAX,
    };
    Some(value as u32)
}

/// An entry in both formats.
#[derive(Debug)]
struct EntryOutput {
    line: Vec<u8>,
    /// Whether the C library prints it. It rejects a colon or line break in a field.
    printable: bool,
    json: Value,
}

impl EntryOutput {
    fn user(user: &User<'_>) -> Self {
        let user = user.record();
        let gecos: Vec<u8> = or_empty(user.gecos)
            .iter()
            .map(|&byte| if byte == b':' || byte == b'\n' { b' ' } else { byte })
            .collect();
        let id = |id: u32| if is_nis(user.name) { String::new() } else { id.to_string() };
        let (uid, gid) = (id(user.uid), id(user.gid));
        let fields = [
            user.name,
            or_empty(user.passwd),
            uid.as_bytes(),
            gid.as_bytes(),
            &gecos,
            or_empty(user.dir),
            or_empty(user.shell),
        ];
        Self {
            printable: fields.iter().all(|field| is_plain(field)),
            line: join_fields(&fields),
            json: json!({
                "name": text(Some(user.name)),
                "passwd": text(user.passwd),
                "uid": user.uid,
                "gid": user.gid,
                "gecos": text(user.gecos),
                "dir": text(user.dir),
                "shell": text(user.shell),
            }),
        }
    }

    fn group(group: &Group<'_>) -> Result<Self, Damage> {
        group.members.verify()?;
        let members = group.members.iter().collect::<Result<Vec<_>, _>>()?;
        let group = group.record();
        let gid = if is_nis(group.name) { String::new() } else { group.gid.to_string() };
        let list = members.join(&b',');
        let fields = [group.name, or_empty(group.passwd), gid.as_bytes(), &list];
        Ok(Self {
            printable: fields.iter().all(|field| is_plain(field)),
            line: join_fields(&fields),
            json: json!({
                "name": text(Some(group.name)),
                "passwd": text(group.passwd),
                "gid": group.gid,
                "members": members.iter().map(|name| text(Some(name))).collect::<Vec<_>>(),
            }),
        })
    }

    fn shadow(shadow: &Shadow<'_>) -> Self {
        let shadow = shadow.record();
        let days = [
            shadow.last_change,
            shadow.min,
            shadow.max,
            shadow.warn,
            shadow.inactive,
            shadow.expire,
        ];
        let days = days.map(|days| if days == -1 { String::new() } else { days.to_string() });
        let flag = match shadow.flag {
            u64::MAX => String::new(),
            flag => flag.cast_signed().to_string(),
        };
        let mut fields = vec![shadow.name, or_empty(shadow.passwd)];
        fields.extend(days.iter().map(String::as_bytes));
        fields.push(flag.as_bytes());
        let or_null = |days: i32| if days == -1 { Value::Null } else { days.into() };
        Self {
            printable: fields.iter().all(|field| is_plain(field)),
            line: join_fields(&fields),
            json: json!({
                "name": text(Some(shadow.name)),
                "passwd": text(shadow.passwd),
                "last_change": or_null(shadow.last_change),
                "min": or_null(shadow.min),
                "max": or_null(shadow.max),
                "warn": or_null(shadow.warn),
                "inactive": or_null(shadow.inactive),
                "expire": or_null(shadow.expire),
                "flag": if shadow.flag == u64::MAX { Value::Null } else { shadow.flag.into() },
            }),
        }
    }

    /// Formats a list of groups. An unknown name is a user without groups. getent passes 4294967295 as the primary gid, so
    /// the list omits it.
    fn initgroups(name: &[u8], gids: LookupResult<Gids<'_>>) -> Result<Self, Damage> {
        let mut found = Vec::new();
        if let Some(gids) = gids? {
            gids.each(|gid| found.push(gid))?;
        }
        found.retain(|&gid| gid != u32::MAX);
        let mut line = name.to_owned();
        line.resize(line.len().max(21), b' ');
        for gid in &found {
            line.extend_from_slice(format!(" {gid}").as_bytes());
        }
        line.push(b'\n');
        Ok(Self { line, printable: true, json: json!({"name": text(Some(name)), "gids": found}) })
    }
}

fn join_fields(fields: &[&[u8]]) -> Vec<u8> {
    let mut line = fields.join(&b':');
    line.push(b'\n');
    line
}

fn or_empty(field: Option<&[u8]>) -> &[u8] {
    field.unwrap_or_default()
}

fn is_plain(field: &[u8]) -> bool {
    !field.iter().any(|&byte| byte == b':' || byte == b'\n')
}

/// Returns a field for JSON. U+FFFD replaces invalid UTF-8.
fn text(field: Option<&[u8]>) -> Value {
    field.map_or(Value::Null, |bytes| String::from_utf8_lossy(bytes).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_keys_are_those_of_getent() {
        for (key, id) in [
            ("17", Some(17)),
            ("017", Some(17)),
            ("+5", Some(5)),
            (" \t5", Some(5)),
            ("-1", Some(u32::MAX)),
            ("4294967296", Some(0)),
            ("99999999999999999999999", Some(u32::MAX)),
            ("-99999999999999999999999", Some(u32::MAX)),
            ("-18446744073709550616", Some(1000)),
            ("", None),
            (" ", None),
            ("+", None),
            ("-", None),
            ("+-5", None),
            ("5 ", None),
            ("0x5", None),
            ("5x", None),
        ] {
            assert_eq!(numeric(key.as_bytes()), id, "{key:?}");
        }
    }
}
