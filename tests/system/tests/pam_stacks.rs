// SPDX-License-Identifier: MIT OR Apache-2.0
//! PAM stacks of distributions: Debian's own, with the profile put in and removed by pam-auth-update; those of
//! docs/how-to/logins.md; and each choice of features of the authselect profile. Through all of them the directory's
//! users log in while rosterd runs. The host's own users log in in any case. Then programs on Debian's: cron, `login`
//! and `passwd` at a terminal, and a screen locker without privileges.

use roster_system_tests::pam::{self, FIRST_LOGIN_UID, PASSWORD, PamHost, last_message};
use roster_system_tests::pam_stacks::{
    DebianStacks, active_lines, authselect_variants, profiles_dir, run_on_terminal,
};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{POLICY_RDN, ServerProcess};
use roster_system_tests::{
    DirectoryServer, LdifBuilder, ProgramOutput, Rosterd, Schema, Slapd, find_tool, needs_root,
    run, wait_for, wait_until,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// The password of the host's own users, root among them.
const OF_THE_HOST: &str = "battery staple";

/// The operations of a login.
const WHOLE: [&str; 5] =
    ["authenticate", "acct_mgmt", "setcred(PAM_ESTABLISH_CRED)", "open_session", "close_session"];

struct World {
    debian: DebianStacks,
    rosterd: Rosterd,
    slapd: Slapd,
}

impl World {
    fn start() -> Self {
        Self::with("")
    }

    /// With these tables of the configuration.
    fn with(tables: &str) -> Self {
        let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
        let domain = pam::domain(&slapd).with("offline_credentials", "false");
        let rosterd = pam::start_daemon(&[domain], tables);
        let mut openssl = Command::new(find_tool("openssl", "openssl"));
        let hash = run(openssl.args(["passwd", "-6", OF_THE_HOST])).text();
        let shadow = format!("root:{hash}:19000::::::\nlocal:{hash}:19000::::::\n");
        fs::write(rosterd.host().path("etc/shadow"), shadow).expect("write shadow");
        let _ = PamHost::on(&rosterd, "alice");
        let debian = DebianStacks::on(&rosterd);
        Self { debian, rosterd, slapd }
    }

    /// Runs these logins side by side, because failures take seconds. Reports each login with an unexpected result.
    #[track_caller]
    fn expect(&self, log_ins: &[(&str, &str, &str, &[&str], bool)]) {
        let come_out: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = log_ins
                .iter()
                .map(|(stack, user, password, operations, _)| {
                    scope.spawn(|| self.debian.run_pamtester(stack, user, operations, &[password]))
                })
                .collect();
            all.into_iter().map(|done| done.join().expect("pamtester")).collect()
        });
        for ((stack, user, password, operations, is_in), done) in log_ins.iter().zip(come_out) {
            let what = format!("{stack}: {user}, {password:?}, {operations:?}");
            assert_eq!(done.code == 0, *is_in, "{what}: {done:?}\n{}", self.rosterd.log());
        }
    }

    /// Checks the users that may log in through these stacks while the daemon runs.
    #[track_caller]
    fn expect_all_of(&self, stacks: &[&str]) {
        let mut all = Vec::new();
        for stack in stacks {
            all.extend([
                (*stack, "alice", PASSWORD, &WHOLE[..], true),
                (stack, "local", OF_THE_HOST, &WHOLE, true),
                (stack, "root", OF_THE_HOST, &WHOLE, true),
                (stack, "alice", OF_THE_HOST, &WHOLE[..1], false),
                (stack, "alice", "", &WHOLE[..1], false),
                (stack, "local", PASSWORD, &WHOLE[..1], false),
                (stack, "root", PASSWORD, &WHOLE[..1], false),
                (stack, "mallory", PASSWORD, &WHOLE[..1], false),
            ]);
        }
        self.expect(&all);
    }

    /// The host's own users, while nothing answers for the directory's.
    #[track_caller]
    fn expect_the_hosts_alone(&self, stacks: &[&str]) {
        let mut all = Vec::new();
        for stack in stacks {
            all.extend([
                (*stack, "local", OF_THE_HOST, &WHOLE[..], true),
                (stack, "root", OF_THE_HOST, &WHOLE, true),
                (stack, "alice", PASSWORD, &WHOLE[..1], false),
                // As with a key, which this test does not use.
                (stack, "alice", "", &["acct_mgmt"], false),
            ]);
        }
        self.expect(&all);
    }
}

/// The first block of code below a heading of docs/how-to/logins.md.
fn block_below(heading: &str) -> &'static str {
    let (_, below) =
        include_str!("../../../docs/how-to/logins.md").split_once(heading).expect("a heading");
    let block = below.split("```pam host\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("a block of code")
}

