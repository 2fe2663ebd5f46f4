// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision which rule allows a command. It is a pure function of the policy, the host, the caller and the request.
//! `connection` finds the caller.

use super::exec_toml::{ExecPolicy, ExecRule};
use crate::evaluate::{ARGUMENT_BYTES_MAX, ARGUMENT_TOO_LONG, is_dangerous, is_safe_value};
use crate::mode::Mode;
use crate::pattern::{MatchBudget, MatchError, MatchLimit};
use roster_messages::Message;
use roster_messages::table::commands;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A caller, as reported by the kernel and the name service.
pub struct Caller<'c> {
    /// The name of the user.
    pub user: &'c str,
    /// Returns true if the user is in a group. `None`: the name service did not answer. Only called if a rule depends
    /// on it.
    pub is_in: &'c dyn Fn(&str) -> Option<bool>,
}

/// A request for a command.
#[derive(Clone)]
pub struct ExecRequest<'c> {
    /// The command and its arguments.
    pub argv: &'c [OsString],
    /// The requested user.
    pub run_as: Option<&'c str>,
    /// The environment of the client.
    pub environment: &'c [(OsString, OsString)],
    /// Returns true while the client waits. Called before each match.
    pub is_awaited: &'c dyn Fn() -> bool,
}

/// Proof that a caller may run a command. Only this module creates it.
#[derive(Debug)]
pub struct Permit<'p> {
    rule: &'p ExecRule,
    argv: Vec<OsString>,
    kept_environment: Vec<(OsString, OsString)>,
}

impl<'p> Permit<'p> {
    /// Returns the rule, which has the user, the limits and the timeout.
    #[must_use]
    pub fn rule(&self) -> &'p ExecRule {
        self.rule
    }

    /// Returns the arguments. The first one is the path of the rule.
    #[must_use]
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// Returns the variables of the caller that the rule keeps.
    #[must_use]
    pub fn kept_environment(&self) -> &[(OsString, OsString)] {
        &self.kept_environment
    }
}

/// Reasons for which a command does not run. The greatest reason of all rules counts, that of the closest rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// No rule is for this caller on this host.
    Caller,
    /// A rule is for this caller, but for another command.
    Command,
    /// A rule is for this command, but for another requested user.
    User,
    /// A rule is for this user, but for other arguments.
    Arguments,
    /// The name service did not report whether a deciding rule is for this caller. Later rules are ignored, because
    /// they could allow more.
    LookupUnavailable,
    /// The kernel accepts no argument of this length.
    ArgumentTooLong,
    /// A pattern reached a limit before a rule decided.
    MatchLimit(MatchLimit),
    /// The client no longer waits, or the time limit was reached.
    Abandoned,
}

impl Denial {
    /// Returns the row of the table of messages.
    #[must_use]
    pub fn message(self) -> &'static Message {
        match self {
            Self::Caller => &commands::DENIED_CALLER,
            Self::Command => &commands::DENIED_COMMAND,
            Self::User => &commands::DENIED_RUN_AS,
            Self::Arguments => &commands::DENIED_ARGUMENTS,
            Self::LookupUnavailable => &commands::NAME_SERVICE_UNAVAILABLE,
            Self::ArgumentTooLong => &commands::ARGUMENT_TOO_LONG,
            Self::MatchLimit(_) => &commands::MATCH_LIMIT,
            Self::Abandoned => &commands::EVALUATION_ABORTED,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MatchLimit(bound) => return write!(f, "a pattern of the rules {bound}"),
            Self::Caller => "no rule for this user on this host covers the command",
            Self::Command => "no rule allows this user the command",
            Self::User => "no rule allows the command as the requested user (default: root)",
            Self::Arguments => "no rule allows the command with these arguments",
            Self::LookupUnavailable => {
                "the name service does not report whether this user is in a group of a rule"
            }
            Self::ArgumentTooLong => ARGUMENT_TOO_LONG,
            Self::Abandoned => {
                "evaluation aborted: the client disconnected, the daemon is stopping, or matching took too long"
            }
        })
    }
}

