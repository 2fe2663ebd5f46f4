//! The syntax of values: durations, servers, names, DNs, filters, templates.
//!
//! Pure functions from a text to a value or to a problem.

use crate::diagnostic::ConfigProblem;
use crate::keys::duration as written;
use crate::{LdapServer, ListenAddress, SecretFile};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit of a domain's name, which becomes part of file and bus names.
const DOMAIN_BYTES_MAX: usize = 64;
/// Limits of DNS.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Limit of a socket's path by unix(7), without the NUL at the end.
const SOCKET_BYTES_MAX: usize = 107;

/// Parses a duration such as `30s`. A number alone is seconds.
pub fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, ConfigProblem> {
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
        None => Err(ConfigProblem::new(
            format!("\"{text}\" is no duration"),
            "write a number and ms, s, m, h or d, such as \"30s\"",
        )),
    }
}

/// Checks a duration against its limits.
pub fn within(duration: Duration, min: Duration, max: Duration) -> Result<Duration, ConfigProblem> {
    if duration < min || duration > max {
        let too = if duration < min { "short" } else { "long" };
        return Err(ConfigProblem::new(
            format!("{} is too {too}", written(duration)),
            format!("write \"{}\" to \"{}\"", written(min), written(max)),
        ));
    }
    Ok(duration)
}

/// Checks the name of a configured domain.
pub fn domain_name(name: &str) -> Result<(), ConfigProblem> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let well = name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte));
    if !well {
        return Err(ConfigProblem::new(
            format!("{name:?} cannot be the name of a domain"),
            "use a-z, 0-9, dots, dashes and underscores, with a letter or a digit first",
        ));
    }
    if name.len() > DOMAIN_BYTES_MAX {
        return Err(ConfigProblem::new(
            format!("the name of this domain has {} bytes", name.len()),
            format!("make it {DOMAIN_BYTES_MAX} at the most"),
        ));
    }
    Ok(())
}

/// Limit of the name of a local user.
const USER_BYTES_MAX: usize = 256;

/// Checks the name of a local user, which need not exist yet.
pub fn user_name(name: &str) -> Result<(), ConfigProblem> {
    let odd =
        |char: char| char.is_control() || char.is_whitespace() || matches!(char, ':' | '/' | ',');
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains(odd) {
        return Err(ConfigProblem::new(
            format!("{name:?} cannot be the name of a user"),
            "write a name as in /etc/passwd",
        ));
    }
    Ok(())
}

/// Checks for printable ASCII characters that the name of an account can have.
pub fn name_characters(text: &str) -> Result<(), ConfigProblem> {
    match text.chars().find(|c| !matches!(c, ' '..='~') || matches!(c, ':' | ',' | '/')) {
        None => Ok(()),
        Some(c) => {
            Err(ConfigProblem::new(format!("{c:?} is in no name that can be served"), "remove it"))
        }
    }
}

/// Checks the name of a user or group of a domain.
pub fn entry_name(name: &str) -> Result<(), ConfigProblem> {
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains([':', '\n', '\0', ',']) {
        return Err(ConfigProblem::new(
            format!("{name:?} cannot be the name of a user or a group"),
            "write a name as getent shows it, each in quotes of its own",
        ));
    }
    Ok(())
}

/// Checks the name of an option of an ssh key, without a value.
pub fn key_option(name: &str) -> Result<(), ConfigProblem> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_of_name) {
        return Err(ConfigProblem::new(
            format!("{name:?} is not the name of an option"),
            "write the name alone, \"from\", as in AUTHORIZED_KEYS FILE FORMAT of sshd(8)",
        ));
    }
    Ok(())
}

/// Parses an absolute path.
pub fn path(text: &str) -> Result<PathBuf, ConfigProblem> {
    if text.contains('\0') {
        return Err(ConfigProblem::new("a path cannot hold a NUL", "remove it"));
    }
    if !text.starts_with('/') {
        return Err(ConfigProblem::new(
            format!("{text:?} is not an absolute path"),
            "write it from the root, starting with /",
        ));
    }
    Ok(PathBuf::from(text))
}

/// Limit of a file name, and so of a credential.
const CREDENTIAL_BYTES_MAX: usize = 255;

