// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records programs that do not read the map although it has their entries, for administrators that look for slow
//! programs. Clients that read maps cause no work here. The record is only reported, because a program chooses its own
//! name. `admin_requests` sends the report.

use roster_messages::table::host;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::fs;

pub use roster_fd_passing::PeerCredentials;

/// Maximum number of recent processes.
const PROCESSES_MAX: usize = 4096;
/// Maximum number of programs for each kind of use. The program with the fewest uses is dropped first.
const PROGRAMS_MAX: usize = 64;
/// Maximum number of reported programs.
const REPORTED_MAX: usize = 8;
/// Maximum bytes of a name; kernel names are shorter.
const NAME_BYTES_MAX: usize = 64;

/// The way in which a program bypassed the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmappedUse {
    /// Requested an entry of the map over the socket.
    SocketLookup,
    /// Was redirected to its name services.
    SentToServices,
}

/// A program: the name of its process, and its uid.
type ProgramKey = (String, u32);

/// Number of uses, and those of processes that had a map.
#[derive(Clone, Copy, Debug, Default)]
struct UseCount {
    all: u64,
    with_map: u64,
}

#[derive(Default)]
struct ClientProcess {
    name: Option<String>,
    has_map: bool,
}

/// Statistics of programs.
#[derive(Default)]
pub struct UnmappedClients {
    processes: HashMap<i32, ClientProcess>,
    order: VecDeque<i32>,
    socket_lookups: HashMap<ProgramKey, UseCount>,
    sent_to_services: HashMap<ProgramKey, UseCount>,
}

impl UnmappedClients {
    /// Records that a process received a map.
    pub fn record_map(&mut self, peer: PeerCredentials) {
        self.process(peer.pid).has_map = true;
    }

    /// Records a use by a process. `name_of` returns the name of a process.
    pub fn record_use(
        &mut self,
        peer: PeerCredentials,
        did: UnmappedUse,
        name_of: impl Fn(i32) -> Option<String>,
    ) {
        let process = self.process(peer.pid);
        let has_map = process.has_map;
        let name = process.name.get_or_insert_with(|| name_of(peer.pid).unwrap_or_default());
        let program = (name.clone(), peer.uid);
        let counts = match did {
            UnmappedUse::SocketLookup => &mut self.socket_lookups,
            UnmappedUse::SentToServices => &mut self.sent_to_services,
        };
        if counts.len() >= PROGRAMS_MAX && !counts.contains_key(&program) {
            let rarest = counts.iter().min_by_key(|(_, count)| count.all);
            if let Some(rarest) = rarest.map(|(program, _)| program.clone()) {
                counts.remove(&rarest);
            }
        }
        let count = counts.entry(program).or_default();
        count.all += 1;
        count.with_map += u64::from(has_map);
    }

    fn process(&mut self, pid: i32) -> &mut ClientProcess {
        if !self.processes.contains_key(&pid) {
            if self.order.len() >= PROCESSES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.processes.remove(&oldest);
            }
            self.order.push_back(pid);
        }
        self.processes.entry(pid).or_default()
    }

    /// Returns at most two lines; a kind without uses has no line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let code = format!(" [{}]", host::NSCD_PROGRAMS_WITHOUT_MAP);
        for (what, counts, code) in [
            ("socket lookups of entries that a map has", &self.socket_lookups, ""),
            ("referred to the name services", &self.sent_to_services, &*code),
        ] {
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(program, count)| (u64::MAX - count.all, *program));
            let told: Vec<_> =
                counts.iter().take(REPORTED_MAX).map(|of| format_program(of.0, *of.1)).collect();
            if !told.is_empty() {
                let _ = writeln!(text, "{what}: {}{code}", told.join(", "));
            }
        }
        text
    }
}

fn format_program((name, uid): &ProgramKey, count: UseCount) -> String {
    let UseCount { all, with_map } = count;
    let name = if name.is_empty() { "programs with hidden names" } else { name };
    let had = if with_map > 0 { format!(", {with_map} with a map") } else { String::new() };
    format!("{name} (uid {uid}) {all} times{had}")
}

/// Returns the name of a process, with `?` for characters that are not printable.
pub fn name_of(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    let plain = |&byte: &u8| {
        let is_plain = byte.is_ascii_graphic() && !b"(),".contains(&byte);
        if is_plain { char::from(byte) } else { '?' }
    };
    Some(name.iter().take(NAME_BYTES_MAX).map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_name_and_whether_they_had_a_map() {
        let mut programs = UnmappedClients::default();
        assert_eq!(programs.text(), "");
        let name = |pid| Some(if pid == 7 { "sshd" } else { "box" }.to_owned());
        let [sshd, other, hidden] =
            [(0, 7), (5, 8), (5, 9)].map(|(uid, pid)| PeerCredentials { uid, pid });
        programs.record_map(sshd);
        programs.record_use(sshd, UnmappedUse::SocketLookup, name);
        programs.record_use(other, UnmappedUse::SocketLookup, name);
        programs.record_use(other, UnmappedUse::SocketLookup, name);
        programs.record_use(hidden, UnmappedUse::SentToServices, |_| None);
        assert_eq!(
            programs.text(),
            "socket lookups of entries that a map has: box (uid 5) 2 times, sshd (uid 0) 1 times, 1 with a map\n\
             referred to the name services: programs with hidden names (uid 5) 1 times [RST-2060]\n"
        );
    }

    #[test]
    fn however_many_there_are_little_is_kept_and_the_most_frequent_are() {
        let mut programs = UnmappedClients::default();
        let often = PeerCredentials { uid: 0, pid: 1 };
        for _ in 0..3 {
            programs.record_use(often, UnmappedUse::SocketLookup, |_| Some("often".into()));
        }
        for pid in 2..20_000 {
            programs.record_use(
                PeerCredentials { uid: 0, pid },
                UnmappedUse::SocketLookup,
                |pid| Some(format!("p{pid}")),
            );
        }
        assert!(
            programs
                .text()
                .starts_with("socket lookups of entries that a map has: often (uid 0) 3 times")
        );
        assert_eq!(programs.text().matches(" times").count(), REPORTED_MAX);
        assert!(
            programs.socket_lookups.len() <= PROGRAMS_MAX
                && programs.processes.len() <= PROCESSES_MAX
        );
    }

    #[test]
    fn a_name_is_printed_as_plain_text() {
        let name = name_of(std::process::id().cast_signed()).unwrap();
        assert!(!name.is_empty() && name.chars().all(|char| char.is_ascii_graphic()), "{name}");
    }
}
