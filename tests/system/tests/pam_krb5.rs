// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins by Kerberos: the real module in pamtester and sshd, a real daemon, krb5kdc and kadmind. The meaning of every
//! answer of a KDC is tested in crates/sync/krb5-helper.

use roster_messages::table::login;
use roster_system_tests::pam::{self, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::Kdc;
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{
    DomainTable, ProgramOutput, Rosterd, Sshd, needs_root, wait_for, wait_until,
};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const PASSWORD: &str = "correct horse";
const FIRST: u32 = 20_000;
const PEOPLE: [&str; 6] = ["alice", "bob", "expired", "locked", "unknown", "carol"];

/// A realm, a host with users out of files that log in there, and a directory for tickets.
struct World {
    kdc: Kdc,
    rosterd: Rosterd,
    folder: tempfile::TempDir,
}

impl World {
    /// `keys` are of the domain.
    fn new(keys: &[(&str, &str)], has_keytab: bool) -> Self {
        let principals = [
            "addpol -minlength 8 strict",
            &format!("addprinc +requires_preauth -pw \"{PASSWORD}\" alice"),
            &format!("addprinc +requires_preauth -pw \"{PASSWORD}\" bob"),
            &format!("addprinc +requires_preauth -pw \"{PASSWORD}\" carol"),
            &format!(
                "addprinc +requires_preauth -policy strict -pw \"{PASSWORD}\" -pwexpire yesterday expired"
            ),
            &format!("addprinc +requires_preauth -pw \"{PASSWORD}\" -allow_tix locked"),
            "addprinc -randkey host/client.lab.test",
        ];
        let mut kdc = Kdc::start(&principals.map(str::to_owned), "max_renewable_life = 1d");
        kdc.launch_kadmind();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let mut domain = Self::domain(&kdc, folder.path(), has_keytab);
        for (key, value) in keys {
            domain = domain.with(key, value);
        }
        let mut rosterd = Rosterd::installed(&[domain]);
        pam::prepare(&rosterd);
        rosterd.launch();
        Self { kdc, rosterd, folder }
    }

    fn domain(kdc: &Kdc, folder: &Path, has_keytab: bool) -> DomainTable {
        let (mut passwd, mut group) = (String::new(), String::new());
        for (name, id) in PEOPLE.iter().zip(FIRST..) {
            let _ = writeln!(passwd, "{name}:x:{id}:{id}:{name}:{}:/bin/sh", folder.display());
            let _ = writeln!(group, "{name}:x:{id}:");
        }
        fs::write(folder.join("passwd"), passwd).unwrap();
        fs::write(folder.join("group"), group).unwrap();
        let keytab =
            if has_keytab { kdc.keytab("host/client.lab.test") } else { folder.join("no keytab") };
        DomainTable::files("corp", &folder.join("passwd"), &folder.join("group"))
            .with("auth", "\"krb5\"")
            .with("krb5_realm", "\"LAB.TEST\"")
            .with("krb5_kdcs", &format!("[{:?}]", kdc.address()))
            .with("krb5_kpasswd", &format!("[{:?}]", kdc.kpasswd_address()))
            .with("krb5_keytab", &format!("{keytab:?}"))
            .with("krb5_cache", &format!("\"FILE:{}/krb5cc_%{{uid}}_XXXXXX\"", folder.display()))
            .with("offline_credentials", "false")
    }

    /// Credential caches there are.
    fn caches(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.folder.path()).unwrap().flatten();
        let is_one = |path: &PathBuf| path.to_string_lossy().contains("krb5cc_");
        all.map(|entry| entry.path()).filter(is_one).collect()
    }
}

/// The last message of pamtester.
fn said(done: &ProgramOutput) -> String {
    let all = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    let last = all.rsplit("pamtester: ").next().unwrap_or_default();
    last.lines().next().unwrap_or_default().trim().to_owned()
}

/// The last message of pamtester on one password.
fn authenticate(pam: &PamHost<'_>, user: &str, password: &str) -> String {
    said(&pam.run_pamtester("alone", user, &["authenticate"], &[password]))
}

/// Waits until the backend answers; no KDC is queried.
fn wait_until_it_serves(pam: &PamHost<'_>) {
    wait_until(SOON, "the backend serves", || {
        pam.run_pamtester("alone", "alice", &["acct_mgmt"], &[]).code == 0
    });
}

