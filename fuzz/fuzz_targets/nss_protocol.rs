// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of the local sockets, as the module and the responder read them: any bytes are a frame or rejected. A parsed
//! frame is within its bounds, and an encoded frame is parsed as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_passwd_format::{Group, User};
use roster_wire::{
    NAME_BYTES_MAX, NssReply, NssReplyHeader, NssRequest, NssRequestHeader, PAYLOAD_BYTES_MAX,
    PayloadStrings, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, encode,
};

fuzz_target!(|input: &[u8]| {
    read_request(input);
    read_reply(input);
    write_and_read(input);
});

fn read_request(input: &[u8]) {
    let Some((header, rest)) = input.split_first_chunk() else { return };
    let Ok(header) = NssRequestHeader::parse(header) else { return };
    assert!(header.name_bytes() <= NAME_BYTES_MAX);
    let Some(name) = rest.get(..header.name_bytes()) else { return };
    let whole = &input[..REQUEST_HEADER_BYTES + name.len()];
    let Ok(request) = NssRequest::read(whole) else { return };
    let again = if request.kind.is_by_name() {
        NssRequest::by_name(request.kind, name)
    } else {
        Some(NssRequest::by_id(request.kind, request.id))
    };
    assert_eq!(again, Some(request));
    assert_eq!(request.header()[..], input[..request.header().len()]);
}

fn read_reply(input: &[u8]) {
    let Some((header, rest)) = input.split_first_chunk() else { return };
    let Ok(header) = NssReplyHeader::parse(header) else { return };
    assert!(header.payload_bytes <= PAYLOAD_BYTES_MAX);
    let strings = match header.reply {
        NssReply::Absent | NssReply::Unavailable => {
            assert_eq!(header.payload_bytes, 0);
            return;
        }
        NssReply::Groups { count } => {
            assert_eq!(header.payload_bytes, count * 4);
            return;
        }
        NssReply::User { .. } => 5,
        NssReply::Group { members, .. } => 2 + members,
    };
    assert!(strings <= header.payload_bytes);
    let Some(payload) = rest.get(..header.payload_bytes) else { return };
    // As the module sets its pointers: each is within the payload, and a NUL follows.
    let mut walk = PayloadStrings::new(payload);
    for _ in 0..strings {
        let Ok(start) = walk.next_start() else { return };
        assert!(payload[start..].contains(&0));
    }
    if walk.end().is_ok() {
        assert_eq!(payload.last(), Some(&0));
    }
}

fn write_and_read(input: &[u8]) {
    let mut fields = input.splitn(8, |&byte| byte == b':');
    let mut field = || fields.next().unwrap_or_default();
    let (name, passwd, gecos, dir, shell) = (field(), field(), field(), field(), field());
    let id = u32::from_le_bytes(*input.first_chunk().unwrap_or(&[0; 4]));
    let user = User {
        name,
        passwd: Some(passwd),
        uid: id,
        gid: !id,
        gecos: Some(gecos),
        dir: Some(dir),
        shell: Some(shell),
    };
    let mut frame = Vec::new();
    if encode::user(&mut frame, &user).is_ok() {
        let header = NssReplyHeader::from_frame(&frame).unwrap();
        assert_eq!(header.reply, NssReply::User { uid: id, gid: !id });
        same_strings(&frame, [name, passwd, gecos, dir, shell].into_iter());
    }
    let members = || shell.split(|&byte| byte == b',');
    let group = Group { name, passwd: Some(passwd), gid: id };
    let mut frame = Vec::new();
    if encode::group(&mut frame, &group, members()).is_ok() {
        let header = NssReplyHeader::from_frame(&frame).unwrap();
        assert_eq!(header.reply, NssReply::Group { gid: id, members: members().count() });
        same_strings(&frame, [name, passwd].into_iter().chain(members()));
    }
    let gids = input.as_chunks().0.iter().map(|&gid| u32::from_le_bytes(gid));
    let mut frame = Vec::new();
    encode::groups(&mut frame, gids.clone()).unwrap();
    let header = NssReplyHeader::from_frame(&frame).unwrap();
    assert_eq!(header.reply, NssReply::Groups { count: gids.count() });
    assert_eq!(frame[REPLY_HEADER_BYTES..], input[..input.len() / 4 * 4]);
}

fn same_strings<'s>(frame: &[u8], strings: impl Iterator<Item = &'s [u8]>) {
    let mut walk = PayloadStrings::new(&frame[REPLY_HEADER_BYTES..]);
    for text in strings {
        assert_eq!(walk.next_string(), Ok(text));
    }
    assert_eq!(walk.end(), Ok(()));
}
