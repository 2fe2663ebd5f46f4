// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broken or hostile servers. The test plays them, since no real server does this on demand.

mod common;

use common::{Mirror, address, domain, keys, secrets};
use roster_config::{DirectorySchema, DomainMode, LdapConfig};
use roster_messages::Message;
use roster_messages::table::{directory, login};
use roster_provider::authenticator::{Authenticator, LoginUser};
use roster_provider::{LookupError, LookupQuery, LookupScope, Provider};
use roster_provider_ldap::ber::{BerReader, BerWriter, MessageFrame, frame, tag};
use roster_provider_ldap::message::oid;
use roster_provider_ldap::{BindAuthenticator, LdapProvider};
use roster_secret::Secret;
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The action of the server after the mirror's search with this id arrives.
type Deed = fn(&mut TcpStream, u32);

/// Returns the URI of a server that accepts any bind and offers content synchronization.
fn server(deed: Deed) -> String {
    played(move |stream, id, kind, _| {
        if kind == SEARCH {
            deed(stream, id);
        }
    })
}

const BIND: u8 = 0x60;
const SEARCH: u8 = 0x63;
const ABANDON: u8 = 0x50;

/// State that a server and its test share.
#[derive(Default)]
struct Stage {
    /// Number of accepted connections.
    accepted: AtomicUsize,
    /// The server sends no more replies.
    frozen: AtomicBool,
    /// The server is a controller of Active Directory, without content synchronization.
    is_controller: bool,
}

/// Returns the URI of a server with an action for each further request: its id, its kind and its bytes. Only binds of
/// users are among these requests.
fn played(act: impl Fn(&mut TcpStream, u32, u8, &[u8]) + Clone + Send + 'static) -> String {
    played_on(&Arc::default(), act)
}

/// Returns the URI of such a server, which the test watches and freezes.
fn played_on(
    stage: &Arc<Stage>,
    act: impl Fn(&mut TcpStream, u32, u8, &[u8]) + Clone + Send + 'static,
) -> String {
    let stage = Arc::clone(stage);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("ldap://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let act = act.clone();
            let stage = Arc::clone(&stage);
            stage.accepted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let mut searches = 0;
                let mut buffer = Vec::new();
                loop {
                    let length = match frame(&buffer, 1 << 20).unwrap() {
                        MessageFrame::Whole(length) => length,
                        MessageFrame::Needs(_) => {
                            let mut some = [0; 4096];
                            match stream.read(&mut some) {
                                Ok(count @ 1..) => buffer.extend_from_slice(&some[..count]),
                                _ => return,
                            }
                            continue;
                        }
                    };
                    let request: Vec<u8> = buffer.drain(..length).collect();
                    if stage.frozen.load(Ordering::SeqCst) {
                        continue;
                    }
                    let mut reader = BerReader::new(&request).inner(tag::SEQUENCE).unwrap();
                    let id = reader.number(tag::INTEGER).unwrap();
                    match reader.element().unwrap().0 {
                        BIND if !holds(&request, "uid=") => send(&mut stream, &done(id, 0x61, 0)),
                        SEARCH if searches == 0 => {
                            searches += 1;
                            let (name, oid) = match stage.is_controller {
                                true => ("supportedCapabilities", "1.2.840.113556.1.4.800"),
                                false => ("supportedControl", oid::SYNC_REQUEST),
                            };
                            send(&mut stream, &entry(id, "", name, &[oid.as_bytes()], &[]));
                            send(&mut stream, &done(id, 0x65, 0));
                        }
                        0x42 => return,
                        kind => act(&mut stream, id, kind, &request),
                    }
                }
            });
        }
    });
    uri
}

fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

fn message(id: u32, operation: impl FnOnce(&mut BerWriter), controls: &[u8]) -> Vec<u8> {
    let mut writer = BerWriter::default();
    writer.constructed(tag::SEQUENCE, |writer| {
        writer.number(tag::INTEGER, id);
        operation(writer);
        if !controls.is_empty() {
            writer.constructed(tag::context_constructed(0), |writer| writer.raw(controls));
        }
    });
    writer.into_bytes()
}

fn done(id: u32, kind: u8, code: u32) -> Vec<u8> {
    let operation = |writer: &mut BerWriter| {
        writer.constructed(kind, |writer| {
            writer.number(tag::ENUMERATED, code);
            writer.octets(b"");
            writer.octets(b"so be it");
        });
    };
    message(id, operation, &[])
}

fn entry(id: u32, dn: &str, name: &str, values: &[&[u8]], controls: &[u8]) -> Vec<u8> {
    entry_of(id, dn, &[(name, values.to_vec())], controls)
}

fn entry_of(
    id: u32,
    dn: impl AsRef<[u8]>,
    attributes: &[(&str, Vec<&[u8]>)],
    controls: &[u8],
) -> Vec<u8> {
    let operation = |writer: &mut BerWriter| {
        writer.constructed(0x64, |writer| {
            writer.octets(dn.as_ref());
            writer.constructed(tag::SEQUENCE, |writer| {
                for (name, values) in attributes {
                    writer.constructed(tag::SEQUENCE, |writer| {
                        writer.octets(name.as_bytes());
                        writer.constructed(tag::SET, |writer| {
                            values.iter().for_each(|value| writer.octets(value));
                        });
                    });
                }
            });
        });
    };
    message(id, operation, controls)
}

/// The end of a refresh.
fn refreshed(id: u32) -> Vec<u8> {
    let mut value = BerWriter::default();
    value.constructed(tag::context_constructed(1), |writer| writer.octets(b"rid=001,csn=1"));
    let operation = |writer: &mut BerWriter| {
        writer.constructed(0x79, |writer| {
            writer.primitive(0x80, oid::SYNC_INFO.as_bytes());
            writer.primitive(0x81, &value.into_bytes());
        });
    };
    message(id, operation, &[])
}

