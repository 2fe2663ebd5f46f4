//! Sectors of the snapshot's disk that cannot be read: the disk is a loop device whose file was cut. No program dies of
//! it, local accounts answer, and under rosterd nobody notices: programs map a copy in memory until a new file is
//! written.

use roster_system_tests::host::{Output, RECOMMENDED};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    Corpus, Domain, Host, Rosterd, needs_root, run, tool, wait_for, wait_until,
};
use rustix::fs::Advice;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISK_BYTES: u64 = 64 << 20;
const USERS: u32 = 5_000;
/// Exit code of a process that died of SIGBUS.
const KILLED_BY_BUS: i32 = 128 + 7;

/// A file system in a loop device, mounted until this is dropped.
struct Disk {
    image: PathBuf,
    device: String,
    mount: PathBuf,
}

impl Disk {
    /// In the place of the host's folder of state.
    fn under(host: &Host) -> Self {
        let (image, mount) = (host.path("disk.img"), host.state());
        File::create(&image).expect("create").set_len(DISK_BYTES).expect("grow");
        let make = ["-q", "-F", "-b", "4096"];
        run(Command::new(tool("mkfs.ext4", "e2fsprogs")).args(make).arg(&image)).text();
        // Direct, or reads behind the end of the file give zeros.
        let attach = ["--direct-io=on", "--find", "--show"];
        let device = run(Command::new(tool("losetup", "mount")).args(attach).arg(&image)).text();
        let disk = Self { image, device, mount };
        run(Command::new("mount").arg(&disk.device).arg(&disk.mount)).text();
        for folder in [host.state(), host.snapshots(), host.state().join("shadow")] {
            fs::create_dir_all(&folder).expect("create");
            fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("chmod");
        }
        disk
    }

    fn remount(&self, how: &str) {
        run(Command::new("mount").args(["-o", how]).arg(&self.mount)).text();
    }

