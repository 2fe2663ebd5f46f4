// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks of distributions, and programs at a terminal. Debian's own /etc/pam.d has the profile that `make install`
//! brings. For authselect there are the variants of a profile.

use crate::artifacts::pam_module;
use crate::rosterd::Rosterd;
use crate::servers::ServerProcess;
use crate::test_host::{ProgramOutput, run};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts the module into libpam's directory and the profile into that of pam-auth-update, with private state and
/// answers. `$1` is the directory to take files from.
const DEBIAN_SCRIPT: &str = r#"
security=$(dirname "$(find /usr/lib -name pam_unix.so -print -quit)")
mkdir -p /run/pam/security /run/pam/configs /var/lib/pam /var/lib/dpkg/info
cp "$1/pam_roster.so" /run/pam/security
mount -t overlay -o "lowerdir=/run/pam/security:$security" overlay "$security"
cp /usr/share/pam-configs/unix /usr/share/pam-configs/mkhomedir /run/pam/configs
mount --bind /run/pam/configs /usr/share/pam-configs
cp "$1/libpam-runtime.templates" /var/lib/dpkg/info
mount -t tmpfs tmpfs /var/cache/debconf
mount -t tmpfs -o mode=755 tmpfs /home
mount -t tmpfs -o mode=755 tmpfs /var/log
exec sleep infinity
"#;

/// A host with Debian's stacks, at first with the profile `unix` only.
#[derive(Debug)]
pub struct DebianStacks {
    /// The process that keeps the mounts when the daemon is gone.
    mount_holder: ServerProcess,
    pam_dir: PathBuf,
}

/// The profiles that come with the module.
#[must_use]
pub fn profiles_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/pam")
}

