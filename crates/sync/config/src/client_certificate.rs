// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client certificate of a domain, `tls_cert` and `tls_key`. The monitor reads the files and passes their texts on.
//! `secret_files` reads the files.
//!
//! A defect of the files is an error like that of a password file. An expired certificate stops its domain only: other
//! domains of the host do not depend on it.

use crate::secret_files::{into_text, read_bytes};
use crate::{ClientCertificateFiles, DomainConfig, ParsedConfig, ProviderConfig};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::SystemTime;
use webpki::{EndEntityCert, KeyUsage};

/// Limit of a chain of certificates, and of a key.
const BYTES_MAX: u64 = 256 << 10;
/// Most certificates of a chain.
const CHAIN_MAX: usize = 16;

/// The texts of the files of a client certificate. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    chain: String,
    key: String,
}

/// A defect, with the key of the configuration that it belongs to.
#[derive(Debug)]
pub struct CertificateError {
    /// `tls_cert` or `tls_key`.
    pub key: &'static str,
    /// The defect.
    pub error: CodedError,
}

impl CertificateError {
    fn of_certificate(error: CodedError) -> Self {
        Self { key: "tls_cert", error }
    }

    fn of_key(error: CodedError) -> Self {
        Self { key: "tls_key", error }
    }
}

impl ClientCertificateFiles {
    /// Reads and checks both files. `credentials` is the result of
    /// [`credentials_directory`](crate::credentials_directory).
    pub fn read(&self, credentials: Option<&Path>) -> Result<ClientCertificate, CertificateError> {
        let path = self.certificate.display().to_string();
        let chain = read_bytes(&self.certificate, BYTES_MAX, 0)
            .and_then(|bytes| into_text(&path, bytes))
            .map_err(CertificateError::of_certificate)?;
        let key = self
            .key
            .read(credentials, BYTES_MAX)
            .and_then(|bytes| into_text(&self.key.to_string(), bytes))
            .map_err(CertificateError::of_key)?;
        let certificate = ClientCertificate { chain, key };
        certificate.check(&path, &self.key.to_string())?;
        Ok(certificate)
    }
}

impl ClientCertificate {
    /// Returns the certificates and the key for the TLS library.
    pub fn parse(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CodedError> {
        Ok((chain("tls_cert", &self.chain)?, private_key("tls_key", &self.key)?))
    }

    fn check(&self, chain_file: &str, key_file: &str) -> Result<(), CertificateError> {
        let chain = chain(chain_file, &self.chain).map_err(CertificateError::of_certificate)?;
        let key = private_key(key_file, &self.key).map_err(CertificateError::of_key)?;
        let provider = rustls::crypto::ring::default_provider();
        let Err(error) = rustls::sign::CertifiedKey::from_der(chain, key, &provider) else {
            return Ok(());
        };
        Err(match error {
            rustls::Error::InconsistentKeys(_) => {
                let text = format!("{key_file} is not the key of the certificate in {chain_file}");
                CertificateError::of_key(CodedError::new(&codes::CLIENT_KEY_MISMATCH, text))
            }
            rustls::Error::InvalidCertificate(_) => {
                let text = format!("{chain_file} has an invalid certificate: {error}");
                let error = CodedError::new(&codes::INVALID_CLIENT_CERTIFICATE, text);
                CertificateError::of_certificate(error)
            }
            _ => {
                let text = format!("{key_file} has an unusable key: {error}");
                CertificateError::of_key(CodedError::new(&codes::INVALID_CLIENT_KEY, text))
            }
        })
    }

    /// Returns the reason if the certificate of this host is not valid at this time.
    #[must_use]
    pub fn invalid_time(&self, now: SystemTime) -> Option<String> {
        let certificates = chain("", &self.chain).ok()?;
        let own = EndEntityCert::try_from(certificates.first()?).ok()?;
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(since);
        // The check of the time precedes that of the authorities, of which there are none here.
        let usage = KeyUsage::client_auth();
        match own.verify_for_usage(&[], &[], &[], time, usage, None, None).err()? {
            webpki::Error::CertExpired { .. } => Some("has expired".to_owned()),
            webpki::Error::CertNotValidYet { .. } => Some("is not valid yet".to_owned()),
            _ => None,
        }
    }
}

fn chain(file: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, CodedError> {
    let wrong = |text: String| {
        CodedError::new(&codes::INVALID_CLIENT_CERTIFICATE, format!("{file} {text}"))
    };
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(text.as_bytes()).take(CHAIN_MAX).collect();
    let found = found.map_err(|error| wrong(format!("is not PEM: {error}")))?;
    match found.is_empty() {
        true => Err(wrong("contains no certificate in PEM".to_owned())),
        false => Ok(found),
    }
}

fn private_key(file: &str, text: &str) -> Result<PrivateKeyDer<'static>, CodedError> {
    // PKCS #8, and the older form of OpenSSL.
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || text.contains("Proc-Type: 4,ENCRYPTED")
    {
        let text = format!("the private key in {file} is encrypted");
        return Err(CodedError::new(&codes::CLIENT_KEY_ENCRYPTED, text));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        let text = format!("{file} contains no private key in PEM");
        CodedError::new(&codes::INVALID_CLIENT_KEY, text)
    })
}

/// Returns the files of a domain's client certificate.
pub(crate) fn files(domain: &DomainConfig) -> Option<&ClientCertificateFiles> {
    match &domain.provider {
        ProviderConfig::Ldap(ldap) => ldap.client_certificate.as_ref(),
        ProviderConfig::Files(_) => None,
    }
}

impl ParsedConfig {
    /// Reports client certificates that are not valid at this time. Other defects are errors of
    /// [`read_secrets`](Self::read_secrets).
    #[must_use]
    pub fn check_client_certificates(
        &self,
        now: SystemTime,
        credentials: Option<&Path>,
    ) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for domain in &self.config.domains {
            let Some(files) = files(domain) else { continue };
            let Ok(certificate) = files.read(credentials) else { continue };
            let Some(why) = certificate.invalid_time(now) else { continue };
            let text = format!("the certificate in {} {why}", files.certificate.display());
            let error = CodedError::new(&codes::CLIENT_CERTIFICATE_EXPIRED, text);
            let severity = Severity::Refusal;
            problems.push(Diagnostic { severity, ..self.secret_error(domain, "tls_cert", error) });
        }
        problems
    }
}
