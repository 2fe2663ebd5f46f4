// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that accept binds and then refuse searches: doubles that speak LDAP.

mod common;

use common::{Mirror, address, domain, keys, secrets};
use roster_config::DomainMode;
use roster_messages::table::directory;
use roster_provider::{LookupError, LookupQuery, Provider};
use roster_provider_ldap::ber::{BerReader, BerWriter, MessageFrame, frame, tag};
use roster_provider_ldap::message::{code, oid};
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SCHEMA: Schema = Schema::Rfc2307;
/// Result codes that a server may give to one search or to all.
const OPERATIONS_ERROR: u32 = 1;
const UNWILLING: u32 = 53;
const OTHER: u32 = 80;

/// The double refuses each search that contains this text.
const STRANGE: &str = "strange";

/// Accepts binds and requests for the root DSE, offers content synchronization, and refuses it.
struct Double {
    port: u16,
    part: Arc<Played>,
}

struct Played {
    /// The result code of searches with controls.
    sync: u32,
    /// The result code of other searches.
    search: AtomicU32,
    /// Number of requests for content synchronization.
    asked: AtomicUsize,
    /// Number of accepted connections.
    let_in: AtomicUsize,
}

impl Double {
    /// `sync` and `search` are the result codes of searches with and without controls.
    fn refusing(sync: u32, search: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("its own address").port();
        let (search, zero) = (AtomicU32::new(search), AtomicUsize::default);
        let part = Arc::new(Played { sync, search, asked: zero(), let_in: zero() });
        let played = Arc::clone(&part);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let played = Arc::clone(&played);
                thread::spawn(move || serve(client, &played));
            }
        });
        Self { port, part }
    }

    fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> usize {
        self.part.asked.load(Ordering::Relaxed)
    }

    fn let_in(&self) -> usize {
        self.part.let_in.load(Ordering::Relaxed)
    }

    fn answers(&self, search: u32) {
        self.part.search.store(search, Ordering::Relaxed);
    }
}

