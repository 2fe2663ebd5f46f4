// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIDs in both forms, and tables of slices: any bytes are parsed or rejected. A parsed SID has one binary form and one
//! text, and a table has one text. The ids of a domain are SIDs of this domain again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_sid::{DomainSlice, IdMapper, IdRange, Sid, SliceTable};

fuzz_target!(|value: &[u8]| {
    if let Ok(table) = SliceTable::parse(value) {
        assert_eq!(table.to_text().as_bytes(), value);
    }
    let text = std::str::from_utf8(value).ok().and_then(|text| {
        let sid: Sid = text.parse().ok()?;
        // Hexadecimal digits of the authority may be in capitals.
        assert!(sid.to_string().eq_ignore_ascii_case(text));
        Some(sid)
    });
    let binary = Sid::from_bytes(value).ok();
    if let Some(sid) = &binary {
        assert_eq!(sid.to_bytes(), value);
    }
    for sid in [text, binary].into_iter().flatten() {
        assert_eq!(sid.to_string().parse(), Ok(sid));
        assert_eq!(Sid::from_bytes(&sid.to_bytes()), Ok(sid));
        let domain = sid.domain();
        assert!(domain.is_none_or(|domain| domain.with_rid(sid.rid()) == Some(sid)));
        let Some(domain) = domain.filter(Sid::is_account_domain) else { continue };
        let domains = [DomainSlice { sid: domain, slice: None }];
        let mut mapper = IdMapper::new(IdRange::default(), &domains).expect("one domain");
        if let Ok(id) = mapper.to_id(&sid) {
            assert_eq!(mapper.to_sid(id), Some(sid));
        }
    }
});
