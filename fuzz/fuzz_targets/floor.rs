// SPDX-License-Identifier: MIT OR Apache-2.0
//! The floor's file: no bytes may crash the parser. An accepted file is the text of that floor, except for the order of
//! gids. No floor serves an id that is always refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_snapshot::Floor;
use roster_snapshot::floor::{FILE_BYTES_MAX, GIDS_MAX};

fuzz_target!(|text: &[u8]| {
    let Some(floor) = Floor::parse(text) else { return };
    assert_eq!(floor.to_string().as_bytes(), text);
    assert!(text.len() <= FILE_BYTES_MAX && floor.gids().count() <= GIDS_MAX);
    let ids = floor.ids();
    for id in [0, 65_534, 65_535, u32::MAX, floor.min_id() - 1] {
        assert!(!ids.has(id));
    }
});
