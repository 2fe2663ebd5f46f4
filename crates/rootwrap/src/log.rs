//! What is told of commands, in words.

use crate::conf::Level;
use crate::explain::Word;
use crate::host::Facts;
use crate::judge::{Refusal, Verdict};
use std::ffi::OsString;

/// How severe it is that a command runs.
pub const ALLOWED: Level = Level::Info;
/// That one does not, where a person asked.
pub const REFUSED_TO_PERSON: Level = Level::Error;
/// That one does not, where a service asked.
pub const REFUSED_TO_SERVICE: Level = Level::Warning;

/// That a command runs.
#[must_use]
pub fn allowed(verdict: &Verdict<'_>, facts: &dyn Facts) -> String {
    let names = ["SUDO_USER", "USER", "USERNAME", "LOGNAME"];
    let who = names.iter().find_map(|name| facts.variable(name)).unwrap_or_default().to_owned();
    let (user, rule) = (verdict.run_as(), &verdict.rule().name);
    let command = words(verdict.argv());
    format!("({} > {user}) Executing {command} (filter match = {rule})", Word(&who))
}

/// That one does not.
#[must_use]
pub fn refused(refusal: &Refusal<'_>, command: &[OsString]) -> String {
    match refusal {
        Refusal::NotExecutable(rule) => {
            format!("Executable not found: {} (filter match = {})", rule.exec_path, rule.name)
        }
        refusal => format!("Unauthorized command: {} ({refusal})", words(command)),
    }
}

fn words(words: &[OsString]) -> String {
    words.iter().map(|word| Word(word).to_string()).collect::<Vec<_>>().join(" ")
}
