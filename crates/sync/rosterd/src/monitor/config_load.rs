// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the configuration and the files that it names, which only the monitor may read. `roster_config` parses the
//! files, and `reload` applies the result.

use roster_config::{Config, ConfigFiles, DomainSecrets, KeytabState, ParsedConfig};
use roster_messages::table::{config as codes, daemon};
use roster_messages::{CodedError, Diagnostic, Severity};
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use roster_role::error_code::{CodedErrors, CodedLine, WithCode};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Time limit of a read. A reader cannot abort the read of a file on a hanging network mount.
const READ_WAIT: Duration = Duration::from_secs(5);

/// Reads configurations in a dedicated thread, because a read may hang. There is at most one such thread. While it
/// hangs, nothing else is read.
#[derive(Clone)]
pub struct ConfigReader {
    read_slot: Arc<Semaphore>,
    wait: Duration,
    /// The directory of this process's credentials.
    pub credentials: Option<PathBuf>,
}

impl ConfigReader {
    /// Makes the reader of this process.
    pub fn new() -> Self {
        Self {
            read_slot: Arc::new(Semaphore::new(1)),
            wait: READ_WAIT,
            credentials: roster_config::credentials_directory(),
        }
    }

    /// Reads everything, with a time limit. An error has one line for each fault. A mark in the directory `state` shows
    /// that this host has used a keytab. `uses_keytab` has the same effect.
    pub async fn read(
        &self,
        path: PathBuf,
        state: PathBuf,
        uses_keytab: bool,
    ) -> Result<LoadedConfig, CodedErrors> {
        let shown = path.display().to_string();
        let credentials = self.credentials.clone();
        let read = move || {
            let was_used = uses_keytab || roster_config::was_keytab_used(&state);
            LoadedConfig::read(&path, was_used, credentials.as_deref())
        };
        self.run_in_thread(shown, read).await
    }

    /// Runs a read in a thread, with a time limit.
    pub async fn run_in_thread<T: Send + 'static>(
        &self,
        shown: String,
        read: impl FnOnce() -> Result<T, CodedErrors> + Send + 'static,
    ) -> Result<T, CodedErrors> {
        let read = async {
            let turn = Arc::clone(&self.read_slot).acquire_owned().await?;
            let reading = tokio::task::spawn_blocking(move || {
                let outcome = read();
                drop(turn);
                outcome
            });
            anyhow::Ok(reading.await?)
        };
        match timeout(self.wait, read).await {
            Ok(outcome) => outcome
                .with_code(&daemon::CONFIG_UNREADABLE, || format!("{shown}: cannot be read"))?,
            Err(_) => {
                let text =
                    format!("{shown} or a file that it names: no data within {:?}", self.wait);
                Err(CodedError::new(&codes::CONFIG_READ_TIMEOUT, text).into())
            }
        }
    }
}

/// A valid configuration.
pub struct LoadedConfig {
    /// Content of the files.
    pub config: Config,
    /// Secrets of each domain, in the same order.
    pub secrets: Vec<DomainSecrets>,
    /// Uids of `trusted_users`.
    pub trusted_uids: Vec<u32>,
    /// Time of the read.
    pub read_at: SystemTime,
    /// Warnings about probable mistakes.
    pub warnings: Vec<CodedLine>,
    /// Whether the main file exists, and not only drop-ins.
    pub has_main_file: bool,
}

impl LoadedConfig {
    fn read(path: &Path, was_used: bool, credentials: Option<&Path>) -> Result<Self, CodedErrors> {
        let files = ConfigFiles::read(path).map_err(CodedError::from)?;
        let refused = |problems: Vec<Diagnostic>| CodedErrors(problem_lines(&problems));
        let changeable = files.check_ownership();
        if !changeable.is_empty() {
            return Err(refused(changeable));
        }
        let parsed = roster_config::parse_files(&files).map_err(refused)?;
        let secrets = parsed.read_secrets(was_used, credentials).map_err(refused)?;
        let mut warnings = parsed.warnings.clone();
        warnings.extend(parsed.warn_missing_authorities(roster_config::host_anchors));
        warnings.extend(parsed.check_keytabs(was_used, credentials));
        warnings.extend(parsed.check_client_certificates(SystemTime::now(), credentials));
        warnings.extend(parsed.check_overrides());
        let trusted_uids = trusted_uids(&parsed, &mut warnings)?;
        let (config, read_at) = (parsed.config, SystemTime::now());
        let (warnings, has_main_file) = (problem_lines(&warnings), files.has_main_file());
        Ok(Self { config, secrets, trusted_uids, read_at, warnings, has_main_file })
    }

