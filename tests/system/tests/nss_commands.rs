// SPDX-License-Identifier: MIT OR Apache-2.0
//! nslcd's own tests of `getent` and `groups`, on its own test data: `test_nsscmds.sh` of the source package
//! nss-pam-ldapd, which scripts/need fetches.

use roster_system_tests::rosterd::{LOCAL_GROUP, LOCAL_PASSWD};
use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::wait::SOON;
use roster_system_tests::{
    Corpus, DomainTable, Rosterd, Schema, Slapd, SlapdOptions, TestHost, run, wait_for,
};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const BASE: &str = "dc=test,dc=tld";

/// The test data has this name in two groups and no such user. nslcd serves such names, Roster does not.
const TEST_USER: &str = "dn: uid=test,ou=people,dc=test,dc=tld\nobjectClass: account\n\
                         objectClass: posixAccount\nuid: test\ncn: test\nuidNumber: 6999\n\
                         gidNumber: 1000\nhomeDirectory: /home/test\n\n";

/// The checks of users and groups in the script.
const CHECKS: usize = 21;

/// The tests of nss-pam-ldapd.
fn sources() -> PathBuf {
    let binary = std::env::current_exe().expect("this program");
    let target = binary.ancestors().nth(3).expect("target");
    let folder = target.join("tools/nss-pam-ldapd/tests");
    assert!(folder.is_dir(), "{} is missing: run scripts/need test", folder.display());
    folder
}

/// Further schemas that the test data needs, as lines of slapd.conf.
fn schemas(config: &str) -> String {
    let mut text = "include /etc/ldap/schema/misc.schema\n".to_owned();
    for line in config.lines() {
        for (entry, directive) in
            [("olcAttributeTypes: ", "attributetype"), ("olcObjectClasses: ", "objectclass")]
        {
            if let Some(definition) = line.strip_prefix(entry) {
                let _ = writeln!(text, "{directive} {definition}");
            }
        }
    }
    text
}

/// Adds one line to the script: lists of groups have no order, and the script expects that of nslcd.
fn in_any_order(script: &str) -> String {
    let compare = "  # check for differences\n";
    assert_eq!(script.matches(compare).count(), 1, "the script compares in one place");
    let sort = "  case $cmd in groups*|'getent group |'*) for file in \"$expectfile\" \"$actualfile\"; do \
                sorted=$(tr ' ' '\\n' <\"$file\" | sort) && echo \"$sorted\" >\"$file\"; done ;; esac\n";
    script.replace(compare, &format!("{sort}{compare}"))
}

/// The host has no local group `users`, because the one of the test data would not be served then. The script looks for
/// nslcd's module in nsswitch.conf.
#[test]
fn nslcd_checks_of_users_and_groups_pass() {
    let sources = sources();
    let read =
        |name: &str| fs::read_to_string(sources.join(name)).expect("read a file of nslcd's tests");
    for schema in ["rfc2307", "rfc2307bis"] {
        let setup = SlapdOptions {
            schemas: schemas(&read("config.ldif")),
            base: BASE.to_owned(),
            ..SlapdOptions::new(Schema::Rfc2307)
        };
        let slapd = Slapd::serving(setup, &format!("{}\n{}", read("test.ldif"), TEST_USER));
        let groups = LOCAL_GROUP.replace("users:x:100:\n", "");
        let locals = Corpus::new("", LOCAL_PASSWD.as_bytes(), groups.as_bytes(), b"");
        let nsswitch = RECOMMENDED_NSSWITCH
            .replace("files roster\ng", "files roster # ldap\ng")
            .replace("files roster\nshadow: files roster", "files roster # ldap\nshadow: files");
        let host = TestHost::new(&locals, &nsswitch);
        fs::write(host.make_config_dir().join("floor"), "min_id 100\n").expect("write the floor");
        let domain = DomainTable::ldap("corp", &slapd)
            .with("schema", &format!("{schema:?}"))
            .with("group_base", "\"ou=groups,dc=test,dc=tld\"")
            .with("group_filter", "\"(|(objectClass=posixGroup)(objectClass=groupOfNames))\"");
        let mut rosterd = Rosterd::on(host, "min_id = 100", &[domain]);
        rosterd.launch();
        wait_for(SOON, || match rosterd.getent("group", "nstgrp3") {
            Some(_) => Ok(()),
            None => Err("the test data is not served".to_owned()),
        });

        // Replaces the script that looks for a running nslcd.
        let checked = rosterd.host().path("checked");
        fs::create_dir(&checked).expect("create a folder");
        let environment = checked.join("testenv.sh");
        fs::write(&environment, "#!/bin/sh\n").expect("write a script");
        fs::set_permissions(&environment, fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut command = rosterd.host().command("sh");
        let script = checked.join("test_nsscmds.sh");
        fs::write(&script, in_any_order(&read("test_nsscmds.sh"))).expect("write the script");
        command.arg(script).env("srcdir", &checked);
        let done = run(&mut command);
        let said = String::from_utf8_lossy(&done.stdout);
        let checks = said.lines().filter(|line| line.contains(": checking \"")).count();
        assert_eq!((done.code, checks), (0, CHECKS), "{schema}: {said}{}", done.error());
        assert!(said.contains("all tests passed"), "{said}");
    }
}
