//! Single questions to the directory: what is searched for, and what of the answers is reported.
//!
//! A name goes into filters as a raw value, and an answer counts only if it has the very name that
//! was asked for, by the domain's rule on case. Groups of a user are one search, whatever their
//! number, and where lists have DNs one more for each hundred of these groups, which others may list;
//! members of groups are fetched by the hundred, and only those that the sink does not know. A list that is too long is an
//! error: no list is cut.

use crate::Ldap;
use crate::ber::Malformed;
use crate::dn;
use crate::error::Error;
use crate::filter::Filter;
use crate::link::{Answer, Open, Question};
use crate::message::{Operation, RawEntry, Response, Scope, printable};
use crate::schema::{By, Mapping, PartSearch, Read, ReadGroup, Rest, entry_id, group_id, no_rest};
use crate::track::key_values;
use roster_provider::{
    Entry, EntryId, Group, Keys, LookUp, Looked, Member, Of, Part, Rejected, Sink, Unanswered, User,
};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::slice;
use std::sync::{Arc, Mutex};

/// Names or ids in one filter: enough to make round trips few, few enough for any server.
const KEYS_PER_SEARCH: usize = 100;
/// Levels of groups in groups that are followed.
const LEVELS_MAX: usize = 32;
/// Members of one group, groups of one user, and entries that one look-up may have to fetch.
const REPORTED_MAX: usize = 10_000;
/// Groups with more members that are named in the log, each once.
const NAMED_MAX: usize = 1_000;

/// Where and how one kind of entry is looked for.
struct Target {
    part: Part,
    base: Arc<str>,
    filter: Filter,
    /// The first is that of the name.
    attributes: Vec<String>,
}

impl Target {
    fn name(&self) -> &str {
        self.attributes.first().map_or("", String::as_str)
    }
}

/// What look-ups are made of.
pub(crate) struct LookUps {
    users: Target,
    groups: Target,
    groups_with_members: Target,
    uuid: Option<String>,
    mapping: Arc<Mapping>,
    /// Groups with too many members of which the log has spoken.
    named: Mutex<HashSet<EntryId>>,
}

/// The open connection, and the domain that can open another.
pub(crate) struct Asker<'a> {
    pub ldap: &'a Ldap,
    pub open: Open,
}

impl Asker<'_> {
    async fn ask(&mut self, question: Question) -> Result<Answer, Unanswered> {
        let ldap = self.ldap;
        ldap.link.ask(&mut self.open, question, || ldap.connect_link()).await
    }
}

/// A user of an answer, which the sink knows by now.
struct FoundUser {
    id: EntryId,
    dn: Vec<u8>,
    /// The names as the directory spells them.
    names: Vec<Vec<u8>>,
}

/// A group of an answer, which the sink does not know yet.
struct FoundGroup {
    id: EntryId,
    dn: Vec<u8>,
    group: Group<'static>,
}

/// What a search by keys is to find, and what becomes of it.
pub(crate) struct KeySearch<'a> {
    /// Whether the keys are those of groups.
    pub of_groups: bool,
    /// The entries to look for.
    pub ids: &'a [EntryId],
    /// No entry is known to be there: the directory has to show one of the kind.
    pub needs_any: bool,
    /// The attribute of the keys of a mirror. Without it the entries that are found are reported.
    pub mirror_key: Option<&'a str>,
}

/// Which entries of an answer count.
enum Wanted {
    All,
    Names(HashSet<Vec<u8>>),
    Members(HashSet<Member<'static>>),
}

impl Wanted {
    fn takes_user(&self, user: &User<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Names(wanted) => wanted.contains(&*user.name),
            Self::Members(wanted) => {
                let named = Member::Name(Cow::Borrowed(&user.name));
                wanted.contains(&named)
                    || wanted.contains(&Member::Dn(Cow::Borrowed(&user.reference)))
            }
        }
    }

    fn takes_group(&self, group: &Group<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Names(wanted) => wanted.contains(&*group.name),
            Self::Members(wanted) => wanted.contains(&Member::Dn(Cow::Borrowed(&group.reference))),
        }
    }
}

