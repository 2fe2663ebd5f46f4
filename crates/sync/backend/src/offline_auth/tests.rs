// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of stored passwords and offline logins.

mod clocks;
mod faults;

use super::monotonic_clock::ClockReading;
use super::*;
use crate::engine::Engine;
use crate::testing::wait_until;
use crate::tests::{engine, refresh, uid_of};
use roster_config::DomainMode;
use roster_provider::EntrySink as _;
use roster_system_tests::LoggedCodes;
use std::time::Instant;
use tempfile::TempDir;
use tokio::time::timeout;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A clock that tests move.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<ClockReading>>);

impl Hand {
    fn go(&self, secs: u64) {
        let mut now = self.0.lock();
        now.unix += secs;
        now.up_secs += secs;
    }

    fn set_back(&self, secs: u64) {
        self.0.lock().unix -= secs;
    }

    fn set(&self, unix: u64) {
        self.0.lock().unix = unix;
    }

    fn unix(&self) -> u64 {
        self.0.lock().unix
    }

    fn boot(&self, boot: u8, unix: u64) {
        *self.0.lock() = ClockReading { unix, boot: Some([boot; 16]), up_secs: 1 };
    }
}

impl Clock for Hand {
    fn read(&self) -> ClockReading {
        self.0.lock().clone()
    }
}

/// A domain with alice and bob, and its credentials.
struct Host {
    folder: TempDir,
    engine: Arc<Engine>,
    hand: Hand,
    offline: Arc<OfflineAuth>,
}

fn settings() -> Settings {
    Settings {
        life: Duration::from_secs(30 * DAY),
        failures: 3,
        lockout: Duration::from_secs(HOUR),
        hash_time: Duration::from_millis(10),
    }
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(DomainMode::Replicate);
        refresh(&engine, &["alice", "bob"], &[], "1");
        let hand = Hand::default();
        hand.boot(1, 1_800_000_000);
        let offline = opened(&hand, folder.path(), &engine);
        Self { folder, engine, hand, offline }
    }

    /// Restarts the process.
    fn restart(&mut self) {
        self.offline = Arc::new(OfflineAuth::disabled());
        self.offline = opened(&self.hand, self.folder.path(), &self.engine);
    }

    /// Restarts the process after all tasks have closed the file.
    async fn restart_when_closed(&mut self) {
        let store = Arc::downgrade(&self.kept().store);
        self.offline = Arc::new(OfflineAuth::disabled());
        wait_until("the file is closed", || store.strong_count() == 0).await;
        self.restart();
    }

    fn kept(&self) -> &OfflineState {
        self.offline.cached.as_ref().unwrap()
    }

    /// Sets whether the directory replies from now on.
    fn directory_answers(&self, answers: bool) {
        if answers {
            self.engine.online("ldap://server", None);
        } else {
            self.engine.offline(&Reason::new(&login::KDC_UNREACHABLE, "no server replies"));
        }
    }

    /// Returns the names of users with credentials.
    fn names(&self) -> Vec<String> {
        let listed = self.offline.list().unwrap().into_iter();
        listed.map(|one| String::from_utf8(one.name).unwrap()).collect()
    }

    async fn clean(&self) {
        self.offline.remove_stale(self.kept()).await.unwrap();
    }

    /// Records a result of the directory, and waits until it is stored.
    async fn heard(&self, name: &str, password: &str, verdict: AuthResult) {
        let (person, password) = (person(name), secret(password));
        self.offline.record_result(&person, &password, verdict);
        self.settled(name).await;
    }

    async fn settled(&self, name: &str) {
        tokio::task::yield_now().await;
        let turn = self.offline.cached.as_ref().unwrap().user_lock(name.as_bytes());
        drop(turn.lock().await);
    }

    async fn check(&self, name: &str, password: &str) -> AuthResult {
        self.outcome(name, password).await.result
    }

    /// Returns the code of a refusal.
    async fn code(&self, name: &str, password: &str) -> Option<&'static Message> {
        self.outcome(name, password).await.message()
    }

    async fn outcome(&self, name: &str, password: &str) -> AuthOutcome {
        let unreachable = AuthOutcome::with_reason(AuthResult::Unreachable, "no server answers");
        let (person, password) = (person(name), secret(password));
        self.offline.check_password(&person, &password, unreachable).await
    }
}

