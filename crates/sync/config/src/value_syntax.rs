// SPDX-License-Identifier: MIT OR Apache-2.0
//! The syntax of values: durations, servers, names, DNs, filters, templates.
//!
//! Pure functions from a text to a value or to an error. They know neither files nor keys: `toml_section` adds those.

use crate::keys::duration as written;
use crate::{LdapServer, ListenAddress, SecretFile};
use roster_messages::CodedError;
use roster_messages::table::config as codes;
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
pub fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, CodedError> {
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
        None => Err(CodedError::new(
            &codes::INVALID_DURATION,
            format!("\"{text}\" is not a valid duration"),
        )),
    }
}

/// Checks a duration against its limits.
pub fn within(duration: Duration, min: Duration, max: Duration) -> Result<Duration, CodedError> {
    if duration < min || duration > max {
        let too = if duration < min { "short" } else { "long" };
        return Err(CodedError::new(
            &codes::OUT_OF_RANGE,
            format!("{} is too {too}", written(duration)),
        )
        .fix(format!(
            "Write a duration from \"{}\" to \"{}\".",
            written(min),
            written(max)
        )));
    }
    Ok(duration)
}

/// Checks the name of a configured domain.
pub fn domain_name(name: &str) -> Result<(), CodedError> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let well = name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte));
    if !well {
        return Err(CodedError::new(
            &codes::INVALID_DOMAIN_NAME,
            format!("{name:?} is not a valid domain name"),
        ));
    }
    if name.len() > DOMAIN_BYTES_MAX {
        return Err(CodedError::new(
            &codes::INVALID_DOMAIN_NAME,
            format!("the domain name has {} bytes; the limit is {DOMAIN_BYTES_MAX}", name.len()),
        ));
    }
    Ok(())
}

/// Checks the short name of a domain: the name of a domain with letters in any case.
pub fn short_name(name: &str) -> Result<(), CodedError> {
    domain_name(&name.to_ascii_lowercase()).map_err(|_| {
        CodedError::new(
            &codes::INVALID_DOMAIN_NAME,
            format!("{name:?} is not a valid short name of a domain"),
        )
    })
}

/// Limit of the name of a local user.
const USER_BYTES_MAX: usize = 256;

/// Checks the name of a local user, which need not exist yet.
pub fn user_name(name: &str) -> Result<(), CodedError> {
    let odd =
        |char: char| char.is_control() || char.is_whitespace() || matches!(char, ':' | '/' | ',');
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains(odd) {
        return Err(CodedError::new(
            &codes::INVALID_LOCAL_USER,
            format!("{name:?} is not a valid user name"),
        ));
    }
    Ok(())
}

/// Checks for printable ASCII characters that the name of an account can have.
pub fn name_characters(text: &str) -> Result<(), CodedError> {
    match text.chars().find(|c| !matches!(c, ' '..='~') || matches!(c, ':' | ',' | '/')) {
        None => Ok(()),
        Some(c) => Err(CodedError::new(
            &codes::INVALID_NAME_CHARACTER,
            format!("names cannot contain {c:?}"),
        )),
    }
}

/// Checks the name of a user or group of a domain.
pub fn entry_name(name: &str) -> Result<(), CodedError> {
    if name.is_empty() || name.len() > USER_BYTES_MAX || name.contains([':', '\n', '\0', ',']) {
        return Err(CodedError::new(
            &codes::INVALID_ENTRY_NAME,
            format!("{name:?} is not a valid name of a user or group"),
        ));
    }
    Ok(())
}

/// Checks the name of an option of an ssh key, without a value.
pub fn key_option(name: &str) -> Result<(), CodedError> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_of_name) {
        return Err(CodedError::new(
            &codes::INVALID_KEY_OPTION,
            format!("{name:?} is not the name of an option"),
        ));
    }
    Ok(())
}

