//! Whether a user may in: what the domain's rules and the account itself say, whoever authenticated
//! them.
//!
//! Brings what a decision is about together, out of the cache and, where the rules have a filter, from the
//! directory; the decision itself is `roster_provider::access`.

use super::asking::Asking;
use super::offline::Offline;
use super::people::{self, People, Untold};
use roster_bus::interfaces::{Explained, LogIn, RuleSaid, Trace};
use roster_config::{Access as Rules, Mode};
use roster_provider::access::{self, Decision, Facts, Matched, Membership, decide};
use roster_provider::account::{Account, Fact};
use roster_provider::log_in::Answer;
use roster_provider::{LookUp, Provider, Unanswered, ssh_keys};
use roster_wire::pam::Verdict;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the directory may take to say whether a filter finds somebody, or who is in which group,
/// before what it said before counts.
const ASK_WITHIN: Duration = Duration::from_millis(1500);
/// The service that ssh keys are for.
const SSHD: &str = "sshd";
/// What is asked of our own accord.
const NOBODYS: Trace = Trace { request: 0, call: 0 };

type Promised<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is asked of the directory for a decision.
pub trait Directory: Send + Sync {
    /// Brings what is known of a user and of groups up to date, where that is not mirrored.
    fn bring<'a>(&'a self, user: &'a [u8], groups: &'a [String]) -> Promised<'a, ()>;
    /// Whether a filter finds a user.
    fn matches<'a>(
        &'a self,
        user: &'a [u8],
        uid: u32,
        filter: &'a str,
    ) -> Promised<'a, Result<bool, Unanswered>>;
}

/// Of a domain, by the provider that it has.
pub struct Asked<P> {
    asking: Arc<Asking<P>>,
    provider: Arc<P>,
    mode: Mode,
}

impl<P> Asked<P> {
    pub fn new(asking: Arc<Asking<P>>, provider: Arc<P>, mode: Mode) -> Self {
        Self { asking, provider, mode }
    }
}

impl<P: Provider + 'static> Directory for Asked<P> {
    fn bring<'a>(&'a self, user: &'a [u8], groups: &'a [String]) -> Promised<'a, ()> {
        Box::pin(async move {
            if self.mode == Mode::Replicate {
                return;
            }
            let of_user = LookUp::GroupsOf(user.to_vec());
            let named = groups.iter().map(|name| LookUp::GroupByName(name.clone().into_bytes()));
            let named: Vec<LookUp> = named.collect();
            // What cannot be asked now is known from before, or it is not.
            let _ = self.asking.look_up(NOBODYS, &of_user).await;
            if !named.is_empty() {
                let _ = self.asking.look_up_all(NOBODYS, &named).await;
            }
        })
    }

    fn matches<'a>(
        &'a self,
        user: &'a [u8],
        uid: u32,
        filter: &'a str,
    ) -> Promised<'a, Result<bool, Unanswered>> {
        Box::pin(self.provider.matches(user, uid, filter))
    }
}

/// Who decides whether a user may in.
pub enum Access {
    /// The rules of a domain.
    Ruled(Box<Ruled>),
    /// Somebody else: a domain whose users do not log in by us.
    Elsewhere,
    /// Everybody may.
    #[cfg(test)]
    Open,
}

impl Access {
    /// Whether the user may in by that service now.
    pub async fn decide(&self, who: &LogIn) -> Answer {
        match self {
            Self::Ruled(ruled) => ruled.decide(who).await,
            Self::Elsewhere => Answer::of(Verdict::NotOurs),
            #[cfg(test)]
            Self::Open => Answer::of(Verdict::Success),
        }
    }

    /// The decision rule by rule, for people.
    pub async fn explain(&self, who: &LogIn) -> Explained {
        match self {
            Self::Ruled(ruled) => ruled.explain(who).await,
            _ => unruled(),
        }
    }

