// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks that are wrong for a while: no credential is lost, and none is valid that the right clock would refuse.

use super::*;

const WEEK: u64 = 7 * DAY;
/// In 2027.
const START: u64 = 1_800_000_000;

/// The time at which the clock becomes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    AtStart,
    Running,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// The clock shows 1970, as on a host without a hardware clock.
    In1970,
    Behind(u64),
    Ahead(u64),
}

impl Wrong {
    fn shown(self, right: u64) -> u64 {
        match self {
            Self::In1970 => right % 1000,
            Self::Behind(secs) => right - secs,
            Self::Ahead(secs) => right + secs,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    begins: Begins,
    wrong: Wrong,
    /// Whether the directory replies while the clock is wrong.
    is_answered: bool,
    /// Whether the host boots when the clock changes while the process does not run.
    is_booted: bool,
}

fn cases() -> Vec<Case> {
    let wrongs = [
        Wrong::In1970,
        Wrong::Behind(300),
        Wrong::Behind(7 * HOUR),
        Wrong::Ahead(8 * DAY),
        Wrong::Ahead(3653 * DAY),
    ];
    let mut cases = Vec::new();
    for begins in [Begins::AtStart, Begins::Running] {
        for wrong in wrongs {
            for is_answered in [false, true] {
                for is_booted in [false, true] {
                    cases.push(Case { begins, wrong, is_answered, is_booted });
                }
            }
        }
    }
    cases
}

/// A host with a clock, and the right time.
struct Timed {
    host: Host,
    right: u64,
}

impl Timed {
    /// Makes a host with a password lifetime of one week. Carol's password is older.
    async fn new() -> Self {
        let mut host = Host::new();
        refresh(&host.engine, &["alice", "bob", "carol"], &[], "1");
        host.offline = Arc::new(OfflineAuth::disabled());
        host.offline = Self::opened(&host);
        let mut timed = Self { host, right: START };
        timed.host.directory_answers(true);
        timed.host.heard("carol", "good", AuthResult::Success).await;
        timed.go(WEEK + HOUR);
        timed.host.heard("alice", "good", AuthResult::Success).await;
        timed.go(12);
        timed.host.heard("bob", "good", AuthResult::Success).await;
        timed.host.directory_answers(false);
        timed
    }

    fn opened(host: &Host) -> Arc<OfflineAuth> {
        let settings = Settings { life: Duration::from_secs(WEEK), ..settings() };
        over(CredentialStore::open(host.folder.path()), settings, &host.hand, &host.engine)
    }

    fn go(&mut self, secs: u64) {
        self.right += secs;
        self.host.hand.go(secs);
    }

    /// Restarts the process, perhaps with the host, at this time of the clock.
    fn restart(&mut self, is_booted: bool, unix: u64) {
        self.host.offline = Arc::new(OfflineAuth::disabled());
        if is_booted {
            let boot = self.host.hand.0.lock().boot.unwrap()[0] + 1;
            self.host.hand.boot(boot, unix);
        }
        self.host.hand.set(unix);
        self.host.offline = Self::opened(&self.host);
    }

    /// Runs the events while the clock is wrong.
    async fn happens(&mut self, case: Case) {
        let host = &self.host;
        host.directory_answers(case.is_answered);
        host.clean().await;
        if case.is_answered {
            host.heard("bob", "good", AuthResult::Success).await;
            let plausible = !matches!(case.wrong, Wrong::In1970);
            let is_hosts = host.offline.now_unix() == host.hand.unix();
            let is_near = matches!(case.wrong, Wrong::Behind(300));
            assert_eq!(is_hosts, plausible && !is_near, "accounts are judged by the host's clock");
        } else {
            assert_ne!(host.check("carol", "good").await, AuthResult::Success, "it is too old");
            assert_ne!(host.check("alice", "bad").await, AuthResult::Success);
            let let_in = match case.wrong {
                Wrong::In1970 | Wrong::Behind(_) => AuthResult::Success,
                // That time is possible.
                Wrong::Ahead(_) => AuthResult::Unreachable,
            };
            assert_eq!(host.check("alice", "good").await, let_in);
        }
        self.go(30);
        self.host.clean().await;
        self.host.directory_answers(false);
        self.go(30);
        self.host.clean().await;
        self.are_kept();
    }

    /// Carol's password may be removed: it is too old by any clock.
    fn are_kept(&self) {
        let names = self.host.names();
        assert!(names.starts_with(&["alice".to_owned(), "bob".to_owned()]), "{names:?}");
    }

    async fn is_as_before(&self) {
        let host = &self.host;
        assert_eq!(host.offline.clock_fault(), None);
        assert_ne!(host.check("carol", "good").await, AuthResult::Success, "it is too old");
        assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
        for name in ["alice", "bob"] {
            assert_eq!(host.check(name, "good").await, AuthResult::Success, "{name}");
        }
        host.clean().await;
        self.are_kept();
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_clocks_neither_delete_nor_let_in() {
    let cases = cases();
    assert_eq!(cases.len(), 40);
    for case in cases {
        println!("{case:?}");
        let mut timed = Timed::new().await;
        let shown = case.wrong.shown(timed.right);
        match case.begins {
            Begins::AtStart => timed.restart(case.is_booted, shown),
            Begins::Running => timed.host.hand.set(shown),
        }
        timed.happens(case).await;
        // The clock is right again.
        let right = timed.right;
        match case.begins {
            Begins::AtStart => timed.host.hand.set(right),
            Begins::Running => timed.restart(case.is_booted, right),
        }
        timed.host.directory_answers(true);
        assert_eq!(timed.host.offline.now_unix(), right, "one answer is enough");
        timed.host.directory_answers(false);
        timed.is_as_before().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clock_ahead_at_start_deletes_nothing() {
    let mut timed = Timed::new().await;
    let shown = timed.right + 8 * DAY;
    timed.restart(true, shown);
    tokio::select! {
        () = timed.host.offline.maintain() => unreachable!("it never ends"),
        () = sleep(Duration::from_secs(5 * HOUR)) => {}
    }
    assert_eq!(timed.host.names(), ["alice", "bob", "carol"]);
    assert_eq!(timed.host.check("alice", "good").await, AuthResult::Unreachable);
    let right = timed.right;
    timed.host.hand.set(right);
    let doubt = timed.host.offline.clock_fault().expect("a fault");
    assert_eq!(doubt.text, "the clock is 8 d behind the latest known time");
    assert_eq!(doubt.message, &login::CLOCK_BEHIND);
    timed.host.directory_answers(true);
    assert_eq!(timed.host.offline.clock_fault(), None);
    timed.host.directory_answers(false);
    timed.is_as_before().await;
}

/// Both were written within a minute, and so was the mark.
#[tokio::test(start_paused = true)]
async fn clock_behind_at_boot_dates_last_log_ins() {
    let mut timed = Timed::new().await;
    let shown = timed.right - 300;
    timed.restart(true, shown);
    assert_eq!(timed.host.offline.now_unix(), timed.right);
    for name in ["alice", "bob"] {
        assert_eq!(timed.host.check(name, "good").await, AuthResult::Success, "{name}");
    }
}

/// The first login with that clock removed all users with a later one.
#[tokio::test(start_paused = true)]
async fn clock_behind_with_directory_deletes_nobody() {
    for behind in [600, 7 * HOUR, START] {
        let mut timed = Timed::new().await;
        let shown = timed.right - behind;
        timed.host.hand.set(shown);
        timed.host.directory_answers(true);
        timed.host.heard("bob", "good", AuthResult::Success).await;
        timed.host.directory_answers(false);
        timed.host.clean().await;
        timed.are_kept();
        for name in ["alice", "bob"] {
            assert_eq!(
                timed.host.check(name, "good").await,
                AuthResult::Success,
                "{name} {behind}"
            );
        }
        let right = timed.right;
        timed.restart(false, right);
        timed.host.directory_answers(true);
        let _ = timed.host.offline.now_unix();
        timed.host.directory_answers(false);
        timed.is_as_before().await;
    }
}

/// The access check uses the host's clock. A wrong reading of two seconds has no later effect.
#[tokio::test(start_paused = true)]
async fn clock_ahead_for_a_moment_is_forgotten_online() {
    let mut timed = Timed::new().await;
    timed.host.directory_answers(true);
    let ahead = timed.right + 40 * DAY;
    timed.host.hand.set(ahead);
    assert_eq!(timed.host.offline.now_unix(), ahead);
    timed.go(2);
    timed.host.hand.set(timed.right);
    assert_eq!(timed.host.offline.now_unix(), timed.right);
    timed.host.directory_answers(false);
    assert_eq!(timed.host.offline.now_unix(), timed.right);
    timed.is_as_before().await;
}

/// While the directory is unreachable the right time is unknown, and the later one is safer.
#[tokio::test(start_paused = true)]
async fn clock_ahead_for_a_moment_counts_offline() {
    let mut timed = Timed::new().await;
    let ahead = timed.right + 40 * DAY;
    timed.host.hand.set(ahead);
    assert_eq!(timed.host.offline.now_unix(), ahead);
    timed.go(2);
    timed.host.hand.set(timed.right);
    assert_eq!(timed.host.offline.now_unix(), ahead + 2);
    assert_eq!(
        timed.host.offline.clock_fault().expect("a fault").text,
        "the clock is 40 d behind the latest known time"
    );
    let right = timed.right;
    for _ in 0..2 {
        assert_eq!(timed.host.check("alice", "good").await, AuthResult::Unreachable);
        timed.restart(false, right);
    }
    assert_ne!(timed.host.offline.clock_fault(), None);
    // The tasks of a backend notice that the directory is reachable again, without a login.
    timed.host.directory_answers(true);
    tokio::select! {
        () = timed.host.offline.maintain() => unreachable!("it never ends"),
        () = wait_until("the clock is believed", || {
            timed.host.offline.time.lock().fault(&timed.host.hand.read()).is_none()
        }) => {}
    }
    timed.host.directory_answers(false);
    timed.is_as_before().await;
}

/// A lock by a wrong clock retains its length, and failures are not forgotten.
#[tokio::test(start_paused = true)]
async fn clock_put_right_keeps_locks() {
    let mut timed = Timed::new().await;
    timed.host.hand.set(timed.right + DAY);
    for _ in 0..3 {
        assert_eq!(timed.host.check("alice", "bad").await, AuthResult::WrongPassword);
    }
    timed.go(HOUR / 2);
    timed.host.hand.set(timed.right);
    timed.host.directory_answers(true);
    let _ = timed.host.offline.now_unix();
    timed.host.directory_answers(false);
    assert_eq!(timed.host.check("alice", "good").await, AuthResult::Locked);
    timed.go(HOUR / 2 - 1);
    assert_eq!(timed.host.check("alice", "good").await, AuthResult::Locked);
    timed.go(1);
    assert_eq!(timed.host.check("alice", "good").await, AuthResult::Success);
}

/// The file of an earlier build, with a mark that is older than the last login.
#[tokio::test(start_paused = true)]
async fn clock_mark_older_than_credentials_is_raised() {
    let mut timed = Timed::new().await;
    let mut mark = timed.host.offline.time.lock().mark();
    mark.unix -= 60;
    let older = CredentialChanges { clock_mark: Some(mark), ..CredentialChanges::default() };
    timed.host.kept().write(older).await.unwrap();
    let shown = timed.right - DAY;
    timed.restart(true, shown);
    assert_eq!(timed.host.check("bob", "good").await, AuthResult::Success);
}