/// Each operation has a debug line with the number of the login, and no line has the password.
#[test]
fn krb5_operation_is_logged_with_request_number() {
    if !needs_root() {
        return;
    }
    let world = World::new(&[], true);
    let pam = PamHost::on(&world.rosterd, "alice");
    wait_until_it_serves(&pam);
    assert_eq!(world.rosterd.roster(&["log-level", "backend:corp", "debug"]).code, 0);
    assert_eq!(authenticate(&pam, "alice", PASSWORD), "successfully authenticated");
    let login = pam.expect_logged("kind=log-in user=alice", "outcome=success");
    let (_, number) = login.rsplit_once("request=").expect("a number");
    let line = pam.expect_logged("Kerberos operation=ticket", number);
    assert!(line.contains(" principal=alice@LAB.TEST "), "{line}");
    assert!(line.contains(&format!(" kdcs={} result=Success ms=", world.kdc.address())), "{line}");
    assert!(!world.rosterd.log().contains(PASSWORD));
}

/// The operations that open a session.
const SESSION: [&str; 4] =
    ["authenticate", "acct_mgmt", "setcred(PAM_ESTABLISH_CRED)", "open_session"];

#[test]
fn krb5_users_get_kdc_reply_and_ticket() {
    if !needs_root() {
        return;
    }
    let mut world = World::new(&[], true);
    let pam = PamHost::on(&world.rosterd, "alice");
    assert_eq!(authenticate(&pam, "alice", PASSWORD), "successfully authenticated");
    assert!(world.caches().is_empty(), "a password alone opens no session");
    assert_eq!(authenticate(&pam, "alice", "wrong"), "Authentication failure");
    assert_eq!(
        authenticate(&pam, "unknown", PASSWORD),
        "User not known to the underlying authentication module"
    );
    assert_eq!(authenticate(&pam, "locked", PASSWORD), "Permission denied");
    let done = pam.run_pamtester("alone", "alice", &SESSION, &[PASSWORD]);
    assert_eq!(said(&done), "successfully opened a session");
    let caches = world.caches();
    let found = fs::symlink_metadata(&caches[0]).unwrap();
    assert_eq!(
        (caches.len(), found.uid(), found.gid(), found.mode()),
        (1, FIRST, FIRST, 0o100_600)
    );
    fs::remove_file(&caches[0]).unwrap();
    let whole = [&SESSION[..], &["close_session"]].concat();
    let done = pam.run_pamtester("alone", "alice", &whole, &[PASSWORD]);
    assert_eq!(said(&done), "session has successfully been closed.");
    assert!(world.caches().is_empty(), "{:?}", world.caches());

    // An expired password is changed on the way in, by the rules of the KDC.
    let change = |lines: &[&str]| {
        let done = pam.run_pamtester("alone", "expired", &["chauthtok"], lines);
        let all = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
        (said(&done), all)
    };
    assert_eq!(authenticate(&pam, "expired", "wrong"), "Authentication failure");
    let done = pam.run_pamtester("alone", "expired", &["authenticate", "acct_mgmt"], &[PASSWORD]);
    assert!(said(&done).contains("no longer valid"), "{}", said(&done));
    let (end, all) = change(&[PASSWORD, "short", "short", ""]);
    assert!(end.contains("token manipulation") && all.contains("too short"), "{all}");
    let (end, all) = change(&[PASSWORD, "a longer one", "a longer one"]);
    assert_eq!(end, "authentication token altered successfully.", "{all}");
    assert_eq!(authenticate(&pam, "expired", PASSWORD), "Authentication failure");
    assert_eq!(authenticate(&pam, "expired", "a longer one"), "successfully authenticated");

    let log = world.rosterd.log();
    for secret in [PASSWORD, "a longer one"] {
        assert!(!log.contains(secret), "a password is in the log");
    }

    // Without a KDC there is no answer, and the second one comes without a request to the helper.
    world.kdc.stop();
    let unreachable = "Authentication service cannot retrieve authentication info";
    assert_eq!(authenticate(&pam, "alice", PASSWORD), unreachable);
    pam.expect_logged("no KDC of LAB.TEST replies", login::KDC_UNREACHABLE.code);
    let helper = rustix::process::Pid::from_raw(helper_of(&world.rosterd)).unwrap();
    rustix::process::kill_process(helper, rustix::process::Signal::STOP).unwrap();
    assert_eq!(authenticate(&pam, "alice", PASSWORD), unreachable);
    let log = world.rosterd.log();
    let last = log.lines().rev().find(|line| line.contains("user=alice")).unwrap_or_default();
    assert!(last.contains("outcome=unreachable"), "{last}");
    rustix::process::kill_process(helper, rustix::process::Signal::CONT).unwrap();
    world.kdc.launch(&[]);
    wait_for(SOON, || match authenticate(&pam, "alice", PASSWORD).as_str() {
        "successfully authenticated" => Ok(()),
        said => Err(said.to_owned()),
    });
}

