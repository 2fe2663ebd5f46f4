//! Single questions to the directory: what is searched for, and what of the answers is reported.
//!
//! A name goes into filters as a raw value, and an answer counts only if it has the very name that
//! was asked for, by the domain's rule on case. Groups of a user are one search, whatever their
//! number, or one a level where groups are members of groups; members of a group are fetched by the
//! hundred.

use crate::Ldap;
use crate::dn;
use crate::error::Error;
use crate::filter::Filter;
use crate::link::{Answer, Open, Question};
use crate::message::{Operation, RawEntry, Response, Scope, printable};
use crate::schema::{Mapping, PartSearch, entry_id, group_id};
use roster_config::Schema;
use roster_provider::{Entry, EntryId, LookUp, Part, Sink};
use std::collections::HashSet;
use std::sync::Arc;

/// Names in one filter: enough to make round trips few, few enough for any server.
const NAMES_PER_SEARCH: usize = 100;
/// Levels of groups in groups that are followed.
const LEVELS_MAX: usize = 16;
/// Entries that one look-up may report.
const REPORTED_MAX: usize = 10_000;

/// Where and how one kind of entry is looked for.
struct Target {
    part: Part,
    base: Arc<str>,
    filter: Filter,
    attributes: Vec<String>,
}

/// What look-ups are made of.
pub(crate) struct LookUps {
    users: Target,
    groups: Target,
    member: String,
    uuid: Option<String>,
    mapping: Arc<Mapping>,
}

/// The open connection, and the domain that can open another.
pub(crate) struct Asker<'a> {
    pub ldap: &'a Ldap,
    pub open: Open,
}

impl Asker<'_> {
    async fn ask(&mut self, question: Question) -> Result<Answer, String> {
        let ldap = self.ldap;
        ldap.link.ask(&mut self.open, question, || ldap.connect_link()).await
    }
}

/// An entry of an answer that is what was looked for.
struct Found {
    id: EntryId,
    dn: Vec<u8>,
    /// A user's names as the directory spells them.
    names: Vec<Vec<u8>>,
    /// A group's members in their canonical form.
    members: Vec<Vec<u8>>,
}

