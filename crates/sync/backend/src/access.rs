// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a user may log in, by the domain's rules and the state of the account, independent of the
//! authentication.
//!
//! Collects the facts of a decision from the cache and, for rules with a filter, from the directory. The decision
//! itself is in `roster_provider::access`.

use super::offline_auth::{AccessFilter, OfflineAuth};
use super::on_demand_fetch::OnDemandFetcher;
use super::user_index::{self, UserIndex, UserLookupError};
use parking_lot::Mutex;
use roster_bus::interfaces::{
    AccessExplanation, LoginRequest, NOT_DECIDED, RuleExplanation, TraceContext,
};
use roster_config::{AccessConfig as Rules, AccountCheck, DomainMode, filter_template};
use roster_messages::{RequestNumber, log, table::login};
use roster_provider::access::{
    self, AccessEvaluation, AccessFacts, FilterOutcome, ListKind, Membership, decide,
};
use roster_provider::account::{Account, AccountFact};
use roster_provider::authenticator::AuthOutcome;
use roster_provider::reason::Reason;
use roster_provider::{LookupError, LookupQuery, Provider, ssh_keys};
use roster_request::AuthResult;
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::trace;

/// Time limit of a directory search for a filter or for group members. After it the earlier result counts.
const DIRECTORY_WAIT: Duration = Duration::from_millis(1500);
/// The service of ssh keys.
const SSHD_SERVICE: &str = "sshd";
/// Limit of the password changes that are remembered.
const PASSWORD_CHANGES_MAX: usize = 4096;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Directory queries of a decision.
pub trait AccessDirectory: Send + Sync {
    /// Refreshes a user and groups, unless the domain is mirrored.
    fn refresh_entries<'a>(&'a self, user: &'a [u8], groups: &'a [String]) -> BoxFuture<'a, ()>;
    /// Whether a filter matches a user.
    fn matches_filter<'a>(
        &'a self,
        user: &'a [u8],
        uid: u32,
        filter: &'a str,
    ) -> BoxFuture<'a, Result<bool, LookupError>>;
}

/// Directory queries of a domain, with its provider.
pub struct ProviderDirectory<P> {
    fetcher: Arc<OnDemandFetcher<P>>,
    provider: Arc<P>,
    mode: DomainMode,
    /// The last query for the groups of the rules by name. A query for a user's groups reports groups as well, but not
    /// other groups of their names.
    groups_queried: Mutex<Option<Instant>>,
}

impl<P> ProviderDirectory<P> {
    pub fn new(asking: Arc<OnDemandFetcher<P>>, provider: Arc<P>, mode: DomainMode) -> Self {
        Self { fetcher: asking, provider, mode, groups_queried: Mutex::default() }
    }
}

impl<P: Provider + 'static> ProviderDirectory<P> {
    /// Refreshes the groups of the rules, each with all groups of its name.
    async fn refresh_groups(&self, trace: TraceContext, groups: &[LookupQuery]) {
        let now = Instant::now();
        let lifetime = self.fetcher.reply_lifetime();
        let last = *self.groups_queried.lock();
        // A failed query leaves the earlier result, if there is one.
        if last.is_some_and(|last| now.duration_since(last) < lifetime) {
            let _ = self.fetcher.lookup_all(trace, groups).await;
        } else if self.fetcher.query_all(trace, groups).await.is_ok() {
            *self.groups_queried.lock() = Some(now);
        }
    }
}

impl<P: Provider + 'static> AccessDirectory for ProviderDirectory<P> {
    fn refresh_entries<'a>(&'a self, user: &'a [u8], groups: &'a [String]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.mode == DomainMode::Replicate {
                return;
            }
            let of_user = LookupQuery::GroupsOf(user.to_vec());
            let named =
                groups.iter().map(|name| LookupQuery::GroupByName(name.clone().into_bytes()));
            let named: Vec<LookupQuery> = named.collect();
            // A failed query leaves the earlier result, if there is one.
            let trace = TraceContext { request: RequestNumber::current().0, call: 0 };
            let _ = self.fetcher.lookup(trace, &of_user).await;
            if !named.is_empty() {
                self.refresh_groups(trace, &named).await;
            }
        })
    }

    fn matches_filter<'a>(
        &'a self,
        user: &'a [u8],
        uid: u32,
        filter: &'a str,
    ) -> BoxFuture<'a, Result<bool, LookupError>> {
        Box::pin(self.provider.matches_filter(user, uid, filter))
    }
}