const COMMON: [&str; 4] = ["common-auth", "common-account", "common-password", "common-session"];

#[test]
fn pam_auth_update_adds_and_removes_module() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let debian = &world.debian;
    let before = COMMON.map(|stack| debian.active_lines(stack));
    assert!(!before.concat().iter().any(|line| line.contains("pam_roster")));

    // As any package does when it is installed: there is no question before the profile is enabled.
    let _ = debian.auth_update(&["--package"]).text();
    assert_eq!(COMMON.map(|stack| debian.active_lines(stack)), before);
    let done = debian.auth_update(&["--enable", "roster"]);
    assert_eq!((done.code, done.error()), (0, String::new()));
    // They equal docs/how-to/logins.md, except for the lines of modules that it adds to the session.
    let by_hand = active_lines(block_below("## The stacks by hand"));
    for (stack, kind) in COMMON.iter().zip(["auth", "account", "password"]) {
        let wanted: Vec<_> =
            by_hand.iter().filter(|line| line.starts_with(kind)).cloned().collect();
        assert_eq!(debian.active_lines(stack), wanted, "{stack}");
    }
    let session = debian.active_lines("common-session");
    assert!(session.ends_with(&["session optional pam_roster.so".to_owned()]), "{session:?}");
    assert!(
        debian.active_lines("common-session-noninteractive").concat().contains("pam_roster.so")
    );

    debian.write_stack("by-hand", &by_hand.join("\n"));
    world.expect_all_of(&["other", "by-hand"]);
    let lines = [PASSWORD, "a new one, long", "a new one, long"];
    for user in ["bob", "carol"] {
        let stack = if user == "bob" { "passwd" } else { "by-hand" };
        let done = world.debian.run_pamtester(stack, user, &["chauthtok"], &lines);
        assert_eq!(done.code, 0, "{}", last_message(&done));
        world.expect(&[(stack, user, lines[1], &["authenticate"], true)]);
    }

    // The profile that the documentation names makes home directories.
    let done = world.debian.auth_update(&["--enable", "mkhomedir"]);
    assert_eq!((done.code, done.error()), (0, String::new()));
    world.expect(&[("other", "alice", PASSWORD, &WHOLE, true)]);
    let mut stat = world.debian.command("stat");
    assert_eq!(run(stat.args(["-c", "%U %G", "/home/alice"])).text(), "alice UNKNOWN");

    world.rosterd.stop();
    world.expect_the_hosts_alone(&["other", "by-hand"]);
    // A missing module does not deny the host's own users either.
    let mut unmount = world.debian.command("sh");
    let script = "umount \"$(dirname \"$(find /usr/lib -name pam_roster.so)\")\"";
    let _ = run(unmount.args(["-ec", script])).text();
    world.expect_the_hosts_alone(&["other", "by-hand"]);
    for disable in [["--disable", "roster"], ["--disable", "mkhomedir"]] {
        let done = world.debian.auth_update(&disable);
        assert_eq!((done.code, done.error()), (0, String::new()));
    }
    assert_eq!(COMMON.map(|stack| world.debian.active_lines(stack)), before);
}

#[test]
fn pam_authselect_features_admit_right_users() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let mut stacks = Vec::new();
    for profile in ["system-auth", "password-auth"] {
        let template = fs::read_to_string(profiles_dir().join("authselect").join(profile));
        for (features, text) in authselect_variants(&template.expect("a profile")) {
            assert_eq!(text.contains("faillock"), features.contains(&"with-faillock".to_owned()));
            assert_ne!(text.contains("nullok"), features.contains(&"without-nullok".to_owned()));
            let name = format!("{profile}-{}", features.join("-"));
            // Each stack has a separate count of failures: wrong passwords of logins at the same time would lock the
            // user.
            let faillock = format!("pam_faillock.so dir=/run/faillock-{name}");
            let text = text.replace("pam_faillock.so", &faillock);
            world.debian.write_stack(&name, &text);
            stacks.push(name);
        }
    }
    assert_eq!(stacks.len(), 16, "two profiles with three features each");
    let stacks: Vec<_> = stacks.iter().map(String::as_str).collect();
    world.expect_all_of(&stacks);
    // The policy's messages appear. pam_pwquality, which comes first, checks a local user's password.
    let lines = [PASSWORD, "a new one, long", "a new one, long"];
    let done = world.debian.run_pamtester(stacks[0], "bob", &["chauthtok"], &lines);
    assert_eq!(done.code, 0, "{}", last_message(&done));
    world.rosterd.stop();
    world.expect_the_hosts_alone(&stacks);
}

