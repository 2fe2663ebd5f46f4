// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts on one directory: one with SSSD 2.8, and one with the result of `roster migrate-config`. Users, groups, logins
//! and refusals of a corpus of oddities are equal, except for the differences that a row of the corpus names.
//! `roster domain compare-ids` finds these differences in SSSD's cache and no others.

use roster_migration::cache;
use roster_migration::sssd::SssdConf;
use roster_system_tests::pam;
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{READER_PASSWORD, ServerCertificate, Sssd};
use roster_system_tests::{
    DirectoryServer, LdifBuilder, PamHost, ProgramOutput, Rosterd, Schema, Slapd, SlapdOptions,
    needs_root, roster_program, run, wait_for,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// An oddity of real directories.
struct Oddity {
    /// A part of the corpus.
    what: &'static str,
    /// Users to compare.
    users: &'static [&'static str],
    /// Groups to compare.
    groups: &'static [&'static str],
    /// The kind of difference between the hosts. `None`: equal.
    difference: Option<&'static str>,
}

/// The corpus. [`ldif`] has its entries.
const ODDITIES: &[Oddity] = &[
    Oddity {
        what: "plain users and a group",
        users: &["alice", "bob"],
        groups: &["staff"],
        difference: None,
    },
    Oddity {
        what: "a user in many groups",
        users: &["many"],
        groups: &["g0", "g49"],
        difference: None,
    },
    Oddity {
        what: "members of nested groups",
        users: &["deep"],
        groups: &["outer", "inner"],
        difference: None,
    },
    Oddity {
        what: "groups in each other",
        users: &["loop"],
        groups: &["left", "right"],
        difference: None,
    },
    Oddity {
        what: "no gecos, no shell",
        users: &["bare"],
        groups: &[],
        // SSSD serves cn in place of a missing gecos.
        difference: Some("full name as gecos"),
    },
    Oddity {
        what: "names with dots and dashes",
        users: &["a.b-c_d"],
        groups: &["x.y-z"],
        difference: None,
    },
    Oddity { what: "members that do not exist", users: &[], groups: &["ghosts"], difference: None },
    Oddity { what: "a hidden user", users: &["hidden"], groups: &["hiders"], difference: None },
    Oddity {
        what: "a primary group without an entry",
        users: &["lonely"],
        groups: &[],
        difference: None,
    },
    Oddity {
        what: "a user that an access list denies",
        users: &["eve"],
        groups: &[],
        difference: None,
    },
    Oddity {
        what: "a user outside of the allowed group",
        users: &["guest"],
        groups: &[],
        difference: None,
    },
    Oddity {
        what: "an id below 1000",
        users: &["low"],
        groups: &[],
        difference: Some("id below min_id"),
    },
    Oddity {
        what: "a name of digits",
        users: &["1234"],
        groups: &[],
        difference: Some("name of digits"),
    },
    Oddity {
        what: "members through a group without gidNumber",
        users: &["roleuser"],
        groups: &["byrole"],
        // Roster's default nested_group_filter has groupOfMembers. SSSD follows only entries of its group class.
        difference: Some("nesting through groups without gidNumber"),
    },
];

/// The limit of the kinds of differences.
const KINDS_MAX: usize = 5;

const PASSWORD: &str = "correct horse";

fn ldif() -> String {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mut text = directory.tree();
    let names: Vec<&str> = ODDITIES.iter().flat_map(|oddity| oddity.users).copied().collect();
    for (name, uid) in names.iter().zip(20_000..) {
        let (uid, gid) = match *name {
            "low" => (600, 20_000),
            "lonely" => (uid, 39_999),
            "guest" => (uid, 39_998),
            _ => (uid, 20_000),
        };
        let mut entry = directory.user_in(name, uid, gid);
        if *name == "bare" {
            entry = entry
                .lines()
                .filter(|line| !line.starts_with("gecos") && !line.starts_with("loginShell"))
                .fold(String::new(), |text, line| text + line + "\n")
                + "\n";
        }
        text += &entry.replacen("uid: ", &format!("userPassword: {PASSWORD}\nuid: "), 1);
    }
    let allowed: Vec<&str> = names.iter().copied().filter(|name| *name != "guest").collect();
    text += &directory.group("staff", 20_000, &allowed);
    for number in 0..50 {
        text += &directory.group(&format!("g{number}"), 30_000 + number, &["many"]);
    }
    text += &directory.group_of_groups("inner", 30_100, &["deep"], &[]);
    text += &directory.group_of_groups("outer", 30_101, &["alice"], &["inner"]);
    text += &directory.group_of_groups("left", 30_102, &["loop"], &["right"]);
    text += &directory.group_of_groups("right", 30_103, &["bob"], &["left"]);
    text += &directory.group("x.y-z", 30_104, &["a.b-c_d"]);
    text += &directory.group("ghosts", 30_105, &["alice", "nobody-has-this-name"]);
    text += &directory.group("hiders", 30_106, &["hidden", "alice"]);
    text += &directory.group_of_groups("byrole", 30_107, &["alice"], &["role"]);
    let _ = write!(
        text,
        "dn: {}\nobjectClass: groupOfMembers\ncn: role\nmember: {}\n\n",
        directory.group_dn("role"),
        directory.user_dn("roleuser")
    );
    text
}

