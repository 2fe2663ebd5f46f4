// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pre-run checks: short runs that differ in one thing, and warnings about the differences. This module decides, and
//! `commands::run_load` makes the runs.

use crate::ldap::hash_upgrade_check::EntryChanges;
use crate::load_thread::{RequestNumbers, RunSpec};
use crate::recorder::Recorder;
use crate::report::{CheckFinding, Warning, text::milliseconds};
use crate::request_error::RequestError;
use crate::runner::RunResult;
use crate::schedule::{LoadModel, RateSchedule};
use anyhow::Result;
use roster_messages::Message;
use roster_messages::table::lab;
use std::time::Duration;

/// Number of users of a check: enough to keep a server busy, few enough to avoid a queue.
pub const USERS: u32 = 4;
/// Number of users of a check with a requested rate.
const USERS_OPEN: u32 = 16;
/// Number of alternating runs of both sides, so that other load of the host affects both.
const ROUNDS: u32 = 2;
/// A busy machine can slow one side of a comparison down. A cache is reported if it shows this many times in a row.
const CACHE_TRIES: usize = 3;
/// Minimum number of replies of each side.
const REPLIES_MIN: u64 = 20;
/// Number of consecutive requests for an identity. Concurrent users may all miss the cache at first.
const REPEAT: u64 = 4 * USERS as u64;
/// The same at a low rate, with one request at a time.
const REPEAT_MIN: u64 = 4;
/// Minimum number of identities, because their costs differ.
const IDENTITIES_MIN: u64 = 4;
/// Minimum ratio at which one side did another kind of work.
const CACHED: f64 = 2.0;
/// Maximum number of identities for a repetition of one of them.
const PERIOD_MAX: u64 = 1 << 32;
/// Name of the comparison that finds a cache of results.
const CACHE_CHECK: &str = "one identity against many";
/// Minimum ratio of a stalled reply to the median.
const STALLED: u32 = 20;
/// Minimum latency of a stalled reply, longer than delays by a busy machine.
const STALL_MIN: Duration = Duration::from_millis(100);
/// Minimum share of the time with stalls for a warning.
const STALL_SHARE: f64 = 0.1;
/// Minimum number of stalls for a warning. A single stall may have another cause.
const STALLS_MIN: u64 = 2;
/// Maximum number of runs after a single stall.
const STALL_TRIES_MAX: usize = 5;

/// Properties of a load that decide which comparisons are possible.
#[derive(Clone, Copy, Debug)]
pub struct LoadTraits {
    /// Number of requests after which the identities repeat.
    pub period: u64,
    /// Whether every request has another identity.
    pub endless: bool,
    /// Whether the run repeats bytes; `None` if the protocol does not permit a choice.
    pub repeats_bytes: Option<bool>,
}

/// The style of requests, apart from their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStyle {
    /// Whether bytes are repeated.
    pub same_bytes: bool,
    /// Whether connections are reused and closed with a reset, because a port of a check would be missing in the run.
    pub saves_ports: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct CheckRun {
    pub users: u32,
    pub spec: RunSpec,
    pub style: RequestStyle,
}

