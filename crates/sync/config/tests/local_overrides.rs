// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local overrides: in the configuration, and in a separate file.

use roster_config::{
    Config, GroupOverride, LocalOverrides, NameCase, NameConfig, OverridesConfig, UserOverride,
    parse, read_overrides_file,
};
use roster_messages::table::config;
use roster_messages::{Diagnostic, Message, Severity};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DOMAIN: &str = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\n\
                      passwd = '/p'\ngroup = '/g'\n";

fn parsed(text: &str) -> Result<Config, Vec<Diagnostic>> {
    parse(&format!("{DOMAIN}{text}")).map(|parsed| parsed.config)
}

/// Returns key and message of each mistake.
fn mistakes(problems: Vec<Diagnostic>) -> Vec<(String, &'static Message)> {
    problems.into_iter().map(|problem| (problem.key, problem.message)).collect()
}

fn overrides(text: &str) -> LocalOverrides {
    parsed(text).unwrap().domains[0].local_overrides.entries.clone()
}

/// Reads a file with this text beside overrides of the configuration.
fn read(
    path: &Path,
    text: &str,
    names: &NameConfig,
    configured: &str,
) -> Result<LocalOverrides, Vec<Diagnostic>> {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    let entries = overrides(configured);
    read_overrides_file(
        "corp",
        names,
        &OverridesConfig { entries, file: Some(path.into()), refuses_ids: false },
    )
}

#[test]
fn overrides_all_keys_are_read() {
    let text = "case = 'preserving'\n[domain.corp.override.user.Alice]\nname = 'al'\nuid = 6000\ngid = 6001\n\
                gecos = 'Al'\nhome = '/srv/al'\nshell = '/bin/zsh'\n\
                [domain.corp.override.group.staff]\nname = 'crew'\ngid = 7000\n";
    let found = overrides(text);
    let alice = UserOverride {
        name: Some("al".into()),
        uid: Some(6000),
        gid: Some(6001),
        gecos: Some("Al".into()),
        home: Some("/srv/al".into()),
        shell: Some("/bin/zsh".into()),
    };
    assert_eq!(found.users["alice"], alice, "by the folded name");
    let staff = GroupOverride { name: Some("crew".into()), gid: Some(7000) };
    assert_eq!(found.groups["staff"], staff);
}

#[test]
fn overrides_mistakes_have_codes() {
    let user = "domain.corp.override.user";
    for (text, key, message) in [
        ("[domain.corp.override.user.a]\n", format!("{user}.a"), &config::OVERRIDE_EMPTY),
        (
            "[domain.corp.override.user.a]\nuidd = 1\n",
            format!("{user}.a.uidd"),
            &config::UNKNOWN_KEY,
        ),
        (
            "[domain.corp.override.user.a]\nuid = '1'\n",
            format!("{user}.a.uid"),
            &config::WRONG_TYPE,
        ),
        ("[domain.corp.override.users.a]\nuid = 1\n", format!("{user}s"), &config::UNKNOWN_TABLE),
        ("[domain.corp.override]\nuser = 1\n", user.to_owned(), &config::NOT_A_TABLE),
        (
            "[domain.corp.override.user]\na.uid = 6000\nb.uid = 6000\n",
            format!("{user}.b.uid"),
            &config::OVERRIDES_SHARE_VALUE,
        ),
        (
            "case = 'insensitive'\n[domain.corp.override.user]\na.name = 'X'\nb.name = 'x'\n",
            format!("{user}.b.name"),
            &config::OVERRIDES_SHARE_VALUE,
        ),
        (
            "case = 'insensitive'\n[domain.corp.override.user]\nalice.uid = 1\nALICE.uid = 2\n",
            format!("{user}.alice"),
            &config::OVERRIDE_TWICE,
        ),
    ] {
        assert_eq!(mistakes(parsed(text).unwrap_err()), [(key, message)], "{text}");
    }
}

#[test]
fn overrides_of_file_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.toml");
    let configured = "[domain.corp.override.user.alice]\nuid = 6000\n";
    let names = NameConfig::default();
    let found = read(&path, "[user.bob]\nuid = 6001\n", &names, configured).unwrap();
    let uids: Vec<_> = found.users.iter().map(|(name, user)| (&**name, user.uid)).collect();
    assert_eq!(uids, [("alice", Some(6000)), ("bob", Some(6001))]);
    assert_eq!(read(&path, "", &names, configured).unwrap().users.len(), 1);
}

