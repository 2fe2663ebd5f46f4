//! A backend's interface on the bus.

use super::auth::{self, DomainAuthenticator, LoginService};
use super::engine::{Engine, EngineStatus, OnDemandEntry};
use super::offline_auth::CredentialSummary;
use super::on_demand_fetch::OnDemandFetcher;
use roster_bus::interfaces::{
    AccessExplanation, AuthReply, BusError, CALL_DEADLINE, CredentialInfo, DomainStatus,
    LOOKUPS_PER_CALL_MAX, LoginRequest, REJECTED_PER_REPLY_MAX, RejectedEntry, TraceContext,
    lookup_kind,
};
use roster_bus::secret_pipe;
use roster_bus::zbus::{self, OwnedFd, interface, object_server::SignalEmitter};
use roster_config::VerificationProblem;
use roster_provider::authenticator::AuthOutcome;
use roster_provider::{LookupQuery, Provider};
use roster_request::AuthResult;
use roster_request::LookupKind;
use roster_role::usdt_probes::{BackendProbe, CallKind, ProbeOutcome};
use roster_secret::Secret;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Concurrent images. There is one publisher.
const IMAGES_MAX: usize = 2;

pub struct BackendObject<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    fetcher: Arc<OnDemandFetcher<P>>,
    login: Arc<LoginService<DomainAuthenticator>>,
    /// The name of the provider in the configuration.
    provider_name: &'static str,
    probe: Arc<BackendProbe>,
    unverified: Option<VerificationProblem>,
    images: Semaphore,
}

impl<P: Provider + 'static> BackendObject<P> {
    pub fn new(
        engine: Arc<Engine>,
        provider: Arc<P>,
        asking: Arc<OnDemandFetcher<P>>,
        log_ins: Arc<LoginService<DomainAuthenticator>>,
        provider_name: &'static str,
        place: Arc<BackendProbe>,
        unverified: Option<VerificationProblem>,
    ) -> Self {
        Self {
            engine,
            provider,
            fetcher: asking,
            login: log_ins,
            provider_name,
            probe: place,
            unverified,
            images: Semaphore::new(IMAGES_MAX),
        }
    }

    /// Returns the fault of KDC verification, if it has this effect: it refuses logins, or only warns. Empty otherwise.
    fn unverified_kdcs(&self, is_refused: bool) -> String {
        let found = self.unverified.as_ref().filter(|found| found.is_refused == is_refused);
        found.map(|found| found.what.clone()).unwrap_or_default()
    }

    fn lookup_reply(
        &self,
        trace: TraceContext,
        found: Result<OnDemandEntry, BusError>,
    ) -> Result<(u64, u64, Vec<u8>), BusError> {
        let outcome = ProbeOutcome::from_result(&found, |found| !found.records.is_empty());
        self.probe.answered(trace, outcome);
        let OnDemandEntry { sequence, records } = found?;
        Ok((self.engine.epoch(), sequence, records))
    }
}

