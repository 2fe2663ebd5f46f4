//! What the mirrored entries lie under. When such a folder is renamed or moved, all below get other
//! names or leave the search's base, and a server tells of the folder at the most, never of them.
//!
//! A folder is whatever stands in the DN of an entry between it and the base, of any class. Those
//! that the search finds itself are told of by the server; the others are looked at one by one. All
//! are kept with the cookie, and looked at when the mirror is resumed: what happened to them in
//! between is told by nobody. A container under which nothing lies does not count; one that appears
//! may have brought something along, so that what is below it is read.
//!
//! Decides only: what is to be asked is for the [lookout](super::lookout).

use crate::dn;
use roster_provider::EntryId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Room for the folders of one search, with what it takes to keep them: half a million of usual names.
const BYTES_MAX: usize = 96 << 20;
/// What a folder takes beside its name, which is held once.
const FOLDER_BYTES: usize = 128;
/// Folders that are kept with a cookie, in bytes. Where there are more, nothing is resumed.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// There are more folders than there is room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Something to ask the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether this folder is there, and its key.
    Folder(Arc<[u8]>),
    /// Everything below it.
    Below(Arc<[u8]>),
}

impl Question {
    fn name(&self) -> &Arc<[u8]> {
        let (Self::Folder(name) | Self::Below(name)) = self;
        name
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Folder {
    /// Its key, once it was seen.
    id: Option<EntryId>,
    /// Entries lie under it, or did.
    is_occupied: bool,
    /// The search itself finds it, so that the server tells of its changes.
    is_watched: bool,
    /// It cannot be read, so that nothing is known of its changes.
    is_hidden: bool,
    /// It has appeared, and what is below it is not read yet.
    is_new: bool,
}

/// Bytes that there is room for.
#[derive(Debug)]
struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(BYTES_MAX)
    }
}

/// The folders of one search.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    known: HashMap<Arc<[u8]>, Folder>,
    names: HashMap<EntryId, Arc<[u8]>>,
    /// Folders that could not be read before everything was listed anew.
    hidden: HashSet<Arc<[u8]>>,
    questions: VecDeque<Question>,
    is_listing: bool,
    room: Room,
    /// The last entry's folder: the next one's is mostly the same.
    last: Option<Arc<[u8]>>,
    /// What is kept with a cookie, until something changes.
    kept: Option<Vec<u8>>,
    /// Something has, and was not kept yet.
    is_changed: bool,
}

/// The DN above this one, which is in canonical form.
fn above(name: &[u8]) -> Option<&[u8]> {
    let mut is_escaped = false;
    let comma = name.iter().position(|&byte| {
        let is_separator = byte == b',' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_separator
    })?;
    name.get(comma + 1..)
}

impl Folders {
    /// For a listing of everything, with what is known of before.
    pub fn listing(before: Option<&Self>) -> Self {
        let hidden = before.into_iter().flat_map(|before| {
            before.known.iter().filter(|(_, folder)| folder.is_hidden).map(|(name, _)| name)
        });
        Self { hidden: hidden.cloned().collect(), is_listing: true, ..Self::default() }
    }

    /// The listing is over.
    pub fn ended(&mut self) {
        self.is_listing = false;
        self.hidden.clear();
        self.ask(|folder| folder.is_occupied && folder.id.is_none() && !folder.is_hidden);
    }

    /// An entry lies at this name; base and name are in canonical form.
    pub fn occupy(&mut self, name: &[u8], base: &[u8]) -> Result<(), Full> {
        if name == base || !dn::is_within(name, base) {
            return Ok(());
        }
        let Some(mut folder) = above(name).filter(|folder| self.last.as_deref() != Some(folder))
        else {
            return Ok(());
        };
        self.last = Some(folder.into());
        // What is above an occupied folder is occupied.
        while !self.known.get(folder).is_some_and(|folder| folder.is_occupied) {
            self.known_at(folder)?.is_occupied = true;
            self.kept = None;
            if folder == base {
                break;
            }
            let Some(next) = above(folder) else { break };
            folder = next;
        }
        Ok(())
    }

