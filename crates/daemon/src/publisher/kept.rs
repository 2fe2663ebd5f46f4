//! What goes on being served while the next snapshot is waited for: that which was in place when this
//! process began, under the host's accounts as they are now. What a local account displaces is left
//! out, by the rules that every entry passes (`roster_admission`), with its memberships; nothing else changes, and
//! what a record leaves open stays open. A snapshot does not tell which domain an entry is of.

use super::model::{Group, User};
use super::places::Places;
use super::served::{self, Served};
use roster_admission::{Locals, Rules};
use roster_bus::exchange::{self, NO_REFERENCE};
use roster_snapshot::layout::Kind;
use roster_snapshot::{Damage, OpenError, Snapshot};
use roster_snapshot_build::{Builder, Gaps, Image, Members, TooLarge};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Positions of entries that a snapshot goes on without, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Displaced {
    /// Of users.
    pub users: Vec<u32>,
    /// Of groups.
    pub groups: Vec<u32>,
}

/// A snapshot, and what decides who is still served of it.
pub struct Kept {
    /// Its bytes, as they were when this process began.
    pub bytes: Arc<Vec<u8>>,
    /// The host's own accounts.
    pub locals: Arc<Locals>,
    /// What passes in any domain.
    pub rules: Rules,
    /// Ids below are damage to readers.
    pub min_id: u32,
    /// The domains by name, in the order in which their entries lie in it.
    pub domains: Vec<String>,
    /// What the snapshot has of each.
    pub served: Served,
    /// What lies where in it, if that is known.
    pub places: Option<Places>,
    /// What the file in place is without already.
    pub displaced: Displaced,
    /// Whether it is written again, changed or not.
    pub is_lost: bool,
}

/// The snapshot without what is displaced.
pub struct Remade {
    /// The snapshot to be.
    pub image: Image,
    /// What it has of each domain.
    pub served: Served,
    /// What lies where in it, but for its generation.
    pub places: Option<Places>,
    /// Users in it.
    pub users: u64,
    /// Groups in it.
    pub groups: u64,
}

