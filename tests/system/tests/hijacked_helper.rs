// SPDX-License-Identifier: MIT OR Apache-2.0
//! The helper of `roster nscd`, with a compromised module of another name service. None of its attempts changes the
//! maps that all programs read.

use roster_system_tests::nscd::{LookupProgram, NscdServer, SOON};
use roster_system_tests::test_host::run;
use roster_system_tests::{
    Corpus, SystemdHost, TestHost, c_program, c_program_with, needs_root, wait_for, wait_until,
};
use std::fs;
use std::path::{Path, PathBuf};

const SERVER: u32 = 906;
const HELPER: u32 = 907;
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbin:x:2:2:bin:/bin:/usr/sbin/nologin\n\
                      nobody:x:65534:65534:::\n";
const GROUP: &str = "root:x:0:\nbin:x:2:\nnogroup:x:65534:\n";
const NSSWITCH: &str = "passwd: files hostile\ngroup: files\n";
/// The module may do this like every program: receive a map, and read it.
const ALLOWED: [&str; 2] = ["handed", "mapped"];
/// Attempts on every kernel, including those.
const TRIES: usize = 25;

fn module() -> PathBuf {
    c_program_with("nss_hostile", "libnss_hostile.so.2", &["-shared", "-fPIC"])
}

/// A server that root starts as another user, with the module in reach of its helper.
fn served() -> NscdServer {
    let users =
        format!("roster-nscd:x:{SERVER}:901:::\nroster-nscd-helper:x:{HELPER}:{HELPER}:::\n");
    let local = Corpus::new("", format!("{PASSWD}{users}").as_bytes(), GROUP.as_bytes(), b"");
    let mut served =
        NscdServer::prepared(TestHost::in_memory(&local, NSSWITCH), &["--user", "roster-nscd"]);
    let folder = served.host().path("hostile");
    fs::create_dir(&folder).expect("make a folder for the module");
    fs::copy(module(), folder.join("libnss_hostile.so.2")).expect("copy the module");
    served.run_before(&format!(
        "mount -t overlay -o lowerdir={}:/usr/lib overlay /usr/lib",
        folder.display()
    ));
    served.launch();
    served
}

/// The module attacks the server of that process id in the helper's namespace. Returns the uid and gid of the helper.
#[track_caller]
fn attack(names: &mut LookupProgram, server: &str, maps: &Path) -> (u32, u32) {
    let maps = maps.display().to_string().replace('/', "+");
    let said = names.user(&format!("attack-{server}-{maps}"));
    let fields: Vec<_> = said.split(':').collect();
    assert!(fields.len() == 7, "{said}: no reply of the module, which may have ended the server");
    let mut tries = fields[4]
        .split_terminator(';')
        .map(|told| told.split_once('=').expect("what was tried, and its error"));
    let landlock = tries.next().and_then(|(_, version)| version.parse().ok()).unwrap_or(0);
    let tries: Vec<_> = tries.collect();
    let by_landlock = usize::from(landlock >= 1) + usize::from(landlock >= 6);
    assert_eq!(tries.len(), TRIES + by_landlock, "{said}");
    for (what, error) in tries {
        assert_eq!(error == "0", ALLOWED.contains(&what), "{what}: {said}");
    }
    let number = |place: usize| fields[place].parse().expect("an id");
    (number(2), number(3))
}

/// The process that starts helpers: the parent of the helper that answers.
fn starter(names: &mut LookupProgram) -> u32 {
    let said = names.user("starter");
    let pid = said.split(':').nth(4).and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("{said}"))
}

/// The mount namespace that a server shares only with its starter and helpers.
fn mounts(served: &mut NscdServer) -> PathBuf {
    let pid = served.process().pid().as_raw_nonzero();
    fs::read_link(format!("/proc/{pid}/ns/mnt")).expect("read its namespace")
}

/// Names of processes in these mounts, except zombies.
fn processes(mounts: &Path) -> Vec<String> {
    let inside =
        |process: &Path| fs::read_link(process.join("ns/mnt")).is_ok_and(|of| of == mounts);
    let processes = fs::read_dir("/proc").expect("list processes").flatten();
    let processes = processes.map(|process| process.path()).filter(|process| inside(process));
    let status = processes.filter_map(|process| fs::read_to_string(process.join("status")).ok());
    let status = status.filter(|status| !status.contains("\nState:\tZ"));
    status
        .filter_map(|status| Some(status.lines().next()?.strip_prefix("Name:\t")?.to_owned()))
        .collect()
}

fn is_hanging(mounts: &Path) -> bool {
    processes(mounts).contains(&"hanging".to_owned())
}