#[test]
fn a_kdc_in_another_ones_place_logs_nobody_in() {
    if !needs_root() {
        return;
    }
    let real = Kdc::start(&["addprinc -randkey host/client.lab.test".to_owned()], "");
    let keytab = real.keytab("host/client.lab.test");
    let world = World::new(
        &[("krb5_keytab", &format!("{keytab:?}")), ("krb5_validate", "\"required\"")],
        true,
    );
    let pam = PamHost::on(&world.rosterd, "alice");
    let unavailable = "Authentication service cannot retrieve authentication info";
    assert_eq!(authenticate(&pam, "alice", PASSWORD), unavailable);
    let line = pam.expect_logged("Kerberos login", login::KDC_NOT_VERIFIED.code);
    assert!(line.contains("error"), "{line}");
    assert_eq!(authenticate(&pam, "expired", PASSWORD), unavailable);
    assert_eq!(said(&pam.run_pamtester("alone", "alice", &SESSION, &[PASSWORD])), unavailable);
    assert!(world.caches().is_empty());
}

/// The text of the finding on a domain that does not verify KDCs.
const OPEN: &str = "can log in as any user";
/// The message that a program gets while logins are refused.
const UNAVAILABLE: &str = "Authentication service cannot retrieve authentication info";
/// Passwords are cached, and soon.
const KEPT: [(&str, &str); 2] =
    [("offline_credentials", "true"), ("argon2_target_time", "\"10ms\"")];

/// A finding of `roster status` that has this text, with its level.
fn finding(world: &World, words: &str) -> Result<String, String> {
    let status = world.rosterd.status()?;
    let all = status["findings"].as_array().ok_or("no findings")?;
    let has = |finding: &&serde_json::Value| finding.to_string().contains(words);
    let found = all.iter().find(has).map(|finding| finding["level"].as_str().unwrap().to_owned());
    found.ok_or_else(|| status["findings"].to_string())
}

