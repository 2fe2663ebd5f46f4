// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's keytab, by which a KDC proves its identity, and this host its own at a directory. This module decides
//! whether a domain needs it, whether it is readable, and its effect on logins. It opens no keys: libkrb5 does that in
//! `roster-krb5`. `secret_files` reads the file.
//!
//! Without a keytab, any host that answers as a KDC can log in as any user. KDCs are unverified only with
//! `krb5_validate = "off"`, or with `"auto"` on a host that never had a keytab. All other cases deny logins.

use crate::secret_files::load_advice;
use crate::{
    BindMethod, DomainConfig, GssapiConfig, KdcValidation, Krb5Config, ParsedConfig,
    ProviderConfig, SecretFile,
};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Message, Severity};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Limit of a keytab, which has space for thousands of keys.
const KEYTAB_BYTES_MAX: u64 = 64 << 10;
/// The marker below the state directory, which records that this host has used a keytab. The monitor writes it. No
/// domain can have its name.
pub const KEYTAB_MARK: &str = ".keytab-used";
/// The directory of the marker, below the state directory. Unlike the caches in it, it belongs to root.
const KEYTAB_MARK_DIRECTORY: &str = "domains";

/// The state of `krb5_keytab`, as the monitor found it. Never logged, hence no `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeytabState {
    /// KDCs are not verified.
    #[default]
    None,
    /// The bytes of the file.
    Keys(Vec<u8>),
    /// The keytab is needed and unreadable, so logins are denied.
    Unusable {
        /// The code of the defect.
        code: String,
        /// The defect of the file.
        why: String,
        /// The fix.
        instead: String,
    },
}

/// The reason that KDCs are not verified, or that logins are denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationProblem {
    /// The row of the table.
    pub message: &'static Message,
    /// Logins are denied. If false, they are unprotected.
    pub is_refused: bool,
    /// The defect.
    pub what: String,
    /// The fix.
    pub instead: String,
}

/// Returns whether this host has ever used a keytab, by the marker in its state directory. An inaccessible marker
/// counts as existing.
#[must_use]
pub fn was_keytab_used(state: &Path) -> bool {
    !is_missing(&state.join(KEYTAB_MARK_DIRECTORY).join(KEYTAB_MARK))
}

/// A broken link exists, and an inaccessible path counts as existing.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

impl Krb5Config {
    /// Reads the keytab if KDCs have to be verified. `was_used` is the result of [`was_keytab_used`], `credentials` of
    /// [`credentials_directory`](crate::credentials_directory). A credential is never missing, because systemd does not
    /// start a service without it.
    #[must_use]
    pub fn read_keytab(&self, was_used: bool, credentials: Option<&Path>) -> KeytabState {
        let path = match &self.keytab {
            SecretFile::Path(path) => Some(path),
            SecretFile::Credential(_) => None,
        };
        match self.validate {
            KdcValidation::Off => return KeytabState::None,
            // If the directory is missing too, its mount may be late.
            KdcValidation::Auto
                if !was_used
                    && path.is_some_and(|path| {
                        is_missing(path) && path.parent().is_some_and(Path::is_dir)
                    }) =>
            {
                return KeytabState::None;
            }
            KdcValidation::Auto | KdcValidation::Required => {}
        }
        read_required(&self.keytab, credentials)
    }

