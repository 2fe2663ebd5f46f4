//! What is wrong with a policy, and which of its rules strict mode reads otherwise, each with a
//! command that shows it.
//!
//! The commands are made out of the rules and tried: on this host as it is, and on one that has every
//! executable, trusted, and a process for each rule about processes. So what is shown is open whatever
//! happens to be installed. Each is judged by the whole policy, in the order in which each mode takes
//! its rules: what is told of a command is what happens to it. The original takes the files of a folder
//! as the file system lists them, which is chance; commands that another order would treat otherwise are
//! differences too.

mod commands;
mod hosts;
mod interpreters;
mod order;
mod privsep;

use crate::explain::Word;
use crate::filters::{Class, Rule};
use crate::host::Facts;
use crate::judge::{Mode, may_be_obeyed};
use crate::policy::Policy;
use crate::problem::Problem;
use hosts::{Supposed, Wholly};
use order::Rules;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;

/// The process that is supposed to be there: no kernel gives out a number so high by itself.
const PID: i64 = 4_000_000;
/// How often rules are looked at, all in all: some seconds.
const LOOKS_MAX: usize = 10_000_000;

/// What to do where no command of a rule could be made.
const UNTRIED: &str = "try commands of it with explain, once with each --mode";

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// What is passed over or matches never.
    pub problems: Vec<Problem>,
    /// What strict mode reads otherwise.
    pub differences: Vec<Difference>,
}

/// A rule that the modes read otherwise, or whose word in compat mode is a matter of chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that decides in compat mode, or, where none lets the command run, in strict mode.
    pub rule: String,
    /// A command that shows it.
    pub example: Vec<OsString>,
    /// What compat says of it.
    pub compat: String,
    /// What it would say if the file system listed the files of the rule's folder in another order, where
    /// that is something else.
    pub other_order: Option<String>,
    /// What strict says.
    pub strict: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `", self.rule)?;
        for (at, word) in self.example.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, Word(word))?;
        }
        write!(f, "` {} in compat mode", self.compat)?;
        if let Some(other) = &self.other_order {
            write!(f, " as the file system lists the files now, {other} in another order")?;
        }
        write!(f, ", and {} in strict mode", self.strict)
    }
}

/// Checks a policy that was loaded.
#[must_use]
pub fn check(policy: &Policy, facts: &dyn Facts) -> Report {
    let mut problems = policy.warnings.clone();
    problems.extend(obeyed_variables(policy));
    problems.extend(privsep::problems(policy));
    problems.extend(interpreters::problems(policy, facts));
    for rule in policy.rules(Mode::Compat) {
        let Some(place) = &rule.place else { continue };
        // Those that could not even be read are among the warnings.
        for pattern in
            rule.class.patterns().iter().filter(|pattern| pattern.fault(Mode::Compat).is_none())
        {
            let (name, text) = (&rule.name, pattern.text());
            let fault = [Mode::Compat, Mode::Strict]
                .into_iter()
                .find_map(|mode| Some((mode, pattern.fault(mode)?)));
            let (what, instead) = match fault {
                Some((mode, fault)) => {
                    (format!("{name}: the pattern {text:?} {fault} ({mode} mode)"), fault.instead())
                }
                None if !pattern.samples().iter().any(|sample| pattern.is_sample(sample)) => {
                    let what = "no word was found that it matches, so the modes are not compared";
                    (format!("{name}: of the pattern {text:?} {what}"), UNTRIED)
                }
                None => continue,
            };
            problems.push(Problem::warning(&place.file, place.line, what, instead));
        }
    }
    let mut search = Search::new(policy, facts);
    problems.extend(search.run());
    Report { problems, differences: search.into_differences() }
}

