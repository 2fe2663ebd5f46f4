//! Keys of sshd's authorized_keys format (sshd(8)) out of a directory: which of them may be told to sshd.
//!
//! A line is told only if all of it was understood: its type, the key itself, of the type that the
//! line names, strong enough, and options that the policy allows. A restriction is never left out:
//! a key whose options are not allowed is not told at all.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// Options in front of a key.
const OPTIONS_MAX: usize = 32;
/// Shortest modulus of RSA, as OpenSSH's own default for new keys was before it became 3072.
const RSA_BITS_MIN: usize = 2048;
/// Longest modulus of RSA that OpenSSH takes.
const RSA_BITS_MAX: usize = 16_384;

/// A type of key that sshd takes and that is not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Ed25519,
    Rsa,
    /// With the name of its curve and the length of a point.
    Ecdsa(&'static str, usize),
    SkEd25519,
    SkEcdsa,
}

/// Their names.
const TYPES: [(&str, Type); 7] = [
    ("ssh-ed25519", Type::Ed25519),
    ("ssh-rsa", Type::Rsa),
    ("ecdsa-sha2-nistp256", Type::Ecdsa("nistp256", 65)),
    ("ecdsa-sha2-nistp384", Type::Ecdsa("nistp384", 97)),
    ("ecdsa-sha2-nistp521", Type::Ecdsa("nistp521", 133)),
    ("sk-ssh-ed25519@openssh.com", Type::SkEd25519),
    ("sk-ecdsa-sha2-nistp256@openssh.com", Type::SkEcdsa),
];

/// Why a key is not told to sshd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// There are bytes in it that no line of text has.
    #[error("it is not one line of text")]
    NotALine,
    /// It has no type that is known here.
    #[error("its type is not one that is taken: {0}")]
    Type(String),
    /// What follows the type is not what that type says.
    #[error("the key is not one: {0}")]
    Key(&'static str),
    /// It is too weak.
    #[error("an RSA key of {0} bits is too short, {RSA_BITS_MIN} are the least")]
    Weak(usize),
    /// Its options make no sense.
    #[error("its options cannot be read")]
    Options,
    /// An option is not allowed.
    #[error("the option {0} is not among ssh_key_options")]
    NotAllowed(String),
}

/// A line for sshd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(String);

impl Line {
    /// The line, without an end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a value of a directory; options have to be among those.
pub fn line(value: &[u8], allowed_options: &[String]) -> Result<Line, BadKey> {
    let text = std::str::from_utf8(value).map_err(|_| BadKey::NotALine)?.trim();
    if text.chars().any(|one| one.is_control() && one != '\t') {
        return Err(BadKey::NotALine);
    }
    let (options, rest) = match key_type(text) {
        Some(_) => ("", text),
        None => split_options(text)?,
    };
    let Some((name, kind)) = key_type(rest) else {
        let word = rest.split([' ', '\t']).next().unwrap_or_default();
        return Err(BadKey::Type(word.chars().take(40).collect()));
    };
    for option in each_option(options)? {
        let (option, _) = option.split_once('=').unwrap_or((option, ""));
        if !allowed_options.iter().any(|allowed| allowed.eq_ignore_ascii_case(option)) {
            return Err(BadKey::NotAllowed(option.chars().take(40).collect()));
        }
    }
    let rest = rest.get(name.len()..).unwrap_or_default().trim_start();
    let (encoded, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let blob = STANDARD.decode(encoded).map_err(|_| BadKey::Key("it is not in base64"))?;
    check(&blob, name, kind)?;
    let words = [options, name, encoded, comment.trim()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Ok(Line(words.join(" ")))
}

/// The type that a text begins with.
fn key_type(text: &str) -> Option<(&'static str, Type)> {
    let word = text.split([' ', '\t']).next()?;
    TYPES.into_iter().find(|(name, _)| *name == word)
}

/// Options end at the first blank outside of quotes.
fn split_options(text: &str) -> Result<(&str, &str), BadKey> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => quoted = !quoted,
            b' ' | b'\t' if !quoted => {
                let (options, rest) = text.split_at_checked(at).ok_or(BadKey::Options)?;
                return Ok((options, rest.trim_start()));
            }
            _ => {}
        }
        // As in sshd: a backslash stands before quotes only, and never for itself.
        escaped = byte == b'\\';
    }
    // One word: neither type nor key.
    Ok(("", text))
}

