// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster generate`: invents users and groups, the same for the same seed on every machine. The text is written while it
//! is generated. Memory holds one number for each user and group, and no members.

use crate::output::{Progress, count_with_noun};
use anyhow::Result;
use roster_messages::CodedError;
use roster_messages::table::tools;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Number of the first user and group, in names and ids: above the ids of distributions.
const FIRST_ID: u32 = 1_000_000;

/// Day of the last password change in shadow entries. It must not change.
const LAST_CHANGE: u32 = 20_000;

/// Members between two updates of the progress bar.
const MEMBERS_PER_TICK: u64 = 1 << 16;

/// The arguments of a corpus.
#[derive(Clone, Copy, Debug)]
pub struct Corpus {
    pub users: u32,
    pub groups: u32,
    /// Mean number of members of a group.
    pub members: u32,
    pub shape: MembershipShape,
    pub seed: u64,
}

/// Distribution of members over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MembershipShape {
    /// Give group i the i mod 2×MEMBERS users from user i on, as published benchmarks do
    Consecutive,
    /// Make a few huge groups and many small ones with random members, as in real directories
    Zipf,
    /// Use the sizes of `consecutive` with random members
    Random,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct WrittenGroups {
    memberships: u64,
    largest: u32,
}

/// Writes the corpus into `folder` and prints a summary.
pub fn run(corpus: Corpus, shadow: bool, folder: &Path, out: &mut dyn Write) -> Result<()> {
    create_directory(folder)?;
    let mut say = |path: &Path, what: &str| writeln!(out, "{}: {what}", path.display());

    let users = count_with_noun(u64::from(corpus.users), "user");
    let path = write(folder, "passwd", "u_", 0o644, |out| corpus.write_passwd(out))?.0;
    say(&path, &users)?;
    let (path, groups) = write(folder, "group", "g_", 0o644, |out| {
        let total = u64::from(corpus.groups) * u64::from(corpus.members);
        corpus.write_group(out, &mut Progress::new(total, "Writing groups"))
    })?;
    let what = format!(
        "{}, {}, the largest group has {}",
        count_with_noun(u64::from(corpus.groups), "group"),
        count_with_noun(groups.memberships, "membership"),
        count_with_noun(u64::from(groups.largest), "member"),
    );
    say(&path, &what)?;
    if shadow {
        let path = write(folder, "shadow", "u_", 0o600, |out| corpus.write_shadow(out))?.0;
        say(&path, &format!("{users}, all without a valid password"))?;
    }
    Ok(())
}

/// Creates a directory for output, with its parents.
pub fn create_directory(path: &Path) -> Result<(), CodedError> {
    fs::create_dir_all(path).map_err(|error| {
        let text = format!("{}: the directory cannot be created", path.display());
        CodedError::new(&tools::DIRECTORY_NOT_CREATED, text).caused_by(error)
    })
}

/// Returns the error of a file that cannot be written.
pub fn write_error(path: &Path, error: io::Error) -> CodedError {
    let text = format!("{} cannot be written", path.display());
    CodedError::new(&tools::FILE_NOT_WRITTEN, text).caused_by(error)
}

/// Writes one file. Replaces an older corpus, and no other file: `--output /etc` must not replace accounts.
fn write<T>(
    folder: &Path,
    name: &str,
    prefix: &str,
    mode: u32,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<(PathBuf, T)> {
    let path = folder.join(name);
    let replaceable = is_replaceable(&path, prefix).map_err(|error| {
        let text = format!("{} cannot be read", path.display());
        CodedError::new(&tools::FILE_UNREADABLE, text).caused_by(error)
    });
    if !replaceable? {
        let text = format!("{} is not an earlier corpus", path.display());
        return Err(CodedError::new(&tools::CORPUS_WOULD_REPLACE_FILE, text).into());
    }
    let failed = |error| write_error(&path, error);
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(mode);
    let mut file = BufWriter::with_capacity(1 << 18, options.open(&path).map_err(failed)?);
    let result = fill(&mut file).and_then(|result| file.flush().map(|()| result));
    let result = result.map_err(failed)?;
    Ok((path, result))
}

fn is_replaceable(path: &Path, prefix: &str) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let start = BufReader::with_capacity(64, file).fill_buf()?.to_owned();
    Ok(start.is_empty() || start.starts_with(format!("{prefix}{FIRST_ID}:").as_bytes()))
}

