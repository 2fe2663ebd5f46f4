//! Following a directory's changes: what a connection hears becomes calls to the back-end's sink.
//!
//! How changes are learned of is a [`Track`]'s business, one for each search: content
//! synchronization ([`sync`]), persistent search or polling ([`enumerate`]), chosen by what the
//! server offers. [`follow`] drives them all over one connection: sends what they ask, deals out
//! what comes, keeps the deadlines, and lets changes be published in batches. Beside each search a
//! [`lookout`] watches what its entries lie under, and where the server tells of changes a [`sweep`]
//! finds out from time to time what it does not tell. Groups whose members the server works out are read
//! anew ([`dynamic`]), however it tells of changes. Lists that a server shows in parts are completed
//! ([`ranges`]).

pub mod dynamic;
pub mod enumerate;
mod folders;
mod history;
pub mod lookout;
mod notices;
pub mod ranges;
pub mod rereading;
pub mod sweep;
pub mod sync;
mod twins;

use crate::ber::Malformed;
use crate::connection::{Connection, Settings};
use crate::dn;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{
    Operation, Outcome, RawEntry, Request, Response, Scope, SearchRequest, code, printable,
};
use crate::network::Network;
use crate::schema::{Mapping, PartSearch, ReadGroup, group_id, has_dynamic_class};
use folders::{Folders, Question};
pub(crate) use history::key_values;
use ranges::Unfinished;
use rereading::{Want, Wanted};
use roster_config::Server;
use roster_provider::{Cookie, Entry, EntryId, Part, Rejected, Sink, Unmentioned};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use twins::{TooMany, Twins, Verdict, twin_id};

/// While changes are followed, silence is usual: after so much of it a probe, a small search, shows whether
/// the server still answers. It costs two packets.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(4);
/// How long the reply to a probe may take.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// A server that answers nothing any more is reported within this time.
const _: () = assert!(PROBE_INTERVAL.as_secs() + PROBE_DEADLINE.as_secs() < 10);
/// Where the sink has no room, it is asked again so soon.
const ROOM_PAUSE: Duration = Duration::from_millis(20);
/// Changes that keep coming are let out at least this often.
const BATCH_MAX: Duration = Duration::from_millis(50);

/// One search whose result is kept true.
pub(crate) trait Track: Send {
    /// Puts into the connection's queue what there is to ask now.
    fn act(&mut self, connection: &mut Connection, ear: &mut Ear, now: Instant);

    /// Whether answers to this request are its.
    fn owns(&self, id: u32) -> bool;

