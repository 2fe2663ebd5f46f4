//! A back-end's interface on the bus.

use super::asking::Asking;
use super::engine::{Engine, Found, News};
use super::log_in::{self, Authority, LogIns};
use super::offline::Listed;
use crate::hops::{Outcome, Place, What};
use roster_bus::interfaces::{
    CALL_DEADLINE, DomainStatus, Error, Explained, KeptCredential, Kind, LOOK_UPS_AT_ONCE, LogIn,
    LogInAnswer, REJECTED_AT_ONCE, Rejected, Trace,
};
use roster_bus::secrets;
use roster_bus::zbus::{self, OwnedFd, interface, object_server::SignalEmitter};
use roster_config::Unverified;
use roster_provider::log_in::Answer;
use roster_provider::{LookUp, Provider};
use roster_secret::Secret;
use roster_wire::pam::Verdict;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Images made at a time. There is one publisher.
const IMAGES_MAX: usize = 2;

pub struct Object<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    asking: Arc<Asking<P>>,
    log_ins: Arc<LogIns<Authority>>,
    /// As people write it in the configuration.
    provider_name: &'static str,
    place: Arc<Place>,
    unverified: Option<Unverified>,
    images: Semaphore,
}

impl<P: Provider + 'static> Object<P> {
    pub fn new(
        engine: Arc<Engine>,
        provider: Arc<P>,
        asking: Arc<Asking<P>>,
        log_ins: Arc<LogIns<Authority>>,
        provider_name: &'static str,
        place: Arc<Place>,
        unverified: Option<Unverified>,
    ) -> Self {
        Self {
            engine,
            provider,
            asking,
            log_ins,
            provider_name,
            place,
            unverified,
            images: Semaphore::new(IMAGES_MAX),
        }
    }

    /// The fault of KDC verification that refuses logins, or the one that does not; empty without a fault.
    fn unverified_kdcs(&self, is_refused: bool) -> String {
        let found = self.unverified.as_ref().filter(|found| found.is_refused == is_refused);
        found.map(|found| found.what.clone()).unwrap_or_default()
    }

    fn answer(
        &self,
        trace: Trace,
        found: Result<Found, Error>,
    ) -> Result<(u64, u64, Vec<u8>), Error> {
        let outcome = Outcome::of(&found, |found| !found.records.is_empty());
        self.place.answered(trace, outcome);
        let Found { sequence, records } = found?;
        Ok((self.engine.epoch(), sequence, records))
    }
}

