//! The small languages inside values: durations, servers, names, DNs, filters, templates.
//!
//! Pure functions from text to a value or to what is wrong with it.

use crate::keys::duration as written;
use crate::problem::Wrong;
use crate::{Listen, Server};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A domain's name becomes part of file and bus names.
const DOMAIN_BYTES_MAX: usize = 64;
/// DNS allows no more.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Of a socket's path, by unix(7), without the NUL at the end.
const SOCKET_BYTES_MAX: usize = 107;

/// `30s`; a number alone is seconds.
pub fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, Wrong> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_millis: u64 = match unit.trim_start() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let millis = number.parse().ok().and_then(|number: u64| number.checked_mul(unit_millis));
    match millis.filter(|_| unit_millis > 0) {
        Some(millis) => within(Duration::from_millis(millis), min, max),
        None => Err(Wrong::new(
            format!("\"{text}\" is no duration"),
            "write a number and ms, s, m, h or d, such as \"30s\"",
        )),
    }
}

/// A duration with bounds.
pub fn within(duration: Duration, min: Duration, max: Duration) -> Result<Duration, Wrong> {
    if duration < min || duration > max {
        let too = if duration < min { "short" } else { "long" };
        return Err(Wrong::new(
            format!("{} is too {too}", written(duration)),
            format!("write \"{}\" to \"{}\"", written(min), written(max)),
        ));
    }
    Ok(duration)
}

/// The name of a domain in our own sense.
pub fn domain_name(name: &str) -> Result<(), Wrong> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let well = name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte));
    if !well {
        return Err(Wrong::new(
            format!("{name:?} cannot be the name of a domain"),
            "use a-z, 0-9, dots, dashes and underscores, with a letter or a digit first",
        ));
    }
    if name.len() > DOMAIN_BYTES_MAX {
        return Err(Wrong::new(
            format!("the name of this domain has {} bytes", name.len()),
            format!("make it {DOMAIN_BYTES_MAX} at the most"),
        ));
    }
    Ok(())
}

/// Longest name of a user of the host.
const USER_BYTES_MAX: usize = 256;

/// The name of a user of the host, who may not exist yet.
pub fn user_name(name: &str) -> Result<(), Wrong> {
    let odd =
        |char: char| char.is_control() || char.is_whitespace() || matches!(char, ':' | '/' | ',');
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains(odd) {
        return Err(Wrong::new(
            format!("{name:?} cannot be the name of a user"),
            "write a name as in /etc/passwd",
        ));
    }
    Ok(())
}

/// Printable ASCII characters, without those that no name of an account can have.
pub fn name_characters(text: &str) -> Result<(), Wrong> {
    match text.chars().find(|c| !matches!(c, ' '..='~') || matches!(c, ':' | ',' | '/')) {
        None => Ok(()),
        Some(c) => Err(Wrong::new(format!("{c:?} is in no name that can be served"), "remove it")),
    }
}

/// The name of a user or group of a domain.
pub fn entry_name(name: &str) -> Result<(), Wrong> {
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains([':', '\n', '\0', ',']) {
        return Err(Wrong::new(
            format!("{name:?} cannot be the name of a user or a group"),
            "write a name as getent shows it, each in quotes of its own",
        ));
    }
    Ok(())
}

/// The name of an option in front of a key, without a value.
pub fn key_option(name: &str) -> Result<(), Wrong> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_of_name) {
        return Err(Wrong::new(
            format!("{name:?} is not the name of an option"),
            "write the name alone, \"from\", as in AUTHORIZED_KEYS FILE FORMAT of sshd(8)",
        ));
    }
    Ok(())
}

/// A path from the root.
pub fn path(text: &str) -> Result<PathBuf, Wrong> {
    if text.contains('\0') {
        return Err(Wrong::new("a path cannot hold a NUL", "remove it"));
    }
    if !text.starts_with('/') {
        return Err(Wrong::new(
            format!("{text:?} is not an absolute path"),
            "write it from the root, starting with /",
        ));
    }
    Ok(PathBuf::from(text))
}

/// A name of DNS.
pub fn dns_name(text: &str) -> Result<String, Wrong> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.len() > HOST_BYTES_MAX || !name.split('.').all(is_label) {
        return Err(Wrong::new(
            format!("{text:?} is no DNS name"),
            "write letters, digits and dashes between dots, such as \"example.com\"",
        ));
    }
    Ok(name.to_owned())
}

