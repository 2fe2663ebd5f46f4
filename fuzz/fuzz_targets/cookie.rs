// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache record of a directory's cookie: any bytes are parsed or rejected. A parsed record is encoded so that it is
//! parsed as the same, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_provider_ldap::reread_kept_cookie;

fuzz_target!(|kept: &[u8]| {
    if let Some(again) = reread_kept_cookie(kept) {
        let length = reread_kept_cookie(&again).map(|again| again.len());
        assert_eq!(length, Some(again.len()));
    }
});