/// An entry as content synchronization sends it.
fn synchronized(id: u32) -> Vec<u8> {
    synchronized_user(id, "eve")
}

/// All have the same UUID.
fn synchronized_user(id: u32, name: &str) -> Vec<u8> {
    let dn = format!("uid={name},dc=example,dc=com");
    let attributes: [(&str, &[u8]); 5] = [
        ("objectClass", b"posixAccount"),
        ("uid", name.as_bytes()),
        ("uidNumber", b"5001"),
        ("gidNumber", b"5001"),
        ("homeDirectory", b"/home"),
    ];
    let attributes = attributes.map(|(name, value)| (name, vec![value]));
    entry_of(id, &dn, &attributes, &added([7; 16]))
}

/// The control of an entry that is new.
fn added(uuid: [u8; 16]) -> Vec<u8> {
    let mut state = BerWriter::default();
    state.constructed(tag::SEQUENCE, |writer| {
        writer.number(tag::ENUMERATED, 1);
        writer.octets(&uuid);
    });
    let mut control = BerWriter::default();
    control.constructed(tag::SEQUENCE, |writer| {
        writer.octets(oid::SYNC_STATE.as_bytes());
        writer.octets(&state.into_bytes());
    });
    control.into_bytes()
}

/// Mirrors the domain of a played server.
fn mirror_of(uri: &str) -> Mirror {
    mirror_with(uri, Duration::from_secs(1))
}

/// Mirrors with a search timeout that no test waits for.
fn patient_mirror_of(uri: &str) -> Mirror {
    mirror_with(uri, Duration::from_secs(3600))
}

fn mirror_with(uri: &str, search_timeout: Duration) -> Mirror {
    mirror_configured(uri, |keys| keys.search_timeout = search_timeout)
}

fn mirror_configured(uri: &str, configure: impl FnOnce(&mut LdapConfig)) -> Mirror {
    static REAL: OnceLock<Slapd> = OnceLock::new();
    let schema = Schema::Rfc2307;
    let real = REAL
        .get_or_init(|| Slapd::loaded(SlapdOptions::new(schema), &LdifBuilder::new(schema).tree()));
    assert!(real.uri() != uri);
    let mut domain = domain(real);
    let keys = keys(&mut domain);
    keys.servers = vec![address(uri)];
    keys.message_bytes_max = 1 << 20;
    configure(keys);
    Mirror::start(&domain, &secrets(None))
}

/// Sets up such a domain in on-demand mode, with long timeouts.
fn asked(uri: &str) -> Mirror {
    let real = Slapd::loaded(
        SlapdOptions::new(Schema::Rfc2307),
        &LdifBuilder::new(Schema::Rfc2307).tree(),
    );
    let mut domain = domain(&real);
    domain.mode = DomainMode::OnDemand;
    let keys = keys(&mut domain);
    keys.servers = vec![address(uri)];
    keys.search_timeout = Duration::from_secs(30);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("online", |book| book.online().is_some());
    mirror
}

