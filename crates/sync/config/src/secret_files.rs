//! The configured files that backends may not read: passwords and certificate authorities.
//!
//! The monitor passes their contents on. `roster check-config` only checks them. Each backend reads the host's own
//! authorities itself.

use crate::diagnostic::ConfigProblem;
use crate::{
    BindMethod, Diagnostic, DomainConfig, DomainSecrets, LdapConfig, LdapServer, ParsedConfig,
    ProviderConfig, SecretFile, Severity,
};
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
    /// name them. An unusable keytab is not an error, because it only stops the logins of its domain: see
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
                        Err(why) => {
                            problems.push(self.secret_diagnostic(
                                domain,
                                "bind_password_file",
                                why,
                            ));
                        }
                    }
                }
                if let Some(path) = &ldap.tls_ca {
                    match authorities(path) {
                        Ok(text) => secrets.tls_ca = Some(text),
                        Err(why) => problems.push(self.secret_diagnostic(domain, "tls_ca", why)),
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
            let what = format!("no server's certificate will be believed: {why}");
            let problem = ConfigProblem::new(what, NO_AUTHORITIES_FIX);
            let problem = self.secret_diagnostic(domain, key, problem);
            Diagnostic { severity: Severity::Warning, ..problem }
        };
        domains.into_iter().map(warning).collect()
    }

    pub(crate) fn secret_diagnostic(
        &self,
        domain: &DomainConfig,
        key: &str,
        ConfigProblem { message, fix }: ConfigProblem,
    ) -> Diagnostic {
        let table = crate::domain::domain_path(&domain.name);
        self.value_diagnostic(Severity::Error, (&table, key), message, fix)
    }
}

/// The fix for a host without authorities.
pub const NO_AUTHORITIES_FIX: &str = "install ca-certificates, or name a PEM file with tls_ca";

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
    ) -> Result<Vec<u8>, ConfigProblem> {
        let name = match self {
            Self::Path(path) => return read_bytes(path, bytes_max, OTHERS_MODE),
            Self::Credential(name) => name,
        };
        let Some(directory) = credentials else {
            let what = format!(
                "cannot read the credential {name}: the service manager gave none to this process"
            );
            return Err(ConfigProblem::new(what, load_advice(name)));
        };
        let path = directory.join(name);
        read_bytes(&path, bytes_max, OTHERS_MODE).map_err(|problem| {
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    ConfigProblem::new(problem.message, load_advice(name))
                }
                _ => problem,
            }
        })
    }
}

/// Returns the fix for a missing credential.
pub(crate) fn load_advice(name: &str) -> String {
    format!(
        "add LoadCredential={name}:/PATH below [Service] by `systemctl edit rosterd`, then \
         `systemctl restart rosterd`"
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

fn password(file: &SecretFile, credentials: Option<&Path>) -> Result<String, ConfigProblem> {
    let text = into_text(&file.to_string(), file.read(credentials, PASSWORD_BYTES_MAX)?)?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        // Servers treat an empty password as an anonymous bind, and report success.
        return Err(ConfigProblem::new(format!("{file} is empty"), "write the password into it"));
    }
    Ok(password.to_owned())
}

fn authorities(path: &Path) -> Result<String, ConfigProblem> {
    let text = into_text(&path.display().to_string(), read_bytes(path, CA_BYTES_MAX, 0)?)?;
    let wrong = |why| {
        ConfigProblem::new(
            format!("{} {why}", path.display()),
            "name a PEM file of authorities, from -----BEGIN CERTIFICATE----- to -----END \
             CERTIFICATE-----; from DER: openssl x509 -inform der",
        )
    };
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
            format!("has a certificate, number {}, that is none: {error}", anchors.len() + 1)
        })?;
        anchors.push(anchor.to_owned());
    }
    if anchors.is_empty() { Err("holds no certificate in PEM".to_owned()) } else { Ok(anchors) }
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

fn into_text(file: &str, bytes: Vec<u8>) -> Result<String, ConfigProblem> {
    String::from_utf8(bytes).map_err(|_| {
        ConfigProblem::new(format!("{file} is not text in UTF-8"), "write it as UTF-8")
    })
}

