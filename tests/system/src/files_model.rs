// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's output for `files`, computed from text with `roster-passwd-format`. It compares the text rules with the
//! oracle without a snapshot or the module in between.

use crate::corpus::{Corpus, LookupKeys};
use roster_passwd_format::lines::{self, GroupLine, ParsedLine};
use roster_passwd_format::{Shadow, User, is_nis};
use std::fmt::Write as _;

/// errno of an enumeration's end.
const ENOENT: i32 = 2;

/// The probe's output for `keys`.
#[must_use]
pub fn dump(corpus: &Corpus, keys: &LookupKeys) -> Vec<u8> {
    let users = entries(&corpus.passwd, lines::passwd_line);
    let groups = entries(&corpus.group, lines::group_line);
    let members = entries(&corpus.group, lines::initgroups_line);
    let shadows = entries(&corpus.shadow, lines::shadow_line);
    let mut out = String::new();
    for name in &keys.names {
        let shown = quoted(Some(name));
        let served = |entry: &[u8]| entry == name && !is_nis(entry);
        let found = users.iter().find(|user| served(user.name));
        write_lookup(&mut out, &format!("getpwnam{shown}"), found.map(format_user), 0);
        let group_found = groups.iter().find(|line| served(line.group.name));
        write_lookup(&mut out, &format!("getgrnam{shown}"), group_found.map(format_group), 0);
        let shadow_found = shadows.iter().find(|entry| served(entry.name));
        write_lookup(&mut out, &format!("getspnam{shown}"), shadow_found.map(format_shadow), 0);
        write_grouplist(&mut out, &members, name, u32::MAX);
        if let Some(user) = found {
            write_grouplist(&mut out, &members, name, user.gid);
        }
    }
    for &id in &keys.ids {
        let found = users.iter().find(|user| user.uid == id && !is_nis(user.name));
        write_lookup(&mut out, &format!("getpwuid {id}"), found.map(format_user), 0);
        let found = groups.iter().find(|line| line.group.gid == id && !is_nis(line.group.name));
        write_lookup(&mut out, &format!("getgrgid {id}"), found.map(format_group), 0);
    }
    write_enumeration(&mut out, "getpwent_r", users.iter().map(format_user));
    write_enumeration(&mut out, "getgrent_r", groups.iter().map(format_group));
    write_enumeration(&mut out, "getspent_r", shadows.iter().map(format_shadow));
    out.into_bytes()
}

fn entries<'a, T>(text: &'a [u8], parse: fn(&'a [u8]) -> ParsedLine<T>) -> Vec<T> {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| match parse(line) {
            ParsedLine::Entry(entry) => Some(entry),
            ParsedLine::Blank | ParsedLine::Skipped(_) => None,
        })
        .collect()
}

fn write_lookup(out: &mut String, question: &str, found: Option<String>, absent: i32) {
    let _ = match found {
        Some(entry) => writeln!(out, "{question} -> 0{entry}"),
        None => writeln!(out, "{question} -> {absent}"),
    };
}

fn write_enumeration(out: &mut String, question: &str, entries: impl Iterator<Item = String>) {
    for (i, entry) in entries.map(Some).chain([None]).enumerate() {
        write_lookup(out, &format!("{question} {i}"), entry, ENOENT);
    }
}

/// Everything but `gid` itself, which comes first. Repeated gids stay: glibc drops only those that
/// an earlier service gave.
fn write_grouplist(out: &mut String, lines: &[GroupLine], name: &[u8], gid: u32) {
    let mut gids = vec![gid];
    for line in lines {
        if line.group.gid != gid && line.members().any(|member| member == name) {
            gids.push(line.group.gid);
        }
    }
    let _ = write!(out, "getgrouplist{} {} ->", quoted(Some(name)), gid.cast_signed());
    for gid in gids {
        let _ = write!(out, " {gid}");
    }
    out.push('\n');
}

fn format_user(user: &User) -> String {
    let [name, passwd] = [Some(user.name), user.passwd].map(quoted);
    let [gecos, dir, shell] = [user.gecos, user.dir, user.shell].map(quoted);
    format!("{name}{passwd} {} {}{gecos}{dir}{shell}", user.uid, user.gid)
}

fn format_group(line: &GroupLine) -> String {
    let [name, passwd] = [Some(line.group.name), line.group.passwd].map(quoted);
    let members: String = line.members().map(|member| quoted(Some(member))).collect();
    format!("{name}{passwd} {}{members}", line.group.gid)
}

fn format_shadow(entry: &Shadow) -> String {
    let [name, passwd] = [Some(entry.name), entry.passwd].map(quoted);
    let Shadow { last_change, min, max, warn, inactive, expire, flag, .. } = entry;
    format!("{name}{passwd} {last_change} {min} {max} {warn} {inactive} {expire} {flag}")
}

/// A field as the probe prints it, with the blank in front.
fn quoted(field: Option<&[u8]>) -> String {
    let Some(field) = field else { return " NULL".to_owned() };
    let mut text = String::from(" \"");
    for &byte in field {
        match byte {
            b'"' | b'\\' => _ = write!(text, "\\x{byte:02x}"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
    }
    text.push('"');
    text
}
