// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which servers are tried, and the waits between two rounds. This module opens no connection:
//! `connection` does. `dns_services` and `controllers` query DNS.

use crate::controllers::{ControllerLocator, LocatedControllers};
use crate::dns_services::{SrvRecord, in_order, is_within, query_srv, resolver, service_name};
use parking_lot::Mutex;
use roster_config::{LdapConfig, LdapServer};
use roster_messages::{log, table::directory};
use roster_provider::DirectoryLocation;
use roster_provider::reason::Reason;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The first wait. Most failures are restarts of a server.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Limit of a wait while a server may soon be back. The provider is back within two seconds of the server …
const WAIT_EAGER: Duration = Duration::from_millis(1500);
/// … for this number of rounds, about three minutes.
const EAGER_ROUNDS: u32 = 120;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Formats a server as its URI.
pub fn describe(server: &LdapServer) -> String {
    let bracketed =
        |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match server {
        LdapServer::Ldap { host, port } => format!("ldap://{}:{port}", bracketed(host)),
        LdapServer::Ldaps { host, port } => format!("ldaps://{}:{port}", bracketed(host)),
        LdapServer::Ldapi { path } => format!("ldapi://{}", path.display()),
    }
}

/// Timeout of DNS queries for servers.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(3);
/// The longest time for which a DNS reply counts as valid without another query.
const VALID_FOR_MAX: Duration = Duration::from_secs(3600);

/// A server that may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCandidate {
    /// The server.
    pub server: LdapServer,
    /// Rank in the order of preference. Servers with the same priority in DNS share one, because the provider does not
    /// switch among them.
    pub rank: usize,
}

/// A server from DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DiscoveredServer {
    record: SrvRecord,
    /// The server does not serve the site of this host, and another may. Such servers come last.
    is_distant: bool,
}

impl DiscoveredServer {
    /// Distant servers rank behind each priority of a near one.
    fn rank(&self) -> usize {
        let distance = if self.is_distant { 1 << 16 } else { 0 };
        distance + usize::from(self.record.priority)
    }
}

/// The servers of a domain: first the configured ones, then the servers from DNS.
pub struct ServerSelection {
    configured: Vec<LdapServer>,
    discover: Option<String>,
    /// Finds controllers of Active Directory, in place of SRV records of LDAP servers.
    controllers: Option<ControllerLocator>,
    /// The certificate alone proves that a server belongs to the domain, so any name is allowed.
    trusts_any_name: bool,
    /// The last servers from DNS, in case that it does not reply. An empty reply is also a reply.
    discovered: Mutex<Vec<DiscoveredServer>>,
    /// Time until which the last DNS reply is valid.
    valid_until: Mutex<Instant>,
    /// The last logged problem with DNS.
    last_complaint: Mutex<Option<Reason>>,
    random: RandomState,
}

impl ServerSelection {
    /// Makes the list from a domain's configuration.
    pub fn new(ldap: &LdapConfig) -> Self {
        let locator = |(domain, discovery): (&String, _)| ControllerLocator::new(domain, discovery);
        Self {
            configured: ldap.servers.clone(),
            discover: ldap.discover.clone(),
            controllers: ldap.discover.as_ref().zip(ldap.controllers.as_ref()).map(locator),
            trusts_any_name: ldap.start_tls && ldap.tls_ca.is_some(),
            discovered: Mutex::new(Vec::new()),
            valid_until: Mutex::new(Instant::now()),
            last_complaint: Mutex::default(),
            random: RandomState::new(),
        }
    }

