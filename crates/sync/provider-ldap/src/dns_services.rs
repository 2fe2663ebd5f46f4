// SPDX-License-Identifier: MIT OR Apache-2.0
//! SRV records of LDAP servers: the DNS query, the order of its records, and the check of host names. Keeps no state.
//! [`server_selection`](crate::server_selection) and the search for controllers decide which names to query.

use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record};
use roster_config::LdapServer;
use std::hash::{BuildHasher, RandomState};
use tokio::time::Instant;

/// Limit of records in use from one reply.
const RECORDS_MAX: usize = 64;

/// The records of a name, and the time until which they are valid.
pub struct SrvReply {
    /// The records, sorted. Empty if DNS has none.
    pub records: Vec<SrvRecord>,
    /// End of the validity.
    pub valid_until: Instant,
}

/// Makes a resolver. Each round of queries has a new one, because the host's DNS configuration may have changed since.
pub fn resolver() -> Result<TokioResolver, String> {
    let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    builder.build().map_err(|error| error.to_string())
}

/// Returns the name of the SRV records of a service in a domain. `labels` precede the domain, separated by dots.
pub fn service_name(labels: &str, domain: &str) -> Result<Name, String> {
    let domain = Name::from_utf8(domain).map_err(|error| error.to_string())?;
    // Labels of Active Directory are UTF-8, without the encoding of host names.
    let prefix = Name::from_labels(labels.split('.').map(str::as_bytes));
    let prefix = prefix.map_err(|error| error.to_string())?;
    prefix.append_domain(&domain).map_err(|error| error.to_string())
}

/// Queries SRV records.
pub async fn query_srv(resolver: &TokioResolver, name: Name) -> Result<SrvReply, String> {
    let answer = match resolver.srv_lookup(name).await {
        Ok(answer) => answer,
        Err(error) if is_no_records(&error) => {
            return Ok(SrvReply { records: Vec::new(), valid_until: Instant::now() });
        }
        Err(error) => return Err(error.to_string()),
    };
    let service = |record: &Record| match &record.data {
        RData::SRV(srv) => Some(SrvRecord::from(srv)),
        _ => None,
    };
    let records = answer.answers().iter().filter_map(service);
    // A record of host "." means that there is no such service.
    let mut records: Vec<_> = records.filter(|record| !record.host.is_empty()).collect();
    // Sorted, so that a limit always selects the same servers.
    records
        .sort_unstable_by(|a, b| (a.priority, &a.host, a.port).cmp(&(b.priority, &b.host, b.port)));
    records.truncate(RECORDS_MAX);
    Ok(SrvReply { records, valid_until: answer.valid_until().into() })
}

/// Returns whether DNS replied that there are no such records, for example after they were deleted. Then the last known
/// servers are no longer announced, and may belong to another owner. Without a reply they stay valid.
fn is_no_records(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

/// Returns whether a host, as DNS writes it, is the domain itself or below it. An escaped dot does not separate labels,
/// and does not occur in host names.
pub fn is_within(host: &str, domain: &str) -> bool {
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
pub struct SrvRecord {
    /// Lower is tried first.
    pub priority: u16,
    /// Share of first attempts among records of one priority.
    pub weight: u16,
    /// Port of the server.
    pub port: u16,
    /// Host name of the server, without a dot at the end.
    pub host: String,
}

impl From<&SRV> for SrvRecord {
    fn from(srv: &SRV) -> Self {
        // As in DNS and in certificates: non-ASCII letters as xn--.
        let host = srv.target.to_ascii().trim_end_matches('.').to_owned();
        Self { priority: srv.priority, weight: srv.weight, port: srv.port, host }
    }
}

impl SrvRecord {
    /// Returns the server, which is used without TLS or with StartTLS.
    pub fn server(&self) -> LdapServer {
        LdapServer::Ldap { host: self.host.clone(), port: self.port }
    }
}

/// Sorts services in the order of RFC 2782: by priority, then at random by weight. Over many hosts, the share of a
/// server in first places equals its weight. One host always has the same order, independent of the order in DNS
/// replies.
pub fn in_order(services: Vec<SrvRecord>, random: &RandomState) -> Vec<SrvRecord> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;

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
    fn dns_service_name_keeps_site_letters() {
        let name =
            service_name("_ldap._tcp.Z\u{fc}rich._sites.dc._msdcs", "b\u{fc}cher.test").unwrap();
        assert!(name.is_fqdn());
        let labels: Vec<&[u8]> = name.iter().collect();
        assert_eq!(labels[2], "Z\u{fc}rich".as_bytes());
        assert_eq!(labels[6..], [&b"xn--bcher-kva"[..], b"test"]);
        assert!(service_name("_ldap._tcp", "a..b").is_err());
        assert!(service_name(&"s".repeat(64), "lab.test").is_err());
    }
}
