//! Disks that refuse: what is to be forgotten is forgotten and what is guessed is counted, and all of it is
//! written as soon as the disk takes it.

use super::*;
use std::sync::atomic::AtomicBool;

impl Host {
    fn writing_fails(&self, fails: bool) {
        set(&self.kept().store.faults.writing, fails);
    }

    /// The back-end's tasks run until the file is open and everything is written.
    async fn recovers(&self) {
        tokio::select! {
            () = self.offline.keep() => unreachable!("it never ends"),
            () = until("it is written", || self.offline.trouble().is_empty()) => {}
        }
    }

    /// A process whose file cannot be opened, in the folder of another one.
    async fn unopened(mut self) -> Self {
        let store = Arc::downgrade(&self.kept().store);
        self.offline = Arc::new(Offline::none());
        until("the file is closed", || store.strong_count() == 0).await;
        let store = CredentialStore::open_with_fault(self.folder.path());
        self.offline = over(store, settings(), &self.hand, &self.engine);
        self
    }
}

fn set(fault: &AtomicBool, fails: bool) {
    fault.store(fails, Ordering::SeqCst);
}

#[tokio::test]
async fn store_refuses_writes_changes_count_at_once() {
    let mut host = Host::new();
    refresh(&host.engine, &["alice", "bob", "carol"], &[], "1");
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    assert_eq!(host.offline.trouble(), "");
    host.writing_fails(true);
    host.heard("alice", "better", Verdict::Success).await;
    host.heard("bob", "good", Verdict::WrongPassword).await;
    host.heard("carol", "good", Verdict::Success).await;
    let counts = async |host: &Host| {
        assert_eq!(host.check("alice", "good").await, Verdict::WrongPassword, "it was changed");
        assert_eq!(host.check("alice", "better").await, Verdict::Success);
        assert_eq!(host.check("bob", "good").await, Verdict::Unreachable, "it was refused");
        assert_eq!(host.check("carol", "good").await, Verdict::Success, "she is new");
        assert_eq!(host.names(), ["alice", "carol"]);
    };
    counts(&host).await;
    assert!(
        host.offline.trouble().contains("No space left on device"),
        "{}",
        host.offline.trouble()
    );
    host.kept().store.settle();
    assert_ne!(host.offline.trouble(), "", "there is no space yet");
    counts(&host).await;

    host.writing_fails(false);
    host.recovers().await;
    counts(&host).await;
    host.restart_when_closed().await;
    counts(&host).await;
    assert_eq!(host.offline.trouble(), "");
}

#[tokio::test(start_paused = true)]
async fn store_refuses_writes_guesses_are_counted() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.writing_fails(true);
    for _ in 0..3 {
        assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
    }
    for _ in 0..6 {
        assert_eq!(host.check("alice", "good").await, Verdict::Locked);
    }
    host.writing_fails(false);
    host.recovers().await;
    host.restart_when_closed().await;
    assert_eq!(host.offline.list().unwrap()[0].failures, 3);
    assert_eq!(host.check("alice", "good").await, Verdict::Locked);
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
}

#[tokio::test(start_paused = true)]
async fn store_refuses_opening_is_opened_later() {
    let host = Host::new();
    refresh(&host.engine, &["alice", "bob", "carol"], &[], "1");
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    let mut host = host.unopened().await;
    assert!(host.offline.trouble().contains("Input/output error"), "{}", host.offline.trouble());
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable, "it cannot be read");
    assert_eq!(host.check("bob", "bad").await, Verdict::Unreachable);
    host.heard("carol", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Locked).await;
    assert_eq!(host.check("carol", "good").await, Verdict::Success, "from memory");

    set(&host.kept().store.faults.opening, false);
    host.recovers().await;
    for _ in 0..2 {
        assert_eq!(host.check("alice", "good").await, Verdict::Success);
        assert_eq!(host.check("bob", "good").await, Verdict::Unreachable, "he is locked");
        assert_eq!(host.check("carol", "good").await, Verdict::Success);
        host.restart_when_closed().await;
    }
}

/// A password that the directory refuses while nothing can be compared with it.
#[tokio::test(start_paused = true)]
async fn store_unreadable_refused_password_is_compared_later() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    let host = host.unopened().await;
    host.offline.heard(&person("alice"), &secret("good"), Verdict::WrongPassword);
    host.offline.heard(&person("bob"), &secret("mistyped"), Verdict::WrongPassword);
    set(&host.kept().store.faults.opening, false);
    tokio::select! {
        () = host.offline.keep() => unreachable!("it never ends"),
        () = until("alice's is forgotten", || {
            host.offline.list().is_ok_and(|listed| listed.len() == 1)
        }) => {}
    }
    assert_eq!(host.names(), ["bob"]);
}

/// An older file must not bring back a time that has passed.
#[tokio::test(start_paused = true)]
async fn store_opened_late_knows_the_latest_time() {
    let host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.hand.go(31 * DAY);
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    host.hand.boot(2, 1_800_000_000 + DAY);
    let host = host.unopened().await;
    // The time is noted, and nothing can be read.
    assert!(host.offline.clean(host.kept()).await.is_err());
    set(&host.kept().store.faults.opening, false);
    host.recovers().await;
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    let doubt = host.offline.clock_doubt();
    assert_eq!(doubt, "it is 30 d behind the latest time that was seen");
}

#[tokio::test(start_paused = true)]
async fn store_refuses_writes_forgetting_all_counts() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.writing_fails(true);
    host.heard("bob", "good", Verdict::Success).await;
    let told = host.offline.forget(b"").await.unwrap_err().to_string();
    assert!(told.starts_with("it is forgotten, but not in the file"), "{told}");
    assert_eq!(host.names(), Vec::<String>::new());
    host.heard("bob", "better", Verdict::Success).await;
    host.writing_fails(false);
    host.recovers().await;
    host.restart_when_closed().await;
    assert_eq!(host.check("alice", "good").await, Verdict::Unreachable);
    assert_eq!(host.check("bob", "better").await, Verdict::Success);
}

/// As after the cache was lost: the publisher serves the user, and is believed.
#[tokio::test(start_paused = true)]
async fn lost_cache_leaves_offline_log_ins() {
    let mut host = Host::new();
    host.heard("alice", "good", Verdict::Success).await;
    host.heard("bob", "good", Verdict::Success).await;
    host.engine = engine(Mode::Replicate);
    host.restart_when_closed().await;
    host.clean().await;
    assert_eq!(host.check("alice", "bad").await, Verdict::WrongPassword);
    assert_eq!(host.check("alice", "good").await, Verdict::Success);
    let other = Person { uid: 1, ..person("bob") };
    let unreachable = Answer::of(Verdict::Unreachable);
    let answer = host.offline.check(&other, &secret("good"), unreachable).await;
    assert_eq!(answer.verdict, Verdict::Unreachable, "it is of another uid");
    assert_eq!(
        host.check("bob", "good").await,
        Verdict::Success,
        "and nothing is forgotten for it"
    );
    // As soon as something is known, that counts.
    refresh(&host.engine, &["alice"], &[], "1");
    assert_eq!(host.check("bob", "good").await, Verdict::Unreachable);
    assert_eq!(host.names(), ["alice"]);
}
