// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that show an administrator the state of a running daemon, and commands that control it.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{DomainTable, Rosterd, needs_root, run, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use tempfile::TempDir;

/// Some of the users have a primary group of the host's own.
const PASSWD: &str = "ann:x:5000:5000:Ann:/home/ann:/bin/sh\nben:x:5001:99::/home/ben:/bin/sh\n\
                      cy:x:5002:99::/home/cy:/bin/sh\nlocal:x:5003:5000::/:/bin/sh\n\
                      odd:x:many:5000::/:/bin/sh\n";
/// With so many more users the share of rejected ones is small.
const MORE: u32 = 40;
const GROUP: &str = "lab:x:5000:ben,cy\n";

fn passwd() -> String {
    let more = (0..MORE).map(|n| format!("more{n}:x:{}:5000::/home/more:/bin/sh\n", 7000 + n));
    PASSWD.to_owned() + &more.collect::<String>()
}

struct Lab {
    // Before the files that it reads.
    rosterd: Rosterd,
    files: TempDir,
}

impl Lab {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("make a folder");
        fs::write(files.path().join("passwd"), passwd()).expect("write");
        fs::write(files.path().join("group"), GROUP).expect("write");
        let domain =
            DomainTable::files("lab", &files.path().join("passwd"), &files.path().join("group"));
        let lab = Self { rosterd: Rosterd::start(&[domain]), files };
        lab.rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
        lab
    }

    fn said(&self, args: &[&str], code: i32) -> String {
        let done = self.rosterd.roster(args);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.code, code, "roster {args:?}: {text}{}", done.error());
        text
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.said(args, 0)).expect("JSON")
    }
}

#[test]
fn responder_enabled_without_user_names_the_user() {
    if !needs_root() {
        return;
    }
    let files = tempfile::tempdir().expect("make a folder");
    let (passwd, group) = (files.path().join("passwd"), files.path().join("group"));
    fs::write(&passwd, self::passwd()).expect("write");
    fs::write(&group, GROUP).expect("write");
    let mut rosterd = Rosterd::installed(&[DomainTable::files("lab", &passwd, &group)]);
    let locals = rosterd.host().path("etc/passwd");
    let text = fs::read_to_string(&locals).expect("read passwd");
    let is_responders = |line: &&str| {
        ["nss", "pam", "metrics"].iter().any(|name| line.starts_with(&format!("roster-{name}:")))
    };
    let lines: Vec<_> = text.lines().filter(|line| !is_responders(line)).collect();
    assert_eq!(text.lines().count() - lines.len(), 3);
    fs::write(&locals, lines.join("\n") + "\n").expect("write passwd");
    rosterd.launch();
    rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
    rosterd.stop();
    for (tables, user) in [
        ("[responder.pam]\nenabled = true\n", "roster-pam"),
        ("[metrics]\nlisten = \"127.0.0.1:9\"\n", "roster-metrics"),
    ] {
        rosterd.set_tables(tables);
        rosterd.launch();
        wait_until(SOON, user, || {
            let log = rosterd.log();
            log.contains(&format!("/etc/passwd has no user {user} "))
                && log.contains("systemd-sysusers")
        });
        rosterd.stop();
    }
}

#[test]
fn status_shows_roles_domains_and_rejections() {
    let lab = Lab::start();
    let text = lab.said(&["status"], 0);
    for part in [
        "generation ",
        "41 users, 1 group, 0 memberships",
        "\nlab     online ",
        "\npublisher    running ",
        "\nbackend:lab  running ",
        "! lab: 2 entries rejected: primary gid 99 is below min_id",
        "`allowed_local_gids = [99]` under [host]",
        "! lab: 1 entry rejected: a local user has this name",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }

    // The suggested fix works.
    let config = fs::read_to_string(lab.rosterd.config()).expect("read");
    let more = config.replacen("[host]", "[host]\nallowed_local_gids = [99]", 1);
    fs::write(lab.rosterd.config(), more).expect("write");
    let mut lab = lab;
    lab.rosterd.process().signal(Signal::HUP);
    lab.rosterd.expect("passwd", "ben", Some("ben:*:5001:99::/home/ben:/bin/sh"));
    assert!(!lab.said(&["status"], 0).contains("gid 99"));
}

