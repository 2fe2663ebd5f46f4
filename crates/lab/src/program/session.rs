//! One load, carried out: what is asked of the server before, the runs, the report.

use super::crowd::Crowd;
use super::{FAILED, FOUND, INTERRUPTED, say};
use crate::cli::Common;
use crate::clock::{self, Watch};
use crate::compare::{Measured, page};
use crate::ldap::look::{self, Change, Look};
use crate::limits::Descriptors;
use crate::ports::Budget;
use crate::probes::{self, Manner, Traits, Trial};
use crate::recorder::Recorder;
use crate::report::{
    self, Figures, Finding, Host, Knee, Origin, PORT_CURES, Report, Warning, text,
};
use crate::run::{Crew, Outcome, carry_out};
use crate::schedule::{Load, Pace, Rate, knee};
use crate::server::Server;
use crate::view::View;
use crate::worker::{Engine, Numbers, Seat, Stage, one_by_one};
use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests at a time that nobody asked for.
const USERS: u32 = 16;
const USERS_OPEN: u32 = 64;
/// Runs of one curve.
const STAGES_MAX: usize = 100;

/// What was asked for, whatever the load.
pub struct Task {
    /// As they were given, for the report.
    pub options: Value,
    /// Whether the run itself is left out.
    pub checks_only: bool,
    /// Users that a master of Locust has come and go, in the place of runs.
    pub crowd: Option<Arc<Crowd>>,
}

impl Task {
    /// Runs and their report, or what goes before them.
    pub fn new(options: Value, checks_only: bool) -> Self {
        Self { options, checks_only, crowd: None }
    }
}

/// Carries a run out in which nothing is done.
pub type Startup<'a> = dyn Fn(Stage, Crew, &Arc<AtomicBool>) -> Result<Outcome> + 'a;

/// A load that is ready to be carried out.
pub struct Job<'a> {
    pub common: &'a Common,
    pub task: Task,
    /// Unless there is a wish for others.
    pub threads: usize,
    /// What can be compared.
    pub traits: Traits,
    /// What is to be said of a run's ports.
    pub ports: &'a dyn Fn(&Planned) -> Option<Warning>,
    /// Sees what requests do to the server's entries.
    pub look: Option<Look>,
    /// Of commands: a run of one that does nothing, to set the start of processes apart.
    pub startup: Option<&'a Startup<'a>>,
}

/// How fast a closed loop is nobody knows before; what its ports allow is.
pub fn tell_ports(budget: Budget, common: &Common) {
    if let (None, Some(rate), true) = (&common.rate, budget.rate(), budget.is_tight()) {
        say(&format!(
            "roster-lab: {} ports, each taken for {} s after its connection, allow {rate:.0} connections/s \
             in the long run",
            budget.ports,
            budget.hold.as_secs()
        ));
    }
}

/// What is said of ports before a run that does not fit them.
pub fn of_ports(budget: Budget, stage: &Planned, rate: f64) -> Option<Warning> {
    let time = stage.stage.warm_up + stage.stage.duration;
    let share = budget.share(stage.users.into(), rate, time);
    (share > 1.0).then(|| Warning {
        kind: "ports",
        ratio: share,
        text: format!(
            "this run needs {share:.1} times the {} ports that there are, each taken for {} s after \
             its connection: at most {:.0} connections/s can be kept up, and others will fail with \
             \"Cannot assign requested address\". {PORT_CURES}",
            budget.ports,
            budget.hold.as_secs(),
            budget.rate().unwrap_or(f64::INFINITY)
        ),
    })
}

/// One run that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    users: u32,
    stage: Stage,
}

impl Planned {
    /// The rate that is asked for; none in a closed loop.
    fn offered(&self) -> Option<f64> {
        match self.stage.load {
            Load::Closed { .. } => None,
            Load::Open(pace) => Some(f64::midpoint(pace.from, pace.to)),
        }
    }

    /// The highest rate of connections that is sure to come; in a closed loop none is.
    pub fn rate_max(&self) -> f64 {
        match self.stage.load {
            Load::Closed { .. } => 0.0,
            Load::Open(pace) => pace.from.max(pace.to),
        }
    }

    fn name(&self) -> String {
        match self.offered() {
            Some(rate) => format!("{rate:.0}/s"),
            None => format!("{} users", self.users),
        }
    }
}

/// What the runs together came to.
#[derive(Default)]
struct Sum {
    outcome: Outcome,
    stages: Vec<Figures>,
    warnings: Vec<Warning>,
}