/// Parses an absolute path, or `credential:NAME`. The name is a file in one directory, never a path.
pub fn secret_file(text: &str) -> Result<SecretFile, ConfigProblem> {
    let Some(name) = text.strip_prefix(SecretFile::CREDENTIAL) else {
        return path(text).map(SecretFile::Path);
    };
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty()
        || name.len() > CREDENTIAL_BYTES_MAX
        || name.starts_with('.')
        || !name.bytes().all(is_one)
    {
        return Err(ConfigProblem::new(
            format!("{name:?} cannot be the name of a credential"),
            "use letters, digits, dots, dashes and underscores, as in LoadCredential=NAME:PATH",
        ));
    }
    Ok(SecretFile::Credential(name.to_owned()))
}

/// Parses a DNS name.
pub fn dns_name(text: &str) -> Result<String, ConfigProblem> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.len() > HOST_BYTES_MAX || !name.split('.').all(is_label) {
        return Err(ConfigProblem::new(
            format!("{text:?} is no DNS name"),
            "write letters, digits and dashes between dots, such as \"example.com\"",
        ));
    }
    Ok(name.to_owned())
}

/// Parses a server URI of `uris`.
pub fn server(uri: &str) -> Result<LdapServer, ConfigProblem> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return Err(match dns_name(uri.split([':', '/']).next().unwrap_or_default()) {
            Ok(host) => ConfigProblem::new(
                format!("{uri:?} is no URI"),
                format!("did you mean \"ldaps://{host}\"?"),
            ),
            Err(_) => ConfigProblem::new(
                format!("{uri:?} is no URI"),
                "write ldaps://HOST, ldap://HOST or ldapi://PATH with every / of the path as %2F",
            ),
        });
    };
    match scheme.to_ascii_lowercase().as_str() {
        "ldap" => host_and_port(uri, rest, 389).map(|(host, port)| LdapServer::Ldap { host, port }),
        "ldaps" => {
            host_and_port(uri, rest, 636).map(|(host, port)| LdapServer::Ldaps { host, port })
        }
        "ldapi" => socket(uri, rest).map(|path| LdapServer::Ldapi { path }),
        other => Err(ConfigProblem::new(
            format!("{uri:?}: {other:?} is no protocol of LDAP servers"),
            "write ldaps://, ldap:// or ldapi://",
        )),
    }
}

/// Parses `HOST[:PORT]`, and adds the default port.
pub fn host(text: &str, default: u16) -> Result<String, ConfigProblem> {
    let (host, port) = host_and_port(text, text, default)?;
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Checks the name of a Kerberos realm. It must be valid in a krb5.conf.
pub fn realm(text: &str) -> Result<(), ConfigProblem> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(is_one) {
        return Err(ConfigProblem::new(
            format!("{text:?} is no realm"),
            "write letters, digits, dots and dashes, such as \"EXAMPLE.COM\"",
        ));
    }
    Ok(())
}

/// Limit of the name of a credential cache.
const CACHE_BYTES_MAX: usize = 256;

/// Checks the name of credential caches. A file must be unique for each session. The other types hold several caches.
pub fn cache(text: &str) -> Result<(), ConfigProblem> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:%{}".contains(&byte);
    let rest = text.replace("%{uid}", "0");
    if text == "none" {
        return Ok(());
    }
    if text.len() > CACHE_BYTES_MAX || !text.bytes().all(is_one) || rest.contains(['%', '{', '}']) {
        return Err(ConfigProblem::new(
            format!("{text:?} cannot be the name of a credential cache"),
            "use letters, digits, / . _ - : and %{uid}",
        ));
    }
    match rest.split_once(':') {
        Some(("FILE", path)) if path.starts_with('/') && path.ends_with("XXXXXX") => Ok(()),
        Some(("FILE", path)) if path.starts_with('/') => Err(ConfigProblem::new(
            "sessions would share this file, and the first that ends would remove it",
            format!("write \"{text}_XXXXXX\""),
        )),
        Some(("DIR", path)) if path.starts_with('/') => Ok(()),
        Some(("KEYRING", "persistent:0")) | Some(("KCM", "")) => Ok(()),
        _ => Err(ConfigProblem::new(
            format!("{text:?} is no place for credential caches that can be told apart by user"),
            "write FILE:/tmp/krb5cc_%{uid}_XXXXXX, KEYRING:persistent:%{uid}, KCM:, DIR:/PATH or none",
        )),
    }
}

