//! The middle of a back-end: takes what a provider reports, gives every entry a number that stays,
//! and knows what is to be written to the cache and what the publisher has not seen yet.
//!
//! Knows no directory and no bus. Whatever calls it, a provider through [`Sink`], the bus's object or
//! the task that writes the cache, holds its lock for as long as it takes to change memory and never
//! while waiting. Records themselves are not kept here but in the cache and, until they are written,
//! in batches.

mod accounts;
mod loaded;
mod mending;
mod on_demand;
mod removal;
mod renumber;
mod writing;

pub use loaded::Loaded;
pub use mending::InDoubt;
pub use on_demand::{Found, Inquiry};
pub use removal::{Absent, Chunk};

use super::NUMBERS_MAX;
use super::asked::{Answer, Asked, Seen};
use super::batch::{Batch, Log};
use super::deletion::Guard;
use super::doubts::Doubts;
use super::entries::{Entries, Kind, Slot, Ways};
use super::image::View;
use super::references::{Interned, References};
use super::rejected::Rejections;
use super::writer::Why;
use roster_bus::exchange::{
    self, COMPLETE, CURRENT, Header, NO_REFERENCE, REMOVALS_JUDGED, TooLong,
};
use roster_bus::interfaces;
use roster_config::Mode;
use roster_provider::{Cookie, Entry, EntryId, Member, Part, Rejected, Sink, Unmentioned, User};
use roster_store::{self as store, Key, Rejection, Store, StoreError};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};

/// Reported at once to the writer; smaller batches wait for more.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that may wait for a disk that does not take them. More become one.
const UNWRITTEN_MAX: usize = 256;
/// Bytes in them, as long as the disk takes them at all: a provider waits for it.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;

/// What an engine is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The domain.
    pub domain: String,
    /// Mirrored or asked.
    pub mode: Mode,
    /// Share of the entries whose removal at once is held.
    pub mass_deletion: f64,
    /// Lists name entries by DN: they may name groups, and a server may mend them without a word when an entry
    /// goes or gets another DN.
    pub has_dn_lists: bool,
    /// Lists may name users by name.
    pub has_name_lists: bool,
    /// Users log in: what is known of their accounts is kept.
    pub has_log_ins: bool,
    /// The source states by itself which entries it does not have, as text files do.
    pub states_removals: bool,
}

/// What others are told without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The state up to which changes can be fetched; 0 before there is one.
    pub sequence: u64,
    /// Whether the directory answers; `None` before that is known.
    pub online: Option<bool>,
    /// The server in use, or the last one.
    pub server: String,
    /// Why the directory does not answer.
    pub reason: String,
    /// Since when it does or does not, in seconds since 1970.
    pub since_unix: u64,
}

/// Why there is nothing to fetch.
#[derive(Debug, thiserror::Error)]
pub enum NoView {
    /// The first enumeration has not ended.
    #[error("the domain was not enumerated yet{}", .0.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Incomplete(Option<String>),
    /// What was written cannot be read at the moment.
    #[error("the cache cannot be read: {0}")]
    Cache(String),
}

/// See the module.
pub struct Engine {
    settings: Settings,
    epoch: u64,
    state: Mutex<State>,
    news: watch::Sender<News>,
    /// There is something to write.
    unwritten: Notify,
    /// There is so much of it that it should not wait.
    pressing: Notify,
    /// Lists are in doubt.
    doubts: Notify,
    /// Entries are missing.
    missing: Notify,
    /// How far the cache has what was reported.
    committed: watch::Sender<Committed>,
}

/// How far the cache has what was reported.
#[derive(Clone, Copy, Debug, Default)]
struct Committed {
    /// The place of the last batch that is durable.
    place: u64,
    /// The last write failed.
    is_failing: bool,
}