/// Returns the permit of the first rule that allows the command. It looks no groups up for rules with another requested
/// user or number of arguments, and matches no patterns for other callers.
pub fn decide<'p>(
    policy: &'p ExecPolicy,
    host: &str,
    caller: &Caller<'_>,
    wanted: &ExecRequest<'_>,
) -> Result<Permit<'p>, Denial> {
    if wanted.argv.iter().any(|arg| arg.len() > ARGUMENT_BYTES_MAX) {
        return Err(Denial::ArgumentTooLong);
    }
    let work = MatchBudget::default();
    for rule in &policy.rules {
        if check_command(rule, host, caller, wanted).is_err()
            || check_user_and_count(rule, wanted).is_err()
        {
            continue;
        }
        let is_for = applies_to(rule, caller);
        if is_for == Some(false) {
            continue;
        }
        match check_arguments(rule, wanted, &work) {
            Ok(()) => {
                return is_for.map(|_| build_permit(rule, wanted)).ok_or(Denial::LookupUnavailable);
            }
            Err(denial @ (Denial::Abandoned | Denial::MatchLimit(_))) => return Err(denial),
            Err(_) => {}
        }
    }
    let denials = policy.rules.iter().filter_map(|rule| {
        if let Err(denial) = check_command(rule, host, caller, wanted) {
            return Some(denial);
        }
        match applies_to(rule, caller) {
            Some(true) => check_user_and_count(rule, wanted)
                .and_then(|()| check_arguments(rule, wanted, &work))
                .err(),
            _ => None,
        }
    });
    Err(denials.max().unwrap_or(Denial::Caller))
}

/// Checks the host and the command of a rule.
fn check_command(
    rule: &ExecRule,
    host: &str,
    caller: &Caller<'_>,
    wanted: &ExecRequest<'_>,
) -> Result<(), Denial> {
    let is_here =
        rule.hosts.is_empty() || rule.hosts.iter().any(|glob| glob.matches(host.as_bytes()));
    if !is_here {
        return Err(Denial::Caller);
    }
    let command = wanted.argv.first().ok_or(Denial::Command)?;
    let is_command = match command.as_bytes().contains(&b'/') {
        true => rule.command.as_os_str() == command,
        false => rule.command.file_name() == Some(command),
    };
    match is_command {
        true => Ok(()),
        false if is_named_user(rule, caller) => Err(Denial::Command),
        false => Err(Denial::Caller),
    }
}

fn is_named_user(rule: &ExecRule, caller: &Caller<'_>) -> bool {
    rule.users.iter().any(|user| user == caller.user)
}

/// Returns true if a rule is for the caller. `None`: no group is known to contain the caller, and one may.
fn applies_to(rule: &ExecRule, caller: &Caller<'_>) -> Option<bool> {
    if is_named_user(rule, caller) {
        return Some(true);
    }
    let mut is_for = Some(false);
    for group in &rule.groups {
        match (caller.is_in)(group) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => is_for = None,
        }
    }
    is_for
}

/// Checks the requested user and the number of arguments.
fn check_user_and_count(rule: &ExecRule, wanted: &ExecRequest<'_>) -> Result<(), Denial> {
    if wanted.run_as.unwrap_or("root") != rule.run_as {
        return Err(Denial::User);
    }
    let (count, least) = (wanted.argv.len().saturating_sub(1), rule.args.len());
    match count == least || rule.any_args && count > least {
        true => Ok(()),
        false => Err(Denial::Arguments),
    }
}