impl DebianStacks {
    /// Sets the host of a running daemon up, which was [prepared](crate::pam::prepare).
    ///
    /// # Panics
    /// If Debian's files are not there; so do the other functions of this file.
    #[must_use]
    pub fn on(rosterd: &Rosterd) -> Self {
        let (stacks, from) = (rosterd.host().path("pam.d"), rosterd.host().path("debian"));
        for file in fs::read_dir("/etc/pam.d").expect("Debian's stacks").flatten() {
            let text = fs::read_to_string(file.path()).expect("a stack");
            // A container cannot set the login uid.
            let text = text.replace("required     pam_loginuid.so", "optional pam_loginuid.so");
            fs::write(stacks.join(file.file_name()), text).expect("write a stack");
        }
        fs::create_dir(&from).expect("a folder");
        let templates = Path::new("/var/lib/dpkg/info/libpam-runtime.templates");
        for file in [pam_module(), &profiles_dir().join("roster.pam-config"), templates] {
            let name = match file.file_name().and_then(|name| name.to_str()) {
                Some("roster.pam-config") => "roster",
                Some("libpam_roster.so") => "pam_roster.so",
                name => name.expect("a file"),
            };
            fs::copy(file, from.join(name)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
        let mut command = rosterd.command_inside(Path::new("unshare"));
        command.args(["-m", "sh", "-ec", DEBIAN_SCRIPT, "debian"]).arg(&from);
        let keeper = ServerProcess::start(&mut command, &from.join("log"));
        let debian = Self { mount_holder: keeper, pam_dir: stacks };
        crate::wait_until(crate::rosterd::SOON, "the mounts are made", || {
            let comm = fs::read_to_string(format!("/proc/{}/comm", debian.mount_holder.pid()));
            comm.is_ok_and(|comm| comm == "sleep\n")
        });
        let _ = debian.auth_update(&["--force"]).text();
        // `make install` puts the profile there.
        let mut install = debian.command("cp");
        let _ = run(install.arg(from.join("roster")).arg("/usr/share/pam-configs")).text();
        debian
    }

    /// A command on the host, as root, also while the daemon does not run.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(crate::find_tool("nsenter", "util-linux"));
        crate::test_host::plain_environment(&mut command);
        command.args(["-m", "-t", &self.mount_holder.pid().to_string(), program]);
        command
    }

    /// `pam-auth-update` with these arguments.
    #[must_use]
    pub fn auth_update(&self, args: &[&str]) -> ProgramOutput {
        let mut command = self.command("pam-auth-update");
        run(command.env("DEBIAN_FRONTEND", "noninteractive").args(args))
    }

    /// The lines of a stack that do something, each with single spaces.
    #[must_use]
    pub fn active_lines(&self, stack: &str) -> Vec<String> {
        active_lines(&fs::read_to_string(self.pam_dir.join(stack)).expect("a stack"))
    }

    /// Writes a stack.
    pub fn write_stack(&self, stack: &str, text: &str) {
        fs::write(self.pam_dir.join(stack), text).expect("write a stack");
    }

    /// The output of `pamtester` for these operations.
    #[must_use]
    pub fn run_pamtester(
        &self,
        stack: &str,
        user: &str,
        operations: &[&str],
        lines: &[&str],
    ) -> ProgramOutput {
        let mut command = self.command("pamtester");
        run(command.args([stack, user]).args(operations).stdin(crate::pam::stdin_with_lines(lines)))
    }
}

/// Lines of a stack that do something, each with single spaces.
#[must_use]
pub fn active_lines(text: &str) -> Vec<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Runs a command at a terminal and returns its output. It waits for each of the texts and then types the line, if
/// there is one.
#[must_use]
pub fn run_on_terminal(command: &Command, dialogue: &[(&str, &str)]) -> ProgramOutput {
    let mut python = Command::new(crate::find_tool("python3", "python3"));
    crate::test_host::plain_environment(&mut python);
    python.args(["-c", include_str!("../python/pty_dialogue.py"), &json!(dialogue).to_string()]);
    run(python.arg(command.get_program()).args(command.get_args()))
}

/// A profile of authselect with each choice of its features, as `authselect select` would write it: the features, and
/// the text. Profiles here use only `{include if "FEATURE"}` for a line and `{if not "FEATURE":WORD}` in one.
#[must_use]
pub fn authselect_variants(template: &str) -> Vec<(Vec<String>, String)> {
    let feature = |line: &str| {
        let (_, rest) = line.split_once("{include if \"")?;
        Some(rest.split_once("\"}").expect("the end of a condition").0.to_owned())
    };
    // The text before the condition, its feature, its word, and the text behind it.
    let word = |line: &str| {
        let (before, rest) = line.split_once("{if not \"")?;
        let (name, rest) = rest.split_once("\":").expect("the end of a feature");
        let (word, rest) = rest.split_once('}').expect("the end of a word");
        Some([before, name, word, rest].map(str::to_owned))
    };
    let of_words = template.lines().filter_map(|line| word(line).map(|[_, name, ..]| name));
    let features: BTreeSet<_> = template.lines().filter_map(feature).chain(of_words).collect();
    let features: Vec<_> = features.into_iter().collect();
    let select = |chosen: u32| {
        let has = |name: &String| {
            let position = features.iter().position(|feature| feature == name);
            position.is_some_and(|position| chosen & (1 << position) != 0)
        };
        let lines = template.lines().filter(|line| feature(line).is_none_or(|name| has(&name)));
        let lines = lines.map(|line| line.split_once("{include if").map_or(line, |(line, _)| line));
        let lines = lines.map(|line| match word(line) {
            Some([before, name, word, rest]) => {
                before + if has(&name) { "" } else { &word } + &rest
            }
            None => line.to_owned(),
        });
        let text: String = lines.map(|line| line.trim_end().to_owned() + "\n").collect();
        assert!(!text.contains('{'), "something else of templates: {text}");
        (features.iter().filter(|name| has(name)).cloned().collect(), text)
    };
    (0..1 << features.len()).map(select).collect()
}
