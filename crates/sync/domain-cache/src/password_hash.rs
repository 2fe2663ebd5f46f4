// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes of passwords: Argon2id, with a work factor that suits this host. `credentials` stores the strings.
//!
//! A hash is a PHC string with its parameters and its salt. The parameters of a stored string are checked against
//! limits before any computation.

use crate::credentials::MeasuredHashParams;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroize as _;

/// Minimum of memory in KiB: OWASP's recommendation for two passes and one lane.
pub const MEMORY_KIB_MIN: u32 = 19 * 1024;
/// Maximum of memory, because a small host may have several logins at a time.
pub const MEMORY_KIB_MAX: u32 = 64 * 1024;
/// Minimum of passes.
pub const PASSES_MIN: u32 = 2;
/// Maximum of passes.
pub const PASSES_MAX: u32 = 64;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// Number of measurements, because a host may be busy during one of them.
const MEASUREMENTS: u32 = 3;

/// The parameters of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashParams {
    /// KiB of memory.
    pub memory_kib: u32,
    /// Number of passes.
    pub passes: u32,
}

/// The reason that there is no hash.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The kernel returns no random bytes.
    #[error("no random bytes for a salt: {0}")]
    Random(io::Error),
    /// Argon2id rejects the parameters or the password.
    #[error("Argon2id does not take this: {0}")]
    Argon2(argon2::Error),
    /// A stored hash is not from this module.
    #[error("the stored hash is not Argon2id, or its parameters are out of range")]
    NotOurs,
}

impl HashParams {
    /// The minimum.
    pub const MIN: Self = Self { memory_kib: MEMORY_KIB_MIN, passes: PASSES_MIN };

    /// Measures parameters that take about `aim` on this host, at least [`MIN`](Self::MIN). Memory is increased first,
    /// then the number of passes.
    pub fn measure(aim: Duration) -> Result<Self, HashError> {
        let least = (0..MEASUREMENTS).map(|_| Self::MIN.measure_duration());
        let least = least.collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or_default();
        Ok(Self::from_min_duration(aim, least))
    }

    /// Calculates the parameters from the duration of the minimum. The duration is proportional to memory and to
    /// passes.
    #[must_use]
    pub fn from_min_duration(aim: Duration, least: Duration) -> Self {
        let times = aim.as_micros() / least.as_micros().max(1);
        let times = u32::try_from(times).unwrap_or(u32::MAX).max(1);
        let memory_kib = MEMORY_KIB_MIN.saturating_mul(times).min(MEMORY_KIB_MAX);
        // The remaining work, in whole passes.
        let work = u64::from(times) * u64::from(MEMORY_KIB_MIN) * u64::from(PASSES_MIN);
        let passes = u32::try_from(work / u64::from(memory_kib)).unwrap_or(u32::MAX);
        Self { memory_kib, passes: passes.clamp(PASSES_MIN, PASSES_MAX) }
    }

    fn measure_duration(self) -> Result<Duration, HashError> {
        let began = Instant::now();
        self.derive(b"how long does it take", &[0; SALT_BYTES])?;
        Ok(began.elapsed())
    }

    /// Hashes a password with a new salt.
    pub fn hash(self, password: &[u8]) -> Result<String, HashError> {
        let mut salt = [0; SALT_BYTES];
        let length = getrandom(&mut salt, GetRandomFlags::empty());
        let length = length.map_err(|error| HashError::Random(error.into()))?;
        if length != SALT_BYTES {
            return Err(HashError::Random(io::ErrorKind::UnexpectedEof.into()));
        }
        let hash = self.derive(password, &salt)?;
        let Self { memory_kib, passes } = self;
        let mut text = format!("$argon2id$v=19$m={memory_kib},t={passes},p=1$");
        STANDARD_NO_PAD.encode_string(salt, &mut text);
        text.push('$');
        STANDARD_NO_PAD.encode_string(hash, &mut text);
        Ok(text)
    }

    fn derive(self, password: &[u8], salt: &[u8]) -> Result<[u8; HASH_BYTES], HashError> {
        let params = Params::new(self.memory_kib, self.passes, 1, Some(HASH_BYTES));
        let params = params.map_err(HashError::Argon2)?;
        let mut memory = vec![Block::default(); params.block_count()];
        let mut hash = [0; HASH_BYTES];
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let derived = argon2.hash_password_into_with_memory(password, salt, &mut hash, &mut memory);
        // The first blocks would allow fast tests of passwords.
        for block in &mut memory {
            block.zeroize();
        }
        derived.map_err(HashError::Argon2)?;
        Ok(hash)
    }
}

