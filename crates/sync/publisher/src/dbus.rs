// SPDX-License-Identifier: MIT OR Apache-2.0
//! The publisher's interface on the bus. This module decides nothing: `on_demand` and `state` have the replies.

use super::PublisherTasks;
use super::on_demand::{LookupReply, LookupRequest, RequestLookup, Unavailable, find_user, lookup};
use super::snapshot_build::PASSWD;
use roster_bus::interfaces::{
    BusError, EntryDetails, MESSAGE_BYTES_MAX, PublisherStatus, REJECTED_PER_REPLY_MAX,
    RejectedEntry, ServedUser, lookup_kind,
};
use roster_bus::zbus::{self, interface, object_server::SignalEmitter};
use roster_messages::{CodedError, Message, RequestNumber, table::daemon};
use roster_passwd_format::{Group, User};
use roster_request::LookupKind;
use roster_role::directories::SNAPSHOT_FILE;
use roster_role::requests;
use roster_role::usdt_probes::{self, ProbeOutcome};
use roster_wire::encode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::trace;

/// Longest wait of `Publish` for the new snapshot.
const PUBLISH_DEADLINE: Duration = Duration::from_secs(9);

/// Longest reply that fits into a bus message together with the message header.
#[allow(clippy::cast_possible_truncation)]
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - 4096;

pub(super) struct PublisherObject {
    tasks: Arc<PublisherTasks>,
}

impl PublisherObject {
    pub(super) fn new(hub: Arc<PublisherTasks>) -> Self {
        Self { tasks: hub }
    }

    fn note_failure(&self, reason: &str) {
        let mut failures = self.tasks.failures.lock();
        failures.note(Instant::now(), reason);
    }
}