struct State {
    /// The parts that make the domain whole, once they are known.
    wanted: Option<Vec<Part>>,
    parts: BTreeMap<u8, PartState>,
    entries: Entries,
    references: References,
    rejected: Rejections,
    /// Nothing in a mirror.
    asked: Asked,
    /// Of entries that are named as deleted.
    guards: [Guard; Kind::ALL.len()],
    /// Of entries that are missing.
    missing_guards: [Guard; Kind::ALL.len()],
    /// Entries that a reply lacked, which are served until a search by their keys decides.
    missing: [HashSet<Key>; Kind::ALL.len()],
    /// Since when there are any.
    missing_since: Option<Instant>,
    /// Entries whose removal waits for a confirmation.
    held: [HashSet<Key>; Kind::ALL.len()],
    /// Parts in which other removals wait than the cache knows.
    held_changed: BTreeSet<u8>,
    /// Missing groups, each with its users. Replies about these users lacked the group.
    lacked: HashMap<Key, BTreeSet<u32>>,
    /// Users, each with a group that a reply lacked and that the directory has shown since: the next reply without the
    /// group ends the membership.
    shown: BTreeSet<(u32, u32)>,
    /// A reply lacked groups, for which nothing has looked yet.
    is_lacked: bool,
    doubts: Doubts,
    next_number: u32,
    marks: u32,
    /// Reported since the last flush.
    open: Batch,
    /// When the first of what nobody has fetched yet was reported.
    unfetched: Option<Instant>,
    unwritten: VecDeque<Arc<Batch>>,
    unwritten_bytes: usize,
    /// The place of the last batch, and of the last one that changes what is served.
    place: u64,
    visible_place: u64,
    log: Log,
    /// Whether there is a state that others may see.
    serving: bool,
    /// Whether the directory has told what changed since the cache was written.
    current: bool,
    /// The process began with a whole domain from the cache.
    is_resumed: bool,
    sequence: u64,
    store: Option<Arc<Store>>,
    /// The number that the next new entry got according to the cache; none as long as there is no
    /// cache, and all that is known is in `unwritten`.
    stored: Option<u32>,
    /// What became of the cache that the process found.
    found: Option<Why>,
    /// Why the cache cannot be written.
    cache_error: String,
    last_change_unix: u64,
    scratch: Vec<u8>,
    members: Vec<u32>,
    full_said: bool,
}

#[derive(Default)]
struct PartState {
    lasting: store::Part,
    /// The refresh that is going on.
    refresh: Option<u32>,
    /// It was told of an entry that this is as it was, and not what it is.
    is_partial: bool,
    /// The cookie, or that there is none, beyond removals that wait.
    beyond: Option<Option<Cookie>>,
    /// Whether a refresh ended in this process.
    heard: bool,
}

impl Engine {
    /// An engine that goes on from what was in the cache. Where there is no cache, because `store`
    /// could not be opened, it goes on without.
    #[must_use]
    pub fn new(
        settings: Settings,
        loaded: Loaded,
        store: Option<Arc<Store>>,
        why: Option<Why>,
    ) -> Arc<Self> {
        let Loaded { parts, entries, references, rejected, asked, next_number } = loaded;
        let stored = store.as_ref().map(|_| next_number);
        // Damage is worth knowing for as long as the process lives, what keeps a cache from being opened
        // only until it is.
        let (found, cache_error) = match why {
            Some(Why::Unopened(error)) => (None, error),
            why => (why, String::new()),
        };
        let mut held: [HashSet<Key>; Kind::ALL.len()] = Default::default();
        for (&part, state) in &parts {
            let keys = state.lasting.held.iter().map(|&id| Key { part, id });
            for slot in keys.filter_map(|key| entries.get(key)) {
                held[slot.kind as usize].insert(slot.key);
            }
        }
        let is_mirror = settings.mode == Mode::Replicate;
        let mut doubts = Doubts::new(is_mirror && settings.has_dn_lists);
        for (&part, state) in &parts {
            doubts.restore(part, &state.lasting.doubts, Instant::now());
        }
        let state = State {
            wanted: None,
            parts,
            entries,
            references,
            rejected,
            asked,
            guards: Kind::ALL.map(|_| Guard::named(settings.mass_deletion)),
            missing_guards: Kind::ALL.map(|_| Guard::missing()),
            missing: Default::default(),
            missing_since: None,
            held,
            held_changed: BTreeSet::new(),
            lacked: HashMap::new(),
            shown: BTreeSet::new(),
            is_lacked: false,
            doubts,
            next_number,
            marks: 0,
            open: Batch::default(),
            unfetched: None,
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            place: 0,
            visible_place: 0,
            log: Log::default(),
            serving: false,
            current: false,
            is_resumed: false,
            sequence: 0,
            store,
            stored,
            found,
            cache_error,
            last_change_unix: 0,
            scratch: Vec::new(),
            members: Vec::new(),
            full_said: false,
        };
        Arc::new(Self {
            settings,
            // Never 0, with which a publisher that knows no process begins.
            epoch: RandomState::new().build_hasher().finish() | 1,
            state: Mutex::new(state),
            news: watch::Sender::new(News::default()),
            unwritten: Notify::new(),
            pressing: Notify::new(),
            doubts: Notify::new(),
            missing: Notify::new(),
            committed: watch::Sender::default(),
        })
    }