    /// Takes an answer in.
    fn hear(&mut self, response: &Response<'_>, ear: &mut Ear) -> Result<(), Error>;

    /// Whether an answer is due, so that silence is a failure.
    fn awaits(&self) -> bool;

    /// Whether what it told the sink so far is whole and may be published.
    fn is_settled(&self) -> bool;

    /// When it wants to act next of its own accord.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Entries that may be spoken of while what is below a new folder is read; of more, everything is
/// listed anew.
const SPOKEN_MAX: usize = 10_000;

/// The sink with what it takes to speak to it: entries become users and groups, cookies are kept
/// for the next connection.
pub(crate) struct Ear {
    sink: Arc<dyn Sink>,
    mapping: Arc<Mapping>,
    wanted: Arc<Wanted>,
    cookies: HashMap<Part, Cookie>,
    /// What the known entries lie under, and what those of a listing that is not over.
    folders: HashMap<Part, Folders>,
    listings: HashMap<Part, Folders>,
    /// How many readings beside the changes are on their way, and what was spoken of meanwhile: it is
    /// newer than what they bring.
    readings: usize,
    spoken: HashSet<(Part, EntryId)>,
    /// Entries may have moved, of which the server says nothing.
    behind: HashSet<Part>,
    /// Parts that are being brought up to date.
    refreshing: HashSet<Part>,
    /// A group has changed, and with it perhaps what servers work out of groups.
    is_stirred: bool,
    /// A user or group has changed, and with it perhaps whom servers count among groups.
    has_news: bool,
    /// There are groups whose members the server works out.
    knows_dynamic: bool,
    twins: Twins,
    /// Groups of whose members the server has shown a part.
    unfinished: Unfinished,
    is_changed: bool,
}

impl Ear {
    pub fn new(
        sink: Arc<dyn Sink>,
        mapping: Arc<Mapping>,
        wanted: Arc<Wanted>,
        cookies: Vec<(Part, Cookie)>,
    ) -> Self {
        let mut ear = Self {
            sink,
            mapping,
            wanted,
            cookies: HashMap::new(),
            folders: HashMap::new(),
            listings: HashMap::new(),
            readings: 0,
            spoken: HashSet::new(),
            behind: HashSet::new(),
            refreshing: HashSet::new(),
            is_stirred: false,
            has_news: false,
            knows_dynamic: false,
            twins: Twins::default(),
            unfinished: Unfinished::default(),
            is_changed: false,
        };
        for (part, Cookie { binding, value }) in cookies {
            // What cannot be read is of another version: everything is listed.
            if let Some((value, folders)) = Folders::of_kept(&value) {
                ear.cookies.insert(part, Cookie { binding, value });
                ear.folders.insert(part, folders);
            }
        }
        ear
    }

    /// The cookie of a part, if it was given under the same circumstances.
    pub fn cookie_for(&self, part: Part, binding: &str) -> Option<Vec<u8>> {
        let cookie = self.cookies.get(&part).filter(|cookie| cookie.binding == binding)?;
        Some(cookie.value.clone())
    }

    /// The cookie is worth nothing any more.
    pub fn forget(&mut self, part: Part) {
        self.cookies.remove(&part);
    }

    /// Nor is any.
    pub fn forget_all(&mut self) {
        self.cookies.clear();
    }

    /// A refresh begins, which lists everything or resumes.
    pub fn began(&mut self, part: Part, lists_all: bool) {
        self.listings.remove(&part);
        if lists_all {
            self.behind.remove(&part);
            self.unfinished.forget_all(part);
            let listing = Folders::listing(self.folders.get(&part));
            self.listings.insert(part, listing);
        }
        self.refreshing.insert(part);
        self.sweep_began(part);
    }

    /// The entries that there are begin to be named.
    fn sweep_began(&mut self, part: Part) {
        self.twins.began(part);
        self.sink.refresh_began(part);
    }

    /// All were named, if it `is_whole`, and the others are missing. If not, it was for nothing.
    fn sweep_ended(&mut self, part: Part, is_whole: bool) {
        let unmentioned = if is_whole { Unmentioned::Missing } else { Unmentioned::Kept };
        let cookie = self.cookies.get(&part).cloned();
        self.ended(part, unmentioned, cookie);
    }

    /// The entry is as given. `is_listing` spares saying what it is not: a refresh that lists
    /// everything says so by silence. `true` when everything is to be listed anew: entries below may
    /// have moved with it, of which the server says nothing, or there are two of it.
    pub fn entry(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
        is_listing: bool,
    ) -> Result<bool, Error> {
        self.note_spoken(search.part, id);
        self.has_news |= !is_listing;
        self.tell(search, id, entry, is_listing, !is_listing)
    }

    /// The entry may have changed, and is to be read.
    pub fn hint(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
    ) -> Result<(), Error> {
        self.is_stirred |= search.classify(entry, &self.mapping)?.group;
        self.has_news = true;
        self.want(search.part, [id]);
        Ok(())
    }

    /// The entry was read beside the changes, which may have told something newer of it.
    fn read(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
    ) -> Result<(), Error> {
        if !self.spoken.contains(&(search.part, id))
            && self.tell(search, id, entry, false, false)?
        {
            self.fall_behind(search.part);
        }
        Ok(())
    }

    /// Tells the sink of an entry. `may_bring`: if others lie below it, they may be news.
    fn tell(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        entry: &RawEntry<'_>,
        is_listing: bool,
        may_bring: bool,
    ) -> Result<bool, Error> {
        self.is_changed = true;
        let part = search.part;
        let name = dn::normalise(entry.dn);
        let is = search.classify(entry, &self.mapping)?;
        let verdict =
            self.twins.judge(part, id, &name, is_listing).map_err(|most| too_many(search, most))?;
        let is_container = !is.user && !is.group;
        self.knows_dynamic |= is.group && has_dynamic_class(entry)?;
        self.is_stirred |= is.group && may_bring;
        let folders = self.folders(part);
        let full = |_| too_many_folders(search);
        if !is_container {
            folders.occupy(&name, search.normalised_base()).map_err(full)?;
        }
        let is_moved = verdict == Verdict::Served
            && folders.told(id, &name, is_container, is_container && may_bring).map_err(full)?;
        let sink = &self.sink;
        if let Verdict::Twin { is_news } = verdict {
            let reason = format!("has the same UUID ({id}) as another entry, which is served");
            let reference = if is.group { self.mapping.reference(entry) } else { b"".into() };
            let rejected =
                Rejected { name: &printable(entry.dn), reference: &reference, reason: &reason };
            sink.rejected(part, twin_id(id, &name), &rejected);
            return Ok(is_news);
        }
        if is.user {
            match self.mapping.user(entry)? {
                Ok(user) => sink.put(part, id, Entry::User(user)),
                Err(reason) => {
                    let name = printable(entry.dn);
                    let rejected = Rejected { name: &name, reference: b"", reason: &reason };
                    sink.rejected(part, id, &rejected);
                }
            }
        } else if search.has_users() && !is_listing {
            sink.removed(part, id);
        }
        let group = group_id(id);
        self.unfinished.forget(part, group);
        if is.group {
            match self.mapping.group(entry, true)? {
                Ok(ReadGroup { group: entry, rest }) if rest.is_empty() => {
                    sink.put(part, group, Entry::Group(entry));
                }
                Ok(begun) => {
                    // Until the rest is here the group stays as it was.
                    sink.present(part, group);
                    self.unfinished.begin(part, group, entry.dn, begun);
                }
                Err(reason) => {
                    let reference = self.mapping.reference(entry);
                    let rejected = Rejected {
                        name: &printable(entry.dn),
                        reference: &reference,
                        reason: &reason,
                    };
                    sink.rejected(part, group, &rejected);
                }
            }
        } else if search.has_groups() && !is_listing {
            sink.removed(part, group);
        }
        Ok(is_moved)
    }

    /// Something about the entry of that name has changed, and its place if it `may_bring` others.
    pub fn noticed(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        name: &[u8],
        may_bring: bool,
    ) -> Result<bool, Error> {
        let told = self.folders(search.part).told(id, &dn::normalise(name), may_bring, may_bring);
        told.map_err(|_| too_many_folders(search))
    }

    /// Whether the entry is where it is known to be, as far as its folder goes.
    pub fn expects(&mut self, search: &PartSearch, id: EntryId, name: &[u8]) -> bool {
        self.folders(search.part).expects(id, &dn::normalise(name), search.normalised_base())
    }

    /// Folders as they are known, or as they are being listed.
    fn folders(&mut self, part: Part) -> &mut Folders {
        match self.listings.get_mut(&part) {
            Some(listing) => listing,
            None => self.folders.entry(part).or_default(),
        }
    }

    fn note_spoken(&mut self, part: Part, id: EntryId) {
        if self.readings == 0 {
            return;
        }
        if self.spoken.len() < SPOKEN_MAX {
            self.spoken.insert((part, id));
        } else {
            self.fall_behind(part);
        }
    }

    /// Everything of the part is to be listed anew.
    fn fall_behind(&mut self, part: Part) {
        self.behind.insert(part);
    }

    /// Whether it is; asked once.
    pub fn take_behind(&mut self, part: Part) -> bool {
        self.behind.remove(&part)
    }

    /// A new connection, over which nothing is on its way.
    fn look_again(&mut self, part: Part) {
        self.readings = 0;
        self.spoken.clear();
        if let Some(folders) = self.folders.get_mut(&part) {
            folders.look_again();
        }
    }

    fn look_at_unwatched(&mut self, part: Part) {
        self.folders(part).look_at_unwatched();
    }

    fn has_unwatched(&mut self, part: Part) -> bool {
        self.folders(part).has_unwatched()
    }

    /// What to ask about folders; while they are listed, nothing.
    fn question(&mut self, part: Part) -> Option<Question> {
        if self.is_listing(part) {
            return None;
        }
        let question = self.folders(part).next();
        self.readings += usize::from(matches!(question, Some(Question::Below(_))));
        question
    }

    /// What was found out about folders is kept.
    fn keep_folders(&mut self, part: Part) {
        if !self.listings.contains_key(&part)
            && self.folders(part).is_changed()
            && let Some(cookie) = self.cookies.get(&part).cloned()
            && let Some(kept) = self.kept(part, &cookie)
        {
            self.is_changed = true;
            self.sink.cookie(part, kept);
        }
    }

    /// What was found at a folder's name.
    fn looked(&mut self, part: Part, name: &[u8], found: Option<EntryId>) {
        if self.folders(part).looked(name, found) {
            self.fall_behind(part);
        }
    }

    /// A reading of single entries is on its way.
    fn reading_began(&mut self) {
        self.readings += 1;
    }

    fn reading_ended(&mut self) {
        self.readings = self.readings.saturating_sub(1);
        if self.readings == 0 {
            self.spoken.clear();
        }
    }

    /// Whether a group has changed since this was asked.
    fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.is_stirred)
    }

