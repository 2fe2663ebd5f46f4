// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the release that changed a figure: measures releases between a good and a bad one by bisection. `compare`
//! judges the figures, and `commands` starts the bisection.
//!
//! A command installs a release, and a child process measures it with a plan. The state is in a file after each release,
//! so an interrupted bisection continues. This module makes no requests.

use crate::args;
use crate::bisect_metric::Metric;
use crate::coded::{Coded, bail_coded, coded, describe, ensure_coded};
use crate::compare::LoadedReport;
use crate::report::RunStats;

use anyhow::Result;
use roster_messages::table::lab;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of releases.
const VERSIONS_MAX: usize = 10_000;
/// Minimum ratio of the good and the bad figure, above noise.
const RATIO_MIN: f64 = 1.1;
/// Interval of checks for the end of the command.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum VersionResult {
    /// The figure.
    Measured(f64),
    /// The release could not be installed or measured.
    Untestable,
}

/// The state of a bisection in its file.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct BisectState {
    /// Releases from the good one to the bad one.
    versions: Vec<String>,
    command: String,
    figure: Metric,
    known: BTreeMap<String, VersionResult>,
}

/// Classification of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionVerdict {
    Good,
    Bad,
    Untestable,
}

impl BisectState {
    /// Returns the figures of the good and the bad release; `None` while one is not measured.
    fn bound(&self) -> Option<(f64, f64)> {
        let figure = |version: Option<&String>| match self.known.get(version?)? {
            VersionResult::Measured(figure) => Some(*figure),
            VersionResult::Untestable => None,
        };
        figure(self.versions.first()).zip(figure(self.versions.last()))
    }

    fn verdicts(&self) -> Vec<Option<VersionVerdict>> {
        let Some((good, bad)) = self.bound() else { return vec![None; self.versions.len()] };
        let middle = (good * bad).sqrt();
        let judge = |known: &VersionResult| match known {
            VersionResult::Untestable => VersionVerdict::Untestable,
            VersionResult::Measured(figure) if (*figure > middle) == (good > middle) => {
                VersionVerdict::Good
            }
            VersionResult::Measured(_) => VersionVerdict::Bad,
        };
        self.versions.iter().map(|version| self.known.get(version).map(judge)).collect()
    }

    fn write(&self, path: &Path) -> Result<()> {
        let fresh = path.with_extension("new");
        let text = serde_json::to_string_pretty(self)?;
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
        let text = format_args!("{}: cannot be written", path.display());
        written.coded(&lab::FILE_UNWRITABLE, text)
    }
}

/// Returns the last known good release, and the first known bad release after it.
fn known_ends(verdicts: &[Option<VersionVerdict>]) -> (usize, usize) {
    let bad = verdicts.iter().position(|one| *one == Some(VersionVerdict::Bad));
    let bad = bad.unwrap_or(verdicts.len().saturating_sub(1));
    let good = verdicts[..bad].iter().rposition(|one| *one == Some(VersionVerdict::Good));
    (good.unwrap_or(0), bad)
}

/// Returns the next release to measure, the unknown one nearest to the middle; `None` at the end.
fn next(verdicts: &[Option<VersionVerdict>]) -> Option<usize> {
    let (good, bad) = known_ends(verdicts);
    let open = (good + 1..bad).filter(|&at| verdicts[at].is_none());
    open.min_by_key(|&at| (2 * at).abs_diff(good + bad))
}

/// Finds the release, and writes the result.
pub fn run(args: &args::BisectArgs, out: &mut dyn Write) -> Result<()> {
    let versions = between(&args.versions, &args.good, &args.bad)?;
    ensure_coded!(
        args.cmd.contains("{version}"),
        VERSION_PLACEHOLDER,
        "--cmd: no {{version}} in the command"
    );
    let wanted = BisectState {
        versions,
        command: args.cmd.clone(),
        figure: args.figure,
        known: BTreeMap::new(),
    };
    let mut state = read(&args.state, wanted)?;
    let ends = [0, state.versions.len() - 1];
    for at in ends {
        let version = state.versions[at].clone();
        if !matches!(state.known.get(&version), Some(VersionResult::Measured(_))) {
            // The search needs both ends, so an untestable one is measured again.
            let known = measure(args, &version, out)?;
            state.known.insert(version.clone(), known);
            state.write(&args.state)?;
            ensure_coded!(
                known != VersionResult::Untestable,
                VERSION_UNTESTABLE,
                "{version}: could not be tested"
            );
        }
    }
    let Some((good, bad)) = state.bound() else {
        bail_coded!(VERSION_UNTESTABLE, "{} and {}: no figures", args.good, args.bad)
    };
    let show = |figure| args.figure.show(figure);
    ensure_coded!(
        good > 0.0 && bad > 0.0 && (good / bad).max(bad / good) >= RATIO_MIN,
        FIGURES_TOO_CLOSE,
        "{}: figures too close: {} of {}, {} of {}",
        args.state.display(),
        show(good),
        args.good,
        show(bad),
        args.bad
    );
    while let Some(at) = next(&state.verdicts()) {
        let version = state.versions[at].clone();
        let known = measure(args, &version, out)?;
        state.known.insert(version, known);
        state.write(&args.state)?;
    }
    write_result(&state, out)
}

