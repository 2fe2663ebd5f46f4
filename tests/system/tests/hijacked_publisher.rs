// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compromised publisher, played by its user without capabilities. None of its files gives a program root or another
//! privileged id, and no directory that it makes is used. Ordinary users of the same snapshot are served.

use roster_system_tests::nscd::{LookupProgram, NscdServer, SNAPSHOT_ONLY};
use roster_system_tests::old_names::snapshot_names;
use roster_system_tests::rosterd::{FIRST_ROLE_UID, OracleSource, Rosterd};
use roster_system_tests::test_host::{ProgramOutput, RECOMMENDED_NSSWITCH};
use roster_system_tests::{
    Corpus, DomainTable, TestHost, c_program, find_tool, needs_root, roster_program, run, wait_for,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const PUBLISHER: u32 = FIRST_ROLE_UID + 1;
/// The SHA-512 hash of "password"; its text does not matter.
const HASH: &str = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/";

/// Runs `$1` as the user `$2`, without a capability, from a place that every user can reach.
const AS_USER: &str = r#"cp "$1" /var/lib/program; user=$2; shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups --bounding-set=-all --no-new-privs \
    /var/lib/program "$@"
"#;

/// A host with a directory of snapshots that the publisher owns.
fn host(nsswitch: &str) -> TestHost {
    let local = Corpus::new(
        "",
        b"root:x:0:0:root:/root:/bin/sh\nlocal:x:1500:1500::/home:/bin/sh\n",
        b"root:x:0:\nsudo:x:27:\nshadow:x:42:\nusers:x:100:\nlocal:x:1500:\n",
        b"root:*:1::::::\nlocal:*:1::::::\n",
    );
    let host = TestHost::new(&local, nsswitch);
    let _ = host.make_config_dir();
    chown(host.snapshots_dir(), Some(PUBLISHER), None)
        .expect("give the directory to the publisher");
    host
}

/// Entries that a snapshot may not have, and users that it may have.
fn forged() -> Corpus {
    let refused = [
        ("toor", 0, 0),
        ("below", 599, 5000),
        ("nobodys", 65_534, 5000),
        ("short", 65_535, 5000),
        ("minus", u32::MAX, 5000),
        ("wheel", 5001, 0),
        ("sudoer", 5002, 27),
        ("guest", 5003, 65_534),
    ];
    let served = [("alice", 5000, 5000), ("user", 5004, 100), ("early", 600, 5000)];
    let mut passwd = String::new();
    for (name, uid, gid) in refused.into_iter().chain(served) {
        passwd += &format!("{name}:{HASH}:{uid}:{gid}::/home/{name}:/bin/sh\n");
    }
    passwd += "open::5005:5000::/home/open:/bin/sh\n";
    let group = format!(
        "toors:{HASH}:0:local,alice\nsudoers:x:27:local\nshadows:x:42:local,alice\nnogroups:x:65534:local\n\
         minuses:x:4294967295:local\nstaff:{HASH}:6000:local,alice,toor\nopeners::6001:\npeople:x:5000:\n"
    );
    Corpus::new(
        "",
        passwd.as_bytes(),
        group.as_bytes(),
        format!("toor:{HASH}:1::::::\n").as_bytes(),
    )
}

/// Runs a program as the publisher's user.
fn as_publisher(host: &TestHost, program: &Path) -> Command {
    let mut command = host.command("sh");
    command.args(["-ec", AS_USER, "sh"]).arg(program).arg(PUBLISHER.to_string());
    command
}

/// Publishes the forged entries, as the publisher's user.
fn forge(host: &TestHost) {
    let source = host.path("source");
    fs::create_dir_all(&source).expect("create the directory of the text");
    forged().write(&source);
    fs::set_permissions(source.join("shadow"), Permissions::from_mode(0o644)).expect("chmod");
    let mut command = as_publisher(host, roster_program());
    command.arg("compile");
    for name in ["passwd", "group", "shadow"] {
        command.arg(format!("--{name}")).arg(source.join(name));
    }
    let folder = Path::new("/var/lib/roster")
        .join(host.snapshots_dir().strip_prefix(host.state_dir()).expect("below"));
    command.arg("--output").arg(folder.join(snapshot_names()[0]));
    command.arg("--shadow-output").arg(folder.join(snapshot_names()[1]));
    let done = run(&mut command);
    assert_eq!(done.code, 0, "the publisher's user publishes: {}", done.error());
    let snapshot = fs::metadata(host.snapshot_path()).expect("it is there");
    assert_eq!(snapshot.uid(), PUBLISHER);
}

/// Keys of users and groups that no program is to find.
const REFUSED: [(&str, &[&str]); 2] = [
    (
        "passwd",
        &[
            "toor",
            "below",
            "nobodys",
            "short",
            "minus",
            "wheel",
            "sudoer",
            "guest",
            "open",
            "599",
            "65534",
            "65535",
            "4294967295",
            "5001",
            "5002",
            "5003",
            "5005",
        ],
    ),
    (
        "group",
        &[
            "toors",
            "sudoers",
            "shadows",
            "nogroups",
            "minuses",
            "openers",
            "65534",
            "4294967295",
            "6001",
        ],
    ),
];

fn getent(host: &TestHost, database: &str, key: &str) -> ProgramOutput {
    host.run("getent", &[database, key])
}

#[track_caller]
fn assert_refused(host: &TestHost) {
    for (database, keys) in REFUSED {
        for key in keys {
            let done = getent(host, database, key);
            assert_eq!((done.code, &*done.stdout), (2, &b""[..]), "{database} {key}");
        }
    }
}

#[test]
fn module_refuses_privileged_ids_of_publisher() {
    if !needs_root() {
        return;
    }
    let host = host(RECOMMENDED_NSSWITCH);
    forge(&host);
    assert_refused(&host);
    for (database, key, line) in [
        ("passwd", "alice", "alice:*:5000:5000::/home/alice:/bin/sh"),
        ("passwd", "5000", "alice:*:5000:5000::/home/alice:/bin/sh"),
        ("group", "staff", "staff:*:6000:local,alice,toor"),
        ("group", "people", "people:*:5000:"),
        ("passwd", "0", "root:x:0:0:root:/root:/bin/sh"),
        ("group", "27", "sudo:x:27:"),
    ] {
        assert_eq!(getent(&host, database, key).text(), line);
    }
    // Lists go on behind a refused entry.
    let listed = |database: &str| host.run("getent", &["-s", "roster", database]).text();
    assert_eq!(listed("passwd"), "alice:*:5000:5000::/home/alice:/bin/sh");
    assert_eq!(listed("group"), "staff:*:6000:local,alice,toor\npeople:*:5000:");
    assert_eq!(host.run("id", &["-G", "local"]).text(), "1500 6000");
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "5000 6000");
    // Root needs no password.
    let su = host.run("su", &["alice", "-c", "id -u; id -G"]);
    assert_eq!(su.text(), "5000\n5000 6000");
    for name in ["toor", "wheel", "sudoer", "open"] {
        let su = host.run("su", &[name, "-c", "id"]);
        assert!(su.code != 0 && su.stdout.is_empty(), "{name}: {su:?}");
    }
}

