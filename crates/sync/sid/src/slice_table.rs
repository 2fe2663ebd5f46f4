// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stored slices of a domain, as text: a later start gives the same ids, or refuses to give others.
//!
//! docs/internals/id-mapping.md has the format. `slice_table_file` reads and replaces the file.

use crate::id_mapper::{DOMAINS_MAX, DomainSlice, IdMapper, MapperError};
use crate::id_range::IdRange;
use crate::murmur3::murmur3_32;
use crate::sid::Sid;
use crate::slice_plan::SliceClaim;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// First line of a table.
const HEADER: &str = "roster-id-slices 1";

/// Highest number of slices: those of all domains, and the secondary ones.
const SLICES_MAX: usize = DOMAINS_MAX + 65_536;

/// Limit of the text: a line has at most 70 bytes.
pub const TABLE_BYTES_MAX: usize = SLICES_MAX * 70;

/// The slices that a mapper uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceTable {
    range: IdRange,
    claims: Vec<SliceClaim>,
}

/// The reason that a text is not a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceTableError {
    /// The file is longer than any table.
    #[error("file has more than {TABLE_BYTES_MAX} bytes")]
    TooLarge,
    /// The first line names another format.
    #[error("line 1 is not {HEADER:?}")]
    Header,
    /// A line has another form, for example because the file was cut.
    #[error("line {line} is not a line of the format")]
    Line {
        /// Number of the line.
        line: usize,
    },
    /// The checksum is that of another text.
    #[error("checksum does not match")]
    Checksum,
}

/// The reason that stored slices and a configuration contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableMismatch {
    /// The range of ids is another one.
    #[error(
        "stored line {stored:?} disagrees with id_min = {}, id_max = {} and id_range = {}",
        configured.min(), configured.max(), configured.size()
    )]
    Range {
        /// Line of the table.
        stored: String,
        /// The configured range.
        configured: IdRange,
    },
    /// The configuration names another slice.
    #[error("stored line {stored:?} disagrees with id_slice = {configured}")]
    Slice {
        /// Line of the table.
        stored: String,
        /// The configured slice.
        configured: u32,
    },
    /// The directory is that of another domain.
    #[error(
        "stored line {stored:?} is of another domain than {found}, the SID of the directory's domain"
    )]
    Domain {
        /// Line of the table.
        stored: String,
        /// A domain that the mapper is for.
        found: Sid,
    },
    /// A stored slice does not follow from the algorithm, or another domain has it.
    #[error("stored line {stored:?} does not fit the range of ids, or belongs to another domain")]
    Claim {
        /// Line of the table.
        stored: String,
    },
    /// The configured domains contradict each other.
    #[error(transparent)]
    Mapper(#[from] MapperError),
}

fn range_line(range: IdRange) -> String {
    format!("range {} {} {}", range.min(), range.max(), range.size())
}

fn slice_line(claim: SliceClaim) -> String {
    format!("slice {} {} {}", claim.slice, claim.domain, claim.first_rid)
}

/// Makes the table of the slices that a mapper uses now.
impl From<&IdMapper> for SliceTable {
    fn from(mapper: &IdMapper) -> Self {
        Self { range: mapper.range(), claims: mapper.claims() }
    }
}

impl SliceTable {
    /// Returns the range of ids.
    #[must_use]
    pub fn range(&self) -> IdRange {
        self.range
    }

