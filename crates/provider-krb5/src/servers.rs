//! The KDCs of a realm: which is there, and which is asked first.
//!
//! libkrb5 asks one after the other, and waits for each. That a request has no answer yet may be one
//! silent KDC's doing. So nobody is away before all have been asked, side by side, and none has answered.

use crate::helper::Line;
use crate::presence::Presence;
use crate::{NOBODY, request};
use roster_krb5::message::{Reply, Request, Want};
use roster_krb5::outcome::Outcome;
use roster_krb5::realm::Realm;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long one address may take to say that it is there: by UDP, and a second later by TCP.
const PROBE: Duration = Duration::from_millis(1500);
/// Between the first two tries whether a KDC is back.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Between any two.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// For how long the one that answered is asked first. Then the order of the configuration is tried again.
const PREFERRED: Duration = Duration::from_secs(600);

/// A realm's KDCs, and the program that asks them.
pub struct Servers {
    line: Arc<Line>,
    realm: Realm,
    /// How long a KDC that is there may take.
    timeout: Duration,
    presence: Presence,
    /// The one that is asked first, and until when.
    preferred: Mutex<Option<(String, Instant)>>,
    /// One at a time looks around.
    turn: tokio::sync::Mutex<()>,
}

/// What is found by looking around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A KDC answers.
    Somebody,
    /// None does.
    Nobody,
    /// Not all could be asked.
    Unclear,
}

impl Servers {
    pub fn new(line: Arc<Line>, realm: Realm, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            line,
            realm,
            timeout,
            presence: Presence::default(),
            preferred: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Returns when the program has ended by itself.
    pub async fn ended(&self) {
        self.line.ended().await;
    }

    /// Puts a request. [`Outcome::Unreachable`] is said only when no KDC at all answers; they are looked at
    /// when this one has not been answered for as long as `patience`.
    pub async fn ask(self: &Arc<Self>, mut request: Request, patience: Duration) -> Reply {
        if let Some(since) = self.presence.away() {
            let seconds = since.as_secs();
            let why =
                format!("no KDC has answered for {seconds} s; they are asked again meanwhile");
            return Reply { is_undone: true, ..Reply::of(0, Outcome::Unreachable, why) };
        }
        request.realm = self.preferred_realm();
        let begun = Instant::now();
        let asked = self.line.ask(request);
        tokio::pin!(asked);
        let reply = match timeout(patience, &mut asked).await {
            Ok(reply) => reply,
            // It is busy rather than away; but another one may be quicker with the next request.
            Err(_) if self.presence.answered_lately() => {
                let servers = Arc::clone(self);
                tokio::spawn(async move { servers.look_around(begun).await });
                asked.await
            }
            Err(_) => match self.look_around(begun).await {
                Found::Nobody => {
                    let why = "no KDC has answered in time";
                    self.are_away(why);
                    return Reply::of(0, Outcome::Unreachable, why);
                }
                // What was put to one KDC is not put to another as well: a wrong password would count twice.
                Found::Somebody | Found::Unclear => asked.await,
            },
        };
        match reply.outcome {
            Outcome::Unreachable => {}
            // DNS may not have been there to name a KDC.
            Outcome::Misconfigured if self.realm.discover => {}
            // It did not get as far.
            Outcome::Failed => return reply,
            _ => {
                self.presence.has_answered();
                return reply;
            }
        }
        if self.look_around(begun).await == Found::Nobody {
            self.are_away(&reply.detail);
            return Reply { outcome: Outcome::Unreachable, ..reply };
        }
        if reply.outcome == Outcome::Misconfigured {
            return reply;
        }
        let why = format!("{}, but not every KDC is known to be away", reply.detail);
        Reply { is_undone: reply.is_undone, ..Reply::of(reply.id, Outcome::Failed, why) }
    }

    fn are_away(self: &Arc<Self>, why: &str) {
        if self.presence.is_away_now() {
            tracing::warn!("no KDC of {} answers: {why}", self.realm.name);
            tokio::spawn(Arc::clone(self).look_for());
        }
    }

    /// The realm with the KDC that answered last in front; none for the order of the configuration.
    fn preferred_realm(&self) -> Option<Realm> {
        let mut preferred = self.preferred.lock().unwrap_or_else(PoisonError::into_inner);
        if preferred.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
            *preferred = None;
        }
        preferred.as_ref().map(|(kdc, _)| self.realm.clone().with_first(kdc))
    }

