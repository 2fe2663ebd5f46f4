// SPDX-License-Identifier: MIT OR Apache-2.0
//! The merged configuration of SSSD, and the facts of the host that its conversion uses. `source_file` reads the files,
//! and `ini` parses them. This module converts nothing.

use super::section::{Section, Setting};
use crate::ini;
use crate::krb5_conf::Krb5Conf;
use crate::plan::Origin;
use crate::source_file::{self, SourceError};
use std::path::{Path, PathBuf};

/// The merged configuration.
#[derive(Clone, Debug, Default)]
pub struct SssdConf {
    files: Vec<PathBuf>,
    sections: Vec<Section>,
}

impl SssdConf {
    /// Reads a file and the files `conf.d/*.conf` beside it, sorted by name. A later file wins setting by setting.
    ///
    /// # Errors
    ///
    /// A file cannot be read or parsed, or other users can change it. SSSD ignores a drop-in with a wrong owner or mode,
    /// and this function refuses it.
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        let mut conf = Self::default();
        let folder = path.parent().unwrap_or(Path::new(".")).join("conf.d");
        let is_dropin = |name: &str| !name.starts_with('.') && name.ends_with(".conf");
        let dropins = source_file::list(&folder, is_dropin)?;
        match source_file::read_trusted(path) {
            Ok(bytes) => conf.add(path, &bytes)?,
            // SSSD accepts drop-ins alone.
            Err(error) if error.is_missing() && !dropins.is_empty() => {}
            Err(error) => return Err(error),
        }
        for file in dropins {
            let bytes = source_file::read_trusted(&file)?;
            conf.add(&file, &bytes)?;
        }
        Ok(conf)
    }

    /// Adds the text of one file.
    ///
    /// # Errors
    ///
    /// A line cannot be parsed.
    pub fn add(&mut self, file: &Path, bytes: &[u8]) -> Result<(), SourceError> {
        let settings = ini::parse(bytes).map_err(|error| SourceError::syntax(file, error))?;
        self.files.push(file.to_owned());
        for ini::IniSetting { section, name, value, line } in settings {
            let origin = Origin { file: file.to_owned(), line };
            self.section_mut(&section).insert(Setting { name, value, origin });
        }
        Ok(())
    }

    /// Returns the value of a setting.
    #[must_use]
    pub fn value(&self, section: &str, name: &str) -> Option<&str> {
        self.sections.iter().find(|known| known.name.eq_ignore_ascii_case(section))?.peek(name)
    }

    /// Returns the files in the order in which they were read.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the remaining sections.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    fn section_mut(&mut self, name: &str) -> &mut Section {
        let place = self.sections.iter().position(|known| known.name.eq_ignore_ascii_case(name));
        let place = place.unwrap_or_else(|| {
            // Names of services are lower case; those of domains keep their case.
            let name = if name.contains('/') { name.to_owned() } else { name.to_ascii_lowercase() };
            self.sections.push(Section::new(&name));
            self.sections.len() - 1
        });
        &mut self.sections[place]
    }

    pub(super) fn take_section(&mut self, name: &str) -> Option<Section> {
        let place = self.sections.iter().position(|known| known.name.eq_ignore_ascii_case(name))?;
        Some(self.sections.remove(place))
    }
}

/// Facts of the host that the conversion may use.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// The krb5.conf.
    pub krb5: Krb5Conf,
    /// DNS domain of the host's name, for service discovery.
    pub dns_domain: Option<String>,
    /// Names of local users.
    pub local_users: Vec<String>,
    /// Directory of the password files that the result names.
    pub password_directory: PathBuf,
}

/// Settings of services that hold for all domains.
pub(crate) struct Services {
    pub nss: Section,
    pub pam: Section,
}
