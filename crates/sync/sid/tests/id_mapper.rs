// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids that SSSD gives, disputes between domains, and slices after a restart.

use roster_sid::{
    DomainSlice, IdMapper, IdRange, MapperError, Sid, SliceClaim, SliceDispute, Unmapped,
};

const D1: &str = "S-1-5-21-3623811015-3361044348-30300820";
const D2: &str = "S-1-5-21-1664130791-3153540899-3044996548";
const D3: &str = "S-1-5-21-565957003-1942374726-444343521";
const D4: &str = "S-1-5-21-735199366-4244774717-4292193313";

fn sid(text: &str) -> Sid {
    text.parse().expect("a SID")
}

fn account(domain: &str, rid: u32) -> Sid {
    sid(domain).with_rid(rid).expect("a SID")
}

fn hashed(domains: &[&str]) -> Vec<DomainSlice> {
    domains.iter().map(|domain| DomainSlice { sid: sid(domain), slice: None }).collect()
}

fn named(domains: &[(&str, u32)]) -> Vec<DomainSlice> {
    let slice =
        |(domain, slice): &(&str, u32)| DomainSlice { sid: sid(domain), slice: Some(*slice) };
    domains.iter().map(slice).collect()
}

fn mapper(domains: &[DomainSlice]) -> IdMapper {
    IdMapper::new(IdRange::default(), domains).expect("a mapper")
}

/// Checks both directions.
fn expect_ids(mapper: &mut IdMapper, ids: &[(&str, u32, u32)]) {
    for (domain, rid, id) in ids {
        let account = account(domain, *rid);
        assert_eq!(mapper.to_id(&account), Ok(*id), "{account}");
        assert_eq!(mapper.to_sid(*id), Some(account), "{id}");
    }
}

/// Measured with libsss_idmap 2.8.2, those of D4 with SSSD and Samba.
#[test]
fn ids_of_vectors_equal_sssd() {
    let ids = [
        (D1, 500, 674_000_500),
        (D1, 1104, 674_001_104),
        (D1, 199_999, 674_199_999),
        (D1, 200_000, 1_787_200_000),
        (D1, 200_500, 1_787_200_500),
        (D1, 400_000, 67_800_000),
        (D1, 2_200_000, 396_600_000),
        (D1, 2_400_001, 517_600_001),
        (D1, 2_147_483_647, 1_814_483_647),
        (D2, 1104, 1_011_401_104),
        (D3, 1104, 298_001_104),
        (D4, 500, 513_800_500),
        (D4, 513, 513_800_513),
        (D4, 1110, 513_801_110),
        (D4, 250_001, 182_250_001),
    ];
    expect_ids(&mut mapper(&hashed(&[D1, D2, D3, D4])), &ids);
    let mut first = mapper(&named(&[(D2, 0)]));
    expect_ids(&mut first, &[(D2, 1104, 201_104)]);
    let mut autorid = mapper(&named(&[(D1, 0), (D2, 1), (D3, 2)]));
    let ids = [(D1, 1104, 201_104), (D2, 1104, 401_104), (D3, 1104, 601_104)];
    expect_ids(&mut autorid, &ids);
    let range = IdRange::new(1_000_000, 2_000_000_000, 1_000_000).expect("a range");
    let mut large =
        IdMapper::with_helper_slices(range, &hashed(&[D1, D2, D3]), 0).expect("a mapper");
    expect_ids(&mut large, &[(D1, 1104, 1_252_001_104), (D2, 999_999, 282_999_999)]);
    let above = account(D3, 1_000_000);
    assert_eq!(large.to_id(&above), Err(Unmapped::NoSecondarySlice));
}

#[test]
fn ids_of_foreign_sids_are_refused() {
    let mut mapper = mapper(&hashed(&[D1]));
    for text in ["S-1-5-32-544", "S-1-5-11", D1, "S-1-5-21-1-2-3-4-5", "S-1-1-21-1-2-3-4"] {
        let sid = sid(text);
        assert_eq!(mapper.to_id(&sid), Err(Unmapped::NotDomainAccount), "{text}");
    }
    let sid = account(D2, 500);
    assert_eq!(mapper.to_id(&sid), Err(Unmapped::UnknownDomain));
}

#[test]
fn sids_of_unused_ids_are_unknown() {
    let mut mapper = mapper(&hashed(&[D1]));
    for id in [0, 1, 199_999, 200_000, 517_600_001, 2_000_200_000, u32::MAX] {
        assert_eq!(mapper.to_sid(id), None, "{id}");
    }
    // The first ten secondary slices are known without an account, as in libsss_idmap.
    assert_eq!(mapper.to_sid(1_787_200_500), Some(account(D1, 200_500)));
    assert_eq!(mapper.to_id(&account(D1, 2_400_000)), Ok(517_600_000));
    assert_eq!(mapper.to_sid(517_600_001), Some(account(D1, 2_400_001)));
}

