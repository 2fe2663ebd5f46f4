// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of ZMTP 3.0, the wire protocol of ZeroMQ, that a Locust worker needs: one connection of a DEALER to a
//! ROUTER, without encryption, with one frame per message. `message` parses the content.
//!
//! The protocol is a greeting, one command and length-prefixed frames, with one reader and one writer. The Rust library
//! needs an async runtime and a dozen crates for other socket types, and the C library has another licence.

use crate::coded::{Coded, bail_coded, ensure_coded};
use anyhow::Result;
use roster_messages::table::lab;
use socket2::{SockRef, TcpKeepalive};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Maximum size of a frame. The largest messages of a master are lists of options.
const FRAME_BYTES_MAX: u64 = 16 << 20;
/// Timeout of the connection, of the greeting, and of each write.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time before keepalive probes, which detect a lost host.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The writing half of a connection.
#[derive(Debug)]
pub struct ZmtpSender(TcpStream);

/// The reading half of a connection.
#[derive(Debug)]
pub struct ZmtpReceiver(TcpStream);

/// Connects to a ROUTER with this identity.
pub fn connect(to: SocketAddr, identity: &str) -> Result<(ZmtpSender, ZmtpReceiver)> {
    let mut stream = TcpStream::connect_timeout(&to, IO_TIMEOUT)
        .coded(&lab::MASTER_UNREACHABLE, "cannot connect")?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    exchange_greetings(&mut stream, identity)?;
    // The worker detects a silent master by its heartbeats.
    stream.set_read_timeout(None)?;
    Ok((ZmtpSender(stream.try_clone()?), ZmtpReceiver(stream)))
}

impl ZmtpSender {
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        write_frame(&mut self.0, 0, message).coded(&lab::MASTER_CLOSED, "cannot send")
    }
}

impl Drop for ZmtpSender {
    /// Shuts the connection down, which wakes the reading half.
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl ZmtpReceiver {
    /// Waits for the next message. Returns `None` at the end of the connection.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        read_message(&mut self.0)
    }
}

/// Sends the greeting, and checks the one of the other side.
fn exchange_greetings(stream: &mut (impl Read + Write), identity: &str) -> Result<()> {
    stream.write_all(&greeting()).coded(&lab::MASTER_CLOSED, "cannot send")?;
    let mut theirs = [0; 64];
    stream.read_exact(&mut theirs).coded(&lab::MASTER_NOT_ZMTP, "no greeting of ZeroMQ")?;
    ensure_coded!(
        theirs[0] == 0xFF && theirs[9] & 1 == 1 && theirs[10] >= 3,
        MASTER_NOT_ZMTP,
        "not version 3 of ZeroMQ's protocol"
    );
    let mechanism = &theirs[12..32];
    ensure_coded!(
        mechanism.starts_with(b"NULL\0"),
        MASTER_MECHANISM,
        "the server requires {}",
        String::from_utf8_lossy(mechanism).trim_end_matches('\0')
    );
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", "DEALER"), ("Identity", identity)] {
        let short = u8::try_from(name.len())?;
        ready.push(short);
        ready.extend_from_slice(name.as_bytes());
        ready.extend_from_slice(&u32::try_from(value.len())?.to_be_bytes());
        ready.extend_from_slice(value.as_bytes());
    }
    write_frame(stream, COMMAND, &ready).coded(&lab::MASTER_CLOSED, "cannot send")?;
    let (flags, body) = read_frame(stream)?
        .coded(&lab::MASTER_CLOSED, "the server closed the connection in its greeting")?;
    if let Some(reason) = body.strip_prefix(b"\x05ERROR") {
        let reason = reason.get(1..).unwrap_or_default();
        bail_coded!(
            MASTER_REJECTED,
            "the server rejects this worker: {}",
            String::from_utf8_lossy(reason)
        );
    }
    ensure_coded!(
        flags & COMMAND != 0 && body.starts_with(b"\x05READY"),
        MASTER_REJECTED,
        "the server is not ready"
    );
    let is_router = body.windows(6).any(|word| word == b"ROUTER");
    ensure_coded!(is_router, MASTER_NOT_LOCUST, "the socket has another type than ROUTER");
    Ok(())
}

