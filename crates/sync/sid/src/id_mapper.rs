// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids of the accounts of domains, equal to libsss_idmap wherever its result does not depend on an order.

use crate::helper_blocks::HelperBlocks;
use crate::id_range::IdRange;
use crate::sid::Sid;
use crate::slice_plan::{Occupant, SliceClaim, SliceDispute, SlicePlan, home_slice};
use std::collections::HashMap;

/// Secondary slices that libsss_idmap computes when it adds a domain: `ldap_idmap_helper_table_size` of SSSD.
pub const HELPER_SLICES: u32 = 10;

/// Highest number of domains in one mapper. The start compares each domain with each other.
pub const DOMAINS_MAX: usize = 64;

/// Highest number of secondary slices in one mapper. A RID has 32 bits, so the default size needs 21,475 for a domain.
const BLOCKS_MAX: usize = 65_536;

/// A domain of a mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainSlice {
    /// SID of the domain, in the form `S-1-5-21-a-b-c`.
    pub sid: Sid,
    /// The slice of the domain, from the configuration or from an earlier run. `None`: the hash of the SID chooses.
    pub slice: Option<u32>,
}

/// The reason that domains or claims cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapperError {
    /// The SID does not name a domain with accounts.
    #[error("{sid}: SID is not a domain: S-1-5-21 and three numbers expected")]
    NotADomain {
        /// The SID.
        sid: Sid,
    },
    /// There are more than [`DOMAINS_MAX`] domains.
    #[error("id mapping has more than {DOMAINS_MAX} domains")]
    TooManyDomains,
    /// A domain occurs twice.
    #[error("{sid}: domain occurs twice")]
    DuplicateDomain {
        /// The domain.
        sid: Sid,
    },
    /// The named slice is above the range.
    #[error("{sid}: slice {slice} does not exist: the range of ids has {slices} slices")]
    NoSuchSlice {
        /// The domain.
        sid: Sid,
        /// The named slice.
        slice: u32,
        /// Number of slices.
        slices: u32,
    },
    /// One slice is named for two domains.
    #[error("slice {slice} is named for the domain {first} and for the domain {second}")]
    SliceNamedTwice {
        /// The slice.
        slice: u32,
        /// The domain before.
        first: Box<Sid>,
        /// The domain behind.
        second: Box<Sid>,
    },
    /// The ids of a domain of another mapper are in the primary slice of a domain.
    #[error("ids {first} to {last} of another domain are in a slice that is in use")]
    ReservedIdsInUse {
        /// Lowest id of the other domain.
        first: u32,
        /// Highest id of the other domain.
        last: u32,
    },
    /// An earlier claim does not follow from the algorithm, or its slice is in use.
    #[error("slice {} for the RIDs from {} of the domain {}: claim does not fit the range of ids and the other domains",
        claim.slice, claim.first_rid, claim.domain)]
    ClaimMismatch {
        /// The claim.
        claim: SliceClaim,
    },
}

/// The reason that an account has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmapped {
    /// The SID is not an account of a domain, for example `S-1-5-32-544`.
    #[error("SID is not an account of a domain")]
    NotDomainAccount,
    /// The mapper does not have the domain.
    #[error("domain of the SID is unknown")]
    UnknownDomain,
    /// Two domains need one slice, and the configuration names none.
    #[error("slice {slice} is disputed by the domain {other}")]
    DisputedDomain {
        /// Slice of the account's domain.
        slice: u32,
        /// A domain that may use the same slice.
        other: Sid,
    },
    /// The secondary slice is in use, or libsss_idmap may use it.
    #[error("slice {slice} is in use for other accounts")]
    SliceInUse {
        /// The slice.
        slice: u32,
        /// The domain that uses the slice. `None`: a domain of [`reserve_ids`](IdMapper::reserve_ids).
        owner: Option<Sid>,
        /// Lowest RID of the owner in the slice.
        first_rid: u32,
    },
    /// The RID is above the primary slice, and there are no more secondary slices.
    #[error("RID is above the primary slice, and no secondary slice is available")]
    NoSecondarySlice,
}

#[derive(Clone, Copy, Debug)]
struct MappedDomain {
    sid: Sid,
    /// The named slice, otherwise the home slice.
    slice: u32,
    is_named: bool,
    /// Place in the order in which libsss_idmap adds the domains: named slices come first.
    place: usize,
    /// Index of a domain that may use the same slice.
    rival: Option<usize>,
}

