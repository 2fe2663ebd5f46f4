// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validates ssh keys of a directory in the authorized_keys format of sshd(8), before they are sent to sshd. `access`
//! decides about logins by key.
//!
//! A line is accepted only if all of it is understood. Its type must be known, its key must have that type and be
//! strong enough, and the policy must allow its options. A restriction is never dropped: a key with a disallowed option
//! is rejected.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roster_messages::{Message, table::login};
use std::fmt;

/// Limit of the options of a key.
const OPTIONS_MAX: usize = 32;
/// Minimum RSA modulus: OpenSSH's default for new keys before it became 3072.
const RSA_BITS_MIN: usize = 2048;
/// Maximum RSA modulus of OpenSSH.
const RSA_BITS_MAX: usize = 16_384;

/// A key type that sshd accepts and that is not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyType {
    Ed25519,
    Rsa,
    /// The name of the curve and the length of a point.
    Ecdsa(&'static str, usize),
    SkEd25519,
    SkEcdsa,
}

/// Names of the key types.
const TYPES: [(&str, KeyType); 7] = [
    ("ssh-ed25519", KeyType::Ed25519),
    ("ssh-rsa", KeyType::Rsa),
    ("ecdsa-sha2-nistp256", KeyType::Ecdsa("nistp256", 65)),
    ("ecdsa-sha2-nistp384", KeyType::Ecdsa("nistp384", 97)),
    ("ecdsa-sha2-nistp521", KeyType::Ecdsa("nistp521", 133)),
    ("sk-ssh-ed25519@openssh.com", KeyType::SkEd25519),
    ("sk-ecdsa-sha2-nistp256@openssh.com", KeyType::SkEcdsa),
];

/// The reason that a key is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// The value has bytes that do not occur in a line of text.
    #[error("the value is not one line of text")]
    NotText,
    /// The type is unknown.
    #[error("key type {0} is not supported")]
    Type(String),
    /// The key does not have the format of its type.
    #[error("the key is malformed: {0}")]
    Key(&'static str),
    /// The key is too weak.
    #[error("the RSA key has {0} bits; the minimum is {RSA_BITS_MIN}")]
    Weak(usize),
    /// The options are malformed.
    #[error("the options are malformed")]
    Options,
    /// An option is not allowed.
    #[error("option {0} is not in ssh_key_options")]
    NotAllowed(String),
}

impl KeyRejection {
    /// Returns the row of the table.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::NotText | Self::Key(_) | Self::Options => &login::SSH_KEY_MALFORMED,
            Self::Type(_) => &login::SSH_KEY_TYPE,
            Self::Weak(_) => &login::SSH_KEY_WEAK,
            Self::NotAllowed(_) => &login::SSH_KEY_OPTION,
        }
    }
}

/// A valid line for sshd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKeyLine(String);

impl AuthorizedKeyLine {
    /// Returns the line without an end of line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuthorizedKeyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a value of a directory. All options must be in `allowed_options`.
pub fn parse_line(
    value: &[u8],
    allowed_options: &[String],
) -> Result<AuthorizedKeyLine, KeyRejection> {
    let text = std::str::from_utf8(value).map_err(|_| KeyRejection::NotText)?.trim();
    if text.chars().any(|one| one.is_control() && one != '\t') {
        return Err(KeyRejection::NotText);
    }
    let (options, rest) = match key_type(text) {
        Some(_) => ("", text),
        None => split_options(text)?,
    };
    let Some((name, kind)) = key_type(rest) else {
        let word = rest.split([' ', '\t']).next().unwrap_or_default();
        return Err(KeyRejection::Type(word.chars().take(40).collect()));
    };
    for option in split_option_list(options)? {
        let (option, _) = option.split_once('=').unwrap_or((option, ""));
        if !allowed_options.iter().any(|allowed| allowed.eq_ignore_ascii_case(option)) {
            return Err(KeyRejection::NotAllowed(option.chars().take(40).collect()));
        }
    }
    let rest = rest.get(name.len()..).unwrap_or_default().trim_start();
    let (encoded, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let blob = STANDARD.decode(encoded).map_err(|_| KeyRejection::Key("invalid base64"))?;
    check(&blob, name, kind)?;
    let words = [options, name, encoded, comment.trim()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Ok(AuthorizedKeyLine(words.join(" ")))
}

/// Returns the type at the start of a text.
fn key_type(text: &str) -> Option<(&'static str, KeyType)> {
    let word = text.split([' ', '\t']).next()?;
    TYPES.into_iter().find(|(name, _)| *name == word)
}

/// Splits at the first blank outside of quotes, which ends the options.
fn split_options(text: &str) -> Result<(&str, &str), KeyRejection> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => quoted = !quoted,
            b' ' | b'\t' if !quoted => {
                let (options, rest) = text.split_at_checked(at).ok_or(KeyRejection::Options)?;
                return Ok((options, rest.trim_start()));
            }
            _ => {}
        }
        // As in sshd, a backslash escapes only a quote, never itself.
        escaped = byte == b'\\';
    }
    // A single word is neither a type nor a key.
    Ok(("", text))
}

