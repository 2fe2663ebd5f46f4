// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads any bytes as SSSD's cache, and as the data of one entry: accounts or an error, never a crash or an endless loop.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_migration::cache::{CacheOptions, HomeShell, accounts, ldb};

fuzz_target!(|input: &[u8]| {
    let _ = ldb::entry(b"DN=NAME=A,CN=SYSDB\0", input);
    let home_shell = HomeShell::default();
    for include_expired in [false, true] {
        let options =
            CacheOptions { domain: "corp", now: 1000, include_expired, home_shell: &home_shell };
        let _ = accounts(input, Some(input), &options);
    }
});
