// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of krb5.conf that a domain with Kerberos logins needs: the default realm and the servers of realms.
//! `source_file` reads the files, and `sssd` uses the result.
//!
//! `include` and `includedir` are followed one level deep at a time, up to [`FILES_MAX`] files. A file that is missing is
//! left out, as libkrb5 does for `includedir` only; `include` of a missing file is an error.

use crate::source_file::{self, SourceError};
use crate::syntax::{SETTINGS_MAX, SyntaxError, text_of_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Limit of the files.
pub const FILES_MAX: usize = 100;

/// Limit of nested braces.
const DEPTH_MAX: usize = 16;

/// The servers of a realm, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RealmServers {
    /// KDCs, `HOST[:PORT]`.
    pub kdcs: Vec<String>,
    /// Servers that change passwords. Without them libkrb5 uses the admin servers.
    pub kpasswd: Vec<String>,
    /// Admin servers.
    pub admin: Vec<String>,
}

/// Values of a krb5.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Krb5Conf {
    /// Values of `[libdefaults]`, the first of each name, as libkrb5 reads them.
    pub libdefaults: BTreeMap<String, String>,
    /// Realms of `[realms]`.
    pub realms: BTreeMap<String, RealmServers>,
}

/// An `include` or `includedir` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// A directory of files.
    pub is_directory: bool,
    /// The absolute path.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: u32,
}

impl Krb5Conf {
    /// Parses one text, and adds its values. Returns its includes.
    ///
    /// # Errors
    ///
    /// The text is too large, not UTF-8, or nested too deeply.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Vec<Include>, SyntaxError> {
        let text = text_of_file(bytes)?;
        let mut includes = Vec::new();
        let mut section = String::new();
        // Names of the open braces.
        let mut path: Vec<String> = Vec::new();
        for (line, raw) in (1..).zip(text.lines()) {
            let trimmed = raw.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if let Some(include) = include(trimmed, line) {
                includes.push(include);
            } else if let Some(rest) = trimmed.strip_prefix('[') {
                let end = rest.find(']').unwrap_or(rest.len());
                section = rest[..end].trim().to_ascii_lowercase();
                path.clear();
            } else if trimmed.starts_with('}') {
                path.pop();
            } else if let Some((name, value)) = trimmed.split_once('=') {
                let (name, value) = (name.trim().trim_end_matches('*'), value.trim());
                if value.starts_with('{') {
                    if path.len() >= DEPTH_MAX {
                        return Err(SyntaxError::new(line, "opens more than 16 braces"));
                    }
                    if !value.ends_with('}') {
                        path.push(name.to_owned());
                    }
                } else {
                    self.value(&section, &path, name, unquoted(value));
                }
            }
        }
        Ok(includes)
    }

    fn value(&mut self, section: &str, path: &[String], name: &str, value: &str) {
        match (section, path) {
            ("libdefaults", []) => {
                self.libdefaults
                    .entry(name.to_ascii_lowercase())
                    .or_insert_with(|| value.to_owned());
            }
            ("realms", [realm]) => {
                if self.realms.len() >= SETTINGS_MAX && !self.realms.contains_key(realm) {
                    return;
                }
                let realm = self.realms.entry(realm.clone()).or_default();
                match name {
                    "kdc" | "primary_kdc" | "master_kdc" => push_new(&mut realm.kdcs, value),
                    "kpasswd_server" => push_new(&mut realm.kpasswd, value),
                    "admin_server" => push_new(&mut realm.admin, value),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Returns whether libkrb5 asks DNS for KDCs: by default it does.
    #[must_use]
    pub fn uses_dns(&self) -> bool {
        let value =
            self.libdefaults.get("dns_lookup_kdc").or_else(|| self.libdefaults.get("dns_fallback"));
        !value.is_some_and(|value| {
            matches!(&*value.to_ascii_lowercase(), "false" | "no" | "n" | "f" | "0" | "off" | "nil")
        })
    }
}

/// Reads a krb5.conf and the files that it includes.
///
/// # Errors
///
/// A file cannot be read or parsed, or there are too many.
pub fn read(path: &Path) -> Result<Krb5Conf, SourceError> {
    let mut conf = Krb5Conf::default();
    let mut waiting = vec![path.to_owned()];
    let mut count = 0;
    while let Some(file) = waiting.pop() {
        count += 1;
        if count > FILES_MAX {
            return Err(SourceError::syntax(
                &file,
                SyntaxError::new(0, "is one of more than 100 files"),
            ));
        }
        let bytes = source_file::read(&file)?;
        let includes = conf.add(&bytes).map_err(|error| SourceError::syntax(&file, error))?;
        for include in includes.into_iter().rev() {
            if include.is_directory {
                let mut files = source_file::list(&include.path, is_included).unwrap_or_default();
                files.reverse();
                waiting.append(&mut files);
            } else {
                waiting.push(include.path);
            }
        }
    }
    Ok(conf)
}

/// Returns whether `includedir` reads a file of that name.
fn is_included(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.starts_with('.') && (name.bytes().all(is_plain) || name.ends_with(".conf"))
}

fn include(line: &str, number: u32) -> Option<Include> {
    let (word, rest) = line.split_once(char::is_whitespace)?;
    let is_directory = match word {
        "include" => false,
        "includedir" => true,
        _ => return None,
    };
    let path = Path::new(rest.trim());
    path.is_absolute().then(|| Include { is_directory, path: path.to_owned(), line: number })
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

fn push_new(list: &mut Vec<String>, value: &str) {
    if !value.is_empty() && list.len() < 100 && list.iter().all(|known| known != value) {
        list.push(value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn krb5_conf_realm_and_defaults_read() {
        let text = "includedir /etc/krb5.conf.d/\n[libdefaults]\n default_realm = A.TEST\n\
                    default_realm = B.TEST\ndns_lookup_kdc = No\n[realms]\nA.TEST = {\n kdc = k1:88\n\
                    kdc = k2\n  admin_server = adm\n auth_to_local_names = {\n  x = y\n }\n}\n\
                    B.TEST = { kdc = k }\n[appdefaults]\nkdc = no\n";
        let mut conf = Krb5Conf::default();
        let includes = conf.add(text.as_bytes()).unwrap();
        assert!(includes[0].is_directory && includes[0].path == Path::new("/etc/krb5.conf.d/"));
        assert_eq!(conf.libdefaults["default_realm"], "A.TEST");
        assert!(!conf.uses_dns());
        let realm = RealmServers {
            kdcs: vec!["k1:88".into(), "k2".into()],
            kpasswd: vec![],
            admin: vec!["adm".into()],
        };
        assert_eq!(conf.realms, BTreeMap::from([("A.TEST".to_owned(), realm)]));
    }

    #[test]
    fn krb5_conf_include_directory_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/realm"), "[realms]\nX = {\nkdc = one\n}\n").unwrap();
        fs::write(path("d/realm.rpmsave"), "[realms]\nX = {\nkdc = two\n}\n").unwrap();
        let text =
            format!("includedir {}\n[libdefaults]\ndefault_realm = X\n", path("d").display());
        fs::write(path("krb5.conf"), text).unwrap();
        let conf = read(&path("krb5.conf")).unwrap();
        assert_eq!(conf.realms["X"].kdcs, ["one"]);
    }

    #[test]
    fn krb5_conf_endless_include_is_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("krb5.conf");
        fs::write(&file, format!("include {}\n", file.display())).unwrap();
        assert!(read(&file).is_err());
    }
}
