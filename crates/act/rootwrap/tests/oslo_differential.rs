// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compat mode against oslo.rootwrap itself, on generated configurations, commands and patterns. Both have the same
//! rules, decisions, arguments and environments, byte for byte. The generator knows the rules, so that most commands
//! nearly match one.
//!
//! `ROSTER_POLICIES=N` compares N policies with 30 commands each (default 400; `make test-long PART=filters` takes
//! more). `ROSTER_SEED=S` starts with another seed. A failure prints its case. `ROSTER_OSLO_ROOTWRAP` names a Python
//! that can import oslo.rootwrap; the default is that of `scripts/need test`.

use roster_rootwrap::host_facts::LocalHost;
use roster_rootwrap::pattern::{MatchBudget, MatchError, Pattern, PatternFault};
use roster_rootwrap::rootwrap_conf::LogLevel;
use roster_rootwrap::{Mode, Refusal, RootwrapPolicy, evaluate};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const POLICIES: u64 = 400;
/// Policies in one request to oslo.rootwrap.
const BATCH: u64 = 200;
const COMMANDS: usize = 30;
const PATTERNS: usize = 3000;
/// Arguments for each pattern.
const ARGS: usize = 4;

#[test]
fn compat_judges_as_the_original_does() {
    let policies = number("ROSTER_POLICIES", POLICIES);
    let scene = Scene::new();
    std::env::set_current_dir(&scene.root).unwrap();
    let mut dice = Dice::new();
    let mut counts = Counts::default();
    for first in (0..policies).step_by(BATCH as usize) {
        let cases = first..policies.min(first + BATCH);
        let cases: Vec<Case> = cases.map(|number| scene.case(&mut dice, number)).collect();
        let answers = query_oracle(json!({
            "folder": latin(scene.root.as_os_str()),
            "policies": cases.iter().map(Case::to_json).collect::<Vec<_>>(),
            "patterns": [],
        }));
        for (case, answer) in cases.iter().zip(answers["policies"].as_array().unwrap()) {
            counts.compare(case, answer);
        }
        fs::remove_dir_all(scene.root.join("policies")).unwrap();
    }
    let Counts { loaded, judged, run } = counts;
    println!("{policies} policies, {loaded} whole; {judged} commands, {run} may run");
    // The comparison is meaningful: most files load, and many commands are allowed.
    assert!(loaded * 10 > policies * 7, "{loaded} of {policies} configurations are whole");
    assert!(run * 10 > judged, "{run} of {judged} commands may run");
}

/// Counts of the comparison.
#[derive(Default)]
struct Counts {
    /// Configurations without a mistake.
    loaded: u64,
    /// Commands of these configurations.
    judged: u64,
    /// Allowed commands.
    run: u64,
}

impl Counts {
    fn compare(&mut self, case: &Case, answer: &Value) {
        let ours = case.ours();
        let place = case.conf.display();
        assert_eq!(ours.is_null(), answer.is_null(), "loading {place}: {}", case.text());
        if answer.is_null() {
            return;
        }
        self.loaded += 1;
        assert_eq!(ours["rules"], answer["rules"], "{}", case.text());
        assert_eq!(ours["settings"], answer["settings"], "{}", case.text());
        let verdicts = answer["verdicts"].as_array().unwrap();
        for (at, (theirs, command)) in verdicts.iter().zip(&case.commands).enumerate() {
            assert_eq!(&ours["verdicts"][at], theirs, "{command:?} by {}", case.text());
            self.judged += 1;
            self.run += u64::from(theirs.get("argv").is_some());
        }
    }
}

