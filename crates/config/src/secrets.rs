//! The files that a configuration names and back-ends may not read: passwords and authorities.
//!
//! The one part of this crate that opens files. The monitor hands on what it read; `roster
//! check-config` throws it away. The host's own authorities every back-end reads for itself.

use crate::explain::Origin;
use crate::{Bind, Domain, Ldap, Parsed, Problem, Provider, Secrets, Server, Severity};
use rustls_pki_types::{CertificateDer, TrustAnchor, pem::PemObject};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use webpki::anchor_from_trusted_cert;

/// No directory takes longer passwords.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Several times all authorities that distributions ship.
const CA_BYTES_MAX: u64 = 4 << 20;
/// Rights that nobody but the owner has on a password: a group may read it, if the owner says so.
pub(crate) const OTHERS: u32 = 0o037;

impl Parsed {
    /// Reads the secrets of all domains, in their order. An error is everything that is wrong with
    /// the files, by the lines that name them. An unusable keytab is no such error, for it stops only the
    /// logins of its domain: see [`check_keytabs`](Self::check_keytabs). `was_used` is
    /// [`was_keytab_used`](crate::was_keytab_used).
    pub fn read_secrets(&self, was_used: bool) -> Result<Vec<Secrets>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut all = Vec::new();
        for domain in &self.config.domains {
            let mut secrets = Secrets::default();
            if let Provider::Ldap(ldap) = &domain.provider {
                if let Bind::Simple { password_file, .. } = &ldap.bind {
                    match password(password_file) {
                        Ok(password) => secrets.bind_password = Some(password),
                        Err(why) => problems.push(self.problem(domain, "bind_password_file", why)),
                    }
                }
                if let Some(path) = &ldap.tls_ca {
                    match authorities(path) {
                        Ok(text) => secrets.tls_ca = Some(text),
                        Err(why) => problems.push(self.problem(domain, "tls_ca", why)),
                    }
                }
            }
            if let Some(krb5) = &domain.auth.krb5 {
                secrets.keytab = krb5.read_keytab(was_used);
            }
            all.push(secrets);
        }
        if problems.is_empty() { Ok(all) } else { Err(problems) }
    }

    /// Warns of domains whose servers nobody vouches for: they rely on the host's authorities, and
    /// `anchors` says why there are none. It is no error, for they may come later.
    pub fn warn_of_authorities<T>(
        &self,
        anchors: impl FnOnce() -> Result<T, String>,
    ) -> Vec<Problem> {
        let relies = |domain| Some((domain, relies_on_the_host(domain)?));
        let domains: Vec<_> = self.config.domains.iter().filter_map(relies).collect();
        // Nobody reads them for nothing.
        let Some(why) = domains.first().and_then(|_| anchors().err()) else { return Vec::new() };
        let warning = |(domain, key)| {
            let what = format!("no server's certificate will be believed: {why}");
            let problem = self.problem(domain, key, (what, NO_ANCHORS.to_owned()));
            Problem { severity: Severity::Warning, ..problem }
        };
        domains.into_iter().map(warning).collect()
    }

    pub(crate) fn problem(
        &self,
        domain: &Domain,
        key: &str,
        (what, instead): (String, String),
    ) -> Problem {
        let table = crate::domain::domain_path(&domain.name);
        let setting = self.settings.iter().find(|set| set.table == table && set.key == key);
        let line = match setting.map(|setting| setting.origin) {
            Some(Origin::Line(line)) => line,
            _ => 1,
        };
        let key = format!("{table}.{key}");
        Problem { severity: Severity::Error, line, column: 1, key, what, instead: Some(instead) }
    }
}

/// What is wrong, and how to fix it.
pub(crate) type Wrong = (String, String);

/// What to do where the host has no authorities.
pub const NO_ANCHORS: &str = "install ca-certificates, or name a PEM file with tls_ca";

