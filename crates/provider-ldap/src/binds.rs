//! Puts users' passwords to the directory: binds as them, over connections that are for nothing else. A
//! bind makes a connection somebody's, so the mirror's and the look-ups' are never used for it.
//!
//! A few connections are kept open between log-ins. A server that may be away is not waited for longer
//! than whoever asks has patience: it is knocked at over another connection, and one that answers there
//! is at work and gets its time. When none does, that is remembered, everybody who asks is told so at once, and
//! somebody goes on knocking.
//!
//! What is done without servers is done for everybody. So no server is there only if none takes a connection or
//! answers a knock: that one person's bind takes too long, or is put off, is that person's misfortune, who is not
//! let in for now. Whoever can make their own bind slow takes the directory away from nobody.
//!
//! Who has proven that they know a password that must be changed need not prove it again for the change, on the
//! connection that is theirs: each bind would cost one of the log-ins that a policy still grants.
//!
//! What an answer means is [`verdict`]'s to say.

use crate::Ldap;
use crate::ber::Malformed;
use crate::connection::{Connection, Settings};
use crate::error::Error;
use crate::lock;
use crate::message::{Control, Request};
use crate::servers::{Candidate, Setbacks, describe};
use crate::verdict::{self, Said};
use roster_config::{Domain, Provider as Configured, Secrets, Server};
use roster_provider::Unanswered;
use roster_provider::log_in::{Answer, Authenticator, Person};
use roster_secret::Secret;
use roster_wire::pam::Verdict;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Binds under way at a time; a server hashes far fewer at once.
const BINDS_MAX: usize = 32;
/// Connections that are kept open with nothing to do …
const IDLE_MAX: usize = 16;
/// … for so long; a server that is preferred gets its turn by that, too.
const IDLE_LIFE: Duration = Duration::from_secs(300);
/// After so long without word the next server is tried beside the first.
const STAGGER: Duration = Duration::from_millis(250);
/// A server that says nothing for so long is knocked at.
const KNOCK_AFTER: Duration = Duration::from_millis(400);
/// Servers that one password is put to, when those before fail.
const SERVERS_MAX: usize = 4;
/// Who has proven to know a password may change it for so long without proving it again: the time to
/// think of another one, and to type it twice.
const PROVEN_LIFE: Duration = Duration::from_secs(120);
/// How many such there may be.
const PROVEN_MAX: usize = 64;
/// A knock that failed sooner was refused, and has cost nobody anything.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Between two knocks while no server is there: at first, and as long as they are refused …
const KNOCK_PAUSE: Duration = Duration::from_secs(1);
/// … and after a minute, where nothing is said to them.
const KNOCK_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Knocks to which nothing is said, at the shorter pause.
const EAGER_KNOCKS: u32 = 60;

/// Binds as the users of one domain.
pub struct Binds(Arc<Inner>);

struct Inner {
    ldap: Arc<Ldap>,
    settings: Arc<Settings>,
    allow_clear: bool,
    timeout: Duration,
    turns: Semaphore,
    idle: Mutex<Vec<Warm>>,
    proven: Mutex<Vec<Proven>>,
    /// Why no server is there, while none is.
    away: Mutex<Option<String>>,
    /// Servers that failed lately, which are tried after the others.
    setbacks: Setbacks,
}

/// A connection, and whose server's.
struct Warm {
    connection: Connection,
    server: Server,
    used: Instant,
}

/// Somebody who knows a password, on their connection.
struct Proven {
    person: Person,
    password: Secret,
    dn: String,
    warm: Warm,
    until: Instant,
}

/// A bind that was answered.
struct Bound {
    answer: Answer,
    dn: String,
    warm: Warm,
}

/// Why there was no bind that was answered.
enum Failure {
    /// No server is there.
    Unreachable(String),
    /// It is decided without one.
    Decided(Answer),
}

impl Failure {
    /// A server is there, and does not say whether this password is right: nothing else may say it either.
    fn unanswered(reason: impl Into<String>) -> Self {
        Self::Decided(Answer::because(Verdict::Misconfigured, reason))
    }