/// The output of `roster` on the daemon's host, with any finding.
fn roster(world: &World, args: &[&str]) -> String {
    let program = Path::new("/run/bin/roster");
    let done = world.rosterd.command_inside(program).args(args).output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A rogue KDC in the place of the right one: it knows alice by another password.
fn rogue(world: &mut World) -> Kdc {
    world.kdc.replace_with(&[
        "addprinc +requires_preauth -pw attackers alice".to_owned(),
        "addprinc -randkey host/client.lab.test".to_owned(),
    ])
}

#[test]
fn krb5_unverified_log_in_leaves_nothing_offline() {
    if !needs_root() {
        return;
    }
    for validate in ["\"auto\"", "\"off\""] {
        let keys = [&KEPT[..], &[("krb5_validate", validate)]].concat();
        let mut world = World::new(&keys, false);
        let mut fake = rogue(&mut world);
        {
            let pam = PamHost::on(&world.rosterd, "alice");
            assert_eq!(authenticate(&pam, "alice", "attackers"), "successfully authenticated");
        }
        fake.stop();
        let pam = PamHost::on(&world.rosterd, "alice");
        // The refusal comes after requests to all addresses of the KDC: a hash takes a hundredth of that.
        assert_eq!(authenticate(&pam, "alice", "attackers"), UNAVAILABLE, "{validate}");
        assert_eq!(authenticate(&pam, "alice", "attackers"), UNAVAILABLE, "{validate}");
        let kept = world.rosterd.roster(&["cache", "credentials"]);
        assert!(!kept.text().contains("alice"), "{}", kept.text());
        assert!(!world.rosterd.log().contains("offline=true"), "{}", world.rosterd.log());
        pam.expect_logged("krb5_validate", OPEN);
        wait_for(SOON, || match finding(&world, OPEN)?.as_str() {
            "warning" => Ok(()),
            level => Err(level.to_owned()),
        });
        let doctor = roster(&world, &["doctor"]);
        assert!(doctor.contains(OPEN), "{doctor}");
        let checked = roster(&world, &["check-config", world.rosterd.config().to_str().unwrap()]);
        assert!(checked.contains("krb5_validate: KDCs are not verified"), "{checked}");
    }
}

#[test]
fn krb5_auto_refuses_once_a_keytab_was_used() {
    if !needs_root() {
        return;
    }
    let mut world = World::new(&[("krb5_validate", "\"auto\"")], true);
    let right = "successfully authenticated";
    assert_eq!(authenticate(&PamHost::on(&world.rosterd, "alice"), "alice", PASSWORD), right);
    // The keytab is lost, and a rogue KDC answers in the KDC's place.
    let keytab = world.kdc.keytab("host/client.lab.test");
    let kept = world.folder.path().join("kept keytab");
    fs::copy(&keytab, &kept).unwrap();
    fs::remove_file(&keytab).unwrap();
    let mut fake = rogue(&mut world);
    for link in [false, true] {
        if link {
            // A dangling link is an unreadable keytab, too.
            std::os::unix::fs::symlink("/no/such/keytab", &keytab).unwrap();
        }
        world.rosterd.stop();
        world.rosterd.launch();
        let pam = PamHost::on(&world.rosterd, "alice");
        wait_until_it_serves(&pam);
        assert_eq!(authenticate(&pam, "alice", "attackers"), UNAVAILABLE);
        let refused = "logins are refused: cannot read";
        wait_for(SOON, || match finding(&world, refused)?.as_str() {
            "problem" => Ok(()),
            level => Err(level.to_owned()),
        });
        assert_ne!(world.rosterd.roster(&["status"]).code, 0);
        let said = roster(&world, &["check-config", world.rosterd.config().to_str().unwrap()]);
        assert!(said.contains("krb5_keytab: logins are refused"), "{said}");
        assert!(said.contains("rosterd would deny logins"), "{said}");
    }
    let mark = world.rosterd.host().state_dir().join("domains/.keytab-used");
    let found = fs::symlink_metadata(&mark).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o022), (0, 0), "it is root's");
    // The key comes back, and with it logins by the right KDC alone.
    fs::remove_file(&keytab).unwrap();
    fs::rename(&kept, &keytab).unwrap();
    let pam = PamHost::on(&world.rosterd, "alice");
    pam.expect_logged("corp: the new keytab is in force", "");
    wait_until_it_serves(&pam);
    wait_for(SOON, || {
        assert_ne!(authenticate(&pam, "alice", "attackers"), right);
        match finding(&world, "logins are refused") {
            Err(_) => Ok(()),
            Ok(level) => Err(level),
        }
    });
    fake.stop();
    world.kdc.launch(&[]);
    let pam = PamHost::on(&world.rosterd, "alice");
    wait_for(SOON, || match authenticate(&pam, "alice", PASSWORD).as_str() {
        said if said == right => Ok(()),
        said => Err(said.to_owned()),
    });
}

#[test]
fn krb5_default_without_keytab_refuses() {
    if !needs_root() {
        return;
    }
    let world = World::new(&KEPT, false);
    let pam = PamHost::on(&world.rosterd, "alice");
    wait_until_it_serves(&pam);
    assert_eq!(authenticate(&pam, "alice", PASSWORD), UNAVAILABLE);
    pam.expect_logged("logins are refused: cannot read", "no keytab");
    assert_eq!(said(&pam.run_pamtester("alone", "alice", &SESSION, &[PASSWORD])), UNAVAILABLE);
    assert!(world.caches().is_empty());
    assert!(world.rosterd.getent("passwd", "alice").is_some(), "look-ups go on");
}

