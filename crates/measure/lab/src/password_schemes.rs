// SPDX-License-Identifier: MIT OR Apache-2.0
//! Password storage schemes: reads the scheme of a stored password, rates its strength, and recommends schemes. This
//! module makes no requests; `commands` measures.

use roster_messages::table::lab;
use serde::Serialize;

/// Iterations of PBKDF2 by hash, from OWASP's Password Storage Cheat Sheet.
const ADVISED_ITERATIONS: [(&str, u64); 3] =
    [("SHA1", 1_300_000), ("SHA256", 600_000), ("SHA512", 210_000)];
/// Default rounds of glibc's crypt(3).
const CRYPT_ROUNDS: u64 = 5_000;

/// Resistance of a stolen hash against guessing, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// The password itself, or a reversible encryption.
    Readable,
    /// A single hash: billions of guesses per second.
    Fast,
    /// An iterated hash, with its share of the advised iterations.
    Iterated(f64),
    /// A hash that also needs memory.
    MemoryHard,
}

impl Strength {
    /// Formats the strength for people.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Readable => "readable".to_owned(),
            Self::Fast => "fast hash".to_owned(),
            Self::Iterated(share) if share >= 1.0 => "as OWASP advises".to_owned(),
            Self::Iterated(share) => {
                format!("{:.2} % of OWASP", share * 100.0)
            }
            Self::MemoryHard => "memory-hard".to_owned(),
        }
    }

    fn is_fit(self) -> bool {
        self > Self::Fast
    }
}

/// Properties of a stored password.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredPassword {
    /// Scheme in braces before the hash.
    pub scheme: String,
    /// Number of iterations, if the value has it.
    pub rounds: Option<u64>,
    /// Strength of the scheme with these iterations.
    pub strength: Strength,
}

/// Parses a value of userPassword.
#[must_use]
pub fn read(value: &[u8]) -> StoredPassword {
    let text = String::from_utf8_lossy(value);
    let (scheme, hash) = match text.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
        Some((scheme, hash)) => (scheme.to_uppercase(), hash),
        None => ("CLEAR".to_owned(), &*text),
    };
    let rounds = rounds(&scheme, hash);
    let strength = strength(&scheme, hash, rounds);
    StoredPassword { scheme, rounds, strength }
}

fn rounds(scheme: &str, hash: &str) -> Option<u64> {
    if scheme == "PBKDF2_SHA256" {
        // The older format of 389-ds is base64 of four bytes of iterations, salt and hash.
        let bytes = base64_start(hash)?;
        return Some(u64::from(u32::from_be_bytes(bytes)));
    }
    if scheme.starts_with("PBKDF2") {
        return hash.split('$').next()?.parse().ok();
    }
    if scheme.starts_with("CRYPT") && (hash.starts_with("$5$") || hash.starts_with("$6$")) {
        let told = hash.get(3..)?.strip_prefix("rounds=");
        return Some(
            told.and_then(|told| told.split('$').next()?.parse().ok()).unwrap_or(CRYPT_ROUNDS),
        );
    }
    None
}

/// Decodes the first four bytes.
fn base64_start(text: &str) -> Option<[u8; 4]> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = 0_u64;
    for letter in text.bytes().take(6) {
        let value = LETTERS.iter().position(|&one| one == letter)?;
        bits = bits << 6 | value as u64;
    }
    (text.len() >= 6).then(|| ((bits >> 4) as u32).to_be_bytes())
}

fn strength(scheme: &str, hash: &str, rounds: Option<u64>) -> Strength {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = |advised: u64| rounds.unwrap_or(1) as f64 / advised as f64;
    if scheme.starts_with("PBKDF2") {
        // PBKDF2 without the name of a hash uses SHA-1.
        let advised = ADVISED_ITERATIONS
            .iter()
            .find(|(hash, _)| scheme.ends_with(hash))
            .unwrap_or(&ADVISED_ITERATIONS[0]);
        return Strength::Iterated(share(advised.1));
    }
    match scheme {
        "CLEAR" | "AES" | "DES" => Strength::Readable,
        _ if scheme.contains("YESCRYPT") || scheme.contains("ARGON2") => Strength::MemoryHard,
        _ if hash.starts_with("$y$") || hash.starts_with("$2") => Strength::MemoryHard,
        // OWASP does not rate SHA-crypt. A round costs about as much as one of PBKDF2.
        _ if rounds.is_some() => Strength::Iterated(share(
            ADVISED_ITERATIONS[if hash.starts_with("$5$") { 1 } else { 2 }].1,
        )),
        _ => Strength::Fast,
    }
}

/// Figures of a scheme.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchemeStats {
    /// Name on the server.
    pub name: String,
    pub stored: StoredPassword,
    /// Binds per second.
    pub rate: f64,
    /// Median latency of binds.
    pub p50_ms: f64,
    /// 99th percentile of the latency.
    pub p99_ms: f64,
    /// Processor time of a watched server per bind.
    pub server_cpu_ms: Option<f64>,
}

/// A recommended scheme, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The accounts that the recommendation is for.
    pub population: &'static str,
    /// Name of the scheme; `None` if no scheme is fit.
    pub scheme: Option<String>,
    /// Reason as a sentence.
    pub why: String,
    /// Code of a recommendation with a deficiency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// Sorts by strength, strongest first, then by rate.
