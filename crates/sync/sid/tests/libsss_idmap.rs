// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapper against libsss_idmap of SSSD, on random ranges, domains and accounts. Each SID has the same id, and each
//! id the same SID. If libsss_idmap moves a block to another slice, the mapper returns no id.
//!
//! `ROSTER_SEED=S` starts with another seed. A failure prints its range and domains.

use roster_sid::{DomainSlice, IdMapper, IdRange, Sid, Unmapped};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const ORACLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/system/python/libsss_idmap.py");
const SETUPS: usize = 500;
const ACCOUNTS: usize = 50;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u32 {
        u32::try_from(self.roll() % end).expect("32 bits")
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// One range with domains and accounts.
#[derive(Debug)]
struct Setup {
    range: IdRange,
    helpers: u32,
    domains: Vec<DomainSlice>,
    accounts: Vec<Sid>,
    /// Ids for the reverse direction, besides those of the accounts.
    ids: Vec<u32>,
}

impl Setup {
    fn random(dice: &mut Dice) -> Self {
        let (range, helpers) = match dice.below(3) {
            0 => (IdRange::default(), 10),
            1 => {
                // Few slices, so that many blocks meet.
                let (size, slices) = (dice.pick(&[1000, 20_000]), dice.pick(&[5, 50, 1000]));
                let max = 100_000 + size * slices + dice.below(u64::from(size));
                (IdRange::new(100_000, max, size).expect("a range"), dice.pick(&[0, 3, 10]))
            }
            // With slices above 2^32 / 10, libsss_idmap computes wrong first RIDs.
            _ => {
                let size = dice.pick(&[200_000, 1_000_000, 400_000_000]);
                let min = 1_000_000 + dice.below(1_000_000_000);
                (IdRange::new(min, 4_294_967_294, size).expect("a range"), dice.pick(&[0, 10]))
            }
        };
        let domain = |dice: &mut Dice| {
            let text = format!(
                "S-1-5-21-{}-{}-{}",
                dice.roll() as u32,
                dice.roll() as u32,
                dice.roll() as u32
            );
            text.parse().expect("a SID")
        };
        let count = 1 + dice.below(u64::from(range.slices().min(6)));
        let named = dice.pick(&[0, 0, 0, 1, count.min(2)]).min(count);
        let mut domains: Vec<DomainSlice> = Vec::new();
        for place in 0..count {
            // Named slices are distinct.
            let slice = (place < named).then(|| {
                loop {
                    let slice = dice.below(u64::from(range.slices()));
                    if domains.iter().all(|other| other.slice != Some(slice)) {
                        break slice;
                    }
                }
            });
            domains.push(DomainSlice { sid: domain(dice), slice });
        }
        let accounts = (0..ACCOUNTS).map(|_| {
            let end = dice.pick(&[20_000, 200_000, 3_000_000, 1 << 31, 1 << 32]);
            let domain = match dice.below(40) {
                0 => "S-1-5-32".parse().expect("a SID"),
                1 => domain(dice),
                _ => dice.pick(&domains).sid,
            };
            domain.with_rid(dice.below(end)).expect("a SID")
        });
        let accounts = accounts.collect();
        let ids = (0..ACCOUNTS).map(|_| dice.below(1 << 32)).collect();
        Self { range, helpers, domains, accounts, ids }
    }

    fn mapper(&self) -> IdMapper {
        IdMapper::with_helper_slices(self.range, &self.domains, self.helpers).expect("a mapper")
    }

    fn requests(&self) -> String {
        let (range, mut text) = (self.range, String::new());
        let _ = writeln!(
            text,
            "range {} {} {} {}",
            range.min(),
            range.max(),
            range.size(),
            self.helpers
        );
        for domain in &self.domains {
            let slice = domain.slice.map_or("-".into(), |slice| slice.to_string());
            let _ = writeln!(text, "domain {} {slice}", domain.sid);
        }
        for account in &self.accounts {
            let _ = writeln!(text, "id {account}");
        }
        text
    }
}

/// Sends requests to libsss_idmap, and returns one line for each.
fn query_libsss_idmap(requests: &str) -> Vec<String> {
    let mut oracle = Command::new("python3")
        .args(["-B", ORACLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut input = oracle.stdin.take().expect("a pipe");
    let requests = requests.to_owned();
    let writer = std::thread::spawn(move || input.write_all(requests.as_bytes()));
    let output = oracle.wait_with_output().expect("output");
    writer.join().expect("a thread").expect("write");
    assert!(output.status.success(), "libsss_idmap.py failed: is libsss-idmap0 installed?");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[derive(Debug, Default)]
struct Counts {
    equal_ids: usize,
    equal_none: usize,
    moved_blocks: usize,
    disputed: usize,
    equal_sids: usize,
    reverse_none: usize,
    moved_ids: usize,
    undecided_ids: usize,
}

impl Counts {
    /// Compares the ids of a setup.
    fn compare_ids(&mut self, setup: &Setup, mapper: &mut IdMapper, replies: &[String]) {
        let (slices, ids) = replies[1..].split_at(setup.domains.len());
        let is_moved = setup.domains.iter().zip(slices).any(|(domain, slice)| {
            let alone = IdMapper::new(setup.range, &[*domain]).expect("a mapper");
            alone.claims()[0].slice.to_string() != *slice
        });
        for (account, theirs) in setup.accounts.iter().zip(ids) {
            let theirs: Option<u32> = theirs.parse().ok();
            match (mapper.to_id(account), theirs) {
                (Ok(ours), _) => {
                    assert_eq!(Some(ours), theirs, "{account} {setup:?}");
                    self.equal_ids += 1;
                }
                (Err(_), None) => self.equal_none += 1,
                (Err(Unmapped::DisputedDomain { .. }), Some(_)) => {
                    assert!(is_moved, "{account} {setup:?}");
                    self.disputed += 1;
                }
                (Err(Unmapped::SliceInUse { slice, .. }), Some(theirs)) => {
                    let (found, _) = setup.range.slice_of(theirs).expect("an id of the range");
                    assert_ne!(found, slice, "{account} {setup:?}");
                    self.moved_blocks += 1;
                }
                (Err(error), Some(theirs)) => panic!("{error}, {theirs} {setup:?}"),
            }
        }
    }

    fn compare_sids(&mut self, mapper: &IdMapper, setup: &Setup, ids: &[u32], replies: &[String]) {
        for (id, theirs) in ids.iter().zip(replies) {
            match mapper.to_sid(*id) {
                Some(ours) => {
                    assert_eq!(ours.to_string(), *theirs, "{id} {setup:?}");
                    self.equal_sids += 1;
                }
                None if theirs.starts_with("error") => self.reverse_none += 1,
                None => {
                    let sid: Sid = theirs.parse().expect("a SID");
                    match mapper.clone().to_id(&sid) {
                        // Two blocks may claim the slice, and no account has done so yet.
                        Ok(ours) => {
                            assert_eq!(ours, *id, "{sid} {setup:?}");
                            self.undecided_ids += 1;
                        }
                        // A block that libsss_idmap moved, or a disputed domain.
                        Err(_) => self.moved_ids += 1,
                    }
                }
            }
        }
    }
}

#[test]
fn ids_and_sids_equal_libsss_idmap() {
    let seed = std::env::var("ROSTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut dice = Dice(seed);
    let setups: Vec<Setup> = (0..SETUPS).map(|_| Setup::random(&mut dice)).collect();
    // Two passes: the ids for the reverse direction follow from the first one.
    let forward = query_libsss_idmap(&setups.iter().map(Setup::requests).collect::<String>());
    let mut rest = &forward[..];
    let (mut reverse, mut counts, mut compared) = (String::new(), Counts::default(), Vec::new());
    for setup in &setups {
        let (replies, later) = rest.split_at(1 + setup.domains.len() + ACCOUNTS);
        rest = later;
        let mut mapper = setup.mapper();
        counts.compare_ids(setup, &mut mapper, replies);
        let found =
            replies[1 + setup.domains.len()..].iter().filter_map(|reply| reply.parse().ok());
        let ids: Vec<u32> = found.chain(setup.ids.iter().copied()).collect();
        reverse.push_str(&setup.requests());
        ids.iter().for_each(|id| {
            let _ = writeln!(reverse, "sid {id}");
        });
        compared.push((mapper, ids, replies.len()));
    }
    let replies = query_libsss_idmap(&reverse);
    let mut rest = &replies[..];
    for ((mapper, ids, skipped), setup) in compared.iter().zip(&setups) {
        let (replies, later) = rest[*skipped..].split_at(ids.len());
        rest = later;
        counts.compare_sids(mapper, setup, ids, replies);
    }
    println!("{} SIDs: {counts:?}", SETUPS * ACCOUNTS);
    // The comparison is meaningful: most accounts have ids, and each refusal occurs.
    assert!(counts.equal_ids > 15_000 && counts.equal_sids > 15_000, "{counts:?}");
    assert!(counts.moved_blocks > 0 && counts.disputed > 0, "{counts:?}");
}

/// Named slices as an administrator copies them from SSSD: afterwards all primary ids are equal.
#[test]
fn named_slices_of_sssd_give_equal_ids() {
    let mut dice = Dice(2);
    for _ in 0..40 {
        let mut setup = Setup::random(&mut dice);
        setup.accounts.retain(|account| account.rid() < setup.range.size());
        let replies = query_libsss_idmap(&setup.requests());
        let (slices, ids) = replies[1..].split_at(setup.domains.len());
        for (domain, slice) in setup.domains.iter_mut().zip(slices) {
            domain.slice = Some(slice.parse().expect("a slice"));
        }
        let mut mapper = setup.mapper();
        for (account, theirs) in setup.accounts.iter().zip(ids) {
            assert_eq!(mapper.to_id(account).ok(), theirs.parse().ok(), "{account} {setup:?}");
        }
    }
}
