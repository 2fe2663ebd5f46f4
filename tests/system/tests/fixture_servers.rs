// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory servers have the properties that the other tests rely on.

use roster_system_tests::servers::{DirectoryServer, READER_PASSWORD, ServerCertificate};
use roster_system_tests::{Ds389, LdifBuilder, Schema, Slapd, SlapdOptions, find_tool, run};
use std::process::Command;

fn names(server: &dyn DirectoryServer, filter: &str) -> Vec<String> {
    let found = String::from_utf8(server.search(server.base(), filter, &["1.1"])).expect("ASCII");
    found.lines().filter_map(|line| Some(line.strip_prefix("dn: ")?.to_owned())).collect()
}

fn takes_changes(server: &dyn DirectoryServer) {
    let directory = LdifBuilder::new(server.schema());
    let people = format!("ou=people,{}", server.base());
    assert_eq!(names(server, "(uid=u7)"), [directory.user_dn("u7")]);
    server.change(&directory.user("newcomer", 4000));
    server.rename(&directory.user_dn("newcomer"), "uid=renamed", None);
    assert_eq!(names(server, "(uidNumber=4000)"), [directory.user_dn("renamed")]);
    server.set(&directory.user_dn("renamed"), "uidNumber", &["4001"]);
    server.change(&directory.membership("g1", "renamed", true));
    server.rename(&people, "ou=staff", None);
    assert_eq!(names(server, "(uid=renamed)"), [format!("uid=renamed,ou=staff,{}", server.base())]);
    server.delete(&[format!("uid=renamed,ou=staff,{}", server.base())]);
    assert!(names(server, "(uid=renamed)").is_empty());
}

fn reads(uri: &str, options: &[&str]) -> i32 {
    let mut search = Command::new(find_tool("ldapsearch", "ldap-utils"));
    search.env("LDAPNOINIT", "1").args(["-LLL", "-H", uri, "-b", "ou=people,dc=example,dc=com"]);
    run(search.args(options).args(["(uid=u1)", "uidNumber"])).code
}

#[test]
fn slapd_takes_changes_counts_searches_and_goes_back_in_time() {
    for schema in [Schema::Rfc2307, Schema::Rfc2307bis] {
        let ldif = LdifBuilder::new(schema).populated(20, 10, 3);
        let mut slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
        let before = slapd.searches();
        assert_eq!(reads(&slapd.uri(), &["-x"]), 0);
        assert_eq!(slapd.searches(), before + 1);
        slapd.stop();
        let saved = slapd.save();
        slapd.start();
        takes_changes(&slapd);
        slapd.stop();
        slapd.restore(&saved);
        slapd.start();
        assert_eq!(names(&slapd, "(ou=people)").len(), 1, "before the change it was people");
    }
}

#[test]
fn fixture_slapd_has_certificates_and_peer_identity() {
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.certificate = Some(ServerCertificate::Good);
    setup.anonymous = false;
    let mut slapd = Slapd::serving(setup, &LdifBuilder::new(Schema::Rfc2307).populated(2, 2, 1));
    const NO_SUCH_OBJECT: i32 = 32;
    assert_eq!(reads(&slapd.uri(), &["-x"]), NO_SUCH_OBJECT, "anonymous sees nothing");
    assert_eq!(reads(&slapd.ldapi_uri(), &["-Q", "-Y", "EXTERNAL"]), 0);
    for (certificate, trusted) in [
        (ServerCertificate::Good, true),
        (ServerCertificate::Expired, false),
        (ServerCertificate::OtherName, false),
    ] {
        slapd.stop();
        slapd.set_certificate(certificate);
        slapd.start();
        let reader = ["-x", "-D", "cn=reader,dc=example,dc=com", "-w", READER_PASSWORD];
        let authority = format!("-oTLS_CACERT={}", slapd.authority().display());
        let mut options = vec![authority.as_str()];
        options.extend(reader);
        assert_eq!(reads(&slapd.ldaps_uri(), &options) == 0, trusted, "{certificate:?}");
    }
}

#[test]
fn ds389_takes_changes_and_shows_entries_to_the_reader_alone() {
    let server = Ds389::serving(&LdifBuilder::new(Schema::Rfc2307bis).populated(20, 10, 3));
    let reader = ["-x", "-D", "cn=reader,dc=example,dc=com", "-w", READER_PASSWORD];
    assert_eq!(reads(&server.uri(), &reader), 0);
    takes_changes(&server);
}