fn opened(hand: &Hand, folder: &Path, engine: &Arc<Engine>) -> Arc<OfflineAuth> {
    over(CredentialStore::open(folder), settings(), hand, engine)
}

fn over(
    store: Arc<CredentialStore>,
    settings: Settings,
    hand: &Hand,
    engine: &Arc<Engine>,
) -> Arc<OfflineAuth> {
    let people = Arc::new(UserIndex::new(Arc::clone(engine), DomainMode::Replicate, false));
    let (clock, directory) = (Box::new(hand.clone()), Some(engine.subscribe()));
    Arc::new(OfflineAuth::with_store(store, clock, Some(settings), people, directory))
}

fn person(name: &str) -> LoginUser {
    LoginUser { name: name.as_bytes().to_vec(), uid: uid_of(name), host_uid: uid_of(name) }
}

fn secret(text: &str) -> Secret {
    Secret::copy_of(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn offline_right_password_works_after_restart() {
    let mut host = Host::new();
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable, "nothing is kept");
    host.heard("alice", "good", AuthResult::Success).await;
    assert!(host.offline.has_credential(&person("alice")));
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
    assert_eq!(host.check("bob", "good").await, AuthResult::Unreachable);
    host.restart();
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
}

#[tokio::test(start_paused = true)]
async fn offline_refusals_have_codes() {
    let host = Host::new();
    assert_eq!(host.code("alice", "good").await, Some(&login::OFFLINE_NO_CREDENTIAL));
    host.heard("alice", "good", AuthResult::Success).await;
    assert_eq!(host.code("alice", "good").await, None);
    for _ in 0..3 {
        assert_eq!(host.code("alice", "bad").await, Some(&login::OFFLINE_WRONG_PASSWORD));
    }
    assert_eq!(host.code("alice", "good").await, Some(&login::OFFLINE_LOCKED));
    host.hand.go(31 * DAY);
    assert_eq!(host.code("alice", "good").await, Some(&login::OFFLINE_EXPIRED));
    let kept = host.kept();
    let credential = kept.store.get(b"alice").unwrap().expect("kept");
    for (credential, message) in [
        (
            StoredCredential { verified_unix: u64::MAX / 2, ..credential.clone() },
            &login::OFFLINE_FROM_FUTURE,
        ),
        (
            StoredCredential {
                verified_unix: host.hand.unix(),
                failures: 0,
                hash: "none".into(),
                ..credential.clone()
            },
            &login::OFFLINE_HASH_UNUSABLE,
        ),
    ] {
        kept.write(CredentialChanges::credential(b"alice", Some(credential))).await.unwrap();
        assert_eq!(host.code("alice", "good").await, Some(message));
    }
}

#[tokio::test]
async fn the_hash_is_made_once_for_a_password_that_stays() {
    let host = Host::new();
    let hash = || {
        let kept = host.offline.cached.as_ref().unwrap();
        kept.store.get(b"alice").unwrap().map(|credential| credential.hash)
    };
    host.heard("alice", "good", AuthResult::Success).await;
    let first = hash();
    host.hand.go(3 * DAY);
    host.heard("alice", "good", AuthResult::Success).await;
    assert_eq!(hash(), first);
    let verified = host.offline.list().unwrap()[0].verified_unix;
    assert_eq!(verified, 1_800_000_000 + 3 * DAY, "its life begins again");
    host.heard("alice", "better", AuthResult::Success).await;
    assert_ne!(hash(), first);
    assert_eq!(host.check("alice", "good").await, AuthResult::WrongPassword);
    assert_eq!(host.check("alice", "better").await, AuthResult::Success);
}

#[tokio::test]
async fn offline_rejected_password_is_forgotten_mistyped_kept() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("alice", "godo", AuthResult::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    host.heard("alice", "good", AuthResult::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    // A process that did not store the password itself has to compare it.
    host.heard("alice", "good", AuthResult::Success).await;
    host.restart();
    host.heard("alice", "godo", AuthResult::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    host.heard("alice", "good", AuthResult::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
}

#[tokio::test]
async fn who_is_out_by_the_directory_is_out_here() {
    for verdict in [
        AuthResult::Disabled,
        AuthResult::Locked,
        AuthResult::AccountExpired,
        AuthResult::PasswordExpired,
        AuthResult::UnknownUser,
        AuthResult::Denied,
        AuthResult::MustChange,
    ] {
        let host = Host::new();
        host.heard("alice", "good", AuthResult::Success).await;
        host.heard("alice", "good", verdict).await;
        assert!(!host.offline.has_credential(&person("alice")), "{verdict:?}");
        assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable, "{verdict:?}");
    }
    for verdict in [AuthResult::Unreachable, AuthResult::Misconfigured, AuthResult::TooManyAttempts]
    {
        let host = Host::new();
        host.heard("alice", "good", AuthResult::Success).await;
        host.heard("alice", "good", verdict).await;
        assert_eq!(host.check("alice", "good").await, AuthResult::Success, "{verdict:?}");
    }
}

#[tokio::test]
async fn login_removed_or_renumbered_user_is_denied() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    let other = LoginUser { uid: 1, ..person("bob") };
    let unreachable = AuthOutcome::from_result(AuthResult::Unreachable);
    let answer = host.offline.check_password(&other, &secret("good"), unreachable).await;
    assert_eq!(answer.result, AuthResult::Unreachable);
    refresh(&host.engine, &["bob"], &[], "2");
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    let names: Vec<_> = host.offline.list().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, Vec::<Vec<u8>>::new(), "nothing is kept of either");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_over_restarts_and_lock_the_user_out_for_a_time() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    for failures in 1..=3 {
        assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
        host.restart();
        assert_eq!(host.offline.list().unwrap()[0].failures, failures);
    }
    assert_eq!(host.check("alice", "good").await, AuthResult::Locked);
    host.hand.go(HOUR - 1);
    assert_eq!(host.check("alice", "good").await, AuthResult::Locked);
    host.hand.go(1);
    assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
    assert_eq!(host.check("alice", "good").await, AuthResult::Locked, "one failure locks again");
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    assert_eq!(host.offline.list().unwrap()[0].failures, 0);
}

#[tokio::test]
async fn a_log_in_by_the_directory_ends_a_lockout() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    for _ in 0..3 {
        assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
    }
    assert_eq!(host.check("alice", "good").await, AuthResult::Locked);
    host.heard("alice", "good", AuthResult::Success).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
}

