// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot's disk fails to read some sectors: the test cuts the file of a loop device. Programs get an error and
//! live, and local accounts answer. Under rosterd programs map a copy in memory until there is a new file.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{
    Corpus, DomainTable, NssCaller, Rosterd, TestHost, c_program, find_tool, needs_root, run,
    wait_for, wait_until,
};
use rustix::fs::Advice;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const DISK_BYTES: u64 = 64 << 20;
const USERS: u32 = 5_000;

/// A file system in a loop device, mounted until this is dropped.
struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    /// Mounts the disk over the host's state directory.
    fn under(host: &TestHost) -> Self {
        let (image, mount) = (host.path("disk.img"), host.state_dir());
        File::create(&image).expect("create").set_len(DISK_BYTES).expect("grow");
        // A write behind the end of the file makes it longer again: no journal, no times of access.
        let make = ["-q", "-F", "-b", "4096", "-O", "^has_journal"];
        done(Command::new(find_tool("mkfs.ext4", "e2fsprogs")).args(make).arg(&image));
        // Direct, or reads behind the end of the file give zeros.
        let attach = ["--direct-io=on", "--find", "--show"];
        let device = done(Command::new(find_tool("losetup", "mount")).args(attach).arg(&image));
        let mounted = run(Command::new("mount").args(["-o", "noatime"]).arg(&device).arg(&mount));
        // The kernel detaches the device with the last mount, also when the test is killed.
        done(Command::new("losetup").arg("-d").arg(&device));
        assert_eq!(mounted.code, 0, "{}", mounted.error());
        let disk = Self { image, mount };
        for folder in [host.state_dir(), host.snapshots_dir(), host.state_dir().join("shadow")] {
            fs::create_dir_all(&folder).expect("create");
            fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("chmod");
        }
        disk
    }

    /// From `skipped` bytes of the file on, nothing of it can be read from now on.
    fn lose(&self, path: &Path, skipped: u64) {
        let file = File::open(path).expect("open");
        rustix::fs::syncfs(&file).expect("sync");
        let extents = done(Command::new(find_tool("filefrag", "e2fsprogs")).arg("-e").arg(path));
        let first =
            extents.lines().find(|line| line.trim_start().starts_with("0:")).expect(&extents);
        let block = first.split([':', '.']).filter(|word| !word.trim().is_empty()).nth(3);
        let block: u64 = block.expect(first).trim().parse().expect(first);
        let image = OpenOptions::new().write(true).open(&self.image).expect("open");
        image.set_len(block * 4096 + skipped).expect("cut");
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("drop what is cached");
        let read = File::open(path).expect("open").read_to_end(&mut Vec::new());
        assert_eq!(read.expect_err("unreadable").raw_os_error(), Some(5), "{extents}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

/// The output of a command that works.
fn done(command: &mut Command) -> String {
    run(command).text()
}

fn corpus() -> Corpus {
    let passwd: String = (0..USERS)
        .map(|n| format!("u{n}:x:{0}:5000:{n}:/home/u{n}:/bin/sh\n", 10_000 + n))
        .collect();
    let members: Vec<_> = (0..USERS).map(|n| format!("u{n}")).collect();
    let group = format!("people:x:5000:{}\n", members.join(","));
    Corpus::new("people", passwd.as_bytes(), group.as_bytes(), b"")
}

/// A daemon that mirrors text in a directory, as a package sets it up.
fn prepared() -> (Rosterd, TempDir) {
    let text = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory for the text");
    corpus().write(text.path());
    let (passwd, group) = (text.path().join("passwd"), text.path().join("group"));
    for path in [&passwd, &group] {
        fs::set_permissions(path, Permissions::from_mode(0o644)).expect("chmod");
    }
    (Rosterd::installed(&[DomainTable::files("corp", &passwd, &group)]), text)
}

/// The directory of copies.
fn copies(rosterd: &mut Rosterd) -> PathBuf {
    format!("/proc/{}/root/run/roster/snap", rosterd.process().pid().as_raw_nonzero()).into()
}

/// The expected place of that snapshot's copy.
fn copy_of(snapshot: &Path, copies: &Path) -> PathBuf {
    copies.join(format!("v3.{:016x}", snapshot.metadata().expect("a snapshot").ino()))
}

fn locals() -> Corpus {
    let passwd = b"root:x:0:0:root:/root:/bin/sh\n";
    Corpus::new("local", passwd, b"root:x:0:\n", b"root:*:1::::::\n")
}

/// Commands that look root up.
const OF_ROOT: [&[&str]; 3] =
    [&["getent", "passwd", "root"], &["id", "root"], &["su", "root", "-c", "true"]];

#[test]
fn unreadable_snapshot_is_eio_and_kills_nobody() {
    if !needs_root() {
        return;
    }
    for skipped in [0, 128 << 10] {
        let host = TestHost::new(&locals(), RECOMMENDED_NSSWITCH);
        let disk = Disk::under(&host);
        host.publish(&corpus());
        let told = host.run("getent", &["passwd", "u7"]);
        assert_eq!(told.text(), "u7:x:10007:5000:7:/home/u7:/bin/sh");
        disk.lose(&host.snapshot_path(), skipped);
        let mut caller = NssCaller::start(host.command(c_program("nss_caller")).arg("roster"));
        for question in ["getpwnam u7", "getpwnam nobody-at-all", "getgrgid 5000", "getpwent"] {
            assert_eq!(caller.send_command(question), "UNAVAIL EIO", "{skipped}: {question}");
        }
        // Not 128 and a signal.
        assert_eq!(host.run("id", &["u7"]).code, 1);
        for words in OF_ROOT {
            let told = host.run(words[0], &words[1..]);
            assert_eq!(told.code, 0, "{words:?}: {}", told.error());
        }
    }
}

#[test]
fn lookups_under_rosterd_survive_unreadable_snapshot() {
    if !needs_root() {
        return;
    }
    let (mut rosterd, text) = prepared();
    let disk = Disk::under(rosterd.host());
    rosterd.launch();
    let snapshot = rosterd.host().snapshot_path();
    wait_until(SOON, "a snapshot", || rosterd.roster(&["status"]).code == 0 && snapshot.exists());
    let copies = copies(&mut rosterd);
    let copy = || copy_of(&snapshot, &copies);
    wait_until(SOON, "a copy", || copy().exists());
    assert_eq!(fs::read(copy()).expect("the copy"), fs::read(&snapshot).expect("the snapshot"));

    let going = text.path().join("going");
    fs::write(&going, "").expect("write");
    let watch = "while [ -e \"$1\" ]; do getent passwd u7 && id u7 && id root || echo failed; done | grep -v \
                 -e '^u7:[*]:10007:' -e '^uid=0(root) ' -e '^uid=10007(u7) gid=5000(people) groups=5000(people)$'";
    let mut watcher = rosterd.command_inside(Path::new("/bin/sh"));
    let watcher = watcher.args(["-c", watch, "sh"]).arg(&going).stdout(Stdio::piped());
    let watcher = watcher.spawn().expect("start the watcher");

    // No file can replace it, so that the state lasts.
    let change = |flag| {
        let folder = snapshot.parent().expect("a directory");
        done(Command::new(find_tool("chattr", "e2fsprogs")).arg(flag).arg(folder))
    };
    change("+i");
    disk.lose(&snapshot, 128 << 10);
    let before = snapshot.metadata().expect("a snapshot").ino();
    rosterd.kill_role("publisher");
    wait_for(SOON, || {
        let told = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let is_told = text.contains("cannot be read from the disk: Input/output error");
        if told.code == 1 && is_told { Ok(()) } else { Err(format!("{}: {text}", told.code)) }
    });
    change("-i");
    wait_for(SOON, || {
        let told = rosterd.roster(&["status"]);
        if told.code == 0 {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&told.stdout).into_owned())
        }
    });
    assert_ne!(snapshot.metadata().expect("a snapshot").ino(), before);
    assert_eq!(fs::read(copy()).expect("the copy"), fs::read(&snapshot).expect("readable"));
    fs::remove_file(&going).expect("stop the watcher");
    let told = watcher.wait_with_output().expect("the watcher");
    assert_eq!(String::from_utf8_lossy(&told.stdout), "");
    rosterd.stop();
}

