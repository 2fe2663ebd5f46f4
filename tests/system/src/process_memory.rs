// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a process, as root can read it.

use rustix::process::Pid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A mapping in which some bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingMatch {
    /// As /proc/PID/smaps begins with it.
    pub mapping: String,
    /// The mapping stays out of swap.
    pub is_locked: bool,
    /// The mapping is left out of core dumps.
    pub is_excluded_from_dump: bool,
}

/// The mappings of a process that can be written to and hold these bytes.
///
/// # Panics
/// If its memory cannot be read.
#[must_use]
pub fn find_mappings(pid: Pid, bytes: &[u8]) -> Vec<MappingMatch> {
    let folder = format!("/proc/{pid}");
    let smaps = fs::read_to_string(format!("{folder}/smaps")).expect("the mappings of a process");
    let memory = File::open(format!("{folder}/mem")).expect("the memory of a process");
    let mut found = Vec::new();
    // A mapping's first line, whether anything of it is in memory, and its flags are in this order.
    let (mut mapping, mut is_there) = ("", false);
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Rss:").or_else(|| line.strip_prefix("Swap:")) {
            is_there |= kib.trim() != "0 kB";
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
            if is_there && has("rd") && has("wr") && has_bytes(&memory, mapping, bytes) {
                let (is_locked, is_left_out) = (has("lo"), has("dd"));
                found.push(MappingMatch {
                    mapping: mapping.to_owned(),
                    is_locked,
                    is_excluded_from_dump: is_left_out,
                });
            }
        } else if line.split(' ').next().is_some_and(|range| !range.ends_with(':')) {
            (mapping, is_there) = (line, false);
        }
    }
    found
}

fn has_bytes(memory: &File, mapping: &str, bytes: &[u8]) -> bool {
    let (range, _) = mapping.split_once(' ').expect("a range");
    let (from, to) = range.split_once('-').expect("a range");
    let address = |text| u64::from_str_radix(text, 16).expect("an address");
    let length = usize::try_from(address(to) - address(from)).expect("a length");
    let mut text = vec![0; length];
    // It may have gone since.
    let Ok(read) = memory.read_at(&mut text, address(from)) else { return false };
    memchr::memmem::find(&text[..read], bytes).is_some()
}
