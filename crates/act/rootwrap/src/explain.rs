// SPDX-License-Identifier: MIT OR Apache-2.0
//! The explanation of a decision: each rule with its reason, and the deciding one. It runs nothing. `evaluate` makes
//! the decision.

use crate::evaluate::{AllowedCommand, MismatchReason, Refusal, evaluate_rules};
use crate::filters::FilterRule;
use crate::host_facts::HostFacts;
use crate::mode::Mode;
use crate::rootwrap_policy::RootwrapPolicy;
use crate::shell_quoted::ShellQuoted;
use std::ffi::OsString;
use std::fmt;

/// A decision with its reasons. Its `Display` has a line for each rule and one for the result.
#[derive(Debug)]
pub struct Explanation<'p> {
    /// The mode of the decision.
    pub mode: Mode,
    /// The evaluated rules, in order.
    pub steps: Vec<RuleStep>,
    /// The result.
    pub outcome: Result<AllowedCommand<'p>, Refusal<'p>>,
}

/// The result of one rule.
#[derive(Debug)]
pub struct RuleStep {
    /// The rule with its file and line.
    pub rule: String,
    /// The reason for which it does not allow the command. `None` for the deciding rule.
    pub mismatch: Option<MismatchReason>,
    /// For a chaining rule, the results for the chained command.
    pub chained: Vec<RuleStep>,
}

/// Decides about a command, and records the steps.
#[must_use]
pub fn explain<'p>(
    mode: Mode,
    policy: &'p RootwrapPolicy,
    argv: &[OsString],
    facts: &dyn HostFacts,
) -> Explanation<'p> {
    let rules: Vec<&FilterRule> = policy.rules(mode).collect();
    // Steps at each depth that belong to no rule yet.
    let mut open: Vec<Vec<RuleStep>> = vec![Vec::new()];
    let outcome = evaluate_rules(mode, policy, &rules, argv, facts, &mut |depth, rule, answer| {
        if open.len() <= depth + 1 {
            open.resize_with(depth + 2, Vec::new);
        }
        let rest = std::mem::take(&mut open[depth + 1]);
        let why = answer.err().cloned();
        open[depth].push(RuleStep { rule: rule.to_string(), mismatch: why, chained: rest });
    });
    Explanation { mode, steps: open.swap_remove(0), outcome }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(f, &self.steps, 0)?;
        match &self.outcome {
            Ok(verdict) => {
                write!(f, "{}: runs as {}:", self.mode, verdict.run_as())?;
                verdict.argv().iter().try_for_each(|word| write!(f, " {}", ShellQuoted(word)))
            }
            Err(refusal) => {
                let (code, message) = (refusal.exit_code(), refusal.message());
                write!(f, "{}: does not run ({code}): {refusal} [{message}]", self.mode)
            }
        }
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[RuleStep], depth: usize) -> fmt::Result {
    for step in steps {
        let indent = "    ".repeat(depth);
        match &step.mismatch {
            Some(why) => writeln!(f, "{indent}{}: {why}", step.rule)?,
            None => writeln!(f, "{indent}{}: allows the command", step.rule)?,
        }
        write_steps(f, &step.chained, depth + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::ARGUMENT_BYTES_MAX;
    use crate::host_facts::LocalHost;
    use roster_messages::table::commands;

    fn explained(mode: Mode, filters: &str, command: &[&str]) -> String {
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/usr/bin,/bin\n";
        let policy = RootwrapPolicy::from_texts(conf, &[filters.as_bytes()]).unwrap();
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        explain(mode, &policy, &argv, &LocalHost::new()).to_string()
    }

    #[test]
    fn every_rule_up_to_the_deciding_one_has_its_reason() {
        let filters = "[Filters]\nip: IpFilter, ip, root\nls: RegExpFilter, ls, root, ls, -l\n\
                       all: CommandFilter, ls, daemon\n";
        assert_eq!(
            explained(Mode::Compat, filters, &["ls", "-a", "it's"]),
            "000000.filters:2: ip (IpFilter): is for another command\n\
             000000.filters:3: ls (RegExpFilter): the number of arguments is not 1\n\
             000000.filters:4: all (CommandFilter): allows the command\n\
             compat: runs as daemon: /usr/bin/ls -a $'it\\'s'"
        );
        assert!(explained(Mode::Compat, filters, &["rm"]).ends_with(
            "built in: privsep-helper (CommandFilter): is for another command\n\
             compat: does not run (99): no filter matched [RST-7050]"
        ));
    }

    #[test]
    fn the_rest_of_a_chain_stands_below_its_rule() {
        let filters = "[Filters]\nnice: ChainingRegExpFilter, nice, root, nice\nls: CommandFilter, ls, root\n";
        assert_eq!(
            explained(Mode::Strict, filters, &["nice", "ls"]),
            "000000.filters:2: nice (ChainingRegExpFilter): allows the command\n    \
             000000.filters:3: ls (CommandFilter): allows the command\n\
             strict: runs as root: /usr/bin/nice /usr/bin/ls"
        );
    }

    #[test]
    fn explained_refusal_has_code() {
        let filters = "[Filters]\ngone: CommandFilter, /no/such/gone, root\n\
                       costly: RegExpFilter, true, root, true, (?:(?:(?:(?:a|b)|c)|d)|e)*\n\
                       raises: RegExpFilter, ls, root, ls, a{99999999999}\n";
        let (longest, longer) =
            ("a".repeat(ARGUMENT_BYTES_MAX), "a".repeat(ARGUMENT_BYTES_MAX + 1));
        for (command, message) in [
            (["rm", "x"], &commands::NO_FILTER_MATCHED),
            (["gone", "x"], &commands::NO_EXECUTABLE),
            (["true", &longest], &commands::MATCH_LIMIT),
            (["true", &longer], &commands::ARGUMENT_TOO_LONG),
            (["true", "a\0"], &commands::COMMAND_NUL),
            (["ls", "a"], &commands::FILTER_ABORTED),
        ] {
            let told = explained(Mode::Compat, filters, &command);
            assert!(told.ends_with(&format!("[{message}]")), "{message}: {told}");
        }
    }
}