    /// Returns the slices.
    #[must_use]
    pub fn claims(&self) -> &[SliceClaim] {
        &self.claims
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n{}\n", range_line(self.range));
        for claim in &self.claims {
            let _ = writeln!(text, "{}", slice_line(*claim));
        }
        let checksum = murmur3_32(text.as_bytes(), 0);
        let _ = writeln!(text, "checksum {checksum:08x}");
        text
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// The text has another format or is damaged.
    pub fn parse(text: &[u8]) -> Result<Self, SliceTableError> {
        if text.len() > TABLE_BYTES_MAX {
            return Err(SliceTableError::TooLarge);
        }
        let first_line = SliceTableError::Line { line: 1 };
        let text = std::str::from_utf8(text).map_err(|_| first_line)?;
        if text.split('\n').next() != Some(HEADER) {
            return Err(SliceTableError::Header);
        }
        let last = text.lines().count();
        let cut = SliceTableError::Line { line: last };
        let checked = text.strip_suffix('\n').ok_or(cut)?;
        let (body, checksum) = checked.rsplit_once('\n').ok_or(cut)?;
        let checksum = checksum.strip_prefix("checksum ").ok_or(cut)?;
        let body_length = body.len().saturating_add(1);
        let summed = text.get(..body_length).unwrap_or_default();
        if checksum != format!("{:08x}", murmur3_32(summed.as_bytes(), 0)) {
            return Err(SliceTableError::Checksum);
        }
        let mut lines = body.split('\n').zip(1..).skip(1);
        let (range, line) = lines.next().ok_or(cut)?;
        let range = parse_range(range).ok_or(SliceTableError::Line { line })?;
        let claims = lines.map(|(text, line)| {
            let claim = parse_slice(text).filter(|claim| claim.slice < range.slices());
            claim.ok_or(SliceTableError::Line { line })
        });
        Ok(Self { range, claims: claims.collect::<Result<_, _>>()? })
    }

    /// Returns two lines with slices that share an id: one of this table and one of `other`.
    #[must_use]
    pub fn shared_slices(&self, other: &Self) -> Option<(String, String)> {
        let theirs: BTreeMap<u32, (u32, SliceClaim)> = other
            .claims
            .iter()
            .filter_map(|claim| {
                let (first, last) = other.range.slice_ids(claim.slice)?;
                Some((first, (last, *claim)))
            })
            .collect();
        self.claims.iter().find_map(|ours| {
            let (first, last) = self.range.slice_ids(ours.slice)?;
            let (_, (their_last, theirs)) = theirs.range(..=last).next_back()?;
            (*their_last >= first).then(|| (slice_line(*ours), slice_line(*theirs)))
        })
    }

    /// Returns the stored slice of a domain.
    fn primary(&self, domain: Sid) -> Option<SliceClaim> {
        let is_primary = |claim: &&SliceClaim| claim.domain == domain && claim.first_rid == 0;
        self.claims.iter().find(is_primary).copied()
    }
}

fn parse_range(line: &str) -> Option<IdRange> {
    let mut numbers = line.strip_prefix("range ")?.split(' ').map(|text| text.parse().ok());
    let range = IdRange::new(numbers.next()??, numbers.next()??, numbers.next()??).ok()?;
    (range_line(range) == line).then_some(range)
}

fn parse_slice(line: &str) -> Option<SliceClaim> {
    let mut parts = line.strip_prefix("slice ")?.split(' ');
    let slice = parts.next()?.parse().ok()?;
    let domain = parts.next()?.parse().ok()?;
    let claim = SliceClaim { domain, first_rid: parts.next()?.parse().ok()?, slice };
    (slice_line(claim) == line).then_some(claim)
}

/// Compares the configuration with stored slices. The SIDs of the domains need not be known.
///
/// # Errors
///
/// The range is another one, or `slice` is not the stored slice of a domain.
pub fn check_stored(
    stored: &SliceTable,
    range: IdRange,
    slice: Option<u32>,
) -> Result<(), TableMismatch> {
    if stored.range != range {
        return Err(TableMismatch::Range { stored: range_line(stored.range), configured: range });
    }
    let mut primary = stored.claims.iter().filter(|claim| claim.first_rid == 0);
    match (slice, primary.next()) {
        (Some(slice), Some(claim)) if claim.slice != slice => {
            Err(TableMismatch::Slice { stored: slice_line(*claim), configured: slice })
        }
        _ => Ok(()),
    }
}

/// Makes the mapper of one domain. A stored slice counts as named, so that the domain keeps it.
///
/// `reserved` are first and last ids of slices that belong to other domains of the host.
///
/// # Errors
///
/// The stored slices, the configuration and the SID of the domain contradict each other.
pub fn open_mapper(
    range: IdRange,
    domain: DomainSlice,
    reserved: &[(u32, u32)],
    stored: Option<&SliceTable>,
) -> Result<IdMapper, TableMismatch> {
    let claims = stored.map_or(&[][..], SliceTable::claims);
    if let Some(stored) = stored {
        check_stored(stored, range, domain.slice)?;
    }
    if let Some(claim) = claims.iter().find(|claim| claim.domain != domain.sid) {
        return Err(TableMismatch::Domain { stored: slice_line(*claim), found: domain.sid });
    }
    let primary = stored.and_then(|stored| stored.primary(domain.sid));
    let slice = domain.slice.or(primary.map(|claim| claim.slice));
    let mut mapper = IdMapper::new(range, &[DomainSlice { slice, ..domain }])?;
    for &(first, last) in reserved {
        mapper.reserve_ids(first, last)?;
    }
    for claim in claims {
        let refused = |_| TableMismatch::Claim { stored: slice_line(*claim) };
        mapper.restore(*claim).map_err(refused)?;
    }
    Ok(mapper)
}

#[cfg(test)]
mod tests {
    use super::*;

    const D1: &str = "S-1-5-21-3623811015-3361044348-30300820";

    fn domain(slice: Option<u32>) -> DomainSlice {
        DomainSlice { sid: D1.parse().expect("a SID"), slice }
    }

    fn used_mapper() -> IdMapper {
        let mut mapper =
            open_mapper(IdRange::default(), domain(None), &[], None).expect("a mapper");
        for rid in [1104, 200_500, 2_400_001] {
            mapper.to_id(&domain(None).sid.with_rid(rid).expect("a SID")).expect("an id");
        }
        mapper
    }

