// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a whole snapshot and verifies its consistency. `roster_snapshot` has the lookups.
//!
//! Lookups check only the data that they read. This module checks everything: the hash of the file, every record and
//! list, and that the index finds every entry.

use crate::parallel;
use roster_messages::Message;
use roster_messages::table::tools;
use roster_passwd_format::is_nis;
use roster_snapshot::layout::{SectionId, SnapshotKind, fingerprint};
use roster_snapshot::{Damage, Index, OpenError, Snapshot, SnapshotSummary, hash};

/// Number of records that a thread checks in one task.
const RECORDS_AT_ONCE: u32 = 1 << 12;

/// Reasons that a file must not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The file is not a valid snapshot.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record does not match its checksum.
    #[error("{what} {position} does not match its checksum")]
    Record {
        /// Kind of record.
        what: &'static str,
        /// Position of the record, from 0.
        position: u64,
    },
    /// All records are valid, but the content does not match its hash.
    #[error("the content does not match its hash in the header")]
    Content,
    /// The domains do not cover the entries of the file.
    #[error("the domains do not add up to the users and groups of the file")]
    Domains,
    /// An index has a wrong entry or lacks one.
    #[error("the index {index:?} is wrong: {problem}")]
    Index {
        /// Section of the index.
        index: SectionId,
        /// Description of the problem.
        problem: String,
    },
}

impl VerifyError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Open(_) => &tools::VERIFY_FORMAT,
            Self::Record { .. } => &tools::VERIFY_RECORD,
            Self::Content => &tools::VERIFY_CONTENT,
            Self::Domains => &tools::VERIFY_DOMAINS,
            Self::Index { .. } => &tools::VERIFY_INDEX,
        }
    }
}

/// Verifies bytes as a snapshot of `kind`. The time is proportional to their length.
pub fn verify(bytes: &[u8], kind: SnapshotKind) -> Result<SnapshotSummary, VerifyError> {
    let snapshot = match kind {
        SnapshotKind::Accounts => Snapshot::open(bytes)?,
        SnapshotKind::Shadow => Snapshot::open_shadow(bytes)?,
    };
    let shape = snapshot.shape();
    let snapshot = &snapshot;
    let mut checks: Vec<VerifyTask<'_>> = Vec::new();
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
    check_reachable(&mut checks, snapshot, shape);
    checks.push(Box::new(|| match snapshot.domains()?.all(|domain| domain.is_ok()) {
        true => Ok(()),
        false => Err(VerifyError::Domains),
    }));
    checks.push(Box::new(|| match snapshot.content_matches() {
        true => Ok(()),
        false => Err(VerifyError::Content),
    }));
    // Reports the first failure in this order, independent of the threads.
    parallel::each(checks, |check| check()).into_iter().collect::<Result<(), _>>()?;
    Ok(shape)
}

/// An independent part of the verification.
type VerifyTask<'a> = Box<dyn Fn() -> Result<(), VerifyError> + Send + 'a>;

/// Adds tasks that call `check` with each position below `count`.
fn each_position<'a>(
    checks: &mut Vec<VerifyTask<'a>>,
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
    checks: &mut Vec<VerifyTask<'a>>,
    what: &'static str,
    count: u32,
    check: impl Fn(u32) -> Result<(), Damage> + Copy + Send + 'a,
) {
    each_position(checks, count, move |position| {
        check(position).map_err(|Damage| VerifyError::Record { what, position: position.into() })
    });
}

/// Checks that every index entry refers to a record with that fingerprint.
fn verify_index(snapshot: &Snapshot<'_>, index: &Index<'_>) -> Result<(), VerifyError> {
    let wrong = |problem| VerifyError::Index { index: index.id(), problem };
    for (bucket, found, position) in index.entries() {
        let key_hash = key_hash(snapshot, index.id(), position)
            .ok()
            .flatten()
            .ok_or_else(|| wrong(format!("bucket {bucket} has the missing record {position}")))?;
        if fingerprint(key_hash) != found {
            let problem = format!("bucket {bucket} has record {position} with another key");
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
    let name_hash = |name, ignores_case| match ignores_case {
        true => hash::bytes(&roster_names::fold(name), seed),
        false => hash::bytes(name, seed),
    };
    Ok(match index {
        SectionId::ByUserName => {
            snapshot.user(position)?.map(|user| name_hash(user.record().name, user.ignores_case()))
        }
        SectionId::ByUid => snapshot.user(position)?.map(|user| hash::id(user.uid, seed)),
        SectionId::ByGroupName => snapshot
            .group(position)?
            .map(|group| name_hash(group.record().name, group.ignores_case())),
        SectionId::ByGid => snapshot.group(position)?.map(|group| hash::id(group.gid, seed)),
        SectionId::ByMember => snapshot.name(position)?.map(|name| hash::bytes(name, seed)),
        _ => snapshot.shadow(position)?.map(|shadow| hash::bytes(shadow.record().name, seed)),
    })
}

/// Adds tasks that check that the keys of every entry are found.
fn check_reachable<'a>(
    checks: &mut Vec<VerifyTask<'a>>,
    snapshot: &'a Snapshot<'a>,
    shape: SnapshotSummary,
) {
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