    /// Tells which parts make the domain whole. If they are all there, the domain is served from now
    /// on, before any directory was asked.
    pub fn begin(&self, parts: Vec<Part>) {
        {
            let mut state = self.state();
            state.wanted = Some(parts);
            state.is_resumed = state.is_whole(&self.settings);
        }
        self.flush();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic ends the process; in tests, where it does not, the state is still one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What others are told without asking.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// The random number of this process's states.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where change tracking stood when the process before ended.
    #[must_use]
    pub fn cookies(&self) -> Vec<(Part, Cookie)> {
        let state = self.state();
        let whole = state.parts.iter().filter(|(_, part)| part.lasting.complete);
        let cookie = |(&number, part): (&u8, &PartState)| {
            let (binding, value) = part.lasting.cookie.clone()?;
            Some((Part(number), Cookie { binding, value }))
        };
        whole.filter_map(cookie).collect()
    }

    /// What leads from a state to the present one, or the present one whole.
    pub fn view(&self, epoch: u64, since: u64) -> Result<View, NoView> {
        let mut state = self.state();
        if !state.serving {
            let news = self.news.borrow();
            let why = (news.online == Some(false)).then(|| news.reason.clone());
            return Err(NoView::Incomplete(why));
        }
        let complete = if self.settings.mode == Mode::Replicate { COMPLETE } else { 0 };
        let is_judged = self.settings.states_removals || state.is_resumed;
        let flags = complete
            | if state.current { CURRENT } else { 0 }
            | if is_judged { REMOVALS_JUDGED } else { 0 };
        let sequence = state.sequence;
        let mut header = Header { flags, epoch: self.epoch, since, sequence, records: 0 };
        let known = epoch == self.epoch && (1..=sequence).contains(&since);
        let changes = if known { state.log.since(since) } else { None };
        let view = match changes {
            Some(batches) => View { header, base: None, batches },
            None => {
                header.since = 0;
                state.everything(header)?
            }
        };
        if let Some(since) = state.unfetched.take() {
            metrics::histogram!("roster_sync_lag_seconds").record(since.elapsed());
        }
        Ok(view)
    }

    /// Entries that are not served because they cannot be read.
    #[must_use]
    pub fn rejections(&self, from: u32, at_most: u32) -> Vec<interfaces::Rejected> {
        let state = self.state();
        let listed = state.rejected.list(from as usize).take(at_most as usize);
        let listed = listed.map(|(_, rejection)| {
            let Rejection { name, reason, .. } = rejection.clone();
            interfaces::Rejected { kind: "entry".into(), name, reason }
        });
        listed.collect()
    }

    /// How the domain is; what the provider knows better stays empty.
    #[must_use]
    pub fn status(&self) -> interfaces::DomainStatus {
        let news = self.news.borrow().clone();
        let state = self.state();
        let refreshed = state.parts.values().map(|part| part.lasting.refreshed_unix).min();
        interfaces::DomainStatus {
            domain: self.settings.domain.clone(),
            mode: match self.settings.mode {
                Mode::Replicate => "replicate".into(),
                Mode::OnDemand => "on-demand".into(),
            },
            online: news.online == Some(true),
            since_unix: news.since_unix,
            server: news.server,
            reason: news.reason,
            complete: self.settings.mode == Mode::Replicate && state.is_whole(&self.settings),
            users: state.entries.count(Kind::User),
            groups: state.entries.count(Kind::Group),
            mixed_groups: state.entries.mixed(),
            rejected: state.rejected.count(),
            last_change_unix: state.last_change_unix,
            last_refresh_unix: refreshed.unwrap_or_default(),
            held_removals: state.held_count() + state.undecided_count(),
            epoch: self.epoch,
            sequence: state.sequence,
            cache_error: state.cache_error(&self.settings).to_owned(),
            ..interfaces::DomainStatus::default()
        }
    }

    /// How long ago everything was read; `None` if it never was, or by a clock that was ahead.
    #[must_use]
    pub fn read_age(&self) -> Option<Duration> {
        let state = self.state();
        let read = state.parts.values().map(|part| part.lasting.read_unix).min();
        // The clock was set back behind it: how long ago it was nobody knows.
        let read = read.filter(|&read| read > 0 && read <= unix_now())?;
        Some(Duration::from_secs(unix_now().saturating_sub(read)))
    }

    /// Whether the directory answers, and no reading of it is under way.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let is_online = self.news.borrow().online == Some(true);
        is_online && self.state().parts.values().all(|part| part.refresh.is_none())
    }