/// Maps SIDs of some domains to ids, and ids to SIDs.
///
/// A secondary slice is claimed when its first account is mapped. [`claims`](Self::claims) returns the slices for
/// storage, and [`restore`](Self::restore) claims them again after a restart.
///
/// ```
/// use roster_sid::{DomainSlice, IdMapper, IdRange, Sid};
///
/// let domain: Sid = "S-1-5-21-3623811015-3361044348-30300820".parse()?;
/// let mut mapper = IdMapper::new(IdRange::default(), &[DomainSlice { sid: domain, slice: None }])?;
/// let alice = domain.with_rid(1104).ok_or("long SID")?;
/// assert_eq!(mapper.to_id(&alice), Ok(674_001_104));
/// assert_eq!(mapper.to_sid(674_001_104), Some(alice));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct IdMapper {
    range: IdRange,
    helper_slices: u32,
    domains: Vec<MappedDomain>,
    plan: SlicePlan,
    helpers: HelperBlocks,
    /// Secondary blocks that were requested: their slice, or the slice in the way.
    blocks: HashMap<(usize, u32), Result<u32, BlockRefusal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRefusal {
    InUse { slice: u32, owner: Option<usize>, first_rid: u32 },
    NoSlice,
}

impl IdMapper {
    /// Makes a mapper for domains, which compete for the slices of one range.
    ///
    /// # Errors
    ///
    /// A SID is not a domain, a domain or a slice occurs twice, or a slice is above the range.
    pub fn new(range: IdRange, domains: &[DomainSlice]) -> Result<Self, MapperError> {
        Self::with_helper_slices(range, domains, HELPER_SLICES)
    }