#[test]
fn patterns_match_what_they_match_in_python() {
    let mut dice = Dice::new();
    let mut cases: Vec<(String, OsString)> = Vec::new();
    for _ in 0..PATTERNS {
        let pattern = if dice.below(12) == 0 { dice.noise() } else { dice.pattern(3) };
        cases.extend((0..ARGS).map(|_| (pattern.clone(), dice.arg())));
    }
    let patterns = cases
        .iter()
        .map(|(pattern, arg)| json!({"pattern": latin(OsStr::new(pattern)), "arg": latin(arg)}))
        .collect::<Vec<_>>();
    let answers = query_oracle(json!({"folder": "/", "policies": [], "patterns": patterns}));
    let (mut matched, mut left_out) = (0, 0);
    for ((pattern, arg), theirs) in cases.iter().zip(answers["patterns"].as_array().unwrap()) {
        let ours = match Pattern::new(pattern).matches(Mode::Compat, arg, &MatchBudget::default()) {
            Ok(matches) => json!(matches),
            Err(MatchError::Fault(PatternFault::Bad(_))) => json!("bad"),
            Err(MatchError::Fault(PatternFault::Raises(_))) => json!("raises"),
            Err(_) => {
                left_out += 1;
                continue;
            }
        };
        assert_eq!(&ours, theirs, "pattern {pattern:?} on {arg:?}");
        matched += usize::from(ours == json!(true));
    }
    let all = cases.len();
    assert!(matched * 10 > all, "{matched} of {all} match");
    assert!(left_out * 20 < all, "{left_out} of {all} are not supported");
}

