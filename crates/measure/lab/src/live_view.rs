// SPDX-License-Identifier: MIT OR Apache-2.0
//! The live view: a progress bar with current rate, percentiles and failures, on a terminal only. `report` has the
//! final figures.

use crate::load_thread::RunSpec;
use crate::report::text::milliseconds;
use crate::runner::RunProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Interval of updates. Figures of a shorter time vary too much.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// The progress bar of a run.
pub struct LiveView {
    bar: ProgressBar,
    sum: crate::recorder::Recorder,
    since: Instant,
    timeout: Duration,
    quiet: bool,
    /// Time since which no request begins.
    ending: Option<Instant>,
    has_notice: bool,
}

impl LiveView {
    /// Creates the bar. `what` names the run.
    pub fn new(stage: &RunSpec, what: String, quiet: bool) -> Self {
        let length =
            u64::try_from((stage.warm_up + stage.duration).as_millis()).unwrap_or(u64::MAX);
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} % {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what);
        Self {
            bar,
            sum: crate::recorder::Recorder::default(),
            since: Instant::now(),
            timeout: stage.timeout,
            quiet,
            ending: None,
            has_notice: false,
        }
    }

    /// Updates the bar.
    pub fn show(&mut self, sight: &RunProgress<'_>) {
        self.bar.set_position(u64::try_from(sight.elapsed.as_millis()).unwrap_or(u64::MAX));
        self.sum.add(sight.latest.clone());
        if sight.is_ending {
            self.show_ending_notice();
            return;
        }
        let time = self.since.elapsed();
        if time < SHOWN_EVERY {
            return;
        }
        self.since = Instant::now();
        let latest = std::mem::take(&mut self.sum);
        if latest.requests == 0 {
            let what = if latest.warm_up > 0 { "warming up" } else { "no replies" };
            self.bar.set_message(what);
            return;
        }
        let at = |percentile| milliseconds(latest.percentile(percentile).as_secs_f64() * 1e3);
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = latest.requests as f64 / time.as_secs_f64();
        self.bar.set_message(format!(
            "{rate:.0}/s  p50 {}  p99 {}  failed {}",
            at(50.0),
            at(99.0),
            sight.so_far.failed()
        ));
    }
}

impl LiveView {
    /// Reports that the run waits for replies up to the timeout of a request.
    fn show_ending_notice(&mut self) {
        let ending = *self.ending.get_or_insert_with(Instant::now);
        if ending.elapsed() < SHOWN_EVERY || self.has_notice {
            return;
        }
        self.has_notice = true;
        let what =
            format!("waiting for the last replies, at most {} s", self.timeout.as_secs_f64());
        self.bar.set_message(what.clone());
        if self.bar.is_hidden() && !self.quiet {
            let _ = writeln!(io::stderr(), "roster-lab: {what}");
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
