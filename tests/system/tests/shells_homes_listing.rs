// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaced shells, templates of home directories, users without a home directory, and domains that enumerations leave
//! out, as a host sees them. Mirrored and on demand.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    roster_program, run, wait_for,
};
use std::fs;
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema::Rfc2307;
const LAB: &str = "dc=lab,dc=example";
const MODES: [&str; 2] = ["replicate", "on-demand"];
/// The default of `replacement_shell`.
const NOLOGIN: &str = "/usr/sbin/nologin";

/// A user with this home directory and shell.
fn user(directory: &LdifBuilder, name: &str, uid: u32, home: &str, shell: &str) -> String {
    let home_line = format!("homeDirectory: /home/{name}\n");
    let text = directory.user(name, uid);
    assert!(text.contains(&home_line) && text.contains("loginShell: /bin/sh\n"), "{text}");
    let shell_line =
        if shell.is_empty() { String::new() } else { format!("loginShell: {shell}\n") };
    text.replace(
        &home_line,
        &format!("homeDirectory:{}{home}\n", if home.is_empty() { "" } else { " " }),
    )
    .replace("loginShell: /bin/sh\n", &shell_line)
}

fn serving(users: &[(&str, u32, &str, &str)]) -> Slapd {
    let directory = LdifBuilder::new(SCHEMA);
    let users = users
        .iter()
        .map(|(name, uid, home, shell)| user(&directory, name, *uid, home, shell))
        .collect::<String>();
    let ldif = directory.tree() + &users + &directory.group("team", 7001, &["alice"]);
    Slapd::serving(SlapdOptions::new(SCHEMA), &ldif)
}

fn domain(slapd: &Slapd, mode: &str) -> DomainTable {
    DomainTable::ldap("corp", slapd).with("mode", &format!("{mode:?}"))
}

/// The home directory and the shell of a user.
fn home_and_shell(rosterd: &Rosterd, name: &str) -> Option<(String, String)> {
    let line = rosterd.getent("passwd", name)?;
    let mut fields = line.rsplit(':').map(ToOwned::to_owned);
    let (shell, home) = (fields.next()?, fields.next()?);
    Some((home, shell))
}

#[track_caller]
fn expect_home(rosterd: &Rosterd, name: &str, home: Option<&str>) {
    wait_for(SOON, || {
        let found = home_and_shell(rosterd, name).map(|(home, _)| home);
        let is_it = found.as_deref() == home;
        if is_it { Ok(()) } else { Err(format!("{name}: home {found:?}, not {home:?}")) }
    });
}

#[track_caller]
fn expect_shell(rosterd: &Rosterd, name: &str, shell: &str) {
    wait_for(SOON, || {
        let found = home_and_shell(rosterd, name).map(|(_, shell)| shell);
        let is_it = found.as_deref() == Some(shell);
        if is_it { Ok(()) } else { Err(format!("{name}: shell {found:?}, not {shell:?}")) }
    });
}

/// Makes a private /etc of the daemon's mount namespace, and returns its path outside.
fn private_etc(rosterd: &mut Rosterd) -> PathBuf {
    let etc = rosterd.host().path("private-etc");
    let copied = run(std::process::Command::new("cp").args(["-a", "/etc"]).arg(&etc));
    assert_eq!(copied.code, 0, "{}", copied.error());
    rosterd.set_start_script(&format!(
        "mount --bind {:?} /etc\nexec \"$@\"",
        etc.display().to_string()
    ));
    etc
}

/// Replaces a file as an editor does.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("write");
    fs::rename(&new, path).expect("rename");
}