impl Corpus {
    fn write_passwd(self, out: &mut dyn Write) -> io::Result<()> {
        for index in 0..self.users {
            let (id, gid) = (FIRST_ID + index, FIRST_ID + self.primary_group(index));
            writeln!(out, "u_{id}:x:{id}:{gid}:User {id},,,:/home/u_{id}:/bin/bash")?;
        }
        Ok(())
    }

    /// Returns the primary group of a user. The group exists, so that `id` finds its name.
    fn primary_group(self, user: u32) -> u32 {
        if self.groups == 0 { user } else { user % self.groups }
    }

    fn write_shadow(self, out: &mut dyn Write) -> io::Result<()> {
        for id in (FIRST_ID..).take(self.users as usize) {
            writeln!(out, "u_{id}:*:{LAST_CHANGE}:0:99999:7:::")?;
        }
        Ok(())
    }

    fn write_group(
        self,
        out: &mut dyn Write,
        progress: &mut Progress,
    ) -> io::Result<WrittenGroups> {
        let mut random = SplitMix64(self.seed);
        let mut sizes = self.sizes(&mut random);
        let mut pool = match self.shape {
            MembershipShape::Consecutive => Vec::new(),
            MembershipShape::Zipf | MembershipShape::Random => (0..self.users).collect(),
        };
        let mut written = WrittenGroups::default();
        let mut line = Vec::new();
        let mut next_tick = 0;
        for group in 0..self.groups {
            let size = sizes.next().unwrap_or(0);
            let id = FIRST_ID + group;
            line.clear();
            write!(line, "g_{id}:x:{id}:")?;
            for nth in 0..size {
                let user = match self.shape {
                    MembershipShape::Consecutive => (group % self.users + nth) % self.users,
                    MembershipShape::Zipf | MembershipShape::Random => {
                        draw(&mut pool, nth, &mut random)
                    }
                };
                if nth > 0 {
                    line.push(b',');
                }
                push_name(&mut line, FIRST_ID + user);
            }
            line.push(b'\n');
            out.write_all(&line)?;
            written.memberships += u64::from(size);
            written.largest = written.largest.max(size);
            if written.memberships >= next_tick {
                progress.at(written.memberships);
                next_tick = written.memberships + MEMBERS_PER_TICK;
            }
        }
        Ok(written)
    }

    fn sizes(self, random: &mut SplitMix64) -> Box<dyn Iterator<Item = u32>> {
        let Self { users, groups, members, .. } = self;
        match self.shape {
            MembershipShape::Consecutive | MembershipShape::Random => {
                let period = u64::from(members).saturating_mul(2).max(1);
                Box::new((0..groups).map(move |group| {
                    u32::try_from(u64::from(group) % period).unwrap_or(u32::MAX).min(users)
                }))
            }
            MembershipShape::Zipf => {
                let mut sizes = zipf_sizes(users, groups, members);
                for nth in 0..groups {
                    // The order is shuffled, so that the number of a group is independent of its size.
                    draw(&mut sizes, nth, random);
                }
                Box::new(sizes.into_iter())
            }
        }
    }
}

/// Returns sizes by rank with Zipf's law, scale/rank, at most `users`, with the requested mean.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are within 0..=users by construction"
)]
fn zipf_sizes(users: u32, groups: u32, members: u32) -> Vec<u32> {
    let cap = f64::from(users);
    let wanted = f64::from(groups) * f64::from(members.min(users));
    let size = |scale: f64, rank: u32| (scale / f64::from(rank)).min(cap);
    let total = |scale: f64| (1..=groups).map(|rank| size(scale, rank)).sum::<f64>();
    let (mut low, mut high) = (0.0, cap * f64::from(groups));
    // The interval is halved until the sum is within a thousandth of a member.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if total(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
        if high - low < 1e-3 {
            break;
        }
    }
    let mut owed = 0.0;
    let whole = (1..=groups).map(|rank| {
        // The next group receives the rounding error, so that the mean is exact.
        owed += size(high, rank);
        let size = owed.floor().min(cap);
        owed -= size;
        size as u32
    });
    whole.collect()
}

/// Draws the `nth` of distinct elements. The pool stays a permutation of itself, so the next group needs no reset, and
/// the time depends only on the size of the group.
fn draw(pool: &mut [u32], nth: u32, random: &mut SplitMix64) -> u32 {
    let left = u32::try_from(pool.len()).unwrap_or(u32::MAX) - nth;
    let chosen = nth + random.below(left);
    pool.swap(nth as usize, chosen as usize);
    pool[nth as usize]
}