/// SSSD's claims about `krb5_fast_principal`, with and without the verification of KDCs.
#[test]
fn krb5_fast_principal_decides_who_logs_in() {
    if !needs_root() {
        return;
    }
    let mut world = World::new(&[], true);
    let keytab = world.kdc.keytab("host/client.lab.test");
    let right = "successfully authenticated";
    for (principal, validate, expected) in [
        ("host/client.lab.test", "off", right),
        ("host/client.lab.test@LAB.TEST", "required", right),
        ("invalid", "off", UNAVAILABLE),
        ("invalid", "required", UNAVAILABLE),
        ("principal@TEST.TEST", "off", UNAVAILABLE),
        ("principal@TEST.TEST", "required", UNAVAILABLE),
    ] {
        let domain = World::domain(&world.kdc, world.folder.path(), true)
            .with("krb5_fast_principal", &format!("{principal:?}"))
            .with("krb5_validate", &format!("{validate:?}"));
        let domain = KEPT.into_iter().fold(domain, |domain, (key, value)| domain.with(key, value));
        world.rosterd.stop();
        world.rosterd.set_domains(&[domain]);
        world.rosterd.launch();
        let pam = PamHost::on(&world.rosterd, "alice");
        wait_until_it_serves(&pam);
        assert_eq!(authenticate(&pam, "alice", PASSWORD), expected, "{principal} {validate}");
        if expected != right {
            let line = pam.expect_logged(
                &format!("no ticket of {principal} (krb5_fast_principal)"),
                login::FAST_KEY_MISSING.code,
            );
            assert!(line.contains(&keytab.display().to_string()), "{line}");
        }
    }
    assert!(!world.rosterd.log().contains("offline=true"), "{}", world.rosterd.log());
}

/// The process of `roster-krb5 serve`, the one child of the backend.
fn helper_of(rosterd: &Rosterd) -> i32 {
    let backend = rosterd.wait_for_role("backend:corp");
    let list = format!("/proc/{0}/task/{0}/children", backend.as_raw_nonzero());
    fs::read_to_string(list).unwrap().trim().parse().unwrap()
}

#[test]
fn a_program_that_is_killed_is_started_again() {
    if !needs_root() {
        return;
    }
    let world = World::new(&[], true);
    let pam = PamHost::on(&world.rosterd, "alice");
    assert_eq!(authenticate(&pam, "alice", PASSWORD), "successfully authenticated");
    let backend = world.rosterd.wait_for_role("backend:corp");
    let helper = helper_of(&world.rosterd);
    // As unprivileged as the backend, without its files, and hidden from others of its user.
    let status = fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        (field("CapEff:").as_str(), field("NoNewPrivs:").as_str()),
        ("0000000000000000", "1")
    );
    assert_ne!(field("Uid:"), "0");
    let seccomp = field("Seccomp:");
    assert!(seccomp == "2" || world.rosterd.log().contains("no seccomp"), "{seccomp}");
    let pid = rustix::process::Pid::from_raw(helper).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_for(SOON, || match authenticate(&pam, "alice", PASSWORD).as_str() {
        "successfully authenticated" => Ok(()),
        said => Err(said.to_owned()),
    });
    assert_ne!(world.rosterd.wait_for_role("backend:corp"), backend);
}

#[test]
fn krb5_changed_key_is_used_without_kdc() {
    if !needs_root() {
        return;
    }
    let mut world = World::new(&KEPT, true);
    let pam = PamHost::on(&world.rosterd, "alice");
    let right = "successfully authenticated";
    assert_eq!(authenticate(&pam, "alice", PASSWORD), right);
    // Another key at the KDC, and in the keytab.
    let path = world.kdc.keytab("host/client.lab.test");
    fs::remove_file(&path).unwrap();
    world.kdc.kadmin(&[format!("ktadd -k {} host/client.lab.test", path.display())]);
    assert_ne!(authenticate(&pam, "alice", PASSWORD), right, "the old key still counts");
    pam.expect_logged("corp: the new keytab is in force", "");
    wait_for(SOON, || match authenticate(&pam, "alice", PASSWORD).as_str() {
        said if said == right => Ok(()),
        said => Err(said.to_owned()),
    });
    // Away: a user with cached credentials logs in, all others are denied, and there is no ticket.
    wait_until(SOON, "the password is kept", || {
        let kept = world.rosterd.roster(&["cache", "credentials"]);
        kept.code == 0 && kept.text().contains("alice")
    });
    world.kdc.stop();
    assert_eq!(
        said(&pam.run_pamtester("alone", "alice", &SESSION, &[PASSWORD])),
        "successfully opened a session"
    );
    assert!(world.caches().is_empty());
    assert_eq!(authenticate(&pam, "alice", "wrong"), "Authentication failure");
    assert_ne!(authenticate(&pam, "bob", PASSWORD), right);
    pam.expect_logged("alice", "offline=true");
}

