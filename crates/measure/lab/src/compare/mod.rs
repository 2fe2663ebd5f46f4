// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of reports: the differences, their confidence, and a sentence about each. The result is written as text,
//! as a self-contained [page](html), and as a picture. This module makes no runs.

pub mod chart;
pub mod html;
pub mod html_table;
pub mod stats;

use crate::coded::{Coded, ensure_coded};
use crate::report::text::{milliseconds, server_column};
use crate::report::{CheckFinding, Host, RunReport, RunStats, Warning};
use anyhow::Result;
use roster_messages::table::lab;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Maximum size of a report: hundreds of runs.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Options that may differ between comparable runs.
const OPTIONS_THAT_MAY_DIFFER: [&str; 12] = [
    "uri",
    "server",
    "kdc",
    "json",
    "hdr",
    "html",
    "quiet",
    "server-pid",
    "server-unit",
    "tls-ca",
    "module",
    "probe",
];

/// A report from a file.
#[derive(Clone, Debug, Deserialize)]
pub struct LoadedReport {
    /// Name in the comparison.
    #[serde(skip)]
    pub name: String,
    /// Requests per second and mean latency of each of several pooled reports.
    #[serde(skip)]
    pub repeated: Vec<(f64, f64)>,
    /// Figures of all its runs.
    #[serde(flatten)]
    pub figures: RunStats,
    /// Figures of each run, if there are several.
    #[serde(default)]
    pub stages: Vec<RunStats>,
    /// Warnings about the figures.
    pub warnings: Vec<ReportedWarning>,
    /// Results of the pre-run checks.
    #[serde(default)]
    pub probes: Vec<ReportedCheck>,
    /// Origin of the figures.
    pub origin: LoadedOrigin,
}

/// A warning of a report from a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ReportedWarning {
    /// Word for programs.
    pub kind: String,
    /// Code of the message. Reports of older versions lack codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Consequence and remedy.
    pub text: String,
}

impl ReportedWarning {
    /// Formats the text with its code.
    #[must_use]
    pub fn with_code(&self) -> String {
        with_code(&self.text, self.code.as_deref())
    }
}

/// Formats a text with its code, if it has one.
#[must_use]
pub fn with_code(text: &str, code: Option<&str>) -> String {
    let code = code.map(|code| format!(" [{code}]"));
    format!("{text}{}", code.unwrap_or_default())
}

impl From<&Warning> for ReportedWarning {
    fn from(warning: &Warning) -> Self {
        Self {
            kind: warning.kind.to_owned(),
            code: Some(warning.message.code.to_owned()),
            text: warning.text.clone(),
        }
    }
}

/// A pre-run check of a report from a file.
#[derive(Clone, Debug, Deserialize)]
pub struct ReportedCheck {
    /// The compared loads.
    pub what: String,
    /// Ratio of both sides.
    pub ratio: Option<f64>,
    pub seen: String,
    /// Code of a comparison without a result.
    #[serde(default)]
    pub code: Option<String>,
}

/// The origin of figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoadedOrigin {
    /// Version of roster-lab.
    pub version: String,
    /// The machine that made the load.
    pub host: Host,
    /// Seconds since 1970.
    pub time: u64,
    /// The options.
    pub plan: Value,
}

impl LoadedReport {
    /// Reads a report from a file.
    pub fn read(path: &Path, name: String) -> Result<Self> {
        let shown = path.display();
        let mut text = String::new();
        let unreadable = format!("{shown}: cannot be read");
        let file = File::open(path).coded(&lab::FILE_UNREADABLE, &unreadable)?;
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        let length = read.coded(&lab::FILE_UNREADABLE, &unreadable)?;
        ensure_coded!(
            length as u64 <= FILE_BYTES_MAX,
            REPORT_TOO_LONG,
            "{shown}: longer than {} MiB",
            FILE_BYTES_MAX >> 20
        );
        let read: Self = serde_json::from_str(&text)
            .coded(&lab::REPORT_FORMAT, format_args!("{shown}: not a report of roster-lab"))?;
        Ok(Self { name, ..read })
    }