#[test]
fn a_directory_that_is_away_makes_status_fail() {
    let lab = Lab::start();
    fs::remove_file(lab.files.path().join("passwd")).expect("remove");
    wait_until(SOON, "the domain is offline", || lab.rosterd.roster(&["status"]).code == 1);
    let text = lab.said(&["status"], 1);
    assert!(text.contains("✗ lab is offline for "), "{text}");
    assert!(text.contains("`roster domain refresh lab`"), "{text}");
    let text = lab.said(&["domain", "show", "lab"], 0);
    assert!(text.contains("\nstate           offline for "), "{text}");
}

#[test]
fn a_configuration_that_is_refused_is_told_until_it_is_mended() {
    let mut lab = Lab::start();
    let config = fs::read_to_string(lab.rosterd.config()).expect("read");
    fs::write(lab.rosterd.config(), config.replace("\"files\"", "\"file\"")).expect("write");
    lab.rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "status fails", || lab.rosterd.roster(&["status"]).code == 1);
    let text = lab.said(&["status"], 1);
    let mistake = "unknown provider \"file\". Did you mean \"files\"? [RST-1019]";
    assert!(text.contains(mistake), "{text}");
    lab.rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
    fs::write(lab.rosterd.config(), config).expect("write");
    lab.rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "status is well again", || lab.rosterd.roster(&["status"]).code == 0);
}

#[test]
fn configuration_others_can_change_is_refused() {
    let mut lab = Lab::start();
    let config = lab.rosterd.config();
    let set_mode = |mode| {
        fs::set_permissions(&config, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    let wrong =
        format!("{} has mode 0666, which allows other users to change it", config.display());
    set_mode(0o666);
    lab.rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "status fails", || lab.rosterd.roster(&["status"]).code == 1);
    let text = lab.said(&["status"], 1);
    assert!(text.contains(&wrong), "{text}");
    let shown = config.to_str().expect("text");
    assert!(lab.said(&["check-config", shown], 1).contains(&wrong));
    lab.rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
    set_mode(0o644);
    lab.rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "status is well again", || lab.rosterd.roster(&["status"]).code == 0);
    lab.said(&["check-config", shown], 0);

    chown(&config, Some(1234), None).expect("chown");
    lab.rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "status fails", || lab.rosterd.roster(&["status"]).code == 1);
    let text = lab.said(&["status"], 1);
    assert!(text.contains("belongs to uid 1234, which can change it"), "{text}");
}