    fn set_online(&self, online: bool, server: Option<&str>, reason: &str) {
        self.news.send_if_modified(|news| {
            let server = server.unwrap_or(&news.server);
            let same = news.online == Some(online) && news.server == server;
            if same && news.reason == reason {
                return false;
            }
            if news.online != Some(online) {
                news.since_unix = unix_now();
            }
            news.online = Some(online);
            news.server = server.to_owned();
            news.reason = reason.to_owned();
            true
        });
    }
}

impl Sink for Engine {
    fn online(&self, server: &str, passed_over: &str) {
        self.set_online(true, Some(server), passed_over);
    }

    fn offline(&self, reason: &str) {
        self.set_online(false, None, reason);
    }

    fn refresh_began(&self, part: Part) {
        let mut state = self.state();
        state.marks += 1;
        let mark = state.marks;
        let refreshed = state.parts.entry(part.0).or_default();
        (refreshed.refresh, refreshed.is_partial) = (Some(mark), false);
        state.rejected.refresh_began(part.0);
    }

    fn put(&self, part: Part, id: EntryId, entry: Entry<'_>) {
        self.put_together(part, vec![(id, entry)]);
    }

    /// Under one lock, so that no flush of another comes between two of them.
    fn put_together(&self, part: Part, entries: Vec<(EntryId, Entry<'_>)>) {
        let mut state = self.state();
        for (id, entry) in entries {
            state.put(&self.settings, key_of(part, id), &entry);
        }
        if !state.serving && state.open.bytes() >= BATCH_BYTES {
            // Nobody sees it before all is there, so it may go to the disk.
            state.seal();
            self.pressing.notify_one();
            self.unwritten.notify_one();
        }
    }

    fn present(&self, part: Part, id: EntryId) -> bool {
        self.state().present(key_of(part, id))
    }

    fn removed(&self, part: Part, id: EntryId) {
        let mut state = self.state();
        let key = key_of(part, id);
        state.take_off_rejected(key);
        state.remove_all(&self.settings, &[key]);
    }

    fn missing(&self, part: Part, id: EntryId) {
        self.state().note_missing(&self.settings, &[key_of(part, id)]);
        self.missing.notify_one();
    }

    fn rejected(&self, part: Part, id: EntryId, rejected: &Rejected<'_>) {
        let rejection = Rejection {
            name: rejected.name.to_owned(),
            reference: rejected.reference.to_vec(),
            reason: rejected.reason.to_owned(),
        };
        self.state().reject(&self.settings, key_of(part, id), rejection);
    }

    fn refresh_ended(&self, part: Part, unmentioned: Unmentioned, cookie: Option<Cookie>) {
        self.state().refresh_ended(&self.settings, part.0, unmentioned, cookie);
        self.missing.notify_one();
    }

    fn cookie(&self, part: Part, cookie: Cookie) {
        self.state().cookie(part.0, Some(cookie));
    }

    fn groups_of(&self, user: EntryId, groups: &[EntryId]) {
        self.state().groups_of(&self.settings, user, groups);
    }

    fn members_unknown(&self, part: Part, id: EntryId) {
        self.state().members_unknown(key_of(part, id));
    }

    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        self.state().knows(members)
    }