/// The jobs of the host's real cron, each of a user's own crontab, that are to run when it starts.
struct Cron {
    /// The output of each job.
    jobs: PathBuf,
}

impl Cron {
    const USERS: [(&'static str, u32); 4] = [
        ("local", 1500),
        ("alice", FIRST_LOGIN_UID),
        ("bob", FIRST_LOGIN_UID + 1),
        ("carol", FIRST_LOGIN_UID + 2),
    ];

    fn install_jobs(world: &World) -> Self {
        let (jobs, tables) =
            (world.rosterd.host().path("jobs"), world.rosterd.host().path("crontabs"));
        for folder in [&jobs, &tables] {
            fs::create_dir(folder).expect("a folder");
        }
        fs::set_permissions(&jobs, fs::Permissions::from_mode(0o1777)).expect("chmod");
        for (user, uid) in Self::USERS {
            let (file, job) = (tables.join(user), jobs.join(user));
            let job = job.display();
            fs::write(&file, format!("HOME=/\n@reboot id -u >{job}.new; mv {job}.new {job}\n"))
                .expect("write a crontab");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
            std::os::unix::fs::chown(&file, Some(uid), None).expect("chown");
        }
        Self { jobs }
    }

    /// Starts cron, as at boot. Only the jobs of these users run. Unless the daemon is gone, cron checks the account of
    /// every user except the host's own.
    #[track_caller]
    fn runs(&self, world: &World, users: &[&str], is_asked: bool) {
        let host = world.rosterd.host();
        for job in fs::read_dir(&self.jobs).expect("jobs").flatten() {
            fs::remove_file(job.path()).expect("remove what a job left");
        }
        let asked_before = world.rosterd.log().len();
        let script = "mount --bind \"$1\" /var/spool/cron/crontabs; mount -t tmpfs tmpfs /etc/cron.d; \
                      mount --bind /dev/null /etc/crontab; rm -f /run/crond.*; exec cron -f";
        let mut command = world.debian.command("unshare");
        command.args(["-m", "sh", "-ec", script, "cron"]).arg(host.path("crontabs"));
        let mut cron = ServerProcess::start(&mut command, &host.path("cron.log"));
        let has_run = |user: &str| self.jobs.join(user).exists();
        wait_for(SOON, || {
            assert!(cron.is_running(), "cron has ended: {}", cron.log());
            let log = world.rosterd.log();
            for (user, _) in Self::USERS {
                let asked = format!("account user={user} service=cron");
                let is_judged =
                    !is_asked || user == "local" || log[asked_before..].contains(&asked);
                if !is_judged || users.contains(&user) && !has_run(user) {
                    return Err(format!("{user}: {}", &log[asked_before..]));
                }
            }
            let jobs = fs::read_to_string(format!("/proc/{0}/task/{0}/children", cron.pid()));
            let jobs = jobs.expect("cron's own jobs");
            if jobs.is_empty() { Ok(()) } else { Err(format!("jobs still run: {jobs}")) }
        });
        cron.stop();
        for (user, uid) in Self::USERS {
            assert_eq!(has_run(user), users.contains(&user), "{user}: {}", world.rosterd.log());
            let left = fs::read_to_string(self.jobs.join(user)).unwrap_or_default();
            assert!(left.is_empty() || left == format!("{uid}\n"), "{user} ran as {left}");
        }
    }
}

#[test]
fn pam_cron_runs_jobs_of_allowed_users() {
    if !needs_root() {
        return;
    }
    let mut world = World::with("[domain.corp.access.service.cron]\ndenied_users = [\"bob\"]\n");
    let _ = world.debian.auth_update(&["--enable", "roster"]).text();
    let cron = Cron::install_jobs(&world);
    cron.runs(&world, &["local", "alice", "carol"], true);

    let carol = LdifBuilder::new(Schema::Rfc2307).user_dn("carol");
    world.slapd.set(&carol, "pwdAccountLockedTime", &["000001010000Z"]);
    wait_until(SOON, "the lock is known", || world.rosterd.roster(&["access", "carol"]).code == 3);
    cron.runs(&world, &["local", "alice"], true);

    pam::stop_server(&mut world.slapd, &world.rosterd);
    cron.runs(&world, &["local", "alice"], true);

    world.rosterd.stop();
    cron.runs(&world, &["local"], false);
}

/// All output of a dialogue.
fn all_output(done: &ProgramOutput) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &done.error()
}

/// A command of one of [`pam::login_users_ldif`].
fn as_user(world: &World, uid: u32, words: &[&str]) -> Command {
    let mut command = world.debian.command("setpriv");
    let id = uid.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).args(words);
    command
}

