// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster access`: shows whether a user may log in to this host, rule by rule. The backend of the domain decides.

use super::pam_socket::PamSocketReply;
use super::{BusClient, call_error, password_trial, run_async};
use crate::args::AccessArgs;
use crate::output::{print_error, printable};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{AccessExplanation, LoginRequest, NOT_DECIDED, ServedUser};
use roster_messages::CodedError;
use roster_messages::table::tools;
use serde_json::json;
use std::fs;
use std::io::Write;

/// Exit status: the user may not log in.
const EXIT_DENIED: u8 = 3;
/// Exit status: the user is local, or no domain serves the name.
const EXIT_NOT_SERVED: u8 = 4;
/// The local users.
const PASSWD: &str = "/etc/passwd";

/// Runs the command. Returns the exit status.
pub fn run(args: &AccessArgs, out: &mut dyn Write) -> Result<u8> {
    if args.password {
        password_trial::require_root()?;
    }
    run_async(async {
        let bus = BusClient::connect(&args.bus.run_dir).await?;
        let found = bus.publisher().await?.find_user(0, args.user.as_bytes()).await;
        let found = found.map_err(|error| call_error(&RoleName::Publisher, &error))?;
        if found.domain.is_empty() {
            return report_not_served(args, out);
        }
        let role = RoleName::Backend(found.domain.clone());
        let who = LoginRequest {
            user: found.directory_name.clone(),
            uid: found.directory_uid,
            host_uid: found.uid,
            host_user: found.name.clone(),
            rule_groups: found.rule_groups.clone(),
            service: args.service.clone(),
            remote_host: args.rhost.clone().unwrap_or_default(),
            ..LoginRequest::default()
        };
        let tried = match args.password {
            true => Some(password_trial::try_password(
                &args.bus.run_dir,
                args.user.as_bytes(),
                found.uid,
                &args.service,
            )?),
            false => None,
        };
        let explained = bus.backend(&found.domain).await?.explain_access(&who).await;
        let explained = explained.map_err(|error| call_error(&role, &error))?;
        match args.json {
            true => writeln!(out, "{:#}", as_json(args, &found, &explained, tried.as_ref()))?,
            false => {
                let password = tried.as_ref().map_or_else(String::new, password_trial::as_text);
                let text = password + &as_text(args, &found, &explained);
                out.write_all(text.as_bytes())?;
            }
        }
        let is_right = tried.is_none_or(|reply| password_trial::is_accepted(reply.result));
        Ok(if explained.lets_in && is_right { 0 } else { EXIT_DENIED })
    })
}

/// Reports a name that no domain serves.
fn report_not_served(args: &AccessArgs, out: &mut dyn Write) -> Result<u8> {
    let local = fs::read(PASSWD).is_ok_and(|text| is_in(&text, args.user.as_bytes()));
    let user = &args.user;
    let error = match local {
        true => {
            let text = format!("{user:?} is a local user in {PASSWD}: pam_roster does not decide");
            CodedError::new(&tools::USER_IS_LOCAL, text)
        }
        false => {
            let text = format!("no domain serves a user named {user:?}");
            CodedError::new(&tools::USER_NOT_SERVED, text)
        }
    };
    if args.json {
        let json = json!({ "user": user, "service": args.service, "domain": null,
            "local": local, "verdict": null, "allowed": false, "rules": [], "messages": [],
            "password": null, "code": error.message.code });
        writeln!(out, "{json:#}")?;
    }
    print_error(&error);
    Ok(EXIT_NOT_SERVED)
}

/// Returns whether text of passwd(5) has a user of that name.
fn is_in(text: &[u8], name: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b':').next() == Some(name))
}