    #[test]
    fn table_text_round_trips() {
        let table = SliceTable::from(&used_mapper());
        let text = table.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                HEADER,
                "range 200000 2000200000 200000",
                "slice 2587 S-1-5-21-3623811015-3361044348-30300820 2400000",
            ]
        );
        assert!(lines.contains(&"slice 3369 S-1-5-21-3623811015-3361044348-30300820 0"));
        assert_eq!((lines.len(), SliceTable::parse(text.as_bytes())), (6, Ok(table)));
    }

    /// The example of docs/internals/id-mapping.md.
    #[test]
    fn table_of_documentation_is_read() {
        let page = include_str!("../../../../docs/internals/id-mapping.md");
        let (_, behind) = page.split_once("\n```text show: file format\n").expect("an example");
        let (text, _) = behind.split_once("```").expect("an end");
        let table = SliceTable::parse(text.as_bytes()).expect("a table");
        let mapper = open_mapper(IdRange::default(), domain(None), &[], Some(&table));
        assert_eq!(mapper.map(|mapper| SliceTable::from(&mapper).to_text()), Ok(text.to_owned()));
    }

    #[test]
    fn table_damaged_is_refused() {
        let text = SliceTable::from(&used_mapper()).to_text();
        for place in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[place] ^= 1;
            assert!(SliceTable::parse(&damaged).is_err(), "{place}");
            assert!(SliceTable::parse(&text.as_bytes()[..place]).is_err(), "{place}");
        }
        assert_eq!(SliceTable::parse(b""), Err(SliceTableError::Header));
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(SliceTable::parse(crlf.as_bytes()), Err(SliceTableError::Header));
        let long = vec![b'x'; TABLE_BYTES_MAX + 1];
        assert_eq!(SliceTable::parse(&long), Err(SliceTableError::TooLarge));
    }

    #[test]
    fn table_restart_gives_equal_ids() {
        let mut before = used_mapper();
        let table = SliceTable::from(&before);
        let mut after =
            open_mapper(table.range(), domain(None), &[], Some(&table)).expect("a mapper");
        assert_eq!(after.claims(), table.claims());
        for rid in [500, 200_001, 400_000] {
            let sid = domain(None).sid.with_rid(rid).expect("a SID");
            assert_eq!(after.to_id(&sid), before.to_id(&sid));
        }
    }

    #[test]
    fn table_slice_outlives_its_key() {
        let named = open_mapper(IdRange::default(), domain(Some(7)), &[], None).expect("a mapper");
        let table = SliceTable::from(&named);
        let after = open_mapper(table.range(), domain(None), &[], Some(&table)).expect("a mapper");
        assert_eq!(after.claims(), table.claims());
        assert_eq!(after.claims()[0].slice, 7);
    }

    #[test]
    fn table_with_a_shared_slice_is_found() {
        let table = SliceTable::from(&used_mapper());
        let other = |slice| {
            let sid = "S-1-5-21-1-2-3".parse().expect("a SID");
            let domain = DomainSlice { sid, slice: Some(slice) };
            let mapper = open_mapper(IdRange::default(), domain, &[], None).expect("a mapper");
            SliceTable::from(&mapper)
        };
        assert_eq!(table.shared_slices(&other(3368)), None);
        let lines = (format!("slice 3369 {D1} 0"), "slice 3369 S-1-5-21-1-2-3 0".to_owned());
        assert_eq!(table.shared_slices(&other(3369)), Some(lines));
    }

    #[test]
    fn table_of_other_configuration_is_refused() {
        let table = SliceTable::from(&used_mapper());
        let open = |range, domain| open_mapper(range, domain, &[], Some(&table)).map(|_| ());
        let range = IdRange::new(300_000, 2_000_200_000, 200_000).expect("a range");
        let error = open(range, domain(None)).expect_err("another range").to_string();
        let text = "stored line \"range 200000 2000200000 200000\" disagrees with id_min = 300000, \
                    id_max = 2000200000 and id_range = 200000";
        assert_eq!(error, text);
        let error = open(table.range(), domain(Some(5))).expect_err("another slice").to_string();
        assert_eq!(error, format!("stored line \"slice 3369 {D1} 0\" disagrees with id_slice = 5"));
        assert_eq!(open(table.range(), domain(Some(3369))), Ok(()));
        let other = DomainSlice { sid: "S-1-5-21-1-2-3".parse().expect("a SID"), slice: None };
        let error = open(table.range(), other).expect_err("another domain").to_string();
        assert!(
            error.ends_with("than S-1-5-21-1-2-3, the SID of the directory's domain"),
            "{error}"
        );
        let reserved = [(1_787_200_000, 1_787_200_000)];
        let result = open_mapper(table.range(), domain(None), &reserved, Some(&table));
        assert!(matches!(result, Err(TableMismatch::Claim { .. })), "{result:?}");
    }
}