fn user(name: &str) -> LookupQuery {
    LookupQuery::UserByName(name.as_bytes().to_vec())
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Parsing 96 MiB of names from one of the servers takes long in a test build.
const LONG: Duration = Duration::from_secs(300);

/// Checks that the reason for being offline has this code and these words, and that nothing was published.
#[track_caller]
fn fails_with(deed: Deed, message: &Message, words: &str) {
    let mirror = mirror_of(&server(deed));
    mirror.within(LONG, words, |book| book.offline().is_some_and(|reason| reason.contains(words)));
    let reason = mirror.book.offline().unwrap_or_default();
    assert!(reason.contains(message.code), "{reason}");
    // It is tried again, with the same outcome.
    thread::sleep(Duration::from_millis(500));
    assert!(mirror.book.ends().is_empty(), "no refresh was whole");
    assert_eq!(mirror.book.flushes(), 0, "nothing was let out");
}

#[test]
fn a_refresh_that_is_cut_short_is_no_refresh() {
    for code in [3, 4, 11] {
        let deed: Deed = match code {
            3 => |stream, id| send(stream, &[synchronized(id), done(id, 0x65, 3)].concat()),
            4 => |stream, id| send(stream, &[synchronized(id), done(id, 0x65, 4)].concat()),
            _ => |stream, id| send(stream, &[synchronized(id), done(id, 0x65, 11)].concat()),
        };
        fails_with(deed, &directory::SEARCH_LIMIT, "");
    }
    fails_with(
        |stream, id| send(stream, &[synchronized(id), done(id, 0x65, 51)].concat()),
        &directory::SEARCH_FAILED,
        "busy",
    );
    fails_with(
        |stream, id| send(stream, &[synchronized(id), done(id, 0x65, 0)].concat()),
        &directory::SEARCH_INTERRUPTED,
        "",
    );
}

#[test]
fn a_connection_that_ends_in_a_refresh_is_no_refresh() {
    fails_with(
        |stream, id| {
            send(stream, &synchronized(id));
            let _ = stream.shutdown(std::net::Shutdown::Both);
        },
        &directory::CONNECTION_LOST,
        "",
    );
    fails_with(
        |stream, id| {
            let announcement = done(0, 0x78, 52);
            send(stream, &[synchronized(id), announcement].concat());
        },
        &directory::CONNECTION_ENDED,
        "server ends the connection: unavailable (52)",
    );
}

#[test]
fn silence_in_a_refresh_is_a_failure() {
    fails_with(
        |stream, id| send(stream, &synchronized(id)),
        &directory::NO_REPLY,
        "no reply to a search within 1 s",
    );
}

#[test]
fn bytes_that_are_not_ldap_end_the_connection() {
    fails_with(
        |stream, _| send(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        &directory::MALFORMED_REPLY,
        "not an LDAP message",
    );
    fails_with(
        |stream, _| send(stream, b"\x30\x80\x02\x01\x01\x00\x00"),
        &directory::MALFORMED_REPLY,
        "malformed",
    );
    fails_with(
        |stream, _| send(stream, b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff"),
        &directory::MALFORMED_REPLY,
        "longer than message_bytes_max",
    );
    fails_with(
        |stream, _| send(stream, b"\x30\x03\x02\x01\xff"),
        &directory::MALFORMED_REPLY,
        "negative number",
    );
    // Nested as deeply as fits into a message.
    fails_with(
        |stream, _| {
            let mut nest = vec![0x30, 0x84, 0, 0, 0xea, 0x60];
            nest.resize(6 + 60_000, 0x30);
            send(stream, &nest);
        },
        &directory::MALFORMED_REPLY,
        "malformed",
    );
}

#[test]
fn folders_without_end_are_refused() {
    fails_with(
        |stream, id| {
            let pad = "x".repeat(200 << 10);
            for number in 0..1000_u128 {
                let dn = format!("ou={number}{pad},dc=example,dc=com");
                let class = ("objectClass", vec![&b"organizationalUnit"[..]]);
                send(stream, &entry_of(id, &dn, &[class], &added(number.to_be_bytes())));
            }
        },
        &directory::TOO_MANY_CONTAINERS,
        "container names below \"dc=example,dc=com\" take more than 96 MiB",
    );
}

#[test]
fn an_entry_without_its_key_is_not_guessed_at() {
    fails_with(
        |stream, id| send(stream, &entry(id, "uid=a", "uid", &[b"a"], &[])),
        &directory::MALFORMED_REPLY,
        "an entry without its sync state",
    );
}

#[test]
fn a_slow_question_is_given_up_alone_and_the_server_is_told() {
    let (told, abandoned) = mpsc::channel();
    let mirror = asked(&played(move |stream, id, kind, request| match kind {
        ABANDON => drop(told.send(())),
        SEARCH if holds(request, "slow") => {}
        _ => send(stream, &done(id, 0x65, 0)),
    }));
    let slow = mirror.start_query(|ldap| async move {
        let patience = Duration::from_millis(500);
        tokio::time::timeout(patience, ldap.lookup(&user("slow"))).await.expect_err("no answer");
    });
    let waiting = mirror.start_query(|ldap| async move { ldap.lookup(&user("slow")).await });
    assert_eq!(slow.recv(), Ok(()), "whoever asked has left");
    assert_eq!(abandoned.recv_timeout(common::SOON), Ok(()));
    for name in 0..100 {
        assert_eq!(mirror.look_up(user(&format!("quick{name}"))), Ok(false));
    }
    assert!(waiting.try_recv().is_err(), "the other one waits, on the same connection");
    assert!(abandoned.try_recv().is_err());
    assert_eq!(mirror.book.offline(), None);
}

#[test]
fn questions_that_nobody_waits_for_any_more_leave_their_places_to_others() {
    let mirror = asked(&played(|stream, id, kind, request| {
        if kind == SEARCH && !holds(request, "slow") {
            send(stream, &done(id, 0x65, 0));
        }
    }));
    let leavers: Vec<_> = (0..200)
        .map(|number| {
            mirror.start_query(move |ldap| async move {
                let patience = Duration::from_millis(300);
                let asked = user(&format!("slow{number}"));
                tokio::time::timeout(patience, ldap.lookup(&asked)).await.expect_err("no answer");
            })
        })
        .collect();
    assert!(leavers.into_iter().all(|leaver| leaver.recv() == Ok(())));
    assert_eq!(mirror.look_up(user("quick")), Ok(false));
    assert_eq!(mirror.book.offline(), None);
}

#[test]
fn a_server_that_leaves_a_question_and_a_probe_unanswered_is_gone() {
    // It answers the trial queries.
    let mirror = asked(&played(|stream, id, kind, request| {
        if kind == SEARCH && holds(request, "roster") {
            send(stream, &done(id, 0x65, 0));
        }
    }));
    let asked = mirror.start_query(|ldap| async move {
        let patience = Duration::from_millis(100);
        let _ = tokio::time::timeout(patience, ldap.lookup(&user("alice"))).await;
        ldap.lookup(&user("alice")).await
    });
    mirror.until("offline", |book| {
        book.offline().is_some_and(|reason| reason.contains("no reply to a keepalive"))
    });
    let failed = asked.recv_timeout(common::SOON).expect("told with the others");
    assert!(matches!(failed, Err(LookupError::Unreachable(_))), "{failed:?}");
}

/// The search timeout is too long, so only the check over a second connection can end this.
#[test]
fn frozen_during_search_second_connection_reports_offline() {
    let stage = Arc::new(Stage::default());
    let on_stage = Arc::clone(&stage);
    let uri = played_on(&stage, move |_, _, kind, _| {
        if kind == SEARCH {
            on_stage.frozen.store(true, Ordering::SeqCst);
        }
    });
    let mirror = patient_mirror_of(&uri);
    mirror.until("offline", |book| {
        book.offline()
            .is_some_and(|reason| reason.contains("no reply to a keepalive over a second"))
    });
    assert!(stage.accepted.load(Ordering::SeqCst) >= 2, "there was a second connection");
}

#[test]
fn long_search_of_server_that_answers_probes_succeeds() {
    let stage = Arc::new(Stage::default());
    let on_stage = Arc::clone(&stage);
    let uri = played_on(&stage, move |stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            // Two checks get replies. This connection reads nothing meanwhile.
            let before = on_stage.accepted.load(Ordering::SeqCst);
            wait_until(common::SOON, "two more connections", || {
                on_stage.accepted.load(Ordering::SeqCst) >= before + 2
            });
            send(stream, &[synchronized_user(id, "eve"), refreshed(id)].concat());
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    });
    let mirror = patient_mirror_of(&uri);
    mirror.until("eve", |book| book.users().contains_key("eve"));
    assert_eq!((mirror.book.offline(), mirror.book.ends().len()), (None, 1));
}

#[test]
fn frozen_while_idle_probe_reports_offline() {
    let stage = Arc::new(Stage::default());
    let uri = played_on(&stage, move |stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            send(stream, &[synchronized_user(id, "eve"), refreshed(id)].concat());
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    });
    let mirror = patient_mirror_of(&uri);
    mirror.until("eve", |book| book.users().contains_key("eve"));
    stage.frozen.store(true, Ordering::SeqCst);
    mirror.until("offline", |book| {
        book.offline().is_some_and(|reason| reason.contains("no reply to a keepalive"))
    });
}

#[test]
fn an_answer_without_end_is_refused_and_the_others_come() {
    // A thousand messages with one entry, 70 MiB in total.
    let mirror = asked(&played(|stream, id, kind, request| {
        if kind == SEARCH && holds(request, "vast") {
            let value = vec![b'x'; 70 << 10];
            for _ in 0..1024 {
                send(stream, &entry(id, "uid=vast,dc=x", "uid", &[&value], &[]));
            }
        } else if kind == SEARCH {
            send(stream, &done(id, 0x65, 0));
        }
    }));
    let failed = mirror.run_query(|ldap| async move { ldap.lookup(&user("vast")).await });
    let Err(LookupError::Failed(reason)) = failed else { panic!("{failed:?}") };
    assert_eq!(reason.message, &directory::RESULTS_TOO_LARGE);
    assert_eq!(mirror.look_up(user("quick")), Ok(false));
}

#[test]
fn duplicates_same_uuid_second_is_reported() {
    // Every search of the mirror lists both entries, however often the search begins again.
    let mirror = mirror_of(&played(|stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            let listing =
                [synchronized_user(id, "eve"), synchronized_user(id, "adam"), refreshed(id)];
            send(stream, &listing.concat());
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    }));
    mirror.until("eve", |book| book.users().contains_key("eve"));
    assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["eve"]);
    let rejected = mirror.book.rejected();
    let reason = &rejected["uid=adam,dc=example,dc=com"];
    let uuid = "07070707-0707-0707-0707-070707070707";
    let text = format!("the entry has UUID {uuid} of another entry, which is served");
    assert_eq!(*reason, format!("{text} [{}]", directory::DUPLICATE_UUID.code));
    assert_eq!(
        (mirror.book.ends().len(), mirror.book.offline()),
        (1, None),
        "asked twice, ended once"
    );
    for message in [&directory::DUPLICATE_UUIDS, &directory::STAMP_UNREADABLE_SYNC] {
        assert!(mirror.logged.has(message.code), "{:?}", mirror.logged.codes());
    }
}

