// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of reviews of `roster-rootwrap`, with the installed program and real commands.

use roster_system_tests::{ProgramOutput, rootwrap_program, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A rootwrap.conf in strict mode with one filter file, and a directory of the caller's own.
struct Rootwrap {
    folder: TempDir,
    user: String,
}

impl Rootwrap {
    /// `USER` in the rules is the user that runs the test, `HERE` the directory.
    fn new(rules: &str) -> Self {
        let folder = TempDir::new().expect("make a folder");
        let user = run(Command::new("id").arg("-un")).text();
        let rootwrap = Self { folder, user };
        for name in ["rules", "base", "out", "caller", "bin"] {
            fs::create_dir(rootwrap.path(name)).expect("make a folder");
            fs::set_permissions(rootwrap.path(name), Permissions::from_mode(0o755)).expect("chmod");
        }
        rootwrap.conf("roster_mode=strict\n");
        let rules = rules.replace("USER", &rootwrap.user).replace("HERE", rootwrap.root());
        rootwrap.write("rules/a.filters", &format!("[Filters]\n{rules}"));
        rootwrap
    }

    fn conf(&self, keys: &str) {
        let filters = self.path("rules");
        let text = format!(
            "[DEFAULT]\nfilters_path={}\nexec_dirs={},/usr/sbin,/usr/bin\n{keys}",
            filters.display(),
            self.path("bin").display()
        );
        self.write("rootwrap.conf", &text);
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write");
        fs::set_permissions(self.path(name), Permissions::from_mode(0o644)).expect("chmod");
    }

    fn script(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).expect("chmod");
    }

    fn root(&self) -> &str {
        self.folder.path().to_str().expect("UTF-8")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(rootwrap_program());
        command.arg(self.path("rootwrap.conf")).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> ProgramOutput {
        run(&mut self.command(words))
    }

    #[track_caller]
    fn expect_refused(&self, words: &[&str]) {
        let done = self.run(words);
        let shown: Vec<&str> = words.iter().map(|word| &word[..word.len().min(80)]).collect();
        assert_eq!(
            done.code,
            99,
            "{shown:?}: {}{}",
            String::from_utf8_lossy(&done.stdout),
            done.error()
        );
    }
}

/// A path through so many links to the directory `name` itself.
fn through_links(folder: &Path, count: usize) -> String {
    let mut path = folder.to_str().expect("UTF-8").to_owned();
    for number in 0..count {
        let name = format!("l{number}");
        symlink(".", folder.join(&name)).expect("link");
        path = format!("{path}/{name}");
    }
    path
}

#[test]
fn path_filter_unresolved_links_are_refused() {
    let rootwrap = Rootwrap::new("cat: PathFilter, cat, USER, HERE/base\n");
    rootwrap.write("base/file", "plain");
    rootwrap.write("out/secret", "secret");
    symlink(rootwrap.path("out"), rootwrap.path("base/current")).expect("link");
    symlink("loop", rootwrap.path("caller/loop")).expect("link");
    let plain = rootwrap.path("base/file");
    assert_eq!(rootwrap.run(&["cat", plain.to_str().expect("UTF-8")]).text(), "plain");

    let here = rootwrap.root();
    rootwrap.expect_refused(&["cat", &format!("{here}/base/current/secret")]);
    rootwrap.expect_refused(&["cat", &format!("{here}/caller/loop/../../base/current/secret")]);
    let links = through_links(&rootwrap.path("caller"), 1001);
    rootwrap.expect_refused(&["cat", &format!("{links}/../base/current/secret")]);
    rootwrap.conf("roster_mode=compat\n");
    rootwrap.expect_refused(&["cat", &format!("{links}/../base/current/secret")]);
}

/// A look-ahead captures `a` before its newline, and CPython does not enter it again for `a` and the newline.
#[test]
fn patterns_python_refuses_do_not_match() {
    let rootwrap = Rootwrap::new(concat!(
        "a: RegExpFilter, echo, USER, echo, (?=(a$|a\\n))\\1(?!\\n)\n",
        "b: RegExpFilter, echo, USER, echo, (?:(?>(c|cd){2})|(c|cd){2}+)d\n",
    ));
    for mode in ["strict", "compat"] {
        rootwrap.conf(&format!("roster_mode={mode}\n"));
        assert_eq!(rootwrap.run(&["echo", "a"]).text(), "a");
        rootwrap.expect_refused(&["echo", "a\n"]);
        rootwrap.expect_refused(&["echo", "ccdd"]);
    }
    let check =
        run(Command::new(rootwrap_program()).arg("check").arg(rootwrap.path("rootwrap.conf")));
    let text = String::from_utf8_lossy(&check.stdout).into_owned() + &check.error();
    assert!(text.contains("a.filters:3") && text.contains("possessively"), "{text}");
}

/// Each of a thousand lazy beginnings scans the rest of the word from each of its positions.
#[test]
fn pattern_beyond_its_steps_ends_the_verdict() {
    let rootwrap = Rootwrap::new(concat!(
        "a: RegExpFilter, echo, USER, echo, a*?(?>(?:(?=[a-z]*)a)*)b\n",
        "b: CommandFilter, echo, USER\n",
    ));
    let word = "a".repeat(1000);
    for mode in ["strict", "compat"] {
        rootwrap.conf(&format!("roster_mode={mode}\n"));
        assert_eq!(rootwrap.run(&["echo", "no"]).text(), "no");
        rootwrap.expect_refused(&["echo", &word]);
        let said = rootwrap.run(&["echo", &word]);
        assert!(said.error().contains("more than 67108864 steps"), "{}", said.error());
    }
}

#[test]
fn strict_ends_where_original_breaks_off() {
    let rootwrap = Rootwrap::new(concat!(
        "a: RegExpFilter, echo, USER, echo{99999999999}\n",
        "b: CommandFilter, echo, USER\n",
    ));
    rootwrap.expect_refused(&["echo"]);
    assert_eq!(rootwrap.run(&["echo", "two"]).text(), "two");
}

#[test]
fn variables_with_paths_do_not_reach_commands() {
    let rules =
        "e: EnvFilter, env, USER, LANGUAGE=, TZ=, printenv\np: CommandFilter, printenv, USER\n";
    let rootwrap = Rootwrap::new(rules);
    let inherited = |name: &str, value: &str| {
        let output = run(rootwrap.command(&["printenv", name]).env(name, value));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    };
    for (name, sound, unsound) in [
        ("LANGUAGE", "de:en", "../../../tmp/messages"),
        ("LC_ALL", "C.UTF-8", "/tmp/locale"),
        ("TERM", "xterm", "%n"),
        ("TZ", "Europe/Berlin", ":/tmp/zone"),
    ] {
        assert_eq!(inherited(name, sound), sound, "{name}");
        assert_eq!(inherited(name, unsound), "", "{name} of the caller reaches the command");
    }
    let words = ["env", "LANGUAGE=de", "TZ=UTC", "printenv", "LANGUAGE", "TZ"];
    assert_eq!(rootwrap.run(&words).text(), "de\nUTC");
    rootwrap.expect_refused(&["env", "LANGUAGE=../x", "TZ=UTC", "printenv"]);
    rootwrap.expect_refused(&["env", "LANGUAGE=de", "TZ=/tmp/zone", "printenv"]);
}

#[test]
fn env_filter_lets_value_of_rule_through() {
    let rootwrap = Rootwrap::new("e: EnvFilter, env, USER, LC_ALL=C, printenv\n");
    assert_eq!(rootwrap.run(&["env", "LC_ALL=C", "printenv", "LC_ALL"]).text(), "C");
    rootwrap.expect_refused(&["env", "LC_ALL=C.UTF-8", "printenv", "LC_ALL"]);
}

#[test]
fn privsep_helper_needs_rule_of_files() {
    let rule = "p: RegExpFilter, privsep-helper, USER, privsep-helper, --config-file, /etc/.*\n";
    let rootwrap = Rootwrap::new(rule);
    // As root the built-in rule of compat mode runs it, otherwise the caller runs it.
    rootwrap.script("bin/privsep-helper", "#!/bin/sh\necho \"$@\"\n");
    let foreign = ["privsep-helper", "--config-file", "/tmp/n.conf"];
    for (mode, refused) in [("strict", true), ("compat", false)] {
        rootwrap.conf(&format!("roster_mode={mode}\n"));
        let own = rootwrap.run(&["privsep-helper", "--config-file", "/etc/n.conf"]);
        assert_eq!(own.text(), "--config-file /etc/n.conf");
        match refused {
            true => rootwrap.expect_refused(&foreign),
            false => assert_eq!(rootwrap.run(&foreign).text(), "--config-file /tmp/n.conf"),
        }
    }
}

#[test]
fn script_interpreter_of_others_is_refused() {
    let rootwrap = Rootwrap::new("t: CommandFilter, tool, USER\n");
    fs::copy("/bin/echo", rootwrap.path("caller/interpreter")).expect("copy");
    let interpreter = rootwrap.path("caller/interpreter");
    let set_mode = |mode| fs::set_permissions(&interpreter, Permissions::from_mode(mode));
    for line in ["#!HERE/caller/interpreter", "#!/usr/bin/env -S HERE/caller/interpreter"] {
        rootwrap.script("bin/tool", &format!("{}\n", line.replace("HERE", rootwrap.root())));
        set_mode(0o755).expect("chmod");
        assert!(rootwrap.run(&["tool"]).text().ends_with("/bin/tool"));
        set_mode(0o777).expect("chmod");
        let done = rootwrap.run(&["tool"]);
        assert_eq!(done.code, 96, "{line}: {}", String::from_utf8_lossy(&done.stdout));
    }
    let mut check = Command::new(rootwrap_program());
    let told = run(check.arg("check").arg(rootwrap.path("rootwrap.conf"))).text();
    assert!(told.contains("/bin/tool is a script, and the interpreter is not trusted: "), "{told}");
}

#[test]
fn path_of_caller_is_not_passed_on() {
    let rootwrap = Rootwrap::new("p: CommandFilter, printenv, USER\n");
    let done = run(rootwrap.command(&["printenv", "PATH"]).env("PATH", "/opt/caller:/usr/bin"));
    assert_eq!(done.text(), format!("{}/bin:/usr/sbin:/usr/bin", rootwrap.root()));
}

#[test]
fn ip_filter_programs_for_kernel_are_refused() {
    let rootwrap = Rootwrap::new("ip: IpFilter, ip, USER\n");
    rootwrap.script("bin/ip", "#!/bin/sh\necho \"$@\"\n");
    let words = ["ip", "link", "set", "dev", "eth0", "xdp", "off"];
    assert_eq!(rootwrap.run(&words).text(), "link set dev eth0 xdp off");
    for line in ["link set dev eth0 xdp obj file", "route add default encap bpf out obj file"] {
        let words: Vec<&str> = ["ip"].into_iter().chain(line.split(' ')).collect();
        rootwrap.expect_refused(&words);
    }
    let line =
        "ip -6 route add fc00::/64 encap seg6local action End.BPF endpoint obj file dev eth0";
    rootwrap.expect_refused(&line.split(' ').collect::<Vec<_>>());
}

#[test]
fn ip_filter_namespace_by_path_is_refused() {
    let rootwrap = Rootwrap::new("ip: IpFilter, ip, USER\n");
    rootwrap.script("bin/ip", "#!/bin/sh\necho \"ip $*\"\n");
    assert_eq!(rootwrap.run(&["ip", "-n", "q", "addr"]).text(), "ip -n q addr");
    // ip mounts the files of /etc/netns/PATH over those of /etc.
    rootwrap.expect_refused(&["ip", "-r", "-n", "../../tmp/caller", "addr"]);
}

#[test]
fn path_filter_vanished_directory_is_refused() {
    let rootwrap = Rootwrap::new("ls: PathFilter, ls, USER, /\n");
    let script = "mkdir gone; cd gone; rmdir ../gone; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).arg(rootwrap_program());
    command.arg(rootwrap.path("rootwrap.conf")).args(["ls", ""]);
    let done = run(command.current_dir(rootwrap.path("caller")));
    assert_eq!(done.code, 99, "{}", done.error());
}