    /// The user's keys for sshd, each a line. None of who may not in by sshd, unless the rules say otherwise.
    pub async fn ssh_keys(&self, who: &LogIn) -> Result<Vec<String>, Answer> {
        match self {
            Self::Ruled(ruled) => ruled.ssh_keys(who).await,
            _ => Err(Answer::of(Verdict::NotOurs)),
        }
    }
}

/// Where nobody logs in by us.
fn unruled() -> Explained {
    let verdict = "not decided here".to_owned();
    let saw = "the domain has neither auth nor a table access: who may in is for others to say";
    let rule = RuleSaid { rule: "auth".to_owned(), verdict: verdict.clone(), saw: saw.to_owned() };
    Explained { verdict, lets_in: false, rules: vec![rule], messages: Vec::new() }
}

/// The rules of a domain, and what they are asked about.
pub struct Ruled {
    judge: Arc<Judge>,
    groups: Vec<String>,
    directory: Arc<dyn Directory>,
    offline: Arc<Offline>,
}

impl Ruled {
    /// The rules of a domain.
    #[must_use]
    pub fn new(
        rules: Rules,
        people: Arc<People>,
        directory: Arc<dyn Directory>,
        offline: Arc<Offline>,
    ) -> Self {
        let mut groups: Vec<String> = rules.groups().map(ToOwned::to_owned).collect();
        groups.sort_unstable();
        groups.dedup();
        Self { judge: Arc::new(Judge { rules, people }), groups, directory, offline }
    }

    /// Whether the user may in by that service now.
    async fn decide(&self, who: &LogIn) -> Answer {
        match self.decided(who).await {
            Ok((decision, _)) => answer(&decision),
            Err(untold) => refusal(&untold),
        }
    }

    /// The decision rule by rule, for people.
    async fn explain(&self, who: &LogIn) -> Explained {
        match self.decided(who).await {
            Ok((decision, _)) => Explained {
                verdict: decision.verdict.name().to_owned(),
                lets_in: decision.verdict.lets_in(),
                rules: decision.rules.into_iter().map(said).collect(),
                messages: decision.messages,
            },
            Err(untold) => Explained {
                verdict: access::Verdict::Unknown.name().to_owned(),
                lets_in: false,
                rules: vec![RuleSaid {
                    rule: "user".to_owned(),
                    verdict: access::Verdict::Unknown.name().to_owned(),
                    saw: untold.to_string(),
                }],
                messages: Vec::new(),
            },
        }
    }

    /// The user's keys for sshd, each a line. None of who may not in by sshd, unless the rules say otherwise.
    async fn ssh_keys(&self, who: &LogIn) -> Result<Vec<String>, Answer> {
        let who = LogIn { service: SSHD.to_owned(), ..who.clone() };
        let decided = self.decided(&who).await;
        let (decision, account) = decided.map_err(|untold| refusal(&untold))?;
        let rules = &self.judge.rules;
        if !decision.verdict.lets_in() && !rules.ssh_keys_of_denied {
            return Err(answer(&decision));
        }
        let account = account.as_deref().and_then(Account::read).unwrap_or_default();
        let mut told = Vec::new();
        for (place, key) in account.of(Fact::SshKey).enumerate() {
            match ssh_keys::line(key, &rules.ssh_key_options) {
                Ok(line) => told.push(line.to_string()),
                Err(why) => {
                    let (user, number) = (who.user.escape_ascii(), place + 1);
                    tracing::warn!(%user, "key {number} of the user is left out: {why}");
                }
            }
        }
        Ok(told)
    }

