//! Reads the configuration and the files that it names, which nobody but the monitor may.

use anyhow::{Context as _, anyhow, bail};
use roster_config::{Config, Keytab, Problem, Secrets};
use roster_record::text::{Line, passwd_line};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest configuration that is read; the parser refuses shorter ones already.
const CONFIG_BYTES_MAX: u64 = 2 << 20;

/// How long reading may take. A file on a network mount that hangs cannot be given up by who reads it.
const READ_WAIT: Duration = Duration::from_secs(5);

/// Reads configurations, in a thread of their own, for it may hang. There is one such thread at the
/// most: while it hangs, nothing else is read.
#[derive(Clone)]
pub struct Reader {
    turn: Arc<Semaphore>,
    wait: Duration,
}

impl Reader {
    /// The one of this process.
    pub fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), wait: READ_WAIT }
    }

    /// Reads everything, in time. An error says all that is wrong, a line each. `state` is the state
    /// directory, whose mark says that this host has used a keytab; so does `uses_keytab`.
    pub async fn read(
        &self,
        path: PathBuf,
        state: PathBuf,
        uses_keytab: bool,
    ) -> anyhow::Result<Settings> {
        let shown = path.display().to_string();
        let read = move || {
            let was_used = uses_keytab || roster_config::was_keytab_used(&state);
            Settings::read(&path, was_used)
        };
        self.run(shown, read).await
    }

    /// Runs what reads, in time.
    pub async fn run<T: Send + 'static>(
        &self,
        shown: String,
        read: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let read = async {
            let turn = Arc::clone(&self.turn).acquire_owned().await?;
            let reading = tokio::task::spawn_blocking(move || {
                let outcome = read();
                drop(turn);
                outcome
            });
            reading.await?
        };
        match timeout(self.wait, read).await {
            Ok(outcome) => outcome,
            Err(_) => bail!(
                "{shown}, or a file that it names, could not be read in {:?}: see whether one of \
                 them lies on a mount that hangs",
                self.wait,
            ),
        }
    }
}

/// A configuration that may be put in force.
pub struct Settings {
    /// What stands in the file.
    pub config: Config,
    /// Secrets of each domain, in the same order.
    pub secrets: Vec<Secrets>,
    /// Uids of `trusted_users`.
    pub trusted: Vec<u32>,
    /// When it was read.
    pub read: SystemTime,
    /// What is most likely not meant, a line each.
    pub warnings: Vec<String>,
}

impl Settings {
    fn read(path: &Path, was_used: bool) -> anyhow::Result<Self> {
        let text = match text(path) {
            Err(error) if is_not_there(&error) => {
                bail!(
                    "cannot read {}: there is none; write it, as roster.toml(5) shows, or name \
                     another by --config",
                    path.display()
                )
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        roster_config::check_ownership(path)
            .map_err(|(what, instead)| anyhow!("{what}; {instead}"))?;
        let refused = |problems: Vec<Problem>| anyhow!(lines(path, &problems).join("\n"));
        let parsed = roster_config::parse(&text).map_err(refused)?;
        let secrets = parsed.read_secrets(was_used).map_err(refused)?;
        let mut warnings = lines(path, &parsed.warnings);
        warnings.extend(lines(path, &parsed.warn_of_authorities(roster_config::host_anchors)));
        warnings.extend(lines(path, &parsed.check_keytabs(was_used)));
        let config = parsed.config;
        let names = config.pam.iter().flat_map(|pam| &pam.trusted_users);
        let trusted = trusted(names, &config.host.passwd, &mut warnings)?;
        Ok(Self { config, secrets, trusted, read: SystemTime::now(), warnings })
    }

    /// Whether any domain uses a keytab.
    pub fn use_keytab(&self) -> bool {
        self.secrets.iter().any(|secrets| matches!(secrets.keytab, Keytab::Keys(_)))
    }

    /// Names of the domains, in order of precedence.
    pub fn domains(&self) -> Vec<String> {
        self.config.domains.iter().map(|domain| domain.name.clone()).collect()
    }
}

/// The uids of users of the host. One who is not there is nobody, and may come later.
fn trusted<'n>(
    names: impl Iterator<Item = &'n String>,
    passwd: &Path,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Vec<u32>> {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let shown = passwd.display();
    let text = fs::read(passwd).with_context(|| format!("cannot read {shown}"))?;
    let mut uids = Vec::new();
    for name in names {
        // The first line of a name is the one that counts.
        let uid = text.split(|&byte| byte == b'\n').find_map(|line| match passwd_line(line) {
            Line::Entry(user) if user.name == name.as_bytes() => Some(user.uid),
            _ => None,
        });
        match uid {
            Some(uid) => uids.push(uid),
            None => warnings.push(format!(
                "trusted_users: {shown} has no user {name}; once it has: systemctl reload rosterd"
            )),
        }
    }
    Ok(uids)
}

fn lines(path: &Path, problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.render(path)).collect()
}

fn is_not_there(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn text(path: &Path) -> anyhow::Result<String> {
    // Opening something else, such as a pipe, might wait for ever.
    if !fs::metadata(path)?.is_file() {
        bail!("it is no file");
    }
    let mut text = String::new();
    File::open(path)?.take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_file_that_hangs_is_an_error_in_time_and_holds_one_thread() {
        let reader = Reader { wait: Duration::from_millis(50), ..Reader::new() };
        let (go_on, hangs) = mpsc::channel::<()>();
        let first = reader.run("roster.toml".into(), move || {
            let _ = hangs.recv();
            Ok(())
        });
        let error = first.await.unwrap_err().to_string();
        assert!(error.starts_with("roster.toml, or a file that it names"), "{error}");
        let second = reader.run("roster.toml".into(), || -> anyhow::Result<()> {
            panic!("read beside the one that hangs")
        });
        assert!(second.await.is_err());
        drop(go_on);
    }
}