    /// Returns the effect of the keytab's state on logins. `None` if each KDC is verified.
    #[must_use]
    pub fn verification_problem(&self, keytab: &KeytabState) -> Option<VerificationProblem> {
        let why = match (keytab, self.validate) {
            (KeytabState::Keys(_), _) => return None,
            (KeytabState::Unusable { code, why, instead }, _) => {
                return Some(VerificationProblem {
                    message: roster_messages::find(code).unwrap_or(&codes::FILE_UNREADABLE),
                    is_refused: true,
                    what: format!("logins are refused: {why}"),
                    instead: instead.clone(),
                });
            }
            (KeytabState::None, KdcValidation::Off) => "krb5_validate is \"off\"".to_owned(),
            (KeytabState::None, _) => {
                format!("krb5_validate is \"auto\" and the keytab {} does not exist", self.keytab)
            }
        };
        let forger = match self.discover {
            true => "answers as a KDC or forges DNS replies",
            false => "answers as a KDC",
        };
        Some(VerificationProblem {
            message: &codes::KDCS_UNVERIFIED,
            is_refused: false,
            what: format!(
                "KDCs are not verified because {why}: any host that {forger} can log in as any user"
            ),
            instead: format!(
                "{} Then set krb5_validate = \"required\".",
                join_advice(&self.keytab)
            ),
        })
    }
}

impl GssapiConfig {
    /// Reads the keytab of the binds, which is always required. The argument is as for [`Krb5Config::read_keytab`].
    #[must_use]
    pub fn read_keytab(&self, credentials: Option<&Path>) -> KeytabState {
        read_required(&self.keytab, credentials)
    }
}

fn read_required(keytab: &SecretFile, credentials: Option<&Path>) -> KeytabState {
    let missing = matches!(keytab, SecretFile::Path(path) if is_missing(path));
    match keytab.read(credentials, KEYTAB_BYTES_MAX) {
        // The format of MIT and Heimdal. The library parses the rest.
        Ok(bytes) if bytes.starts_with(&[5]) => KeytabState::Keys(bytes),
        Ok(_) => {
            let text = format!("{keytab} is not a keytab");
            unusable(CodedError::new(&codes::INVALID_KEYTAB, text))
        }
        Err(error) if missing => {
            unusable(CodedError::new(&codes::KEYTAB_MISSING, error.text).fix(join_advice(keytab)))
        }
        Err(error) => unusable(error),
    }
}

fn join_advice(keytab: &SecretFile) -> String {
    match keytab {
        SecretFile::Path(path) => format!(
            "Write a key of this host to {} (docs/how-to/kerberos.md), or correct krb5_keytab.",
            path.display()
        ),
        SecretFile::Credential(name) => load_advice(name),
    }
}

fn unusable(error: CodedError) -> KeytabState {
    let CodedError { message, text, fix, .. } = error;
    KeytabState::Unusable {
        code: message.code.to_owned(),
        why: text,
        instead: fix.unwrap_or_else(|| message.fix.to_owned()),
    }
}

/// Returns the defect of the keytab of a domain that binds by it.
fn unusable_bind_keytab(domain: &DomainConfig, credentials: Option<&Path>) -> Option<CodedError> {
    let ProviderConfig::Ldap(ldap) = &domain.provider else { return None };
    let BindMethod::Gssapi(gssapi) = &ldap.bind else { return None };
    let KeytabState::Unusable { code, why, instead } = gssapi.read_keytab(credentials) else {
        return None;
    };
    let message = roster_messages::find(&code).unwrap_or(&codes::FILE_UNREADABLE);
    let text = format!("no bind at the directory is possible: {why}");
    Some(CodedError::new(message, text).fix(instead))
}

