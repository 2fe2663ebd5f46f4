// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that are found by DNS: their order, and the rejected ones.

use roster_messages::table::directory;
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{DnsServer, Relay, ServerCertificate, SrvRecord};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, needs_root,
    wait_for, wait_until,
};
use std::thread::sleep;
use std::time::Duration;

const DOMAIN: &str = "corp.test";

fn slapd(setup: SlapdOptions) -> Slapd {
    let directory = LdifBuilder::new(setup.schema);
    Slapd::serving(setup, &(directory.tree() + &directory.user("alice", 5001)))
}

fn plain() -> Slapd {
    slapd(SlapdOptions::new(Schema::Rfc2307))
}

fn discovered(server: &Slapd) -> DomainTable {
    DomainTable::ldap("corp", server)
        .without("uris")
        .with("discover", &format!("{DOMAIN:?}"))
        .with("allow_clear_password", "true")
        .with("allow_clear_identities", "true")
        .with("failback_interval", "\"1s\"")
}

fn asking(dns: &DnsServer, domain: DomainTable) -> Rosterd {
    let mut rosterd = Rosterd::prepared(&[domain]);
    rosterd.set_start_script(&dns.mount_script());
    rosterd.launch();
    rosterd
}

#[test]
fn dns_servers_follow_priority_weight_and_records() {
    if !needs_root() {
        return;
    }
    let (mut first, mut second, mut third) = (plain(), plain(), plain());
    let stranger = Relay::to(first.port());
    let port_of = |uri: &str| uri.rsplit(':').next().and_then(|port| port.parse().ok());
    let elsewhere = SrvRecord {
        host: "ldap.corp.test.elsewhere.test",
        port: port_of(&stranger.uri()).expect("a port"),
        priority: 0,
        weight: 0,
    };
    let inside = |host, server: &Slapd, priority, weight| SrvRecord {
        host,
        port: server.port(),
        priority,
        weight,
    };
    let heavy = inside("ldap1.corp.test", &first, 10, u16::MAX);
    let light = inside("ldap2.corp.test", &second, 10, 0);
    let last = inside("ldap3.corp.test", &third, 20, 0);
    let mut dns = DnsServer::serving(DOMAIN, &[last, light, heavy, elsewhere]);
    let uri = |service: SrvRecord<'_>| format!("ldap://{}:{}", service.host, service.port);

    let rosterd = asking(&dns, discovered(&first));
    rosterd.expect_domain_status("corp", "server", uri(heavy));
    let alice = "alice:*:5001:5001:alice of dc=example,dc=com:/home/alice:/bin/sh";
    rosterd.expect("passwd", "alice", Some(alice));
    first.stop();
    rosterd.expect_domain_status("corp", "server", uri(light));
    // The first is equal to this one.
    first.start();
    sleep(Duration::from_secs(3));
    assert_eq!(rosterd.domain("corp").expect("a status")["server"], uri(light));

    // Nothing fails, and a better server comes to be known.
    let best = SrvRecord { priority: 5, ..last };
    dns.set(DOMAIN, &[elsewhere, light, best]);
    rosterd.expect_domain_status("corp", "server", uri(best));

    assert_eq!(stranger.accepted(), 0, "nobody was sent elsewhere");
    let log = rosterd.log();
    let complaints =
        log.lines().filter(|line| line.contains(directory::DNS_NAME_OUTSIDE_DOMAIN.code)).count();
    assert_eq!(complaints, 1, "{log}");
    assert!(log.contains(": ldap.corp.test.elsewhere.test"), "{log}");

    // No server is left. The reason changes, and status reports it; the log has it once.
    let reason = |expected: &str| {
        wait_for(SOON, || {
            let domain = rosterd.domain("corp")?;
            let found = domain["reason"].as_str().is_some_and(|text| text.contains(expected));
            if found { Ok(()) } else { Err(domain.to_string()) }
        });
    };
    let before = rosterd.log().matches("offline: ").count();
    second.stop();
    third.stop();
    reason("cannot connect");
    dns.set(DOMAIN, &[elsewhere]);
    reason("no server is known");
    assert_eq!(rosterd.log().matches("offline: ").count(), before + 1, "{}", rosterd.log());
    assert_eq!(stranger.accepted(), 0, "not even then");
}