    /// Whether any user or group has changed since this was asked.
    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether there are groups whose members the server works out.
    fn knows_dynamic(&self) -> bool {
        self.knows_dynamic
    }

    /// All such groups are about to be read.
    fn forget_dynamic(&mut self) {
        self.knows_dynamic = false;
    }

    /// Whether an entry is such a group.
    pub fn is_dynamic(&self, search: &PartSearch, entry: &RawEntry<'_>) -> Result<bool, Malformed> {
        Ok(has_dynamic_class(entry)? && search.classify(entry, &self.mapping)?.group)
    }

    /// These entries are to be read, by their own keys.
    fn want(&self, part: Part, ids: impl IntoIterator<Item = EntryId>) {
        self.wanted.add(ids.into_iter().map(|id| (part, Want::Entry(id))));
    }

    /// Whether entries of the part are still to be read.
    fn is_waiting(&self, part: Part) -> bool {
        self.wanted.is_waiting(part)
    }

    /// Whether the part is being brought up to date.
    fn is_refreshing(&self, part: Part) -> bool {
        self.refreshing.contains(&part)
    }

    /// Whether it is, or will be, or single entries are being read.
    fn is_busy(&self, part: Part) -> bool {
        self.is_refreshing(part) || self.readings > 0 || self.behind.contains(&part)
    }

