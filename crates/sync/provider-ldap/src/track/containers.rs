// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers: the entries above the mirrored entries. If a container is renamed or moved, all entries below it get
//! other names or leave the base of the search. A server reports a change of the container at most, never of the
//! entries.
//!
//! A container is any entry between a mirrored entry and the base, of any object class. The server reports changes of
//! containers that the search itself finds. All others are queried one by one. The cache stores all of them with the
//! cookie, and a resumed mirror queries them again, because no server reports their changes in between. An empty
//! container does not count. The entries below a new one are read, because they may have come with it.
//!
//! This module only decides. [`container_watch`](super::container_watch) sends the queries.

use crate::dn;
use roster_provider::EntryId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Memory for the containers of one search: half a million with usual names.
const BYTES_MAX: usize = 96 << 20;
/// Memory of a container beside its name, which is stored once.
const CONTAINER_BYTES: usize = 128;
/// Limit of the containers in a cookie, in bytes. A larger mirror is not resumed.
const COOKIE_BYTES_MAX: usize = 256 << 10;

/// The containers exceed their limit of memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContainersFull;

/// A query to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContainerQuery {
    /// Queries this container and its key.
    Container(Arc<[u8]>),
    /// Reads all entries below it.
    Below(Arc<[u8]>),
}

impl ContainerQuery {
    fn name(&self) -> &Arc<[u8]> {
        let (Self::Container(name) | Self::Below(name)) = self;
        name
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Container {
    /// The container's key, after it was read once.
    id: Option<EntryId>,
    /// Entries are below it, or were.
    is_occupied: bool,
    /// The search itself finds it, so the server reports its changes.
    is_watched: bool,
    /// The container is unreadable, so its changes are unknown.
    is_hidden: bool,
    /// The container is new, and the entries below it were not read yet.
    is_new: bool,
}

/// Remaining bytes of the limit.
#[derive(Debug)]
struct BytesLeft(usize);

impl Default for BytesLeft {
    fn default() -> Self {
        Self(BYTES_MAX)
    }
}

/// The containers of one search.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    known: HashMap<Arc<[u8]>, Container>,
    names: HashMap<EntryId, Arc<[u8]>>,
    /// Containers that were unreadable before the present full listing.
    hidden: HashSet<Arc<[u8]>>,
    queries: VecDeque<ContainerQuery>,
    is_listing: bool,
    bytes_left: BytesLeft,
    /// The container of the last entry. The next entry is usually in the same one.
    last_container: Option<Arc<[u8]>>,
    /// The encoded containers, until they change.
    encoded_cookie: Option<Vec<u8>>,
    /// The containers have changed since they were last stored.
    is_changed: bool,
}

impl Containers {
    /// Starts a full listing. `before` has the known containers.
    pub fn listing(before: Option<&Self>) -> Self {
        let hidden = before.into_iter().flat_map(|before| {
            before.known.iter().filter(|(_, folder)| folder.is_hidden).map(|(name, _)| name)
        });
        Self { hidden: hidden.cloned().collect(), is_listing: true, ..Self::default() }
    }

    /// Ends the listing.
    pub fn finish_listing(&mut self) {
        self.is_listing = false;
        self.hidden.clear();
        self.queue_queries(|folder| folder.is_occupied && folder.id.is_none() && !folder.is_hidden);
    }

    /// Records the containers of an entry with this name. Base and name are in canonical form.
    pub fn occupy(&mut self, name: &[u8], base: &[u8]) -> Result<(), ContainersFull> {
        if name == base || !dn::is_within(name, base) {
            return Ok(());
        }
        let Some(mut folder) =
            dn::parent(name).filter(|folder| self.last_container.as_deref() != Some(folder))
        else {
            return Ok(());
        };
        self.last_container = Some(folder.into());
        // All containers above an occupied one are occupied.
        while !self.known.get(folder).is_some_and(|folder| folder.is_occupied) {
            self.container_at(folder)?.is_occupied = true;
            self.encoded_cookie = None;
            if folder == base {
                break;
            }
            let Some(next) = dn::parent(folder) else { break };
            folder = next;
        }
        Ok(())
    }