#[test]
fn overrides_of_file_mistakes_have_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.toml");
    let configured = "[domain.corp.override.user.alice]\nuid = 6000\n";
    let any_case = NameConfig { case: NameCase::Insensitive, ..NameConfig::default() };
    for (text, line, key, message) in [
        ("[user.bob]\n\nuid = x\n", 3, "", &config::UNQUOTED_STRING),
        ("[user.bob]\nuid = 6000\n", 1, "user.bob.uid", &config::OVERRIDES_SHARE_VALUE),
        ("\n[user.alice]\nshell = '/b'\n", 2, "user.alice", &config::OVERRIDE_TWICE),
        ("[user.ALICE]\nshell = '/b'\n", 1, "user.ALICE", &config::OVERRIDE_TWICE),
        ("[domain.corp]\n", 1, "domain", &config::UNKNOWN_TABLE),
    ] {
        let problems = read(&path, text, &any_case, configured).unwrap_err();
        let found: Vec<_> = problems
            .iter()
            .map(|problem| (&*problem.file, problem.line, &*problem.key, problem.message))
            .collect();
        assert_eq!(found, [(&*path, line, key, message)], "{text}");
        if message == &config::OVERRIDE_TWICE {
            let said = problems[0].to_string();
            assert!(said.contains("[domain.corp.override.user."), "{said}");
        }
    }
}

#[test]
fn overrides_file_not_usable_has_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.toml");
    let names = NameConfig::default();
    let file = || OverridesConfig { file: Some(path.clone()), ..OverridesConfig::default() };
    let code = || read_overrides_file("corp", &names, &file()).unwrap_err()[0].message;
    assert_eq!(code(), &config::OVERRIDES_FILE_UNREADABLE);
    fs::write(&path, b"\xff").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(code(), &config::CONFIG_NOT_UTF8);
    fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(code(), &config::CONFIG_TOO_LARGE);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(code(), &config::FILE_WRITABLE_BY_OTHERS);

    let text = format!("{DOMAIN}overrides_file = '{}'\n", path.display());
    let found = parse(&text).unwrap().check_overrides();
    assert_eq!(found[0].message, &config::FILE_WRITABLE_BY_OTHERS);
}

/// Two entries of a directory may have one name, and an on-demand domain learns about the attacker's first.
#[test]
fn overrides_of_ids_need_mirror() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.toml");
    let given =
        ["user.alice]\nuid = 6000\n", "user.alice]\ngid = 6000\n", "group.dev]\ngid = 6000\n"];
    for text in given {
        let whole = |mode: &str| parsed(&format!("mode = '{mode}'\n[domain.corp.override.{text}"));
        let found = mistakes(whole("on-demand").unwrap_err());
        let mistake = ("domain.corp.mode".to_owned(), &config::OVERRIDE_ID_ON_DEMAND);
        assert!(found.contains(&mistake), "{text}: {found:?}");
        assert!(whole("replicate").is_ok(), "{text}");
        fs::write(&path, format!("[{text}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let file = Some(path.clone());
        let overrides = OverridesConfig { file, refuses_ids: true, ..OverridesConfig::default() };
        let found = read_overrides_file("corp", &NameConfig::default(), &overrides).unwrap_err();
        assert_eq!(found[0].message, &config::OVERRIDE_ID_ON_DEMAND, "{text}");
    }
    let text =
        "mode = 'on-demand'\n[domain.corp.override.user.alice]\nname = 'al'\nshell = '/bin/zsh'\n";
    let found = parsed(text).err().map(mistakes).unwrap_or_default();
    assert!(
        found.iter().all(|(_, message)| *message != &config::OVERRIDE_ID_ON_DEMAND),
        "{found:?}"
    );
}

#[test]
fn overrides_hidden_name_in_rule_is_warned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.toml");
    fs::write(&path, "[group.dev]\nname = 'crew'\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let text = format!(
        "overrides_file = '{}'\n\
         [domain.corp.override.user]\nalice.name = 'al'\nbob.name = 'eve'\neve.name = 'bob'\n\
         zoe.name = 'zoe'\nliv.uid = 6000\n\
         [domain.corp.access]\nallowed_users = ['al', 'bob', 'zoe', 'liv', 'x']\n\
         denied_users = ['alice@corp']\ndenied_groups = ['crew', 'staff']\n\
         [domain.corp.access.service.sshd]\nallowed_groups = ['dev']\nallowed_users = ['alice']\n",
        path.display()
    );
    let found = parse(&format!("{DOMAIN}{text}")).unwrap().check_overrides();
    let found: Vec<_> = found
        .iter()
        .map(|problem| (&*problem.key, problem.severity, problem.message, problem.line > 1))
        .collect();
    let warned = |key| (key, Severity::Warning, &config::HIDDEN_NAME_IN_RULE, true);
    let wanted = [
        "domain.corp.access.denied_users",
        "domain.corp.access.service.sshd.allowed_users",
        "domain.corp.access.service.sshd.allowed_groups",
    ];
    assert_eq!(found, wanted.map(warned));
}