/// The group of the servers below: more members than one reply shows.
const STAFF: &str = "cn=staff,dc=example,dc=com";

/// The entry of the group with one attribute of members, named as given.
fn staff(id: u32, description: &str, members: &[String], controls: &[u8]) -> Vec<u8> {
    let attributes = [
        ("objectClass", vec![&b"posixGroup"[..]]),
        ("cn", vec![b"staff"]),
        ("gidNumber", vec![b"6000"]),
        ("entryUUID", vec![b"00000000-0000-0000-0000-000000000009"]),
        ("memberUid", Vec::new()),
        (description, members.iter().map(String::as_bytes).collect()),
    ];
    entry_of(id, STAFF, &attributes, controls)
}

fn members(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("member{number}")).collect()
}

/// A piece of the members, from a server that shows `most` of `all` at once.
fn piece(id: u32, request: &[u8], all: u32, most: u32) -> Vec<u8> {
    let asked = |from: u32| holds(request, &format!("memberuid;range={from}-*"));
    let from = (0..=all).find(|&from| asked(from)).unwrap_or(0);
    let end = (from + most).min(all);
    let last = if end == all { "*".to_owned() } else { (end - 1).to_string() };
    staff(id, &format!("memberUid;range={from}-{last}"), &members(from..end), &[])
}

/// A server that shows few members at once, of a group that its refresh lists.
fn ranged(all: u32, most: u32) -> String {
    played(move |stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            let shown = format!("memberUid;range=0-{}", most - 1);
            let group = staff(id, &shown, &members(0..most), &added([9; 16]));
            send(stream, &[group, refreshed(id)].concat());
        } else if kind == SEARCH && holds(request, "memberuid;range=") {
            send(stream, &[piece(id, request, all, most), done(id, 0x65, 0)].concat());
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    })
}

#[test]
fn members_in_ranges_are_mirrored_whole() {
    for (all, most) in [(7, 3), (6, 3), (1501, 1500)] {
        let mirror = mirror_of(&ranged(all, most));
        mirror.until("the group", |book| book.groups().contains_key("staff"));
        let names = members(0..all).iter().map(|name| format!("?{name}")).collect();
        assert_eq!(mirror.book.groups()["staff"], (6000, names), "{all} in pieces of {most}");
        assert_eq!(mirror.book.rejected(), [].into());
    }
}

