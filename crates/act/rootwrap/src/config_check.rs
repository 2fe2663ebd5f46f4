//! Mistakes of a policy, and the rules that strict mode reads differently from compat mode.

mod executables;
mod mode_differences;
mod privsep;

use crate::diagnostic::Diagnostic;
use crate::evaluate::is_command_variable;
use crate::filters::{FilterClass, FilterRule};
use crate::host_facts::HostFacts;
use crate::mode::Mode;
use crate::rootwrap_policy::RootwrapPolicy;
pub use mode_differences::ModeDifference;
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
                let what = format!(
                    "{}: the pattern {:?} {fault} (strict mode)",
                    rule.name,
                    pattern.text()
                );
                problems.push(Diagnostic::warning(&place.file, place.line, what, fault.fix()));
            }
        }
    }
    CheckReport { problems, differences: mode_differences::mode_differences(policy) }
}

/// The variable of a setting, why a caller may not choose it freely, and what to do; `None` of a harmless one.
fn setting_warning(setting: &str) -> Option<(&str, &'static str, &'static str)> {
    let (name, value) = setting.split_once('=')?;
    if is_command_variable(name.as_bytes(), false) {
        let what = "some programs take that for a command, or for files that lead to one";
        return Some((name, what, "leave it out where the command does not need it"));
    }
    // Strict mode checks the value.
    let what = "in compat mode programs read their messages, formats of printf(3) among them, from files that it names";
    (name == "LANGUAGE" && value.is_empty()).then_some((
        name,
        what,
        "leave it out: LC_ALL chooses the language",
    ))
}

/// Those that EnvFilters set and that may be as good as code: one warning for each, at the first rule that has it.
/// Variables that always are code differ between the modes.
fn command_variable_warnings(policy: &RootwrapPolicy) -> impl Iterator<Item = Diagnostic> {
    let mut rules_by_doubt: BTreeMap<_, Vec<&FilterRule>> = BTreeMap::new();
    for rule in policy.rules(Mode::Compat) {
        let FilterClass::Env(settings) = &rule.class else { continue };
        for doubt in settings.iter().filter_map(|setting| setting_warning(setting)) {
            rules_by_doubt.entry(doubt).or_default().push(rule);
        }
    }
    rules_by_doubt.into_iter().filter_map(|((name, what, instead), rules)| {
        let (first, others) = rules.split_first()?;
        let place = first.location.as_ref()?;
        let more = match others.len() {
            0 => String::new(),
            1 => " (and in another rule)".into(),
            more => format!(" (and in {more} other rules)"),
        };
        let what = format!("{}: {name} is the caller's{more}, and {what}", first.name);
        Some(Diagnostic::warning(&place.file, place.line, what, instead))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;

    #[test]
    fn variables_that_some_programs_obey_are_warned_of() {
        let rules = b"[Filters]\na: EnvFilter, env, root, HOME=, LC_ALL=, GIT_DIR=, ls\n\
                      l: EnvFilter, env, root, LANGUAGE=, ls\nm: EnvFilter, env, root, LANGUAGE=C, ls\n\
                      b: EnvFilter, env, root, HOME=, cat\n";
        let policy = RootwrapPolicy::from_texts(b"[DEFAULT]\nfilters_path=/x\n", &[rules]).unwrap();
        let told: Vec<String> = check(&policy, &LocalHost::new())
            .problems
            .iter()
            .map(|problem| problem.message.split(',').next().unwrap().to_owned())
            .collect();
        assert_eq!(
            told,
            [
                "a: GIT_DIR is the caller's",
                "a: HOME is the caller's (and in another rule)",
                "l: LANGUAGE is the caller's",
            ]
        );
    }
}
