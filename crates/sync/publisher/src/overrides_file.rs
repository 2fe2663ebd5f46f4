// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the file with local overrides of one domain. A valid file counts from the moment on at which no program has
//! written it for [`STABLE_FOR`], because a file that is written in place is incomplete for a moment. After a mistake
//! the last valid overrides stay. `local_overrides` applies the overrides.

use super::PublisherTasks;
use super::local_overrides::DomainOverrides;
use super::role_config::DomainRules;
use super::state::Invalidation;
use roster_config::{LocalOverrides, read_overrides_file};
use roster_messages::table::daemon;
use roster_messages::{CodedError, Diagnostic, log};
use roster_provider::file_watch::FileWatch;
use roster_provider::stable_file::{FileStamps, STABLE_FOR};
use roster_role::error_code::WithCode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Interval in which a rejected file is read again. A change of the mode of a directory above it is not reported.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Follows one file.
pub(super) struct OverridesFile {
    tasks: Arc<PublisherTasks>,
    position: usize,
    rules: DomainRules,
    path: PathBuf,
    watch: FileWatch,
    /// Receives a message once overrides are known.
    known: Option<oneshot::Sender<()>>,
}

impl OverridesFile {
    /// Starts to watch the file of a domain. Returns `None` for a domain without one. `known` receives a message once
    /// overrides are known.
    pub(super) fn new(
        tasks: &Arc<PublisherTasks>,
        position: usize,
        rules: &DomainRules,
        known: oneshot::Sender<()>,
    ) -> Result<Option<Self>, CodedError> {
        let Some(path) = rules.overrides.file.clone() else {
            let _ = known.send(());
            return Ok(None);
        };
        let watch = FileWatch::new([path.clone()])
            .with_code(&daemon::OVERRIDES_NOT_WATCHED, || {
                format!("{}: cannot be watched", path.display())
            })?;
        let (tasks, rules) = (Arc::clone(tasks), rules.clone());
        Ok(Some(Self { tasks, position, rules, path, watch, known: Some(known) }))
    }

    /// Reads the file now and after each change.
    pub(super) async fn follow(mut self) {
        let now = SystemTime::now();
        let settled = stamps(&self.path).filter(|stamps| stamps.was_stable(now, STABLE_FOR));
        // The stamps at the beginning of a quiet period that has ended. A missing file has `None`.
        let mut quiet = settled.map(Some);
        loop {
            if let Some(before) = quiet {
                let read = self.read().await;
                if before == stamps(&self.path) {
                    let is_valid = self.apply(read).await;
                    self.wait_for_change(is_valid).await;
                }
            }
            let before = stamps(&self.path);
            let is_quiet = timeout(STABLE_FOR, self.watch.wait_for_change()).await.is_err();
            quiet = is_quiet.then_some(before);
        }
    }

    /// Waits until the file is read again.
    async fn wait_for_change(&mut self, is_valid: bool) {
        let change = self.watch.wait_for_change();
        if is_valid {
            change.await;
        } else {
            let _ = timeout(RETRY_INTERVAL, change).await;
        }
    }

    /// Reads the file in another thread, because access to it may block.
    async fn read(&self) -> Result<LocalOverrides, Vec<Diagnostic>> {
        let DomainRules { name, names, overrides, .. } = self.rules.clone();
        let read = move || read_overrides_file(&name, &names, &overrides);
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err(Vec::new()))
    }

    /// Applies the content of the file, or reports its mistakes. Returns whether it is valid.
    async fn apply(&mut self, read: Result<LocalOverrides, Vec<Diagnostic>>) -> bool {
        match read {
            Ok(overrides) => {
                let overrides = DomainOverrides::new(overrides, &self.rules.names);
                let is_new = self.tasks.state.write().await.set_overrides(self.position, overrides);
                if is_new {
                    self.tasks.backends.clear_negative(self.position);
                    let everything = Invalidation { all: true, ..Invalidation::default() };
                    self.tasks.invalidate(&everything).await;
                    self.tasks.changed.notify_one();
                    tracing::info!(domain = self.rules.name, "applied the file with overrides");
                }
                if let Some(known) = self.known.take() {
                    let _ = known.send(());
                }
                true
            }
            Err(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let error = match lines.is_empty() {
                    true => format!("{}: cannot be read", self.path.display()),
                    false => lines.join("\n"),
                };
                let mut state = self.tasks.state.write().await;
                if state.set_overrides_error(self.position, &error) {
                    drop(state);
                    let domain = &self.rules.name;
                    log!(
                        ERROR,
                        &daemon::OVERRIDES_NOT_APPLIED,
                        domain,
                        "{domain}: the file with overrides is rejected: {error}"
                    );
                    self.tasks.changed.notify_one();
                }
                false
            }
        }
    }
}

/// Returns the present stamps of the file. `None` if it is inaccessible.
fn stamps(path: &Path) -> Option<FileStamps> {
    FileStamps::from_paths(&[path], &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Image, apply_image, config, published, tasks};
    use roster_config::OverridesConfig;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// Waits until the publisher's state is as wanted.
    async fn wait_until(hub: &PublisherTasks, is_so: impl Fn(&crate::PublisherState) -> bool) {
        while !is_so(&*hub.state.read().await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("write");
        fs::set_permissions(path, Permissions::from_mode(0o644)).expect("set the mode");
    }

    #[test]
    fn overrides_file_mistake_keeps_last_values() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("overrides.toml");
        let mut rules = config(&["corp"]).domains.remove(0);
        rules.overrides =
            OverridesConfig { file: Some(path.clone()), ..OverridesConfig::default() };
        let followed = async {
            let bus = TestBus::start(folder.path(), TestBus::OPEN);
            let hub = tasks(folder.path(), &bus).await;
            let mut state = hub.state.write().await;
            apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001))
                .expect("well formed");
            drop(state);
            let (known, overrides_known) = oneshot::channel();
            let file =
                OverridesFile::new(&hub, 0, &rules, known).expect("a watch").expect("a file");
            let file = tokio::spawn(file.follow());
            let has_error = |state: &crate::PublisherState| {
                let error = &state.domain_counts()[0].overrides_error;
                (!error.is_empty()).then(|| error.clone())
            };
            wait_until(&hub, |state| has_error(state).is_some()).await;
            write(&path, "[user.alice]\nname = 'al'\n");
            overrides_known.await.expect("overrides");
            assert_eq!(has_error(&*hub.state.read().await), None);
            write(&path, "[user.alice]\nnmae = 'al'\n");
            wait_until(&hub, |state| has_error(state).is_some()).await;
            let error = has_error(&*hub.state.read().await).expect("an error");
            assert!(error.contains("overrides.toml:2: user.alice.nmae: "), "{error}");
            let mut state = hub.state.write().await;
            let uid = published(&mut state, |snapshot| {
                snapshot.user_by_name(b"al").expect("undamaged").map(|user| user.uid)
            });
            assert_eq!(uid, Some(5001), "the last overrides");
            drop(state);
            write(&path, "[user.alice]\nname = 'alicia'\n");
            wait_until(&hub, |state| has_error(state).is_none()).await;
            file.abort();
        };
        let logged = logged_codes(|| block_on(followed));
        assert_eq!(logged, [&daemon::OVERRIDES_NOT_APPLIED; 2]);
    }
}
