// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which servers are tried, and the waits between two rounds. This module opens no connection:
//! `connection` does.

use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record};
use parking_lot::Mutex;
use roster_config::{LdapConfig, LdapServer};
use roster_messages::{log, table::directory};
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
/// Limit of servers from DNS.
const DISCOVERED_MAX: usize = 64;
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

/// The servers of a domain: first the configured ones, then the servers from DNS.
pub struct ServerSelection {
    configured: Vec<LdapServer>,
    discover: Option<String>,
    /// The certificate alone proves that a server belongs to the domain, so any name is allowed.
    trusts_any_name: bool,
    /// The last servers from DNS, in case that it does not reply. An empty reply is also a reply.
    discovered: Mutex<Vec<SrvRecord>>,
    /// Time until which the last DNS reply is valid.
    valid_until: Mutex<Instant>,
    /// The last logged problem with DNS.
    last_complaint: Mutex<Option<Reason>>,
    random: RandomState,
}

impl ServerSelection {
    /// Makes the list from a domain's configuration.
    pub fn new(ldap: &LdapConfig) -> Self {
        Self {
            configured: ldap.servers.clone(),
            discover: ldap.discover.clone(),
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
            let answer = timeout(DISCOVERY_DEADLINE, query_srv(domain)).await;
            match answer.unwrap_or_else(|_| Err("no reply in time".to_owned())) {
                Ok((services, valid_until)) => {
                    *self.discovered.lock() = self.trusted(domain, services);
                    *self.valid_until.lock() = valid_until;
                }
                Err(error) => self.log_once(Reason::new(
                    &directory::DNS_FAILED,
                    format!("DNS query for servers of {domain} failed: {error}"),
                )),
            }
            candidates.extend(self.discovered.lock().iter().map(|service| ServerCandidate {
                server: service.server(),
                rank: self.configured.len() + usize::from(service.priority),
            }));
        }
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(describe(&candidate.server)));
        candidates
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

/// Queries DNS. Each query makes a new resolver, because the host's DNS configuration may have changed since.
async fn query_srv(domain: &str) -> Result<(Vec<SrvRecord>, Instant), String> {
    let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    let resolver = builder.build().map_err(|error| error.to_string())?;
    let name = format!("_ldap._tcp.{}.", domain.trim_end_matches('.'));
    let answer = match resolver.srv_lookup(name).await {
        Ok(answer) => answer,
        Err(error) if is_no_records(&error) => return Ok((Vec::new(), Instant::now())),
        Err(error) => return Err(error.to_string()),
    };
    let service = |record: &Record| match &record.data {
        RData::SRV(srv) => Some(SrvRecord::from(srv)),
        _ => None,
    };
    let services = answer.answers().iter().filter_map(service);
    // A record of host "." means that there is no such service.
    let mut services: Vec<_> = services.filter(|service| !service.host.is_empty()).collect();
    // Sorted, so that a limit always selects the same servers.
    services
        .sort_unstable_by(|a, b| (a.priority, &a.host, a.port).cmp(&(b.priority, &b.host, b.port)));
    services.truncate(DISCOVERED_MAX);
    Ok((services, answer.valid_until().into()))
}

/// Returns whether DNS replied that there are no such records, for example after they were deleted. Then the last known
/// servers are no longer announced, and may belong to another owner. Without a reply they stay valid.
fn is_no_records(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

/// Returns whether a host, as DNS writes it, is the domain itself or below it. An escaped dot does not separate labels,
/// and does not occur in host names.
fn is_within(host: &str, domain: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !host.bytes().all(is_plain) {
        return false;
    }
    // The configuration may have non-ASCII letters.
    let domain = Name::from_utf8(domain).map_or(domain.to_owned(), |name| name.to_ascii());
    let (host, domain) = (host.to_ascii_lowercase(), domain.to_ascii_lowercase());
    let domain = domain.trim_end_matches('.');
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The content of an SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SrvRecord {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

impl From<&SRV> for SrvRecord {
    fn from(srv: &SRV) -> Self {
        // As in DNS and in certificates: non-ASCII letters as xn--.
        let host = srv.target.to_ascii().trim_end_matches('.').to_owned();
        Self { priority: srv.priority, weight: srv.weight, port: srv.port, host }
    }
}

impl SrvRecord {
    fn server(&self) -> LdapServer {
        LdapServer::Ldap { host: self.host.clone(), port: self.port }
    }
}

/// Sorts services in the order of RFC 2782: by priority, then at random by weight. Over many hosts, the share of a
/// server in first places equals its weight. One host always has the same order, independent of the order in DNS
/// replies.
fn in_order(services: Vec<SrvRecord>, random: &RandomState) -> Vec<SrvRecord> {
    let mut keyed: Vec<(u16, f64, SrvRecord)> = services
        .into_iter()
        .map(|service| {
            // The smallest of exponential times, one a server, with the weight as the rate.
            let drawn = random.hash_one((&service.host, service.port));
            let uniform = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
            let rate = f64::from(service.weight).max(0.01);
            (service.priority, -(1.0 - uniform).ln() / rate, service)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    keyed.into_iter().map(|(_, _, service)| service).collect()
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
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;

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

    #[test]
    fn dns_no_records_differs_from_no_reply() {
        for (code, is_answer) in [
            (ResponseCode::NXDomain, true),
            (ResponseCode::NoError, true),
            (ResponseCode::ServFail, false),
            (ResponseCode::Refused, false),
        ] {
            let error = NetError::from(NoRecords::new(Query::default(), code));
            assert_eq!(is_no_records(&error), is_answer, "{code}");
        }
        assert!(!is_no_records(&NetError::Timeout));
        assert!(!is_no_records(&NetError::Dns(DnsError::ResponseCode(ResponseCode::NXDomain))));
    }

    fn service(host: &str, priority: u16, weight: u16) -> SrvRecord {
        SrvRecord { priority, weight, port: 389, host: host.to_owned() }
    }

    #[test]
    fn servers_from_dns_come_by_priority_and_as_often_as_their_weight_says() {
        let services = [service("far", 20, 9), service("big", 10, 90), service("small", 10, 10)];
        let mut big_first = 0;
        for _ in 0..500 {
            let random = RandomState::new();
            let order = in_order(services.to_vec(), &random);
            let hosts: Vec<&str> = order.iter().map(|service| &*service.host).collect();
            assert_eq!(hosts.len(), 3);
            assert_eq!(hosts[2], "far");
            big_first += usize::from(hosts[0] == "big");
            let turned = services.iter().rev().cloned().collect();
            assert_eq!(in_order(turned, &random), order, "an answer in another order");
        }
        assert!((400..500).contains(&big_first), "{big_first} of 500");
    }

    #[test]
    fn only_servers_within_the_domain_are_believed_unless_their_authority_was_chosen() {
        let mut servers = ServerSelection {
            configured: Vec::new(),
            discover: None,
            trusts_any_name: false,
            discovered: Mutex::default(),
            valid_until: Mutex::new(Instant::now()),
            last_complaint: Mutex::default(),
            random: RandomState::new(),
        };
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
    fn servers_of_a_domain_with_letters_beyond_ascii_are_believed() {
        let host = |target: Name| SrvRecord::from(&SRV::new(0, 0, 389, target)).host;
        let named = host(Name::from_ascii("ldap-1.xn--bcher-kva.test.").unwrap());
        assert_eq!(named, "ldap-1.xn--bcher-kva.test");
        assert_eq!(host(Name::from_utf8("ldap-1.b\u{fc}cher.test.").unwrap()), named);
        for domain in ["xn--bcher-kva.test", "XN--bcher-KVA.test.", "b\u{fc}cher.test"] {
            assert!(is_within(&named, domain), "{domain}");
        }
        let other = host(Name::from_ascii("ldap.xn--bcher-other.test.").unwrap());
        assert!(!is_within(&other, "b\u{fc}cher.test"));
        let dotted = Name::from_labels([&b"evil.xn--bcher-kva"[..], b"test"]).unwrap();
        assert!(!is_within(&host(dotted), "b\u{fc}cher.test"), "one label and no host");
        assert_eq!(host(Name::root()), "", "no such service");
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
        let servers = ServerSelection {
            configured: Vec::new(),
            discover: Some("a..b".to_owned()),
            trusts_any_name: false,
            discovered: Mutex::default(),
            valid_until: Mutex::new(Instant::now()),
            last_complaint: Mutex::default(),
            random: RandomState::new(),
        };
        assert!(servers.list().await.is_empty());
        assert_eq!(servers.no_servers_reason().message, &directory::DNS_FAILED);
    }
}