/// Why it cannot be made once more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // names say it
pub enum Unusable {
    #[error(transparent)]
    Unread(#[from] OpenError),
    #[error(transparent)]
    Damaged(#[from] Damage),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("it leaves open who is whose, for a domain that goes before is asked on demand")]
    LeftOpen,
}

impl Kept {
    /// What the host's accounts displace in it, and the snapshot without that; no snapshot when the one in
    /// place is without just these. Takes time in proportion to all entries, and to all memberships where
    /// there is something to make.
    pub fn make(&self) -> Result<(Displaced, Option<Remade>), Unusable> {
        let snapshot = Snapshot::open(&self.bytes)?;
        let displaced = self.find_displaced(&snapshot)?;
        if displaced == self.displaced && !self.is_lost {
            return Ok((displaced, None));
        }
        let shape = snapshot.shape();
        let [users, groups] = [shape.users, shape.groups].map(u64::from);
        let remade = Remade {
            image: self.build(&snapshot, &displaced)?,
            served: served::without(&self.served, &self.domains, (users, groups), &displaced),
            places: self.places.as_ref().map(|places| places.without(&displaced)),
            users: users - displaced.users.len() as u64,
            groups: groups - displaced.groups.len() as u64,
        };
        Ok((displaced, Some(remade)))
    }

    fn find_displaced(&self, snapshot: &Snapshot<'_>) -> Result<Displaced, Damage> {
        let mut displaced = Displaced::default();
        for (position, user) in users(snapshot) {
            if self.rules.user(&user?.record(), &self.locals).is_err() {
                displaced.users.push(position);
            }
        }
        for (position, group) in groups(snapshot) {
            if self.rules.group(&group?.record(), &self.locals).is_err() {
                displaced.groups.push(position);
            }
        }
        Ok(displaced)
    }

    fn build(&self, snapshot: &Snapshot<'_>, displaced: &Displaced) -> Result<Image, Unusable> {
        let mut builder = Builder::new(self.min_id);
        let shape = snapshot.shape();
        let members = usize::try_from(shape.memberships).unwrap_or(0);
        builder.reserve(shape.users as usize, shape.groups as usize, members);
        if let Some(path) = snapshot.responder() {
            builder.responder(path)?;
        }
        put_users(&mut builder, snapshot, displaced)?;
        put_groups(&mut builder, snapshot, displaced)?;
        if snapshot.responder().is_some() {
            for (gid, members) in memberships(snapshot, displaced)? {
                builder.initgroups_only(gid, members.into_iter())?;
            }
        }
        Ok(builder.finish(Kind::Accounts)?.image)
    }
}

impl Displaced {
    fn has_user(&self, position: u32) -> bool {
        self.users.binary_search(&position).is_ok()
    }

    fn has_group(&self, position: u32) -> bool {
        self.groups.binary_search(&position).is_ok()
    }
}

fn put_users(
    builder: &mut Builder,
    snapshot: &Snapshot<'_>,
    displaced: &Displaced,
) -> Result<(), Unusable> {
    for (_, user) in users(snapshot).filter(|(position, _)| !displaced.has_user(*position)) {
        let user = user?;
        let gaps = Gaps { ask_first: user.ask_first(), list_unknown: user.groups_unknown() };
        builder.user(&user.record(), gaps)?;
    }
    Ok(())
}

fn put_groups(
    builder: &mut Builder,
    snapshot: &Snapshot<'_>,
    displaced: &Displaced,
) -> Result<(), Unusable> {
    let mut gone = HashSet::new();
    for &position in &displaced.users {
        gone.extend(snapshot.user(position)?.map(|user| user.record().name));
    }
    // Of a domain that is asked on demand the groups of a user are not what lists add up to.
    let is_asked = snapshot.responder().is_some();
    let count_for = if is_asked { Members::Shown } else { Members::Both };
    for (_, group) in groups(snapshot).filter(|(position, _)| !displaced.has_group(*position)) {
        let group = group?;
        group.members.verify()?;
        let members = group.members.iter().collect::<Result<Vec<_>, _>>()?;
        let members = members.into_iter().filter(|name| !gone.contains(name));
        let gaps = Gaps { ask_first: group.ask_first(), list_unknown: group.members_unknown() };
        builder.group(&group.record(), members, count_for, gaps)?;
    }
    Ok(())
}

/// By gid, the names of those whose groups it is among.
fn memberships<'a>(
    snapshot: &Snapshot<'a>,
    displaced: &Displaced,
) -> Result<BTreeMap<u32, Vec<&'a [u8]>>, Damage> {
    let mut gone = HashSet::new();
    for &position in &displaced.groups {
        gone.extend(snapshot.group(position)?.map(|group| group.gid));
    }
    let mut members: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
    for (_, user) in users(snapshot).filter(|(position, _)| !displaced.has_user(*position)) {
        let name = user?.record().name;
        let Some(gids) = snapshot.supplementary(name)? else { continue };
        gids.each(|gid| {
            if !gone.contains(&gid) {
                members.entry(gid).or_default().push(name);
            }
        })?;
    }
    Ok(members)
}

/// A user of a snapshot as a back-end would tell it.
pub(super) fn user_at(number: u32, reference: u32, user: &roster_snapshot::User<'_>) -> User {
    let record = user.record();
    User::new(&exchange::User {
        number,
        reference,
        by_name: NO_REFERENCE,
        uid: record.uid,
        gid: record.gid,
        name: record.name,
        gecos: record.gecos.unwrap_or_default(),
        dir: record.dir.unwrap_or_default(),
        shell: record.shell.unwrap_or_default(),
    })
}

/// A group of a snapshot, likewise, and without its members.
pub(super) fn group_at(group: &roster_snapshot::Group<'_>) -> Group {
    let record = group.record();
    Group { reference: NO_REFERENCE, gid: record.gid, name: record.name.into(), members: None }
}

fn users<'a>(
    snapshot: &Snapshot<'a>,
) -> impl Iterator<Item = (u32, Result<roster_snapshot::User<'a>, Damage>)> {
    let snapshot = *snapshot;
    (0..snapshot.shape().users).map(move |position| {
        (position, snapshot.user(position).and_then(|user| user.ok_or(Damage)))
    })
}

fn groups<'a>(
    snapshot: &Snapshot<'a>,
) -> impl Iterator<Item = (u32, Result<roster_snapshot::Group<'a>, Damage>)> {
    let snapshot = *snapshot;
    (0..snapshot.shape().groups).map(move |position| {
        (position, snapshot.group(position).and_then(|group| group.ok_or(Damage)))
    })
}
