//! How everything is, for `roster status` and for systemd.

use super::decide::Phase;
use super::{Monitor, in_words};
use crate::role::unix_seconds;
use roster_bus::interfaces::{MonitorStatus, RoleState};
use roster_bus::names::Role;
use sd_notify::NotifyState;
use std::time::Duration;
use tracing::{info, warn};

/// After this time readiness is told even if a role is not ready: one broken domain must keep neither
/// the others nor the machine's start waiting.
const READY_WAIT: Duration = Duration::from_secs(30);

impl Monitor {
    /// Brings the status up to date, for the bus and for systemd.
    pub(super) fn tell(&mut self) {
        let domains = self.settings.domains();
        let bus_uid = self.users.bus().uid;
        let mut roles = vec![RoleState {
            role: Role::Monitor.to_string(),
            state: "running".into(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            since_unix: unix_seconds(self.started),
            ..RoleState::default()
        }];
        let mut waits_for = Vec::new();
        for (key, minded) in &self.minded {
            let state = in_words(minded.state.phase);
            if !matches!(minded.state.phase, Phase::Idle | Phase::Running { .. }) {
                waits_for.push(format!("{key} ({state})"));
            }
            roles.push(RoleState {
                role: key.to_string(),
                state: state.into(),
                pid: minded.pid(),
                uid: minded.wanted.as_ref().map_or(bus_uid, |wanted| wanted.user.uid),
                restarts: minded.state.starts.saturating_sub(1),
                since_unix: unix_seconds(minded.since),
                last_end: minded.last_end.clone(),
            });
        }
        let all_run = waits_for.is_empty();
        let status = match (self.ending, all_run) {
            (Some(_), _) => "Ending".to_owned(),
            (None, true) => format!("{} domains, all roles run", domains.len()),
            (None, false) => format!("Waiting for {}", waits_for.join(", ")),
        };
        self.shared.set(MonitorStatus {
            config: self.config.display().to_string(),
            config_read_unix: unix_seconds(self.settings.read),
            config_error: self.config_error.clone(),
            state_dir: self.folders.state.display().to_string(),
            separate_users: self.users.are_separate(),
            domains,
            roles,
        });
        if !self.ready_told && self.ending.is_none() {
            let waited = self.started_at.elapsed() >= READY_WAIT;
            if all_run {
                info!("all roles run");
            } else if waited {
                warn!("ready as far as can be; waits for {}", waits_for.join(", "));
            }
            if all_run || waited {
                self.ready_told = true;
                let _ = sd_notify::notify(&[NotifyState::Ready]);
            }
        }
        if status != self.status_told {
            let _ = sd_notify::notify(&[NotifyState::Status(&status)]);
            self.status_told = status;
        }
    }
}
