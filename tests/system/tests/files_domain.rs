// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain out of text files: no server, the same rules, and changes as soon as they are on disk.

use roster_messages::table::directory;
use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{DomainTable, Rosterd, find_tool, run, wait_until};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// The code of rejections for further reasons.
const REJECTED: &str = directory::ENTRIES_REJECTED.code;
const PASSWD: &str = "ann:x:5000:5000:Ann:/home/ann:/bin/sh\nben:x:5001:5000::/home/ben:\n";
const GROUP: &str = "lab:x:5000:ben\nnight:x:5001:ann,ben,stranger\n";

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("make a folder"));
        files.replace("passwd", PASSWD);
        files.replace("group", GROUP);
        files
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// As programs that care do.
    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("fresh"), text).expect("write");
        fs::rename(self.path("fresh"), self.path(name)).expect("rename");
    }

    fn daemon(&self) -> Rosterd {
        Rosterd::start(&[DomainTable::files("lab", &self.path("passwd"), &self.path("group"))])
    }

    fn expect_served(&self, rosterd: &Rosterd) {
        let (passwd, group) = (self.path("passwd"), self.path("group"));
        rosterd.expect_mirror(&[OracleSource::Files(&passwd, &group)]);
    }
}

#[test]
fn files_are_served_and_their_changes_seen() {
    let files = Files::new();
    let mut rosterd = files.daemon();
    files.expect_served(&rosterd);
    rosterd.expect("group", "night", Some("night:*:5001:ann,ben"));

    files.replace("passwd", &format!("{PASSWD}cy:x:5002:5000::/home/cy:/bin/sh\n"));
    files.expect_served(&rosterd);
    // In place, as an editor or `echo >>` does.
    fs::write(files.path("group"), format!("{GROUP}day:x:5002:cy\n")).expect("write");
    files.expect_served(&rosterd);
    rosterd.expect("group", "day", Some("day:*:5002:cy"));
    files.replace("passwd", PASSWD);
    files.expect_served(&rosterd);

    // While no daemon watched.
    rosterd.stop();
    files.replace("group", GROUP);
    files.replace("passwd", &PASSWD.replace("Ann", "Anna"));
    rosterd.launch();
    files.expect_served(&rosterd);
}

#[test]
fn files_are_followed_over_links_and_folders_that_change() {
    let files = Files::new();
    // Each directory has users that no other has, and users that all have.
    let fill = |folder: &str, uid: u32| {
        let folder = files.path(folder);
        fs::create_dir(&folder).expect("create");
        let own = format!("own{uid}:x:{uid}:5000::/home/own:/bin/sh\n");
        fs::write(folder.join("passwd"), format!("{PASSWD}{own}")).expect("write");
        fs::write(folder.join("group"), GROUP).expect("write");
    };
    let switch = |to: &str| {
        symlink(to, files.path("new")).expect("link");
        fs::rename(files.path("new"), files.path("current")).expect("rename");
    };
    let rename = |from: &str, to: &str| {
        fs::rename(files.path(from), files.path(to)).expect("rename");
    };
    fill("v1", 5101);
    fill("v2", 5102);
    switch("v1");
    let (passwd, group) = (files.path("current/passwd"), files.path("current/group"));
    let rosterd = Rosterd::start(&[DomainTable::files("lab", &passwd, &group)]);
    let expect_own = |uid: u32| {
        let own = format!("own{uid}");
        wait_until(SOON, &own, || rosterd.getent("passwd", &own).is_some());
        rosterd.expect_mirror(&[OracleSource::Files(&passwd, &group)]);
    };
    expect_own(5101);
    // A link leads elsewhere.
    switch("v2");
    expect_own(5102);
    // Another directory takes the place.
    fill("v3", 5103);
    rename("v2", "v2.old");
    rename("v3", "v2");
    expect_own(5103);
    // A directory is away for a while, as one that is mounted.
    rename("v2", "v2.older");
    rosterd.expect_domain_status("lab", "online", false);
    assert!(rosterd.getent("passwd", "own5103").is_some());
    fill("v2", 5104);
    expect_own(5104);
    rosterd.expect_domain_status("lab", "online", true);
}

/// The publisher lists 20 reasons, and eight ids of one reason.
#[test]
fn files_many_rejection_reasons_share_a_code() {
    let files = Files::new();
    let ids = |first: u32| first..first + 8;
    let user = |uid: u32| format!("u{uid}:x:{uid}:5000::/home:/bin/sh\n");
    let group = |gid: u32| format!("g{gid}:x:{gid}:\n");
    let users: String = ids(201).chain(ids(70_001)).map(user).collect();
    let groups: String = ids(301).map(group).collect();
    files.replace("passwd", &format!("{PASSWD}{users}"));
    files.replace("group", &format!("{GROUP}{groups}"));
    let (passwd, group) = (files.path("passwd"), files.path("group"));
    let domain = DomainTable::files("lab", &passwd, &group).with("max_id", "60000");
    let rosterd = Rosterd::start(&[domain]);
    let line = |log: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.contains("4 other reasons") && line.contains(REJECTED))
    };
    wait_until(SOON, "the other reasons are logged", || line(&rosterd.log()));
    rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
}

