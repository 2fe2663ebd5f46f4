//! The publisher's interface on the bus.

use super::Hub;
use super::build::PASSWD;
use super::on_demand::{Answer, Inquiry, Question, Unavailable, find_user, look_up};
use crate::hops::{self, Outcome};
use crate::role::SNAPSHOT;
use roster_bus::interfaces::{
    Error, FoundUser, Kind, MESSAGE_BYTES_MAX, PublisherStatus, REJECTED_AT_ONCE, Rejected, Shown,
};
use roster_bus::zbus::{self, interface, object_server::SignalEmitter};
use roster_record::{Group, User};
use roster_wire::encode;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long `Publish` waits for the new snapshot.
const PUBLISH_DEADLINE: Duration = Duration::from_secs(9);

/// Longest answer that fits into a message of the bus with what is around it.
#[allow(clippy::cast_possible_truncation)]
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - 4096;

pub(super) struct Object {
    hub: Arc<Hub>,
}

impl Object {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }

    fn note_failure(&self, reason: &str) {
        let mut failures = self.hub.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.note(Instant::now(), reason);
    }
}

/// The answer as the responder sends it on.
fn frame(answer: &Answer) -> Vec<u8> {
    let mut frame = Vec::new();
    let encoded = match answer {
        Answer::Absent => return encode::ABSENT.to_vec(),
        Answer::Gids(gids) => encode::groups(&mut frame, gids.iter().copied()),
        Answer::Group { name, gid, members } => {
            let group = Group { name, passwd: Some(PASSWD), gid: *gid };
            encode::group(&mut frame, &group, members.iter().map(Vec::as_slice))
        }
        Answer::User { name, uid, gid, gecos, dir, shell } => {
            let user = User {
                name,
                passwd: Some(PASSWD),
                uid: *uid,
                gid: *gid,
                gecos: Some(gecos),
                dir: Some(dir),
                shell: Some(shell),
            };
            encode::user(&mut frame, &user)
        }
    };
    // There is such an entry, and it cannot be told.
    if encoded.is_ok() && frame.len() <= FRAME_BYTES_MAX {
        frame
    } else {
        encode::UNAVAILABLE.to_vec()
    }
}

#[interface(name = "org.roster.Publisher1")]
impl Object {
    async fn look_up(
        &self,
        request: u64,
        kind: Kind,
        name: Vec<u8>,
        id: u32,
    ) -> Result<Vec<u8>, Error> {
        hops::publisher_received(request, kind);
        let inquiry = Inquiry { hub: &self.hub, request };
        let answer = look_up(&inquiry, &Question { kind, name, id }).await;
        let outcome = Outcome::of(&answer, |answer| *answer != Answer::Absent);
        if let Err(Unavailable(reason)) = &answer {
            self.note_failure(reason);
        }
        let frame = answer.map(|answer| frame(&answer));
        hops::publisher_answered(request, kind, outcome);
        frame.map_err(|Unavailable(reason)| Error::Unavailable(reason))
    }

    async fn find_user(&self, request: u64, name: Vec<u8>) -> Result<FoundUser, Error> {
        let inquiry = Inquiry { hub: &self.hub, request };
        match find_user(&inquiry, &name).await {
            Ok(Some((domain, uid))) => Ok(FoundUser { domain, name, uid }),
            Ok(None) => Ok(FoundUser::default()),
            Err(Unavailable(reason)) => {
                self.note_failure(&reason);
                Err(Error::Unavailable(reason))
            }
        }
    }

    async fn status(&self) -> Result<PublisherStatus, Error> {
        let domains = self.hub.state.read().await.domain_counts();
        let status = self.hub.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failures = self.hub.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (failed_lookups, reason) = failures.lately(Instant::now());
        let failed_lookup = reason.to_owned();
        Ok(PublisherStatus { domains, failed_lookups, failed_lookup, ..status })
    }

    async fn rejected(
        &self,
        domain: String,
        from: u32,
        at_most: u32,
    ) -> Result<Vec<Rejected>, Error> {
        let state = self.hub.state.read().await;
        let rejected = state.rejected(&domain, from, at_most.min(REJECTED_AT_ONCE));
        rejected.ok_or_else(|| Error::Invalid(format!("there is no domain {domain}")))
    }

    async fn show(&self, kind: Kind, name: Vec<u8>) -> Result<Vec<Shown>, Error> {
        Ok(self.hub.state.read().await.show(kind, &name))
    }

    async fn confirm(&self, domain: String) -> Result<u64, Error> {
        let confirmed = self.hub.state.write().await.confirm(&domain);
        let (position, removals) =
            confirmed.ok_or_else(|| Error::Invalid(format!("there is no domain {domain}")))?;
        self.hub.news[position].notify_one();
        Ok(removals)
    }

    async fn publish(&self) -> Result<u64, Error> {
        let attempted = tokio::time::timeout(PUBLISH_DEADLINE, self.hub.next_attempt()).await;
        let status = self.hub.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match attempted {
            Ok(()) if !status.error.is_empty() => Err(Error::Unavailable(status.error)),
            Ok(()) if !status.waits_for.is_empty() => {
                Err(Error::Unavailable(format!("the next is made when {}", status.waits_for)))
            }
            Ok(()) => Ok(status.generation),
            Err(_) => Err(Error::Unavailable(format!("{SNAPSHOT} is still being written"))),
        }
    }

    #[zbus(signal)]
    pub(super) async fn snapshot_published(
        emitter: &SignalEmitter<'_>,
        generation: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    pub(super) async fn invalidate_user(
        emitter: &SignalEmitter<'_>,
        name: &[u8],
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    pub(super) async fn invalidate_group(
        emitter: &SignalEmitter<'_>,
        name: &[u8],
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    pub(super) async fn invalidate_all(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;
}