impl From<MeasuredHashParams> for HashParams {
    /// Limits the stored parameters to the valid range.
    fn from(measured: MeasuredHashParams) -> Self {
        let MeasuredHashParams { memory_kib, passes, .. } = measured;
        Self {
            memory_kib: memory_kib.clamp(MEMORY_KIB_MIN, MEMORY_KIB_MAX),
            passes: passes.clamp(PASSES_MIN, PASSES_MAX),
        }
    }
}

/// A stored hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordHash {
    params: HashParams,
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

impl PasswordHash {
    /// Parses a text of [`HashParams::hash`]. Rejects all others.
    pub fn parse(text: &str) -> Result<Self, HashError> {
        Self::read(text).ok_or(HashError::NotOurs)
    }

    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("$argon2id$v=19$m=")?;
        let (memory, rest) = rest.split_once(",t=")?;
        let (passes, rest) = rest.split_once(",p=1$")?;
        let (salt, hash) = rest.split_once('$')?;
        let cost = HashParams { memory_kib: number(memory)?, passes: number(passes)? };
        let is_bounded = (MEMORY_KIB_MIN..=MEMORY_KIB_MAX).contains(&cost.memory_kib)
            && (PASSES_MIN..=PASSES_MAX).contains(&cost.passes);
        let salt = STANDARD_NO_PAD.decode(salt).ok()?.try_into().ok()?;
        let hash = STANDARD_NO_PAD.decode(hash).ok()?.try_into().ok()?;
        is_bounded.then_some(Self { params: cost, salt, hash })
    }

    /// Returns the parameters.
    #[must_use]
    pub fn params(&self) -> HashParams {
        self.params
    }

    /// Returns whether this is the hash of the password. Takes as long as hashing.
    pub fn is_hash_of(&self, password: &[u8]) -> Result<bool, HashError> {
        let derived = self.params.derive(password, &self.salt)?;
        Ok(derived.ct_eq(&self.hash).into())
    }
}

/// Parses a number without sign and leading zeros.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    let mut written = String::new();
    write!(written, "{number}").ok()?;
    (written == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_its_password_and_of_no_other() {
        let text = HashParams::MIN.hash(b"correct horse").unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let hash = PasswordHash::parse(&text).unwrap();
        assert_eq!(hash.params(), HashParams::MIN);
        assert!(hash.is_hash_of(b"correct horse").unwrap());
        for wrong in [&b"correct horsf"[..], b"", b"correct horse\0", b"Correct horse"] {
            assert!(!hash.is_hash_of(wrong).unwrap());
        }
        assert_ne!(HashParams::MIN.hash(b"correct horse").unwrap(), text, "the salt is another");
    }

    /// Computed by the reference implementation: `printf %s password | argon2 saltsaltsaltsalt -id -t 2 -k 19456 -p 1
    /// -l 32 -e`.
    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        let text = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$T95q7S205tf9WI4HhYOZDIQmMMAbntacGXTIku0gXT8";
        assert!(PasswordHash::parse(text).unwrap().is_hash_of(b"password").unwrap());
    }

    #[test]
    fn what_asks_for_too_little_or_too_much_is_no_hash() {
        let good = HashParams::MIN.hash(b"x").unwrap();
        for (from, to) in [
            ("m=19456", "m=19455"),
            ("m=19456", "m=65537"),
            ("m=19456", "m=4294967295"),
            ("m=19456", "m=019456"),
            ("m=19456", "m=+19456"),
            ("t=2", "t=1"),
            ("t=2", "t=65"),
            ("p=1", "p=2"),
            ("argon2id", "argon2i"),
            ("v=19", "v=16"),
        ] {
            assert!(PasswordHash::parse(&good.replacen(from, to, 1)).is_err(), "{to}");
        }
        for end in 0..good.len() {
            assert!(PasswordHash::parse(&good[..end]).is_err(), "{end}");
        }
        assert!(PasswordHash::parse(&format!("{good}A")).is_err());
    }

    #[test]
    fn cost_goes_with_the_time_that_there_is_and_never_below_the_least() {
        let millis = Duration::from_millis;
        let fitting = |aim, least| HashParams::from_min_duration(millis(aim), millis(least));
        assert_eq!(fitting(50, 500), HashParams::MIN);
        assert_eq!(fitting(50, 50), HashParams::MIN);
        assert_eq!(fitting(100, 50), HashParams { memory_kib: 38_912, passes: 2 });
        assert_eq!(fitting(1000, 50), HashParams { memory_kib: MEMORY_KIB_MAX, passes: 11 });
        assert_eq!(
            fitting(60_000, 1),
            HashParams { memory_kib: MEMORY_KIB_MAX, passes: PASSES_MAX }
        );
        let stored = MeasuredHashParams { target_us: 1, memory_kib: 1, passes: 1 };
        assert_eq!(HashParams::from(stored), HashParams::MIN);
    }
}
