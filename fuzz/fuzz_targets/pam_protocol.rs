// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a PAM module and its responder: any bytes are parsed or rejected, and a parsed message equals its
//! encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_request::auth::MESSAGE_BYTES_MAX;
use roster_wire::pam::{
    AuthMessages, AuthRequest, AuthRequestHeader, AuthResponseHeader, REQUEST_BYTES_MAX,
    REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES,
};

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<REQUEST_HEADER_BYTES>()
        && let Ok(header) = AuthRequestHeader::parse(header)
    {
        assert!(REQUEST_HEADER_BYTES + header.bytes() <= REQUEST_BYTES_MAX);
    }
    if let Ok(request) = AuthRequest::read(bytes) {
        let mut room = [0; REQUEST_BYTES_MAX];
        assert_eq!(request.write(&mut room), Some(bytes));
    }
    if let Some((header, rest)) = bytes.split_first_chunk::<RESPONSE_HEADER_BYTES>() {
        if let Ok(parsed) = AuthResponseHeader::parse(header) {
            assert_eq!(&parsed.encode(), header);
        }
        for message in AuthMessages::new(rest) {
            assert!(message.text.len() <= MESSAGE_BYTES_MAX && !message.text.contains(&0));
        }
    }
});