/// Splits at commas outside of quotes. A value is in quotes from end to end.
fn split_option_list(options: &str) -> Result<Vec<&str>, KeyRejection> {
    let mut found = Vec::new();
    let mut rest = options;
    while !rest.is_empty() {
        if found.len() == OPTIONS_MAX {
            return Err(KeyRejection::Options);
        }
        let name_bytes = rest.bytes().take_while(|byte| is_name_byte(*byte)).count();
        if name_bytes == 0 {
            return Err(KeyRejection::Options);
        }
        let value_bytes = match rest.get(name_bytes..) {
            Some(value) if value.starts_with('=') => value_length(value)?,
            _ => 0,
        };
        let (option, after) =
            rest.split_at_checked(name_bytes + value_bytes).ok_or(KeyRejection::Options)?;
        found.push(option);
        rest = match after.strip_prefix(',') {
            Some("") => return Err(KeyRejection::Options),
            Some(next) => next,
            None if after.is_empty() => after,
            None => return Err(KeyRejection::Options),
        };
    }
    Ok(found)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Returns the length of `="…"`.
fn value_length(value: &str) -> Result<usize, KeyRejection> {
    let inner = value.strip_prefix("=\"").ok_or(KeyRejection::Options)?;
    let mut escaped = false;
    for (at, byte) in inner.bytes().enumerate() {
        if byte == b'"' && !escaped {
            return Ok(at + 3);
        }
        escaped = byte == b'\\';
    }
    Err(KeyRejection::Options)
}

/// Checks that the bytes are exactly one key of that type.
fn check(blob: &[u8], name: &str, kind: KeyType) -> Result<(), KeyRejection> {
    let mut fields = WireFields(blob);
    let cut = KeyRejection::Key("truncated");
    if fields.next().ok_or(cut.clone())? != name.as_bytes() {
        return Err(KeyRejection::Key("the key data has another type"));
    }
    match kind {
        KeyType::Ed25519 => fields.expect_length(32)?,
        KeyType::SkEd25519 => {
            fields.expect_length(32)?;
            fields.application()?;
        }
        KeyType::Ecdsa(curve, length) => fields.point(curve, length)?,
        KeyType::SkEcdsa => {
            fields.point("nistp256", 65)?;
            fields.application()?;
        }
        KeyType::Rsa => {
            let exponent = fields.next().and_then(positive).ok_or(cut.clone())?;
            if exponent.len() > 8 || exponent.last().is_none_or(|last| last % 2 == 0) {
                return Err(KeyRejection::Key("invalid RSA exponent"));
            }
            let modulus = fields.next().and_then(positive).ok_or(cut)?;
            let first = modulus.first().map_or(8, |first| first.leading_zeros() as usize);
            let bits = modulus.len() * 8 - first;
            if bits < RSA_BITS_MIN {
                return Err(KeyRejection::Weak(bits));
            }
            if bits > RSA_BITS_MAX || modulus.last().is_none_or(|last| last % 2 == 0) {
                return Err(KeyRejection::Key("invalid RSA modulus"));
            }
        }
    }
    if fields.0.is_empty() { Ok(()) } else { Err(KeyRejection::Key("data after the key")) }
}

/// Returns the bytes of a positive number without its leading zero.
fn positive(number: &[u8]) -> Option<&[u8]> {
    match number {
        [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Some(rest),
        [first, ..] if (1..0x80).contains(first) => Some(number),
        _ => None,
    }
}

/// Strings with a length prefix (RFC 4251, 5).
struct WireFields<'a>(&'a [u8]);

impl<'a> WireFields<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (field, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    fn expect_length(&mut self, length: usize) -> Result<(), KeyRejection> {
        match self.next() {
            Some(field) if field.len() == length => Ok(()),
            _ => Err(KeyRejection::Key("the length does not match the type")),
        }
    }

    fn point(&mut self, curve: &str, length: usize) -> Result<(), KeyRejection> {
        if self.next() != Some(curve.as_bytes()) {
            return Err(KeyRejection::Key("the curve does not match the type"));
        }
        match self.next() {
            Some([4, rest @ ..]) if rest.len() + 1 == length => Ok(()),
            _ => Err(KeyRejection::Key("not a point of the curve")),
        }
    }

    fn application(&mut self) -> Result<(), KeyRejection> {
        let name = self.next().filter(|name| !name.is_empty());
        name.map(|_| ()).ok_or(KeyRejection::Key("no application"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        out.extend_from_slice(bytes);
    }

    fn key(name: &str, fields: &[&[u8]]) -> String {
        let mut blob = Vec::new();
        field(&mut blob, name.as_bytes());
        fields.iter().for_each(|bytes| field(&mut blob, bytes));
        format!("{name} {}", STANDARD.encode(blob))
    }

    fn ed25519() -> String {
        key("ssh-ed25519", &[&[7; 32]])
    }

    fn rsa(bits: usize) -> String {
        let mut modulus = vec![0xff; bits / 8];
        modulus.insert(0, 0);
        key("ssh-rsa", &[&[1, 0, 1], &modulus])
    }

    fn read(text: &str, options: &[&str]) -> Result<String, KeyRejection> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        parse_line(text.as_bytes(), &options).map(|line| line.to_string())
    }

    #[test]
    fn keys_of_every_type_are_told_as_they_are() {
        let point = |length: usize| [&[4_u8][..], &vec![9; length - 1]].concat();
        for text in [
            ed25519(),
            rsa(2048),
            rsa(16_384),
            key("ecdsa-sha2-nistp256", &[b"nistp256", &point(65)]),
            key("ecdsa-sha2-nistp384", &[b"nistp384", &point(97)]),
            key("ecdsa-sha2-nistp521", &[b"nistp521", &point(133)]),
            key("sk-ssh-ed25519@openssh.com", &[&[7; 32], b"ssh:"]),
            key("sk-ecdsa-sha2-nistp256@openssh.com", &[b"nistp256", &point(65), b"ssh:"]),
        ] {
            assert_eq!(read(&text, &[]), Ok(text.clone()));
            assert_eq!(read(&format!(" {text} a@b c \n"), &[]), Ok(format!("{text} a@b c")));
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let other = ed25519().replacen("ssh-ed25519", "ssh-rsa", 1);
        let cut: String = ed25519().chars().take(30).collect();
        let cases = [
            ("", KeyRejection::Type(String::new())),
            ("# a comment", KeyRejection::Type("a".into())),
            ("ssh-dss AAAAB3NzaC1kc3M=", KeyRejection::Type("AAAAB3NzaC1kc3M=".into())),
            ("ssh-ed25519", KeyRejection::Key("truncated")),
            ("ssh-ed25519 ?", KeyRejection::Key("invalid base64")),
            (&other, KeyRejection::Key("the key data has another type")),
            (&cut, KeyRejection::Key("invalid base64")),
            (&rsa(1024), KeyRejection::Weak(1024)),
            (&rsa(2040), KeyRejection::Weak(2040)),
            (&rsa(16_392), KeyRejection::Key("invalid RSA modulus")),
            (
                &key("ssh-ed25519", &[&[7; 31]]),
                KeyRejection::Key("the length does not match the type"),
            ),
            (&key("ssh-ed25519", &[&[7; 32], b""]), KeyRejection::Key("data after the key")),
            (&format!("{}\n{}", ed25519(), ed25519()), KeyRejection::NotText),
            (&format!("{}\0", ed25519()), KeyRejection::NotText),
        ];
        for (text, why) in cases {
            let message = match why {
                KeyRejection::Type(_) => &login::SSH_KEY_TYPE,
                KeyRejection::Weak(_) => &login::SSH_KEY_WEAK,
                _ => &login::SSH_KEY_MALFORMED,
            };
            assert_eq!(read(text, &[]).map_err(|why| why.message()), Err(message), "{text:?}");
            assert_eq!(read(text, &[]), Err(why), "{text:?}");
        }
        let curve = key("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 65]]);
        assert_eq!(read(&curve, &[]), Err(KeyRejection::Key("the curve does not match the type")));
        let even = key("ssh-rsa", &[&[1, 0, 2], &[0x7f; 256]]);
        assert!(matches!(read(&even, &[]), Err(KeyRejection::Key(_))));
        assert_eq!(parse_line(&[0xff, 0xfe], &[]), Err(KeyRejection::NotText));
    }

    #[test]
    fn ssh_keys_forbidden_option_drops_the_key() {
        let key = ed25519();
        for options in ["restrict", "command=\"/bin/true a,b\"", "no-pty,from=\"10.0.0.0/8\""] {
            let text = format!("{options} {key}");
            assert!(matches!(read(&text, &[]), Err(KeyRejection::NotAllowed(_))), "{options}");
        }
        let text = format!("no-pty,from=\"10.0.0.0/8,!10.1.0.0/16\" {key} alice");
        assert_eq!(read(&text, &["from"]), Err(KeyRejection::NotAllowed("no-pty".into())));
        assert_eq!(read(&text, &["from", "NO-PTY"]), Ok(text.clone()));
    }

    #[test]
    fn options_that_could_be_read_in_two_ways_are_refused() {
        let key = ed25519();
        for options in [
            "from=10.0.0.0/8",
            "from=\"a\"x",
            "from=\"a\",",
            ",from=\"a\"",
            "from=\"a\",,no-pty",
            "=\"a\"",
            "fr om=\"a\"",
            "from=\"a",
        ] {
            let text = format!("{options} {key}");
            let told = read(&text, &["from", "command", "no-pty"]);
            assert!(
                matches!(told, Err(KeyRejection::Options | KeyRejection::Type(_))),
                "{options}: {told:?}"
            );
        }
        // As in sshd, a quote after a backslash does not end the value.
        for value in ["echo \\\"a b\\\"", "a\\\\\" ssh-x"] {
            let text = format!("command=\"{value}\" {key}");
            assert_eq!(read(&text, &["command"]), Ok(text.clone()));
        }
    }
}