#[test]
fn module_refuses_password_hashes_not_of_root() {
    if !needs_root() {
        return;
    }
    let host = host(RECOMMENDED_NSSWITCH);
    forge(&host);
    let found = || host.run("getent", &["-s", "roster", "shadow", "toor"]).code;
    assert_eq!(found(), 2, "of the publisher, in the publisher's directory");
    chown(host.shadow_snapshot_path(), Some(0), None).expect("chown");
    assert_eq!(found(), 2, "of root, in a directory that the publisher may write");
    chown(host.snapshots_dir(), Some(0), None).expect("chown");
    assert_eq!(found(), 0, "of root, in a directory of root");
    chown(host.shadow_snapshot_path(), Some(PUBLISHER), None).expect("chown");
    assert_eq!(found(), 2, "of the publisher, in a directory of root");
}

#[test]
fn module_reads_floor_when_it_opens_generation() {
    if !needs_root() {
        return;
    }
    let host = host(RECOMMENDED_NSSWITCH);
    forge(&host);
    let floor = host.path("etc/roster/floor");
    let write = |text: &str| {
        let fresh = host.path("etc/roster/fresh");
        fs::write(&fresh, text).expect("write the floor");
        fs::set_permissions(&fresh, Permissions::from_mode(0o644)).expect("chmod");
        fs::rename(&fresh, &floor).expect("put it in place");
    };
    let found = |name: &str| getent(&host, "passwd", name).code == 0;
    let expect = |user: bool, early: bool, why: &str| {
        assert_eq!((found("user"), found("early")), (user, early), "{why}");
        assert!(found("alice"), "{why}");
        assert_refused(&host);
    };
    expect(false, false, "no file");
    write("min_id 1000\ngid 100\n");
    expect(true, false, "a primary gid that is listed");
    write("min_id 600\n");
    expect(false, true, "a smaller id");
    write("min_id 600\ngid 20\ngid 100\n");
    expect(true, true, "both");
    for (text, why) in [("min_id 1\n\n", "malformed"), ("", "empty"), ("min_id 0\n", "no floor")] {
        write(text);
        expect(false, false, why);
    }
    write("min_id 600\ngid 100\n");
    fs::set_permissions(&floor, Permissions::from_mode(0o664)).expect("chmod");
    expect(false, false, "others can write it");
    fs::set_permissions(&floor, Permissions::from_mode(0o644)).expect("chmod");
    chown(&floor, Some(PUBLISHER), None).expect("chown");
    expect(false, false, "not of root");
    chown(&floor, Some(0), None).expect("chown");
    expect(true, true, "of root alone");
    fs::rename(&floor, host.path("etc/roster/elsewhere")).expect("move it");
    std::os::unix::fs::symlink("elsewhere", &floor).expect("link to it");
    expect(false, false, "a link");
}