    /// Whether any domain uses a keytab.
    pub fn uses_keytab(&self) -> bool {
        self.secrets.iter().any(|secrets| matches!(secrets.keytab, KeytabState::Keys(_)))
    }

    /// Returns names of the domains, in order of precedence.
    pub fn domain_names(&self) -> Vec<String> {
        self.config.domains.iter().map(|domain| domain.name.clone()).collect()
    }
}

/// Returns the uids of local users. A missing user has no rights, and may be added later.
fn trusted_uids(
    parsed: &ParsedConfig,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<u32>, CodedError> {
    let config = &parsed.config;
    let names: Vec<_> = config.pam.iter().flat_map(|pam| &pam.trusted_users).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let passwd = &config.host.passwd;
    let shown = passwd.display();
    let text = fs::read(passwd)
        .with_code(&daemon::PASSWD_UNREADABLE, || format!("{shown}: cannot be read"))?;
    let mut uids = Vec::new();
    for name in names {
        // The first line of a name counts, as in glibc.
        let uid = text.split(|&byte| byte == b'\n').find_map(|line| match passwd_line(line) {
            ParsedLine::Entry(user) if user.name == name.as_bytes() => Some(user.uid),
            _ => None,
        });
        match uid {
            Some(uid) => uids.push(uid),
            None => {
                let text = format!("{shown} lacks the user {name}");
                let error = CodedError::new(&codes::TRUSTED_USER_MISSING, text);
                let place = ("responder.pam", "trusted_users");
                warnings.push(parsed.value_diagnostic(Severity::Warning, place, error));
            }
        }
    }
    Ok(uids)
}

fn problem_lines(problems: &[Diagnostic]) -> Vec<CodedLine> {
    let line =
        |problem: &Diagnostic| CodedLine { message: problem.message, text: problem.to_string() };
    problems.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::config;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_file_that_hangs_is_an_error_in_time_and_holds_one_thread() {
        let reader = ConfigReader { wait: Duration::from_millis(50), ..ConfigReader::new() };
        let (go_on, hangs) = mpsc::channel::<()>();
        let first = reader.run_in_thread("roster.toml".into(), move || {
            let _ = hangs.recv();
            Ok(())
        });
        let error = first.await.unwrap_err();
        assert_eq!(error.0[0].message, &config::CONFIG_READ_TIMEOUT, "{error}");
        let second = reader.run_in_thread("roster.toml".into(), || -> Result<(), CodedErrors> {
            panic!("read beside the one that hangs")
        });
        assert!(second.await.is_err());
        drop(go_on);
    }

    #[test]
    fn trusted_user_missing_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let passwd = folder.path().join("passwd");
        fs::write(&passwd, "web:x:33:33::/:/bin/sh\n").unwrap();
        let parsed = roster_config::parse(&format!(
            "[host]\ndomains = ['lab']\npasswd = '{}'\n[domain.lab]\nprovider = 'files'\n\
             passwd = '/p'\ngroup = '/g'\n[responder.pam]\nenabled = true\n\
             trusted_users = ['web', 'wbe']\n",
            passwd.display()
        ))
        .unwrap();
        let mut warnings = Vec::new();
        assert_eq!(trusted_uids(&parsed, &mut warnings).unwrap(), [33]);
        let found: Vec<_> =
            warnings.iter().map(|warning| (&*warning.key, warning.message)).collect();
        let key = "responder.pam.trusted_users";
        assert_eq!(found, [(key, &config::TRUSTED_USER_MISSING)]);
    }

    #[tokio::test]
    async fn config_read_that_fails_has_code() {
        let reader = ConfigReader::new();
        let broken = reader.run_in_thread("roster.toml".into(), || -> Result<(), CodedErrors> {
            panic!("a fault of the reader")
        });
        let error = broken.await.unwrap_err();
        assert_eq!(error.0[0].message, &daemon::CONFIG_UNREADABLE, "{error}");

        let folder = tempfile::TempDir::new().unwrap();
        let (path, passwd) = (folder.path().join("roster.toml"), folder.path().join("passwd"));
        let text = format!(
            "[host]\ndomains = [\"lab\"]\npasswd = {passwd:?}\n[responder.pam]\nenabled = true\n\
             trusted_users = [\"www\"]\n[domain.lab]\nprovider = \"files\"\n\
             passwd = \"/p\"\ngroup = \"/g\"\n"
        );
        fs::write(&path, text).unwrap();
        // Another test of this process may have set the umask to 0.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = reader.read(path, folder.path().to_owned(), false).await.err().unwrap();
        assert_eq!(error.0[0].message, &daemon::PASSWD_UNREADABLE, "{error}");
    }
}