    /// Converts the report of this process.
    #[must_use]
    pub fn from_report(report: &RunReport, name: String) -> Self {
        let probe = |one: &CheckFinding| ReportedCheck {
            what: one.what.to_owned(),
            ratio: one.ratio,
            seen: one.seen.clone(),
            code: one.code.map(str::to_owned),
        };
        let origin = &report.origin;
        Self {
            name,
            repeated: Vec::new(),
            figures: report.figures.clone(),
            stages: report.stages.clone(),
            warnings: report.warnings.iter().map(ReportedWarning::from).collect(),
            probes: report.probes.iter().map(probe).collect(),
            origin: LoadedOrigin {
                version: origin.version.to_owned(),
                host: origin.host.clone(),
                time: origin.time,
                plan: origin.plan.clone(),
            },
        }
    }

    /// Returns the representative run: of a curve, the run with the highest rate.
    #[must_use]
    pub fn best(&self) -> &RunStats {
        let stages = self.stages.iter();
        stages.max_by(|one, other| one.rate.total_cmp(&other.rate)).unwrap_or(&self.figures)
    }

    #[must_use]
    pub fn runs(&self) -> &[RunStats] {
        if self.stages.is_empty() { std::slice::from_ref(&self.figures) } else { &self.stages }
    }
}

/// Pools reports of the same name into the one with the median rate, which gets the figures of the others.
#[must_use]
pub fn pooled(all: Vec<LoadedReport>) -> Vec<LoadedReport> {
    let mut groups: Vec<Vec<LoadedReport>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| group[0].name == one.name) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.into_iter().filter_map(pool).collect()
}

fn pool(mut group: Vec<LoadedReport>) -> Option<LoadedReport> {
    group.sort_by(|one, other| one.best().rate.total_cmp(&other.best().rate));
    let mean = |run: &RunStats| {
        let latencies = run.batches.iter().map(|piece| piece.1).sum::<f64>();
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let count = run.batches.len().max(1) as f64;
        (run.rate, latencies / count)
    };
    let repeated = group.iter().map(|one| mean(one.best())).collect();
    let mut warnings: Vec<ReportedWarning> = Vec::new();
    for said in group.iter().flat_map(|one| &one.warnings) {
        if !warnings.iter().any(|known| known.kind == said.kind) {
            warnings.push(said.clone());
        }
    }
    let middle = group.len().saturating_sub(1) / 2;
    let single = group.len() == 1;
    let middle = group.into_iter().nth(middle)?;
    Some(if single { middle } else { LoadedReport { repeated, warnings, ..middle } })
}

fn is_repeated(one: &LoadedReport) -> bool {
    one.repeated.len() >= stats::PIECES_MIN
}

/// Returns the means of pooled runs, if there are enough for a spread, otherwise the means of the batches.
fn samples(one: &LoadedReport, repeats: bool, of: fn(&(f64, f64)) -> f64) -> Vec<f64> {
    let from = if repeats { &one.repeated } else { &one.best().batches };
    from.iter().map(of).collect()
}

/// Returns whether the load had a requested rate. Then the rate is not a figure of the server.
fn is_open(run: &RunStats) -> bool {
    run.offered.is_some()
}

/// Comparison of a report with the first one.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Ratio of requests per second; `None` without enough batches.
    pub rate: Option<stats::RatioInterval>,
    /// Ratio of mean latencies.
    pub latency: Option<stats::RatioInterval>,
    /// Ratio of the server's processor time per request.
    pub server: Option<f64>,
    /// Result as a sentence.
    pub sentence: String,
}

/// Compares `second` with `first`.
#[must_use]
pub fn compare_pair(first: &LoadedReport, second: &LoadedReport) -> Comparison {
    let (a, b) = (first.best(), second.best());
    let repeats = is_repeated(first) && is_repeated(second);
    let compare = |of: fn(&(f64, f64)) -> f64| {
        stats::ratio(&samples(first, repeats, of), &samples(second, repeats, of))
    };
    let (rate, latency) = (compare(|piece| piece.0), compare(|piece| piece.1));
    let server = a.server_cpu_us_per_op.zip(b.server_cpu_us_per_op);
    let server = server.filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a);
    let sentence = sentence(first, second, rate, latency);
    Comparison { rate, latency, server, sentence }
}

/// Returns the sentence about an open and a closed loop, by their names.
fn runs_differ(open: &str, closed: &str) -> String {
    let code = lab::RUNS_DIFFER.code;
    format!(
        "{open} and {closed} cannot be compared: {open} has a requested rate (--rate), and users of {closed} wait for \
         replies. [{code}]"
    )
}

