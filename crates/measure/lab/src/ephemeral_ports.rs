// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of connections that the ports of this host permit. `commands::run_load` formats the warnings.
//!
//! A connection that the client closes keeps its port for a minute (TIME_WAIT), for this source address and this server.
//! With a connection for each request the ports are exhausted first, and the run measures their lack.

use crate::net::{CloseMode, Route};
use std::fs;
use std::time::Duration;

/// TIME_WAIT, a constant of the kernel.
const HOLD: Duration = Duration::from_secs(60);
/// Time until a port is reusable with tcp_tw_reuse: TCP timestamps have to differ.
const HOLD_WITH_REUSE: Duration = Duration::from_secs(1);

/// Settings of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// First port of the range for connections without a fixed port.
    pub first: u16,
    /// Last port of that range.
    pub last: u16,
    /// Number of its ports in ip_local_reserved_ports.
    pub reserved: u16,
    /// Value of tcp_tw_reuse: 0 never, 1 always, 2 on loopback.
    pub reuse: u8,
}

impl PortSettings {
    /// Reads the settings of this host, with the kernel's defaults for unreadable ones.
    #[must_use]
    pub fn from_host() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
        let range = read("ip_local_port_range").unwrap_or_default();
        let mut range = range.split_whitespace().map_while(|field| field.parse().ok());
        let reuse = read("tcp_tw_reuse").and_then(|text| text.trim().parse().ok());
        let first = range.next().unwrap_or(32_768);
        let last = range.next().unwrap_or(60_999);
        Self {
            first,
            last,
            reserved: reserved(&read("ip_local_reserved_ports").unwrap_or_default(), first, last),
            reuse: reuse.unwrap_or(2),
        }
    }
}

/// Counts the ports of a range in a list such as `33000-33009,40000`.
fn reserved(list: &str, first: u16, last: u16) -> u16 {
    let parts = list.trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some((from.parse().ok()?, to.parse().ok()?))
    });
    let within = |(from, to): (u16, u16)| match (from.max(first), to.min(last)) {
        (from, to) if from <= to => to - from + 1,
        _ => 0,
    };
    // The kernel's list has no port twice.
    parts.map(within).sum()
}

/// The available ports, and how long a connection keeps one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortBudget {
    /// Number of ports of all source addresses.
    pub ports: u64,
    /// Time for which a closed connection keeps its port.
    pub hold: Duration,
}

impl PortBudget {
    /// Returns the budget of a route.
    #[must_use]
    pub fn for_route(route: &Route, kernel: PortSettings) -> Self {
        let range = u64::from(kernel.last.saturating_sub(kernel.first)) + 1;
        let each = range.saturating_sub(kernel.reserved.into()).max(1);
        let reuses = match kernel.reuse {
            0 => false,
            1 => true,
            _ => route.target.ip().is_loopback(),
        };
        let hold = match route.close {
            CloseMode::Reset => Duration::ZERO,
            CloseMode::Normal if reuses => HOLD_WITH_REUSE,
            CloseMode::Normal => HOLD,
        };
        Self { ports: each * route.sources.len().max(1) as u64, hold }
    }

    /// Returns the sustainable number of connections per second; `None` without a limit.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "ports of some addresses")]
        let ports = self.ports as f64;
        (!self.hold.is_zero()).then(|| ports / self.hold.as_secs_f64())
    }

    /// Returns whether any server can exhaust the ports, because each stays in use for a minute.
    #[must_use]
    pub fn is_port_limited(self) -> bool {
        self.hold == HOLD
    }

    /// Returns the share of the ports that a run needs; above 1 they are insufficient. The run has `connections` at once
    /// and opens `rate` per second during `time`.
    #[must_use]
    pub fn share(self, connections: u64, rate: f64, time: Duration) -> f64 {
        let held = rate * self.hold.min(time).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "ports of some addresses")]
        let share = (connections as f64 + held) / self.ports as f64;
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const KERNEL: PortSettings = PortSettings { first: 1000, last: 1999, reserved: 0, reuse: 2 };

    fn budget(target: &str, sources: usize, close: CloseMode, kernel: PortSettings) -> PortBudget {
        let target: SocketAddr = target.parse().unwrap();
        PortBudget::for_route(&Route { target, sources: vec![target.ip(); sources], close }, kernel)
    }

    #[test]
    fn port_budget_thousand_ports_sixteen_per_second() {
        let far = budget("192.0.2.1:389", 0, CloseMode::Normal, KERNEL);
        assert_eq!(far.ports, 1000);
        assert!((far.rate().unwrap() - 16.67).abs() < 0.01);
        assert!(far.share(10, 100.0, Duration::from_secs(60)) > 6.0);
        assert!(far.share(10, 100.0, Duration::from_secs(5)) < 0.52);
    }

    #[test]
    fn reserved_ports_are_not_ours() {
        assert_eq!(reserved("\n", 1000, 1999), 0);
        assert_eq!(reserved("80,990-1009,1500,1995-2010,3000-3009\n", 1000, 1999), 10 + 1 + 5);
        let few = PortSettings { reserved: 900, ..KERNEL };
        assert_eq!(budget("192.0.2.1:389", 2, CloseMode::Normal, few).ports, 200);
    }

    #[test]
    fn more_addresses_reuse_and_resets_are_the_cures() {
        let rate = |budget: PortBudget| budget.rate();
        let far = "192.0.2.1:389";
        assert!(rate(budget(far, 10, CloseMode::Normal, KERNEL)).unwrap() > 166.0);
        assert_eq!(rate(budget("127.0.0.1:389", 1, CloseMode::Normal, KERNEL)), Some(1000.0));
        let never = PortSettings { reuse: 0, ..KERNEL };
        assert!(rate(budget("127.0.0.1:389", 1, CloseMode::Normal, never)).unwrap() < 17.0);
        assert_eq!(rate(budget(far, 1, CloseMode::Reset, KERNEL)), None);
    }
}
