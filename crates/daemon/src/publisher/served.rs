//! What the publisher's snapshots have: for the one in place and for the next, which of them it is and how many
//! entries it has of each domain, in a small file beside it. A publisher that was started anew knows by it its
//! own snapshot, the domains that it must not lose, and how much of each would go at once. What another wrote
//! counts as nothing.
//!
//! For each snapshot a line with generation and checksum, then a line for each domain: name, users, groups. The
//! file is on the disk before a snapshot takes its place, with that of before, so that one of them is in place
//! whenever the publisher ends. It belongs to the publisher, as the snapshot does.

use super::kept::Displaced;
use super::own::Identity;
use super::places::Places;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The file's name.
pub const FILE: &str = "roster.domains";

/// How many entries of a domain are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Users.
    pub users: u64,
    /// Groups.
    pub groups: u64,
}

impl Counts {
    /// A line of a file: name, users, groups.
    pub(super) fn parse(line: &str) -> Option<(String, Self)> {
        let [name, users, groups] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let counts = Self { users: users.parse().ok()?, groups: groups.parse().ok()? };
        Some((name.to_owned(), counts))
    }
}

/// Domains with entries in the snapshot, by name.
pub type Served = BTreeMap<String, Counts>;

/// A snapshot, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which it is.
    pub identity: Identity,
    /// What it has of each domain.
    pub served: Served,
}

/// Begins the line of a snapshot; no domain is called so.
const SNAPSHOT: &str = "snapshot: ";
/// Snapshots that a file has at most: the one in place, and the next.
const SECTIONS_MAX: usize = 2;

/// Reads the file, the oldest snapshot first. `None` when it is not there or makes no sense.
#[must_use]
pub fn read(state_dir: &Path) -> Option<Vec<Section>> {
    parse(&fs::read_to_string(state_dir.join(FILE)).ok()?)
}

fn parse(text: &str) -> Option<Vec<Section>> {
    // Without its last line end something is missing.
    let (text, mut sections) = (text.strip_suffix(END)?, Vec::<Section>::new());
    for line in text.split_terminator('\n') {
        match line.strip_prefix(SNAPSHOT) {
            Some(_) if sections.len() == SECTIONS_MAX => return None,
            Some(numbers) => {
                let (generation, checksum) = numbers.split_once(' ')?;
                let (generation, checksum) =
                    (generation.parse().ok()?, u64::from_str_radix(checksum, 16).ok()?);
                let identity = Identity { generation, checksum };
                sections.push(Section { identity, served: Served::new() });
            }
            None => {
                let (name, counts) = Counts::parse(line)?;
                sections.last_mut()?.served.insert(name, counts);
            }
        }
    }
    Some(sections).filter(|sections| !sections.is_empty())
}

/// The last line, without which something is missing.
const END: &str = "end\n";

/// What is left without entries at these positions of a snapshot, in which the domains lie one behind the
/// other in this order. Where that is not how so many users and groups came together it stays as it was:
/// more seem to go later on then, never fewer.
#[must_use]
pub fn without(
    served: &Served,
    order: &[String],
    (users, groups): (u64, u64),
    displaced: &Displaced,
) -> Served {
    let known = order.iter().filter_map(|name| Some((name.clone(), *served.get(name)?)));
    let known = Places { generation: 0, domains: known.collect() };
    let mut left = served.clone();
    if known.domains.len() == served.len() && known.sum() == (users, groups) {
        left.extend(known.without(displaced).domains);
    }
    left
}

/// Writes the file, and returns when it is on the disk.
pub fn write(state_dir: &Path, sections: &[Section]) -> io::Result<()> {
    let mut text = String::new();
    for Section { identity: Identity { generation, checksum }, served } in sections {
        let _ = writeln!(text, "{SNAPSHOT}{generation} {checksum:016x}");
        for (name, Counts { users, groups }) in served {
            let _ = writeln!(text, "{name} {users} {groups}");
        }
    }
    text += END;
    let temp = state_dir.join(".roster.domains.new");
    let mut file = File::create(&temp)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temp, state_dir.join(FILE))?;
    File::open(state_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_go_are_counted_off_the_domain_that_they_lie_in() {
        let counts = |users, groups| Counts { users, groups };
        let served = |lab, corp| Served::from([("lab".to_owned(), lab), ("corp".to_owned(), corp)]);
        let order = ["lab", "none", "corp"].map(str::to_owned);
        let before = served(counts(3, 1), counts(2, 2));
        let displaced = Displaced { users: vec![2, 3, 4], groups: vec![0] };
        let after = served(counts(2, 0), counts(0, 2));
        assert_eq!(without(&before, &order, (5, 3), &displaced), after);
        assert_eq!(without(&before, &order, (6, 3), &displaced), before, "it is another's");
        assert_eq!(without(&before, &order[1..], (2, 2), &displaced), before, "lab is gone");
    }

    #[test]
    fn what_was_written_is_read_and_anything_cut_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        let corp = ("corp".to_owned(), Counts { users: 10_003, groups: 12 });
        let section = |generation, served| {
            let identity = Identity { generation, checksum: u64::MAX - generation };
            Section { identity, served }
        };
        let sections = [
            section(7, Served::from([corp.clone(), ("lab".to_owned(), Counts::default())])),
            section(8, Served::from([corp])),
        ];
        for number in 1..=2 {
            write(folder.path(), &sections[..number]).expect("written");
            assert_eq!(read(folder.path()).as_deref(), Some(&sections[..number]));
            let text = fs::read_to_string(folder.path().join(FILE)).expect("there");
            assert!((0..text.len()).all(|length| parse(&text[..length]).is_none()));
        }
    }
}