    /// Whether everything of the part is being listed.
    fn is_listing(&self, part: Part) -> bool {
        self.listings.contains_key(&part)
    }

    /// A reading below a folder is over; whether everything there was read.
    fn read_below(&mut self, part: Part, name: &[u8], is_whole: bool) {
        self.reading_ended();
        if is_whole {
            self.folders(part).was_read(name);
        } else {
            self.fall_behind(part);
        }
    }

    /// The entry of that key is there, and all of them if there are several; whether it is known.
    pub fn present(&mut self, search: &PartSearch, id: EntryId) -> bool {
        for twin in self.twins.others(search.part, id) {
            self.sink.present(search.part, twin);
        }
        self.tell_present(search, id)
    }

    /// The entry of that name is there; the key by which it is told of, and whether it is known.
    pub fn seen(&mut self, search: &PartSearch, id: EntryId, name: &[u8]) -> (EntryId, bool) {
        let key = self.twins.see(search.part, id, &dn::normalise(name));
        (key, self.tell_present(search, key))
    }

    fn tell_present(&self, search: &PartSearch, id: EntryId) -> bool {
        let is_user = search.has_users() && self.sink.present(search.part, id);
        let is_group = search.has_groups() && self.sink.present(search.part, group_id(id));
        is_user || is_group
    }

    /// Whether an entry is one that the sink is told of, by [`Mapping::telling`] attributes alone.
    pub fn is_told(&self, search: &PartSearch, entry: &RawEntry<'_>) -> Result<bool, Malformed> {
        let is = search.classify(entry, &self.mapping)?;
        Ok(is.user || is.group)
    }

