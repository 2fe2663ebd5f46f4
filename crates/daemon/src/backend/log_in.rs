//! Log-ins: asks whoever knows the password, or what is kept for when nobody can be asked; and whether
//! the user may in. What a password is worth is decided by the authenticator and [`Offline`], what an
//! account is by [`Access`]; here they are put in their order. Nothing here is ever one call with another.

use super::access::Access;
use super::offline::Offline;
use roster_bus::interfaces::{Error, Explained, LogIn, LogInAnswer};
use roster_bus::secrets;
use roster_provider::log_in::{Answer, Authenticator, Nobody, Person};
use roster_provider_krb5::Kerberos;
use roster_provider_ldap::Binds;
use roster_secret::Secret;
use roster_wire::pam::{SECRET_BYTES_MAX, Verdict};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Passwords that are looked at together; others wait for their turn.
const AT_ONCE: usize = 64;
/// How long a server that may be away is waited for where there are credentials to go by without it.
const PATIENCE_SHORT: Duration = Duration::from_millis(800);
/// And where there are none.
const PATIENCE: Duration = Duration::from_secs(4);

/// How people log in to a domain.
pub struct LogIns<A> {
    authenticator: A,
    offline: Arc<Offline>,
    access: Access,
    turns: Semaphore,
}

impl<A: Authenticator> LogIns<A> {
    /// Of a domain.
    pub fn new(authenticator: A, offline: Arc<Offline>, access: Access) -> Self {
        Self { authenticator, offline, access, turns: Semaphore::new(AT_ONCE) }
    }

    /// Whether the password is the user's.
    pub async fn authenticate(&self, who: &LogIn, password: &Secret) -> Answer {
        let _turn = self.turns.acquire().await;
        if who.is_decoy {
            self.pretend(who).await;
            return Answer::of(Verdict::UnknownUser);
        }
        if let Some(refused) = impossible(password) {
            self.pretend(who).await;
            return refused;
        }
        let person = person(who);
        let patience = if self.offline.has(&person) { PATIENCE_SHORT } else { PATIENCE };
        let answer = self.authenticator.authenticate(&person, password, patience).await;
        if answer.verdict == Verdict::Unreachable {
            return self.offline.check(&person, password, answer).await;
        }
        if !answer.is_hearsay {
            self.offline.heard(&person, password, answer.verdict);
        }
        answer
    }

    /// Does what is done for a wrong password. Who asked sees to it that it takes as long.
    async fn pretend(&self, who: &LogIn) {
        if !self.authenticator.pretend().await {
            self.offline.pretend(&who.user).await;
        }
    }

    /// Whether the user may in now.
    pub async fn account(&self, who: &LogIn) -> Answer {
        if who.is_decoy {
            return Answer::of(Verdict::UnknownUser);
        }
        self.access.decide(who).await
    }

    /// Whether the user may in now, rule by rule.
    pub async fn explain(&self, who: &LogIn) -> Explained {
        self.access.explain(who).await
    }

    /// The user's keys for sshd.
    pub async fn ssh_keys(&self, who: &LogIn) -> Result<Vec<String>, Answer> {
        if who.is_decoy {
            return Err(Answer::of(Verdict::UnknownUser));
        }
        self.access.ssh_keys(who).await
    }

    /// What is kept for when nobody can be asked.
    pub fn offline(&self) -> &Offline {
        &self.offline
    }

    /// Whether the password may be changed by who knows it.
    pub async fn prepare_change(&self, who: &LogIn, password: &Secret) -> Answer {
        let _turn = self.turns.acquire().await;
        if who.is_decoy {
            self.authenticator.pretend().await;
            return Answer::of(Verdict::UnknownUser);
        }
        if let Some(refused) = impossible(password) {
            self.authenticator.pretend().await;
            return refused;
        }
        self.authenticator.prepare_change(&person(who), password).await
    }

    /// Changes the password.
    pub async fn change(&self, who: &LogIn, password: &Secret, new: &Secret) -> Answer {
        let _turn = self.turns.acquire().await;
        if who.is_decoy {
            self.authenticator.pretend().await;
            return Answer::of(Verdict::UnknownUser);
        }
        if let Some(refused) = impossible(password) {
            self.authenticator.pretend().await;
            return refused;
        }
        if let Some(refused) = impossible(new) {
            let Answer { reason, .. } = refused;
            return Answer::because(Verdict::NewPasswordRefused, reason.clone())
                .telling(true, format!("The new password is refused: {reason}."));
        }
        let person = person(who);
        let answer = self.authenticator.change(&person, password, new).await;
        match what_became_of(&answer) {
            Change::Done => self.offline.changed(&person, new),
            Change::Unclear => self.offline.may_have_changed(&person, password),
            Change::Undone => self.offline.heard(&person, password, answer.verdict),
            Change::UndoneByHearsay => {}
        }
        answer
    }
}