/// The entry of the group with lists of DNs, each named as given.
fn staff_of_dns(
    id: u32,
    lists: &[(&'static str, std::ops::Range<u32>)],
    names: &[&str],
    controls: &[u8],
) -> Vec<u8> {
    let dns = |(list, range): &(&'static str, std::ops::Range<u32>)| {
        (*list, range.clone().map(|number| format!("uid=m{number},dc=x")).collect::<Vec<_>>())
    };
    let lists: Vec<_> = lists.iter().map(dns).collect();
    let mut attributes = vec![
        ("objectClass", vec![&b"posixGroup"[..]]),
        ("cn", vec![b"staff"]),
        ("gidNumber", vec![b"6000"]),
        ("entryUUID", vec![b"00000000-0000-0000-0000-000000000009"]),
        ("memberUid", names.iter().map(|name| name.as_bytes()).collect()),
    ];
    for (list, dns) in &lists {
        attributes.push((list, dns.iter().map(String::as_bytes).collect()));
    }
    entry_of(id, STAFF, &attributes, controls)
}

#[test]
fn ranges_of_two_lists_are_mirrored_whole() {
    const RESTS: [(&str, &str, std::ops::Range<u32>); 3] = [
        ("uniquemember;range=2-*", "uniqueMember;range=2-3", 2..4),
        ("uniquemember;range=4-*", "uniqueMember;range=4-*", 4..5),
        ("member;range=1-*", "member;range=1-*", 7..9),
    ];
    let mirror = mirror_of(&played(|stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        if holds(request, oid::SYNC_REQUEST) {
            let lists = [("uniqueMember;range=0-1", 0..2), ("member;range=0-0", 6..7)];
            let group = staff_of_dns(id, &lists, &["named"], &added([9; 16]));
            return send(stream, &[group, refreshed(id)].concat());
        }
        let found = match RESTS.into_iter().find(|(asked, ..)| holds(request, asked)) {
            Some((_, list, range)) => staff_of_dns(id, &[(list, range)], &[], &[]),
            None => entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]),
        };
        send(stream, &[found, done(id, 0x65, 0)].concat());
    }));
    mirror.until("the group", |book| book.groups().contains_key("staff"));
    let dns = (0..5).chain(6..9).map(|number| format!("?uid=m{number},dc=x"));
    let names = dns.chain(["?named".to_owned()]).collect();
    assert_eq!(mirror.book.groups()["staff"], (6000, names));
    assert_eq!(mirror.book.rejected(), [].into());
}

#[test]
fn members_in_ranges_are_published_whole_or_not() {
    // The third piece is sent after the test has checked.
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let (reached, at_gate) = mpsc::channel();
    let mirror = mirror_of(&played(move |stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            let group = staff(id, "memberUid;range=0-2", &members(0..3), &added([9; 16]));
            send(stream, &[synchronized(id), group, refreshed(id)].concat());
        } else if kind == SEARCH && holds(request, "memberuid;range=") {
            if holds(request, "memberuid;range=6-*") {
                let _ = reached.send(());
                let _ = gate.lock().expect("no other locks it").recv();
            }
            send(stream, &[piece(id, request, 7, 3), done(id, 0x65, 0)].concat());
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    }));
    at_gate.recv_timeout(common::SOON).expect("the third piece is asked for");
    assert_eq!(mirror.book.flushes(), 0, "nothing was let out");
    drop(go_on);
    mirror.until("the group", |book| book.groups().contains_key("staff"));
    assert_eq!(mirror.book.groups()["staff"].1.len(), 7);
}

#[test]
fn members_without_rest_reject_the_group() {
    let refused: fn(u32) -> Vec<u8> = |id| done(id, 0x65, 50);
    let entry_alone: fn(u32) -> Vec<u8> =
        |id| [staff(id, "seeAlso", &members(0..1), &[]), done(id, 0x65, 0)].concat();
    for rest in [refused, entry_alone] {
        rejects_the_group(rest, &directory::MEMBERS_CUT, "returns only the first 3 members");
    }
}

#[test]
fn members_range_with_hole_rejects_the_group() {
    let hole: fn(u32) -> Vec<u8> =
        |id| [staff(id, "memberUid;range=3-5", &members(3..5), &[]), done(id, 0x65, 0)].concat();
    let text = "list memberUid;range=3-5 has another number of members";
    rejects_the_group(hole, &directory::MEMBERS_UNREADABLE, text);
}

#[test]
fn members_from_busy_server_are_read_later() {
    for code in [3, 51, 52] {
        let replies = Arc::new(AtomicUsize::new(0));
        let mirror = mirror_of(&played(move |stream, id, kind, request| {
            if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
                let group = staff(id, "memberUid;range=0-2", &members(0..3), &added([9; 16]));
                send(stream, &[group, refreshed(id)].concat());
            } else if kind == SEARCH && holds(request, "memberuid;range=") {
                let sent = match replies.fetch_add(1, Ordering::SeqCst) {
                    0 => done(id, 0x65, code),
                    _ => [piece(id, request, 7, 3), done(id, 0x65, 0)].concat(),
                };
                send(stream, &sent);
            } else if kind == SEARCH {
                let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
                send(stream, &[base, done(id, 0x65, 0)].concat());
            }
        }));
        mirror.until("the group", |book| book.groups().contains_key("staff"));
        assert_eq!(mirror.book.groups()["staff"].1.len(), 7, "{code}");
        assert_eq!(mirror.book.rejected(), [].into());
    }
}