    /// The entry of this key has this name. `is_container`: it is kept though nothing lies under it
    /// yet; `is_new`: if it was not known, entries may have come with it. `Ok(true)` when some have
    /// moved with it.
    pub fn told(
        &mut self,
        id: EntryId,
        name: &[u8],
        is_container: bool,
        is_new: bool,
    ) -> Result<bool, Full> {
        match self.names.get(&id) {
            Some(before) if **before == *name => return Ok(false),
            Some(before) if self.is_occupied(before) => return Ok(true),
            Some(_) => self.forget(id),
            None => {}
        }
        match self.known.get(name).map(|folder| folder.id) {
            Some(None) => {}
            // Another is there now.
            Some(Some(other)) if self.is_occupied(name) => return Ok(other != id),
            Some(Some(other)) => self.forget(other),
            None if !is_container => return Ok(false),
            None => {}
        }
        let folder = self.known_at(name)?;
        (folder.id, folder.is_watched, folder.is_hidden) = (Some(id), true, false);
        folder.is_new = is_new;
        let name: Arc<[u8]> = name.into();
        self.names.insert(id, Arc::clone(&name));
        self.kept = None;
        if is_new {
            self.questions.push_back(Question::Below(name));
        }
        Ok(false)
    }

    /// The entry of this key is gone; whether others may be gone with it.
    pub fn removed(&mut self, id: EntryId) -> bool {
        let Some(name) = self.names.get(&id) else { return false };
        // Kept until everything is listed: should the process end before, the folder is missed.
        if self.is_occupied(name) {
            return true;
        }
        self.forget(id);
        false
    }

    /// Whether the entry of this key is known to be of this name, or at least under its folder.
    pub fn expects(&self, id: EntryId, name: &[u8], base: &[u8]) -> bool {
        if let Some(known) = self.names.get(&id) {
            return **known == *name;
        }
        let folder = above(name).filter(|_| name != base && dn::is_within(name, base));
        folder.is_none_or(|folder| self.is_occupied(folder))
    }

    /// A new connection: nobody told of what happened before it.
    pub fn look_again(&mut self) {
        self.questions.clear();
        self.ask(|folder| folder.is_occupied && !folder.is_hidden);
        let new = self.known.iter().filter(|(_, folder)| folder.is_new);
        self.questions.extend(new.map(|(name, _)| Question::Below(Arc::clone(name))));
    }

    /// Looks at those again of which nobody tells.
    pub fn look_at_unwatched(&mut self) {
        if self.questions.is_empty() {
            self.ask(Folder::is_looked_at);
        }
    }

    /// Whether there are any.
    pub fn has_unwatched(&self) -> bool {
        self.known.values().any(Folder::is_looked_at)
    }

    fn ask(&mut self, which: impl Fn(&Folder) -> bool) {
        let asked = self.known.iter().filter(|(_, folder)| which(folder));
        self.questions.extend(asked.map(|(name, _)| Question::Folder(Arc::clone(name))));
    }

    /// What to ask next.
    pub fn next(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    /// What was found at a folder's name: `true` when entries may have moved.
    pub fn looked(&mut self, name: &[u8], found: Option<EntryId>) -> bool {
        let Some(folder) = self.known.get_mut(name) else { return false };
        match (folder.id, found) {
            (Some(id), found) => found != Some(id),
            (None, Some(found)) => {
                folder.id = Some(found);
                (self.kept, self.is_changed) = (None, true);
                let before = self.names.insert(found, name.into());
                before.is_some_and(|before| *before != *name)
            }
            // Perhaps it has just moved; if not, it will be the same the next time.
            (None, None) => {
                (self.kept, self.is_changed) = (None, true);
                !std::mem::replace(&mut folder.is_hidden, true)
            }
        }
    }

    /// What is below a new folder is read.
    pub fn was_read(&mut self, name: &[u8]) {
        if let Some(folder) = self.known.get_mut(name) {
            folder.is_new = false;
            (self.kept, self.is_changed) = (None, true);
        }
    }

    fn is_occupied(&self, name: &[u8]) -> bool {
        self.known.get(name).is_some_and(|folder| folder.is_occupied)
    }

    fn known_at(&mut self, name: &[u8]) -> Result<&mut Folder, Full> {
        if !self.known.contains_key(name) {
            let left = self.room.0.checked_sub(name.len() + FOLDER_BYTES);
            self.room = Room(left.ok_or(Full)?);
            let name: Arc<[u8]> = name.into();
            let is_hidden = self.hidden.contains(&name);
            if !self.is_listing && !is_hidden {
                self.questions.push_back(Question::Folder(Arc::clone(&name)));
            }
            self.known.insert(name, Folder { is_hidden, ..Folder::default() });
        }
        self.known.get_mut(name).ok_or(Full)
    }

    /// A folder under which nothing lies.
    fn forget(&mut self, id: EntryId) {
        if let Some(name) = self.names.remove(&id) {
            self.known.remove(&name);
            self.questions.retain(|question| *question.name() != name);
            self.room.0 += name.len() + FOLDER_BYTES;
            self.kept = None;
        }
    }
}

const HAS_ID: u8 = 1;
const WATCHED: u8 = 2;
const HIDDEN: u8 = 4;
const NEW: u8 = 8;
const OCCUPIED: u8 = 16;

impl Folder {
    fn is_looked_at(&self) -> bool {
        self.is_occupied && !self.is_watched && !self.is_hidden
    }

