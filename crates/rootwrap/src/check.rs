//! What is wrong with a policy, and which of its rules strict mode reads otherwise, each with a
//! command that shows it.
//!
//! The commands are made out of the rule and tried: on this host as it is, and on one that has every
//! executable, trusted, and a process for each rule about processes. So what is shown is open whatever
//! happens to be installed.

use crate::explain::Word;
use crate::filters::{Class, Rule};
use crate::host::{Facts, Kind, Status};
use crate::judge::{Mode, Refusal, Verdict, judge_by, names_of_settings};
use crate::policy::Policy;
use crate::problem::Problem;
use crate::python::{basename, is_absolute};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Commands that are tried of one rule.
const TRIES_MAX: usize = 400;
/// Rules that are tried behind one that chains.
const LEAVES_MAX: usize = 20;
/// Commands of a rule that are tried for what the order of the filter files makes of them.
const ORDER_TRIES_MAX: usize = 4;
/// With more rules each cannot be held against all others.
const ORDER_RULES_MAX: usize = 5000;
/// The process that is supposed to be there: no kernel gives out a number so high by itself.
const PID: i64 = 4_000_000;

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// What is passed over or matches never.
    pub problems: Vec<Problem>,
    /// What strict mode reads otherwise.
    pub differences: Vec<Difference>,
}

/// A rule that the modes read otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule, with its place.
    pub rule: String,
    /// A command that shows it.
    pub example: Vec<OsString>,
    /// What compat says of it.
    pub compat: String,
    /// What strict says.
    pub strict: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `", self.rule)?;
        for (at, word) in self.example.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, Word(word))?;
        }
        write!(f, "` {} in compat mode, and {} in strict mode", self.compat, self.strict)
    }
}

/// Checks a policy that was loaded.
#[must_use]
pub fn check(policy: &Policy, facts: &dyn Facts) -> Report {
    let mut problems = policy.warnings.clone();
    for rule in policy.rules(Mode::Compat) {
        let Some(place) = &rule.place else { continue };
        // Those that could not even be read are among the warnings.
        for pattern in rule.class.patterns().iter().filter(|pattern| pattern.fault().is_none()) {
            let Some((mode, fault)) = [Mode::Compat, Mode::Strict]
                .into_iter()
                .find_map(|mode| Some((mode, pattern.fault_in_use(mode)?)))
            else {
                continue;
            };
            let name = &rule.name;
            let what = format!("{name}: the pattern {:?} {fault} ({mode} mode)", pattern.text());
            problems.push(Problem::warning(&place.file, place.line, what, fault.instead()));
        }
    }
    let orders = Orders::of(policy);
    if orders.is_other && orders.strict.len() > ORDER_RULES_MAX {
        let place = orders.strict.iter().find_map(|rule| rule.place.as_ref());
        problems.extend(place.map(|place| {
            let what = "with so many rules it is not tried what the order of the files changes";
            Problem::warning(&place.file, 0, what, "see that no command has two rules")
        }));
    }
    let differences = orders.strict.iter();
    let differences = differences.filter_map(|rule| difference(policy, &orders, rule, facts));
    Report { problems, differences: differences.collect() }
}

/// All rules, as each mode takes them.
struct Orders<'p> {
    compat: Vec<&'p Rule>,
    strict: Vec<&'p Rule>,
    /// Whether the modes take them in another order.
    is_other: bool,
}

impl<'p> Orders<'p> {
    fn of(policy: &'p Policy) -> Self {
        let [compat, strict] =
            [Mode::Compat, Mode::Strict].map(|mode| policy.rules(mode).collect::<Vec<_>>());
        let is_other = compat.iter().zip(&strict).any(|(one, other)| !std::ptr::eq(*one, *other));
        Self { compat, strict, is_other }
    }

