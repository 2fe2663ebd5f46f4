//! What was asked of a directory on demand: kept with its age, and asked for again. An entry that a
//! reply lacks is missing, and is looked for by its key before it goes.

use super::super::asked::{Answer, Seen};
use super::super::entries::{Kind, Slot, Ways};
use super::{Engine, Settings, State, digest, header, unix_now};
use roster_bus::exchange::NO_REFERENCE;
use roster_config::Mode;
use roster_provider::{Entry, EntryId, LookUp, Member, Of, Sink};
use roster_store::Key;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The part in whose place of a cookie it stands how answers were read: of these no part has a cookie.
const ANSWERS: u8 = 0;

/// Entries that the directory is being asked for. Those that it does not speak of before
/// [`Engine::conclude`] are missing.
#[must_use]
pub struct Inquiry {
    number: u64,
    entries: Vec<u32>,
}

/// What is known of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The state that it is of. Whoever has fetched that has all of it, as it is here or newer.
    pub sequence: u64,
    /// Its records; none when there is no such entry.
    pub records: Vec<u8>,
}

impl Engine {
    /// The records that answer a question, if all that the question is for is known.
    #[must_use]
    pub fn found(&self, what: &LookUp) -> Option<Found> {
        let mut state = self.state();
        let number = state.asked.whole(what)?;
        let sequence = self.told_now(&mut state);
        Some(Found { sequence, records: state.asked.records(number) })
    }

    /// The same, if the directory said so no longer ago than that.
    #[must_use]
    pub fn fresh(&self, what: &LookUp, age: Duration) -> Option<Found> {
        let mut state = self.state();
        let now = unix_now();
        let number = state.asked.fresh(what, now.saturating_sub(age.as_secs()), now)?;
        let sequence = self.told_now(&mut state);
        Some(Found { sequence, records: state.asked.records(number) })
    }

