//! Stacks that people are given: Debian's own, with the profile put in and taken out by pam-auth-update; those of
//! docs/log-in.md; and each choice of features of the authselect profile. Through all of them the directory's
//! users log in while rosterd runs, and the host's own whatever happens to it. Then programs on Debian's: cron,
//! `login` and `passwd` at a terminal, and a screen locker without a right of its own.

use roster_system_tests::pam::{self, FIRST, PASSWORD, Pam, said};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::{POLICY, Process};
use roster_system_tests::stacks::{Debian, at_a_terminal, lines_of, packaging, selections};
use roster_system_tests::{
    Directory, Output, Rosterd, Schema, Server, Slapd, needs_root, run, tool, wait_for, wait_until,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// The password of the host's own users, root among them.
const OF_THE_HOST: &str = "battery staple";

/// What a program does to let somebody in.
const WHOLE: [&str; 5] =
    ["authenticate", "acct_mgmt", "setcred(PAM_ESTABLISH_CRED)", "open_session", "close_session"];

struct World {
    debian: Debian,
    rosterd: Rosterd,
    slapd: Slapd,
}

impl World {
    fn start() -> Self {
        Self::with("")
    }

    /// With these tables of the configuration.
    fn with(tables: &str) -> Self {
        let slapd = pam::directory(&["alice", "bob", "carol"]);
        let domain = pam::domain(&slapd).with("offline_credentials", "false");
        let rosterd = pam::started(&[domain], tables);
        let mut openssl = Command::new(tool("openssl", "openssl"));
        let hash = run(openssl.args(["passwd", "-6", OF_THE_HOST])).text();
        let shadow = format!("root:{hash}:19000::::::\nlocal:{hash}:19000::::::\n");
        fs::write(rosterd.host().path("etc/shadow"), shadow).expect("write shadow");
        let _ = Pam::on(&rosterd, "alice");
        let debian = Debian::on(&rosterd);
        Self { debian, rosterd, slapd }
    }

    /// Runs these log-ins side by side, for failures take seconds, and tells of each that did not come out as it
    /// is said to.
    #[track_caller]
    fn expect(&self, log_ins: &[(&str, &str, &str, &[&str], bool)]) {
        let come_out: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = log_ins
                .iter()
                .map(|(stack, user, password, operations, _)| {
                    scope.spawn(|| self.debian.test(stack, user, operations, &[password]))
                })
                .collect();
            all.into_iter().map(|done| done.join().expect("pamtester")).collect()
        });
        for ((stack, user, password, operations, is_in), done) in log_ins.iter().zip(come_out) {
            let what = format!("{stack}: {user}, {password:?}, {operations:?}");
            assert_eq!(done.code == 0, *is_in, "{what}: {done:?}\n{}", self.rosterd.log());
        }
    }

    /// Who may in through these stacks while the daemon runs.
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
                // As with a key, which nobody here asks for.
                (stack, "alice", "", &["acct_mgmt"], false),
            ]);
        }
        self.expect(&all);
    }
}

/// The first block of code below a heading of docs/log-in.md.
fn block_below(heading: &str) -> &'static str {
    let (_, below) =
        include_str!("../../../docs/log-in.md").split_once(heading).expect("a heading");
    below.split("```").nth(1).expect("a block of code")
}

const COMMON: [&str; 4] = ["common-auth", "common-account", "common-password", "common-session"];

