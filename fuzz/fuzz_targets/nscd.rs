//! The protocol and the maps of nscd: any request is read or refused, and what is read says what its
//! bytes say; any bytes at all are safe to look up in; any text of nsswitch.conf is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_nscd::live::{find, needs};
use roster_nscd::protocol::{self, Kind, Parsed, Request};
use roster_nscd::{host, nsswitch};

fuzz_target!(|input: &[u8]| {
    match protocol::parse(input) {
        Parsed::Whole(Request::LookUp(kind, key)) => {
            assert!(!key.contains(&0) && key.len() < protocol::KEY_BYTES_MAX);
            let mut request = protocol::bytes(&[2, kind as i32, key.len() as i32 + 1]);
            request.extend_from_slice(key);
            request.push(0);
            assert!(input.starts_with(&request));
        }
        Parsed::More => {
            assert!(input.len() < protocol::REQUEST_HEADER_BYTES + protocol::KEY_BYTES_MAX)
        }
        Parsed::Whole(_) | Parsed::Wrong => {}
    }
    if let Ok(Some(host::Answer::Found(packet))) = host::answer(input) {
        assert_eq!(packet.len() + host::ANSWER_HEADER_BYTES, input.len());
    }
    let lines = nsswitch::parse(input);
    assert!(lines.passwd.steps.len() <= 2 && lines.initgroups.steps.len() <= 2);
    let _ = needs(input);
    for kind in Kind::ALL {
        let _ = find(input, kind, b"root");
        let _ = find(input, kind, b"0");
    }
});