fn as_text(args: &AccessArgs, found: &ServedUser, explained: &AccessExplanation) -> String {
    let mut user = printable(&String::from_utf8_lossy(&found.name)).to_string();
    if found.name != found.directory_name {
        let native = String::from_utf8_lossy(&found.directory_name);
        user += &format!(" ({} in the directory)", printable(&native));
    }
    let (domain, service) = (&found.domain, printable(&args.service));
    let is_undecided = explained.verdict == NOT_DECIDED;
    let mut text = match (is_undecided, explained.lets_in) {
        (true, _) => format!("{user} of {domain}: Roster does not decide logins by {service}\n"),
        (false, may) => {
            let may = if may { "may" } else { "may not" };
            let verdict = printable(&explained.verdict);
            format!("{user} of {domain} {may} log in by {service}: {verdict}\n")
        }
    };
    let of = |rule: &roster_bus::interfaces::RuleExplanation| rule.rule.chars().count();
    let width = explained.rules.iter().map(of).max().unwrap_or_default();
    for rule in &explained.rules {
        let mark = match &*rule.verdict {
            "allowed" => '✓',
            NOT_DECIDED => '-',
            _ => '✗',
        };
        let name = printable(&rule.rule).to_string();
        let saw = printable(&rule.saw);
        text += &format!("  {mark} {name:<width$}  {saw}");
        if !["allowed", "denied", NOT_DECIDED].contains(&&*rule.verdict) {
            text += &format!(" ({})", printable(&rule.verdict));
        }
        text.push('\n');
    }
    for message in &explained.messages {
        text += &format!("  message to the user: {}\n", printable(message));
    }
    text
}

fn as_json(
    args: &AccessArgs,
    found: &ServedUser,
    explained: &AccessExplanation,
    tried: Option<&PamSocketReply>,
) -> serde_json::Value {
    let rules: Vec<_> = explained
        .rules
        .iter()
        .map(|rule| json!({ "rule": rule.rule, "verdict": rule.verdict, "saw": rule.saw }))
        .collect();
    json!({
        "user": String::from_utf8_lossy(&found.name),
        "uid": found.uid,
        "directory_user": String::from_utf8_lossy(&found.directory_name),
        "service": args.service,
        "domain": found.domain,
        "local": false,
        "verdict": explained.verdict,
        "allowed": explained.lets_in,
        "rules": rules,
        "messages": explained.messages,
        "password": tried.map(password_trial::as_json),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use roster_bus::interfaces::RuleExplanation;

    fn rule(rule: &str, verdict: &str, saw: &str) -> RuleExplanation {
        RuleExplanation { rule: rule.into(), verdict: verdict.into(), saw: saw.into() }
    }

    fn access_args() -> AccessArgs {
        let cli = Cli::parse_from(["roster", "access", "alice", "--service", "cron"]);
        let Command::Access(args) = cli.command else { panic!("another command") };
        args
    }

    fn served_user() -> ServedUser {
        ServedUser {
            domain: "corp".into(),
            name: b"al".to_vec(),
            uid: 6001,
            directory_name: b"alice".to_vec(),
            directory_uid: 5001,
            rule_groups: Vec::new(),
        }
    }

    #[test]
    fn access_domain_without_logins_denies_nothing() {
        let explained = AccessExplanation {
            verdict: NOT_DECIDED.into(),
            lets_in: false,
            rules: vec![rule(
                "auth",
                NOT_DECIDED,
                "the domain has neither auth nor a table access",
            )],
            messages: Vec::new(),
        };
        assert_eq!(
            as_text(&access_args(), &served_user(), &explained),
            "al (alice in the directory) of corp: Roster does not decide logins by cron\n  \
             - auth  the domain has neither auth nor a table access\n"
        );
    }

    #[test]
    fn a_decision_is_told_rule_by_rule() {
        let (args, found) = (access_args(), served_user());
        let explained = AccessExplanation {
            verdict: "locked".into(),
            lets_in: false,
            rules: vec![
                rule("shadowExpire", "allowed", "the account does not expire"),
                rule("nsAccountLock", "locked", "true\x1b[2J"),
                rule("denied_users", "denied", "the user is in the list"),
            ],
            messages: vec!["Soon.".into()],
        };
        assert_eq!(
            as_text(&args, &found, &explained),
            "al (alice in the directory) of corp may not log in by cron: locked\n  \
             ✓ shadowExpire   the account does not expire\n  \
             ✗ nsAccountLock  true\\u{1b}[2J (locked)\n  \
             ✗ denied_users   the user is in the list\n  \
             message to the user: Soon.\n"
        );
        let json = as_json(&args, &found, &explained, None);
        assert_eq!(json["rules"][1]["verdict"], "locked");
        assert!(json["password"].is_null());
    }

    #[test]
    fn a_user_of_the_host_is_one_whole_name() {
        let text = b"root:x:0:0::/root:/bin/sh\nalice2:x:1:1:::\n";
        assert!(is_in(text, b"root") && is_in(text, b"alice2"));
        assert!(!is_in(text, b"alice") && !is_in(text, b"x"));
    }
}
