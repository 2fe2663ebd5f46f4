//! Reads the configuration and the files that it names, as nobody but the monitor may.

use anyhow::{Context as _, anyhow, bail};
use roster_config::{Bind, Config, Domain, Provider, Secrets};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

/// Longest configuration.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Longest password.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;
/// Longest list of certificates.
const CERTIFICATES_BYTES_MAX: u64 = 2 << 20;

/// A configuration that may be put in force.
pub struct Settings {
    /// What stands in the file.
    pub config: Config,
    /// Secrets of each domain, in the same order.
    pub secrets: Vec<Secrets>,
    /// When it was read.
    pub read: SystemTime,
    /// What is most likely not meant, a line each.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads everything. An error says all that is wrong, a line each.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let (text, _) = read_file(path, CONFIG_BYTES_MAX)?;
        let parsed = roster_config::parse(&text).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(|problem| problem.render(path)).collect();
            anyhow!(lines.join("\n"))
        })?;
        let warnings = parsed.warnings.iter().map(|problem| problem.render(path)).collect();
        let config = parsed.config;
        let mut secrets = Vec::new();
        for domain in &config.domains {
            let read = secrets_of(domain);
            secrets.push(read.with_context(|| format!("domain {}", domain.name))?);
        }
        Ok(Self { config, secrets, read: SystemTime::now(), warnings })
    }

    /// Names of the domains, in order of precedence.
    pub fn domains(&self) -> Vec<String> {
        self.config.domains.iter().map(|domain| domain.name.clone()).collect()
    }
}

fn secrets_of(domain: &Domain) -> anyhow::Result<Secrets> {
    let mut secrets = Secrets::default();
    let Provider::Ldap(ldap) = &domain.provider else { return Ok(secrets) };
    if let Bind::Simple { password_file, .. } = &ldap.bind {
        secrets.bind_password = Some(password(password_file).context("bind_password_file")?);
    }
    if let Some(path) = &ldap.tls_ca {
        secrets.tls_ca = Some(read_file(path, CERTIFICATES_BYTES_MAX).context("tls_ca")?.0);
    }
    Ok(secrets)
}

fn password(path: &Path) -> anyhow::Result<String> {
    let (mut password, mode) = read_file(path, PASSWORD_BYTES_MAX)?;
    if mode & 0o037 != 0 {
        let path = path.display();
        bail!(
            "{path}: others may read or change this password (mode {:04o}): chmod 0600 {path}",
            mode & 0o7777,
        );
    }
    if password.ends_with('\n') {
        password.pop();
    }
    if password.is_empty() {
        bail!("{}: there is no password in it", path.display());
    }
    Ok(password)
}

/// The text of a regular file, and its mode.
fn read_file(path: &Path, bytes_max: u64) -> anyhow::Result<(String, u32)> {
    let read = || -> anyhow::Result<(String, u32)> {
        // Not to wait, should it be a pipe.
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, how, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            bail!("it is no regular file");
        }
        let mut bytes = Vec::new();
        File::from(file).take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            bail!("it has more than {bytes_max} bytes");
        }
        let text = String::from_utf8(bytes).map_err(|_| anyhow!("it is no UTF-8 text"))?;
        Ok((text, stat.st_mode))
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}