/// A snapshot that root owns is under the administrator's control.
#[test]
fn module_applies_no_floor_to_snapshot_of_root() {
    if !needs_root() {
        return;
    }
    let host = host(RECOMMENDED_NSSWITCH);
    forge(&host);
    chown(host.snapshot_path(), Some(0), None).expect("chown");
    let toor = format!("toor:{HASH}:0:0::/home/toor:/bin/sh");
    assert_eq!(getent(&host, "passwd", "toor").text(), toor);
    assert_eq!(getent(&host, "group", "shadows").text(), "shadows:x:42:local,alice");
    assert_eq!(getent(&host, "passwd", "open").text(), "open::5005:5000::/home/open:/bin/sh");
    let groups = host.run("id", &["-G", "local"]).text();
    assert_eq!(groups, "1500 0 27 42 65534 4294967295 6000");
}

#[test]
fn nscd_map_refuses_what_module_refuses() {
    if !needs_root() {
        return;
    }
    let host = host(SNAPSHOT_ONLY);
    forge(&host);
    let responder = NscdServer::start(host);
    let host = responder.host();
    // No map has any of it. Requested keys come into a map later, as absent.
    let text = |table: &str| -> Vec<u8> {
        let maps = fs::read_dir(host.path("maps")).expect("read the directory of maps").flatten();
        let maps = maps.filter(|map| map.file_name().to_string_lossy().starts_with(table));
        maps.flat_map(|map| fs::read(map.path()).expect("read a map")).collect()
    };
    let has = |map: &[u8], word: &str| map.windows(word.len()).any(|part| part == word.as_bytes());
    let (passwd, group) = (text("passwd"), text("group"));
    assert!(has(&passwd, "alice\0*\0") && has(&group, "staff\0*\0"));
    for word in ["toor\0", "below\0", "wheel\0", "sudoer\0", "open\0", "$6$"] {
        assert!(!has(&passwd, word), "{word}");
    }
    for word in ["toors\0", "sudoers\0", "shadows\0", "openers\0", "$6$"] {
        assert!(!has(&group, word), "{word}");
    }
    assert_refused(host);
    let mut names = LookupProgram::on(host, &c_program("lookup_stdin"));
    let mut user = |name: &str| names.user(name);
    assert!(user("alice").starts_with("alice"), "{}", user("alice"));
    assert!(user("toor").starts_with("none"), "{}", user("toor"));
    assert_eq!(getent(host, "passwd", "alice").text(), "alice:*:5000:5000::/home/alice:/bin/sh");
    assert_eq!(getent(host, "group", "staff").text(), "staff:*:6000:local,alice,toor");
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "5000 6000");
    // The groups of `local` are one: a list's packet ends in its gids.
    assert_eq!(names.gids_of("local"), names.gids_of("alice"));
}

#[test]
fn publisher_cannot_swap_domain_caches() {
    if !needs_root() {
        return;
    }
    let text = tempfile::tempdir().expect("a directory");
    fs::set_permissions(text.path(), Permissions::from_mode(0o755)).expect("chmod");
    let (passwd, group) = (text.path().join("passwd"), text.path().join("group"));
    fs::write(&passwd, "alice:x:5000:5000::/home/alice:/bin/sh\n").expect("write users");
    fs::write(&group, "people:x:5000:\n").expect("write groups");
    let mut rosterd = Rosterd::installed(&[DomainTable::files("corp", &passwd, &group)]);
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Files(&passwd, &group)]);
    rosterd.stop();

    let host = rosterd.host();
    let state = host.state_dir();
    let as_publisher = |script: &str| {
        let mut command = as_publisher(host, &find_tool("sh", "dash"));
        run(command.args(["-c", script]))
    };
    let planted = "mkdir -m711 domains; mkdir domains/corp; echo >domains/corp/credentials.redb";
    for script in [
        "mv domains domains.old",
        "mkdir other",
        "echo >floor",
        "ls domains/corp",
        "cat domains/corp/cache.redb",
        "echo >domains/corp/credentials.redb",
    ] {
        let done = as_publisher(&format!("cd /var/lib/roster && {script}"));
        assert!(done.code != 0 && done.error().contains("ermission denied"), "{script}: {done:?}");
    }
    let floor = fs::read_to_string(host.path("etc/roster/floor"));
    assert_eq!(floor.expect("the monitor wrote it"), "min_id 1000\ngid 100\n");
    // The older layout, in which the publisher owned the directory above.
    chown(&state, Some(PUBLISHER), None).expect("chown");
    let done = as_publisher(&format!("cd /var/lib/roster && mv domains domains.old && {planted}"));
    assert_eq!(done.code, 0, "{done:?}");
    chown(&state, Some(0), None).expect("chown");
    rosterd.launch();
    wait_for(roster_system_tests::rosterd::SOON, || {
        let log = rosterd.log();
        let told = format!("domains: belongs to uid {PUBLISHER}, which may have planted files");
        if log.contains(&told) { Ok(()) } else { Err(log) }
    });
    let planted = fs::metadata(state.join("domains/corp/credentials.redb")).expect("it is there");
    assert_eq!(planted.uid(), PUBLISHER, "it was given to the backend");
    // The advice helps.
    fs::rename(state.join("domains"), state.join("planted")).expect("move it away");
    fs::rename(state.join("domains.old"), state.join("domains")).expect("put it back");
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Files(&passwd, &group)]);
}
