// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of the local protocols parsed and encoded: lookups and logins between a module and rosterd,
//! commands between `roster-exec` and its daemon, and a simple bind to a directory server.

use crate::corpus::{ASKED_USER, asked_user, with_user};
use gungraun::prelude::*;
use roster_counts::message;
use roster_exec::protocol::encode_request;
use roster_request::LookupKind;
use roster_wire::pam::{self, AuthMessages, AuthResponseHeader};
use roster_wire::{NssReplyHeader, NssRequest, PayloadStrings};
use std::hint::black_box;

/// A frame, the parser that has to accept it, and the parser's result.
struct Parse {
    frame: Vec<u8>,
    accepts: fn(&[u8]) -> bool,
    is_accepted: bool,
}

fn frame_to_parse(frame: fn() -> Vec<u8>, accepts: fn(&[u8]) -> bool) -> Parse {
    let frame = frame();
    assert!(accepts(&frame) && !accepts(&frame[..frame.len() - 1]));
    Parse { frame, accepts, is_accepted: false }
}

fn assert_accepted(parse: Parse) {
    assert!(parse.is_accepted);
}

#[library_benchmark(setup = frame_to_parse, teardown = assert_accepted)]
#[bench::lookup_request(lookup_request, accepts_lookup_request)]
#[bench::lookup_reply(lookup_reply, accepts_lookup_reply)]
#[bench::login_request(login_request, accepts_login_request)]
#[bench::login_reply(login_reply, accepts_login_reply)]
#[bench::command_request(command_request, accepts_command_request)]
fn parse(mut parse: Parse) -> Parse {
    parse.is_accepted = (parse.accepts)(&parse.frame);
    parse
}

fn lookup_request() -> Vec<u8> {
    let name = asked_user();
    let mut space = [0; roster_wire::REQUEST_BYTES_MAX];
    let request =
        NssRequest::by_name(LookupKind::UserByName, name.as_bytes()).expect("the name is valid");
    request.write(&mut space).to_vec()
}

fn accepts_lookup_request(frame: &[u8]) -> bool {
    black_box(NssRequest::read(frame)).is_ok()
}

fn lookup_reply() -> Vec<u8> {
    let mut frame = Vec::new();
    with_user(ASKED_USER, |user| roster_wire::encode::user(&mut frame, user))
        .expect("the user fits");
    frame
}

fn accepts_lookup_reply(frame: &[u8]) -> bool {
    let Ok(header) = NssReplyHeader::from_frame(frame) else { return false };
    let mut strings = PayloadStrings::new(&frame[frame.len() - header.payload_bytes..]);
    (0..5).all(|_| black_box(strings.next_string()).is_ok()) && strings.end().is_ok()
}

fn login_request() -> Vec<u8> {
    let name = asked_user();
    let request = pam::AuthRequest {
        kind: roster_request::AuthRequestKind::Authenticate,
        user: name.as_bytes(),
        uid: Some(crate::corpus::ASKED_UID),
        service: b"sshd",
        remote_host: b"workstation.example.org",
        terminal: b"ssh",
        remote_user: b"",
        secret: b"correct horse battery staple",
        new_secret: b"",
        domains: b"",
    };
    let mut space = [0; pam::REQUEST_BYTES_MAX];
    request.write(&mut space).expect("the request fits").to_vec()
}

fn accepts_login_request(frame: &[u8]) -> bool {
    black_box(pam::AuthRequest::read(frame)).is_ok()
}

fn login_reply() -> Vec<u8> {
    let mut messages = Vec::new();
    pam::write_message(&mut messages, false, "Your password expires in 7 days.");
    pam::write_message(&mut messages, true, "Two logins failed since the last one.");
    let header = AuthResponseHeader {
        result: roster_request::AuthResult::Success,
        is_offline: false,
        messages: 2,
        messages_bytes: messages.len(),
        blob_bytes: 0,
    };
    [&header.encode()[..], &messages].concat()
}

fn accepts_login_reply(frame: &[u8]) -> bool {
    let Some((header, rest)) = frame.split_first_chunk() else { return false };
    let Ok(header) = AuthResponseHeader::parse(header) else { return false };
    let read = AuthMessages::new(rest).map(black_box).count();
    read == header.messages
}

fn command_request() -> Vec<u8> {
    let argv: [&[u8]; 5] = [b"ip", b"netns", b"exec", b"router", b"true"];
    let variables: [&[u8]; 3] = [b"PATH=/usr/bin:/bin", b"LANG=C.UTF-8", b"HOME=/root"];
    encode_request(b"root", &argv, &variables).expect("the request fits")
}

fn accepts_command_request(frame: &[u8]) -> bool {
    let Some((header, body)) = frame.split_first_chunk() else { return false };
    let length = roster_exec::protocol::CommandRequest::length(*header);
    length == Ok(body.len())
        && black_box(roster_exec::protocol::CommandRequest::decode(body)).is_ok()
}

/// Encodes a frame once, so that the allocator has a free block of its size.
fn frame_to_encode(make: fn() -> Vec<u8>) -> fn() -> Vec<u8> {
    drop(make());
    make
}

fn assert_encoded(frame: Vec<u8>) {
    assert!(frame.len() > 20);
}

#[library_benchmark(setup = frame_to_encode, teardown = assert_encoded)]
#[bench::simple_bind(simple_bind)]
fn encode(make: fn() -> Vec<u8>) -> Vec<u8> {
    make()
}

fn simple_bind() -> Vec<u8> {
    let bind = message::LdapRequest::SimpleBind {
        dn: black_box("uid=user0050,ou=people,dc=example,dc=org"),
        password: black_box(b"correct horse battery staple"),
    };
    bind.encode(black_box(7), &[])
}

library_benchmark_group!(name = frames, benchmarks = [parse, encode]);