#[test]
fn check_config_names_entries_it_would_refuse() {
    let lab = Lab::start();
    let config = fs::read_to_string(lab.rosterd.config()).expect("read");
    let stricter = lab.files.path().join("stricter.toml");
    let text = config.replace("[host]\n", "[host]\nmin_id = 5001\n");
    fs::write(&stricter, text).expect("write");
    let snapshot = lab.rosterd.host().snapshot_path();
    let check = |file: &Path, more: &[&str]| {
        let mut args = vec!["check-config", file.to_str().expect("text"), "--snapshot"];
        args.push(snapshot.to_str().expect("text"));
        args.extend(more);
        lab.said(&args, 0)
    };
    let text = check(&stricter, &[]);
    for part in [
        "would reject 1 entry that this host serves: uid 5000 is below min_id (5001): user ann",
        "primary gid 5000 is below min_id (5001): user more0, user more1, ",
        "would reject 1 entry that this host serves: gid 5000 is below min_id (5001): group lab",
        "valid, 1 domain (lab), 3 warnings",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let report: Value = serde_json::from_str(&check(&stricter, &["--json"])).expect("JSON");
    // 41 users and their group.
    assert_eq!(report["unserved"].as_array().map(Vec::len), Some(42));
    assert!(check(&lab.rosterd.config(), &[]).ends_with("valid, 1 domain (lab)\n"));
}

#[test]
fn entries_are_shown_with_why_they_are_not_served() {
    let lab = Lab::start();
    let text = lab.said(&["domain", "rejected", "lab"], 0);
    for part in [
        "lab: 4 entries rejected",
        "2 entries rejected: primary gid 99 is below min_id",
        "    user ben\n    user cy\n",
        "1 entry rejected: a local user has this name\n    user local\n",
        "passwd:5\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let rejected = lab.json(&["domain", "rejected", "lab", "--json"]);
    assert_eq!(rejected.as_array().map(Vec::len), Some(4));
    assert!(
        lab.said(&["cache", "show", "user", "ann"], 0).starts_with("user ann of lab: served\n")
    );
    let text = lab.said(&["cache", "show", "user", "ben"], 0);
    assert!(
        text.starts_with("user ben of lab: not served: primary gid 99 is below min_id"),
        "{text}"
    );
    assert_eq!(lab.json(&["cache", "show", "group", "lab", "--json"])[0]["gid"], 5000);
    lab.said(&["cache", "show", "user", "nobody-by-this-name"], 1);
    let done = lab.rosterd.roster(&["cache", "show", "user", "nobody-by-this-name"]);
    assert!(done.error().contains("[RST-9017]"), "{}", done.error());
}

#[test]
fn domains_and_levels_are_told_what_to_do() {
    let lab = Lab::start();
    assert_eq!(lab.json(&["domain", "list", "--json"])[0]["domain"], "lab");
    lab.said(&["domain", "refresh", "lab"], 0);
    assert_eq!(
        lab.said(&["domain", "approve-removals", "lab"], 0),
        "lab: no removals were on hold\n"
    );
    lab.said(&["cache", "expire", "--user", "ann"], 0);
    lab.said(&["cache", "expire", "--all", "--domain", "lab"], 0);
    lab.rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));

    lab.said(&["log-level", "backend:lab", "debug"], 0);
    let levels = lab.json(&["log-level", "--json"]);
    assert_eq!((&levels["backend:lab"], &levels["publisher"]), (&"debug".into(), &"info".into()));
    lab.said(&["log-level", "warn"], 0);
    assert_eq!(lab.json(&["log-level", "--json"])["monitor"], "warn");

    for (args, part) in [
        (
            &["domain", "show", "corp"][..],
            "the domains are lab. Use a domain of `roster domain list`. [RST-9013]",
        ),
        (&["log-level", "lab"], "Roles are monitor, publisher, backend:DOMAIN"),
        (&["log-level", "backend:corp"], "unknown role backend:corp: the roles are monitor"),
    ] {
        let done = lab.rosterd.roster(args);
        assert_eq!(done.code, 1);
        assert!(done.error().contains(part), "{}", done.error());
    }
}

#[test]
fn a_role_that_hangs_is_named_and_the_rest_is_still_told() {
    let lab = Lab::start();
    let backend = lab.rosterd.wait_for_role("backend:lab");
    kill_process(backend, Signal::STOP).expect("stop it");
    let text = lab.said(&["status"], 1);
    assert!(text.contains("✗ backend:lab: no reply within the timeout"), "{text}");
    assert!(text.contains("41 users, 1 group"), "{text}");
    // Had the monitor not ended it before.
    let _ = kill_process(backend, Signal::CONT);
}

#[test]
fn without_a_daemon_every_command_says_so_and_status_has_its_code() {
    let mut lab = Lab::start();
    lab.rosterd.stop();
    for (args, code) in [
        (&["status"][..], 3),
        (&["domain", "list"], 1),
        (&["cache", "show", "user", "ann"], 1),
        (&["log-level"], 1),
    ] {
        let done = lab.rosterd.roster(args);
        assert_eq!(done.code, code, "{args:?}");
        assert!(done.error().contains("[RST-9001]"), "{}", done.error());
    }
    // Lookups need no bus.
    lab.rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
}