pub(crate) fn read_bytes(
    path: &Path,
    bytes_max: u64,
    refused_mode: u32,
) -> Result<Vec<u8>, ConfigProblem> {
    let name = path.display();
    let failed = |error: std::io::Error| {
        let instead = match error.kind() {
            ErrorKind::NotFound => "make it, or name another",
            ErrorKind::PermissionDenied => "run this as root",
            _ => "name a file that can be read",
        };
        ConfigProblem::new(format!("cannot read {name}: {error}"), instead)
    };
    // Opening another type of file, such as a pipe, might block.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ConfigProblem::new(format!("{name} is no file"), "name a file"));
    }
    crate::check_ownership(path)?;
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & refused_mode != 0 {
        return Err(ConfigProblem::new(
            format!("others may read or change {name} (mode {:04o})", mode & 0o7777),
            format!("chmod 600 {name}, and think of a new password if others have been there"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(ConfigProblem::new(
            format!("{name} is longer than {bytes_max} bytes"),
            "name the file that was meant".to_owned(),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::trust_anchors;
    use crate::{ParsedConfig, Severity, parse};
    use std::fs::{Permissions, set_permissions, write};
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
            problems.iter().map(|problem| problem.render().replace(&place, "")).collect()
        };
        let advice = "add LoadCredential=corp:/PATH below [Service] by `systemctl edit rosterd`, then \
                      `systemctl restart rosterd`";
        let begin = "roster.toml:8: domain.corp.bind_password_file: cannot read";
        let none = "the credential corp: the service manager gave none to this process";
        assert_eq!(said(None), [format!("{begin} {none}; {advice}")]);
        let missing = "corp: No such file or directory (os error 2)";
        assert_eq!(said(Some(folder.path())), [format!("{begin} {missing}; {advice}")]);

        let path = folder.path().join("corp");
        write(&path, "secret\n").unwrap();
        // As systemd creates them.
        set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
        let secrets = parsed.read_secrets(false, Some(folder.path())).unwrap_or_default();
        assert_eq!(secrets[0].bind_password.as_deref(), Some("secret"));
        set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        set_permissions(&path, Permissions::from_mode(0o404)).unwrap();
        assert!(said(Some(folder.path()))[0].contains("others may read or change"));
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

    fn said(folder: &Path) -> Vec<String> {
        let problems = parsed(folder).read_secrets(false, None).err().unwrap_or_default();
        let place = format!("{}/", folder.display());
        problems.iter().map(|p| format!("{}: {p}", p.line).replace(&place, "")).collect()
    }

    #[test]
    fn a_password_is_the_file_without_the_newline_at_its_end() {
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
    fn what_a_back_end_could_not_use_as_an_authority_is_refused() {
        let whole = AUTHORITY.trim_end();
        let inside = whole.len() / 2;
        assert_eq!(trust_anchors(&format!("{whole}\n{whole}\n")).map(|all| all.len()), Ok(2));
        for (text, why) in [
            (String::new(), "holds no certificate in PEM"),
            (whole.replace("CERTIFICATE", "PRIVATE KEY"), "holds no certificate in PEM"),
            ("-----BEGIN CERTIFICATE-----\n".to_owned(), "is not PEM"),
            (format!("{whole}\n{}", &whole[..inside]), "is not PEM"),
            (
                format!("{}\n-----END CERTIFICATE-----\n", &whole[..28 + 64]),
                "has a certificate, number 1, that is none",
            ),
            (whole.replace("MIIB", "MI*B"), "is not PEM"),
        ] {
            let wrong = trust_anchors(&text).unwrap_err();
            assert!(wrong.starts_with(why), "{text}: {wrong}");
        }
    }

    #[test]
    fn a_host_without_authorities_is_told_of_where_a_domain_relies_on_them() {
        let said = |keys: &str| -> Vec<String> {
            let parsed = parse(&format!(
                "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nbase = 'dc=x'\n{keys}"
            ));
            let none = || Err::<(), _>("there are none".to_owned());
            let problems = parsed.unwrap().warn_missing_authorities(none);
            assert!(problems.iter().all(|problem| problem.severity == Severity::Warning));
            problems.iter().map(|problem| format!("{}: {problem}", problem.line)).collect()
        };
        let told = |place: &str| {
            vec![format!(
                "{place}: no server's certificate will be believed: there are none; install \
                 ca-certificates, or name a PEM file with tls_ca"
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
                 (os error 2); make it, or name another",
                "9: domain.corp.tls_ca: cannot read ca: No such file or directory (os error 2); \
                 make it, or name another",
            ]
        );
        write(folder.path().join("password"), "secret").unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o644)).unwrap();
        write(folder.path().join("ca"), "secret").unwrap();
        assert_eq!(
            said(folder.path()),
            [
                "8: domain.corp.bind_password_file: others may read or change password (mode 0644); \
                 chmod 600 password, and think of a new password if others have been there",
                "9: domain.corp.tls_ca: ca holds no certificate in PEM; name a PEM file of \
                 authorities, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----; from \
                 DER: openssl x509 -inform der",
            ]
        );
        write(folder.path().join("ca"), AUTHORITY).unwrap();
        set_permissions(folder.path().join("ca"), Permissions::from_mode(0o666)).unwrap();
        assert_eq!(
            said(folder.path())[1],
            "9: domain.corp.tls_ca: ca has mode 0666, by which other users can change it; check the \
             content of ca, then chmod go-w ca"
        );
        write(folder.path().join("password"), "\n").unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o600)).unwrap();
        assert!(said(folder.path())[0].contains("password is empty; write the password into it"));
        write(folder.path().join("password"), "x".repeat(5000)).unwrap();
        assert!(said(folder.path())[0].contains("longer than 4096 bytes"));
    }
}