/// Returns the releases from the good one to the bad one. Either may be newer.
fn between(versions: &[String], good: &str, bad: &str) -> Result<Vec<String>> {
    ensure_coded!(
        versions.len() <= VERSIONS_MAX,
        TOO_MANY_VERSIONS,
        "--versions: more than {VERSIONS_MAX} releases"
    );
    for version in versions {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~:-".contains(&byte);
        // The name becomes a part of a shell command.
        ensure_coded!(
            !version.is_empty() && version.bytes().all(is_plain),
            VERSION_CHARACTERS,
            "--versions: characters of {version:?} are not permitted"
        );
    }
    let place = |version: &str, option: &str| {
        let found = versions.iter().position(|one| one == version);
        let text = format_args!("{option} {version}: not in --versions");
        found.coded(&lab::VERSION_NOT_LISTED, text)
    };
    let (good, bad) = (place(good, "--good")?, place(bad, "--bad")?);
    ensure_coded!(good != bad, VERSIONS_EQUAL, "--good and --bad: the same release");
    let mut range = versions[good.min(bad)..=good.max(bad)].to_vec();
    if good > bad {
        range.reverse();
    }
    Ok(range)
}

/// Reads the state of the same bisection, if there is one.
fn read(path: &Path, wanted: BisectState) -> Result<BisectState> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(wanted),
        Err(error) => {
            let text = format_args!("{}: cannot be read", path.display());
            return Err(error).coded(&lab::FILE_UNREADABLE, text);
        }
    };
    let shown = path.display();
    let invalid = format_args!("{shown}: not the state of a bisection");
    let state: BisectState =
        serde_json::from_str(&text).coded(&lab::BISECT_STATE_FORMAT, invalid)?;
    let is_same = state.versions == wanted.versions
        && state.command == wanted.command
        && state.figure == wanted.figure;
    ensure_coded!(is_same, BISECT_STATE_OTHER, "{shown}: state of another bisection");
    Ok(state)
}

