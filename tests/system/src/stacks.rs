//! Stacks as distributions make them: Debian's own /etc/pam.d, with the profile that `make install` brings, and
//! what authselect makes of a profile; and programs at a terminal.

use crate::artifacts::pam_module;
use crate::host::{Output, run};
use crate::rosterd::Rosterd;
use crate::servers::Process;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts the module where libpam looks, the profile where pam-auth-update does, and leaves it a state and answers of
/// its own. `$1` is the folder to take files from.
const DEBIAN: &str = r#"
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

/// A host with Debian's stacks, and no profile but `unix` in them at first.
#[derive(Debug)]
pub struct Debian {
    /// It keeps the mounts when the daemon is gone.
    keeper: Process,
    stacks: PathBuf,
}

/// The profiles that come with the module.
#[must_use]
pub fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/pam")
}

impl Debian {
    /// Sets the host of a running daemon up, which was [prepared](crate::pam::prepare).
    ///
    /// # Panics
    /// If Debian's files are not there; so do the other functions of this file.
    #[must_use]
    pub fn on(rosterd: &Rosterd) -> Self {
        let (stacks, from) = (rosterd.host().path("pam.d"), rosterd.host().path("debian"));
        for file in fs::read_dir("/etc/pam.d").expect("Debian's stacks").flatten() {
            let text = fs::read_to_string(file.path()).expect("a stack");
            // In a container nobody may set it.
            let text = text.replace("required     pam_loginuid.so", "optional pam_loginuid.so");
            fs::write(stacks.join(file.file_name()), text).expect("write a stack");
        }
        fs::create_dir(&from).expect("a folder");
        let templates = Path::new("/var/lib/dpkg/info/libpam-runtime.templates");
        for file in [pam_module(), &packaging().join("roster.pam-config"), templates] {
            let name = match file.file_name().and_then(|name| name.to_str()) {
                Some("roster.pam-config") => "roster",
                Some("libpam_roster.so") => "pam_roster.so",
                name => name.expect("a file"),
            };
            fs::copy(file, from.join(name)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
        let mut command = rosterd.inside(Path::new("unshare"));
        command.args(["-m", "sh", "-ec", DEBIAN, "debian"]).arg(&from);
        let keeper = Process::start(&mut command, &from.join("log"));
        let debian = Self { keeper, stacks };
        crate::wait_until(crate::rosterd::SOON, "the mounts are made", || {
            let comm = fs::read_to_string(format!("/proc/{}/comm", debian.keeper.pid()));
            comm.is_ok_and(|comm| comm == "sleep\n")
        });
        let _ = debian.auth_update(&["--force"]).text();
        // Which `make install` puts there.
        let mut install = debian.command("cp");
        let _ = run(install.arg(from.join("roster")).arg("/usr/share/pam-configs")).text();
        debian
    }

    /// A command on the host, as root, also while the daemon does not run.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(crate::tool("nsenter", "util-linux"));
        crate::host::plain_environment(&mut command);
        command.args(["-m", "-t", &self.keeper.pid().to_string(), program]);
        command
    }

    /// `pam-auth-update` with these arguments.
    #[must_use]
    pub fn auth_update(&self, args: &[&str]) -> Output {
        let mut command = self.command("pam-auth-update");
        run(command.env("DEBIAN_FRONTEND", "noninteractive").args(args))
    }

    /// The lines of a stack that do something, each with single spaces.
    #[must_use]
    pub fn lines(&self, stack: &str) -> Vec<String> {
        lines_of(&fs::read_to_string(self.stacks.join(stack)).expect("a stack"))
    }

    /// Writes a stack.
    pub fn write(&self, stack: &str, text: &str) {
        fs::write(self.stacks.join(stack), text).expect("write a stack");
    }

    /// What `pamtester` says of these operations.
    #[must_use]
    pub fn test(&self, stack: &str, user: &str, operations: &[&str], lines: &[&str]) -> Output {
        let mut command = self.command("pamtester");
        run(command.args([stack, user]).args(operations).stdin(crate::pam::input(lines)))
    }
}

/// Lines of a stack that do something, each with single spaces.
#[must_use]
pub fn lines_of(text: &str) -> Vec<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// What a command shows somebody at a terminal, who waits for each of the texts and then types the
/// line, if there is one.
#[must_use]
pub fn at_a_terminal(command: &Command, dialogue: &[(&str, &str)]) -> Output {
    let mut python = Command::new(crate::tool("python3", "python3"));
    crate::host::plain_environment(&mut python);
    python.args(["-c", include_str!("../python/terminal.py"), &json!(dialogue).to_string()]);
    run(python.arg(command.get_program()).args(command.get_args()))
}

/// A profile of authselect with each choice of its features, as `authselect select` would write it: the features,
/// and the text. Of what templates may say, profiles here use `{include if "FEATURE"}` for a line and
/// `{if not "FEATURE":WORD}` in one.
#[must_use]
pub fn selections(template: &str) -> Vec<(Vec<String>, String)> {
    let feature = |line: &str| {
        let (_, rest) = line.split_once("{include if \"")?;
        Some(rest.split_once("\"}").expect("the end of a condition").0.to_owned())
    };
    // What stands before the condition, its feature, its word, and what follows.
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