impl Sum {
    fn add(&mut self, outcome: Outcome, figures: Figures, warnings: Vec<Warning>) {
        self.stages.push(figures);
        report::add_worst(&mut self.warnings, warnings);
        self.outcome.recorder.add(outcome.recorder);
        self.outcome.measured += outcome.measured;
        // Runs that follow each other have no common pieces.
        self.outcome.planned = Duration::ZERO;
        self.outcome.threads.extend(outcome.threads);
        self.outcome.interrupted |= outcome.interrupted;
        self.outcome.left += outcome.left;
        self.outcome.server_is_gone |= outcome.server_is_gone;
        if let Some(server) = outcome.server {
            let cpu = self.outcome.server.map_or(Duration::ZERO, |before| before.cpu) + server.cpu;
            self.outcome.server = Some(crate::server::Consumed { cpu, ..server });
        }
    }
}

/// What was found out before the runs.
#[derive(Default)]
struct Checked {
    findings: Vec<Finding>,
    warnings: Vec<Warning>,
    requests: u64,
}

/// What the runs of a session have in common.
struct Session<'a, M> {
    job: Job<'a>,
    make: M,
    server: Option<Server>,
    stop: Arc<AtomicBool>,
    /// No two runs have a request in common: the next one's numbers begin here.
    next: Cell<u64>,
}