    /// What the whole policy says of a command in both modes.
    fn judged(&self, policy: &Policy, command: &[OsString], host: &dyn Facts) -> [Judged<'p>; 2] {
        [(Mode::Compat, &self.compat), (Mode::Strict, &self.strict)]
            .map(|(mode, rules)| judge_by(mode, policy, rules, command, host, &mut |_, _, _| {}))
    }
}

fn difference(
    policy: &Policy,
    orders: &Orders<'_>,
    rule: &Rule,
    facts: &dyn Facts,
) -> Option<Difference> {
    let rules = &orders.strict;
    let mut order_tries = match orders.is_other && rules.len() <= ORDER_RULES_MAX {
        true => ORDER_TRIES_MAX,
        false => 0,
    };
    let mut tried = vec![rule];
    if rule.class.is_chaining() {
        let leaves = rules.iter().copied();
        let leaves = leaves.filter(|leaf| leaf.run_as == rule.run_as && !leaf.class.is_chaining());
        tried.extend(leaves.take(LEAVES_MAX));
    }
    let mut commands = commands(rule, &tried[1..]);
    commands.truncate(TRIES_MAX);
    let supposed = Supposed::of(facts, rule);
    let here = Supposed { process: None, ..Supposed::of(facts, rule) };
    let wholly = Wholly(&supposed);
    let hosts: [&dyn Facts; 2] = [&wholly, &here];
    for host in hosts {
        for command in &commands {
            let judged = |mode| judge_by(mode, policy, &tried, command, host, &mut |_, _, _| {});
            let (compat, strict) = (judged(Mode::Compat), judged(Mode::Strict));
            // Alone it is quickly told apart; what counts is what all rules make of the command.
            if !differ(&compat, &strict) {
                if order_tries == 0 || strict.is_err() {
                    continue;
                }
                order_tries -= 1;
            }
            let [compat, strict] = orders.judged(policy, command, host);
            let by_rule = [&compat, &strict].into_iter().any(|judged| {
                judged.as_ref().is_ok_and(|verdict| std::ptr::eq(verdict.rule(), rule))
            });
            if by_rule && differ(&compat, &strict) {
                return Some(Difference {
                    rule: rule.to_string(),
                    example: command.clone(),
                    compat: told(&compat),
                    strict: told(&strict),
                });
            }
        }
    }
    None
}

type Judged<'p> = Result<Verdict<'p>, Refusal<'p>>;

fn differ(compat: &Judged<'_>, strict: &Judged<'_>) -> bool {
    match (compat, strict) {
        (Ok(compat), Ok(strict)) => {
            compat.argv() != strict.argv()
                || compat.environment() != strict.environment()
                || compat.run_as() != strict.run_as()
        }
        (Err(_), Err(_)) => false,
        _ => true,
    }
}

fn told(judged: &Judged<'_>) -> String {
    match judged {
        Ok(verdict) => {
            let words: Vec<_> = verdict.argv().iter().map(|word| Word(word).to_string()).collect();
            format!("runs `{}` as {}", words.join(" "), verdict.run_as())
        }
        Err(_) => "is refused".into(),
    }
}

