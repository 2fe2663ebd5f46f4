// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local overrides of one domain: applied to entries as a backend sends them, and to queries of programs. Pure.
//!
//! A name or uid that an override gives finds the overridden entry alone, because [`ReservedIdentities`] rejects every
//! other one. A query for it is therefore a query for the entry's name in the directory.

use super::model_entry::{ModelGroup, ModelUser, NativeGroup};
use roster_admission::{OverriddenFields, ReservedIdentities};
use roster_config::{GroupOverride, LocalOverrides, NameConfig, UserOverride};
use roster_request::{LookupKind, Query};
use std::collections::HashMap;
use std::sync::Arc;

/// The overrides of a domain. Names are in the form of [`NameConfig::override_key`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DomainOverrides {
    is_unknown: bool,
    names: NameConfig,
    users: HashMap<Vec<u8>, UserOverride>,
    groups: HashMap<Vec<u8>, GroupOverride>,
    given_to_users: GivenIdentities,
    given_to_groups: GivenIdentities,
    reserved: Arc<ReservedIdentities>,
}

/// The overridden entries, by the names and ids that they have on this host.
#[derive(Debug, Default, PartialEq, Eq)]
struct GivenIdentities {
    names: HashMap<Vec<u8>, Vec<u8>>,
    ids: HashMap<u32, Vec<u8>>,
}

impl DomainOverrides {
    /// Prepares the overrides of a domain with these names.
    #[must_use]
    pub fn new(overrides: LocalOverrides, names: &NameConfig) -> Self {
        let reserved = Arc::new(ReservedIdentities::new(&overrides, names));
        let users = overrides.users.into_iter().map(|(name, user)| (name.into_bytes(), user));
        let groups = overrides.groups.into_iter().map(|(name, group)| (name.into_bytes(), group));
        let (users, groups) = (users.collect(), groups.collect());
        let mut made = Self { names: names.clone(), users, groups, reserved, ..Self::default() };
        for (key, user) in &made.users {
            made.given_to_users.add(names, key, user.name.as_deref(), user.uid);
        }
        for (key, group) in &made.groups {
            made.given_to_groups.add(names, key, group.name.as_deref(), group.gid);
        }
        made
    }

    /// Returns the overrides of a domain with a file that was not read yet.
    #[must_use]
    pub fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    /// Returns whether the overrides are known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.is_unknown
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns the names and ids that no other entry may have.
    #[must_use]
    pub fn reserved(&self) -> &Arc<ReservedIdentities> {
        &self.reserved
    }

    /// Returns a user of the directory as this host serves it.
    #[must_use]
    pub fn apply_to_user(&self, native: ModelUser) -> ModelUser {
        match self.users.get(&*self.names.override_key(native.name())) {
            Some(values) => native.overridden(values),
            None => native,
        }
    }

    /// Returns a group of the directory as this host serves it. A group that only nests stays as it is.
    #[must_use]
    pub fn apply_to_group(&self, native: ModelGroup) -> ModelGroup {
        let values = self.groups.get(&*self.names.override_key(&native.name));
        let (Some(values), Some(_)) = (values, native.gid) else { return native };
        let fields = OverriddenFields {
            name: values.name.is_some(),
            id: values.gid.is_some(),
            primary_gid: false,
        };
        let name = values.name.as_ref().map(|name| name.as_bytes().into());
        ModelGroup {
            name: name.unwrap_or_else(|| native.name.clone()),
            gid: values.gid.or(native.gid),
            native: Some(Box::new(NativeGroup { name: native.name, gid: native.gid, fields })),
            ..native
        }
    }

    /// Returns the name under which this host serves a user of the directory.
    #[must_use]
    pub fn user_name<'n>(&'n self, native: &'n [u8]) -> &'n [u8] {
        let values = self.users.get(&*self.names.override_key(native));
        values.and_then(|values| values.name.as_deref()).map_or(native, str::as_bytes)
    }

