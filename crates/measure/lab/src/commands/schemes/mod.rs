//! `roster-lab schemes`: measures each way in which a 389-ds stores passwords, on entries of its own, and
//! says which to take.
//!
//! What is changed of the server for that is little: hashing anew on bind is off and policies of single
//! entries are on while it measures (`test_entries.rs`, which puts it back). Nobody else's entry is touched, and
//! nobody else's password is stored otherwise.

mod ldap_admin;
mod password_policy;
mod test_entries;

use super::run_load::stop_after_cleanup;
use super::{INTERRUPTED, print_error};
use crate::args;
use crate::password_schemes::{self, Advice, SchemeStats};
use crate::report::text::milliseconds;
use anyhow::{Context, Result, ensure};
use ldap_admin::AdminClient;
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
/// Names that are written out of those whose hash is old; all are counted, and all are in the JSON.
const NAMES_SHOWN: usize = 20;

/// What came of it.
#[derive(Debug, Serialize)]
struct SchemesReport {
    server: String,
    /// Of cn=config: what new passwords are stored by.
    default_scheme: String,
    schemes: Vec<SchemeStats>,
    /// Those that could not be measured, and why.
    untested: BTreeMap<String, String>,
    advice: Vec<Advice>,
    /// How passwords are stored now, by scheme.
    stored: BTreeMap<String, u64>,
    /// Whose password is not stored by the scheme that is wanted.
    old: Vec<String>,
    interrupted: bool,
}

/// Measures, tells, and applies what was asked for.
pub fn run(args: &args::SchemesArgs, out: &mut dyn Write) -> Result<u8> {
    let stop = stop_after_cleanup()?;
    let server = AdminClient::new(args)?;
    let default_scheme = server.default_scheme()?.with_context(|| {
        format!("{}: is no 389-ds, or --bind-dn may not read {CONFIG}", args.uri)
    })?;
    if args.undo {
        let text = match test_entries::undo_leftovers(&server, true)? {
            true => "What an earlier run had left behind was undone.",
            false => "No earlier run has left anything behind.",
        };
        writeln!(out, "{text}")?;
        return Ok(0);
    }
    let offered = server.offered_schemes()?;
    let wanted = args.apply.as_ref().or(args.not_using.as_ref());
    if let Some(name) = wanted {
        ensure!(
            offered.iter().any(|one| one.eq_ignore_ascii_case(name)),
            "{name}: is none of the schemes of this server: {}",
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
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
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
        print_error("roster-lab: what an earlier run had left behind was undone");
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
            Err(why) => {
                report.untested.insert(name.clone(), format!("{why:#}"));
            }
        }
    }
    report.interrupted = stop.load(Ordering::Relaxed);
    field.restore()?;
    password_schemes::rank(&mut report.schemes);
    // Of a few of them nobody can say that none is better.
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
            "{:<18} {:>8} {:>9} {:>10} {:>10} {:>10}  strength",
            "scheme", "rounds", "binds/s", "p50", "p99", "server CPU"
        )?;
    }
    for one in &report.schemes {
        let rounds = one.stored.rounds.map_or_else(|| "-".to_owned(), |rounds| rounds.to_string());
        let cpu = one.server_cpu_ms.map_or_else(|| "-".to_owned(), milliseconds);
        writeln!(
            out,
            "{:<18} {rounds:>8} {:>9.0} {:>10} {:>10} {cpu:>10}  {}",
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
        writeln!(out, "For {}: {scheme}: {}.", one.population, one.why.trim_end_matches('.'))?;
    }
    if report.advice.is_empty() && !args.no_measure {
        writeln!(out, "No advice: not all schemes of the server were measured.")?;
    }
    writeln!(out, "New passwords are stored by {}.", report.default_scheme)?;
    let stored = report.stored.iter().map(|(name, count)| format!("{name} {count}"));
    writeln!(out, "Stored now: {}.", stored.collect::<Vec<_>>().join(", "))?;
    if let Some(wanted) = args.apply.as_ref().or(args.not_using.as_ref()) {
        writeln!(
            out,
            "{} are not stored by {wanted}; a password is stored anew when it is set, or on a bind \
             where {UPGRADE} is on.",
            report.old.len()
        )?;
        for who in report.old.iter().take(NAMES_SHOWN) {
            writeln!(out, "  {who}")?;
        }
        if report.old.len() > NAMES_SHOWN {
            writeln!(out, "  … all of them are in --json")?;
        }
    }
    Ok(())
}
