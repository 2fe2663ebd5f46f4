// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keytabs and the client certificate of a domain, as found in their files. `keytab_watch` decides when a
//! difference counts.

use roster_config::{
    BindMethod, ClientCertificate, ClientCertificateFiles, DomainConfig, DomainSecrets,
    GssapiConfig, KdcValidation, KeytabState, Krb5Config, ProviderConfig,
};
use roster_messages::{Message, table::daemon};
use std::path::Path;

/// The files of a domain that are read again.
pub struct WatchedFiles {
    domain: String,
    /// The keytab of logins, if KDCs are verified.
    logins: Option<Krb5Config>,
    /// The keytab of binds.
    binds: Option<GssapiConfig>,
    certificate: Option<ClientCertificateFiles>,
}

impl WatchedFiles {
    /// Returns the files of a domain; `None` if there are none.
    pub fn of_domain(domain: &DomainConfig) -> Option<Self> {
        let verified = |krb5: &&Krb5Config| krb5.validate != KdcValidation::Off;
        let ldap = match &domain.provider {
            ProviderConfig::Ldap(ldap) => Some(ldap),
            ProviderConfig::Files(_) => None,
        };
        let files = Self {
            domain: domain.name.clone(),
            logins: domain.auth.krb5.as_deref().filter(verified).cloned(),
            binds: ldap.and_then(|ldap| match &ldap.bind {
                BindMethod::Gssapi(gssapi) => Some((**gssapi).clone()),
                _ => None,
            }),
            certificate: ldap.and_then(|ldap| ldap.client_certificate.clone()),
        };
        let has_any =
            files.logins.is_some() || files.binds.is_some() || files.certificate.is_some();
        has_any.then_some(files)
    }

    /// Reads them. A certificate without its key counts as unusable.
    pub fn read(self, credentials: Option<&Path>) -> FoundKeys {
        let keys = |state: KeytabState| match state {
            KeytabState::Keys(bytes) => Some(bytes),
            KeytabState::None | KeytabState::Unusable { .. } => None,
        };
        let logins = self.logins.and_then(|krb5| keys(krb5.read_keytab(false, credentials)));
        let binds = self.binds.and_then(|gssapi| keys(gssapi.read_keytab(credentials)));
        let certificate = self.certificate.and_then(|files| files.read(credentials).ok());
        FoundKeys { domain: self.domain, logins, binds, certificate }
    }
}

/// Content of the files of a domain. `None` for a file that is missing, unusable, or not in use.
#[derive(Clone, PartialEq, Eq)]
pub struct FoundKeys {
    /// The domain.
    pub domain: String,
    /// The keytab of logins.
    pub logins: Option<Vec<u8>>,
    /// The keytab of binds.
    pub binds: Option<Vec<u8>>,
    /// The client certificate with its key.
    pub certificate: Option<ClientCertificate>,
}

impl FoundKeys {
    /// Whether the content differs from the one in force.
    pub fn differs(&self, current: &DomainSecrets) -> bool {
        let is_other = |found: &Option<Vec<u8>>, current: &KeytabState| {
            let is_same =
                |found: &Vec<u8>| matches!(current, KeytabState::Keys(keys) if keys == found);
            found.as_ref().is_some_and(|found| !is_same(found))
        };
        is_other(&self.logins, &current.keytab)
            || is_other(&self.binds, &current.bind_keytab)
            || self.certificate.is_some() && self.certificate != current.client_certificate
    }

    /// Replaces the content in force.
    pub fn apply(self, secrets: &mut DomainSecrets) {
        if let Some(keys) = self.logins {
            secrets.keytab = KeytabState::Keys(keys);
        }
        if let Some(keys) = self.binds {
            secrets.bind_keytab = KeytabState::Keys(keys);
        }
        if self.certificate.is_some() {
            secrets.client_certificate = self.certificate;
        }
    }

    /// Returns the row for a failure to apply it.
    pub fn failure(&self, current: &DomainSecrets) -> &'static Message {
        let certificate = &self.certificate;
        match certificate.is_some() && *certificate != current.client_certificate {
            true => &daemon::CLIENT_CERTIFICATE_NOT_APPLIED,
            false => &daemon::KEYTAB_NOT_APPLIED,
        }
    }
}