/// Checks that the group is rejected if the server shows the beginning of a list and sends this reply for its rest.
fn rejects_the_group(rest: fn(u32) -> Vec<u8>, message: &Message, text: &str) {
    let mirror = mirror_of(&played(move |stream, id, kind, request| {
        if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
            let group = staff(id, "memberUid;range=0-2", &members(0..3), &added([9; 16]));
            send(stream, &[group, refreshed(id)].concat());
        } else if kind == SEARCH && holds(request, "memberuid;range=") {
            send(stream, &rest(id));
        } else if kind == SEARCH {
            let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
            send(stream, &[base, done(id, 0x65, 0)].concat());
        }
    }));
    mirror.until("a rejection", |book| book.rejected().contains_key(STAFF));
    let reason = &mirror.book.rejected()[STAFF];
    assert!(reason.contains(text), "{reason}");
    assert!(reason.contains(message.code), "{reason}");
    assert!(!mirror.book.groups().contains_key("staff"));
}

#[test]
fn members_with_unknown_option_reject_the_group() {
    for list in ["memberUid;x-part", "member;x-part", "uniqueMember;range=1-2"] {
        let mirror = mirror_of(&played(move |stream, id, kind, request| {
            if kind == SEARCH && holds(request, oid::SYNC_REQUEST) {
                let group = staff(id, list, &members(0..3), &added([9; 16]));
                send(stream, &[group, refreshed(id)].concat());
            } else if kind == SEARCH {
                let base = entry(id, "dc=example,dc=com", "entryUUID", &[&[1; 16]], &[]);
                send(stream, &[base, done(id, 0x65, 0)].concat());
            }
        }));
        mirror.until("a rejection", |book| book.rejected().contains_key(STAFF));
        assert!(mirror.book.rejected()[STAFF].contains(list));
        assert!(!mirror.book.groups().contains_key("staff"));
    }
}

#[test]
fn members_in_ranges_are_looked_up_whole() {
    let mirror = asked(&played(|stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        if holds(request, "memberuid;range=") {
            send(stream, &piece(id, request, 7, 3));
        } else if holds(request, "staff") && holds(request, "memberuid") {
            send(stream, &staff(id, "memberUid;range=0-2", &members(0..3), &[]));
        }
        send(stream, &done(id, 0x65, 0));
    }));
    assert_eq!(mirror.look_up(LookupQuery::GroupByName(b"staff".to_vec())), Ok(true));
    let names = members(0..7).iter().map(|name| format!("?{name}")).collect();
    assert_eq!(mirror.book.groups()["staff"], (6000, names));
}

#[test]
fn start_tls_bad_reply_has_code() {
    type Reply = fn(u32) -> Vec<u8>;
    let refused: Reply = |id| done(id, 0x78, 2);
    let data_before_tls: Reply = |id| [done(id, 0x78, 0), done(id, 0x78, 0)].concat();
    for (reply, message) in
        [(refused, &directory::START_TLS_REFUSED), (data_before_tls, &directory::TLS_FAILED)]
    {
        let real = Slapd::loaded(
            SlapdOptions::new(Schema::Rfc2307),
            &LdifBuilder::new(Schema::Rfc2307).tree(),
        );
        let mut domain = domain(&real);
        keys(&mut domain).start_tls = true;
        let uri = played(move |stream, id, _, _| send(stream, &reply(id)));
        keys(&mut domain).servers = vec![address(&uri)];
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("offline", |book| book.offline().is_some());
        let reason = mirror.book.offline().unwrap_or_default();
        assert!(reason.contains(message.code), "{reason}");
    }
}

/// An entry of a user without a key, and the end of its search.
fn account(id: u32, dn: &[u8], name: &str, uid: &str, key: Option<&str>) -> Vec<u8> {
    let attributes = [
        ("objectClass", "posixAccount"),
        ("uid", name),
        ("uidNumber", uid),
        ("gidNumber", "5001"),
        ("homeDirectory", "/home"),
    ];
    let key = key.map(|key| ("entryUUID", key));
    let attributes: Vec<_> = attributes
        .into_iter()
        .chain(key)
        .map(|(name, value)| (name, vec![value.as_bytes()]))
        .collect();
    entry_of(id, dn, &attributes, &[])
}

/// A server of users that cannot log in. Each name is its fault.
fn faulty_users(stream: &mut TcpStream, id: u32, kind: u8, request: &[u8]) {
    let dn = |name: &str| format!("uid={name},dc=example,dc=com").into_bytes();
    let found = |name: &str| account(id, &dn(name), name, "5001", None);
    match kind {
        BIND if holds(request, "uid=busy") => return send(stream, &done(id, 0x61, 51)),
        BIND => return send(stream, &done(id, 0x61, 2)),
        SEARCH => {}
        _ => return,
    }
    let names = ["busy", "odd", "alias", "latin", "other"];
    let found = match names.into_iter().find(|name| holds(request, name)) {
        Some("alias") => [found("alias"), found("alias")].concat(),
        Some("latin") => account(id, b"uid=\xe9,dc=example,dc=com", "latin", "5001", None),
        Some("other") => account(id, &dn("other"), "other", "5002", None),
        Some(name) => found(name),
        None => Vec::new(),
    };
    send(stream, &[found, done(id, 0x65, 0)].concat());
}