/// A directory with executables, links and processes for rules and commands.
struct Scene {
    root: PathBuf,
    processes: Vec<Child>,
    _folder: tempfile::TempDir,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

struct Case {
    conf: PathBuf,
    env: Vec<(OsString, OsString)>,
    commands: Vec<Vec<OsString>>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for name in ["bin", "sbin", "images/a", "images-evil", "bin/folder"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for (name, mode) in [
            ("bin/ls", 0o755),
            ("bin/cat", 0o755),
            ("bin/chown", 0o755),
            ("bin/nice", 0o755),
            ("sbin/ip", 0o755),
            ("sbin/ls", 0o755),
            ("bin/plain", 0o644),
            ("bin/env", 0o755),
            ("images/file", 0o644),
            ("images-evil/file", 0o644),
            ("bin/unit\u{e9}", 0o755),
        ] {
            fs::write(root.join(name), "").unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("../images-evil/file", root.join("images/way-out")).unwrap();
        symlink("images", root.join("pictures")).unwrap();
        symlink("round", root.join("images/round")).unwrap();
        symlink("turn", root.join("back")).unwrap();
        symlink("images/../back/x", root.join("turn")).unwrap();
        symlink("..", root.join("images/a/up")).unwrap();
        symlink(root.join("images-evil"), root.join("images/away")).unwrap();
        let processes = Self::processes(&root);
        Self { root, processes, _folder: folder }
    }

    /// Executables of the processes stay, are removed, or are replaced.
    fn processes(root: &Path) -> Vec<Child> {
        let mut processes = Vec::new();
        for name in ["bin/sleeper", "bin/gone", "sbin/renamed", "bin/by\u{e9}"] {
            fs::copy("/bin/sleep", root.join(name)).unwrap();
            let mut command = Command::new(root.join(name));
            processes.push(command.arg("3600").stdin(Stdio::null()).spawn().unwrap());
        }
        fs::remove_file(root.join("bin/gone")).unwrap();
        fs::rename(root.join("sbin/renamed"), root.join("sbin/renamed.1")).unwrap();
        fs::write(root.join("sbin/renamed"), "").unwrap();
        fs::remove_file(root.join("sbin/renamed.1")).unwrap();
        processes
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    fn case(&self, dice: &mut Dice, number: u64) -> Case {
        let home = self.root.join(format!("policies/{number}"));
        let folders = 1 + dice.below(2);
        let (mut paths, mut rules) = (Vec::new(), Vec::new());
        for folder in 0..folders {
            let filters = home.join(format!("d{folder}"));
            fs::create_dir_all(&filters).unwrap();
            for file in 0..dice.below(3) + 1 - folder.min(1) {
                let name = dice.pick(&["a.filters", "b", ".hidden", "c~"]);
                let text = self.filter_file(dice, &mut rules);
                fs::write(filters.join(format!("{name}{file}")), text).unwrap();
            }
            paths.push(filters.to_str().unwrap().to_owned());
        }
        let mut conf = format!("[DEFAULT]\nfilters_path={}\n", paths.join(","));
        let (bin, sbin) = (self.path("bin"), self.path("sbin"));
        conf += &match dice.below(5) {
            0 => String::new(),
            1 => format!("exec_dirs={sbin}, {bin}\n"),
            2 => "exec_dirs: bin,,sbin\n".into(),
            _ => format!("exec_dirs={sbin},{bin},/usr/bin,/bin\n"),
        };
        for (name, values) in [
            ("use_syslog", &["True", "off", "YES", "2"][..]),
            ("syslog_log_facility", &["LOG_USER", "local3", "LOG_ERR", "cron", "nowhere"]),
            ("syslog_log_level", &["debug", "WARN", "NOTSET", "fatal", "loud"]),
            ("daemon_timeout", &["60", "1_0", "-1", " +5", "soon"]),
            ("RLIMIT_nofile", &["64", "2048", "0", "1e3"]),
        ] {
            // The last value of each list is invalid.
            let among = if dice.below(20) == 0 { values.len() } else { values.len() - 1 };
            if dice.below(4) == 0 {
                conf += &format!("{name} = {}\n", values[dice.below(among)]);
            }
        }
        let file = home.join("rootwrap.conf");
        fs::write(&file, conf).unwrap();
        let mut env = vec![(OsString::from("HOME"), OsString::from("/root"))];
        if dice.below(8) > 0 {
            env.push(("PATH".into(), format!("{bin}:/usr/bin:{sbin}").into()));
        }
        env.push(("A".into(), OsString::from_vec(b"old\xff".to_vec())));
        if dice.below(4) == 0 {
            env.push(("LANGUAGE".into(), "../x".into()));
        }
        let near = |dice: &mut Dice| match dice.below(3) {
            0 => self.command(dice),
            _ => self.command_for(dice, &rules, true),
        };
        let commands = (0..COMMANDS).map(|_| near(dice)).collect();
        Case { conf: file, env, commands }
    }

    /// Creates rules, sometimes with difficult syntax.
    fn filter_file(&self, dice: &mut Dice, rules: &mut Vec<Vec<String>>) -> Vec<u8> {
        let mut text = String::new();
        if dice.below(6) == 0 {
            text += &format!("[DEFAULT]\ndefault{}: CommandFilter, cat, root\n", dice.below(3));
        }
        text += dice.pick(&[
            "[Filters]\n",
            "# c\n[Filters]\n",
            "\n[Filters] x\r\n",
            "[Other]\na=b\n[Filters]\n",
        ]);
        for _ in 0..1 + dice.below(7) {
            let name =
                format!("{}{}", dice.pick(&["rule", "Rule", "r u", "\u{c9}t"]), dice.below(9));
            let sign = dice.pick(&[": ", "=", " = ", ":", " :\t"]);
            let mut words = self.rule(dice);
            if dice.below(40) == 0 {
                words.truncate(1 + dice.below(2));
            }
            rules.push(words.clone());
            let comma = dice.pick(&[", ", ",", " ,", ",\n    ", ",\n# c\n\t", ",\n\n  "]);
            text += &format!("{name}{sign}{}", words.join(comma));
            text += dice.pick(&["\n", "\n", "\n\n", "\r\n", "  \n; c\n", " # no comment\n"]);
            match dice.below(150) {
                0 => text += "nothing\n",
                1 => text += "= nameless\n",
                2 => text += "[Filters]\n",
                3 => text += "  [Other]\n",
                4 => text += "empty:\n",
                _ => {}
            }
        }
        let mut bytes = text.into_bytes();
        if dice.below(100) == 0 {
            bytes.push(0xff);
        }
        bytes
    }

    fn user(dice: &mut Dice) -> String {
        dice.pick(&["root", "root", "root", "nova", "nobody"]).to_string()
    }

    fn executable(&self, dice: &mut Dice) -> String {
        match dice.below(4) {
            0 => {
                let name =
                    dice.pick(&["bin/ls", "bin/cat", "sbin/ip", "bin/plain", "no", "bin/folder"]);
                self.path(name)
            }
            _ => dice
                .pick(&[
                    "ls",
                    "cat",
                    "chown",
                    "ip",
                    "nice",
                    "env",
                    "no",
                    "plain",
                    "folder",
                    "",
                    "unit\u{e9}",
                    "../bin/ls",
                    "kill",
                    "privsep-helper",
                ])
                .to_string(),
        }
    }

    fn rule(&self, dice: &mut Dice) -> Vec<String> {
        let class = dice.pick(&[
            "CommandFilter",
            "RegExpFilter",
            "RegExpFilter",
            "PathFilter",
            "KillFilter",
            "ReadFileFilter",
            "IpFilter",
            "EnvFilter",
            "EnvFilter",
            "IpNetnsExecFilter",
            "ChainingRegExpFilter",
            "ChainingFilter",
            "DnsmasqFilter",
            "commandfilter",
        ]);
        let mut words = vec![class.to_owned()];
        match class {
            "KillFilter" => {
                words.push(Self::user(dice));
                if dice.below(12) > 0 {
                    words.push(match dice.below(3) {
                        0 => dice.pick(&["sleeper", "gone", "renamed", "kill"]).to_string(),
                        _ => {
                            let name = dice.pick(&[
                                "bin/sleeper",
                                "bin/gone",
                                "sbin/renamed",
                                "bin/by\u{e9}",
                            ]);
                            self.path(name)
                        }
                    });
                }
                let signals = dice.below(3);
                words.extend(
                    (0..signals).map(|_| dice.pick(&["-9", "-HUP", "-15", ""]).to_string()),
                );
                return words;
            }
            "ReadFileFilter" => {
                words.push(dice.pick(&["/etc/shadow", "/etc/passwd", "x"]).to_string());
                return words;
            }
            "IpFilter" | "IpNetnsExecFilter" if dice.below(3) > 0 => words.push("ip".into()),
            "ChainingRegExpFilter" if dice.below(3) > 0 => words.push("nice".into()),
            _ => words.push(self.executable(dice)),
        }
        words.push(Self::user(dice));
        match class {
            "RegExpFilter" | "ChainingRegExpFilter" => {
                let most = if class == "RegExpFilter" { 4 } else { 3 };
                for at in 0..dice.below(most) {
                    let first: &[&str] = &["ls", "nice", "cat", "ip", "(ls|cat)", ".*", "ls|cat"];
                    let other: &[&str] = &[
                        "-n",
                        r"-?\d+",
                        ".*",
                        "a|b",
                        r"(?!-)\w+",
                        "[^/]*",
                        "(a|b)+",
                        r"(.)\1",
                        "*",
                        "/etc/.*",
                        "",
                        "(?i)FILE",
                        r".*\.\.",
                        "a\\",
                        "(?x) a # b",
                        r"[\w.-]+",
                        r"\S+$",
                    ];
                    words.push(dice.pick(if at == 0 { first } else { other }).to_string());
                }
            }
            "PathFilter" => {
                for _ in 0..dice.below(4) {
                    words.push(match dice.below(5) {
                        0 => "pass".into(),
                        1 => dice.pick(&["nova", "-R", ""]).to_string(),
                        2 => "/".into(),
                        3 => self.path("images/"),
                        _ => self.path("images"),
                    });
                }
            }
            "EnvFilter" => {
                for _ in 0..dice.below(4) {
                    words.push(
                        dice.pick(&[
                            "A=",
                            "B=1",
                            "A=2",
                            "C",
                            "=",
                            "ls",
                            "LD_X=",
                            "LANGUAGE=",
                            "LC_ALL=C",
                        ])
                        .to_string(),
                    );
                }
            }
            "CommandFilter" if dice.below(5) == 0 => words.push("more".into()),
            _ => {}
        }
        words
    }

    fn word(&self, dice: &mut Dice) -> OsString {
        let pid = |at: usize| self.processes[at].id();
        match dice.below(26) {
            22.. => self.winding(dice).into(),
            0 => self.path("images/file").into(),
            1 => self.path("images-evil/file").into(),
            2 => self.path("images/../images/a").into(),
            3 => self.path("images/way-out").into(),
            4 => self.path("pictures/no").into(),
            5 => dice.pick(&["images/file", "pictures//a/", "", ".", "/", "images/round/x"]).into(),
            6 => self.path("images").into(),
            7 => OsString::from_vec(
                dice.pick(&[&b"\xff"[..], b"a\xffb", b"\xc3\xa9", b"\xed\xb2\x80"]).to_vec(),
            ),
            8 => pid(dice.below(self.processes.len())).to_string().into(),
            _ => dice
                .pick(&[
                    "-n",
                    "5",
                    "-5",
                    "a",
                    "b",
                    "aa",
                    "a\n",
                    "a and more",
                    "--",
                    "file",
                    "FILE",
                    "A=1",
                    "B=",
                    "C=x=y",
                    "=",
                    "pass",
                    "nova",
                    "-R",
                    "/etc/passwd",
                    "a$",
                    "ls",
                    "cat",
                    "x..",
                    "\u{661}",
                ])
                .into(),
        }
    }

    /// Creates a path with links, some of which form loops.
    fn winding(&self, dice: &mut Dice) -> String {
        let names = [
            "images",
            "images-evil",
            "pictures",
            "a",
            "up",
            "away",
            "file",
            "way-out",
            "round",
            "back",
            "turn",
            "..",
            ".",
            "",
            "no",
        ];
        let count = dice.below(7);
        let path = (0..count).map(|_| dice.pick(&names)).collect::<Vec<_>>().join("/");
        if dice.below(3) > 0 { self.path(&path) } else { path }
    }

    /// Creates a command that one of the rules probably matches.
    fn command_for(&self, dice: &mut Dice, rules: &[Vec<String>], chain: bool) -> Vec<OsString> {
        let Some(rule) = rules.get(dice.below(rules.len().max(1))) else {
            return self.command(dice);
        };
        let (class, rest) = (&*rule[0], &rule[1..]);
        let Some(first) = rest.first() else { return self.command(dice) };
        let name = Path::new(first).file_name().unwrap_or_default().to_owned();
        let mut words = vec![if dice.below(3) == 0 { first.into() } else { name }];
        let behind = rest.get(2..).unwrap_or_default();
        match class {
            "RegExpFilter" | "ChainingRegExpFilter" => {
                words = behind.iter().map(|pattern| Self::fitting(dice, pattern)).collect();
                if class == "ChainingRegExpFilter" && chain {
                    words.extend(self.command_for(dice, rules, false));
                }
            }
            "PathFilter" => {
                words.extend(behind.iter().map(|argument| match &**argument {
                    "pass" => self.word(dice),
                    path if path.starts_with('/') && dice.below(3) == 0 => {
                        self.winding(dice).into()
                    }
                    path if path.starts_with('/') => {
                        let name = dice.pick(&[
                            "images/file",
                            "images/a/..",
                            "pictures/no",
                            "images-evil/x",
                        ]);
                        self.path(name).into()
                    }
                    word => word.into(),
                }));
            }
            "KillFilter" => {
                words = vec!["kill".into()];
                words.extend(rest.get(2).map(OsString::from));
                words
                    .push(self.processes[dice.below(self.processes.len())].id().to_string().into());
            }
            "ReadFileFilter" => words = vec!["cat".into(), first.into()],
            "IpFilter" => words = vec!["ip".into(), "-n".into(), "net".into(), "exec".into()],
            "IpNetnsExecFilter" if chain => {
                words = ["ip", "netns", "exec", "space"].map(OsString::from).to_vec();
                words.extend(self.command_for(dice, rules, false));
            }
            "EnvFilter" => {
                let settings = behind.iter().take_while(|word| word.contains('='));
                let settings: Vec<OsString> = settings
                    .map(|word| format!("{word}{}", dice.pick(&["", "v", "=", "/x"])).into())
                    .collect();
                let command = behind.get(settings.len()).filter(|_| first.contains("env"));
                words = if dice.below(2) == 0 { vec!["env".into()] } else { Vec::new() };
                words.extend(settings);
                words.push(command.unwrap_or(first).into());
                words.extend((0..dice.below(3)).map(|_| self.word(dice)));
            }
            _ => words.extend((0..dice.below(4)).map(|_| self.word(dice))),
        }
        words
    }

    /// Creates a word for a pattern of [`Scene::rule`].
    fn fitting(dice: &mut Dice, pattern: &str) -> OsString {
        let word = match pattern {
            "(ls|cat)" | ".*" | "ls|cat" => dice.pick(&["ls", "cat", "lsx"]),
            r"-?\d+" => "-5",
            "a|b" => dice.pick(&["a", "b", "a and more"]),
            r"(?!-)\w+" | "[^/]*" | r"[\w.-]+" | r"\S+$" => "file",
            "(a|b)+" => dice.pick(&["ab", "c", "b"]),
            r"(.)\1" => "aa",
            "/etc/.*" => "/etc/passwd",
            "(?i)FILE" => "File",
            r".*\.\." => "x..",
            "a\\" => "a$",
            "(?x) a # b" => "a",
            word => word,
        };
        if dice.below(6) == 0 { format!("{word}\n").into() } else { word.into() }
    }

    fn command(&self, dice: &mut Dice) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        for _ in 0..dice.below(3) {
            match dice.below(9) {
                0 => {
                    let netns = dice.pick(&["netns", "net", "netn", "ne"]);
                    let exec = dice.pick(&["exec", "e", "ex", "list"]);
                    words.extend(["ip", netns, exec, "space"].map(OsString::from));
                }
                1 => words.extend(["nice", "-n", "5"].map(OsString::from)),
                2 => words.push("env".into()),
                3 => words.extend(["env", "A=new"].map(OsString::from)),
                4 => words.extend(["A=", "B=2"].map(OsString::from)),
                _ => {}
            }
        }
        match dice.below(9) {
            0 => {
                words.push("kill".into());
                if dice.below(2) == 0 {
                    words.push(dice.pick(&["-9", "-HUP", "-15", "-KILL"]).into());
                }
                let pid = self.processes[dice.below(self.processes.len())].id();
                words.push(match dice.below(9) {
                    0 => format!("+{pid}").into(),
                    1 => format!(" 0{pid}").into(),
                    2 => "-1".into(),
                    3 => "1x".into(),
                    _ => pid.to_string().into(),
                });
            }
            1 => words.extend(
                ["cat", dice.pick(&["/etc/shadow", "/etc/passwd", "x"])].map(OsString::from),
            ),
            2 => {
                words.push("ip".into());
                for _ in 0..dice.below(4) {
                    words.push(
                        dice.pick(&[
                            "-n", "net", "netns", "exec", "e", "list", "add", "-4", "xdp", "vrf",
                            "-b",
                        ])
                        .into(),
                    );
                }
            }
            3 => words.push("privsep-helper".into()),
            4 => words.push(
                self.path(["bin/ls", "sbin/ip", "images/ls", "bin/plain"][dice.below(4)]).into(),
            ),
            5 => {}
            _ => words.push(self.executable(dice).into()),
        }
        for _ in 0..dice.below(4) {
            words.push(self.word(dice));
        }
        words
    }
}

impl Case {
    fn to_json(&self) -> Value {
        json!({
            "conf": latin(self.conf.as_os_str()),
            "env": pairs(&self.env),
            "commands": self.commands.iter().map(|words| latins(words)).collect::<Vec<_>>(),
        })
    }