/// One of `uris`.
pub fn server(uri: &str) -> Result<Server, Wrong> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return Err(match dns_name(uri.split([':', '/']).next().unwrap_or_default()) {
            Ok(host) => Wrong::new(
                format!("{uri:?} is no URI"),
                format!("did you mean \"ldaps://{host}\"?"),
            ),
            Err(_) => Wrong::new(
                format!("{uri:?} is no URI"),
                "write ldaps://HOST, ldap://HOST or ldapi://PATH with every / of the path as %2F",
            ),
        });
    };
    match scheme.to_ascii_lowercase().as_str() {
        "ldap" => host_and_port(uri, rest, 389).map(|(host, port)| Server::Ldap { host, port }),
        "ldaps" => host_and_port(uri, rest, 636).map(|(host, port)| Server::Ldaps { host, port }),
        "ldapi" => socket(uri, rest).map(|path| Server::Ldapi { path }),
        other => Err(Wrong::new(
            format!("{uri:?}: {other:?} is no protocol of LDAP servers"),
            "write ldaps://, ldap:// or ldapi://",
        )),
    }
}

/// `HOST[:PORT]`, as one with its port.
pub fn host(text: &str, default: u16) -> Result<String, Wrong> {
    let (host, port) = host_and_port(text, text, default)?;
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// A realm of Kerberos; such as could not be written in a krb5.conf are nobody's.
pub fn realm(text: &str) -> Result<(), Wrong> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(is_one) {
        return Err(Wrong::new(
            format!("{text:?} is no realm"),
            "write letters, digits, dots and dashes, such as \"EXAMPLE.COM\"",
        ));
    }
    Ok(())
}

/// Longest name of a credential cache.
const CACHE_BYTES_MAX: usize = 256;

/// Where credential caches are made: one for each session, whatever the kind.
pub fn cache(text: &str) -> Result<(), Wrong> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:%{}".contains(&byte);
    let rest = text.replace("%{uid}", "0");
    if text == "none" {
        return Ok(());
    }
    if text.len() > CACHE_BYTES_MAX || !text.bytes().all(is_one) || rest.contains(['%', '{', '}']) {
        return Err(Wrong::new(
            format!("{text:?} cannot be the name of a credential cache"),
            "use letters, digits, / . _ - : and %{uid}",
        ));
    }
    match rest.split_once(':') {
        Some(("FILE", path)) if path.starts_with('/') && path.ends_with("XXXXXX") => Ok(()),
        Some(("FILE", path)) if path.starts_with('/') => Err(Wrong::new(
            "sessions would share this file, and the first that ends would remove it",
            format!("write \"{text}_XXXXXX\""),
        )),
        Some(("DIR", path)) if path.starts_with('/') => Ok(()),
        Some(("KEYRING", "persistent:0")) | Some(("KCM", "")) => Ok(()),
        _ => Err(Wrong::new(
            format!("{text:?} is no place for credential caches that can be told apart by user"),
            "write FILE:/tmp/krb5cc_%{uid}_XXXXXX, KEYRING:persistent:%{uid}, KCM:, DIR:/PATH or none",
        )),
    }
}

fn host_and_port(uri: &str, rest: &str, default: u16) -> Result<(String, u16), Wrong> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(Wrong::new(
            format!("{uri:?} holds more than a host and a port"),
            "write what is searched as base and user_filter, and who binds as bind_dn",
        ));
    }
    let bracketed = rest.strip_prefix('[').map(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some(Some((host, port))) if host.parse::<std::net::Ipv6Addr>().is_ok() => {
            (host.to_owned(), port)
        }
        Some(_) => {
            return Err(Wrong::new(
                format!("{uri:?} holds no IPv6 address between brackets"),
                "write it as in ldaps://[2001:db8::1]:636",
            ));
        }
        None if rest.parse::<std::net::Ipv6Addr>().is_ok() => {
            return Err(Wrong::new(
                format!("{uri:?}: an IPv6 address stands between brackets"),
                format!("write [{rest}]"),
            ));
        }
        None => {
            let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            if host.is_empty() {
                return Err(Wrong::new(format!("{uri:?} names no host"), "add it"));
            }
            let host = dns_name(host).map_err(|wrong| Wrong {
                what: format!("{uri:?}: {}", wrong.what),
                instead: wrong.instead,
            })?;
            (host, port)
        }
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(default),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|&port| port > 0)
        }
        _ => None,
    };
    let port = port.ok_or_else(|| {
        Wrong::new(
            format!("{uri:?} holds no port that there is"),
            format!("write 1 to 65535, or leave it out for {default}"),
        )
    })?;
    Ok((host, port))
}