/// Carries a load out and reports it. `make` makes an engine for each thread.
pub fn carry<E: Engine + Send + 'static, M: Fn(Seat, Manner) -> Result<E> + Sync>(
    job: Job<'_>,
    make: M,
    out: &mut dyn Write,
) -> Result<u8> {
    if let Some(crowd) = job.task.crowd.clone() {
        return crowd.serve(&job, &make).map(|()| 0);
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let common = job.common;
    let server = server(common.server_pid, common.server_unit.as_deref())?;
    if let Some(server) = &server {
        server.consumed()?;
    }
    ensure!(
        !job.task.checks_only || (common.html.is_none() && common.hdr.is_none()),
        "--html, --hdr: a check makes no run that they could be of"
    );
    let mut files = Files::create(common)?;
    let session = Session { job, make, server, stop: stop_on_signals()?, next: Cell::new(0) };
    let checked = session.check()?;
    let watch = Watch::start();
    let (mut sum, knee) = match session.job.task.checks_only {
        true => (Sum::default(), None),
        false => session.runs()?,
    };
    sum.warnings.extend(watch.end());
    let mut warnings = checked.warnings;
    warnings.append(&mut sum.warnings);
    let plan = session.job.task.options.clone();
    let origin = Origin { version: env!("CARGO_PKG_VERSION"), host: Host::this(), time, plan };
    let (probes, interrupted) = (checked.findings, session.stop.load(Ordering::Relaxed));
    if session.job.task.checks_only {
        let code = if warnings.is_empty() { 0 } else { FOUND };
        let report = report::Checks { probes, warnings, interrupted, origin };
        files.write(&report, |out| text::write_checks(&report, out), out)?;
        return Ok(if interrupted { INTERRUPTED } else { code });
    }
    let Sum { outcome, mut stages, .. } = sum;
    let figures = match stages.as_slice() {
        [one] => one.clone(),
        several => {
            let users = several.iter().map(|stage| stage.users).max().unwrap_or_default();
            Figures::of(&outcome, users, None)
        }
    };
    if stages.len() < 2 {
        stages.clear();
    }
    let probe_requests = checked.requests;
    let interrupted = outcome.interrupted;
    let report =
        Report { figures, warnings, probes, probe_requests, stages, knee, interrupted, origin };
    files.write_all(&report, &outcome.recorder, out)?;
    Ok(code(&outcome))
}

impl<E, M> Session<'_, M>
where
    E: Engine + Send + 'static,
    M: Fn(Seat, Manner) -> Result<E> + Sync,
{
    fn planned(&self, planned: Planned) -> Trial {
        let same_bytes = self.job.traits.repeats_bytes == Some(true);
        let manner = Manner { same_bytes, spares_ports: false };
        Trial { users: planned.users, stage: planned.stage, manner }
    }

    /// A run, whose requests are none of an earlier one's.
    fn run(&self, trial: Trial, server: Option<&Server>, view: &mut View) -> Result<Outcome> {
        let crew = self.crew(trial.users);
        let _held = Descriptors::of::<E>(crew)?;
        let mut stage = trial.stage;
        stage.numbers.first = stage.numbers.first.wrapping_add(self.next.get());
        let make = &self.make;
        let make = |seat| make(seat, trial.manner);
        let outcome = carry_out(stage, crew, server, &self.stop, make, |sight| view.show(sight))?;
        // Threads do not come equally far.
        let made = outcome.recorder.requests + outcome.recorder.warm_up + 1;
        let past = stage.numbers.past(made.saturating_mul(crew.threads as u64));
        // The first identity begins again.
        let period = self.job.traits.period.max(1);
        let whole = past.div_ceil(period).saturating_mul(period);
        self.next.set(self.next.get().wrapping_add(whole));
        Ok(outcome)
    }

    /// Everything that is asked before the runs.
    fn check(&self) -> Result<Checked> {
        let Job { common, ref task, traits, ref look, .. } = self.job;
        let mut checked = Checked::default();
        checked.warnings.extend(clock::reading());
        if common.probe.is_zero() {
            ensure!(!task.checks_only, "--probe 0: leaves nothing to check");
            return Ok(checked);
        }
        let planned = stages(common)?;
        let Some(first) = planned.first() else { return Ok(checked) };
        if task.checks_only {
            checked.warnings.extend(planned.iter().find_map(|stage| (self.job.ports)(stage)));
        }
        if let Some(look) = look {
            let (finding, warning) = probes::upgrade(self.upgrade(look, &mut checked.requests)?);
            checked.findings.push(finding);
            checked.warnings.extend(warning);
        }
        let mut requests = 0;
        let mut carry = |trial: Trial| -> Result<Outcome> {
            let mut view = View::new(&trial.stage, "checking".to_owned(), common.quiet);
            let outcome = self.run(trial, None, &mut view)?;
            requests += outcome.recorder.requests + outcome.recorder.warm_up;
            Ok(outcome)
        };
        let trial = self.planned(*first);
        let (findings, warnings) = probes::compare(traits, trial, common.probe, &mut carry)?;
        checked.requests += requests;
        checked.findings.extend(findings);
        checked.warnings.extend(warnings);
        Ok(checked)
    }

    /// What some of the requests, each once, do to the entries that they name. What cannot be seen is no
    /// reason to leave the run out.
    fn upgrade(&self, look: &Look, requests: &mut u64) -> Result<Result<Change, String>> {
        // Others than those that an earlier check bound as.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (period, from) = (self.job.traits.period.max(1), u64::from(now.subsec_micros()));
        let sample: Vec<u64> = if period <= look::SAMPLE {
            (0..period).collect()
        } else {
            (0..look::SAMPLE)
                .map(|n| (from % period + n * (period / look::SAMPLE)) % period)
                .collect()
        };
        let before = match look.entries(&sample) {
            Ok(before) => before,
            Err(failure) => return Ok(Err(failure.to_string())),
        };
        let seat = Seat { thread: 0, threads: 1, users: 1, users_in_all: 1 };
        let manner = Manner { same_bytes: false, spares_ports: true };
        let mut engine = (self.make)(seat, manner)?;
        let asked = sample.iter().copied().inspect(|_| *requests += 1);
        let made = one_by_one(&mut engine, asked, self.job.common.timeout);
        let after = made.and_then(|()| look.entries(&sample));
        Ok(after.map(|after| look::compare(&before, &after)).map_err(|failure| failure.to_string()))
    }

    /// All runs that were asked for.
    fn runs(&self) -> Result<(Sum, Option<Knee>)> {
        let common = self.job.common;
        let mut sum = Sum::default();
        let planned = stages(common)?;
        let is_one_of_many = common.knee.is_some() || planned.len() > 1;
        let mut carry = |planned: Planned| self.carry_one(planned, is_one_of_many, &mut sum);
        let knee = match common.knee {
            Some(p99) => Some(find_knee(common, p99, &mut carry)?),
            None => {
                for planned in planned {
                    if carry(planned)?.interrupted {
                        break;
                    }
                }
                None
            }
        };
        Ok((sum, knee))
    }

    fn carry_one(&self, planned: Planned, is_one_of_many: bool, sum: &mut Sum) -> Result<Outcome> {
        let before = (self.job.ports)(&planned);
        if let Some(warning) = &before {
            say(&format!("roster-lab: {}", warning.text));
        }
        let mut view = View::new(&planned.stage, planned.name(), self.job.common.quiet);
        let trial = self.planned(planned);
        let outcome = self.run(trial, self.server.as_ref(), &mut view)?;
        drop(view);
        let startup_ms = self.startup(planned)?;
        let figures = Figures::of(&outcome, planned.users, planned.offered());
        let figures = Figures { startup_ms, ..figures };
        let mut warnings: Vec<Warning> = before.into_iter().collect();
        warnings.extend(report::warnings(&outcome, planned.users));
        if is_one_of_many {
            let of_run = |warning: &mut Warning| {
                warning.text = format!("At {}: {}", planned.name(), warning.text);
            };
            warnings.iter_mut().for_each(of_run);
        }
        sum.add(outcome.clone(), figures, warnings);
        Ok(outcome)
    }
}

impl<M> Session<'_, M> {
    /// What the start and end of a process takes at this load, at the median.
    fn startup(&self, planned: Planned) -> Result<Option<f64>> {
        let (common, Some(startup)) = (self.job.common, self.job.startup) else { return Ok(None) };
        if common.probe.is_zero() || self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let view = View::new(&planned.stage, "start-up".to_owned(), common.quiet);
        let (warm_up, duration) = (common.probe / 5, common.probe);
        let load = match planned.stage.load {
            Load::Open(pace) => Load::Open(Pace { warm_up, over: duration, ..pace }),
            closed @ Load::Closed { .. } => closed,
        };
        let stage = Stage { load, warm_up, duration, ..planned.stage };
        let outcome = startup(stage, self.crew(planned.users), &self.stop)?;
        drop(view);
        let median = outcome.recorder.percentile(50.0);
        Ok((outcome.recorder.requests > 0).then_some(median.as_secs_f64() * 1e3))
    }

    fn crew(&self, users: u32) -> Crew {
        let threads = self.job.common.threads.map_or(self.job.threads, |threads| threads as usize);
        Crew { users: users as usize, threads }
    }
}