/// Commands that the rule matches or nearly matches, those first that show most.
fn commands(rule: &Rule, leaves: &[&Rule]) -> Vec<Vec<OsString>> {
    let name = basename(OsStr::new(&rule.exec_path)).to_owned();
    match &rule.class {
        Class::Command | Class::Chaining => vec![vec![name]],
        Class::RegExp(patterns) => {
            variants(&patterns.iter().map(crate::pattern::Pattern::samples).collect::<Vec<_>>())
        }
        Class::Path(arguments) => {
            let plain: Vec<String> = arguments
                .iter()
                .map(|argument| match &**argument {
                    "pass" => "x".into(),
                    path if is_absolute(path.as_bytes()) => format!("{}/x", without_slash(path)),
                    word => word.to_owned(),
                })
                .collect();
            let mut all = Vec::new();
            for (at, argument) in arguments.iter().enumerate() {
                if is_absolute(argument.as_bytes()) {
                    for other in [format!("{}-evil/x", without_slash(argument)), argument.clone()] {
                        all.push([&plain[..at], &[other], &plain[at + 1..]].concat());
                    }
                }
            }
            all.push(plain);
            let command = |words: Vec<String>| {
                [name.clone()].into_iter().chain(words.into_iter().map(OsString::from)).collect()
            };
            all.into_iter().map(command).collect()
        }
        Class::Kill(arguments) => {
            let signal = arguments.get(1).map(OsString::from);
            let kill = |pid: String| {
                [Some("kill".into()), signal.clone(), Some(pid.into())]
                    .into_iter()
                    .flatten()
                    .collect()
            };
            vec![kill(format!("+{PID}")), kill(PID.to_string())]
        }
        Class::ReadFile(file) => vec![vec!["cat".into(), file.into()]],
        Class::Ip => vec![
            vec!["ip".into(), "-batch".into(), "FILE".into()],
            vec!["ip".into(), "link".into()],
        ],
        Class::Env(settings) => {
            let names = names_of_settings(settings.iter().map(String::as_bytes));
            let setting = |name: &&[u8]| {
                let mut setting = name.to_vec();
                setting.extend_from_slice(b"=x");
                crate::conf::os(setting)
            };
            let mut words: Vec<OsString> = names.iter().map(setting).collect();
            words.push(name);
            // The rule asks for as many words as it has, whatever they are.
            while words.len() < settings.len() {
                words.push("x".into());
            }
            vec![words]
        }
        Class::IpNetnsExec => {
            behind(&[vec!["ip".into(), "netns".into(), "exec".into(), "NAMESPACE".into()]], leaves)
        }
        Class::ChainingRegExp(patterns) => {
            let samples: Vec<_> = patterns.iter().map(crate::pattern::Pattern::samples).collect();
            let prefixes = if samples.is_empty() { vec![Vec::new()] } else { variants(&samples) };
            behind(&prefixes, leaves)
        }
    }
}

fn without_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Words out of the samples of each, and the same with one word that goes on behind its sample.
fn variants(samples: &[Vec<String>]) -> Vec<Vec<OsString>> {
    let plain: Vec<OsString> = samples
        .iter()
        .map(|samples| samples.first().map(OsString::from).unwrap_or_default())
        .collect();
    let mut all = Vec::new();
    for behind in [" and more", "x", "", "\n"] {
        for (at, samples) in samples.iter().enumerate() {
            for sample in samples {
                let mut words = plain.clone();
                words[at] = format!("{sample}{behind}").into();
                all.push(words);
            }
        }
    }
    all
}

/// Commands of other rules behind prefixes: first by a path that is not the rule's.
fn behind(prefixes: &[Vec<OsString>], leaves: &[&Rule]) -> Vec<Vec<OsString>> {
    let mut inner: Vec<Vec<OsString>> =
        leaves.iter().filter_map(|leaf| commands(leaf, &[]).pop()).collect();
    let elsewhere = inner.iter().filter_map(|command| {
        let (first, rest) = command.split_first()?;
        let mut path = OsString::from("/tmp/");
        path.push(first);
        Some([&[path], rest].concat())
    });
    let elsewhere: Vec<_> = elsewhere.collect();
    inner.splice(0..0, elsewhere);
    let whole = inner
        .iter()
        .flat_map(|command| prefixes.iter().map(move |prefix| [&prefix[..], command].concat()));
    whole.take(TRIES_MAX).collect()
}

/// This host, with a process that a rule speaks of, and with no more of an environment than `$PATH`.
struct Supposed<'f> {
    facts: &'f dyn Facts,
    environment: Vec<(OsString, OsString)>,
    process: Option<OsString>,
}

