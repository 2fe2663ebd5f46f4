// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encryption types of Kerberos: AES with HMAC-SHA1 (RFC 3962 with the profile of RFC 3961) and with HMAC-SHA2 (RFC
//! 8009). Libraries implement the block cipher, the digests and PBKDF2; this module implements their combination.
//! `key_setup` selects the keys, and `krb5::message` has the parts of messages.

use crate::template::least_common_multiple;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use ring::{hmac, pbkdf2};
use std::num::NonZeroU32;

/// Size of an AES block, and of the confounder before every text.
pub const BLOCK: usize = 16;
/// Maximum number of iterations that a KDC may request: a thousand times its default.
pub const ITERATIONS_MAX: u32 = 32_768_000;

type Block = [u8; BLOCK];

/// Encryption types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EncType {
    /// Use AES-128 with HMAC-SHA1
    #[value(name = "aes128-cts-hmac-sha1-96")]
    Aes128Sha1,
    /// Use AES-256 with HMAC-SHA1
    #[value(name = "aes256-cts-hmac-sha1-96")]
    Aes256Sha1,
    /// Use AES-128 with HMAC-SHA256
    #[value(name = "aes128-cts-hmac-sha256-128")]
    Aes128Sha256,
    /// Use AES-256 with HMAC-SHA384
    #[value(name = "aes256-cts-hmac-sha384-192")]
    Aes256Sha384,
}

impl EncType {
    /// All types, in the order of requests.
    pub const ALL: [Self; 4] =
        [Self::Aes256Sha1, Self::Aes128Sha1, Self::Aes256Sha384, Self::Aes128Sha256];

