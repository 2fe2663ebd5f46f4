// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster nscd` as its units start it under a systemd that has booted a host. It runs as a dedicated user, from the
//! first moment of the socket, with users that systemd synthesizes for units.

use roster_system_tests::nscd::{PollRecord, SOON};
use roster_system_tests::{LookupProgram, SystemdHost, c_program, needs_root, wait_until};
use std::path::Path;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n\
                      local:x:1500:1500:Local account:/home/local:/bin/sh\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\nlocal:x:1500:\n";
const NSSWITCH: &str = "passwd: files roster systemd\ngroup: files roster systemd\n";
/// A service with a user that exists while it runs.
const FLOATING: &str = "[Unit]\nDefaultDependencies=no\n\
                        [Service]\nDynamicUser=yes\nUser=floating\nExecStart=/bin/sleep 1000\n";
/// Value of `found`: the client should query the name services itself.
const NOT_SERVED: &str = "-1";
const OURS: [&str; 2] = ["roster-nscd.socket", "roster-nscd.service"];
const SYSTEMS: [&str; 2] = ["systemd-sysusers.service", "systemd-tmpfiles-setup.service"];

fn host(wanted: &[&str]) -> SystemdHost {
    let etc = [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)];
    SystemdHost::start(&etc, &[("floating.service", FLOATING)], wanted)
}

/// The field `found` of the reply that a program of this name gets to a request for a user.
fn found(host: &SystemdHost, program: &str, user: &str) -> String {
    let script = format!(
        r#"setpriv --reuid nobody --clear-groups python3 -c "
import socket, struct
open('/proc/self/comm', 'w').write('{program}')
server = socket.socket(socket.AF_UNIX)
server.connect('/run/nscd/socket')
server.sendall(struct.pack('iii', 2, 0, {}) + b'{user}\0')
print(struct.unpack('ii', server.recv(8, socket.MSG_WAITALL))[1])
""#,
        user.len() + 1
    );
    host.shell(&script).text()
}

/// A program that looks names up, under strace(1). [`given_up`] returns the number of its timed-out waits.
fn watched(host: &SystemdHost, program: &Path) -> LookupProgram {
    let mut command = host.command("strace");
    LookupProgram::from_command(command.args(PollRecord::OPTIONS).arg(RECORD).arg(program))
}

/// The path of the record of the last [`watched`] program on its host.
const RECORD: &str = "/tmp/waits";

/// The number of times that the program has given a server up.
fn given_up(host: &SystemdHost) -> usize {
    PollRecord::timed_out_in(&host.run("cat", &[RECORD]).text())
}

/// The unit's server caches answers of other services for an hour, if it does not learn of a change.
const FOR_AN_HOUR: (&str, &str) = (
    "systemd/system/roster-nscd.service.d/hour.conf",
    "[Service]\nExecStart=\n\
     ExecStart=/usr/bin/roster nscd --user roster-nscd --positive 3600 --negative 3600\n",
);

fn figures(host: &SystemdHost) -> String {
    host.run("roster", &["nscd", "--statistics"]).text()
}

