// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the log about commands, in the words of oslo.rootwrap. `syslog` sends them.

use crate::evaluate::{AllowedCommand, Refusal};
use crate::host_facts::HostFacts;
use crate::mode::Mode;
use crate::rootwrap_conf::LogLevel;
use crate::shell_quoted::ShellQuoted;
use roster_messages::CodedError;
use std::ffi::OsString;

/// Level of an allowed command.
pub const ALLOWED: LogLevel = LogLevel::Info;
/// Level of a refusal for a person.
pub const REFUSED_TO_PERSON: LogLevel = LogLevel::Error;
/// Level of a refusal for a service.
pub const REFUSED_TO_SERVICE: LogLevel = LogLevel::Warning;

/// Returns the line of an allowed command.
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
