//! What is told of commands, in words.

use crate::evaluate::{AllowedCommand, Refusal};
use crate::host_facts::HostFacts;
use crate::mode::Mode;
use crate::rootwrap_conf::LogLevel;
use crate::shell_quoted::ShellQuoted;
use roster_messages::CodedError;
use std::ffi::OsString;

/// How severe it is that a command runs.
pub const ALLOWED: LogLevel = LogLevel::Info;
/// That one does not, where a person asked.
pub const REFUSED_TO_PERSON: LogLevel = LogLevel::Error;
/// That one does not, where a service asked.
pub const REFUSED_TO_SERVICE: LogLevel = LogLevel::Warning;

/// That a command runs.
#[must_use]
pub fn allowed(verdict: &AllowedCommand<'_>, facts: &dyn HostFacts) -> String {
    let names = ["SUDO_USER", "USER", "USERNAME", "LOGNAME"];
    let who = names.iter().find_map(|name| facts.variable(name)).unwrap_or_default().to_owned();
    let (user, rule) = (verdict.run_as(), &verdict.rule().name);
    let command = quote_arguments(verdict.argv());
    format!("({} > {user}) Executing {command} (filter match = {rule})", ShellQuoted(&who))
}

/// Returns the line of a refusal. In compat mode it is that of oslo.rootwrap, without a code, if oslo.rootwrap has one.
#[must_use]
pub fn refused(mode: Mode, refusal: &Refusal<'_>, command: &[OsString]) -> String {
    let text = match refusal {
        Refusal::NotExecutable(rule) => {
            format!("Executable not found: {} (filter match = {})", rule.exec_path, rule.name)
        }
        refusal => format!("Unauthorized command: {} ({refusal})", quote_arguments(command)),
    };
    match (mode, refusal) {
        (Mode::Compat, Refusal::NoFilter | Refusal::NotExecutable(_)) => text,
        _ => CodedError::new(refusal.message(), text).to_string(),
    }
}

fn quote_arguments(words: &[OsString]) -> String {
    words.iter().map(|word| ShellQuoted(word).to_string()).collect::<Vec<_>>().join(" ")
}