#[tokio::test(start_paused = true)]
async fn refusal_takes_equal_time_for_every_user() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    let took = async |verdict, name: &str| {
        let start = tokio::time::Instant::now();
        assert_eq!(host.check(name, "bad").await, verdict, "{name}");
        start.elapsed()
    };
    for verdict in [AuthResult::WrongPassword; 3].into_iter().chain([AuthResult::Locked; 2]) {
        assert_eq!(took(verdict, "alice").await, refusal_delay(&settings()), "{verdict:?}");
    }
    assert_eq!(took(AuthResult::Unreachable, "bob").await, refusal_delay(&settings()));
    // Concurrent checks run one after the other, for unknown names, too.
    for at_once in [1, 3] {
        let start = tokio::time::Instant::now();
        let guesses = (0..at_once).map(|_| host.offline.simulate_wrong_password(b"mallory"));
        futures_util::future::join_all(guesses).await;
        assert_eq!(start.elapsed(), refusal_delay(&settings()) * at_once);
    }
}

#[tokio::test(start_paused = true)]
async fn many_guesses_at_once_are_no_more_than_those_that_are_allowed() {
    let host = Arc::new(Host::new());
    host.heard("alice", "good", AuthResult::Success).await;
    let guesses: Vec<_> = (0..200)
        .map(|number| {
            let host = Arc::clone(&host);
            tokio::spawn(async move { host.check("alice", &format!("guess{number}")).await })
        })
        .collect();
    let mut verdicts = Vec::new();
    for guess in guesses {
        verdicts.push(guess.await.unwrap());
    }
    let wrong = verdicts.iter().filter(|verdict| **verdict == AuthResult::WrongPassword).count();
    let refused = verdicts.iter().filter(|verdict| **verdict == AuthResult::Locked).count();
    assert_eq!((wrong, refused), (3, 197));
}