    /// Those of the questions about whose entries the directory said nothing within that time.
    #[must_use]
    pub fn untold<'w>(&self, what: &'w [LookUp], age: Duration) -> Vec<&'w LookUp> {
        let state = self.state();
        let now = unix_now();
        let since = now.saturating_sub(age.as_secs());
        what.iter().filter(|what| !state.asked.is_told(what, since, now)).collect()
    }

    /// The entries that these questions are about, as far as there are any, each once and alone: neither
    /// groups of a user nor members of a group.
    #[must_use]
    pub fn found_all(&self, what: &[LookUp]) -> Found {
        let mut state = self.state();
        let sequence = self.told_now(&mut state);
        let numbers: BTreeSet<u32> =
            what.iter().filter_map(|what| state.asked.find(what)).collect();
        let mut records = Vec::new();
        for answer in numbers.into_iter().filter_map(|number| state.asked.get(number)) {
            answer.write_bare(&mut records);
        }
        Found { sequence, records }
    }

    /// The state that answers are of: what was reported a moment ago is told too, and has to be a state
    /// that can be fetched, for answers are compared by their states.
    fn told_now(&self, state: &mut State) -> u64 {
        if state.open.visible() > 0 {
            self.close(state);
        }
        state.sequence
    }

    /// Whether the entry that a question is about is known, if not all that the question is for.
    #[must_use]
    pub fn knows_of(&self, what: &LookUp) -> bool {
        self.state().asked.find(what).is_some()
    }

    /// The question that asks for all that is known of an entry.
    #[must_use]
    pub fn question(&self, what: &LookUp) -> LookUp {
        let state = self.state();
        let known = state.asked.find(what).and_then(|number| state.asked.get(number));
        match what {
            LookUp::UserByName(name) if known.is_some_and(Answer::has_list) => {
                LookUp::GroupsOf(name.clone())
            }
            _ => what.clone(),
        }
    }

    /// The directory is asked this.
    pub fn inquire<'w>(&self, what: impl IntoIterator<Item = &'w LookUp>) -> Inquiry {
        let mut state = self.state();
        let entries: BTreeSet<u32> =
            what.into_iter().filter_map(|what| state.asked.find(what)).collect();
        Inquiry { number: state.asked.inquire(), entries: entries.into_iter().collect() }
    }

    /// The directory is asked for these entries.
    pub fn inquire_all(&self, entries: Vec<u32>) -> Inquiry {
        Inquiry { number: self.state().asked.inquire(), entries }
    }

    /// The directory has replied to all of it: the entries that it did not speak of are missing.
    /// Whether there are any to look for.
    pub fn conclude(&self, inquiry: Inquiry) -> bool {
        let Inquiry { number, entries } = inquiry;
        let mut state = self.state();
        let untold = entries.into_iter().filter(|&entry| !state.asked.was_told(entry, number));
        let keys: Vec<Key> = untold.filter_map(|entry| Some(state.asked.get(entry)?.key)).collect();
        let is_lacked = std::mem::take(&mut state.is_lacked);
        let is_any = state.note_missing(&self.settings, &keys) || is_lacked;
        drop(state);
        self.flush();
        if is_any {
            self.missing.notify_one();
        }
        is_any
    }

    /// Whether the last reply to the question lacked groups of a user that the directory has shown since: the next
    /// reply decides.
    #[must_use]
    pub fn is_undecided(&self, what: &LookUp) -> bool {
        let state = self.state();
        let user = state.asked.find(what);
        user.is_some_and(|user| state.shown.range((user, 0)..=(user, u32::MAX)).next().is_some())
    }

    /// Entries of which something was said longer ago than `age` that is asked for in this way, by
    /// number and name.
    #[must_use]
    pub fn stale(&self, of: Of, age: Duration) -> Vec<(u32, Vec<u8>)> {
        let state = self.state();
        let now = unix_now();
        state.named(state.asked.stale(of, now.saturating_sub(age.as_secs()), now))
    }

    /// Groups whose members are likely to be asked for next when those of one group are, that one
    /// included: whoever lists a user's groups asks for one after the other.
    #[must_use]
    pub fn asked_next(&self, what: &LookUp) -> Vec<(u32, Vec<u8>)> {
        let state = self.state();
        let (LookUp::GroupByName(_) | LookUp::GroupByGid(_)) = what else { return Vec::new() };
        let Some(group) = state.asked.find(what) else { return Vec::new() };
        let mut groups = state.asked.found_with(group);
        groups.remove(&group);
        state.named([group].into_iter().chain(groups))
    }

    /// Entries are read in this way from now on. If answers were read in another, which the cache knows, they
    /// count as old, and serve only while the directory is away; `true` then.
    pub fn read_by(&self, reading: &str) -> bool {
        let mut state = self.state();
        let part = state.parts.entry(ANSWERS).or_default();
        let before = part.lasting.cookie.replace((reading.to_owned(), Vec::new()));
        if before.is_some_and(|(before, _)| before == reading) {
            return false;
        }
        state.part_changed(ANSWERS);
        state.asked.expire();
        let State { entries, open, .. } = &mut *state;
        for slot in entries.iter() {
            open.seen(slot.key, header(slot, Seen::default()));
        }
        true
    }

    /// Every answer is to be asked for again.
    pub fn expire(&self) {
        self.state().asked.expire();
    }
}

impl State {
    fn named(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, Vec<u8>)> {
        let named = |number| Some((number, self.asked.get(number)?.name.to_vec()));
        numbers.into_iter().filter_map(named).collect()
    }

    /// When an entry that is told now was said to be as it is: its list only if it is told too.
    pub(super) fn seen_now(&self, number: u32, entry: &Entry<'_>) -> Seen {
        let now = unix_now();
        let before = self.asked.get(number).map(|answer| answer.seen.list);
        let list = match entry {
            Entry::Group(group) if group.members.is_some() => now,
            Entry::Group(_) | Entry::User(_) => before.unwrap_or_default(),
        };
        Seen { entry: now, list }
    }