/// The access decision of a domain.
pub enum AccessControl {
    /// The rules of a domain.
    Rules(Box<RuleAccess>),
    /// Roster does not decide: the domain has no logins through Roster.
    Elsewhere,
    /// Allows all users.
    #[cfg(test)]
    Open,
}

impl AccessControl {
    /// Whether the user may log in through that service now.
    pub async fn decide(&self, who: &LoginRequest) -> AuthOutcome {
        match self {
            Self::Rules(ruled) => ruled.decide(who).await,
            Self::Elsewhere => AuthOutcome::from_result(AuthResult::NotHandled),
            #[cfg(test)]
            Self::Open => AuthOutcome::from_result(AuthResult::Success),
        }
    }

    /// Records that the user has changed the password.
    pub async fn note_password_change(&self, who: &LoginRequest) {
        match self {
            Self::Rules(ruled) => ruled.note_password_change(who).await,
            Self::Elsewhere => {}
            #[cfg(test)]
            Self::Open => {}
        }
    }

    /// Returns the decision rule by rule, for people.
    pub async fn explain(&self, who: &LoginRequest) -> AccessExplanation {
        match self {
            Self::Rules(ruled) => ruled.explain(who).await,
            _ => explain_elsewhere(),
        }
    }

    /// Returns the user's ssh keys, one a line. The list is empty for a user without access through sshd, unless the
    /// rules state otherwise.
    pub async fn ssh_keys(&self, who: &LoginRequest) -> Result<Vec<String>, AuthOutcome> {
        match self {
            Self::Rules(ruled) => ruled.ssh_keys(who).await,
            _ => Err(AuthOutcome::from_result(AuthResult::NotHandled)),
        }
    }
}

/// Explanation for a domain without logins through Roster.
fn explain_elsewhere() -> AccessExplanation {
    let verdict = NOT_DECIDED.to_owned();
    let saw = "the domain has neither auth nor a table access; other PAM modules decide";
    let rule =
        RuleExplanation { rule: "auth".to_owned(), verdict: verdict.clone(), saw: saw.to_owned() };
    AccessExplanation { verdict, lets_in: false, rules: vec![rule], messages: Vec::new() }
}

/// The rules of a domain, and their sources of facts.
pub struct RuleAccess {
    evaluator: Arc<AccessEvaluator>,
    groups: Vec<String>,
    directory: Arc<dyn AccessDirectory>,
    offline: Arc<OfflineAuth>,
    password_changes: Mutex<HashMap<(Vec<u8>, u32), PasswordChange>>,
}

/// A change of a password by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PasswordChange {
    /// The day of the last change that the account data had then. The change counts until they have another value.
    seen: Option<Vec<u8>>,
    /// The day of the change.
    day: i64,
}

impl RuleAccess {
    /// Makes an access check with the rules of a domain. `host_names` are the names of this host, if a rule needs them.
    #[must_use]
    pub fn new(
        rules: Rules,
        host_names: Vec<String>,
        people: Arc<UserIndex>,
        directory: Arc<dyn AccessDirectory>,
        offline: Arc<OfflineAuth>,
    ) -> Self {
        let mut groups: Vec<String> = rules.groups().map(ToOwned::to_owned).collect();
        groups.sort_unstable();
        groups.dedup();
        Self {
            evaluator: Arc::new(AccessEvaluator { rules, host_names, users: people }),
            groups,
            directory,
            offline,
            password_changes: Mutex::default(),
        }
    }

    /// Records that the user has changed the password. The directory may not have the day yet, or may refuse it. The
    /// user would then be asked for a change again.
    async fn note_password_change(&self, who: &LoginRequest) {
        if !self.evaluator.rules.account_checks.contains(&AccountCheck::PasswordAge) {
            return;
        }
        let (evaluator, asked) = (Arc::clone(&self.evaluator), who.clone());
        let seen = spawn_blocking(move || evaluator.change_day(&asked)).await;
        let Ok(Ok(seen)) = seen else { return };
        let day = access::today(self.offline.now_unix());
        let mut changes = self.password_changes.lock();
        if changes.len() >= PASSWORD_CHANGES_MAX {
            let oldest = changes.iter().min_by_key(|(_, change)| change.day);
            if let Some(oldest) = oldest.map(|(user, _)| user.clone()) {
                changes.remove(&oldest);
            }
        }
        changes.insert((who.user.clone(), who.uid), PasswordChange { seen, day });
    }

