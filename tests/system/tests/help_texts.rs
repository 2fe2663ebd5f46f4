// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--help` of every program and subcommand: lines of at most 80 columns, and texts of commands and options that open with
//! an imperative verb. A text may open only with a verb of `VERBS`: a new verb is added there.

use roster_system_tests::artifacts::{
    exec_program, rootwrap_daemon_program, rootwrap_program, roster_program, rosterd_program,
};
use roster_system_tests::run;
use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: usize = 80;
/// Verbs in the imperative, as texts of commands and options begin.
const VERBS: &str = "Add Allow Apply Approve Bind Cache Call Check Close Compare Compile Connect Convert \
                     Count Create Distribute Drop Edit Evaluate Examine Expire Explain Fail Find Follow \
                     Generate Hand Hide Install Label Leave Limit List Listen Load Log Look Make Measure \
                     Mirror Move Name Omit Pass Perform Permit Print Query Read Rebuild Recommend Refresh \
                     Remove Repeat Replace Report Request Reserve Reuse Run Save Search Select Serve Set \
                     Show Simulate Skip Start Stop Store Trace Trust Try Undo Use Verify Wait Watch Write";

/// The text of `--help` of a command, and the names of its subcommands.
fn help(program: &Path, words: &[String]) -> (String, Vec<String>) {
    let done = run(Command::new(program).args(words).arg("--help").env("COLUMNS", "200"));
    let text = done.text();
    let section = text.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| line.starts_with("  ") || line.is_empty());
    let name = |line: &str| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned);
    let commands = lines.filter_map(name).filter(|name| !name.is_empty() && name != "help");
    let commands = commands.collect();
    (text, commands)
}

/// The texts of commands, options and arguments in a text of `--help`, each by its term.
fn entries(help: &str) -> Vec<(String, String)> {
    let (mut found, mut in_section) = (Vec::new(), false);
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with(' ') && !line.is_empty() {
            in_section = ["Commands:", "Options:", "Arguments:"].contains(&line);
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if !in_section || line.is_empty() || !(2..=6).contains(&indent) {
            continue;
        }
        let (term, text) = match line.trim().split_once("  ") {
            Some((term, text)) => (term, text.trim().to_owned()),
            None => (line.trim(), lines.peek().map_or("", |next| next.trim()).to_owned()),
        };
        found.push((term.to_owned(), text));
    }
    found
}

fn check(program: &Path, words: &[String], faults: &mut Vec<String>) -> usize {
    let (text, commands) = help(program, words);
    let name = format!("{} {}", program.file_name().unwrap().display(), words.join(" "));
    let wide = text.lines().filter(|line| line.chars().count() > COLUMNS);
    faults.extend(wide.map(|line| format!("{name}: {} columns: {line}", line.chars().count())));
    for (term, text) in entries(&text) {
        let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if !VERBS.split(' ').any(|verb| verb == first) {
            faults.push(format!("{name}: {term}: opens with no verb of the list: {text}"));
        }
    }
    let below = commands.iter().map(|command| {
        let words = [words, std::slice::from_ref(command)].concat();
        check(program, &words, faults)
    });
    1 + below.sum::<usize>()
}

#[test]
fn help_fits_columns_and_opens_with_verbs() {
    let lab = roster_program().with_file_name("roster-lab");
    let programs: [(PathBuf, usize); 6] = [
        (roster_program().to_owned(), 20),
        (lab, 15),
        (rosterd_program().to_owned(), 1),
        (rootwrap_program().to_owned(), 4),
        (rootwrap_daemon_program().to_owned(), 1),
        (exec_program().to_owned(), 1),
    ];
    let mut faults = Vec::new();
    for (program, commands) in programs {
        let found = check(&program, &[], &mut faults);
        assert!(found >= commands, "{}: {found} commands", program.display());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