    /// Returns the name under which this host serves a group of the directory.
    #[must_use]
    pub fn group_name<'n>(&'n self, native: &'n [u8]) -> &'n [u8] {
        let values = self.groups.get(&*self.names.override_key(native));
        values.and_then(|values| values.name.as_deref()).map_or(native, str::as_bytes)
    }

    /// Returns the name in the directory of the user or group with this name on this host.
    #[must_use]
    pub fn native_name<'n>(&'n self, kind: LookupKind, name: &'n [u8]) -> &'n [u8] {
        let given = self.given(kind).names.get(&*self.names.override_key(name));
        given.map_or(name, Vec::as_slice)
    }

    /// Returns the query to the directory for a query about an entry of this host. One for a given id is a query by
    /// name.
    #[must_use]
    pub fn native_request(&self, question: &Query<Vec<u8>>) -> Query<Vec<u8>> {
        let kind = question.kind();
        if kind.is_by_name() {
            let native = self.native_name(kind, question.name());
            return Query::new(kind, native.to_vec(), question.id());
        }
        match self.given(kind).ids.get(&question.id()) {
            Some(native) => Query::new(by_name(kind), native.clone(), 0),
            None => question.clone(),
        }
    }

    /// Returns the query about an entry of this host for a query to the directory by name.
    #[must_use]
    pub fn served_request(&self, question: &Query<Vec<u8>>) -> Query<Vec<u8>> {
        let name = match question.kind() {
            LookupKind::UserByName | LookupKind::GroupsOf => self.user_name(question.name()),
            LookupKind::GroupByName => self.group_name(question.name()),
            LookupKind::UserByUid | LookupKind::GroupByGid => question.name(),
        };
        Query::new(question.kind(), name.to_vec(), question.id())
    }

    /// Returns whether a name is that of an overridden entry in the directory, which has another name on this host, and
    /// no other entry has it.
    #[must_use]
    pub fn hides(&self, question: &Query<Vec<u8>>) -> bool {
        let kind = question.kind();
        if !kind.is_by_name() {
            return false;
        }
        let key = self.names.override_key(question.name());
        let given = match kind {
            LookupKind::GroupByName => self.groups.get(&*key).and_then(|group| group.name.as_ref()),
            _ => self.users.get(&*key).and_then(|user| user.name.as_ref()),
        };
        let is_other = |given: &String| self.names.override_key(given.as_bytes()) != key;
        given.is_some_and(is_other) && !self.given(kind).names.contains_key(&*key)
    }

    /// Returns those of these groups that have other names in the directory, each with that name. It is empty if this
    /// host serves no group under the given name.
    #[must_use]
    pub fn renamed_groups<'g>(
        &self,
        groups: impl Iterator<Item = &'g str>,
    ) -> Vec<(String, String)> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let renamed = |group: &str| {
            let (name, kind) = (group.as_bytes(), LookupKind::GroupByName);
            let is_hidden = self.hides(&Query::GroupByName(name.to_vec()));
            let native = if is_hidden { b"" } else { self.native_name(kind, name) };
            (native != name).then(|| (group.to_owned(), text(native)))
        };
        groups.filter_map(renamed).collect()
    }

    /// Returns the overrides that apply to none of these entries: users, then groups, by name.
    #[must_use]
    pub fn unused<'e>(
        &self,
        users: impl Iterator<Item = &'e [u8]>,
        groups: impl Iterator<Item = &'e [u8]>,
    ) -> Vec<(&'static str, &[u8])> {
        let (mut unused_users, mut unused_groups): (Vec<_>, Vec<_>) = (
            self.users.keys().map(Vec::as_slice).collect(),
            self.groups.keys().map(Vec::as_slice).collect(),
        );
        unused_users.sort_unstable();
        unused_groups.sort_unstable();
        let forget = |unused: &mut Vec<&[u8]>, native: &[u8]| {
            if let Ok(place) = unused.binary_search(&&*self.names.override_key(native)) {
                unused.remove(place);
            }
        };
        users.for_each(|native| forget(&mut unused_users, native));
        groups.for_each(|native| forget(&mut unused_groups, native));
        let users = unused_users.into_iter().map(|name| ("user", name));
        users.chain(unused_groups.into_iter().map(|name| ("group", name))).collect()
    }

    fn given(&self, kind: LookupKind) -> &GivenIdentities {
        match kind {
            LookupKind::UserByName | LookupKind::UserByUid | LookupKind::GroupsOf => {
                &self.given_to_users
            }
            LookupKind::GroupByName | LookupKind::GroupByGid => &self.given_to_groups,
        }
    }
}