/// With two slices, the first domains with equal home slices are soon found.
fn domains_of_slice(range: IdRange, slice: u32, count: usize) -> Vec<DomainSlice> {
    let all = (1..).map(|number| sid(&format!("S-1-5-21-1-2-{number}")));
    let of_slice = all.filter(|sid| {
        let alone = IdMapper::new(range, &[DomainSlice { sid: *sid, slice: None }]);
        alone.expect("a mapper").claims()[0].slice == slice
    });
    of_slice.take(count).map(|sid| DomainSlice { sid, slice: None }).collect()
}

#[test]
fn dispute_domains_of_equal_hash_are_unmapped() {
    let range = IdRange::new(1000, 1500, 100).expect("a range");
    let [first, second] = domains_of_slice(range, 3, 2)[..] else { panic!("two domains") };
    let mut mapper = IdMapper::new(range, &[first, second]).expect("a mapper");
    let dispute = SliceDispute { slice: 3, domains: vec![first.sid, second.sid] };
    assert_eq!(mapper.disputes(), [dispute]);
    for (domain, other) in [(first.sid, second.sid), (second.sid, first.sid)] {
        for rid in [7, 107] {
            let sid = domain.with_rid(rid).expect("a SID");
            let error = Unmapped::DisputedDomain { slice: 3, other };
            assert_eq!(mapper.to_id(&sid), Err(error));
        }
    }
    assert_eq!(mapper.claims(), []);
    assert!((1000..1500).all(|id| mapper.to_sid(id).is_none()));
}

#[test]
fn dispute_one_named_slice_leaves_the_other() {
    let range = IdRange::new(1000, 1500, 100).expect("a range");
    let [first, second] = domains_of_slice(range, 3, 2)[..] else { panic!("two domains") };
    let second = DomainSlice { slice: Some(3), ..second };
    let mut mapper = IdMapper::new(range, &[first, second]).expect("a mapper");
    assert_eq!(mapper.to_id(&second.sid.with_rid(7).expect("a SID")), Ok(1307));
    assert_eq!(
        mapper.disputes(),
        [SliceDispute { slice: 3, domains: vec![first.sid, second.sid] }]
    );
    let first = DomainSlice { slice: Some(1), ..first };
    let mut mapper = IdMapper::new(range, &[first, second]).expect("a mapper");
    assert_eq!(mapper.to_id(&first.sid.with_rid(7).expect("a SID")), Ok(1107));
    assert_eq!(mapper.disputes(), []);
}

/// libsss_idmap moves one of two domains to the next slice. A third domain there depends on the order, too.
#[test]
fn dispute_reaches_the_domain_behind() {
    let range = IdRange::new(1000, 1500, 100).expect("a range");
    let mut domains = domains_of_slice(range, 3, 2);
    domains.extend(domains_of_slice(range, 4, 1));
    domains.extend(domains_of_slice(range, 2, 1));
    let mut mapper = IdMapper::new(range, &domains).expect("a mapper");
    let slices: Vec<u32> = mapper.disputes().iter().map(|dispute| dispute.slice).collect();
    assert_eq!(slices, [3, 4]);
    assert!(mapper.disputes().iter().all(|dispute| dispute.domains.len() == 2));
    assert_eq!(mapper.to_id(&domains[3].sid.with_rid(7).expect("a SID")), Ok(1207));
}

#[test]
fn block_of_used_slice_is_refused() {
    let range = IdRange::new(1000, 1500, 100).expect("a range");
    let domain = domains_of_slice(range, 3, 1);
    let mut mapper = IdMapper::new(range, &domain).expect("a mapper");
    let accounts: Vec<Sid> =
        (0..100).map(|block| domain[0].sid.with_rid(block * 100 + 7).expect("a SID")).collect();
    let ids: Vec<_> = accounts.iter().map(|account| mapper.to_id(account)).collect();
    let mapped: Vec<u32> = ids.iter().filter_map(|id| id.ok()).collect();
    assert!((2..=5).contains(&mapped.len()), "{mapped:?}");
    for (account, id) in accounts.iter().zip(&ids) {
        match id {
            Ok(id) => assert_eq!(mapper.to_sid(*id), Some(*account)),
            Err(Unmapped::SliceInUse { owner, .. }) => assert_eq!(*owner, Some(domain[0].sid)),
            Err(error) => panic!("{error}"),
        }
        // A refusal stays.
        assert_eq!(mapper.to_id(account), *id);
    }
}

#[test]
fn reserved_ids_are_never_claimed() {
    let mut mapper = mapper(&hashed(&[D1]));
    // Within slice 8935, to which the block of RID 200000 belongs.
    assert_eq!(mapper.reserve_ids(1_787_300_000, 1_787_300_001), Ok(()));
    let sid = account(D1, 200_500);
    let error = Unmapped::SliceInUse { slice: 8935, owner: None, first_rid: 0 };
    assert_eq!(mapper.to_id(&sid), Err(error));
    assert_eq!(mapper.to_sid(1_787_300_000), None);
    assert_eq!(mapper.to_id(&account(D1, 500)), Ok(674_000_500));
    for (first, last) in [(1, 199_999), (2_000_200_000, u32::MAX)] {
        assert_eq!(mapper.reserve_ids(first, last), Ok(()), "{first}");
    }
    for (first, last) in [(674_000_000, 674_000_000), (674_199_999, 700_000_000), (1, u32::MAX)] {
        let error = MapperError::ReservedIdsInUse { first, last };
        assert_eq!(mapper.reserve_ids(first, last), Err(error));
    }
}

