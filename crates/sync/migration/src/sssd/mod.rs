// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts sssd.conf and its drop-ins.
//!
//! [`SssdConf::read`] merges the files as SSSD does. [`convert`] gives every setting its fate: code of `domain`,
//! `directory`, `ad`, `login` and `access` maps it, or the table of `settings` decides. An unknown setting stops the
//! conversion, because it might restrict logins.

mod access;
mod ad;
mod conf;
mod directory;
mod domain;
mod host;
mod id_mapping;
mod login;
mod secrets;
pub(crate) mod section;
mod settings;

pub use conf::{HostFacts, SssdConf};
pub(crate) use domain::{AD_FALLBACK_HOME, EMPTY_SHELL, NOLOGIN_SHELL, SHELL_FALLBACK};

use crate::plan::{Plan, Waivers};
use conf::Services;
use section::{Conversion, Section};

/// Converts a configuration.
#[must_use]
pub fn convert(mut conf: SssdConf, facts: &HostFacts, waivers: &mut Waivers) -> Plan {
    let plan = Plan { sources: conf.files().to_vec(), ..Plan::default() };
    let mut conversion = Conversion { plan, waivers };
    let take = |conf: &mut SssdConf, name: &str| {
        conf.take_section(name).unwrap_or_else(|| Section::new(name))
    };
    let mut main = take(&mut conf, "sssd");
    let mut services = Services { nss: take(&mut conf, "nss"), pam: take(&mut conf, "pam") };
    let domains = host::domains(&mut conversion, &mut main, &mut conf);
    for (name, mut section) in domains {
        let found = domain::convert(&mut conversion, &name, &mut section, &mut services, facts);
        conversion.plan.domains.extend(found);
        settings::rest(&mut conversion, &section, settings::Kind::Domain);
    }
    id_mapping::check_slices(&mut conversion);
    host::convert(&mut conversion, &mut main, &mut services);
    settings::rest(&mut conversion, &main, settings::Kind::Sssd);
    settings::rest(&mut conversion, &services.nss, settings::Kind::Nss);
    settings::rest(&mut conversion, &services.pam, settings::Kind::Pam);
    for section in conf.sections() {
        settings::other_section(&mut conversion, section);
    }
    host::check_names(&mut conversion);
    conversion.plan.items.sort_by(|a, b| a.origin.cmp(&b.origin));
    conversion.plan
}

#[cfg(test)]
mod tests;
