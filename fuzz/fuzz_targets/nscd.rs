// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol and the maps of nscd. Any request is parsed or rejected, and a parsed request agrees with its bytes. A
//! map of any bytes is safe for lookups. Any text of nsswitch.conf is parsed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_nscd::live_map::{bytes_needed, find};
use roster_nscd::protocol::{self, MapLookupKind, NscdRequest, ParsedRequest};
use roster_nscd::{nss_helper, nsswitch};

fuzz_target!(|input: &[u8]| {
    match protocol::parse(input) {
        ParsedRequest::Complete(NscdRequest::Lookup(kind, key)) => {
            assert!(!key.contains(&0) && key.len() < protocol::KEY_BYTES_MAX);
            let mut request = protocol::bytes(&[2, kind as i32, key.len() as i32 + 1]);
            request.extend_from_slice(key);
            request.push(0);
            assert!(input.starts_with(&request));
        }
        ParsedRequest::Incomplete => {
            assert!(input.len() < protocol::REQUEST_HEADER_BYTES + protocol::KEY_BYTES_MAX)
        }
        ParsedRequest::Complete(_) | ParsedRequest::Invalid => {}
    }
    if let Ok(Some(nss_helper::HelperReply::Found(packet))) = nss_helper::decode_reply(input) {
        assert_eq!(packet.len() + nss_helper::REPLY_HEADER_BYTES, input.len());
    }
    let lines = nsswitch::parse(input);
    assert!(lines.passwd.steps.len() <= 2 && lines.initgroups.steps.len() <= 2);
    let _ = bytes_needed(input);
    for kind in MapLookupKind::ALL {
        let _ = find(input, kind, b"root");
        let _ = find(input, kind, b"0");
    }
});