impl<'f> Supposed<'f> {
    fn of(facts: &'f dyn Facts, rule: &Rule) -> Self {
        let path = facts.variable("PATH").unwrap_or(OsStr::new("/usr/bin:/bin")).to_owned();
        let process = match &rule.class {
            Class::Kill(arguments) => arguments.first().map(|program| {
                let folder = crate::conf::split(&path).next().unwrap_or_default();
                crate::conf::os(crate::python::join(folder.as_encoded_bytes(), program.as_bytes()))
            }),
            _ => None,
        };
        Self { facts, environment: vec![("PATH".into(), path)], process }
    }
}

impl Facts for Supposed<'_> {
    fn may_execute(&self, path: &Path) -> bool {
        self.facts.may_execute(path)
    }

    fn status(&self, path: &Path) -> Option<Status> {
        self.facts.status(path)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.facts.link(path)
    }

    fn working_folder(&self) -> Option<PathBuf> {
        self.facts.working_folder()
    }

    fn executable_of(&self, pid: i64) -> Option<OsString> {
        self.process.clone().filter(|_| pid == PID)
    }

    fn first_word_of(&self, pid: i64) -> Option<OsString> {
        self.executable_of(pid)
    }

    fn start_of(&self, pid: i64) -> Option<u64> {
        self.executable_of(pid).map(|_| 0)
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    fn user(&self) -> u32 {
        self.facts.user()
    }
}

/// The same with every executable that a rule could lead to, none of which others could change.
struct Wholly<'s>(&'s Supposed<'s>);

impl Facts for Wholly<'_> {
    fn may_execute(&self, _path: &Path) -> bool {
        true
    }

    fn status(&self, path: &Path) -> Option<Status> {
        let kind = self.0.status(path).map_or(Kind::File, |found| found.kind);
        Some(Status { kind, uid: 0, gid: 0, mode: 0o755, has_acl: false })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.0.link(path)
    }

    fn working_folder(&self) -> Option<PathBuf> {
        self.0.working_folder()
    }

    fn executable_of(&self, pid: i64) -> Option<OsString> {
        self.0.executable_of(pid)
    }

    fn first_word_of(&self, pid: i64) -> Option<OsString> {
        self.0.first_word_of(pid)
    }

    fn start_of(&self, pid: i64) -> Option<u64> {
        self.0.start_of(pid)
    }

    fn environment(&self) -> &[(OsString, OsString)] {
        self.0.environment()
    }

    fn user(&self) -> u32 {
        self.0.user()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;

    fn differences(filters: &str) -> Vec<String> {
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/sbin,/usr/bin\n";
        let policy = Policy::of_texts(conf, &[format!("[Filters]\n{filters}").as_bytes()]).unwrap();
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
    fn what_is_told_is_what_all_rules_make_of_the_command() {
        let found = differences(
            "a: RegExpFilter, no-such, nobody, no-such, -u|-g\nb: CommandFilter, no-such, root\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("as nobody in compat mode"), "{}", found[0]);
        assert!(found[0].ends_with("as root in strict mode"), "{}", found[0]);
    }

    #[test]
    fn rules_that_change_places_are_told() {
        let rule = |user: &str| format!("[Filters]\nx: CommandFilter, ls, {user}\n");
        // As the folder lists them.
        let files = [("b", rule("nobody")), ("a", rule("root"))];
        let policy = Policy::of_files(b"[DEFAULT]\nfilters_path=/x\n", &files);
        let path = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let report = check(&policy, &ThisHost::with_environment(path));
        let found: Vec<_> = report.differences.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        for found in found {
            assert!(found.contains("as nobody in compat mode"), "{found}");
            assert!(found.ends_with("as root in strict mode"), "{found}");
        }
    }

    #[test]
    fn rules_that_are_read_alike_are_not_told() {
        let filters = "a: CommandFilter, ls, root\nb: ReadFileFilter, /etc/shadow\n\
                       c: EnvFilter, env, root, A=, ls\nd: CommandFilter, /no/such, root\n";
        assert_eq!(differences(filters), [""; 0]);
    }
}
