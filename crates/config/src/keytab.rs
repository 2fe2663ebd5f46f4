//! Keys of this host, by which a KDC shows that it is the right one: whether a domain needs them, whether
//! they can be read, and what that means for logins.
//!
//! Without them any host that answers as a KDC can log in as any user. So only `krb5_validate = "off"`, or
//! `"auto"` on a host that never had a keytab, does without; everything else refuses logins.

use crate::problem::{Problem, Severity};
use crate::secrets::{OTHERS, read_bytes};
use crate::{Krb5, Parsed, Validate};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Room for thousands of keys.
const KEYTAB_BYTES_MAX: u64 = 64 << 10;
/// The mark below the state directory that this host has used a keytab. The monitor writes it; no domain
/// can have its name.
pub const KEYTAB_MARK: &str = ".keytab-used";
/// The directory of the mark, below the state directory: root's, as the caches in it are not.
const KEYTAB_MARK_DIRECTORY: &str = "domains";

/// What the monitor found of `krb5_keytab`. Never logged, hence no `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keytab {
    /// KDCs are not verified.
    #[default]
    None,
    /// The bytes of the file.
    Keys(Vec<u8>),
    /// Keys are needed and cannot be read: logins are refused.
    Unusable {
        /// What is wrong with the file.
        why: String,
        /// How to fix it.
        instead: String,
    },
}

/// Why KDCs are not verified, or logins refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified {
    /// Whether logins are refused rather than unprotected.
    pub is_refused: bool,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub instead: String,
}

/// Whether this host has ever used a keytab, by the mark in its state directory. Only a mark that is not
/// there says no: one that cannot be looked at may be there.
#[must_use]
pub fn was_keytab_used(state: &Path) -> bool {
    !is_missing(&state.join(KEYTAB_MARK_DIRECTORY).join(KEYTAB_MARK))
}

/// A link that leads nowhere is there, and so is what cannot be looked at.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

impl Krb5 {
    /// Reads the keytab, if KDCs are to be verified. `was_used` is [`was_keytab_used`].
    #[must_use]
    pub fn read_keytab(&self, was_used: bool) -> Keytab {
        let path = &self.keytab;
        match self.validate {
            Validate::Off => return Keytab::None,
            // A directory that is missing as well may be a mount that is late.
            Validate::Auto
                if !was_used && is_missing(path) && path.parent().is_some_and(Path::is_dir) =>
            {
                return Keytab::None;
            }
            Validate::Auto | Validate::Required => {}
        }
        match read_bytes(path, KEYTAB_BYTES_MAX, OTHERS) {
            // MIT's and Heimdal's; the library reads the rest.
            Ok(bytes) if bytes.starts_with(&[5]) => Keytab::Keys(bytes),
            Ok(_) => Keytab::Unusable {
                why: format!("{} is not a keytab", path.display()),
                instead: "name a file that kadmin's ktadd, adcli or ipa-getkeytab made".to_owned(),
            },
            Err((why, _)) if is_missing(path) => Keytab::Unusable { why, instead: self.join() },
            Err((why, instead)) => Keytab::Unusable { why, instead },
        }
    }

    fn join(&self) -> String {
        format!(
            "write a key of this host to {} (docs/log-in.md, Kerberos), or name its file in krb5_keytab",
            self.keytab.display()
        )
    }

    /// The effect of the keytab's state on logins; `None` when each KDC has to show a key of this host.
    #[must_use]
    pub fn unverified(&self, keytab: &Keytab) -> Option<Unverified> {
        let why = match (keytab, self.validate) {
            (Keytab::Keys(_), _) => return None,
            (Keytab::Unusable { why, instead }, _) => {
                return Some(Unverified {
                    is_refused: true,
                    what: format!("logins are refused: {why}"),
                    instead: instead.clone(),
                });
            }
            (Keytab::None, Validate::Off) => "krb5_validate is \"off\"".to_owned(),
            (Keytab::None, _) => format!(
                "krb5_validate is \"auto\" and there is no keytab {}",
                self.keytab.display()
            ),
        };
        let forger = match self.discover {
            true => "answers as a KDC, or forges answers of DNS,",
            false => "answers as a KDC",
        };
        Some(Unverified {
            is_refused: false,
            what: format!(
                "KDCs are not verified, for {why}: a host that {forger} can log in as any user; no password \
                 is kept for offline logins"
            ),
            instead: format!("{}; then set krb5_validate = \"required\"", self.join()),
        })
    }
}

