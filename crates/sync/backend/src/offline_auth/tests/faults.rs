// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disk faults: forgotten passwords are forgotten and guesses are counted, and all changes are written once the disk
//! works again.

use super::*;
use roster_domain_cache::credentials::ClockMark;
use roster_messages::table::login;
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

impl Host {
    fn writing_fails(&self, fails: bool) {
        set(&self.kept().store.faults.writing, fails);
    }

    /// Runs the backend's tasks until the file is open and everything is written.
    async fn recovers(&self) {
        tokio::select! {
            () = self.offline.maintain() => unreachable!("it never ends"),
            () = wait_until("it is written", || self.offline.store_fault().is_none()) => {}
        }
    }

    /// Starts a process that cannot open the file in the directory of an earlier process.
    async fn unopened(mut self) -> Self {
        let store = Arc::downgrade(&self.kept().store);
        self.offline = Arc::new(OfflineAuth::disabled());
        wait_until("the file is closed", || store.strong_count() == 0).await;
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
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    assert_eq!(host.offline.store_fault(), None);
    host.writing_fails(true);
    host.heard("alice", "better", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::WrongPassword).await;
    host.heard("carol", "good", AuthResult::Success).await;
    let counts = async |host: &Host| {
        assert_eq!(host.check("alice", "good").await, AuthResult::WrongPassword, "it was changed");
        assert_eq!(host.check("alice", "better").await, AuthResult::Success);
        assert_eq!(host.check("bob", "good").await, AuthResult::Unreachable, "it was refused");
        assert_eq!(host.check("carol", "good").await, AuthResult::Success, "she is new");
        assert_eq!(host.names(), ["alice", "carol"]);
    };
    counts(&host).await;
    let fault = host.offline.store_fault().expect("a fault");
    assert_eq!(fault.message, &login::CREDENTIALS_NOT_WRITTEN);
    assert!(fault.text.contains("No space left on device"), "{fault}");
    host.kept().store.write_waiting();
    assert_ne!(host.offline.store_fault(), None, "there is no space yet");
    counts(&host).await;

    host.writing_fails(false);
    host.recovers().await;
    counts(&host).await;
    host.restart_when_closed().await;
    counts(&host).await;
    assert_eq!(host.offline.store_fault(), None);
}

#[tokio::test(start_paused = true)]
async fn store_refuses_writes_guesses_are_counted() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.writing_fails(true);
    for _ in 0..3 {
        assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
    }
    for _ in 0..6 {
        assert_eq!(host.check("alice", "good").await, AuthResult::Locked);
    }
    host.writing_fails(false);
    host.recovers().await;
    host.restart_when_closed().await;
    assert_eq!(host.offline.list().unwrap()[0].failures, 3);
    assert_eq!(host.check("alice", "good").await, AuthResult::Locked);
    host.hand.go(HOUR);
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
}

#[tokio::test(start_paused = true)]
async fn store_refuses_opening_is_opened_later() {
    let host = Host::new();
    refresh(&host.engine, &["alice", "bob", "carol"], &[], "1");
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    let mut host = host.unopened().await;
    let fault = host.offline.store_fault().expect("a fault");
    assert_eq!(fault.message, &login::CREDENTIALS_UNREADABLE);
    assert!(fault.text.contains("Input/output error"), "{fault}");
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable, "it cannot be read");
    assert_eq!(host.check("bob", "bad").await, AuthResult::Unreachable);
    host.heard("carol", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Locked).await;
    assert_eq!(host.check("carol", "good").await, AuthResult::Success, "from memory");

    set(&host.kept().store.faults.opening, false);
    host.recovers().await;
    for _ in 0..2 {
        assert_eq!(host.check("alice", "good").await, AuthResult::Success);
        assert_eq!(host.check("bob", "good").await, AuthResult::Unreachable, "he is locked");
        assert_eq!(host.check("carol", "good").await, AuthResult::Success);
        host.restart_when_closed().await;
    }
}

/// A password that the directory refuses while the stored one is unreadable.
#[tokio::test(start_paused = true)]
async fn store_unreadable_refused_password_is_compared_later() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    let host = host.unopened().await;
    host.offline.record_result(&person("alice"), &secret("good"), AuthResult::WrongPassword);
    host.offline.record_result(&person("bob"), &secret("mistyped"), AuthResult::WrongPassword);
    set(&host.kept().store.faults.opening, false);
    tokio::select! {
        () = host.offline.maintain() => unreachable!("it never ends"),
        () = wait_until("alice's is forgotten", || {
            host.offline.list().is_ok_and(|listed| listed.len() == 1)
        }) => {}
    }
    assert_eq!(host.names(), ["bob"]);
}

/// An older file must not bring back a time that has passed.
#[tokio::test(start_paused = true)]
async fn store_opened_late_knows_the_latest_time() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.hand.go(31 * DAY);
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    host.hand.boot(2, 1_800_000_000 + DAY);
    let host = host.unopened().await;
    // The time is noted, and the file is unreadable.
    assert!(host.offline.remove_stale(host.kept()).await.is_err());
    set(&host.kept().store.faults.opening, false);
    host.recovers().await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    let doubt = host.offline.clock_fault().expect("a fault");
    assert_eq!(doubt.text, "the clock is 30 d behind the latest known time");
}

