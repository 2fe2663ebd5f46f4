// SPDX-License-Identifier: MIT OR Apache-2.0
//! Likely lines of nsswitch.conf, and their results.

use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{Corpus, TestHost};

/// `alice` is in the local group `audio` and in two of the directory; `staff` is in both.
fn host(nsswitch: &str) -> TestHost {
    let local = Corpus::new(
        "",
        b"root:x:0:0:root:/root:/bin/sh\nlocal:x:500:500:::\n",
        b"root:x:0:\naudio:x:29:alice,local\nstaff:x:50:local\n",
        b"",
    );
    let directory = Corpus::new(
        "",
        b"alice:x:70000:70000:Alice:/home/alice:/bin/sh\nlocal:x:70001:70001:shadowed::\n",
        b"alice:x:70000:\nstaff:x:50:alice,bob\ndev:x:70100:alice,local\nops:x:70101:alice\n",
        b"",
    );
    let host = TestHost::new(&local, nsswitch);
    host.publish(&directory);
    host
}

#[test]
fn the_recommended_lines_join_local_and_directory_groups() {
    let host = host(RECOMMENDED_NSSWITCH);
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "70000 29 50 70100 70101");
    assert_eq!(host.run("id", &["-G", "local"]).text(), "500 29 50 70100");
    assert_eq!(host.run("getent", &["passwd", "local"]).text(), "local:x:500:500:::");
    assert_eq!(host.run("getent", &["group", "staff"]).text(), "staff:x:50:local");
}

/// The reason for the action in the recommended line: without it a user of one local group loses the rest.
#[test]
fn initgroups_plain_line_drops_directory_groups() {
    let host = host("passwd: files roster\ngroup: files roster\ninitgroups: files roster\n");
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "70000 29");
}

#[test]
fn a_group_line_alone_is_enough_for_both() {
    let host = host("passwd: files roster\ngroup: files roster\n");
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "70000 29 50 70100 70101");
}

#[test]
fn the_directory_may_come_first() {
    let host = host("passwd: roster files\ngroup: roster files\n");
    assert_eq!(host.run("id", &["-G", "alice"]).text(), "70000 50 70100 70101 29");
    let user = host.run("getent", &["passwd", "local"]).text();
    assert_eq!(user, "local:x:70001:70001:shadowed::");
    assert_eq!(host.run("id", &["-u", "root"]).text(), "0");
}

#[test]
fn merge_joins_the_members_of_a_group_in_both() {
    let host = host("passwd: files roster\ngroup: files [SUCCESS=merge] roster\n");
    assert_eq!(host.run("getent", &["group", "staff"]).text(), "staff:x:50:local,alice,bob");
    assert_eq!(host.run("getent", &["group", "50"]).text(), "staff:x:50:local,alice,bob");
    assert_eq!(host.run("getent", &["group", "dev"]).text(), "dev:x:70100:alice,local");
    assert_eq!(host.run("getent", &["group", "audio"]).text(), "audio:x:29:alice,local");
    let unknown = host.run("getent", &["group", "nobody-here"]);
    assert_eq!((unknown.code, unknown.stdout), (2, Vec::new()));
}

/// Without a snapshot no user is made up: `roster` is UNAVAIL, and the other services answer.
#[test]
fn without_a_snapshot_the_local_users_stay() {
    let host = host(RECOMMENDED_NSSWITCH);
    std::fs::remove_file(host.snapshot_path()).expect("remove");
    assert_eq!(host.run("id", &["-G", "local"]).text(), "500 29 50");
    assert_eq!(host.run("getent", &["passwd", "alice"]).code, 2);
}
