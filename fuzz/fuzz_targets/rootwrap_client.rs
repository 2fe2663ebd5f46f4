//! What a client of the rootwrap daemon sends: any bytes whatever are a request or refused, in whatever
//! pieces they come; nobody shows a key by chance; and bytes become text and the same bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_rootwrap::compat::auth::authenticate;
use roster_rootwrap::compat::frame::Frame;
use roster_rootwrap::compat::request::{Input, Request};
use roster_rootwrap::compat::text::{Count, Decoder, Encoder};
use std::ffi::OsString;
use std::io::{self, Read, Write};

/// A client that sends what it sends, in pieces, whatever it is told.
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
    // What is bare of its length has one.
    let framed = [&(input.len() as u64).to_be_bytes(), input].concat();
    let whole = request(Client { sends: &framed, piece: usize::MAX });
    assert_eq!(request(Client { sends: &framed, piece }), whole);

    let (mut encoder, mut text, mut count) = (Encoder::default(), Vec::new(), Count::default());
    for part in input.chunks(piece) {
        encoder.clone().feed(part, &mut count);
        encoder.feed(part, &mut text);
    }
    encoder.clone().finish(&mut count);
    encoder.finish(&mut text);
    assert_eq!(count.0, text.len() as u64);
    assert!(std::str::from_utf8(&text).is_ok());
    text.push(b'"');
    let (mut decoder, mut back) = (Decoder::default(), Vec::new());
    let (mut used, mut ended) = (0, false);
    for part in text.chunks(piece) {
        let (of_part, end) = decoder.feed(part, &mut back).expect("own text is text");
        (used, ended) = (used + of_part, end);
    }
    assert!(ended && used == text.len() && back == input);
});

type Command = (Vec<OsString>, Option<Vec<u8>>);

/// A request's command; `None` where it is refused.
fn request(client: Client<'_>) -> Option<Option<Command>> {
    let frame = Frame::next(client).ok()??;
    let request = Request::read(frame).ok()?;
    let Some((words, input)) = request.command else { return Some(None) };
    let Input::Some(mut stream) = input else { return Some(Some((words, None))) };
    let mut bytes = Vec::new();
    while !stream.is_ended() {
        stream.pull(&mut bytes).ok()?;
    }
    Some(Some((words, Some(bytes))))
}
