// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of a client of the rootwrap daemon, in pieces of any size: any bytes are a request or rejected. No input
//! contains the key by chance. Bytes become text and the same bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_rootwrap::oslo::frame::MessageReader;
use roster_rootwrap::oslo::hmac_handshake::authenticate;
use roster_rootwrap::oslo::request::{CommandInput, OsloRequest};
use roster_rootwrap::oslo::surrogateescape::{ByteCount, SurrogateDecoder, SurrogateEncoder};
use std::ffi::OsString;
use std::io::{self, Read, Write};

/// A client that sends its bytes in pieces and ignores replies.
struct Client<'i> {
    sends: &'i [u8],
    piece: usize,
}

impl Read for Client<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.piece);
        self.sends.read(&mut buffer[..count])
    }
}

impl Write for Client<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let piece = usize::from(piece).max(1);
    assert!(authenticate(Client { sends: input, piece }, &[7; 32]).is_err());

    let whole = request(Client { sends: input, piece: usize::MAX });
    assert_eq!(request(Client { sends: input, piece }), whole);
    // Also with the length in front that the input itself may lack.
    let framed = [&(input.len() as u64).to_be_bytes(), input].concat();
    let whole = request(Client { sends: &framed, piece: usize::MAX });
    assert_eq!(request(Client { sends: &framed, piece }), whole);

    let (mut encoder, mut text, mut count) =
        (SurrogateEncoder::default(), Vec::new(), ByteCount::default());
    for part in input.chunks(piece) {
        encoder.clone().feed(part, &mut count);
        encoder.feed(part, &mut text);
    }
    encoder.clone().finish(&mut count);
    encoder.finish(&mut text);
    assert_eq!(count.0, text.len() as u64);
    assert!(std::str::from_utf8(&text).is_ok());
    text.push(b'"');
    let (mut decoder, mut back) = (SurrogateDecoder::default(), Vec::new());
    let (mut used, mut ended) = (0, false);
    for part in text.chunks(piece) {
        let (of_part, end) = decoder.feed(part, &mut back).expect("own text is text");
        (used, ended) = (used + of_part, end);
    }
    assert!(ended && used == text.len() && back == input);
});

type Command = (Vec<OsString>, Option<Vec<u8>>);

/// A request's command; `None` if it is rejected.
fn request(client: Client<'_>) -> Option<Option<Command>> {
    let frame = MessageReader::next(client).ok()??;
    let request = OsloRequest::read(frame).ok()?;
    let Some((words, input)) = request.command else { return Some(None) };
    let CommandInput::Some(mut stream) = input else { return Some(Some((words, None))) };
    let mut bytes = Vec::new();
    while !stream.is_ended() {
        stream.read_piece(&mut bytes).ok()?;
    }
    Some(Some((words, Some(bytes))))
}
