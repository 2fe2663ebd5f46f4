// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client certificates: a slapd that demands one, by ldaps:// and StartTLS, as an identity and beside a simple bind.

use roster_messages::Message;
use roster_messages::table::{config, directory};
use roster_system_tests::rosterd::{LONG_WAIT, OracleSource};
use roster_system_tests::servers::ServerCertificate;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, find_tool,
    run, wait_until,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOREVER: &str = "20990101000000Z";

fn slapd() -> Slapd {
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.anonymous = false;
    setup.certificate = Some(ServerCertificate::Good);
    // slapd applies TLSVerifyClient to connections with TLS only.
    setup.schemas = "TLSVerifyClient demand\n\
                     authz-regexp \"cn=client.*\" \"cn=reader,dc=example,dc=com\"\n"
        .to_owned();
    Slapd::serving(setup, &LdifBuilder::new(Schema::Rfc2307).populated(50, 20, 5))
}

/// A copy of a certificate and its key, which a renewal replaces.
struct HostCertificate {
    folder: tempfile::TempDir,
}

impl HostCertificate {
    fn new(files: &(PathBuf, PathBuf)) -> Self {
        let own = Self { folder: tempfile::tempdir().unwrap() };
        own.renew(files);
        own
    }

    fn renew(&self, (certificate, key): &(PathBuf, PathBuf)) {
        fs::copy(certificate, self.certificate()).unwrap();
        fs::copy(key, self.key()).unwrap();
        fs::set_permissions(self.key(), Permissions::from_mode(0o600)).unwrap();
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("host.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("host.key")
    }

    fn add_to(&self, domain: DomainTable, authority: &Path) -> DomainTable {
        domain
            .with("tls_ca", &format!("{authority:?}"))
            .with("tls_cert", &format!("{:?}", self.certificate()))
            .with("tls_key", &format!("{:?}", self.key()))
    }
}

/// Runs check-config. Returns its status and its output.
fn check(rosterd: &Rosterd) -> (i32, String) {
    let done = rosterd.roster(&["check-config", rosterd.config().to_str().unwrap()]);
    (done.code, format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error()))
}

fn external(domain: DomainTable) -> DomainTable {
    domain.without("bind_dn").without("bind_password_file").with("bind", "\"external\"")
}

#[test]
fn certificate_is_identity_or_shown_beside_bind() {
    let slapd = slapd();
    let own = HostCertificate::new(&slapd.certificates().client("client1", FOREVER));
    let clear = format!("ldap://localhost:{}", slapd.port());
    let ldaps = slapd.ldaps_uri();
    for (uri, start_tls) in [(&ldaps, "false"), (&clear, "true")] {
        let base = DomainTable::ldap_through("corp", &slapd, &[uri]).with("start_tls", start_tls);
        let base = own.add_to(base, &slapd.authority());
        for domain in [external(base.clone()), base] {
            let rosterd = Rosterd::start(&[domain]);
            rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        }
    }
}

#[test]
fn certificate_missing_or_expired_has_code() {
    let slapd = slapd();
    let domain = DomainTable::ldap_through("corp", &slapd, &[&slapd.ldaps_uri()]);
    let mut rosterd =
        Rosterd::start(&[domain.clone().with("tls_ca", &format!("{:?}", slapd.authority()))]);
    // GnuTLS sends no alert, unlike OpenSSL.
    let rejected = directory::CLOSED_BEFORE_REPLY.code;
    rosterd.expect_domain_status("corp", "reason_code", rejected);
    rosterd.stop();
    let own = HostCertificate::new(&slapd.certificates().client("client2", "20200201000000Z"));
    rosterd.set_domains(&[external(own.add_to(domain, &slapd.authority()))]);
    let (code, said) = check(&rosterd);
    assert!(code == 1 && said.contains(config::CLIENT_CERTIFICATE_EXPIRED.code), "{said}");
    // The daemon starts nevertheless: other domains do not depend on the certificate.
    rosterd.launch();
    rosterd.expect_domain_status("corp", "reason_code", rejected);
    // A renewed certificate needs no reload.
    own.renew(&slapd.certificates().client("client3", FOREVER));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(check(&rosterd).0, 0, "{}", check(&rosterd).1);
}

/// check-config names each defect of the files, with the line of its key.
#[test]
fn certificate_defect_has_line_and_cure() {
    let slapd = slapd();
    let certificates = slapd.certificates();
    let good = certificates.client("client6", FOREVER);
    let other = certificates.client("client7", FOREVER);
    let own = HostCertificate::new(&good);
    let domain = DomainTable::ldap_through("corp", &slapd, &[&slapd.ldaps_uri()]);
    let rosterd = Rosterd::prepared(&[external(own.add_to(domain, &slapd.authority()))]);
    let config = fs::read_to_string(rosterd.config()).unwrap();
    let line_of = |key: &str| config.lines().position(|line| line.starts_with(key)).unwrap() + 1;
    let encrypt = |key: &Path| {
        let mut openssl = Command::new(find_tool("openssl", "openssl"));
        openssl.args(["pkey", "-aes256", "-passout", "pass:secret", "-in"]).arg(&good.1);
        assert_eq!(run(openssl.arg("-out").arg(key)).code, 0);
    };
    let set_mode = |key: &Path| fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    let write = |path: &Path| fs::write(path, "hunter2").unwrap();
    let cases: [(&str, &Message, &dyn Fn()); 7] = [
        ("tls_key", &config::CLIENT_KEY_MISMATCH, &|| drop(fs::copy(&other.1, own.key()))),
        ("tls_key", &config::CLIENT_KEY_ENCRYPTED, &|| encrypt(&own.key())),
        ("tls_key", &config::INVALID_CLIENT_KEY, &|| write(&own.key())),
        ("tls_key", &config::SECRET_EXPOSED, &|| set_mode(&own.key())),
        ("tls_key", &config::FILE_MISSING, &|| fs::remove_file(own.key()).unwrap()),
        ("tls_cert", &config::INVALID_CLIENT_CERTIFICATE, &|| write(&own.certificate())),
        ("tls_cert", &config::FILE_MISSING, &|| fs::remove_file(own.certificate()).unwrap()),
    ];
    for (key, message, damage) in cases {
        own.renew(&good);
        damage();
        let (code, said) = check(&rosterd);
        let place = format!("roster.toml:{}: domain.corp.{key}: ", line_of(key));
        assert!(code == 1 && said.contains(&place) && said.contains(message.code), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    own.renew(&good);
    assert_eq!(check(&rosterd).0, 0, "{}", check(&rosterd).1);
}

#[test]
fn certificate_renewal_keeps_the_mirror() {
    let slapd = slapd();
    let own = HostCertificate::new(&slapd.certificates().client("client4", FOREVER));
    let domain = DomainTable::ldap_through("corp", &slapd, &[&slapd.ldaps_uri()]);
    let rosterd = Rosterd::start(&[external(own.add_to(domain, &slapd.authority()))]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    // Half of a renewal: the key is of another certificate, and changes nothing.
    let next = slapd.certificates().client("client5", FOREVER);
    fs::copy(&next.0, own.certificate()).unwrap();
    own.renew(&next);
    wait_until(LONG_WAIT, "the new certificate is in force", || {
        rosterd.log().contains("the new client certificate is in force")
    });
    let directory = LdifBuilder::new(Schema::Rfc2307);
    slapd.set(&directory.user_dn("u1"), "loginShell", &["/bin/other"]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert!(!rosterd.log().contains("PRIVATE KEY"));
}