    fn prefer(&self, kdc: String) {
        let until = Instant::now() + PREFERRED;
        *self.preferred.lock().unwrap_or_else(PoisonError::into_inner) = Some((kdc, until));
    }

    /// Asks all, unless somebody has found out since then.
    async fn look_around(self: &Arc<Self>, since: Instant) -> Found {
        let _turn = self.turn.lock().await;
        if self.presence.away().is_some() {
            return Found::Nobody;
        }
        if self.presence.answered_since(since) {
            return Found::Somebody;
        }
        self.ask_all().await
    }

    async fn ask_all(self: &Arc<Self>) -> Found {
        let mut asked = JoinSet::new();
        for kdc in self.realm.kdcs.clone() {
            asked.spawn(Arc::clone(self).ask_host(kdc));
        }
        if self.realm.discover {
            asked.spawn(Arc::clone(self).ask_those_of_dns());
        }
        self.first(&mut asked).await
    }

    /// What the first says that is somebody, or all together.
    async fn first(&self, asked: &mut JoinSet<Found>) -> Found {
        let mut found = Found::Nobody;
        while let Some(said) = asked.join_next().await {
            match said {
                Ok(Found::Somebody) => return Found::Somebody,
                Ok(Found::Nobody) => {}
                Ok(Found::Unclear) | Err(_) => found = Found::Unclear,
            }
        }
        found
    }

    /// Each address of a host by itself.
    async fn ask_host(self: Arc<Self>, kdc: String) -> Found {
        let addresses = match timeout(self.timeout, lookup_host(&kdc)).await {
            Ok(Ok(addresses)) => addresses.map(|address| address.to_string()).collect(),
            _ => Vec::new(),
        };
        if addresses.is_empty() {
            return self.ask_one(kdc, self.timeout).await;
        }
        let mut asked = JoinSet::new();
        for address in addresses {
            let servers = Arc::clone(&self);
            asked.spawn(async move { servers.ask_one(address, PROBE).await });
        }
        self.first(&mut asked).await
    }

    async fn ask_one(&self, kdc: String, deadline: Duration) -> Found {
        let found = self.probe(self.realm.clone().with_only(&kdc), deadline).await;
        if found == Found::Somebody {
            self.prefer(kdc);
        }
        found
    }

    /// libkrb5 alone knows these, and asks them one after the other.
    async fn ask_those_of_dns(self: Arc<Self>) -> Found {
        let realm = Realm { kdcs: Vec::new(), ..self.realm.clone() };
        self.probe(realm, self.timeout).await
    }

    async fn probe(&self, realm: Realm, deadline: Duration) -> Found {
        let mut probe = request(NOBODY, Want::Presence, b"none", b"", deadline);
        probe.realm = Some(realm);
        match self.line.ask(probe).await.outcome {
            Outcome::Unreachable => Found::Nobody,
            Outcome::Failed => Found::Unclear,
            _ => {
                self.presence.has_answered();
                Found::Somebody
            }
        }
    }

    /// Asks all again until one answers.
    async fn look_for(self: Arc<Self>) {
        let mut pause = PROBE_PAUSE;
        loop {
            sleep(pause).await;
            if self.ask_all().await == Found::Somebody {
                tracing::info!("a KDC answers again");
                return;
            }
            pause = (pause * 2).min(PROBE_PAUSE_MAX);
        }
    }
}
