//! Replies, and lines of bpftrace, as the lab reads them: no bytes may crash it, what is taken is there, and what is
//! not whole yet is taken only when more has come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_lab::dns::message::{self, Reply, Type};
use roster_lab::exchange;
use roster_lab::krb5::message::{self as krb5, Answer, Op};
use roster_lab::ldap::reply;
use roster_lab::locust::{message as locust, zmtp};
use roster_lab::schemes;
use roster_lab::trace::script::{self, Event, Probe, Texts};
use roster_lab::trace::{rosterd, sssd};
use std::collections::HashMap;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((reply, length))) = reply::next(rest) {
        assert!(length > 0 && length <= rest.len());
        assert_eq!(reply::next(&rest[..length]), Ok(Some((reply, length))));
        for short in [0, 1, 2, length / 2, length - 1] {
            assert!(matches!(reply::next(&rest[..short]), Ok(None)), "{short} of {length}");
        }
        // An entry, and how its passwords are stored.
        for (_, values) in reply::attributes(&rest[..length]).unwrap_or_default() {
            values.iter().for_each(|value| drop(schemes::read(value)));
        }
        rest = &rest[length..];
    }
    drop(schemes::read(bytes));

    for octets in [2, 4] {
        if let Ok(Some((begin, end))) = exchange::frame(bytes, octets) {
            assert!(begin <= end && end <= bytes.len());
        }
    }
    let mut query = Vec::new();
    if message::write_query(7, bytes, Type::Ptr, &mut query).is_ok() {
        assert!(message::read(&query, &query).is_err(), "a query is no answer");
        query[2] |= 0x80;
        assert_eq!(message::read(&query, &query), Ok(Reply::Empty), "no record");
        let _ = message::read(bytes, &query);
    }

    for op in [Op::As, Op::Tgs] {
        match krb5::read(bytes, op) {
            Ok(Answer::Refused(_, list)) => drop(krb5::hint(list)),
            Ok(Answer::Granted(grant)) => {
                let _ = krb5::hint(grant.hints);
                let _ = krb5::session(grant.sealed);
            }
            Err(_) => {}
        }
    }
    let _ = locust::read(bytes);
    let mut master = bytes;
    while let Ok(Some(message)) = zmtp::read_message(&mut master) {
        assert!(message.len() < bytes.len());
        let _ = locust::read(&message);
    }
    let _ = krb5::hint(bytes);
    let _ = krb5::session(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let (events, texts) = read_lines(text, &rosterd::PROBES);
        let _ = rosterd::join(&events, &texts);
        let (events, texts) = read_lines(text, &sssd::PROBES);
        let domains = events.iter().map(|event| (event.pid, "corp".to_owned()));
        let _ = sssd::join(&events, &texts, &domains.collect::<HashMap<_, _>>());
    }
});

/// What lines of bpftrace say; each names its probe by one letter, lest none be met by chance.
fn read_lines(text: &str, probes: &'static [Probe]) -> (Vec<Event>, Texts) {
    let (all, mut texts) = (probes.iter().collect::<Vec<_>>(), Texts::default());
    let line = |line: &str| {
        let number = usize::from(line.bytes().next()?);
        let rest = line.get(1..)?;
        let line = format!("{}\t{rest}", probes.get(number % probes.len())?.name);
        script::read(&line, &all, &mut texts)
    };
    let events = text.lines().filter_map(line).collect();
    (events, texts)
}
