//! What a PAM module and its responder say to each other: whatever comes is read or refused, and what is read is
//! what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_wire::pam::{
    ANSWER_HEADER_BYTES, AnswerHeader, MESSAGE_BYTES_MAX, Messages, REQUEST_BYTES_MAX,
    REQUEST_HEADER_BYTES, Request, RequestHeader,
};

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<REQUEST_HEADER_BYTES>()
        && let Ok(header) = RequestHeader::parse(header)
    {
        assert!(REQUEST_HEADER_BYTES + header.bytes() <= REQUEST_BYTES_MAX);
    }
    if let Ok(request) = Request::read(bytes) {
        let mut room = [0; REQUEST_BYTES_MAX];
        assert_eq!(request.write(&mut room), Some(bytes));
    }
    if let Some((header, rest)) = bytes.split_first_chunk::<ANSWER_HEADER_BYTES>() {
        if let Ok(parsed) = AnswerHeader::parse(header) {
            assert_eq!(&parsed.encode(), header);
        }
        for message in Messages::new(rest) {
            assert!(message.text.len() <= MESSAGE_BYTES_MAX && !message.text.contains(&0));
        }
    }
});
