//! What is found out of a server before its figures are believed: short runs that differ in one thing,
//! and what the difference means. Decides; the runs are carried out by who asks.

use crate::ldap::hash_upgrade_check::EntryChanges;
use crate::load_thread::{RequestNumbers, RunSpec};
use crate::recorder::Recorder;
use crate::report::{CheckFinding, Warning, text::milliseconds};
use crate::runner::RunResult;
use crate::schedule::{LoadModel, RateSchedule};
use anyhow::Result;
use std::time::Duration;

/// Users of a probe: enough to keep a server busy, few enough not to queue,
pub const USERS: u32 = 4;
/// or, where requests come at a rate of their own, to make them.
const USERS_OPEN: u32 = 16;
/// One after the other, twice, so that what else the machine does meets both.
const ROUNDS: u32 = 2;
/// A busy machine can slow one side of a comparison down. A cache is reported if it shows this many times in a row.
const CACHE_TRIES: usize = 3;
/// Answers that a comparison needs on either side.
const REPLIES_MIN: u64 = 20;
/// An identity comes so often in a row, as users who ask for it at once may all be the first; less often
/// where requests come at a low rate, and so one by one.
const REPEAT: u64 = 4 * USERS as u64;
const REPEAT_MIN: u64 = 4;
/// Identities differ, so that a few of them have to come.
const IDENTITIES_MIN: u64 = 4;
/// Beyond this, requests are not of the same kind of work.
const CACHED: f64 = 2.0;
/// Numbers of identities beyond which one of them cannot be asked for again and again.
const PERIOD_MAX: u64 = 1 << 32;
/// What is compared to find a cache of results.
const CACHE_CHECK: &str = "one identity against many";
/// An answer that took so many times the median stalled,
const STALLED: u32 = 20;
/// if it took this long, which on a busy machine nobody else explains.
const STALL_MIN: Duration = Duration::from_millis(100);
/// The share of the time that goes with stalls before a report speaks of them.
const STALL_SHARE: f64 = 0.1;
/// A stall that came once may be anybody's,
const STALLS_MIN: u64 = 2;
/// so what showed one is looked at again, so many times in all.
const STALL_TRIES_MAX: usize = 5;

/// What a load lets be compared.
#[derive(Clone, Copy, Debug)]
pub struct LoadTraits {
    /// After so many requests the identities begin again.
    pub period: u64,
    /// Whether something is another in every request, so that no two have the same identity.
    pub endless: bool,
    /// Whether bytes can be repeated where identities are, and if so, whether the run does.
    pub repeats_bytes: Option<bool>,
}

/// How requests are made, beside what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStyle {
    /// Whether bytes are repeated.
    pub same_bytes: bool,
    /// Whether connections are reused and closed with a reset, whatever the run does: a port that a
    /// probe took is missing in the run.
    pub saves_ports: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct CheckRun {
    pub users: u32,
    /// How it goes.
    pub spec: RunSpec,
    /// How its requests are made.
    pub style: RequestStyle,
}