/// The variable of a setting, why a caller may not choose it freely, and what to do; `None` of a harmless one.
fn doubt_about(setting: &str) -> Option<(&str, &'static str, &'static str)> {
    let (name, value) = setting.split_once('=')?;
    if may_be_obeyed(name.as_bytes(), false) {
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
/// What always is strict mode refuses, which is told with an example.
fn obeyed_variables(policy: &Policy) -> impl Iterator<Item = Problem> {
    let mut rules_by_doubt: BTreeMap<_, Vec<&Rule>> = BTreeMap::new();
    for rule in policy.rules(Mode::Compat) {
        let Class::Env(settings) = &rule.class else { continue };
        for doubt in settings.iter().filter_map(|setting| doubt_about(setting)) {
            rules_by_doubt.entry(doubt).or_default().push(rule);
        }
    }
    rules_by_doubt.into_iter().filter_map(|((name, what, instead), rules)| {
        let (first, others) = rules.split_first()?;
        let place = first.place.as_ref()?;
        let more = match others.len() {
            0 => String::new(),
            1 => " (and in another rule)".into(),
            more => format!(" (and in {more} other rules)"),
        };
        let what = format!("{}: {name} is the caller's{more}, and {what}", first.name);
        Some(Problem::warning(&place.file, place.line, what, instead))
    })
}

/// What there is to find of one rule.
#[derive(Default)]
struct Found {
    reading: Option<Difference>,
    order: Option<Difference>,
}

struct Search<'p> {
    facts: &'p dyn Facts,
    rules: Rules<'p>,
    found: HashMap<*const Rule, Found>,
}

impl<'p> Search<'p> {
    fn new(policy: &'p Policy, facts: &'p dyn Facts) -> Self {
        Self { facts, rules: Rules::new(policy), found: HashMap::new() }
    }

    /// Tries commands of each rule; where there are too many rules for that, tells which were left out.
    fn run(&mut self) -> Option<Problem> {
        for at in 0..self.rules.by_name.len() {
            let rule = self.rules.by_name[at];
            if self.rules.looks() > LOOKS_MAX {
                let place = rule.place.as_ref()?;
                let what = "this rule and those behind it are not compared between the modes";
                let instead = "they are too many: check parts of the policy";
                return Some(Problem::warning(&place.file, place.line, what, instead));
            }
            self.try_rule(rule);
        }
        None
    }

    fn try_rule(&mut self, rule: &'p Rule) {
        let key = std::ptr::from_ref(rule);
        // What is made out of the rule shows more than what was made out of others.
        let by_others = self.found.remove(&key).unwrap_or_default();
        let (here, supposed) = (Supposed::here(self.facts), Supposed::of(self.facts, rule));
        let hosts: [&dyn Facts; 2] = [&here, &Wholly(&supposed)];
        for command in commands::of_rule(rule, &self.rules.by_name) {
            hosts.iter().for_each(|host| self.try_command(&command, *host));
            let found = self.found.get(&key);
            if found.is_some_and(|found| found.reading.is_some() && found.order.is_some()) {
                break;
            }
        }
        let found = self.found.entry(key).or_default();
        found.reading = found.reading.take().or(by_others.reading);
        found.order = found.order.take().or(by_others.order);
    }

    /// What is found belongs to the rule that decides, which may be another than the one that the command
    /// was made out of.
    fn try_command(&mut self, command: &[OsString], host: &dyn Facts) {
        let relevant = self.rules.relevant_to(command);
        let compat = self.rules.answers_in_compat(&relevant, command, host);
        let strict = self.rules.answer_in_strict(&relevant, command, host);
        let (now, others) = (&compat[0], &compat[1..]);
        let other = others.iter().find(|other| other.runs != now.runs);
        if other.is_none() && now.runs == strict.runs {
            return;
        }
        let mut deciding = [Some(now), other, Some(&strict)].into_iter().flatten();
        let deciding = deciding.find(|answer| answer.runs.is_some());
        let Some(decider) = deciding.and_then(|answer| answer.decider) else { return };
        let difference = Difference {
            rule: decider.to_string(),
            example: command.to_vec(),
            compat: now.told(decider),
            other_order: other.map(|other| other.told(decider)),
            strict: strict.told(decider),
        };
        let found = self.found.entry(std::ptr::from_ref(decider)).or_default();
        let place = if other.is_some() { &mut found.order } else { &mut found.reading };
        place.get_or_insert(difference);
    }

    /// In the order of the names of their files.
    fn into_differences(self) -> Vec<Difference> {
        let Self { rules, mut found, .. } = self;
        let rules = rules.by_name.into_iter().chain(rules.built_in);
        let found = rules.filter_map(|rule| found.remove(&std::ptr::from_ref(rule)));
        found.flat_map(|found| [found.reading, found.order]).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;

    fn differences(filters: &str) -> Vec<String> {
        differences_of_files(&[filters])
    }

    /// Of files in one folder, listed by their names.
    fn differences_of_files(files: &[&str]) -> Vec<String> {
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/sbin,/usr/bin\n";
        let files: Vec<String> = files.iter().map(|file| format!("[Filters]\n{file}")).collect();
        let files: Vec<&[u8]> = files.iter().map(String::as_bytes).collect();
        let policy = Policy::of_texts(conf, &files).unwrap();
        let path = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let report = check(&policy, &ThisHost::with_environment(path));
        assert_eq!(report.problems, []);
        report.differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_rule_that_strict_reads_otherwise_has_its_example() {
        for (rule, example) in [
            ("RegExpFilter, no-such, root, no-such, a|b", "`no-such 'a and more'` runs"),
            ("RegExpFilter, no-such, root, no-such, ab", "`$'no-such\\n' ab` runs"),
            ("PathFilter, chown, root, pass, /srv/images", "`chown x /srv/images-evil/x` runs"),
            ("KillFilter, root, no-such, -9", "`kill -9 +4000000` runs"),
            ("IpFilter, ip, root", "`ip -batch FILE` runs"),
            ("EnvFilter, env, root, LD_PRELOAD=, ls", "`LD_PRELOAD=x ls` runs"),
            ("EnvFilter, env, root, LC_ALL=C, ls", "`LC_ALL=x ls` runs"),
            ("EnvFilter, env, root, LC_ALL=, ls", "`LC_ALL=/x ls` runs"),
            (
                "ChainingRegExpFilter, nice, root, nice\n y: CommandFilter, ls, root",
                "`nice /tmp/ls` runs",
            ),
            (
                "IpNetnsExecFilter, ip, root\n y: CommandFilter, ls, root",
                "`ip netns exec NAMESPACE /tmp/ls` runs",
            ),
        ] {
            let found = differences(&format!("x: {}", rule.replace("\n ", "\n")));
            assert_eq!(found.len(), 1, "{rule}: {found:?}");
            assert!(found[0].contains(example), "{rule}: {}", found[0]);
            assert!(found[0].ends_with("and is refused in strict mode"), "{}", found[0]);
        }
    }

    #[test]
    fn a_rule_that_looks_ahead_is_tried_or_told_of() {
        let found =
            differences("cp: RegExpFilter, cp, root, cp, (?=/srv/images/).*, /dst|/other\n");
        assert!(found.iter().any(|found| found.contains("'/dst and more'` runs")), "{found:?}");
        let filters = "[Filters]\nx: RegExpFilter, cp, root, cp, (?=.*b)(?=.*c)[bc]*(?<!b)(?<!c)\n";
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/usr/bin\n";
        let policy = Policy::of_texts(conf, &[filters.as_bytes()]).unwrap();
        let report = check(&policy, &ThisHost::with_environment(Vec::new()));
        let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
        assert!(problem.to_string().contains("no word was found that it matches"), "{problem}");
    }

    #[test]
    fn rules_that_are_read_alike_are_not_told() {
        let filters = "a: CommandFilter, ls, root\nb: ReadFileFilter, /etc/shadow\n\
                       c: EnvFilter, env, root, A=, ls\nd: CommandFilter, /no/such, root\n";
        assert_eq!(differences(filters), [""; 0]);
    }

    #[test]
    fn variables_that_some_programs_obey_are_warned_of() {
        let rules = b"[Filters]\na: EnvFilter, env, root, HOME=, LC_ALL=, GIT_DIR=, ls\n\
                      l: EnvFilter, env, root, LANGUAGE=, ls\nm: EnvFilter, env, root, LANGUAGE=C, ls\n\
                      b: EnvFilter, env, root, HOME=, cat\n";
        let policy = Policy::of_texts(b"[DEFAULT]\nfilters_path=/x\n", &[rules]).unwrap();
        let told: Vec<String> = check(&policy, &ThisHost::new())
            .problems
            .iter()
            .map(|problem| problem.what.split(',').next().unwrap().to_owned())
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

    #[test]
    fn built_in_rule_of_compat_is_told() {
        let rule = "p: RegExpFilter, privsep-helper, root, privsep-helper, /etc/x\n";
        let found = differences(rule);
        let built_in =
            "built in: privsep-helper (CommandFilter): `privsep-helper '/etc/x and more'` runs ";
        let told = found.iter().find(|found| found.starts_with(built_in));
        assert!(
            told.is_some_and(|told| told.ends_with("and is refused in strict mode")),
            "{found:?}"
        );
    }

    #[test]
    fn what_a_later_rule_does_with_the_example_is_told() {
        let pattern = "a: RegExpFilter, no-such, nobody, no-such, -l|-a\n";
        assert_eq!(
            differences(&format!("{pattern}b: CommandFilter, no-such, root\n")),
            [
                "000000.filters:2: a (RegExpFilter): `no-such '-l and more'` runs `/sbin/no-such '-l and \
                 more'` as nobody in compat mode, and runs `/sbin/no-such '-l and more'` as root (by \
                 000000.filters:3: b (CommandFilter)) in strict mode"
            ]
        );
        // The same by the same user, whichever rule decides, is no difference; a newline behind the
        // command's name is none of the other rule's.
        let all = "b: CommandFilter, no-such, nobody\n";
        let found = differences(&format!("{pattern}{all}"));
        assert!(found.len() == 1 && found[0].contains("`$'no-such\\n' -l` runs"), "{found:?}");
    }

    #[test]
    fn rules_of_which_the_first_listed_file_decides_are_told() {
        let root = "x: CommandFilter, no-such, root\n";
        let nobody = "y: CommandFilter, no-such, nobody\n";
        assert_eq!(
            differences_of_files(&[root, nobody, root]),
            [
                "000000.filters:2: x (CommandFilter): `no-such` runs `/sbin/no-such` as root in compat mode \
                 as the file system lists the files now, runs `/sbin/no-such` as nobody (by \
                 000001.filters:2: y (CommandFilter)) in another order, and runs `/sbin/no-such` as root in \
                 strict mode"
            ]
        );
        // As the folder lists them: strict mode takes them by their names.
        let files = [("b", format!("[Filters]\n{nobody}")), ("a", format!("[Filters]\n{root}"))];
        let policy = Policy::of_files(b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/sbin\n", &files);
        let report = check(&policy, &ThisHost::with_environment(Vec::new()));
        let [found] = &report.differences[..] else { panic!("{:?}", report.differences) };
        assert_eq!(found.compat, "runs `/sbin/no-such` as nobody");
        let by_name = "runs `/sbin/no-such` as root (by a:2: x (CommandFilter))";
        assert_eq!((found.other_order.as_deref(), &*found.strict), (Some(by_name), by_name));
        // In one file their order is no chance, and neither is it where both do the same.
        assert_eq!(differences(&format!("{root}{nobody}")), [""; 0]);
        assert_eq!(differences_of_files(&[root, root]), [""; 0]);
        // A file at whose rule the original breaks off.
        let broken = "k: KillFilter, root\n";
        let found = differences_of_files(&["k: KillFilter, root, no-such\n", broken]);
        assert!(
            found.iter().any(|found| found.contains(", is refused in another order, ")),
            "{found:?}"
        );
    }
}