    /// Without a cache that can be written everything stays in memory, and there is nothing to wait
    /// for. One that is open again after a failed write may be for reading only.
    fn has_room(&self) -> bool {
        let state = self.state();
        let is_written = state.store.is_some() && state.cache_error.is_empty();
        !is_written || state.unwritten_bytes < UNWRITTEN_BYTES_MAX
    }

    fn flush(&self) {
        self.close(&mut self.state());
    }
}

impl Engine {
    /// What was reported so far is a state, which can be fetched from now on.
    fn close(&self, state: &mut State) {
        state.cookies_that_waited();
        state.keep_held();
        let began = state.serving;
        let caught_up = !state.current && state.has_heard(&self.settings);
        state.current |= caught_up;
        if !began && state.is_whole(&self.settings) {
            state.serve();
        } else if began && (caught_up || state.open.visible() > 0) {
            state.sequence += 1;
        }
        if began && state.open.visible() > 0 {
            state.last_change_unix = unix_now();
            metrics::counter!("roster_changes_total").increment(state.open.visible() as u64);
        }
        if state.seal() {
            self.unwritten.notify_one();
        }
        if state.doubts.due().is_some() {
            self.doubts.notify_one();
        }
        metrics::gauge!("roster_rejected_entries").set(gauge(state.rejected.count()));
        for kind in Kind::ALL {
            let count = gauge(state.entries.count(kind));
            metrics::gauge!("roster_entries", "kind" => kind.name()).set(count);
        }
        metrics::gauge!("roster_held_removals").set(gauge(state.held_count()));
        let sequence = state.sequence;
        // Before the lock goes, so that the states are told in their order.
        self.news.send_if_modified(|news| {
            let later = news.sequence != sequence;
            news.sequence = sequence;
            later
        });
    }
}

#[allow(clippy::cast_precision_loss)] // counts of at most 2^24
fn gauge(count: u64) -> f64 {
    count as f64
}

impl State {
    /// Everything that is known.
    fn everything(&self, header: Header) -> Result<View, NoView> {
        let unreadable = |error: StoreError| NoView::Cache(error.to_string());
        // Begun under the lock: the cache holds all batches but those in `unwritten`, or some of these
        // already, which lie over it all the same.
        let base = match &self.store {
            Some(store) => Some(store.reader().map_err(unreadable)?),
            None if self.stored.is_some() => {
                return Err(NoView::Cache(self.cache_error.clone()));
            }
            None => None,
        };
        Ok(View { header, base, batches: self.unwritten.iter().cloned().collect() })
    }

    /// Whether everything is known that the directory has, or all that anybody asked for.
    fn is_whole(&self, settings: &Settings) -> bool {
        let complete =
            |part: &Part| self.parts.get(&part.0).is_some_and(|part| part.lasting.complete);
        let whole = self.wanted.as_ref().is_some_and(|parts| parts.iter().all(complete));
        settings.mode == Mode::OnDemand || whole
    }

    /// What there is to say of the cache: damage for as long as the process lives, that another's was there
    /// until everything is read, what keeps it from being written until it is.
    fn cache_error(&self, settings: &Settings) -> &str {
        match &self.found {
            _ if !self.cache_error.is_empty() => &self.cache_error,
            Some(Why::Damaged(text)) => text,
            Some(Why::Foreign(text)) if !self.is_whole(settings) => text,
            _ => "",
        }
    }

    /// Whether every part was told anew, or what changed of it, since the process began.
    fn has_heard(&self, settings: &Settings) -> bool {
        let heard = |part: &Part| self.parts.get(&part.0).is_some_and(|part| part.heard);
        let all = self.wanted.as_ref().is_some_and(|parts| parts.iter().all(heard));
        settings.mode == Mode::OnDemand || all
    }