/// All comparisons of a load, made by `carry`. `planned` is the first run that is to come, which no probe
/// exceeds: neither its users nor its rate.
pub fn compare(
    traits: LoadTraits,
    planned: CheckRun,
    time: Duration,
    carry: &mut impl FnMut(CheckRun) -> Result<RunResult>,
) -> Result<(Vec<CheckFinding>, Vec<Warning>)> {
    let mut found = FindingList::default();
    let probe = CheckPlanner { planned, time };
    let Some(many) = probe.trial(RequestNumbers::ALL) else {
        let seen = "the rate is too low to compare anything in the time of a probe (--probe)";
        found.add_inconclusive("cache", CACHE_CHECK, seen.to_owned());
        return Ok((found.findings, found.warnings));
    };
    let repeat = probe.repeat();
    match repeated_numbers(traits, repeat) {
        Some(numbers) => {
            let one = CheckRun { spec: RunSpec { numbers, ..many.spec }, ..many };
            let (one, many) = probe.run_both(one, many, carry)?;
            if one.requests < IDENTITIES_MIN * repeat {
                let seen = format!("too few answers to compare identities: {}", one.requests);
                found.add_inconclusive("cache", CACHE_CHECK, seen);
            } else {
                found.identities(&one, &many, traits);
            }
        }
        None => {
            let seen = "all requests name the same".to_owned();
            found.add_inconclusive("cache", CACHE_CHECK, seen);
        }
    }
    if let Some(is_planned) = traits.repeats_bytes {
        let same = CheckRun { style: RequestStyle { same_bytes: true, ..many.style }, ..many };
        let (same, new) = probe.run_both(same, many, carry)?;
        found.bytes(&same, &new, is_planned);
    }
    // At a rate of its own a run shows every stall by itself.
    if matches!(planned.spec.load, LoadModel::Closed { .. }) {
        // Long enough for several waits of a quarter of a second, which servers' timers are made of.
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

/// The numbers of requests of which many in a row name the same identity, and no two have the same
/// bytes; none if there is but one anyway. Cheap and dear identities come as often as in the run, for
/// otherwise one that is cheap would pass for one that is kept.
fn repeated_numbers(traits: LoadTraits, repeat: u64) -> Option<RequestNumbers> {
    let LoadTraits { period, endless, repeats_bytes } = traits;
    match (period, endless) {
        (2..=PERIOD_MAX, false) => {
            // From all over the list, and each as often.
            let far = period * 5 / 8;
            let stride = (far..period).find(|&far| far > 0 && gcd(far, period) == 1).unwrap_or(1);
            Some(RequestNumbers { first: 0, step: period, repeat, stride })
        }
        (0 | 1, false) => None,
        // What never comes twice is had twice only with the same number, which makes the same bytes too.
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
    /// How often an identity is to come in a row.
    fn repeat(&self) -> u64 {
        match self.planned.spec.load {
            LoadModel::Closed { .. } => REPEAT,
            LoadModel::Open(pace) => {
                let answers = pace.from.min(pace.to) * self.time.as_secs_f64();
                ((answers as u64) / IDENTITIES_MIN).clamp(REPEAT_MIN, REPEAT)
            }
        }
    }

    /// A piece of a probe; none if it could not have enough answers.
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
    fn add_inconclusive(&mut self, kind: &'static str, what: &'static str, seen: String) {
        self.findings.push(CheckFinding { kind, what, ratio: None, seen });
    }

    /// How many times as long the second took at the median; none if that says nothing.
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
                "too few good answers to compare: {} and {}",
                one.requests - one.failed(),
                other.requests - other.failed()
            );
            self.add_inconclusive(kind, what, seen);
            return None;
        }
        let [short, long] =
            [one, other].map(|recorder| recorder.percentile(50.0).as_secs_f64() * 1e3);
        let ratio = slowdown(one, other);
        let seen = format!("{} against {} at the median", milliseconds(short), milliseconds(long));
        self.findings.push(CheckFinding { kind, what, ratio: Some(ratio), seen: seen.clone() });
        Some((ratio, seen))
    }

    fn identities(&mut self, one: &Recorder, many: &Recorder, traits: LoadTraits) {
        let Some((ratio, seen)) = self.ratio("cache", CACHE_CHECK, one, many) else { return };
        if ratio < CACHED {
            return;
        }
        let names = match traits {
            LoadTraits { endless: true, .. } => "never names one twice".to_owned(),
            LoadTraits { period, .. } => format!("names {period} in turn"),
        };
        self.warnings.push(Warning {
            kind: "cache",
            ratio,
            text: format!(
                "the server answers an identity that comes again at once {ratio:.1} times as fast as one \
                 among many ({seen}): it keeps results, as 389-ds does of hashed passwords. This run {names}; \
                 see to it that these are as many as in real use, and compare it with no figure of a \
                 single identity."
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
            "This run sends the same bytes (--same-bytes): its figures are of that cache, not of the \
             server's work. Leave the option away."
        } else {
            "This run sends other bytes each time, so its figures are of real work; those of a tool that \
             repeats its requests are not."
        };
        self.warnings.push(Warning {
            kind: "look-aside",
            ratio,
            text: format!(
                "the server answers bytes that it has seen {ratio:.1} times as fast as new ones ({seen}): \
                 it keeps its answers, as a KDC does in its look-aside cache. {run}"
            ),
        });
    }

    /// One user alone should wait for nobody.
    fn stalls(&mut self, low: &RunResult) {
        let (kind, what) = ("stall", "low load against high");
        let latency = &low.recorder.latency;
        if latency.len() < REPLIES_MIN {
            self.add_inconclusive(
                kind,
                what,
                format!("too few answers to one user: {}", latency.len()),
            );
            return;
        }
        let median = low.recorder.percentile(50.0);
        let (count, time) = stalls(&low.recorder);
        let ratio = low.recorder.max().as_secs_f64() / median.as_secs_f64().max(1e-9);
        let seen = format!(
            "one user waits {} at the median and {} at the most",
            milliseconds(median.as_secs_f64() * 1e3),
            milliseconds(low.recorder.max().as_secs_f64() * 1e3)
        );
        self.findings.push(CheckFinding { kind, what, ratio: Some(ratio), seen: seen.clone() });
        let share = time.as_secs_f64() / low.measured.as_secs_f64().max(1e-9);
        // What our own thread waited for a processor is nobody's stall.
        let own: Duration = low.threads.iter().map(|cost| cost.queued).sum();
        if count < STALLS_MIN || share < STALL_SHARE || own * 2 > time {
            return;
        }
        self.warnings.push(Warning {
            kind,
            ratio,
            text: format!(
                "the server stalls at low load: {seen}, and {:.0} % of the time went with {count} such \
                 waits. A closed loop of many users hides it, for each stall holds up one request only. \
                 Run with --rate as well: an open loop counts whoever would have come meanwhile.",
                share * 100.0
            ),
        });
    }
}

/// The median of the second divided by that of the first.
fn slowdown(one: &Recorder, other: &Recorder) -> f64 {
    let [one, other] = [one, other].map(|recorder| recorder.percentile(50.0).as_secs_f64());
    other / one.max(1e-9)
}

/// How many answers came so late that they stalled, and how long they took together.
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

/// What binds did to entries.
#[must_use]
pub fn hash_upgrade_finding(
    change: Result<EntryChanges, String>,
) -> (CheckFinding, Option<Warning>) {
    let (kind, what) = ("upgrade", "entries before a bind against after");
    let finding = |ratio, seen: String| CheckFinding { kind, what, ratio, seen };
    let change = match change {
        Ok(change) if change.seen > 0 => change,
        Ok(_) => {
            let seen = "their entries may not be read (name somebody who may with --bind-dn)";
            return (finding(None, seen.to_owned()), None);
        }
        Err(why) => {
            return (finding(None, format!("their entries could not be read: {why}")), None);
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
        ratio,
        text: format!(
            "{seen}{schemes}: the server hashes a password anew when it is used, so that after each \
             user's first bind another scheme is measured than the one that was stored. Turn it off for \
             the time of the run (389-ds: nsslapd-enable-upgrade-hash: off in cn=config), and store the \
             passwords anew."
        ),
    });
    (finding(Some(ratio), seen + &schemes), warning)
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

    /// Answers, each this long, and a few that took longer.
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

    /// The kinds of warnings of a server that answers a trial as `answer` says.
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
    fn a_server_that_keeps_nothing_and_never_stalls_is_not_warned_about() {
        // One stall that does not come again is nobody's.
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
    fn each_trap_is_told_by_the_comparison_that_shows_it() {
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
    fn identities_come_again_in_other_bytes_and_each_as_often() {
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
    fn no_probe_exceeds_the_rate_of_the_run() {
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
    fn an_upgrade_is_told_and_what_may_not_be_read_is_no_upgrade() {
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
    }
}