    /// Whether the user may log in through that service now.
    async fn decide(&self, who: &LoginRequest) -> AuthOutcome {
        match self.decide_by_rules(who).await {
            Ok((decision, _)) => decision_reply(&decision),
            Err(untold) => error_reply(&untold),
        }
    }

    /// Returns the decision rule by rule, for people.
    async fn explain(&self, who: &LoginRequest) -> AccessExplanation {
        match self.decide_by_rules(who).await {
            Ok((decision, _)) => AccessExplanation {
                verdict: decision.decision.name().to_owned(),
                lets_in: decision.decision.is_allowed(),
                rules: decision.rules.into_iter().map(rule_report).collect(),
                messages: decision.messages,
            },
            Err(untold) => AccessExplanation {
                verdict: access::AccessDecision::Unknown.name().to_owned(),
                lets_in: false,
                rules: vec![RuleExplanation {
                    rule: "user".to_owned(),
                    verdict: access::AccessDecision::Unknown.name().to_owned(),
                    saw: untold.to_string(),
                }],
                messages: Vec::new(),
            },
        }
    }

    /// Returns the user's ssh keys, one a line. The list is empty for a user without access through sshd, unless the
    /// rules state otherwise.
    async fn ssh_keys(&self, who: &LoginRequest) -> Result<Vec<String>, AuthOutcome> {
        let who = LoginRequest { service: SSHD_SERVICE.to_owned(), ..who.clone() };
        let decided = self.decide_by_rules(&who).await;
        let (decision, account) = decided.map_err(|untold| error_reply(&untold))?;
        let rules = &self.evaluator.rules;
        if !decision.decision.is_allowed() && !rules.ssh_keys_of_denied {
            return Err(decision_reply(&decision));
        }
        let account = account.as_deref().and_then(Account::from_bytes).unwrap_or_default();
        let mut told = Vec::new();
        for (place, key) in account.values_of(AccountFact::SshKey).enumerate() {
            match ssh_keys::parse_line(key, &rules.ssh_key_options) {
                Ok(line) => told.push(line.to_string()),
                Err(why) => {
                    let (user, number) = (who.user.escape_ascii(), place + 1);
                    log!(WARN, why.message(), %user, "ssh key {number} of the user skipped: {why}");
                }
            }
        }
        Ok(told)
    }

    async fn decide_by_rules(
        &self,
        who: &LoginRequest,
    ) -> Result<AccountDecision, UserLookupError> {
        let groups = self.groups_for(who);
        let _ = timeout(DIRECTORY_WAIT, self.directory.refresh_entries(&who.user, &groups)).await;
        let (filter, filter_outcome) = self.match_filter(who).await;
        let circumstances = Circumstances {
            now_unix: self.offline.now_unix(),
            is_away: !self.offline.is_directory_online(),
            filter,
            filter_outcome,
            password_change: self
                .password_changes
                .lock()
                .get(&(who.user.clone(), who.uid))
                .cloned(),
        };
        if self.evaluator.users.is_ready(&groups) {
            return self.evaluator.decide(who, &circumstances);
        }
        let (judge, who, groups) = (Arc::clone(&self.evaluator), who.clone(), groups.into_owned());
        let number = RequestNumber::current();
        let decided = spawn_blocking(move || {
            let _entered = number.enter();
            judge.users.prepare(&groups);
            judge.decide(&who, &circumstances)
        });
        let decided = decided.await;
        decided.unwrap_or(Err(UserLookupError::Ending))
    }

