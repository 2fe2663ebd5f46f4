// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a command for the journal. The first one precedes the start and has the caller, the arguments and the
//! rule. The second one at the end adds the verdict, the end, the time, the bytes and the daemon's counters. A command
//! that does not start has only the second. `journal` sends them.

use super::counters::CounterFields;
use super::supervise::IoBytes;
use crate::shell_quoted::ShellQuoted;
use roster_exec::protocol::{CommandEnd, DenyCode};
use roster_messages::Message;
use roster_messages::table::commands;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Limit of the arguments in a record.
const COMMAND_BYTES_MAX: usize = 8192;

/// A record of one command.
#[derive(Clone, Debug)]
pub(super) struct AuditRecord {
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// The identifier that both records share.
    pub(super) id: String,
    /// The first process of the command, after its start.
    pub(super) command_pid: Option<u32>,
    /// The name of the caller, `?` without one.
    pub(super) user: String,
    /// The executable of the caller.
    pub(super) executable: Option<PathBuf>,
    /// The command as requested, or as started, by [`quote_command`].
    pub(super) command: String,
    /// The requested user, by [`quote_command`]. For an allowed command, the user that the rule names.
    pub(super) run_as: String,
    pub(super) rule: Option<String>,
    pub(super) outcome: ExecOutcome,
    pub(super) duration: Duration,
    pub(super) bytes: Option<IoBytes>,
    /// The daemon's counters at the end of the command.
    pub(super) counters: Option<CounterFields>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExecOutcome {
    /// The command is about to start.
    Starting,
    Ended(CommandEnd),
    /// The reply to the caller, its row, and its text with fix and code.
    Denied(DenyCode, &'static Message, String),
}

impl ExecOutcome {
    /// Returns the verdict in one word, for filters.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Starting | Self::Ended(_) => "allowed",
            Self::Denied(DenyCode::Refused, ..) => "refused",
            Self::Denied(DenyCode::NotFound, ..) => "not-found",
            Self::Denied(DenyCode::NotExecutable, ..) => "not-executable",
            Self::Denied(DenyCode::Busy, ..) => "busy",
            Self::Denied(DenyCode::Failed, ..) => "failed",
        }
    }

    /// Returns the row of a refusal or a failure.
    fn failure(&self) -> Option<&'static Message> {
        match self {
            Self::Starting | Self::Ended(CommandEnd::Exited(_) | CommandEnd::Died(_)) => None,
            Self::Ended(CommandEnd::TimedOut) => Some(&commands::CLIENT_TIMED_OUT),
            Self::Denied(_, message, _) => Some(message),
        }
    }

    /// Returns the priority of syslog(3).
    fn priority(&self) -> u8 {
        match self {
            Self::Starting | Self::Ended(_) => 6,
            Self::Denied(DenyCode::Refused, ..) => 4,
            Self::Denied(..) => 3,
        }
    }
}

impl AuditRecord {
    /// Returns the line for readers.
    pub(super) fn message(&self) -> String {
        let (user, uid, run_as) = (&self.user, self.uid, &self.run_as);
        let command = &self.command;
        let rule = self.rule.as_deref().unwrap_or("-");
        match &self.outcome {
            ExecOutcome::Starting => {
                format!("{user} (uid {uid}) starts {command} as {run_as} by rule {rule}")
            }
            ExecOutcome::Ended(end) => {
                let (end, seconds) = (describe_end(*end), self.duration.as_secs_f64());
                let code = self.outcome.failure().map(|message| format!(" [{message}]"));
                format!(
                    "{user} (uid {uid}) ran {command} as {run_as} by rule {rule}: {end} after {seconds:.3} s{}",
                    code.unwrap_or_default()
                )
            }
            ExecOutcome::Denied(_, _, why) => {
                format!("{user} (uid {uid}) did not run {command} as {run_as}: {why}")
            }
        }
    }

    /// Encodes the record in the native protocol of journald.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |name: &str, value: &str| put_field(&mut out, name, value);
        put("MESSAGE", &self.message());
        put("PRIORITY", &self.outcome.priority().to_string());
        if let Some(message) = self.outcome.failure() {
            put("MESSAGE_ID", message.journal_id);
            put("CODE", message.code);
        }
        put("SYSLOG_IDENTIFIER", "roster-exec");
        let is_start = self.outcome == ExecOutcome::Starting;
        put("ROSTER_EVENT", if is_start { "start" } else { "end" });
        put("ROSTER_COMMAND_ID", &self.id);
        put("ROSTER_USER", &self.user);
        put("ROSTER_UID", &self.uid.to_string());
        put("ROSTER_PID", &self.pid.to_string());
        if let Some(executable) = &self.executable {
            put("ROSTER_EXE", &executable.to_string_lossy());
        }
        put("ROSTER_COMMAND", &self.command);
        put("ROSTER_RUN_AS", &self.run_as);
        if let Some(rule) = &self.rule {
            put("ROSTER_RULE", rule);
        }
        put("ROSTER_VERDICT", self.outcome.label());
        if let Some(pid) = self.command_pid {
            put("ROSTER_COMMAND_PID", &pid.to_string());
        }
        match &self.outcome {
            ExecOutcome::Starting => return out,
            ExecOutcome::Ended(end) => put("ROSTER_STATUS", &describe_end(*end)),
            ExecOutcome::Denied(_, _, why) => put("ROSTER_REASON", why),
        }
        put("ROSTER_MICROSECONDS", &self.duration.as_micros().to_string());
        if let Some(IoBytes { read, written }) = self.bytes {
            put("ROSTER_BYTES_READ", &read.to_string());
            put("ROSTER_BYTES_WRITTEN", &written.to_string());
        }
        for (name, count) in self.counters.iter().flatten() {
            put(name, &count.to_string());
        }
        out
    }
}