/// Checks the arguments.
fn check_arguments(
    rule: &ExecRule,
    wanted: &ExecRequest<'_>,
    work: &MatchBudget,
) -> Result<(), Denial> {
    if wanted.argv.iter().any(|arg| arg.as_bytes().contains(&0)) {
        return Err(Denial::Arguments);
    }
    for (pattern, arg) in rule.args.iter().zip(wanted.argv.iter().skip(1)) {
        if !(wanted.is_awaited)() {
            return Err(Denial::Abandoned);
        }
        match pattern.matches(Mode::Strict, arg, work) {
            Ok(true) => {}
            Err(MatchError::Limit(bound)) => return Err(Denial::MatchLimit(bound)),
            Ok(false) | Err(MatchError::Fault(_)) => return Err(Denial::Arguments),
        }
    }
    Ok(())
}

fn build_permit<'p>(rule: &'p ExecRule, wanted: &ExecRequest<'_>) -> Permit<'p> {
    let mut argv = vec![rule.command.clone().into_os_string()];
    argv.extend(wanted.argv.iter().skip(1).cloned());
    let is_kept = |name: &OsStr, value: &OsStr| {
        let bytes = name.as_bytes();
        let is_well_formed = !bytes.is_empty() && !bytes.contains(&b'=') && !bytes.contains(&0);
        let is_harmless = name != "PATH" && !is_dangerous(bytes) && !value.as_bytes().contains(&0);
        is_well_formed
            && is_harmless
            && is_safe_value(bytes, value.as_bytes())
            && rule.keep_env.iter().any(|glob| glob.matches(bytes))
    };
    let kept = wanted.environment.iter().filter(|(name, value)| is_kept(name, value)).cloned();
    Permit { rule, argv, kept_environment: kept.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const RULES: &str = "
        [[rule]]
        name = \"web\"
        users = [\"alice\"]
        groups = [\"ops\"]
        hosts = [\"web*\"]
        command = \"/usr/bin/systemctl\"
        args = [\"restart\", \"nginx|apache2\"]
        keep_env = [\"LC_*\", \"LD_*\", \"PATH\", \"PYTHON*\"]

        [[rule]]
        name = \"as-db\"
        users = [\"alice\"]
        command = \"/usr/bin/psql\"
        run_as = \"postgres\"
        any_args = true
        args = [\"-l\"]
    ";

    fn decided(
        user: &str,
        groups: &[&str],
        host: &str,
        run_as: Option<&str>,
        words: &[&str],
    ) -> Result<String, Denial> {
        let policy = ExecPolicy::parse(Path::new("exec.toml"), RULES).unwrap();
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        let environment: Vec<(OsString, OsString)> =
            ["LC_ALL", "LD_PRELOAD", "PATH", "PYTHONUSERBASE", "HOME"]
                .map(|name| (name.into(), "x".into()))
                .to_vec();
        let wanted =
            ExecRequest { argv: &argv, run_as, environment: &environment, is_awaited: &|| true };
        let caller = Caller { user, is_in: &|group| Some(groups.contains(&group)) };
        let permit = decide(&policy, host, &caller, &wanted)?;
        let kept: Vec<_> =
            permit.kept_environment().iter().map(|(name, _)| name.to_str().unwrap()).collect();
        let argv: Vec<_> = permit.argv().iter().map(|word| word.to_str().unwrap()).collect();
        Ok(format!("{}: {} [{}]", permit.rule().name, argv.join(" "), kept.join(" ")))
    }

    #[test]
    fn the_first_rule_decides_that_is_for_all_of_it() {
        let web = Ok("web: /usr/bin/systemctl restart nginx [LC_ALL]".into());
        let words = ["systemctl", "restart", "nginx"];
        assert_eq!(decided("alice", &[], "web1", None, &words), web);
        assert_eq!(decided("bob", &["x", "ops"], "web1", Some("root"), &words), web);
        assert_eq!(decided("bob", &["x"], "web1", None, &words), Err(Denial::Caller));
        assert_eq!(decided("bob", &["ops"], "db1", None, &words), Err(Denial::Caller));
        assert_eq!(decided("alice", &[], "db1", None, &words), Err(Denial::Command));
        assert_eq!(decided("alice", &[], "web1", Some("bob"), &words), Err(Denial::User));
    }

    #[test]
    fn keep_env_drops_values_that_lead_to_files() {
        let rule = "[[rule]]\nname = \"a\"\nusers = [\"x\"]\ncommand = \"/a\"\n\
                    keep_env = [\"LANG*\", \"LC_*\", \"TZ\", \"KEPT\"]\n";
        let policy = ExecPolicy::parse(Path::new("exec.toml"), rule).unwrap();
        let environment = [
            ("LANG", "C.UTF-8"),
            ("LANGUAGE", "../tmp/x"),
            ("LC_ALL", "%n"),
            ("LC_TIME", "C"),
            ("TZ", ":/tmp/x"),
            ("KEPT", "/x"),
        ]
        .map(|(name, value)| (name.into(), value.into()));
        let argv = ["a".into()];
        let wanted = ExecRequest {
            argv: &argv,
            run_as: None,
            environment: &environment,
            is_awaited: &|| true,
        };
        let caller = Caller { user: "x", is_in: &|_| Some(false) };
        let permit = decide(&policy, "host", &caller, &wanted).unwrap();
        let kept: Vec<_> =
            permit.kept_environment().iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(kept, ["LANG", "LC_TIME", "KEPT"]);
    }

    #[test]
    fn no_rule_decides_behind_one_that_may_be_for_the_caller() {
        let rules = "
            [[rule]]
            name = \"narrow\"
            groups = [\"ops\", \"unanswered\", \"more\"]
            command = \"/usr/bin/x\"
            args = [\"a\"]
            timeout = \"1s\"

            [[rule]]
            name = \"wide\"
            users = [\"alice\"]
            command = \"/usr/bin/x\"
            any_args = true
        ";
        let policy = ExecPolicy::parse(Path::new("exec.toml"), rules).unwrap();
        let decided = |groups: &[&str], words: &[&str]| {
            let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
            let is_in = |group: &str| (group != "unanswered").then(|| groups.contains(&group));
            let caller = Caller { user: "alice", is_in: &is_in };
            let wanted =
                ExecRequest { argv: &argv, run_as: None, environment: &[], is_awaited: &|| true };
            decide(&policy, "host", &caller, &wanted).map(|permit| permit.rule().name.clone())
        };
        assert_eq!(decided(&[], &["x", "a"]), Err(Denial::LookupUnavailable));
        // Unknown groups do not matter if a known one decides, or if the request does not fit.
        assert_eq!(decided(&["more"], &["x", "a"]), Ok("narrow".into()));
        assert_eq!(decided(&[], &["x", "b"]), Ok("wide".into()));
    }

    #[test]
    fn a_command_is_its_path_or_its_name_and_arguments_match_whole() {
        let decided = |words: &[&str]| decided("alice", &[], "web1", None, words).map(|_| ());
        assert_eq!(decided(&["/usr/bin/systemctl", "restart", "apache2"]), Ok(()));
        for words in [&["/bin/systemctl", "restart", "nginx"][..], &["./systemctl"], &[], &[""]] {
            assert_eq!(decided(words), Err(Denial::Command), "{words:?}");
        }
        for words in [
            &["systemctl"][..],
            &["systemctl", "restart", "nginx", "x"],
            &["systemctl", "restart", "nginx\n"],
            &["systemctl", "restart", "nginx-evil"],
            &["systemctl", "restart", "a\0"],
        ] {
            assert_eq!(decided(words), Err(Denial::Arguments), "{words:?}");
        }
    }

    #[test]
    fn pattern_beyond_its_bounds_ends_the_decision() {
        let rules = "
            [[rule]]
            name = \"costly\"
            users = [\"alice\"]
            command = \"/usr/bin/x\"
            args = [\"(?:(?:(?:(?:a|b)|c)|d)|e)*\"]

            [[rule]]
            name = \"wide\"
            users = [\"alice\"]
            command = \"/usr/bin/x\"
            any_args = true
        ";
        let policy = ExecPolicy::parse(Path::new("exec.toml"), rules).unwrap();
        let caller = Caller { user: "alice", is_in: &|_| None };
        let decided = |length: usize| {
            let argv = ["x".into(), "a".repeat(length).into()];
            let wanted =
                ExecRequest { argv: &argv, run_as: None, environment: &[], is_awaited: &|| true };
            decide(&policy, "host", &caller, &wanted).map(|permit| permit.rule().name.clone())
        };
        assert_eq!(decided(4096), Ok("costly".into()));
        let limit = Denial::MatchLimit(MatchLimit::Choices);
        assert_eq!(decided(ARGUMENT_BYTES_MAX), Err(limit));
        assert_eq!(limit.message(), &commands::MATCH_LIMIT);
    }

    #[test]
    fn what_nobody_waits_for_or_nothing_runs_with_is_not_matched() {
        let policy = ExecPolicy::parse(Path::new("exec.toml"), RULES).unwrap();
        let decided = |word: &str, goes_on: bool| {
            let argv = ["systemctl", "restart", word].map(OsString::from);
            let wanted = ExecRequest {
                argv: &argv,
                run_as: None,
                environment: &[],
                is_awaited: &|| goes_on,
            };
            let caller = Caller { user: "alice", is_in: &|_| Some(false) };
            decide(&policy, "web1", &caller, &wanted).err()
        };
        assert_eq!(decided("nginx", true), None);
        assert_eq!(decided("nginx", false), Some(Denial::Abandoned));
        assert_eq!(decided(&"x".repeat(ARGUMENT_BYTES_MAX), true), Some(Denial::Arguments));
        assert_eq!(
            decided(&"x".repeat(ARGUMENT_BYTES_MAX + 1), true),
            Some(Denial::ArgumentTooLong)
        );
    }

    #[test]
    fn more_arguments_are_taken_where_any_may_follow() {
        let decided = |words: &[&str]| decided("alice", &[], "db", Some("postgres"), words);
        assert_eq!(decided(&["psql", "-l", "x", "y"]), Ok("as-db: /usr/bin/psql -l x y []".into()));
        assert_eq!(decided(&["psql", "-l"]), Ok("as-db: /usr/bin/psql -l []".into()));
        assert_eq!(decided(&["psql"]), Err(Denial::Arguments));
    }

    #[test]
    fn decide_denied_request_has_code() {
        let policy = ExecPolicy::parse(Path::new("exec.toml"), RULES).unwrap();
        let long = "x".repeat(ARGUMENT_BYTES_MAX + 1);
        let systemctl = ["systemctl", "restart", "nginx"];
        // The last value is whether the client waits.
        for (user, run_as, words, is_awaited, message) in [
            ("carol", None, systemctl, true, &commands::DENIED_CALLER),
            ("alice", None, ["rm", "-r", "/"], true, &commands::DENIED_COMMAND),
            ("alice", Some("bob"), systemctl, true, &commands::DENIED_RUN_AS),
            ("alice", None, ["systemctl", "stop", "nginx"], true, &commands::DENIED_ARGUMENTS),
            ("alice", None, ["systemctl", "restart", &long], true, &commands::ARGUMENT_TOO_LONG),
            ("alice", None, systemctl, false, &commands::EVALUATION_ABORTED),
            // The name service does not report whether bob is in ops.
            ("bob", None, systemctl, true, &commands::NAME_SERVICE_UNAVAILABLE),
        ] {
            let argv = words.map(OsString::from);
            let is_in = |_: &str| (user != "bob").then_some(false);
            let caller = Caller { user, is_in: &is_in };
            let wanted =
                ExecRequest { argv: &argv, run_as, environment: &[], is_awaited: &|| is_awaited };
            let denial = decide(&policy, "web1", &caller, &wanted).unwrap_err();
            assert_eq!(denial.message(), message, "{user} {run_as:?}");
        }
    }
}