    /// [`new`](Self::new) with another `ldap_idmap_helper_table_size`. With 0, only RIDs below the slice size have an
    /// id.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub fn with_helper_slices(
        range: IdRange,
        domains: &[DomainSlice],
        helper_slices: u32,
    ) -> Result<Self, MapperError> {
        let mut domains = check_domains(range, domains)?;
        order_domains(&mut domains);
        let rivals: Vec<_> = (0..domains.len()).map(|one| rival(range, &domains, one)).collect();
        for (domain, rival) in domains.iter_mut().zip(rivals) {
            domain.rival = rival;
        }
        let mut helpers = HelperBlocks::default();
        let plan = place_primaries(range, &domains, None, |plan, index, sid| {
            helpers.add(plan, range, (index, sid), helper_slices);
        });
        Ok(Self { range, helper_slices, domains, plan, helpers, blocks: HashMap::new() })
    }

    /// Returns the range of ids.
    #[must_use]
    pub fn range(&self) -> IdRange {
        self.range
    }

    /// Reserves ids for a domain of another mapper on this host. No slice with one of these ids is claimed afterwards.
    ///
    /// # Errors
    ///
    /// A slice with such an id is in use.
    pub fn reserve_ids(&mut self, first: u32, last: u32) -> Result<(), MapperError> {
        let slices = self.range.slices();
        let place = |id: u32| {
            id.saturating_sub(self.range.min()).checked_div(self.range.size()).unwrap_or_default()
        };
        let (from, to) = (place(first), place(last).min(slices.saturating_sub(1)));
        if last < self.range.min() || from > to || self.plan.reserve(from, to) {
            return Ok(());
        }
        Err(MapperError::ReservedIdsInUse { first, last })
    }

    /// Returns the slices that need a name in the configuration, with the domains that compete for them.
    #[must_use]
    pub fn disputes(&self) -> Vec<SliceDispute> {
        let mut slices: Vec<u32> = self.disputed().map(|(_, domain)| domain.slice).collect();
        slices.sort_unstable();
        slices.dedup();
        slices.into_iter().map(|slice| self.dispute(slice)).collect()
    }

    fn disputed(&self) -> impl Iterator<Item = (usize, &MappedDomain)> {
        self.domains.iter().enumerate().filter(|(_, domain)| domain.rival.is_some())
    }

    fn dispute(&self, slice: u32) -> SliceDispute {
        let rivals: Vec<usize> = self
            .disputed()
            .filter(|(_, domain)| domain.slice == slice)
            .flat_map(|(index, domain)| [Some(index), domain.rival].into_iter().flatten())
            .collect();
        let all = self.domains.iter().enumerate();
        let domains = all.filter(|(index, _)| rivals.contains(index)).map(|(_, domain)| domain.sid);
        SliceDispute { slice, domains: domains.collect() }
    }

    /// Returns the id of an account, as user or as group. The first account of a secondary slice claims the slice.
    ///
    /// # Errors
    ///
    /// The account has no id.
    pub fn to_id(&mut self, sid: &Sid) -> Result<u32, Unmapped> {
        let domain = sid.domain().filter(Sid::is_account_domain);
        let domain = domain.ok_or(Unmapped::NotDomainAccount)?;
        let index = self.domains.iter().position(|known| known.sid == domain);
        let index = index.ok_or(Unmapped::UnknownDomain)?;
        let no_slice = Unmapped::NoSecondarySlice;
        let place = sid.rid().checked_rem(self.range.size()).ok_or(no_slice)?;
        let first_rid = sid.rid().saturating_sub(place);
        let slice = match first_rid {
            0 => None,
            first_rid => Some(self.claim_block(index, first_rid)),
        };
        let known = self.domains.get(index).ok_or(no_slice)?;
        if let Some(other) = known.rival.and_then(|rival| self.sid_of(rival)) {
            return Err(Unmapped::DisputedDomain { slice: known.slice, other });
        }
        let slice = match slice {
            None => known.slice,
            Some(Ok(slice)) => slice,
            Some(Err(BlockRefusal::NoSlice)) => return Err(no_slice),
            Some(Err(BlockRefusal::InUse { slice, owner, first_rid })) => {
                let owner = owner.and_then(|owner| self.sid_of(owner));
                return Err(Unmapped::SliceInUse { slice, owner, first_rid });
            }
        };
        let (first_id, _) = self.range.slice_ids(slice).ok_or(no_slice)?;
        first_id.checked_add(place).ok_or(no_slice)
    }

    /// Returns the account with this id. As in libsss_idmap, the first ten secondary slices of a domain need no account
    /// before. `None`: the id belongs to no account.
    #[must_use]
    pub fn to_sid(&self, id: u32) -> Option<Sid> {
        let (slice, place) = self.range.slice_of(id)?;
        let (domain, first_rid) = match self.plan.occupant(slice) {
            Some(occupant) if occupant.is_mapped => (occupant.domain?, occupant.first_rid),
            Some(_) => return None,
            None => self.helpers.block_of(slice)?,
        };
        let domain = self.domains.get(domain).filter(|domain| domain.rival.is_none())?;
        domain.sid.with_rid(first_rid.checked_add(place)?)
    }

    /// Returns the slices in use, in ascending order.
    #[must_use]
    pub fn claims(&self) -> Vec<SliceClaim> {
        let mapped = self.plan.mapped().into_iter();
        let claims = mapped.filter_map(|(slice, occupant)| {
            let domain = self.sid_of(occupant.domain?)?;
            Some(SliceClaim { domain, first_rid: occupant.first_rid, slice })
        });
        claims.collect()
    }

    /// Claims a slice as in an earlier run. Restore all claims before the first account is mapped.
    ///
    /// # Errors
    ///
    /// The claim does not follow from the algorithm, or another block uses the slice.
    pub fn restore(&mut self, claim: SliceClaim) -> Result<(), MapperError> {
        let mismatch = || MapperError::ClaimMismatch { claim };
        let index = self.domains.iter().position(|known| known.sid == claim.domain);
        let index = index.ok_or_else(mismatch)?;
        let known =
            self.domains.get(index).filter(|known| known.rival.is_none()).ok_or_else(mismatch)?;
        let is_block_start = claim.first_rid.checked_rem(self.range.size()) == Some(0);
        let restored = match claim.first_rid {
            0 => Ok(known.slice),
            _ if !is_block_start => return Err(mismatch()),
            first_rid => self.claim_block(index, first_rid),
        };
        if restored == Ok(claim.slice) { Ok(()) } else { Err(mismatch()) }
    }

    fn sid_of(&self, index: usize) -> Option<Sid> {
        self.domains.get(index).map(|domain| domain.sid)
    }

    fn claim_block(&mut self, domain: usize, first_rid: u32) -> Result<u32, BlockRefusal> {
        let key = (domain, first_rid);
        if let Some(known) = self.blocks.get(&key) {
            return *known;
        }
        if self.blocks.len() >= BLOCKS_MAX || self.helper_slices == 0 {
            return Err(BlockRefusal::NoSlice);
        }
        let result = self.place_block(domain, first_rid).ok_or(BlockRefusal::NoSlice).flatten();
        self.blocks.insert(key, result);
        result
    }

    /// Occupies the slice that libsss_idmap occupies. `None`: it finds none.
    fn place_block(&mut self, domain: usize, first_rid: u32) -> Option<Result<u32, BlockRefusal>> {
        let known = *self.domains.get(domain)?;
        let home = home_slice(self.range, known.sid, first_rid);
        let in_the_way = self.plan.occupant(home).map(|occupant| BlockRefusal::InUse {
            slice: home,
            owner: occupant.domain,
            first_rid: occupant.first_rid,
        });
        let number = first_rid.checked_div(self.range.size())?;
        let slice = if number <= self.helper_slices {
            // If another block uses the computed slice in the meantime, libsss_idmap has no id.
            let slice = self.helpers.slice_of(domain, first_rid)?;
            self.plan.occupant(slice).is_none().then_some(slice)
        } else {
            self.plan.walk(home, |occupant| occupant.is_none())
        };
        let is_mapped = in_the_way.is_none() && known.rival.is_none();
        if let Some(slice) = slice {
            self.plan.set(slice, Occupant { domain: Some(domain), first_rid, is_mapped });
        }
        Some(in_the_way.map_or(Ok(home), Err))
    }
}