    async fn decided(&self, who: &LogIn) -> Result<Decided, Untold> {
        let _ = timeout(ASK_WITHIN, self.directory.bring(&who.user, &self.groups)).await;
        let matched = self.matched(who).await;
        let now = Now { unix: self.offline.now_unix(), is_away: !self.offline.answers() };
        if self.judge.people.is_at_hand(&self.groups) {
            return self.judge.decide(who, now, &matched);
        }
        let (judge, who, groups) = (Arc::clone(&self.judge), who.clone(), self.groups.clone());
        let decided = spawn_blocking(move || {
            judge.people.prepare(&groups);
            judge.decide(&who, now, &matched)
        });
        let decided = decided.await;
        decided.unwrap_or(Err(Untold::Ending))
    }

    async fn matched(&self, who: &LogIn) -> Matched {
        let Some(filter) = &self.judge.rules.filter else { return Matched::Unknown(String::new()) };
        let asked = self.directory.matches(&who.user, who.uid, filter);
        match timeout(ASK_WITHIN, asked).await {
            Ok(Ok(matched)) => {
                self.offline.matched(&who.user, who.uid, filter, matched);
                Matched::Now(matched)
            }
            Ok(Err(why)) => {
                self.offline.matched_before(&who.user, who.uid, filter, &why.to_string())
            }
            Err(_) => self.offline.matched_before(&who.user, who.uid, filter, "no answer in time"),
        }
    }
}

/// The rules, and who they are about.
struct Judge {
    rules: Rules,
    people: Arc<People>,
}

/// A decision, and the account that it is about.
type Decided = (Decision, Option<Vec<u8>>);

/// When a decision is made.
#[derive(Clone, Copy)]
struct Now {
    unix: u64,
    /// Whether the directory does not answer.
    is_away: bool,
}

impl Judge {
    fn decide(&self, who: &LogIn, now: Now, matched: &Matched) -> Result<Decided, Untold> {
        let person = self.person(who, now)?;
        let bytes = match &person {
            Some(person) => self.people.account(person)?,
            None => None,
        };
        let account = bytes.as_deref().and_then(Account::read);
        let name = String::from_utf8_lossy(&who.user);
        let facts = Facts {
            name: &name,
            service: &who.service,
            now_unix: now.unix,
            account: account.as_ref(),
            membership: &|group| match &person {
                Some(person) => self.people.membership(person, group),
                None => Membership::Unknown,
            },
            matched,
        };
        let decision = decide(&self.rules, &facts);
        Ok((decision, bytes))
    }

    /// The user; none while the directory is away and nothing is known of its users, as after the cache was
    /// lost. The publisher has just said that the domain serves that name and uid. What a rule needs to know
    /// besides is not known then.
    fn person(&self, who: &LogIn, now: Now) -> Result<Option<people::Person>, Untold> {
        match self.people.find(&who.user, who.uid) {
            Ok(person) => Ok(Some(person)),
            Err(untold) => {
                let is_known = self.people.has(&who.user, who.uid).is_some();
                if now.is_away && !is_known { Ok(None) } else { Err(untold) }
            }
        }
    }
}

fn said(rule: access::Rule) -> RuleSaid {
    RuleSaid { rule: rule.name, verdict: rule.verdict.name().to_owned(), saw: rule.saw }
}

fn answer(decision: &Decision) -> Answer {
    let verdict = match decision.verdict {
        access::Verdict::Allowed => Verdict::Success,
        access::Verdict::MustChange => Verdict::MustChange,
        access::Verdict::Unknown => Verdict::Unreachable,
        access::Verdict::Denied => Verdict::Denied,
        access::Verdict::Locked => Verdict::Locked,
        access::Verdict::PasswordExpired => Verdict::PasswordExpired,
        access::Verdict::Expired => Verdict::AccountExpired,
        access::Verdict::Disabled => Verdict::Disabled,
    };
    let reason = decision.reason();
    let reason = reason.map_or(String::new(), |rule| format!("{}: {}", rule.name, rule.saw));
    let messages = decision.messages.iter();
    messages.fold(Answer::because(verdict, reason), |answer, text| answer.telling(false, text))
}