    /// From now on there is a state that others see, and this is the first.
    fn serve(&mut self) {
        self.serving = true;
        self.sequence += 1;
        self.log = Log::new(self.sequence);
    }

    /// Closes the open batch; whether there was anything in it.
    fn seal(&mut self) -> bool {
        self.keep_doubts();
        if self.open.is_empty() {
            return false;
        }
        self.open.sequence = self.sequence;
        let visible = self.open.visible() > 0;
        self.place += 1;
        self.open.place = self.place;
        if visible {
            self.visible_place = self.place;
        }
        let batch = Arc::new(std::mem::take(&mut self.open));
        if self.serving && visible && batch.sequence > self.log.last() {
            self.log.push(Arc::clone(&batch));
        }
        self.unwritten_bytes += batch.bytes();
        self.unwritten.push_back(batch);
        if self.unwritten.len() > UNWRITTEN_MAX {
            let joined = Batch::joined(self.unwritten.iter().map(|batch| &**batch));
            self.unwritten_bytes = joined.bytes();
            self.unwritten = VecDeque::from([Arc::new(joined)]);
        }
        true
    }

    fn put(&mut self, settings: &Settings, key: Key, entry: &Entry<'_>) {
        self.take_off_rejected(key);
        self.not_held(key);
        let known = self.entries.get(key).copied();
        let number = known.map_or(self.next_number, |slot| slot.number);
        let (kind, name) = match entry {
            Entry::User(user) => (Kind::User, &user.name),
            Entry::Group(group) => (Kind::Group, &group.name),
        };
        let encoded = match number < NUMBERS_MAX {
            true => self.encode(settings, number, entry).map_err(|too_long| too_long.to_string()),
            false if self.entries.len() < NUMBERS_MAX as usize / 2 => {
                Err("all numbers of the cache are given out: restart rosterd, which renumbers it"
                    .into())
            }
            false => Err(format!("the domain has more than {NUMBERS_MAX} entries")),
        };
        let (reference, ways) = match encoded {
            Ok(encoded) => encoded,
            Err(reason) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let reference = match entry {
                    Entry::User(_) => Vec::new(),
                    Entry::Group(group) => group.reference.to_vec(),
                };
                return self.reject(settings, key, Rejection { name, reference, reason });
            }
        };
        let seen = match settings.mode {
            Mode::Replicate => Seen::default(),
            Mode::OnDemand => self.seen_now(number, entry),
        };
        if known.is_none() {
            self.parts.entry(key.part).or_default();
            self.next_number += 1;
            self.open.next_number(self.next_number);
        }
        let mark = self.mark(key.part);
        let account = match entry {
            Entry::User(user) if settings.has_log_ins => Some(user.account.to_bytes()),
            Entry::User(_) | Entry::Group(_) => None,
        };
        let digest = digest(&self.scratch) ^ account.as_deref().map_or(0, digest_of_account);
        let is_other = known.is_none_or(|before| before.digest != digest);
        let slot = Slot { key, kind, ways, number, reference, mark, digest };
        self.keep(settings.mode, slot, seen);
        if let Some(account) = account.filter(|_| is_other) {
            self.open.account(number, &account);
        }
    }

    /// The entry's records are what is in `scratch`.
    fn keep(&mut self, mode: Mode, slot: Slot, seen: Seen) {
        let Slot { key, kind, number, reference, digest, .. } = slot;
        let header = header(&slot, seen);
        let known = self.entries.get(key).copied();
        self.entries.put(slot);
        if known.is_none_or(|before| before.reference != reference) {
            let now = Instant::now();
            if let Some(before) = known {
                self.doubts.left(key.part, before.reference, now);
            }
            // What is read first comes with all lists.
            if self.serving {
                self.doubts.taken(key.part, reference, now);
            }
        }
        if known.is_some_and(|before| (before.kind, before.digest) == (kind, digest)) {
            if mode == Mode::OnDemand {
                self.asked.seen(number, seen);
                self.open.seen(key, header);
            }
            return;
        }
        self.open.put(key, header, &self.scratch);
        self.unfetched.get_or_insert_with(Instant::now);
        if mode == Mode::OnDemand
            && let Some(answer) = Answer::read(key, seen, &self.scratch)
        {
            let before = self.asked.get(number).map_or(answer.references(), Answer::references);
            let now = answer.references();
            self.asked.put(number, answer);
            for left in before.into_iter().filter(|reference| !now.contains(reference)) {
                self.named_no_more(left);
            }
        }
    }

    /// Puts the entry's records into `scratch`, and gives the number of its DN and the ways in which it
    /// names members. A group's members or a user's groups that
    /// this reply lacks stay as an earlier reply gave them.
    fn encode(
        &mut self,
        settings: &Settings,
        number: u32,
        entry: &Entry<'_>,
    ) -> Result<(u32, Ways), TooLong> {
        let mut record = std::mem::take(&mut self.scratch);
        let mut members = std::mem::take(&mut self.members);
        record.clear();
        members.clear();
        let before = self.asked.get(number);
        let encoded = match entry {
            Entry::User(user) => {
                let groups =
                    before.and_then(|before| Some((before.references(), before.groups.clone()?)));
                let reference = self.reference(&by_dn(&user.reference));
                let by_name = match settings.has_name_lists {
                    true => self.reference(&Member::Name(Cow::Borrowed(&user.name))),
                    false => NO_REFERENCE,
                };
                // Of somebody who may be another one nothing is kept.
                let groups = groups.filter(|(before, _)| *before == [reference, by_name]);
                let groups = groups.map(|(_, groups)| groups);
                let written = write_user(&mut record, number, [reference, by_name], user);
                let written = written.and_then(|()| match groups {
                    Some(groups) => exchange::write_groups_of(&mut record, number, &groups),
                    None => Ok(()),
                });
                written.map(|()| (reference, Ways::default()))
            }
            Entry::Group(group) => {
                let known = match &group.members {
                    Some(named) => {
                        members.extend(named.iter().map(|member| self.reference(member)));
                        Some(named.iter().fold(Ways::default(), Ways::with))
                    }
                    None => {
                        before.filter(|before| *before.name == *group.name).and_then(|before| {
                            members.extend(before.members()?.iter());
                            self.entries.get(before.key).map(|slot| slot.ways)
                        })
                    }
                };
                let reference = self.reference(&by_dn(&group.reference));
                let members = known.map(|_| members.as_slice());
                let (gid, name) = (group.gid, &group.name);
                exchange::write_group(&mut record, number, reference, gid, name, members)
                    .map(|()| (reference, known.unwrap_or_default()))
            }
        };
        self.scratch = record;
        self.members = members;
        encoded
    }

    /// The number of a reference. An empty one is none: nothing names the entry.
    fn reference(&mut self, member: &Member<'_>) -> u32 {
        let (Member::Name(text) | Member::Dn(text)) = member;
        if text.is_empty() {
            return NO_REFERENCE;
        }
        match self.references.intern(member) {
            Interned::Known(number) => number,
            Interned::New(number) => {
                self.open.reference(number, self.references.bytes(number).unwrap_or_default());
                number
            }
            Interned::Full => {
                if !std::mem::replace(&mut self.full_said, true) {
                    tracing::error!(
                        "the member lists of the domain name more than {NUMBERS_MAX} different \
                         members; those beyond are left out"
                    );
                }
                NO_REFERENCE
            }
        }
    }

    fn present(&mut self, key: Key) -> bool {
        let mark = self.mark(key.part);
        self.not_held(key);
        let is_known = self.entries.mark(key, mark) || self.rejected.present(key, mark);
        if is_known && let Some(part) = self.parts.get_mut(&key.part) {
            part.is_partial = true;
        }
        is_known
    }

    fn reject(&mut self, settings: &Settings, key: Key, rejection: Rejection) {
        let mark = self.mark(key.part);
        // Before it is asked for below: a refresh that rejects an entry has mentioned it.
        self.entries.mark(key, mark);
        if self.rejected.add(key, rejection.clone(), mark) {
            self.open.rejected(key, Some(rejection));
        }
        // Attributes that an access rule hides make all entries unreadable at once: that is held as
        // if they were gone.
        self.remove_all(settings, &[key]);
    }

    fn take_off_rejected(&mut self, key: Key) {
        if self.rejected.remove(key) {
            self.open.rejected(key, None);
        }
    }

    fn refresh_ended(
        &mut self,
        settings: &Settings,
        number: u8,
        unmentioned: Unmentioned,
        cookie: Option<Cookie>,
    ) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        let Some(mark) = part.refresh.take() else { return };
        part.lasting.refreshed_unix = unix_now();
        part.heard = true;
        if unmentioned != Unmentioned::Kept {
            part.lasting.complete = true;
            if !part.is_partial {
                part.lasting.read_unix = unix_now();
            }
            let gone = |slot: &&Slot| slot.key.part == number && slot.mark != mark;
            let gone: Vec<Key> = self.entries.iter().filter(gone).map(|slot| slot.key).collect();
            for key in self.rejected.refresh_ended(number, mark) {
                self.open.rejected(key, None);
            }
            match unmentioned {
                Unmentioned::Missing => {
                    self.note_missing(settings, &gone);
                }
                Unmentioned::Gone | Unmentioned::Kept => self.remove_all(settings, &gone),
            }
        }
        match cookie {
            None if unmentioned == Unmentioned::Kept => self.part_changed(number),
            cookie => self.cookie(number, cookie),
        }
    }

    /// A cookie beyond removals that wait must wait with them: after a restart, the directory tells
    /// of them again.
    fn cookie(&mut self, number: u8, cookie: Option<Cookie>) {
        let waits = self.is_held(number);
        let part = self.parts.entry(number).or_default();
        if waits {
            part.beyond = Some(cookie);
        } else {
            part.beyond = None;
            part.lasting.cookie = cookie.map(|cookie| (cookie.binding, cookie.value));
        }
        self.part_changed(number);
    }

    fn part_changed(&mut self, number: u8) {
        if let Some(part) = self.parts.get(&number) {
            self.open.part(number, part.lasting.clone());
        }
    }

    /// Numbers of all parts that ever reported anything; few.
    fn parts_known(&self) -> impl Iterator<Item = u8> {
        self.parts.keys().copied()
    }

    fn mark(&self, part: u8) -> u32 {
        self.parts.get(&part).and_then(|part| part.refresh).unwrap_or_default()
    }
}