fn sentence(
    first: &LoadedReport,
    second: &LoadedReport,
    rate: Option<stats::RatioInterval>,
    latency: Option<stats::RatioInterval>,
) -> String {
    let (a, b) = (first.best(), second.best());
    let (one, other) = (&first.name, &second.name);
    match (is_open(a), is_open(b)) {
        (true, false) => return runs_differ(one, other),
        (false, true) => return runs_differ(other, one),
        _ => {}
    }
    let basis = match is_repeated(first) && is_repeated(second) {
        true => format!("of {} and {} runs", first.repeated.len(), second.repeated.len()),
        false => "within these two runs alone".to_owned(),
    };
    let is_of_latency = is_open(a) && is_open(b);
    let (ratio, what, more, less) = match is_of_latency {
        true => (latency, "mean latency", "longer", "shorter"),
        false => (rate, "rate of requests", "higher", "lower"),
    };
    let mut said = match ratio {
        // A spread between runs of the same name outweighs the steadiness of each run.
        Some(_) if overlap(first, second, is_of_latency) => format!(
            "The runs of {one} and of {other} overlap in their {what} ({} and {}), and are too few for a \
             result. Make {} runs of each.",
            range(first, is_of_latency),
            range(second, is_of_latency),
            stats::PIECES_MIN
        ),
        Some(ratio) if ratio.is_sure() => {
            let way = if ratio.value > 1.0 { more } else { less };
            let much = match ratio.value {
                large if large >= 3.0 => format!("{large:.1} times that of {one}"),
                value => format!("{:.1} % {way} than that of {one}", (value - 1.0).abs() * 100.0),
            };
            format!(
                "The {what} of {other} is {much} (95 % confidence, {basis}: {} to {}).",
                percent(ratio.low),
                percent(ratio.high)
            )
        }
        Some(ratio) => format!(
            "These runs show no difference in {what} between {other} and {one}: it lies between {} and \
             {} (95 % confidence, {basis}).",
            percent(ratio.low),
            percent(ratio.high)
        ),
        None => {
            let (a, b) = if is_open(a) && is_open(b) {
                (milliseconds(a.latency_ms.p50), milliseconds(b.latency_ms.p50))
            } else {
                (format!("{:.0}/s", a.rate), format!("{:.0}/s", b.rate))
            };
            format!(
                "{other} has {b} and {one} has {a}. These runs have too few batches for a confidence interval."
            )
        }
    };
    let (slow, quick) = (b.latency_ms.p99, a.latency_ms.p99);
    if slow > 0.0 && quick > 0.0 {
        said += &format!(
            " The 99th percentile is {}, against {}.",
            milliseconds(slow),
            milliseconds(quick)
        );
    }
    let doubtful: Vec<&str> = [first, second]
        .into_iter()
        .filter(|one| !one.warnings.is_empty())
        .map(|one| one.name.as_str())
        .collect();
    if !doubtful.is_empty() {
        said += &format!(" Read the warnings of {} first.", doubtful.join(" and "));
    }
    said
}

/// Returns the minimum and the maximum of pooled runs, if there are several but too few for a spread.
fn extremes(one: &LoadedReport, is_of_latency: bool) -> Option<(f64, f64)> {
    let of = |run: &(f64, f64)| if is_of_latency { run.1 } else { run.0 };
    let runs = || one.repeated.iter().map(of);
    (one.repeated.len() > 1 && !is_repeated(one))
        .then(|| (runs().fold(f64::INFINITY, f64::min), runs().fold(0.0, f64::max)))
}

fn overlap(first: &LoadedReport, second: &LoadedReport, is_of_latency: bool) -> bool {
    let ends = |one| {
        let single = match is_of_latency {
            true => samples(one, false, |piece| piece.1),
            false => samples(one, false, |piece| piece.0),
        };
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let mean = single.iter().sum::<f64>() / single.len().max(1) as f64;
        extremes(one, is_of_latency).unwrap_or((mean, mean))
    };
    let are_several = [first, second].into_iter().any(|one| extremes(one, is_of_latency).is_some());
    let (one, other) = (ends(first), ends(second));
    are_several && one.0 <= other.1 && other.0 <= one.1
}

/// Formats the range of a report's runs: `900/s to 1200/s`.
fn range(one: &LoadedReport, is_of_latency: bool) -> String {
    let shown = |value: f64| match is_of_latency {
        true => milliseconds(value),
        false => format!("{value:.0}/s"),
    };
    match extremes(one, is_of_latency) {
        Some((least, most)) => format!("{} to {}", shown(least), shown(most)),
        None => shown(if is_of_latency { one.best().latency_ms.p50 } else { one.best().rate }),
    }
}

