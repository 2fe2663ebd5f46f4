// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of passwd, group and shadow files: no line may crash the parsers, and their results are parts of the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_passwd_format::lines::{self, ParsedLine};

fuzz_target!(|line: &[u8]| {
    if let ParsedLine::Entry(user) = lines::passwd_line(line) {
        for field in [Some(user.name), user.passwd, user.gecos, user.dir, user.shell] {
            assert!(!field.unwrap_or_default().contains(&0));
        }
        assert!(!user.name.contains(&b':'));
    }
    for parsed in [lines::group_line(line), lines::initgroups_line(line)] {
        if let ParsedLine::Entry(group) = parsed {
            for member in group.members() {
                assert!(!member.is_empty() && !member.contains(&b',') && !member.contains(&0));
            }
        }
    }
    if !lines::initgroups_differs(line) {
        match (lines::group_line(line), lines::initgroups_line(line)) {
            (ParsedLine::Blank, ParsedLine::Skipped(_)) => {
                assert!(line.first().is_none_or(|&byte| byte == 0))
            }
            (served, counted) => assert_eq!(served, counted),
        }
    }
    let _ = lines::shadow_line(line);
});
