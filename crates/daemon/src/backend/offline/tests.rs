//! What is kept of passwords, and what becomes of it.

mod clocks;
mod faults;

use super::clock::Reading;
use super::*;
use crate::backend::engine::Engine;
use crate::backend::tests::{engine, refresh, uid_of};
use crate::testing::until;
use roster_config::Mode;
use roster_provider::Sink as _;
use std::time::Instant;
use tempfile::TempDir;
use tokio::time::timeout;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A clock that tests move.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<Reading>>);

impl Hand {
    fn go(&self, secs: u64) {
        let mut now = lock(&self.0);
        now.unix += secs;
        now.up += secs;
    }

    fn set_back(&self, secs: u64) {
        lock(&self.0).unix -= secs;
    }

    fn set(&self, unix: u64) {
        lock(&self.0).unix = unix;
    }

    fn unix(&self) -> u64 {
        lock(&self.0).unix
    }

    fn boot(&self, boot: u8, unix: u64) {
        *lock(&self.0) = Reading { unix, boot: Some([boot; 16]), up: 1 };
    }
}

impl Clock for Hand {
    fn read(&self) -> Reading {
        lock(&self.0).clone()
    }
}

/// A domain with alice and bob, and what is kept of them.
struct Host {
    folder: TempDir,
    engine: Arc<Engine>,
    hand: Hand,
    offline: Arc<Offline>,
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
        let engine = engine(Mode::Replicate);
        refresh(&engine, &["alice", "bob"], &[], "1");
        let hand = Hand::default();
        hand.boot(1, 1_800_000_000);
        let offline = opened(&hand, folder.path(), &engine);
        Self { folder, engine, hand, offline }
    }

    /// The process ends and begins again.
    fn restart(&mut self) {
        self.offline = Arc::new(Offline::none());
        self.offline = opened(&self.hand, self.folder.path(), &self.engine);
    }

    /// The same after tasks that may hold the file open.
    async fn restart_when_closed(&mut self) {
        let store = Arc::downgrade(&self.kept().store);
        self.offline = Arc::new(Offline::none());
        until("the file is closed", || store.strong_count() == 0).await;
        self.restart();
    }

    fn kept(&self) -> &Kept {
        self.offline.kept.as_ref().unwrap()
    }

    /// Whether the directory answers from now on.
    fn directory_answers(&self, answers: bool) {
        if answers {
            self.engine.online("ldap://server", "");
        } else {
            self.engine.offline("no server answers");
        }
    }

    /// Names of those of whom something is kept.
    fn names(&self) -> Vec<String> {
        let listed = self.offline.list().unwrap().into_iter();
        listed.map(|one| String::from_utf8(one.name).unwrap()).collect()
    }

    async fn clean(&self) {
        self.offline.clean(self.kept()).await.unwrap();
    }

    /// The directory has said something; waits until that is kept.
    async fn heard(&self, name: &str, password: &str, verdict: Verdict) {
        let (person, password) = (person(name), secret(password));
        self.offline.heard(&person, &password, verdict);
        self.settled(name).await;
    }

    async fn settled(&self, name: &str) {
        tokio::task::yield_now().await;
        let turn = self.offline.kept.as_ref().unwrap().turn(name.as_bytes());
        drop(turn.lock().await);
    }

    async fn check(&self, name: &str, password: &str) -> Verdict {
        let unreachable = Answer::because(Verdict::Unreachable, "no server answers");
        let (person, password) = (person(name), secret(password));
        self.offline.check(&person, &password, unreachable).await.verdict
    }
}

fn opened(hand: &Hand, folder: &Path, engine: &Arc<Engine>) -> Arc<Offline> {
    over(CredentialStore::open(folder), settings(), hand, engine)
}

fn over(
    store: Arc<CredentialStore>,
    settings: Settings,
    hand: &Hand,
    engine: &Arc<Engine>,
) -> Arc<Offline> {
    let people = Arc::new(People::new(Arc::clone(engine), Mode::Replicate, false));
    let (clock, directory) = (Box::new(hand.clone()), Some(engine.news()));
    Arc::new(Offline::over(store, clock, Some(settings), people, directory))
}