/// Makes all comparisons of a load with `carry`. No check exceeds the users or the rate of `planned`, the first run.
pub fn compare(
    traits: LoadTraits,
    planned: CheckRun,
    time: Duration,
    carry: &mut impl FnMut(CheckRun) -> Result<RunResult>,
) -> Result<(Vec<CheckFinding>, Vec<Warning>)> {
    let mut found = FindingList::default();
    let probe = CheckPlanner { planned, time };
    let Some(many) = probe.trial(RequestNumbers::ALL) else {
        let seen = "the rate is too low for a comparison in the time of --probe";
        found.add_inconclusive("cache", CACHE_CHECK, &lab::CHECK_RATE_TOO_LOW, seen.to_owned());
        return Ok((found.findings, found.warnings));
    };
    let repeat = probe.repeat();
    match repeated_numbers(traits, repeat) {
        Some(numbers) => {
            let one = CheckRun { spec: RunSpec { numbers, ..many.spec }, ..many };
            let (one, many) = probe.run_both(one, many, carry)?;
            if one.requests < IDENTITIES_MIN * repeat {
                let seen = format!("too few replies for a comparison: {}", one.requests);
                found.add_inconclusive("cache", CACHE_CHECK, &lab::CHECK_TOO_FEW_REPLIES, seen);
            } else {
                found.identities(&one, &many, traits);
            }
        }
        None => {
            let seen = "all requests have the same identity".to_owned();
            found.add_inconclusive("cache", CACHE_CHECK, &lab::CHECK_ONE_IDENTITY, seen);
        }
    }
    if let Some(is_planned) = traits.repeats_bytes {
        let same = CheckRun { style: RequestStyle { same_bytes: true, ..many.style }, ..many };
        let (same, new) = probe.run_both(same, many, carry)?;
        found.bytes(&same, &new, is_planned);
    }
    // A run with a requested rate shows every stall.
    if matches!(planned.spec.load, LoadModel::Closed { .. }) {
        // The duration covers several waits of 250 ms, a common interval of server timers.
        let stage = RunSpec { duration: time * 2, ..many.spec };
        let trial = CheckRun { users: 1, spec: stage, ..many };
        let mut low = carry(trial)?;
        for _ in 1..STALL_TRIES_MAX {
            if !(1..STALLS_MIN).contains(&stalls(&low.recorder).0) {
                break;
            }
            let again = carry(trial)?;
            low.measured += again.measured;
            low.threads.extend(again.threads);
            low.recorder.add(again.recorder);
        }
        found.stalls(&low);
    }
    Ok((found.findings, found.warnings))
}