    /// Returns the files for the message of a failure.
    fn text(&self) -> String {
        let mut text = fs::read_to_string(&self.conf).unwrap();
        for folder in ["d0", "d1"] {
            let Ok(entries) = fs::read_dir(self.conf.parent().unwrap().join(folder)) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                text += &format!("--- {}\n", path.display());
                text += &String::from_utf8_lossy(&fs::read(&path).unwrap());
            }
        }
        text
    }

    /// Returns our result in the form of the oracle.
    fn ours(&self) -> Value {
        let host = LocalHost::with_environment(self.env.clone());
        let Ok(policy) = RootwrapPolicy::load(&self.conf, &host) else { return Value::Null };
        let rules: Vec<Value> = policy
            .rules(Mode::Compat)
            .map(|rule| {
                json!([
                    latin(OsStr::new(&rule.name)),
                    rule.class.name(),
                    latin(OsStr::new(&rule.exec_path)),
                    latin(OsStr::new(&rule.run_as)),
                ])
            })
            .collect();
        let conf = &policy.conf;
        let level = match conf.syslog_log_level {
            LogLevel::Notset => 0,
            LogLevel::Debug => 10,
            LogLevel::Info => 20,
            LogLevel::Warning => 30,
            LogLevel::Error => 40,
            LogLevel::Critical => 50,
        };
        let verdicts: Vec<Value> = self
            .commands
            .iter()
            .map(|words| match evaluate(Mode::Compat, &policy, words, &host) {
                Ok(verdict) => json!({
                    "rule": latin(OsStr::new(&verdict.rule().name)),
                    "run_as": latin(OsStr::new(verdict.run_as())),
                    "argv": latins(verdict.argv()),
                    "env": pairs(verdict.environment()),
                }),
                Err(Refusal::NoFilter) => json!({"refused": "no filter"}),
                Err(Refusal::NotExecutable(rule)) => {
                    json!({"refused": "not executable", "rule": latin(OsStr::new(&rule.name))})
                }
                Err(Refusal::Aborted(..) | Refusal::Nul | Refusal::ArgumentTooLong) => {
                    json!({"refused": "broken off"})
                }
            })
            .collect();
        json!({
            "rules": rules,
            "settings": [
                conf.use_syslog, conf.syslog_log_facility, level, conf.daemon_timeout, conf.rlimit_nofile,
            ],
            "verdicts": verdicts,
        })
    }
}

fn latin(text: &OsStr) -> String {
    text.as_bytes().iter().map(|&byte| char::from(byte)).collect()
}

fn latins(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| latin(word)).collect()
}