fn host_and_port(uri: &str, rest: &str, default: u16) -> Result<(String, u16), ConfigProblem> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(ConfigProblem::new(
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
            return Err(ConfigProblem::new(
                format!("{uri:?} holds no IPv6 address between brackets"),
                "write it as in ldaps://[2001:db8::1]:636",
            ));
        }
        None if rest.parse::<std::net::Ipv6Addr>().is_ok() => {
            return Err(ConfigProblem::new(
                format!("{uri:?}: an IPv6 address stands between brackets"),
                format!("write [{rest}]"),
            ));
        }
        None => {
            let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            if host.is_empty() {
                return Err(ConfigProblem::new(format!("{uri:?} names no host"), "add it"));
            }
            let host = dns_name(host).map_err(|wrong| ConfigProblem {
                message: format!("{uri:?}: {}", wrong.message),
                fix: wrong.fix,
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
        ConfigProblem::new(
            format!("{uri:?} holds no port that there is"),
            format!("write 1 to 65535, or leave it out for {default}"),
        )
    })?;
    Ok((host, port))
}

fn socket(uri: &str, rest: &str) -> Result<PathBuf, ConfigProblem> {
    let path = percent_decoded(rest).filter(|path| path.starts_with('/') && path.len() > 1);
    match path {
        // A path without encoding, as many would write it.
        _ if rest.contains('/') => {
            let path = rest.trim_start_matches('/');
            let encoded = format!("%2F{}", path.replace('/', "%2F"));
            let meant = if path.is_empty() { "%2Frun%2Fslapd%2Fldapi" } else { &*encoded };
            Err(ConfigProblem::new(
                format!("{uri:?} does not name a socket in the way of ldapi"),
                format!("every / of the path is %2F: \"ldapi://{meant}\""),
            ))
        }
        Some(path) if path.len() <= SOCKET_BYTES_MAX && !path.contains('\0') => Ok(path.into()),
        Some(path) => Err(ConfigProblem::new(
            format!("the path of the socket has {} bytes", path.len()),
            format!("Linux allows {SOCKET_BYTES_MAX}; use a shorter one"),
        )),
        None => Err(ConfigProblem::new(
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

/// Returns the byte of two hexadecimal digits.
pub(crate) fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |at: usize| pair.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Checks the form of a distinguished name (RFC 4514).
pub fn dn(text: &str) -> Result<(), ConfigProblem> {
    let wrong = |why: &str| {
        Err(ConfigProblem::new(
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

/// Splits at separators without a backslash before them.
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

/// Checks an attribute's name or number, possibly with options.
pub fn attribute(text: &str) -> Result<(), ConfigProblem> {
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
    Err(ConfigProblem::new(
        format!("{text:?} is no attribute"),
        "write a name of letters, digits and dashes, such as \"uidNumber\"",
    ))
}

/// Aliases that servers accept in a request and do not use in a reply.
const ALIASES: [(&str, &str); 5] = [
    ("userid", "uid"),
    ("commonName", "cn"),
    ("surname", "sn"),
    ("gn", "givenName"),
    ("rfc822Mailbox", "mail"),
];

/// Checks that an attribute has the name that servers use in replies, by which it is found there.
pub fn canonical_attribute(text: &str) -> Result<(), ConfigProblem> {
    attribute(text)?;
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(ConfigProblem::new(
            format!("{text:?} is an attribute's number, which answers do not have"),
            "write its name, such as \"uidNumber\"",
        ));
    }
    let of = |(alias, _): &&(&str, &str)| text.eq_ignore_ascii_case(alias);
    match ALIASES.iter().find(of) {
        Some((_, name)) => Err(ConfigProblem::new(
            format!("{text:?} is a second name, which answers do not have"),
            format!("write \"{name}\""),
        )),
        None => Ok(()),
    }
}

/// Checks a template of a home directory or shell.
pub fn template(text: &str, original: bool) -> Result<(), ConfigProblem> {
    const KNOWN: &str = "%u is the user name, %U the uid, %d the domain, %o the directory's own \
                         value, %% a percent sign";
    if let Some(char) = text.chars().find(|&char| char == ':' || char.is_control()) {
        return Err(ConfigProblem::new(
            format!("{char:?} cannot be in an entry of passwd"),
            "remove it",
        ));
    }
    if !text.starts_with('/') && !text.starts_with("%o") {
        return Err(ConfigProblem::new(
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
                return Err(ConfigProblem::new(
                    "%o is the directory's own value, and this is for users who have none",
                    "leave it out",
                ));
            }
            Some(other) => {
                return Err(ConfigProblem::new(
                    format!("%{other} in {text:?} means nothing"),
                    KNOWN,
                ));
            }
            None => {
                return Err(ConfigProblem::new(format!("{text:?} ends with a single %"), KNOWN));
            }
        }
    }
    Ok(())
}

/// Parses the address of the metrics.
pub fn listen(text: &str) -> Result<ListenAddress, ConfigProblem> {
    if let Some(text) = text.strip_prefix("unix:") {
        let path = path(text)?;
        if text.len() > SOCKET_BYTES_MAX {
            return Err(ConfigProblem::new(
                format!("the path of the socket has {} bytes", text.len()),
                format!("Linux allows {SOCKET_BYTES_MAX}; use a shorter one"),
            ));
        }
        return Ok(ListenAddress::Unix(path));
    }
    if Path::new(text).is_absolute() {
        return Err(ConfigProblem::new(
            format!("{text:?} does not say what it is"),
            format!("for a socket write \"unix:{text}\""),
        ));
    }
    let address = text.replacen("localhost:", "127.0.0.1:", 1);
    match address.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err(ConfigProblem::new("port 0 is none", "write one from 1 to 65535"))
        }
        Ok(address) if is_loopback(address.ip()) => Ok(ListenAddress::Tcp(address)),
        Ok(address) => Err(ConfigProblem::new(
            format!(
                "{} is not a loopback address, and figures are for this host alone",
                address.ip()
            ),
            format!(
                "write \"127.0.0.1:{}\", and let an agent on this host pass them on",
                address.port()
            ),
        )),
        Err(_) => Err(ConfigProblem::new(
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
            assert!(read(text).unwrap_err().message.contains("no duration"), "{text}");
        }
        assert_eq!(read("2h").unwrap_err().message, "2h is too long");
        assert_eq!(read("1ms").unwrap_err().fix.as_deref(), Some("write \"10ms\" to \"1h\""));
    }

    #[test]
    fn servers_have_a_protocol_a_host_and_a_port() {
        let ldap = |host: &str, port| Ok(LdapServer::Ldap { host: host.to_owned(), port });
        let ldaps = |host: &str, port| Ok(LdapServer::Ldaps { host: host.to_owned(), port });
        assert_eq!(server("ldap://ldap1.example.com"), ldap("ldap1.example.com", 389));
        assert_eq!(server("LDAPS://host/"), ldaps("host", 636));
        assert_eq!(server("ldaps://[2001:db8::1]:1636"), ldaps("2001:db8::1", 1636));
        assert_eq!(server("ldap://127.0.0.1:3890"), ldap("127.0.0.1", 3890));
        assert_eq!(
            server("ldapi://%2Frun%2Fslapd%2fldapi"),
            Ok(LdapServer::Ldapi { path: "/run/slapd/ldapi".into() })
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
            assert_eq!(server(uri).unwrap_err().fix.as_deref(), Some(instead), "{uri}");
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
    fn a_filter_without_its_parentheses_gets_them() {}

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
        assert!(matches!(listen("127.0.0.1:9273"), Ok(ListenAddress::Tcp(_))));
        assert!(matches!(listen("[::1]:9273"), Ok(ListenAddress::Tcp(_))));
        assert!(matches!(listen("localhost:9273"), Ok(ListenAddress::Tcp(_))));
        assert_eq!(listen("unix:/run/m"), Ok(ListenAddress::Unix("/run/m".into())));
        for text in
            ["0.0.0.0:9273", "10.0.0.1:1", "127.0.0.1", "127.0.0.1:0", "unix:m", "/run/m", ""]
        {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secret_file_credential_is_no_path() {
        assert_eq!(secret_file("/etc/p"), Ok(SecretFile::Path("/etc/p".into())));
        let credential = |name: &str| secret_file(&format!("credential:{name}"));
        assert_eq!(credential("corp.pw_1-x"), Ok(SecretFile::Credential("corp.pw_1-x".into())));
        for name in ["", ".", "..", ".x", "a/b", "../x", "/etc/p", "a:b", "a b", "ä", "a\0"] {
            assert!(credential(name).is_err(), "{name}");
        }
        assert!(credential(&"x".repeat(256)).is_err());
        for text in ["credentials:x", "Credential:x", "x"] {
            assert!(secret_file(text).is_err(), "{text}");
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