/// Where a report goes: open before the run, so that none is made whose report cannot be written, and
/// emptied only when there is one, so that a run that fails takes no earlier report with it.
struct Place {
    path: PathBuf,
    file: File,
    /// Made by us, and still empty.
    is_blank: bool,
}

impl Place {
    fn open(path: &Path) -> Result<Self> {
        let is_blank = !path.exists();
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_blank })
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let written = || -> Result<()> {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.is_blank = false;
            let mut file = BufWriter::new(&self.file);
            write(&mut file)?;
            Ok(file.flush()?)
        };
        let path = self.path.display().to_string();
        written().with_context(|| format!("cannot write {path}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_blank {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where reports go.
struct Files {
    json: Option<Place>,
    hdr: Option<Place>,
    html: Option<Place>,
    /// JSON takes the place of the text.
    shows_json: bool,
}

impl Files {
    fn create(common: &Common) -> Result<Self> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Place::open).transpose();
        let shows_json = common.json.as_deref() == Some(Path::new("-"));
        let json = if shows_json { None } else { open(&common.json)? };
        Ok(Self { json, hdr: open(&common.hdr)?, html: open(&common.html)?, shows_json })
    }

    /// The report of a run.
    fn write_all(
        &mut self,
        report: &Report,
        recorder: &Recorder,
        out: &mut dyn Write,
    ) -> Result<()> {
        let shown = self.write(report, |out| text::write(report, out), out);
        let hdr = |out: &mut dyn Write| Ok(report::write_percentiles(recorder, out)?);
        let hdr = self.hdr.as_mut().map_or(Ok(()), |place| place.write(hdr));
        let page = |out: &mut dyn Write| Ok(out.write_all(page(report).as_bytes())?);
        let page = self.html.as_mut().map_or(Ok(()), |place| place.write(page));
        all([shown, hdr, page])
    }

    /// A report for people and as JSON: what cannot be written in one place is in the other.
    fn write(
        &mut self,
        report: &impl Serialize,
        write_text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let show = |out: &mut dyn Write| -> Result<()> {
            if self.shows_json { write_json(report, out) } else { Ok(write_text(out)?) }
        };
        let shown = show(out).and_then(|()| Ok(out.flush()?));
        let shown = shown.context("cannot write to the standard output");
        let json = |out: &mut dyn Write| write_json(report, out);
        all([shown, self.json.as_mut().map_or(Ok(()), |place| place.write(json))])
    }
}

/// The first that went wrong, behind all others, which are said.
fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut wrong = results.into_iter().filter_map(Result::err);
    let Some(first) = wrong.next() else { return Ok(()) };
    wrong.for_each(|other| say(&format!("roster-lab: {other:#}")));
    Err(first)
}

