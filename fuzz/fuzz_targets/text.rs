//! Lines of passwd, group and shadow files: no line may crash the parsers, and what they give are
//! parts of the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_record::text::{self, Line};

fuzz_target!(|line: &[u8]| {
    if let Line::Entry(user) = text::passwd_line(line) {
        for field in [Some(user.name), user.passwd, user.gecos, user.dir, user.shell] {
            assert!(!field.unwrap_or_default().contains(&0));
        }
        assert!(!user.name.contains(&b':'));
    }
    for parsed in [text::group_line(line), text::initgroups_line(line)] {
        if let Line::Entry(group) = parsed {
            for member in group.members() {
                assert!(!member.is_empty() && !member.contains(&b',') && !member.contains(&0));
            }
        }
    }
    if !text::initgroups_differs(line) {
        match (text::group_line(line), text::initgroups_line(line)) {
            (Line::Blank, Line::Skipped(_)) => assert!(line.first().is_none_or(|&byte| byte == 0)),
            (served, counted) => assert_eq!(served, counted),
        }
    }
    let _ = text::shadow_line(line);
});