/// Returns numbers with which consecutive requests have the same identity and different bytes; `None` if the load has
/// one identity. Cheap and expensive identities come as often as in the run: a cheap one would look like a cached one.
fn repeated_numbers(traits: LoadTraits, repeat: u64) -> Option<RequestNumbers> {
    let LoadTraits { period, endless, repeats_bytes } = traits;
    match (period, endless) {
        (2..=PERIOD_MAX, false) => {
            // The stride spreads the identities over the list, each as often.
            let far = period * 5 / 8;
            let stride = (far..period).find(|&far| far > 0 && gcd(far, period) == 1).unwrap_or(1);
            Some(RequestNumbers { first: 0, step: period, repeat, stride })
        }
        (0 | 1, false) => None,
        // An endless load repeats an identity only with its number, and so with its bytes.
        _ if repeats_bytes.is_some() => None,
        _ => Some(RequestNumbers { first: 0, step: 0, repeat, stride: 1 }),
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

struct CheckPlanner {
    planned: CheckRun,
    time: Duration,
}

impl CheckPlanner {
    /// Returns the number of consecutive requests for an identity.
    fn repeat(&self) -> u64 {
        match self.planned.spec.load {
            LoadModel::Closed { .. } => REPEAT,
            LoadModel::Open(pace) => {
                let answers = pace.from.min(pace.to) * self.time.as_secs_f64();
                ((answers as u64) / IDENTITIES_MIN).clamp(REPEAT_MIN, REPEAT)
            }
        }
    }

    /// Returns the spec of one side; `None` if the rate is too low for enough replies.
    fn trial(&self, numbers: RequestNumbers) -> Option<CheckRun> {
        let time = self.time / ROUNDS;
        let warm_up = time / 5;
        let load = match self.planned.spec.load {
            LoadModel::Open(pace) => {
                let rate = pace.from.min(pace.to);
                #[expect(clippy::cast_precision_loss, reason = "a few")]
                let least = REPLIES_MIN as f64;
                if rate * self.time.as_secs_f64() < least {
                    return None;
                }
                LoadModel::Open(RateSchedule { from: rate, to: rate, warm_up, over: time })
            }
            closed @ LoadModel::Closed { .. } => closed,
        };
        let stage = RunSpec { load, numbers, warm_up, duration: time, ..self.planned.spec };
        let users = match load {
            LoadModel::Closed { .. } => self.planned.users.min(USERS),
            LoadModel::Open(_) => self.planned.users.min(USERS_OPEN),
        };
        let manner = RequestStyle { same_bytes: false, saves_ports: true };
        Some(CheckRun { users, spec: stage, style: manner })
    }

    /// Runs of both trials: the first comparison that shows no cache, otherwise the one with the smallest ratio.
    fn run_both(
        &self,
        one: CheckRun,
        other: CheckRun,
        carry: &mut impl FnMut(CheckRun) -> Result<RunResult>,
    ) -> Result<(Recorder, Recorder)> {
        let mut least: Option<(Recorder, Recorder)> = None;
        for _ in 0..CACHE_TRIES {
            let mut sums = (Recorder::default(), Recorder::default());
            for _ in 0..ROUNDS {
                sums.0.add(carry(one)?.recorder);
                sums.1.add(carry(other)?.recorder);
            }
            if slowdown(&sums.0, &sums.1) < CACHED {
                return Ok(sums);
            }
            least = match least.take() {
                Some(least) if slowdown(&least.0, &least.1) <= slowdown(&sums.0, &sums.1) => {
                    Some(least)
                }
                _ => Some(sums),
            };
        }
        Ok(least.unwrap_or_default())
    }
}

#[derive(Default)]
struct FindingList {
    findings: Vec<CheckFinding>,
    warnings: Vec<Warning>,
}

impl FindingList {
    fn add_inconclusive(
        &mut self,
        kind: &'static str,
        what: &'static str,
        message: &Message,
        seen: String,
    ) {
        let code = Some(message.code);
        self.findings.push(CheckFinding { kind, what, ratio: None, seen, code });
    }

    /// Returns the ratio of the medians, second to first; `None` with too few replies.
    fn ratio(
        &mut self,
        kind: &'static str,
        what: &'static str,
        one: &Recorder,
        other: &Recorder,
    ) -> Option<(f64, String)> {
        let well = |recorder: &Recorder| {
            let good = recorder.requests - recorder.failed();
            good >= REPLIES_MIN && good * 2 > recorder.requests
        };
        if !well(one) || !well(other) {
            let seen = format!(
                "too few successful replies for a comparison: {} and {}",
                one.requests - one.failed(),
                other.requests - other.failed()
            );
            self.add_inconclusive(kind, what, &lab::CHECK_TOO_FEW_REPLIES, seen);
            return None;
        }
        let [short, long] =
            [one, other].map(|recorder| recorder.percentile(50.0).as_secs_f64() * 1e3);
        let ratio = slowdown(one, other);
        let seen = format!("median {} against {}", milliseconds(short), milliseconds(long));
        self.add_compared(kind, what, ratio, seen.clone());
        Some((ratio, seen))
    }

    fn add_compared(&mut self, kind: &'static str, what: &'static str, ratio: f64, seen: String) {
        self.findings.push(CheckFinding { kind, what, ratio: Some(ratio), seen, code: None });
    }

    fn identities(&mut self, one: &Recorder, many: &Recorder, traits: LoadTraits) {
        let Some((ratio, seen)) = self.ratio("cache", CACHE_CHECK, one, many) else { return };
        if ratio < CACHED {
            return;
        }
        let identities = match traits {
            LoadTraits { endless: true, .. } => "never repeats an identity".to_owned(),
            LoadTraits { period, .. } => format!("has {period} identities in turn"),
        };
        self.warnings.push(Warning {
            kind: "cache",
            message: &lab::CACHE_FOUND,
            ratio,
            text: format!(
                "the server replies {ratio:.1} times as fast to a repeated identity as to one among many ({seen}). It \
                 caches results, as 389-ds caches hashed passwords. This run {identities}. Use as many as in \
                 production, and do not compare it with figures of a single identity."
            ),
        });
    }

    fn bytes(&mut self, same: &Recorder, new: &Recorder, is_planned: bool) {
        let what = "constant bytes against varied";
        let Some((ratio, seen)) = self.ratio("look-aside", what, same, new) else { return };
        if ratio < CACHED {
            return;
        }
        let run = if is_planned {
            "This run sends the same bytes (--same-bytes), so its figures are of that cache and not of the server's \
             work. Omit the option."
        } else {
            "This run sends new bytes each time, so its figures are of real work. Figures of a tool that repeats its \
             bytes are not."
        };
        self.warnings.push(Warning {
            kind: "look-aside",
            message: &lab::LOOKASIDE_FOUND,
            ratio,
            text: format!(
                "the server replies {ratio:.1} times as fast to repeated bytes as to new ones ({seen}). It caches \
                 replies, as a KDC does in its look-aside cache. {run}"
            ),
        });
    }

    /// Checks a run with one user, which should not wait.
    fn stalls(&mut self, low: &RunResult) {
        let (kind, what) = ("stall", "low load against high");
        let latency = &low.recorder.latency;
        if latency.len() < REPLIES_MIN {
            let seen = format!("too few replies to one user: {}", latency.len());
            self.add_inconclusive(kind, what, &lab::CHECK_TOO_FEW_REPLIES, seen);
            return;
        }
        let median = low.recorder.percentile(50.0);
        let (count, time) = stalls(&low.recorder);
        let ratio = low.recorder.max().as_secs_f64() / median.as_secs_f64().max(1e-9);
        let seen = format!(
            "one user waits {} at the median and {} at most",
            milliseconds(median.as_secs_f64() * 1e3),
            milliseconds(low.recorder.max().as_secs_f64() * 1e3)
        );
        self.add_compared(kind, what, ratio, seen.clone());
        let share = time.as_secs_f64() / low.measured.as_secs_f64().max(1e-9);
        // A wait of the own thread for a processor is not a stall of the server.
        let own: Duration = low.threads.iter().map(|cost| cost.queued).sum();
        if count < STALLS_MIN || share < STALL_SHARE || own * 2 > time {
            return;
        }
        self.warnings.push(Warning {
            kind,
            message: &lab::STALLS_FOUND,
            ratio,
            text: format!(
                "the server stalls at low load: {seen}, and {count} such waits took {:.0} % of the time. A closed \
                 loop of many users hides this, because a stall delays only one request. Repeat the run with --rate: \
                 an open loop counts the requests that are due during a stall.",
                share * 100.0
            ),
        });
    }
}

/// Returns the median of `other` divided by the median of `one`.
fn slowdown(one: &Recorder, other: &Recorder) -> f64 {
    let [one, other] = [one, other].map(|recorder| recorder.percentile(50.0).as_secs_f64());
    other / one.max(1e-9)
}

/// Returns the number of stalled replies, and their total latency.
fn stalls(recorder: &Recorder) -> (u64, Duration) {
    let bound = STALL_MIN.max(recorder.percentile(50.0) * STALLED);
    let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let steps = recorder.latency.iter_recorded();
    let slow = steps.filter(|step| step.value_iterated_to() >= bound);
    slow.fold((0, Duration::ZERO), |(count, time), step| {
        let here = step.count_at_value();
        let times = u32::try_from(here).unwrap_or(u32::MAX);
        (count + here, time + Duration::from_nanos(step.value_iterated_to()) * times)
    })
}

/// Returns the result of a comparison of entries before and after binds.
#[must_use]
pub fn hash_upgrade_finding(
    change: Result<EntryChanges, RequestError>,
) -> (CheckFinding, Option<Warning>) {
    let (kind, what) = ("upgrade", "entries before a bind against after");
    let finding = |ratio, seen: String, message: Option<&Message>| CheckFinding {
        kind,
        what,
        ratio,
        seen,
        code: message.map(|message| message.code),
    };
    let change = match change {
        Ok(change) if change.seen > 0 => change,
        Ok(_) => {
            let seen = "the entries are not readable (set --bind-dn to a user with permission)";
            return (finding(None, seen.to_owned(), Some(&lab::ENTRIES_NOT_READABLE)), None);
        }
        Err(failure) => {
            let seen = format!("the entries cannot be read: {failure}");
            return (finding(None, seen, Some(&lab::ENTRIES_READ_FAILED)), None);
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let ratio = change.changed as f64 / change.seen as f64;
    let seen = format!("{} of {} entries changed with a bind", change.changed, change.seen);
    let schemes = match &change.schemes {
        Some((from, to)) => format!(", from {from} to {to}"),
        None => String::new(),
    };
    let warning = (change.changed > 0).then(|| Warning {
        kind,
        message: &lab::HASH_UPGRADED,
        ratio,
        text: format!(
            "{seen}{schemes}. The server hashes a password again when it is used, so after the first bind of each \
             user the run measures another scheme. Disable this for the run (389-ds: nsslapd-enable-upgrade-hash: \
             off in cn=config), and store the passwords again."
        ),
    });
    (finding(Some(ratio), seen + &schemes, None), warning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_thread::ThreadUsage;
    use std::cell::Cell;
    use std::time::Instant;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const TRAITS: LoadTraits =
        LoadTraits { period: 100, endless: false, repeats_bytes: Some(false) };

    fn planned(load: LoadModel) -> CheckRun {
        let second = 1000 * MILLISECOND;
        let (numbers, warm_up) = (RequestNumbers::ALL, Duration::ZERO);
        let stage = RunSpec { load, numbers, warm_up, duration: second, timeout: second };
        let manner = RequestStyle { same_bytes: false, saves_ports: false };
        CheckRun { users: 16, spec: stage, style: manner }
    }

    fn closed() -> CheckRun {
        planned(LoadModel::Closed { think: Duration::ZERO })
    }

    /// Returns a run of 1000 replies with this latency, and some stalled ones.
    fn outcome(each: Duration, stalls: u32) -> RunResult {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        (0..1000).for_each(|_| recorder.record(start, start + each, Ok(())));
        (0..stalls).for_each(|_| recorder.record(start, start + 250 * MILLISECOND, Ok(())));
        let measured = 500 * MILLISECOND;
        RunResult {
            recorder,
            measured,
            threads: vec![ThreadUsage::default()],
            ..RunResult::default()
        }
    }

    /// Returns the kinds of warnings about a server with those replies, and its trials.
    fn kinds(
        traits: LoadTraits,
        planned: CheckRun,
        answer: impl Fn(CheckRun) -> RunResult,
    ) -> (Vec<&'static str>, Vec<CheckRun>) {
        let mut trials = Vec::new();
        let mut carry = |trial| {
            trials.push(trial);
            Ok(answer(trial))
        };
        let (_, warnings) = compare(traits, planned, 1000 * MILLISECOND, &mut carry).unwrap();
        (warnings.iter().map(|warning| warning.kind).collect(), trials)
    }

    #[test]
    fn preflight_server_without_cache_no_warning() {
        // A single stall causes no finding.
        let first = Cell::new(true);
        let answer = |trial: CheckRun| {
            let stalls = u32::from(trial.users == 1 && first.replace(false));
            outcome(MILLISECOND, stalls)
        };
        let (kinds, trials) = kinds(TRAITS, closed(), answer);
        assert!(kinds.is_empty(), "{kinds:?}");
        assert!(!first.get(), "there was one");
        assert!(trials.iter().all(|trial| trial.users <= USERS && trial.style.saves_ports));
    }

    #[test]
    fn preflight_each_pitfall_has_its_kind() {
        let one = |trial: CheckRun| trial.spec.numbers != RequestNumbers::ALL;
        let quick = |is: bool| outcome(if is { MILLISECOND / 10 } else { MILLISECOND }, 0);
        assert_eq!(kinds(TRAITS, closed(), |trial| quick(one(trial))).0, ["cache"]);
        assert_eq!(
            kinds(TRAITS, closed(), |trial| quick(trial.style.same_bytes)).0,
            ["look-aside"]
        );
        let stalling = |trial: CheckRun| outcome(MILLISECOND, if trial.users == 1 { 2 } else { 0 });
        assert_eq!(kinds(TRAITS, closed(), stalling).0, ["stall"]);
    }

    #[test]
    fn cache_seen_once_is_not_reported() {
        let runs = Cell::new(0);
        let answer = |trial: CheckRun| {
            runs.set(runs.get() + 1);
            let slow = runs.get() <= 4 && trial.spec.numbers == RequestNumbers::ALL;
            outcome(if slow { 5 * MILLISECOND } else { MILLISECOND }, 0)
        };
        let (kinds, _) = kinds(TRAITS, closed(), answer);
        assert!(kinds.is_empty() && runs.get() > 4, "{kinds:?} {}", runs.get());
    }

    #[test]
    fn preflight_identities_repeat_equally_often() {
        let traits = |period, endless, repeats_bytes| LoadTraits { period, endless, repeats_bytes };
        for period in [2, 3, 10, 100, 1000] {
            let numbers = repeated_numbers(traits(period, false, None), REPEAT).unwrap();
            let all: Vec<u64> =
                (0..period * REPEAT).map(|request| numbers.number_of_request(request)).collect();
            assert!(
                all.chunks(REPEAT as usize)
                    .all(|row| row.iter().all(|n| n % period == row[0] % period))
            );
            let mut times = vec![0; period as usize];
            all.iter().for_each(|number| times[(number % period) as usize] += 1);
            assert!(times.iter().all(|&times| times == REPEAT), "{period}: {times:?}");
            let mut distinct = all.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), all.len(), "{period}");
        }
        assert_eq!(repeated_numbers(traits(1, false, None), REPEAT), None);
        let numbers = repeated_numbers(traits(1, true, None), REPEAT).unwrap();
        assert_eq!(
            (
                numbers.number_of_request(0),
                numbers.number_of_request(REPEAT - 1),
                numbers.number_of_request(REPEAT)
            ),
            (0, 0, 1)
        );
        assert_eq!(repeated_numbers(traits(1, true, Some(false)), REPEAT), None);
    }

    #[test]
    fn preflight_checks_stay_below_planned_rate() {
        let pace =
            |rate| RateSchedule { from: rate, to: rate, warm_up: MILLISECOND, over: MILLISECOND };
        let (_, trials) =
            kinds(TRAITS, planned(LoadModel::Open(pace(100.0))), |_| outcome(MILLISECOND, 0));
        assert!(!trials.is_empty());
        for trial in trials {
            let LoadModel::Open(pace) = trial.spec.load else { panic!("{trial:?}") };
            assert!(pace.from == 100.0 && pace.to == 100.0);
        }
        let (_, trials) =
            kinds(TRAITS, planned(LoadModel::Open(pace(5.0))), |_| outcome(MILLISECOND, 0));
        assert!(trials.is_empty(), "too few to compare");
    }

    #[test]
    fn preflight_hash_upgrade_reported_unreadable_entries_not() {
        let schemes = Some(("SSHA".to_owned(), "PBKDF2".to_owned()));
        let (finding, warning) =
            hash_upgrade_finding(Ok(EntryChanges { seen: 8, changed: 8, schemes }));
        assert_eq!(finding.ratio, Some(1.0));
        assert!(
            warning
                .unwrap()
                .text
                .contains("8 of 8 entries changed with a bind, from SSHA to PBKDF2")
        );
        let none = EntryChanges { seen: 8, changed: 0, schemes: None };
        assert!(hash_upgrade_finding(Ok(none)).1.is_none());
        let (finding, warning) =
            hash_upgrade_finding(Ok(EntryChanges { seen: 0, changed: 0, schemes: None }));
        assert!(finding.ratio.is_none() && warning.is_none());
        assert_eq!(finding.code, Some(lab::ENTRIES_NOT_READABLE.code));
    }

    #[test]
    fn preflight_comparison_without_result_has_code() {
        let one_identity = LoadTraits { period: 1, ..TRAITS };
        let pace = RateSchedule { from: 5.0, to: 5.0, warm_up: MILLISECOND, over: MILLISECOND };
        let none = |_: CheckRun| RunResult::default();
        let replies = |_: CheckRun| outcome(MILLISECOND, 0);
        let now = Instant::now();
        let failing = |trial: CheckRun| {
            let mut failing = outcome(MILLISECOND, 0);
            (0..2000).for_each(|_| failing.recorder.record(now, now, Err(RequestError::NotFound)));
            if trial.users == 1 { outcome(MILLISECOND, 0) } else { failing }
        };
        let codes = |traits, planned, answer: &dyn Fn(CheckRun) -> RunResult| {
            let mut carry = |trial| Ok(answer(trial));
            let (found, _) = compare(traits, planned, 1000 * MILLISECOND, &mut carry).unwrap();
            found.iter().filter_map(|one| one.code).collect::<Vec<_>>()
        };
        let few = lab::CHECK_TOO_FEW_REPLIES.code;
        let open = planned(LoadModel::Open(pace));
        assert_eq!(codes(TRAITS, open, &replies), [lab::CHECK_RATE_TOO_LOW.code]);
        assert_eq!(codes(one_identity, closed(), &replies), [lab::CHECK_ONE_IDENTITY.code]);
        assert_eq!(codes(TRAITS, closed(), &none), [few; 3]);
        assert_eq!(codes(TRAITS, closed(), &failing), [few; 2]);
        let (finding, warning) = hash_upgrade_finding(Err(RequestError::TimedOut));
        assert!(finding.ratio.is_none() && warning.is_none());
        assert_eq!(finding.code, Some(lab::ENTRIES_READ_FAILED.code));
    }
}
