// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-lab schemes`: measures binds with each password storage scheme of a 389 Directory Server on test entries, and
//! recommends one.
//!
//! During the measurement the server does not upgrade hashes on bind, and applies policies of single entries.
//! `test_entries.rs` undoes both changes. Other entries and their passwords stay unchanged.

mod ldap_admin;
mod password_policy;
mod test_entries;

use super::run_load::stop_after_cleanup;
use super::{INTERRUPTED, print_error, write_file};
use crate::args;
use crate::coded::{Coded, describe, ensure_coded};
use crate::compare::with_code;
use crate::password_schemes::{self, Advice, SchemeStats};
use crate::report::text::milliseconds;
use anyhow::Result;
use ldap_admin::AdminClient;
use roster_messages::table::lab;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use test_entries::TestEntries;

const CONFIG: &str = "cn=config";
const UPGRADE: &str = "nsslapd-enable-upgrade-hash";
const LOCAL_POLICIES: &str = "nsslapd-pwpolicy-local";
const SCHEME: &str = "passwordStorageScheme";
/// Maximum number of DNs with an old hash in the text. The JSON has all.
const NAMES_SHOWN: usize = 20;

/// The report of `roster-lab schemes`.
#[derive(Debug, Serialize)]
struct SchemesReport {
    server: String,
    /// Scheme of new passwords in cn=config.
    default_scheme: String,
    schemes: Vec<SchemeStats>,
    /// Schemes without figures, and their formatted errors.
    untested: BTreeMap<String, String>,
    advice: Vec<Advice>,
    /// Number of stored passwords by scheme.
    stored: BTreeMap<String, u64>,
    /// DNs of entries with a password in another scheme than the wanted one.
    old: Vec<String>,
    interrupted: bool,
}

/// Measures, reports, and applies the requested scheme.
pub fn run(args: &args::SchemesArgs, out: &mut dyn Write) -> Result<u8> {
    let stop = stop_after_cleanup()?;
    let server = AdminClient::new(args)?;
    let text = format_args!("{}: {CONFIG} has no readable {SCHEME}", args.uri);
    let default_scheme = server.default_scheme()?.coded(&lab::NOT_389DS, text)?;
    if args.undo {
        let text = match test_entries::undo_leftovers(&server, true)? {
            true => "The changes of an earlier run were undone.",
            false => "No earlier run left changes behind.",
        };
        writeln!(out, "{text}")?;
        return Ok(0);
    }
    let offered = server.offered_schemes()?;
    let wanted = args.apply.as_ref().or(args.not_using.as_ref());
    if let Some(name) = wanted {
        ensure_coded!(
            offered.iter().any(|one| one.eq_ignore_ascii_case(name)),
            SCHEME_UNKNOWN,
            "{name}: not a scheme of this server: {}",
            offered.join(", ")
        );
    }
    let mut report = SchemesReport {
        server: args.uri.clone(),
        default_scheme,
        schemes: Vec::new(),
        untested: BTreeMap::new(),
        advice: Vec::new(),
        stored: BTreeMap::new(),
        old: Vec::new(),
        interrupted: false,
    };
    if !args.no_measure {
        measure(args, &server, &offered, &stop, &mut report)?;
    }
    if let (Some(name), false) = (&args.apply, report.interrupted) {
        password_policy::apply(&server, name, args.subtree.as_deref())?;
        report.default_scheme = server.default_scheme()?.unwrap_or_default();
    }
    let base = args.subtree.as_ref().unwrap_or(&args.base);
    for (who, stored) in server.passwords(base)? {
        let name = stored.scheme;
        if wanted.is_some_and(|wanted| !name.eq_ignore_ascii_case(wanted)) {
            report.old.push(who);
        }
        *report.stored.entry(name).or_default() += 1;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        write_file(path, text.as_bytes())?;
    }
    write_report(args, &report, out)?;
    Ok(if report.interrupted { INTERRUPTED } else { 0 })
}

fn measure(
    args: &args::SchemesArgs,
    server: &AdminClient,
    offered: &[String],
    stop: &Arc<AtomicBool>,
    report: &mut SchemesReport,
) -> Result<()> {
    if test_entries::undo_leftovers(server, false)? {
        print_error("roster-lab: the changes of an earlier run were undone");
    }
    let field = TestEntries::set_up(server, &args.base, args.identities, stop)?;
    let only = |name: &&String| {
        args.only.is_empty() || args.only.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    for name in offered.iter().filter(only) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        print_error(&format!("roster-lab: {name} …"));
        match field.measure(args, name) {
            Ok(measured) => report.schemes.push(measured),
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => {
                report.untested.insert(name.clone(), describe(&error));
            }
        }
    }
    report.interrupted = stop.load(Ordering::Relaxed);
    field.restore()?;
    password_schemes::rank(&mut report.schemes);
    // A recommendation needs figures of all schemes.
    if args.only.is_empty() && !report.interrupted {
        report.advice = password_schemes::advise(&report.schemes, args.binds);
    }
    Ok(())
}

fn write_report(
    args: &args::SchemesArgs,
    report: &SchemesReport,
    out: &mut dyn Write,
) -> Result<()> {
    if !report.schemes.is_empty() {
        writeln!(
            out,
            "{:<14} {:>7} {:>8} {:>8} {:>8} {:>10}  strength",
            "scheme", "rounds", "binds/s", "p50", "p99", "server CPU"
        )?;
    }
    for one in &report.schemes {
        let rounds = one.stored.rounds.map_or_else(|| "-".to_owned(), |rounds| rounds.to_string());
        let cpu = one.server_cpu_ms.map_or_else(|| "-".to_owned(), milliseconds);
        writeln!(
            out,
            "{:<14} {rounds:>7} {:>8.0} {:>8} {:>8} {cpu:>10}  {}",
            one.name,
            one.rate,
            milliseconds(one.p50_ms),
            milliseconds(one.p99_ms),
            one.stored.strength.text()
        )?;
    }
    for (name, why) in &report.untested {
        writeln!(out, "{name}: not measured: {why}")?;
    }
    for one in &report.advice {
        let scheme = one.scheme.as_deref().unwrap_or("none");
        let why = with_code(&format!("{}.", one.why.trim_end_matches('.')), one.code);
        writeln!(out, "For {}: {scheme}: {why}", one.population)?;
    }
    if report.advice.is_empty() && !args.no_measure {
        writeln!(out, "No recommendation: not all schemes of the server were measured.")?;
    }
    writeln!(out, "New passwords use {}.", report.default_scheme)?;
    let stored = report.stored.iter().map(|(name, count)| format!("{name} {count}"));
    writeln!(out, "Stored now: {}.", stored.collect::<Vec<_>>().join(", "))?;
    if let Some(wanted) = args.apply.as_ref().or(args.not_using.as_ref()) {
        writeln!(
            out,
            "{} passwords do not use {wanted}. The server stores a password again when it changes, or on a bind with \
             {UPGRADE}: on.",
            report.old.len()
        )?;
        for who in report.old.iter().take(NAMES_SHOWN) {
            writeln!(out, "  {who}")?;
        }
        if report.old.len() > NAMES_SHOWN {
            writeln!(out, "  … --json has all of them")?;
        }
    }
    Ok(())
}