impl GivenIdentities {
    fn add(&mut self, names: &NameConfig, key: &[u8], name: Option<&str>, id: Option<u32>) {
        let name = name.map(|name| names.override_key(name.as_bytes()).into_owned());
        self.names.extend(name.map(|name| (name, key.to_vec())));
        self.ids.extend(id.map(|id| (id, key.to_vec())));
    }
}

fn by_name(kind: LookupKind) -> LookupKind {
    match kind {
        LookupKind::UserByUid => LookupKind::UserByName,
        LookupKind::GroupByGid => LookupKind::GroupByName,
        LookupKind::UserByName | LookupKind::GroupByName | LookupKind::GroupsOf => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{ImageOutcome, PublisherState};
    use crate::tests::{
        Image, apply_image, config, host, learn, locals, published, succeeded, twenty_without,
    };
    use roster_config::PrivateGroups;
    use roster_messages::table::directory;
    use roster_request::LookupKind;
    use std::collections::BTreeMap;
    use std::path::Path;

    const TEXT: &str = "[domain.corp.override.user.alice]\nname = 'al'\nuid = 6000\ngid = 6001\n\
                        gecos = 'Al'\nhome = '/srv/al'\nshell = '/bin/zsh'\n\
                        [domain.corp.override.group.staff]\nname = 'crew'\ngid = 7000\n";

    fn overrides(text: &str) -> DomainOverrides {
        let domain = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\n\
                      passwd = '/p'\ngroup = '/g'\n";
        let config = roster_config::parse(&format!("{domain}{text}")).expect("valid").config;
        let domain = &config.domains[0];
        DomainOverrides::new(domain.local_overrides.entries.clone(), &domain.names)
    }

    fn corp() -> Image {
        Image::full().user(1, "alice", 5001, 5000).user(2, "bob", 5002, 5000).group(
            3,
            "staff",
            5000,
            &[1, 2],
        )
    }

    /// Returns name, uid, gid, GECOS, home directory and shell.
    fn passwd(state: &mut PublisherState, name: &str) -> Option<String> {
        published(state, |snapshot| {
            let found = snapshot.user_by_name(name.as_bytes()).expect("undamaged")?.record();
            let text = |text: Option<&[u8]>| {
                String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
            };
            Some(format!(
                "{} {} {} {} {} {}",
                text(Some(found.name)),
                found.uid,
                found.gid,
                text(found.gecos),
                text(found.dir),
                text(found.shell)
            ))
        })
    }

    fn members(state: &mut PublisherState, group: &str) -> Option<(u32, Vec<String>)> {
        published(state, |snapshot| {
            let found = snapshot.group_by_name(group.as_bytes()).expect("undamaged")?;
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let members = found.members.iter().map(|member| text(member.expect("undamaged")));
            Some((found.gid, members.collect()))
        })
    }

    fn rejected(state: &PublisherState) -> Vec<(String, String)> {
        let rejected = state.rejected("corp", 0, 100).expect("a domain").into_iter();
        rejected.map(|entry| (format!("{} {}", entry.kind, entry.name), entry.code)).collect()
    }

    #[test]
    fn overrides_replace_values_of_served_entries() {
        let mut state = host(&["corp"]);
        assert!(state.set_overrides(0, overrides(TEXT)));
        assert!(!state.set_overrides(0, overrides(TEXT)), "nothing changed");
        apply_image(&mut state, 0, corp()).expect("well formed");
        let al = "al 6000 6001 Al /srv/al /bin/zsh";
        assert_eq!(passwd(&mut state, "al").as_deref(), Some(al));
        assert_eq!(passwd(&mut state, "alice"), None);
        let crew = (7000, vec!["al".to_owned(), "bob".to_owned()]);
        assert_eq!(members(&mut state, "crew"), Some(crew));
        assert_eq!(members(&mut state, "staff"), None);
        // A change in the directory.
        let changed = Image::changes(1).user(1, "alice", 5005, 5000);
        apply_image(&mut state, 0, changed).expect("well formed");
        assert_eq!(passwd(&mut state, "al").as_deref(), Some(al));
        let shown = state.show_entries(LookupKind::UserByName, b"alice");
        assert_eq!((&*shown[0].name, &*shown[0].refused), ("al", ""));
        let native = shown[0].directory.iter().map(|(field, value)| format!("{field}={value}"));
        let native: Vec<_> = native.collect();
        let wanted = [
            "name=alice",
            "uid=5005",
            "gid=5000",
            "gecos=A user",
            "home=/home/user",
            "shell=/bin/sh",
        ];
        assert_eq!(native, wanted);
        // Without overrides again.
        assert!(state.set_overrides(0, DomainOverrides::default()));
        let alice = "alice 5005 5000 A user /home/user /bin/sh";
        assert_eq!(passwd(&mut state, "alice").as_deref(), Some(alice));
        assert_eq!(passwd(&mut state, "al"), None);
        assert_eq!(members(&mut state, "staff").map(|(gid, _)| gid), Some(5000));
    }

    /// A host with private groups in `corp`.
    fn private_host(kind: PrivateGroups) -> PublisherState {
        let mut rules = config(&["corp"]);
        rules.domains[0].private_groups = kind;
        let path = Path::new("/run/roster/nss");
        let mut state = PublisherState::new(&rules, path, BTreeMap::new(), None);
        state.set_locals(locals(&[("root", 0)], &[("root", 0)]));
        state
    }

    /// The private group follows the values of the override, whether these come before or after the entries.
    #[test]
    fn overrides_decide_private_group_of_user() {
        let same = "[domain.corp.override.user.alice]\nname = 'al'\nuid = 6000\ngid = 6000\n";
        for (kind, text) in [(PrivateGroups::Always, TEXT), (PrivateGroups::SameId, same)] {
            for is_first in [true, false] {
                let mut state = private_host(kind);
                if is_first {
                    state.set_overrides(0, overrides(text));
                }
                apply_image(&mut state, 0, corp()).expect("well formed");
                state.set_overrides(0, overrides(text));
                let al = passwd(&mut state, "al").expect("served");
                assert!(al.starts_with("al 6000 6000 "), "{kind:?}: {al}");
                assert_eq!(members(&mut state, "al"), Some((6000, Vec::new())), "{kind:?}");
                assert_eq!(members(&mut state, "alice"), None, "{kind:?}");
                // Without overrides again.
                state.set_overrides(0, DomainOverrides::default());
                assert_eq!(members(&mut state, "al"), None, "{kind:?}");
                let own = (kind == PrivateGroups::Always).then(|| (5001, Vec::new()));
                assert_eq!(members(&mut state, "alice"), own, "{kind:?}");
                let gid = if own.is_some() { 5001 } else { 5000 };
                let alice = passwd(&mut state, "alice").expect("served");
                assert!(alice.starts_with(&format!("alice 5001 {gid} ")), "{kind:?}: {alice}");
            }
        }
    }

    /// An override reserves its gid: the private group of another user cannot have it.
    #[test]
    fn overrides_reserve_gid_before_private_groups() {
        let mut state = private_host(PrivateGroups::Always);
        state.set_overrides(0, overrides("[domain.corp.override.group.staff]\ngid = 5002\n"));
        apply_image(&mut state, 0, corp()).expect("well formed");
        assert_eq!(members(&mut state, "staff").map(|(gid, _)| gid), Some(5002));
        assert_eq!(passwd(&mut state, "bob"), None);
        assert!(passwd(&mut state, "alice").is_some());
    }

    #[test]
    fn overrides_pass_checks_of_admission() {
        for (text, message) in [
            ("uid = 0", &directory::ID_RESERVED),
            ("uid = 500", &directory::ID_BELOW_MIN),
            ("gid = 0", &directory::ID_RESERVED),
            ("uid = 1", &directory::ID_BELOW_MIN),
            ("name = 'daemon'", &directory::PRIVILEGED_NAME),
            ("name = 'root'", &directory::NAME_ROOT),
            ("name = 'sudo'", &directory::PRIVILEGED_NAME),
            ("name = ''", &directory::NAME_EMPTY),
            ("name = 'a:b'", &directory::NAME_WITH_SEPARATOR),
            ("home = 'srv'", &directory::PATH_RELATIVE),
            ("gecos = 'a:b'", &directory::TEXT_WITH_COLON),
        ] {
            let mut state = host(&["corp"]);
            state.set_overrides(
                0,
                overrides(&format!("[domain.corp.override.user.alice]\n{text}\n")),
            );
            apply_image(&mut state, 0, corp()).expect("well formed");
            published(&mut state, |_| {});
            let codes: Vec<_> = rejected(&state).into_iter().map(|(_, code)| code).collect();
            assert_eq!(codes, [message.code], "{text}");
            let reason = &state.rejected("corp", 0, 1).expect("a domain")[0].reason;
            assert!(reason.ends_with(" (override of alice)"), "{reason}");
        }
    }

    #[test]
    fn overrides_reserve_names_and_ids() {
        for number in [0, 4] {
            let mut state = host(&["corp"]);
            state.set_overrides(0, overrides(TEXT));
            let image = corp()
                .user(number, "al", 5005, 5005)
                .user(number + 5, "eve", 6000, 5005)
                .user(number + 6, "mallory", 5007, 7000)
                .group(number + 7, "other", 7000, &[2]);
            apply_image(&mut state, 0, image).expect("well formed");
            assert!(passwd(&mut state, "al").is_some_and(|al| al.starts_with("al 6000 ")));
            let mut found = rejected(&state);
            found.sort();
            let [name, id] = [&directory::NAME_OF_OVERRIDE, &directory::ID_OF_OVERRIDE];
            let wanted =
                [("group other", id), ("user al", name), ("user eve", id), ("user mallory", id)];
            assert_eq!(
                found,
                wanted.map(|(entry, message)| (entry.to_owned(), message.code.to_owned()))
            );
        }
    }

    #[test]
    fn overrides_of_missing_entries_are_unused() {
        let mut state = host(&["corp"]);
        state.set_overrides(0, overrides(TEXT));
        let image = Image::full().user(1, "al", 5001, 5000).nested(2, "staff", &[1]);
        apply_image(&mut state, 0, image).expect("well formed");
        assert_eq!(passwd(&mut state, "al"), None, "the name stays reserved");
        assert_eq!(state.domain_counts()[0].unused_overrides, ["user alice", "group staff"]);
        apply_image(&mut state, 0, corp()).expect("well formed");
        published(&mut state, |_| {});
        assert_eq!(state.domain_counts()[0].unused_overrides, [""; 0]);
    }

    #[test]
    fn overrides_hold_no_removals() {
        let mut before = host(&["corp"]);
        apply_image(&mut before, 0, twenty_without(0, 1)).expect("well formed");
        published(&mut before, |_| {});
        let mut state = succeeded(&before, &["corp"]);
        // Every name is new to the snapshot in place.
        let users = (0..20).map(|number| format!("u{number}.name = 'x{number}'\n"));
        let text = format!("[domain.corp.override.user]\n{}", users.collect::<String>());
        state.set_overrides(0, overrides(&text));
        let applied = apply_image(&mut state, 0, twenty_without(0, 2)).expect("well formed");
        assert!(matches!(applied, ImageOutcome::Changed(_)), "{applied:?}");
        // An override that is rejected serves no entry, so it hides no removal.
        let mut state = succeeded(&before, &["corp"]);
        let users = (0..20).map(|number| format!("u{number}.uid = {number}\n"));
        let text = format!("[domain.corp.override.user]\n{}", users.collect::<String>());
        state.set_overrides(0, overrides(&text));
        let applied = apply_image(&mut state, 0, twenty_without(0, 2)).expect("well formed");
        assert!(matches!(applied, ImageOutcome::Deferred(_)), "{applied:?}");
        // Removals of the directory are held all the same.
        let mut state = succeeded(&before, &["corp"]);
        state.set_overrides(0, overrides("[domain.corp.override.user.u1]\nname = 'x1'\n"));
        let applied = apply_image(&mut state, 0, twenty_without(15, 2)).expect("well formed");
        assert!(matches!(applied, ImageOutcome::Deferred(_)), "{applied:?}");
    }

    #[test]
    fn overrides_of_lookup_results_are_applied() {
        let mut state = host(&["asked"]);
        state.set_overrides(0, overrides(TEXT));
        apply_image(&mut state, 0, Image::full()).expect("well formed");
        let forget = learn(&mut state, 0, corp()).expect("well formed").expect("news");
        assert_eq!(forget.users, [b"al".to_vec(), b"bob".to_vec()]);
        assert_eq!(forget.groups, [b"crew".to_vec()]);
        assert!(passwd(&mut state, "al").is_some());
    }

    #[test]
    fn overrides_translate_queries() {
        let text = "[domain.corp.override.user]\na = { name = 'b', uid = 6000 }\nb = { name = 'c' }\n\
                    e = { shell = '/bin/sh' }\n[domain.corp.override.group]\ng.gid = 7000\n";
        let given = overrides(text);
        let name = |kind, name: &str| Query::new(kind, name.as_bytes().to_vec(), 0);
        let user = |text| name(LookupKind::UserByName, text);
        for (asked, native, is_hidden) in [
            ("a", "a", true),
            ("b", "a", false),
            ("c", "b", false),
            ("e", "e", false),
            ("z", "z", false),
        ] {
            assert_eq!(given.native_request(&user(asked)), user(native), "{asked}");
            assert_eq!(given.hides(&user(asked)), is_hidden, "{asked}");
            if !is_hidden {
                assert_eq!(given.served_request(&user(native)), user(asked), "{asked}");
            }
        }
        let groups = name(LookupKind::GroupsOf, "b");
        assert_eq!(given.native_request(&groups), name(LookupKind::GroupsOf, "a"));
        assert_eq!(given.native_request(&Query::UserByUid(6000)), user("a"));
        assert_eq!(given.native_request(&Query::UserByUid(6001)), Query::UserByUid(6001));
        assert_eq!(
            given.native_request(&Query::GroupByGid(7000)),
            name(LookupKind::GroupByName, "g")
        );
        assert_eq!(given.native_request(&Query::GroupByGid(6000)), Query::GroupByGid(6000));
    }

    #[test]
    fn overrides_translate_groups_of_rules() {
        let text = "[domain.corp.override.group]\na.name = 'b'\nb.name = 'c'\nd.name = 'd'\n\
                    e.gid = 7000\n";
        let found = overrides(text).renamed_groups(["a", "b", "c", "d", "e", "f"].into_iter());
        let wanted = [("a", ""), ("b", "a"), ("c", "b")];
        assert_eq!(found, wanted.map(|(name, native)| (name.to_owned(), native.to_owned())));
    }
}
