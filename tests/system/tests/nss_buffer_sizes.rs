// SPDX-License-Identifier: MIT OR Apache-2.0
//! A caller's buffer of any length gets the right answer or ERANGE, and nothing is written outside.

use roster_system_tests::{Corpus, NssCaller, TestHost};

#[test]
fn every_length_of_buffer_is_enough_or_too_small() {
    let members: Vec<_> = (0..40).map(|i| format!("member{i}")).collect();
    let passwd = "alice:x:1000:1001:Alice A,,,:/home/alice:/bin/sh\nempty::5::::\nbare:x:6:6\n+\n";
    let group = format!("none:x:7:\nall:secret:8:{}\nalone:x:9:a\n+\n", members.join(","));
    let shadow = "alice:$6$hash:19000:0:99999:7:30:20000:1\nold:*:1:2:3\n";
    let corpus = Corpus::new("", passwd.as_bytes(), group.as_bytes(), shadow.as_bytes());
    let host = TestHost::serving(&corpus, "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    for look_up in [
        "getpwnam alice",
        "getpwuid 1000",
        "getpwnam bare",
        "getgrnam none",
        "getgrnam all",
        "getgrgid 8",
        "getgrnam alone",
        "getspnam alice",
        "getspnam old",
    ] {
        let answer = caller.send_command(&format!("lengths-{look_up}"));
        assert!(answer.starts_with("enough from "), "{look_up}: {answer}");
    }
}

/// A missing entry needs no room.
#[test]
fn an_unknown_name_is_not_found_with_no_buffer_at_all() {
    let host = TestHost::serving(&Corpus::new("", b"a:x:1:1:::\n", b"g:x:1:\n", b""), "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    for look_up in ["getpwnam nobody", "getpwuid 77", "getgrnam nobody", "getgrgid 77"] {
        let answer = caller.send_command(&format!("lengths-{look_up}"));
        assert!(answer.starts_with("NOTFOUND "), "{look_up}: {answer}");
    }
}

/// glibc calls again with a larger buffer and must get the entry that did not fit, not the next.
#[test]
fn an_enumeration_waits_for_a_large_enough_buffer() {
    let members = vec!["a-rather-long-name"; 5000].join(",");
    let group = format!("small:x:1:a\nbig:x:2:{members}\nlast:x:3:b\n");
    let corpus = Corpus::new("", b"a:x:1:1:::\n", group.as_bytes(), b"");
    let host = TestHost::serving(&corpus, "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    assert_eq!(caller.send_command("setgrent"), "SUCCESS");
    assert_eq!(caller.send_command("getgrent"), "SUCCESS small:x:1:a");
    assert_eq!(caller.send_command("getgrent"), "TRYAGAIN ERANGE");
    assert_eq!(caller.send_command("getgrent"), "TRYAGAIN ERANGE");
    assert_eq!(caller.send_command("endgrent"), "SUCCESS");
    assert_eq!(caller.send_command("getgrent"), "SUCCESS small:x:1:a");
}

#[test]
fn the_group_list_grows_as_far_as_the_limit_allows() {
    let group: String = (1..=100).map(|i| format!("g{i}:x:{i}:alice\n")).collect();
    let corpus = Corpus::new("", b"alice:x:1000:1:::\n", group.as_bytes(), b"");
    let host = TestHost::serving(&corpus, "");
    let mut caller = NssCaller::with_snapshot(&host.snapshot_path());
    let gids =
        |from: u32, to: u32| (from..=to).map(|gid| gid.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(caller.send_command("initgroups alice 1"), format!("SUCCESS {}", gids(1, 100)));
    assert_eq!(caller.send_command("initgroups alice 1 64"), format!("SUCCESS {}", gids(1, 100)));
    assert_eq!(caller.send_command("initgroups alice 1 4 10"), format!("SUCCESS {}", gids(1, 10)));
    assert_eq!(caller.send_command("initgroups nobody 1"), "NOTFOUND ENOENT 1");
}