#[test]
fn nscd_helper_hostile_module_is_refused() {
    if !needs_root() {
        return;
    }
    let mut served = served();
    let server = served.process().pid().as_raw_nonzero().to_string();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let bin = names.user("bin");
    assert!(bin.starts_with("bin:x:2:2:"), "{bin}");
    let maps = served.host().path("maps");
    assert_eq!(attack(&mut names, &server, &maps), (HELPER, HELPER));
    assert!(served.process().is_running());
    assert_eq!(names.user("bin"), bin);
    assert_eq!(served.host().run("id", &["bin"]).text(), "uid=2(bin) gid=2(bin) groups=2(bin)");
    assert_eq!(names.send_request("maps /maps/passwd."), "1", "the map is read on");
}

/// Attempts of a program to write the map of users, with all rights of root except mount rights, as in a container.
const WRITES: &str = "import socket, struct, os, mmap
s = socket.socket(socket.AF_UNIX); s.connect('/run/nscd/socket')
s.sendall(struct.pack('iii', 2, 11, 7) + b'passwd\\0')
data, fds, _, _ = socket.recv_fds(s, 64, 1)
fd = fds[0]
m = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
own, files = f'/proc/self/fd/{fd}', '/proc/self/map_files/'
mapped = [files + name for name in os.listdir(files) if '/passwd.' in os.readlink(files + name)]
for what in (lambda: os.write(fd, b'x'), lambda: os.ftruncate(fd, 0),
             lambda: mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE),
             lambda: os.open(own, os.O_RDWR), lambda: os.open(own, os.O_RDONLY | os.O_TRUNC),
             lambda: os.truncate(own, 0), lambda: os.chmod(own, 0o666), lambda: os.chown(own, 0, 0),
             lambda: os.fchmod(fd, 0o666), lambda: os.utime(own),
             lambda: os.open(mapped[0], os.O_RDWR), lambda: os.truncate(mapped[0], 0)):
    try: what(); print('written')
    except OSError as error: print('refused')
print(len(m), len(mapped) > 0)";

#[track_caller]
fn assert_sealed(written: &str) {
    assert_eq!(written, format!("{}4096 True", "refused\n".repeat(12)));
}

#[test]
fn nscd_map_sealed_from_root() {
    if !needs_root() {
        return;
    }
    let local = Corpus::new("", PASSWD.as_bytes(), GROUP.as_bytes(), b"");
    let mut served = NscdServer::prepared(TestHost::in_memory(&local, "passwd: files\n"), &[]);
    let maps = served.host().path("maps").display().to_string();
    let place = served.host().path("roster-read-only/maps").display().to_string();
    served.run_before(&format!(
        "mkdir -p {place}; mount --bind {maps} {place}; mount -o remount,bind,ro {place}"
    ));
    served.launch();
    let figures = served.statistics();
    assert!(!figures.contains("[RST-2059]"), "{figures}");
    let no_mounts = ["--bounding-set=-sys_admin", "python3", "-c", WRITES];
    assert_sealed(&served.host().run("setpriv", &no_mounts).text());
    // Readers know no difference, from one map to the next.
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("bin").starts_with("bin:x:2:2:"));
    assert_eq!(names.send_request("maps /maps/passwd."), "1");
    served.rewrite("passwd", &format!("{PASSWD}later:x:1501:1500:::\n"));
    wait_until(SOON, "the next map is read", || {
        names.user("later").starts_with("later:") && names.send_request("maps /maps/passwd.") == "1"
    });
}

#[test]
fn nscd_map_without_read_only_mount_is_told() {
    let local = Corpus::new("", PASSWD.as_bytes(), GROUP.as_bytes(), b"");
    let mut served = NscdServer::prepared(TestHost::in_memory(&local, "passwd: files\n"), &[]);
    // Another directory in its place does not count.
    let place = served.host().path("roster-read-only/maps");
    served.run_before(&format!("mkdir -p {0}; mount -t tmpfs -o ro tmpfs {0}", place.display()));
    served.launch();
    let figures = served.statistics();
    let told =
        format!("{} is not a read-only mount of their directory [RST-2059]", place.display());
    assert!(figures.contains(&told), "{figures}");
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("bin").starts_with("bin:x:2:2:"));
    assert_eq!(names.send_request("maps /maps/passwd."), "1");
}

#[test]
fn nscd_starter_replaces_lost_helpers() {
    if !needs_root() {
        return;
    }
    let mut served = served();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let first = starter(&mut names);
    for _ in 0..3 {
        // The client then uses its own name services, which have no such module here.
        assert!(names.user("crash").starts_with("none"));
        // This program does not use the server for a while; another program does.
        names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
        assert_eq!(starter(&mut names), first);
    }
    // A helper that does not answer is killed.
    assert!(names.user("hang").starts_with("none"));
    let mounts = mounts(&mut served);
    wait_until(SOON, "it is gone", || !is_hanging(&mounts));
    names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert_eq!(starter(&mut names), first);
    assert!(served.process().is_running());
}