/// Appends a user name. `write!` takes four times as long, and each member needs a call.
fn push_name(line: &mut Vec<u8>, mut id: u32) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    while id > 0 {
        start -= 1;
        digits[start] = b'0' + (id % 10) as u8;
        id /= 10;
    }
    line.extend_from_slice(b"u_");
    line.extend_from_slice(&digits[start..]);
}

/// The random numbers: SplitMix64 (Steele, Lea, Flood 2014), which is the same on all machines and in all versions.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is above 0. The bias is less than one in four billion.
    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

/// Limit of users and groups. Every id is then below the invalid 4294967295.
pub const ENTRIES_MAX: u32 = u32::MAX - FIRST_ID;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn corpus(shape: MembershipShape) -> Corpus {
        Corpus { users: 300, groups: 1000, members: 20, shape, seed: 1 }
    }

    fn groups(corpus: Corpus) -> (Vec<Vec<String>>, WrittenGroups) {
        let mut text = Vec::new();
        let written = corpus.write_group(&mut text, &mut Progress::new(0, "")).unwrap();
        let text = String::from_utf8(text).unwrap();
        let members = text.lines().map(|line| {
            let list = line.rsplit(':').next().unwrap();
            list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        });
        (members.collect(), written)
    }

    #[test]
    fn consecutive_groups_grow_and_wrap() {
        let (groups, written) = groups(corpus(MembershipShape::Consecutive));
        assert!(groups[0].is_empty() && groups[40].is_empty());
        assert_eq!(groups[2], ["u_1000002", "u_1000003"]);
        assert_eq!(groups[299][..3], ["u_1000299", "u_1000000", "u_1000001"]);
        assert_eq!(written, WrittenGroups { memberships: 1000 / 40 * (39 * 20), largest: 39 });
    }

    #[test]
    fn every_shape_has_distinct_known_members_and_the_wanted_mean() {
        for shape in [MembershipShape::Consecutive, MembershipShape::Zipf, MembershipShape::Random]
        {
            let (groups, written) = groups(corpus(shape));
            assert_eq!(groups.len(), 1000);
            let mean = written.memberships as f64 / 1000.0;
            assert!((19.0..=20.5).contains(&mean), "{shape:?} has {mean}");
            for group in &groups {
                let distinct: BTreeSet<_> = group.iter().collect();
                assert_eq!(distinct.len(), group.len());
                assert!(group.iter().all(|name| ("u_1000000".."u_1000300").contains(&&**name)));
            }
        }
    }

    #[test]
    fn zipf_has_few_huge_groups_and_many_tiny_ones() {
        let mut sizes = zipf_sizes(10_000, 10_000, 10);
        assert_eq!(sizes.iter().map(|&size| u64::from(size)).sum::<u64>(), 100_000);
        sizes.sort_unstable();
        assert_eq!(sizes.last(), Some(&10_000));
        assert!(sizes[5_000] <= 3, "the median group has {}", sizes[5_000]);
    }

    #[test]
    fn zipf_cannot_ask_for_more_members_than_users() {
        assert_eq!(zipf_sizes(5, 3, 100), [5, 5, 5]);
        assert_eq!(zipf_sizes(0, 2, 100), [0, 0]);
    }

    #[test]
    fn a_seed_gives_the_same_corpus_and_another_seed_another() {
        let random = corpus(MembershipShape::Random);
        assert_eq!(groups(random).0, groups(random).0);
        assert_ne!(groups(random).0, groups(Corpus { seed: 2, ..random }).0);
        // The value must not change: measurements of different days must use one corpus.
        assert_eq!(SplitMix64(1).next(), 0x910a_2dec_8902_5cc1);
    }

    #[test]
    fn users_have_a_primary_group_that_exists() {
        let mut text = Vec::new();
        let few = Corpus { users: 3, groups: 2, ..corpus(MembershipShape::Zipf) };
        few.write_passwd(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap().lines().last(),
            Some("u_1000002:x:1000002:1000000:User 1000002,,,:/home/u_1000002:/bin/bash")
        );
    }

    #[test]
    fn no_users_and_no_groups_are_no_trouble() {
        for shape in [MembershipShape::Consecutive, MembershipShape::Zipf, MembershipShape::Random]
        {
            let none = Corpus { users: 0, ..corpus(shape) };
            assert_eq!(groups(none).1.memberships, 0);
            assert!(groups(Corpus { groups: 0, ..corpus(shape) }).0.is_empty());
        }
    }
}
