// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between roster-krb5 and its callers: any bytes are a message or rejected, and a parsed message is encoded
//! as it was. No field of it can add a line to libkrb5's configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_krb5_helper::ipc::{HelperReply, HelperRequest, HelperSetup, MessageBuffer};
use roster_krb5_helper::realm::Realm;
use roster_krb5_helper::session_ticket::SessionTicket;

/// Characters that krb5.conf(5) or a URL needs.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|char| char.is_control() || "{}\"'=#;*\\ ".contains(char))
}

fn is_harmless(realm: &Realm) -> bool {
    let mut servers = realm.kdcs.iter().chain(&realm.kpasswds);
    is_plain(&realm.name) && servers.all(|server| is_plain(server) && !server.contains('/'))
}

fuzz_target!(|input: &[u8]| {
    if let Ok(setup) = HelperSetup::decode(input) {
        assert!(is_harmless(&setup.realm));
        assert!(HelperSetup::decode(&setup.encode()[4..]) == Ok(setup));
    }
    if let Ok(request) = HelperRequest::decode(input) {
        assert!(request.realm.as_ref().is_none_or(is_harmless));
        assert!(HelperRequest::decode(&request.encode()[4..]) == Ok(request));
    }
    if let Ok(reply) = HelperReply::decode(input) {
        assert!(HelperReply::decode(&reply.encode()[4..]) == Ok(reply));
    }
    if let Ok(ticket) = SessionTicket::decode(input) {
        assert!(is_harmless(&ticket.realm) && is_plain(&ticket.cache));
        assert!(SessionTicket::decode(&ticket.encode()) == Ok(ticket));
    }
    let mut incoming = MessageBuffer::default();
    for piece in input.chunks(7) {
        incoming.push(piece);
        while let Ok(Some(_)) = incoming.next_message() {}
    }
});
