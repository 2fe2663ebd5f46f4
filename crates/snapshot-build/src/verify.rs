//! Reads a whole snapshot and proves that it holds together.
//!
//! Look-ups check what they touch; this touches everything: the hash of the whole file, every
//! record and list, and that every entry is where its index says.

use roster_record::is_nis;
use roster_snapshot::layout::{Kind, SectionId, fingerprint};
use roster_snapshot::{Damage, Index, OpenError, Shape, Snapshot, hash};

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
    records("user", shape.users, |position| snapshot.user(position).map(drop))?;
    records("group", shape.groups, |position| {
        snapshot.group(position)?.map_or(Ok(()), |group| group.members.verify())
    })?;
    records("shadow entry", shape.shadows, |position| snapshot.shadow(position).map(drop))?;
    records("name", shape.names, |position| {
        let name = snapshot.name(position)?.ok_or(Damage)?;
        // A user without groups has an empty list, so every name has one.
        snapshot.supplementary(name)?.ok_or(Damage)?.each(|_| {})
    })?;
    for index in snapshot.indices() {
        verify_index(&snapshot, &index)?;
    }
    reach(&snapshot, shape)?;
    if !snapshot.content_matches() {
        return Err(VerifyError::Content);
    }
    Ok(shape)
}

fn records(
    what: &'static str,
    count: u32,
    check: impl Fn(u32) -> Result<(), Damage>,
) -> Result<(), VerifyError> {
    for position in 0..count {
        check(position)
            .map_err(|Damage| VerifyError::Record { what, position: position.into() })?;
    }
    Ok(())
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
fn reach(snapshot: &Snapshot<'_>, shape: Shape) -> Result<(), VerifyError> {
    let lost = |index, position: u32| {
        move || VerifyError::Index { index, problem: format!("record {position} is not found") }
    };
    for position in 0..shape.users {
        let Ok(Some(user)) = snapshot.user(position) else { continue };
        let name = user.record().name;
        if !is_nis(name) {
            let by_name = snapshot.user_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByUserName, position))?;
            let by_uid = snapshot.user_by_uid(user.uid).ok().flatten();
            by_uid.ok_or_else(lost(SectionId::ByUid, position))?;
        }
    }
    for position in 0..shape.groups {
        let Ok(Some(group)) = snapshot.group(position) else { continue };
        let name = group.record().name;
        if !is_nis(name) {
            let by_name = snapshot.group_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByGroupName, position))?;
            let by_gid = snapshot.group_by_gid(group.gid).ok().flatten();
            by_gid.ok_or_else(lost(SectionId::ByGid, position))?;
        }
    }
    for position in 0..shape.shadows {
        let Ok(Some(shadow)) = snapshot.shadow(position) else { continue };
        let name = shadow.record().name;
        if !is_nis(name) {
            let by_name = snapshot.shadow_by_name(name).ok().flatten();
            by_name.ok_or_else(lost(SectionId::ByShadowName, position))?;
        }
    }
    Ok(())
}