#[test]
fn an_old_password_is_not_believed_while_one_of_the_kdcs_is_there() {
    if !needs_root() {
        return;
    }
    let mut world = World::new(&[], true);
    // A server that accepts requests and sends nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let kdcs = format!("[\"{}\", {:?}]", silent.local_addr().unwrap(), world.kdc.address());
    let domain = World::domain(&world.kdc, world.folder.path(), true)
        .with("krb5_kdcs", &kdcs)
        .with("offline_credentials", "true")
        .with("argon2_target_time", "\"10ms\"");
    world.rosterd.stop();
    world.rosterd.set_domains(&[domain]);
    world.rosterd.launch();
    let pam = PamHost::on(&world.rosterd, "alice");
    wait_until_it_serves(&pam);
    let right = "successfully authenticated";
    assert_eq!(authenticate(&pam, "alice", PASSWORD), right);
    wait_until(SOON, "the password is kept", || {
        let kept = world.rosterd.roster(&["cache", "credentials"]);
        kept.code == 0 && kept.text().contains("alice")
    });
    world.kdc.kadmin(&["cpw -pw \"new horse\" alice".to_owned()]);
    // A backend that knows nothing of KDCs yet.
    let anew = || {
        let before = world.rosterd.wait_for_role("backend:corp");
        world.rosterd.kill_role("backend:corp");
        wait_until(SOON, "the backend is there again", || {
            world.rosterd.role("backend:corp").is_some_and(|pid| pid != before)
        });
        wait_until_it_serves(&pam);
    };
    anew();
    assert_eq!(authenticate(&pam, "alice", PASSWORD), "Authentication failure");
    assert!(!world.rosterd.log().contains("offline=true"), "{}", world.rosterd.log());
    // From now on the KDC that answered is queried first, and the silent one not at all.
    silent.set_nonblocking(true).unwrap();
    while silent.recv(&mut [0; 4096]).is_ok() {}
    assert_eq!(authenticate(&pam, "alice", "new horse"), right);
    assert!(silent.recv(&mut [0; 4096]).is_err());
    // All are silent. That is detected before the timeout of a server that answers.
    world.kdc.process().freeze();
    anew();
    assert_ne!(authenticate(&pam, "bob", PASSWORD), right);
    pam.expect_logged("no KDC of LAB.TEST replies", "no KDC replied in time");
}