impl LookUps {
    pub fn new(
        ldap: &roster_config::Ldap,
        searches: &[PartSearch],
        mapping: Arc<Mapping>,
    ) -> Result<Self, String> {
        let names = &ldap.attributes;
        let parse = |text: &str| Filter::parse(text).map_err(|error| error.to_string());
        let part = |of_users: bool| {
            searches
                .iter()
                .find(|search| if of_users { search.has_users() } else { search.has_groups() })
                .map_or(Part(0), |search| search.part)
        };
        let users = Target {
            part: part(true),
            base: ldap.users.base.as_str().into(),
            filter: parse(&ldap.users.filter)?,
            attributes: vec![
                names.user_name.clone(),
                names.user_uid.clone(),
                names.user_gid.clone(),
                names.user_gecos.clone(),
                names.user_home.clone(),
                names.user_shell.clone(),
            ]
            .into_iter()
            .chain(mapping.facts().iter().map(|(name, _)| name.clone()))
            .collect(),
        };
        let groups = Target {
            part: part(false),
            base: ldap.groups.base.as_str().into(),
            filter: parse(&ldap.groups.filter)?,
            attributes: vec![names.group_name.clone(), names.group_gid.clone()],
        };
        let members = ldap.member_attributes.iter().map(|attribute| attribute.name.clone());
        let groups_with_members = Target {
            part: groups.part,
            base: Arc::clone(&groups.base),
            filter: groups.filter.clone(),
            attributes: groups.attributes.iter().cloned().chain(members).collect(),
        };
        Ok(Self {
            users,
            groups,
            groups_with_members,
            uuid: names.uuid.clone(),
            mapping,
            named: Mutex::default(),
        })
    }

    /// Questions of the kind that is asked most, cheap for any server that can answer them.
    pub fn plain(&self) -> Vec<Question> {
        let plain = |target: &Target| Question {
            base: Arc::clone(&target.base),
            scope: Scope::Subtree,
            filter: Filter::all([&target.filter, &Filter::equals(target.name(), b"roster")]),
            attributes: Arc::new(["1.1".to_owned()]),
            entries_max: 0,
        };
        [&self.users, &self.groups].map(plain).into()
    }

    /// Answers one question into the sink; whether it found anything.
    pub async fn answer(
        &self,
        what: &LookUp,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
    ) -> Result<bool, Unanswered> {
        let found = match what {
            LookUp::UserByName(name) => {
                let keys = Keys::Names(slice::from_ref(name));
                !self.users_of_keys(asker, sink, keys).await?.is_empty()
            }
            LookUp::UserByUid(uid) => {
                let keys = Keys::Ids(slice::from_ref(uid));
                !self.users_of_keys(asker, sink, keys).await?.is_empty()
            }
            LookUp::GroupByName(name) => {
                let keys = Keys::Names(slice::from_ref(name));
                let groups = self.groups_of_keys(asker, sink, keys, true).await?;
                self.report_whole(asker, sink, groups, true).await?
            }
            LookUp::GroupByGid(gid) => {
                let keys = Keys::Ids(slice::from_ref(gid));
                let groups = self.groups_of_keys(asker, sink, keys, true).await?;
                self.report_whole(asker, sink, groups, true).await?
            }
            LookUp::GroupsOf(name) => {
                let keys = Keys::Names(slice::from_ref(name));
                self.users_with_groups(asker, sink, keys).await?
            }
        };
        if found {
            sink.flush();
        }
        Ok(found)
    }

    /// Reports those of the entries that there are.
    pub async fn answer_all(
        &self,
        of: Of,
        keys: Keys<'_>,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
    ) -> Result<(), Unanswered> {
        for keys in keys.chunks(KEYS_PER_SEARCH) {
            match of {
                Of::Users => {
                    self.users_of_keys(asker, sink, keys).await?;
                }
                Of::UsersWithGroups => {
                    self.users_with_groups(asker, sink, keys).await?;
                }
                Of::Groups => {
                    let groups = self.groups_of_keys(asker, sink, keys, false).await?;
                    groups.into_iter().for_each(|group| self.report(sink, group));
                }
                Of::GroupsWithMembers => {
                    let groups = self.groups_of_keys(asker, sink, keys, true).await?;
                    self.report_whole(asker, sink, groups, false).await?;
                }
            }
        }
        sink.flush();
        Ok(())
    }

