//! What people read of the programs beside their options: a table each for the end of `--help` and the
//! man page. The page of exec.toml(5) is made of its reader's table of keys, that of roster-exec(1) of
//! the table that it parses its arguments by.

use crate::native::policy::KEYS;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};
use roster_exec::options;
use roster_manual::{Page, completions, section, source};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const CONF: (&str, &str) =
    ("/etc/*/rootwrap.conf", "The configuration, which names the folders of filters.");
const BAD_CONFIG: (&str, &str) = ("97", "The configuration cannot be used; the message says why.");

/// Of `roster-rootwrap`.
pub const ROOTWRAP: Page = Page {
    name: "roster-rootwrap",
    section: "8",
    synopsis: &[
        "CONF COMMAND [ARGUMENT]...",
        "check [--json] CONF",
        "explain [--mode compat|strict] CONF -- COMMAND [ARGUMENT]...",
        "check-policy FILE",
    ],
    sections: &[
        (
            "Examples",
            &[
                (
                    "sudo roster-rootwrap /etc/nova/rootwrap.conf ip link show",
                    "Run ip as the filters of nova let it.",
                ),
                (
                    "roster-rootwrap check /etc/nova/rootwrap.conf",
                    "Every mistake, what strict mode would read otherwise, and what turns on the order in which a folder is listed.",
                ),
                (
                    "roster-rootwrap explain /etc/nova/rootwrap.conf -- ip netns exec q ls",
                    "Which rule decides, and why.",
                ),
            ],
        ),
        (
            "Exit status",
            &[
                ("0-255", "That of the command; 128 and the signal's number if it died of one."),
                ("1", "The command could not be started; or check found a mistake."),
                ("96", "A rule lets the command run, and there is no executable."),
                BAD_CONFIG,
                ("98", "There is no command, or the options are wrong."),
                ("99", "No rule lets the command run."),
            ],
        ),
        ("Files", &[CONF, ("/dev/log", "Where commands are told, with use_syslog.")]),
        ("See also", &[("roster-rootwrap-daemon(8), sudo(8), sudoers(5)", "")]),
    ],
};

/// Of `roster-rootwrap-daemon`.
pub const DAEMON: Page = Page {
    name: "roster-rootwrap-daemon",
    section: "8",
    synopsis: &[
        "[--allow-uid UID]... CONF",
        "--native [--policy FILE] [--socket PATH] [--metrics ADDRESS]",
    ],
    sections: &[
        (
            "Examples",
            &[
                (
                    "nova ALL = (root) NOPASSWD: /usr/sbin/roster-rootwrap-daemon /etc/nova/rootwrap.conf",
                    "In sudoers(5): nova may start it, and its client's rootwrap_daemon_cmd names the same.",
                ),
                (
                    "systemctl enable --now roster-exec.socket",
                    "Commands for everybody whom /etc/roster/exec.toml lets run them, by roster-exec.",
                ),
            ],
        ),
        (
            "Signals",
            &[
                (
                    "SIGTERM, SIGINT",
                    "Take no new command, let those that run end, hand their results over, and end. With --native, what runs for a minute longer is ended; until then who asks through systemd's socket is told to try again later, which roster-exec does for five seconds.",
                ),
                (
                    "SIGHUP",
                    "With --native: read the policy anew. One with a mistake is told of, and the old one stays in force. Else as SIGTERM.",
                ),
            ],
        ),
        (
            "Exit status",
            &[
                (
                    "0",
                    "Ended as told, because its client has, or because nothing was asked for daemon_timeout seconds; each once what runs has ended.",
                ),
                ("1", "The socket cannot be made."),
                BAD_CONFIG,
                ("98", "The options are wrong, or there is more than a configuration."),
            ],
        ),
        (
            "Environment",
            &[
                (
                    "SUDO_UID",
                    "Set by sudo: this user may connect, besides root and the owner of standard output.",
                ),
                (
                    "TMPDIR",
                    "The folder of the socket's folder, and of output that is too large for memory; by default /tmp.",
                ),
            ],
        ),
        (
            "Files",
            &[
                CONF,
                (
                    "/tmp/rootwrap-*/rootwrap.sock",
                    "The socket. Its path and the key go to standard output.",
                ),
                ("/dev/log", "Where commands are told, with use_syslog."),
                ("/etc/roster/exec.toml", "The policy of --native: exec.toml(5)."),
                ("/run/roster/exec", "The socket of --native."),
                (
                    "roster-exec-*",
                    "In the cgroup of the service: the cgroups of commands that have a time-out. Of a service this needs Delegate=yes.",
                ),
                (
                    "/run/systemd/journal/socket",
                    "Where each command of --native is told, as fields that begin with ROSTER_. Without a journal standard error is told.",
                ),
            ],
        ),
        (
            "See also",
            &[("roster-rootwrap(8), roster-exec(1), exec.toml(5), sudo(8), sudoers(5)", "")],
        ),
    ],
};