#[test]
fn logins_without_decision_have_codes() {
    for (name, is_public, message) in [
        ("busy", false, &login::BIND_UNDECIDED),
        ("odd", false, &login::BIND_CODE_UNEXPECTED),
        ("alias", false, &directory::USER_NAME_AMBIGUOUS),
        ("latin", false, &directory::DN_NOT_UTF8),
        ("other", false, &login::DIRECTORY_UID_MISMATCH),
        ("odd", true, &login::USER_PASSWORD_UNENCRYPTED),
    ] {
        let real = Slapd::loaded(
            SlapdOptions::new(Schema::Rfc2307),
            &LdifBuilder::new(Schema::Rfc2307).tree(),
        );
        let mut domain = domain(&real);
        domain.mode = DomainMode::OnDemand;
        let uri = played(faulty_users);
        // An address outside of the loopback range.
        let uri = if is_public { uri.replace("127.0.0.1", "::ffff:127.0.0.1") } else { uri };
        keys(&mut domain).servers = vec![address(&uri)];
        keys(&mut domain).allow_clear_user_passwords = !is_public;
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("online", |book| book.online().is_some());
        let answer = mirror.run_query(move |ldap| async move {
            let binds = BindAuthenticator::new(&domain, &secrets(None), ldap).expect("set up");
            let person = LoginUser { name: name.as_bytes().to_vec(), uid: 5001, host_uid: 5001 };
            let password = Secret::copy_of(b"secret").expect("memory");
            binds.authenticate(&person, &password, common::SOON).await
        });
        assert_eq!(answer.message(), Some(message), "{name}: {}", answer.reason);
    }
}

#[test]
fn login_without_server_is_logged_as_offline() {
    let real = Slapd::loaded(
        SlapdOptions::new(Schema::Rfc2307),
        &LdifBuilder::new(Schema::Rfc2307).tree(),
    );
    let mut domain = domain(&real);
    domain.mode = DomainMode::OnDemand;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    keys(&mut domain).servers = vec![address(&format!("ldap://{closed}"))];
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.run_query(move |ldap| async move {
        let binds = BindAuthenticator::new(&domain, &secrets(None), ldap).expect("set up");
        let person = LoginUser { name: b"alice".to_vec(), uid: 5001, host_uid: 5001 };
        let password = Secret::copy_of(b"secret").expect("memory");
        binds.authenticate(&person, &password, common::SOON).await
    });
    assert!(mirror.logged.has(login::PASSWORD_CHECKS_OFFLINE.code), "{:?}", mirror.logged.codes());
}

/// A group with this number in its name, gid and key.
fn numbered_group(id: u32, number: usize) -> Vec<u8> {
    let (name, gid) = (format!("g{number}"), (10_000 + number).to_string());
    let key = format!("00000000-0000-0000-0001-{number:012}");
    let attributes = [
        ("objectClass", vec![&b"posixGroup"[..]]),
        ("cn", vec![name.as_bytes()]),
        ("gidNumber", vec![gid.as_bytes()]),
        ("entryUUID", vec![key.as_bytes()]),
    ];
    entry_of(id, format!("cn={name},dc=x"), &attributes, &[])
}

#[test]
fn lookup_groups_nested_endlessly_has_code() {
    let searches = Arc::new(AtomicUsize::new(0));
    let mirror = asked(&played(move |stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        let number = searches.fetch_add(1, Ordering::SeqCst);
        let is_of_groups = holds(request, "posixGroup");
        let found = if is_of_groups {
            numbered_group(id, number)
        } else if holds(request, "deep") {
            let key = "00000000-0000-0000-0000-000000000009";
            account(id, b"uid=deep,dc=x", "deep", "5001", Some(key))
        } else {
            Vec::new()
        };
        send(stream, &[found, done(id, 0x65, 0)].concat());
    }));
    let groups = mirror.look_up(LookupQuery::GroupsOf(b"deep".to_vec()));
    let reason = groups.expect_err("groups around groups without end");
    assert!(reason.contains(directory::GROUPS_NESTED_TOO_DEEP.code), "{reason}");
}

#[test]
fn lookup_user_in_too_many_groups_has_code() {
    // The user is in 6,000 groups. Each search for groups around 100 of them finds 100 others.
    let known = Arc::new(AtomicUsize::new(0));
    let mirror = asked(&played(move |stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        let groups = |count| -> Vec<u8> {
            let first = known.fetch_add(count, Ordering::SeqCst);
            (first..first + count).flat_map(|number| numbered_group(id, number)).collect()
        };
        let is_of_groups = holds(request, "posixGroup");
        let found = if is_of_groups && holds(request, "joiner") {
            groups(6000)
        } else if is_of_groups && holds(request, "cn=g") {
            groups(100)
        } else if holds(request, "joiner") {
            let key = "00000000-0000-0000-0000-000000000009";
            account(id, b"uid=joiner,dc=x", "joiner", "5001", Some(key))
        } else {
            Vec::new()
        };
        send(stream, &[found, done(id, 0x65, 0)].concat());
    }));
    let groups = mirror.look_up(LookupQuery::GroupsOf(b"joiner".to_vec()));
    let reason = groups.expect_err("too many groups");
    assert!(reason.contains(directory::USER_IN_TOO_MANY_GROUPS.code), "{reason}");
}

#[test]
fn dynamic_groups_without_list_have_codes() {
    for (is_silent, message) in
        [(false, &directory::DYNAMIC_GROUPS_UNREADABLE), (true, &directory::DYNAMIC_GROUPS_TIMEOUT)]
    {
        let mirror = mirror_of(&played(move |stream, id, kind, request| {
            if kind != SEARCH {
                return;
            }
            let sent = if holds(request, oid::SYNC_REQUEST) {
                [synchronized(id), refreshed(id)].concat()
            } else if holds(request, "groupOfURLs") {
                // The server is unwilling to perform it.
                if is_silent { Vec::new() } else { done(id, 0x65, 53) }
            } else {
                done(id, 0x65, 0)
            };
            send(stream, &sent);
        }));
        mirror.until("it is logged", |_| mirror.logged.has(message.code));
        mirror.until("eve", |book| book.users().contains_key("eve"));
    }
}