/// Options stand between commas outside of quotes; a value is in quotes from end to end.
fn each_option(options: &str) -> Result<Vec<&str>, BadKey> {
    let mut found = Vec::new();
    let mut rest = options;
    while !rest.is_empty() {
        if found.len() == OPTIONS_MAX {
            return Err(BadKey::Options);
        }
        let name_bytes = rest.bytes().take_while(|byte| is_of_name(*byte)).count();
        if name_bytes == 0 {
            return Err(BadKey::Options);
        }
        let value_bytes = match rest.get(name_bytes..) {
            Some(value) if value.starts_with('=') => value_length(value)?,
            _ => 0,
        };
        let (option, after) =
            rest.split_at_checked(name_bytes + value_bytes).ok_or(BadKey::Options)?;
        found.push(option);
        rest = match after.strip_prefix(',') {
            Some("") => return Err(BadKey::Options),
            Some(next) => next,
            None if after.is_empty() => after,
            None => return Err(BadKey::Options),
        };
    }
    Ok(found)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Length of `="…"`.
fn value_length(value: &str) -> Result<usize, BadKey> {
    let inner = value.strip_prefix("=\"").ok_or(BadKey::Options)?;
    let mut escaped = false;
    for (at, byte) in inner.bytes().enumerate() {
        if byte == b'"' && !escaped {
            return Ok(at + 3);
        }
        escaped = byte == b'\\';
    }
    Err(BadKey::Options)
}

/// Whether the bytes are a key of that type, and nothing else.
fn check(blob: &[u8], name: &str, kind: Type) -> Result<(), BadKey> {
    let mut fields = Fields(blob);
    let cut = BadKey::Key("it is cut");
    if fields.next().ok_or(cut.clone())? != name.as_bytes() {
        return Err(BadKey::Key("it is of another type than it says"));
    }
    match kind {
        Type::Ed25519 => fields.of_length(32)?,
        Type::SkEd25519 => {
            fields.of_length(32)?;
            fields.application()?;
        }
        Type::Ecdsa(curve, length) => fields.point(curve, length)?,
        Type::SkEcdsa => {
            fields.point("nistp256", 65)?;
            fields.application()?;
        }
        Type::Rsa => {
            let exponent = fields.next().and_then(positive).ok_or(cut.clone())?;
            if exponent.len() > 8 || exponent.last().is_none_or(|last| last % 2 == 0) {
                return Err(BadKey::Key("its exponent is no exponent of RSA"));
            }
            let modulus = fields.next().and_then(positive).ok_or(cut)?;
            let first = modulus.first().map_or(8, |first| first.leading_zeros() as usize);
            let bits = modulus.len() * 8 - first;
            if bits < RSA_BITS_MIN {
                return Err(BadKey::Weak(bits));
            }
            if bits > RSA_BITS_MAX || modulus.last().is_none_or(|last| last % 2 == 0) {
                return Err(BadKey::Key("its modulus is no modulus of RSA"));
            }
        }
    }
    if fields.0.is_empty() { Ok(()) } else { Err(BadKey::Key("something follows it")) }
}

/// The bytes of a number above 0, without the zero that keeps it positive.
fn positive(number: &[u8]) -> Option<&[u8]> {
    match number {
        [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Some(rest),
        [first, ..] if (1..0x80).contains(first) => Some(number),
        _ => None,
    }
}

/// Strings with their lengths before them (RFC 4251, 5).
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (field, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    fn of_length(&mut self, length: usize) -> Result<(), BadKey> {
        match self.next() {
            Some(field) if field.len() == length => Ok(()),
            _ => Err(BadKey::Key("it has another length than its type")),
        }
    }

    fn point(&mut self, curve: &str, length: usize) -> Result<(), BadKey> {
        if self.next() != Some(curve.as_bytes()) {
            return Err(BadKey::Key("it is on another curve than its type"));
        }
        match self.next() {
            Some([4, rest @ ..]) if rest.len() + 1 == length => Ok(()),
            _ => Err(BadKey::Key("it is no point of its curve")),
        }
    }

    fn application(&mut self) -> Result<(), BadKey> {
        let name = self.next().filter(|name| !name.is_empty());
        name.map(|_| ()).ok_or(BadKey::Key("it names no application"))
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

    fn read(text: &str, options: &[&str]) -> Result<String, BadKey> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        line(text.as_bytes(), &options).map(|line| line.to_string())
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
            ("", BadKey::Type(String::new())),
            ("# a comment", BadKey::Type("a".into())),
            ("ssh-dss AAAAB3NzaC1kc3M=", BadKey::Type("AAAAB3NzaC1kc3M=".into())),
            ("ssh-ed25519", BadKey::Key("it is cut")),
            ("ssh-ed25519 ?", BadKey::Key("it is not in base64")),
            (&other, BadKey::Key("it is of another type than it says")),
            (&cut, BadKey::Key("it is not in base64")),
            (&rsa(1024), BadKey::Weak(1024)),
            (&rsa(2040), BadKey::Weak(2040)),
            (&rsa(16_392), BadKey::Key("its modulus is no modulus of RSA")),
            (&key("ssh-ed25519", &[&[7; 31]]), BadKey::Key("it has another length than its type")),
            (&key("ssh-ed25519", &[&[7; 32], b""]), BadKey::Key("something follows it")),
            (&format!("{}\n{}", ed25519(), ed25519()), BadKey::NotALine),
            (&format!("{}\0", ed25519()), BadKey::NotALine),
        ];
        for (text, why) in cases {
            assert_eq!(read(text, &[]), Err(why), "{text:?}");
        }
        let curve = key("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 65]]);
        assert_eq!(read(&curve, &[]), Err(BadKey::Key("it is on another curve than its type")));
        let even = key("ssh-rsa", &[&[1, 0, 2], &[0x7f; 256]]);
        assert!(matches!(read(&even, &[]), Err(BadKey::Key(_))));
        assert_eq!(line(&[0xff, 0xfe], &[]), Err(BadKey::NotALine));
    }

    #[test]
    fn a_key_with_an_option_that_is_not_allowed_is_not_told_without_it() {
        let key = ed25519();
        for options in ["restrict", "command=\"/bin/true a,b\"", "no-pty,from=\"10.0.0.0/8\""] {
            let text = format!("{options} {key}");
            assert!(matches!(read(&text, &[]), Err(BadKey::NotAllowed(_))), "{options}");
        }
        let text = format!("no-pty,from=\"10.0.0.0/8,!10.1.0.0/16\" {key} alice");
        assert_eq!(read(&text, &["from"]), Err(BadKey::NotAllowed("no-pty".into())));
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
            assert!(matches!(told, Err(BadKey::Options | BadKey::Type(_))), "{options}: {told:?}");
        }
        // As sshd has it, a quote behind any backslash is not the end.
        for value in ["echo \\\"a b\\\"", "a\\\\\" ssh-x"] {
            let text = format!("command=\"{value}\" {key}");
            assert_eq!(read(&text, &["command"]), Ok(text.clone()));
        }
    }
}