/// Parses an absolute path.
pub fn path(text: &str) -> Result<PathBuf, CodedError> {
    if text.contains('\0') {
        return Err(CodedError::new(&codes::NUL_IN_PATH, "the path contains a NUL character"));
    }
    if !text.starts_with('/') {
        return Err(CodedError::new(
            &codes::RELATIVE_PATH,
            format!("{text:?} is not an absolute path"),
        ));
    }
    Ok(PathBuf::from(text))
}

/// Limit of a file name, and so of a credential.
const CREDENTIAL_BYTES_MAX: usize = 255;

/// Parses an absolute path, or `credential:NAME`. The name is a file in one directory, never a path.
pub fn secret_file(text: &str) -> Result<SecretFile, CodedError> {
    let Some(name) = text.strip_prefix(SecretFile::CREDENTIAL) else {
        return path(text).map(SecretFile::Path);
    };
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty()
        || name.len() > CREDENTIAL_BYTES_MAX
        || name.starts_with('.')
        || !name.bytes().all(is_one)
    {
        return Err(CodedError::new(
            &codes::INVALID_CREDENTIAL_NAME,
            format!("{name:?} is not a valid name of a credential"),
        ));
    }
    Ok(SecretFile::Credential(name.to_owned()))
}

/// Parses a DNS name.
pub fn dns_name(text: &str) -> Result<String, CodedError> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.len() > HOST_BYTES_MAX || !name.split('.').all(is_label) {
        return Err(CodedError::new(
            &codes::INVALID_DNS_NAME,
            format!("{text:?} is not a valid DNS name"),
        ));
    }
    Ok(name.to_owned())
}

/// Parses a server URI of `uris`.
pub fn server(uri: &str) -> Result<LdapServer, CodedError> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        let error = CodedError::new(&codes::INVALID_URI, format!("{uri:?} is not a valid URI"));
        let mut parts = uri.split([':', '/']);
        let host = parts.find(|part| !["", "ldap", "ldaps", "ldapi"].contains(part));
        return Err(match dns_name(host.unwrap_or_default()) {
            Ok(host) => error.fix(format!("Did you mean \"ldaps://{host}\"?")),
            Err(_) => error,
        });
    };
    match scheme.to_ascii_lowercase().as_str() {
        "ldap" => host_and_port(uri, rest, 389).map(|(host, port)| LdapServer::Ldap { host, port }),
        "ldaps" => {
            host_and_port(uri, rest, 636).map(|(host, port)| LdapServer::Ldaps { host, port })
        }
        "ldapi" => socket(uri, rest).map(|path| LdapServer::Ldapi { path }),
        other => Err(CodedError::new(
            &codes::UNKNOWN_URI_SCHEME,
            format!("{uri:?}: unknown scheme {other:?}"),
        )),
    }
}

/// Parses `HOST[:PORT]`, and adds the default port.
pub fn host(text: &str, default: u16) -> Result<String, CodedError> {
    let (host, port) = host_and_port(text, text, default)?;
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Checks the name of a Kerberos realm. It must be valid in a krb5.conf.
pub fn realm(text: &str) -> Result<(), CodedError> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(is_one) {
        return Err(CodedError::new(
            &codes::INVALID_REALM,
            format!("{text:?} is not a valid realm"),
        ));
    }
    Ok(())
}

/// Limit of a principal, its realm included.
const PRINCIPAL_BYTES_MAX: usize = 512;

/// Checks a principal. The characters have no escaped form in the text of a principal.
pub fn principal(text: &str) -> Result<(), CodedError> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/$".contains(&byte);
    let (name, is_realm) = match text.split_once('@') {
        Some((name, its_realm)) => (name, realm(its_realm).is_ok()),
        None => (text, true),
    };
    let is_name = !name.is_empty() && name.bytes().all(is_one);
    if is_name && is_realm && text.len() <= PRINCIPAL_BYTES_MAX {
        return Ok(());
    }
    Err(CodedError::new(&codes::INVALID_PRINCIPAL, format!("{text:?} is not a valid principal")))
}

/// Limit of the name of a credential cache.
const CACHE_BYTES_MAX: usize = 256;