    /// Returns the groups of the rules, by their names in the rules and in the directory.
    fn groups_for(&self, who: &LoginRequest) -> Cow<'_, [String]> {
        let natives = who.rule_groups.iter().map(|(_, native)| native);
        let natives: Vec<_> = natives.filter(|native| !native.is_empty()).cloned().collect();
        match natives.is_empty() {
            true => Cow::Borrowed(&self.groups),
            false => Cow::Owned([&self.groups[..], &natives].concat()),
        }
    }

    /// Returns the filter of this login without templates, and its outcome.
    async fn match_filter(&self, who: &LoginRequest) -> (String, FilterOutcome) {
        let Some(template) = &self.evaluator.rules.filter else {
            return (String::new(), FilterOutcome::Unknown(String::new()));
        };
        let Some(filter) = self.evaluator.filter_for(template, &who.service) else {
            let unknown = "the host or the service is unknown".to_owned();
            return (String::new(), FilterOutcome::Unknown(unknown));
        };
        let asked = self.directory.matches_filter(&who.user, who.uid, &filter.text);
        let last = |why: &str| self.offline.last_match(&who.user, who.uid, &filter.text, why);
        let outcome = match timeout(DIRECTORY_WAIT, asked).await {
            Ok(Ok(matched)) => {
                self.offline.record_match(&who.user, who.uid, &filter, matched);
                FilterOutcome::Now(matched)
            }
            Ok(Err(why)) => last(&why.to_string()),
            Err(_) => last("no reply in time"),
        };
        (filter.text, outcome)
    }
}

/// The rules, and the users.
struct AccessEvaluator {
    rules: Rules,
    /// The names of this host. The first is that of hostname(1).
    host_names: Vec<String>,
    users: Arc<UserIndex>,
}

/// A decision, and the account record.
type AccountDecision = (AccessEvaluation, Option<Vec<u8>>);

/// The time and circumstances of a decision.
struct Circumstances {
    now_unix: u64,
    /// Whether the directory is unreachable.
    is_away: bool,
    filter: String,
    filter_outcome: FilterOutcome,
    password_change: Option<PasswordChange>,
}

impl AccessEvaluator {
    /// Returns the filter of a login by that service. `None` if a value that it needs is unknown.
    fn filter_for(&self, template: &str, service: &str) -> Option<AccessFilter> {
        let host = self.host_names.first().map_or("", String::as_str);
        let text = filter_template::expand(template, host, service)?;
        Some(AccessFilter { text, is_of_service: filter_template::names_service(template) })
    }

    /// Returns the day of the last password change in the account data, as the directory has it.
    fn change_day(&self, who: &LoginRequest) -> Result<Option<Vec<u8>>, UserLookupError> {
        let person = self.users.find(&who.user, who.uid)?;
        let account = self.users.account(&person)?;
        let account = account.as_deref().and_then(Account::from_bytes).unwrap_or_default();
        Ok(last_change(&account).map(<[u8]>::to_vec))
    }

    fn decide(
        &self,
        who: &LoginRequest,
        circumstances: &Circumstances,
    ) -> Result<AccountDecision, UserLookupError> {
        let person = self.find_user(who, circumstances.is_away)?;
        let bytes = match &person {
            Some(person) => self.users.account(person)?,
            None => None,
        };
        let account = bytes.as_deref().and_then(Account::from_bytes);
        let names = [&who.host_user, &who.user].map(|name| self.users.rule_name(name));
        let facts = AccessFacts {
            name: &names[0],
            directory_name: &names[1],
            service: &who.service,
            remote_host: &who.remote_host,
            host_names: &self.host_names,
            now_unix: circumstances.now_unix,
            account: account.as_ref(),
            membership: &|list, group| match &person {
                Some(person) => self.membership(person, list, group, &who.rule_groups),
                None => Membership::Unknown,
            },
            filter: &circumstances.filter,
            filter_outcome: &circumstances.filter_outcome,
            changed_day: circumstances.password_change.as_ref().and_then(|change| {
                let present = account.as_ref().and_then(last_change);
                (present == change.seen.as_deref()).then_some(change.day)
            }),
        };
        let decision = decide(&self.rules, &facts);
        for rule in &decision.rules {
            let (saw, verdict) = (&rule.observed, rule.decision.name());
            trace!(rule = rule.name, verdict, saw, "access rule");
        }
        trace!(verdict = decision.decision.name(), "access decision");
        Ok((decision, bytes))
    }

    /// Returns whether a user is in a group of a list, where local overrides may give other names to groups. An allowed
    /// group has its name on this host. A denial also means the name in the directory: an override must not open the
    /// host.
    fn membership(
        &self,
        person: &user_index::IndexedUser,
        list: ListKind,
        group: &str,
        renamed: &[(String, String)],
    ) -> Membership {
        let find = |name: &str| match name {
            "" => Membership::NoSuchGroup,
            name => self.users.membership(person, list, name),
        };
        let native = renamed.iter().find(|(name, _)| name == group).map(|(_, native)| native);
        match (native, list) {
            (None, _) => find(group),
            (Some(native), ListKind::Allow) => find(native),
            (Some(native), ListKind::Deny) => [find(group), find(native)]
                .into_iter()
                .max_by_key(|found| denial_rank(*found))
                .unwrap_or(Membership::Unknown),
        }
    }

