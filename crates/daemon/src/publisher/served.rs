//! What the snapshot in place was made of: the domains in it and how many entries it has of each, in a
//! small file beside it. A publisher that was started anew knows by it which domains it must not lose,
//! and how much of each would go at once.
//!
//! One line a domain: name, users, groups. The file is written before a snapshot that has more domains
//! and after one that has fewer, so that it never names too few.

use super::kept::Displaced;
use super::places::Places;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
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

/// Reads the file. `None` when it is not there or makes no sense.
#[must_use]
pub fn read(state_dir: &Path) -> Option<Served> {
    parse(&fs::read_to_string(state_dir.join(FILE)).ok()?)
}

fn parse(text: &str) -> Option<Served> {
    // Without its last line end something is missing.
    text.strip_suffix('\n')?.split('\n').map(Counts::parse).collect()
}

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
pub fn write(state_dir: &Path, served: &Served) -> io::Result<()> {
    let temp = state_dir.join(".roster.domains.new");
    let mut file = File::create(&temp)?;
    for (name, Counts { users, groups }) in served {
        writeln!(file, "{name} {users} {groups}")?;
    }
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
        let served = Served::from([corp, ("lab".to_owned(), Counts::default())]);
        write(folder.path(), &served).expect("written");
        assert_eq!(read(folder.path()), Some(served));
        let text = fs::read_to_string(folder.path().join(FILE)).expect("there");
        for length in 0..text.len() {
            let cut = parse(&text[..length]);
            assert!(cut.is_none() || text[length..].starts_with("lab"), "{length}: {cut:?}");
        }
    }
}