/// What became of a change of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The new password is the right one.
    Done,
    /// The old one may not be right any more.
    Unclear,
    /// The old one is as right as it was, and the directory has said why.
    Undone,
    /// The same, and anybody may have said why.
    UndoneByHearsay,
}

fn what_became_of(answer: &Answer) -> Change {
    match answer.verdict {
        Verdict::Success if answer.is_hearsay => Change::Unclear,
        Verdict::Success => Change::Done,
        _ if answer.is_undone && answer.is_hearsay => Change::UndoneByHearsay,
        _ if answer.is_undone => Change::Undone,
        _ if answer.is_hearsay => Change::Unclear,
        Verdict::Unreachable | Verdict::Misconfigured => Change::Unclear,
        _ => Change::Undone,
    }
}

/// Who is asked in a domain.
pub enum Authority {
    /// Nobody.
    Nobody(Nobody),
    /// The directory, by binding as the user.
    Ldap(Binds),
    /// The KDC of a realm.
    Krb5(Box<Kerberos>),
}

impl LogIns<Authority> {
    /// Returns when log-ins cannot go on without the role being started again.
    pub async fn ended(&self) {
        match &self.authenticator {
            Authority::Krb5(kerberos) => kerberos.ended().await,
            Authority::Nobody(_) | Authority::Ldap(_) => std::future::pending().await,
        }
    }
}

impl Authenticator for Authority {
    async fn authenticate(&self, person: &Person, password: &Secret, patience: Duration) -> Answer {
        match self {
            Self::Nobody(nobody) => nobody.authenticate(person, password, patience).await,
            Self::Ldap(binds) => binds.authenticate(person, password, patience).await,
            Self::Krb5(kerberos) => kerberos.authenticate(person, password, patience).await,
        }
    }

    async fn pretend(&self) -> bool {
        match self {
            Self::Nobody(nobody) => nobody.pretend().await,
            Self::Ldap(binds) => binds.pretend().await,
            Self::Krb5(kerberos) => kerberos.pretend().await,
        }
    }

    async fn prepare_change(&self, person: &Person, password: &Secret) -> Answer {
        match self {
            Self::Nobody(nobody) => nobody.prepare_change(person, password).await,
            Self::Ldap(binds) => binds.prepare_change(person, password).await,
            Self::Krb5(kerberos) => kerberos.prepare_change(person, password).await,
        }
    }

    async fn change(&self, person: &Person, password: &Secret, new: &Secret) -> Answer {
        match self {
            Self::Nobody(nobody) => nobody.change(person, password, new).await,
            Self::Ldap(binds) => binds.change(person, password, new).await,
            Self::Krb5(kerberos) => kerberos.change(person, password, new).await,
        }
    }
}

/// An answer as it goes over the bus. Why it is so is for the log here: who asked is told no more than the
/// verdict and the messages.
pub fn told(who: &LogIn, what: &'static str, answer: Answer) -> Result<LogInAnswer, Error> {
    let Answer { verdict, messages, reason, blob, is_offline, .. } = answer;
    if !reason.is_empty() {
        let LogIn { user, service, .. } = who.clone();
        // Whoever waits for the answer need not wait for the line.
        tokio::spawn(async move {
            let (user, outcome) = (user.escape_ascii(), verdict.label());
            tracing::info!(%user, service, outcome, "{what}: {reason}");
        });
    }
    let blob = blob.map(|blob| secrets::send(&[blob.as_bytes()])).transpose();
    let blob = blob.map_err(|error| Error::Unavailable(format!("no pipe: {error}")))?;
    Ok(LogInAnswer {
        verdict: verdict as u16,
        is_offline,
        messages: messages.into_iter().map(|message| (message.is_error, message.text)).collect(),
        blob: blob.into_iter().map(Into::into).collect(),
    })
}

fn person(who: &LogIn) -> Person {
    Person { name: who.user.clone(), uid: who.uid }
}

