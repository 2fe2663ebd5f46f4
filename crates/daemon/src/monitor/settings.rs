//! Reads the configuration and the files that it names, which nobody but the monitor may.

use anyhow::{Context as _, anyhow, bail};
use roster_config::{Config, Problem, Secrets};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

/// Longest configuration that is read; the parser refuses shorter ones already.
const CONFIG_BYTES_MAX: u64 = 2 << 20;

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
        let text = text(path).with_context(|| format!("cannot read {}", path.display()))?;
        let refused = |problems: Vec<Problem>| anyhow!(lines(path, &problems).join("\n"));
        let parsed = roster_config::parse(&text).map_err(refused)?;
        let secrets = parsed.read_secrets().map_err(refused)?;
        let warnings = lines(path, &parsed.warnings);
        Ok(Self { config: parsed.config, secrets, read: SystemTime::now(), warnings })
    }

    /// Names of the domains, in order of precedence.
    pub fn domains(&self) -> Vec<String> {
        self.config.domains.iter().map(|domain| domain.name.clone()).collect()
    }
}

fn lines(path: &Path, problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.render(path)).collect()
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
