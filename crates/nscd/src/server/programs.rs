//! Which programs do not read the map, although it has what they ask for: for people who wonder why one is
//! slow. Costs nothing where maps are read, and is told, never acted on: a program chooses its own name.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::fs;

pub use roster_descriptors::Peer;

/// Processes that are remembered, the latest.
const PROCESSES_MAX: usize = 4096;
/// Programs of a kind that are told apart; of more those with the fewest questions go.
const PROGRAMS_MAX: usize = 64;
/// Of those so many are told.
const TOLD_MAX: usize = 8;
/// The kernel has no longer names; one that says more is none of its.
const NAME_BYTES_MAX: usize = 64;

/// What a program did that had no use of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Asked over the socket what the map has.
    Asked,
    /// Was sent to its name services.
    WasSentAway,
}

/// A program, by the name that its process had.
type Program = (String, u32);

/// How often a program did it, and how often of that it had a map.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u64,
    with_map: u64,
}

#[derive(Default)]
struct Process {
    name: Option<String>,
    has_map: bool,
}

/// What is known of programs.
#[derive(Default)]
pub struct Programs {
    processes: HashMap<i32, Process>,
    order: VecDeque<i32>,
    asked: HashMap<Program, Count>,
    sent_away: HashMap<Program, Count>,
}

impl Programs {
    /// Takes note that a process was handed a map.
    pub fn was_handed(&mut self, peer: Peer) {
        self.process(peer.pid).has_map = true;
    }

    /// Takes note of what a process did. `name_of` tells the name of a process.
    pub fn note(&mut self, peer: Peer, did: Did, name_of: impl Fn(i32) -> Option<String>) {
        let process = self.process(peer.pid);
        let has_map = process.has_map;
        let name = process.name.get_or_insert_with(|| name_of(peer.pid).unwrap_or_default());
        let program = (name.clone(), peer.uid);
        let counts = match did {
            Did::Asked => &mut self.asked,
            Did::WasSentAway => &mut self.sent_away,
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

    fn process(&mut self, pid: i32) -> &mut Process {
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

    /// Two lines at the most: of what there was nothing of, none.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (what, counts) in [
            ("asked over the socket what a map has", &self.asked),
            ("sent to the name services", &self.sent_away),
        ] {
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(program, count)| (u64::MAX - count.all, *program));
            let told: Vec<_> = counts.iter().take(TOLD_MAX).map(|of| told(of.0, *of.1)).collect();
            if !told.is_empty() {
                let _ = writeln!(text, "{what}: {}", told.join(", "));
            }
        }
        text
    }
}

fn told((name, uid): &Program, count: Count) -> String {
    let Count { all, with_map } = count;
    let name = if name.is_empty() { "programs whose names are hidden here" } else { name };
    let had = if with_map > 0 { format!(", {with_map} with a map") } else { String::new() };
    format!("{name} (uid {uid}) {all} times{had}")
}

/// The name of a process, of which nothing but letters that can be printed is kept.
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
        let mut programs = Programs::default();
        assert_eq!(programs.text(), "");
        let name = |pid| Some(if pid == 7 { "sshd" } else { "box" }.to_owned());
        let [sshd, other, hidden] = [(0, 7), (5, 8), (5, 9)].map(|(uid, pid)| Peer { uid, pid });
        programs.was_handed(sshd);
        programs.note(sshd, Did::Asked, name);
        programs.note(other, Did::Asked, name);
        programs.note(other, Did::Asked, name);
        programs.note(hidden, Did::WasSentAway, |_| None);
        assert_eq!(
            programs.text(),
            "asked over the socket what a map has: box (uid 5) 2 times, sshd (uid 0) 1 times, 1 with a map\n\
             sent to the name services: programs whose names are hidden here (uid 5) 1 times\n"
        );
    }

    #[test]
    fn however_many_there_are_little_is_kept_and_the_most_frequent_are() {
        let mut programs = Programs::default();
        let often = Peer { uid: 0, pid: 1 };
        for _ in 0..3 {
            programs.note(often, Did::Asked, |_| Some("often".into()));
        }
        for pid in 2..20_000 {
            programs.note(Peer { uid: 0, pid }, Did::Asked, |pid| Some(format!("p{pid}")));
        }
        assert!(
            programs
                .text()
                .starts_with("asked over the socket what a map has: often (uid 0) 3 times")
        );
        assert_eq!(programs.text().matches(" times").count(), TOLD_MAX);
        assert!(programs.asked.len() <= PROGRAMS_MAX && programs.processes.len() <= PROCESSES_MAX);
    }

    #[test]
    fn a_name_is_printed_as_plain_text() {
        let name = name_of(std::process::id().cast_signed()).unwrap();
        assert!(!name.is_empty() && name.chars().all(|char| char.is_ascii_graphic()), "{name}");
    }
}