    /// Whether the filter finds the user. Reports nothing.
    pub async fn matches(
        &self,
        asker: &mut Asker<'_>,
        user: &[u8],
        uid: u32,
        filter: &str,
    ) -> Result<bool, Unanswered> {
        let filter = Filter::parse(filter).map_err(|error| failed(asker, error))?;
        let named = Filter::equals(self.users.name(), user);
        let filter = Filter::all([&named, &filter]);
        let answer = self.search(asker, &self.users, &filter).await?;
        let mut found = false;
        each_entry(&answer, |entry| {
            let read = self.mapping.user(entry)?;
            found |= read.is_ok_and(|read| *read.name == *user && read.uid == uid);
            Ok(())
        })
        .map_err(|error| failed(asker, error))?;
        Ok(found)
    }

    /// Searches for entries by their keys, and reads what has to be there for the reply to be credible.
    pub async fn look_for(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        wanted: KeySearch<'_>,
    ) -> Result<Looked, Unanswered> {
        let KeySearch { of_groups, ids, needs_any, mirror_key } = wanted;
        let target = if of_groups { &self.groups } else { &self.users };
        let key = mirror_key.map_or_else(|| self.key(asker), str::to_owned);
        let mut found = HashSet::new();
        for ids in ids.chunks(KEYS_PER_SEARCH) {
            // The key of a group is that of its entry, changed in a fixed way.
            let entry = |id: &EntryId| if of_groups { group_id(*id) } else { *id };
            let keys = ids.iter().flat_map(|id| key_values(&key, entry(id))).collect::<Vec<_>>();
            let filter = Filter::equals_any(&key, &keys);
            match (mirror_key, of_groups) {
                (Some(_), _) => {
                    let answer = self.search_keys(asker, target, &filter, &key).await?;
                    each_entry(&answer, |one| {
                        found.insert(entry(&id_of(one, &key)?));
                        Ok(())
                    })
                    .map_err(|error| failed(asker, error))?;
                }
                (None, false) => {
                    let users = self.users(asker, sink, filter, &Wanted::All).await?;
                    found.extend(users.iter().map(|user| user.id));
                }
                (None, true) => {
                    let groups = self.groups(asker, sink, filter, false, &Wanted::All).await?;
                    found.extend(groups.iter().map(|group| group.id));
                    groups.into_iter().for_each(|group| self.report(sink, group));
                }
            }
        }
        let is_credible = self.shows_base(asker, target).await?
            && (!needs_any || self.shows_any(asker, target).await?);
        if mirror_key.is_none() {
            sink.flush();
        }
        Ok(Looked { found, is_credible })
    }

    async fn search_keys(
        &self,
        asker: &mut Asker<'_>,
        target: &Target,
        filter: &Filter,
        key: &str,
    ) -> Result<Answer, Unanswered> {
        let question = Question {
            base: Arc::clone(&target.base),
            scope: Scope::Subtree,
            filter: Filter::all([&target.filter, filter]),
            attributes: Arc::new([key.to_owned()]),
            entries_max: 0,
        };
        asker.ask(question).await
    }

    /// Whether the search base itself can be read.
    async fn shows_base(&self, asker: &mut Asker<'_>, target: &Target) -> Result<bool, Unanswered> {
        let question = Question {
            base: Arc::clone(&target.base),
            scope: Scope::Base,
            filter: Filter::present("objectClass"),
            attributes: Arc::new(["1.1".to_owned()]),
            entries_max: 0,
        };
        self.has_entry(asker, question).await
    }

    /// Whether the directory shows any entry of the kind.
    async fn shows_any(&self, asker: &mut Asker<'_>, target: &Target) -> Result<bool, Unanswered> {
        let question = Question {
            base: Arc::clone(&target.base),
            scope: Scope::Subtree,
            filter: target.filter.clone(),
            attributes: Arc::new(["1.1".to_owned()]),
            entries_max: 1,
        };
        self.has_entry(asker, question).await
    }

