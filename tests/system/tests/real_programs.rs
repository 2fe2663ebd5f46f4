// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs on a host with users from a snapshot: coreutils, findutils, Python, Go with cgo, a static program, su.

use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{
    Corpus, TestHost, c_program, c_program_with, find_tool, needs_root, run,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The password of `alice` is "correct horse".
const HASH: &str = "$6$rosterstaple$Q4MuctGMhVampKdtdeYfse5sKFJh9B7nwsdn62Y88yo.ORVGHGpZEU3eUu2vDlWHDhvsn5bh5gZRbZiCAce2x0";

fn host() -> TestHost {
    let local = Corpus::new(
        "",
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n",
        b"root:x:0:\nnogroup:x:65534:\nshadow:x:42:\n",
        b"root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n",
    );
    let passwd = b"alice:x:70000:70000:Alice Example,,,:/tmp:/bin/sh\n\
                   bob:x:70001:70000:Bob:/tmp:/bin/sh\nexpired:x:70002:70000::/tmp:/bin/sh\n";
    let group = b"people:x:70000:\nstaff:x:70050:alice,bob\nj\xc3\xb6rgs:x:70051:alice\n";
    let shadow = format!(
        "alice:{HASH}:19000:0:99999:7:::\nbob:*:19000:0:99999:7:::\nexpired:*:19000:0:99999:7::19001:\n"
    );
    let host = TestHost::new(&local, RECOMMENDED_NSSWITCH);
    host.publish(&Corpus::new("", passwd, group, shadow.as_bytes()));
    host
}

#[test]
fn id_knows_user_and_groups() {
    let all =
        "uid=70000(alice) gid=70000(people) groups=70000(people),70050(staff),70051(j\u{f6}rgs)";
    assert_eq!(host().run("id", &["alice"]).text(), all);
    assert_eq!(host().run("id", &["-un", "70001"]).text(), "bob");
    let unknown = host().run("id", &["carol"]);
    assert_eq!((unknown.code, unknown.error().contains("no such user")), (1, true));
}

#[test]
fn groups_knows_the_names() {
    assert_eq!(host().run("groups", &["bob"]).text(), "bob : people staff");
}

#[test]
fn ls_stat_chown_and_find_speak_names() {
    if !needs_root() {
        return;
    }
    let told = host().shell(
        "cd /var/lib; touch file; chown alice:staff file
         ls -l file | cut -d' ' -f3,4; stat -c '%U %G %u %g' file
         find . -user alice -group staff; find . -user bob; chown bob: file; stat -c '%U %G' file",
    );
    assert_eq!(told.text(), "alice staff\nalice staff 70000 70050\n./file\nbob people");
}

/// Commands that need no change of owner work in a user namespace too.
#[test]
fn ls_and_stat_name_the_owner() {
    let host = TestHost::new(&Corpus::default(), RECOMMENDED_NSSWITCH);
    host.publish(&Corpus::new("", b"boss:x:0:0:::\n", b"bosses:x:0:\n", b""));
    let told = host.shell("cd /var/lib; touch f; ls -l f | cut -d' ' -f3,4; stat -c %U:%G f");
    assert_eq!(told.text(), "boss bosses\nboss:bosses");
}

#[test]
fn python_knows_users_and_groups() {
    let script = "import pwd, grp, os
u = pwd.getpwnam('alice'); g = grp.getgrgid(70050)
print(u.pw_uid, u.pw_gecos, u.pw_dir, g.gr_name, g.gr_mem, os.getgrouplist('alice', 70000))
print([u.pw_name for u in pwd.getpwall()], [g.gr_name for g in grp.getgrall()][-2:])
try: pwd.getpwnam('carol')
except KeyError: print('nobody')";
    // The distribution's own: others may be linked to another libc.
    let python = Path::new("/usr/bin/python3");
    assert!(python.exists(), "/usr/bin/python3 is missing: install the Debian package python3");
    let told = run(host().command(python).args(["-c", script]).env("LC_ALL", "C.UTF-8")).text();
    assert_eq!(
        told,
        "70000 Alice Example,,, /tmp staff ['alice', 'bob'] [70000, 70050, 70051]\n\
         ['root', 'nobody', 'alice', 'bob', 'expired'] ['staff', 'j\u{f6}rgs']\nnobody"
    );
}

#[test]
fn a_cgo_program_knows_user_and_groups() {
    let program = cgo_program();
    let told = run(host().command(program).arg("alice")).text();
    assert_eq!(told, "alice:70000:70000:Alice Example:/tmp people staff j\u{f6}rgs");
}

fn cgo_program() -> PathBuf {
    let folder = c_program("lookup").with_file_name("go");
    let mut go = Command::new(find_tool("go", "golang-go"));
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"));
    go.args(["build", "-o"]).arg(folder.join("lookup"));
    go.env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
    go.env("GOCACHE", folder.join("cache"));
    let built = run(&mut go);
    assert_eq!(built.code, 0, "go build: {}", built.error());
    folder.join("lookup")
}

#[test]
fn a_statically_linked_program_knows_user_and_groups() {
    let program = c_program_with("lookup", "lookup-static", &["-static"]);
    let told = run(host().command(program).args(["alice", "carol"])).text();
    assert_eq!(
        told,
        "alice:70000:70000:Alice Example,,,:people,staff,j\u{f6}rgs\ncarol: no such user"
    );
}

#[test]
fn su_becomes_a_user_of_the_snapshot() {
    if !needs_root() {
        return;
    }
    let told = host().run("su", &["alice", "-c", "id -un; id -Gn; echo $HOME"]);
    assert_eq!(told.text(), "alice\npeople staff j\u{f6}rgs\n/tmp");
}

/// Account management reads the expiry from the shadow snapshot.
#[test]
fn su_turns_an_expired_account_away() {
    if !needs_root() {
        return;
    }
    let told = host().run("su", &["expired", "-c", "true"]);
    assert_ne!(told.code, 0, "{told:?}");
    assert!(told.error().contains("expired"), "{}", told.error());
}

/// su is set-uid here: the module in it reads the shadow snapshot, which its caller may not.
#[test]
fn su_takes_the_password_of_the_shadow_snapshot() {
    if !needs_root() {
        return;
    }
    let told = host().shell(
        "as_bob='setpriv --reuid bob --regid people --clear-groups'
         $as_bob getent shadow alice && echo readable
         echo 'correct horse' | $as_bob su alice -c 'id -un' 2>/dev/null
         echo 'wrong horse' | $as_bob su alice -c 'id -un' 2>/dev/null || echo refused",
    );
    assert_eq!(told.text(), "alice\nrefused");
}