    fn into_answer(self) -> Answer {
        match self {
            Self::Unreachable(reason) => Answer::because(Verdict::Unreachable, reason),
            Self::Decided(answer) => answer,
        }
    }
}

impl Binds {
    /// Of a domain whose directory is asked by `ldap`. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// `tls_ca` is of no use.
    pub fn new(domain: &Domain, secrets: &Secrets, ldap: Arc<Ldap>) -> Result<Self, String> {
        let Configured::Ldap(config) = &domain.provider else {
            return Err("its provider is not ldap".to_owned());
        };
        Ok(Self(Arc::new(Inner {
            settings: Arc::new(Settings::of_users(config, secrets)?),
            allow_clear: config.allow_clear_user_passwords,
            timeout: domain.auth.timeout,
            turns: Semaphore::new(BINDS_MAX),
            idle: Mutex::default(),
            proven: Mutex::default(),
            away: Mutex::default(),
            setbacks: Setbacks::new(config.fail_back),
            ldap,
        })))
    }
}

impl Authenticator for Binds {
    async fn authenticate(&self, person: &Person, password: &Secret, patience: Duration) -> Answer {
        let inner = &self.0;
        let _turn = inner.turns.acquire().await;
        match inner.bind(person, password, patience).await {
            Ok(Bound { answer, dn, warm }) => {
                match answer.verdict {
                    Verdict::MustChange => inner.remember(person, password, dn, warm),
                    _ => inner.keep(warm),
                }
                answer
            }
            Err(failure) => failure.into_answer(),
        }
    }

    async fn pretend(&self) -> bool {
        let inner = &self.0;
        let _turn = inner.turns.acquire().await;
        inner.bind_as_nobody().await
    }

    async fn prepare_change(&self, person: &Person, password: &Secret) -> Answer {
        let inner = &self.0;
        let _turn = inner.turns.acquire().await;
        if let Some(proven) = inner.take_proven(person, password) {
            inner.put_proven(proven);
            return Answer::of(Verdict::Success);
        }
        match inner.bind(person, password, inner.timeout).await {
            Ok(Bound { answer, dn, warm }) => match answer.verdict {
                Verdict::Success | Verdict::MustChange => {
                    inner.remember(person, password, dn, warm);
                    Answer::of(Verdict::Success)
                }
                _ => {
                    inner.keep(warm);
                    answer
                }
            },
            Err(failure) => failure.into_answer(),
        }
    }

    async fn change(&self, person: &Person, password: &Secret, new: &Secret) -> Answer {
        let inner = &self.0;
        let _turn = inner.turns.acquire().await;
        // The connection of who has proven it may have ended since.
        for _ in 0..2 {
            let proven = inner.take_proven(person, password);
            let was_proven = proven.is_some();
            let (dn, mut warm) = match proven {
                Some(Proven { dn, warm, .. }) => (dn, warm),
                None => match inner.bind(person, password, inner.timeout).await {
                    Ok(Bound { answer, dn, warm }) => match answer.verdict {
                        Verdict::Success | Verdict::MustChange => (dn, warm),
                        _ => {
                            inner.keep(warm);
                            return answer;
                        }
                    },
                    Err(failure) => return failure.into_answer(),
                },
            };
            let (old, new) = (password.as_bytes(), new.as_bytes());
            let request = Request::ModifyPassword { dn: &dn, old, new };
            let said = inner.ask(&mut warm, &request, inner.timeout).await;
            match said {
                Ok(Said::Answer(answer)) => {
                    match answer.verdict {
                        Verdict::NewPasswordRefused => inner.remember(person, password, dn, warm),
                        _ => inner.keep(warm),
                    }
                    return answer;
                }
                Ok(Said::NoSuchEntry(reason)) => {
                    return Answer::because(Verdict::UnknownUser, reason);
                }
                Ok(Said::NotNow(reason)) => return Answer::because(Verdict::Unreachable, reason),
                Err(error) if was_proven && is_of_an_old_connection(&error) => {}
                // It may have been done: whoever tries again will see.
                Err(error) => {
                    let reason = format!("{}: {error}", describe(&warm.server));
                    return Answer::because(Verdict::Unreachable, reason);
                }
            }
        }
        Answer::because(Verdict::Unreachable, "the server closes each connection")
    }
}

