// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that fail, hang, present a false certificate, or come back.

mod common;

use common::{Mirror, address, domain, keys, secrets};
use roster_config::LdapServer::Ldap;
use roster_config::{BindMethod, SearchBase};
use roster_messages::table::directory;
use roster_system_tests::servers::{Relay, ServerCertificate};
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SCHEMA: Schema = Schema::Rfc2307;

fn ldif() -> String {
    let directory = LdifBuilder::new(SCHEMA);
    directory.tree() + &directory.user("alice", 5001) + &directory.group("staff", 7001, &["alice"])
}

fn slapd() -> Slapd {
    Slapd::serving(SlapdOptions::new(SCHEMA), &ldif())
}

fn offline_reason(mirror: &Mirror) -> String {
    mirror.until("offline", |book| book.offline().is_some());
    mirror.book.offline().unwrap_or_default()
}

#[test]
fn server_restarted_mirror_goes_online_again() {
    let mut slapd = slapd();
    let directory = LdifBuilder::new(SCHEMA);
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    slapd.stop();
    mirror.until("a reason", |book| {
        book.offline().is_some_and(|reason| reason.contains("cannot connect"))
    });
    assert!(mirror.book.users().contains_key("alice"), "what is known stays");
    std::thread::sleep(Duration::from_secs(3));
    slapd.start();
    mirror.until("online again", |book| book.online().is_some());
    slapd.change(&directory.user("bob", 5002));
    mirror.until("bob", |book| book.users().contains_key("bob"));
}

#[test]
fn a_server_that_hangs_is_given_up_and_found_again() {
    let mut slapd = slapd();
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    slapd.process().freeze();
    mirror.within(Duration::from_secs(120), "offline", |book| book.offline().is_some());
    let reason = mirror.book.offline().unwrap_or_default();
    assert!(reason.contains(directory::NO_REPLY.code), "{reason}");
    slapd.process().thaw();
    mirror.until("online again", |book| book.online().is_some());
    assert!(mirror.book.users().contains_key("alice"));
}

