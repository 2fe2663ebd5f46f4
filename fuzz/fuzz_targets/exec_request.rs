//! What a client of roster-exec sends, and what a daemon answers: any bytes whatever are a frame or
//! refused, and what was read is written as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_exec::wire::{Answer, HEADER_BYTES, Request, decode_signal};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::decode(input) {
        let bytes = request.encode().expect("what was read is not too long");
        let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("a frame has a header");
        assert_eq!(Request::length(*head), Ok(body.len()));
        assert_eq!(body, input);
    }
    let Some((head, body)) = input.split_first_chunk::<HEADER_BYTES>() else { return };
    let _ = Request::length(*head);
    if Answer::length(*head) == Ok(body.len())
        && let Ok(answer) = Answer::decode(*head, body)
    {
        let bytes = answer.encode();
        let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("a frame has a header");
        assert_eq!(Answer::decode(*head, body), Ok(answer));
    }
    if let Ok(frame) = input.try_into() {
        let _ = decode_signal(frame);
    }
});