fn pairs(env: &[(OsString, OsString)]) -> Vec<[String; 2]> {
    env.iter().map(|(name, value)| [latin(name), latin(value)]).collect()
}

/// Requests the results of oslo.rootwrap for a batch.
fn query_oracle(batch: Value) -> Value {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oslo_oracle.py");
    let python = python();
    let mut child = Command::new(&python)
        .arg(&driver)
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("cannot run {}: {error}; run `scripts/need test`", python.display())
        });
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(batch.to_string().as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the driver failed: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("ROSTER_OSLO_ROOTWRAP") {
        return python.into();
    }
    // The directory of the build contains this test program.
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    target.join("tools/oslo-rootwrap/bin/python")
}

/// Returns a number of the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// A small generator of numbers. One seed gives the same numbers on all hosts.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number("ROSTER_SEED", 1)))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn arg(&mut self) -> OsString {
        let usual = [&b"a"[..], b"b", b"c", b"aa", b"ab"];
        let odd = [
            &b"A"[..],
            b"1",
            b"_",
            b" ",
            b"-",
            b".",
            b"\n",
            b"\xff",
            b"\xc3\xa9",
            b"\xe2\x80\x83",
            b"\x1c",
            b"\xd9\xa1",
            b"i",
            b"\xc4\xb0",
            b"k",
            b"\xe2\x84\xaa",
            b"$",
            b"\xcc\x81",
            b"\xc2\xb2",
            b"\xed\xb2\x80",
        ];
        let mut arg = Vec::new();
        for _ in 0..self.below(5) {
            arg.extend_from_slice(if self.below(3) == 0 {
                self.pick(&odd)
            } else {
                self.pick(&usual)
            });
        }
        if self.below(8) == 0 {
            arg.push(b'\n');
        }
        OsString::from_vec(arg)
    }

    fn pattern(&mut self, depth: usize) -> String {
        let mut text = String::new();
        if depth == 3 && self.below(8) == 0 {
            text += self.pick(&["(?i)", "(?s)", "(?m)", "(?x)", "(?a)", "(?ia)"]);
        }
        for _ in 0..1 + self.below(3) {
            let atom = self.atom(depth);
            if self.below(2) == 0 {
                let repeats =
                    ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{,2}", "{1,2}?", "*+", "?+"];
                // A possessive repetition of a group is refused.
                let count = repeats.len() - if atom.ends_with(')') { 2 } else { 0 };
                text += &(atom + self.pick(&repeats[..count]));
            } else {
                text += &atom;
            }
        }
        if self.below(5) == 0 {
            text = format!("{text}|{}", self.pattern(depth.saturating_sub(1).min(2)));
        }
        text
    }

    fn atom(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(3) > 0 {
            let atoms = [
                "a",
                "b",
                "c",
                ".",
                "-",
                " ",
                "1",
                "_",
                r"\d",
                r"\w",
                r"\s",
                r"\D",
                r"\W",
                r"\S",
                "[ab]",
                "[^a]",
                r"[\w-]",
                "[a-c]",
                r"[^\d]",
                r"\.",
                r"\n",
                r"\b",
                r"\B",
                "^",
                "$",
                r"\Z",
                r"\A",
                r"\x61",
                r"\u00e9",
                "é",
                r"[\x00-\xff]",
                r"[^\s\d]",
                r"\udcff",
                "[]a]",
                "[a-]",
                r"\141",
                "i",
                "k",
                "[[]",
                "[a&&b]",
                "[a--b]",
                "[~~a]",
                "{",
                "}",
                "]",
                "#",
            ];
            let usual = ["a", "b", ".", r"\w", "[ab]", "[a-c]"];
            return if self.below(2) == 0 { self.pick(&usual) } else { self.pick(&atoms) }
                .to_string();
        }
        let inner = self.pattern(depth - 1);
        match self.below(13) {
            0 => format!("(?:{inner})"),
            1 => format!("(?={inner})"),
            2 => format!("(?!{inner})"),
            3 => format!("(?<={})", self.pick(&["a", "ab", "a|b", "[ab]c", "a*", r"\w"])),
            4 => format!("(?<!{})", self.pick(&["a", "ab", "a|b", r"\n", "^"])),
            5 => format!("({inner})\\1"),
            6 => format!("(?P<n>{inner})(?P=n)"),
            7 => format!("(?>{inner})"),
            8 => format!("(?i:{inner})"),
            9 => format!("(?-s:{inner})"),
            _ => format!("({inner})"),
        }
    }

    /// Creates random signs, of which most are invalid.
    fn noise(&mut self) -> String {
        let signs = [
            "(", ")", "[", "]", "{", "}", "*", "+", "?", "\\", "|", "^", "$", "a", "1", ",", "-",
            ":", "=", "<", "!", "P", "x", "#", "(?", "i", "0", "8", "\u{e9}",
        ];
        (0..1 + self.below(7)).map(|_| self.pick(&signs)).collect()
    }
}