    /// From `skipped` bytes of the file on, nothing of it can be read from now on.
    fn lose(&self, path: &Path, skipped: u64) {
        let file = File::open(path).expect("open");
        file.sync_all().expect("sync");
        let extents =
            run(Command::new(tool("filefrag", "e2fsprogs")).args(["-e"]).arg(path)).text();
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
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

fn corpus() -> Corpus {
    let passwd: String = (0..USERS)
        .map(|n| format!("u{n}:x:{0}:5000:{n}:/home/u{n}:/bin/sh\n", 10_000 + n))
        .collect();
    let members: Vec<_> = (0..USERS).map(|n| format!("u{n}")).collect();
    let group = format!("people:x:5000:{}\n", members.join(","));
    Corpus::new("people", passwd.as_bytes(), group.as_bytes(), b"")
}

fn locals() -> Corpus {
    let passwd = b"root:x:0:0:root:/root:/bin/sh\n";
    Corpus::new("local", passwd, b"root:x:0:\n", b"root:*:1::::::\n")
}

/// What programs of root's say.
fn expect_root(command: impl Fn(&str) -> Command) {
    let told =
        |program: &str, arguments: &[&str]| -> Output { run(command(program).args(arguments)) };
    for (program, arguments) in
        [("getent", &["passwd", "root"][..]), ("id", &["root"]), ("su", &["root", "-c", "true"])]
    {
        let told = told(program, arguments);
        assert_eq!(told.code, 0, "{program} {arguments:?}: {}", told.error());
    }
}

#[test]
fn unreadable_snapshot_is_eio_and_kills_nobody() {
    if !needs_root() {
        return;
    }
    for skipped in [0, 128 << 10] {
        let host = Host::new(&locals(), RECOMMENDED);
        let disk = Disk::under(&host);
        host.publish(&corpus());
        let told = host.run("getent", &["passwd", "u7"]);
        assert_eq!(told.text(), "u7:x:10007:5000:7:/home/u7:/bin/sh");
        disk.lose(&host.snapshot(), skipped);
        for name in ["u7", "nobody-at-all"] {
            let told = host.run("id", &[name]);
            assert_ne!(told.code, KILLED_BY_BUS, "{skipped}: {name}");
            assert!(
                told.code != 0 && told.error().contains("Input/output error"),
                "{name}: {}",
                told.error()
            );
        }
        expect_root(|program| host.command(program));
    }
}

#[test]
fn lookups_under_rosterd_survive_unreadable_snapshot() {
    if !needs_root() {
        return;
    }
    let text = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory for the text");
    corpus().write(text.path());
    let (passwd, group) = (text.path().join("passwd"), text.path().join("group"));
    [&passwd, &group]
        .map(|path| fs::set_permissions(path, Permissions::from_mode(0o644)).expect("chmod"));
    let mut rosterd = Rosterd::installed(&[Domain::files("corp", &passwd, &group)]);
    let disk = Disk::under(rosterd.host());
    rosterd.launch();
    let snapshot = rosterd.host().snapshot();
    wait_until(SOON, "a snapshot", || rosterd.roster(&["status"]).code == 0 && snapshot.exists());
    let root = format!("/proc/{}/root", rosterd.process().pid().as_raw_nonzero());
    let copy = || {
        let inode = snapshot.metadata().expect("a snapshot").ino();
        PathBuf::from(&root).join(format!("run/roster/snap/{inode:016x}"))
    };
    wait_until(SOON, "a copy", || copy().exists());
    assert_eq!(fs::read(copy()).expect("the copy"), fs::read(&snapshot).expect("the snapshot"));

    let stop = text.path().join("stop");
    let watch = "while [ ! -e \"$1\" ]; do getent passwd u7 && id u7 || echo failed; done | grep -v \
                 -e ^u7:x:10007: -e '^uid=10007(u7) gid=5000(people) groups=5000(people)$'";
    let mut watcher = rosterd.inside(Path::new("/bin/sh"));
    let watcher = watcher.args(["-c", watch, "sh"]).arg(&stop).stdout(Stdio::piped());
    let watcher = watcher.spawn().expect("start the watcher");

    // Nothing can be written either, so that the state lasts.
    disk.remount("remount,ro");
    disk.lose(&snapshot, 128 << 10);
    let before = snapshot.metadata().expect("a snapshot").ino();
    rosterd.kill_role("publisher");
    wait_for(SOON, || {
        let told = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let is_told = text.contains("cannot be read from the disk: Input/output error");
        if told.code == 1 && is_told { Ok(()) } else { Err(format!("{}: {text}", told.code)) }
    });
    expect_root(|program| rosterd.inside(Path::new(&format!("/usr/bin/{program}"))));
    disk.remount("remount,rw");
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
    fs::write(&stop, "").expect("stop the watcher");
    let told = watcher.wait_with_output().expect("the watcher");
    assert_eq!(String::from_utf8_lossy(&told.stdout), "");
    rosterd.stop();
}

/// The copy goes, and with it the folder: the publisher ends for that and makes another.
#[test]
fn removed_copy_is_made_again() {
    if !needs_root() {
        return;
    }
    let text = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory for the text");
    corpus().write(text.path());
    let (passwd, group) = (text.path().join("passwd"), text.path().join("group"));
    [&passwd, &group]
        .map(|path| fs::set_permissions(path, Permissions::from_mode(0o644)).expect("chmod"));
    let mut rosterd = Rosterd::installed(&[Domain::files("corp", &passwd, &group)]);
    rosterd.launch();
    let snapshot = rosterd.host().snapshot();
    wait_until(SOON, "a snapshot", || rosterd.roster(&["status"]).code == 0 && snapshot.exists());
    let folder = format!("/proc/{}/root/run/roster/snap", rosterd.process().pid().as_raw_nonzero());
    let copy = || {
        let inode = snapshot.metadata().expect("a snapshot").ino();
        Path::new(&folder).join(format!("{inode:016x}"))
    };
    wait_until(SOON, "a copy", || copy().exists());
    fs::remove_dir_all(&folder).expect("remove");
    rosterd.expect("passwd", "u7", Some("u7:x:10007:5000:7:/home/u7:/bin/sh"));
    rosterd.kill_role("publisher");
    wait_until(SOON, "another copy", || copy().exists());
    let names = fs::read_dir(&folder).expect("list").count();
    assert_eq!(names, 1, "one copy");
    rosterd.stop();
}