/// Checks the name of credential caches. A file must be unique for each session. The other types hold several caches.
pub fn cache(text: &str) -> Result<(), CodedError> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:%{}".contains(&byte);
    let rest = text.replace("%{uid}", "0");
    if text == "none" {
        return Ok(());
    }
    if text.len() > CACHE_BYTES_MAX || !text.bytes().all(is_one) || rest.contains(['%', '{', '}']) {
        return Err(CodedError::new(
            &codes::INVALID_CACHE_NAME,
            format!("{text:?} is not a valid name of a credential cache"),
        ));
    }
    match rest.split_once(':') {
        Some(("FILE", path)) if path.starts_with('/') && path.ends_with("XXXXXX") => Ok(()),
        Some(("FILE", path)) if path.starts_with('/') => Err(CodedError::new(
            &codes::SHARED_CACHE_FILE,
            format!("all sessions would share {text:?}"),
        )
        .fix(format!("Write \"{text}_XXXXXX\"."))),
        Some(("DIR", path)) if path.starts_with('/') => Ok(()),
        Some(("KEYRING", "persistent:0")) | Some(("KCM", "")) => Ok(()),
        _ => Err(CodedError::new(
            &codes::UNKNOWN_CACHE_TYPE,
            format!("{text:?} is not a supported credential cache for each user"),
        )),
    }
}

