// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the controllers of an Active Directory domain: SRV records, and the site of this host from a netlogon ping.
//!
//! Decides neither about trust nor about connections: [`server_selection`](crate::server_selection) ranks the servers.
//! A ping and its reply are not authentic. A forged reply can make this host use a distant controller, and no other.

use crate::dns_services::{SrvRecord, SrvReply, query_srv, resolver, service_name};
use crate::message::printable;
use crate::netlogon::{ControllerReply, PingError, REPLY_BYTES_MAX, encode_ping, parse_reply};
use hickory_resolver::TokioResolver;
use parking_lot::Mutex;
use roster_config::ControllerDiscovery;
use roster_messages::{log, table::directory};
use roster_provider::reason::Reason;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time for which a site is valid. A host seldom moves, and a controller replies within milliseconds.
const SITE_VALID: Duration = Duration::from_secs(900);
/// Time before the next round of pings, if no controller replied.
const SITE_RETRY: Duration = Duration::from_secs(60);
/// Limit of controllers in one round of pings.
const PINGS_MAX: usize = 10;
/// Pause before the next controller gets a ping beside the first.
const PING_STAGGER: Duration = Duration::from_millis(100);
/// Duration of a round. The limit of all queries is 3 s, and DNS needs a part of it.
const PING_ROUND: Duration = Duration::from_millis(1500);
/// Timeout of one address of a controller.
const ADDRESS_WAIT: Duration = Duration::from_millis(700);
/// Limit of addresses of one controller.
const ADDRESSES_MAX: usize = 2;

/// The controllers of a domain, as DNS lists them.
pub struct LocatedControllers {
    /// The controllers that serve the site of this host.
    pub of_site: Vec<SrvRecord>,
    /// All controllers of the domain.
    pub of_domain: Vec<SrvRecord>,
    /// End of the validity of both lists.
    pub valid_until: Instant,
}

/// Finds the controllers of one domain.
pub struct ControllerLocator {
    domain: String,
    configured_site: Option<String>,
    location: Mutex<ClientLocation>,
    /// Servers that belong to another domain, each with its problem.
    foreign: Mutex<BTreeMap<(String, u16), String>>,
    random: RandomState,
}

/// The site of this host, as a controller reported it.
struct ClientLocation {
    site: Option<String>,
    valid_until: Instant,
    /// The last problem that was logged.
    complaint: Option<Reason>,
}

impl ControllerLocator {
    /// Makes the locator of a domain. Sends nothing yet.
    pub fn new(domain: &str, discovery: &ControllerDiscovery) -> Self {
        Self {
            domain: domain.trim_end_matches('.').to_owned(),
            configured_site: discovery.site.clone(),
            location: Mutex::new(ClientLocation {
                site: None,
                valid_until: Instant::now(),
                complaint: None,
            }),
            foreign: Mutex::default(),
            random: RandomState::new(),
        }
    }

    /// Returns the site in use. `None` if it is not known.
    pub fn site(&self) -> Option<String> {
        self.configured_site.clone().or_else(|| self.location.lock().site.clone())
    }

    /// Ends the validity of the site, because this host may be in another network.
    pub fn expire_site(&self) {
        self.location.lock().valid_until = Instant::now();
    }

    /// Queries DNS for the controllers, and pings them if the site is not known or not valid any more.
    pub async fn locate(&self) -> Result<LocatedControllers, String> {
        let resolver = resolver()?;
        let name = service_name("_ldap._tcp.dc._msdcs", &self.domain)?;
        let all = query_srv(&resolver, name).await?;
        let mut valid_until = all.valid_until;
        if self.configured_site.is_none() {
            if self.location.lock().valid_until <= Instant::now() {
                self.update_site(&resolver, &all.records).await;
            }
            valid_until = valid_until.min(self.location.lock().valid_until);
        }
        let of_site = match self.site() {
            Some(site) => {
                let reply = self.query_site(&resolver, &site).await?;
                valid_until = valid_until.min(reply.valid_until);
                reply.records
            }
            None => Vec::new(),
        };
        let own = |records: Vec<SrvRecord>| -> Vec<SrvRecord> {
            let foreign = self.foreign.lock();
            let is_own = |record: &SrvRecord| !foreign.contains_key(&key(record));
            records.into_iter().filter(is_own).collect()
        };
        Ok(LocatedControllers { of_site: own(of_site), of_domain: own(all.records), valid_until })
    }

    async fn query_site(&self, resolver: &TokioResolver, site: &str) -> Result<SrvReply, String> {
        let labels = format!("_ldap._tcp.{site}._sites.dc._msdcs");
        query_srv(resolver, service_name(&labels, &self.domain)?).await
    }

