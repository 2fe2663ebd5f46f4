// SPDX-License-Identifier: MIT OR Apache-2.0
//! An authority and certificates of servers, made by openssl: a good one and three bad ones.

use crate::test_host::{find_tool, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The certificate that a server presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCertificate {
    /// For localhost and 127.0.0.1, valid.
    Good,
    /// For the same, but expired.
    Expired,
    /// Valid, for another host.
    OtherName,
    /// Self-signed and a certificate authority, as `openssl req -x509` makes it by default.
    SelfSigned,
}

impl ServerCertificate {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Expired => "expired",
            Self::OtherName => "other-name",
            Self::SelfSigned => "self-signed",
        }
    }
}

/// The files.
#[derive(Debug)]
pub struct TestCertificates {
    dir: PathBuf,
}

impl TestCertificates {
    /// Makes all of them in the directory `tls` of `parent`.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    pub fn generate(parent: &Path) -> Self {
        let folder = parent.join("tls");
        fs::create_dir(&folder).expect("create tls");
        fs::create_dir(folder.join("issued")).expect("create tls/issued");
        fs::write(folder.join("index"), "").expect("write the list of certificates");
        fs::write(folder.join("ca.conf"), CONFIG)
            .expect("write the configuration of the authority");
        let made = Self { dir: folder };
        made.self_sign("/CN=Authority of a test", "authority", "authority");
        made.self_sign("/CN=localhost", "itself", ServerCertificate::SelfSigned.name());
        made.issue(
            ServerCertificate::Good,
            "localhost",
            "here",
            "20200101000000Z",
            "20990101000000Z",
        );
        made.issue(
            ServerCertificate::Expired,
            "localhost",
            "here",
            "20200101000000Z",
            "20200201000000Z",
        );
        made.issue(
            ServerCertificate::OtherName,
            "elsewhere",
            "there",
            "20200101000000Z",
            "20990101000000Z",
        );
        made
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir.join("authority.pem")
    }

    /// A server's certificate.
    #[must_use]
    pub fn certificate(&self, which: ServerCertificate) -> PathBuf {
        self.dir.join(which.name()).with_extension("pem")
    }

    /// The certificate's key.
    #[must_use]
    pub fn key(&self, which: ServerCertificate) -> PathBuf {
        self.dir.join(which.name()).with_extension("key")
    }

    /// Makes a certificate of a client with this name, and its key. Returns their paths.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    pub fn client(&self, name: &str, until: &str) -> (PathBuf, PathBuf) {
        self.issue_as(name, &format!("/CN={name}"), "client", "20200101000000Z", until);
        let file = |suffix| self.dir.join(format!("{name}.{suffix}"));
        fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).expect("chmod");
        (file("pem"), file("key"))
    }

    fn self_sign(&self, subject: &str, extensions: &str, name: &str) {
        let [key, certificate] = ["key", "pem"].map(|suffix| format!("{name}.{suffix}"));
        let signs = ["-x509", "-days", "30", "-extensions", extensions];
        self.request(subject, &key, &certificate, &signs);
    }

    fn issue(&self, which: ServerCertificate, name: &str, names: &str, from: &str, until: &str) {
        self.issue_as(which.name(), &format!("/CN={name}"), names, from, until);
    }

    fn issue_as(&self, file: &str, subject: &str, names: &str, from: &str, until: &str) {
        let [key, request, certificate] =
            ["key", "csr", "pem"].map(|suffix| format!("{file}.{suffix}"));
        self.request(subject, &key, &request, &[]);
        self.openssl(&[
            "ca",
            "-batch",
            "-notext",
            "-config",
            "ca.conf",
            "-extensions",
            names,
            "-startdate",
            from,
            "-enddate",
            until,
            "-in",
            &request,
            "-out",
            &certificate,
        ]);
    }

    /// Makes a key and a certificate request for it, or with more arguments the certificate itself.
    fn request(&self, subject: &str, key: &str, out: &str, more: &[&str]) {
        let curve = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let names = ["-subj", subject, "-config", "ca.conf", "-keyout", key, "-out", out];
        self.openssl(&[&curve[..], &names, more].concat());
    }

    fn openssl(&self, args: &[&str]) {
        let done =
            run(Command::new(find_tool("openssl", "openssl")).args(args).current_dir(&self.dir));
        assert_eq!(done.code, 0, "openssl {}: {}", args.join(" "), done.error());
    }
}

/// Only `openssl ca` can issue an expired certificate.
const CONFIG: &str = "[req]
distinguished_name = name
[name]
[ca]
default_ca = authority_of_a_test
[authority_of_a_test]
database = index
new_certs_dir = issued
certificate = authority.pem
private_key = authority.key
rand_serial = yes
default_md = sha256
policy = policy
unique_subject = no
[policy]
commonName = supplied
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[itself]
basicConstraints = critical, CA:TRUE
subjectAltName = DNS:localhost, IP:127.0.0.1
[here]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
[client]
basicConstraints = CA:FALSE
extendedKeyUsage = clientAuth
[there]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:elsewhere.example.com
";
