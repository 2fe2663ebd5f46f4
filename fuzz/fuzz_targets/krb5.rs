//! What roster-krb5 and its callers say to each other: any bytes whatever are a message or refused, and what
//! is taken for one comes back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_krb5::message::{Incoming, Reply, Request, Setup};
use roster_krb5::tickets::Tickets;

fuzz_target!(|input: &[u8]| {
    if let Ok(setup) = Setup::decode(input) {
        assert!(Setup::decode(&setup.encode()[4..]) == Ok(setup));
    }
    if let Ok(request) = Request::decode(input) {
        assert!(Request::decode(&request.encode()[4..]) == Ok(request));
    }
    if let Ok(reply) = Reply::decode(input) {
        assert!(Reply::decode(&reply.encode()[4..]) == Ok(reply));
    }
    if let Ok(tickets) = Tickets::decode(input) {
        assert!(Tickets::decode(&tickets.encode()) == Ok(tickets));
    }
    let mut incoming = Incoming::default();
    for piece in input.chunks(7) {
        incoming.push(piece);
        while let Ok(Some(_)) = incoming.message() {}
    }
});
