// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configured files that backends may not read: passwords, certificates with their keys, and authorities.
//!
//! The monitor passes their contents on. `roster check-config` only checks them. Each backend reads the host's own
//! authorities itself.

use crate::{
    BindMethod, DomainConfig, DomainSecrets, LdapConfig, LdapServer, ParsedConfig, ProviderConfig,
    SecretFile,
};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use rustls_pki_types::{CertificateDer, TrustAnchor, pem::PemObject};
use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use webpki::anchor_from_trusted_cert;

/// Limit of a password. No directory accepts longer ones.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Limit of the authorities: several times the size of a distribution's bundle.
const CA_BYTES_MAX: u64 = 4 << 20;
/// Permission bits that a password file may not have. The owner may allow its group to read.
pub(crate) const OTHERS_MODE: u32 = 0o037;

impl ParsedConfig {
    /// Reads the secrets of all domains, in their order. An error has all defects of the files, with the lines that
    /// name them. An unusable keytab is not an error, because it only stops logins or binds of its domain: see
    /// [`check_keytabs`](Self::check_keytabs). `was_used` is the result of [`was_keytab_used`](crate::was_keytab_used),
    /// `credentials` of [`credentials_directory`].
    pub fn read_secrets(
        &self,
        was_used: bool,
        credentials: Option<&Path>,
    ) -> Result<Vec<DomainSecrets>, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let mut all = Vec::new();
        for domain in &self.config.domains {
            let mut secrets = DomainSecrets::default();
            if let ProviderConfig::Ldap(ldap) = &domain.provider {
                if let BindMethod::Simple { password_file, .. } = &ldap.bind {
                    match password(password_file, credentials) {
                        Ok(password) => secrets.bind_password = Some(password),
                        Err(error) => {
                            problems.push(self.secret_error(domain, "bind_password_file", error));
                        }
                    }
                }
                if let Some(files) = &ldap.client_certificate {
                    match files.read(credentials) {
                        Ok(certificate) => secrets.client_certificate = Some(certificate),
                        Err(found) => {
                            problems.push(self.secret_error(domain, found.key, found.error));
                        }
                    }
                }
                if let BindMethod::Gssapi(gssapi) = &ldap.bind {
                    secrets.bind_keytab = gssapi.read_keytab(credentials);
                }
                if let Some(path) = &ldap.tls_ca {
                    match authorities(path) {
                        Ok(text) => secrets.tls_ca = Some(text),
                        Err(error) => problems.push(self.secret_error(domain, "tls_ca", error)),
                    }
                }
            }
            if let Some(krb5) = &domain.auth.krb5 {
                secrets.keytab = krb5.read_keytab(was_used, credentials);
            }
            all.push(secrets);
        }
        if problems.is_empty() { Ok(all) } else { Err(problems) }
    }

    /// Warns of domains that rely on the host's authorities if there are none. `anchors` returns the reason. This is
    /// only a warning, because they may be installed later.
    pub fn warn_missing_authorities<T>(
        &self,
        anchors: impl FnOnce() -> Result<T, String>,
    ) -> Vec<Diagnostic> {
        let relies = |domain| Some((domain, host_authorities_key(domain)?));
        let domains: Vec<_> = self.config.domains.iter().filter_map(relies).collect();
        // Reads them only if a domain needs them.
        let Some(why) = domains.first().and_then(|_| anchors().err()) else { return Vec::new() };
        let warning = |(domain, key)| {
            let text = format!("TLS verification will fail: {why}");
            let error = CodedError::new(&codes::HOST_AUTHORITIES_MISSING, text);
            Diagnostic { severity: Severity::Warning, ..self.secret_error(domain, key, error) }
        };
        domains.into_iter().map(warning).collect()
    }

    pub(crate) fn secret_error(
        &self,
        domain: &DomainConfig,
        key: &str,
        error: CodedError,
    ) -> Diagnostic {
        let table = crate::toml_section::domain_path(&domain.name);
        self.value_diagnostic(Severity::Error, (&table, key), error)
    }
}

/// Returns the key by which a domain uses TLS with the host's authorities.
fn host_authorities_key(domain: &DomainConfig) -> Option<&'static str> {
    let ProviderConfig::Ldap(ldap) = &domain.provider else { return None };
    let LdapConfig { servers, start_tls, tls_ca, .. } = &**ldap;
    let is_tls = |server| matches!(server, &LdapServer::Ldaps { .. });
    match tls_ca {
        Some(_) => None,
        None if *start_tls => Some("start_tls"),
        None => servers.iter().any(is_tls).then_some("uris"),
    }
}

impl SecretFile {
    /// The prefix of the name of a credential.
    pub(crate) const CREDENTIAL: &str = "credential:";