fn person(name: &str) -> Person {
    Person { name: name.as_bytes().to_vec(), uid: uid_of(name) }
}

fn secret(text: &str) -> Secret {
    Secret::copy_of(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_password_that_was_right_is_right_while_nobody_can_be_asked_and_after_a_restart() {
    let mut host = Host::new();
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable, "nothing is kept");
    host.heard("alice", "good", Verdict::Success).await;
    assert!(host.offline.has(&person("alice")));
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
    assert_eq!(host.check("bob", "good").await, Verdict::Unreachable);
    host.restart();
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
}

#[tokio::test]
async fn the_hash_is_made_once_for_a_password_that_stays() {
    let host = Host::new();
    let hash = || {
        let kept = host.offline.kept.as_ref().unwrap();
        kept.store.get(b"alice").unwrap().map(|credential| credential.hash)
    };
    host.heard("alice", "good", Verdict::Success).await;
    let first = hash();
    host.hand.go(3 * DAY);
    host.heard("alice", "good", Verdict::Success).await;
    assert_eq!(hash(), first);
    let verified = host.offline.list().unwrap()[0].verified_unix;
    assert_eq!(verified, 1_800_000_000 + 3 * DAY, "its life begins again");
    host.heard("alice", "better", Verdict::Success).await;
    assert_ne!(hash(), first);
    assert_eq!(host.check("alice", "good").await, Verdict::WrongPassword);
    assert_eq!(host.check("alice", "better").await, Verdict::Success);
}

#[tokio::test]
async fn a_password_that_the_directory_takes_no_more_is_forgotten_and_a_mistyped_one_takes_nothing()
{
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("alice", "godo", Verdict::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    host.heard("alice", "good", Verdict::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    // A process that has not kept it itself has to compare it.
    host.heard("alice", "good", Verdict::Success).await;
    host.restart();
    host.heard("alice", "godo", Verdict::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    host.heard("alice", "good", Verdict::WrongPassword).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
}

#[tokio::test]
async fn who_is_out_by_the_directory_is_out_here() {
    for verdict in [
        Verdict::Disabled,
        Verdict::Locked,
        Verdict::AccountExpired,
        Verdict::PasswordExpired,
        Verdict::UnknownUser,
        Verdict::Denied,
        Verdict::MustChange,
    ] {
        let host = Host::new();
        host.heard("alice", "good", Verdict::Success).await;
        host.heard("alice", "good", verdict).await;
        assert!(!host.offline.has(&person("alice")), "{verdict:?}");
        assert_eq!(host.check("alice", "good").await, Verdict::Unreachable, "{verdict:?}");
    }
    for verdict in [Verdict::Unreachable, Verdict::Misconfigured, Verdict::TooManyTries] {
        let host = Host::new();
        host.heard("alice", "good", Verdict::Success).await;
        host.heard("alice", "good", verdict).await;
        assert_eq!(host.check("alice", "good").await, Verdict::Success, "{verdict:?}");
    }
}

#[tokio::test]
async fn who_is_gone_from_the_domain_or_has_another_uid_is_not_let_in() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    let other = Person { uid: 1, ..person("bob") };
    let unreachable = Answer::of(Verdict::Unreachable);
    let answer = host.offline.check(&other, &secret("good"), unreachable).await;
    assert_eq!(answer.verdict, Verdict::Unreachable);
    refresh(&host.engine, &["bob"], &[], "2");
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    let names: Vec<_> = host.offline.list().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, Vec::<Vec<u8>>::new(), "nothing is kept of either");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_over_restarts_and_lock_the_user_out_for_a_time() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    for failures in 1..=3 {
        assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
        host.restart();
        assert_eq!(host.offline.list().unwrap()[0].failures, failures);
    }
    assert_eq!(host.check("alice", "good").await, Verdict::Locked);
    host.hand.go(HOUR - 1);
    assert_eq!(host.check("alice", "good").await, Verdict::Locked);
    host.hand.go(1);
    assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
    assert_eq!(host.check("alice", "good").await, Verdict::Locked, "one failure locks again");
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    assert_eq!(host.offline.list().unwrap()[0].failures, 0);
}

#[tokio::test]
async fn a_log_in_by_the_directory_ends_a_lockout() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    for _ in 0..3 {
        assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
    }
    assert_eq!(host.check("alice", "good").await, Verdict::Locked);
    host.heard("alice", "good", Verdict::Success).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
}

#[tokio::test(start_paused = true)]
async fn whoever_it_is_and_however_often_they_were_guessed_at_a_refusal_takes_the_same_time() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    let took = async |verdict, name: &str| {
        let start = tokio::time::Instant::now();
        assert_eq!(host.check(name, "bad").await, verdict, "{name}");
        start.elapsed()
    };
    for verdict in [Verdict::WrongPassword; 3].into_iter().chain([Verdict::Locked; 2]) {
        assert_eq!(took(verdict, "alice").await, refusal(&settings()), "{verdict:?}");
    }
    assert_eq!(took(Verdict::Unreachable, "bob").await, refusal(&settings()));
    // Several at once are answered one after the other, under names that are nobody's, too.
    for at_once in [1, 3] {
        let start = tokio::time::Instant::now();
        let guesses = (0..at_once).map(|_| host.offline.pretend(b"mallory"));
        futures_util::future::join_all(guesses).await;
        assert_eq!(start.elapsed(), refusal(&settings()) * at_once);
    }
}

