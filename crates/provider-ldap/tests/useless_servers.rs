//! Servers that let us in and are of no use then: doubles that speak LDAP and refuse what matters.

mod common;

use common::{Mirror, address, domain, keys, secrets};
use roster_provider_ldap::ber::{Frame, Reader, Writer, frame, tag};
use roster_provider_ldap::message::{code, oid};
use roster_system_tests::{Directory, Schema, Server, Setup, Slapd};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SCHEMA: Schema = Schema::Rfc2307;

/// Answers binds and asks about itself, says that it offers content synchronization, and refuses it.
struct Double {
    port: u16,
    /// Synchronizations that were asked for.
    asked: Arc<AtomicUsize>,
}

impl Double {
    /// `sync` and `search` are the result codes of searches with and without controls.
    fn refusing(sync: u32, search: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("its own address").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || serve(client, &count, sync, search));
            }
        });
        Self { port, asked }
    }

    fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn serve(mut client: TcpStream, asked: &AtomicUsize, sync: u32, search: u32) {
    let (mut bytes, mut read) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = client.read(&mut read) {
        bytes.extend_from_slice(&read[..count]);
        while let Ok(Frame::Whole(length)) = frame(&bytes, 1 << 20) {
            let message: Vec<u8> = bytes.drain(..length).collect();
            let mut message = Reader::new(&message).inner(tag::SEQUENCE).expect("a message");
            let id = message.number(tag::INTEGER).expect("its id");
            let (kind, body) = message.element().expect("what is asked");
            let answer = match kind {
                0x60 => done(id, 0x61, code::SUCCESS),
                0x63 if Reader::new(body).expect(tag::OCTETS) == Ok(b"") => {
                    [root(id), done(id, 0x65, code::SUCCESS)].concat()
                }
                0x63 if message.is_empty() => done(id, 0x65, search),
                0x63 => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    done(id, 0x65, sync)
                }
                _ => Vec::new(),
            };
            if client.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn message(id: u32, kind: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
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
    let directory = Directory::new(SCHEMA);
    Slapd::serving(Setup::new(SCHEMA), &(directory.tree() + &directory.user("alice", 5001)))
}

#[test]
fn a_server_that_wants_a_refresh_where_there_is_nothing_to_refresh_is_not_asked_without_pause() {
    let double = Double::refusing(code::SYNC_REFRESH_REQUIRED, code::SUCCESS);
    let mut domain = domain(&slapd());
    keys(&mut domain).servers = vec![address(&double.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("a reason", |book| {
        book.offline().is_some_and(|reason| reason.contains("syncRefreshRequired"))
    });
    thread::sleep(Duration::from_secs(2));
    // Two searches a round, and pauses that double.
    assert!((2..=30).contains(&double.asked()), "{} times", double.asked());
}

#[test]
fn a_preferred_server_that_fails_each_time_is_gone_back_to_ever_more_rarely() {
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

#[test]
fn a_preferred_server_that_does_not_let_us_search_is_not_gone_back_to() {
    let (double, good) = (Double::refusing(code::BUSY, code::INSUFFICIENT_ACCESS), slapd());
    let mut domain = domain(&good);
    keys(&mut domain).servers = vec![address(&double.uri()), address(&good.uri())];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("alice", |book| book.users().contains_key("alice"));
    let before = double.asked();
    thread::sleep(Duration::from_secs(4));
    assert_eq!(double.asked(), before);
}
