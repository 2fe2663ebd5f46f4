// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `check` of a rootwrap policy: mistakes, and rules that strict mode reads differently. It evaluates no command
//! and prints nothing. `evaluate` decides about commands.

mod executables;
mod mode_differences;
mod privsep;

use crate::diagnostic::warning;
use crate::evaluate::is_command_variable;
use crate::filters::{FilterClass, FilterRule};
use crate::host_facts::HostFacts;
use crate::mode::Mode;
use crate::rootwrap_policy::RootwrapPolicy;
pub use mode_differences::ModeDifference;
use roster_messages::table::commands;
use roster_messages::{Diagnostic, Message};
use std::collections::BTreeMap;

/// The result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// Rules and files that are skipped or never match.
    pub problems: Vec<Diagnostic>,
    /// Rules that the modes read differently.
    pub differences: Vec<ModeDifference>,
}

/// Checks a policy that was loaded.
#[must_use]
pub fn check(policy: &RootwrapPolicy, facts: &dyn HostFacts) -> CheckReport {
    let mut problems = policy.warnings.clone();
    problems.extend(command_variable_warnings(policy));
    problems.extend(privsep::problems(policy));
    problems.extend(executables::problems(policy, facts));
    for rule in policy.rules(Mode::Compat) {
        let Some(place) = &rule.location else { continue };
        for pattern in rule.class.patterns() {
            // Faults in compat mode are among the policy's warnings.
            if pattern.fault(Mode::Compat).is_some() {
                continue;
            }
            if let Some(fault) = pattern.fault(Mode::Strict) {
                let text = format!("pattern {:?} {fault} (strict mode)", pattern.text());
                let problem = warning(fault.message(), &place.file, place.line, text);
                problems.push(Diagnostic { key: rule.name.clone(), ..problem });
            }
        }
    }
    CheckReport { problems, differences: mode_differences::mode_differences(policy) }
}

/// Returns the variable of a setting, and the row of its danger with the text. `None` for a harmless variable.
fn setting_warning(setting: &str) -> Option<(&str, &'static Message, &'static str)> {
    let (name, value) = setting.split_once('=')?;
    if is_command_variable(name.as_bytes(), false) {
        let text = "some programs use it as a command, or as a file with commands";
        return Some((name, &commands::CHECK_ENV_COMMAND, text));
    }
    // Strict mode checks the value.
    let text = "in compat mode programs read formats of printf(3) from files that it names";
    let is_free = name == "LANGUAGE" && value.is_empty();
    is_free.then_some((name, &commands::CHECK_ENV_LANGUAGE, text))
}

/// Returns a warning for each dangerous variable that EnvFilters set, at the first rule with it. Variables by which
/// programs load code differ between the modes instead.
fn command_variable_warnings(policy: &RootwrapPolicy) -> impl Iterator<Item = Diagnostic> {
    let mut rules_by_variable: BTreeMap<_, (_, Vec<&FilterRule>)> = BTreeMap::new();
    for rule in policy.rules(Mode::Compat) {
        let FilterClass::Env(settings) = &rule.class else { continue };
        for (name, message, text) in settings.iter().filter_map(|setting| setting_warning(setting))
        {
            let of_variable =
                rules_by_variable.entry(name).or_insert_with(|| ((message, text), Vec::new()));
            of_variable.1.push(rule);
        }
    }
    rules_by_variable.into_iter().filter_map(|(name, ((message, text), rules))| {
        let (first, others) = rules.split_first()?;
        let place = first.location.as_ref()?;
        let more = match others.len() {
            0 => String::new(),
            1 => " (also in another filter)".into(),
            more => format!(" (also in {more} other filters)"),
        };
        let text = format!("the caller sets {name}{more}: {text}");
        let problem = warning(message, &place.file, place.line, text);
        Some(Diagnostic { key: first.name.clone(), ..problem })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;

    #[test]
    fn check_command_variables_are_warned_of() {
        let rules = b"[Filters]\na: EnvFilter, env, root, HOME=, LC_ALL=, GIT_DIR=, ls\n\
                      l: EnvFilter, env, root, LANGUAGE=, ls\nm: EnvFilter, env, root, LANGUAGE=C, ls\n\
                      b: EnvFilter, env, root, HOME=, cat\n";
        let policy = RootwrapPolicy::from_texts(b"[DEFAULT]\nfilters_path=/x\n", &[rules]).unwrap();
        let told: Vec<String> = check(&policy, &LocalHost::new())
            .problems
            .iter()
            .map(|problem| {
                let text = problem.text.split(':').next().unwrap();
                format!("{}: {text} {}", problem.key, problem.message)
            })
            .collect();
        let [command, language] =
            [&commands::CHECK_ENV_COMMAND, &commands::CHECK_ENV_LANGUAGE].map(|row| row.code);
        assert_eq!(
            told,
            [
                format!("a: the caller sets GIT_DIR {command}"),
                format!("a: the caller sets HOME (also in another filter) {command}"),
                format!("l: the caller sets LANGUAGE {language}"),
            ]
        );
    }
}