/// Which entries of an answer count.
enum Wanted<'a> {
    All,
    Name(&'a [u8]),
    References(&'a HashSet<Vec<u8>>),
}

impl Wanted<'_> {
    fn takes(&self, name: &[u8], reference: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Name(wanted) => name == *wanted,
            Self::References(wanted) => wanted.contains(reference),
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
            ],
        };
        let groups = Target {
            part: part(false),
            base: ldap.groups.base.as_str().into(),
            filter: parse(&ldap.groups.filter)?,
            attributes: vec![names.group_name.clone(), names.group_gid.clone()],
        };
        Ok(Self {
            users,
            groups,
            member: names.group_member.clone(),
            uuid: names.uuid.clone(),
            mapping,
        })
    }

    /// Answers one question into the sink; whether it found anything.
    pub async fn answer(
        &self,
        what: &LookUp,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
    ) -> Result<bool, String> {
        let names = self.mapping.attributes();
        let found = match what {
            LookUp::UserByName(name) => {
                let filter = Filter::equals(&names.user_name, name);
                let name = self.mapping.name(name);
                !self.users(asker, sink, filter, &Wanted::Name(&name)).await?.is_empty()
            }
            LookUp::UserByUid(uid) => {
                let filter = Filter::equals(&names.user_uid, uid.to_string().as_bytes());
                !self.users(asker, sink, filter, &Wanted::All).await?.is_empty()
            }
            LookUp::GroupByName(name) => {
                let filter = Filter::equals(&names.group_name, name);
                let name = self.mapping.name(name);
                let groups = self.groups(asker, sink, filter, true, &Wanted::Name(&name)).await?;
                self.members(asker, sink, &groups).await?;
                !groups.is_empty()
            }
            LookUp::GroupByGid(gid) => {
                let filter = Filter::equals(&names.group_gid, gid.to_string().as_bytes());
                let groups = self.groups(asker, sink, filter, true, &Wanted::All).await?;
                self.members(asker, sink, &groups).await?;
                !groups.is_empty()
            }
            LookUp::GroupsOf(name) => self.groups_of(asker, sink, name).await?,
        };
        if found {
            sink.flush();
        }
        Ok(found)
    }

    async fn groups_of(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        name: &[u8],
    ) -> Result<bool, String> {
        let filter = Filter::equals(&self.mapping.attributes().user_name, name);
        let wanted = self.mapping.name(name);
        let users = self.users(asker, sink, filter, &Wanted::Name(&wanted)).await?;
        for user in &users {
            // As the directory spells it, for member attributes that tell cases apart.
            let mut asked = match self.mapping.schema() {
                Schema::Rfc2307 => user.names.clone(),
                Schema::Rfc2307bis => vec![user.dn.clone()],
            };
            let mut ids: Vec<EntryId> = Vec::new();
            let mut seen: HashSet<EntryId> = HashSet::new();
            for _level in 0..LEVELS_MAX {
                let mut next = Vec::new();
                for batch in asked.chunks(NAMES_PER_SEARCH) {
                    let any: Vec<Filter> =
                        batch.iter().map(|value| Filter::equals(&self.member, value)).collect();
                    let filter = if let [one] = &any[..] { one.clone() } else { Filter::any(&any) };
                    for group in self.groups(asker, sink, filter, false, &Wanted::All).await? {
                        if ids.len() < REPORTED_MAX && seen.insert(group.id) {
                            ids.push(group.id);
                            next.push(group.dn);
                        }
                    }
                }
                if next.is_empty() || self.mapping.schema() == Schema::Rfc2307 {
                    break;
                }
                asked = next;
            }
            sink.groups_of(user.id, &ids);
        }
        Ok(!users.is_empty())
    }

    /// Fetches the members of groups that were found, so that their names can be told, and those
    /// of groups among them.
    async fn members(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        groups: &[Found],
    ) -> Result<(), String> {
        let mut seen: HashSet<Vec<u8>> =
            groups.iter().map(|group| dn::normalise(&group.dn).into_owned()).collect();
        let mut asked: Vec<Vec<u8>> =
            groups.iter().flat_map(|group| group.members.iter().cloned()).collect();
        for _level in 0..LEVELS_MAX {
            asked.retain(|member| seen.len() < REPORTED_MAX && seen.insert(member.clone()));
            if asked.is_empty() {
                break;
            }
            let mut next = Vec::new();
            for batch in asked.chunks(NAMES_PER_SEARCH) {
                let references: HashSet<Vec<u8>> = batch.iter().cloned().collect();
                let wanted = Wanted::References(&references);
                let any: Vec<Filter> =
                    batch.iter().flat_map(|member| self.names_entry(member)).collect();
                if any.is_empty() {
                    continue;
                }
                let filter = Filter::any(&any);
                if self.mapping.schema() == Schema::Rfc2307bis {
                    for group in self.groups(asker, sink, filter.clone(), true, &wanted).await? {
                        next.extend(group.members);
                    }
                }
                self.users(asker, sink, filter, &wanted).await?;
            }
            asked = next;
        }
        Ok(())
    }

    /// What an entry that a member list names must match: the user's name, or what its DN begins
    /// with, which servers have an index for where they have none for whole DNs.
    fn names_entry(&self, member: &[u8]) -> Option<Filter> {
        match self.mapping.schema() {
            Schema::Rfc2307 => Some(Filter::equals(&self.mapping.attributes().user_name, member)),
            Schema::Rfc2307bis => {
                let (attribute, value) = dn::first(member)?;
                Some(Filter::equals(&attribute, &value))
            }
        }
    }

    async fn users(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        filter: Filter,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Found>, String> {
        let answer = self.search(asker, &self.users, &filter, None).await?;
        let key = self.key(asker);
        let names = &self.mapping.attributes().user_name;
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            let part = self.users.part;
            let id = id_of(entry, &key)?;
            match self.mapping.user(entry)? {
                Ok(user) if wanted.takes(&user.name, &user.reference) => {
                    let spelt: Result<Vec<&[u8]>, _> = entry.values(names)?.collect();
                    let mut spelt: Vec<Vec<u8>> = spelt?
                        .into_iter()
                        .filter(|name| self.mapping.name(name) == user.name)
                        .map(<[u8]>::to_vec)
                        .collect();
                    if !spelt.iter().any(|name| **name == *user.name) {
                        spelt.push(user.name.to_vec());
                    }
                    sink.put(part, id, Entry::User(user));
                    found.push(Found {
                        id,
                        dn: entry.dn.to_vec(),
                        names: spelt,
                        members: Vec::new(),
                    });
                }
                Ok(_) => {}
                Err(reason) => sink.rejected(part, id, &printable(entry.dn), &reason),
            }
            Ok(())
        })
        .map_err(|error| format!("{}: {error}", asker.open.server))?;
        Ok(found)
    }

    async fn groups(
        &self,
        asker: &mut Asker<'_>,
        sink: &dyn Sink,
        filter: Filter,
        with_members: bool,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Found>, String> {
        let member = with_members.then_some(&self.member);
        let answer = self.search(asker, &self.groups, &filter, member).await?;
        let key = self.key(asker);
        let mut found = Vec::new();
        each_entry(&answer, |entry| {
            let part = self.groups.part;
            let id = group_id(id_of(entry, &key)?);
            match self.mapping.group(entry, with_members)? {
                Ok(group) if wanted.takes(&group.name, &group.reference) => {
                    let members =
                        group.members.iter().flatten().map(|member| member.to_vec()).collect();
                    sink.put(part, id, Entry::Group(group));
                    found.push(Found { id, dn: entry.dn.to_vec(), names: Vec::new(), members });
                }
                Ok(_) => {}
                Err(reason) => sink.rejected(part, id, &printable(entry.dn), &reason),
            }
            Ok(())
        })
        .map_err(|error| format!("{}: {error}", asker.open.server))?;
        Ok(found)
    }

    fn key(&self, asker: &Asker<'_>) -> String {
        self.uuid.clone().unwrap_or_else(|| asker.open.root.uuid_attribute().to_owned())
    }

    async fn search(
        &self,
        asker: &mut Asker<'_>,
        target: &Target,
        filter: &Filter,
        member: Option<&String>,
    ) -> Result<Answer, String> {
        let attributes =
            target.attributes.iter().chain(member).cloned().chain([self.key(asker)]).collect();
        let question = Question {
            base: Arc::clone(&target.base),
            scope: Scope::Subtree,
            filter: Filter::all([&target.filter, filter]),
            attributes,
        };
        asker.ask(question).await
    }
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