    fn flags(&self) -> u8 {
        let flags = [
            (self.id.is_some(), HAS_ID),
            (self.is_watched, WATCHED),
            (self.is_hidden, HIDDEN),
            (self.is_new, NEW),
            // What is below a new one may come before it is kept that it came.
            (self.is_occupied || self.is_new, OCCUPIED),
        ];
        flags.iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag)
    }
}

/// Cookies as they are kept: the length of the server's, the server's, and the folders.
impl Folders {
    /// Whether something was found out since, beside what came with a cookie.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The server's cookie with the folders that it goes with; nothing where these are too many.
    pub fn kept_with(&mut self, cookie: &[u8]) -> Option<Vec<u8>> {
        self.is_changed = false;
        let folders = match self.kept.take() {
            Some(kept) => kept,
            None => self.encoded()?,
        };
        let length = u32::try_from(cookie.len()).ok()?;
        let kept = [&length.to_le_bytes(), cookie, &folders].concat();
        self.kept = Some(folders);
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
            if bytes.len() > KEPT_BYTES_MAX {
                return None;
            }
        }
        Some(bytes)
    }

    /// The server's cookie and the folders out of what was kept.
    pub fn of_kept(kept: &[u8]) -> Option<(Vec<u8>, Self)> {
        let mut folders = Self::default();
        let (cookie, mut rest) = counted(kept)?;
        while let Some((&flags, after)) = rest.split_first() {
            let (&id, after) = after.split_first_chunk()?;
            let (name, after) = counted(after)?;
            rest = after;
            let is = |flag| flags & flag != 0;
            let name: Arc<[u8]> = dn::normalise(name).into();
            let id = is(HAS_ID).then_some(EntryId(id));
            folders.names.extend(id.map(|id| (id, Arc::clone(&name))));
            let left = folders.room.0.checked_sub(name.len() + FOLDER_BYTES);
            folders.room = Room(left?);
            let (is_occupied, is_watched) = (is(OCCUPIED), is(WATCHED));
            let (is_hidden, is_new) = (is(HIDDEN), is(NEW));
            let folder = Folder { id, is_occupied, is_watched, is_hidden, is_new };
            folders.known.insert(name, folder);
        }
        Some((cookie.to_vec(), folders))
    }
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
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

    /// After a listing of the base, of `ou=people`, of an entry in it, and of an empty container.
    fn listed() -> Folders {
        let mut folders = Folders::listing(None);
        folders.occupy(b"uid=a,ou=people,dc=x", BASE).unwrap();
        for (key, name) in [(1, BASE), (2, PEOPLE), (3, b"ou=empty,dc=x")] {
            assert_eq!(folders.told(id(key), name, true, false), Ok(false));
        }
        folders.ended();
        folders
    }

    #[test]
    fn what_entries_lie_under_counts_and_empty_containers_do_not() {
        let mut folders = listed();
        assert_eq!(folders.next(), None, "all were told of");
        assert_eq!(folders.told(id(2), PEOPLE, true, true), Ok(false), "another attribute");
        assert_eq!(folders.told(id(2), b"ou=persons,dc=x", true, true), Ok(true));
        assert!(folders.removed(id(2)));
        assert_eq!(folders.told(id(3), b"ou=void,dc=x", true, true), Ok(false));
        assert!(!folders.removed(id(3)));
        assert!(!folders.removed(id(9)), "a user");
    }

    #[test]
    fn a_container_that_appears_is_looked_into_once() {
        let mut folders = listed();
        assert_eq!(folders.told(id(4), b"ou=new,dc=x", true, true), Ok(false));
        let below = Question::Below((*b"ou=new,dc=x").into());
        let mut questions = std::iter::from_fn(|| folders.next()).collect::<Vec<_>>();
        questions.retain(|question| matches!(question, Question::Below(_)));
        assert_eq!(questions, [below]);
        folders.was_read(b"ou=new,dc=x");
        assert_eq!(folders.told(id(4), b"ou=new,dc=x", true, true), Ok(false));
        assert_eq!(folders.next(), None);
    }

    #[test]
    fn a_folder_that_the_search_does_not_find_is_looked_at() {
        let mut folders = listed();
        let roles = b"cn=r\\,oles,dc=x";
        folders.occupy(b"uid=b,cn=r\\,oles,dc=x", BASE).unwrap();
        assert_eq!(folders.next(), Some(Question::Folder((*roles).into())));
        assert!(!folders.looked(roles, Some(id(5))));
        assert!(folders.has_unwatched());
        folders.look_at_unwatched();
        assert_eq!(folders.next(), Some(Question::Folder((*roles).into())));
        assert!(!folders.looked(roles, Some(id(5))));
        assert!(folders.looked(roles, Some(id(6))), "another has its name");
        assert!(folders.looked(roles, None), "it has gone");
    }

    #[test]
    fn where_only_keys_are_listed_an_entry_in_an_unknown_folder_has_moved_with_it() {
        let mut folders = listed();
        folders.told(id(4), b"ou=deep,ou=empty,dc=x", true, false).unwrap();
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
        folders.told(id(4), b"ou=new,dc=x", true, true).unwrap();
        assert!(!folders.removed(id(4)));
        assert_eq!(folders.next(), None);
    }

    #[test]
    fn a_user_with_entries_below_counts_as_well() {
        let mut folders = listed();
        folders.occupy(b"uid=kid,uid=a,ou=people,dc=x", BASE).unwrap();
        assert_eq!(folders.told(id(7), b"uid=a,ou=people,dc=x", false, false), Ok(false));
        assert_eq!(folders.told(id(8), b"uid=kid,uid=a,ou=people,dc=x", false, false), Ok(false));
        assert_eq!(folders.told(id(7), b"uid=b,ou=people,dc=x", false, false), Ok(true));
        assert_eq!(folders.told(id(8), b"uid=kid2,uid=a,ou=people,dc=x", false, false), Ok(false));
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_believed_the_second_time() {
        let mut folders = Folders::default();
        for is_news in [true, false] {
            folders = Folders::listing(Some(&folders));
            folders.occupy(b"uid=a,ou=people,dc=x", BASE).unwrap();
            folders.told(id(1), BASE, true, false).unwrap();
            folders.ended();
            assert_eq!(folders.next().is_some(), is_news);
            assert_eq!(folders.looked(PEOPLE, None), is_news);
        }
        assert!(!folders.has_unwatched());
    }

    #[test]
    fn what_is_kept_with_a_cookie_is_looked_at_again() {
        let mut folders = listed();
        folders.told(id(4), b"ou=new,dc=x", true, true).unwrap();
        let kept = folders.kept_with(b"csn=1").unwrap();
        assert_eq!(folders.kept_with(b"csn=2").unwrap().len(), kept.len());
        let (cookie, mut again) = Folders::of_kept(&kept).unwrap();
        assert_eq!(cookie, b"csn=1");
        again.look_again();
        let mut questions = std::iter::from_fn(|| again.next()).collect::<Vec<_>>();
        questions.sort_by_key(|question| format!("{question:?}"));
        let folder = |name: &[u8]| Question::Folder(name.into());
        assert_eq!(questions[0], Question::Below((*b"ou=new,dc=x").into()));
        assert!(questions.contains(&folder(b"ou=new,dc=x")), "who came with it may be known");
        assert_eq!(questions.len(), 4, "the empty one is not kept");
        assert!(questions.contains(&folder(BASE)) && questions.contains(&folder(PEOPLE)));
        assert_eq!(again.told(id(2), b"ou=persons,dc=x", true, true), Ok(true));
        assert!(again.removed(id(2)));
        for end in 0..kept.len() {
            // Cut between two folders it is whole; it is checked nowhere else, and never panics.
            let _ = Folders::of_kept(&kept[..end]);
        }
        assert!(Folders::of_kept(b"rid=000,csn=1").is_none());
    }

    #[test]
    fn there_is_room_for_so_many_folders_and_no_more() {
        let room = 100 * (FOLDER_BYTES + 10);
        let mut folders = Folders { room: Room(room), ..Folders::listing(None) };
        let mut tell = |number: u8| {
            folders.told(id(number), format!("ou={number:03},d=x").as_bytes(), true, false)
        };
        assert!((0..100).all(|number| tell(number) == Ok(false)));
        assert_eq!(tell(100), Err(Full));
        assert!(!folders.removed(id(7)));
        assert_eq!(folders.told(id(100), b"ou=100,d=x", true, false), Ok(false), "there is again");
        let mut deep = Folders { room: Room(room), ..Folders::default() };
        let name = ["a=1,"; 1 << 10].concat() + "dc=x";
        assert_eq!(deep.occupy(name.as_bytes(), BASE), Err(Full), "each level has its name");
    }

    #[test]
    fn very_many_folders_are_not_kept() {
        let mut folders = Folders::listing(None);
        let name = |number: u32| format!("uid=a,ou={number},{},dc=x", "x".repeat(1 << 10));
        (0..300).for_each(|number| folders.occupy(name(number).as_bytes(), BASE).unwrap());
        assert_eq!(folders.kept_with(b"csn=1"), None);
    }
}