/// Schema and rules of the host of the corpus.
const RULES: &str = "ldap_schema = rfc2307bis\nldap_group_nesting_level = 5\naccess_provider = simple\nsimple_allow_groups = staff\n\
                     simple_deny_users = eve\n";

fn sssd_conf(slapd: &Slapd, rules: &str) -> String {
    format!(
        "[sssd]\nservices = nss, pam\ndomains = corp\n\n[nss]\nfilter_users = root, hidden\ndefault_shell = /bin/sh\n\n\
         [pam]\noffline_credentials_expiration = 7\n\n\
         [domain/corp]\nid_provider = ldap\nldap_uri = {}\nldap_search_base = {}\n\
         ldap_tls_cacert = {}\nldap_default_bind_dn = {}\nldap_default_authtok = {READER_PASSWORD}\n\
         sudo_provider = none\nautofs_provider = none\ncache_credentials = true\nfallback_homedir = /home/%u\n\
         entry_cache_timeout = 5400\n{rules}",
        slapd.ldaps_uri(),
        slapd.base(),
        slapd.authority().display(),
        slapd.reader_dn(),
    )
}

/// The fields of a passwd line without the password.
fn passwd_fields(line: &str) -> Vec<&str> {
    let fields = line.trim().split(':').enumerate();
    fields.filter(|(place, _)| *place != 1).map(|(_, field)| field).collect()
}

/// Users that Roster rejects. They are missing in its groups as well.
const REJECTED: [&str; 2] = ["low", "1234"];

/// Name, gid and sorted members of a group line, without rejected members.
fn group_fields(line: &str) -> (Vec<String>, BTreeSet<String>) {
    let fields: Vec<&str> = line.trim().split(':').collect();
    let [name, _, gid, members] = fields[..] else {
        return (vec![line.to_owned()], BTreeSet::new());
    };
    let members = members.split(',').filter(|name| !name.is_empty() && !REJECTED.contains(name));
    (vec![name.to_owned(), gid.to_owned()], members.map(str::to_owned).collect())
}

/// Replies of a host about the corpus, one text for each question.
type Answers = BTreeMap<String, String>;

fn answers(
    getent: impl Fn(&str, &str) -> String,
    groups_of: impl Fn(&str) -> String,
    login: impl Fn(&str, &str) -> bool,
) -> Answers {
    let mut answers = Answers::new();
    for oddity in ODDITIES {
        for user in oddity.users {
            let passwd = format!("{:?}", passwd_fields(&getent("passwd", user)));
            answers.insert(format!("passwd {user}"), passwd);
            answers.insert(format!("groups of {user}"), groups_of(user));
            for password in [PASSWORD, "wrong"] {
                answers.insert(
                    format!("login of {user}: {password}"),
                    login(user, password).to_string(),
                );
            }
        }
        for group in oddity.groups {
            let group_line = format!("{:?}", group_fields(&getent("group", group)));
            answers.insert(format!("group {group}"), group_line);
        }
    }
    answers
}

/// The output, which is empty for a name that is not found.
fn stdout(done: &ProgramOutput) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn sorted_ids(text: &str) -> String {
    let ids: BTreeSet<&str> = text.split_whitespace().collect();
    ids.into_iter().collect::<Vec<_>>().join(" ")
}

fn sssd_answers(sssd: &Sssd) -> Answers {
    answers(
        |database, key| stdout(&sssd.getent(database, key)),
        |user| sorted_ids(&stdout(&run(sssd.command("id").args(["-G", user])))),
        |user, password| {
            let operations = ["authenticate", "acct_mgmt"];
            let done = sssd.run_pamtester(user, &operations, &[password]);
            done.code == 0
        },
    )
}

fn roster_answers(rosterd: &Rosterd) -> Answers {
    let pam = PamHost::on(rosterd, "alice");
    answers(
        |database, key| stdout(&run(pam.command("getent").args(["-s", "roster", database, key]))),
        |user| sorted_ids(&stdout(&run(pam.command("id").args(["-G", user])))),
        |user, password| {
            let operations = ["authenticate", "acct_mgmt"];
            pam.run_pamtester("alone", user, &operations, &[password]).code == 0
        },
    )
}