#[test]
fn a_connection_that_goes_nowhere_is_found_out() {
    let slapd = slapd();
    let relay = Relay::to(slapd.port());
    let mut domain = domain(&slapd);
    keys(&mut domain).servers = vec![address(&relay.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    relay.drop_traffic();
    mirror.within(Duration::from_secs(120), "offline", |book| book.offline().is_some());
    relay.resume_traffic();
    mirror.until("online again", |book| book.online().is_some());
}

#[test]
fn servers_failover_and_return_to_preferred() {
    let (mut first, second) = (slapd(), slapd());
    let mut domain = domain(&first);
    keys(&mut domain).servers = vec![address(&first.uri()), address(&second.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("the first", |book| book.online() == Some(first.uri()));
    first.stop();
    mirror.until("the second", |book| book.online() == Some(second.uri()));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    first.start();
    mirror.until("the first again", |book| book.online() == Some(first.uri()));
}

#[test]
fn servers_wrong_protocol_port_is_named() {
    let setup =
        SlapdOptions { certificate: Some(ServerCertificate::Good), ..SlapdOptions::new(SCHEMA) };
    let slapd = Slapd::serving(setup, &ldif());
    let authority = secrets(Some(&slapd.authority()));
    let (plain, secure) = (slapd.uri(), slapd.ldaps_uri());
    for (uri, start_tls, message) in [
        (plain.replace("ldap:", "ldaps:"), false, &directory::TLS_NOT_SPOKEN),
        (secure.replace("ldaps:", "ldap:"), false, &directory::CLOSED_BEFORE_REPLY),
        (secure.replace("ldaps:", "ldap:"), true, &directory::CLOSED_BEFORE_REPLY),
    ] {
        let mut domain = domain(&slapd);
        let keys = keys(&mut domain);
        keys.start_tls = start_tls;
        keys.servers = vec![address(&uri)];
        let mirror = Mirror::start(&domain, &authority);
        let reason = offline_reason(&mirror);
        assert!(reason.contains(message.code), "{uri}, start_tls {start_tls}: {reason}");
    }
}

#[test]
fn certificates_are_checked_for_name_time_and_authority() {
    let setup =
        SlapdOptions { certificate: Some(ServerCertificate::Good), ..SlapdOptions::new(SCHEMA) };
    let mut slapd = Slapd::serving(setup, &ldif());
    let authority = secrets(Some(&slapd.authority()));
    for start_tls in [false, true] {
        let mut domain = domain(&slapd);
        let keys = keys(&mut domain);
        keys.allow_clear_password = false;
        keys.start_tls = start_tls;
        if !start_tls {
            keys.servers = vec![address(&slapd.ldaps_uri())];
        }
        for (certificate, message) in [
            (ServerCertificate::Expired, &directory::TLS_CERTIFICATE_EXPIRED),
            (ServerCertificate::OtherName, &directory::TLS_CERTIFICATE_NAME),
            (ServerCertificate::SelfSigned, &directory::TLS_AUTHORITY_AS_SERVER),
        ] {
            slapd.stop();
            slapd.set_certificate(certificate);
            slapd.start();
            let mirror = Mirror::start(&domain, &authority);
            let reason = offline_reason(&mirror);
            assert!(reason.contains(message.code), "{certificate:?}: {reason}");
        }
        slapd.stop();
        slapd.set_certificate(ServerCertificate::Good);
        slapd.start();
        let mirror = Mirror::start(&domain, &authority);
        mirror.until("alice", |book| book.users().contains_key("alice"));
        let mirror = Mirror::start(&domain, &secrets(None));
        let reason = offline_reason(&mirror);
        assert!(reason.contains(directory::TLS_AUTHORITY_UNKNOWN.code), "{reason}");
    }
}

#[test]
fn a_password_does_not_cross_the_network_in_clear() {
    let slapd = slapd();
    let mut domain = domain(&slapd);
    keys(&mut domain).allow_clear_password = false;
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    // Not a loopback address by its range, and slapd answers there.
    let mapped = Ldap { host: "::ffff:127.0.0.1".to_owned(), port: slapd.port() };
    keys(&mut domain).servers = vec![mapped];
    let mirror = Mirror::start(&domain, &secrets(None));
    let reason = offline_reason(&mirror);
    assert!(reason.contains(directory::BIND_PASSWORD_UNENCRYPTED.code), "{reason}");
}

#[test]
fn a_wrong_password_and_a_wrong_base_are_named() {
    let slapd = slapd();
    let mut wrong = secrets(None);
    wrong.bind_password = Some("guess".to_owned());
    let mirror = Mirror::start(&domain(&slapd), &wrong);
    let reason = offline_reason(&mirror);
    assert!(
        reason.contains("bind as cn=reader") && reason.contains("invalidCredentials"),
        "{reason}"
    );

    let mut domain = domain(&slapd);
    keys(&mut domain).users.bases = vec![SearchBase::subtree("ou=nowhere,dc=example,dc=com")];
    let mirror = Mirror::start(&domain, &secrets(None));
    let reason = offline_reason(&mirror);
    assert!(
        reason.contains("ou=nowhere") && reason.contains(directory::SEARCH_BASE_MISSING.code),
        "{reason}"
    );
}

#[test]
fn a_local_socket_tells_the_server_who_we_are() {
    let slapd = slapd();
    let mut domain = domain(&slapd);
    let keys = keys(&mut domain);
    keys.servers = vec![address(&slapd.ldapi_uri())];
    keys.bind = BindMethod::External;
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
}

#[test]
fn a_message_beyond_the_cap_ends_the_connection_with_a_word() {
    let slapd = slapd();
    let mut domain = domain(&slapd);
    keys(&mut domain).message_bytes_max = 200;
    let mirror = Mirror::start(&domain, &secrets(None));
    let reason = offline_reason(&mirror);
    assert!(reason.contains("message_bytes_max"), "{reason}");
}

#[test]
fn provider_full_sink_is_not_server_silence() {
    let slapd = slapd();
    let book = Arc::new(common::Book::default());
    book.full.store(true, Ordering::Relaxed);
    let mut domain = domain(&slapd);
    keys(&mut domain).search_timeout = Duration::from_secs(1);
    let mirror = Mirror::resume(&domain, &secrets(None), Arc::clone(&book));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((book.puts(), book.offline()), (0, None));
    book.full.store(false, Ordering::Relaxed);
    mirror.until("alice", |book| book.users().contains_key("alice"));
}