#[tokio::test(start_paused = true)]
async fn many_guesses_at_once_are_no_more_than_those_that_are_allowed() {
    let host = Arc::new(Host::new());
    host.heard("alice", "good", Verdict::Success).await;
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
    let wrong = verdicts.iter().filter(|verdict| **verdict == Verdict::WrongPassword).count();
    let refused = verdicts.iter().filter(|verdict| **verdict == Verdict::Locked).count();
    assert_eq!((wrong, refused), (3, 197));
}

#[tokio::test]
async fn a_life_ends_and_a_clock_that_is_set_back_lengthens_none() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.hand.go(30 * DAY);
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    host.hand.set_back(29 * DAY);
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    host.restart();
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    // Nor does a boot with the clock set back.
    host.hand.boot(2, 1_800_000_000 + DAY);
    host.restart();
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    host.heard("alice", "good", Verdict::Success).await;
    assert_eq!(
        host.check("alice", "good").await,
        Verdict::Success,
        "the directory has the last word"
    );
}

#[tokio::test]
async fn credentials_dated_ahead_are_redated_with_their_age() {
    let host = Host::new();
    host.hand.go(1000 * DAY);
    host.heard("alice", "good", Verdict::Success).await;
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    host.hand.go(29 * DAY);
    host.hand.set_back(1000 * DAY);
    host.heard("bob", "good", Verdict::Success).await;
    assert_eq!(host.check("bob", "good").await, Verdict::Success);
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    host.hand.go(2 * DAY);
    assert_eq!(host.check("bob", "good").await, Verdict::Success);
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable, "31 days");
}

#[tokio::test]
async fn what_is_too_old_or_of_who_is_gone_is_cleared_up() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.hand.go(20 * DAY);
    host.heard("bob", "good", Verdict::Success).await;
    host.hand.go(11 * DAY);
    let kept = || host.offline.list().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    tokio::select! {
        () = host.offline.keep() => unreachable!("it never ends"),
        () = until("alice's is removed", || kept() == [b"bob"]) => {}
    }
    refresh(&host.engine, &["alice"], &[], "2");
    tokio::select! {
        () = host.offline.keep() => unreachable!("it never ends"),
        () = until("bob's is removed", || kept().is_empty()) => {}
    }
}

#[tokio::test]
async fn a_person_can_have_what_is_kept_forgotten() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    assert_eq!(host.offline.forget(b"carol").await.unwrap(), 0);
    assert_eq!(host.offline.forget(b"alice").await.unwrap(), 1);
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    assert_eq!(host.offline.forget(b"").await.unwrap(), 1);
    assert_eq!(host.check("bob", "good").await, Verdict::Unreachable);
}