#[tokio::test]
async fn a_life_ends_and_a_clock_that_is_set_back_lengthens_none() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.hand.go(30 * DAY);
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    host.hand.set_back(29 * DAY);
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    host.restart();
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    // A boot with the clock set back does not make it valid either.
    host.hand.boot(2, 1_800_000_000 + DAY);
    host.restart();
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    host.heard("alice", "good", AuthResult::Success).await;
    assert_eq!(
        host.check("alice", "good").await,
        AuthResult::Success,
        "the directory has the last word"
    );
}

#[tokio::test]
async fn credentials_dated_ahead_are_redated_with_their_age() {
    let host = Host::new();
    host.hand.go(1000 * DAY);
    host.heard("alice", "good", AuthResult::Success).await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    host.hand.go(29 * DAY);
    host.hand.set_back(1000 * DAY);
    let logged = LoggedCodes::default();
    let collecting = logged.collect();
    host.heard("bob", "good", AuthResult::Success).await;
    assert_eq!(host.check("bob", "good").await, AuthResult::Success);
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    drop(collecting);
    assert!(logged.has(login::CLOCK_CORRECTED.code), "{:?}", logged.codes());
    host.hand.go(2 * DAY);
    assert_eq!(host.check("bob", "good").await, AuthResult::Success);
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable, "31 days");
}

#[tokio::test]
async fn what_is_too_old_or_of_who_is_gone_is_cleared_up() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.hand.go(20 * DAY);
    host.heard("bob", "good", AuthResult::Success).await;
    host.hand.go(11 * DAY);
    let kept = || host.offline.list().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    tokio::select! {
        () = host.offline.maintain() => unreachable!("it never ends"),
        () = wait_until("alice's is removed", || kept() == [b"bob"]) => {}
    }
    refresh(&host.engine, &["alice"], &[], "2");
    tokio::select! {
        () = host.offline.maintain() => unreachable!("it never ends"),
        () = wait_until("bob's is removed", || kept().is_empty()) => {}
    }
}

#[tokio::test]
async fn a_person_can_have_what_is_kept_forgotten() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    assert_eq!(host.offline.forget(b"carol").await.unwrap(), 0);
    assert_eq!(host.offline.forget(b"alice").await.unwrap(), 1);
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    assert_eq!(host.offline.forget(b"").await.unwrap(), 1);
    assert_eq!(host.check("bob", "good").await, AuthResult::Unreachable);
}

#[tokio::test]
async fn offline_filter_reply_counts_for_a_time() {
    let host = Host::new();
    let before = |uid, filter| host.offline.last_match(b"alice", uid, filter, "away");
    assert!(matches!(before(1, "(a=b)"), FilterOutcome::Unknown(_)));
    host.offline.record_match(b"alice", 1, &filter("(a=b)", false), true);
    wait_until("it is stored", || !matches!(before(1, "(a=b)"), FilterOutcome::Unknown(_))).await;
    host.hand.go(60);
    let age = Duration::from_secs(60);
    assert_eq!(before(1, "(a=b)"), FilterOutcome::Cached { matched: true, age });
    assert!(matches!(before(2, "(a=b)"), FilterOutcome::Unknown(_)));
    assert!(matches!(before(1, "(a=c)"), FilterOutcome::Unknown(_)));
    host.hand.go(31 * DAY);
    assert!(matches!(before(1, "(a=b)"), FilterOutcome::Unknown(_)));
}

fn filter(text: &str, is_of_service: bool) -> AccessFilter {
    AccessFilter { text: text.to_owned(), is_of_service }
}