    /// Returns the number in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| u32::from(kind.number()) == number)
    }

    /// Returns the number of the related checksum type.
    #[must_use]
    pub fn checksum_number(self) -> u8 {
        match self {
            Self::Aes128Sha1 => 15,
            Self::Aes256Sha1 => 16,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    fn is_sha1(self) -> bool {
        matches!(self, Self::Aes128Sha1 | Self::Aes256Sha1)
    }

    fn key_octets(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Returns the size of a checksum in octets.
    fn mac_octets(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    fn iterations(self) -> u32 {
        if self.is_sha1() { 4096 } else { 32_768 }
    }

    fn digest(self) -> hmac::Algorithm {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Aes128Sha256 => hmac::HMAC_SHA256,
            Self::Aes256Sha384 => hmac::HMAC_SHA384,
        }
    }
}

/// A base key: from a password, or of a session.
#[derive(Clone)]
pub struct BaseKey {
    kind: EncType,
    octets: Vec<u8>,
}

impl BaseKey {
    /// Creates a key from the octets of a message.
    #[must_use]
    pub fn new(kind: EncType, octets: &[u8]) -> Option<Self> {
        (octets.len() == kind.key_octets()).then(|| Self { kind, octets: octets.to_vec() })
    }

    /// Derives a key from a password. `iterations` is the request of the KDC, if any.
    #[must_use]
    pub fn from_password(
        kind: EncType,
        password: &[u8],
        salt: &[u8],
        iterations: Option<u32>,
    ) -> Option<Self> {
        let iterations = iterations.unwrap_or(kind.iterations());
        let iterations = NonZeroU32::new(iterations).filter(|n| n.get() <= ITERATIONS_MAX)?;
        let (algorithm, salt) = match kind {
            EncType::Aes128Sha1 | EncType::Aes256Sha1 => (pbkdf2::PBKDF2_HMAC_SHA1, salt.to_vec()),
            EncType::Aes128Sha256 => {
                (pbkdf2::PBKDF2_HMAC_SHA256, [b"aes128-cts-hmac-sha256-128\0", salt].concat())
            }
            EncType::Aes256Sha384 => {
                (pbkdf2::PBKDF2_HMAC_SHA384, [b"aes256-cts-hmac-sha384-192\0", salt].concat())
            }
        };
        let mut octets = vec![0; kind.key_octets()];
        pbkdf2::derive(algorithm, iterations, &salt, password, &mut octets);
        let base = Self { kind, octets };
        Some(Self { kind, octets: base.derive(b"kerberos", kind.key_octets()) })
    }

    /// Returns the encryption type.
    #[must_use]
    pub fn kind(&self) -> EncType {
        self.kind
    }

    /// Derives the keys for one usage.
    #[must_use]
    pub fn for_use(&self, usage: u32) -> UsageKey {
        let label = |what: u8| [&usage.to_be_bytes()[..], &[what]].concat();
        let integrity = match self.kind {
            // The key has 192 bits of the digest of 384 bits.
            EncType::Aes256Sha384 => self.derive(&label(0x55), 24),
            kind => self.derive(&label(0x55), kind.key_octets()),
        };
        UsageKey {
            kind: self.kind,
            cipher: Cipher::new(&self.derive(&label(0xaa), self.kind.key_octets())),
            integrity: hmac::Key::new(self.kind.digest(), &integrity),
        }
    }

    /// Derives the checksum key for one usage.
    #[must_use]
    pub fn signer(&self, usage: u32) -> ChecksumKey {
        let label = [&usage.to_be_bytes()[..], &[0x99]].concat();
        let octets = if self.kind == EncType::Aes256Sha384 { 24 } else { self.kind.key_octets() };
        let key = hmac::Key::new(self.kind.digest(), &self.derive(&label, octets));
        ChecksumKey { kind: self.kind, key }
    }

    fn derive(&self, label: &[u8], octets: usize) -> Vec<u8> {
        if self.kind.is_sha1() {
            return self.derive_by_cipher(label, octets);
        }
        // The derivation is SP 800-108 with one round, because the digest is as long as any key.
        let bits = (octets as u32 * 8).to_be_bytes();
        let text = [&1_u32.to_be_bytes()[..], label, &[0], &bits].concat();
        let key = hmac::Key::new(self.kind.digest(), &self.octets);
        hmac::sign(&key, &text).as_ref()[..octets].to_vec()
    }

    /// Implements DR of RFC 3961, a chain of encrypted blocks.
    fn derive_by_cipher(&self, label: &[u8], octets: usize) -> Vec<u8> {
        let cipher = Cipher::new(&self.octets);
        let mut block: Block = fold(label);
        let mut out = Vec::with_capacity(octets);
        while out.len() < octets {
            cipher.encrypt(&mut block);
            out.extend_from_slice(&block);
        }
        out
    }
}

/// Implements n-fold of RFC 3961 to one block. The text is repeated, rotated by 13 bits each time, and the pieces are
/// added with end-around carry.
fn fold<const N: usize>(text: &[u8]) -> [u8; N] {
    let length = text.len();
    // The product is small, so it fits into usize.
    let whole = least_common_multiple(length as u64, N as u64) as usize;
    // Each copy of the text is rotated right by 13 bits more than the one before.
    let octet = |place: usize| {
        let (copy, at) = (place / length, place % length);
        let bit = |bit: usize| {
            let bits = length * 8;
            let from = (at * 8 + bit + bits * 13 - (13 * copy) % bits) % bits;
            text[from / 8] >> (7 - from % 8) & 1
        };
        (0..8).fold(0_u8, |octet, at| octet << 1 | bit(at))
    };
    let mut sum = [0_u8; N];
    for piece in 0..whole / N {
        let mut carry = 0_u16;
        for at in (0..N).rev() {
            let added = u16::from(sum[at]) + u16::from(octet(piece * N + at)) + carry;
            sum[at] = (added & 0xff) as u8;
            carry = added >> 8;
        }
        for at in (0..N).rev() {
            let added = u16::from(sum[at]) + carry;
            sum[at] = (added & 0xff) as u8;
            carry = added >> 8;
        }
    }
    sum
}

/// AES with expanded round keys.
#[derive(Clone)]
enum Cipher {
    Aes128(Aes128),
    Aes256(Aes256),
}

impl Cipher {
    /// Expands a key of 16 or 32 octets.
    fn new(key: &[u8]) -> Self {
        let mut octets = [0; 32];
        octets[..key.len()].copy_from_slice(key);
        match key.len() {
            16 => {
                let mut half = [0; 16];
                half.copy_from_slice(key);
                Self::Aes128(Aes128::new(&Array(half)))
            }
            _ => Self::Aes256(Aes256::new(&Array(octets))),
        }
    }

    fn encrypt(&self, block: &mut Block) {
        let array = Array::cast_from_core_mut(block);
        match self {
            Self::Aes128(cipher) => cipher.encrypt_block(array),
            Self::Aes256(cipher) => cipher.encrypt_block(array),
        }
    }

    fn decrypt(&self, block: &mut Block) {
        let array = Array::cast_from_core_mut(block);
        match self {
            Self::Aes128(cipher) => cipher.decrypt_block(array),
            Self::Aes256(cipher) => cipher.decrypt_block(array),
        }
    }

    /// Encrypts with CBC from a zero vector with ciphertext stealing, the last two blocks swapped. The text is longer than
    /// a block, because it begins with a confounder.
    fn encrypt_cts(&self, text: &mut [u8]) {
        let tail = tail(text.len());
        let mut before: Block = [0; BLOCK];
        let (whole, rest) = text.split_at_mut(text.len() - tail);
        let mut last_at = 0;
        for at in (0..whole.len()).step_by(BLOCK) {
            let mut block = block_at(whole, at);
            mix(&mut block, &before);
            self.encrypt(&mut block);
            whole[at..at + BLOCK].copy_from_slice(&block);
            before = block;
            last_at = at;
        }
        let mut last: Block = [0; BLOCK];
        last[..tail].copy_from_slice(rest);
        mix(&mut last, &before);
        self.encrypt(&mut last);
        whole[last_at..last_at + BLOCK].copy_from_slice(&last);
        rest.copy_from_slice(&before[..tail]);
    }

    /// Decrypts the result of `encrypt_cts`.
    fn decrypt_cts(&self, text: &mut [u8]) {
        let tail = tail(text.len());
        let (whole, rest) = text.split_at_mut(text.len() - tail);
        let last_at = whole.len() - BLOCK;
        let mut before: Block = [0; BLOCK];
        for at in (0..last_at).step_by(BLOCK) {
            let cipher = block_at(whole, at);
            let mut block = cipher;
            self.decrypt(&mut block);
            mix(&mut block, &before);
            whole[at..at + BLOCK].copy_from_slice(&block);
            before = cipher;
        }
        let mut last = block_at(whole, last_at);
        self.decrypt(&mut last);
        // The decrypted block contains the end of the stolen block.
        let mut stolen = last;
        stolen[..tail].copy_from_slice(rest);
        mix(&mut last, &stolen);
        rest.copy_from_slice(&last[..tail]);
        self.decrypt(&mut stolen);
        mix(&mut stolen, &before);
        whole[last_at..].copy_from_slice(&stolen);
    }
}

/// Returns the number of octets in the last block, 1 to 16.
fn tail(length: usize) -> usize {
    (length - 1) % BLOCK + 1
}

fn block_at(text: &[u8], at: usize) -> Block {
    let mut block = [0; BLOCK];
    block.copy_from_slice(&text[at..at + BLOCK]);
    block
}

fn mix(block: &mut Block, other: &Block) {
    block.iter_mut().zip(other).for_each(|(octet, other)| *octet ^= other);
}

/// A derived key for checksums.
pub struct ChecksumKey {
    kind: EncType,
    key: hmac::Key,
}

impl ChecksumKey {
    /// Returns the checksum of a text.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> Vec<u8> {
        hmac::sign(&self.key, text).as_ref()[..self.kind.mac_octets()].to_vec()
    }
}

/// Derived keys for one usage.
#[derive(Clone)]
pub struct UsageKey {
    kind: EncType,
    cipher: Cipher,
    integrity: hmac::Key,
}

impl UsageKey {
    /// Appends the encrypted confounder and text, and their checksum.
    pub fn seal(&self, confounder: &Block, text: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(confounder);
        out.extend_from_slice(text);
        let octets = self.kind.mac_octets();
        if self.kind.is_sha1() {
            let mac = hmac::sign(&self.integrity, &out[start..]);
            self.cipher.encrypt_cts(&mut out[start..]);
            out.extend_from_slice(&mac.as_ref()[..octets]);
        } else {
            self.cipher.encrypt_cts(&mut out[start..]);
            let mac = self.mac_of_cipher(&out[start..]);
            out.extend_from_slice(&mac.as_ref()[..octets]);
        }
    }

    /// Decrypts a sealed text. Returns `None` if the key differs or the text was changed.
    #[must_use]
    pub fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let end = sealed.len().checked_sub(self.kind.mac_octets())?;
        let (cipher, mac) = sealed.split_at(end);
        // A sealed text is longer than the block of its confounder.
        if cipher.len() <= BLOCK {
            return None;
        }
        let mut text = cipher.to_vec();
        self.cipher.decrypt_cts(&mut text);
        let found = if self.kind.is_sha1() {
            hmac::sign(&self.integrity, &text)
        } else {
            self.mac_of_cipher(cipher)
        };
        (found.as_ref()[..mac.len()] == *mac).then(|| text.split_off(BLOCK))
    }

    /// Starts the MAC with the zero vector and the ciphertext.
    fn mac_of_cipher(&self, cipher: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.integrity);
        context.update(&[0; BLOCK]);
        context.update(cipher);
        context.sign()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    #[test]
    fn texts_fold_as_in_rfc_3961() {
        assert_eq!(fold::<8>(b"012345").to_vec(), octets("be072631276b1955"));
        assert_eq!(fold::<7>(b"password").to_vec(), octets("78a07b6c af85fa"));
        assert_eq!(fold::<16>(b"kerberos").to_vec(), octets("6b65726265726f737b9b5b2b93132b93"));
        assert_eq!(
            fold::<21>(b"password").to_vec(),
            octets("59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e")
        );
    }

    #[test]
    fn passwords_become_the_keys_of_the_standards() {
        let salt = b"ATHENA.MIT.EDUraeburn";
        let long = [&octets("10DF9DD783E5BC8ACEA1730E74355F61")[..], salt].concat();
        for (kind, salt, iterations, key) in [
            (EncType::Aes128Sha1, &salt[..], Some(1), "42263c6e89f4fc28b8df68ee09799f15"),
            (
                EncType::Aes256Sha1,
                &salt[..],
                Some(1),
                "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            ),
            (EncType::Aes128Sha256, &long[..], None, "089BCA48B105EA6EA77CA5D2F39DC5E7"),
            (
                EncType::Aes256Sha384,
                &long[..],
                None,
                "45BD806DBF6A833A9CFFC1C94589A222367A79BC21C413718906E9F578A78467",
            ),
        ] {
            let found = BaseKey::from_password(kind, b"password", salt, iterations).unwrap();
            assert_eq!(found.octets, octets(key), "{kind:?}");
        }
        assert!(BaseKey::from_password(EncType::Aes128Sha1, b"p", salt, Some(0)).is_none());
        assert!(BaseKey::from_password(EncType::Aes128Sha1, b"p", salt, Some(u32::MAX)).is_none());
    }

    #[test]
    fn ciphertext_is_stolen_as_in_rfc_3962() {
        let cipher = Cipher::new(b"chicken teriyaki");
        let input = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (length, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        ] {
            let mut text = input[..length].to_vec();
            cipher.encrypt_cts(&mut text);
            assert_eq!(text, octets(expected), "{length}");
            cipher.decrypt_cts(&mut text);
            assert_eq!(text, input[..length], "{length}");
        }
    }

    #[test]
    fn what_is_sealed_is_unsealed_by_the_same_key_and_use_alone() {
        for kind in EncType::ALL {
            let base = BaseKey::new(kind, &vec![7; kind.key_octets()]).unwrap();
            for length in [1, 15, 16, 17, 32, 100] {
                let text = vec![9; length];
                let mut sealed = Vec::new();
                base.for_use(1).seal(&[3; BLOCK], &text, &mut sealed);
                assert_eq!(base.for_use(1).unseal(&sealed), Some(text), "{kind:?} {length}");
                assert_eq!(base.for_use(3).unseal(&sealed), None, "{kind:?} {length}");
                for at in 0..sealed.len() {
                    sealed[at] ^= 1;
                    assert_eq!(base.for_use(1).unseal(&sealed), None, "{kind:?} {length} {at}");
                    sealed[at] ^= 1;
                }
            }
            for short in 0..60 {
                assert_eq!(base.for_use(1).unseal(&vec![0; short]), None);
            }
        }
    }
}
