// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a run that a bisection compares. `bisect` makes the comparison.

use crate::report::RunStats;
use crate::report::text::milliseconds;
use serde::{Deserialize, Serialize};

/// The compared figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Compare requests per second
    Rate,
    /// Compare the median latency
    P50,
    /// Compare the 99th percentile of the latency
    P99,
    /// Compare the server's processor time per request
    ServerCpu,
}

impl Metric {
    /// Returns the value in a run; `None` if it was not measured.
    pub fn value_in(self, run: &RunStats) -> Option<f64> {
        match self {
            Self::Rate => Some(run.rate),
            Self::P50 => Some(run.latency_ms.p50),
            Self::P99 => Some(run.latency_ms.p99),
            Self::ServerCpu => run.server_cpu_us_per_op,
        }
    }

    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{value:.0}/s"),
            Self::P50 | Self::P99 => milliseconds(value),
            Self::ServerCpu => format!("{value:.1} µs"),
        }
    }
}