#[test]
fn files_others_can_change_are_not_read() {
    let files = Files::new();
    let rosterd = files.daemon();
    files.expect_served(&rosterd);
    // The backend looks when the content changes.
    files.replace("passwd", &format!("{PASSWD}cy:x:5002:5000::/home/cy:/bin/sh\n"));
    files.expect_served(&rosterd);
    fs::write(files.path("fresh"), PASSWD.replace("Ann", "Eve")).expect("write");
    chown(files.path("fresh"), Some(1234), None).expect("chown");
    fs::rename(files.path("fresh"), files.path("passwd")).expect("rename");
    rosterd.expect_domain_status("lab", "online", false);
    rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Ann:/home/ann:/bin/sh"));
    let status = rosterd.roster(&["status"]);
    let text = String::from_utf8(status.stdout).expect("text");
    assert!(text.contains("passwd belongs to uid 1234, which can change it"), "{text}");
    chown(files.path("passwd"), Some(0), None).expect("chown");
    rosterd.expect("passwd", "ann", Some("ann:*:5000:5000:Eve:/home/ann:/bin/sh"));
    rosterd.expect_domain_status("lab", "online", true);
}

/// The file system sends no event when a mount hides a directory or a file, or no longer does.
#[test]
fn what_is_mounted_over_the_way_to_files_counts_while_it_is_there() {
    let files = Files::new();
    fs::create_dir(files.path("over")).expect("create");
    let own = "own:x:5100:5000::/home/own:/bin/sh\n";
    files.replace("over/passwd", &format!("{PASSWD}{own}"));
    files.replace("over/group", GROUP);
    fs::create_dir(files.path("lab")).expect("create");
    files.replace("lab/passwd", PASSWD);
    files.replace("lab/group", GROUP);
    let (passwd, group) = (files.path("lab/passwd"), files.path("lab/group"));
    let mut rosterd = Rosterd::prepared(&[DomainTable::files("lab", &passwd, &group)]);
    rosterd.set_start_script("exec \"$@\"");
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Files(&passwd, &group)]);
    let mount = |options: &[&str], paths: &[&Path]| {
        let program = if paths.len() == 2 { "mount" } else { "umount" };
        let mut command = rosterd.command_inside(&find_tool(program, "mount"));
        let done = run(command.args(options).args(paths));
        assert_eq!(done.code, 0, "{program}: {}", done.error());
    };
    let is_there = |name: &str| rosterd.getent("passwd", name).is_some();

    for (over, place) in
        [(files.path("over"), files.path("lab")), (files.path("over/passwd"), passwd.clone())]
    {
        mount(&["--bind"], &[&over, &place]);
        wait_until(SOON, "what was mounted is served", || is_there("own"));
        // Mounts elsewhere have no effect.
        mount(&["--bind"], &[&over, &over]);
        mount(&[], &[&over]);
        mount(&[], &[&place]);
        wait_until(SOON, "what was hidden is served", || !is_there("own"));
    }

    let etc = rosterd.host().path("etc");
    let over = files.path("etc");
    fs::create_dir(&over).expect("create");
    let locals = fs::read_to_string(etc.join("passwd")).expect("read");
    fs::write(over.join("passwd"), format!("{locals}{PASSWD}")).expect("write");
    fs::copy(etc.join("group"), over.join("group")).expect("copy");
    assert!(is_there("ann"));
    mount(&["--bind"], &[&over, &etc]);
    wait_until(SOON, "ann is the host's own", || !is_there("ann"));
    mount(&[], &[&etc]);
    wait_until(SOON, "ann is the domain's", || is_there("ann"));
}

#[test]
fn a_file_that_is_gone_takes_nobody_with_it() {
    let files = Files::new();
    let rosterd = files.daemon();
    files.expect_served(&rosterd);
    fs::remove_file(files.path("passwd")).expect("remove");
    rosterd.expect_domain_status("lab", "online", false);
    assert!(rosterd.getent("passwd", "ann").is_some());
    files.replace("passwd", &PASSWD.replace("Ann", "Anna"));
    files.expect_served(&rosterd);
}

#[test]
fn lines_that_may_not_be_served_are_left_out_and_named() {
    let files = Files::new();
    let rosterd = files.daemon();
    files.expect_served(&rosterd);
    let bad = [
        "toor:x:0:0::/root:/bin/sh",
        "low:x:999:5000::/home/low:/bin/sh",
        "root:x:5100:5000::/home/root2:/bin/sh",
        "taken:x:1500:5000::/home/taken:/bin/sh",
        "shadowy:x:5101:42::/home/shadowy:/bin/sh",
        "relative:x:5102:5000::home:/bin/sh",
        "no line at all",
        "few:x:5103",
        "+::::::",
        "word:x:abc:5000::/home/word:/bin/sh",
    ];
    files.replace(
        "passwd",
        &format!("{PASSWD}{}\ncy:x:5002:5000::/home/cy:/bin/sh\n", bad.join("\n")),
    );
    files
        .replace("group", &format!("{GROUP}wheel:x:0:ann\nshadow:x:5200:ann\nlocals:x:1500:ann\n"));
    wait_until(SOON, "the last line is served", || rosterd.getent("passwd", "cy").is_some());
    sleep(Duration::from_secs(1));
    let names = |database| {
        let text = rosterd.host().run("getent", &["-s", "roster", database]).text();
        let mut names: Vec<_> = text
            .lines()
            .map(|line| line.split(':').next().unwrap_or_default().to_owned())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("passwd"), ["ann", "ben", "cy"]);
    assert_eq!(names("group"), ["lab", "night"]);
    let rejected = rosterd.roster(&["domain", "rejected", "--all", "lab"]).text();
    for name in ["toor", "low", "root", "taken", "shadowy", "relative", "wheel", "shadow", "locals"]
    {
        assert!(rejected.contains(name), "{name} is not in\n{rejected}");
    }
}
