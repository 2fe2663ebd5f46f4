// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies, and lines of bpftrace, as the lab reads them: no bytes may crash it. The accepted bytes are present in the
//! input. An incomplete reply is accepted only when more bytes have come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_lab::dns::message::{self, DnsReply, RecordType};
use roster_lab::krb5::message::{self as krb5, KdcReply, KdcRequestKind};
use roster_lab::ldap::reply;
use roster_lab::locust::{message as locust, zmtp};
use roster_lab::message_engine;
use roster_lab::password_schemes;
use roster_lab::trace::bpftrace_script::{self, EventTexts, Probe, ProbeEvent};
use roster_lab::trace::{rosterd_probes, sssd_probes};
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
            values.iter().for_each(|value| drop(password_schemes::read(value)));
        }
        rest = &rest[length..];
    }
    drop(password_schemes::read(bytes));

    for octets in [2, 4] {
        if let Ok(Some((begin, end))) = message_engine::frame(bytes, octets) {
            assert!(begin <= end && end <= bytes.len());
        }
    }
    let mut query = Vec::new();
    if message::write_query(7, bytes, RecordType::Ptr, &mut query).is_ok() {
        assert!(message::read(&query, &query).is_err(), "a query is no answer");
        query[2] |= 0x80;
        assert_eq!(message::read(&query, &query), Ok(DnsReply::Empty), "no record");
        let _ = message::read(bytes, &query);
    }

    for op in [KdcRequestKind::As, KdcRequestKind::Tgs] {
        match krb5::read(bytes, op) {
            Ok(KdcReply::Refused(_, list)) => drop(krb5::salt_params(list)),
            Ok(KdcReply::Granted(grant)) => {
                let _ = krb5::salt_params(grant.salt_params);
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
    let _ = krb5::salt_params(bytes);
    let _ = krb5::session(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let (events, texts) = read_lines(text, &rosterd_probes::PROBES);
        let _ = rosterd_probes::join(&events, &texts);
        let (events, texts) = read_lines(text, &sssd_probes::PROBES);
        let domains = events.iter().map(|event| (event.pid, "corp".to_owned()));
        let _ = sssd_probes::join(&events, &texts, &domains.collect::<HashMap<_, _>>());
    }
});

/// Parses lines of bpftrace. Each names its probe by one letter, because none would be met by chance.
fn read_lines(text: &str, probes: &'static [Probe]) -> (Vec<ProbeEvent>, EventTexts) {
    let (all, mut texts) = (probes.iter().collect::<Vec<_>>(), EventTexts::default());
    let line = |line: &str| {
        let number = usize::from(line.bytes().next()?);
        let rest = line.get(1..)?;
        let line = format!("{}\t{rest}", probes.get(number % probes.len())?.name);
        bpftrace_script::parse_event(&line, &all, &mut texts)
    };
    let events = text.lines().filter_map(line).collect();
    (events, texts)
}
