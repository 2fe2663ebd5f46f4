// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/reference/directory-servers.md is true. Its commands, its LDIF and its lines of slapd.conf turn a mirror of a
//! polled server into one that gets changes at once.

use roster_system_tests::rosterd::OracleSource;
use roster_system_tests::test_host::ProgramOutput;
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    find_tool, run,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/reference/directory-servers.md");

/// More than the servers here give at once before the page was followed.
const USERS: u32 = 30;
const FEW: u32 = 10;

/// The blocks of a section that are marked as of that language, in their order.
fn blocks(section: &str, language: &str) -> Vec<String> {
    let head = format!("\n## {section}\n");
    let (_, text) = PAGE.split_once(&head).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap_or_default();
    let start = format!("\n```{language} host\n");
    let blocks = text.split(&start).skip(1).filter_map(|rest| rest.split_once("\n```"));
    blocks.map(|(block, _)| format!("{block}\n")).collect()
}

/// A program with arguments out of a line of shell, which quotes an argument as a whole or not at all.
fn command(line: &str, package: &str, change: impl Fn(&str) -> String) -> Command {
    let mut words = Vec::new();
    for (i, piece) in line.split(['\'', '"']).enumerate() {
        if i % 2 == 1 {
            words.push(change(piece));
        } else {
            words.extend(piece.split_whitespace().map(&change));
        }
    }
    let mut command = Command::new(find_tool(&words[0], package));
    // `make` has a PREFIX, which dsconf takes for that of its own installation.
    command.args(&words[1..]).env("LDAPNOINIT", "1").env_remove("PREFIX");
    command
}

fn succeeds(command: &mut Command) -> ProgramOutput {
    let done = run(command);
    assert_eq!(
        done.code,
        0,
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        done.error()
    );
    done
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("make a folder")
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("write");
    path
}

/// Checks that everything is mirrored, and that a change is seen at once.
fn is_mirrored(server: &dyn DirectoryServer, rosterd: &Rosterd, directory: &LdifBuilder) {
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
    rosterd.expect_domain_status("corp", "tracking", "syncrepl");
    server.change(&directory.user("newcomer", 4000));
    server.delete(&[directory.user_dn("u7")]);
    rosterd.expect_mirror(&[OracleSource::Server(server)]);
}

/// As Debian's package sets slapd up, and with a limit as low as the entries are few here.
fn plain_slapd(directory: &LdifBuilder) -> Slapd {
    let setup = SlapdOptions {
        syncprov: false,
        size_limit: Some(FEW),
        ..SlapdOptions::new(Schema::Rfc2307bis)
    };
    let slapd = Slapd::loaded(setup, &directory.populated(USERS, 10, 3));
    slapd.edit_conf(|text| {
        let lines = text.lines().filter(|line| *line != "moduleload syncprov");
        let lines = lines.map(|line| match line.starts_with("index ") {
            true => {
                "index objectClass eq\nindex cn,uid eq\nindex uidNumber,gidNumber eq\n\
                     index member,memberUid eq"
            }
            false => line,
        });
        lines.map(|line| format!("{line}\n")).collect()
    });
    slapd
}

#[test]
fn slapd_with_entries_of_configuration_is_switched_on_by_the_page() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mut slapd = plain_slapd(&directory);
    slapd.use_cn_config();
    slapd.start();
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_domain_status("corp", "online", false);
    let folder = folder();
    let ldif = blocks("OpenLDAP (slapd)", "ldif");
    let ldif = file(folder.path(), "mirror.ldif", &ldif[0]);
    let change = |word: &str| match word {
        "ldapi:///" => slapd.ldapi_uri(),
        "mirror.ldif" => ldif.display().to_string(),
        word => word.to_owned(),
    };
    let lines = blocks("OpenLDAP (slapd)", "sh");
    let [search, modify] = lines.as_slice() else { panic!("two commands: {lines:?}") };
    let shown = succeeds(&mut command(search, "ldap-utils", change)).text();
    assert!(shown.contains("dn: olcDatabase={1}mdb,cn=config\n"), "{shown}");
    assert!(!shown.contains("syncprov") && shown.contains("olcDbIndex: uid eq"), "{shown}");
    succeeds(&mut command(modify, "ldap-utils", change));
    let shown = succeeds(&mut command(search, "ldap-utils", change)).text();
    assert!(shown.contains("syncprov") && shown.contains("olcDbIndex: entryUUID"), "{shown}");
    is_mirrored(&slapd, &rosterd, &directory);
}

#[test]
fn slapd_with_slapd_conf_is_switched_on_by_the_page() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mut slapd = plain_slapd(&directory);
    let lines = blocks("OpenLDAP (slapd)", "slapd.conf");
    let [module, database] = lines.as_slice() else { panic!("two blocks: {lines:?}") };
    slapd.edit_conf(|text| {
        let lines = text.lines().filter(|line| !line.starts_with("index "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let text = text.replacen("database mdb\n", &format!("{module}database mdb\n"), 1);
        text.replacen("database monitor\n", &format!("{database}database monitor\n"), 1)
    });
    slapd.start();
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    is_mirrored(&slapd, &rosterd, &directory);
}

/// The state after an installation: without the plug-ins, and with limits.
fn plain_ds389(directory: &LdifBuilder) -> Ds389 {
    let mut server = Ds389::serving(&directory.populated(USERS, 10, 3));
    for name in ["Content Synchronization", "Retro Changelog Plugin"] {
        let entry = format!("cn={name},cn=plugins,cn=config");
        server.set(&entry, "nsslapd-pluginEnabled", &["off"]);
    }
    server.set("cn=Retro Changelog Plugin,cn=plugins,cn=config", "nsslapd-attribute", &[]);
    server.set("cn=config", "nsslapd-sizelimit", &[&FEW.to_string()]);
    let database = "cn=config,cn=ldbm database,cn=plugins,cn=config";
    server.set(database, "nsslapd-lookthroughlimit", &[&FEW.to_string()]);
    server.stop();
    server.start();
    server
}

fn is_switched_on(mut server: Ds389, directory: &LdifBuilder, how: impl FnOnce(&Ds389)) {
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &server)]);
    rosterd.expect_domain_status("corp", "online", false);
    how(&server);
    server.stop();
    server.start();
    is_mirrored(&server, &rosterd, directory);
}

const DS389: &str = "389 Directory Server";

#[test]
fn ds389_is_switched_on_by_the_ldif_of_the_page() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    is_switched_on(plain_ds389(&directory), &directory, |server| {
        for ldif in blocks(DS389, "ldif") {
            server.change(&ldif);
        }
    });
}

#[test]
fn ds389_is_switched_on_by_the_commands_of_the_page() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    is_switched_on(plain_ds389(&directory), &directory, |server| {
        let limits = blocks(DS389, "ldif").pop().expect("the reader's limits");
        server.change(&limits);
        let password = server.server_dir().join("admin.password");
        for line in blocks(DS389, "sh").iter().flat_map(|block| block.lines()) {
            // The caller did this.
            if line == "dsctl INSTANCE restart" {
                continue;
            }
            let remote = "dsconf -D \"cn=Directory Manager\" -y PASSWORD URI ";
            let line = line.strip_prefix("dsconf INSTANCE ").expect("no other program");
            let line = format!("{remote}{line}");
            let change = |word: &str| match word {
                "PASSWORD" => password.display().to_string(),
                "URI" => server.uri(),
                word => word.to_owned(),
            };
            succeeds(&mut command(&line, "python3-lib389", change));
        }
    });
}
