// SPDX-License-Identifier: MIT OR Apache-2.0
//! One load: its pre-run checks, its runs, and its report. `engines` makes the load from options.

use super::locust_users::{VirtualUsers, WaveLoad};
use super::{FAILED, FOUND, INTERRUPTED, code_failed_write, print_error, print_failure};
use crate::args::CommonArgs;
use crate::clock_checks::{self, ClockCheck};
use crate::coded::{Coded, bail_coded, ensure_coded};
use crate::compare::{LoadedReport, html};
use crate::ephemeral_ports::PortBudget;
use crate::fd_limit::FdReservation;
use crate::ldap::hash_upgrade_check::{self, EntryChanges, HashUpgradeCheck};
use crate::live_view::LiveView;
use crate::load_thread::{Engine, RequestNumbers, RunSpec, ThreadShare, run_sequentially};
use crate::preflight::{self, CheckRun, LoadTraits, RequestStyle};
use crate::recorder::Recorder;
use crate::report::{
    self, CheckFinding, Host, Knee, Origin, PORT_REMEDIES, RunReport, RunStats, Warning, text,
};
use crate::request_error::RequestError;
use crate::runner::{RunResult, ThreadPlan, run_threads};
use crate::schedule::{LoadModel, RateSchedule, RateSpec, knee};
use crate::server_usage::WatchedServer;
use anyhow::Result;
use roster_messages::table::lab;
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

/// Default number of users.
const USERS: u32 = 16;
/// Default maximum number of concurrent requests with a requested rate.
const USERS_OPEN: u32 = 64;
/// Maximum number of runs.
const STAGES_MAX: usize = 100;

/// The task of a load, independent of its kind.
pub struct LoadTask {
    /// The options for the report.
    pub options: Value,
    /// Whether only the pre-run checks are made.
    pub checks_only: bool,
    /// Users of a Locust master, which replace the runs.
    pub virtual_users: Option<Arc<VirtualUsers>>,
}

impl LoadTask {
    /// Returns a task with runs, or with checks only.
    pub fn new(options: Value, checks_only: bool) -> Self {
        Self { options, checks_only, virtual_users: None }
    }
}

/// Makes a run of processes that do nothing.
pub type StartupRun<'a> = dyn Fn(RunSpec, ThreadPlan, &Arc<AtomicBool>) -> Result<RunResult> + 'a;

/// A load that is ready for its runs.
pub struct LoadJob<'a> {
    pub common: &'a CommonArgs,
    pub task: LoadTask,
    /// Default number of threads.
    pub threads: usize,
    /// Properties for the pre-run checks.
    pub traits: LoadTraits,
    /// Returns a warning about the ports of a run.
    pub port_warning: &'a dyn Fn(&PlannedRun) -> Option<Warning>,
    /// Check for changed password hashes.
    pub hash_check: Option<HashUpgradeCheck>,
    /// For commands: a run of processes that do nothing.
    pub startup: Option<&'a StartupRun<'a>>,
}

impl LoadJob<'_> {
    /// Returns the load for users of a Locust master.
    fn wave_load(&self) -> WaveLoad<'_> {
        WaveLoad {
            common: self.common,
            threads: self.common.threads.map_or(self.threads, |threads| threads as usize),
            same_bytes: self.traits.repeats_bytes == Some(true),
        }
    }
}

/// Prints the rate of connections that the ports permit. The rate of a closed loop is unknown before the run.
pub fn print_port_budget(budget: PortBudget, common: &CommonArgs) {
    if let Some(text) = port_budget_text(budget, common) {
        print_error(&text);
    }
}

fn port_budget_text(budget: PortBudget, common: &CommonArgs) -> Option<String> {
    let rate = budget.rate().filter(|_| common.rate.is_none() && budget.is_port_limited())?;
    Some(format!(
        "roster-lab: {} ports, each in use for {} s after its connection, permit {rate:.0} connections/s. \
         {PORT_REMEDIES} [{}]",
        budget.ports,
        budget.hold.as_secs(),
        lab::PORT_BUDGET.code
    ))
}