fn write_user(
    out: &mut Vec<u8>,
    number: u32,
    [reference, by_name]: [u32; 2],
    user: &User<'_>,
) -> Result<(), TooLong> {
    let User { name, uid, gid, gecos, dir, shell, .. } = user;
    let (uid, gid) = (*uid, *gid);
    exchange::write_user(
        out,
        &exchange::User { number, reference, by_name, uid, gid, name, gecos, dir, shell },
    )
}

fn by_dn(dn: &[u8]) -> Member<'_> {
    Member::Dn(Cow::Borrowed(dn))
}

/// What the cache keeps of an entry beside its records.
fn header(slot: &Slot, seen: Seen) -> store::Header {
    let &Slot { number, kind, ways, reference, digest, .. } = slot;
    let Seen { entry: seen_unix, list: list_seen_unix } = seen;
    let (kind, list) = (kind as u8, ways.number());
    store::Header { number, kind, list, reference, digest, seen_unix, list_seen_unix }
}

fn key_of(part: Part, id: EntryId) -> Key {
    Key { part: part.0, id: id.0 }
}

/// Tells records apart. Another version of the library may have another hash: all entries then
/// count as changed, once.
fn digest(records: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(records);
    hasher.finish()
}

/// What is known of the account counts as well, though the publisher is not given it. An account of which
/// nothing is said is told from one that nobody asked for. It is laid over [`digest`], and stays when only
/// the records are others.
fn digest_of_account(account: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(account.len() as u64 + 1);
    hasher.write(account);
    hasher.finish()
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