#[test]
fn nscd_unit_runs_unprivileged_with_own_filesystem() {
    if !needs_root() {
        return;
    }
    let host = host(&[SYSTEMS, OURS].concat());
    let shown = figures(&host);
    assert_eq!(shown.matches(" entries in a map of ").count(), 2, "{shown}");
    assert!(!shown.contains("[RST-2058]"), "{shown}");
    let script = "pid=$(systemctl show -P MainPID roster-nscd)
        stat -c %U /run/roster-nscd /run/roster-nscd/* | sort -u
        stat -f -c %T /run/roster-nscd
        grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs):' /proc/$pid/status | tr '\\t' ' '
        id -u roster-nscd; id -g roster-nscd";
    let told = host.shell(script).text();
    let lines: Vec<_> = told.lines().map(str::trim).collect();
    let [uid, gid] = [lines[lines.len() - 2], lines[lines.len() - 1]];
    assert_ne!(uid, "0", "{told}");
    let ids = |name: &str, id: &str| format!("{name}: {id} {id} {id} {id}");
    let none = "0000000000000000";
    let wanted = [
        "roster-nscd".to_owned(),
        "tmpfs".to_owned(),
        ids("Uid", uid),
        ids("Gid", gid),
        "Groups:".to_owned(),
        format!("CapPrm: {none}"),
        format!("CapEff: {none}"),
        "NoNewPrivs: 1".to_owned(),
    ];
    assert_eq!(lines[..lines.len() - 2], wanted, "{told}");
    // Its helper works there, too. The server accepts admin requests of root only, not even those of its own user.
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    assert!(names.user("local").starts_with("local:x:1500:"));
    assert_eq!(names.user("carol"), "none:0");
    assert_eq!(names.send_request("maps roster-nscd/passwd."), "1");
    for user in [uid, "65534"] {
        let order = format!("setpriv --reuid {user} --clear-groups roster nscd --statistics");
        assert_ne!(host.shell(&order).code, 0, "{user}");
    }
    assert_eq!(host.run("roster", &["nscd", "--invalidate", "passwd"]).code, 0);
    // Another process of that user has the map's descriptor, and cannot write by way of it.
    let reopen = format!(
        "for map in /proc/$(systemctl show -P MainPID roster-nscd)/fd/*; do
             setpriv --reuid {uid} --clear-groups sh -c \": <>$map\" 2>/dev/null && echo written
         done; true"
    );
    assert_eq!(host.shell(&reopen).text(), "");
}

/// `roster doctor` reports the served maps, and the program without a map: here one that could not reach the socket at
/// its first lookup.
#[test]
fn doctor_names_a_program_that_uses_the_module_and_no_map() {
    if !needs_root() {
        return;
    }
    let host = host(&[SYSTEMS, OURS].concat());
    let program = host.install(&c_program("lookup_stdin"));
    let mut with_map = LookupProgram::from_command(&mut host.command(&program));
    with_map.user("local");
    let mut without = host.command("unshare");
    without.args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /run/nscd; exec $0"]);
    let mut without = LookupProgram::from_command(without.arg(&program));
    assert_eq!(without.user("carol"), "none:0");
    let told = host.run("roster", &["doctor"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let shown = "programs that use the NSS module instead of a map: lookup_stdin (process ";
    assert!(told.contains(shown) && told.matches("(process ").count() == 1, "{told}");
    assert!(told.contains("roster nscd: passwd: "), "{told}");
    assert!(!told.contains("[RST-2058]"), "{told}");
    drop(without);
    let told = host.run("roster", &["doctor"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(!told.contains("instead of a map"), "{told}");
}

/// Beside rosterd and its message bus, which looks users up, too: neither waits for the other.
#[test]
fn nscd_unit_serves_domain_of_rosterd() {
    if !needs_root() {
        return;
    }
    let config = "[host]\ndomains = [\"lab\"]\n\n\
                  [domain.lab]\nprovider = \"files\"\npasswd = \"/etc/lab/passwd\"\ngroup = \"/etc/lab/group\"\n";
    let etc = [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("nsswitch.conf", NSSWITCH),
        ("roster/roster.toml", config),
        ("lab/passwd", "ann:x:5000:5000:Ann:/home/ann:/bin/sh\n"),
        ("lab/group", "lab:x:5000:\n"),
    ];
    let host = SystemdHost::start(&etc, &[], &[&SYSTEMS[..], &OURS, &["rosterd.service"]].concat());
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    wait_until(SOON, "the domain is served", || names.user("ann").starts_with("ann:*:5000:5000:"));
    wait_until(SOON, "from a map", || {
        names.user("ann");
        names.send_request("maps roster-nscd/passwd.") == "1"
    });
    assert_eq!(names.user("carol"), "none:0", "by the helper");
    // A program that serves a name service is redirected at once; others wait for the answer of the services.
    assert_eq!(found(&host, "nslcd", "dora"), NOT_SERVED);
    assert_eq!(found(&host, "who", "dora"), "0");
    let told = host.shell("stat -c %U:%a /run/roster-nscd; stat -f -c %T /run/roster-nscd");
    assert_eq!(told.text(), "roster-nscd:700\ntmpfs");
    let shown = figures(&host);
    assert!(!shown.contains("[RST-2058]"), "{shown}");
    // The server accepts admin requests of root, but rejects those of its own user.
    let order = "setpriv --reuid roster-nscd --clear-groups roster nscd --statistics";
    assert_ne!(host.shell(order).code, 0);
    // The next one takes the maps over.
    assert_eq!(host.shell("systemctl restart rosterd roster-nscd").text(), "");
    let line = "ben:x:5001:5000::/home/ben:/bin/sh";
    assert_eq!(host.shell(&format!("echo {line} >>/etc/lab/passwd")).text(), "");
    wait_until(SOON, "its map is read", || {
        names.user("ben").starts_with("ben:*:5001")
            && names.send_request("maps roster-nscd/passwd.") == "1"
    });
}

/// The service is restarted as by an upgrade, and killed. A client with a map reads on, and moves to the next server's
/// map.
#[test]
fn nscd_unit_restarted_clients_keep_their_maps() {
    if !needs_root() {
        return;
    }
    let host = host(&[SYSTEMS, OURS].concat());
    let mut names = watched(&host, &host.install(&c_program("lookup_stdin")));
    let local = names.user("local");
    assert!(local.starts_with("local:x:1500:"), "{local}");
    for (round, command) in
        ["systemctl restart roster-nscd", "systemctl kill -s KILL --kill-who=main roster-nscd"]
            .iter()
            .enumerate()
    {
        assert_eq!(host.shell(command).text(), "");
        assert_eq!(names.user("local"), local, "{command}");
        assert_eq!(given_up(&host), 0, "{command}");
        let uid = 1600 + round;
        let line = format!("later{round}:x:{uid}:1500:::");
        let write =
            format!("cp /etc/passwd /etc/new; echo {line} >>/etc/new; mv /etc/new /etc/passwd");
        assert_eq!(host.shell(&write).code, 0);
        let wanted = format!("later{round}:x:{uid}:1500:::");
        wait_until(SOON, "the next server's map is read", || {
            names.user(&format!("later{round}")) == wanted
                && names.send_request("maps roster-nscd/passwd.") == "1"
        });
    }
}

/// A user of a unit comes and goes with it. No map can have it when it is made, and an earlier answer must not outlive
/// the unit.
#[test]
fn users_that_systemd_makes_up_for_units_come_and_go_with_them() {
    if !needs_root() {
        return;
    }
    let etc = [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH), FOR_AN_HOUR];
    let wanted = [SYSTEMS, OURS].concat();
    let host = SystemdHost::start(&etc, &[("floating.service", FLOATING)], &wanted);
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    for _ in 0..3 {
        assert_eq!(names.user("floating"), "none:0");
        assert_eq!(host.run("systemctl", &["start", "floating.service"]).code, 0);
        wait_until(SOON, "the user is there", || names.user("floating").starts_with("floating:"));
        let user = names.user("floating");
        let uid = user.split(':').nth(2).and_then(|uid| uid.parse().ok()).expect("a uid");
        assert_eq!(names.user_by_uid(uid), user);
        assert!(names.group("floating").starts_with("floating:"));
        // Every program sees the same user of the unit's process, `id` among them.
        let id = host.run("id", &["floating"]).text();
        assert!(id.contains(&format!("uid={uid}(floating)")), "{id}");
        assert_eq!(host.run("systemctl", &["stop", "floating.service"]).code, 0);
        wait_until(SOON, "the user is gone", || {
            names.user("floating") == "none:0" && names.user_by_uid(uid) == "none:0"
        });
    }
    assert!(names.user("root").starts_with("root:x:0:0:"));
}

/// The statistics on clients that the server redirected to the name services.
fn sent_away(host: &SystemdHost) -> Vec<String> {
    let figures = figures(host);
    let lines = figures.lines().filter(|line| line.starts_with("referred to the name services"));
    lines.map(str::to_owned).collect()
}

/// A user with a home that systemd manages. homed serves it, and looks users up at our socket while it makes one, as
/// its programs do.
#[test]
fn nscd_and_homed_never_wait_for_each_other() {
    if !needs_root() {
        return;
    }
    let passwd = format!("{PASSWD}messagebus:x:106:65534::/nonexistent:/usr/sbin/nologin\n");
    let etc = [("passwd", &*passwd), ("group", GROUP), ("nsswitch.conf", NSSWITCH), FOR_AN_HOUR];
    let wanted = [&SYSTEMS[..], &OURS, &["dbus.socket"]].concat();
    let host = SystemdHost::start(&etc, &[], &wanted);
    for package in ["systemd-userdbd", "systemd-homed"] {
        host.unpack(package);
    }
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    assert_eq!(names.user("carl"), "none:0");
    let started = host.shell("systemctl start systemd-userdbd.socket systemd-homed.service");
    assert_eq!(started.code, 0, "{}", started.error());
    for _ in 0..2 {
        let create = "NEWPASSWORD=wrong-horse homectl create carl --storage=directory \\
            --enforce-password-policy=no --uid=60200 >/dev/null";
        let before = sent_away(&host);
        let created = host.shell(create);
        assert_eq!(created.code, 0, "{}", created.error());
        // If homed and the server wait for each other, the server ends that after 3 s, and redirects the client.
        assert_eq!(sent_away(&host), before);
        wait_until(SOON, "the user is there", || names.user("carl").starts_with("carl:"));
        let user = names.user("carl");
        assert!(user.contains(":60200:60200:") && user.contains(":/home/carl:"), "{user}");
        assert_eq!(names.user_by_uid(60200), user);
        assert!(names.group("carl").starts_with("carl:"));
        assert!(names.user("local").starts_with("local:x:1500:"));
        let removed = host.run("homectl", &["remove", "carl"]);
        assert_eq!(removed.code, 0, "{}", removed.error());
        wait_until(SOON, "the user is gone", || {
            names.user("carl") == "none:0" && names.user_by_uid(60200) == "none:0"
        });
    }
    assert_eq!(names.send_request("maps roster-nscd/passwd."), "1");
}

/// systemd looks users up while it starts units, at a socket that it holds itself: nothing of that may wait.
#[test]
fn nscd_socket_during_boot_serves_systemd() {
    if !needs_root() {
        return;
    }
    let unit = |user: &str| {
        let strace = PollRecord::OPTIONS.join(" ");
        format!(
            "[Unit]\nDefaultDependencies=no\nAfter=roster-nscd.socket\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\nUser={user}\n\
             ExecStart=/usr/bin/strace {strace} /tmp/{user} /usr/bin/id\n"
        )
    };
    let etc = [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)];
    let units = [("one.service", unit("local")), ("two.service", unit("roster-nscd"))];
    let units: Vec<_> = units.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let wanted = [&SYSTEMS[..], &OURS, &["one.service", "two.service"]].concat();
    let host = SystemdHost::start(&etc, &units, &wanted);
    let shown = figures(&host);
    for unit in ["one.service", "two.service"] {
        assert_eq!(host.run("systemctl", &["is-active", unit]).text(), "active");
    }
    // systemd and the units were served, and gave no server up.
    assert!(!shown.contains(" 0 maps handed out"), "{shown}");
    for user in ["local", "roster-nscd"] {
        let record = host.run("cat", &[&format!("/tmp/{user}")]).text();
        assert!(record.contains("poll("), "{record}");
        assert_eq!(PollRecord::timed_out_in(&record), 0, "{record}");
    }
}

/// systemd kills a server that stands still, and the next one serves the waiting clients.
#[test]
fn a_server_that_stands_still_is_replaced() {
    if !needs_root() {
        return;
    }
    let etc = [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)];
    let wanted = [&SYSTEMS[..], &OURS].concat();
    let host = SystemdHost::start(&etc, &[], &wanted);
    // A shorter time than in the unit, and longer than the server's interval of reports.
    let sooner = "mkdir /run/systemd/system/roster-nscd.service.d
        printf '[Service]\\nWatchdogSec=12\\n' >/run/systemd/system/roster-nscd.service.d/sooner.conf
        systemctl daemon-reload; systemctl restart roster-nscd";
    assert_eq!(host.shell(sooner).text(), "");
    let main = || host.run("systemctl", &["show", "-P", "MainPID", "roster-nscd"]).text();
    let first = main();
    // It lives for longer than its watchdog time.
    std::thread::sleep(std::time::Duration::from_secs(13));
    assert_eq!(main(), first);
    assert_eq!(host.run("kill", &["-STOP", &first]).code, 0);
    wait_until(SOON, "another process serves", || !["0", &first].contains(&main().as_str()));
    let mut names =
        LookupProgram::from_command(&mut host.command(host.install(&c_program("lookup_stdin"))));
    assert!(names.user("local").starts_with("local:x:1500:"));
    assert_eq!(names.send_request("maps roster-nscd/passwd."), "1");
}

#[test]
fn without_its_user_the_unit_says_what_to_do_and_nobody_waits() {
    if !needs_root() {
        return;
    }
    let host = host(&["systemd-tmpfiles-setup.service", "roster-nscd.socket"]);
    let mut names = watched(&host, &host.install(&c_program("lookup_stdin")));
    // The first one starts the unit, the others come while it is about to fail, fails and is started again.
    for _ in 0..40 {
        assert!(names.user("local").starts_with("local:x:1500:"));
        assert_eq!(names.user("carol"), "none:0");
        assert_eq!(given_up(&host), 0);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_ne!(host.run("systemctl", &["start", "roster-nscd.service"]).code, 0);
    let told = host.run("roster", &["nscd", "--user", "roster-nscd", "--socket", "/run/other"]);
    assert_eq!(told.code, 1, "{told:?}");
    let wanted = "[RST-9513]";
    assert!(told.error().contains(wanted), "{}", told.error());
}

/// A directory of another user in the place of the map directory is not used, and no client waits for that.
#[test]
fn nscd_foreign_directory_gets_no_map() {
    if !needs_root() {
        return;
    }
    let host = host(&[&SYSTEMS[..], &["roster-nscd.socket"]].concat());
    // A lookup during the boot may have started the server.
    let start = "systemctl stop roster-nscd.socket roster-nscd.service
        systemctl start 'run-roster\\x2dnscd.mount'
        rm -f /run/roster-nscd/*
        chown 1500 /run/roster-nscd
        systemctl start roster-nscd.service";
    let started = host.shell(start);
    assert_eq!(started.code, 0, "{}", started.error());
    let program = host.install(&c_program("lookup_stdin"));
    let mut names = watched(&host, &program);
    assert!(names.user("local").starts_with("local:x:1500:"));
    assert_eq!(names.user("carol"), "none:0");
    assert_eq!(given_up(&host), 0);
    assert_eq!(names.send_request("maps roster-nscd/passwd."), "0");
    assert_eq!(host.shell("ls /run/roster-nscd").text(), "");
    assert_eq!(host.shell("chown roster-nscd: /run/roster-nscd").code, 0);
    wait_until(SOON, "maps are served", || {
        let mut names = LookupProgram::from_command(&mut host.command(&program));
        names.user("local").starts_with("local:")
            && names.send_request("maps roster-nscd/passwd.") == "1"
    });
}