/// Formats a ratio as a difference: `+12.3 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    // The minus sign is as wide as the plus sign.
    let sign = if percent < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", percent.abs())
}

/// Returns the differing options of runs that should have the same ones.
#[must_use]
pub fn differing_options(all: &[LoadedReport]) -> Vec<String> {
    let Some(first) = all.first() else { return Vec::new() };
    let of =
        |one: &LoadedReport, key: &str| one.origin.plan.get(key).cloned().unwrap_or(Value::Null);
    let keys: BTreeSet<&String> = all
        .iter()
        .filter_map(|one| one.origin.plan.as_object())
        .flat_map(|plan| plan.keys())
        .collect();
    let differs = |key: &str| all.iter().any(|one| of(one, key) != of(first, key));
    let shown = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => "not set".to_owned(),
        other => other.to_string(),
    };
    keys.into_iter()
        .filter(|key| !OPTIONS_THAT_MAY_DIFFER.contains(&key.as_str()) && differs(key))
        .map(|key| {
            let values: Vec<String> = all.iter().map(|one| shown(of(one, key))).collect();
            format!("{key}: {}", values.join(" | "))
        })
        .collect()
}

/// Writes the table and the sentences for a terminal.
pub fn write_text(all: &[LoadedReport], out: &mut dyn Write) -> io::Result<()> {
    let width =
        all.iter().map(|one| one.name.chars().count()).max().unwrap_or_default().clamp(8, 32);
    let is_watched = all.iter().any(|one| one.best().server_cpu_us_per_op.is_some());
    writeln!(
        out,
        "{:<width$} {:>14} {:>8} {:>8} {:>8} {:>7} {:>9}{}",
        "",
        "requests/s",
        "p50",
        "p90",
        "p99",
        "failed",
        "client µs",
        if is_watched { " server µs" } else { "" }
    )?;
    for one in all {
        let run = one.best();
        let rates = samples(one, is_repeated(one), |piece| piece.0);
        let rate = match stats::spread(&rates) {
            Some((_, spread)) => format!("{:.0} ± {spread:.0}", run.rate),
            None => format!("{:.0}", run.rate),
        };
        let latency = run.latency_ms;
        writeln!(
            out,
            "{:<width$} {rate:>14} {:>8} {:>8} {:>8} {:>7} {:>9.1}{}",
            one.name,
            milliseconds(latency.p50),
            milliseconds(latency.p90),
            milliseconds(latency.p99),
            run.failures,
            run.client_cpu_us_per_op,
            server_column(run, is_watched),
        )?;
    }
    writeln!(out)?;
    for sentence in sentences(all) {
        writeln!(out, "{sentence}")?;
    }
    for difference in differing_options(all) {
        writeln!(
            out,
            "! these runs have different options: {difference} [{}]",
            lab::RUNS_DIFFER.code
        )?;
    }
    for one in all {
        for warning in &one.warnings {
            writeln!(out, "! {}: {}", one.name, warning.with_code())?;
        }
    }
    Ok(())
}

