// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies another configuration at run time, or leaves everything as it was. `process_plan` has the processes, and
//! `config_load` reads the files.

use super::bus_connection::MonitorEvent;
use super::config_load::LoadedConfig;
use super::dbus;
use super::dbus::ReloadRequest;
use super::process_plan::{ProcessKey, plan};
use super::role_proxy::role_proxy;
use super::role_users::RoleUsers;
use super::supervision::{NextPhase, ProcessEvent, ProcessPhase, SupervisionTimes};
use super::{Monitor, SupervisedProcess, runtime_dirs, startup};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::PublisherProxy;
use roster_bus::zbus::object_server::SignalEmitter;
use roster_messages::table::config as config_messages;
use roster_messages::{CodedError, log, table::daemon as messages};
use roster_role::error_code::{CodedErrors, CodedLine};
use roster_snapshot_build::floor_file;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, info};

/// Time limit of the bus to accept a signal.
const BUS_WAIT: Duration = Duration::from_secs(3);
/// Time limit of the wait for a publication after a reload, for the log.
const PUBLISH_WAIT: Duration = Duration::from_secs(10);

impl Monitor {
    /// Starts a read of the configuration. The content arrives as an event.
    pub(super) fn start_reload(&mut self, done: Option<ReloadRequest>) {
        // Before the first readiness a reload is part of the start.
        if self.report.is_ready_sent && self.end_deadline.is_none() {
            let mut told = vec![NotifyState::Reloading];
            told.extend(NotifyState::monotonic_usec_now());
            let _ = sd_notify::notify(&told);
        }
        self.config.is_reading = true;
        let (reader, config) = (self.config.reader.clone(), self.config.path.clone());
        let (state, uses_keytab) =
            (self.runtime_dirs.state_dir.clone(), self.config.keytabs.is_used);
        let news = self.channels.events.clone();
        tokio::spawn(async move {
            let settings = reader.read(config, state, uses_keytab).await.map(Box::new);
            let _ = news.send(MonitorEvent::ConfigRead { settings, done }).await;
        });
    }