    /// Records the name of an entry. `is_container` retains it even if it has no entries below yet. `is_new` means that
    /// entries may have come with an unknown one. Returns `Ok(true)` if some entries moved with it.
    pub fn update_entry(
        &mut self,
        id: EntryId,
        name: &[u8],
        is_container: bool,
        is_new: bool,
    ) -> Result<bool, ContainersFull> {
        match self.names.get(&id) {
            Some(before) if **before == *name => return Ok(false),
            Some(before) if self.is_occupied(before) => return Ok(true),
            Some(_) => self.forget(id),
            None => {}
        }
        match self.known.get(name).map(|folder| folder.id) {
            Some(None) => {}
            // Another entry has this name now.
            Some(Some(other)) if self.is_occupied(name) => return Ok(other != id),
            Some(Some(other)) => self.forget(other),
            None if !is_container => return Ok(false),
            None => {}
        }
        let folder = self.container_at(name)?;
        (folder.id, folder.is_watched, folder.is_hidden) = (Some(id), true, false);
        folder.is_new = is_new;
        let name: Arc<[u8]> = name.into();
        self.names.insert(id, Arc::clone(&name));
        self.encoded_cookie = None;
        if is_new {
            self.queries.push_back(ContainerQuery::Below(name));
        }
        Ok(false)
    }

    /// Records that the entry of this key is gone. Returns whether other entries may be gone with it.
    pub fn removed(&mut self, id: EntryId) -> bool {
        let Some(name) = self.names.get(&id) else { return false };
        // Retained until a full listing, so that a restart before it still finds the container missing.
        if self.is_occupied(name) {
            return true;
        }
        self.forget(id);
        false
    }

    /// Returns whether the entry of this key has this name, or is in a known container.
    pub fn expects(&self, id: EntryId, name: &[u8], base: &[u8]) -> bool {
        if let Some(known) = self.names.get(&id) {
            return **known == *name;
        }
        let folder = dn::parent(name).filter(|_| name != base && dn::is_within(name, base));
        folder.is_none_or(|folder| self.is_occupied(folder))
    }

    /// Queues a check of all containers on a new connection, because their changes before it are unknown.
    pub fn recheck_all(&mut self) {
        self.queries.clear();
        self.queue_queries(|folder| folder.is_occupied && !folder.is_hidden);
        let new = self.known.iter().filter(|(_, folder)| folder.is_new);
        self.queries.extend(new.map(|(name, _)| ContainerQuery::Below(Arc::clone(name))));
    }

    /// Queues a check of the containers for which the server reports no changes.
    pub fn recheck_unwatched(&mut self) {
        if self.queries.is_empty() {
            self.queue_queries(Container::is_checked);
        }
    }

    /// Returns whether there are such containers.
    pub fn has_unwatched(&self) -> bool {
        self.known.values().any(Container::is_checked)
    }

    fn queue_queries(&mut self, which: impl Fn(&Container) -> bool) {
        let asked = self.known.iter().filter(|(_, folder)| which(folder));
        self.queries.extend(asked.map(|(name, _)| ContainerQuery::Container(Arc::clone(name))));
    }

    /// Returns the next query.
    pub fn next_query(&mut self) -> Option<ContainerQuery> {
        self.queries.pop_front()
    }

    /// Records the entry at a container's name. Returns `true` if entries may have moved.
    pub fn update_container(&mut self, name: &[u8], found: Option<EntryId>) -> bool {
        let Some(folder) = self.known.get_mut(name) else { return false };
        match (folder.id, found) {
            (Some(id), found) => found != Some(id),
            (None, Some(found)) => {
                folder.id = Some(found);
                (self.encoded_cookie, self.is_changed) = (None, true);
                let before = self.names.insert(found, name.into());
                before.is_some_and(|before| *before != *name)
            }
            // It may have just moved. If it is unreadable, the next check gives the same result.
            (None, None) => {
                (self.encoded_cookie, self.is_changed) = (None, true);
                !std::mem::replace(&mut folder.is_hidden, true)
            }
        }
    }

    /// Records that the entries below a new container were read.
    pub fn mark_read(&mut self, name: &[u8]) {
        if let Some(folder) = self.known.get_mut(name) {
            folder.is_new = false;
            (self.encoded_cookie, self.is_changed) = (None, true);
        }
    }