fn serve(mut client: TcpStream, played: &Played) {
    let (mut bytes, mut read) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = client.read(&mut read) {
        bytes.extend_from_slice(&read[..count]);
        while let Ok(MessageFrame::Whole(length)) = frame(&bytes, 1 << 20) {
            let whole: Vec<u8> = bytes.drain(..length).collect();
            let is_strange = whole.windows(STRANGE.len()).any(|part| part == STRANGE.as_bytes());
            let mut message = BerReader::new(&whole).inner(tag::SEQUENCE).expect("a message");
            let id = message.number(tag::INTEGER).expect("its id");
            let (kind, body) = message.element().expect("what is asked");
            let answer = match kind {
                0x60 => {
                    played.let_in.fetch_add(1, Ordering::Relaxed);
                    done(id, 0x61, code::SUCCESS)
                }
                0x63 if BerReader::new(body).expect(tag::OCTETS) == Ok(b"") => {
                    [root(id), done(id, 0x65, code::SUCCESS)].concat()
                }
                0x63 if is_strange => done(id, 0x65, UNWILLING),
                0x63 if message.is_empty() => done(id, 0x65, played.search.load(Ordering::Relaxed)),
                0x63 => {
                    played.asked.fetch_add(1, Ordering::Relaxed);
                    done(id, 0x65, played.sync)
                }
                _ => Vec::new(),
            };
            if client.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn message(id: u32, kind: u8, fill: impl FnOnce(&mut BerWriter)) -> Vec<u8> {
    let mut writer = BerWriter::default();
    writer.constructed(tag::SEQUENCE, |writer| {
        writer.number(tag::INTEGER, id);
        writer.constructed(kind, fill);
    });
    writer.into_bytes()
}

fn done(id: u32, kind: u8, code: u32) -> Vec<u8> {
    message(id, kind, |writer| {
        writer.number(tag::ENUMERATED, code);
        writer.octets(b"");
        writer.octets(b"");
    })
}

fn root(id: u32) -> Vec<u8> {
    message(id, 0x64, |writer| {
        writer.octets(b"");
        writer.constructed(tag::SEQUENCE, |writer| {
            writer.constructed(tag::SEQUENCE, |writer| {
                writer.octets(b"supportedControl");
                writer.constructed(tag::SET, |writer| writer.octets(oid::SYNC_REQUEST.as_bytes()));
            });
        });
    })
}

fn slapd() -> Slapd {
    let directory = LdifBuilder::new(SCHEMA);
    Slapd::serving(SlapdOptions::new(SCHEMA), &(directory.tree() + &directory.user("alice", 5001)))
}

#[test]
fn syncrepl_refresh_required_is_not_asked_endlessly() {
    let double = Double::refusing(code::SYNC_REFRESH_REQUIRED, code::SUCCESS);
    let mut domain = domain(&slapd());
    keys(&mut domain).servers = vec![address(&double.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("a reason", |book| {
        book.offline().is_some_and(|reason| reason.contains("syncRefreshRequired"))
    });
    let reason = mirror.book.offline().unwrap_or_default();
    assert!(reason.contains(directory::SYNC_BROKEN.code), "{reason}");
    thread::sleep(Duration::from_secs(2));
    // Two searches a round, and pauses that double.
    assert!((2..=30).contains(&double.asked()), "{} times", double.asked());
}

#[test]
fn servers_failing_preferred_is_retried_more_rarely() {
    let (double, good) = (Double::refusing(code::BUSY, code::SUCCESS), slapd());
    let mut domain = domain(&good);
    keys(&mut domain).servers = vec![address(&double.uri()), address(&good.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    thread::sleep(Duration::from_secs(12));
    // At the start and after 1, 2, 4 … s rather than every second, two searches each time.
    assert!((4..=10).contains(&double.asked()), "{} times", double.asked());
    assert!(mirror.book.users().contains_key("alice"));
}

/// A listener that accepts connections and sends nothing.
fn mute() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("its own address").port();
    (listener, format!("ldap://127.0.0.1:{port}"))
}

#[test]
fn connect_silent_servers_are_passed_over_and_named() {
    let (good, (_listener, mute)) = (slapd(), mute());
    let dead = TcpListener::bind("127.0.0.1:0").expect("listen").local_addr().expect("a port");
    let dead = format!("ldap://{dead}");
    for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
        let mut domain = domain(&good);
        domain.mode = mode;
        let keys = keys(&mut domain);
        keys.servers = [&dead, &mute, &good.uri()].map(|uri| address(uri)).to_vec();
        keys.connect_timeout = Duration::from_secs(1);
        // The search timeout does not apply to the first requests of a connection.
        keys.search_timeout = Duration::from_secs(3600);
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("online", |book| book.online() == Some(good.uri()));
        let passed_over = mirror.book.passed_over();
        assert!(passed_over.contains(&format!("{dead}: cannot connect: ")), "{passed_over}");
        assert!(passed_over.contains(&format!("{mute}: no reply to connect")), "{passed_over}");
        if mode == DomainMode::OnDemand {
            assert_eq!(mirror.look_up(user("alice")), Ok(true));
        }
    }
}

#[test]
fn servers_preferred_without_search_is_not_used() {
    let (double, good) = (Double::refusing(code::BUSY, code::INSUFFICIENT_ACCESS), slapd());
    let mut domain = domain(&good);
    keys(&mut domain).servers = vec![address(&double.uri()), address(&good.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    let before = double.asked();
    thread::sleep(Duration::from_secs(4));
    assert_eq!(double.asked(), before);
}

/// Sets up lookups at a double, with a second server that has alice.
fn asked_on_demand(double: &Double, good: &Slapd) -> Mirror {
    let mut domain = domain(good);
    domain.mode = DomainMode::OnDemand;
    keys(&mut domain).servers = vec![address(&double.uri()), address(&good.uri())];
    Mirror::start(&domain, &secrets(None))
}

fn user(name: &str) -> LookupQuery {
    LookupQuery::UserByName(name.into())
}

#[test]
fn a_server_that_lets_us_in_and_answers_nothing_is_not_asked() {
    let good = slapd();
    for code in [code::BUSY, code::UNAVAILABLE, code::INSUFFICIENT_ACCESS, UNWILLING, OTHER] {
        let double = Double::refusing(code::BUSY, code);
        let mirror = asked_on_demand(&double, &good);
        assert_eq!(mirror.look_up(user("alice")), Ok(true), "{code}");
        assert_eq!(mirror.book.online(), Some(good.uri()));
        let before = double.let_in();
        // The double is tried each second.
        while double.let_in() < before + 2 {
            thread::sleep(Duration::from_millis(10));
            assert_eq!(mirror.book.online(), Some(good.uri()), "{code}: it is not gone back to");
        }
        double.answers(code::SUCCESS);
        mirror.until("the preferred again", |book| book.online() == Some(double.uri()));
    }
}

#[test]
fn lookup_dead_server_is_left_by_query() {
    let good = slapd();
    for code in [OPERATIONS_ERROR, code::BUSY, code::UNAVAILABLE, UNWILLING, OTHER] {
        let double = Double::refusing(code::BUSY, code::SUCCESS);
        let mirror = asked_on_demand(&double, &good);
        assert_eq!(mirror.look_up(user("alice")), Ok(false), "the double has nobody");
        assert_eq!(mirror.book.online(), Some(double.uri()));
        double.answers(code);
        assert_eq!(mirror.look_up(user("alice")), Ok(true), "{code}");
        mirror.until("the other server", |book| book.online() == Some(good.uri()));
    }
}

#[test]
fn where_no_server_answers_anything_the_domain_is_offline_and_says_why() {
    let double = Double::refusing(code::BUSY, code::UNAVAILABLE);
    let mut domain = domain(&slapd());
    domain.mode = DomainMode::OnDemand;
    keys(&mut domain).servers = vec![address(&double.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("a reason", |book| {
        book.offline().is_some_and(|reason| reason.contains("unavailable"))
    });
    let asked = mirror.run_query(|ldap| async move { ldap.lookup(&user("alice")).await });
    assert!(matches!(asked, Err(LookupError::Unreachable(_))), "{asked:?}");
    double.answers(code::SUCCESS);
    mirror.until("online", |book| book.online() == Some(double.uri()));
}

#[test]
fn servers_without_searches_have_codes() {
    let slapd = slapd();
    for (result, message) in [
        (UNWILLING, &directory::SEARCH_FAILED),
        (code::INSUFFICIENT_ACCESS, &directory::SEARCH_DENIED),
        (code::REFERRAL, &directory::REFERRAL),
    ] {
        let double = Double::refusing(code::BUSY, result);
        let mut domain = domain(&slapd);
        domain.mode = DomainMode::OnDemand;
        keys(&mut domain).servers = vec![address(&double.uri())];
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("offline", |book| book.offline().is_some());
        let reason = mirror.book.offline().unwrap_or_default();
        assert!(reason.contains(message.code), "{result}: {reason}");
    }
}

#[test]
fn syncrepl_advertised_and_refused_is_logged() {
    let double = Double::refusing(UNWILLING, code::SUCCESS);
    let mut domain = domain(&slapd());
    keys(&mut domain).servers = vec![address(&double.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("another method", |_| mirror.logged.has(directory::TRACKING_REFUSED.code));
}

#[test]
fn lookup_refused_query_keeps_server_for_others() {
    let (double, good) = (Double::refusing(code::BUSY, code::SUCCESS), slapd());
    let mirror = asked_on_demand(&double, &good);
    assert_eq!(mirror.look_up(user("alice")), Ok(false));
    let before = double.let_in();
    for _ in 0..10 {
        let asked = mirror.run_query(|ldap| async move { ldap.lookup(&user(STRANGE)).await });
        assert!(matches!(asked, Err(LookupError::Failed(_))), "{asked:?}");
    }
    assert_eq!(mirror.look_up(user("alice")), Ok(false));
    assert_eq!((double.let_in(), mirror.book.online()), (before, Some(double.uri())));
}
