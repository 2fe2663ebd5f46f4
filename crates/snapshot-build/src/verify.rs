//! Reads a whole snapshot and proves that it holds together.
//!
//! Look-ups check what they touch; this touches everything: the hash of the whole file, every
//! record and list, and that every entry is where its index says.

use crate::parallel;
use roster_record::is_nis;
use roster_snapshot::layout::{Kind, SectionId, fingerprint};
use roster_snapshot::{Damage, Index, OpenError, Shape, Snapshot, hash};

/// Records that one thread looks at before it asks what to do next.
const RECORDS_AT_ONCE: u32 = 1 << 12;

/// Why a file must not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It is no snapshot of ours.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record contradicts its checksum.
    #[error("{what} {position} does not match its checksum")]
    Record {
        /// What kind of record.
        what: &'static str,
        /// Its position, from 0.
        position: u64,
    },
    /// All records are whole, yet the file is not as it was written.
    #[error("the content does not match the header's hash of it")]
    Content,
    /// An index leads astray.
    #[error("the index {index:?} is wrong: {problem}")]
    Index {
        /// Its section.
        index: SectionId,
        /// In what way.
        problem: String,
    },
}

/// Verifies bytes as a snapshot of `kind`. Takes time in proportion to their length.
pub fn verify(bytes: &[u8], kind: Kind) -> Result<Shape, VerifyError> {
    let snapshot = match kind {
        Kind::Accounts => Snapshot::open(bytes)?,
        Kind::Shadow => Snapshot::open_shadow(bytes)?,
    };
    let shape = snapshot.shape();
    let snapshot = &snapshot;
    let mut checks: Vec<Check<'_>> = Vec::new();
    each_record(&mut checks, "user", shape.users, |position| snapshot.user(position).map(drop));
    each_record(&mut checks, "group", shape.groups, |position| {
        snapshot.group(position)?.map_or(Ok(()), |group| group.members.verify())
    });
    each_record(&mut checks, "shadow entry", shape.shadows, |position| {
        snapshot.shadow(position).map(drop)
    });
    each_record(&mut checks, "name", shape.names, |position| {
        let name = snapshot.name(position)?.ok_or(Damage)?;
        // A user without groups has an empty list, so every name has one.
        snapshot.supplementary(name)?.ok_or(Damage)?.each(|_| {})
    });
    for index in snapshot.indices() {
        checks.push(Box::new(move || verify_index(snapshot, &index)));
    }
    reach(&mut checks, snapshot, shape);
    checks.push(Box::new(|| match snapshot.content_matches() {
        true => Ok(()),
        false => Err(VerifyError::Content),
    }));
    // The first that fails in this order tells what is wrong, whoever was quicker.
    parallel::each(checks, |check| check()).into_iter().collect::<Result<(), _>>()?;
    Ok(shape)
}

/// A part of the work that needs no other.
type Check<'a> = Box<dyn Fn() -> Result<(), VerifyError> + Send + 'a>;

/// Adds checks that call `check` with each position below `count`.
fn each_position<'a>(
    checks: &mut Vec<Check<'a>>,
    count: u32,
    check: impl Fn(u32) -> Result<(), VerifyError> + Copy + Send + 'a,
) {
    let positions = (0..count).step_by(RECORDS_AT_ONCE as usize);
    for first in positions {
        let end = first.saturating_add(RECORDS_AT_ONCE).min(count);
        checks.push(Box::new(move || (first..end).try_for_each(check)));
    }
}

fn each_record<'a>(
    checks: &mut Vec<Check<'a>>,
    what: &'static str,
    count: u32,
    check: impl Fn(u32) -> Result<(), Damage> + Copy + Send + 'a,
) {
    each_position(checks, count, move |position| {
        check(position).map_err(|Damage| VerifyError::Record { what, position: position.into() })
    });
}

/// Every entry leads to a record whose key has that fingerprint.
fn verify_index(snapshot: &Snapshot<'_>, index: &Index<'_>) -> Result<(), VerifyError> {
    let wrong = |problem| VerifyError::Index { index: index.id(), problem };
    for (bucket, found, position) in index.entries() {
        let key_hash =
            key_hash(snapshot, index.id(), position).ok().flatten().ok_or_else(|| {
                wrong(format!("bucket {bucket} names record {position}, which is not there"))
            })?;
        if fingerprint(key_hash) != found {
            let problem = format!("bucket {bucket} names record {position}, which has another key");
            return Err(wrong(problem));
        }
    }
    Ok(())
}

fn key_hash(
    snapshot: &Snapshot<'_>,
    index: SectionId,
    position: u32,
) -> Result<Option<u64>, Damage> {
    let seed = hash::Seed::new(snapshot.shape().seed);
    Ok(match index {
        SectionId::ByUserName => {
            snapshot.user(position)?.map(|user| hash::bytes(user.record().name, seed))
        }
        SectionId::ByUid => snapshot.user(position)?.map(|user| hash::id(user.uid, seed)),
        SectionId::ByGroupName => {
            snapshot.group(position)?.map(|group| hash::bytes(group.record().name, seed))
        }
        SectionId::ByGid => snapshot.group(position)?.map(|group| hash::id(group.gid, seed)),
        SectionId::ByMember => snapshot.name(position)?.map(|name| hash::bytes(name, seed)),
        _ => snapshot.shadow(position)?.map(|shadow| hash::bytes(shadow.record().name, seed)),
    })
}

/// Every entry's keys find an entry with that key.
fn reach<'a>(checks: &mut Vec<Check<'a>>, snapshot: &'a Snapshot<'a>, shape: Shape) {
    let lost = |index, position: u32| {
        move || VerifyError::Index { index, problem: format!("record {position} is not found") }
    };
    each_position(checks, shape.users, move |position| {
        let Ok(Some(user)) = snapshot.user(position) else { return Ok(()) };
        let name = user.record().name;
        if !is_nis(name) {
            let by_name = snapshot.user_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByUserName, position))?;
            let by_uid = snapshot.user_by_uid(user.uid).ok().flatten();
            by_uid.ok_or_else(lost(SectionId::ByUid, position))?;
        }
        Ok(())
    });
    each_position(checks, shape.groups, move |position| {
        let Ok(Some(group)) = snapshot.group(position) else { return Ok(()) };
        let name = group.record().name;
        if !is_nis(name) {
            let by_name = snapshot.group_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByGroupName, position))?;
            let by_gid = snapshot.group_by_gid(group.gid).ok().flatten();
            by_gid.ok_or_else(lost(SectionId::ByGid, position))?;
        }
        Ok(())
    });
    each_position(checks, shape.shadows, move |position| {
        let Ok(Some(shadow)) = snapshot.shadow(position) else { return Ok(()) };
        let name = shadow.record().name;
        if !is_nis(name) {
            let by_name = snapshot.shadow_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByShadowName, position))?;
        }
        Ok(())
    });
}