fn socket(uri: &str, rest: &str) -> Result<PathBuf, Wrong> {
    let path = percent_decoded(rest).filter(|path| path.starts_with('/') && path.len() > 1);
    match path {
        // Written plainly, as one would.
        _ if rest.contains('/') => {
            let path = rest.trim_start_matches('/');
            let encoded = format!("%2F{}", path.replace('/', "%2F"));
            let meant = if path.is_empty() { "%2Frun%2Fslapd%2Fldapi" } else { &*encoded };
            Err(Wrong::new(
                format!("{uri:?} does not name a socket in the way of ldapi"),
                format!("every / of the path is %2F: \"ldapi://{meant}\""),
            ))
        }
        Some(path) if path.len() <= SOCKET_BYTES_MAX && !path.contains('\0') => Ok(path.into()),
        Some(path) => Err(Wrong::new(
            format!("the path of the socket has {} bytes", path.len()),
            format!("Linux allows {SOCKET_BYTES_MAX}; use a shorter one"),
        )),
        None => Err(Wrong::new(
            format!("{uri:?} does not name a socket"),
            "write its path with every / as %2F: \"ldapi://%2Frun%2Fslapd%2Fldapi\"",
        )),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let (pair, tail) = rest.split_at_checked(2)?;
            bytes.push(hex_byte(pair)?);
            rest = tail;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The byte that the first two characters stand for.
pub(crate) fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |at: usize| pair.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// A distinguished name by RFC 4514. Only its form is looked at.
pub fn dn(text: &str) -> Result<(), Wrong> {
    let wrong = |why: &str| {
        Err(Wrong::new(
            format!("{text:?} is no DN: {why}"),
            "write it as in \"ou=people,dc=example,dc=com\"",
        ))
    };
    if text.trim().is_empty() {
        return wrong("it is empty");
    }
    if text.starts_with("ldap") && text.contains("://") {
        return wrong("it is a URI");
    }
    for part in split_unescaped(text, b",;+") {
        let Some((kind, value)) = part.split_once('=') else {
            return wrong(&format!("{:?} lacks a =", part.trim()));
        };
        if attribute(kind.trim()).is_err() {
            return wrong(&format!("{:?} is no attribute", kind.trim()));
        }
        if value.trim().is_empty() {
            return wrong(&format!("{} has no value", kind.trim()));
        }
        let mut chars = value.chars();
        while let Some(char) = chars.next() {
            let rest = chars.as_str();
            match char {
                '\\' if rest.starts_with([' ', '#', '=', '\\', '"', '+', ',', ';', '<', '>']) => {
                    chars.next();
                }
                '\\' if rest.as_bytes().get(..2).and_then(hex_byte).is_some() => {
                    chars.next();
                    chars.next();
                }
                '\\' => return wrong("a backslash stands before something that needs none"),
                '"' | '<' | '>' | '\0' => {
                    return wrong(&format!("{char:?} needs a backslash before it"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Parts between separators that have no backslash before them.
fn split_unescaped<'t>(text: &'t str, separators: &[u8]) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        if separators.contains(&byte) && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// An attribute's name or number, perhaps with options.
pub fn attribute(text: &str) -> Result<(), Wrong> {
    let mut parts = text.split(';');
    let name = parts.next().unwrap_or_default();
    let is_word =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic()) && is_word(name);
    let is_number = name.contains('.')
        && name.split('.').all(|arc| !arc.is_empty() && arc.bytes().all(|b| b.is_ascii_digit()));
    if (is_name || is_number) && parts.all(|option| !option.is_empty() && is_word(option)) {
        return Ok(());
    }
    Err(Wrong::new(
        format!("{text:?} is no attribute"),
        "write a name of letters, digits and dashes, such as \"uidNumber\"",
    ))
}

/// Second names that servers understand in a question and do not use in an answer.
const ALIASES: [(&str, &str); 5] = [
    ("userid", "uid"),
    ("commonName", "cn"),
    ("surname", "sn"),
    ("gn", "givenName"),
    ("rfc822Mailbox", "mail"),
];

/// An attribute by the name that servers give it in their answers, by which it is found there.
pub fn answered_attribute(text: &str) -> Result<(), Wrong> {
    attribute(text)?;
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(Wrong::new(
            format!("{text:?} is an attribute's number, which answers do not have"),
            "write its name, such as \"uidNumber\"",
        ));
    }
    let of = |(alias, _): &&(&str, &str)| text.eq_ignore_ascii_case(alias);
    match ALIASES.iter().find(of) {
        Some((_, name)) => Err(Wrong::new(
            format!("{text:?} is a second name, which answers do not have"),
            format!("write \"{name}\""),
        )),
        None => Ok(()),
    }
}

/// A search filter by RFC 4515.
pub fn filter(text: &str) -> Result<(), Wrong> {
    let Err(why) = crate::filter::parse(text) else { return Ok(()) };
    // The commonest slip: the outermost parentheses are optional in tools only.
    let wrapped = format!("({text})");
    let instead = if !text.starts_with('(') && crate::filter::parse(&wrapped).is_ok() {
        format!("write {wrapped:?}")
    } else {
        "write it as in \"(&(objectClass=posixAccount)(!(loginShell=/bin/false)))\"".to_owned()
    };
    Err(Wrong::new(format!("{text:?} is no filter: {why}"), instead))
}

/// A home folder or shell with templates.
pub fn template(text: &str, original: bool) -> Result<(), Wrong> {
    const KNOWN: &str = "%u is the user name, %U the uid, %d the domain, %o the directory's own \
                         value, %% a percent sign";
    if let Some(char) = text.chars().find(|&char| char == ':' || char.is_control()) {
        return Err(Wrong::new(format!("{char:?} cannot be in an entry of passwd"), "remove it"));
    }
    if !text.starts_with('/') && !text.starts_with("%o") {
        return Err(Wrong::new(
            format!("{text:?} does not start with /"),
            "write an absolute path, such as \"/home/%u\"",
        ));
    }
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            continue;
        }
        match chars.next() {
            Some('u' | 'U' | 'd' | '%') => {}
            Some('o') if original => {}
            Some('o') => {
                return Err(Wrong::new(
                    "%o is the directory's own value, and this is for users who have none",
                    "leave it out",
                ));
            }
            Some(other) => {
                return Err(Wrong::new(format!("%{other} in {text:?} means nothing"), KNOWN));
            }
            None => return Err(Wrong::new(format!("{text:?} ends with a single %"), KNOWN)),
        }
    }
    Ok(())
}

/// Where metrics are served.
pub fn listen(text: &str) -> Result<Listen, Wrong> {
    if let Some(text) = text.strip_prefix("unix:") {
        let path = path(text)?;
        if text.len() > SOCKET_BYTES_MAX {
            return Err(Wrong::new(
                format!("the path of the socket has {} bytes", text.len()),
                format!("Linux allows {SOCKET_BYTES_MAX}; use a shorter one"),
            ));
        }
        return Ok(Listen::Unix(path));
    }
    if Path::new(text).is_absolute() {
        return Err(Wrong::new(
            format!("{text:?} does not say what it is"),
            format!("for a socket write \"unix:{text}\""),
        ));
    }
    let address = text.replacen("localhost:", "127.0.0.1:", 1);
    match address.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err(Wrong::new("port 0 is none", "write one from 1 to 65535"))
        }
        Ok(address) if is_loopback(address.ip()) => Ok(Listen::Tcp(address)),
        Ok(address) => Err(Wrong::new(
            format!(
                "{} is not a loopback address, and figures are for this host alone",
                address.ip()
            ),
            format!(
                "write \"127.0.0.1:{}\", and let an agent on this host pass them on",
                address.port()
            ),
        )),
        Err(_) => Err(Wrong::new(
            format!("{text:?} is no address with a port"),
            "write \"unix:/run/roster/metrics\" or \"127.0.0.1:9273\"",
        )),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bounds() {
        let hour = Duration::from_secs(3600);
        let read = |text: &str| duration(text, Duration::from_millis(10), hour);
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("30", 30_000), ("5m", 300_000), ("5 min", 300_000)]
        {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "s", "-1s", "1.5s", "1 week", "99999999999999999999s", "18446744073709552s"]
        {
            assert!(read(text).unwrap_err().what.contains("no duration"), "{text}");
        }
        assert_eq!(read("2h").unwrap_err().what, "2h is too long");
        assert_eq!(read("1ms").unwrap_err().instead.as_deref(), Some("write \"10ms\" to \"1h\""));
    }

    #[test]
    fn servers_have_a_protocol_a_host_and_a_port() {
        let ldap = |host: &str, port| Ok(Server::Ldap { host: host.to_owned(), port });
        let ldaps = |host: &str, port| Ok(Server::Ldaps { host: host.to_owned(), port });
        assert_eq!(server("ldap://ldap1.example.com"), ldap("ldap1.example.com", 389));
        assert_eq!(server("LDAPS://host/"), ldaps("host", 636));
        assert_eq!(server("ldaps://[2001:db8::1]:1636"), ldaps("2001:db8::1", 1636));
        assert_eq!(server("ldap://127.0.0.1:3890"), ldap("127.0.0.1", 3890));
        assert_eq!(
            server("ldapi://%2Frun%2Fslapd%2fldapi"),
            Ok(Server::Ldapi { path: "/run/slapd/ldapi".into() })
        );
    }

    #[test]
    fn what_is_no_server_is_told_what_to_be() {
        for (uri, instead) in [
            ("ldap1.example.com:636", "did you mean \"ldaps://ldap1.example.com\"?"),
            ("http://ldap1", "write ldaps://, ldap:// or ldapi://"),
            ("ldap://host:0", "write 1 to 65535, or leave it out for 389"),
            ("ldaps://host:70000", "write 1 to 65535, or leave it out for 636"),
            ("ldap://2001:db8::1", "write [2001:db8::1]"),
            ("ldap://[2001:db8::1", "write it as in ldaps://[2001:db8::1]:636"),
            ("ldapi:///run/ldapi", "every / of the path is %2F: \"ldapi://%2Frun%2Fldapi\""),
            ("ldap://", "add it"),
        ] {
            assert_eq!(server(uri).unwrap_err().instead.as_deref(), Some(instead), "{uri}");
        }
        for uri in ["ldap://a b", "ldap://h:+1", "ldap://u@h", "ldap://h/dc=x", "ldapi://%2", "://"]
        {
            assert!(server(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_dn_is_pairs_of_attribute_and_value() {
        for text in [
            "dc=example,dc=com",
            "cn=reader, dc=example, dc=com",
            "cn=Smith\\, John+uid=js,o=A\\2CB",
            "2.5.4.3=x",
            "cn=a=b",
            "cn=ünï",
        ] {
            assert_eq!(dn(text), Ok(()), "{text}");
        }
        for text in [
            "",
            " ",
            "example.com",
            "dc=example,,dc=com",
            "dc=",
            "=x",
            "c n=x",
            "cn=\"x\"",
            "cn=x\\",
            "cn=\\zz",
            "cn=<x>",
            "ldap://host/dc=x",
            "cn=x\\ü",
        ] {
            assert!(dn(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_filter_without_its_parentheses_gets_them() {
        assert_eq!(filter("(&(objectClass=posixAccount)(!(uid=root)))"), Ok(()));
        assert!(filter("(cn=**)").unwrap_err().what.contains("two asterisks"));
        assert_eq!(filter("uid=x").unwrap_err().instead.as_deref(), Some("write \"(uid=x)\""));
    }

    #[test]
    fn templates_are_paths() {
        for text in ["/home/%u", "/home/%d/%u", "/net%o", "%o", "/100%%"] {
            assert_eq!(template(text, true), Ok(()), "{text}");
        }
        for text in ["home", "/home/%x", "/home/%", "/a:b", "/a\nb", ""] {
            assert!(template(text, true).is_err(), "{text}");
        }
        assert!(template("/net%o", false).is_err());
    }

    #[test]
    fn metrics_are_served_to_this_host_only() {
        assert!(matches!(listen("127.0.0.1:9273"), Ok(Listen::Tcp(_))));
        assert!(matches!(listen("[::1]:9273"), Ok(Listen::Tcp(_))));
        assert!(matches!(listen("localhost:9273"), Ok(Listen::Tcp(_))));
        assert_eq!(listen("unix:/run/m"), Ok(Listen::Unix("/run/m".into())));
        for text in
            ["0.0.0.0:9273", "10.0.0.1:1", "127.0.0.1", "127.0.0.1:0", "unix:m", "/run/m", ""]
        {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_domains_can_be_names_of_files() {
        for name in ["corp", "0", "example.com", "a_b-c"] {
            assert_eq!(domain_name(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", "-x", "Corp", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(domain_name(name).is_err(), "{name}");
        }
    }
}