fn check_domains(
    range: IdRange,
    domains: &[DomainSlice],
) -> Result<Vec<MappedDomain>, MapperError> {
    let mut checked: Vec<MappedDomain> = Vec::new();
    if domains.len() > DOMAINS_MAX {
        return Err(MapperError::TooManyDomains);
    }
    for &DomainSlice { sid, slice } in domains {
        if !sid.is_account_domain() {
            return Err(MapperError::NotADomain { sid });
        }
        if checked.iter().any(|other| other.sid == sid) {
            return Err(MapperError::DuplicateDomain { sid });
        }
        if let Some(slice) = slice {
            if slice >= range.slices() {
                return Err(MapperError::NoSuchSlice { sid, slice, slices: range.slices() });
            }
            if let Some(first) = checked.iter().find(|one| one.is_named && one.slice == slice) {
                return Err(MapperError::SliceNamedTwice {
                    slice,
                    first: Box::new(first.sid),
                    second: Box::new(sid),
                });
            }
        }
        let (slice, is_named) = match slice {
            Some(slice) => (slice, true),
            None => (home_slice(range, sid, 0), false),
        };
        checked.push(MappedDomain { sid, slice, is_named, place: 0, rival: None });
    }
    Ok(checked)
}

/// Named slices come first, as SSSD reads the slices of its cache before it adds another domain.
fn order_domains(domains: &mut [MappedDomain]) {
    let named = domains.iter().filter(|domain| domain.is_named).count();
    let mut next = (0, named);
    for domain in domains {
        let place = if domain.is_named { &mut next.0 } else { &mut next.1 };
        domain.place = *place;
        *place = place.saturating_add(1);
    }
}

/// Places the primary slices in order, without the domain `left_out`. `placed` gets the plan after each domain.
fn place_primaries(
    range: IdRange,
    domains: &[MappedDomain],
    left_out: Option<usize>,
    mut placed: impl FnMut(&SlicePlan, usize, Sid),
) -> SlicePlan {
    let mut plan = SlicePlan::new(range);
    let mut order: Vec<_> = domains.iter().enumerate().collect();
    order.sort_unstable_by_key(|(_, domain)| domain.place);
    for (index, domain) in order.into_iter().filter(|(index, _)| Some(*index) != left_out) {
        if let Some(slice) = plan.walk(domain.slice, |occupant| occupant.is_none()) {
            let is_mapped = domain.rival.is_none();
            plan.set(slice, Occupant { domain: Some(index), first_rid: 0, is_mapped });
        }
        placed(&plan, index, domain.sid);
    }
    plan
}

/// Returns a domain that takes the slice of the domain `one` if libsss_idmap adds this domain last.
///
/// The set of used slices is equal in each order. So a domain without a rival has its slice in each order.
fn rival(range: IdRange, domains: &[MappedDomain], one: usize) -> Option<usize> {
    let domain = domains.get(one).filter(|domain| !domain.is_named)?;
    let others = place_primaries(range, domains, Some(one), |_, _, _| {});
    others.occupant(domain.slice)?.domain
}