/// A program that changes a password, and has permission to do so.
fn begin_change(world: &World, user: &str) -> Child {
    let pam = PamHost::on(&world.rosterd, user);
    let mut command = pam.command(find_tool("pamtester", "pamtester").to_str().unwrap());
    command.args(["alone", user, "chauthtok"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let typed = child.stdin.as_mut().unwrap();
    typed.write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    pam.expect_logged(&format!("password change prepared user={user}"), "outcome=success");
    child
}

#[test]
fn what_a_kdc_in_another_ones_place_refuses_makes_nobody_forgotten() {
    if !needs_root() {
        return;
    }
    for has_keytab in [true, false] {
        // Passwords that a verified KDC accepted: other passwords are not cached.
        let mut world = World::new(&KEPT, true);
        let people = ["alice", "bob", "carol"];
        let right = "successfully authenticated";
        let known = |world: &World| {
            let kept = world.rosterd.roster(&["cache", "credentials"]);
            let text = kept.text();
            kept.code == 0 && people.iter().all(|name| text.contains(name))
        };
        {
            let pam = PamHost::on(&world.rosterd, "alice");
            for name in people {
                assert_eq!(authenticate(&pam, name, PASSWORD), right);
            }
            wait_until(SOON, "the passwords are kept", || known(&world));
        }
        if !has_keytab {
            world.rosterd.stop();
            let domain = World::domain(&world.kdc, world.folder.path(), false);
            let domain = domain.with("krb5_validate", "\"off\"");
            let with = |domain: DomainTable, (key, value): (&str, &str)| domain.with(key, value);
            world.rosterd.set_domains(&[KEPT.into_iter().fold(domain, with)]);
            world.rosterd.launch();
            wait_until_it_serves(&PamHost::on(&world.rosterd, "alice"));
        }
        // One change of a password is begun with the right KDC.
        let mut changing = begin_change(&world, "alice");
        // It knows of no alice, has locked bob, and has another password for carol.
        let mut fake = world.kdc.replace_with(&[
            format!("addprinc +requires_preauth -pw \"{PASSWORD}\" -allow_tix bob"),
            "addprinc +requires_preauth -pw another carol".to_owned(),
            "addprinc -randkey host/client.lab.test".to_owned(),
        ]);
        fake.launch_kadmind();
        let mut typed = changing.stdin.take().unwrap();
        typed.write_all(b"a longer one\na longer one\n").unwrap();
        assert!(!changing.wait().unwrap().success());
        {
            let pam = PamHost::on(&world.rosterd, "alice");
            pam.expect_logged("password change user=alice", "outcome=");
        }
        let said = [
            ("alice", "User not known to the underlying authentication module"),
            ("bob", "Permission denied"),
            ("carol", "Authentication failure"),
        ];
        // A daemon that has reached the right KDC before, and one that has never reached any.
        for is_new in [false, true] {
            if is_new {
                world.rosterd.stop();
                world.rosterd.launch();
            }
            let pam = PamHost::on(&world.rosterd, "alice");
            wait_until_it_serves(&pam);
            for (name, expected) in said {
                assert_eq!(authenticate(&pam, name, PASSWORD), expected, "{name}, {is_new}");
                let changed = pam.run_pamtester("alone", name, &["chauthtok"], &[PASSWORD]);
                assert_ne!(changed.code, 0, "{name}");
            }
        }
        fake.stop();
        let pam = PamHost::on(&world.rosterd, "alice");
        for name in people {
            assert_eq!(authenticate(&pam, name, PASSWORD), right, "{name}");
            pam.expect_logged(name, "offline=true");
        }
    }
}

#[test]
fn pam_sshd_session_has_ticket_and_removes_it() {
    if !needs_root() {
        return;
    }
    let world = World::new(&[], true);
    let pam = PamHost::on(&world.rosterd, "alice");
    pam.service("sshd", pam::ROSTER_ONLY_STACK);
    let sshd = Sshd::start(
        &world.rosterd,
        "PasswordAuthentication yes\nKbdInteractiveAuthentication yes\nPubkeyAuthentication no",
    );
    let by = |way: &str, command: &str| {
        let done = sshd.run_with_password("alice", PASSWORD, way, command);
        assert_eq!(done.code, 0, "{}{}", done.error(), sshd.log());
        done.text()
    };
    let klist = find_tool("klist", "krb5-user");
    let command = format!(
        "echo \"$KRB5CCNAME\"; stat -c '%U %a' \"${{KRB5CCNAME#FILE:}}\"; env | grep -c ROSTER; {}",
        klist.display()
    );
    for way in ["password", "keyboard-interactive"] {
        let said = by(way, &command);
        let mut lines = said.lines();
        let name = lines.next().unwrap_or_default();
        let stem = format!("FILE:{}/krb5cc_{FIRST}_", world.folder.path().display());
        assert!(name.starts_with(&stem), "{way}: {said}{}", sshd.log());
        assert_eq!(lines.next(), Some("alice 600"), "{way}: {said}");
        assert_eq!(lines.next(), Some("0"), "{way}: something of ours is left in the environment");
        assert!(said.contains("Default principal: alice@LAB.TEST"), "{way}: {said}");
        wait_until(SOON, "the ticket is gone with the session", || world.caches().is_empty());
    }
    // Two sessions have a ticket each, and neither takes the other's away.
    let sleeper = std::thread::scope(|scope| {
        let long = scope.spawn(|| by("password", "sleep 2; cat \"${KRB5CCNAME#FILE:}\" | wc -c"));
        wait_until(SOON, "the first session has a ticket", || !world.caches().is_empty());
        by("password", "true");
        long.join().unwrap()
    });
    assert!(sleeper.trim().parse::<u32>().unwrap() > 100, "{sleeper}");
    wait_until(SOON, "both are gone", || world.caches().is_empty());
}