#[interface(name = "org.roster.Backend1")]
impl<P: Provider + 'static> Object<P> {
    async fn fetch(&self, epoch: u64, since: u64) -> Result<OwnedFd, Error> {
        let Ok(Ok(_permit)) = timeout(CALL_DEADLINE, self.images.acquire()).await else {
            return Err(Error::Busy(format!("{IMAGES_MAX} images are being made")));
        };
        let view = self.engine.view(epoch, since);
        let view = view.map_err(|none| Error::Unavailable(none.to_string()))?;
        // What the publisher serves is not to go back if this process is killed.
        self.engine.committed().await;
        let image = spawn_blocking(move || view.write()).await;
        match image {
            Ok(Ok(image)) => Ok(image.into()),
            Ok(Err(error)) => Err(Error::Unavailable(error.to_string())),
            Err(error) => Err(Error::Unavailable(error.to_string())),
        }
    }

    async fn look_up(
        &self,
        trace: Trace,
        kind: Kind,
        name: Vec<u8>,
        id: u32,
    ) -> Result<(u64, u64, Vec<u8>), Error> {
        self.place.received(trace, What::of(kind));
        let found = self.asking.look_up(trace, &question(kind, name, id)).await;
        self.engine.committed().await;
        self.answer(trace, found)
    }

    async fn look_up_all(
        &self,
        trace: Trace,
        questions: Vec<(Kind, Vec<u8>, u32)>,
    ) -> Result<(u64, u64, Vec<u8>), Error> {
        self.place.received(trace, What::SEVERAL);
        if questions.len() > LOOK_UPS_AT_ONCE {
            return Err(Error::Invalid(format!("ask {LOOK_UPS_AT_ONCE} questions at most")));
        }
        let what: Vec<LookUp> =
            questions.into_iter().map(|(kind, name, id)| question(kind, name, id)).collect();
        let found = self.asking.look_up_all(trace, &what).await;
        self.engine.committed().await;
        self.answer(trace, found)
    }

    async fn authenticate(&self, who: LogIn, secrets: OwnedFd) -> Result<LogInAnswer, Error> {
        match received(&secrets)?.as_slice() {
            [password] => {
                let answer = self.log_ins.authenticate(&who, password).await;
                log_in::told(&who, "log-in", answer)
            }
            _ => Err(Error::Invalid("give one password".into())),
        }
    }

    async fn account(&self, who: LogIn) -> Result<LogInAnswer, Error> {
        let answer = self.log_ins.account(&who).await;
        log_in::told(&who, "account", answer)
    }

    async fn change_password(&self, who: LogIn, secrets: OwnedFd) -> Result<LogInAnswer, Error> {
        let answer = match received(&secrets)?.as_slice() {
            [password] => self.log_ins.prepare_change(&who, password).await,
            [password, new] => self.log_ins.change(&who, password, new).await,
            _ => return Err(Error::Invalid("give the password, and perhaps a new one".into())),
        };
        log_in::told(&who, "change of password", answer)
    }

    async fn explain_access(&self, who: LogIn) -> Explained {
        self.log_ins.explain(&who).await
    }

    async fn ssh_keys(&self, who: LogIn) -> Result<Vec<String>, Error> {
        match self.log_ins.ssh_keys(&who).await {
            Ok(keys) => Ok(keys),
            Err(Answer {
                verdict: Verdict::Unreachable | Verdict::Misconfigured, reason, ..
            }) => Err(Error::Unavailable(reason)),
            Err(Answer { verdict, reason, .. }) => {
                let (user, outcome) = (who.user.escape_ascii(), verdict.label());
                tracing::info!(%user, outcome, "no ssh keys: {reason}");
                Ok(Vec::new())
            }
        }
    }

    async fn credentials(&self) -> Result<Vec<KeptCredential>, Error> {
        let listed = self.log_ins.offline().list();
        let listed = listed.map_err(|error| Error::Unavailable(error.to_string()))?;
        let kept = listed.into_iter().map(|one| {
            let Listed { name, verified_unix, expires_unix, failures, locked_until_unix } = one;
            KeptCredential { name, verified_unix, expires_unix, failures, locked_until_unix }
        });
        Ok(kept.collect())
    }

    async fn forget_credentials(&self, name: Vec<u8>) -> Result<u64, Error> {
        let forgotten = self.log_ins.offline().forget(&name).await;
        forgotten.map_err(|error| Error::Unavailable(error.to_string()))
    }

    async fn status(&self) -> DomainStatus {
        DomainStatus {
            credentials_error: self.log_ins.offline().trouble(),
            clock_error: self.log_ins.offline().clock_doubt(),
            provider: self.provider_name.into(),
            tracking: self.provider.tracking().into_owned(),
            login_error: self.unverified_kdcs(true),
            login_warning: self.unverified_kdcs(false),
            ..self.engine.status()
        }
    }

    async fn refresh(&self) {
        self.provider.refresh();
    }

    async fn confirm(&self) -> Result<(u64, u64), Error> {
        let confirmed = self.asking.absences().confirm().await;
        confirmed.map_err(|unanswered| {
            Error::Unavailable(format!(
                "the entries cannot be looked for once more, and nothing was removed: {unanswered}"
            ))
        })
    }

    async fn rejected(&self, from: u32, at_most: u32) -> Vec<Rejected> {
        self.engine.rejections(from, at_most.min(REJECTED_AT_ONCE))
    }

    async fn expire(&self, kind: Kind, name: Vec<u8>) -> Result<(), Error> {
        match kind {
            _ if name.is_empty() => {
                self.asking.expire_all();
                Ok(())
            }
            Kind::UserByName | Kind::GroupByName => {
                self.asking.expire(&question(kind, name, 0)).await
            }
            Kind::UserByUid | Kind::GroupByGid | Kind::GroupsOf => {
                Err(Error::Invalid("give a user or a group by name".into()))
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

fn received(pipe: &OwnedFd) -> Result<Vec<Secret>, Error> {
    secrets::receive(pipe).map_err(|error| Error::Invalid(format!("no passwords: {error}")))
}

fn question(kind: Kind, name: Vec<u8>, id: u32) -> LookUp {
    match kind {
        Kind::UserByName => LookUp::UserByName(name),
        Kind::UserByUid => LookUp::UserByUid(id),
        Kind::GroupByName => LookUp::GroupByName(name),
        Kind::GroupByGid => LookUp::GroupByGid(id),
        Kind::GroupsOf => LookUp::GroupsOf(name),
    }
}

/// Signals what is new, beginning with what is known. Of several changes while one is signalled,
/// the last is told: it includes the others. Ends when the bus does.
pub async fn tell<P: Provider + 'static>(
    emitter: SignalEmitter<'static>,
    domain: &str,
    epoch: u64,
    mut news: watch::Receiver<News>,
) -> zbus::Result<()> {
    let mut told = News::default();
    loop {
        let now = news.borrow_and_update().clone();
        if now.sequence != told.sequence {
            Object::<P>::changed(&emitter, epoch, now.sequence).await?;
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
                    Object::<P>::domain_online(&emitter, domain, &now.server).await?;
                }
                Some(false) => {
                    tracing::warn!("offline: {}", now.reason);
                    Object::<P>::domain_offline(&emitter, domain, &now.reason).await?;
                }
                None => {}
            }
        } else if now.reason != told.reason {
            // Reasons may alternate for as long as it lasts; status has the latest.
            tracing::debug!(online = now.online, "now for this reason: {}", now.reason);
        }
        told = now;
        if news.changed().await.is_err() {
            return Ok(());
        }
    }
}