fn page(report: &Report) -> String {
    // What was loaded is what a person calls the run.
    let plan = &report.origin.plan;
    let target = ["uri", "server", "kdc", "service", "module", "lookup"];
    let target = target.iter().find_map(|key| plan.get(*key)?.as_str());
    let load = plan.get("load").and_then(Value::as_str).unwrap_or_default();
    let name = target.map_or(load.to_owned(), |target| format!("{load} {target}"));
    page::html(&[Measured::of(report, name)])
}

fn code(outcome: &Outcome) -> u8 {
    let Recorder { requests, .. } = outcome.recorder;
    match outcome.interrupted {
        true => INTERRUPTED,
        false if requests == outcome.recorder.failed() => FAILED,
        false => 0,
    }
}

fn write_json(report: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// What `--server-pid` or `--server-unit` names.
pub fn server(pid: Option<u32>, unit: Option<&str>) -> Result<Option<Server>> {
    Ok(match (pid, unit) {
        (Some(pid), _) => Some(Server::Process(pid)),
        (None, Some(name)) => {
            ensure!(!name.contains('/') && name != "..", "--server-unit {name}: is no unit");
            let suffix = if name.contains('.') { "" } else { ".service" };
            Some(Server::Unit(format!("{name}{suffix}")))
        }
        (None, None) => None,
    })
}

/// The runs of `--users` and `--rate`.
fn stages(common: &Common) -> Result<Vec<Planned>> {
    let open = common.rate.is_some();
    let users = match (common.users.as_slice(), open) {
        ([], false) => vec![USERS],
        ([], true) => vec![USERS_OPEN],
        (users, _) => users.to_vec(),
    };
    let loads: Vec<Load> = match &common.rate {
        None => vec![Load::Closed { think: common.think }],
        Some(Rate::Ramp(from, to)) => vec![Load::Open(pace(common, *from, *to))],
        Some(Rate::Steps(rates)) => {
            rates.iter().map(|&rate| Load::Open(pace(common, rate, rate))).collect()
        }
    };
    let stages: Vec<Planned> = users
        .iter()
        .flat_map(|&users| loads.iter().map(move |&load| (users, load)))
        .map(|(users, load)| Planned { users, stage: stage(common, load) })
        .collect();
    ensure!(
        stages.len() <= STAGES_MAX,
        "these are {} runs; make it {STAGES_MAX} or fewer",
        stages.len()
    );
    Ok(stages)
}

fn pace(common: &Common, from: f64, to: f64) -> Pace {
    Pace { from, to, warm_up: common.warm_up, over: common.duration }
}

fn stage(common: &Common, load: Load) -> Stage {
    let Common { warm_up, duration, timeout, .. } = *common;
    Stage { load, numbers: Numbers::ALL, warm_up, duration, timeout }
}

fn find_knee(
    common: &Common,
    p99: Duration,
    carry: &mut impl FnMut(Planned) -> Result<Outcome>,
) -> Result<Knee> {
    let (Some(Rate::Steps(rates)), [] | [_]) = (&common.rate, common.users.as_slice()) else {
        return Err(anyhow!("--knee: begins at one --rate, with one number of --users"));
    };
    let [first] = rates.as_slice() else {
        return Err(anyhow!("--knee: begins at one --rate, not at several"));
    };
    let users = common.users.first().copied().unwrap_or(USERS_OPEN);
    let mut tries = Vec::new();
    // What failed once may have been a moment's trouble: it is tried again before it counts.
    let mut has_failed = false;
    while let Some(rate) = knee::next(*first, &tries) {
        let load = Load::Open(pace(common, rate, rate));
        let outcome = carry(Planned { users, stage: stage(common, load) })?;
        if outcome.interrupted {
            break;
        }
        let recorder = &outcome.recorder;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let failed = recorder.failed() as f64 / recorder.requests.max(1) as f64;
        let held = recorder.percentile(99.0) <= p99 && failed <= common.knee_failures;
        if held || has_failed {
            tries.push(knee::Try { rate, held });
        }
        has_failed = !held && !has_failed;
    }
    Ok(Knee {
        rate: knee::found(&tries),
        p99_ms: p99.as_secs_f64() * 1e3,
        failures: common.knee_failures,
    })
}

/// The first signal ends the run, the second the program.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        // In this order: the first one finds the flag not yet set.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(INTERRUPTED),
            Arc::clone(&stop),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    stop.store(false, Ordering::Relaxed);
    Ok(stop)
}

/// Any signal ends the run, and none the program before what it changed is as it was: all that is waited
/// for until then has a deadline.
pub fn stop_before_clearing_up() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Those that ask us to end. A terminal that goes away does, unless `nohup` said not to care.
fn signals() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Whether whoever started us has us pass over a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