/// The bus knows roles only if each has a dedicated user, which takes root.
#[test]
fn a_bus_that_did_not_take_its_new_policy_is_told_again() {
    if !needs_root() {
        return;
    }
    let files = tempfile::tempdir().expect("make a folder");
    fs::set_permissions(files.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    let domain = |name: &str| {
        let id = 6000 + name.len();
        let [passwd, group] =
            ["passwd", "group"].map(|kind| files.path().join(format!("{name}.{kind}")));
        fs::write(&passwd, format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh\n")).expect("write");
        fs::write(&group, format!("{name}:x:{id}:\n")).expect("write");
        DomainTable::files(name, &passwd, &group)
    };
    let all = ["a", "bb", "ccc"].map(domain);
    let is_there = |rosterd: &Rosterd, name: &str| rosterd.getent("passwd", name).is_some();
    let mut rosterd = Rosterd::installed(&all[..1]);
    rosterd.launch();
    wait_until(SOON, "a is served", || is_there(&rosterd, "a"));
    let bus = rosterd.wait_for_role("bus");
    let (cannot_write, no_reply) = ("bus.conf: cannot write: ", "[RST-4054]");
    let expect_said = |rosterd: &Rosterd, said: &str, times: usize| {
        wait_until(SOON, said, || rosterd.log().matches(said).count() >= times);
    };
    let shell = |rosterd: &Rosterd, script: &str| {
        let done = run(rosterd.command_inside(Path::new("/bin/sh")).args(["-ec", script]));
        assert_eq!(done.code, 0, "{script}: {}", done.error());
    };

    // The file cannot be written: a directory has its name.
    shell(&rosterd, "rm /run/roster/bus.conf; mkdir /run/roster/bus.conf");
    rosterd.set_domains(&all[..2]);
    rosterd.process().signal(Signal::HUP);
    expect_said(&rosterd, cannot_write, 1);
    assert!(is_there(&rosterd, "a") && !is_there(&rosterd, "bb"));
    shell(&rosterd, "rmdir /run/roster/bus.conf");
    wait_until(SOON, "bb is served", || is_there(&rosterd, "bb"));

    // The bus does not answer for a while.
    let before = rosterd.log().matches(no_reply).count();
    kill_process(bus, Signal::STOP).expect("stop it");
    rosterd.set_domains(&all);
    rosterd.process().signal(Signal::HUP);
    expect_said(&rosterd, no_reply, before + 1);
    kill_process(bus, Signal::CONT).expect("let it go on");
    wait_until(SOON, "ccc is served", || is_there(&rosterd, "ccc"));
    assert_eq!(rosterd.wait_for_role("bus"), bus, "it is the same bus");
    assert!(is_there(&rosterd, "a") && is_there(&rosterd, "bb"));
}

/// As a package installs it, which takes root.
#[test]
fn doctor_takes_over_what_the_daemon_says_of_itself() {
    if !needs_root() {
        return;
    }
    let files = tempfile::tempdir().expect("make a folder");
    fs::set_permissions(files.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    fs::write(files.path().join("passwd"), passwd()).expect("write");
    fs::write(files.path().join("group"), GROUP).expect("write");
    let domain =
        DomainTable::files("lab", &files.path().join("passwd"), &files.path().join("group"));
    let mut rosterd = Rosterd::installed(&[domain]);
    rosterd.launch();
    rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
    let doctor = || {
        let done = run(rosterd.command_inside(Path::new("/run/bin/roster")).arg("doctor"));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let text = doctor();
    let entries =
        "! lab: 2 entries rejected: primary gid 99 is below min_id (1000): user ben, user cy\n";
    assert!(text.contains(entries), "{text}");
    assert!(!text.contains("✗ lab"), "{text}");
    fs::remove_file(files.path().join("passwd")).expect("remove");
    wait_until(SOON, "doctor tells of it", || doctor().contains("✗ lab is offline for "));
}
