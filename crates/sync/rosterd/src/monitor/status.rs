// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status, for `roster status` and for systemd.

use super::process_plan::ProcessKey;
use super::supervision::ProcessPhase;
use super::{Monitor, describe_phase};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{MonitorStatus, SupervisedRole};
use roster_messages::{log, table::daemon};
use roster_role::clock::unix_seconds;
use sd_notify::NotifyState;
use std::time::Duration;
use tracing::info;

/// Time after which readiness is reported even if a role is not ready. One broken domain must delay neither the others
/// nor the start of the machine.
const READY_WAIT: Duration = Duration::from_secs(30);

impl Monitor {
    /// Updates the status for the bus and for systemd.
    pub(super) fn update_status(&mut self) {
        let domains = self.config.loaded.domain_names();
        let bus_uid = self.users.bus().uid;
        let mut roles = vec![SupervisedRole {
            role: RoleName::Monitor.to_string(),
            state: "running".into(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            since_unix: unix_seconds(self.process.started),
            log_level: self.process.level.get(),
            ..SupervisedRole::default()
        }];
        let mut waits_for = Vec::new();
        for (key, minded) in &self.processes {
            let state = describe_phase(minded.state.phase);
            if !matches!(minded.state.phase, ProcessPhase::Idle | ProcessPhase::Running { .. }) {
                waits_for.push(format!("{key} ({state})"));
            }
            roles.push(SupervisedRole {
                role: key.to_string(),
                state: state.into(),
                pid: minded.pid(),
                uid: minded.desired.as_ref().map_or(bus_uid, |wanted| wanted.user.uid),
                restarts: minded.state.starts.saturating_sub(1),
                since_unix: unix_seconds(minded.since),
                last_end: minded.last_exit.clone(),
                last_end_is_clean: minded.last_exit_is_clean,
                log_level: match key {
                    ProcessKey::Bus => String::new(),
                    ProcessKey::Role(_) => self.level_of(key),
                },
            });
        }
        let all_run = waits_for.is_empty();
        let status = match (self.end_deadline, all_run) {
            (Some(_), _) => "Ending".to_owned(),
            (None, true) => format!("{} domains, all roles run", domains.len()),
            (None, false) => format!("Waiting for {}", waits_for.join(", ")),
        };
        self.report.status.set(MonitorStatus {
            config: self.config.path.display().to_string(),
            config_read_unix: unix_seconds(self.config.loaded.read_at),
            config_error: self.config.error.clone(),
            state_dir: self.runtime_dirs.state_dir.display().to_string(),
            separate_users: self.users.are_separate(),
            domains,
            roles,
        });
        if !self.report.is_ready_sent
            && self.end_deadline.is_none()
            && is_ready(&waits_for, self.process.started_at.elapsed())
        {
            self.report.is_ready_sent = true;
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        if status != self.report.sent {
            let _ = sd_notify::notify(&[NotifyState::Status(&status)]);
            self.report.sent = status;
        }
    }
}

/// Whether the start is complete, or has lasted too long to wait for the remaining roles. Logs which of both.
fn is_ready(waits_for: &[String], waited: Duration) -> bool {
    if waits_for.is_empty() {
        info!("all roles run");
        return true;
    }
    if waited < READY_WAIT {
        return false;
    }
    let waits_for = waits_for.join(", ");
    log!(WARN, &daemon::START_INCOMPLETE, "started; still waiting for: {waits_for}");
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::logged_codes::with_logged_codes;

    #[test]
    fn monitor_incomplete_start_is_logged() {
        let missing = ["backend:lab (starting)".to_owned()];
        for (waits_for, waited, expected) in [
            (&[][..], Duration::ZERO, (vec![], true)),
            (&missing, Duration::ZERO, (vec![], false)),
            (&missing, READY_WAIT, (vec![&daemon::START_INCOMPLETE], true)),
        ] {
            assert_eq!(with_logged_codes(|| is_ready(waits_for, waited)), expected);
        }
    }
}