/// Returns a sentence about each later report, compared with the first report.
#[must_use]
pub fn sentences(all: &[LoadedReport]) -> Vec<String> {
    let Some((first, others)) = all.split_first() else { return Vec::new() };
    others.iter().map(|other| compare_pair(first, other).sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn measured(name: &str, rate: f64, offered: Option<f64>, spread: f64) -> LoadedReport {
        let batches: Vec<(f64, f64)> = (0..20)
            .map(|at| {
                let off = 1.0 + spread * f64::from(at * 7 % 20 - 10) / 10.0;
                (rate * off, 1000.0 / rate * off)
            })
            .collect();
        let latency = json!({"p50": 1.0, "p90": 2.0, "p99": 3.0, "p999": 4.0, "max": 5.0});
        let mut report = json!({
            "users": 4, "requests": 1000, "failures": 0, "rate": rate, "latency_ms": latency,
            "client_cpu_us_per_op": 5.0, "server_cpu_us_per_op": null, "server_memory_bytes": null,
            "failures_by_kind": {}, "warm_up_requests": 0, "seconds": 10.0,
            "percentiles_ms": [[0.0, 0.5], [50.0, 1.0], [100.0, 5.0]], "batches": batches,
            "warnings": [], "interrupted": false,
            "origin": {"version": "1", "time": 1, "plan": {"load": "ldap", "uri": name, "users": ["4"]},
                       "host": {"name": "h", "kernel": "k", "processor": "p", "processors": 2}},
        });
        if let Some(offered) = offered {
            report["offered"] = json!(offered);
        }
        let measured: LoadedReport = serde_json::from_value(report).unwrap();
        LoadedReport { name: name.to_owned(), ..measured }
    }

    #[test]
    fn compare_difference_has_confidence() {
        let a = measured("a", 1000.0, None, 0.05);
        let better = compare_pair(&a, &measured("b", 1200.0, None, 0.05)).sentence;
        assert!(
            better.starts_with(
                "The rate of requests of b is 20.0 % higher than that of a (95 % confi"
            ),
            "{better}"
        );
        let worse = compare_pair(&a, &measured("b", 900.0, None, 0.05)).sentence;
        assert!(worse.contains("is 10.0 % lower than that of a"), "{worse}");
        let same = compare_pair(&a, &measured("b", 1003.0, None, 0.05)).sentence;
        assert!(same.starts_with("These runs show no difference in rate of requests"), "{same}");
    }

    #[test]
    fn of_several_runs_each_the_spread_between_them_decides() {
        // Each run is steady, and no two runs are equal.
        let runs = |name: &str, rates: [f64; 5]| rates.map(|rate| measured(name, rate, None, 0.01));
        let a = runs("a", [1000.0, 1200.0, 800.0, 900.0, 1100.0]);
        let b = runs("b", [1100.0, 900.0, 1300.0, 1000.0, 1200.0]);
        let alone = compare_pair(&a[0], &b[0]).sentence;
        assert!(alone.contains("is 10.0 % higher") && alone.contains("two runs alone"), "{alone}");
        let all = pooled([a, b].concat());
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names, all[0].figures.rate), (vec!["a", "b"], 1000.0));
        let said = compare_pair(&all[0], &all[1]).sentence;
        assert!(said.contains("no difference") && said.contains("of 5 and 5 runs"), "{said}");
    }

    #[test]
    fn a_few_runs_that_overlap_tell_nothing() {
        let runs = |name: &str, rates: [f64; 3]| rates.map(|rate| measured(name, rate, None, 0.01));
        let said = |a: [f64; 3], b: [f64; 3]| {
            let all = pooled([runs("a", a), runs("b", b)].concat());
            compare_pair(&all[0], &all[1]).sentence
        };
        let overlapping = said([1000.0, 400.0, 1900.0], [1500.0, 2900.0, 500.0]);
        assert!(overlapping.contains("overlap") && overlapping.contains("400/s to 1900/s"));
        assert!(said([1000.0, 1010.0, 990.0], [1500.0, 1510.0, 1490.0]).contains("50.0 % higher"));
    }

    #[test]
    fn compare_open_rate_is_not_closed_rate() {
        let (a, b) = (measured("a", 9.0, None, 0.1), measured("b", 1.0, Some(1.0), 0.1));
        let sentence = compare_pair(&a, &b).sentence;
        assert!(sentence.ends_with(&format!("[{}]", lab::RUNS_DIFFER.code)), "{sentence}");
    }

    #[test]
    fn at_a_rate_that_was_asked_for_the_latency_decides() {
        let (a, b) =
            (measured("a", 1000.0, Some(1000.0), 0.02), measured("b", 500.0, Some(1000.0), 0.02));
        let said = compare_pair(&a, &b).sentence;
        assert!(
            said.starts_with("The mean latency of b is 100.0 % longer than that of a"),
            "{said}"
        );
    }

    #[test]
    fn runs_that_are_not_alike_are_told_but_for_what_is_compared() {
        let (a, mut b) = (measured("a", 1.0, None, 0.1), measured("b", 1.0, None, 0.1));
        assert!(differing_options(&[a.clone(), b.clone()]).is_empty(), "the server may differ");
        b.origin.plan["users"] = json!(["8"]);
        assert_eq!(differing_options(&[a, b]), ["users: [\"4\"] | [\"8\"]"]);
    }

    #[test]
    fn warnings_are_read_first() {
        let (a, mut b) = (measured("a", 1.0, None, 0.1), measured("b", 9.0, None, 0.1));
        let (kind, text) = ("cache".to_owned(), "kept".to_owned());
        b.warnings.push(ReportedWarning { kind, code: Some("RST-8999".to_owned()), text });
        let said = compare_pair(&a, &b).sentence;
        assert!(said.ends_with("Read the warnings of b first."), "{said}");
        let mut text = Vec::new();
        write_text(&[a, b], &mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("! b: kept [RST-8999]"));
    }
}