    /// Returns all servers that are known now, the preferred first.
    pub async fn list(&self) -> Vec<ServerCandidate> {
        let configured = self.configured.iter().cloned().enumerate();
        let mut candidates: Vec<ServerCandidate> =
            configured.map(|(rank, server)| ServerCandidate { server, rank }).collect();
        if let Some(domain) = &self.discover {
            let answer = timeout(DISCOVERY_DEADLINE, self.query(domain)).await;
            match answer.unwrap_or_else(|_| Err("no reply in time".to_owned())) {
                Ok(LocatedControllers { of_site, of_domain, valid_until }) => {
                    *self.discovered.lock() = self.ranked(domain, of_site, of_domain);
                    *self.valid_until.lock() = valid_until;
                }
                Err(error) => self.log_once(Reason::new(
                    &directory::DNS_FAILED,
                    format!("DNS query for servers of {domain} failed: {error}"),
                )),
            }
            candidates.extend(self.discovered.lock().iter().map(|found| ServerCandidate {
                server: found.record.server(),
                rank: self.configured.len() + found.rank(),
            }));
        }
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(describe(&candidate.server)));
        candidates
    }

    /// Queries DNS for servers. LDAP servers without sites are all of the domain.
    async fn query(&self, domain: &str) -> Result<LocatedControllers, String> {
        if let Some(controllers) = &self.controllers {
            return controllers.locate().await;
        }
        let reply = query_srv(&resolver()?, service_name("_ldap._tcp", domain)?).await?;
        let (of_domain, valid_until) = (reply.records, reply.valid_until);
        Ok(LocatedControllers { of_site: Vec::new(), of_domain, valid_until })
    }

    /// Returns the trusted servers in order, those of the site first.
    fn ranked(
        &self,
        domain: &str,
        of_site: Vec<SrvRecord>,
        of_domain: Vec<SrvRecord>,
    ) -> Vec<DiscoveredServer> {
        let has_site = !of_site.is_empty();
        let is_near = |one: &SrvRecord| {
            of_site.iter().any(|near| (&near.host, near.port) == (&one.host, one.port))
        };
        let distant: Vec<_> = of_domain.into_iter().filter(|one| !is_near(one)).collect();
        let all = [of_site, distant.clone()].concat();
        let trusted = self.trusted(domain, all);
        let found = trusted.into_iter().map(|record| {
            let is_distant = has_site && distant.contains(&record);
            DiscoveredServer { record, is_distant }
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|one| one.is_distant);
        found
    }

    /// Returns the site of this host and the known servers from DNS.
    pub fn location(&self) -> DirectoryLocation {
        let found = self.discovered.lock();
        let describe = |one: &DiscoveredServer| describe(&one.record.server());
        let (distant, near): (Vec<_>, Vec<_>) = found.iter().partition(|one| one.is_distant);
        DirectoryLocation {
            site: self.controllers.as_ref().and_then(ControllerLocator::site),
            near: near.into_iter().map(describe).collect(),
            distant: distant.into_iter().map(describe).collect(),
        }
    }

    /// Determines the site again before the next use, because no server was reachable.
    pub fn expire_site(&self) {
        if let Some(controllers) = &self.controllers {
            controllers.expire_site();
        }
    }

    /// Returns whether this server has the highest rank, regardless of DNS.
    pub fn is_first(&self, server: &str) -> bool {
        self.configured.first().is_some_and(|first| describe(first) == server)
    }

    /// Returns the remaining validity of the last DNS reply.
    pub fn valid_for(&self) -> Duration {
        let valid_until = *self.valid_until.lock();
        valid_until.saturating_duration_since(Instant::now()).min(VALID_FOR_MAX)
    }

    /// Returns the reason that no server is known.
    pub fn no_servers_reason(&self) -> Reason {
        match &*self.last_complaint.lock() {
            Some(complaint) => complaint.clone().for_object("no server is known"),
            None => {
                let text = "no server is known: `uris` is empty, and DNS names no server";
                Reason::new(&directory::NO_SERVER, text)
            }
        }
    }

    /// DNS is not authentic, and a certificate only proves a name. An attacker that forges replies can name a foreign
    /// host with a valid certificate. A server's name must therefore be within the domain, unless `tls_ca` selects the
    /// authority.
    fn trusted(&self, domain: &str, services: Vec<SrvRecord>) -> Vec<SrvRecord> {
        let (believed, refused): (Vec<_>, Vec<_>) = services
            .into_iter()
            .partition(|service| self.trusts_any_name || is_within(&service.host, domain));
        if refused.is_empty() {
            *self.last_complaint.lock() = None;
        } else {
            let mut hosts: Vec<_> = refused.into_iter().map(|service| service.host).collect();
            hosts.sort_unstable();
            let text = format!("DNS names servers outside {domain}: {}", hosts.join(", "));
            self.log_once(Reason::new(&directory::DNS_NAME_OUTSIDE_DOMAIN, text));
        }
        in_order(believed, &self.random)
    }

    /// Logs each problem once.
    fn log_once(&self, complaint: Reason) {
        let mut before = self.last_complaint.lock();
        if before.as_ref() == Some(&complaint) {
            tracing::debug!("{complaint}");
        } else {
            log!(WARN, complaint.message, "{complaint}");
            *before = Some(complaint);
        }
    }
}