/// Returns a warning if a run needs more ports than there are.
pub fn port_warning(budget: PortBudget, stage: &PlannedRun, rate: f64) -> Option<Warning> {
    let time = stage.spec.warm_up + stage.spec.duration;
    let share = budget.share(stage.users.into(), rate, time);
    (share > 1.0).then(|| Warning {
        kind: "ports",
        message: &lab::PORTS_SHORT,
        ratio: share,
        text: format!(
            "this run needs {share:.1} times the {} ports of this host, each in use for {} s after its connection. \
             At most {:.0} connections/s succeed, and others fail with \"Cannot assign requested address\". \
             {PORT_REMEDIES}",
            budget.ports,
            budget.hold.as_secs(),
            budget.rate().unwrap_or(f64::INFINITY)
        ),
    })
}

/// One planned run.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRun {
    users: u32,
    spec: RunSpec,
}

impl PlannedRun {
    /// Returns the requested rate; `None` in a closed loop.
    fn offered(&self) -> Option<f64> {
        match self.spec.load {
            LoadModel::Closed { .. } => None,
            LoadModel::Open(pace) => Some(f64::midpoint(pace.from, pace.to)),
        }
    }

    /// Returns the highest known rate of connections; zero in a closed loop.
    pub fn rate_max(&self) -> f64 {
        match self.spec.load {
            LoadModel::Closed { .. } => 0.0,
            LoadModel::Open(pace) => pace.from.max(pace.to),
        }
    }

    fn name(&self) -> String {
        match self.offered() {
            Some(rate) => format!("{rate:.0}/s"),
            None => format!("{} users", self.users),
        }
    }
}

/// Figures of all runs together.
#[derive(Default)]
struct RunTotals {
    outcome: RunResult,
    stages: Vec<RunStats>,
    warnings: Vec<Warning>,
}

impl RunTotals {
    fn add(&mut self, outcome: RunResult, figures: RunStats, warnings: Vec<Warning>) {
        self.stages.push(figures);
        report::add_worst(&mut self.warnings, warnings);
        self.outcome.recorder.add(outcome.recorder);
        self.outcome.measured += outcome.measured;
        // Consecutive runs have no common batches.
        self.outcome.planned = Duration::ZERO;
        self.outcome.threads.extend(outcome.threads);
        self.outcome.interrupted |= outcome.interrupted;
        self.outcome.stuck_threads += outcome.stuck_threads;
        self.outcome.server_is_gone |= outcome.server_is_gone;
        if let Some(server) = outcome.server {
            let cpu = self.outcome.server.map_or(Duration::ZERO, |before| before.cpu) + server.cpu;
            self.outcome.server = Some(crate::server_usage::ServerUsage { cpu, ..server });
        }
    }
}

/// Results of the pre-run checks.
#[derive(Default)]
struct CheckResult {
    findings: Vec<CheckFinding>,
    warnings: Vec<Warning>,
    requests: u64,
}

/// State of all runs of a load.
struct LoadRun<'a, M> {
    job: LoadJob<'a>,
    make: M,
    server: Option<WatchedServer>,
    stop: Arc<AtomicBool>,
    /// First request number of the next run. No two runs share a request.
    next: Cell<u64>,
}

/// Makes the runs of a load and writes the report. `make` creates an engine for each thread.
pub fn run_load<
    E: Engine + Send + 'static,
    M: Fn(ThreadShare, RequestStyle) -> Result<E> + Sync,
