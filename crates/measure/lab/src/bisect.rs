//! Which release changed a figure: measures releases between one that is good and one that is bad, each
//! time the one in the middle.
//!
//! The release is put in place by a command, and measured by a plan, which a process of its own carries
//! out. What was found is kept in a file after each release, so that a bisection that was ended goes on
//! where it was.

use crate::args;
use crate::compare::LoadedReport;
use crate::metric::Metric;
use crate::report::RunStats;

use anyhow::{Context, Result, bail, ensure};
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

/// Releases of a product.
const VERSIONS_MAX: usize = 10_000;
/// What good and bad must be apart at the least, or noise decides.
const RATIO_MIN: f64 = 1.1;
/// Between two looks at the command.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What is known of a release.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum VersionResult {
    /// Its figure.
    Measured(f64),
    /// It could not be put in place or measured.
    Untestable,
}

/// A bisection, as it is kept.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct BisectState {
    /// From the good one to the bad one.
    versions: Vec<String>,
    command: String,
    figure: Metric,
    known: BTreeMap<String, VersionResult>,
}

/// Of a release between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionVerdict {
    Good,
    Bad,
    Untestable,
}

impl BisectState {
    /// What divides good from bad: as far from the one as from the other. None while one of them is not
    /// measured.
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
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The last that is known to be good, and the first behind it that is known to be bad.
fn known_ends(verdicts: &[Option<VersionVerdict>]) -> (usize, usize) {
    let bad = verdicts.iter().position(|one| *one == Some(VersionVerdict::Bad));
    let bad = bad.unwrap_or(verdicts.len().saturating_sub(1));
    let good = verdicts[..bad].iter().rposition(|one| *one == Some(VersionVerdict::Good));
    (good.unwrap_or(0), bad)
}

/// Which to measure next: the one nearest to the middle of what is not known; none when nothing is left
/// to be found out.
fn next(verdicts: &[Option<VersionVerdict>]) -> Option<usize> {
    let (good, bad) = known_ends(verdicts);
    let open = (good + 1..bad).filter(|&at| verdicts[at].is_none());
    open.min_by_key(|&at| (2 * at).abs_diff(good + bad))
}

/// Finds the release, and tells.
pub fn run(args: &args::BisectArgs, out: &mut dyn Write) -> Result<()> {
    let versions = between(&args.versions, &args.good, &args.bad)?;
    ensure!(
        args.cmd.contains("{version}"),
        "--cmd: has no {{version}} to put a release in place of"
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
            // Of these two everything depends: one that cannot be tested is asked again.
            let known = measure(args, &version, out)?;
            state.known.insert(version.clone(), known);
            state.write(&args.state)?;
            ensure!(known != VersionResult::Untestable, "{version} could not be tested");
        }
    }
    let Some((good, bad)) = state.bound() else { bail!("good and bad are not known") };
    let show = |figure| args.figure.show(figure);
    ensure!(
        good > 0.0 && bad > 0.0 && (good / bad).max(bad / good) >= RATIO_MIN,
        "{} has {} and {} has {}: too close for what is between them to be told apart (remove {} to \
         measure them again)",
        args.good,
        show(good),
        args.bad,
        show(bad),
        args.state.display()
    );
    while let Some(at) = next(&state.verdicts()) {
        let version = state.versions[at].clone();
        let known = measure(args, &version, out)?;
        state.known.insert(version, known);
        state.write(&args.state)?;
    }
    write_result(&state, out)
}

/// The releases from the good one to the bad one, whichever is newer.
fn between(versions: &[String], good: &str, bad: &str) -> Result<Vec<String>> {
    ensure!(versions.len() <= VERSIONS_MAX, "--versions: are more than {VERSIONS_MAX}");
    for version in versions {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~:-".contains(&byte);
        // It becomes a part of a shell's command.
        ensure!(
            !version.is_empty() && version.bytes().all(is_plain),
            "--versions: {version:?} has other characters than letters, digits and . _ + ~ : -"
        );
    }
    let place = |version: &str, option: &str| {
        let found = versions.iter().position(|one| one == version);
        found.with_context(|| format!("{option} {version}: is not among the --versions"))
    };
    let (good, bad) = (place(good, "--good")?, place(bad, "--bad")?);
    ensure!(good != bad, "--good and --bad: are the same release");
    let mut range = versions[good.min(bad)..=good.max(bad)].to_vec();
    if good > bad {
        range.reverse();
    }
    Ok(range)
}

/// What was found before, if it is of the same bisection.
fn read(path: &Path, wanted: BisectState) -> Result<BisectState> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(wanted),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let shown = path.display();
    let state: BisectState = serde_json::from_str(&text)
        .with_context(|| format!("{shown}: is not what a bisection keeps; name another --state"))?;
    let is_same = state.versions == wanted.versions
        && state.command == wanted.command
        && state.figure == wanted.figure;
    ensure!(is_same, "{shown}: is of another bisection; remove it, or name another --state");
    Ok(state)
}

/// Puts a release in place and carries the plan out.
fn measure(args: &args::BisectArgs, version: &str, out: &mut dyn Write) -> Result<VersionResult> {
    writeln!(out, "{version}: …")?;
    out.flush()?;
    if let Err(error) = install_version(args, version) {
        writeln!(out, "{version}: cannot be put in place: {error:#}")?;
        return Ok(VersionResult::Untestable);
    }
    let report = args.state.with_extension("run.json");
    let program = std::env::current_exe().context("cannot find this program")?;
    let status = Command::new(program)
        .args(["run".as_ref(), args.plan.as_os_str(), "--json".as_ref(), report.as_os_str()])
        .args(["--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start the plan")?;
    if !status.success() {
        // Ctrl-C is meant for us too.
        ensure!(status.code() != Some(130), "ended by Ctrl-C; the same command goes on from here");
        writeln!(out, "{version}: could not be measured: the plan ended with {status}")?;
        return Ok(VersionResult::Untestable);
    }
    let measured = LoadedReport::read(&report, version.to_owned())?;
    let _ = fs::remove_file(&report);
    let run = measured.best();
    if let Some(share) = too_many_failed(run, args.failures) {
        let (most, _) = run.failures_by_kind.iter().max_by_key(|(_, count)| **count).unzip();
        writeln!(
            out,
            "{version}: could not be measured: {:.1} % of its requests failed{}{}",
            share * 100.0,
            if most.is_some() { ": " } else { "" },
            most.map_or("", String::as_str)
        )?;
        return Ok(VersionResult::Untestable);
    }
    let figure = args.figure.value_in(run).with_context(
        || "--figure server-cpu: the plan does not look at the server (server-pid, server-unit)",
    )?;
    writeln!(out, "{version}: {}", args.figure.show(figure))?;
    for warning in &measured.warnings {
        writeln!(out, "  {}: {}", warning.kind, warning.text)?;
    }
    Ok(VersionResult::Measured(figure))
}

/// The share of a run's requests that failed, if it is more than `at_most`: what fails is over at once, or
/// waits for nothing but time, and no figure is of the release.
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
        .context("cannot start sh")?;
    let deadline = Instant::now() + args.cmd_timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "the command ended with {status}");
            return Ok(());
        }
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
            bail!("the command took longer than {} s", args.cmd_timeout.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Writes the table, and what it says.
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
            Some(VersionVerdict::Untestable) => "could not be tested",
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
            "\nThe figure changed with one of {}; those before the last could not be tested.",
            names(several)
        )?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bisects releases of which those from `first_bad` on are bad, and some cannot be tested.
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
