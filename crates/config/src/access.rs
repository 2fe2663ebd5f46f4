//! `[domain.NAME.access]` and what is below it: who of a domain may log in to this host.

use crate::keys::Table;
use crate::read::{Section, Value, entry};
use crate::{Access, AccountCheck, Domain, Lists, Provider};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

impl AccountCheck {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 5] = [
        Self::ShadowExpire,
        Self::PasswordAge,
        Self::PasswordPolicy,
        Self::AccountLock,
        Self::ActiveDirectory,
    ];
    /// As they are written.
    pub const NAMES: [&'static str; 5] =
        ["shadow-expire", "password-age", "password-policy", "account-lock", "active-directory"];

    fn named(name: &str) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(place).copied()
    }
}

type Found<'d> = Option<(Range<usize>, &'d Spanned<DeValue<'d>>)>;

/// Reads the table; what holds where there is none is what its defaults say.
pub(crate) fn access<'d>(
    section: &mut Section<'_, '_, '_, '_>,
    found: Found<'d>,
    authenticates: bool,
) -> Access {
    let path = section.path_of("access");
    let services =
        found.as_ref().and_then(|(_, value)| entry(value.get_ref().as_table()?, "service"));
    let mut section = Section::new(section.report, Table::Access, &path, found);
    let checks: Vec<String> = section.take("account_checks");
    let access = Access {
        enabled: authenticates,
        lists: lists(&mut section),
        filter: section.take_if("filter"),
        account_checks: AccountCheck::ALL
            .into_iter()
            .filter(|check| checks.iter().any(|name| AccountCheck::named(name) == Some(*check)))
            .collect(),
        temporary_lock: section.take("temporary_lock"),
        ssh_key_options: section.take("ssh_key_options"),
        ssh_keys_of_denied: section.take("ssh_keys_of_denied"),
        services: BTreeMap::new(),
    };
    let has_rules =
        access.filter.is_some() || access.lists != Lists::default() || services.is_some();
    let enabled = section.take_or("enabled", authenticates || has_rules, Value::Boolean);
    section.refuse_strangers(None);
    let services = services.map_or_else(BTreeMap::new, |found| by_service(&mut section, found));
    let access = Access { services, enabled, ..access };
    if !access.enabled && (authenticates || has_rules) {
        section.wrong(
            "enabled",
            "lets nobody be judged by rules that there are",
            "remove it; or remove the rules, and auth",
        );
    }
    access
}

/// The tables below `service`.
fn by_service(
    section: &mut Section<'_, '_, '_, '_>,
    (place, value): (Range<usize>, &Spanned<DeValue<'_>>),
) -> BTreeMap<String, Lists> {
    let path = section.path_of("service");
    // A slip such as service = "sshd" is told as any table's is.
    drop(Section::new(section.report, Table::Service, &path, Some((place, value))));
    let mut services = BTreeMap::new();
    for (key, value) in value.get_ref().as_table().into_iter().flatten() {
        let name = &**key.get_ref();
        let quoted = crate::domain::bare_or_quoted(name);
        let path = format!("{path}.{quoted}");
        let found = Some((key.span(), value));
        let mut section = Section::new(section.report, Table::Service, &path, found);
        let of_service = lists(&mut section);
        section.refuse_strangers(None);
        services.insert(name.to_owned(), of_service);
    }
    services
}

fn lists(section: &mut Section<'_, '_, '_, '_>) -> Lists {
    let lists = Lists {
        allowed_users: section.take_if("allowed_users"),
        allowed_groups: section.take_if("allowed_groups"),
        denied_users: section.take_if("denied_users"),
        denied_groups: section.take_if("denied_groups"),
    };
    let is_empty = |names: &Option<Vec<String>>| names.as_ref().is_some_and(Vec::is_empty);
    let nobody = match (&lists.allowed_users, &lists.allowed_groups) {
        (Some(users), None) if users.is_empty() => Some("allowed_users"),
        (_, Some(groups)) if groups.is_empty() => {
            lists.allowed_users.as_ref().is_none_or(Vec::is_empty).then_some("allowed_groups")
        }
        _ => None,
    };
    if let Some(name) = nobody.filter(|name| section.has(name)) {
        section.warn(name, "lets nobody in", "remove it to let everybody in, or name somebody");
    }
    for (name, list) in
        [("denied_users", &lists.denied_users), ("denied_groups", &lists.denied_groups)]
    {
        if is_empty(list) {
            section.warn(name, "keeps nobody out", "remove it, or name somebody");
        }
    }
    lists
}

/// What of it means nothing for the domain that it belongs to.
pub(crate) fn check(section: &mut Section<'_, '_, '_, '_>, domain: &Domain) {
    if domain.access.filter.is_some() && matches!(domain.provider, Provider::Files(_)) {
        section.wrong(
            "access",
            "has a filter, and text has nobody who could be asked by it",
            "remove the filter, and name users or groups",
        );
    }
}

impl Access {
    /// What holds where nothing is configured: accounts have to be in order, and nothing else.
    #[must_use]
    pub fn unconfigured() -> Self {
        Self { account_checks: AccountCheck::ALL.to_vec(), ..Self::default() }
    }

    /// All groups that a rule names.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let lists = std::iter::once(&self.lists).chain(self.services.values());
        let groups = lists.flat_map(|lists| [&lists.allowed_groups, &lists.denied_groups]);
        groups.flatten().flatten().map(String::as_str)
    }

    /// The same with names as a domain has them that does not tell cases apart.
    #[must_use]
    pub fn lower_case(mut self) -> Self {
        for lists in std::iter::once(&mut self.lists).chain(self.services.values_mut()) {
            let all = [
                &mut lists.allowed_users,
                &mut lists.allowed_groups,
                &mut lists.denied_users,
                &mut lists.denied_groups,
            ];
            for name in all.into_iter().flatten().flatten() {
                *name = name.to_lowercase();
            }
        }
        self
    }
}
