//! Which servers to try, in which order, and how long to wait between two rounds.

use crate::lock;
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::{RData, Record};
use roster_config::{Ldap, Server};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;

/// The first wait; most failures are a server that is being restarted.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// While a server may be back any moment, waits stay below this, so that two seconds after it is
/// back we are too …
const WAIT_EAGER: Duration = Duration::from_millis(1500);
/// … for this many rounds, some three minutes.
const EAGER_ROUNDS: u32 = 120;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A server as its URI.
pub fn describe(server: &Server) -> String {
    let bracketed =
        |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match server {
        Server::Ldap { host, port } => format!("ldap://{}:{port}", bracketed(host)),
        Server::Ldaps { host, port } => format!("ldaps://{}:{port}", bracketed(host)),
        Server::Ldapi { path } => format!("ldapi://{}", path.display()),
    }
}

/// How long DNS may take to name servers.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(3);
/// Servers that DNS may name.
const DISCOVERED_MAX: usize = 64;

/// The servers of a domain: those configured, then those that DNS names.
pub struct Servers {
    configured: Vec<Server>,
    discover: Option<String>,
    /// What DNS named last, for when it does not answer.
    discovered: Mutex<Vec<Server>>,
    resolver: Mutex<Option<TokioResolver>>,
    random: RandomState,
}

impl Servers {
    /// From a domain's configuration.
    pub fn new(ldap: &Ldap) -> Self {
        Self {
            configured: ldap.servers.clone(),
            discover: ldap.discover.clone(),
            discovered: Mutex::new(Vec::new()),
            resolver: Mutex::new(None),
            random: RandomState::new(),
        }
    }

    /// All that are known now, the preferred first.
    pub async fn list(&self) -> Vec<Server> {
        let mut servers = self.configured.clone();
        if let Some(domain) = &self.discover {
            let answer = timeout(DISCOVERY_DEADLINE, self.ask(domain)).await;
            match answer.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                Ok(records) => *lock(&self.discovered) = in_order(records, &self.random),
                Err(error) => {
                    tracing::warn!(
                        domain,
                        error,
                        "DNS does not name servers; the last known are used"
                    );
                }
            }
            servers.extend(lock(&self.discovered).iter().cloned());
        }
        let mut seen = HashSet::new();
        servers.retain(|server| seen.insert(describe(server)));
        servers
    }

    async fn ask(&self, domain: &str) -> Result<Vec<Service>, String> {
        let resolver = self.resolver()?;
        let name = format!("_ldap._tcp.{}.", domain.trim_end_matches('.'));
        let answer = resolver.srv_lookup(name).await.map_err(|error| error.to_string())?;
        let service = |record: &Record| match &record.data {
            RData::SRV(srv) => Some(Service {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                host: srv.target.to_utf8().trim_end_matches('.').to_owned(),
            }),
            _ => None,
        };
        Ok(answer.answers().iter().filter_map(service).take(DISCOVERED_MAX).collect())
    }

    /// Made when it is first needed, since it keeps the host's DNS configuration as it is then.
    fn resolver(&self) -> Result<TokioResolver, String> {
        let mut resolver = lock(&self.resolver);
        if let Some(resolver) = &*resolver {
            return Ok(resolver.clone());
        }
        let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
        let made = builder.build().map_err(|error| error.to_string())?;
        *resolver = Some(made.clone());
        Ok(made)
    }
}

/// What a SRV record says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

/// Servers in the order in which to try them (RFC 2782): by priority, and within one at random so
/// that a server comes first as often as its weight says.
fn in_order(mut services: Vec<Service>, random: &RandomState) -> Vec<Server> {
    // A record of host "." says that there is no such service.
    services.retain(|service| !service.host.is_empty());
    let mut keyed: Vec<(u16, f64, Service)> = (services.into_iter().enumerate())
        .map(|(place, service)| {
            // The smallest of exponential times, one a server, at the rate of its weight.
            let uniform = (random.hash_one(place) >> 11) as f64 / (1_u64 << 53) as f64;
            let rate = f64::from(service.weight).max(0.01);
            (service.priority, -(1.0 - uniform).ln() / rate, service)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    keyed
        .into_iter()
        .map(|(_, _, Service { host, port, .. })| Server::Ldap { host, port })
        .collect()
}

/// The waits between rounds: they double, and each is of random length so that hosts which lost a
/// server together do not come back together.
#[derive(Debug)]
pub struct Backoff {
    round: u32,
    random: RandomState,
}

impl Backoff {
    /// From the beginning.
    pub fn new() -> Self {
        Self { round: 0, random: RandomState::new() }
    }

    /// How long to wait now.
    pub fn next(&mut self) -> Duration {
        let share = self.random.hash_one(self.round) as u32;
        let wait = wait(self.round, share);
        self.round = self.round.saturating_add(1);
        wait
    }
}

/// The wait after so many rounds; `random` spreads it between its half and its whole.
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

    #[test]
    fn servers_from_dns_come_by_priority_and_as_often_as_their_weight_says() {
        let service = |host: &str, priority, weight| Service {
            priority,
            weight,
            port: 389,
            host: host.to_owned(),
        };
        let services = vec![
            service("far", 20, 9),
            service("big", 10, 90),
            service("small", 10, 10),
            service("", 0, 0),
        ];
        let mut big_first = 0;
        for _ in 0..500 {
            let order = in_order(services.clone(), &RandomState::new());
            let hosts: Vec<String> = order.iter().map(describe).collect();
            assert_eq!(hosts.len(), 3);
            assert_eq!(hosts[2], "ldap://far:389");
            big_first += usize::from(hosts[0] == "ldap://big:389");
        }
        assert!((400..500).contains(&big_first), "{big_first} of 500");
    }

    #[test]
    fn a_server_is_written_as_its_uri() {
        let server = Server::Ldap { host: "::1".to_owned(), port: 3890 };
        assert_eq!(describe(&server), "ldap://[::1]:3890");
    }
}
