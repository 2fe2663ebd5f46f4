//! All rules of a policy, and what they say of a command in each mode's order and, as to compat mode, in
//! others that a file system might list the files in.
//!
//! A command is judged by those rules alone that its words can matter to, so that checking a policy
//! takes hardly more than its rules are many.

use crate::explain::Word;
use crate::filters::{Class, Rule};
use crate::host::Facts;
use crate::judge::{Mode, Refusal, judge_by};
use crate::policy::Policy;
use crate::python::basename;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Orders that are tried of one folder: each has another file's rule decide.
const ORDERS_MAX: usize = 20;

/// What comes of a command.
pub(super) struct Answer<'p> {
    /// The rule that lets it run, or at which the original breaks off.
    pub(super) decider: Option<&'p Rule>,
    /// What runs; `None` if nothing does.
    pub(super) runs: Option<Runs<'p>>,
}

/// What runs, where it is to be told from something else.
#[derive(PartialEq)]
pub(super) struct Runs<'p> {
    user: &'p str,
    argv: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Answer<'_> {
    /// In words, with the rule if it is another than that one.
    pub(super) fn told(&self, known: &Rule) -> String {
        let Some(Runs { user, argv, .. }) = &self.runs else { return "is refused".into() };
        let words: Vec<_> = argv.iter().map(|word| Word(word).to_string()).collect();
        let told = format!("runs `{}` as {user}", words.join(" "));
        match self.decider {
            Some(decider) if !std::ptr::eq(decider, known) => format!("{told} (by {decider})"),
            _ => told,
        }
    }
}

/// A policy's rules, found by the words of commands.
pub(super) struct Rules<'p> {
    policy: &'p Policy,
    /// In the order of the names of their files, in which strict mode takes them.
    pub(super) by_name: Vec<&'p Rule>,
    /// The rule of compat mode that is in no file.
    pub(super) built_in: Option<&'p Rule>,
    /// In the order in which the file system lists their files; each with its position in the other, the built-in one
    /// behind all.
    listed: Vec<(&'p Rule, usize)>,
    /// Positions among the listed of those that are for a command with one of these words.
    by_word: HashMap<Vec<u8>, Vec<usize>>,
    /// Of those that may be for any.
    for_any: Vec<usize>,
    looks: Cell<usize>,
}

/// Rules that a command's words can matter to, in both orders.
pub(super) struct Relevant<'p> {
    listed: Vec<&'p Rule>,
    by_name: Vec<&'p Rule>,
}

impl<'p> Rules<'p> {
    pub(super) fn new(policy: &'p Policy) -> Self {
        let by_name: Vec<&Rule> = policy.rules(Mode::Strict).collect();
        let positions: HashMap<*const Rule, usize> =
            (0..).zip(&by_name).map(|(at, &rule)| (std::ptr::from_ref(rule), at)).collect();
        let built_in = policy.rules(Mode::Compat).find(|rule| rule.place.is_none());
        let position =
            |rule: &Rule| positions.get(&std::ptr::from_ref(rule)).copied().unwrap_or(usize::MAX);
        let listed = policy.rules(Mode::Compat);
        let listed: Vec<_> = listed.map(|rule| (rule, position(rule))).collect();
        let (mut by_word, mut for_any) = (HashMap::<_, Vec<usize>>::new(), Vec::new());
        for (at, (rule, _)) in listed.iter().enumerate() {
            match words_of(rule) {
                Some(words) => {
                    for word in words {
                        by_word.entry(word).or_default().push(at);
                    }
                }
                None => for_any.push(at),
            }
        }
        Self { policy, by_name, built_in, listed, by_word, for_any, looks: Cell::new(0) }
    }

    /// How many rules were looked at so far.
    pub(super) fn looks(&self) -> usize {
        self.looks.get()
    }

    pub(super) fn answer_in_strict(
        &self,
        relevant: &Relevant<'p>,
        command: &[OsString],
        host: &dyn Facts,
    ) -> Answer<'p> {
        self.answer(Mode::Strict, &relevant.by_name, command, host)
    }

    /// As the file system lists the files now; then with another file's rule deciding each time, as it
    /// would if the files before came behind it.
    pub(super) fn answers_in_compat(
        &self,
        relevant: &Relevant<'p>,
        command: &[OsString],
        host: &dyn Facts,
    ) -> Vec<Answer<'p>> {
        let mut rules = relevant.listed.clone();
        let mut answers = vec![self.answer(Mode::Compat, &rules, command, host)];
        let mut behind: Vec<&Path> = Vec::new();
        while let Some(file) = answers.last().and_then(|answer| file_of(answer.decider?))
            && answers.len() < ORDERS_MAX
        {
            behind.push(file);
            let is_left = |rule: &Rule| {
                file_of(rule)
                    .is_some_and(|other| are_beside(file, other) && !behind.contains(&other))
            };
            if !rules.iter().any(|rule| is_left(rule)) {
                break;
            }
            put_last_in_its_folder(&mut rules, file);
            let answer = self.answer(Mode::Compat, &rules, command, host);
            if !answer.decider.is_some_and(is_left) {
                break;
            }
            answers.push(answer);
        }
        answers
    }

    fn answer(
        &self,
        mode: Mode,
        rules: &[&'p Rule],
        command: &[OsString],
        host: &dyn Facts,
    ) -> Answer<'p> {
        let mut looks = 0;
        let judged = judge_by(mode, self.policy, rules, command, host, &mut |_, _, _| looks += 1);
        self.looks.set(self.looks.get() + looks);
        match judged {
            Ok(verdict) => {
                let argv = verdict.argv().to_vec();
                // Strict mode sets another PATH for each command.
                let environment = verdict.environment().iter().filter(|(name, _)| name != "PATH");
                let environment = environment.cloned().collect();
                let runs = Runs { user: verdict.run_as(), argv, environment };
                Answer { decider: Some(verdict.rule()), runs: Some(runs) }
            }
            Err(Refusal::BrokenOff(rule, _)) => Answer { decider: Some(rule), runs: None },
            Err(_) => Answer { decider: None, runs: None },
        }
    }

    /// The rules that might say something else of a command than that it is another.
    pub(super) fn relevant_to(&self, command: &[OsString]) -> Relevant<'p> {
        let mut positions = self.for_any.clone();
        for word in command {
            for word in [word.as_os_str(), basename(word)] {
                // Compat mode takes a word with a newline behind it for the word.
                let word = word.as_bytes();
                for word in [word, word.strip_suffix(b"\n").unwrap_or(word)] {
                    positions.extend(self.by_word.get(word).into_iter().flatten());
                }
            }
        }
        positions.sort_unstable();
        positions.dedup();
        let mut relevant: Vec<_> = positions.into_iter().map(|at| self.listed[at]).collect();
        let listed = relevant.iter().map(|&(rule, _)| rule).collect();
        relevant.sort_unstable_by_key(|&(_, by_name)| by_name);
        let of_files =
            relevant.into_iter().map(|(rule, _)| rule).filter(|rule| rule.place.is_some());
        let by_name = of_files.collect();
        Relevant { listed, by_name }
    }
}