    /// Returns the user. `None` if the directory is unreachable and its users are unknown, as after a loss of the
    /// cache. The publisher has just stated that the domain serves that name and uid. Other facts are then unknown to
    /// the rules.
    fn find_user(
        &self,
        who: &LoginRequest,
        is_away: bool,
    ) -> Result<Option<user_index::IndexedUser>, UserLookupError> {
        match self.users.find(&who.user, who.uid) {
            Ok(person) => Ok(Some(person)),
            Err(untold) => {
                let is_known = self.users.has(&who.user, who.uid).is_some();
                if is_away && !is_known { Ok(None) } else { Err(untold) }
            }
        }
    }
}

/// Orders results for groups of one denial. The last one decides.
fn denial_rank(found: Membership) -> u8 {
    match found {
        Membership::NoSuchGroup => 0,
        Membership::NotMember => 1,
        Membership::Ambiguous | Membership::Unknown => 2,
        Membership::Member => 3,
    }
}

/// Returns the day of the last password change, as the directory has it.
fn last_change<'a>(account: &'a Account<'_>) -> Option<&'a [u8]> {
    account.values_of(AccountFact::LastChange).next()
}

fn rule_report(rule: access::RuleResult) -> RuleExplanation {
    RuleExplanation {
        rule: rule.name,
        verdict: rule.decision.name().to_owned(),
        saw: rule.observed,
    }
}

fn decision_reply(decision: &AccessEvaluation) -> AuthOutcome {
    let verdict = match decision.decision {
        access::AccessDecision::Allowed => AuthResult::Success,
        access::AccessDecision::MustChange => AuthResult::MustChange,
        access::AccessDecision::Unknown => AuthResult::Unreachable,
        access::AccessDecision::Denied => AuthResult::Denied,
        access::AccessDecision::Locked => AuthResult::Locked,
        access::AccessDecision::PasswordExpired => AuthResult::PasswordExpired,
        access::AccessDecision::Expired => AuthResult::AccountExpired,
        access::AccessDecision::Disabled => AuthResult::Disabled,
    };
    let reason = decision.reason();
    let reason = reason.map_or(String::new(), |rule| format!("{}: {}", rule.name, rule.observed));
    let message = (verdict == AuthResult::Unreachable).then_some(&login::ACCESS_UNDECIDED);
    let answer = AuthOutcome { message, ..AuthOutcome::with_reason(verdict, reason) };
    decision.messages.iter().fold(answer, |answer, text| answer.with_message(false, text))
}