#[test]
fn pam_auth_update_puts_the_module_into_debians_stacks_and_takes_it_out_again() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let debian = &world.debian;
    let before = COMMON.map(|stack| debian.lines(stack));
    assert!(!before.concat().iter().any(|line| line.contains("pam_roster")));

    // As any package does when it is installed: nobody is asked before somebody wants it.
    let _ = debian.auth_update(&["--package"]).text();
    assert_eq!(COMMON.map(|stack| debian.lines(stack)), before);
    let done = debian.auth_update(&["--enable", "roster"]);
    assert_eq!((done.code, done.error()), (0, String::new()));
    // They are what docs/log-in.md shows, but for lines of modules that it adds to the session.
    let by_hand = lines_of(block_below("## The stacks by hand"));
    for (stack, kind) in COMMON.iter().zip(["auth", "account", "password"]) {
        let wanted: Vec<_> =
            by_hand.iter().filter(|line| line.starts_with(kind)).cloned().collect();
        assert_eq!(debian.lines(stack), wanted, "{stack}");
    }
    let session = debian.lines("common-session");
    assert!(session.ends_with(&["session optional pam_roster.so".to_owned()]), "{session:?}");
    assert!(debian.lines("common-session-noninteractive").concat().contains("pam_roster.so"));

    debian.write("by-hand", &by_hand.join("\n"));
    world.expect_all_of(&["other", "by-hand"]);
    let lines = [PASSWORD, "a new one, long", "a new one, long"];
    for user in ["bob", "carol"] {
        let stack = if user == "bob" { "passwd" } else { "by-hand" };
        let done = world.debian.test(stack, user, &["chauthtok"], &lines);
        assert_eq!(done.code, 0, "{}", said(&done));
        world.expect(&[(stack, user, lines[1], &["authenticate"], true)]);
    }

    // Home folders are made by the profile that the documentation names.
    let done = world.debian.auth_update(&["--enable", "mkhomedir"]);
    assert_eq!((done.code, done.error()), (0, String::new()));
    world.expect(&[("other", "alice", PASSWORD, &WHOLE, true)]);
    let mut stat = world.debian.command("stat");
    assert_eq!(run(stat.args(["-c", "%U %G", "/home/alice"])).text(), "alice UNKNOWN");

    world.rosterd.stop();
    world.expect_the_hosts_alone(&["other", "by-hand"]);
    // Nor does a module that is gone shut out the host's own.
    let mut unmount = world.debian.command("sh");
    let script = "umount \"$(dirname \"$(find /usr/lib -name pam_roster.so)\")\"";
    let _ = run(unmount.args(["-ec", script])).text();
    world.expect_the_hosts_alone(&["other", "by-hand"]);
    for disable in [["--disable", "roster"], ["--disable", "mkhomedir"]] {
        let done = world.debian.auth_update(&disable);
        assert_eq!((done.code, done.error()), (0, String::new()));
    }
    assert_eq!(COMMON.map(|stack| world.debian.lines(stack)), before);
}

#[test]
fn each_choice_of_features_of_the_authselect_profile_lets_the_right_people_in() {
    if !needs_root() {
        return;
    }
    let mut world = World::start();
    let mut stacks = Vec::new();
    for profile in ["system-auth", "password-auth"] {
        let template = fs::read_to_string(packaging().join("authselect").join(profile));
        for (features, text) in selections(&template.expect("a profile")) {
            assert_eq!(text.contains("faillock"), features.contains(&"with-faillock".to_owned()));
            assert_ne!(text.contains("nullok"), features.contains(&"without-nullok".to_owned()));
            let name = format!("{profile}-{}", features.join("-"));
            // Each stack counts failures by itself: wrong passwords of logins at the same time would lock the user.
            let faillock = format!("pam_faillock.so dir=/run/faillock-{name}");
            let text = text.replace("pam_faillock.so", &faillock);
            world.debian.write(&name, &text);
            stacks.push(name);
        }
    }
    assert_eq!(stacks.len(), 16, "two profiles with three features each");
    let stacks: Vec<_> = stacks.iter().map(String::as_str).collect();
    world.expect_all_of(&stacks);
    // With the words of the policy; a local user's quality is asked of pam_pwquality, which comes first.
    let lines = [PASSWORD, "a new one, long", "a new one, long"];
    let done = world.debian.test(stacks[0], "bob", &["chauthtok"], &lines);
    assert_eq!(done.code, 0, "{}", said(&done));
    world.rosterd.stop();
    world.expect_the_hosts_alone(&stacks);
}

/// The jobs of the host's real cron, each of a user's own crontab, that are to run when it starts.
struct Cron {
    /// What each job leaves.
    jobs: PathBuf,
}