/// Words of which a command that the rule matches has one, as it is or as the last part of a path; `None`
/// if that cannot be told.
fn words_of(rule: &Rule) -> Option<Vec<Vec<u8>>> {
    let word = |word: &str| Some(vec![word.as_bytes().to_vec()]);
    match &rule.class {
        Class::Command | Class::Chaining | Class::Path(_) => {
            let path = OsStr::new(&rule.exec_path);
            Some([path, basename(path)].map(|word| word.as_bytes().to_vec()).into())
        }
        Class::Kill(_) => word("kill"),
        Class::ReadFile(_) => word("cat"),
        Class::Ip | Class::IpNetnsExec => word("ip"),
        Class::RegExp(patterns) | Class::ChainingRegExp(patterns) => {
            let text = patterns.first()?.text();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/".contains(&byte);
            if text.bytes().all(plain) { word(text) } else { None }
        }
        // It changes the command for the rules behind it, whatever its own is.
        Class::Env(_) => None,
    }
}

fn file_of(rule: &Rule) -> Option<&Path> {
    rule.place.as_ref().map(|place| place.file.as_path())
}

fn are_beside(file: &Path, other: &Path) -> bool {
    file.parent().map(Path::as_os_str) == other.parent().map(Path::as_os_str)
}

/// As if the file system listed the file behind all others.
fn put_last_in_its_folder(rules: &mut [&Rule], file: &Path) {
    let is_in_folder = |rule: &&Rule| file_of(rule).is_some_and(|other| are_beside(file, other));
    let Some(start) = rules.iter().position(is_in_folder) else { return };
    let count = rules[start..].iter().take_while(|rule| is_in_folder(rule)).count();
    rules[start..start + count].sort_by_key(|rule| file_of(rule) == Some(file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;
    use crate::judge::judge;

    #[test]
    fn the_rules_that_matter_judge_as_all_do() {
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/usr/bin,/bin\n";
        let filters =
            b"[Filters]\na: CommandFilter, /bin/ls, nobody\nb: RegExpFilter, id, root, id, -u|-g\n\
            c: EnvFilter, env, root, A=, id\nd: ChainingRegExpFilter, nice, root, nice\n\
            e: RegExpFilter, id, daemon, (id|ls), .*\nf: ReadFileFilter, /etc/passwd\n\
            g: IpFilter, ls, root\nh: ChainingRegExpFilter, ls, daemon, timeout, [0-9]+\n\
            i: PathFilter, ls, nobody, /tmp\n";
        let policy = Policy::of_texts(conf, &[filters]).unwrap();
        let rules = Rules::new(&policy);
        let host = ThisHost::with_environment(vec![("PATH".into(), "/usr/bin:/bin".into())]);
        let mut running = 0;
        for line in [
            "ls",
            "/bin/ls",
            "/usr/bin/ls",
            "id -u",
            "id -u/x",
            "id\n -u",
            "/tmp/id -u",
            "id x",
            "env A=1 id",
            "A=1 id",
            "env cat /etc/passwd",
            "cat /etc/passwd",
            "nice /tmp/id -u",
            "nice id -g",
            "ip link",
            "timeout 1 id x",
            "timeout\n 1 /x/id x",
            "privsep-helper",
            "rm",
            "",
        ] {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let relevant = rules.relevant_to(&command);
            let compat = rules.answers_in_compat(&relevant, &command, &host).swap_remove(0);
            let strict = rules.answer_in_strict(&relevant, &command, &host);
            for (mode, answer) in [(Mode::Compat, compat), (Mode::Strict, strict)] {
                let whole = judge(mode, &policy, &command, &host);
                let whole =
                    whole.map(|verdict| (verdict.rule().to_string(), verdict.argv().to_vec()));
                let runs = answer.runs.map(|runs| runs.argv);
                let answer = answer.decider.map(ToString::to_string).zip(runs);
                running += usize::from(answer.is_some());
                assert_eq!(answer, whole.ok(), "{mode}: {line:?}");
            }
        }
        assert!(running > 20, "{running}");
    }
}