fn refusal(untold: &Untold) -> Answer {
    let verdict = match untold {
        Untold::Nobody => Verdict::UnknownUser,
        Untold::Several => Verdict::Misconfigured,
        Untold::NoView(_) | Untold::Image(_) | Untold::Ending => Verdict::Unreachable,
    };
    Answer::because(verdict, untold.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::engine::Engine;
    use crate::backend::tests::{USERS, engine, named, refresh, uid_of, user};
    use roster_config::{AccountCheck, Lists};
    use roster_provider::Sink as _;

    /// A directory that says nothing.
    struct Silent;

    impl Directory for Silent {
        fn bring<'a>(&'a self, _: &'a [u8], _: &'a [String]) -> Promised<'a, ()> {
            Box::pin(async {})
        }

        fn matches<'a>(
            &'a self,
            _: &'a [u8],
            _: u32,
            _: &'a str,
        ) -> Promised<'a, Result<bool, Unanswered>> {
            Box::pin(async { Err(Unanswered::Unreachable("no server answers".into())) })
        }
    }

    /// What rules say of alice.
    async fn verdict(engine: &Arc<Engine>, mode: Mode, rules: Rules) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        let people = Arc::new(People::new(Arc::clone(engine), mode, true));
        let offline = Offline::open(folder.path(), None, Arc::clone(&people), Some(engine.news()));
        let ruled = Ruled::new(rules, people, Arc::new(Silent), Arc::new(offline));
        let who = LogIn { user: b"alice".to_vec(), uid: uid_of("alice"), ..LogIn::default() };
        ruled.decide(&who).await.verdict
    }

    fn listed(lists: Lists) -> Rules {
        Rules { lists, ..Rules::default() }
    }

    fn names(name: &str) -> Option<Vec<String>> {
        Some(vec![name.to_owned()])
    }

    /// As after the cache was lost: the name is known, and nothing else.
    #[tokio::test]
    async fn access_unknown_facts_deny() {
        for mode in [Mode::Replicate, Mode::OnDemand] {
            let engine = engine(mode);
            let none = Lists::default;
            for (rules, wanted) in [
                (Rules::default(), Verdict::Success),
                (listed(Lists { allowed_users: names("alice"), ..none() }), Verdict::Success),
                (listed(Lists { denied_users: names("bob"), ..none() }), Verdict::Success),
                (listed(Lists { denied_users: names("alice"), ..none() }), Verdict::Denied),
                (listed(Lists { allowed_users: names("bob"), ..none() }), Verdict::Denied),
                (listed(Lists { allowed_groups: names("staff"), ..none() }), Verdict::Unreachable),
                (
                    listed(Lists { denied_groups: names("suspended"), ..none() }),
                    Verdict::Unreachable,
                ),
                (Rules { filter: Some("(a=b)".into()), ..Rules::default() }, Verdict::Unreachable),
                (
                    Rules { account_checks: AccountCheck::ALL.to_vec(), ..Rules::default() },
                    Verdict::Unreachable,
                ),
            ] {
                let said = verdict(&engine, mode, rules.clone()).await;
                assert_eq!(said, wanted, "{mode:?} {rules:?}");
            }
            // A directory that answers will tell.
            engine.online("ldap://server", "");
            assert_ne!(verdict(&engine, mode, Rules::default()).await, Verdict::Success);
        }
    }

    #[tokio::test]
    async fn access_user_known_to_be_gone_is_denied() {
        let mirrored = engine(Mode::Replicate);
        refresh(&mirrored, &["bob"], &[], "1");
        let said = verdict(&mirrored, Mode::Replicate, Rules::default()).await;
        assert_eq!(said, Verdict::UnknownUser);
        let asked = engine(Mode::OnDemand);
        asked.put(USERS, named("alice"), user("alice", 1));
        asked.flush();
        let said = verdict(&asked, Mode::OnDemand, Rules::default()).await;
        assert_eq!(said, Verdict::UnknownUser, "she has another uid");
    }
}
