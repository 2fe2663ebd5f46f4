//! ZeroMQ's wire (ZMTP 3.0) as far as a worker of Locust needs it: one connection of a DEALER to a
//! ROUTER, without encryption, whose messages have one frame each.
//!
//! Put together here, because that is a greeting, one command and frames with a length, on a connection
//! with one reader and one writer. The library in Rust brings a runtime and a dozen crates for the other
//! kinds of sockets, that of C is under a licence that we do not link.

use anyhow::{Context, Result, bail, ensure};
use socket2::{SockRef, TcpKeepalive};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// What a master sends is a list of options.
const FRAME_BYTES_MAX: u64 = 16 << 20;
/// To connect, to greet, and for each write.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// A host that went away without a word is noticed.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The half that writes.
#[derive(Debug)]
pub struct ZmtpSender(TcpStream);

/// The half that reads.
#[derive(Debug)]
pub struct ZmtpReceiver(TcpStream);

/// Connects to a ROUTER, which will know us by `identity`.
pub fn connect(to: SocketAddr, identity: &str) -> Result<(ZmtpSender, ZmtpReceiver)> {
    let mut stream = TcpStream::connect_timeout(&to, IO_TIMEOUT).context("cannot connect")?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    exchange_greetings(&mut stream, identity)?;
    // Silence is judged by the master's heartbeats, not here.
    stream.set_read_timeout(None)?;
    Ok((ZmtpSender(stream.try_clone()?), ZmtpReceiver(stream)))
}

impl ZmtpSender {
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        write_frame(&mut self.0, 0, message).context("cannot send")
    }
}

impl Drop for ZmtpSender {
    /// Whoever waits in the other half is let go.
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl ZmtpReceiver {
    /// Waits for the next message; none when the connection has ended.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        read_message(&mut self.0)
    }
}

/// Says what we are, and hears that the other side is what we need.
fn exchange_greetings(stream: &mut (impl Read + Write), identity: &str) -> Result<()> {
    stream.write_all(&greeting()).context("cannot greet")?;
    let mut theirs = [0; 64];
    stream.read_exact(&mut theirs).context("it does not greet as ZeroMQ does")?;
    ensure!(
        theirs[0] == 0xFF && theirs[9] & 1 == 1 && theirs[10] >= 3,
        "it does not speak ZeroMQ's protocol 3"
    );
    let mechanism = &theirs[12..32];
    ensure!(
        mechanism.starts_with(b"NULL\0"),
        "it asks for ZeroMQ's {}, and masters of Locust ask for nothing",
        String::from_utf8_lossy(mechanism).trim_end_matches('\0')
    );
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", "DEALER"), ("Identity", identity)] {
        let short = u8::try_from(name.len()).context("a long name")?;
        ready.push(short);
        ready.extend_from_slice(name.as_bytes());
        ready.extend_from_slice(&u32::try_from(value.len())?.to_be_bytes());
        ready.extend_from_slice(value.as_bytes());
    }
    write_frame(stream, COMMAND, &ready).context("cannot greet")?;
    let (flags, body) = read_frame(stream)?.context("it ended the connection in its greeting")?;
    if let Some(reason) = body.strip_prefix(b"\x05ERROR") {
        let reason = reason.get(1..).unwrap_or_default();
        bail!("it refuses us: {}", String::from_utf8_lossy(reason));
    }
    ensure!(flags & COMMAND != 0 && body.starts_with(b"\x05READY"), "it is not ready for us");
    let is_router = body.windows(6).any(|word| word == b"ROUTER");
    ensure!(is_router, "it is no master of Locust: its socket is of another kind");
    Ok(())
}

/// Version 3.0, no mechanism, no server of one.
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
    // In one write, which is one packet.
    frame.extend_from_slice(body);
    Ok(to.write_all(&frame)?)
}

/// The next frame with its flags; none at the end of the connection.
fn read_frame(from: &mut impl Read) -> Result<Option<(u8, Vec<u8>)>> {
    let mut flags = [0];
    if from.read(&mut flags)? == 0 {
        return Ok(None);
    }
    let [flags] = flags;
    ensure!(flags & !(MORE | LONG | COMMAND) == 0, "malformed frame: flags {flags:#x}");
    let length = if flags & LONG == 0 {
        let mut length = [0];
        from.read_exact(&mut length)?;
        u64::from(length[0])
    } else {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        u64::from_be_bytes(length)
    };
    ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes is longer than any of Locust's");
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body)?;
    ensure!(body.len() as u64 == length, "the connection ended within a frame");
    Ok(Some((flags, body)))
}

/// The next message, which has one frame; commands are passed over.
///
/// Public for the fuzzer.
pub fn read_message(from: &mut impl Read) -> Result<Option<Vec<u8>>> {
    loop {
        let Some((flags, body)) = read_frame(from)? else { return Ok(None) };
        ensure!(flags & MORE == 0, "a message of several frames is none of Locust's");
        if flags & COMMAND == 0 {
            return Ok(Some(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// What the other side says, and what was said to it.
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
    fn whoever_is_no_master_is_named() {
        for (mechanism, command, why) in [
            (&b"CURVE"[..], &b""[..], "asks for ZeroMQ's CURVE"),
            (b"NULL", b"\x05ERROR\x02no", "it refuses us: no"),
            (b"NULL", b"\x05READY\x0bSocket-Type\0\0\0\x03PUB", "of another kind"),
            (b"NULL", b"", "not ready"),
        ] {
            let said = greeted(mechanism, command).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let mut http = Both(Cursor::new(b"HTTP/1.1 400 Bad Request\r\n".repeat(4)), Vec::new());
        assert!(
            format!("{:#}", exchange_greetings(&mut http, "me").unwrap_err())
                .contains("protocol 3")
        );
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
    fn what_is_no_frame_is_refused_without_taking_memory() {
        for (bytes, why) in [
            (&[0x80, 1, 0][..], "flags 0x80"),
            (&[0, 5, 1], "within a frame"),
            (&[LONG, 0xFF, 0, 0, 0, 0, 0, 0, 0], "longer than any"),
            (&[MORE, 1, 0], "several frames"),
        ] {
            let error = read_message(&mut Cursor::new(bytes)).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