/// Whether the connection had ended while nobody used it.
fn is_of_an_old_connection(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::Wordless | Error::Io(_) | Error::Disconnected(_))
}

impl Inner {
    /// Binds as somebody at the first server that answers.
    async fn bind(
        self: &Arc<Self>,
        person: &Person,
        password: &Secret,
        patience: Duration,
    ) -> Result<Bound, Failure> {
        if let Some(reason) = lock(&self.away).clone() {
            return Err(Failure::Unreachable(reason));
        }
        let bound = self.find_and_bind(person, password, patience).await;
        if let Err(failure) = &bound {
            self.note_failure(failure);
        }
        bound
    }

    fn note_failure(self: &Arc<Self>, failure: &Failure) {
        if let Failure::Unreachable(reason) = failure {
            self.is_gone(reason);
        }
    }

    /// The same of somebody whose DN is looked for each time: whoever has taken the name or the DN since
    /// the last time is not who is served under it.
    async fn find_and_bind(
        self: &Arc<Self>,
        person: &Person,
        password: &Secret,
        patience: Duration,
    ) -> Result<Bound, Failure> {
        let dn = self.find(person, patience).await?;
        let (warm, said) = self.bind_anywhere(&dn, password, patience).await?;
        match said {
            Said::Answer(answer) => Ok(Bound { answer, dn, warm }),
            // It went in between.
            Said::NoSuchEntry(reason) => {
                self.keep(warm);
                Err(Failure::Decided(Answer::because(Verdict::UnknownUser, reason)))
            }
            Said::NotNow(reason) => Err(Failure::unanswered(reason)),
        }
    }

    /// The DN of somebody, as the directory has it now.
    async fn find(&self, person: &Person, patience: Duration) -> Result<String, Failure> {
        let found = self.look(&person.name, patience).await?;
        let unknown = |reason| Err(Failure::Decided(Answer::because(Verdict::UnknownUser, reason)));
        match found {
            Ok(Some((dn, uid))) if uid == person.uid && !dn.is_empty() => Ok(dn),
            Ok(Some((dn, uid))) => {
                unknown(format!("{dn} has the uid {uid}, and is served with {}", person.uid))
            }
            Ok(None) => unknown("the directory has nobody of that name".to_owned()),
            Err(Unanswered::Unreachable(reason) | Unanswered::Failed(reason)) => {
                Err(Failure::unanswered(reason))
            }
        }
    }

    /// What the look-ups say of a name. They may be at a server that has fallen silent, or have given up for a
    /// while, when another is there.
    async fn look(
        &self,
        name: &[u8],
        patience: Duration,
    ) -> Result<Result<Option<(String, u32)>, Unanswered>, Failure> {
        let failure = |error: Error| match error {
            Error::AtWork { .. } => Failure::unanswered(error.to_string()),
            _ => Failure::Unreachable(error.to_string()),
        };
        let asked = async {
            tokio::select! {
                found = self.ldap.whose(name) => found,
                () = self.leave_who_is_silent(patience) => self.ldap.whose(name).await,
            }
        };
        let found = self.wait(None, patience, asked).await.map_err(failure)?;
        let Err(Unanswered::Unreachable(reason)) = found else { return Ok(found) };
        if timeout(patience / 2, self.knock(None)).await != Ok(true) {
            return Err(Failure::Unreachable(reason));
        }
        let again = async {
            self.ldap.connect_again().await;
            self.ldap.whose(name).await
        };
        self.wait(None, patience, again).await.map_err(failure)
    }

