// SPDX-License-Identifier: MIT OR Apache-2.0
//! The domain image that a backend hands to the publisher. No bytes may crash the reader or make it run for ever.
//! Parsed records can be encoded and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_bus::domain_image::{self, ImageHeader, Record, Records};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, records)) = ImageHeader::parse(bytes) {
        assert_eq!(header.to_bytes()[..], bytes[..domain_image::HEADER_BYTES]);
        let read: Result<Vec<_>, _> = records.collect();
        assert!(read.is_err() || read.is_ok_and(|read| read.len() as u64 == header.records));
    }
    let mut written = Vec::new();
    let mut records = 0;
    for record in Records::without_header(bytes).take_while(Result::is_ok).flatten() {
        records += usize::from(write(&mut written, &record));
    }
    let again = Records::without_header(&written).filter(Result::is_ok).count();
    assert_eq!(again, records);
});

/// `false` for a name of 65,536 bytes and more, which can be read and not written.
fn write(out: &mut Vec<u8>, record: &Record<'_>) -> bool {
    let written = match record {
        Record::User(user) => domain_image::write_user(out, user),
        Record::Group(group) => {
            let members: Option<Vec<u32>> = group.members.map(|members| members.iter().collect());
            let domain_image::GroupRecord { number, reference, gid, name, .. } = *group;
            domain_image::write_group(out, number, reference, gid, name, members.as_deref())
        }
        Record::Removed { number } => {
            domain_image::write_removed(out, *number);
            Ok(())
        }
        Record::GroupsOf { user, groups } => {
            domain_image::write_groups_of(out, *user, &groups.iter().collect::<Vec<_>>())
        }
    };
    written.is_ok()
}
