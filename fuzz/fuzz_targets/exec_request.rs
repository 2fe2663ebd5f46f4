// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of roster-exec clients, and replies of a daemon: any bytes are a frame or rejected, and a parsed frame is
//! encoded as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_exec::protocol::{CommandReply, CommandRequest, HEADER_BYTES, decode_signal};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = CommandRequest::decode(input) {
        let bytes = request.encode().expect("what was read is not too long");
        let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("a frame has a header");
        assert_eq!(CommandRequest::length(*head), Ok(body.len()));
        assert_eq!(body, input);
    }
    let Some((head, body)) = input.split_first_chunk::<HEADER_BYTES>() else { return };
    let _ = CommandRequest::length(*head);
    if CommandReply::length(*head) == Ok(body.len())
        && let Ok(answer) = CommandReply::decode(*head, body)
    {
        let bytes = answer.encode();
        let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("a frame has a header");
        assert_eq!(CommandReply::decode(*head, body), Ok(answer));
    }
    if let Ok(frame) = input.try_into() {
        let _ = decode_signal(frame);
    }
});