>(
    job: LoadJob<'_>,
    make: M,
    out: &mut dyn Write,
) -> Result<u8> {
    if let Some(crowd) = job.task.virtual_users.clone() {
        return crowd.serve(&job.wave_load(), &make).map(|()| 0);
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let common = job.common;
    let server = WatchedServer::from_options(common.server_pid, common.server_unit.as_deref())?;
    if let Some(server) = &server {
        server.consumed()?;
    }
    ensure_coded!(
        !job.task.checks_only || (common.html.is_none() && common.hdr.is_none()),
        CHECK_WITHOUT_RUN,
        "--html and --hdr require a run; `check` performs none"
    );
    let mut files = ReportFiles::create(common)?;
    let session = LoadRun { job, make, server, stop: stop_on_signals()?, next: Cell::new(0) };
    let checked = session.check()?;
    let watch = ClockCheck::start();
    let (mut sum, knee) = match session.job.task.checks_only {
        true => (RunTotals::default(), None),
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
        let report = report::CheckReport { probes, warnings, interrupted, origin };
        files.write(&report, |out| text::write_checks(&report, out), out)?;
        return Ok(if interrupted { INTERRUPTED } else { code });
    }
    let RunTotals { outcome, mut stages, .. } = sum;
    let figures = match stages.as_slice() {
        [one] => one.clone(),
        several => {
            let users = several.iter().map(|stage| stage.users).max().unwrap_or_default();
            RunStats::from_result(&outcome, users, None)
        }
    };
    if stages.len() < 2 {
        stages.clear();
    }
    let probe_requests = checked.requests;
    let interrupted = outcome.interrupted;
    let report =
        RunReport { figures, warnings, probes, probe_requests, stages, knee, interrupted, origin };
    files.write_all(&report, &outcome.recorder, out)?;
    Ok(exit_code(&outcome))
}

impl<E, M> LoadRun<'_, M>
where
    E: Engine + Send + 'static,
    M: Fn(ThreadShare, RequestStyle) -> Result<E> + Sync,
{
    fn check_run(&self, planned: PlannedRun) -> CheckRun {
        let same_bytes = self.job.traits.repeats_bytes == Some(true);
        let manner = RequestStyle { same_bytes, saves_ports: false };
        CheckRun { users: planned.users, spec: planned.spec, style: manner }
    }

    /// Makes a run with new requests.
    fn run(
        &self,
        trial: CheckRun,
        server: Option<&WatchedServer>,
        view: &mut LiveView,
    ) -> Result<RunResult> {
        let crew = self.thread_plan(trial.users);
        let _held = FdReservation::for_run::<E>(crew)?;
        let mut stage = trial.spec;
        stage.numbers.first = stage.numbers.first.wrapping_add(self.next.get());
        let make = &self.make;
        let make = |seat| make(seat, trial.style);
        let outcome = run_threads(stage, crew, server, &self.stop, make, |sight| view.show(sight))?;
        // Threads make different numbers of requests.
        let made = outcome.recorder.requests + outcome.recorder.warm_up + 1;
        let past = stage.numbers.advanced_by(made.saturating_mul(crew.threads as u64));
        // The next run begins with the first identity.
        let period = self.job.traits.period.max(1);
        let whole = past.div_ceil(period).saturating_mul(period);
        self.next.set(self.next.get().wrapping_add(whole));
        Ok(outcome)
    }

    /// Makes all pre-run checks.
    fn check(&self) -> Result<CheckResult> {
        let LoadJob { common, ref task, traits, hash_check: ref look, .. } = self.job;
        let mut checked = CheckResult::default();
        checked.warnings.extend(clock_checks::check_read_cost());
        if common.probe.is_zero() {
            ensure_coded!(!task.checks_only, CHECK_DISABLED, "--probe 0: no check remains");
            return Ok(checked);
        }
        let planned = planned_runs(common)?;
        let Some(first) = planned.first() else { return Ok(checked) };
        if task.checks_only {
            checked
                .warnings
                .extend(planned.iter().find_map(|stage| (self.job.port_warning)(stage)));
        }
        if let Some(look) = look {
            let (finding, warning) = preflight::hash_upgrade_finding(
                self.check_hash_upgrade(look, &mut checked.requests)?,
            );
            checked.findings.push(finding);
            checked.warnings.extend(warning);
        }
        let mut requests = 0;
        let mut carry = |trial: CheckRun| -> Result<RunResult> {
            let mut view = LiveView::new(&trial.spec, "checking".to_owned(), common.quiet);
            let outcome = self.run(trial, None, &mut view)?;
            requests += outcome.recorder.requests + outcome.recorder.warm_up;
            Ok(outcome)
        };
        let trial = self.check_run(*first);
        let (findings, warnings) = preflight::compare(traits, trial, common.probe, &mut carry)?;
        checked.requests += requests;
        checked.findings.extend(findings);
        checked.warnings.extend(warnings);
        Ok(checked)
    }

    /// Compares entries before and after one bind each. An unreadable entry does not prevent the run.
    fn check_hash_upgrade(
        &self,
        look: &HashUpgradeCheck,
        requests: &mut u64,
    ) -> Result<Result<EntryChanges, RequestError>> {
        // The sample differs from the one of an earlier check.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (period, from) = (self.job.traits.period.max(1), u64::from(now.subsec_micros()));
        let sample: Vec<u64> = if period <= hash_upgrade_check::SAMPLE_ENTRIES {
            (0..period).collect()
        } else {
            (0..hash_upgrade_check::SAMPLE_ENTRIES)
                .map(|n| {
                    (from % period + n * (period / hash_upgrade_check::SAMPLE_ENTRIES)) % period
                })
                .collect()
        };
        let before = match look.read_entries(&sample) {
            Ok(before) => before,
            Err(failure) => return Ok(Err(failure)),
        };
        let seat = ThreadShare { thread: 0, threads: 1, users: 1, total_users: 1 };
        let manner = RequestStyle { same_bytes: false, saves_ports: true };
        let mut engine = (self.make)(seat, manner)?;
        let asked = sample.iter().copied().inspect(|_| *requests += 1);
        let made = run_sequentially(&mut engine, asked, self.job.common.timeout);
        let after = made.and_then(|()| look.read_entries(&sample));
        Ok(after.map(|after| hash_upgrade_check::compare(&before, &after)))
    }

    /// Makes all runs.
    fn runs(&self) -> Result<(RunTotals, Option<Knee>)> {
        let common = self.job.common;
        let mut sum = RunTotals::default();
        let planned = planned_runs(common)?;
        let is_one_of_many = common.knee.is_some() || planned.len() > 1;
        let mut carry = |planned: PlannedRun| self.run_one(planned, is_one_of_many, &mut sum);
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

    fn run_one(
        &self,
        planned: PlannedRun,
        is_one_of_many: bool,
        sum: &mut RunTotals,
    ) -> Result<RunResult> {
        let before = (self.job.port_warning)(&planned);
        if let Some(warning) = &before {
            print_error(&format!("roster-lab: {}", warning.with_code()));
        }
        let mut view = LiveView::new(&planned.spec, planned.name(), self.job.common.quiet);
        let trial = self.check_run(planned);
        let outcome = self.run(trial, self.server.as_ref(), &mut view)?;
        drop(view);
        let startup_ms = self.startup(planned)?;
        let figures = RunStats::from_result(&outcome, planned.users, planned.offered());
        let figures = RunStats { startup_ms, ..figures };
        let mut warnings: Vec<Warning> = before.into_iter().collect();
        warnings.extend(report::run_warnings::check_run(&outcome, planned.users));
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

impl<M> LoadRun<'_, M> {
    /// Returns the median time of a process that does nothing, at this load.
    fn startup(&self, planned: PlannedRun) -> Result<Option<f64>> {
        let (common, Some(startup)) = (self.job.common, self.job.startup) else { return Ok(None) };
        if common.probe.is_zero() || self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let view = LiveView::new(&planned.spec, "start-up".to_owned(), common.quiet);
        let (warm_up, duration) = (common.probe / 5, common.probe);
        let load = match planned.spec.load {
            LoadModel::Open(pace) => {
                LoadModel::Open(RateSchedule { warm_up, over: duration, ..pace })
            }
            closed @ LoadModel::Closed { .. } => closed,
        };
        let stage = RunSpec { load, warm_up, duration, ..planned.spec };
        let outcome = startup(stage, self.thread_plan(planned.users), &self.stop)?;
        drop(view);
        let median = outcome.recorder.percentile(50.0);
        Ok((outcome.recorder.requests > 0).then_some(median.as_secs_f64() * 1e3))
    }

    fn thread_plan(&self, users: u32) -> ThreadPlan {
        let threads = self.job.common.threads.map_or(self.job.threads, |threads| threads as usize);
        ThreadPlan { users: users as usize, threads }
    }
}

/// The file of a report. It is opened before the run, so that an unwritable path is reported early. It is truncated only
/// after the run, so that a failed run keeps an earlier report.
struct ReportFile {
    path: PathBuf,
    file: File,
    /// Whether this process created the file and has not written it.
    is_blank: bool,
}

impl ReportFile {
    fn open(path: &Path) -> Result<Self> {
        let is_blank = !path.exists();
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let text = format_args!("{}: cannot be written", path.display());
        let file = opened.coded(&lab::FILE_UNWRITABLE, text)?;
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
        code_failed_write(written(), &lab::FILE_UNWRITABLE, &path)
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_blank {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The files of all forms of a report.
struct ReportFiles {
    json: Option<ReportFile>,
    hdr: Option<ReportFile>,
    html: Option<ReportFile>,
    /// Whether JSON replaces the text.
    shows_json: bool,
}

impl ReportFiles {
    fn create(common: &CommonArgs) -> Result<Self> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(ReportFile::open).transpose();
        let shows_json = common.json.as_deref() == Some(Path::new("-"));
        let json = if shows_json { None } else { open(&common.json)? };
        Ok(Self { json, hdr: open(&common.hdr)?, html: open(&common.html)?, shows_json })
    }

    /// Writes the report of a run.
    fn write_all(
        &mut self,
        report: &RunReport,
        recorder: &Recorder,
        out: &mut dyn Write,
    ) -> Result<()> {
        let shown = self.write(report, |out| text::write(report, out), out);
        let hdr = |out: &mut dyn Write| Ok(report::write_percentiles(recorder, out)?);
        let hdr = self.hdr.as_mut().map_or(Ok(()), |place| place.write(hdr));
        let page = |out: &mut dyn Write| Ok(out.write_all(page(report).as_bytes())?);
        let page = self.html.as_mut().map_or(Ok(()), |place| place.write(page));
        first_error([shown, hdr, page])
    }

    /// Writes a report as text and as JSON. A failure of one does not prevent the other.
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
        let shown = code_failed_write(shown, &lab::OUTPUT_UNWRITABLE, "standard output");
        let json = |out: &mut dyn Write| write_json(report, out);
        first_error([shown, self.json.as_mut().map_or(Ok(()), |place| place.write(json))])
    }
}

/// Returns the first error, and prints the others.
fn first_error(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut wrong = results.into_iter().filter_map(Result::err);
    let Some(first) = wrong.next() else { return Ok(()) };
    wrong.for_each(|other| print_failure(&other));
    Err(first)
}

fn page(report: &RunReport) -> String {
    // The loaded server names the run.
    let plan = &report.origin.plan;
    let target = ["uri", "server", "kdc", "service", "module", "lookup"];
    let target = target.iter().find_map(|key| plan.get(*key)?.as_str());
    let load = plan.get("load").and_then(Value::as_str).unwrap_or_default();
    let name = target.map_or(load.to_owned(), |target| format!("{load} {target}"));
    html::html(&[LoadedReport::from_report(report, name)])
}

fn exit_code(outcome: &RunResult) -> u8 {
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

/// Returns the runs of `--users` and `--rate`.
fn planned_runs(common: &CommonArgs) -> Result<Vec<PlannedRun>> {
    let open = common.rate.is_some();
    let users = match (common.users.as_slice(), open) {
        ([], false) => vec![USERS],
        ([], true) => vec![USERS_OPEN],
        (users, _) => users.to_vec(),
    };
    let loads: Vec<LoadModel> = match &common.rate {
        None => vec![LoadModel::Closed { think: common.think }],
        Some(RateSpec::Ramp(from, to)) => vec![LoadModel::Open(rate_schedule(common, *from, *to))],
        Some(RateSpec::Steps(rates)) => {
            rates.iter().map(|&rate| LoadModel::Open(rate_schedule(common, rate, rate))).collect()
        }
    };
    let stages: Vec<PlannedRun> = users
        .iter()
        .flat_map(|&users| loads.iter().map(move |&load| (users, load)))
        .map(|(users, load)| PlannedRun { users, spec: run_spec(common, load) })
        .collect();
    ensure_coded!(
        stages.len() <= STAGES_MAX,
        TOO_MANY_RUNS,
        "--users and --rate: {} runs exceed the maximum of {STAGES_MAX}",
        stages.len()
    );
    Ok(stages)
}

fn rate_schedule(common: &CommonArgs, from: f64, to: f64) -> RateSchedule {
    RateSchedule { from, to, warm_up: common.warm_up, over: common.duration }
}

fn run_spec(common: &CommonArgs, load: LoadModel) -> RunSpec {
    let CommonArgs { warm_up, duration, timeout, .. } = *common;
    RunSpec { load, numbers: RequestNumbers::ALL, warm_up, duration, timeout }
}

fn find_knee(
    common: &CommonArgs,
    p99: Duration,
    carry: &mut impl FnMut(PlannedRun) -> Result<RunResult>,
) -> Result<Knee> {
    let (Some(RateSpec::Steps(rates)), [] | [_]) = (&common.rate, common.users.as_slice()) else {
        bail_coded!(KNEE_RATE, "--knee: needs one --rate, and one number of --users");
    };
    let [first] = rates.as_slice() else {
        bail_coded!(KNEE_RATE, "--knee: needs one --rate, not a list");
    };
    let users = common.users.first().copied().unwrap_or(USERS_OPEN);
    let mut tries = Vec::new();
    // A rate that exceeds the bound once is tried again before it counts.
    let mut has_failed = false;
    while let Some(rate) = knee::next_rate(*first, &tries) {
        let load = LoadModel::Open(rate_schedule(common, rate, rate));
        let outcome = carry(PlannedRun { users, spec: run_spec(common, load) })?;
        if outcome.interrupted {
            break;
        }
        let recorder = &outcome.recorder;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let failed = recorder.failed() as f64 / recorder.requests.max(1) as f64;
        let held = recorder.percentile(99.0) <= p99 && failed <= common.knee_failures;
        if held || has_failed {
            tries.push(knee::RateTrial { rate, within_bound: held });
        }
        has_failed = !held && !has_failed;
    }
    let rate = knee::best_rate(&tries);
    Ok(Knee {
        rate,
        p99_ms: p99.as_secs_f64() * 1e3,
        failures: common.knee_failures,
        code: rate.is_none().then_some(lab::KNEE_NOT_FOUND.code),
    })
}

/// Returns a flag that the first signal sets. The second signal ends the program.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        // The order matters: the first signal finds the flag unset.
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

/// Returns a flag that signals set. No signal ends the program before its cleanup, and each wait has a deadline.
pub fn stop_after_cleanup() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Returns the signals that end a run. SIGHUP counts unless `nohup` ignores it.
fn signals() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Returns whether the parent made this process ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, LoadCommand};
    use clap::Parser;

    fn common(options: &[&str]) -> CommonArgs {
        let words = [&["roster-lab", "command"], options, &["true"]].concat();
        let Command::Load(LoadCommand::Shell(args)) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command");
        };
        args.common
    }

    #[test]
    fn ports_that_limit_connections_are_told() {
        let budget = |seconds| PortBudget { ports: 28_232, hold: Duration::from_secs(seconds) };
        let text = port_budget_text(budget(60), &common(&[])).unwrap();
        assert!(text.contains("permit 471 connections/s"), "{text}");
        assert!(text.ends_with(&format!("[{}]", lab::PORT_BUDGET.code)), "{text}");
        assert_eq!(port_budget_text(budget(1), &common(&[])), None);
        assert_eq!(port_budget_text(budget(60), &common(&["--rate", "5"])), None);
    }

    #[test]
    fn knee_of_failing_server_has_code() {
        let common = common(&["--rate", "64", "--knee", "5ms"]);
        let mut failing = RunResult::default();
        let now = std::time::Instant::now();
        failing.recorder.record(now, now, Err(RequestError::TimedOut));
        let knee = |outcome: &RunResult| {
            find_knee(&common, Duration::from_millis(5), &mut |_| Ok(outcome.clone())).unwrap()
        };
        let found = knee(&failing);
        assert_eq!((found.rate, found.code), (None, Some(lab::KNEE_NOT_FOUND.code)));
    }
}