/// Converts the configuration of that SSSD with the program, and starts a daemon with the result. `without` names settings
/// that stop the conversion.
fn moved_host(sssd: &Sssd, without: &[&str]) -> Rosterd {
    let mut rosterd = Rosterd::installed(&[]);
    pam::prepare(&rosterd);
    let output = rosterd.host().path("converted.toml");
    let mut migrate = Command::new(roster_program());
    migrate.arg("migrate-config").arg("--sssd").arg(sssd.conf()).arg("--output").arg(&output);
    migrate.args(without.iter().flat_map(|name| ["--without", name]));
    let done = run(&mut migrate);
    assert_eq!(done.code, 0, "{}", done.error());
    let text = fs::read_to_string(&output).expect("the result");
    assert!(!text.contains(READER_PASSWORD), "{text}");
    fs::write(rosterd.config(), &text).expect("write roster.toml");
    fs::set_permissions(rosterd.config(), fs::Permissions::from_mode(0o644)).expect("chmod");
    rosterd.launch();
    rosterd
}

/// Waits until SSSD finds a user.
fn wait_for_user(sssd: &Sssd, user: &str) {
    wait_for(SOON, || {
        let done = sssd.getent("passwd", user);
        if done.code == 0 { Ok(()) } else { Err(done.error()) }
    });
}

fn compare_ids(rosterd: &Rosterd, sssd: &Sssd) -> (i32, Value) {
    let mut command = Command::new(roster_program());
    command.args(["domain", "compare-ids", "corp", "--with", "sssd", "--json", "--cache-dir"]);
    command.arg(sssd.cache_dir()).arg("--sssd").arg(sssd.conf());
    command.arg("--snapshot").arg(rosterd.host().snapshot_path());
    let done = run(&mut command);
    let report = serde_json::from_slice(&done.stdout);
    (done.code, report.unwrap_or_else(|error| panic!("{error}: {}", done.error())))
}

/// Names in the corpus with a difference.
fn different_names() -> BTreeSet<&'static str> {
    let different = ODDITIES.iter().filter(|oddity| oddity.difference.is_some());
    different.flat_map(|oddity| oddity.users.iter().chain(oddity.groups)).copied().collect()
}