    pub(super) fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        let numbers = members.iter().map(|member| self.references.number(member));
        let numbers = numbers.map(|number| number.unwrap_or(NO_REFERENCE)).collect::<Vec<_>>();
        self.asked.refer(&numbers)
    }

    /// The members of a group are not known any more, nor those of the groups that it is in: their
    /// lists would be cut.
    pub(super) fn members_unknown(&mut self, key: Key) {
        let Some(group) = self.entries.get(key).map(|slot| slot.number) else { return };
        let reference = self.asked.get(group).map_or(NO_REFERENCE, |answer| answer.reference);
        self.forget_lists([group].into_iter().chain(self.asked.lists_through(reference)).collect());
    }

    /// Forgets the lists that hold a former reference of an entry. Until a refresh they would lack the entry.
    pub(super) fn named_no_more(&mut self, reference: u32) {
        self.forget_lists(self.asked.lists_through(reference));
    }

    fn forget_lists(&mut self, groups: BTreeSet<u32>) {
        for number in groups {
            let Some(answer) = self.asked.get(number).filter(|group| group.has_list()) else {
                continue;
            };
            let (key, seen) = (answer.key, Seen { list: 0, ..answer.seen });
            let reference = answer.reference;
            self.scratch.clear();
            answer.write_without_members(&mut self.scratch);
            let (mark, digest) = (self.mark(key.part), digest(&self.scratch));
            let (kind, ways) = (Kind::Group, Ways::default());
            let slot = Slot { key, kind, ways, number, reference, mark, digest };
            self.keep(Mode::OnDemand, slot, seen);
        }
    }

    pub(super) fn groups_of(&mut self, settings: &Settings, user: EntryId, groups: &[EntryId]) {
        let parts = || self.parts_known();
        let find = |kind, id| self.entries.find(kind, id, parts()).copied();
        let Some(user) = find(Kind::User, user) else { return };
        let mut numbers: Vec<u32> =
            groups.iter().filter_map(|&id| Some(find(Kind::Group, id)?.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.extend(self.kept_groups(settings, user.number, &numbers));
        numbers.sort_unstable();
        let before = self.asked.get(user.number).map_or(0, |answer| digest(&answer.records()));
        let news = self.asked.groups_of(user.number, &numbers, unix_now());
        let Some(answer) = self.asked.get(user.number) else { return };
        let (records, seen) = (answer.records(), answer.seen);
        let slot = Slot { digest: user.digest ^ before ^ digest(&records), ..user };
        let header = header(&slot, seen);
        if !news {
            self.open.seen(slot.key, header);
            return;
        }
        self.entries.put(slot);
        self.open.put(slot.key, header, &records);
        self.unfetched.get_or_insert_with(Instant::now);
    }

    /// Groups of a user that a reply lacks, and that stay. The membership has ended, or the directory hides the
    /// group. The backend searches for the group by its key. The membership ends with the first reply without the
    /// group after the directory has shown it. A user stays in a hidden group.
    fn kept_groups(&mut self, settings: &Settings, user: u32, told: &[u32]) -> Vec<u32> {
        let of_user = (user, 0)..=(user, u32::MAX);
        let shown: Vec<(u32, u32)> = self.shown.range(of_user).copied().collect();
        shown.iter().for_each(|one| {
            self.shown.remove(one);
        });
        if !self.serving {
            return Vec::new();
        }
        let known = self.asked.get(user).and_then(|answer| answer.groups.as_deref());
        let lacked = known.into_iter().flatten().filter(|group| told.binary_search(group).is_err());
        let lacked: Vec<(u32, Key)> =
            lacked.filter_map(|&group| Some((group, self.asked.get(group)?.key))).collect();
        // The user may be in the others through that one.
        let is_hidden = |(_, key): &(u32, Key)| self.is_undecided(*key);
        let keeps_all = settings.has_dn_lists && lacked.iter().any(is_hidden);
        let mut kept = Vec::new();
        for (group, key) in lacked {
            let was_shown = shown.contains(&(user, group));
            let is_ended = was_shown && !self.is_undecided(key) && !keeps_all;
            if is_ended {
                continue;
            }
            kept.push(group);
            if was_shown {
                self.shown.insert((user, group));
            } else if !self.waits(key) {
                self.lacked.entry(key).or_default().insert(user);
                self.is_lacked |= self.note_missing(settings, &[key]);
            }
        }
        kept
    }

    /// The directory shows the group. The backend asks again for the users in `lacked`.
    pub(super) fn group_shown(&mut self, key: Key) {
        let Some(users) = self.lacked.remove(&key) else { return };
        let Some(group) = self.entries.get(key).map(|slot| slot.number) else { return };
        for user in users {
            self.shown.insert((user, group));
            self.asked.list_is_old(user);
        }
    }
}