    async fn has_entry(
        &self,
        asker: &mut Asker<'_>,
        question: Question,
    ) -> Result<bool, Unanswered> {
        let answer = asker.ask(question).await?;
        let mut is_found = false;
        each_entry(&answer, |_| {
            is_found = true;
            Ok(())
        })
        .map_err(|error| failed(asker, error))?;
        Ok(is_found)
    }

    /// The DN and the uid of the one user of that name.
    pub async fn whose(
        &self,
        asker: &mut Asker<'_>,
        name: &[u8],
    ) -> Result<Option<(String, u32)>, Unanswered> {
        let names = [name.to_vec()];
        let attributes = self.mapping.attributes();
        let (filter, wanted) =
            self.sought(&attributes.user_name, &attributes.user_uid, Keys::Names(&names));
        let answer = self.search(asker, &self.users, &filter).await?;
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            if let Ok(user) = self.mapping.user(entry)?
                && wanted.takes_user(&user)
            {
                found.push((String::from_utf8(entry.dn.to_vec()), user.uid));
            }
            Ok(())
        })
        .map_err(|error| failed(asker, error))?;
        let (one, others) = (found.pop(), found.len());
        match one {
            None => Ok(None),
            Some((Ok(dn), uid)) if others == 0 => Ok(Some((dn, uid))),
            Some((Ok(_), _)) => {
                let count = others + 1;
                Err(failed(asker, format!("{count} users are called {}", printable(name))))
            }
            Some((Err(_), _)) => Err(failed(asker, "the user's DN is no UTF-8")),
        }
    }

    async fn users_with_groups(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        keys: Keys<'_>,
    ) -> Result<bool, Unanswered> {
        let users = self.users_of_keys(asker, sink, keys).await?;
        for user in &users {
            let groups = self.groups_of(asker, sink, user).await?;
            let ids: Vec<EntryId> = groups.iter().map(|group| group.id).collect();
            groups.into_iter().for_each(|group| self.report(sink, group));
            sink.groups_of(user.id, &ids);
        }
        Ok(!users.is_empty())
    }

    /// The groups of a user, each once, without their members.
    async fn groups_of(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        user: &FoundUser,
    ) -> Result<Vec<FoundGroup>, Unanswered> {
        // As the directory spells it, for member attributes that tell cases apart.
        let mut asked = self.mapping.naming(By::Name, &user.names);
        asked.extend(self.mapping.naming(By::Dn, slice::from_ref(&user.dn)));
        // Each key takes one term for each attribute that may hold it.
        let terms = KEYS_PER_SEARCH * self.mapping.members_by(By::Dn).count().max(1);
        let mut seen: HashSet<EntryId> = HashSet::new();
        let mut all = Vec::new();
        for _level in 0..LEVELS_MAX {
            let mut next = Vec::new();
            for filters in asked.chunks(terms) {
                let filter = Filter::any(filters);
                for group in self.groups(asker, sink, filter, false, &Wanted::All).await? {
                    if seen.insert(group.id) {
                        next.push(group.dn.clone());
                        all.push(group);
                    }
                }
            }
            if all.len() > REPORTED_MAX {
                let (user, most) = (printable(&user.dn), REPORTED_MAX);
                return Err(failed(asker, format!("{user} is in more than {most} groups")));
            }
            asked = self.mapping.naming(By::Dn, &next);
            if asked.is_empty() {
                return Ok(all);
            }
        }
        let (user, levels) = (printable(&user.dn), LEVELS_MAX);
        Err(failed(asker, format!("groups of {user} are in groups more than {levels} levels deep")))
    }

    fn report(&self, sink: &dyn Sink, found: FoundGroup) {
        sink.put(self.groups.part, found.id, Entry::Group(found.group));
    }

    /// Reports groups once all their members are known, with those of groups among them: members that
    /// the sink does not know are fetched first. Of a group with too many only the group itself is
    /// reported, and what was known of its members before is taken back; that is an error if it
    /// `must` be whole.
    async fn report_whole(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        mut groups: Vec<FoundGroup>,
        must: bool,
    ) -> Result<bool, Unanswered> {
        let (mut untold, mut error) = (Vec::new(), None);
        for found in &mut groups {
            let members = found.group.members.as_ref().map_or(0, Vec::len);
            if members > REPORTED_MAX {
                found.group.members = None;
                untold.push(found.id);
                error = Some(self.too_large(asker, found, members));
            }
        }
        let is_found = !groups.is_empty();
        let mut nested = Vec::new();
        match (self.fetch_members(asker, sink, &groups).await?, groups.as_mut_slice()) {
            (Ok(all), _) => nested = all,
            (Err(reason), [found]) => {
                found.group.members = None;
                untold.push(found.id);
                error = Some(failed(asker, reason));
            }
            // Whose members are too many shows when each is asked for.
            (Err(reason), _) => return Err(failed(asker, reason)),
        }
        // Lists of the ones name the others.
        let all = groups.into_iter().chain(nested);
        let all = all.map(|found| (found.id, Entry::Group(found.group))).collect();
        sink.put_together(self.groups.part, all);
        untold.into_iter().for_each(|group| sink.members_unknown(self.groups.part, group));
        match error {
            Some(error) if must => {
                sink.flush();
                Err(error)
            }
            _ => Ok(is_found),
        }
    }

    fn too_large(&self, asker: &Asker<'_>, found: &FoundGroup, members: usize) -> Unanswered {
        let reason = format!(
            "{} has {members} members, and groups of more than {REPORTED_MAX} are not asked for: \
             mirror the domain with mode = \"replicate\"",
            printable(&found.dn)
        );
        let mut named = crate::lock(&self.named);
        if named.len() < NAMED_MAX && named.insert(found.id) {
            tracing::warn!("{reason}");
        }
        failed(asker, reason)
    }

    /// Reports the users among the members of groups, and gives the groups among them, or why these
    /// are too much to be told.
    async fn fetch_members(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        groups: &[FoundGroup],
    ) -> Result<Result<Vec<FoundGroup>, String>, Unanswered> {
        let names_group = |found: &FoundGroup| Member::Dn(found.group.reference.clone());
        let mut seen: HashSet<Member<'static>> = groups.iter().map(names_group).collect();
        let mut nested: Vec<FoundGroup> = Vec::new();
        let mut asked = unknown(groups, sink, &mut seen);
        for _level in 0..LEVELS_MAX {
            if asked.is_empty() {
                return Ok(Ok(nested));
            }
            if seen.len() > groups.len() + REPORTED_MAX {
                let most = REPORTED_MAX;
                return Ok(Err(format!("more than {most} members would have to be asked for")));
            }
            let first = nested.len();
            for members in asked.chunks(KEYS_PER_SEARCH) {
                nested.extend(self.members(asker, sink, members).await?);
            }
            asked = unknown(&nested[first..], sink, &mut seen);
        }
        Ok(Err(format!("groups are in groups more than {LEVELS_MAX} levels deep")))
    }

    /// Reports the users among these members, and returns the groups.
    async fn members(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        members: &[Member<'static>],
    ) -> Result<Vec<FoundGroup>, Unanswered> {
        let wanted = Wanted::Members(members.iter().cloned().collect());
        let by_name = members.iter().filter_map(|member| match member {
            Member::Name(name) => Some(Filter::equals(self.users.name(), name)),
            Member::Dn(_) => None,
        });
        let by_dn: Vec<Filter> = members.iter().filter_map(with_dn).collect();
        let users: Vec<Filter> = by_name.chain(by_dn.iter().cloned()).collect();
        let mut groups = Vec::new();
        if !by_dn.is_empty() {
            groups = self.groups(asker, sink, Filter::any(&by_dn), true, &wanted).await?;
        }
        if !users.is_empty() {
            self.users(asker, sink, Filter::any(&users), &wanted).await?;
        }
        Ok(groups)
    }

    async fn users_of_keys(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        keys: Keys<'_>,
    ) -> Result<Vec<FoundUser>, Unanswered> {
        let names = self.mapping.attributes();
        let (filter, wanted) = self.sought(&names.user_name, &names.user_uid, keys);
        self.users(asker, sink, filter, &wanted).await
    }

    async fn groups_of_keys(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        keys: Keys<'_>,
        with_members: bool,
    ) -> Result<Vec<FoundGroup>, Unanswered> {
        let names = self.mapping.attributes();
        let (filter, wanted) = self.sought(&names.group_name, &names.group_gid, keys);
        self.groups(asker, sink, filter, with_members, &wanted).await
    }

    /// What entries have to match to be those, and which of the answer count.
    fn sought(&self, name: &str, id: &str, keys: Keys<'_>) -> (Filter, Wanted) {
        match keys {
            Keys::Names(names) => {
                let wanted = names.iter().map(|name| self.mapping.name(name).into_owned());
                (Filter::equals_any(name, names), Wanted::Names(wanted.collect()))
            }
            Keys::Ids(ids) => {
                let ids: Vec<Vec<u8>> = ids.iter().map(|id| id.to_string().into_bytes()).collect();
                (Filter::equals_any(id, &ids), Wanted::All)
            }
        }
    }

    /// Searches for users, and reports them.
    async fn users(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        filter: Filter,
        wanted: &Wanted,
    ) -> Result<Vec<FoundUser>, Unanswered> {
        let answer = self.search(asker, &self.users, &filter).await?;
        let key = self.key(asker);
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            let part = self.users.part;
            let id = id_of(entry, &key)?;
            match self.mapping.user(entry)? {
                Ok(user) if wanted.takes_user(&user) => {
                    let names = self.spellings(entry, &user.name)?;
                    sink.put(part, id, Entry::User(user));
                    found.push(FoundUser { id, dn: entry.dn.to_vec(), names });
                }
                Ok(_) => {}
                Err(reason) => {
                    let name = printable(entry.dn);
                    sink.rejected(
                        part,
                        id,
                        &Rejected { name: &name, reference: b"", reason: &reason },
                    );
                }
            }
            Ok(())
        })
        .map_err(|error| failed(asker, error))?;
        Ok(found)
    }

    /// All ways in which an entry spells the name.
    fn spellings(&self, entry: &RawEntry<'_>, name: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut spelt = Vec::new();
        for value in entry.values(&self.mapping.attributes().user_name)? {
            let value = value?;
            if *self.mapping.name(value) == *name {
                spelt.push(value.to_vec());
            }
        }
        if !spelt.iter().any(|other| other == name) {
            spelt.push(name.to_vec());
        }
        Ok(spelt)
    }

    /// Searches for groups. Those that cannot be read are reported, the others are not yet.
    async fn groups(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        filter: Filter,
        with_members: bool,
        wanted: &Wanted,
    ) -> Result<Vec<FoundGroup>, Unanswered> {
        let answer = match with_members {
            true => self.search(asker, &self.groups_with_members, &filter).await?,
            false => self.search(asker, &self.groups, &filter).await?,
        };
        let key = self.key(asker);
        let mut all = Vec::new();
        each_entry(&answer, |entry| {
            let id = group_id(id_of(entry, &key)?);
            match self.mapping.group(entry, with_members)? {
                Ok(ReadGroup { group, rest }) if wanted.takes_group(&group) => {
                    let found = FoundGroup { id, dn: entry.dn.to_vec(), group: owned(group) };
                    all.push((found, rest));
                }
                Ok(_) => {}
                Err(reason) => self.reject_group(sink, id, entry, &reason),
            }
            Ok(())
        })
        .map_err(|error| failed(asker, error))?;
        let mut found = Vec::with_capacity(all.len());
        for (mut group, rest) in all {
            match self.read_rest(asker, &mut group, rest).await? {
                Ok(()) => found.push(group),
                Err(reason) => {
                    let (name, reference) = (printable(&group.dn), &group.group.reference);
                    let rejection = Rejected { name: &name, reference, reason: &reason };
                    sink.rejected(self.groups.part, group.id, &rejection);
                }
            }
        }
        Ok(found)
    }

    /// Fetches the members that the server has not shown yet, piece by piece, until the lists are whole or
    /// longer than is told.
    async fn read_rest(
        &self,
        asker: &mut Asker<'_>,
        found: &mut FoundGroup,
        mut all: Vec<Rest>,
    ) -> Result<Read<()>, Unanswered> {
        while let (Some(rest), Some(members)) = (all.pop(), &mut found.group.members) {
            if members.len() > REPORTED_MAX {
                return Ok(Ok(()));
            }
            let Ok(base) = std::str::from_utf8(&found.dn) else {
                return Ok(Err("its DN is not UTF-8".to_owned()));
            };
            let question = Question {
                base: base.into(),
                scope: Scope::Base,
                filter: self.groups.filter.clone(),
                attributes: Arc::new([self.mapping.rest_of_members(rest)]),
                entries_max: 0,
            };
            let answer = asker.ask(question).await?;
            let mut piece = None;
            each_entry(&answer, |entry| {
                let mut shown = Vec::new();
                let next = self.mapping.members(entry, rest, &mut shown)?;
                let shown = shown.into_iter().map(Member::into_owned).collect::<Vec<_>>();
                piece = Some(next.map(|next| (shown, next)));
                Ok(())
            })
            .map_err(|error| failed(asker, error))?;
            match piece.unwrap_or_else(|| Err(no_rest(rest))) {
                Ok((shown, next)) if !shown.is_empty() || next.is_none() => {
                    members.extend(shown);
                    all.extend(next);
                }
                Ok(_) => return Ok(Err(no_rest(rest))),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(()))
    }

    fn reject_group(&self, sink: &dyn Sink, id: EntryId, entry: &RawEntry<'_>, reason: &str) {
        let reference = self.mapping.reference(entry);
        let rejection = Rejected { name: &printable(entry.dn), reference: &reference, reason };
        sink.rejected(self.groups.part, id, &rejection);
    }

    fn key(&self, asker: &Asker<'_>) -> String {
        self.uuid.clone().unwrap_or_else(|| asker.open.root.uuid_attribute().to_owned())
    }

    async fn search(
        &self,
        asker: &mut Asker<'_>,
        target: &Target,
        filter: &Filter,
    ) -> Result<Answer, Unanswered> {
        let attributes = target.attributes.iter().cloned().chain([self.key(asker)]).collect();
        let question = Question {
            base: Arc::clone(&target.base),
            scope: Scope::Subtree,
            filter: Filter::all([&target.filter, filter]),
            attributes,
            entries_max: 0,
        };
        asker.ask(question).await
    }
}

