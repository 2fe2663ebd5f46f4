// SPDX-License-Identifier: MIT OR Apache-2.0
//! A backend's interface on the bus. It only converts calls and replies: `engine`, `auth` and `on_demand_fetch` do the
//! work.

use super::auth::{self, DomainAuthenticator, LoginService};
use super::engine::{Engine, EngineStatus, OnDemandEntry, text_and_code};
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
use roster_messages::{RequestNumber, log, table};
use roster_provider::authenticator::AuthOutcome;
use roster_provider::reason::Reason;
use roster_provider::{DirectoryLocation, LookupQuery, Provider};
use roster_request::AuthResult;
use roster_request::LookupKind;
use roster_role::requests;
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

    /// Returns the fault of KDC verification and its code, if it has this effect: it refuses logins, or only warns.
    /// Empty otherwise.
    fn unverified_kdcs(&self, is_refused: bool) -> (String, String) {
        let found = self.unverified.as_ref().filter(|found| found.is_refused == is_refused);
        text_and_code(found.map(|found| Reason::new(found.message, found.what.clone())).as_ref())
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
            return Err(BusError::Busy(format!("{IMAGES_MAX} images are being created")));
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
        let query = LookupQuery::new(kind, name, id);
        let work = self.fetcher.lookup(trace, &query);
        let found = RequestNumber(trace.request).scope(work).await;
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
            return Err(BusError::Invalid(format!(
                "at most {LOOKUPS_PER_CALL_MAX} lookups per call"
            )));
        }
        let queries = questions
            .into_iter()
            .map(|(kind, name, id)| Ok(LookupQuery::new(lookup_kind(kind)?, name, id)))
            .collect::<Result<Vec<_>, BusError>>()?;
        let work = self.fetcher.lookup_all(trace, &queries);
        let found = RequestNumber(trace.request).scope(work).await;
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
                let work = async {
                    let answer = self.login.authenticate(&who, password).await;
                    auth::to_bus_reply(&who, "login", answer)
                };
                requests::number_of_call(who.request).scope(work).await
            }
            _ => Err(BusError::Invalid("expected one password".into())),
        }
    }

    async fn account(&self, who: LoginRequest) -> Result<AuthReply, BusError> {
        let work = async {
            let answer = self.login.check_account(&who).await;
            auth::to_bus_reply(&who, "account", answer)
        };
        requests::number_of_call(who.request).scope(work).await
    }

    async fn change_password(
        &self,
        who: LoginRequest,
        secrets: OwnedFd,
    ) -> Result<AuthReply, BusError> {
        let secrets = receive_secrets(&secrets)?;
        let work = async {
            let answer = match secrets.as_slice() {
                [password] => self.login.prepare_change(&who, password).await,
                [password, new] => self.login.change_password(&who, password, new).await,
                _ => return Err(BusError::Invalid("expected one or two passwords".into())),
            };
            auth::to_bus_reply(&who, "change of password", answer)
        };
        requests::number_of_call(who.request).scope(work).await
    }

    async fn explain_access(&self, who: LoginRequest) -> AccessExplanation {
        requests::number_of_call(who.request).scope(self.login.explain(&who)).await
    }

    async fn ssh_keys(&self, who: LoginRequest) -> Result<Vec<String>, BusError> {
        let work = async {
            match self.login.ssh_keys(&who).await {
                Ok(keys) => Ok(keys),
                Err(AuthOutcome {
                    result: AuthResult::Unreachable | AuthResult::Misconfigured,
                    reason,
                    message,
                    ..
                }) => Err(BusError::Unavailable(match message {
                    Some(message) => Reason::new(message, reason).with_code(),
                    None => reason,
                })),
                Err(refused) => {
                    auth::log_refusal(&who, "ssh keys", &refused);
                    Ok(Vec::new())
                }
            }
        };
        requests::number_of_call(who.request).scope(work).await
    }

    async fn credentials(&self) -> Result<Vec<CredentialInfo>, BusError> {
        let listed = self.login.offline().list();
        let listed = listed.map_err(|error| {
            let reason = Reason::new(error.message(), error.to_string());
            BusError::Unavailable(reason.with_code())
        })?;
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
        let work = self.login.offline().forget(&name);
        let forgotten = requests::admin_request("forget credentials", work).await;
        forgotten.map_err(|error| BusError::Unavailable(error.reason().with_code()))
    }

    async fn status(&self) -> DomainStatus {
        let offline = self.login.offline();
        let (credentials_error, credentials_code) = text_and_code(offline.store_fault().as_ref());
        let (clock_error, clock_code) = text_and_code(offline.clock_fault().as_ref());
        let (login_error, login_error_code) = self.unverified_kdcs(true);
        let (login_warning, login_warning_code) = self.unverified_kdcs(false);
        let DirectoryLocation { site, near, distant } = self.provider.location();
        DomainStatus {
            credentials_error,
            credentials_code,
            clock_error,
            clock_code,
            provider: self.provider_name.into(),
            tracking: self
                .provider
                .tracking_method()
                .map_or_else(String::new, |method| method.to_string()),
            login_error,
            login_error_code,
            login_warning,
            login_warning_code,
            referrals: self.provider.referred_servers(),
            site: site.unwrap_or_default(),
            found_servers: near,
            distant_servers: distant,
            foreign_members: self.provider.foreign_members(),
            ..self.engine.status()
        }
    }

    async fn refresh(&self) {
        requests::admin_request("refresh", async { self.provider.refresh() }).await;
    }

    async fn confirm(&self) -> Result<(u64, u64), BusError> {
        let absences = self.fetcher.absences();
        let confirmed = requests::admin_request("approve removals", absences.confirm()).await;
        confirmed.map_err(|unanswered| {
            let reason = unanswered.into_reason();
            BusError::Unavailable(reason.for_object("nothing was removed").with_code())
        })
    }

    async fn rejected(&self, from: u32, at_most: u32) -> Vec<RejectedEntry> {
        self.engine.rejections(from, at_most.min(REJECTED_PER_REPLY_MAX))
    }

    async fn expire(&self, kind: u32, name: Vec<u8>) -> Result<bool, BusError> {
        let kind = lookup_kind(kind)?;
        match kind {
            _ if name.is_empty() => {
                requests::admin_request("expire", async { self.fetcher.expire_all() }).await;
                Ok(true)
            }
            LookupKind::UserByName | LookupKind::GroupByName => {
                let query = LookupQuery::new(kind, name, 0);
                requests::admin_request("expire", self.fetcher.expire(&query)).await
            }
            LookupKind::UserByUid | LookupKind::GroupByGid | LookupKind::GroupsOf => {
                Err(BusError::Invalid("expected the name of a user or a group".into()))
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
                    match &now.reason {
                        None => tracing::info!("online: {}", now.server),
                        Some(reason) => log!(
                            WARN,
                            &table::directory::SERVERS_PASSED_OVER,
                            "online: {}; other servers failed: {}",
                            now.server,
                            reason.with_code()
                        ),
                    }
                    BackendObject::<P>::domain_online(&emitter, domain, &now.server).await?;
                }
                Some(false) => {
                    let unknown = || Reason::new(&table::directory::NO_REPLY, "no reply yet");
                    let reason = now.reason.clone().unwrap_or_else(unknown);
                    log!(WARN, reason.message, "offline: {reason}");
                    BackendObject::<P>::domain_offline(&emitter, domain, &reason.text).await?;
                }
                None => {}
            }
        } else if now.reason != told.reason {
            // Reasons may alternate while it lasts; the status has the latest.
            tracing::debug!(online = now.online, "new reason: {:?}", now.reason);
        }
        told = now;
        if news.changed().await.is_err() {
            return Ok(());
        }
    }
}