#[test]
fn dns_removed_server_is_left_for_another() {
    if !needs_root() {
        return;
    }
    let (old, mut new) = (plain(), plain());
    let named =
        |host, server: &Slapd| SrvRecord { host, port: server.port(), priority: 10, weight: 0 };
    let (before, after) = (named("ldap1.corp.test", &old), named("ldap2.corp.test", &new));
    let uri = |service: SrvRecord<'_>| format!("ldap://{}:{}", service.host, service.port);
    let mut dns = DnsServer::serving(DOMAIN, &[before]);
    let rosterd = asking(&dns, discovered(&old));
    rosterd.expect_domain_status("corp", "server", uri(before));
    let stays_at = |service| {
        sleep(Duration::from_secs(6));
        assert_eq!(rosterd.domain("corp").expect("a status")["server"], uri(service));
    };
    // A server that leaves the records is better than none.
    new.stop();
    dns.set(DOMAIN, &[after]);
    stays_at(before);
    new.start();
    rosterd.expect_domain_status("corp", "server", uri(after));
    new.change(&LdifBuilder::new(Schema::Rfc2307).user("bob", 5002));
    let bob = "bob:*:5002:5002:bob of dc=example,dc=com:/home/bob:/bin/sh";
    rosterd.expect("passwd", "bob", Some(bob));
    // Named again, it is equal to the present one.
    dns.set(DOMAIN, &[before, after]);
    stays_at(after);
}

/// The address may belong to another host since.
#[test]
fn servers_that_dns_does_not_name_any_more_are_not_connected_to() {
    if !needs_root() {
        return;
    }
    let mut slapd = plain();
    let ldap = SrvRecord { host: "ldap.corp.test", port: slapd.port(), priority: 0, weight: 0 };
    let uri = format!("ldap://ldap.corp.test:{}", slapd.port());
    let mut dns = DnsServer::serving(DOMAIN, &[ldap]);
    let rosterd = asking(&dns, discovered(&slapd));
    rosterd.expect_domain_status("corp", "server", uri.as_str());
    dns.set(DOMAIN, &[]);
    // The connection that there is stays.
    sleep(Duration::from_secs(6));
    assert_eq!(rosterd.domain("corp").expect("a status")["online"], true);
    slapd.stop();
    let nobody = "`uris` is empty, and DNS names no server";
    wait_for(SOON, || {
        let domain = rosterd.domain("corp")?;
        let found = domain["reason"].as_str().is_some_and(|text| text.contains(nobody));
        if found { Ok(()) } else { Err(domain.to_string()) }
    });
    slapd.start();
    sleep(Duration::from_secs(6));
    assert_eq!(rosterd.domain("corp").expect("a status")["online"], false);
    dns.set(DOMAIN, &[ldap]);
    rosterd.expect_domain_status("corp", "online", true);
}

#[test]
fn tls_foreign_server_needs_chosen_authority() {
    if !needs_root() {
        return;
    }
    let good = SlapdOptions {
        certificate: Some(ServerCertificate::Good),
        ..SlapdOptions::new(Schema::Rfc2307)
    };
    let slapd = slapd(good);
    let outside = SrvRecord { host: "localhost", port: slapd.port(), priority: 0, weight: 0 };
    let dns = DnsServer::serving(DOMAIN, &[outside]);
    let secured = discovered(&slapd).with("start_tls", "true").without("allow_clear_password");

    // Any authority that the host trusts might have signed for it.
    let rosterd = asking(&dns, secured.clone());
    wait_until(SOON, "it is not believed", || {
        let log = rosterd.log();
        let code = directory::DNS_NAME_OUTSIDE_DOMAIN.code;
        log.lines().any(|line| line.contains(code) && line.contains(": localhost"))
    });
    rosterd.expect_domain_status("corp", "online", false);
    drop(rosterd);

    let authority = format!("{:?}", slapd.authority());
    let rosterd = asking(&dns, secured.with("tls_ca", &authority));
    rosterd.expect_domain_status("corp", "server", format!("ldap://localhost:{}", slapd.port()));
}

#[test]
fn dns_new_network_uses_its_resolvers() {
    if !needs_root() {
        return;
    }
    let slapd = plain();
    let ldap = SrvRecord { host: "ldap.corp.test", port: slapd.port(), priority: 0, weight: 0 };
    let (old, new) = (DnsServer::serving(DOMAIN, &[]), DnsServer::serving(DOMAIN, &[ldap]));
    let rosterd = asking(&old, discovered(&slapd));
    wait_for(SOON, || {
        let domain = rosterd.domain("corp")?;
        let found =
            domain["reason"].as_str().is_some_and(|text| text.contains("no server is known"));
        if found { Ok(()) } else { Err(domain.to_string()) }
    });
    old.redirect_to(&new);
    rosterd.expect_domain_status(
        "corp",
        "server",
        format!("ldap://ldap.corp.test:{}", slapd.port()),
    );
    let alice = "alice:*:5001:5001:alice of dc=example,dc=com:/home/alice:/bin/sh";
    rosterd.expect("passwd", "alice", Some(alice));
}
