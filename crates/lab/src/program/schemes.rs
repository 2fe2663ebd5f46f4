//! `roster-lab schemes`: measures each way in which a 389-ds stores passwords, on entries of its own, and
//! says which to take.
//!
//! What is changed of the server for that is little and put back, also after Ctrl-C and failures: hashing
//! anew on bind is off and policies of single entries are on while it measures; nobody else's entry is
//! touched, and nobody else's password is stored otherwise.

use super::loads::uri;
use super::session::{server, stop_on_signals};
use super::{INTERRUPTED, say};
use crate::cli;
use crate::failure::Failure;
use crate::ldap::reply::{self, Attributes};
use crate::ldap::{Connections, Ldap, Request, Scope, Security, Settings};
use crate::net::{Close, Route, Tls, resolve};
use crate::report::text::milliseconds;
use crate::run::{Crew, carry_out};
use crate::schedule::Load;
use crate::schemes::{self, Advice, Measured, Stored};
use crate::template::Template;
use crate::worker::{Numbers, Seat, Stage, one_by_one};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CONFIG: &str = "cn=config";
const PLUGINS: &str = "cn=Password Storage Schemes,cn=plugins,cn=config";
const UPGRADE: &str = "nsslapd-enable-upgrade-hash";
const LOCAL_POLICIES: &str = "nsslapd-pwpolicy-local";
const SCHEME: &str = "passwordStorageScheme";
/// Of one question to the administrator's side.
const PATIENCE: Duration = Duration::from_secs(30);
/// Left out of the figures of each scheme.
const WARM_UP: Duration = Duration::from_millis(300);
/// Names that are written out of those whose hash is old; all are counted, and all are in the JSON.
const NAMES_SHOWN: usize = 20;
/// noSuchObject, entryAlreadyExists.
const NOT_THERE: u32 = 32;
const THERE_ALREADY: u32 = 68;

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    server: String,
    /// Of cn=config: what new passwords are stored by.
    default_scheme: String,
    schemes: Vec<Measured>,
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
pub fn run(args: &cli::Schemes, out: &mut dyn Write) -> Result<u8> {
    let stop = stop_on_signals()?;
    let server = Administrator::new(args)?;
    let default_scheme = server.value(CONFIG, SCHEME)?.with_context(|| {
        format!("{}: is no 389-ds, or --bind-dn may not read {CONFIG}", args.uri)
    })?;
    let offered = server.offered()?;
    let wanted = args.apply.as_ref().or(args.whose_not.as_ref());
    if let Some(name) = wanted {
        ensure!(
            offered.iter().any(|one| one.eq_ignore_ascii_case(name)),
            "{name}: is none of the schemes of this server: {}",
            offered.join(", ")
        );
    }
    let mut report = Report {
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
        apply(&server, name, args.subtree.as_deref())?;
        report.default_scheme = server.value(CONFIG, SCHEME)?.unwrap_or_default();
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
    tell(args, &report, out)?;
    Ok(if report.interrupted { INTERRUPTED } else { 0 })
}

fn measure(
    args: &cli::Schemes,
    server: &Administrator,
    offered: &[String],
    stop: &Arc<AtomicBool>,
    report: &mut Report,
) -> Result<()> {
    let field = Field::set_up(server, &args.base, args.identities)?;
    let only = |name: &&String| {
        args.only.is_empty() || args.only.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    for name in offered.iter().filter(only) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        say(&format!("roster-lab: {name} …"));
        match field.measure(args, name, stop) {
            Ok(measured) => report.schemes.push(measured),
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(why) => {
                report.untested.insert(name.clone(), format!("{why:#}"));
            }
        }
    }
    report.interrupted = stop.load(Ordering::Relaxed);
    field.put_back()?;
    schemes::rank(&mut report.schemes);
    report.advice = schemes::advise(&report.schemes, args.binds);
    Ok(())
}

/// The server, asked as who may do anything.
#[derive(Debug)]
struct Administrator {
    route: Route,
    security: Security,
    bind: (Template, Template),
}

/// A text in which nothing varies.
fn fixed(text: &str) -> Template {
    Template::constant(text.as_bytes().to_vec())
}

impl Administrator {
    fn new(args: &cli::Schemes) -> Result<Self> {
        let (is_tls, host, port) = uri(&args.uri)?;
        let target =
            resolve(&host, port).with_context(|| format!("{}: cannot find {host}", args.uri))?;
        let tls = || Tls::new(&host, args.tls_ca.as_deref());
        let security = if is_tls { Security::Ldaps(tls()?) } else { Security::Clear };
        let route = Route { target, sources: Vec::new(), close: Close::Reset };
        let bind = (fixed(&args.bind_dn), args.bind_password.clone());
        Ok(Self { route, security, bind })
    }

    /// Makes requests 0 to `count`; the entries that they bring.
    fn ask(&self, request: &Request, count: u64) -> Result<Vec<Attributes>, Failure> {
        let (route, security) = (self.route.clone(), self.security.clone());
        let settings =
            Settings::new(route, security, Connections::Reuse, request, Some(&self.bind));
        let settings = settings.map_err(Failure::Setup)?;
        let mut ldap = Ldap::new(Arc::new(settings), 1, 0);
        ldap.keep_entries();
        one_by_one(&mut ldap, 0..count, PATIENCE)?;
        let entries = ldap.take_entries();
        entries
            .iter()
            .map(|one| reply::attributes(one))
            .collect::<Result<_, _>>()
            .map_err(Failure::Malformed)
    }

    fn once(&self, request: &Request) -> Result<Vec<Attributes>> {
        self.ask(request, 1).map_err(|why| anyhow!("{}: {why}", self.route.target))
    }

    fn search(
        &self,
        base: &str,
        scope: Scope,
        filter: &str,
        names: &[&str],
    ) -> Result<Vec<Attributes>> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.once(&Request::Search(fixed(base), scope, filter.to_owned(), names))
            .with_context(|| format!("cannot read {base}"))
    }

    fn value(&self, dn: &str, name: &str) -> Result<Option<String>> {
        let found = self.search(dn, Scope::Base, "(objectClass=*)", &[name])?;
        Ok(found.first().and_then(|entry| first(entry, name)))
    }

    fn set(&self, dn: &str, name: &str, value: &str) -> Result<()> {
        let request = Request::Modify(fixed(dn), name.to_owned(), fixed(value));
        self.once(&request).with_context(|| format!("cannot set {name} of {dn}")).map(drop)
    }

    /// Adds an entry; one that is there already is as good.
    fn add(&self, dn: &str, attributes: &[(&'static str, &str)]) -> Result<()> {
        let values = attributes.iter().map(|&(name, value)| (name, fixed(value))).collect();
        match self.ask(&Request::Add(fixed(dn), values), 1) {
            Ok(_) | Err(Failure::Answered(_, THERE_ALREADY, _)) => Ok(()),
            Err(why) => bail!("cannot add {dn}: {why}"),
        }
    }

    /// The schemes that it can store passwords by.
    fn offered(&self) -> Result<Vec<String>> {
        let on = "(nsslapd-pluginEnabled=on)";
        let found = self.search(PLUGINS, Scope::One, on, &["cn"])?;
        let mut names: Vec<String> = found.iter().filter_map(|entry| first(entry, "cn")).collect();
        names.sort();
        ensure!(!names.is_empty(), "{PLUGINS}: names no scheme");
        Ok(names)
    }

    /// Who has which stored password.
    fn passwords(&self, base: &str) -> Result<Vec<(String, Stored)>> {
        let names = ["userPassword", "entryDN"];
        let found = self.search(base, Scope::Sub, "(userPassword=*)", &names)?;
        let of = |entry: &Attributes| {
            let (_, values) = entry.iter().find(|(name, _)| name == b"userpassword")?;
            Some((first(entry, "entrydn")?, schemes::read(values.first()?)))
        };
        Ok(found.iter().filter_map(of).collect())
    }
}

fn first(entry: &Attributes, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (_, values) = entry.iter().find(|(one, _)| *one == name.as_bytes())?;
    values.first().map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Entries of our own to bind as, with a policy of their own; gone when dropped.
struct Field<'a> {
    server: &'a Administrator,
    /// Of cn=config, as they were.
    before: Vec<(&'static str, String)>,
    folder: String,
    identities: u64,
    password: String,
}

impl<'a> Field<'a> {
    fn set_up(server: &'a Administrator, base: &str, identities: u64) -> Result<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
        let folder = format!("ou=roster-lab-{time},{base}");
        let password = format!("Roster-{time}");
        let mut field = Self { server, before: Vec::new(), folder, identities, password };
        // From here on whatever fails is put back by drop.
        for (name, value) in [(UPGRADE, "off"), (LOCAL_POLICIES, "on")] {
            if let Some(before) = server.value(CONFIG, name)? {
                field.before.push((name, before));
                server.set(CONFIG, name, value)?;
            }
        }
        server.add(&field.folder, &[("objectClass", "organizationalUnit")])?;
        // One value an attribute: classes that imply others.
        let policy = [("objectClass", "passwordpolicy"), ("cn", "policy"), (SCHEME, "CLEAR")];
        server.add(&field.policy(), &policy)?;
        let attributes = vec![
            ("objectClass", fixed("inetOrgPerson")),
            ("cn", fixed("roster-lab")),
            ("sn", fixed("roster-lab")),
            ("pwdpolicysubentry", fixed(&field.policy())),
        ];
        let added = server.ask(&Request::Add(field.user()?, attributes), identities);
        added.map_err(|why| anyhow!("cannot add users below {}: {why}", field.folder))?;
        Ok(field)
    }

    fn policy(&self) -> String {
        format!("cn=policy,{}", self.folder)
    }

    /// One of our users after the other.
    fn user(&self) -> Result<Template> {
        let last = self.identities.saturating_sub(1);
        // The folder's name may have braces, which a template takes for its own.
        let folder = self.folder.replace('{', "{{").replace('}', "}}");
        format!("uid=u{{0..{last}}},{folder}").parse().map_err(|why| anyhow!("{why}"))
    }

    fn measure(&self, args: &cli::Schemes, name: &str, stop: &Arc<AtomicBool>) -> Result<Measured> {
        self.server.set(&self.policy(), SCHEME, name)?;
        let password = fixed(&self.password);
        let change = Request::Modify(self.user()?, "userPassword".to_owned(), password.clone());
        let changed = self.server.ask(&change, self.identities);
        changed.map_err(|why| anyhow!("it stores no password: {why}"))?;
        let stored = self.server.passwords(&self.folder)?;
        let (_, stored) = stored.into_iter().next().context("no password is stored")?;
        let request = Request::Bind(self.user()?, password);
        let (route, security) = (self.server.route.clone(), self.server.security.clone());
        let settings = Settings::new(route, security, Connections::Reuse, &request, None);
        let settings = Arc::new(settings.map_err(|why| anyhow!("{why}"))?);
        let stage = Stage {
            load: Load::Closed { think: Duration::ZERO },
            numbers: Numbers::ALL,
            warm_up: WARM_UP,
            duration: args.duration,
            timeout: PATIENCE,
        };
        let make = |seat: Seat| Ok(Ldap::new(Arc::clone(&settings), seat.users, 0));
        let crew = Crew { users: args.users as usize, threads: 1 };
        let looked_at = server(args.server_pid, args.server_unit.as_deref())?;
        let outcome = carry_out(stage, crew, looked_at.as_ref(), stop, make, |_| {})?;
        let recorder = &outcome.recorder;
        ensure!(!outcome.interrupted, "ended by Ctrl-C");
        if let Some((why, count)) = recorder.failures.iter().next() {
            bail!("{count} of {} binds failed: {why}", recorder.requests);
        }
        ensure!(recorder.requests > 0, "no bind was answered in {} s", args.duration.as_secs_f64());
        let ms = |percentile| recorder.percentile(percentile).as_secs_f64() * 1e3;
        let served = recorder.served.max(f64::MIN_POSITIVE);
        Ok(Measured {
            name: name.to_owned(),
            stored,
            rate: outcome.rate(),
            p50_ms: ms(50.0),
            p99_ms: ms(99.0),
            server_cpu_ms: outcome.server.map(|used| used.cpu.as_secs_f64() * 1e3 / served),
        })
    }

    /// Removes what was added, and sets what was set.
    fn put_back(mut self) -> Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> Result<()> {
        let mut wrong = Ok(());
        let mut note = |result: Result<()>| {
            if wrong.is_ok() {
                wrong = result;
            }
        };
        let gone = |result: Result<_, Failure>, what: &str| match result {
            Ok(_) | Err(Failure::Answered(_, NOT_THERE, _)) => Ok(()),
            Err(why) => Err(anyhow!("cannot remove {what}: {why}; remove it by hand")),
        };
        if !self.folder.is_empty() {
            if let Ok(user) = self.user() {
                // One by one: the first that is not there would end it.
                for number in 0..self.identities {
                    let one = Template::constant(user.text(number));
                    note(gone(self.server.ask(&Request::Delete(one), 1), "a user of the test"));
                }
            }
            for dn in [self.policy(), self.folder.clone()] {
                note(gone(self.server.ask(&Request::Delete(fixed(&dn)), 1), &dn));
            }
            self.folder.clear();
        }
        for (name, value) in std::mem::take(&mut self.before) {
            note(self.server.set(CONFIG, name, &value));
        }
        wrong
    }
}

impl Drop for Field<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.undo() {
            say(&format!("roster-lab: {why:#}"));
        }
    }
}

/// Has new passwords stored by this scheme: everywhere, or below an entry, as dsconf sets such a policy.
fn apply(server: &Administrator, scheme: &str, subtree: Option<&str>) -> Result<()> {
    let Some(subtree) = subtree else { return server.set(CONFIG, SCHEME, scheme) };
    let container = format!("cn=nsPwPolicyContainer,{subtree}");
    let policy = format!("cn=\"cn=nsPwPolicyEntry,{subtree}\",{container}");
    let template = format!("cn=\"cn=nsPwTemplateEntry,{subtree}\",{container}");
    let definition = format!("cn=nsPwPolicy_CoS,{subtree}");
    server.add(&container, &[("objectClass", "nsContainer"), ("cn", "nsPwPolicyContainer")])?;
    server.add(&policy, &[("objectClass", "passwordpolicy"), (SCHEME, scheme)])?;
    // It may have been there before.
    server.set(&policy, SCHEME, scheme)?;
    server.add(
        &template,
        &[("objectClass", "costemplate"), ("cosPriority", "1"), ("pwdpolicysubentry", &policy)],
    )?;
    server.add(
        &definition,
        &[
            ("objectClass", "cosPointerDefinition"),
            ("cn", "nsPwPolicy_CoS"),
            ("cosTemplateDn", &template),
            ("cosAttribute", "pwdpolicysubentry default operational-default"),
        ],
    )?;
    server.set(CONFIG, LOCAL_POLICIES, "on")
}

fn tell(args: &cli::Schemes, report: &Report, out: &mut dyn Write) -> Result<()> {
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
    writeln!(out, "New passwords are stored by {}.", report.default_scheme)?;
    let stored = report.stored.iter().map(|(name, count)| format!("{name} {count}"));
    writeln!(out, "Stored now: {}.", stored.collect::<Vec<_>>().join(", "))?;
    if let Some(wanted) = args.apply.as_ref().or(args.whose_not.as_ref()) {
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