pub fn rank(measured: &mut [SchemeStats]) {
    measured.sort_by(|a, b| {
        let strength = b.stored.strength.partial_cmp(&a.stored.strength);
        strength.unwrap_or(std::cmp::Ordering::Equal).then(b.rate.total_cmp(&a.rate))
    });
}

/// Recommends schemes for administrators and users. `ranked` is in the order of [rank], and `needed` is the expected
/// number of binds per second.
#[must_use]
pub fn advise(ranked: &[SchemeStats], needed: f64) -> Vec<Advice> {
    let fit = || ranked.iter().filter(|one| one.stored.strength.is_fit());
    let name = |one: &SchemeStats| Some(one.name.clone());
    let nothing = |population| Advice {
        population,
        scheme: None,
        why: "no scheme is fit: each is readable by the server or a fast hash. Update the server"
            .to_owned(),
        code: Some(lab::NO_FIT_SCHEME.code),
    };
    let administrators = fit().next().map_or_else(
        || nothing("administrators"),
        |best| Advice {
            population: "administrators",
            scheme: name(best),
            why: format!(
                "the strongest ({}); {:.0} binds per second are sufficient for few accounts",
                best.stored.strength.text(),
                best.rate
            ),
            code: None,
        },
    );
    let fast_enough = fit().find(|one| one.rate >= needed);
    let fastest = fit().max_by(|a, b| a.rate.total_cmp(&b.rate));
    let users = match (fast_enough, fastest) {
        (Some(one), _) => Advice {
            population: "users",
            scheme: name(one),
            why: format!(
                "the strongest ({}) that serves {needed:.0} binds per second: it serves {:.0}",
                one.stored.strength.text(),
                one.rate
            ),
            code: None,
        },
        (None, Some(one)) => Advice {
            population: "users",
            scheme: name(one),
            why: format!(
                "no fit scheme serves {needed:.0} binds per second, and this is the fastest with {:.0}. Add processors \
                 to the server, or let programs reuse their connections",
                one.rate
            ),
            code: Some(lab::SCHEMES_TOO_SLOW.code),
        },
        (None, None) => nothing("users"),
    };
    vec![administrators, users]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_password_tells_its_scheme_and_rounds() {
        for (value, scheme, rounds) in [
            ("secret", "CLEAR", None),
            ("{SSHA512}abc", "SSHA512", None),
            ("{PBKDF2-SHA512}10000$c2FsdA$aGFzaA", "PBKDF2-SHA512", Some(10_000)),
            // 00 00 08 00: 2048.
            ("{PBKDF2_SHA256}AAAIAGFiY2Q=", "PBKDF2_SHA256", Some(2048)),
            ("{PBKDF2_SHA256}AAA", "PBKDF2_SHA256", None),
            ("{CRYPT}$6$salt$hash", "CRYPT", Some(5000)),
            ("{crypt}$5$rounds=70000$salt$hash", "CRYPT", Some(70_000)),
            ("{CRYPT}$1$salt$hash", "CRYPT", None),
            ("{open", "CLEAR", None),
        ] {
            let stored = read(value.as_bytes());
            assert_eq!((stored.scheme.as_str(), stored.rounds), (scheme, rounds), "{value}");
        }
    }

    #[test]
    fn strength_is_the_share_of_what_is_advised() {
        let strength = |value: &str| read(value.as_bytes()).strength;
        assert_eq!(strength("secret"), Strength::Readable);
        assert_eq!(strength("{SSHA}x"), Strength::Fast);
        assert_eq!(strength("{PBKDF2-SHA256}600000$a$b"), Strength::Iterated(1.0));
        assert_eq!(strength("{PBKDF2-SHA512}21000$a$b"), Strength::Iterated(0.1));
        assert_eq!(strength("{PBKDF2}13000$a$b"), Strength::Iterated(0.01));
        assert!(strength("{GOST_YESCRYPT}$gy$x") > strength("{PBKDF2-SHA256}900000$a$b"));
        assert!(strength("{CRYPT}$6$a$b") > strength("{SSHA512}x"));
    }

    fn measured(name: &str, value: &str, rate: f64) -> SchemeStats {
        let stored = read(value.as_bytes());
        SchemeStats {
            name: name.into(),
            stored,
            rate,
            p50_ms: 1.0,
            p99_ms: 2.0,
            server_cpu_ms: None,
        }
    }

    #[test]
    fn advice_strongest_for_administrators_fast_enough_for_users() {
        let mut all = [
            measured("SSHA", "{SSHA}x", 9000.0),
            measured("WEAK", "{PBKDF2-SHA256}10000$a$b", 500.0),
            measured("STRONG", "{PBKDF2-SHA512}100000$a$b", 20.0),
        ];
        rank(&mut all);
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["STRONG", "WEAK", "SSHA"]);
        let chosen = |needed| {
            let advice = advise(&all, needed).into_iter();
            advice.map(|one| one.scheme.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(10.0), ["STRONG", "STRONG"]);
        assert_eq!(chosen(100.0), ["STRONG", "WEAK"]);
        assert_eq!(chosen(5000.0), ["STRONG", "WEAK"], "never an unfit one");
        assert_eq!(advise(&all, 5000.0)[1].code, Some(lab::SCHEMES_TOO_SLOW.code));
        let unfit = advise(&all[2..], 1.0);
        let is_none =
            |one: &Advice| one.scheme.is_none() && one.code == Some(lab::NO_FIT_SCHEME.code);
        assert!(unfit.iter().all(is_none));
    }
}
