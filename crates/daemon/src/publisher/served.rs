//! What the snapshot in place was made of: the domains in it and how many entries it has of each, in a
//! small file beside it. A publisher that was started anew knows by it which domains it must not lose,
//! and how much of each would go at once.
//!
//! One line a domain: name, users, groups. The file is written before a snapshot that has more domains
//! and after one that has fewer, so that it never names too few.

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

/// Domains with entries in the snapshot, by name.
pub type Served = BTreeMap<String, Counts>;

/// Reads the file. `None` when it is not there or makes no sense.
#[must_use]
pub fn read(state_dir: &Path) -> Option<Served> {
    parse(&fs::read_to_string(state_dir.join(FILE)).ok()?)
}

fn parse(text: &str) -> Option<Served> {
    let line = |line: &str| {
        let [name, users, groups] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let counts = Counts { users: users.parse().ok()?, groups: groups.parse().ok()? };
        Some((name.to_owned(), counts))
    };
    // Without its last line end something is missing.
    text.strip_suffix('\n')?.split('\n').map(line).collect()
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