impl ParsedConfig {
    /// Reports how each domain verifies KDCs, and unusable keytabs of binds. The arguments are as for
    /// [`Krb5Config::read_keytab`].
    #[must_use]
    pub fn check_keytabs(&self, was_used: bool, credentials: Option<&Path>) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for domain in &self.config.domains {
            if let Some(error) = unusable_bind_keytab(domain, credentials) {
                let severity = Severity::Refusal;
                let problem = self.secret_error(domain, "krb5_keytab", error);
                problems.push(Diagnostic { severity, ..problem });
            }
            let Some(krb5) = &domain.auth.krb5 else { continue };
            let Some(found) = krb5.verification_problem(&krb5.read_keytab(was_used, credentials))
            else {
                continue;
            };
            let (severity, key) = match found.is_refused {
                true => (Severity::Refusal, "krb5_keytab"),
                false => (Severity::Warning, "krb5_validate"),
            };
            let error = CodedError::new(found.message, found.what).fix(found.instead);
            problems.push(Diagnostic { severity, ..self.secret_error(domain, key, error) });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use roster_messages::table::config;
    use std::fs::{Permissions, create_dir, remove_file, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn keytab(&self) -> std::path::PathBuf {
            self.0.path().join("keytab")
        }

        fn parsed(&self, keys: &str) -> ParsedConfig {
            parse(&format!(
                "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\npasswd = '/p'\n\
                 group = '/g'\nauth = 'krb5'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n\
                 krb5_keytab = '{}'\n{keys}",
                self.keytab().display()
            ))
            .unwrap()
        }

        fn read(&self, validate: &str, was_used: bool) -> KeytabState {
            let parsed = self.parsed(&format!("krb5_validate = '{validate}'\n"));
            parsed.config.domains[0].auth.krb5.as_ref().unwrap().read_keytab(was_used, None)
        }

        fn write(&self, bytes: &[u8]) {
            write(self.keytab(), bytes).unwrap();
            set_permissions(self.keytab(), Permissions::from_mode(0o600)).unwrap();
        }
    }

    fn is_unusable(keytab: &KeytabState, message: &Message) -> bool {
        matches!(keytab, KeytabState::Unusable { code, .. } if code == message.code)
    }

    #[test]
    fn keytab_auto_unmarked_needs_none() {
        let folder = Folder::new();
        assert!(folder.read("auto", false) == KeytabState::None);
        for (validate, was_used) in [("auto", true), ("required", false)] {
            let found = folder.read(validate, was_used);
            assert!(is_unusable(&found, &config::KEYTAB_MISSING), "{validate}");
        }
        assert!(folder.read("off", true) == KeytabState::None);
        folder.write(&[5, 2]);
        for validate in ["auto", "required"] {
            assert!(folder.read(validate, false) == KeytabState::Keys(vec![5, 2]), "{validate}");
        }
        assert!(folder.read("off", false) == KeytabState::None);
    }

    #[test]
    fn keytab_unreadable_is_never_missing() {
        let folder = Folder::new();
        type Make = fn(&Path);
        let cases: [(&str, &Message, Make); 5] = [
            ("a broken link", &config::FILE_MISSING, |path| {
                symlink("/no/such/keytab", path).unwrap();
            }),
            ("a circular link", &config::FILE_UNREADABLE, |path| symlink(path, path).unwrap()),
            ("a folder", &config::FILE_NOT_REGULAR, |path| create_dir(path).unwrap()),
            ("an empty file", &config::INVALID_KEYTAB, |path| {
                write(path, "").unwrap();
                set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            }),
            ("a file writable by others", &config::FILE_WRITABLE_BY_OTHERS, |path| {
                write(path, [5, 2]).unwrap();
                set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            }),
        ];
        for (what, message, make) in cases {
            make(&folder.keytab());
            for was_used in [false, true] {
                assert!(is_unusable(&folder.read("auto", was_used), message), "{what}");
            }
            if remove_file(folder.keytab()).is_err() {
                fs::remove_dir(folder.keytab()).unwrap();
            }
        }
        // A path through a file gives ENOTDIR. Like EACCES and EIO, it differs from ENOENT.
        write(folder.0.path().join("file"), "").unwrap();
        let mut krb5 =
            folder.parsed("krb5_validate = 'auto'\n").config.domains[0].auth.krb5.clone();
        let krb5 = krb5.as_mut().unwrap();
        for (path, message) in [
            ("file/keytab", &config::FILE_UNREADABLE),
            ("no such folder/keytab", &config::KEYTAB_MISSING),
        ] {
            krb5.keytab = SecretFile::Path(folder.0.path().join(path));
            assert!(is_unusable(&krb5.read_keytab(false, None), message), "{path}");
        }
    }

    #[test]
    fn keytab_credential_is_never_missing() {
        let folder = Folder::new();
        let parsed = |validate: &str| {
            let text = format!(
                "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\npasswd = '/p'\n\
                 group = '/g'\nauth = 'krb5'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n\
                 krb5_keytab = 'credential:keytab'\nkrb5_validate = '{validate}'\n"
            );
            parse(&text).unwrap()
        };
        let read = |validate: &str, credentials| {
            let parsed = parsed(validate);
            parsed.config.domains[0].auth.krb5.as_ref().unwrap().read_keytab(false, credentials)
        };
        let place = Some(folder.0.path());
        for validate in ["auto", "required"] {
            for credentials in [None, place] {
                let KeytabState::Unusable { instead, .. } = read(validate, credentials) else {
                    panic!("{validate}");
                };
                assert!(instead.starts_with("Add LoadCredential=keytab:"), "{instead}");
            }
        }
        assert!(read("off", None) == KeytabState::None);
        folder.write(&[5, 2]);
        assert!(read("required", place) == KeytabState::Keys(vec![5, 2]));
        folder.write(b"no keytab");
        assert!(is_unusable(&read("auto", place), &config::INVALID_KEYTAB));
        let problems = parsed("required").check_keytabs(false, None);
        assert_eq!((problems.len(), problems[0].severity), (1, Severity::Refusal));
    }

    #[test]
    fn keytab_mark_counts_unless_missing() {
        let state = tempfile::tempdir().unwrap();
        assert!(!was_keytab_used(state.path()));
        assert!(!was_keytab_used(&state.path().join("never made")));
        let domains = state.path().join(KEYTAB_MARK_DIRECTORY);
        write(&domains, "").unwrap();
        assert!(was_keytab_used(state.path()), "an inaccessible mark");
        remove_file(&domains).unwrap();
        create_dir(&domains).unwrap();
        assert!(!was_keytab_used(state.path()));
        symlink("/no/such/mark", domains.join(KEYTAB_MARK)).unwrap();
        assert!(was_keytab_used(state.path()));
    }

    #[test]
    fn check_keytabs_reports_each_unverified_domain() {
        let folder = Folder::new();
        let said = |keys: &str, was_used| -> Vec<(Severity, String)> {
            let problems = folder.parsed(keys).check_keytabs(was_used, None);
            let told = |problem: &Diagnostic| {
                let line = format!("{}: {}", problem.line, problem.without_position());
                (problem.severity, line)
            };
            problems.iter().map(told).collect()
        };
        for (keys, was_used, severity, place, words) in [
            (
                "krb5_validate = 'off'\n",
                true,
                Severity::Warning,
                "11: domain.corp.krb5_validate",
                "\"off\"",
            ),
            (
                "krb5_validate = 'auto'\n",
                false,
                Severity::Warning,
                "11: domain.corp.krb5_validate",
                "does not exist: any host",
            ),
            (
                "krb5_validate = 'auto'\n",
                true,
                Severity::Refusal,
                "10: domain.corp.krb5_keytab",
                "refused",
            ),
            ("", false, Severity::Refusal, "10: domain.corp.krb5_keytab", "refused"),
        ] {
            for discover in ["", "krb5_discover = true\n"] {
                let found = said(&format!("{keys}{discover}"), was_used);
                let [(found, text)] = &found[..] else { panic!("{keys}{discover}: {found:?}") };
                assert!(
                    *found == severity && text.starts_with(place) && text.contains(words),
                    "{text}"
                );
                let forger = severity == Severity::Warning && !discover.is_empty();
                assert_eq!(text.contains("DNS"), forger, "{text}");
            }
        }
        folder.write(&[5, 2]);
        assert!(said("", false).is_empty() && said("krb5_validate = 'auto'\n", true).is_empty());
    }
}