#[test]
fn shells_follow_etc_shells() {
    for mode in MODES {
        let slapd = serving(&[
            ("alice", 5001, "/home/alice", "/bin/zsh"),
            ("bob", 5002, "/home/bob", ""),
            ("carol", 5003, "/home/carol", "/bin/false"),
            ("dave", 5004, "/home/dave", "/bin/csh"),
        ]);
        let table = domain(&slapd, mode)
            .with("allowed_shells", "\"/etc/shells\"")
            .with("refused_shells", "[\"/bin/csh\"]");
        let mut rosterd = Rosterd::prepared(&[table]);
        let shells = private_etc(&mut rosterd).join("shells");
        replace(&shells, "# shells\n/bin/sh\n/bin/csh\n");
        rosterd.launch();
        expect_shell(&rosterd, "alice", NOLOGIN);
        expect_shell(&rosterd, "bob", "");
        expect_shell(&rosterd, "carol", "/bin/false");
        expect_shell(&rosterd, "dave", NOLOGIN);
        let shown = rosterd.roster(&["cache", "show", "user", "alice"]).text();
        assert!(shown.contains("shell     /usr/sbin/nologin\n    replaced  /bin/zsh\n"), "{shown}");
        replace(&shells, "/bin/zsh\n");
        expect_shell(&rosterd, "alice", "/bin/zsh");
        // An empty field is /bin/sh, which the file no longer lists.
        expect_shell(&rosterd, "bob", NOLOGIN);
        // Without the file /bin/sh and /bin/csh count.
        fs::remove_file(&shells).expect("remove");
        expect_shell(&rosterd, "alice", NOLOGIN);
        expect_shell(&rosterd, "bob", "");
        fs::write(&shells, "/bin/sh\n/bin/zsh\n").expect("write in place");
        expect_shell(&rosterd, "alice", "/bin/zsh");
    }
}

#[test]
fn shells_of_list_survive_change_of_entry() {
    for mode in MODES {
        let slapd = serving(&[
            ("alice", 5001, "/home/alice", "/bin/bash"),
            ("bob", 5002, "/home/bob", "/bin/zsh"),
        ]);
        let table = domain(&slapd, mode)
            .with("refresh_interval", "\"1s\"")
            .with("allowed_shells", "[\"/bin/bash\"]")
            .with("replacement_shell", "\"/bin/sh\"");
        let table = if mode == "replicate" { table.without("refresh_interval") } else { table };
        let rosterd = Rosterd::start(&[table]);
        expect_shell(&rosterd, "alice", "/bin/bash");
        expect_shell(&rosterd, "bob", "/bin/sh");
        for (name, shell) in [("alice", "/bin/zsh"), ("bob", "/bin/bash")] {
            let dn = LdifBuilder::new(SCHEMA).user_dn(name);
            slapd.change(&format!(
                "dn: {dn}\nchangetype: modify\nreplace: loginShell\nloginShell: {shell}\n\n"
            ));
        }
        expect_shell(&rosterd, "alice", "/bin/sh");
        expect_shell(&rosterd, "bob", "/bin/bash");
    }
}

#[test]
fn homes_are_made_from_templates() {
    for mode in MODES {
        let slapd = serving(&[
            ("alice", 5001, "/Home/ALICE", "/bin/sh"),
            ("homeless", 5002, "", "/bin/sh"),
        ]);
        let rosterd = Rosterd::start(&[domain(&slapd, mode).with("home", "\"/net%h/%l/%f\"")]);
        expect_home(&rosterd, "alice", Some("/net/home/alice/a/alice@corp"));
        expect_home(&rosterd, "homeless", Some("/net/h/homeless@corp"));
        drop(rosterd);
        let table = domain(&slapd, mode).with("fallback_home", "\"/home/%d/%l/%u\"");
        let rosterd = Rosterd::start(&[table]);
        expect_home(&rosterd, "alice", Some("/Home/ALICE"));
        expect_home(&rosterd, "homeless", Some("/home/corp/h/homeless"));
    }
}

#[test]
fn empty_home_is_served_by_key() {
    for mode in MODES {
        let slapd = serving(&[
            ("alice", 5001, "/home/alice", "/bin/sh"),
            ("homeless", 5002, "", "/bin/sh"),
        ]);
        let mut rosterd = Rosterd::start(&[domain(&slapd, mode)]);
        expect_home(&rosterd, "alice", Some("/home/alice"));
        expect_home(&rosterd, "homeless", None);
        let rejected = rosterd.roster(&["domain", "rejected", "corp"]).text();
        assert!(rejected.contains("homeless"), "{rejected}");
        rosterd.set_domains(&[domain(&slapd, mode).with("allow_empty_home", "true")]);
        rosterd.stop();
        rosterd.launch();
        expect_home(&rosterd, "homeless", Some(""));
        rosterd.expect_groups("homeless", 5002, &[5002]);
        let by_uid = rosterd.getent("passwd", "5002").expect("served");
        assert!(
            by_uid.starts_with("homeless:*:5002:5002:") && by_uid.ends_with("::/bin/sh"),
            "{by_uid}"
        );
        let verified = rosterd.host().run(
            roster_program(),
            &["verify", &rosterd.host().snapshot_path().display().to_string()],
        );
        assert_eq!(verified.code, 0, "{}", verified.error());
    }
}

