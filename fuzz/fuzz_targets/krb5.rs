//! What roster-krb5 and its callers say to each other: any bytes whatever are a message or refused, and what
//! is taken for one comes back as it was. No field of it can add a line to libkrb5's configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_krb5::message::{Incoming, Reply, Request, Setup};
use roster_krb5::realm::Realm;
use roster_krb5::tickets::Tickets;

/// Characters that krb5.conf(5) or a URL needs.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|char| char.is_control() || "{}\"'=#;*\\ ".contains(char))
}

fn is_harmless(realm: &Realm) -> bool {
    let mut servers = realm.kdcs.iter().chain(&realm.kpasswds);
    is_plain(&realm.name) && servers.all(|server| is_plain(server) && !server.contains('/'))
}

fuzz_target!(|input: &[u8]| {
    if let Ok(setup) = Setup::decode(input) {
        assert!(is_harmless(&setup.realm));
        assert!(Setup::decode(&setup.encode()[4..]) == Ok(setup));
    }
    if let Ok(request) = Request::decode(input) {
        assert!(request.realm.as_ref().is_none_or(is_harmless));
        assert!(Request::decode(&request.encode()[4..]) == Ok(request));
    }
    if let Ok(reply) = Reply::decode(input) {
        assert!(Reply::decode(&reply.encode()[4..]) == Ok(reply));
    }
    if let Ok(tickets) = Tickets::decode(input) {
        assert!(is_harmless(&tickets.realm) && is_plain(&tickets.cache));
        assert!(Tickets::decode(&tickets.encode()) == Ok(tickets));
    }
    let mut incoming = Incoming::default();
    for piece in input.chunks(7) {
        incoming.push(piece);
        while let Ok(Some(_)) = incoming.message() {}
    }
});