/// A screen locker, as in Debian, and one without root's rights: then the user's own process sends the request.
fn a_screen_is_locked_until_its_own_user_opens_it(world: &World) {
    let vlock = find_tool("vlock-main", "vlock");
    let plain = world.rosterd.host().path("locker");
    fs::copy(&vlock, &plain).expect("copy the locker");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).expect("chmod");
    let opens = [("It is locked.", " "), ("carol's Password: ", PASSWORD)];
    let fails = [
        ("It is locked.", " "),
        ("carol's Password: ", "wrong"),
        ("Authentication failure", ""),
        ("root's Password: ", OF_THE_HOST),
    ];
    for (program, dialogue) in [(&vlock, opens.to_vec()), (&plain, [&fails[..], &opens].concat())] {
        let words = ["env", "VLOCK_MESSAGE=It is locked.", program.to_str().expect("a path")];
        let done = run_on_terminal(&as_user(world, FIRST_LOGIN_UID + 2, &words), &dialogue);
        assert_eq!(done.code, 0, "{}", all_output(&done));
    }
    let log = world.rosterd.log();
    for (peer, outcome) in
        [(0, "success"), (FIRST_LOGIN_UID + 2, "wrong password"), (FIRST_LOGIN_UID + 2, "success")]
    {
        let is_it = |line: &str| {
            line.contains("user=carol") && line.contains(&format!("peer={peer} outcome={outcome}"))
        };
        assert!(log.lines().any(is_it), "{peer} {outcome}: {log}");
    }
}

/// `login` tells one user how long the password lasts, and requires another to change it; then `passwd`.
fn login_and_passwd_show_what_the_directory_says(world: &World) {
    // A wrong password, then the right one, with a message on how long it lasts.
    let done = run_on_terminal(
        &world.debian.command("login"),
        &[
            ("login: ", "alice"),
            ("Password: ", "wrong"),
            ("Login incorrect", ""),
            ("login: ", "alice"),
            ("Password: ", PASSWORD),
            ("expires in 9 days", ""),
            ("$ ", "id -un; exit"),
        ],
    );
    assert!(done.code == 0 && all_output(&done).contains("\nalice\n"), "{}", all_output(&done));
    assert!(!all_output(&done).contains(PASSWORD), "it is echoed");

    // A password that an administrator has set is changed at login.
    let done = run_on_terminal(
        &world.debian.command("login"),
        &[
            ("login: ", "bob"),
            ("Password: ", PASSWORD),
            ("Your password must be changed now.", ""),
            ("Current password: ", PASSWORD),
            ("New password: ", "a new one, long"),
            ("Retype new password: ", "a new one, long"),
            ("$ ", "id -un; exit"),
        ],
    );
    assert!(done.code == 0 && all_output(&done).contains("\nbob\n"), "{}", all_output(&done));

    let done = run_on_terminal(
        &as_user(world, FIRST_LOGIN_UID, &["passwd"]),
        &[
            ("Current password: ", PASSWORD),
            ("New password: ", "one that she takes"),
            ("Retype new password: ", "one that she takes"),
        ],
    );
    assert!(
        done.code == 0 && all_output(&done).contains("updated successfully"),
        "{}",
        all_output(&done)
    );
    world.expect(&[
        ("other", "alice", "one that she takes", &["authenticate"], true),
        ("other", "bob", "a new one, long", &["authenticate"], true),
    ]);
}

#[test]
fn login_passwd_and_a_screen_locker_hold_the_dialogue() {
    if !needs_root() {
        return;
    }
    let world = World::start();
    let _ = world.debian.auth_update(&["--enable", "roster"]).text();
    let people = LdifBuilder::new(Schema::Rfc2307);
    let policy = format!("{POLICY_RDN},{}", world.slapd.base());
    world.slapd.set(&policy, "pwdMaxAge", &["864000"]);
    world.slapd.set(&policy, "pwdExpireWarning", &["863999"]);
    for user in ["alice", "bob"] {
        world.slapd.set(&people.user_dn(user), "userPassword", &[PASSWORD]);
    }
    world.slapd.set(&policy, "pwdMustChange", &["TRUE"]);
    world.slapd.set(&people.user_dn("bob"), "pwdReset", &["TRUE"]);
    // Side by side, because failures take seconds.
    thread::scope(|scope| {
        scope.spawn(|| a_screen_is_locked_until_its_own_user_opens_it(&world));
        login_and_passwd_show_what_the_directory_says(&world);
    });
    let log = world.rosterd.log();
    for secret in [PASSWORD, OF_THE_HOST, "one that she takes", "a new one, long"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}