    /// Returns the bytes of the file. Only its owner and its group may read it.
    pub(crate) fn read(
        &self,
        credentials: Option<&Path>,
        bytes_max: u64,
    ) -> Result<Vec<u8>, CodedError> {
        let name = match self {
            Self::Path(path) => return read_bytes(path, bytes_max, OTHERS_MODE),
            Self::Credential(name) => name,
        };
        let Some(directory) = credentials else {
            let text =
                format!("cannot read the credential {name}: systemd passed none to this process");
            return Err(missing_credential(name, text));
        };
        let path = directory.join(name);
        read_bytes(&path, bytes_max, OTHERS_MODE).map_err(|error| {
            match error.message == &codes::FILE_MISSING {
                true => missing_credential(name, error.text),
                false => error,
            }
        })
    }
}

fn missing_credential(name: &str, text: String) -> CodedError {
    CodedError::new(&codes::CREDENTIAL_MISSING, text).fix(load_advice(name))
}

/// Returns the fix for a missing credential.
pub(crate) fn load_advice(name: &str) -> String {
    format!(
        "Add LoadCredential={name}:/PATH below [Service] by `systemctl edit rosterd`, then run \
         `systemctl restart rosterd`."
    )
}

/// Returns the directory of the credentials that systemd passes to this process (systemd.exec(5)).
#[must_use]
pub fn credentials_directory() -> Option<PathBuf> {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)?;
    directory.is_absolute().then_some(directory)
}

impl Default for SecretFile {
    fn default() -> Self {
        Self::Path(PathBuf::new())
    }
}

/// Formats the value as in the configuration.
impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Credential(name) => write!(f, "{}{name}", Self::CREDENTIAL),
        }
    }
}

fn password(file: &SecretFile, credentials: Option<&Path>) -> Result<String, CodedError> {
    let text = into_text(&file.to_string(), file.read(credentials, PASSWORD_BYTES_MAX)?)?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        // Servers treat an empty password as an anonymous bind, and report success.
        return Err(CodedError::new(&codes::PASSWORD_EMPTY, format!("{file} is empty"))
            .fix(format!("Write the password to {file}.")));
    }
    Ok(password.to_owned())
}

fn authorities(path: &Path) -> Result<String, CodedError> {
    let text = into_text(&path.display().to_string(), read_bytes(path, CA_BYTES_MAX, 0)?)?;
    let wrong =
        |why| CodedError::new(&codes::INVALID_AUTHORITIES, format!("{} {why}", path.display()));
    trust_anchors(&text).map_err(wrong)?;
    Ok(text)
}

/// Parses the authorities in the text of `tls_ca`, at least one. Both the check and the backend use this function. An
/// error describes the file.
pub fn trust_anchors(text: &str) -> Result<Vec<TrustAnchor<'static>>, String> {
    let mut anchors = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
        let anchor = anchor_from_trusted_cert(&certificate).map_err(|error| {
            format!("contains an invalid certificate (number {}): {error}", anchors.len() + 1)
        })?;
        anchors.push(anchor.to_owned());
    }
    if anchors.is_empty() { Err("contains no certificate in PEM".to_owned()) } else { Ok(anchors) }
}

/// Returns the host's present authorities, without invalid ones. An error has the reason that there are none.
pub fn host_anchors() -> Result<Vec<TrustAnchor<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    let anchors = found.certs.iter().filter_map(|found| anchor_from_trusted_cert(found).ok());
    let anchors: Vec<_> = anchors.map(|anchor| anchor.to_owned()).collect();
    match found.errors.first() {
        _ if !anchors.is_empty() => Ok(anchors),
        Some(error) => Err(format!("this host's certificate authorities cannot be read: {error}")),
        None => Err("this host has no certificate authorities".to_owned()),
    }
}

pub(crate) fn into_text(file: &str, bytes: Vec<u8>) -> Result<String, CodedError> {
    String::from_utf8(bytes)
        .map_err(|_| CodedError::new(&codes::FILE_NOT_UTF8, format!("{file} is not text in UTF-8")))
}