/// Of `roster-exec`.
const EXEC: Page = Page {
    name: options::NAME,
    section: "1",
    synopsis: &[options::USAGE],
    sections: options::SECTIONS,
};

/// `roster-exec` as clap would parse it, for its page and completions.
#[must_use]
pub fn exec_command() -> Command {
    let arguments = options::OPTIONS.iter().map(|option| {
        let argument =
            Arg::new(option.long).short(option.short).long(option.long).help(option.help);
        match option.value {
            Some("PATH") => argument.value_name("PATH").value_hint(ValueHint::FilePath),
            Some("USER") => argument.value_name("USER").value_hint(ValueHint::Username),
            Some(value) => argument.value_name(value),
            None => argument.action(clap::ArgAction::SetTrue),
        }
    });
    let command = Arg::new("command").value_name("COMMAND").num_args(1..).required(true);
    Command::new(options::NAME)
        .about(options::ABOUT)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(arguments)
        .arg(
            command
                .trailing_var_arg(true)
                .value_hint(ValueHint::CommandWithArguments)
                .help("The command with its arguments"),
        )
}

/// The completions of `roster-exec`.
#[must_use]
pub fn exec_completions(shell: Shell) -> Vec<u8> {
    if shell != Shell::Bash {
        return completions(shell, exec_command());
    }
    let names = |option: &options::Opt| format!("-{} --{}", option.short, option.long);
    let names: Vec<String> = options::OPTIONS.iter().map(names).collect();
    include_str!("exec.bash").replace("@OPTIONS@", &names.join(" ")).into()
}

/// The program by the name that it was called by.
#[must_use]
pub fn called() -> PathBuf {
    std::env::args_os().next().unwrap_or_default().into()
}

/// Writes roster-exec(1) and exec.toml(5) into a folder, and their paths to `out`.
pub fn write_exec_pages(folder: &Path, out: &mut dyn Write) -> io::Result<()> {
    EXEC.put(exec_command(), folder, out)?;
    let mut text = Vec::new();
    render_policy(&mut text)?;
    let path = folder.join("exec.toml.5");
    fs::write(&path, text)?;
    writeln!(out, "{}", path.display())
}

fn render_policy(out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("TH", ["exec.toml", "5", "", &source(), "Roster"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("exec.toml - who may run what by roster-exec")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "The policy of roster-rootwrap-daemon --native, /etc/roster/exec.toml: rules in TOML, each \
         below a line [[rule]]. The first decides that is for the caller, the host, the user asked \
         for, the command and its arguments. Root has to own the file, and nobody else may write in \
         it or on the way to it; the same holds for each command. A file with a mistake is no \
         policy: roster-rootwrap check-policy FILE lists them. SIGHUP has the daemon read it anew.",
    )]);
    section(&mut roff, "Keys", KEYS, bold);
    roff.control("SH", ["ENVIRONMENT OF COMMANDS"]);
    roff.text([roman(
        "PATH, HOME, SHELL, USER and LOGNAME of the user that a command runs as, ROSTER_USER and \
         ROSTER_UID of its caller, and what keep_env keeps.",
    )]);
    roff.control("SH", ["EXAMPLE"]);
    roff.control("EX", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("roster-exec(1), roster-rootwrap-daemon(8), roster-rootwrap(8)")]);
    roff.to_writer(out)
}

const EXAMPLE: &str = "[[rule]]
name = \"restart-web\"
groups = [\"ops\"]
hosts = [\"web*\"]
command = \"/usr/bin/systemctl\"
args = [\"restart\", \"nginx|apache2\"]
timeout = \"30s\"";