    /// Has the look-ups leave their server when that is silent, and another is not. Over when they have.
    async fn leave_who_is_silent(&self, patience: Duration) {
        sleep(KNOCK_AFTER.min(patience / 2)).await;
        if let Some(open) = self.ldap.link.present() {
            let all = self.ldap.servers.list().await;
            let its = all.into_iter().find(|one| describe(&one.server) == *open.server);
            if let Some(Candidate { server, .. }) = its
                && timeout(patience / 2, self.knock(Some(&server))).await != Ok(true)
                && timeout(patience / 2, self.knock(None)).await == Ok(true)
            {
                self.set_back(&server);
                self.ldap.link.leave_silent(&open).await;
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// The server is of no use at the moment, nor are connections to it.
    fn set_back(&self, server: &Server) {
        self.setbacks.note(&describe(server), Instant::now());
        lock(&self.idle).retain(|idle| idle.server != *server);
    }

    /// Binds at one server after the other, until one answers.
    async fn bind_anywhere(
        self: &Arc<Self>,
        dn: &str,
        password: &Secret,
        patience: Duration,
    ) -> Result<(Warm, Said), Failure> {
        let mut reasons: Vec<String> = Vec::new();
        let mut passed_over: Vec<Server> = Vec::new();
        let mut is_there = false;
        for _ in 0..SERVERS_MAX + IDLE_MAX {
            let kept = self.take_idle(&passed_over);
            let was_kept = kept.is_some();
            let mut warm = match kept {
                Some(warm) => warm,
                None if passed_over.len() >= SERVERS_MAX => break,
                None => match self.connect(&passed_over, patience).await {
                    Ok(warm) => warm,
                    Err(reason) => {
                        reasons.extend(reason);
                        break;
                    }
                },
            };
            if !self.allow_clear && !self.settings.is_private(&warm.server) {
                let reason = "users' passwords would cross the network in clear: use ldaps:// or start_tls, or \
                              allow it with allow_clear_user_passwords = true";
                return Err(Failure::Decided(Answer::because(Verdict::Misconfigured, reason)));
            }
            let request = Request::SimpleBind { dn, password: password.as_bytes() };
            match self.ask(&mut warm, &request, patience).await {
                Ok(Said::NotNow(reason)) => {
                    reasons.push(format!("{}: {reason}", describe(&warm.server)));
                    passed_over.push(warm.server);
                    is_there = true;
                }
                Ok(said) => return Ok((warm, said)),
                Err(error) if was_kept && is_of_an_old_connection(&error) => {}
                Err(error) => {
                    reasons.push(format!("{}: {error}", describe(&warm.server)));
                    let answers = match error {
                        Error::AtWork { .. } => true,
                        Error::Silent { .. } => false,
                        // It has ended the connection over this bind, perhaps.
                        _ => {
                            timeout(patience / 2, self.knock(Some(&warm.server))).await == Ok(true)
                        }
                    };
                    is_there |= answers;
                    if !answers {
                        self.set_back(&warm.server);
                    }
                    passed_over.push(warm.server);
                }
            }
        }
        let reason = reasons.join("; ");
        Err(if is_there { Failure::unanswered(reason) } else { Failure::Unreachable(reason) })
    }

    /// Asks over one connection, and reads what the answer means.
    async fn ask(
        &self,
        warm: &mut Warm,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<Said, Error> {
        let Warm { connection, server, used } = warm;
        let asked = async {
            let response = connection.exchange(request, &[Control::PasswordPolicy]).await?;
            let policy = response.controls.password_policy()?;
            verdict::of(request, response.operation, policy)
                .ok_or(Malformed("another answer than that to the request").into())
        };
        let said = self.wait(Some(server), patience, asked).await?;
        *used = Instant::now();
        if said.is_ok() {
            self.setbacks.forget(&describe(server));
        }
        said
    }

    /// Waits for what a server does as long as it shows that it is there, and no longer than the configuration
    /// has it. Of no server in particular any will do. [`Error::Silent`] when it does not answer a knock,
    /// [`Error::AtWork`] when it does and the time is over.
    async fn wait<T>(
        &self,
        server: Option<&Server>,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let deadline = self.timeout;
        let what = "a log-in";
        let has_answered = AtomicBool::new(false);
        let waited = async {
            let mut work = pin!(work);
            let mut pause = KNOCK_AFTER.min(patience / 2);
            loop {
                tokio::select! {
                    done = &mut work => return Ok(done),
                    () = sleep(pause) => {}
                }
                let knock = timeout(patience / 2, self.knock(server));
                tokio::select! {
                    done = &mut work => return Ok(done),
                    answered = knock => {
                        if answered != Ok(true) {
                            return Err(Error::Silent { what, deadline: patience });
                        }
                    }
                }
                has_answered.store(true, Relaxed);
                // It is at work: there is no need to ask so often.
                pause = (pause * 2).max(Duration::from_millis(100));
            }
        };
        match timeout(deadline, waited).await {
            Ok(waited) => waited,
            Err(_) if has_answered.load(Relaxed) => Err(Error::AtWork { what, deadline }),
            Err(_) => Err(Error::Silent { what, deadline }),
        }
    }

    /// Whether a server says anything over a connection of its own, which is then kept for the next. Of no server
    /// in particular all are asked at once, until one answers.
    async fn knock(&self, server: Option<&Server>) -> bool {
        let servers = match server {
            Some(server) => vec![server.clone()],
            None => self.candidates(&[]).await.into_iter().map(|one| one.server).collect(),
        };
        let mut knocks = JoinSet::new();
        for server in servers {
            let settings = Arc::clone(&self.settings);
            knocks.spawn(async move {
                let mut connection = Connection::reach(&server, &settings).await.ok()?;
                let used = Instant::now();
                connection.is_answered().await.then_some(Warm { connection, server, used })
            });
        }
        while let Some(knock) = knocks.join_next().await {
            if let Ok(Some(warm)) = knock {
                self.keep(warm);
                return true;
            }
        }
        false
    }

    /// The servers to try, those that failed lately after the others.
    async fn candidates(&self, passed_over: &[Server]) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = self.ldap.servers.list().await;
        candidates.retain(|one| !passed_over.contains(&one.server));
        let now = Instant::now();
        candidates.sort_by_key(|one| !self.setbacks.is_over(&describe(&one.server), now));
        candidates.truncate(SERVERS_MAX);
        candidates
    }

    /// Connects to a server that is not among those passed over: to the first that takes us, where one that
    /// says nothing holds up the others for a moment only.
    async fn connect(
        &self,
        passed_over: &[Server],
        patience: Duration,
    ) -> Result<Warm, Vec<String>> {
        let candidates = self.candidates(passed_over).await;
        let setbacks = &self.setbacks;
        if candidates.is_empty() {
            let none = || self.ldap.servers.why_none();
            return Err(if passed_over.is_empty() { vec![none()] } else { Vec::new() });
        }
        let mut rest = candidates.into_iter().peekable();
        let mut reasons = Vec::new();
        let race = async {
            let mut tries = JoinSet::new();
            loop {
                if let Some(Candidate { server, .. }) = rest.next() {
                    let settings = Arc::clone(&self.settings);
                    tries.spawn(async move {
                        let connection = Connection::reach(&server, &settings).await;
                        (server, connection)
                    });
                }
                let is_last = rest.peek().is_none();
                tokio::select! {
                    tried = tries.join_next() => match tried {
                        Some(Ok((server, Ok(connection)))) => {
                            return Some(Warm { connection, server, used: Instant::now() });
                        }
                        Some(Ok((server, Err(error)))) => {
                            let server = describe(&server);
                            setbacks.note(&server, Instant::now());
                            reasons.push(format!("{server}: {error}"));
                        }
                        Some(Err(_)) => {}
                        None if is_last => return None,
                        None => {}
                    },
                    () = sleep(STAGGER), if !is_last => {}
                }
            }
        };
        match timeout(patience, race).await {
            Ok(Some(warm)) => Ok(warm),
            Ok(None) => Err(reasons),
            Err(_) => {
                reasons.push(format!("no server answers within {} s", patience.as_secs_f32()));
                Err(reasons)
            }
        }
    }

    /// Does what is done for somebody with a wrong password, for somebody whom there is not. Whether a server
    /// was there.
    async fn bind_as_nobody(self: &Arc<Self>) -> bool {
        const NOBODY: &[u8] = b"roster-nobody-at-all";
        if lock(&self.away).is_some() {
            return false;
        }
        let Some(password) = Secret::copy_of(NOBODY) else { return true };
        let base = &self.ldap.config.users.base;
        let dn = format!("cn={},{base}", String::from_utf8_lossy(NOBODY));
        let bound = async {
            // That nobody has the name is known.
            let _ = self.look(NOBODY, self.timeout).await?;
            self.bind_anywhere(&dn, &password, self.timeout).await
        };
        match bound.await {
            Ok((warm, _)) => {
                self.keep(warm);
                true
            }
            Err(failure) => {
                self.note_failure(&failure);
                matches!(failure, Failure::Decided(_))
            }
        }
    }

    /// A connection that has nothing to do, the one used last.
    fn take_idle(&self, passed_over: &[Server]) -> Option<Warm> {
        let now = Instant::now();
        let mut idle = lock(&self.idle);
        idle.retain(|warm| now.duration_since(warm.used) < IDLE_LIFE);
        let place = idle.iter().rposition(|warm| !passed_over.contains(&warm.server))?;
        Some(idle.remove(place))
    }

    fn keep(&self, warm: Warm) {
        let mut idle = lock(&self.idle);
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(warm);
    }

    fn remember(self: &Arc<Self>, person: &Person, password: &Secret, dn: String, warm: Warm) {
        let Some(password) = Secret::copy_of(password.as_bytes()) else { return self.keep(warm) };
        let until = Instant::now() + PROVEN_LIFE;
        self.put_proven(Proven { person: person.clone(), password, dn, warm, until });
        // The password does not stay for longer than that even if nobody asks again.
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep_until(until).await;
            if let Some(inner) = inner.upgrade() {
                inner.forget_proven();
            }
        });
    }

    fn forget_proven(&self) {
        let now = Instant::now();
        lock(&self.proven).retain(|proven| now < proven.until);
    }

    fn put_proven(&self, proven: Proven) {
        let mut all = lock(&self.proven);
        all.retain(|other| other.person != proven.person);
        if all.len() >= PROVEN_MAX {
            all.remove(0);
        }
        all.push(proven);
    }

    fn take_proven(&self, person: &Person, password: &Secret) -> Option<Proven> {
        self.forget_proven();
        let mut all = lock(&self.proven);
        let is_it =
            |one: &Proven| one.person == *person && one.password.equals(password.as_bytes());
        let place = all.iter().position(is_it)?;
        Some(all.remove(place))
    }

    /// No server is there: from now on everybody is told at once, until one answers a knock.
    fn is_gone(self: &Arc<Self>, reason: &str) {
        let mut away = lock(&self.away);
        if away.is_none() {
            tracing::warn!("nobody can be asked about passwords: {reason}");
            lock(&self.idle).clear();
            tokio::spawn(knock_until_answered(Arc::downgrade(self)));
        }
        *away = Some(reason.to_owned());
    }
}

async fn knock_until_answered(inner: Weak<Inner>) {
    let mut silent = 0;
    loop {
        sleep(if silent < EAGER_KNOCKS { KNOCK_PAUSE } else { KNOCK_PAUSE_MAX }).await;
        let Some(inner) = inner.upgrade() else { return };
        let begun = Instant::now();
        if timeout(inner.timeout, inner.knock(None)).await == Ok(true) {
            *lock(&inner.away) = None;
            tracing::info!("passwords can be asked about again");
            return;
        }
        silent += u32::from(begun.elapsed() > AT_ONCE);
    }
}