#[test]
fn moved_host_equals_sssd_host() {
    if !needs_root() {
        return;
    }
    let setup = SlapdOptions {
        certificate: Some(ServerCertificate::Good),
        ..SlapdOptions::new(Schema::Rfc2307bis)
    };
    let slapd = Slapd::serving(setup, &ldif());
    let sssd = Sssd::with_conf(&sssd_conf(&slapd, RULES));
    wait_for_user(&sssd, "alice");
    let before = sssd_answers(&sssd);
    assert_eq!(before["login of alice: correct horse"], "true", "{before:#?}");
    assert_eq!(before["login of eve: correct horse"], "false");
    // No group of the corpus nests deeper.
    let rosterd = moved_host(&sssd, &["domain/corp/ldap_group_nesting_level"]);
    rosterd.expect_domain_status("corp", "complete", true);
    let after = roster_answers(&rosterd);
    let different = different_names();
    let mut unexpected = Vec::new();
    for (question, answer) in &before {
        let name = question.split([' ', ':']).find(|word| different.contains(word));
        if *answer != after[question] && name.is_none() {
            unexpected
                .push(format!("{question}: {answer} with SSSD, {} with Roster", after[question]));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    let kinds: BTreeSet<_> = ODDITIES.iter().filter_map(|oddity| oddity.difference).collect();
    assert!(kinds.len() <= KINDS_MAX, "{kinds:?}");
    for oddity in ODDITIES.iter().filter(|oddity| oddity.difference.is_some()) {
        let names: Vec<_> = oddity.users.iter().chain(oddity.groups).collect();
        let differs = before.iter().any(|(question, answer)| {
            names.iter().any(|name| question.ends_with(&format!(" {name}")))
                && *answer != after[question]
        });
        assert!(differs, "{}: equal now, remove the difference from its row", oddity.what);
    }
    expect_comparison(&rosterd, &sssd, &different);
}

fn expect_comparison(rosterd: &Rosterd, sssd: &Sssd, different: &BTreeSet<&str>) {
    let (code, report) = compare_ids(rosterd, sssd);
    let found = report["differences"].as_array().expect("a list");
    let named: BTreeSet<&str> =
        found.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    let extra: Vec<_> = found
        .iter()
        .filter(|one| !different.contains(one["name"].as_str().unwrap_or_default()))
        // The rejected users are members of this group.
        .filter(|one| one["kind"] != "members" || one["name"] != "staff")
        .collect();
    assert!(extra.is_empty(), "differences beyond the corpus: {extra:#?}");
    assert!(REJECTED.iter().all(|name| named.contains(name)), "{report:#}");
    assert_eq!(code, 1, "{report:#}");
    let users = report["compared"]["users"].as_u64().expect("a number");
    assert!(users >= 10, "{report:#}");
    assert_eq!(report["differences_by_kind"]["uid"], 0, "{report:#}");
}

#[test]
fn moved_host_refuses_users_without_shadow_day() {
    if !needs_root() {
        return;
    }
    let setup = SlapdOptions {
        certificate: Some(ServerCertificate::Good),
        ..SlapdOptions::new(Schema::Rfc2307)
    };
    let slapd = Slapd::serving(setup, &pam::login_users_ldif(&["dated", "undated"]));
    let dated = LdifBuilder::new(Schema::Rfc2307).user_dn("dated");
    slapd.set(&dated, "shadowLastChange", &["20000"]);
    let sssd = Sssd::with_conf(&sssd_conf(&slapd, "ldap_pwd_policy = shadow\n"));
    wait_for_user(&sssd, "dated");
    let rosterd = moved_host(&sssd, &[]);
    rosterd.expect_domain_status("corp", "complete", true);
    let pam = PamHost::on(&rosterd, "dated");
    for (user, admitted) in [("dated", true), ("undated", false)] {
        let operations = ["authenticate", "acct_mgmt"];
        let theirs = sssd.run_pamtester(user, &operations, &[pam::PASSWORD]);
        assert_eq!(theirs.code == 0, admitted, "SSSD, {user}: {}", theirs.error());
        let ours = pam.run_pamtester("alone", user, &operations, &[pam::PASSWORD]);
        assert_eq!(ours.code == 0, admitted, "Roster, {user}: {}", ours.error());
    }
}

/// SSSD stores its configuration as LDB entries, which show how it reads odd spacing, equal keys and drop-ins.
#[test]
fn sssd_conf_is_read_as_sssd_reads_it() {
    if !needs_root() {
        return;
    }
    let main = "; comment\n# comment\n[sssd]  \n  services=nss\n\tDomains\t=\tcorp  \n[nss]\n\
                override_shell = \"/bin/quoted\"\n[domain/corp]\nid_provider = ldap\n\
                  ldap_uri   =   ldap://127.0.0.1:1   \nldap_search_base=dc=x\nldap_search_base = dc=y\n\
                LDAP_User_Name = a # b\nauth_provider = none\naccess_provider = permit\n\
                ldap_user_uid_number = first\n/* a comment */\n";
    let dropins = [
        ("20.conf", "[domain/corp]\nldap_user_uid_number = third\n"),
        (
            "10.conf",
            "[domain/corp]\nldap_user_uid_number = second\n[nss]\nfilter_users = root, a b\n",
        ),
        (".30.conf", "[domain/corp]\nldap_user_uid_number = hidden\n"),
    ];
    let sssd = Sssd::with_dropins(main, &dropins);
    let conf = SssdConf::read(&sssd.conf()).expect("our parser");
    let config = cache::read(&sssd.cache_dir().join("config.ldb")).expect("SSSD's own copy");
    let mut found = BTreeMap::new();
    cache::tdb::for_each(&config, |key, data| {
        if let Some(entry) = cache::ldb::entry(key, data)? {
            let dn = String::from_utf8_lossy(entry.dn).into_owned();
            for (name, values) in &entry.elements {
                let texts: Vec<_> =
                    values.iter().map(|value| String::from_utf8_lossy(value)).collect();
                let name = String::from_utf8_lossy(name).to_lowercase();
                found.insert((dn.clone(), name), texts.join("|"));
            }
        }
        Ok::<(), cache::SssdCacheError>(())
    })
    .expect("LDB");
    for (section, dn, names) in [
        ("sssd", "cn=sssd,cn=config", &["services", "domains"][..]),
        ("nss", "cn=nss,cn=config", &["override_shell", "filter_users"]),
        (
            "domain/corp",
            "cn=corp,cn=domain,cn=config",
            &["ldap_uri", "ldap_search_base", "ldap_user_name", "ldap_user_uid_number"],
        ),
    ] {
        for name in names {
            let theirs = found.get(&(dn.to_owned(), (*name).to_owned()));
            let ours = conf.value(section, name).map(str::to_owned);
            assert_eq!(ours.as_ref(), theirs, "{section} {name}: {found:#?}");
        }
    }
    assert_eq!(conf.value("domain/corp", "ldap_user_uid_number"), Some("third"));
}