/// The copy is removed together with its directory. Programs read the file, and with the next change there is a copy
/// again.
#[test]
fn removed_copy_is_made_again() {
    if !needs_root() {
        return;
    }
    let (mut rosterd, text) = prepared();
    rosterd.launch();
    let snapshot = rosterd.host().snapshot_path();
    wait_until(SOON, "a snapshot", || rosterd.roster(&["status"]).code == 0 && snapshot.exists());
    let copies = copies(&mut rosterd);
    let copy = || copy_of(&snapshot, &copies);
    wait_until(SOON, "a copy", || copy().exists());
    fs::remove_dir_all(&copies).expect("remove");
    rosterd.expect("passwd", "u7", Some("u7:*:10007:5000:7:/home/u7:/bin/sh"));
    let passwd = text.path().join("passwd");
    let changed =
        fs::read_to_string(&passwd).expect("users").replace(":7:/home/u7:", ":7:/srv/u7:");
    fs::write(&passwd, changed).expect("change a user");
    rosterd.expect("passwd", "u7", Some("u7:*:10007:5000:7:/srv/u7:/bin/sh"));
    wait_until(SOON, "another copy", || copy().exists());
    let names = fs::read_dir(&copies).expect("list").count();
    assert_eq!(names, 1, "one copy");
    rosterd.stop();
}