    fn is_occupied(&self, name: &[u8]) -> bool {
        self.known.get(name).is_some_and(|folder| folder.is_occupied)
    }

    fn container_at(&mut self, name: &[u8]) -> Result<&mut Container, ContainersFull> {
        if !self.known.contains_key(name) {
            let left = self.bytes_left.0.checked_sub(name.len() + CONTAINER_BYTES);
            self.bytes_left = BytesLeft(left.ok_or(ContainersFull)?);
            let name: Arc<[u8]> = name.into();
            let is_hidden = self.hidden.contains(&name);
            if !self.is_listing && !is_hidden {
                self.queries.push_back(ContainerQuery::Container(Arc::clone(&name)));
            }
            self.known.insert(name, Container { is_hidden, ..Container::default() });
        }
        self.known.get_mut(name).ok_or(ContainersFull)
    }

    /// Forgets an empty container.
    fn forget(&mut self, id: EntryId) {
        if let Some(name) = self.names.remove(&id) {
            self.known.remove(&name);
            self.queries.retain(|question| *question.name() != name);
            self.bytes_left.0 += name.len() + CONTAINER_BYTES;
            self.encoded_cookie = None;
        }
    }
}

const HAS_ID: u8 = 1;
const WATCHED: u8 = 2;
const HIDDEN: u8 = 4;
const NEW: u8 = 8;
const OCCUPIED: u8 = 16;

impl Container {
    fn is_checked(&self) -> bool {
        self.is_occupied && !self.is_watched && !self.is_hidden
    }

    fn flags(&self) -> u8 {
        let flags = [
            (self.id.is_some(), HAS_ID),
            (self.is_watched, WATCHED),
            (self.is_hidden, HIDDEN),
            (self.is_new, NEW),
            // The entries below a new container may be stored before the container is marked as occupied.
            (self.is_occupied || self.is_new, OCCUPIED),
        ];
        flags.iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag)
    }
}

/// The format of a stored cookie: the length of the server's cookie, that cookie, and the containers.
impl Containers {
    /// Returns whether containers have changed without a new cookie.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Encodes the server's cookie with its containers. Returns `None` if they exceed the limit.
    pub fn encode_with_cookie(&mut self, cookie: &[u8]) -> Option<Vec<u8>> {
        self.is_changed = false;
        let folders = match self.encoded_cookie.take() {
            Some(kept) => kept,
            None => self.encoded()?,
        };
        let length = u32::try_from(cookie.len()).ok()?;
        let kept = [&length.to_le_bytes(), cookie, &folders].concat();
        self.encoded_cookie = Some(folders);
        Some(kept)
    }

    fn encoded(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for (name, folder) in &self.known {
            if !folder.is_occupied && !folder.is_new {
                continue;
            }
            bytes.push(folder.flags());
            bytes.extend(folder.id.map_or([0; 16], |EntryId(id)| id));
            bytes.extend(u32::try_from(name.len()).ok()?.to_le_bytes());
            bytes.extend_from_slice(name);
            if bytes.len() > COOKIE_BYTES_MAX {
                return None;
            }
        }
        Some(bytes)
    }

    /// Decodes a stored cookie to the server's cookie and the containers.
    pub fn decode_cookie(kept: &[u8]) -> Option<(Vec<u8>, Self)> {
        let mut folders = Self::default();
        let (cookie, mut rest) = split_counted(kept)?;
        while let Some((&flags, after)) = rest.split_first() {
            let (&id, after) = after.split_first_chunk()?;
            let (name, after) = split_counted(after)?;
            rest = after;
            let is = |flag| flags & flag != 0;
            let name: Arc<[u8]> = dn::normalise(name).into();
            let id = is(HAS_ID).then_some(EntryId(id));
            folders.names.extend(id.map(|id| (id, Arc::clone(&name))));
            let left = folders.bytes_left.0.checked_sub(name.len() + CONTAINER_BYTES);
            folders.bytes_left = BytesLeft(left?);
            let (is_occupied, is_watched) = (is(OCCUPIED), is(WATCHED));
            let (is_hidden, is_new) = (is(HIDDEN), is(NEW));
            let folder = Container { id, is_occupied, is_watched, is_hidden, is_new };
            folders.known.insert(name, folder);
        }
        Some((cookie.to_vec(), folders))
    }
}

fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &[u8] = b"dc=x";
    const PEOPLE: &[u8] = b"ou=people,dc=x";

    fn id(byte: u8) -> EntryId {
        EntryId([byte; 16])
    }

    /// The containers after a listing of the base, of `ou=people`, of an entry in it, and of an empty container.
    fn listed() -> Containers {
        let mut folders = Containers::listing(None);
        folders.occupy(b"uid=a,ou=people,dc=x", BASE).unwrap();
        for (key, name) in [(1, BASE), (2, PEOPLE), (3, b"ou=empty,dc=x")] {
            assert_eq!(folders.update_entry(id(key), name, true, false), Ok(false));
        }
        folders.finish_listing();
        folders
    }

    #[test]
    fn what_entries_lie_under_counts_and_empty_containers_do_not() {
        let mut folders = listed();
        assert_eq!(folders.next_query(), None, "all were told of");
        assert_eq!(folders.update_entry(id(2), PEOPLE, true, true), Ok(false), "another attribute");
        assert_eq!(folders.update_entry(id(2), b"ou=persons,dc=x", true, true), Ok(true));
        assert!(folders.removed(id(2)));
        assert_eq!(folders.update_entry(id(3), b"ou=void,dc=x", true, true), Ok(false));
        assert!(!folders.removed(id(3)));
        assert!(!folders.removed(id(9)), "a user");
    }

    #[test]
    fn a_container_that_appears_is_looked_into_once() {
        let mut folders = listed();
        assert_eq!(folders.update_entry(id(4), b"ou=new,dc=x", true, true), Ok(false));
        let below = ContainerQuery::Below((*b"ou=new,dc=x").into());
        let mut questions = std::iter::from_fn(|| folders.next_query()).collect::<Vec<_>>();
        questions.retain(|question| matches!(question, ContainerQuery::Below(_)));
        assert_eq!(questions, [below]);
        folders.mark_read(b"ou=new,dc=x");
        assert_eq!(folders.update_entry(id(4), b"ou=new,dc=x", true, true), Ok(false));
        assert_eq!(folders.next_query(), None);
    }

    #[test]
    fn a_folder_that_the_search_does_not_find_is_looked_at() {
        let mut folders = listed();
        let roles = b"cn=r\\,oles,dc=x";
        folders.occupy(b"uid=b,cn=r\\,oles,dc=x", BASE).unwrap();
        assert_eq!(folders.next_query(), Some(ContainerQuery::Container((*roles).into())));
        assert!(!folders.update_container(roles, Some(id(5))));
        assert!(folders.has_unwatched());
        folders.recheck_unwatched();
        assert_eq!(folders.next_query(), Some(ContainerQuery::Container((*roles).into())));
        assert!(!folders.update_container(roles, Some(id(5))));
        assert!(folders.update_container(roles, Some(id(6))), "another has its name");
        assert!(folders.update_container(roles, None), "it has gone");
    }

    #[test]
    fn keys_entry_in_unknown_container_has_moved() {
        let mut folders = listed();
        folders.update_entry(id(4), b"ou=deep,ou=empty,dc=x", true, false).unwrap();
        for (key, name) in [
            (9, &b"uid=a,ou=people,dc=x"[..]),
            (2, PEOPLE),
            (1, BASE),
            (4, b"ou=deep,ou=empty,dc=x"),
        ] {
            assert!(folders.expects(id(key), name, BASE));
        }
        assert!(!folders.expects(id(9), b"uid=a,cn=renamed,dc=x", BASE));
        assert!(!folders.expects(id(2), b"ou=persons,dc=x", BASE));
    }

    #[test]
    fn a_container_that_goes_again_is_not_asked_about() {
        let mut folders = listed();
        folders.update_entry(id(4), b"ou=new,dc=x", true, true).unwrap();
        assert!(!folders.removed(id(4)));
        assert_eq!(folders.next_query(), None);
    }

    #[test]
    fn a_user_with_entries_below_counts_as_well() {
        let mut folders = listed();
        folders.occupy(b"uid=kid,uid=a,ou=people,dc=x", BASE).unwrap();
        assert_eq!(folders.update_entry(id(7), b"uid=a,ou=people,dc=x", false, false), Ok(false));
        assert_eq!(
            folders.update_entry(id(8), b"uid=kid,uid=a,ou=people,dc=x", false, false),
            Ok(false)
        );
        assert_eq!(folders.update_entry(id(7), b"uid=b,ou=people,dc=x", false, false), Ok(true));
        assert_eq!(
            folders.update_entry(id(8), b"uid=kid2,uid=a,ou=people,dc=x", false, false),
            Ok(false)
        );
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_believed_the_second_time() {
        let mut folders = Containers::default();
        for is_news in [true, false] {
            folders = Containers::listing(Some(&folders));
            folders.occupy(b"uid=a,ou=people,dc=x", BASE).unwrap();
            folders.update_entry(id(1), BASE, true, false).unwrap();
            folders.finish_listing();
            assert_eq!(folders.next_query().is_some(), is_news);
            assert_eq!(folders.update_container(PEOPLE, None), is_news);
        }
        assert!(!folders.has_unwatched());
    }

    #[test]
    fn what_is_kept_with_a_cookie_is_looked_at_again() {
        let mut folders = listed();
        folders.update_entry(id(4), b"ou=new,dc=x", true, true).unwrap();
        let kept = folders.encode_with_cookie(b"csn=1").unwrap();
        assert_eq!(folders.encode_with_cookie(b"csn=2").unwrap().len(), kept.len());
        let (cookie, mut again) = Containers::decode_cookie(&kept).unwrap();
        assert_eq!(cookie, b"csn=1");
        again.recheck_all();
        let mut questions = std::iter::from_fn(|| again.next_query()).collect::<Vec<_>>();
        questions.sort_by_key(|question| format!("{question:?}"));
        let folder = |name: &[u8]| ContainerQuery::Container(name.into());
        assert_eq!(questions[0], ContainerQuery::Below((*b"ou=new,dc=x").into()));
        assert!(questions.contains(&folder(b"ou=new,dc=x")), "entries below it may be known");
        assert_eq!(questions.len(), 4, "the empty one is not kept");
        assert!(questions.contains(&folder(BASE)) && questions.contains(&folder(PEOPLE)));
        assert_eq!(again.update_entry(id(2), b"ou=persons,dc=x", true, true), Ok(true));
        assert!(again.removed(id(2)));
        for end in 0..kept.len() {
            // A cut between two containers gives a valid cookie. Nothing checks the length. No cut may panic.
            let _ = Containers::decode_cookie(&kept[..end]);
        }
        assert!(Containers::decode_cookie(b"rid=000,csn=1").is_none());
    }

    #[test]
    fn there_is_room_for_so_many_folders_and_no_more() {
        let room = 100 * (CONTAINER_BYTES + 10);
        let mut folders = Containers { bytes_left: BytesLeft(room), ..Containers::listing(None) };
        let mut tell = |number: u8| {
            folders.update_entry(id(number), format!("ou={number:03},d=x").as_bytes(), true, false)
        };
        assert!((0..100).all(|number| tell(number) == Ok(false)));
        assert_eq!(tell(100), Err(ContainersFull));
        assert!(!folders.removed(id(7)));
        assert_eq!(
            folders.update_entry(id(100), b"ou=100,d=x", true, false),
            Ok(false),
            "there is again"
        );
        let mut deep = Containers { bytes_left: BytesLeft(room), ..Containers::default() };
        let name = ["a=1,"; 1 << 10].concat() + "dc=x";
        assert_eq!(
            deep.occupy(name.as_bytes(), BASE),
            Err(ContainersFull),
            "each level has its name"
        );
    }

    #[test]
    fn very_many_folders_are_not_kept() {
        let mut folders = Containers::listing(None);
        let name = |number: u32| format!("uid=a,ou={number},{},dc=x", "x".repeat(1 << 10));
        (0..300).for_each(|number| folders.occupy(name(number).as_bytes(), BASE).unwrap());
        assert_eq!(folders.encode_with_cookie(b"csn=1"), None);
    }
}