fn host_and_port(uri: &str, rest: &str, default: u16) -> Result<(String, u16), CodedError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(CodedError::new(
            &codes::URI_WITH_EXTRAS,
            format!("{uri:?} contains more than a host and a port"),
        ));
    }
    let bracketed = rest.strip_prefix('[').map(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some(Some((host, port))) if host.parse::<std::net::Ipv6Addr>().is_ok() => {
            (host.to_owned(), port)
        }
        Some(_) => {
            return Err(CodedError::new(
                &codes::INVALID_IPV6_ADDRESS,
                format!("{uri:?}: the text in brackets is not an IPv6 address"),
            ));
        }
        None if rest.parse::<std::net::Ipv6Addr>().is_ok() => {
            return Err(CodedError::new(
                &codes::IPV6_WITHOUT_BRACKETS,
                format!("{uri:?}: the IPv6 address lacks brackets"),
            )
            .fix(format!("Write [{rest}].")));
        }
        None => {
            let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            if host.is_empty() {
                let text = format!("{uri:?} lacks a host name");
                return Err(CodedError::new(&codes::HOST_NAME_MISSING, text));
            }
            let host = dns_name(host).map_err(|error| CodedError {
                text: format!("{uri:?}: {}", error.text),
                ..error
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
        CodedError::new(&codes::INVALID_PORT, format!("{uri:?} has an invalid port"))
            .fix(format!("Write a port from 1 to 65535, or omit it for {default}."))
    })?;
    Ok((host, port))
}

fn socket(uri: &str, rest: &str) -> Result<PathBuf, CodedError> {
    let path = percent_decoded(rest).filter(|path| path.starts_with('/') && path.len() > 1);
    match path {
        // A path without encoding, as many would write it.
        _ if rest.contains('/') => {
            let path = rest.trim_start_matches('/');
            let encoded = format!("%2F{}", path.replace('/', "%2F"));
            let meant = if path.is_empty() { "%2Frun%2Fslapd%2Fldapi" } else { &*encoded };
            Err(CodedError::new(
                &codes::INVALID_SOCKET_URI,
                format!("{uri:?} contains slashes that are not encoded"),
            )
            .fix(format!("Write every slash of the path as %2F: \"ldapi://{meant}\".")))
        }
        Some(text) if text.len() > SOCKET_BYTES_MAX => Err(socket_path_too_long(&text)),
        Some(text) => self::path(&text),
        None => Err(CodedError::new(
            &codes::INVALID_SOCKET_URI,
            format!("{uri:?} does not contain the path of a socket"),
        )),
    }
}

fn socket_path_too_long(path: &str) -> CodedError {
    CodedError::new(
        &codes::SOCKET_PATH_TOO_LONG,
        format!("the socket path has {} bytes; the limit is {SOCKET_BYTES_MAX}", path.len()),
    )
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
pub fn dn(text: &str) -> Result<(), CodedError> {
    let wrong = |why: &str| {
        Err(CodedError::new(&codes::INVALID_DN, format!("{text:?} is not a valid DN: {why}")))
    };
    if text.trim().is_empty() {
        return wrong("it is empty");
    }
    if text.starts_with("ldap") && text.contains("://") {
        return wrong("it is a URI");
    }
    for part in split_unescaped(text, b",;+") {
        let Some((kind, value)) = part.split_once('=') else {
            return wrong(&format!("{:?} lacks an equals sign", part.trim()));
        };
        if attribute(kind.trim()).is_err() {
            return wrong(&format!("{:?} is not an attribute name", kind.trim()));
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
                '\\' => return wrong("a backslash is before a character that needs none"),
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
pub fn attribute(text: &str) -> Result<(), CodedError> {
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
    Err(CodedError::new(
        &codes::INVALID_ATTRIBUTE,
        format!("{text:?} is not a valid attribute name"),
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
pub fn canonical_attribute(text: &str) -> Result<(), CodedError> {
    attribute(text)?;
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(CodedError::new(
            &codes::ATTRIBUTE_OID,
            format!("{text:?} is an OID; servers return attribute names"),
        ));
    }
    let of = |(alias, _): &&(&str, &str)| text.eq_ignore_ascii_case(alias);
    match ALIASES.iter().find(of) {
        Some((_, name)) => Err(CodedError::new(
            &codes::ATTRIBUTE_ALIAS,
            format!("{text:?} is an alias; servers return the primary name"),
        )
        .fix(format!("Write \"{name}\"."))),
        None => Ok(()),
    }
}

/// Checks the path of a shell.
pub fn shell(text: &str) -> Result<(), CodedError> {
    passwd_field(text)?;
    path(text)?;
    if text.split('/').any(|step| step == "..") {
        let text = format!("{text:?} has a \"..\"");
        return Err(CodedError::new(&codes::SHELL_WITH_DOTS, text));
    }
    Ok(())
}

/// Checks that a text fits into a field of passwd(5).
fn passwd_field(text: &str) -> Result<(), CodedError> {
    match text.chars().find(|&char| char == ':' || char.is_control()) {
        Some(char) => {
            let text = format!("an entry of passwd(5) cannot contain {char:?}");
            Err(CodedError::new(&codes::INVALID_TEMPLATE_CHARACTER, text))
        }
        None => Ok(()),
    }
}

/// Checks a template of a home directory or shell. `letters` are those that may follow a percent sign.
pub fn template(text: &str, letters: &str) -> Result<(), CodedError> {
    passwd_field(text)?;
    if !text.starts_with('/') && !text.starts_with("%o") && !text.starts_with("%h") {
        return Err(CodedError::new(
            &codes::RELATIVE_TEMPLATE,
            format!("{text:?} does not start with a slash"),
        ));
    }
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            continue;
        }
        match chars.next() {
            Some('%') => {}
            Some(letter) if letters.contains(letter) => {}
            Some(letter @ ('o' | 'h')) if !letters.contains('o') => {
                let text = format!(
                    "%{letter} is the directory's value, and this key applies to users without one"
                );
                let error = CodedError::new(&codes::TEMPLATE_WITHOUT_ORIGINAL, text);
                return Err(error.fix(format!("Remove %{letter}.")));
            }
            Some(other) => {
                return Err(CodedError::new(
                    &codes::UNKNOWN_TEMPLATE,
                    format!("unknown template %{other} in {text:?}"),
                ));
            }
            None => {
                return Err(CodedError::new(
                    &codes::UNKNOWN_TEMPLATE,
                    format!("{text:?} ends with a single percent sign"),
                ));
            }
        }
    }
    Ok(())
}

/// Parses the address of the metrics.
pub fn listen(text: &str) -> Result<ListenAddress, CodedError> {
    if let Some(text) = text.strip_prefix("unix:") {
        let path = path(text)?;
        if text.len() > SOCKET_BYTES_MAX {
            return Err(socket_path_too_long(text));
        }
        return Ok(ListenAddress::Unix(path));
    }
    if Path::new(text).is_absolute() {
        return Err(CodedError::new(
            &codes::LISTEN_SCHEME_MISSING,
            format!("{text:?} lacks the prefix unix:"),
        )
        .fix(format!("Write \"unix:{text}\" for a socket.")));
    }
    let address = text.replacen("localhost:", "127.0.0.1:", 1);
    match address.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err(CodedError::new(&codes::INVALID_PORT, format!("{text:?} has port 0")))
        }
        Ok(address) if is_loopback(address.ip()) => Ok(ListenAddress::Tcp(address)),
        Ok(address) => Err(CodedError::new(
            &codes::LISTEN_NOT_LOOPBACK,
            format!("{} is not a loopback address", address.ip()),
        )
        .fix(format!(
            "Write \"127.0.0.1:{}\", and let an agent on this host forward the metrics.",
            address.port()
        ))),
        Err(_) => Err(CodedError::new(
            &codes::INVALID_LISTEN_ADDRESS,
            format!("{text:?} is not an IP address with a port"),
        )),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::Message;
    use roster_messages::table::config;

    #[test]
    fn durations_have_units_and_bounds() {
        let hour = Duration::from_secs(3600);
        let read = |text: &str| duration(text, Duration::from_millis(10), hour);
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("30", 30_000), ("5m", 300_000), ("5 min", 300_000)]
        {
            assert_eq!(read(text).ok(), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "s", "-1s", "1.5s", "1 week", "99999999999999999999s", "18446744073709552s"]
        {
            assert_eq!(read(text).unwrap_err().message, &config::INVALID_DURATION, "{text}");
        }
        assert_eq!(read("2h").unwrap_err().text, "2h is too long");
        let fix = "Write a duration from \"10ms\" to \"1h\".";
        assert_eq!(read("1ms").unwrap_err().fix.as_deref(), Some(fix));
    }

    #[test]
    fn server_uri_has_scheme_host_and_port() {
        let ldap = |host: &str, port| Some(LdapServer::Ldap { host: host.to_owned(), port });
        let ldaps = |host: &str, port| Some(LdapServer::Ldaps { host: host.to_owned(), port });
        assert_eq!(server("ldap://ldap1.example.com").ok(), ldap("ldap1.example.com", 389));
        assert_eq!(server("LDAPS://host/").ok(), ldaps("host", 636));
        assert_eq!(server("ldaps://[2001:db8::1]:1636").ok(), ldaps("2001:db8::1", 1636));
        assert_eq!(server("ldap://127.0.0.1:3890").ok(), ldap("127.0.0.1", 3890));
        assert_eq!(
            server("ldapi://%2Frun%2Fslapd%2fldapi").ok(),
            Some(LdapServer::Ldapi { path: "/run/slapd/ldapi".into() })
        );
    }

    #[test]
    fn server_uri_invalid_names_fix() {
        for (uri, code, fix) in [
            (
                "ldap1.example.com:636",
                &config::INVALID_URI,
                Some("Did you mean \"ldaps://ldap1.example.com\"?"),
            ),
            (
                "ldap//ldap1.example.com",
                &config::INVALID_URI,
                Some("Did you mean \"ldaps://ldap1.example.com\"?"),
            ),
            ("http://ldap1", &config::UNKNOWN_URI_SCHEME, None),
            (
                "ldap://host:0",
                &config::INVALID_PORT,
                Some("Write a port from 1 to 65535, or omit it for 389."),
            ),
            (
                "ldaps://host:70000",
                &config::INVALID_PORT,
                Some("Write a port from 1 to 65535, or omit it for 636."),
            ),
            ("ldap://2001:db8::1", &config::IPV6_WITHOUT_BRACKETS, Some("Write [2001:db8::1].")),
            ("ldap://[2001:db8::1", &config::INVALID_IPV6_ADDRESS, None),
            (
                "ldapi:///run/ldapi",
                &config::INVALID_SOCKET_URI,
                Some("Write every slash of the path as %2F: \"ldapi://%2Frun%2Fldapi\"."),
            ),
            ("ldap://", &config::HOST_NAME_MISSING, None),
        ] {
            let error = server(uri).unwrap_err();
            assert_eq!((error.message, error.fix.as_deref()), (code, fix), "{uri}");
        }
    }

    #[test]
    fn invalid_value_has_code_of_its_mistake() {
        type Check = fn(&str) -> Result<(), CodedError>;
        let path: Check = |text| path(text).map(drop);
        let secret_file: Check = |text| secret_file(text).map(drop);
        let dns_name: Check = |text| dns_name(text).map(drop);
        let server: Check = |text| server(text).map(drop);
        let kdc: Check = |text| host(text, 88).map(drop);
        let fallback: Check = |text| template(text, "uUdfl");
        let home: Check = |text| template(text, "uUdfloh");
        let shell_template: Check = |text| template(text, "uUdo");
        let listen: Check = |text| listen(text).map(drop);
        let long = "x".repeat(300);
        let [long_ldapi, long_listen] =
            ["ldapi://%2F", "unix:/"].map(|start| format!("{start}{long}"));
        let cases: &[(Check, &[&str], &Message)] = &[
            (
                domain_name,
                &["", ".", "..", "-x", "Corp", "a/b", "a b", "ä", &long[..65]],
                &config::INVALID_DOMAIN_NAME,
            ),
            (user_name, &["", "a b", "a:b", "a/b", "a,b", &long], &config::INVALID_LOCAL_USER),
            (name_characters, &["ä", "#:", "/", ",", "\t"], &config::INVALID_NAME_CHARACTER),
            (entry_name, &["", "a:b", "a,b", "a\nb", "a\0", &long], &config::INVALID_ENTRY_NAME),
            (key_option, &["", "from=x", "no pty", "ä"], &config::INVALID_KEY_OPTION),
            (path, &["/a\0b", "a\0b"], &config::NUL_IN_PATH),
            (path, &["", "a", "./a"], &config::RELATIVE_PATH),
            (
                secret_file,
                &[
                    "credential:",
                    "credential:.",
                    "credential:..",
                    "credential:.x",
                    "credential:a/b",
                    "credential:../x",
                    "credential:/etc/p",
                    "credential:a:b",
                    "credential:a b",
                    "credential:ä",
                    "credential:a\0",
                    &format!("credential:{}", &long[..256]),
                ],
                &config::INVALID_CREDENTIAL_NAME,
            ),
            (secret_file, &["credentials:x", "Credential:x", "x"], &config::RELATIVE_PATH),
            (
                dns_name,
                &["", ".", "a b", "a..b", "-a", "a-", &long[..64]],
                &config::INVALID_DNS_NAME,
            ),
            (realm, &["", "A B", "A\n}", &long], &config::INVALID_REALM),
            (server, &["ldap1", "", "ldap:/x"], &config::INVALID_URI),
            (server, &["http://x", "://"], &config::UNKNOWN_URI_SCHEME),
            (
                server,
                &["ldap://u@h", "ldap://h/dc=x", "ldap://h?x", "ldap://h#x"],
                &config::URI_WITH_EXTRAS,
            ),
            (server, &["ldap://a b"], &config::INVALID_DNS_NAME),
            (server, &["ldap://", "ldaps:///", "ldap://:389"], &config::HOST_NAME_MISSING),
            (server, &["ldap://h:+1", "ldap://h:", "ldap://[::1]389"], &config::INVALID_PORT),
            (server, &["ldap://[::1", "ldap://[h]:389"], &config::INVALID_IPV6_ADDRESS),
            (server, &["ldap://2001:db8::1"], &config::IPV6_WITHOUT_BRACKETS),
            (server, &["ldapi://%2", "ldapi://", "ldapi://x"], &config::INVALID_SOCKET_URI),
            (server, &["ldapi://%2Fa%00b"], &config::NUL_IN_PATH),
            (server, &[&long_ldapi], &config::SOCKET_PATH_TOO_LONG),
            (kdc, &[""], &config::HOST_NAME_MISSING),
            (kdc, &["kdc:0"], &config::INVALID_PORT),
            (home, &["/a:b", "/a\nb"], &config::INVALID_TEMPLATE_CHARACTER),
            (home, &["home", "", "%u"], &config::RELATIVE_TEMPLATE),
            (home, &["/home/%x", "/home/%"], &config::UNKNOWN_TEMPLATE),
            (fallback, &["/net%o", "%o", "%h"], &config::TEMPLATE_WITHOUT_ORIGINAL),
            (shell_template, &["/bin/%h", "/bin/%l", "%h"], &config::UNKNOWN_TEMPLATE),
            (shell, &["", "bash"], &config::RELATIVE_PATH),
            (shell, &["/a:b", "/a\0b"], &config::INVALID_TEMPLATE_CHARACTER),
            (shell, &["/bin/../sbin/x", "/.."], &config::SHELL_WITH_DOTS),
            (listen, &["/run/m"], &config::LISTEN_SCHEME_MISSING),
            (
                listen,
                &["0.0.0.0:9273", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"],
                &config::LISTEN_NOT_LOOPBACK,
            ),
            (listen, &["127.0.0.1", "", "host:1"], &config::INVALID_LISTEN_ADDRESS),
            (listen, &["127.0.0.1:0"], &config::INVALID_PORT),
            (listen, &["unix:m"], &config::RELATIVE_PATH),
            (listen, &[&long_listen], &config::SOCKET_PATH_TOO_LONG),
        ];
        for (check, texts, message) in cases {
            for text in *texts {
                let found = check(text).err().map(|error| error.message);
                assert_eq!(found, Some(*message), "{text:?}");
            }
        }
    }

    #[test]
    fn dn_is_pairs_of_attribute_and_value() {
        for text in [
            "dc=example,dc=com",
            "cn=reader, dc=example, dc=com",
            "cn=Smith\\, John+uid=js,o=A\\2CB",
            "2.5.4.3=x",
            "cn=a=b",
            "cn=ünï",
        ] {
            assert!(dn(text).is_ok(), "{text}");
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
            assert_eq!(dn(text).unwrap_err().message, &config::INVALID_DN, "{text}");
        }
    }

    #[test]
    fn templates_are_paths() {
        for text in ["/home/%u", "/home/%d/%l/%f", "/net%o", "%o", "%h", "/x%h", "/100%%"] {
            assert!(template(text, "uUdfloh").is_ok(), "{text}");
        }
    }

    #[test]
    fn listen_address_is_socket_or_loopback() {
        assert!(matches!(listen("127.0.0.1:9273"), Ok(ListenAddress::Tcp(_))));
        assert!(matches!(listen("[::1]:9273"), Ok(ListenAddress::Tcp(_))));
        assert!(matches!(listen("localhost:9273"), Ok(ListenAddress::Tcp(_))));
        assert_eq!(listen("unix:/run/m").ok(), Some(ListenAddress::Unix("/run/m".into())));
    }

    #[test]
    fn secret_file_is_path_or_credential() {
        assert_eq!(secret_file("/etc/p").ok(), Some(SecretFile::Path("/etc/p".into())));
        let expected = SecretFile::Credential("corp.pw_1-x".into());
        assert_eq!(secret_file("credential:corp.pw_1-x").ok(), Some(expected));
    }

    #[test]
    fn domain_name_is_valid_file_name() {
        for name in ["corp", "0", "example.com", "a_b-c"] {
            assert!(domain_name(name).is_ok(), "{name}");
        }
    }
}