#[interface(name = "org.roster.Backend1")]
impl<P: Provider + 'static> BackendObject<P> {
    async fn fetch(&self, epoch: u64, since: u64) -> Result<OwnedFd, BusError> {
        let Ok(Ok(_permit)) = timeout(CALL_DEADLINE, self.images.acquire()).await else {
            return Err(BusError::Busy(format!("{IMAGES_MAX} images are being made")));
        };
        let view = self.engine.view(epoch, since);
        let view = view.map_err(|none| BusError::Unavailable(none.to_string()))?;
        // The publisher's entries must not go back in time if this process is killed.
        self.engine.wait_until_committed().await;
        let image = spawn_blocking(move || view.write()).await;
        match image {
            Ok(Ok(image)) => Ok(image.into()),
            Ok(Err(error)) => Err(BusError::Unavailable(error.to_string())),
            Err(error) => Err(BusError::Unavailable(error.to_string())),
        }
    }

    async fn look_up(
        &self,
        trace: TraceContext,
        kind: u32,
        name: Vec<u8>,
        id: u32,
    ) -> Result<(u64, u64, Vec<u8>), BusError> {
        let kind = lookup_kind(kind)?;
        self.probe.received(trace, CallKind::from_kind(kind));
        let found = self.fetcher.lookup(trace, &LookupQuery::new(kind, name, id)).await;
        self.engine.wait_until_committed().await;
        self.lookup_reply(trace, found)
    }

    async fn look_up_all(
        &self,
        trace: TraceContext,
        questions: Vec<(u32, Vec<u8>, u32)>,
    ) -> Result<(u64, u64, Vec<u8>), BusError> {
        self.probe.received(trace, CallKind::SEVERAL);
        if questions.len() > LOOKUPS_PER_CALL_MAX {
            return Err(BusError::Invalid(format!("ask {LOOKUPS_PER_CALL_MAX} questions at most")));
        }
        let queries = questions
            .into_iter()
            .map(|(kind, name, id)| Ok(LookupQuery::new(lookup_kind(kind)?, name, id)))
            .collect::<Result<Vec<_>, BusError>>()?;
        let found = self.fetcher.lookup_all(trace, &queries).await;
        self.engine.wait_until_committed().await;
        self.lookup_reply(trace, found)
    }

    async fn authenticate(
        &self,
        who: LoginRequest,
        secrets: OwnedFd,
    ) -> Result<AuthReply, BusError> {
        match receive_secrets(&secrets)?.as_slice() {
            [password] => {
                let answer = self.login.authenticate(&who, password).await;
                auth::to_bus_reply(&who, "log-in", answer)
            }
            _ => Err(BusError::Invalid("give one password".into())),
        }
    }

    async fn account(&self, who: LoginRequest) -> Result<AuthReply, BusError> {
        let answer = self.login.check_account(&who).await;
        auth::to_bus_reply(&who, "account", answer)
    }

    async fn change_password(
        &self,
        who: LoginRequest,
        secrets: OwnedFd,
    ) -> Result<AuthReply, BusError> {
        let answer = match receive_secrets(&secrets)?.as_slice() {
            [password] => self.login.prepare_change(&who, password).await,
            [password, new] => self.login.change_password(&who, password, new).await,
            _ => return Err(BusError::Invalid("give the password, and perhaps a new one".into())),
        };
        auth::to_bus_reply(&who, "change of password", answer)
    }

    async fn explain_access(&self, who: LoginRequest) -> AccessExplanation {
        self.login.explain(&who).await
    }

    async fn ssh_keys(&self, who: LoginRequest) -> Result<Vec<String>, BusError> {
        match self.login.ssh_keys(&who).await {
            Ok(keys) => Ok(keys),
            Err(AuthOutcome {
                result: AuthResult::Unreachable | AuthResult::Misconfigured,
                reason,
                ..
            }) => Err(BusError::Unavailable(reason)),
            Err(AuthOutcome { result, reason, .. }) => {
                let (user, outcome) = (who.user.escape_ascii(), result.label());
                tracing::info!(%user, outcome, "no ssh keys: {reason}");
                Ok(Vec::new())
            }
        }
    }

    async fn credentials(&self) -> Result<Vec<CredentialInfo>, BusError> {
        let listed = self.login.offline().list();
        let listed = listed.map_err(|error| BusError::Unavailable(error.to_string()))?;
        let kept = listed.into_iter().map(|one| {
            let CredentialSummary {
                name,
                verified_unix,
                expires_unix,
                failures,
                locked_until_unix,
            } = one;
            CredentialInfo { name, verified_unix, expires_unix, failures, locked_until_unix }
        });
        Ok(kept.collect())
    }

    async fn forget_credentials(&self, name: Vec<u8>) -> Result<u64, BusError> {
        let forgotten = self.login.offline().forget(&name).await;
        forgotten.map_err(|error| BusError::Unavailable(error.to_string()))
    }

    async fn status(&self) -> DomainStatus {
        DomainStatus {
            credentials_error: self.login.offline().store_warning(),
            clock_error: self.login.offline().clock_warning(),
            provider: self.provider_name.into(),
            tracking: self
                .provider
                .tracking_method()
                .map_or_else(String::new, |method| method.to_string()),
            login_error: self.unverified_kdcs(true),
            login_warning: self.unverified_kdcs(false),
            ..self.engine.status()
        }
    }

    async fn refresh(&self) {
        self.provider.refresh();
    }

    async fn confirm(&self) -> Result<(u64, u64), BusError> {
        let confirmed = self.fetcher.absences().confirm().await;
        confirmed.map_err(|unanswered| {
            BusError::Unavailable(format!(
                "the entries cannot be looked for once more, and nothing was removed: {unanswered}"
            ))
        })
    }

    async fn rejected(&self, from: u32, at_most: u32) -> Vec<RejectedEntry> {
        self.engine.rejections(from, at_most.min(REJECTED_PER_REPLY_MAX))
    }

    async fn expire(&self, kind: u32, name: Vec<u8>) -> Result<(), BusError> {
        let kind = lookup_kind(kind)?;
        match kind {
            _ if name.is_empty() => {
                self.fetcher.expire_all();
                Ok(())
            }
            LookupKind::UserByName | LookupKind::GroupByName => {
                self.fetcher.expire(&LookupQuery::new(kind, name, 0)).await
            }
            LookupKind::UserByUid | LookupKind::GroupByGid | LookupKind::GroupsOf => {
                Err(BusError::Invalid("give a user or a group by name".into()))
            }
        }
    }

    #[zbus(signal)]
    async fn changed(emitter: &SignalEmitter<'_>, epoch: u64, sequence: u64) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn domain_online(
        emitter: &SignalEmitter<'_>,
        domain: &str,
        server: &str,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn domain_offline(
        emitter: &SignalEmitter<'_>,
        domain: &str,
        reason: &str,
    ) -> zbus::Result<()>;
}