/// Installs a release and runs the plan.
fn measure(args: &args::BisectArgs, version: &str, out: &mut dyn Write) -> Result<VersionResult> {
    writeln!(out, "{version}: …")?;
    out.flush()?;
    let untestable = |out: &mut dyn Write, error: anyhow::Error| -> Result<VersionResult> {
        writeln!(out, "{version}: {}", describe(&error))?;
        Ok(VersionResult::Untestable)
    };
    if let Err(error) = install_version(args, version) {
        return untestable(out, error);
    }
    let report = args.state.with_extension("run.json");
    let program =
        std::env::current_exe().coded(&lab::PROGRAM_PATH_UNKNOWN, "roster-lab: no path")?;
    let status = Command::new(program)
        .args(["run".as_ref(), args.plan.as_os_str(), "--json".as_ref(), report.as_os_str()])
        .args(["--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .coded(&lab::SHELL_NOT_STARTED, "roster-lab run: cannot start")?;
    if !status.success() {
        // Ctrl-C at the terminal also goes to this process.
        ensure_coded!(status.code() != Some(130), BISECT_INTERRUPTED, "a signal stopped the run");
        let text = format!("not measured: the plan ended with {status}");
        return untestable(out, coded(&lab::PLAN_FAILED, text));
    }
    let measured = LoadedReport::read(&report, version.to_owned())?;
    let _ = fs::remove_file(&report);
    let run = measured.best();
    if let Some(share) = too_many_failed(run, args.failures) {
        let most = run.failures_by_kind.iter().max_by_key(|(_, count)| **count);
        let most = most.map(|(kind, _)| format!(": {}", run.with_code(kind))).unwrap_or_default();
        let text = format!("not measured: {:.1} % of the requests failed{most}", share * 100.0);
        return untestable(out, coded(&lab::TOO_MANY_FAILED, text));
    }
    let figure = args.figure.value_in(run);
    let figure =
        figure.coded(&lab::FIGURE_MISSING, "--figure server-cpu: not in the report of the plan")?;
    writeln!(out, "{version}: {}", args.figure.show(figure))?;
    for warning in &measured.warnings {
        writeln!(out, "  {}: {}", warning.kind, warning.with_code())?;
    }
    Ok(VersionResult::Measured(figure))
}

/// Returns the share of failed requests, if it exceeds `at_most`. The duration of failed requests is not a figure of the
/// release.
fn too_many_failed(run: &RunStats, at_most: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = run.failures as f64 / run.requests.max(1) as f64;
    (share > at_most).then_some(share)
}

/// Runs the command, which may leave a server behind.
fn install_version(args: &args::BisectArgs, version: &str) -> Result<()> {
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(args.cmd.replace("{version}", version))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .coded(&lab::SHELL_NOT_STARTED, "sh: cannot start")?;
    let deadline = Instant::now() + args.cmd_timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure_coded!(
                status.success(),
                INSTALL_FAILED,
                "not installed: the command ended with {status}"
            );
            return Ok(());
        }
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
            bail_coded!(
                INSTALL_TIMEOUT,
                "not installed: the command took longer than {} s",
                args.cmd_timeout.as_secs()
            );
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Writes the table and the result.
fn write_result(state: &BisectState, out: &mut dyn Write) -> Result<()> {
    let verdicts = state.verdicts();
    let width = state.versions.iter().map(String::len).max().unwrap_or_default().max(7);
    writeln!(out, "\n{:<width$} {:>12}  verdict", "version", "figure")?;
    for (version, verdict) in state.versions.iter().zip(&verdicts) {
        let figure = match state.known.get(version) {
            Some(VersionResult::Measured(figure)) => state.figure.show(*figure),
            _ => "-".to_owned(),
        };
        let word = match verdict {
            Some(VersionVerdict::Good) => "good",
            Some(VersionVerdict::Bad) => "bad",
            Some(VersionVerdict::Untestable) => "untestable",
            None => continue,
        };
        writeln!(out, "{version:<width$} {figure:>12}  {word}")?;
    }
    let (good, bad) = known_ends(&verdicts);
    let names = |range: &[String]| range.join(", ");
    match &state.versions[good + 1..=bad] {
        [only] => writeln!(out, "\nThe figure changed with {only}.")?,
        several => writeln!(
            out,
            "\nThe figure changed with one of {}. All but the last could not be tested.",
            names(several)
        )?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bisects releases that are bad from `first_bad` on, with some untestable ones.
    fn bisected(count: usize, first_bad: usize, untestable: &[usize]) -> (usize, usize, usize) {
        let mut verdicts = vec![None; count];
        (verdicts[0], verdicts[count - 1]) =
            (Some(VersionVerdict::Good), Some(VersionVerdict::Bad));
        let mut asked = 0;
        while let Some(at) = next(&verdicts) {
            asked += 1;
            assert!(verdicts[at].is_none(), "asked twice");
            verdicts[at] = Some(match untestable.contains(&at) {
                true => VersionVerdict::Untestable,
                false if at < first_bad => VersionVerdict::Good,
                false => VersionVerdict::Bad,
            });
        }
        let (good, bad) = known_ends(&verdicts);
        (good, bad, asked)
    }

    #[test]
    fn the_first_bad_release_is_found_in_as_few_steps_as_halving_takes() {
        for count in [2, 3, 49, 1000] {
            for first_bad in [1, count / 3 + 1, count - 1] {
                let (good, bad, asked) = bisected(count, first_bad, &[]);
                assert_eq!((good, bad), (first_bad - 1, first_bad), "{count}");
                assert!(asked <= count.ilog2() as usize + 1, "{count}: {asked}");
            }
        }
    }

    #[test]
    fn what_cannot_be_tested_is_gone_around() {
        assert_eq!(bisected(16, 9, &[7, 8]), (6, 9, 5));
        let (good, bad, _) = bisected(16, 9, &(1..15).collect::<Vec<_>>());
        assert_eq!((good, bad), (0, 15));
    }

    #[test]
    fn good_and_bad_divide_in_the_middle_of_their_quotient() {
        let versions = ["1", "2", "3", "4"].map(str::to_owned).to_vec();
        let figures = [100.0, 40.0, 25.0, 10.0];
        let known = versions.iter().cloned().zip(figures.map(VersionResult::Measured)).collect();
        let (command, figure) = (String::new(), Metric::Rate);
        let state = BisectState { versions, command, figure, known };
        let (good, bad) = (Some(VersionVerdict::Good), Some(VersionVerdict::Bad));
        assert_eq!(state.verdicts(), [good, good, bad, bad]);
    }

    #[test]
    fn releases_are_ordered_from_good_to_bad_and_are_no_shell() {
        let all = ["1", "2", "3"].map(str::to_owned);
        assert_eq!(between(&all, "1", "3").unwrap(), ["1", "2", "3"]);
        assert_eq!(between(&all, "3", "2").unwrap(), ["3", "2"]);
        for (good, bad) in [("1", "1"), ("1", "9"), ("9", "1")] {
            assert!(between(&all, good, bad).is_err());
        }
        assert!(between(&["1;reboot".to_owned(), "2".to_owned()], "2", "1;reboot").is_err());
    }
}