#[test]
fn key_listing_without_reply_has_code() {
    let uri = played(|stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        let sent = if holds(request, oid::SYNC_REQUEST) {
            [synchronized(id), refreshed(id)].concat()
        } else if holds(request, "posixAccount") && !holds(request, "groupOfURLs") {
            // The listing of keys.
            Vec::new()
        } else {
            done(id, 0x65, 0)
        };
        send(stream, &sent);
    });
    let mirror = mirror_configured(&uri, |keys| {
        keys.search_timeout = Duration::from_secs(1);
        keys.sweep = Duration::from_millis(500);
    });
    mirror.until("it is logged", |_| mirror.logged.has(directory::KEY_LISTING_TIMEOUT.code));
    mirror.until("eve", |book| book.users().contains_key("eve"));
}

#[test]
fn lookups_with_unusable_query_or_reply_have_codes() {
    let mirror = asked(&played(|stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        let found = match holds(request, "keyless") {
            true => account(id, b"uid=keyless,dc=x", "keyless", "5001", None),
            false => Vec::new(),
        };
        send(stream, &[found, done(id, 0x65, 0)].concat());
    }));
    let reason = mirror.look_up(user("keyless")).expect_err("no key");
    assert!(reason.contains(directory::ENTRY_WITHOUT_KEY.code), "{reason}");
    let refused =
        mirror.run_query(|ldap| async move { ldap.matches_filter(b"a", 5001, "(a=b").await });
    let reason = refused.expect_err("no filter").into_reason();
    assert_eq!(reason.message, &directory::FILTER_INVALID);
}

#[test]
fn key_search_before_any_mirror_has_code() {
    let real = Slapd::serving(
        SlapdOptions::new(Schema::Rfc2307),
        &LdifBuilder::new(Schema::Rfc2307).tree(),
    );
    let sink = Arc::new(common::Book::default());
    let ldap = LdapProvider::new(&domain(&real), &secrets(None), sink, None).expect("set up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(ldap.search_keys(LookupScope::Users, &[], &[]));
    let reason = refused.expect_err("nothing is mirrored").into_reason();
    assert_eq!(reason.message, &directory::NO_MIRROR_SERVER, "{reason}");
}

/// A user of a controller.
fn ad_user(id: u32, is_listing: bool, number: Option<&str>, shell: &str) -> Vec<u8> {
    let mut attributes = vec![("objectGUID", vec![&[9; 16][..]])];
    attributes.extend(number.map(|number| ("uSNChanged", vec![number.as_bytes()])));
    if is_listing {
        attributes.extend([
            ("objectClass", vec![&b"user"[..]]),
            ("uid", vec![b"eve"]),
            ("uidNumber", vec![b"5001"]),
            ("gidNumber", vec![b"5001"]),
            ("homeDirectory", vec![b"/home/eve"]),
            ("loginShell", vec![shell.as_bytes()]),
        ]);
    }
    entry_of(id, "cn=eve,dc=example,dc=com", &attributes, &[])
}

/// Returns the entries of a search, and the highest number after this many full listings.
type ControllerState = fn(u32, &[u8], usize) -> (Vec<u8>, &'static [u8]);

/// Checks that a mirror of a controller with these entries sees that the shell of eve becomes `/bin/bash`.
#[track_caller]
fn follows_shell(state: ControllerState, poll: Duration, sweep: Duration) -> Mirror {
    let listings = Arc::new(AtomicUsize::new(0));
    let stage = Arc::new(Stage { is_controller: true, ..Stage::default() });
    let uri = played_on(&stage, move |stream, id, kind, request| {
        if kind != SEARCH {
            return;
        }
        let (entries, number) = state(id, request, listings.load(Ordering::SeqCst));
        let found = if holds(request, "highestCommittedUSN") {
            entry(id, "", "highestCommittedUSN", &[number], &[])
        } else if holds(request, "uSNChanged") {
            // A full listing requests the shell, and has no number in its filter.
            let is_full = holds(request, "loginshell") && !holds(request, "101");
            listings.fetch_add(usize::from(is_full), Ordering::SeqCst);
            entries
        } else {
            entry(id, "dc=example,dc=com", "objectGUID", &[&[1; 16]], &[])
        };
        send(stream, &[found, done(id, 0x65, 0)].concat());
    });
    let mirror = mirror_configured(&uri, |keys| {
        keys.schema = DirectorySchema::ActiveDirectoryPosix;
        (keys.poll, keys.sweep) = (poll, sweep);
    });
    mirror.until("the change", |book| {
        book.users().get("eve").is_some_and(|user| user.shell == "/bin/bash")
    });
    mirror
}

#[test]
fn ad_hidden_change_numbers_are_read_at_intervals() {
    let mirror = follows_shell(
        |id, request, listings| {
            let shell = if listings == 0 { "/bin/sh" } else { "/bin/bash" };
            // Numbers that the reader may not see match no filter.
            let entries = match holds(request, "101") {
                true => Vec::new(),
                false => ad_user(id, holds(request, "loginshell"), None, shell),
            };
            (entries, b"100")
        },
        Duration::from_millis(50),
        Duration::from_millis(300),
    );
    assert!(mirror.logged.has(directory::STAMP_UNREADABLE_POLL.code));
}

#[test]
fn ad_changes_are_seen_with_rare_polls() {
    let mirror = follows_shell(
        |id, request, listings| {
            let (shell, number) =
                if listings == 0 { ("/bin/sh", "100") } else { ("/bin/bash", "200") };
            let user = ad_user(id, holds(request, "loginshell"), Some(number), shell);
            (user, number.as_bytes())
        },
        Duration::from_secs(3600),
        Duration::from_millis(200),
    );
    assert!(!mirror.logged.has(directory::STAMP_UNREADABLE_POLL.code));
}