#[tokio::test]
async fn what_a_filter_said_counts_for_that_filter_and_user_and_for_a_time() {
    let host = Host::new();
    let before = |uid, filter| host.offline.matched_before(b"alice", uid, filter, "away");
    assert!(matches!(before(1, "(a=b)"), Matched::Unknown(_)));
    host.offline.matched(b"alice", 1, "(a=b)", true);
    until("it is stored", || !matches!(before(1, "(a=b)"), Matched::Unknown(_))).await;
    host.hand.go(60);
    let age = Duration::from_secs(60);
    assert_eq!(before(1, "(a=b)"), Matched::Before { matched: true, age });
    assert!(matches!(before(2, "(a=b)"), Matched::Unknown(_)));
    assert!(matches!(before(1, "(a=c)"), Matched::Unknown(_)));
    host.hand.go(31 * DAY);
    assert!(matches!(before(1, "(a=b)"), Matched::Unknown(_)));
}

#[tokio::test]
async fn guesses_beyond_a_few_are_not_compared_and_take_nothing_away() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.restart();
    // All at once, and more than wait to be kept.
    for guess in 0..200 {
        let guess = secret(&format!("guess{guess}"));
        host.offline.heard(&person("alice"), &guess, Verdict::WrongPassword);
    }
    host.settled("alice").await;
    assert_eq!(host.check("alice", "good").await, Verdict::Success, "none of them was right");
    for _ in 0..4 {
        host.heard("alice", "guess", Verdict::WrongPassword).await;
    }
    let waiting =
        lock(&host.offline.kept.as_ref().unwrap().guesses).begin(b"alice", Instant::now());
    assert!(!waiting, "those were enough for a minute");
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
}

#[tokio::test]
async fn a_password_that_may_have_been_changed_is_believed_no_more() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.offline.may_have_changed(&person("alice"), &secret("good"));
    host.settled("alice").await;
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
}

#[tokio::test]
async fn the_password_before_is_gone_before_the_one_after_it_is_kept() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.heard("alice", "good", Verdict::Success).await;
        if restarted {
            host.restart();
        }
        let kept = host.offline.kept.as_ref().unwrap();
        // No hash is made meanwhile, as when there is no memory for one.
        let busy = kept.learning.acquire().await.unwrap();
        let (alice, better) = (person("alice"), secret("better"));
        if restarted {
            host.offline.changed(&alice, &better);
        } else {
            host.offline.heard(&alice, &better, Verdict::Success);
        }
        until("the old one is forgotten", || kept.store.get(b"alice").unwrap().is_none()).await;
        drop(busy);
        host.settled("alice").await;
        assert_eq!(host.check("alice", "good").await, Verdict::WrongPassword);
        assert_eq!(host.check("alice", "better").await, Verdict::Success);
    }
}

#[tokio::test]
async fn what_a_person_has_forgotten_is_not_put_back_by_who_read_it_before() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    let kept = host.offline.kept.as_ref().unwrap();
    // Two questions that cannot go on yet: one has read alice's, the other is to keep bob's.
    let (busy, learning) =
        (kept.hashing.acquire_many(2).await.unwrap(), kept.learning.acquire().await.unwrap());
    let (offline, alice) = (Arc::clone(&host.offline), person("alice"));
    let check = tokio::spawn(async move {
        let unreachable = Answer::of(Verdict::Unreachable);
        offline.check(&alice, &secret("bad"), unreachable).await.verdict
    });
    host.offline.heard(&person("bob"), &secret("good"), Verdict::Success);
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
    host.heard("alice", "good", Verdict::Success).await;
    let kept = host.offline.kept.as_ref().unwrap();
    let turn = kept.turn(b"alice");
    let others = turn.lock().await;
    let forget = host.offline.forget(b"alice");
    assert!(timeout(Duration::from_millis(50), forget).await.is_err());
    drop(others);
    drop(turn);
    assert_eq!(host.offline.forget(b"alice").await.unwrap(), 1);
}