#[test]
fn restored_claims_give_equal_ids() {
    let mut before = mapper(&hashed(&[D1, D2]));
    let accounts: Vec<Sid> =
        (0..400).map(|number| account([D1, D2][number % 2], number as u32 * 9_999_991)).collect();
    let ids: Vec<_> = accounts.iter().map(|account| before.to_id(account)).collect();
    let mut after = mapper(&hashed(&[D1, D2]));
    for claim in before.claims() {
        assert_eq!(after.restore(claim), Ok(()));
    }
    assert_eq!(after.claims(), before.claims());
    for (account, id) in accounts.iter().zip(ids).rev() {
        assert!(id.is_err() || after.to_id(account) == id, "{account}");
    }
}

#[test]
fn restore_refuses_claims_of_another_range() {
    let [one, two] = [sid(D1), sid(D2)];
    for (domain, first_rid, slice) in
        [(one, 0, 3368), (one, 200_000, 1), (one, 200_001, 8935), (one, 100, 8935), (two, 0, 5056)]
    {
        let claim = SliceClaim { domain, first_rid, slice };
        let result = mapper(&hashed(&[D1])).restore(claim);
        assert_eq!(result, Err(MapperError::ClaimMismatch { claim }), "{claim:?}");
    }
    let claim = SliceClaim { domain: one, first_rid: 200_000, slice: 8935 };
    assert_eq!(mapper(&hashed(&[D1])).restore(claim), Ok(()));
}

#[test]
fn mapper_refuses_contradictory_domains() {
    let new = |domains: &[DomainSlice]| IdMapper::new(IdRange::default(), domains).map(|_| ());
    let (first, second) = (sid(D1), sid(D2));
    assert_eq!(new(&hashed(&[D1, D1])), Err(MapperError::DuplicateDomain { sid: first }));
    let twice =
        MapperError::SliceNamedTwice { slice: 7, first: first.into(), second: second.into() };
    assert_eq!(new(&named(&[(D1, 7), (D2, 7)])), Err(twice));
    let above = MapperError::NoSuchSlice { sid: first, slice: 10_000, slices: 10_000 };
    assert_eq!(new(&named(&[(D1, 10_000)])), Err(above));
    let builtin = sid("S-1-5-32");
    let error = MapperError::NotADomain { sid: builtin };
    assert_eq!(new(&[DomainSlice { sid: builtin, slice: None }]), Err(error));
    let many: Vec<String> = (0..65).map(|number| format!("S-1-5-21-1-2-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(new(&hashed(&many)), Err(MapperError::TooManyDomains));
}

/// Without a dispute, the order of domains and accounts changes no id of a primary slice.
#[test]
fn ids_are_equal_in_each_order() {
    let range = IdRange::new(100_000, 1_100_000, 20_000).expect("a range");
    for round in 0..200 {
        let number = |place: u32| format!("S-1-5-21-{round}-{place}-{}", round * 7919 + place);
        let texts: Vec<String> = (0..6).map(number).collect();
        let mut domains = hashed(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let ids = |domains: &[DomainSlice]| {
            let mut mapper = IdMapper::new(range, domains).expect("a mapper");
            let account = |text: &String| account(text, 1104);
            texts.iter().map(|text| mapper.to_id(&account(text)).ok()).collect::<Vec<_>>()
        };
        let expected = ids(&domains);
        for turn in 0..6 {
            domains.rotate_left(1);
            domains.swap(turn % 5, 5);
            assert_eq!(ids(&domains), expected, "{domains:?}");
        }
    }
}

#[test]
fn sid_of_random_bytes_round_trips() {
    let mut state = 1_u64;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut parsed = 0;
    for round in 0..20_000_usize {
        let count = round % 18;
        let mut value = vec![1, count as u8];
        // Half of the authorities are those of Windows NT.
        let authority =
            if round % 2 == 0 { [0, 0, 0, 0, 0, 5] } else { [0; 6].map(|_: u8| byte()) };
        value.extend(authority);
        value.extend((0..count * 4 + usize::from(round % 19 == 0)).map(|_| byte()));
        let Ok(sid) = Sid::from_bytes(&value) else {
            assert!(count == 0 || count > 15 || round % 19 == 0, "{value:?}");
            continue;
        };
        parsed += 1;
        assert_eq!(sid.to_bytes(), value);
        assert_eq!(sid.to_string().parse(), Ok(sid), "{sid}");
        let whole = sid.domain().map_or(Some(sid), |domain| domain.with_rid(sid.rid()));
        assert_eq!(whole, Some(sid));
    }
    assert!(parsed > 10_000, "{parsed}");
}