/// Returns the greeting: version 3.0, mechanism NULL.
fn greeting() -> [u8; 64] {
    let mut greeting = [0; 64];
    greeting[0] = 0xFF;
    greeting[8] = 1;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn write_frame(to: &mut impl Write, flags: u8, body: &[u8]) -> Result<()> {
    let mut frame = Vec::with_capacity(body.len() + 9);
    match u8::try_from(body.len()) {
        Ok(short) => frame.extend_from_slice(&[flags, short]),
        Err(_) => {
            frame.push(flags | LONG);
            frame.extend_from_slice(&u64::try_from(body.len())?.to_be_bytes());
        }
    }
    // One write makes one packet.
    frame.extend_from_slice(body);
    Ok(to.write_all(&frame)?)
}

/// Reads the next frame with its flags. Returns `None` at the end of the connection.
fn read_frame(from: &mut impl Read) -> Result<Option<(u8, Vec<u8>)>> {
    let mut flags = [0];
    let (closed, failed) = (&lab::MASTER_CLOSED, "cannot receive");
    if from.read(&mut flags).coded(closed, failed)? == 0 {
        return Ok(None);
    }
    let [flags] = flags;
    ensure_coded!(
        flags & !(MORE | LONG | COMMAND) == 0,
        MASTER_MESSAGE,
        "malformed frame: flags {flags:#x}"
    );
    let length = if flags & LONG == 0 {
        let mut length = [0];
        from.read_exact(&mut length).coded(closed, failed)?;
        u64::from(length[0])
    } else {
        let mut length = [0; 8];
        from.read_exact(&mut length).coded(closed, failed)?;
        u64::from_be_bytes(length)
    };
    ensure_coded!(length <= FRAME_BYTES_MAX, MASTER_MESSAGE, "frame too long: {length} bytes");
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body).coded(closed, failed)?;
    ensure_coded!(
        body.len() as u64 == length,
        MASTER_CLOSED,
        "the connection ended within a frame"
    );
    Ok(Some((flags, body)))
}

/// Reads the next message, which has one frame. Commands are skipped.
///
/// The fuzzer calls this function.
pub fn read_message(from: &mut impl Read) -> Result<Option<Vec<u8>>> {
    loop {
        let Some((flags, body)) = read_frame(from)? else { return Ok(None) };
        ensure_coded!(flags & MORE == 0, MASTER_MESSAGE, "message of several frames");
        if flags & COMMAND == 0 {
            return Ok(Some(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Bytes of the other side, and bytes sent to it.
    struct Both(Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Both {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Both {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn greeted(mechanism: &[u8], command: &[u8]) -> Result<Vec<u8>, String> {
        let mut theirs = greeting().to_vec();
        theirs[12..12 + mechanism.len()].copy_from_slice(mechanism);
        write_frame(&mut theirs, COMMAND, command).unwrap();
        let mut both = Both(Cursor::new(theirs), Vec::new());
        exchange_greetings(&mut both, "me").map_err(|error| format!("{error:#}"))?;
        Ok(both.1)
    }

    #[test]
    fn a_router_is_greeted_and_told_who_we_are() {
        let said = greeted(b"NULL", b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER").unwrap();
        assert_eq!(said[..64], greeting());
        assert_eq!(said[64..66], [COMMAND, 43]);
        assert!(said.ends_with(b"\x08Identity\0\0\0\x02me"));
    }

    #[test]
    fn zmtp_other_server_has_code() {
        for (mechanism, command, message) in [
            (&b"CURVE"[..], &b""[..], &lab::MASTER_MECHANISM),
            (b"NULL", b"\x05ERROR\x02no", &lab::MASTER_REJECTED),
            (b"NULL", b"\x05READY\x0bSocket-Type\0\0\0\x03PUB", &lab::MASTER_NOT_LOCUST),
            (b"NULL", b"", &lab::MASTER_REJECTED),
        ] {
            let text = greeted(mechanism, command).unwrap_err();
            assert!(text.ends_with(&format!("[{}]", message.code)), "{text}");
        }
        let mut http = Both(Cursor::new(b"HTTP/1.1 400 Bad Request\r\n".repeat(4)), Vec::new());
        let text = format!("{:#}", exchange_greetings(&mut http, "me").unwrap_err());
        assert!(text.ends_with(&format!("[{}]", lab::MASTER_NOT_ZMTP.code)), "{text}");
    }

    #[test]
    fn messages_of_any_length_are_read_and_commands_passed_over() {
        let mut bytes = Vec::new();
        for length in [0, 1, 255, 256, 70_000] {
            write_frame(&mut bytes, COMMAND, b"\x04PING").unwrap();
            write_frame(&mut bytes, 0, &vec![7; length]).unwrap();
        }
        let mut read = Cursor::new(bytes);
        for length in [0, 1, 255, 256, 70_000] {
            assert_eq!(read_message(&mut read).unwrap().unwrap().len(), length);
        }
        assert_eq!(read_message(&mut read).unwrap(), None);
    }

    #[test]
    fn zmtp_invalid_frame_rejected_before_allocation() {
        let (closed, invalid) = (&lab::MASTER_CLOSED, &lab::MASTER_MESSAGE);
        for (bytes, why, message) in [
            (&[0x80, 1, 0][..], "flags 0x80", invalid),
            (&[0, 5, 1], "within a frame", closed),
            (&[LONG, 0xFF, 0, 0, 0, 0, 0, 0, 0], "frame too long", invalid),
            (&[MORE, 1, 0], "several frames", invalid),
        ] {
            let error = format!("{:#}", read_message(&mut Cursor::new(bytes)).unwrap_err());
            assert!(error.contains(why), "{error}");
            assert!(error.ends_with(&format!("[{}]", message.code)), "{error}");
        }
    }
}