impl Parsed {
    /// Judges how each domain verifies KDCs. `was_used` is [`was_keytab_used`].
    #[must_use]
    pub fn check_keytabs(&self, was_used: bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        for domain in &self.config.domains {
            let Some(krb5) = &domain.auth.krb5 else { continue };
            let Some(found) = krb5.unverified(&krb5.read_keytab(was_used)) else { continue };
            let (severity, key) = match found.is_refused {
                true => (Severity::Refusal, "krb5_keytab"),
                false => (Severity::Warning, "krb5_validate"),
            };
            let problem = self.problem(domain, key, (found.what, found.instead));
            problems.push(Problem { severity, ..problem });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
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

        fn parsed(&self, keys: &str) -> Parsed {
            parse(&format!(
                "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\npasswd = '/p'\n\
                 group = '/g'\nauth = 'krb5'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n\
                 krb5_keytab = '{}'\n{keys}",
                self.keytab().display()
            ))
            .unwrap()
        }

        fn read(&self, validate: &str, was_used: bool) -> Keytab {
            let parsed = self.parsed(&format!("krb5_validate = '{validate}'\n"));
            parsed.config.domains[0].auth.krb5.as_ref().unwrap().read_keytab(was_used)
        }

        fn write(&self, bytes: &[u8]) {
            write(self.keytab(), bytes).unwrap();
            set_permissions(self.keytab(), Permissions::from_mode(0o600)).unwrap();
        }
    }

    fn is_unusable(keytab: &Keytab) -> bool {
        matches!(keytab, Keytab::Unusable { .. })
    }

    #[test]
    fn keytab_auto_unmarked_needs_none() {
        let folder = Folder::new();
        assert!(folder.read("auto", false) == Keytab::None);
        assert!(is_unusable(&folder.read("auto", true)), "one was used before");
        assert!(is_unusable(&folder.read("required", false)));
        assert!(folder.read("off", true) == Keytab::None);
        folder.write(&[5, 2]);
        for validate in ["auto", "required"] {
            assert!(folder.read(validate, false) == Keytab::Keys(vec![5, 2]), "{validate}");
        }
        assert!(folder.read("off", false) == Keytab::None);
    }

    #[test]
    fn keytab_unreadable_is_never_missing() {
        let folder = Folder::new();
        type Make = fn(&Path);
        let cases: [(&str, Make); 5] = [
            ("a link that leads nowhere", |path| symlink("/no/such/keytab", path).unwrap()),
            ("a link in a circle", |path| symlink(path, path).unwrap()),
            ("a folder", |path| create_dir(path).unwrap()),
            ("an empty file", |path| write(path, "").unwrap()),
            ("a file of others", |path| {
                write(path, [5, 2]).unwrap();
                set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            }),
        ];
        for (what, make) in cases {
            make(&folder.keytab());
            for was_used in [false, true] {
                assert!(is_unusable(&folder.read("auto", was_used)), "{what}");
            }
            if remove_file(folder.keytab()).is_err() {
                fs::remove_dir(folder.keytab()).unwrap();
            }
        }
        // A path that leads through a file: ENOTDIR, as EACCES and EIO not ENOENT.
        write(folder.0.path().join("file"), "").unwrap();
        let mut krb5 =
            folder.parsed("krb5_validate = 'auto'\n").config.domains[0].auth.krb5.clone();
        let krb5 = krb5.as_mut().unwrap();
        for path in ["file/keytab", "no such folder/keytab"] {
            krb5.keytab = folder.0.path().join(path);
            assert!(is_unusable(&krb5.read_keytab(false)), "{path}");
        }
    }

    #[test]
    fn keytab_mark_counts_unless_missing() {
        let state = tempfile::tempdir().unwrap();
        assert!(!was_keytab_used(state.path()));
        assert!(!was_keytab_used(&state.path().join("never made")));
        let domains = state.path().join(KEYTAB_MARK_DIRECTORY);
        write(&domains, "").unwrap();
        assert!(was_keytab_used(state.path()), "it cannot be looked at");
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
            let problems = folder.parsed(keys).check_keytabs(was_used);
            let told =
                |problem: &Problem| (problem.severity, format!("{}: {problem}", problem.line));
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
                "no keytab",
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
