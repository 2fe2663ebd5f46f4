//! Which servers to try, in which order, and how long to wait between two rounds.

use crate::lock;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record};
use roster_config::{Ldap, Server};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, timeout};

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
/// The longest time for which an answer of DNS is believed unasked.
const KNOWN_FOR_MAX: Duration = Duration::from_secs(3600);

/// A server that may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub server: Server,
    /// Place in the order of preference. Servers that DNS gives the same priority share one: none of
    /// them is worth leaving another for.
    pub rank: usize,
}

/// The servers of a domain: those configured, then those that DNS names.
pub struct Servers {
    configured: Vec<Server>,
    discover: Option<String>,
    /// Whether a server proves by its certificate that it belongs to the domain, whatever its name.
    believes_any_name: bool,
    /// What DNS named last, for when it does not answer. That there are none is an answer.
    discovered: Mutex<Vec<Service>>,
    /// Until when an answer like it is to be expected.
    valid_until: Mutex<Instant>,
    /// What was last said to be wrong with DNS.
    complaint: Mutex<String>,
    random: RandomState,
}

impl Servers {
    /// From a domain's configuration.
    pub fn new(ldap: &Ldap) -> Self {
        Self {
            configured: ldap.servers.clone(),
            discover: ldap.discover.clone(),
            believes_any_name: ldap.start_tls && ldap.tls_ca.is_some(),
            discovered: Mutex::new(Vec::new()),
            valid_until: Mutex::new(Instant::now()),
            complaint: Mutex::new(String::new()),
            random: RandomState::new(),
        }
    }

    /// All that are known now, the preferred first.
    pub async fn list(&self) -> Vec<Candidate> {
        let configured = self.configured.iter().cloned().enumerate();
        let mut candidates: Vec<Candidate> =
            configured.map(|(rank, server)| Candidate { server, rank }).collect();
        if let Some(domain) = &self.discover {
            let answer = timeout(DISCOVERY_DEADLINE, ask(domain)).await;
            match answer.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                Ok((services, valid_until)) => {
                    *lock(&self.discovered) = self.believed(domain, services);
                    *lock(&self.valid_until) = valid_until;
                }
                Err(error) => self.complain(format!(
                    "DNS does not name servers of {domain}, at most the last known are used: {error}"
                )),
            }
            candidates.extend(lock(&self.discovered).iter().map(|service| Candidate {
                server: service.server(),
                rank: self.configured.len() + usize::from(service.priority),
            }));
        }
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(describe(&candidate.server)));
        candidates
    }

    /// Whether this is the server that comes before all others, whatever DNS says.
    pub fn is_first(&self, server: &str) -> bool {
        self.configured.first().is_some_and(|first| describe(first) == server)
    }

    /// How long DNS means to go on saying what it said last.
    pub fn known_for(&self) -> Duration {
        let valid_until = *lock(&self.valid_until);
        valid_until.saturating_duration_since(Instant::now()).min(KNOWN_FOR_MAX)
    }

    /// What is wrong when none is known.
    pub fn why_none(&self) -> String {
        let complaint = lock(&self.complaint);
        let why = match complaint.as_str() {
            "" => "none is configured in `uris`, and DNS names none for the domain in `discover`",
            complaint => complaint,
        };
        format!("no server is known: {why}")
    }

    /// DNS is not authentic, and a certificate only proves a name: who can forge answers can name a
    /// host of their own, with a valid certificate. So a server's name is to be within the domain,
    /// unless the authority itself was chosen for it.
    fn believed(&self, domain: &str, services: Vec<Service>) -> Vec<Service> {
        let (believed, refused): (Vec<_>, Vec<_>) = services
            .into_iter()
            .partition(|service| self.believes_any_name || is_within(&service.host, domain));
        if refused.is_empty() {
            lock(&self.complaint).clear();
        } else {
            let mut hosts: Vec<_> = refused.into_iter().map(|service| service.host).collect();
            hosts.sort_unstable();
            self.complain(format!(
                "DNS names servers of {domain} that are outside of it, which are not believed: {}; \
                 name them in uris, or name their certificate authority with tls_ca beside start_tls",
                hosts.join(", ")
            ));
        }
        in_order(believed, &self.random)
    }

    /// Once for each thing that is wrong.
    fn complain(&self, complaint: String) {
        let mut before = lock(&self.complaint);
        if *before == complaint {
            tracing::debug!("{complaint}");
        } else {
            tracing::warn!("{complaint}");
            *before = complaint;
        }
    }
}

