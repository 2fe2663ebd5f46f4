//! Where each domain's entries lie in the snapshot in place, which does not tell: a small file beside it.
//! A publisher that was started anew finds by it what a domain had, when what its back-end hands over
//! cannot be taken (`restored`). It is believed for the one generation that it names and is not waited for
//! until it is on the disk: without it such a domain keeps everybody waiting, and nothing worse.

use super::kept::Displaced;
use super::served::Counts;
use roster_snapshot::Snapshot;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The file's name.
pub const FILE: &str = "roster.places";

/// Domains in the order in which their entries lie in a snapshot, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The snapshot's generation.
    pub generation: u64,
    /// How many entries it has of each.
    pub domains: Vec<(String, Counts)>,
}

impl Places {
    /// Reads the file. `None` when it is not that of this snapshot.
    #[must_use]
    pub fn read(state_dir: &Path, snapshot: &[u8]) -> Option<Self> {
        let places = Self::parse(&fs::read_to_string(state_dir.join(FILE)).ok()?)?;
        places.are_of(snapshot).then_some(places)
    }

    fn parse(text: &str) -> Option<Self> {
        // Without its last line end something is missing.
        let (generation, domains) = text.strip_suffix('\n')?.split_once('\n')?;
        let domains = domains.split('\n').map(Counts::parse).collect::<Option<_>>()?;
        Some(Self { generation: generation.parse().ok()?, domains })
    }

    fn are_of(&self, snapshot: &[u8]) -> bool {
        let Ok(opened) = Snapshot::open(snapshot) else { return false };
        let shape = opened.shape();
        Snapshot::generation(snapshot) == Some(self.generation)
            && self.sum() == (u64::from(shape.users), u64::from(shape.groups))
    }

    /// All users and all groups.
    #[must_use]
    pub fn sum(&self) -> (u64, u64) {
        let sum =
            |of: fn(&Counts) -> u64| self.domains.iter().map(|(_, counts)| of(counts)).sum::<u64>();
        (sum(|counts| counts.users), sum(|counts| counts.groups))
    }

    /// What lies where in the snapshot without entries at these positions.
    #[must_use]
    pub fn without(&self, displaced: &Displaced) -> Self {
        let mut left = self.clone();
        let (mut users, mut groups) = (0..0, 0..0);
        for (_, counts) in &mut left.domains {
            users = users.end..users.end + counts.users;
            groups = groups.end..groups.end + counts.groups;
            let gone = |positions: &[u32], range: &Range<u64>| {
                positions.iter().filter(|position| range.contains(&u64::from(**position))).count()
                    as u64
            };
            counts.users -= gone(&displaced.users, &users);
            counts.groups -= gone(&displaced.groups, &groups);
        }
        left
    }

    /// Whether any of these domains lies before that one.
    #[must_use]
    pub fn any_before(&self, domain: &str, others: &[&str]) -> bool {
        let before = self.domains.iter().take_while(|(name, _)| name != domain);
        before.into_iter().any(|(name, _)| others.contains(&name.as_str()))
    }

    /// Positions of a domain's users and groups.
    #[must_use]
    pub fn of(&self, domain: &str) -> Option<(Range<u32>, Range<u32>)> {
        let (mut users, mut groups) = (0, 0);
        for (name, counts) in &self.domains {
            let ends = (
                users + u32::try_from(counts.users).ok()?,
                groups + u32::try_from(counts.groups).ok()?,
            );
            if name == domain {
                return Some((users..ends.0, groups..ends.1));
            }
            (users, groups) = ends;
        }
        None
    }

    /// Writes the file.
    pub fn write(&self, state_dir: &Path) -> io::Result<()> {
        use std::fmt::Write as _;
        let mut text = format!("{}\n", self.generation);
        for (name, Counts { users, groups }) in &self.domains {
            let _ = writeln!(text, "{name} {users} {groups}");
        }
        let temp = state_dir.join(".roster.places.new");
        fs::write(&temp, text)?;
        fs::rename(&temp, state_dir.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_anything_cut_or_of_another_generation_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let snapshot = |generation| {
            let builder = roster_snapshot_build::Builder::new(1000);
            let image = builder.finish(roster_snapshot::layout::Kind::Accounts).expect("empty");
            let mut bytes = io::Cursor::new(Vec::new());
            image.image.write(&mut bytes, generation).expect("write to memory");
            bytes.into_inner()
        };
        let domains = ["lab", "corp"].map(|name| (name.to_owned(), Counts::default()));
        let places = Places { generation: 7, domains: domains.into() };
        assert_eq!(Places::read(folder.path(), &snapshot(7)), None);
        places.write(folder.path()).expect("written");
        assert_eq!(Places::read(folder.path(), &snapshot(7)), Some(places.clone()));
        assert_eq!(Places::read(folder.path(), &snapshot(8)), None);
        let mut more = places;
        more.domains[0].1.users = 1;
        more.write(folder.path()).expect("written");
        assert_eq!(Places::read(folder.path(), &snapshot(7)), None, "it has nobody");
        let text = fs::read_to_string(folder.path().join(FILE)).expect("there");
        assert_eq!(Places::parse(&text), Some(more));
        assert_eq!(Places::parse(&text[..text.len() - 1]), None);
    }

    #[test]
    fn domains_lie_one_behind_the_other() {
        let counts = |users, groups| Counts { users, groups };
        let domains = [("lab", counts(3, 1)), ("none", counts(0, 0)), ("corp", counts(2, 2))];
        let domains = domains.map(|(name, counts)| (name.to_owned(), counts));
        let places = Places { generation: 1, domains: domains.into() };
        assert_eq!(places.of("lab"), Some((0..3, 0..1)));
        assert_eq!(places.of("none"), Some((3..3, 1..1)));
        assert_eq!(places.of("corp"), Some((3..5, 1..3)));
        assert_eq!(places.of("other"), None);
        let lies_before = |others: &[&str]| places.any_before("none", others);
        assert!(lies_before(&["corp", "lab"]) && !lies_before(&["corp", "none", "other"]));
        let displaced = Displaced { users: vec![2, 3, 4], groups: vec![0] };
        let left = [("lab", counts(2, 0)), ("none", counts(0, 0)), ("corp", counts(0, 2))];
        let left = left.map(|(name, counts)| (name.to_owned(), counts));
        let wanted = Places { generation: 1, domains: left.into() };
        assert_eq!(places.without(&displaced), wanted);
    }
}