/// The longest wait before a failed server is tried again.
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Servers, by URI, that failed recently. A switch back to such a server interrupts the service of a working one, so
/// each failure doubles the wait.
pub struct ServerFailures {
    first: Duration,
    servers: Mutex<HashMap<String, ServerFailure>>,
}

#[derive(Clone, Copy)]
struct ServerFailure {
    wait: Duration,
    since: Instant,
}

impl ServerFailures {
    /// Returns an empty list with this first wait.
    pub fn new(first: Duration) -> Self {
        Self { first, servers: Mutex::default() }
    }

    /// Records a failure of the server.
    pub fn add(&self, server: &str, now: Instant) {
        let mut servers = self.servers.lock();
        servers.retain(|_, one| now < one.since + one.wait + FAILURE_WAIT_MAX);
        let setback = servers.entry(server.to_owned()).and_modify(|one| one.wait *= 2);
        let setback = setback.or_insert(ServerFailure { wait: self.first, since: now });
        *setback =
            ServerFailure { wait: setback.wait.min(FAILURE_WAIT_MAX.max(self.first)), since: now };
    }

    /// Records a good service of the server.
    pub fn remove(&self, server: &str) {
        self.servers.lock().remove(server);
    }

    /// Returns whether the wait for the server is over.
    pub fn may_retry(&self, server: &str, now: Instant) -> bool {
        self.servers.lock().get(server).is_none_or(|setback| now >= setback.since + setback.wait)
    }
}

/// The waits between rounds. They double, and each has a random length, so that hosts do not reconnect to a restarted
/// server at the same time.
#[derive(Debug)]
pub struct Backoff {
    round: u32,
    random: RandomState,
}

impl Backoff {
    /// Starts with the shortest wait.
    pub fn new() -> Self {
        Self { round: 0, random: RandomState::new() }
    }

    /// Returns the next wait.
    pub fn next(&mut self) -> Duration {
        let share = self.random.hash_one(self.round) as u32;
        let wait = wait(self.round, share);
        self.round = self.round.saturating_add(1);
        wait
    }
}