    /// The attributes that tell what an entry is.
    pub fn telling(&self) -> [&str; 3] {
        self.mapping.telling()
    }

    /// Whether one of several entries that share a key was not [`seen`](Self::seen): another may have
    /// to be served.
    pub fn misses_any(&self, part: Part) -> bool {
        self.twins.misses_any(part)
    }

    /// The key by which an entry is told of.
    pub fn key(&self, part: Part, id: EntryId, name: &[u8]) -> EntryId {
        self.twins.key(part, id, &dn::normalise(name))
    }

    /// The entry is gone. `true` as of [`entry`](Self::entry).
    pub fn removed(&mut self, search: &PartSearch, id: EntryId) -> bool {
        let is_twin = self.goes(search, id, |sink, part, id| sink.removed(part, id));
        self.folders(search.part).removed(id) || is_twin
    }

    /// A read of the entry succeeded and did not show it: it does not match any more, unless the reply
    /// is incomplete. `true` as of [`entry`](Self::entry).
    pub fn left(&mut self, search: &PartSearch, id: EntryId) -> bool {
        self.goes(search, id, |sink, part, id| sink.missing(part, id))
    }

    fn goes(
        &mut self,
        search: &PartSearch,
        id: EntryId,
        tell: impl Fn(&dyn Sink, Part, EntryId),
    ) -> bool {
        self.is_changed = true;
        self.has_news = true;
        self.note_spoken(search.part, id);
        if search.has_users() {
            tell(&*self.sink, search.part, id);
        }
        self.is_stirred |= search.has_groups() || search.is_worked_out;
        if search.has_groups() {
            self.unfinished.forget(search.part, group_id(id));
            tell(&*self.sink, search.part, group_id(id));
        }
        self.twins.removed(search.part, id)
    }

    pub fn ended(&mut self, part: Part, unmentioned: Unmentioned, cookie: Option<Cookie>) {
        self.is_changed = true;
        self.refreshing.remove(&part);
        match &cookie {
            Some(cookie) => self.cookies.insert(part, cookie.clone()),
            None => self.cookies.remove(&part),
        };
        let twins = self.twins.ended(part);
        if twins > 0 {
            tracing::warn!(
                twins,
                "entries have the UUID of another entry and are not served: `roster domain \
                 rejected` names them; each has to be made anew in the directory"
            );
        }
        if let Some(mut folders) = self.listings.remove(&part) {
            folders.ended();
            self.folders.insert(part, folders);
        }
        let kept = cookie.and_then(|cookie| self.kept(part, &cookie));
        self.sink.refresh_ended(part, unmentioned, kept);
    }

    pub fn cookie(&mut self, part: Part, cookie: Cookie) {
        if self.cookies.get(&part) != Some(&cookie) {
            self.is_changed = true;
            if let Some(kept) = self.kept(part, &cookie) {
                self.sink.cookie(part, kept);
            }
            self.cookies.insert(part, cookie);
        }
    }

    /// The cookie with the folders that it goes with.
    fn kept(&mut self, part: Part, cookie: &Cookie) -> Option<Cookie> {
        let value = self.folders(part).kept_with(&cookie.value)?;
        Some(Cookie { binding: cookie.binding.clone(), value })
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            self.sink.flush();
        }
    }
}

/// How a connection's service ended.
#[derive(Default)]
pub(crate) struct End {
    /// Why; nothing when `stop` said so.
    pub error: Option<Error>,
    /// Since when everything was settled, if it ever was.
    pub settled: Option<Instant>,
}

/// The server that is followed, for a second connection to it.
pub(crate) struct Peer<'a> {
    pub server: &'a Server,
    pub settings: &'a Settings,
}

impl Peer<'_> {
    /// Whether the server answers on a new connection. While it works on a search it may read nothing else
    /// on the first one. A refusal is an answer.
    async fn answers(&self) -> bool {
        match timeout(PROBE_DEADLINE, Connection::open(self.server, self.settings)).await {
            Ok(Ok((connection, _))) => {
                connection.close().await;
                true
            }
            Ok(Err(Error::Silent { .. })) | Err(_) => false,
            Ok(Err(_)) => true,
        }
    }
}