    /// Pings controllers until one reports the site of this host. Without a reply, the last site stays in use.
    async fn update_site(&self, resolver: &TokioResolver, controllers: &[SrvRecord]) {
        let begun = Instant::now();
        let reply = self.ping_round(resolver, controllers).await;
        let mut location = self.location.lock();
        let Some(ControllerReply { client_site, host, .. }) = reply else {
            location.valid_until = begun + SITE_RETRY;
            if !controllers.is_empty() {
                let text = format!("no controller of {} replies to a ping", self.domain);
                location.log_once(Reason::new(&directory::CONTROLLERS_SILENT, text));
            }
            return;
        };
        location.valid_until = begun + SITE_VALID;
        let site = Some(client_site).filter(|site| !site.is_empty());
        match &site {
            None => {
                let text = format!("{} assigns no site to the address of this host", self.domain);
                location.log_once(Reason::new(&directory::SITE_MISSING, text));
            }
            Some(site) if location.site.as_ref() != Some(site) => {
                let (site, host) = (printable(site.as_bytes()), printable(host.as_bytes()));
                tracing::info!("site of this host: {site}, reported by {host}");
                location.complaint = None;
            }
            Some(_) => location.complaint = None,
        }
        location.site = site;
    }

    /// Sends pings to one controller after the other, and returns the first reply.
    async fn ping_round(
        &self,
        resolver: &TokioResolver,
        controllers: &[SrvRecord],
    ) -> Option<ControllerReply> {
        let end = Instant::now() + PING_ROUND;
        let mut rest: Vec<SrvRecord> = controllers.to_vec();
        // Each host has another order, so that the hosts do not send all pings to one controller.
        rest.sort_by_cached_key(|record| (record.priority, self.random.hash_one(key(record))));
        let mut rest = rest.into_iter().take(PINGS_MAX);
        let mut pings = JoinSet::new();
        loop {
            if let Some(record) = rest.next() {
                let (resolver, domain) = (resolver.clone(), self.domain.clone());
                let id = (self.random.hash_one((key(&record), Instant::now())) >> 33) as u32;
                pings.spawn(async move {
                    let reply = ping(&resolver, &record, &domain, id).await;
                    (record, reply)
                });
            }
            let is_last = rest.len() == 0;
            tokio::select! {
                done = pings.join_next() => match done {
                    Some(Ok((record, reply))) => {
                        if let Some(reply) = self.judge(&record, reply) {
                            return Some(reply);
                        }
                    }
                    Some(Err(_)) => {}
                    None if is_last => return None,
                    None => {}
                },
                () = sleep(PING_STAGGER), if !is_last => {}
                () = sleep_until(end) => return None,
            }
        }
    }

    /// Returns a usable reply. Records a server that belongs to another domain.
    fn judge(
        &self,
        record: &SrvRecord,
        reply: Result<ControllerReply, PingFailure>,
    ) -> Option<ControllerReply> {
        let mut foreign = self.foreign.lock();
        match reply {
            Ok(reply) => {
                foreign.remove(&key(record));
                Some(reply)
            }
            Err(PingFailure::Reply(
                error @ (PingError::ForeignDomain { .. } | PingError::NoEntry),
            )) => {
                let server = format!("{}:{}", record.host, record.port);
                let text = printable(format!("controller {server}: {error}").as_bytes());
                if foreign.insert(key(record), text.clone()).as_ref() != Some(&text) {
                    log!(WARN, &directory::CONTROLLER_FOREIGN, "{text}");
                }
                None
            }
            Err(error) => {
                tracing::debug!(server = record.host, %error, "no reply to a ping");
                None
            }
        }
    }
}

impl ClientLocation {
    /// Logs each problem once.
    fn log_once(&mut self, complaint: Reason) {
        if self.complaint.as_ref() != Some(&complaint) {
            log!(WARN, complaint.message, "{complaint}");
            self.complaint = Some(complaint);
        }
    }
}

fn key(record: &SrvRecord) -> (String, u16) {
    (record.host.clone(), record.port)
}

