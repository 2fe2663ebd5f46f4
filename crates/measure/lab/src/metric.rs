//! The figure of a run that a bisection compares.

use crate::report::RunStats;
use crate::report::text::milliseconds;
use serde::{Deserialize, Serialize};

/// The figure that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Requests a second
    Rate,
    /// The median latency
    P50,
    /// The 99th percentile of the latency
    P99,
    /// Processor time of the server a request
    ServerCpu,
}

impl Metric {
    /// Its value in a run; none where it was not measured.
    pub fn value_in(self, run: &RunStats) -> Option<f64> {
        match self {
            Self::Rate => Some(run.rate),
            Self::P50 => Some(run.latency_ms.p50),
            Self::P99 => Some(run.latency_ms.p99),
            Self::ServerCpu => run.server_cpu_us_per_op,
        }
    }

    /// A value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{value:.0}/s"),
            Self::P50 | Self::P99 => milliseconds(value),
            Self::ServerCpu => format!("{value:.1} µs"),
        }
    }
}