/// The key by which a domain uses TLS without authorities of its own.
fn relies_on_the_host(domain: &Domain) -> Option<&'static str> {
    let Provider::Ldap(ldap) = &domain.provider else { return None };
    let Ldap { servers, start_tls, tls_ca, .. } = &**ldap;
    let is_tls = |server| matches!(server, &Server::Ldaps { .. });
    match tls_ca {
        Some(_) => None,
        None if *start_tls => Some("start_tls"),
        None => servers.iter().any(is_tls).then_some("uris"),
    }
}

fn password(path: &Path) -> Result<String, Wrong> {
    let text = read(path, PASSWORD_BYTES_MAX, OTHERS)?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        // Servers take an empty password for an anonymous bind, and say that all is well.
        return Err((format!("{} is empty", path.display()), "write the password into it".into()));
    }
    Ok(password.to_owned())
}

fn authorities(path: &Path) -> Result<String, Wrong> {
    let text = read(path, CA_BYTES_MAX, 0)?;
    let wrong = |why| {
        (
            format!("{} {why}", path.display()),
            "name a PEM file of authorities, from -----BEGIN CERTIFICATE----- to -----END \
             CERTIFICATE-----; from DER: openssl x509 -inform der"
                .to_owned(),
        )
    };
    trust_anchors(&text).map_err(wrong)?;
    Ok(text)
}

/// The authorities in the text of `tls_ca`, of which there is at least one. The one reader of them: what
/// was checked is what a back-end can use. An error says what the file is or has.
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

/// The host's own authorities as they are now, those passed over that are none. An error says why there
/// is none.
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

fn read(path: &Path, bytes_max: u64, refused_mode: u32) -> Result<String, Wrong> {
    String::from_utf8(read_bytes(path, bytes_max, refused_mode)?).map_err(|_| {
        let what = format!("{} is not text in UTF-8", path.display());
        (what, "write it as UTF-8".to_owned())
    })
}

pub(crate) fn read_bytes(path: &Path, bytes_max: u64, refused_mode: u32) -> Result<Vec<u8>, Wrong> {
    let name = path.display();
    let failed = |error: std::io::Error| {
        let instead = match error.kind() {
            std::io::ErrorKind::NotFound => "make it, or name another".to_owned(),
            std::io::ErrorKind::PermissionDenied => "run this as root".to_owned(),
            _ => "name a file that can be read".to_owned(),
        };
        (format!("cannot read {name}: {error}"), instead)
    };
    // Opening something else, such as a pipe, might wait for ever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err((format!("{name} is no file"), "name a file".to_owned()));
    }
    crate::check_ownership(path)?;
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & refused_mode != 0 {
        return Err((
            format!("others may read or change {name} (mode {:04o})", mode & 0o7777),
            format!("chmod 600 {name}, and think of a new password if others have been there"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err((
            format!("{name} is longer than {bytes_max} bytes"),
            "name the file that was meant".to_owned(),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::trust_anchors;
    use crate::{Parsed, Severity, parse};
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

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

    fn parsed(folder: &Path) -> Parsed {
        let folder = folder.display();
        parse(&format!(
            "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\nuris = ['ldaps://x']\n\
             base = 'dc=x'\nbind_dn = 'cn=x'\nbind_password_file = '{folder}/password'\n\
             tls_ca = '{folder}/ca'\n"
        ))
        .unwrap()
    }

    fn said(folder: &Path) -> Vec<String> {
        let problems = parsed(folder).read_secrets(false).err().unwrap_or_default();
        let place = format!("{}/", folder.display());
        problems.iter().map(|p| format!("{}: {p}", p.line).replace(&place, "")).collect()
    }

    #[test]
    fn a_password_is_the_file_without_the_newline_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().join("password"), " se cret \n").unwrap();
        write(folder.path().join("ca"), format!("x\n{AUTHORITY}")).unwrap();
        set_permissions(folder.path().join("password"), Permissions::from_mode(0o600)).unwrap();
        let secrets = parsed(folder.path()).read_secrets(false).unwrap_or_default();
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
            let problems = parsed.unwrap().warn_of_authorities(none);
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
        assert!(parsed.warn_of_authorities(|| -> Result<(), String> { panic!("read") }).is_empty());
    }

    #[test]
    fn what_is_wrong_with_the_files_is_told_by_the_lines_that_name_them() {
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