/// Follows changes until the connection fails or `stop` is over. `heard` is called once, when the
/// server first answers a search.
pub(crate) async fn follow(
    connection: &mut Connection,
    tracks: &mut [Box<dyn Track>],
    ear: &mut Ear,
    search_timeout: Duration,
    heard: impl FnOnce() + Send,
    (peer, network): (&Peer<'_>, &Network),
    stop: Pin<&mut (impl Future<Output = ()> + Send)>,
) -> End {
    let mut settled = None;
    let settled_at = &mut settled;
    let driver =
        Driver { connection, tracks, ear, search_timeout, peer, network, settled: settled_at };
    let error = driver.run(heard, stop).await.err();
    End { error, settled }
}

struct Driver<'a> {
    connection: &'a mut Connection,
    tracks: &'a mut [Box<dyn Track>],
    ear: &'a mut Ear,
    search_timeout: Duration,
    peer: &'a Peer<'a>,
    network: &'a Network,
    settled: &'a mut Option<Instant>,
}

impl Driver<'_> {
    async fn run(
        self,
        heard: impl FnOnce() + Send,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<(), Error> {
        let mut heard = Some(heard);
        // What this side sends is traffic, and no sign of life.
        let mut last_traffic = Instant::now();
        let mut last_heard = last_traffic;
        let mut probe: Option<(u32, Instant)> = None;
        // A probe over a second connection, while a reply is outstanding; and when the last one was answered.
        let peer = self.peer;
        let mut second: Option<Pin<Box<dyn Future<Output = bool> + Send + '_>>> = None;
        let mut vouched = last_traffic;
        let mut told_of_references = false;
        let mut is_doubtful = false;
        loop {
            let now = Instant::now();
            for track in self.tracks.iter_mut() {
                track.act(self.connection, self.ear, now);
            }
            let awaits = self.tracks.iter().any(|track| track.awaits());
            let doubt = std::mem::take(&mut is_doubtful);
            let is_quiet = now >= last_heard + PROBE_INTERVAL;
            if !awaits && probe.is_none() && (is_quiet || doubt) {
                probe = Some((queue_probe(self.connection), now));
            }
            let second_due = last_heard.max(vouched) + PROBE_INTERVAL;
            if !awaits {
                second = None;
            } else if second.is_none() && now >= second_due {
                second = Some(Box::pin(peer.answers()));
            }
            if self.connection.has_queued() {
                self.connection.flush().await?;
                last_traffic = Instant::now();
            }
            let (limit, silence) = match (awaits, probe) {
                (true, _) => (
                    last_traffic + self.search_timeout,
                    Some(Error::Silent { what: "a search", deadline: self.search_timeout }),
                ),
                (false, Some((_, sent))) => (
                    sent + PROBE_DEADLINE,
                    Some(Error::Silent { what: "a probe", deadline: PROBE_DEADLINE }),
                ),
                (false, None) => (last_heard + PROBE_INTERVAL, None),
            };
            let second_due = Some(second_due).filter(|_| awaits && second.is_none());
            let due = self.tracks.iter().filter_map(|track| track.due()).chain(second_due).min();
            let has_room = self.ear.sink.has_room();
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                ready = self.connection.ready(), if has_room => ready?,
                () = sleep(ROOM_PAUSE), if !has_room => {
                    // It is us who are silent.
                    last_traffic = Instant::now();
                    last_heard = last_traffic;
                    probe = probe.map(|(id, _)| (id, last_traffic));
                    second = None;
                    continue;
                }
                () = self.network.changed() => {
                    is_doubtful = true;
                    continue;
                }
                () = self.ear.wanted.changed() => continue,
                answers = answer_of(&mut second) => {
                    second = None;
                    vouched = Instant::now();
                    if !answers {
                        let what = "a probe over a second connection";
                        return Err(Error::Silent { what, deadline: PROBE_DEADLINE });
                    }
                    continue;
                }
                () = sleep_until(due.map_or(limit, |due| due.min(limit))) => {
                    match silence {
                        Some(silence) if Instant::now() >= limit => return Err(silence),
                        _ => continue,
                    }
                }
            }
            let batch_began = Instant::now();
            loop {
                let response = self.connection.take()?;
                if matches!(response.operation, Operation::Reference) && !told_of_references {
                    told_of_references = true;
                    tracing::info!(
                        "the server refers to others, which is not followed: name them as domains of their own"
                    );
                }
                if probe.is_some_and(|(id, _)| id == response.id) {
                    if matches!(response.operation, Operation::SearchDone(_)) {
                        probe = None;
                    }
                } else if let Some(track) =
                    self.tracks.iter_mut().find(|track| track.owns(response.id))
                {
                    track.hear(&response, self.ear)?;
                    if let Some(heard) = heard.take() {
                        heard();
                    }
                }
                last_traffic = Instant::now();
                last_heard = last_traffic;
                second = None;
                if last_traffic >= batch_began + BATCH_MAX
                    || !self.ear.sink.has_room()
                    || !self.connection.ready_now().await?
                {
                    break;
                }
            }
            if self.tracks.iter().all(|track| track.is_settled())
                && self.ear.behind.is_empty()
                && self.ear.unfinished.is_empty()
            {
                self.settled.get_or_insert(last_traffic);
                self.ear.flush();
            }
        }
    }
}