/// The reason that a ping has no result.
#[derive(Debug, thiserror::Error)]
enum PingFailure {
    /// The host has no address.
    #[error("host name cannot be resolved: {0}")]
    Resolve(String),
    /// The datagram cannot be sent, or the host refuses it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No reply arrived in time.
    #[error("no reply")]
    Silent,
    /// The reply is not usable.
    #[error(transparent)]
    Reply(#[from] PingError),
}

/// Pings the addresses of a controller, one after the other.
async fn ping(
    resolver: &TokioResolver,
    record: &SrvRecord,
    domain: &str,
    id: u32,
) -> Result<ControllerReply, PingFailure> {
    let addresses = resolver.lookup_ip(format!("{}.", record.host)).await;
    let addresses = addresses.map_err(|error| PingFailure::Resolve(error.to_string()))?;
    let mut failure = PingFailure::Silent;
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let address = SocketAddr::new(address, record.port);
        let pinged = timeout(ADDRESS_WAIT, ping_address(address, domain, id)).await;
        match pinged.unwrap_or(Err(PingFailure::Silent)) {
            Ok(reply) => return Ok(reply),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn ping_address(
    address: SocketAddr,
    domain: &str,
    id: u32,
) -> Result<ControllerReply, PingFailure> {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // A connected socket receives datagrams of this address only.
    socket.connect(address).await?;
    socket.send(&encode_ping(id, domain)).await?;
    let mut datagram = [0; REPLY_BYTES_MAX];
    loop {
        let length = socket.recv(&mut datagram).await?;
        match parse_reply(datagram.get(..length).unwrap_or_default(), id, domain) {
            Err(PingError::OtherRequest) => {}
            reply => return Ok(reply?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(host: &str) -> SrvRecord {
        SrvRecord { priority: 0, weight: 100, port: 389, host: host.to_owned() }
    }

    fn locator(site: Option<&str>) -> ControllerLocator {
        let discovery = ControllerDiscovery { site: site.map(str::to_owned) };
        ControllerLocator::new("lab.test.", &discovery)
    }

    fn reply(site: &str) -> ControllerReply {
        ControllerReply {
            flags: 0,
            domain_guid: [0; 16],
            forest: String::new(),
            domain: "lab.test".to_owned(),
            host: "dc1.lab.test".to_owned(),
            netbios_domain: String::new(),
            netbios_host: String::new(),
            server_site: String::new(),
            client_site: site.to_owned(),
        }
    }

    #[tokio::test]
    async fn controllers_foreign_server_is_left_out() {
        let locator = locator(None);
        let (own, other) = (record("dc1.lab.test"), record("dc2.lab.test"));
        let foreign = PingError::ForeignDomain {
            host: "dc.corp.test".to_owned(),
            found: "corp.test".to_owned(),
            expected: "lab.test".to_owned(),
        };
        assert_eq!(locator.judge(&other, Err(foreign.into())), None);
        assert_eq!(locator.judge(&own, Ok(reply("Berlin"))), Some(reply("Berlin")));
        let problem = locator.foreign.lock().get(&key(&other)).cloned().expect("a problem");
        assert_eq!(
            problem,
            "controller dc2.lab.test:389: the server dc.corp.test belongs to the domain corp.test, expected lab.test"
        );
        assert!(!locator.foreign.lock().contains_key(&key(&own)));
        // A right reply ends that.
        assert!(locator.judge(&other, Ok(reply("Berlin"))).is_some());
        assert!(locator.foreign.lock().is_empty());
        // Silence is not a foreign domain.
        assert_eq!(locator.judge(&other, Err(PingFailure::Silent)), None);
        assert!(locator.foreign.lock().is_empty());
    }

    #[test]
    fn controllers_configured_site_wins() {
        let locator = locator(Some("Paris"));
        locator.location.lock().site = Some("Berlin".to_owned());
        assert_eq!(locator.site().as_deref(), Some("Paris"));
    }

    #[tokio::test]
    async fn controllers_silent_round_keeps_site() {
        let locator = locator(None);
        locator.location.lock().site = Some("Berlin".to_owned());
        let resolver = resolver().expect("a resolver");
        let expired = locator.location.lock().valid_until;
        locator.update_site(&resolver, &[]).await;
        assert_eq!(locator.site().as_deref(), Some("Berlin"));
        let valid = locator.location.lock().valid_until;
        assert!(valid > expired, "{valid:?}, {expired:?}");
        assert_eq!(locator.location.lock().complaint, None);
        // No name server knows this host.
        locator.update_site(&resolver, &[record("dc.invalid")]).await;
        assert_eq!(locator.site().as_deref(), Some("Berlin"));
        let complaint = locator.location.lock().complaint.clone().expect("a complaint");
        assert_eq!(complaint.message, &directory::CONTROLLERS_SILENT);
        let valid = locator.location.lock().valid_until;
        locator.expire_site();
        let expired = locator.location.lock().valid_until;
        assert!(expired < valid, "{expired:?}, {valid:?}");
    }
}