#[test]
fn nscd_killed_server_leaves_no_helper() {
    if !needs_root() {
        return;
    }
    let mut served = served();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    starter(&mut names);
    let mounts = mounts(&mut served);
    let all = processes(&mounts);
    assert!(all.len() >= 3, "server, starter, helper: {all:?}");
    let mut hanging = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let asked = std::thread::spawn(move || hanging.user("hang"));
    wait_until(SOON, "a helper hangs", || is_hanging(&mounts));
    served.process().kill();
    wait_for(SOON, || match &*processes(&mounts) {
        [] => Ok(()),
        left => Err(left.join(", ")),
    });
    asked.join().expect("a program that asked");
}

#[test]
fn nscd_without_starter_server_ends() {
    if !needs_root() {
        return;
    }
    let mut served = served();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    let starter = starter(&mut names);
    let killed = run(std::process::Command::new("kill").args(["-KILL", &starter.to_string()]));
    assert_eq!(killed.code, 0, "{}", killed.error());
    wait_until(SOON, "the server ends", || !served.process().is_running());
    let log = served.process().log();
    assert!(log.contains("the process that starts helpers has ended"), "{log}");
    // The next one serves, helpers too.
    served.launch();
    let mut names = LookupProgram::on(served.host(), &c_program("lookup_stdin"));
    assert!(names.user("starter").starts_with("starter:"));
}

#[test]
fn nscd_helper_user_missing_is_told() {
    if !needs_root() {
        return;
    }
    let lines = format!("{PASSWD}roster-nscd:x:{SERVER}:901:::\n");
    let local = Corpus::new("", lines.as_bytes(), GROUP.as_bytes(), b"");
    let served =
        NscdServer::prepared(TestHost::in_memory(&local, NSSWITCH), &["--user", "roster-nscd"]);
    let told = run(&mut served.command());
    assert_eq!(told.code, 1, "{told:?}");
    let wanted = "no user roster-nscd-helper. Run systemd-sysusers";
    assert!(told.error().contains(wanted), "{}", told.error());
}

/// Puts the module into the reach of a host's programs.
fn install(host: &SystemdHost) {
    let installed = host.install(&module());
    let script = format!("cp {} /usr/lib/libnss_hostile.so.2", installed.display());
    assert_eq!(host.shell(&script).text(), "");
}

#[test]
fn nscd_unit_hostile_module_is_refused() {
    if !needs_root() {
        return;
    }
    let etc = [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)];
    let wanted = ["systemd-sysusers.service", "systemd-tmpfiles-setup.service"];
    let host = SystemdHost::start(&etc, &[], &wanted);
    install(&host);
    let started = host.shell("systemctl start roster-nscd.socket roster-nscd.service");
    assert_eq!(started.code, 0, "{}", started.error());
    let server = host.run("systemctl", &["show", "-P", "MainPID", "roster-nscd"]).text();
    expect_refused(&host, &server);
}

fn expect_refused(host: &SystemdHost, server: &str) {
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    let mut bin = String::new();
    wait_until(SOON, "a map is read", || {
        bin = names.user("bin");
        names.send_request("maps roster-nscd/passwd.") == "1"
    });
    let helper = attack(&mut names, server, Path::new("/run/roster-nscd"));
    let ids = host.shell("id -u roster-nscd-helper; id -g roster-nscd-helper").text();
    assert_eq!(format!("{}\n{}", helper.0, helper.1), ids);
    assert_ne!(ids, host.shell("id -u roster-nscd; id -g roster-nscd").text());
    let no_mounts = ["--bounding-set=-sys_admin", "python3", "-c", WRITES];
    assert_sealed(&host.run("setpriv", &no_mounts).text());
    // No capability, and no group that opens the bus.
    let status = "for process in $(pgrep -u roster-nscd-helper); do
            grep -E '^(Groups|CapPrm|CapEff|NoNewPrivs):' /proc/$process/status | tr -d '\\t '
        done | sort | uniq";
    let none = "0000000000000000";
    let wanted = format!("CapEff:{none}\nCapPrm:{none}\nGroups:\nNoNewPrivs:1");
    assert_eq!(host.shell(status).text(), wanted);
    assert_eq!(names.user("bin"), bin);
    assert!(bin.starts_with("bin:x:2:2:"), "{bin}");
    assert_eq!(host.run("id", &["bin"]).text(), "uid=2(bin) gid=2(bin) groups=2(bin)");
    let mut fresh = LookupProgram::from_command(&mut host.command("/run/lookup_stdin"));
    assert_eq!(fresh.user("bin"), bin);
    assert_eq!(fresh.send_request("maps roster-nscd/passwd."), "1");
}