/// Running programs map the copy. New programs see the length of a file before they map it.
#[test]
fn cut_snapshot_under_rosterd_ends_no_program() {
    if !needs_root() {
        return;
    }
    let (mut rosterd, _text) = prepared();
    rosterd.launch();
    let snapshot = rosterd.host().snapshot_path();
    wait_until(SOON, "a snapshot", || rosterd.roster(&["status"]).code == 0 && snapshot.exists());
    let copies = copies(&mut rosterd);
    let copy = || copy_of(&snapshot, &copies);
    wait_until(SOON, "a copy", || copy().exists());
    let caller = rosterd.command_inside(&c_program("nss_caller"));
    let mut caller = NssCaller::start({ caller }.arg("roster"));
    let found = caller.send_command("getpwnam u7");
    assert!(found.contains("10007"), "{found}");
    let new_program = || {
        let mut getent = rosterd.command_inside(Path::new("getent"));
        run(getent.args(["-s", "roster", "passwd", "u7"]))
    };
    for length in [0, 4096] {
        let before = snapshot.metadata().expect("a snapshot").ino();
        OpenOptions::new().write(true).open(&snapshot).expect("open").set_len(length).expect("cut");
        for user in [7, 11, 4_999] {
            let known = caller.send_command(&format!("getpwnam u{user}"));
            assert!(known.contains(&(10_000 + user).to_string()), "{length}: {known}");
        }
        wait_for(SOON, || {
            let done = new_program();
            // Not 128 and a signal.
            assert!(done.code < 128, "{length}: {}", done.code);
            let is_new = snapshot.metadata().is_ok_and(|found| found.ino() != before);
            if done.code == 0 && is_new { Ok(()) } else { Err(done.error()) }
        });
        wait_until(SOON, "another copy", || copy().exists());
    }
    OpenOptions::new().write(true).open(copy()).expect("open").set_len(0).expect("cut");
    let done = new_program();
    assert_eq!(done.code, 0, "a cut copy: {}", done.error());
    rosterd.stop();
}