#[tokio::test]
async fn offline_filter_reply_counts_for_its_service() {
    let host = Host::new();
    let before = |filter: &str| host.offline.last_match(b"alice", 1, filter, "away");
    let is_matched = |filter: &str, wanted| matches!(before(filter), FilterOutcome::Cached { matched, .. } if matched == wanted);
    for (service, matched) in [("sshd", true), ("cron", false)] {
        let filter = filter(&format!("(s={service})"), true);
        host.offline.record_match(b"alice", 1, &filter, matched);
        wait_until("it is stored", || is_matched(&filter.text, matched)).await;
    }
    assert!(is_matched("(s=sshd)", true));
    assert!(matches!(before("(s=su)"), FilterOutcome::Unknown(_)));
    // Another filter replaces all of them.
    host.offline.record_match(b"alice", 1, &filter("(a=b)", false), true);
    wait_until("it is stored", || is_matched("(a=b)", true)).await;
    assert!(matches!(before("(s=sshd)"), FilterOutcome::Unknown(_)));
}

#[tokio::test]
async fn guesses_beyond_a_few_are_not_compared_and_take_nothing_away() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.restart();
    // Concurrent, and more than may wait.
    for guess in 0..200 {
        let guess = secret(&format!("guess{guess}"));
        host.offline.record_result(&person("alice"), &guess, AuthResult::WrongPassword);
    }
    host.settled("alice").await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Success, "none of them was right");
    for _ in 0..4 {
        host.heard("alice", "guess", AuthResult::WrongPassword).await;
    }
    let waiting =
        host.offline.cached.as_ref().unwrap().guesses.lock().begin(b"alice", Instant::now());
    assert!(!waiting, "those were enough for a minute");
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
}

#[tokio::test]
async fn a_password_that_may_have_been_changed_is_believed_no_more() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.offline.record_possible_change(&person("alice"), &secret("good"));
    host.settled("alice").await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
}

#[tokio::test]
async fn the_password_before_is_gone_before_the_one_after_it_is_kept() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.heard("alice", "good", AuthResult::Success).await;
        if restarted {
            host.restart();
        }
        let kept = host.offline.cached.as_ref().unwrap();
        // No hash is made meanwhile, as without memory for one.
        let busy = kept.storing.acquire().await.unwrap();
        let (alice, better) = (person("alice"), secret("better"));
        if restarted {
            host.offline.record_change(&alice, &better);
        } else {
            host.offline.record_result(&alice, &better, AuthResult::Success);
        }
        wait_until("the old one is forgotten", || kept.store.get(b"alice").unwrap().is_none())
            .await;
        drop(busy);
        host.settled("alice").await;
        assert_eq!(host.check("alice", "good").await, AuthResult::WrongPassword);
        assert_eq!(host.check("alice", "better").await, AuthResult::Success);
    }
}

#[tokio::test]
async fn offline_forgotten_credential_is_not_restored() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    let kept = host.offline.cached.as_ref().unwrap();
    // Two blocked tasks: a check that has read alice's credential, and a task that will store bob's.
    let (busy, learning) =
        (kept.hashing.acquire_many(2).await.unwrap(), kept.storing.acquire().await.unwrap());
    let (offline, alice) = (Arc::clone(&host.offline), person("alice"));
    let check = tokio::spawn(async move {
        let unreachable = AuthOutcome::from_result(AuthResult::Unreachable);
        offline.check_password(&alice, &secret("bad"), unreachable).await.result
    });
    host.offline.record_result(&person("bob"), &secret("good"), AuthResult::Success);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(host.offline.forget(b"").await.unwrap(), 1);
    drop((busy, learning));
    check.await.unwrap();
    host.settled("bob").await;
    assert_eq!(host.offline.list().unwrap(), [], "nothing came back");
}

#[tokio::test]
async fn what_is_forgotten_of_one_user_waits_for_the_users_turn() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    let kept = host.offline.cached.as_ref().unwrap();
    let turn = kept.user_lock(b"alice");
    let others = turn.lock().await;
    let forget = host.offline.forget(b"alice");
    assert!(timeout(Duration::from_millis(50), forget).await.is_err());
    drop(others);
    drop(turn);
    assert_eq!(host.offline.forget(b"alice").await.unwrap(), 1);
}
