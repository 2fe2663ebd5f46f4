//! Puts another configuration in force while everything runs, or leaves all as it was.

use super::decide::{Event, Phase, Then, Times};
use super::link::News;
use super::object;
use super::object::Reload;
use super::plan::{Key, plan};
use super::settings::Settings;
use super::users::Users;
use super::{Minded, Monitor, folders, link, start};
use anyhow::anyhow;
use roster_bus::interfaces::PublisherProxy;
use roster_bus::names::Role;
use roster_bus::zbus::object_server::SignalEmitter;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

/// How long the bus may take to take a signal.
const BUS_WAIT: Duration = Duration::from_secs(3);
/// How long a publication after a reload is waited for, for the log.
const PUBLISH_WAIT: Duration = Duration::from_secs(10);

impl Monitor {
    /// Has the configuration read anew, and what is in it come back as news.
    pub(super) fn reload(&mut self, done: Option<Reload>) {
        // Before the first readiness a reload is part of the start.
        if self.ready_told && self.ending.is_none() {
            let mut told = vec![NotifyState::Reloading];
            told.extend(NotifyState::monotonic_usec_now());
            let _ = sd_notify::notify(&told);
        }
        self.reading = true;
        let (reader, config) = (self.reader.clone(), self.config.clone());
        let (state, uses_keytab) = (self.folders.state.clone(), self.keytabs.used);
        let news = self.news.clone();
        tokio::spawn(async move {
            let settings = reader.read(config, state, uses_keytab).await.map(Box::new);
            let _ = news.send(News::Read { settings, done }).await;
        });
    }

    /// Goes by what was read. After an error everything is as it was.
    pub(super) fn reloaded(
        &mut self,
        settings: anyhow::Result<Box<Settings>>,
    ) -> anyhow::Result<()> {
        if self.ending.is_some() {
            return Err(anyhow!("the daemon is about to end"));
        }
        let outcome = settings.and_then(|settings| self.take_over(*settings));
        if self.ready_told {
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        match &outcome {
            Ok(()) => {
                self.config_error.clear();
                info!("the configuration {} is in force", self.config.display());
            }
            Err(error) => {
                self.config_error = format!("{error:#}");
                error!("the old configuration stays in force");
                for line in self.config_error.lines() {
                    error!("{line}");
                }
            }
        }
        outcome
    }

    pub(super) fn take_over(&mut self, settings: Settings) -> anyhow::Result<()> {
        let users = match &self.users {
            Users::Invoking(ids) => Users::Invoking(*ids),
            Users::Separate { .. } => start::separate_users(settings.config.domains.len())
                .map_err(|failure| failure.error)?,
        };
        let plan = plan(&settings, &users, &self.folders.run)?;
        let sockets = self.open_sockets(&plan)?;
        for warning in &settings.warnings {
            warn!("{warning}");
        }
        let log = settings.config.log.clone();
        let level_changed = log.level != self.settings.config.log.level;
        let form_changed = log.json != self.settings.config.log.json;
        let bus_moved = users.bus() != self.users.bus();
        self.settings = settings;
        self.mark_keytab();
        self.users = users;
        self.socket_files.clear();
        // Nothing can fail any more. Programs accept what the publisher is to serve before it does.
        if self.users.are_separate() {
            start::write_floor(&self.settings.config.host);
        }
        if bus_moved {
            self.step(&Key::Bus, Event::Restart);
        }
        for key in self.roles() {
            if !plan.contains_key(&key) {
                self.step(&key, Event::Stop);
                if let Some((listen, _)) = self.sockets.remove(&key) {
                    folders::unlisten(&listen);
                }
            }
        }
        for (key, wanted) in plan {
            match self.minded.get_mut(&key) {
                Some(minded) => {
                    let gone = matches!(
                        minded.state.phase,
                        Phase::Gone | Phase::Stopping { then: Then::Gone, .. }
                    );
                    let changed = minded.wanted.as_ref() != Some(&wanted);
                    minded.state.on_use = wanted.on_use;
                    minded.wanted = Some(wanted);
                    if let Some(watch) = minded.watch.take().filter(|_| sockets.contains_key(&key))
                    {
                        watch.abort();
                    }
                    if changed || gone || form_changed {
                        info!("{key} runs by other settings now");
                        self.step(&key, Event::Restart);
                    }
                }
                None => {
                    self.minded.insert(key, Minded::new(Some(wanted), &Times::ROLE));
                }
            }
        }
        for (key, (listen, socket)) in sockets {
            let old = self.sockets.insert(key.clone(), (listen, socket));
            if let Some((old, _)) = old.filter(|(old, _)| *old != self.sockets[&key].0) {
                folders::unlisten(&old);
            }
            self.watch_socket(&key);
        }
        self.level.set_json(log.json);
        if level_changed {
            self.set_level(&log.level);
        }
        self.announce();
        Ok(())
    }

    fn set_level(&self, level: &str) {
        let _ = self.level.set(level);
        let Some(connection) = self.bus.clone() else { return };
        for key in self.roles() {
            let Key::Role(role) = key else { continue };
            let (connection, level) = (connection.clone(), level.to_owned());
            tokio::spawn(async move {
                let Ok(proxy) = link::proxy(&connection, &role).await else { return };
                if let Err(error) = proxy.set_log_level(&level).await {
                    debug!("{role} logs at its old level until it is started again: {error}");
                }
            });
        }
    }

    /// Tells that a configuration is in force, and has the snapshot published, whether anything changed or not.
    /// A publisher that starts again publishes anyway.
    fn announce(&self) {
        let Some(connection) = self.bus.clone() else { return };
        tokio::spawn(async move {
            if let Ok(emitter) = SignalEmitter::new(&connection, Role::Monitor.path()) {
                let told = object::Object::config_reloaded(&emitter);
                let _ = timeout(BUS_WAIT, told).await;
            }
            let published = async { PublisherProxy::new(&connection).await?.publish().await };
            if let Ok(Err(error)) = timeout(PUBLISH_WAIT, published).await {
                debug!("the snapshot is not published: {error}");
            }
        });
    }
}