/// What no password can be. A server takes an empty one for an anonymous bind and says that all is well,
/// and what it makes of a NUL is anybody's guess.
fn impossible(password: &Secret) -> Option<Answer> {
    let bytes = password.as_bytes();
    let why = match bytes {
        [] => "it is empty",
        _ if bytes.contains(&0) => "it has a NUL in it",
        _ if bytes.len() > SECRET_BYTES_MAX => "it is too long",
        _ => return None,
    };
    Some(Answer::because(Verdict::WrongPassword, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::people::People;
    use crate::backend::tests::{engine, refresh, uid_of};
    use crate::testing::until;
    use roster_config::{Mode, Offline as Settings};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;
    use tokio::time::{Instant, sleep};

    /// Says yes to everything, and what it was asked.
    #[derive(Default)]
    struct Believer(Mutex<Vec<&'static str>>);

    impl Believer {
        fn note(&self, what: &'static str) {
            self.0.lock().expect("no panic").push(what);
        }
    }

    impl Authenticator for Believer {
        async fn authenticate(&self, _: &Person, _: &Secret, _: Duration) -> Answer {
            self.note("authenticate");
            Answer::of(Verdict::Success)
        }

        async fn pretend(&self) -> bool {
            self.note("pretend");
            true
        }

        async fn prepare_change(&self, _: &Person, _: &Secret) -> Answer {
            self.note("prepare");
            Answer::of(Verdict::Success)
        }

        async fn change(&self, _: &Person, _: &Secret, _: &Secret) -> Answer {
            self.note("change");
            Answer::of(Verdict::Success)
        }
    }

    fn log_ins() -> LogIns<Believer> {
        LogIns::new(Believer::default(), Arc::new(Offline::none()), Access::Open)
    }

    fn secret(bytes: &[u8]) -> Secret {
        Secret::copy_of(bytes).expect("memory")
    }

    #[tokio::test]
    async fn an_impossible_password_is_wrong_and_shown_to_nobody() {
        let log_ins = log_ins();
        let (who, good) = (LogIn::default(), secret(b"good"));
        for bad in [&b""[..], b"a\0b", &[b'x'; SECRET_BYTES_MAX + 1]] {
            let bad = secret(bad);
            for answer in [
                log_ins.authenticate(&who, &bad).await,
                log_ins.prepare_change(&who, &bad).await,
                log_ins.change(&who, &bad, &good).await,
            ] {
                assert_eq!(answer.verdict, Verdict::WrongPassword);
            }
            let answer = log_ins.change(&who, &good, &bad).await;
            assert_eq!(answer.verdict, Verdict::NewPasswordRefused);
            assert_eq!(answer.messages.len(), 1);
        }
        let asked = log_ins.authenticator.0.lock().expect("no panic");
        assert!(asked.iter().all(|what| *what == "pretend"), "{asked:?}");
    }

    #[tokio::test]
    async fn nobody_is_let_in_under_a_name_that_is_not_served() {
        let log_ins = log_ins();
        let who = LogIn { is_decoy: true, ..LogIn::default() };
        let good = secret(b"good");
        for answer in [
            log_ins.authenticate(&who, &good).await,
            log_ins.account(&who).await,
            log_ins.prepare_change(&who, &good).await,
            log_ins.change(&who, &good, &good).await,
        ] {
            assert_eq!(answer.verdict, Verdict::UnknownUser);
        }
        let asked = log_ins.authenticator.0.lock().expect("no panic");
        assert_eq!(*asked, ["pretend"; 3]);
    }

    /// A directory that is away, but for what is set.
    #[derive(Default)]
    struct Away {
        log_in: Mutex<Option<Verdict>>,
        change: Mutex<Option<Verdict>>,
        /// As a KDC is that has not shown a key of this host.
        is_unverified: AtomicBool,
    }

    impl Authenticator for Away {
        async fn authenticate(&self, _: &Person, _: &Secret, _: Duration) -> Answer {
            let verdict = self.log_in.lock().expect("no panic").unwrap_or(Verdict::Unreachable);
            let is_hearsay = self.is_unverified.load(Ordering::Relaxed);
            Answer { is_hearsay, ..Answer::of(verdict) }
        }

        async fn pretend(&self) -> bool {
            self.log_in.lock().expect("no panic").is_some()
        }

        async fn prepare_change(&self, _: &Person, _: &Secret) -> Answer {
            Answer::of(Verdict::Success)
        }

        async fn change(&self, _: &Person, _: &Secret, _: &Secret) -> Answer {
            Answer::of(self.change.lock().expect("no panic").unwrap_or(Verdict::Unreachable))
        }
    }

    /// Log-ins of a domain with alice, bob and carol, where what is kept is kept.
    struct Host {
        log_ins: LogIns<Away>,
        _folder: TempDir,
    }

    impl Host {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = engine(Mode::Replicate);
            refresh(&engine, &["alice", "bob", "carol"], &[], "1");
            let settings = Settings {
                life: Duration::from_secs(86_400),
                failures: 9,
                lockout: Duration::from_secs(3600),
                hash_time: Duration::from_millis(10),
            };
            let people = Arc::new(People::new(engine, Mode::Replicate, false));
            let offline = Arc::new(Offline::open(folder.path(), Some(settings), people, None));
            let log_ins = LogIns::new(Away::default(), offline, Access::Open);
            Self { log_ins, _folder: folder }
        }

        /// Logs in while the directory answers, and waits until that is kept.
        async fn log_in(&self, name: &str, password: &Secret) {
            self.answers_log_ins(Some(Verdict::Success));
            let who = who(name);
            assert_eq!(self.log_ins.authenticate(&who, password).await.verdict, Verdict::Success);
            self.wait_until_kept(name, true).await;
            self.answers_log_ins(None);
        }

        fn answers_log_ins(&self, verdict: Option<Verdict>) {
            *self.log_ins.authenticator.log_in.lock().expect("no panic") = verdict;
        }

        async fn wait_until_kept(&self, name: &str, is_kept: bool) {
            let person = person(&who(name));
            until("kept or forgotten", || self.log_ins.offline.has(&person) == is_kept).await;
        }
    }

    fn who(name: &str) -> LogIn {
        LogIn { user: name.as_bytes().to_vec(), uid: uid_of(name), ..LogIn::default() }
    }

    #[tokio::test]
    async fn a_password_is_not_kept_after_a_change_that_nobody_has_confirmed_or_denied() {
        let host = Host::new();
        let (old, new) = (secret(b"old"), secret(b"new"));
        for verdict in [Verdict::Unreachable, Verdict::Misconfigured] {
            host.log_in("alice", &old).await;
            *host.log_ins.authenticator.change.lock().expect("no panic") = Some(verdict);
            assert_eq!(host.log_ins.change(&who("alice"), &old, &new).await.verdict, verdict);
            host.wait_until_kept("alice", false).await;
        }
        // One that was surely not done takes nothing away.
        host.log_in("alice", &old).await;
        let refused = Verdict::NewPasswordRefused;
        *host.log_ins.authenticator.change.lock().expect("no panic") = Some(refused);
        assert_eq!(host.log_ins.change(&who("alice"), &old, &new).await.verdict, refused);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(host.log_ins.authenticate(&who("alice"), &old).await.verdict, Verdict::Success);
    }

    #[tokio::test]
    async fn log_in_unverified_success_keeps_nothing() {
        let host = Host::new();
        let (good, forged) = (secret(b"good"), secret(b"forged"));
        host.log_in("alice", &good).await;
        let unverified = &host.log_ins.authenticator.is_unverified;
        unverified.store(true, Ordering::Relaxed);
        host.answers_log_ins(Some(Verdict::Success));
        for name in ["alice", "bob"] {
            let answer = host.log_ins.authenticate(&who(name), &forged).await;
            assert_eq!(answer.verdict, Verdict::Success);
        }
        unverified.store(false, Ordering::Relaxed);
        // By the time that a later one is kept, these would have been.
        host.log_in("carol", &good).await;
        for (name, password, verdict) in [
            ("alice", &forged, Verdict::WrongPassword),
            ("alice", &good, Verdict::Success),
            ("bob", &forged, Verdict::Unreachable),
        ] {
            let answer = host.log_ins.authenticate(&who(name), password).await;
            assert_eq!(answer.verdict, verdict, "{name}");
        }
    }

    #[test]
    fn a_change_is_undone_only_where_that_is_sure() {
        for verdict in Verdict::ALL {
            let became = |is_hearsay, is_undone| {
                what_became_of(&Answer { is_hearsay, is_undone, ..Answer::of(verdict) })
            };
            let is_unclear = matches!(verdict, Verdict::Unreachable | Verdict::Misconfigured);
            let (plain, said, undone) = match verdict {
                Verdict::Success => (Change::Done, Change::Unclear, Change::Done),
                _ if is_unclear => (Change::Unclear, Change::Unclear, Change::Undone),
                _ => (Change::Undone, Change::Unclear, Change::Undone),
            };
            assert_eq!(became(false, false), plain, "{verdict:?}");
            assert_eq!(became(true, false), said, "{verdict:?}");
            assert_eq!(became(false, true), undone, "{verdict:?}");
            if verdict != Verdict::Success {
                assert_eq!(became(true, true), Change::UndoneByHearsay, "{verdict:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_in_offline_refusals_take_equally_long() {
        let host = Host::new();
        let (good, bad) = (secret(b"good"), secret(b"bad"));
        host.log_in("alice", &good).await;
        // The clock is simulated: it moves where the program sleeps, and nowhere else.
        let mut took = Vec::new();
        let nobody = LogIn { is_decoy: true, ..who("mallory") };
        for (who, verdict) in [
            (who("alice"), Verdict::WrongPassword),
            (who("bob"), Verdict::Unreachable),
            (nobody, Verdict::UnknownUser),
        ] {
            let start = Instant::now();
            assert_eq!(host.log_ins.authenticate(&who, &bad).await.verdict, verdict);
            took.push(start.elapsed());
        }
        assert!(took[0] >= Duration::from_millis(500), "{took:?}");
        assert_eq!(took, [took[0]; 3]);
        // A refusal by the directory adds no sleep.
        host.answers_log_ins(Some(Verdict::WrongPassword));
        let start = Instant::now();
        let nobody = LogIn { is_decoy: true, ..who("mallory") };
        host.log_ins.authenticate(&nobody, &bad).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