fn error_reply(untold: &UserLookupError) -> AuthOutcome {
    let (verdict, message) = match untold {
        UserLookupError::NotFound => (AuthResult::UnknownUser, &login::UNKNOWN_USER),
        UserLookupError::Ambiguous => (AuthResult::Misconfigured, &login::USER_AMBIGUOUS),
        UserLookupError::ViewUnavailable(_) | UserLookupError::Image(_) => {
            (AuthResult::Unreachable, &login::USERS_UNREADABLE)
        }
        UserLookupError::Ending => (AuthResult::Unreachable, &login::OFFLINE_STOPPING),
    };
    AuthOutcome::for_reason(verdict, Reason::new(message, untold.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::tests::{USERS, engine, named, refresh, uid_of, user};
    use roster_config::{AccessLists, AccountCheck};
    use roster_provider::EntrySink as _;

    /// A directory that never replies.
    struct SilentDirectory;

    impl AccessDirectory for SilentDirectory {
        fn refresh_entries<'a>(&'a self, _: &'a [u8], _: &'a [String]) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }

        fn matches_filter<'a>(
            &'a self,
            _: &'a [u8],
            _: u32,
            _: &'a str,
        ) -> BoxFuture<'a, Result<bool, LookupError>> {
            Box::pin(async {
                let reason = Reason::new(&login::DIRECTORY_UNREACHABLE, "no server replies");
                Err(LookupError::Unreachable(reason))
            })
        }
    }

    /// Returns the decision for alice.
    async fn verdict(engine: &Arc<Engine>, mode: DomainMode, rules: Rules) -> AuthResult {
        let folder = tempfile::tempdir().unwrap();
        let people = Arc::new(UserIndex::new(Arc::clone(engine), mode, true));
        let offline =
            OfflineAuth::open(folder.path(), None, Arc::clone(&people), Some(engine.subscribe()));
        let directory = Arc::new(SilentDirectory);
        let ruled = RuleAccess::new(rules, Vec::new(), people, directory, Arc::new(offline));
        let who = LoginRequest {
            user: b"alice".to_vec(),
            host_user: b"alice".to_vec(),
            uid: uid_of("alice"),
            ..LoginRequest::default()
        };
        let decided = ruled.decide(&who).await;
        if decided.result == AuthResult::Unreachable && !engine.status().online {
            assert_eq!(decided.message, Some(&login::ACCESS_UNDECIDED), "{}", decided.reason);
        }
        decided.result
    }

    #[test]
    fn access_unusable_users_have_codes() {
        for (error, message) in [
            (UserLookupError::Ambiguous, &login::USER_AMBIGUOUS),
            (
                UserLookupError::ViewUnavailable(crate::engine::ViewUnavailable::Incomplete(None)),
                &login::USERS_UNREADABLE,
            ),
            (UserLookupError::Ending, &login::OFFLINE_STOPPING),
        ] {
            assert_eq!(error_reply(&error).message, Some(message), "{error}");
        }
    }

    fn listed(lists: AccessLists) -> Rules {
        Rules { lists, ..Rules::default() }
    }

    fn names(name: &str) -> Option<Vec<String>> {
        Some(vec![name.to_owned()])
    }

    /// As after a loss of the cache: only the name is known.
    #[tokio::test]
    async fn access_unknown_facts_deny() {
        for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
            let engine = engine(mode);
            let none = AccessLists::default;
            for (rules, wanted) in [
                (Rules::default(), AuthResult::Success),
                (
                    listed(AccessLists { allowed_users: names("alice"), ..none() }),
                    AuthResult::Success,
                ),
                (listed(AccessLists { denied_users: names("bob"), ..none() }), AuthResult::Success),
                (
                    listed(AccessLists { denied_users: names("alice"), ..none() }),
                    AuthResult::Denied,
                ),
                (listed(AccessLists { allowed_users: names("bob"), ..none() }), AuthResult::Denied),
                (
                    listed(AccessLists { allowed_groups: names("staff"), ..none() }),
                    AuthResult::Unreachable,
                ),
                (
                    listed(AccessLists { denied_groups: names("suspended"), ..none() }),
                    AuthResult::Unreachable,
                ),
                (
                    Rules { filter: Some("(a=b)".into()), ..Rules::default() },
                    AuthResult::Unreachable,
                ),
                (
                    Rules { account_checks: AccountCheck::DEFAULT.to_vec(), ..Rules::default() },
                    AuthResult::Unreachable,
                ),
            ] {
                let said = verdict(&engine, mode, rules.clone()).await;
                assert_eq!(said, wanted, "{mode:?} {rules:?}");
            }
            // A reachable directory can supply the facts.
            engine.online("ldap://server", None);
            assert_ne!(verdict(&engine, mode, Rules::default()).await, AuthResult::Success);
        }
    }

    /// Returns access rules of a mirrored domain, on the host web1.
    fn ruled(engine: &Arc<Engine>, folder: &std::path::Path, rules: Rules) -> RuleAccess {
        let people = Arc::new(UserIndex::new(Arc::clone(engine), DomainMode::Replicate, false));
        let offline =
            OfflineAuth::open(folder, None, Arc::clone(&people), Some(engine.subscribe()));
        let names = vec!["web1".to_owned()];
        RuleAccess::new(rules, names, people, Arc::new(SilentDirectory), Arc::new(offline))
    }

    /// Overrides give alice the name al, and the group staff the name crew.
    #[tokio::test]
    async fn access_lists_name_entries_of_host() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(DomainMode::Replicate);
        refresh(&engine, &["alice"], &[("staff", &["alice"]), ("crew", &[])], "1");
        engine.online("ldap://server", None);
        let renamed = [("crew", "staff"), ("staff", "")];
        let who = LoginRequest {
            user: b"alice".to_vec(),
            host_user: b"al".to_vec(),
            uid: uid_of("alice"),
            rule_groups: renamed.map(|(name, native)| (name.into(), native.into())).to_vec(),
            ..LoginRequest::default()
        };
        let none = AccessLists::default;
        for (lists, wanted) in [
            (AccessLists { allowed_users: names("al"), ..none() }, AuthResult::Success),
            (AccessLists { allowed_users: names("alice"), ..none() }, AuthResult::Denied),
            (AccessLists { denied_users: names("al"), ..none() }, AuthResult::Denied),
            (AccessLists { denied_users: names("alice"), ..none() }, AuthResult::Denied),
            (AccessLists { allowed_groups: names("crew"), ..none() }, AuthResult::Success),
            (AccessLists { allowed_groups: names("staff"), ..none() }, AuthResult::Denied),
            (AccessLists { denied_groups: names("crew"), ..none() }, AuthResult::Denied),
            (AccessLists { denied_groups: names("staff"), ..none() }, AuthResult::Denied),
        ] {
            let people = UserIndex::new(Arc::clone(&engine), DomainMode::Replicate, true);
            let people = Arc::new(people);
            let offline = OfflineAuth::open(
                folder.path(),
                None,
                Arc::clone(&people),
                Some(engine.subscribe()),
            );
            let rules = listed(lists);
            let shown = format!("{rules:?}");
            let (silent, offline) = (Arc::new(SilentDirectory), Arc::new(offline));
            let ruled = RuleAccess::new(rules, Vec::new(), people, silent, offline);
            assert_eq!(ruled.decide(&who).await.result, wanted, "{shown}");
        }
    }

    fn put_alice(engine: &Arc<Engine>, day: &str) {
        let mut alice = user("alice", uid_of("alice"));
        if let roster_provider::DirectoryEntry::User(alice) = &mut alice {
            let values = [(AccountFact::LastChange, day), (AccountFact::MaxDays, "90")];
            for (fact, value) in values {
                alice.account.add(fact, Cow::Owned(value.as_bytes().to_vec()));
            }
        }
        engine.put(USERS, named("alice"), alice);
        engine.flush();
    }

    #[tokio::test]
    async fn access_change_counts_until_entry_has_other_day() {
        let rules = Rules { account_checks: vec![AccountCheck::PasswordAge], ..Rules::default() };
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(DomainMode::Replicate);
        refresh(&engine, &["alice"], &[], "1");
        put_alice(&engine, "15000");
        let ruled = ruled(&engine, folder.path(), rules);
        let alice = |uid| LoginRequest { user: b"alice".to_vec(), uid, ..LoginRequest::default() };
        let who = alice(uid_of("alice"));
        assert_eq!(ruled.decide(&who).await.result, AuthResult::MustChange);
        ruled.note_password_change(&alice(1)).await;
        assert_eq!(ruled.decide(&who).await.result, AuthResult::MustChange, "another user");
        ruled.note_password_change(&who).await;
        assert_eq!(ruled.decide(&who).await.result, AuthResult::Success);
        put_alice(&engine, "0");
        assert_eq!(ruled.decide(&who).await.result, AuthResult::MustChange, "an administrator");
    }

    #[tokio::test]
    async fn access_filter_has_host_and_service() {
        let filter = Some("(&(h=%{host})(s=%{service}))".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(DomainMode::Replicate);
        let ruled = ruled(&engine, folder.path(), Rules { filter, ..Rules::default() });
        let matched = async |service: &str| {
            let service = service.to_owned();
            ruled.match_filter(&LoginRequest { service, ..LoginRequest::default() }).await.0
        };
        assert_eq!(matched("sshd").await, "(&(h=web1)(s=sshd))");
        assert_eq!(matched("*)(s=*").await, "(&(h=web1)(s=\\2a\\29\\28s\\3d\\2a))");
        assert_eq!(matched("").await, "");
    }

    #[tokio::test]
    async fn access_user_known_to_be_gone_is_denied() {
        let mirrored = engine(DomainMode::Replicate);
        refresh(&mirrored, &["bob"], &[], "1");
        let said = verdict(&mirrored, DomainMode::Replicate, Rules::default()).await;
        assert_eq!(said, AuthResult::UnknownUser);
        let asked = engine(DomainMode::OnDemand);
        asked.put(USERS, named("alice"), user("alice", 1));
        asked.flush();
        let said = verdict(&asked, DomainMode::OnDemand, Rules::default()).await;
        assert_eq!(said, AuthResult::UnknownUser, "she has another uid");
    }
}
