// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of one process: set through the `metrics` facade, read as Prometheus text through
//! `org.roster.Role1.Metrics`.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Bounds of histograms, in seconds: lookups take microseconds, a refresh may take a minute.
const BUCKETS: [f64; 14] =
    [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Reads the counters of this process.
#[derive(Clone)]
pub struct Counters(PrometheusHandle);

impl Counters {
    /// Starts counting, once for each process.
    #[must_use]
    pub fn start() -> Self {
        let recorder = recorder();
        let handle = recorder.handle();
        let _ = metrics::set_global_recorder(recorder);
        metrics::describe_gauge!("roster_memory_bytes", "Resident memory of the process");
        metrics::describe_counter!("roster_messages_total", "Log events with a code, by code");
        Self(handle)
    }

    /// Returns the counters as Prometheus text.
    #[must_use]
    pub fn render(&self) -> String {
        if let Some(bytes) = resident_bytes() {
            metrics::gauge!("roster_memory_bytes").set(bytes);
        }
        self.0.render()
    }

    /// Aggregates the samples of histograms. Without scrapes they would otherwise grow. The monitor's pings call this
    /// regularly.
    pub fn run_upkeep(&self) {
        self.0.run_upkeep();
    }
}

fn recorder() -> PrometheusRecorder {
    // An error would mean that there are no buckets.
    PrometheusBuilder::new().set_buckets(&BUCKETS).unwrap_or_default().build_recorder()
}

/// Returns what `act` counts, as Prometheus text.
#[cfg(test)]
pub(crate) fn test_counters(act: impl FnOnce()) -> String {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, act);
    recorder.handle().render()
}

#[allow(clippy::cast_precision_loss)] // a gauge
fn resident_bytes() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some((pages * rustix::param::page_size() as u64) as f64)
}