impl Cron {
    const USERS: [(&'static str, u32); 4] =
        [("local", 1500), ("alice", FIRST), ("bob", FIRST + 1), ("carol", FIRST + 2)];

    fn of(world: &World) -> Self {
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

    /// Starts cron, as at boot. The jobs of these users run, and of nobody else; unless the daemon is gone, it is asked
    /// about everybody else than the host's own.
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
        let mut cron = Process::start(&mut command, &host.path("cron.log"));
        let has_run = |user: &str| self.jobs.join(user).exists();
        wait_for(SOON, || {
            assert!(cron.runs(), "cron has ended: {}", cron.log());
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
fn cron_runs_the_jobs_of_those_who_may_in_with_the_directory_and_without_it() {
    if !needs_root() {
        return;
    }
    let mut world = World::with("[domain.corp.access.service.cron]\ndenied_users = [\"bob\"]\n");
    let _ = world.debian.auth_update(&["--enable", "roster"]).text();
    let cron = Cron::of(&world);
    cron.runs(&world, &["local", "alice", "carol"], true);

    let carol = Directory::new(Schema::Rfc2307).user_dn("carol");
    world.slapd.set(&carol, "pwdAccountLockedTime", &["000001010000Z"]);
    wait_until(SOON, "the lock is known", || world.rosterd.roster(&["access", "carol"]).code == 3);
    cron.runs(&world, &["local", "alice"], true);

    pam::take_away(&mut world.slapd, &world.rosterd);
    cron.runs(&world, &["local", "alice"], true);

    world.rosterd.stop();
    cron.runs(&world, &["local"], false);
}

/// What a dialogue showed, all of it.
fn told(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &done.error()
}

/// A command of one of [`pam::people`].
fn as_user(world: &World, uid: u32, words: &[&str]) -> Command {
    let mut command = world.debian.command("setpriv");
    let id = uid.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).args(words);
    command
}

/// A screen locker, as Debian has it, and without root's rights: then the user asks about herself.
fn a_screen_is_locked_until_its_own_user_opens_it(world: &World) {
    let vlock = tool("vlock-main", "vlock");
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
        let done = at_a_terminal(&as_user(world, FIRST + 2, &words), &dialogue);
        assert_eq!(done.code, 0, "{}", told(&done));
    }
    let log = world.rosterd.log();
    for (peer, outcome) in [(0, "success"), (FIRST + 2, "wrong password"), (FIRST + 2, "success")] {
        let is_it = |line: &str| {
            line.contains("user=carol") && line.contains(&format!("peer={peer} outcome={outcome}"))
        };
        assert!(log.lines().any(is_it), "{peer} {outcome}: {log}");
    }
}

/// `login`, by whom one is told that her password lasts for so long, and another has to change his; then `passwd`.
fn login_and_passwd_show_what_the_directory_says(world: &World) {
    // A wrong password, then the right one, of which is said how long it lasts.
    let done = at_a_terminal(
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
    assert!(done.code == 0 && told(&done).contains("\nalice\n"), "{}", told(&done));
    assert!(!told(&done).contains(PASSWORD), "it is echoed");

    // One that an administrator has set is changed on the way in.
    let done = at_a_terminal(
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
    assert!(done.code == 0 && told(&done).contains("\nbob\n"), "{}", told(&done));

    let done = at_a_terminal(
        &as_user(world, FIRST, &["passwd"]),
        &[
            ("Current password: ", PASSWORD),
            ("New password: ", "one that she takes"),
            ("Retype new password: ", "one that she takes"),
        ],
    );
    assert!(done.code == 0 && told(&done).contains("updated successfully"), "{}", told(&done));
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
    let people = Directory::new(Schema::Rfc2307);
    let policy = format!("{POLICY},{}", world.slapd.base());
    world.slapd.set(&policy, "pwdMaxAge", &["864000"]);
    world.slapd.set(&policy, "pwdExpireWarning", &["863999"]);
    for user in ["alice", "bob"] {
        world.slapd.set(&people.user_dn(user), "userPassword", &[PASSWORD]);
    }
    world.slapd.set(&policy, "pwdMustChange", &["TRUE"]);
    world.slapd.set(&people.user_dn("bob"), "pwdReset", &["TRUE"]);
    // Side by side, for failures take seconds.
    thread::scope(|scope| {
        scope.spawn(|| a_screen_is_locked_until_its_own_user_opens_it(&world));
        login_and_passwd_show_what_the_directory_says(&world);
    });
    let log = world.rosterd.log();
    for secret in [PASSWORD, OF_THE_HOST, "one that she takes", "a new one, long"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}