/// Asks DNS. The resolver is made for the one question: by the next, seconds or months later, the
/// host's DNS configuration may be another.
async fn ask(domain: &str) -> Result<(Vec<Service>, Instant), String> {
    let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    let resolver = builder.build().map_err(|error| error.to_string())?;
    let name = format!("_ldap._tcp.{}.", domain.trim_end_matches('.'));
    let answer = match resolver.srv_lookup(name).await {
        Ok(answer) => answer,
        Err(error) if says_none(&error) => return Ok((Vec::new(), Instant::now())),
        Err(error) => return Err(error.to_string()),
    };
    let service = |record: &Record| match &record.data {
        RData::SRV(srv) => Some(Service::from(srv)),
        _ => None,
    };
    let services = answer.answers().iter().filter_map(service);
    // A record of host "." says that there is no such service.
    let mut services: Vec<_> = services.filter(|service| !service.host.is_empty()).collect();
    // Of too many always the same, in whatever order they come.
    services
        .sort_unstable_by(|a, b| (a.priority, &a.host, a.port).cmp(&(b.priority, &b.host, b.port)));
    services.truncate(DISCOVERED_MAX);
    Ok((services, answer.valid_until().into()))
}

/// Whether DNS answered that there are no such records, as when they were deleted: no server is announced
/// any more, and those that were may be somebody else's. That is no failure to answer, after which the last
/// known are as good as ever.
fn says_none(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

/// Whether a host, as DNS writes it, is the domain itself or below it. An escaped dot does not part
/// labels, and no host has one.
fn is_within(host: &str, domain: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !host.bytes().all(is_plain) {
        return false;
    }
    // Letters beyond ASCII may stand in the configuration.
    let domain = Name::from_utf8(domain).map_or(domain.to_owned(), |name| name.to_ascii());
    let (host, domain) = (host.to_ascii_lowercase(), domain.to_ascii_lowercase());
    let domain = domain.trim_end_matches('.');
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What a SRV record says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

impl From<&SRV> for Service {
    fn from(srv: &SRV) -> Self {
        // As it stands in DNS and in certificates: letters beyond ASCII as xn--.
        let host = srv.target.to_ascii().trim_end_matches('.').to_owned();
        Self { priority: srv.priority, weight: srv.weight, port: srv.port, host }
    }
}

impl Service {
    fn server(&self) -> Server {
        Server::Ldap { host: self.host.clone(), port: self.port }
    }
}

/// Services in the order in which to try them (RFC 2782): by priority, and within one at random so
/// that over many hosts a server comes first as often as its weight says. A host keeps to its order,
/// whatever the order of DNS's answers.
fn in_order(services: Vec<Service>, random: &RandomState) -> Vec<Service> {
    let mut keyed: Vec<(u16, f64, Service)> = services
        .into_iter()
        .map(|service| {
            // The smallest of exponential times, one a server, at the rate of its weight.
            let drawn = random.hash_one((&service.host, service.port));
            let uniform = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
            let rate = f64::from(service.weight).max(0.01);
            (service.priority, -(1.0 - uniform).ln() / rate, service)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    keyed.into_iter().map(|(_, _, service)| service).collect()
}

/// The longest time for which a server that failed us is not gone back to.
const SETBACK_MAX: Duration = Duration::from_secs(3600);

/// Servers, by URI, that let us in and were of no use then. Going back to one takes the domain away from a
/// server that serves it, so each failure doubles the time until that is tried again.
pub struct Setbacks {
    first: Duration,
    servers: Mutex<HashMap<String, Setback>>,
}

#[derive(Clone, Copy)]
struct Setback {
    wait: Duration,
    since: Instant,
}

impl Setbacks {
    /// With the wait after a first failure.
    pub fn new(first: Duration) -> Self {
        Self { first, servers: Mutex::default() }
    }

    /// The server failed.
    pub fn note(&self, server: &str, now: Instant) {
        let mut servers = lock(&self.servers);
        servers.retain(|_, one| now < one.since + one.wait + SETBACK_MAX);
        let setback = servers.entry(server.to_owned()).and_modify(|one| one.wait *= 2);
        let setback = setback.or_insert(Setback { wait: self.first, since: now });
        *setback = Setback { wait: setback.wait.min(SETBACK_MAX.max(self.first)), since: now };
    }

    /// The server was good.
    pub fn forget(&self, server: &str) {
        lock(&self.servers).remove(server);
    }

    /// Whether it is time to try the server again.
    pub fn is_over(&self, server: &str, now: Instant) -> bool {
        lock(&self.servers).get(server).is_none_or(|setback| now >= setback.since + setback.wait)
    }
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
    fn that_there_are_no_records_is_an_answer_and_that_dns_cannot_tell_is_none() {
        for (code, is_answer) in [
            (ResponseCode::NXDomain, true),
            (ResponseCode::NoError, true),
            (ResponseCode::ServFail, false),
            (ResponseCode::Refused, false),
        ] {
            let error = NetError::from(NoRecords::new(Query::default(), code));
            assert_eq!(says_none(&error), is_answer, "{code}");
        }
        assert!(!says_none(&NetError::Timeout));
        assert!(!says_none(&NetError::Dns(DnsError::ResponseCode(ResponseCode::NXDomain))));
    }

    fn service(host: &str, priority: u16, weight: u16) -> Service {
        Service { priority, weight, port: 389, host: host.to_owned() }
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
        let mut servers = Servers {
            configured: Vec::new(),
            discover: None,
            believes_any_name: false,
            discovered: Mutex::default(),
            valid_until: Mutex::new(Instant::now()),
            complaint: Mutex::default(),
            random: RandomState::new(),
        };
        let named = [
            "corp.test",
            "LDAP.Corp.Test",
            "evilcorp.test",
            "corp.test.evil.test",
            "evil\\.corp.test",
            "test",
        ];
        let services =
            || named.iter().zip(0..).map(|(host, priority)| service(host, priority, 1)).collect();
        let hosts = |servers: &Servers| -> Vec<String> {
            let believed = servers.believed("corp.test", services());
            believed.into_iter().map(|service| service.host).collect()
        };
        assert_eq!(hosts(&servers), ["corp.test", "LDAP.Corp.Test"]);
        let complaint = lock(&servers.complaint).clone();
        assert_eq!(servers.why_none(), format!("no server is known: {complaint}"));
        assert!(complaint.contains("corp.test.evil.test, evil\\.corp.test, evilcorp.test, test; "));
        servers.believes_any_name = true;
        assert_eq!(hosts(&servers), named);
        assert_eq!(*lock(&servers.complaint), "");
        assert!(servers.why_none().contains("none is configured"));
    }

    #[test]
    fn servers_of_a_domain_with_letters_beyond_ascii_are_believed() {
        let host = |target: Name| Service::from(&SRV::new(0, 0, 389, target)).host;
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
        let setbacks = Setbacks::new(30 * second);
        let (server, now) = ("ldap://preferred", Instant::now());
        assert!(setbacks.is_over(server, now));
        let mut wait = 30 * second;
        for _ in 0..20 {
            setbacks.note(server, now);
            assert!(!setbacks.is_over(server, now + wait - second));
            assert!(setbacks.is_over(server, now + wait));
            wait = (wait * 2).min(SETBACK_MAX);
        }
        setbacks.forget(server);
        assert!(setbacks.is_over(server, now));
        setbacks.note(server, now);
        assert!(setbacks.is_over(server, now + 30 * second), "from the beginning");
    }

    #[test]
    fn a_server_is_written_as_its_uri() {
        let server = Server::Ldap { host: "::1".to_owned(), port: 3890 };
        assert_eq!(describe(&server), "ldap://[::1]:3890");
    }
}