/// Names in an enumeration.
fn listed(rosterd: &Rosterd, database: &str) -> Vec<String> {
    let told = rosterd.host().run("getent", &["-s", "roster", database]);
    assert_eq!(told.code, 0, "{}", told.error());
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let mut names: Vec<_> = told.text().lines().map(name).collect();
    names.sort();
    names
}

#[track_caller]
fn expect_listed(rosterd: &Rosterd, database: &str, names: &[&str]) {
    wait_for(SOON, || {
        let found = listed(rosterd, database);
        if found == names { Ok(()) } else { Err(format!("{database}: {found:?}, not {names:?}")) }
    });
}

#[test]
fn listing_leaves_out_unlisted_domains() {
    let corp = serving(&[
        ("alice", 5001, "/home/alice", "/bin/sh"),
        ("bob", 5002, "/home/bob", "/bin/sh"),
    ]);
    let people = LdifBuilder::below_base(LAB, SCHEMA);
    let lab = people.tree() + &people.user("zoe", 6001) + &people.group("crew", 8001, &["zoe"]);
    let lab =
        Slapd::serving(SlapdOptions { base: LAB.to_owned(), ..SlapdOptions::new(SCHEMA) }, &lab);
    let tables = |corp_listed: bool, lab_listed: bool| {
        [
            domain(&corp, "replicate").with("enumerate", &corp_listed.to_string()),
            DomainTable::ldap("lab", &lab).with("enumerate", &lab_listed.to_string()),
        ]
    };
    let mut rosterd = Rosterd::start(&tables(true, true));
    for ((corp_listed, lab_listed), users, groups) in [
        ((true, true), &["alice", "bob", "zoe"][..], &["crew", "team"][..]),
        ((false, true), &["zoe"], &["crew"]),
        ((true, false), &["alice", "bob"], &["team"]),
        ((false, false), &[], &[]),
    ] {
        rosterd.set_domains(&tables(corp_listed, lab_listed));
        rosterd.stop();
        rosterd.launch();
        expect_listed(&rosterd, "passwd", users);
        expect_listed(&rosterd, "group", groups);
        // Lookups answer as before.
        for (name, uid, gid) in [("alice", 5001, 7001), ("zoe", 6001, 8001)] {
            let line = rosterd.getent("passwd", name).expect("served");
            assert_eq!(rosterd.getent("passwd", &uid.to_string()), Some(line));
            rosterd.expect_groups(name, uid, &[uid, gid]);
        }
        rosterd.expect("group", "7001", Some("team:*:7001:alice"));
    }
}

#[test]
fn listing_on_demand_leaves_out_known_entries() {
    let slapd = serving(&[("alice", 5001, "/home/alice", "/bin/sh")]);
    for is_listed in [true, false] {
        let table = domain(&slapd, "on-demand").with("enumerate", &is_listed.to_string());
        let rosterd = Rosterd::start(&[table]);
        expect_home(&rosterd, "alice", Some("/home/alice"));
        rosterd.expect("group", "team", Some("team:*:7001:alice"));
        let shown = || rosterd.host().run(roster_program(), &["get", "passwd"]);
        // The snapshot has the entry after a while, whether enumerations list it or not.
        wait_for(SOON, || {
            let told = shown();
            let has = String::from_utf8_lossy(&told.stdout).contains("alice:");
            if has { Ok(()) } else { Err(told.error()) }
        });
        expect_listed(&rosterd, "passwd", if is_listed { &["alice"] } else { &[] });
        assert!(rosterd.getent("passwd", "alice").is_some());
    }
}