/// What the probe over a second connection finds; never without one.
async fn answer_of(second: &mut Option<Pin<Box<dyn Future<Output = bool> + Send + '_>>>) -> bool {
    match second {
        Some(second) => second.await,
        None => std::future::pending().await,
    }
}

/// Asks the server for what every server has; its id.
pub(crate) fn queue_probe(connection: &mut Connection) -> u32 {
    let request = Request::Search(SearchRequest {
        base: "",
        scope: Scope::Base,
        filter: &Filter::present("objectClass"),
        attributes: &["1.1"],
        entries_max: 0,
    });
    connection.queue(&request, &[])
}

/// A search that ended when it should not have, with what would mend it where that is known.
/// What was kept with a cookie, read and written again; `None` where it is nothing that is kept. The
/// cache is our own, and checked, but outlives versions: the fuzz target reads any bytes with it.
pub fn reread(kept: &[u8]) -> Option<Vec<u8>> {
    let (cookie, mut folders) = Folders::of_kept(kept)?;
    match history::History::parse(&cookie) {
        Ok((history, cookie)) => folders.kept_with(&history.with(cookie)?),
        Err(_) => folders.kept_with(&cookie),
    }
}

fn search_failed(search: &PartSearch, outcome: Outcome<'_>) -> Error {
    let advice = match outcome.code {
        code::SUCCESS => "; the server ended it although it was to go on",
        code::SIZE_LIMIT | code::ADMIN_LIMIT | code::TIME_LIMIT => {
            "; lift the server's limits for the bind DN, a part of the directory is never taken for \
             the whole"
        }
        code::NO_SUCH_OBJECT => "; check the base, and that the bind DN may read it",
        code::INSUFFICIENT_ACCESS => "; the bind DN may not search there",
        code::SYNC_REFRESH_REQUIRED => "; the server's content synchronization does not work",
        _ => "",
    };
    Error::Search {
        base: search.base.clone(),
        outcome: format!("{outcome}{advice}"),
        code: outcome.code,
    }
}

/// Of the stamps that servers give to changed entries: longer is later (numbers), else the text
/// decides (times).
fn is_later(stamp: &[u8], than: &[u8]) -> bool {
    (stamp.len(), stamp) > (than.len(), than)
}

/// An entry that cannot be kept apart from others over time.
pub(crate) fn keyless(entry: &RawEntry<'_>, attribute: &str) -> Error {
    Error::Keyless { dn: printable(entry.dn), attribute: attribute.to_owned() }
}

fn too_many(search: &PartSearch, TooMany { what, most }: TooMany) -> Error {
    Error::TooManyEntries { base: search.base.clone(), what, most }
}

fn too_many_folders(search: &PartSearch) -> Error {
    Error::TooManyFolders { base: search.base.clone() }
}