fn receive_secrets(pipe: &OwnedFd) -> Result<Vec<Secret>, BusError> {
    secret_pipe::receive(pipe).map_err(|error| BusError::Invalid(format!("no passwords: {error}")))
}

/// Signals status changes, starting with the present status. If several changes happen during one signal, the next
/// signal has the last. Ends with the bus connection.
pub async fn send_change_signals<P: Provider + 'static>(
    emitter: SignalEmitter<'static>,
    domain: &str,
    epoch: u64,
    mut news: watch::Receiver<EngineStatus>,
) -> zbus::Result<()> {
    let mut told = EngineStatus::default();
    loop {
        let now = news.borrow_and_update().clone();
        if now.sequence != told.sequence {
            BackendObject::<P>::changed(&emitter, epoch, now.sequence).await?;
        }
        if now.online != told.online || (now.online == Some(true) && now.server != told.server) {
            match now.online {
                Some(true) => {
                    if now.reason.is_empty() {
                        tracing::info!("online: {}", now.server);
                    } else {
                        tracing::warn!(
                            "online: {}, after others failed: {}",
                            now.server,
                            now.reason
                        );
                    }
                    BackendObject::<P>::domain_online(&emitter, domain, &now.server).await?;
                }
                Some(false) => {
                    tracing::warn!("offline: {}", now.reason);
                    BackendObject::<P>::domain_offline(&emitter, domain, &now.reason).await?;
                }
                None => {}
            }
        } else if now.reason != told.reason {
            // Reasons may alternate while it lasts; the status has the latest.
            tracing::debug!(online = now.online, "now for this reason: {}", now.reason);
        }
        told = now;
        if news.changed().await.is_err() {
            return Ok(());
        }
    }
}
