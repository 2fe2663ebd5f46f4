// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof of the key by both sides, as in Python's multiprocessing. The server challenges the client, then the
//! client the server. Python up to 3.11 only knows MD5. From 3.12 on a challenge and its answer name their digest.
//! `connection` reads the requests after it.

use super::frame::{receive, send};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha2::{Sha256, Sha384};
use std::io::{self, ErrorKind, Read, Write};

/// Limit of a message before the proof.
pub const MESSAGE_BYTES_MAX: usize = 256;
/// Size of a key.
pub const KEY_BYTES: usize = 32;

const CHALLENGE: &[u8] = b"#CHALLENGE#";
const WELCOME: &[u8] = b"#WELCOME#";
const FAILURE: &[u8] = b"#FAILURE#";
/// Size of a challenge of Python up to 3.11. No other challenge has it.
const OLD_CHALLENGE_BYTES: usize = 20;
/// Size of an answer by MD5 without a name.
const OLD_ANSWER_BYTES: usize = 16;
const RANDOM_BYTES: usize = 40;

/// Requests the proof of a client, and proves the key to it.
pub fn authenticate(mut stream: impl Read + Write, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let mut challenge = b"{sha256}".to_vec();
    challenge.extend(random_bytes::<RANDOM_BYTES>()?);
    send(&mut stream, &[CHALLENGE, &challenge].concat())?;
    let answer = receive(&mut stream, MESSAGE_BYTES_MAX)?;
    if !is_proof(key, &challenge, &answer) {
        send(&mut stream, FAILURE)?;
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "the client does not have the key",
        ));
    }
    send(&mut stream, WELCOME)?;
    let message = receive(&mut stream, MESSAGE_BYTES_MAX)?;
    let challenge = message.strip_prefix(CHALLENGE).ok_or(ErrorKind::InvalidData)?;
    let proof = proof(key, challenge).ok_or(ErrorKind::InvalidData)?;
    send(&mut stream, &proof)?;
    match receive(&mut stream, MESSAGE_BYTES_MAX)? == WELCOME {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// Returns unpredictable bytes.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    // getrandom(2) returns up to 256 bytes at once.
    if filled == N { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

#[derive(Clone, Copy)]
enum HmacDigest {
    Md5,
    Sha256,
    Sha384,
}

const DIGESTS: [(&[u8], HmacDigest); 3] = [
    (b"{md5}", HmacDigest::Md5),
    (b"{sha256}", HmacDigest::Sha256),
    (b"{sha384}", HmacDigest::Sha384),
];

fn parse_digest(message: &[u8]) -> Option<(&'static [u8], HmacDigest)> {
    DIGESTS.into_iter().find(|(name, _)| message.starts_with(name))
}

fn is_proof(key: &[u8], challenge: &[u8], answer: &[u8]) -> bool {
    let (digest, code) = match parse_digest(answer) {
        _ if answer.len() == OLD_ANSWER_BYTES => (HmacDigest::Md5, answer),
        Some((name, digest)) => (digest, &answer[name.len()..]),
        None => return false,
    };
    // The comparison takes constant time.
    match digest {
        HmacDigest::Md5 => mac::<Hmac<Md5>>(key, challenge).verify_slice(code).is_ok(),
        HmacDigest::Sha256 => mac::<Hmac<Sha256>>(key, challenge).verify_slice(code).is_ok(),
        HmacDigest::Sha384 => mac::<Hmac<Sha384>>(key, challenge).verify_slice(code).is_ok(),
    }
}

fn proof(key: &[u8], challenge: &[u8]) -> Option<Vec<u8>> {
    let md5 = |challenge| mac::<Hmac<Md5>>(key, challenge).finalize().into_bytes().to_vec();
    if challenge.len() == OLD_CHALLENGE_BYTES {
        return Some(md5(challenge));
    }
    let (name, digest) = parse_digest(challenge)?;
    let code = match digest {
        HmacDigest::Md5 => md5(challenge),
        HmacDigest::Sha256 => mac::<Hmac<Sha256>>(key, challenge).finalize().into_bytes().to_vec(),
        HmacDigest::Sha384 => mac::<Hmac<Sha384>>(key, challenge).finalize().into_bytes().to_vec(),
    };
    Some([name, &code].concat())
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_python() {
        let key = [7; 32];
        // The value of hmac.new(bytes([7] * 32), b'x' * 20, 'md5').hexdigest(), and that for b'{sha256}' + b'x' * 40.
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&proof(&key, &[b'x'; 20]).unwrap()), MD5_OF_20);
        let challenge = [&b"{sha256}"[..], &[b'x'; 40]].concat();
        let ours = proof(&key, &challenge).unwrap();
        assert_eq!(hex(ours.strip_prefix(b"{sha256}").unwrap()), SHA256_OF_40);
        assert!(is_proof(&key, &challenge, &ours));
        assert!(is_proof(
            &key,
            &challenge,
            &mac::<Hmac<Md5>>(&key, &challenge).finalize().into_bytes()
        ));
        let mut wrong = ours.clone();
        wrong[20] ^= 1;
        assert!(!is_proof(&key, &challenge, &wrong));
        for answer in [&b""[..], b"{sha256}", b"{sha1}0123456789", &ours[..39], &[0; 16]] {
            assert!(!is_proof(&key, &challenge, answer));
        }
        for challenge in
            [&b"short"[..], b"{sha3_256}0123456789012345678901234567890123456789", &[0; 40]]
        {
            assert_eq!(proof(&key, challenge), None);
        }
    }

    const MD5_OF_20: &str = "5462c137a49c0fea229dfaefb85b7cbd";
    const SHA256_OF_40: &str = "10f350efe4381935779f1c2c98a217f7a6425ab6fe7a042222e6f115255c4236";
}
