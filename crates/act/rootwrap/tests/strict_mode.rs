// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps of oslo.rootwrap that strict mode closes, one in each test. Compat mode allows the command as oslo.rootwrap
//! does. Strict mode refuses it, and still allows the intended commands.

use roster_rootwrap::evaluate::KillRequest;
use roster_rootwrap::host_facts::LocalHost;
use roster_rootwrap::{Mode, Refusal, RootwrapPolicy, evaluate};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory with executables.
struct Scene {
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let scene = Self { root, _folder: folder };
        scene.folder("bin", 0o755);
        for name in ["ls", "ip", "nice", "chown", "tool"] {
            scene.file(&format!("bin/{name}"), 0o755);
        }
        scene
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    fn folder(&self, name: &str, mode: u32) {
        fs::create_dir_all(self.root.join(name)).unwrap();
        self.mode(name, mode);
    }

    fn file(&self, name: &str, mode: u32) {
        fs::write(self.root.join(name), "").unwrap();
        self.mode(name, mode);
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn policy(&self, rules: &str, exec_dirs: &str) -> RootwrapPolicy {
        let conf = format!("[DEFAULT]\nfilters_path=/x\nexec_dirs={exec_dirs}\n");
        RootwrapPolicy::from_texts(conf.as_bytes(), &[format!("[Filters]\n{rules}").as_bytes()])
            .unwrap()
    }

    /// Returns the final words in both modes, without the name of the directory. `None` for a refused command.
    fn both(&self, rules: &str, command: &[&str]) -> [Option<String>; 2] {
        let policy = self.policy(rules, &self.path("bin"));
        [Mode::Compat, Mode::Strict].map(|mode| self.judged(&policy, mode, command).ok())
    }

    fn judged(&self, policy: &RootwrapPolicy, mode: Mode, command: &[&str]) -> Result<String, u8> {
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        let host = LocalHost::with_environment(vec![("PATH".into(), self.path("bin").into())]);
        let verdict =
            evaluate(mode, policy, &argv, &host).map_err(|refusal| refusal.exit_code())?;
        let words: Vec<_> = verdict.argv().iter().map(|word| word.to_str().unwrap()).collect();
        Ok(words.join(" ").replace(&format!("{}/", self.root.display()), ""))
    }

    fn only_compat(&self, rules: &str, commands: &[&[&str]]) {
        for command in commands {
            let [compat, strict] = self.both(rules, command);
            assert!(compat.is_some() && strict.is_none(), "{command:?}: {compat:?} {strict:?}");
        }
    }

    fn alike(&self, rules: &str, commands: &[&[&str]]) {
        for command in commands {
            let [compat, strict] = self.both(rules, command);
            assert!(compat.is_some() && compat == strict, "{command:?}: {compat:?} {strict:?}");
        }
    }
}

#[test]
fn a_pattern_is_anchored_at_both_ends_whatever_its_branches() {
    let scene = Scene::new();
    let rules = "ls: RegExpFilter, ls, root, ls, -l|-a\n";
    scene.only_compat(rules, &[&["ls", "-l --anything"], &["ls", "-lx"]]);
    scene.alike(rules, &[&["ls", "-l"], &["ls", "-a"]]);
}

#[test]
fn a_newline_behind_an_argument_is_part_of_it() {
    let scene = Scene::new();
    let rules = "ls: RegExpFilter, ls, root, ls, [a-z]+$\n";
    scene.only_compat(rules, &[&["ls", "file\n"], &["ls\n", "file"]]);
    scene.alike(rules, &[&["ls", "file"]]);
}

#[test]
fn a_folder_whose_name_goes_on_is_another_folder() {
    let scene = Scene::new();
    for folder in ["images", "images-evil"] {
        scene.folder(folder, 0o755);
    }
    let rules = format!("chown: PathFilter, chown, root, nova, {}\n", scene.path("images"));
    scene.only_compat(&rules, &[&["chown", "nova", &scene.path("images-evil/x")]]);
    scene.alike(&rules, &[&["chown", "nova", &scene.path("images/x")]]);
}

#[test]
fn a_link_out_of_the_folder_is_seen_through_in_both_modes() {
    let scene = Scene::new();
    scene.folder("images", 0o755);
    symlink("/etc/shadow", scene.root.join("images/link")).unwrap();
    let rules = format!("chown: PathFilter, chown, root, nova, {}\n", scene.path("images"));
    for path in ["images/link", "images/../bin/ls"] {
        assert_eq!(scene.both(&rules, &["chown", "nova", &scene.path(path)]), [None, None]);
    }
}

#[test]
fn what_a_chain_runs_is_what_was_judged() {
    let scene = Scene::new();
    scene.folder("evil", 0o755);
    scene.file("evil/ls", 0o755);
    let evil = scene.path("evil/ls");
    for (rule, prefix) in [
        ("IpNetnsExecFilter, ip, root", &["ip", "netns", "exec", "q"][..]),
        ("ChainingRegExpFilter, nice, root, nice", &["nice"]),
    ] {
        let rules = format!("a: {rule}\nls: CommandFilter, ls, root\n");
        scene.only_compat(&rules, &[&[prefix, &[&evil, "-l"]].concat()]);
        let [compat, strict] = scene.both(&rules, &[prefix, &["ls", "-l"]].concat());
        // The program in front of a bare name would look for it in `$PATH`.
        assert!(compat.is_some_and(|argv| argv.ends_with(" ls -l")));
        assert!(strict.is_some_and(|argv| argv.ends_with(" bin/ls -l")));
    }
}

#[test]
fn a_namespace_is_a_name_and_no_path_or_option() {
    let scene = Scene::new();
    let rules = "a: IpNetnsExecFilter, ip, root\nls: CommandFilter, ls, root\n";
    for name in ["../../proc/1/ns/net", "-all", "..", ""] {
        scene.only_compat(rules, &[&["ip", "netns", "exec", name, "ls"]]);
    }
}

#[test]
fn ip_runs_no_command_whatever_stands_before() {
    let scene = Scene::new();
    let rules = "ip: IpFilter, ip, root\n";
    scene.only_compat(
        rules,
        &[
            &["ip", "-b", "file"],
            &["ip", "vrf", "exec", "q", "sh"],
            &["ip", "-n", "net", "netns", "exec", "q", "sh"],
        ],
    );
    scene.alike(
        rules,
        &[&["ip", "-4", "addr"], &["ip", "-n", "q", "link"], &["ip", "netns", "list"]],
    );
}

#[test]
fn variables_that_bring_code_along_are_kept_out() {
    let scene = Scene::new();
    for name in [
        "LD_PRELOAD",
        "BASH_ENV",
        "PATH",
        "PYTHONUSERBASE",
        "PERL5DB",
        "TMPDIR",
        "TZDIR",
        "IP_LIB_DIR",
    ] {
        let rules = format!("e: EnvFilter, env, root, {name}=, ls\n");
        scene.only_compat(&rules, &[&["env", &format!("{name}=/tmp/x"), "ls"]]);
    }
    scene.alike("e: EnvFilter, env, root, A=, ls\n", &[&["env", "A=/tmp/x", "ls"]]);
    let rules = "e: EnvFilter, env, root, LANGUAGE=, TZ=, ls\n";
    scene.alike(rules, &[&["env", "LANGUAGE=de:en", "TZ=:Europe/Berlin", "ls"]]);
    for [language, zone] in
        [["../tmp/x", "UTC"], ["%n", "UTC"], ["de", ":/tmp/x"], ["de", "../x"], ["de", "a b"]]
    {
        let [language, zone] = [format!("LANGUAGE={language}"), format!("TZ={zone}")];
        scene.only_compat(rules, &[&["env", &language, &zone, "ls"]]);
    }

    // Existing variables are removed as well.
    let policy = scene.policy("ls: CommandFilter, ls, root\n", &scene.path("bin"));
    let env = [
        ("IP_LIB_DIR", "/tmp/x"),
        ("OF_TOMORROW", "x"),
        ("ENV", "x"),
        ("HOME", "/root"),
        ("LANGUAGE", "../x"),
        ("LC_ALL", "/x"),
        ("TZ", "/tmp/x"),
        ("LANG", "C"),
    ];
    let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
    let host = LocalHost::with_environment(env);
    let names = |mode| {
        let verdict = evaluate(mode, &policy, &["ls".into()], &host).unwrap();
        verdict.environment().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(Mode::Compat).len(), 8);
    assert_eq!(names(Mode::Strict), ["HOME", "LANG", "PATH"]);
}

#[test]
fn env_filter_accepts_only_value_of_rule() {
    let scene = Scene::new();
    let rules = "e: EnvFilter, env, root, LC_ALL=C, A=, ls\n";
    scene.alike(rules, &[&["env", "LC_ALL=C", "A=1", "ls"], &["A=1", "LC_ALL=C", "ls"]]);
    scene.only_compat(
        rules,
        &[
            &["env", "LC_ALL=C.UTF-8", "A=1", "ls"],
            &["env", "LC_ALL=", "A=1", "ls"],
            &["LC_ALL=CC", "A=", "ls"],
        ],
    );
}

#[test]
fn executables_that_others_could_change_are_not_run() {
    let scene = Scene::new();
    scene.folder("open", 0o777);
    scene.file("open/tool", 0o755);
    let judged = |exec_dirs: &str, mode| {
        let policy = scene.policy("t: CommandFilter, tool, root\n", exec_dirs);
        scene.judged(&policy, mode, &["tool"])
    };
    let (open, safe) = (scene.path("open"), scene.path("bin"));
    assert_eq!(judged(&open, Mode::Compat), Ok("open/tool".into()));
    assert_eq!(judged(&open, Mode::Strict), Err(96));
    // The next directory is trusted.
    assert_eq!(judged(&format!("{open},{safe}"), Mode::Strict), Ok("bin/tool".into()));

    symlink(scene.path("open/tool"), scene.root.join("bin/by-link")).unwrap();
    let policy = scene.policy("t: CommandFilter, by-link, root\n", &safe);
    assert_eq!(scene.judged(&policy, Mode::Compat, &["by-link"]), Ok("bin/by-link".into()));
    assert_eq!(scene.judged(&policy, Mode::Strict, &["by-link"]), Err(96));

    scene.mode("bin/tool", 0o777);
    assert_eq!(judged(&safe, Mode::Strict), Err(96));
}

#[test]
fn a_folder_is_no_executable_and_a_relative_path_is_none_to_trust() {
    let scene = Scene::new();
    scene.folder("bin/folder", 0o755);
    let policy = scene.policy("f: CommandFilter, folder, root\n", &scene.path("bin"));
    assert_eq!(scene.judged(&policy, Mode::Compat, &["folder"]), Ok("bin/folder".into()));
    assert_eq!(scene.judged(&policy, Mode::Strict, &["folder"]), Err(96));

    let below = Path::new("/").join(std::env::current_dir().unwrap());
    let up = "../".repeat(below.components().count());
    let relative = format!("{up}{}", &scene.path("bin")[1..]);
    let policy = scene.policy("t: CommandFilter, tool, root\n", &relative);
    assert!(scene.judged(&policy, Mode::Compat, &["tool"]).is_ok());
    assert_eq!(scene.judged(&policy, Mode::Strict, &["tool"]), Err(96));
}

#[test]
fn a_chain_sets_what_an_env_rule_behind_it_lets_be_set() {
    let scene = Scene::new();
    let rules = "a: IpNetnsExecFilter, ip, root\ne: EnvFilter, env, root, A=, ls\n";
    let policy = scene.policy(rules, &scene.path("bin"));
    let argv = ["ip", "netns", "exec", "q", "env", "A=1", "ls"].map(OsString::from);
    let judged = |mode| {
        let host = LocalHost::with_environment(Vec::new());
        let verdict = evaluate(mode, &policy, &argv, &host).unwrap();
        (verdict.argv().to_vec(), verdict.environment().to_vec())
    };
    let (ip, ls) = (scene.path("bin/ip"), scene.path("bin/ls"));
    let (argv, env) = judged(Mode::Compat);
    assert_eq!(argv, [ip.as_str(), "netns", "exec", "q", "env", "A=1", "ls"]);
    assert!(env.is_empty());
    let (argv, env) = judged(Mode::Strict);
    assert_eq!(argv, [ip.as_str(), "netns", "exec", "q", ls.as_str()]);
    let path = (OsString::from("PATH"), OsString::from(scene.path("bin")));
    assert_eq!(env, vec![path, (OsString::from("A"), OsString::from("1"))]);
}

#[test]
fn path_of_commands_holds_trusted_exec_dirs() {
    let scene = Scene::new();
    scene.folder("open", 0o777);
    let path = |mode, conf: &str| {
        let conf = format!("[DEFAULT]\nfilters_path=/x\n{conf}");
        let rules = format!("[Filters]\nls: CommandFilter, {}, root\n", scene.path("bin/ls"));
        let policy = RootwrapPolicy::from_texts(conf.as_bytes(), &[rules.as_bytes()]).unwrap();
        let host = LocalHost::with_environment(vec![("PATH".into(), scene.path("open").into())]);
        let verdict = evaluate(mode, &policy, &["ls".into()], &host).unwrap();
        let mut path = verdict.environment().iter().filter(|(name, _)| name == "PATH");
        path.next().map(|(_, value)| value.to_str().unwrap().to_owned())
    };
    let [open, bin] = ["open", "bin"].map(|name| scene.path(name));
    let exec_dirs = format!("exec_dirs={open},{bin},relative,/usr/bin,/no/such\n");
    assert_eq!(path(Mode::Compat, &exec_dirs), Some(open.clone()));
    assert_eq!(path(Mode::Strict, &exec_dirs), Some(format!("{bin}:/usr/bin")));
    assert!(path(Mode::Strict, "").unwrap().contains(":/usr/bin"));
    assert_eq!(path(Mode::Strict, &format!("exec_dirs={open}\n")), None);
}

#[test]
fn interpreters_that_others_could_change_are_not_run() {
    let scene = Scene::new();
    scene.folder("open", 0o777);
    scene.file("open/interpreter", 0o755);
    let script = |line: &str| {
        scene.file("bin/tool", 0o755);
        fs::write(scene.root.join("bin/tool"), line).unwrap();
        let policy = scene.policy("t: CommandFilter, tool, root\n", &scene.path("bin"));
        [Mode::Compat, Mode::Strict].map(|mode| scene.judged(&policy, mode, &["tool"]))
    };
    let runs = Ok(String::from("bin/tool"));
    for line in ["#!/bin/sh\n", "#!/usr/bin/env ls\n", "no script\n"] {
        assert_eq!(script(line), [runs.clone(), runs.clone()], "{line}");
    }
    let open = scene.path("open/interpreter");
    for line in [format!("#! {open} -e\n"), format!("#!/usr/bin/env {open}\n")] {
        assert_eq!(script(&line), [runs.clone(), Err(96)], "{line}");
    }
}

#[test]
fn a_chain_without_patterns_puts_nothing_before_a_command() {
    let scene = Scene::new();
    let rules = "a: ChainingRegExpFilter, nice, root\nls: CommandFilter, ls, root\n";
    let [compat, strict] = scene.both(rules, &["ls", "-l"]);
    assert_eq!(compat.as_deref(), Some("bin/nice -l"));
    assert_eq!(strict.as_deref(), Some("bin/ls -l"));
}

#[test]
fn a_setting_is_made_once_and_is_no_command() {
    let scene = Scene::new();
    scene.file("bin/A=2", 0o755);
    let rules = "e: EnvFilter, A=2, root, A=\n";
    scene.only_compat(rules, &[&["A=1", "A=2"]]);
}

#[test]
fn a_folder_is_the_same_with_a_slash_behind_it() {
    let scene = Scene::new();
    scene.folder("images", 0o755);
    let rules = format!("chown: PathFilter, chown, root, {}/\n", scene.path("images"));
    scene.alike(&rules, &[&["chown", &scene.path("images/x")]]);
    let [compat, strict] = scene.both(&rules, &["chown", &scene.path("images")]);
    assert_eq!((compat, strict), (None, Some("bin/chown images".into())));
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn kill_target_is_identified_by_its_start() {
    use std::os::unix::process::CommandExt;
    let scene = Scene::new();
    fs::copy("/bin/sleep", scene.root.join("bin/sleeper")).unwrap();
    fs::copy("/bin/sleep", scene.root.join("bin/other")).unwrap();
    let start = |name: &str, called: &str| {
        let mut command = Command::new(scene.root.join(name));
        let running =
            Running(command.arg0(called).arg("3600").stdin(Stdio::null()).spawn().unwrap());
        // The kernel stores the arguments shortly after the executable.
        let line = format!("/proc/{}/cmdline", running.0.id());
        while fs::read(&line).unwrap().is_empty() {
            std::thread::yield_now();
        }
        running
    };
    let real = start("bin/sleeper", "sleeper");
    let rules = format!("k: KillFilter, root, {}, -9\n", scene.path("bin/sleeper"));
    let pid = real.0.id().to_string();
    scene.alike(&rules, &[&["kill", "-9", &pid]]);
    // kill(1) may read these numbers differently.
    scene.only_compat(
        &rules,
        &[&["kill", "-9", &format!("+{pid}")], &["kill", "-9", &format!("0{pid}")]],
    );

    // A process with a deleted executable, and the name of an allowed one.
    let liar = start("bin/other", &scene.path("bin/sleeper"));
    fs::remove_file(scene.root.join("bin/other")).unwrap();
    scene.only_compat(&rules, &[&["kill", "-9", &liar.0.id().to_string()]]);

    let policy = scene.policy(&rules, &scene.path("bin"));
    let argv = ["kill", "-9", &pid].map(OsString::from);
    let host = LocalHost::new();
    let held = |mode| evaluate(mode, &policy, &argv, &host).unwrap().kill();
    assert_eq!(held(Mode::Compat), None);
    let KillRequest { process, signal } = held(Mode::Strict).unwrap();
    assert_eq!((process.pid.to_string(), process.started > 0, signal), (pid, true, 9));
}

#[test]
fn rules_of_files_that_others_could_change_let_nothing_run() {
    let scene = Scene::new();
    scene.folder("rules", 0o755);
    fs::write(scene.root.join("rules/a"), "[Filters]\nls: CommandFilter, ls, root\n").unwrap();
    let conf = format!(
        "[DEFAULT]\nfilters_path={}\nexec_dirs={}\n",
        scene.path("rules"),
        scene.path("bin")
    );
    fs::write(scene.root.join("rootwrap.conf"), conf).unwrap();
    let judged = |mode| {
        let policy =
            RootwrapPolicy::load(&scene.root.join("rootwrap.conf"), &LocalHost::new()).unwrap();
        scene.judged(&policy, mode, &["ls"])
    };
    for (name, bad, good) in
        [("rules/a", 0o666, 0o644), ("rules", 0o777, 0o755), ("rootwrap.conf", 0o666, 0o644)]
    {
        for other in ["rules/a", "rootwrap.conf"] {
            scene.mode(other, 0o644);
        }
        assert_eq!(judged(Mode::Strict), Ok("bin/ls".into()));
        scene.mode(name, bad);
        assert_eq!(judged(Mode::Compat), Ok("bin/ls".into()), "{name}");
        assert_eq!(judged(Mode::Strict), Err(99), "{name}");
        scene.mode(name, good);
    }
    // The owner of a file can change it with any mode. Only root can change the owner.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["rules/a", "rules", "rootwrap.conf", "bin/ls", "bin"] {
        chown(scene.root.join(name), Some(65534), None).unwrap();
        assert_eq!(judged(Mode::Compat), Ok("bin/ls".into()), "{name}");
        let code = if name.starts_with("bin") { 96 } else { 99 };
        assert_eq!(judged(Mode::Strict), Err(code), "{name}");
        chown(scene.root.join(name), Some(0), None).unwrap();
    }
    assert_eq!(judged(Mode::Strict), Ok("bin/ls".into()));
}

#[test]
fn hostile_words_are_refused_quickly_in_both_modes() {
    let scene = Scene::new();
    let rules = "a: RegExpFilter, ls, root, ls, (?=(a+))\\1*(a*)*\\2b\n\
                 b: RegExpFilter, ls, root, ls, (a*)*b\n";
    assert_eq!(scene.both(rules, &["ls", &"a".repeat(100)]), [None, None]);
    assert_eq!(scene.both(rules, &["ls", &"a".repeat(100_000)]), [None, None]);
    let many = vec!["x"; 100_000];
    assert_eq!(scene.both(rules, &many), [None, None]);

    let policy = scene.policy("ls: CommandFilter, ls, root\n", &scene.path("bin"));
    let argv = ["ls".into(), OsString::from("a\0b")];
    for mode in [Mode::Compat, Mode::Strict] {
        assert!(matches!(evaluate(mode, &policy, &argv, &LocalHost::new()), Err(Refusal::Nul)));
        // The kernel accepts no longer word.
        let words = [128 << 10, (128 << 10) - 1].map(|length| OsString::from("x".repeat(length)));
        let judged = |word: &OsString| {
            let argv = ["ls".into(), word.clone()];
            evaluate(mode, &policy, &argv, &LocalHost::new())
                .map(drop)
                .map_err(|refusal| refusal.to_string())
        };
        assert!(judged(&words[0]).unwrap_err().contains("128 KiB"));
        assert_eq!(judged(&words[1]), Ok(()));
        let spawned = |word: &OsString| Command::new("/bin/true").arg(word).status();
        assert!(spawned(&words[0]).is_err() && spawned(&words[1]).is_ok());
    }
}