#[tokio::test(start_paused = true)]
async fn store_refuses_writes_forgetting_all_counts() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.writing_fails(true);
    host.heard("bob", "good", AuthResult::Success).await;
    let told = host.offline.forget(b"").await.unwrap_err();
    assert_eq!(told.message(), &login::CREDENTIALS_NOT_WRITTEN, "{told}");
    assert_eq!(host.names(), Vec::<String>::new());
    host.heard("bob", "better", AuthResult::Success).await;
    host.writing_fails(false);
    host.recovers().await;
    host.restart_when_closed().await;
    assert_eq!(host.check("alice", "good").await, AuthResult::Unreachable);
    assert_eq!(host.check("bob", "better").await, AuthResult::Success);
}

/// As after a loss of the cache: the publisher serves the user, and is trusted.
#[tokio::test(start_paused = true)]
async fn lost_cache_leaves_offline_log_ins() {
    let mut host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    host.heard("bob", "good", AuthResult::Success).await;
    host.engine = engine(DomainMode::Replicate);
    host.restart_when_closed().await;
    host.clean().await;
    assert_eq!(host.check("alice", "bad").await, AuthResult::WrongPassword);
    assert_eq!(host.check("alice", "good").await, AuthResult::Success);
    let other = LoginUser { uid: 1, ..person("bob") };
    let unreachable = AuthOutcome::from_result(AuthResult::Unreachable);
    let answer = host.offline.check_password(&other, &secret("good"), unreachable).await;
    assert_eq!(answer.result, AuthResult::Unreachable, "it is of another uid");
    assert_eq!(
        host.check("bob", "good").await,
        AuthResult::Success,
        "and nothing is forgotten for it"
    );
    // Known entries count as soon as there are any.
    refresh(&host.engine, &["alice"], &[], "1");
    assert_eq!(host.check("bob", "good").await, AuthResult::Unreachable);
    assert_eq!(host.names(), ["alice"]);
}

#[test]
fn store_damaged_files_are_logged_with_code() {
    use roster_domain_cache::credentials::{COPY_FILE, CREDENTIALS_FILE};
    for (files, message) in [
        (&[COPY_FILE][..], &login::CREDENTIALS_RESTORED),
        (&[CREDENTIALS_FILE, COPY_FILE], &login::CREDENTIALS_LOST),
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(CredentialStore::open(folder.path()));
        for file in files {
            std::fs::write(folder.path().join(file), "this is no file of ours").unwrap();
        }
        let logged = LoggedCodes::default();
        let _collecting = logged.collect();
        drop(CredentialStore::open(folder.path()));
        assert!(logged.has(message.code), "{files:?}: {:?}", logged.codes());
    }
}

#[tokio::test(start_paused = true)]
async fn store_unopened_cleanup_is_logged_with_code() {
    let host = Host::new().unopened().await;
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    tokio::select! {
        () = host.offline.maintain() => unreachable!("it never ends"),
        () = wait_until("the error is logged", || {
            logged.has(login::CREDENTIALS_NOT_CLEANED.code)
        }) => {}
    }
}

#[test]
fn store_without_copy_is_logged_with_code() {
    use roster_domain_cache::credentials::COPY_FILE;
    let folder = tempfile::tempdir().unwrap();
    drop(CredentialStore::open(folder.path()));
    std::fs::remove_file(folder.path().join(COPY_FILE)).unwrap();
    // A socket at the path of the file cannot be opened, also by root.
    let _socket = UnixListener::bind(folder.path().join(COPY_FILE)).unwrap();
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    let store = CredentialStore::open(folder.path());
    assert_eq!(logged.codes(), [login::CREDENTIALS_ONE_COPY.code]);
    assert_eq!(store.fault().expect("a fault").message, &login::CREDENTIALS_NOT_WRITTEN);
}

/// A damaged hash of one user, as of a faulty disk.
#[tokio::test]
async fn store_unusable_hash_is_logged_with_code() {
    let host = Host::new();
    let damaged = StoredCredential {
        uid: uid_of("alice"),
        hash: "no hash".into(),
        verified_unix: host.hand.unix(),
        failures: 0,
        failed_unix: 0,
    };
    host.kept().store.write(CredentialChanges::credential(b"alice", Some(damaged)));
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    host.offline.record_result(&person("alice"), &secret("bad"), AuthResult::WrongPassword);
    wait_until("it is logged", || logged.has(login::CREDENTIAL_NOT_UPDATED.code)).await;
    assert_eq!(host.names(), ["alice"], "it stays");
}

/// The disk holds up a write until the process ends.
#[tokio::test(start_paused = true)]
async fn store_hangs_at_end_loss_is_logged() {
    let host = Host::new();
    host.heard("alice", "good", AuthResult::Success).await;
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let store = Arc::clone(&host.kept().store);
    let writer = std::thread::spawn(move || {
        store.redate(ClockMark::default(), |unix| {
            let _ = begun.send(());
            let _ = released.recv();
            unix
        })
    });
    has_begun.recv().unwrap();
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    tokio::select! {
        () = host.offline.close() => {}
        () = advance_forever() => {}
    }
    assert_eq!(logged.codes(), [login::CREDENTIALS_LAST_CHANGES_LOST.code]);
    drop(release);
    writer.join().unwrap().unwrap();
}

/// Lets time pass also while a thread waits for the disk.
async fn advance_forever() {
    loop {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}