/// Encodes the reply as the responder forwards it.
fn reply_frame(answer: &LookupReply) -> Vec<u8> {
    let mut frame = Vec::new();
    let encoded = match answer {
        LookupReply::Absent => return encode::ABSENT.to_vec(),
        LookupReply::Gids(gids) => encode::groups(&mut frame, gids.iter().copied()),
        LookupReply::Group { name, gid, members } => {
            let group = Group { name, passwd: Some(PASSWD), gid: *gid };
            encode::group(&mut frame, &group, members.iter().map(Vec::as_slice))
        }
        LookupReply::User { name, uid, gid, gecos, dir, shell } => {
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
    // An entry that cannot be encoded exists all the same, so the reply is not "absent".
    if encoded.is_ok() && frame.len() <= FRAME_BYTES_MAX {
        frame
    } else {
        encode::UNAVAILABLE.to_vec()
    }
}

/// Does a lookup, and logs its result.
async fn log_lookup(
    kind: LookupKind,
    work: impl Future<Output = Result<LookupReply, Unavailable>>,
) -> Result<LookupReply, Unavailable> {
    let start = Instant::now();
    let answer = work.await;
    let result = match &answer {
        Ok(LookupReply::Absent) => "absent",
        Ok(_) => "found",
        Err(Unavailable(reason)) => reason.as_str(),
    };
    trace!(?kind, result, ms = start.elapsed().as_millis(), "lookup");
    answer
}

fn unknown_domain(name: &str) -> BusError {
    let text = format!("{name}: unknown domain");
    BusError::Invalid(CodedError::new(&daemon::DOMAIN_UNKNOWN, text).to_string())
}

fn unavailable(message: &'static Message, text: String) -> BusError {
    BusError::Unavailable(CodedError::new(message, text).to_string())
}

#[interface(name = "org.roster.Publisher1")]
impl PublisherObject {
    async fn look_up(
        &self,
        request: u64,
        kind: u32,
        name: Vec<u8>,
        id: u32,
    ) -> Result<Vec<u8>, BusError> {
        let kind = lookup_kind(kind)?;
        usdt_probes::publisher_received(request, kind);
        let inquiry = RequestLookup { tasks: &self.tasks, request };
        let question = LookupRequest::new(kind, name, id);
        let work = lookup(&inquiry, &question);
        let answer = RequestNumber(request).scope(log_lookup(kind, work)).await;
        let outcome = ProbeOutcome::from_result(&answer, |answer| *answer != LookupReply::Absent);
        if let Err(Unavailable(reason)) = &answer {
            self.note_failure(reason);
        }
        let frame = answer.map(|answer| reply_frame(&answer));
        usdt_probes::publisher_answered(request, kind, outcome);
        frame.map_err(|Unavailable(reason)| BusError::Unavailable(reason))
    }

    async fn find_user(&self, request: u64, name: Vec<u8>) -> Result<ServedUser, BusError> {
        let inquiry = RequestLookup { tasks: &self.tasks, request };
        match RequestNumber(request).scope(find_user(&inquiry, &name)).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Ok(ServedUser::default()),
            Err(Unavailable(reason)) => {
                self.note_failure(&reason);
                Err(BusError::Unavailable(reason))
            }
        }
    }

    async fn status(&self) -> Result<PublisherStatus, BusError> {
        let domains = self.tasks.state.read().await.domain_counts();
        let status = self.tasks.status.lock().clone();
        let mut failures = self.tasks.failures.lock();
        let (failed_lookups, reason) = failures.recent(Instant::now());
        let failed_lookup = reason.to_owned();
        Ok(PublisherStatus { domains, failed_lookups, failed_lookup, ..status })
    }

    async fn rejected(
        &self,
        domain: String,
        from: u32,
        at_most: u32,
    ) -> Result<Vec<RejectedEntry>, BusError> {
        let state = self.tasks.state.read().await;
        let rejected = state.rejected(&domain, from, at_most.min(REJECTED_PER_REPLY_MAX));
        rejected.ok_or_else(|| unknown_domain(&domain))
    }

    async fn show(&self, kind: u32, name: Vec<u8>) -> Result<Vec<EntryDetails>, BusError> {
        let kind = lookup_kind(kind)?;
        let show = async { self.tasks.state.read().await.show_entries(kind, &name) };
        Ok(requests::admin_request("show entries", show).await)
    }

    async fn directory_name(
        &self,
        domain: String,
        kind: u32,
        name: Vec<u8>,
    ) -> Result<Vec<u8>, BusError> {
        let kind = lookup_kind(kind)?;
        let state = self.tasks.state.read().await;
        let found = state.domains.iter().find(|known| known.name == domain);
        let found = found.ok_or_else(|| unknown_domain(&domain))?;
        Ok(found.entries.overrides().native_name(kind, &name).to_vec())
    }

    async fn confirm(&self, domain: String) -> Result<u64, BusError> {
        let confirm = async {
            let confirmed = self.tasks.state.write().await.confirm(&domain);
            let (position, removals) = confirmed.ok_or_else(|| unknown_domain(&domain))?;
            self.tasks.domain_wakeups[position].notify_one();
            Ok::<_, BusError>(removals)
        };
        requests::admin_request("approve removals", confirm).await
    }

    async fn publish(&self) -> Result<u64, BusError> {
        let attempt = tokio::time::timeout(PUBLISH_DEADLINE, self.tasks.wait_for_attempt());
        let attempted = requests::admin_request("publish", attempt).await;
        let status = self.tasks.status.lock().clone();
        match attempted {
            Ok(()) if !status.error.is_empty() => {
                Err(unavailable(&daemon::PUBLISH_FAILED, status.error))
            }
            Ok(()) if !status.waits_for.is_empty() => {
                let text = format!("publication is on hold until {}", status.waits_for);
                Err(unavailable(&daemon::PUBLICATION_WAITS, text))
            }
            Ok(()) => Ok(status.generation),
            Err(_) => {
                let text = format!("{SNAPSHOT_FILE}: still being written");
                Err(unavailable(&daemon::PUBLICATION_RUNNING, text))
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send_signal;
    use crate::tests::tasks;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;
    use std::future::{pending, ready};

    fn has_code<T>(reply: Result<T, BusError>, message: &Message) -> bool {
        let (Err(BusError::Invalid(text)) | Err(BusError::Unavailable(text))) = reply else {
            return false;
        };
        text.ends_with(&format!(" [{message}]"))
    }

    #[tokio::test]
    async fn publisher_request_not_served_has_code() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        let hub = tasks(folder.path(), &bus).await;
        let object = PublisherObject::new(Arc::clone(&hub));
        assert!(has_code(object.rejected("lab".into(), 0, 1).await, &daemon::DOMAIN_UNKNOWN));
        assert!(has_code(object.confirm("lab".into()).await, &daemon::DOMAIN_UNKNOWN));

        let logged = logged_codes(|| {
            hub.record_failure(&anyhow::anyhow!("no space left"));
        });
        assert_eq!(logged, [&daemon::PUBLISH_FAILED]);
        // The attempt after the request ends at once.
        hub.publications.attempts_ended.send_replace(1);
        assert!(has_code(object.publish().await, &daemon::PUBLISH_FAILED));
        // No attempt ends.
        hub.publications.attempts_ended.send_replace(0);
        tokio::time::pause();
        assert!(has_code(object.publish().await, &daemon::PUBLICATION_RUNNING));
    }

    #[test]
    fn signal_not_sent_is_logged() {
        let sent = async {
            send_signal("generation 7", ready(Ok(()))).await;
            send_signal("generation 7", ready(Err(zbus::Error::InvalidReply))).await;
            tokio::time::pause();
            send_signal("generation 7", pending()).await;
        };
        let logged = logged_codes(|| block_on(sent));
        assert_eq!(logged, [&daemon::SIGNAL_NOT_SENT, &daemon::SIGNAL_NOT_SENT]);
    }
}