    /// Applies the configuration. After an error everything is as it was.
    pub(super) fn finish_reload(
        &mut self,
        settings: Result<Box<LoadedConfig>, CodedErrors>,
    ) -> Result<(), CodedErrors> {
        if self.end_deadline.is_some() {
            return Err(CodedError::new(&messages::MONITOR_STOPS, "reload: not done").into());
        }
        let outcome = settings.and_then(|settings| {
            self.reject_lost_main_file(&settings)?;
            self.apply_config(*settings)
        });
        if self.report.is_ready_sent {
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        match &outcome {
            Ok(()) => {
                self.config.error.clear();
                info!("{}: the new configuration is in force", self.config.path.display());
            }
            Err(errors) => {
                self.config.error = errors.to_string();
                let path = self.config.path.display();
                log!(ERROR, &messages::RELOAD_REJECTED, "{path}: reload rejected");
                errors.log();
            }
        }
        outcome
    }

    /// Fails if the main file has disappeared. An editor may be replacing it, and drop-ins alone may allow logins that
    /// the main file denies. A start accepts drop-ins alone.
    fn reject_lost_main_file(&self, settings: &LoadedConfig) -> Result<(), CodedError> {
        if settings.has_main_file || !self.config.loaded.has_main_file {
            return Ok(());
        }
        let text = format!(
            "{}: the file is missing, and the running configuration contains it",
            self.config.path.display()
        );
        Err(CodedError::new(&config_messages::MAIN_FILE_LOST, text))
    }

    pub(super) fn apply_config(&mut self, settings: LoadedConfig) -> Result<(), CodedErrors> {
        let users = match &self.users {
            RoleUsers::Invoking(ids) => RoleUsers::Invoking(*ids),
            RoleUsers::Separate { .. } => startup::separate_users(settings.config.domains.len())
                .map_err(|failure| failure.errors)?,
        };
        let plan = plan(&settings, &users, &self.runtime_dirs.run_dir)?;
        let sockets = self.open_sockets(&plan)?;
        settings.warnings.iter().for_each(CodedLine::log_warning);
        let log = settings.config.log.clone();
        let level_changed = log.level != self.config.loaded.config.log.level;
        let form_changed = log.json != self.config.loaded.config.log.json;
        let bus_moved = users.bus() != self.users.bus();
        self.config.loaded = settings;
        self.mark_keytab();
        self.users = users;
        self.listeners.files.clear();
        // No step can fail from here on. Programs accept the new ids before the publisher serves them.
        if self.users.are_separate() {
            startup::write_floor(floor_file::path(), &self.config.loaded.config.host);
        }
        if bus_moved {
            self.apply_process_event(&ProcessKey::Bus, ProcessEvent::Restart);
        }
        for key in self.roles() {
            if !plan.contains_key(&key) {
                self.apply_process_event(&key, ProcessEvent::Stop);
                if let Some((listen, _)) = self.listeners.sockets.remove(&key) {
                    runtime_dirs::remove_socket(&listen);
                }
            }
        }
        for (key, wanted) in plan {
            match self.processes.get_mut(&key) {
                Some(minded) => {
                    let gone = matches!(
                        minded.state.phase,
                        ProcessPhase::Gone | ProcessPhase::Stopping { then: NextPhase::End, .. }
                    );
                    let changed = minded.desired.as_ref() != Some(&wanted);
                    minded.state.is_socket_activated = wanted.listen.is_some();
                    minded.desired = Some(wanted);
                    if let Some(watch) =
                        minded.socket_watch.take().filter(|_| sockets.contains_key(&key))
                    {
                        watch.abort();
                    }
                    if changed || gone || form_changed {
                        info!("{key}: configuration changed, restarting");
                        self.apply_process_event(&key, ProcessEvent::Restart);
                    }
                }
                None => {
                    self.processes
                        .insert(key, SupervisedProcess::new(Some(wanted), &SupervisionTimes::ROLE));
                }
            }
        }
        for (key, (listen, socket)) in sockets {
            let old = self.listeners.sockets.insert(key.clone(), (listen, socket));
            if let Some((old, _)) = old.filter(|(old, _)| *old != self.listeners.sockets[&key].0) {
                runtime_dirs::remove_socket(&old);
            }
            self.watch_socket(&key);
        }
        self.process.level.set_json(log.json);
        if level_changed {
            self.process.levels.clear();
            self.set_level(&log.level);
        }
        self.announce_config();
        Ok(())
    }

    fn set_level(&self, level: &str) {
        let _ = self.process.level.set(level);
        for key in self.roles() {
            if let ProcessKey::Role(role) = key {
                self.send_level(role, level.to_owned());
            }
        }
    }

    /// Returns the level of a role, which may have been set at run time.
    pub(super) fn level_of(&self, key: &ProcessKey) -> String {
        self.process.levels.level_of(&key.to_string(), &self.config.loaded.config.log.level)
    }

    /// Sends the level to a role that is ready, if it was set after the start of the process.
    pub(super) fn renew_level(&self, key: &ProcessKey) {
        let level = self.level_of(key);
        let started_level = self.processes.get(key).map(|minded| &*minded.started_level);
        if let ProcessKey::Role(role) = key
            && started_level != Some(&*level)
        {
            self.send_level(role.clone(), level);
        }
    }

    fn send_level(&self, role: RoleName, level: String) {
        let Some(connection) = self.bus_link.connection.clone() else { return };
        tokio::spawn(async move {
            let Ok(proxy) = role_proxy(&connection, &role).await else {
                return;
            };
            if let Err(error) = proxy.set_log_level(&level).await {
                debug!("{role} logs at its old level until it is started again: {error}");
            }
        });
    }

    /// Announces that a configuration is in force, and requests a publication, even without changes. A publisher that
    /// restarts publishes anyway.
    fn announce_config(&self) {
        let Some(connection) = self.bus_link.connection.clone() else { return };
        tokio::spawn(async move {
            if let Ok(emitter) = SignalEmitter::new(&connection, RoleName::Monitor.path()) {
                let told = dbus::MonitorObject::config_reloaded(&emitter);
                let _ = timeout(BUS_WAIT, told).await;
            }
            let published = async { PublisherProxy::new(&connection).await?.publish().await };
            if let Ok(Err(error)) = timeout(PUBLISH_WAIT, published).await {
                debug!("the snapshot is not published: {error}");
            }
        });
    }
}
