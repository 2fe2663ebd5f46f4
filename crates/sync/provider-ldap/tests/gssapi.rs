// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binds by GSSAPI against a played server and a played `roster-krb5 bind`. The client must refuse invalid steps of the
//! server on the way to an encrypted connection.

mod common;

use common::{Book, SOON};
use roster_config::{DomainSecrets, parse};
use roster_krb5_helper::bind_ipc::{BindCall, BindReply, message_length};
use roster_messages::Message;
use roster_messages::table::directory;
use roster_provider::Provider;
use roster_provider_ldap::{GssapiHelper, LdapProvider};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Plays the server: each element answers one request, with its id in place of `ID`.
type Replies = &'static [&'static [u8]];

const ID: u8 = 0xee;
/// A bind response, saslBindInProgress, with the token "t".
const STEP: &[u8] = b"\x30\x0f\x02\x01\xee\x61\x0a\x0a\x01\x0e\x04\x00\x04\x00\x87\x01t";
const SUCCESS: &[u8] = b"\x30\x0c\x02\x01\xee\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
const INVALID: &[u8] = b"\x30\x0c\x02\x01\xee\x61\x07\x0a\x01\x31\x04\x00\x04\x00";
/// The success, and the result of a search that the client has not sent yet.
const SUCCESS_AND_MORE: &[u8] = b"\x30\x0c\x02\x01\xee\x61\x07\x0a\x01\x00\x04\x00\x04\x00\
    \x30\x0c\x02\x01\x05\x65\x07\x0a\x01\x00\x04\x00\x04\x00";

fn play_server(replies: Replies) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, replies));
        }
    });
    port
}

fn answer(mut stream: TcpStream, replies: Replies) {
    let mut request = [0; 4096];
    // The ids of requests are their numbers on the connection.
    for (reply, id) in replies.iter().zip(1..) {
        let Ok(1..) = stream.read(&mut request) else { return };
        let reply: Vec<u8> = reply.iter().map(|&byte| if byte == ID { id } else { byte }).collect();
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
    let _ = stream.read(&mut request);
}

/// Plays the program: it answers the calls of each connection with these replies.
fn play_program(replies: fn() -> Vec<BindReply>) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        (&theirs).write_all(&BindReply::Ready(String::new()).encode()).unwrap();
        while let Some(backend) = receive_descriptor(&theirs) {
            let mut backend = UnixStream::from(backend);
            for reply in replies() {
                let mut head = [0; 4];
                if backend.read_exact(&mut head).is_err() {
                    break;
                }
                let mut call = vec![0; message_length(head).unwrap()];
                backend.read_exact(&mut call).unwrap();
                assert!(BindCall::decode(&call).is_ok());
                backend.write_all(&reply.encode()).unwrap();
            }
        }
    });
    ours
}

fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::empty());
    if received.ok()?.bytes == 0 {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    })
}

/// Returns the reason why the mirror is offline.
fn offline_reason(replies: Replies, program: fn() -> Vec<BindReply>) -> String {
    let port = play_server(replies);
    let text = format!(
        "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nbase = 'dc=x'\n\
         uris = ['ldap://127.0.0.1:{port}']\nbind = 'gssapi'\nkrb5_realm = 'LAB.TEST'\n\
         krb5_kdcs = ['kdc']\nconnect_timeout = '1m'\n"
    );
    let domain = parse(&text).unwrap().config.domains.remove(0);
    let book = Arc::new(Book::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let helper = GssapiHelper::new(Ok(play_program(program)));
        let secrets = DomainSecrets::default();
        let ldap = LdapProvider::new(&domain, &secrets, Arc::clone(&book) as _, Some(helper));
        let ldap = ldap.expect("set up");
        let found = async {
            loop {
                if let Some(reason) = book.offline() {
                    return reason;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            reason = ldap.mirror(Vec::new()) => panic!("the mirror ended: {reason}"),
            reason = tokio::time::timeout(SOON, found) => reason.expect("a reason"),
        }
    })
}

fn token() -> BindReply {
    BindReply::Token(b"token".to_vec())
}

fn last() -> BindReply {
    BindReply::Last {
        token: b"last".to_vec(),
        life: Duration::from_secs(3600),
        principal: "host/h@LAB.TEST".to_owned(),
    }
}

fn failed() -> BindReply {
    BindReply::Failed { message: &directory::BIND_KEY_OUTDATED, detail: "old".to_owned() }
}

#[test]
fn gssapi_bind_with_improper_server_has_code() {
    let rejected = &directory::GSSAPI_BIND_REJECTED;
    type Case = (Replies, fn() -> Vec<BindReply>, &'static Message);
    let cases: [Case; 6] = [
        // Success before the server has proven its identity.
        (&[SUCCESS], || vec![token()], rejected),
        (&[STEP, SUCCESS], || vec![token(), token()], rejected),
        // No success after the last token.
        (&[STEP, STEP], || vec![token(), last()], rejected),
        (&[INVALID], || vec![token()], rejected),
        // Bytes in clear text behind the success, which the connection would take for encrypted ones.
        (&[STEP, SUCCESS_AND_MORE], || vec![token(), last()], &directory::MALFORMED_REPLY),
        (&[STEP], || vec![token(), failed()], &directory::BIND_KEY_OUTDATED),
    ];
    for (replies, program, message) in cases {
        let reason = offline_reason(replies, program);
        assert!(reason.contains(message.code), "{message}: {reason}");
    }
}

#[test]
fn gssapi_lost_process_has_code() {
    let reason = offline_reason(&[STEP], || vec![token()]);
    assert!(reason.contains(directory::GSSAPI_PROCESS_ENDED.code), "{reason}");
}
