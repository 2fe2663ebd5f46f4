// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that look up while another thread publishes.

use crate::generations::SnapshotSource;
use crate::layout::SnapshotKind;
use crate::snapshot_path::{self, PUBLISHED};
use crate::syscalls;
use crate::threads::{spawn, switch_point};
use core::sync::atomic::Ordering::SeqCst;

/// Published one after the other. A slot is used again from the third on.
const GENERATIONS: u64 = 4;
const READERS: usize = 2;
const LOOKUPS: usize = 3;

/// Makes lookups. Each reads one whole generation, which stays mapped during the lookup, and none reads an older one than
/// the lookup before.
fn read_generations(source: &SnapshotSource) -> u64 {
    let mut newest = 0;
    for _ in 0..LOOKUPS {
        let read = source.with(|snapshot, owner| {
            let first = snapshot.generation();
            switch_point();
            assert_eq!(first, snapshot.generation(), "the generation changed during a lookup");
            assert_eq!(first, u64::from(owner), "parts of two generations");
            first
        });
        let read = read.expect("a file is published");
        assert!(read >= newest, "generation {read} after {newest}");
        newest = read;
    }
    newest
}

fn publish_while_reading() {
    syscalls::begin();
    PUBLISHED.store(1, SeqCst);
    let source: &'static SnapshotSource =
        Box::leak(Box::new(SnapshotSource::new(SnapshotKind::Accounts)));
    let readers: Vec<_> = (0..READERS).map(|_| spawn(move || read_generations(source))).collect();
    for generation in 2..=GENERATIONS {
        snapshot_path::publish(generation);
    }
    for reader in readers {
        assert!(reader.join().expect("a reader ends well") <= GENERATIONS);
    }
    // No thread runs, so the check of a lookup or of the next one finds the last file.
    let _ = read_generations(source);
    assert_eq!(read_generations(source), GENERATIONS);
    syscalls::end();
}

#[cfg(loom)]
mod schedules {
    use super::publish_while_reading;
    use std::sync::Mutex;

    /// Held by a test: the published file and the clock are those of the process.
    static RUNNING: Mutex<()> = Mutex::new(());

    const SCHEDULES: usize = 20_000;
    /// Forced switches of a schedule: an error of this code needs two or three.
    const SWITCHES: usize = 3;

    fn schedules() -> usize {
        std::env::var("ROSTER_SCHEDULES").map_or(SCHEDULES, |n| n.parse().expect("a number"))
    }

    #[test]
    fn generations_any_random_schedule_reads_whole() {
        let _alone = RUNNING.lock();
        shuttle::check_random(publish_while_reading, schedules());
    }

    #[test]
    fn generations_any_forced_switch_reads_whole() {
        let _alone = RUNNING.lock();
        shuttle::check_pct(publish_while_reading, schedules(), SWITCHES);
    }
}

#[cfg(not(loom))]
#[test]
fn generations_real_threads_read_whole() {
    publish_while_reading();
}
