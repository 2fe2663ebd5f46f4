//! What a back-end hands to the publisher: no bytes may crash the reader or have it go on for ever,
//! and what it reads can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_bus::exchange::{self, Header, Record, Records};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, records)) = Header::parse(bytes) {
        assert_eq!(header.to_bytes()[..], bytes[..exchange::HEADER_BYTES]);
        let read: Result<Vec<_>, _> = records.collect();
        assert!(read.is_err() || read.is_ok_and(|read| read.len() as u64 == header.records));
    }
    let mut written = Vec::new();
    let mut records = 0;
    for record in Records::bare(bytes).take_while(Result::is_ok).flatten() {
        records += usize::from(write(&mut written, &record));
    }
    let again = Records::bare(&written).filter(Result::is_ok).count();
    assert_eq!(again, records);
});

/// `false` for a name of 65,536 bytes and more, which can be read and not written.
fn write(out: &mut Vec<u8>, record: &Record<'_>) -> bool {
    let written = match record {
        Record::User(user) => exchange::write_user(out, user),
        Record::Group(group) => {
            let members: Option<Vec<u32>> = group.members.map(|members| members.iter().collect());
            let exchange::Group { number, reference, gid, name, .. } = *group;
            exchange::write_group(out, number, reference, gid, name, members.as_deref())
        }
        Record::Gone { number } => {
            exchange::write_gone(out, *number);
            Ok(())
        }
        Record::GroupsOf { user, groups } => {
            exchange::write_groups_of(out, *user, &groups.iter().collect::<Vec<_>>())
        }
    };
    written.is_ok()
}