pub(crate) fn read_bytes(
    path: &Path,
    bytes_max: u64,
    refused_mode: u32,
) -> Result<Vec<u8>, CodedError> {
    let name = path.display();
    let failed = |error: std::io::Error| {
        let message = match error.kind() {
            ErrorKind::NotFound => &codes::FILE_MISSING,
            _ => &codes::FILE_UNREADABLE,
        };
        CodedError::new(message, format!("cannot read {name}: {error}"))
    };
    // Opening another type of file, such as a pipe, might block.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let text = format!("{name} is not a regular file");
        return Err(CodedError::new(&codes::FILE_NOT_REGULAR, text));
    }
    crate::check_ownership(path)?;
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & refused_mode != 0 {
        let mode = mode & 0o7777;
        return Err(CodedError::new(
            &codes::SECRET_EXPOSED,
            format!("{name} has mode {mode:04o}, which gives other users access"),
        )
        .fix(format!("Run `chmod 600 {name}`. Change the secret if it may have been read.")));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(CodedError::new(
            &codes::FILE_TOO_LONG,
            format!("{name} is longer than {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{password, trust_anchors};
    use crate::{ParsedConfig, SecretFile, parse};
    use roster_messages::table::config;
    use roster_messages::{Diagnostic, Severity};
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn secret_credential_is_read_from_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let parsed = parse(
            "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nuris = ['ldaps://x']\n\
             base = 'dc=x'\nbind_dn = 'cn=x'\nbind_password_file = 'credential:corp'\n",
        )
        .unwrap();
        let explained = crate::explain::explain(&parsed.settings);
        assert!(explained.contains("bind_password_file = \"credential:corp\""), "{explained}");
        let said = |credentials| -> Vec<String> {
            let problems = parsed.read_secrets(false, credentials).err().unwrap_or_default();
            let place = format!("{}/", folder.path().display());
            problems.iter().map(|problem| problem.to_string().replace(&place, "")).collect()
        };
        let fix = "Add LoadCredential=corp:/PATH below [Service] by `systemctl edit rosterd`, then run \
                   `systemctl restart rosterd`. [RST-1113]";
        let begin = "roster.toml:8: domain.corp.bind_password_file: cannot read";
        let none = "the credential corp: systemd passed none to this process";
        assert_eq!(said(None), [format!("{begin} {none}. {fix}")]);
        let missing = "corp: No such file or directory (os error 2)";
        assert_eq!(said(Some(folder.path())), [format!("{begin} {missing}. {fix}")]);

        let path = folder.path().join("corp");
        write(&path, "secret\n").unwrap();
        // As systemd creates them.
        set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
        let secrets = parsed.read_secrets(false, Some(folder.path())).unwrap_or_default();
        assert_eq!(secrets[0].bind_password.as_deref(), Some("secret"));
        set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        set_permissions(&path, Permissions::from_mode(0o404)).unwrap();
        assert!(said(Some(folder.path()))[0].ends_with("[RST-1111]"));
    }

    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiDCCAS+gAwIBAgIUGRDjczVn11TcKWkNwh1gCnOCzfMwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOVGVzdCBhdXRob3JpdHkwIBcNMjYxMTIyMDgxNzAwWhgPMjEy
NjEwMjkwODE3MDBaMBkxFzAVBgNVBAMMDlRlc3QgYXV0aG9yaXR5MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAElQkNTgMAguT9tHr1h0d0uq0eI39lRM4kdc7s+4w/
QAbwp88IzFxH9IGz5mz16HN+5j0CiO8Q5kwKYyKFcolbQKNTMFEwHQYDVR0OBBYE
FIgtbG6up3vbpgzXcPq38Ljhc/lGMB8GA1UdIwQYMBaAFIgtbG6up3vbpgzXcPq3
8Ljhc/lGMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgcSNXkpaV
/NC4XerCBR64BzuPBVv9O8kwbwZZfFJCTMQCICFGfMyTOkIszjx/f03/cIno6ZiC
o9vdqCHOxm2Y2iLQ
-----END CERTIFICATE-----
";

    fn parsed(folder: &Path) -> ParsedConfig {
        let folder = folder.display();
        parse(&format!(
            "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nuris = ['ldaps://x']\n\
             base = 'dc=x'\nbind_dn = 'cn=x'\nbind_password_file = '{folder}/password'\n\
             tls_ca = '{folder}/ca'\n"
        ))
        .unwrap()
    }

    /// Formats a mistake with its line alone.
    fn line(problem: &Diagnostic) -> String {
        format!("{}: {}", problem.line, problem.without_position())
    }

    fn said(folder: &Path) -> Vec<String> {
        let problems = parsed(folder).read_secrets(false, None).err().unwrap_or_default();
        let place = format!("{}/", folder.display());
        problems.iter().map(|problem| line(problem).replace(&place, "")).collect()
    }

    #[test]
    fn password_is_file_without_final_newline() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().join("password"), " se cret \n").unwrap();
        write(folder.path().join("ca"), format!("x\n{AUTHORITY}")).unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o600)).unwrap();
        let secrets = parsed(folder.path()).read_secrets(false, None).unwrap_or_default();
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets[0].bind_password.as_deref(), Some(" se cret "));
        assert!(secrets[0].tls_ca.as_deref().is_some_and(|text| text.starts_with("x\n---")));
    }

    #[test]
    fn trust_anchors_reject_unusable_authorities() {
        let whole = AUTHORITY.trim_end();
        let inside = whole.len() / 2;
        assert_eq!(trust_anchors(&format!("{whole}\n{whole}\n")).map(|all| all.len()), Ok(2));
        for (text, why) in [
            (String::new(), "contains no certificate in PEM"),
            (whole.replace("CERTIFICATE", "PRIVATE KEY"), "contains no certificate in PEM"),
            ("-----BEGIN CERTIFICATE-----\n".to_owned(), "is not PEM"),
            (format!("{whole}\n{}", &whole[..inside]), "is not PEM"),
            (
                format!("{}\n-----END CERTIFICATE-----\n", &whole[..28 + 64]),
                "contains an invalid certificate (number 1): ",
            ),
            (whole.replace("MIIB", "MI*B"), "is not PEM"),
        ] {
            let wrong = trust_anchors(&text).unwrap_err();
            assert!(wrong.starts_with(why), "{text}: {wrong}");
        }
    }

    #[test]
    fn host_authorities_missing_warns_each_domain() {
        let said = |keys: &str| -> Vec<String> {
            let parsed = parse(&format!(
                "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nbase = 'dc=x'\n{keys}"
            ));
            let none = || Err::<(), _>("none".to_owned());
            let problems = parsed.unwrap().warn_missing_authorities(none);
            assert!(problems.iter().all(|problem| problem.severity == Severity::Warning));
            problems.iter().map(line).collect()
        };
        let told = |place: &str| {
            vec![format!(
                "{place}: TLS verification will fail: none. {} [RST-1116]",
                config::HOST_AUTHORITIES_MISSING.fix
            )]
        };
        assert_eq!(said("uris = ['ldapi://%2Fx', 'ldaps://x']\n"), told("6: domain.corp.uris"));
        assert_eq!(said("discover = 'x'\nstart_tls = true\n"), told("7: domain.corp.start_tls"));
        assert!(said("uris = ['ldap://localhost']\n").is_empty());
        assert!(said("uris = ['ldaps://x']\ntls_ca = '/x'\n").is_empty());
        let parsed = parsed(Path::new("/x"));
        assert!(
            parsed.warn_missing_authorities(|| -> Result<(), String> { panic!("read") }).is_empty()
        );
    }

    #[test]
    fn secret_files_errors_name_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            said(folder.path()),
            [
                "8: domain.corp.bind_password_file: cannot read password: No such file or directory \
                 (os error 2). Create the file, or correct its path. [RST-1106]",
                "9: domain.corp.tls_ca: cannot read ca: No such file or directory (os error 2). \
                 Create the file, or correct its path. [RST-1106]",
            ]
        );
        write(folder.path().join("password"), "secret").unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o644)).unwrap();
        write(folder.path().join("ca"), "secret").unwrap();
        assert_eq!(
            said(folder.path()),
            [
                "8: domain.corp.bind_password_file: password has mode 0644, which gives other users \
                 access. Run `chmod 600 password`. Change the secret if it may have been read. \
                 [RST-1111]",
                "9: domain.corp.tls_ca: ca contains no certificate in PEM. Name a PEM file of \
                 authorities in tls_ca. To convert DER, run `openssl x509 -inform der`. [RST-1115]",
            ]
        );
        write(folder.path().join("ca"), AUTHORITY).unwrap();
        set_permissions(folder.path().join("ca"), Permissions::from_mode(0o666)).unwrap();
        assert_eq!(
            said(folder.path())[1],
            "9: domain.corp.tls_ca: ca has mode 0666, which allows other users to change it. Check \
             the content of ca, then run `chmod go-w ca`. [RST-1105]"
        );
        write(folder.path().join("password"), "\n").unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o600)).unwrap();
        assert!(
            said(folder.path())[0]
                .ends_with("password is empty. Write the password to password. [RST-1112]")
        );
        write(folder.path().join("password"), "x".repeat(5000)).unwrap();
        assert!(said(folder.path())[0].contains("password is longer than 4096 bytes. "));
    }

    #[test]
    fn secret_file_defect_has_its_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create_dir(path("folder")).unwrap();
        for (name, bytes) in [("binary", &b"\xff"[..]), ("long", &[b'x'; 5000])] {
            write(path(name), bytes).unwrap();
            set_permissions(path(name), Permissions::from_mode(0o600)).unwrap();
        }
        for (name, code) in [
            ("none", "RST-1106"),
            ("binary/password", "RST-1107"),
            ("folder", "RST-1108"),
            ("binary", "RST-1109"),
            ("long", "RST-1110"),
        ] {
            let error = password(&SecretFile::Path(path(name)), None).unwrap_err();
            assert_eq!(error.message.code, code, "{name}");
        }
    }
}