/// Returns the wait after this number of rounds. `random` selects a value between its half and its whole.
fn wait(round: u32, random: u32) -> Duration {
    let cap = if round < EAGER_ROUNDS { WAIT_EAGER } else { WAIT_MAX };
    let doublings = if round < EAGER_ROUNDS { round } else { round - EAGER_ROUNDS + 3 };
    let whole =
        WAIT_MIN.saturating_mul(1_u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX)).min(cap);
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_caps_and_are_never_more_than_that() {
        assert!(wait(0, 0) == WAIT_MIN / 2 && wait(0, u32::MAX) == WAIT_MIN);
        for round in 0..1000 {
            let (least, most) = (wait(round, 0), wait(round, u32::MAX));
            assert!(least >= WAIT_MIN / 2 && most <= WAIT_MAX && least <= most);
            assert!(round >= EAGER_ROUNDS || most <= WAIT_EAGER, "round {round}");
        }
        assert_eq!(wait(500, u32::MAX), WAIT_MAX);
    }

    fn service(host: &str, priority: u16, weight: u16) -> SrvRecord {
        SrvRecord { priority, weight, port: 389, host: host.to_owned() }
    }

    fn selection(discover: Option<&str>) -> ServerSelection {
        ServerSelection {
            configured: Vec::new(),
            discover: discover.map(str::to_owned),
            controllers: None,
            trusts_any_name: false,
            discovered: Mutex::default(),
            valid_until: Mutex::new(Instant::now()),
            last_complaint: Mutex::default(),
            random: RandomState::new(),
        }
    }

    #[test]
    fn servers_of_site_rank_before_distant_ones() {
        let servers = selection(Some("lab.test"));
        let of_site = vec![service("b.lab.test", 65535, 100), service("a.lab.test", 0, 100)];
        let mut of_domain = of_site.clone();
        of_domain.extend([service("far.lab.test", 0, 100), service("x.other.test", 0, 100)]);
        let found = servers.ranked("lab.test", of_site, of_domain.clone());
        let order: Vec<_> = found.iter().map(|one| (&*one.record.host, one.rank())).collect();
        assert_eq!(order, [("a.lab.test", 0), ("b.lab.test", 65535), ("far.lab.test", 65536)]);
        *servers.discovered.lock() = found;
        let location = servers.location();
        assert_eq!(location.near, ["ldap://a.lab.test:389", "ldap://b.lab.test:389"]);
        assert_eq!(location.distant, ["ldap://far.lab.test:389"]);
        // Without a site, all are equal.
        let found = servers.ranked("lab.test", Vec::new(), of_domain);
        assert!(found.iter().all(|one| !one.is_distant), "{found:?}");
    }

    #[test]
    fn only_servers_within_the_domain_are_believed_unless_their_authority_was_chosen() {
        let mut servers = selection(None);
        let hosts_named = [
            "corp.test",
            "LDAP.Corp.Test",
            "evilcorp.test",
            "corp.test.evil.test",
            "evil\\.corp.test",
            "test",
        ];
        let services = || {
            hosts_named.iter().zip(0..).map(|(host, priority)| service(host, priority, 1)).collect()
        };
        let hosts = |servers: &ServerSelection| -> Vec<String> {
            let believed = servers.trusted("corp.test", services());
            believed.into_iter().map(|service| service.host).collect()
        };
        assert_eq!(hosts(&servers), ["corp.test", "LDAP.Corp.Test"]);
        let complaint = servers.last_complaint.lock().clone().expect("a complaint");
        assert_eq!(servers.no_servers_reason(), complaint.clone().for_object("no server is known"));
        assert_eq!(complaint.message, &directory::DNS_NAME_OUTSIDE_DOMAIN);
        let named = "outside corp.test: corp.test.evil.test, evil\\.corp.test, evilcorp.test, test";
        assert!(complaint.text.ends_with(named), "{complaint}");
        servers.trusts_any_name = true;
        assert_eq!(hosts(&servers), hosts_named);
        assert_eq!(*servers.last_complaint.lock(), None);
        assert_eq!(servers.no_servers_reason().message, &directory::NO_SERVER);
    }

    #[test]
    fn a_server_that_fails_again_is_left_alone_for_longer() {
        let second = Duration::from_secs(1);
        let setbacks = ServerFailures::new(30 * second);
        let (server, now) = ("ldap://preferred", Instant::now());
        assert!(setbacks.may_retry(server, now));
        let mut wait = 30 * second;
        for _ in 0..20 {
            setbacks.add(server, now);
            assert!(!setbacks.may_retry(server, now + wait - second));
            assert!(setbacks.may_retry(server, now + wait));
            wait = (wait * 2).min(FAILURE_WAIT_MAX);
        }
        setbacks.remove(server);
        assert!(setbacks.may_retry(server, now));
        setbacks.add(server, now);
        assert!(setbacks.may_retry(server, now + 30 * second), "from the beginning");
    }

    #[test]
    fn a_server_is_written_as_its_uri() {
        let server = LdapServer::Ldap { host: "::1".to_owned(), port: 3890 };
        assert_eq!(describe(&server), "ldap://[::1]:3890");
    }

    #[tokio::test]
    async fn servers_failed_dns_query_has_code() {
        let servers = selection(Some("a..b"));
        assert!(servers.list().await.is_empty());
        assert_eq!(servers.no_servers_reason().message, &directory::DNS_FAILED);
    }
}