/// What a look-up fails of while the server is there.
fn failed(asker: &Asker<'_>, reason: impl std::fmt::Display) -> Unanswered {
    Unanswered::Failed(format!("{}: {reason}", asker.open.server))
}

/// Members that the sink cannot name yet, each once.
fn unknown(
    groups: &[FoundGroup],
    sink: &dyn Sink,
    seen: &mut HashSet<Member<'static>>,
) -> Vec<Member<'static>> {
    let members = groups.iter().flat_map(|found| found.group.members.iter().flatten());
    let members: BTreeSet<&Member<'static>> = members.collect();
    let members: Vec<_> = members.into_iter().filter(|one| !seen.contains(*one)).collect();
    let known = sink.knows(&members).into_iter();
    let unknown = members.into_iter().zip(known).filter(|(_, is_known)| !is_known);
    let unknown: Vec<Member<'static>> = unknown.map(|(member, _)| member.clone()).collect();
    seen.extend(unknown.iter().cloned());
    unknown
}

/// Matches entries by the first part of a member's DN. Servers have an index for that part, and often none for
/// whole DNs.
fn with_dn(member: &Member<'_>) -> Option<Filter> {
    let Member::Dn(dn) = member else { return None };
    let (attribute, value) = dn::first(dn)?;
    Some(Filter::equals(&attribute, &value))
}

fn own(bytes: Cow<'_, [u8]>) -> Cow<'static, [u8]> {
    Cow::Owned(bytes.into_owned())
}

pub(crate) fn owned(group: Group<'_>) -> Group<'static> {
    let Group { name, gid, reference, members } = group;
    let members = members.map(|members| members.into_iter().map(Member::into_owned).collect());
    Group { name: own(name), gid, reference: own(reference), members }
}

fn each_entry(
    answer: &Answer,
    mut each: impl FnMut(&RawEntry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for message in answer {
        if let Operation::Entry(entry) = Response::parse(message)?.operation {
            each(&entry)?;
        }
    }
    Ok(())
}

fn id_of(entry: &RawEntry<'_>, key: &str) -> Result<EntryId, Error> {
    let value = entry.values(key)?.next().transpose()?;
    value.and_then(entry_id).ok_or_else(|| crate::track::keyless(entry, key))
}