/// Returns a command in the syntax of a shell. A long one is cut, because records wait in memory.
pub(super) fn quote_command(argv: &[OsString]) -> String {
    let mut command = String::new();
    for (number, word) in argv.iter().enumerate() {
        let space = if number == 0 { "" } else { " " };
        let _ = write!(command, "{space}{}", ShellQuoted(word));
        if command.len() > COMMAND_BYTES_MAX {
            command.truncate(command.floor_char_boundary(COMMAND_BYTES_MAX));
            command.push('…');
            command.shrink_to_fit();
            break;
        }
    }
    command
}

fn describe_end(end: CommandEnd) -> String {
    match end {
        CommandEnd::Exited(status) => format!("exit {status}"),
        CommandEnd::Died(signal) => format!("signal {signal}"),
        CommandEnd::TimedOut => "timeout".into(),
    }
}

/// Adds a field. The length precedes a value that contains a newline.
pub(super) fn put_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend((value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::counters::Counters;
    use super::*;

    fn record(argv: &[&str], verdict: ExecOutcome) -> AuditRecord {
        let counters = Counters::default();
        counters.evicted.add();
        AuditRecord {
            uid: 7,
            pid: 8,
            id: "0a1b2c3d-1".into(),
            command_pid: Some(9),
            user: "alice".into(),
            executable: Some("/usr/bin/roster-exec".into()),
            command: quote_command(&argv.iter().map(OsString::from).collect::<Vec<_>>()),
            run_as: "root".into(),
            rule: Some("web".into()),
            outcome: verdict,
            duration: Duration::from_micros(12_345),
            bytes: Some(IoBytes { read: 3, written: 4 }),
            counters: Some(counters.fields()),
        }
    }

    #[test]
    fn a_record_holds_who_what_and_what_came_of_it() {
        let ran = record(&["/bin/ls", "a b"], ExecOutcome::Ended(CommandEnd::Exited(2)));
        let text = String::from_utf8(ran.encode()).unwrap();
        for line in [
            "MESSAGE=alice (uid 7) ran /bin/ls 'a b' as root by rule web: exit 2 after 0.012 s",
            "PRIORITY=6",
            "ROSTER_UID=7",
            "ROSTER_COMMAND=/bin/ls 'a b'",
            "ROSTER_RULE=web",
            "ROSTER_VERDICT=allowed",
            "ROSTER_STATUS=exit 2",
            "ROSTER_MICROSECONDS=12345",
            "ROSTER_BYTES_WRITTEN=4",
            "ROSTER_EVENT=end",
            "ROSTER_COMMAND_ID=0a1b2c3d-1",
            "ROSTER_COMMAND_PID=9",
            "ROSTER_RUNNING=0",
            "ROSTER_CONNECTIONS_EVICTED=1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let starts = AuditRecord { command_pid: None, outcome: ExecOutcome::Starting, ..ran };
        let text = String::from_utf8(starts.encode()).unwrap();
        for line in [
            "MESSAGE=alice (uid 7) starts /bin/ls 'a b' as root by rule web",
            "ROSTER_EVENT=start",
            "ROSTER_COMMAND_ID=0a1b2c3d-1",
            "ROSTER_VERDICT=allowed",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("ROSTER_MICROSECONDS") && !text.contains("CODE="), "{text}");
    }

    #[test]
    fn nobody_writes_a_field_of_a_record_by_what_is_asked_for() {
        let words = ["ls", "x\nPRIORITY=0\nROSTER_USER=root"];
        let outcome = ExecOutcome::Denied(DenyCode::Refused, &commands::DENIED_CALLER, "no".into());
        let denied = record(&words, outcome);
        let bytes = denied.encode();
        let mut rest = &bytes[..];
        let mut names = Vec::new();
        // The loop reads fields as journald does.
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            match rest[..end].iter().position(|&byte| byte == b'=') {
                Some(at) => {
                    names.push(String::from_utf8(rest[..at].to_vec()).unwrap());
                    rest = &rest[end + 1..];
                }
                None => {
                    names.push(String::from_utf8(rest[..end].to_vec()).unwrap());
                    let length = u64::from_le_bytes(rest[end + 1..end + 9].try_into().unwrap());
                    rest = &rest[end + 9 + length as usize + 1..];
                }
            }
        }
        for name in ["PRIORITY", "ROSTER_USER", "CODE", "MESSAGE_ID"] {
            assert_eq!(names.iter().filter(|found| *found == name).count(), 1, "{name}");
        }
        let long =
            record(&["x".repeat(1 << 20).as_str()], ExecOutcome::Ended(CommandEnd::TimedOut));
        assert!(long.encode().len() < 4 * COMMAND_BYTES_MAX);
    }
}
