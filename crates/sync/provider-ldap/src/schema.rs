// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the attributes of an entry to a user or a group, by the configured names of attributes. `search` decides
//! which search an entry belongs to.
//!
//! It only checks that the entry is readable: one name, one id. The publisher decides whether the entry is served. If
//! possible, fields are slices of the message.

use crate::ber::BerError;
use crate::dn;
use crate::filter::EncodedFilter;
use crate::message::{AttributeValues, RawEntry, printable};
use crate::sid_ids::SidIds;
use roster_config::{
    AccountCheck, AttributeNames, DomainConfig, HomeShellOverrides, LdapConfig, MemberAttribute,
    MemberValues, NameCase,
};
use roster_messages::table::directory;
use roster_names::fold;
use roster_provider::account::{Account, AccountFact};
use roster_provider::reason::Reason;
use roster_provider::{DirectoryGroup, DirectoryUser, EntryId, Member, overrides};
use std::borrow::Cow;
use std::sync::Arc;

/// The attribute of Active Directory that changes with each change of an entry.
pub const CHANGE_NUMBER: &str = "uSNChanged";

/// Values of one attribute that a DN may begin with if the DN has to select the name. An entry may have a million of
/// both, and all pairs are compared.
const RDN_VALUES_MAX: usize = 16;

/// Names of attributes and rules by which a domain's entries are read.
#[derive(Clone, Debug)]
pub struct AttributeMapping {
    attributes: AttributeNames,
    members: Vec<MemberAttribute>,
    case: NameCase,
    overrides: HomeShellOverrides,
    /// Users without a home directory are read.
    empty_homes: bool,
    domain: String,
    /// The attributes of accounts. Empty in a domain without logins.
    facts: Vec<(String, AccountFact)>,
    /// Computes ids from SIDs. Without it, attributes have the ids.
    sids: Option<Arc<SidIds>>,
    /// Members in one request for a list. `None` requests whole lists.
    member_range: Option<u32>,
}

/// Attributes with the name of a person in Active Directory, for users without gecos. The last one is always there.
const PERSON_NAMES: [&str; 2] = ["displayname", "name"];

/// The result of reading an entry, or the reason that it is unusable.
pub type ReadResult<T> = Result<T, Reason>;

impl AttributeMapping {
    /// Makes the mapping from a domain's configuration.
    #[must_use]
    pub fn new(domain: &DomainConfig, ldap: &LdapConfig) -> Self {
        Self {
            attributes: ldap.attributes.clone(),
            members: ldap.member_attributes.clone(),
            case: domain.names.case,
            overrides: domain.overrides.clone(),
            empty_homes: domain.serving.empty_homes,
            domain: domain.name.clone(),
            facts: if domain.has_logins() {
                facts(&ldap.attributes, &domain.access.account_checks)
            } else {
                Vec::new()
            },
            sids: domain.sid_mapping().map(|mapping| Arc::new(SidIds::new(mapping))),
            member_range: ldap.schema.is_active_directory().then_some(ldap.member_range),
        }
    }

    /// Returns the ids that are computed from SIDs, in a domain with such ids.
    #[must_use]
    pub(crate) fn sids(&self) -> Option<&SidIds> {
        self.sids.as_deref()
    }

    /// Returns the attributes that a user needs.
    #[must_use]
    pub fn user_attributes(&self) -> Vec<String> {
        let names = &self.attributes;
        let names = [
            &names.user_name,
            &names.user_uid,
            &names.user_gid,
            &names.user_gecos,
            &names.user_home,
            &names.user_shell,
        ];
        let person = self.person_names().iter().map(|name| (*name).to_owned());
        let facts = self.facts.iter().map(|(name, _)| name.clone());
        names.into_iter().cloned().chain(person).chain(facts).collect()
    }

    /// Returns the attributes that a group needs, with `with_members` also the ones that list members.
    #[must_use]
    pub fn group_attributes(&self, with_members: bool) -> Vec<String> {
        let lists = self.members.iter().enumerate().filter(|_| with_members);
        let lists = lists.map(|(attribute, list)| match self.member_range {
            Some(_) => self.remaining_members_attribute(RemainingMembers { attribute, from: 0 }),
            None => list.name.clone(),
        });
        let version = self.version_attribute().filter(|_| with_members).map(str::to_owned);
        let names = [&self.attributes.group_name, &self.attributes.group_gid].map(String::clone);
        names.into_iter().chain(lists).chain(version).collect()
    }

    /// Returns the attribute that shows whether a list has changed between two requests for parts of it.
    #[must_use]
    pub fn version_attribute(&self) -> Option<&'static str> {
        self.member_range.map(|_| CHANGE_NUMBER)
    }

    /// Returns the version of an entry. Empty if it shows none.
    pub fn version<'a>(&self, entry: &RawEntry<'a>) -> Result<&'a [u8], BerError> {
        let value = self.version_attribute().map(|name| first_value(entry, name)).transpose()?;
        Ok(value.flatten().unwrap_or_default())
    }

    fn person_names(&self) -> &'static [&'static str] {
        // Only Active Directory has lists in ranges.
        if self.member_range.is_some() { &PERSON_NAMES } else { &[] }
    }

    /// Returns the attributes of accounts. Empty in a domain without logins.
    #[must_use]
    pub fn facts(&self) -> &[(String, AccountFact)] {
        &self.facts
    }

    /// Returns the names of attributes.
    #[must_use]
    pub fn attributes(&self) -> &AttributeNames {
        &self.attributes
    }

    /// Returns all attributes that the classification of entries needs.
    #[must_use]
    pub fn classifying_attributes(&self) -> [&str; 3] {
        ["objectClass", &self.attributes.user_uid, &self.attributes.group_gid]
    }

    /// Returns the names of the attributes in which groups name members, by name or by DN.
    pub fn members_by(&self, by: MemberSyntax) -> impl Iterator<Item = &str> {
        let of_kind =
            self.members.iter().filter(move |one| MemberSyntax::from_values(one.values) == by);
        of_kind.map(|attribute| attribute.name.as_str())
    }

    /// Returns filters that match groups with any of these members. Each filter is for one value of one attribute.
    #[must_use]
    pub fn filters_naming(&self, by: MemberSyntax, values: &[Vec<u8>]) -> Vec<EncodedFilter> {
        let equals = |value: &Vec<u8>| {
            let of_value =
                self.members_by(by).map(|attribute| EncodedFilter::equals(attribute, value));
            of_value.collect::<Vec<_>>()
        };
        values.iter().flat_map(equals).collect()
    }

    /// Returns whether groups may name members by DN, and so other groups.
    #[must_use]
    pub fn has_dns(&self) -> bool {
        self.members_by(MemberSyntax::Dn).next().is_some()
    }

    /// Returns the name of an entry by the domain's rule on case.
    #[must_use]
    pub fn entry_name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        match self.case {
            NameCase::Insensitive => fold(name),
            NameCase::Sensitive | NameCase::Preserving => Cow::Borrowed(name),
        }
    }

    /// Returns a name as the domain compares it.
    #[must_use]
    pub fn comparable_name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        match self.case {
            NameCase::Sensitive => Cow::Borrowed(name),
            NameCase::Insensitive | NameCase::Preserving => fold(name),
        }
    }

    /// Reads a user.
    pub fn user<'a>(
        &self,
        entry: &RawEntry<'a>,
    ) -> Result<ReadResult<DirectoryUser<'a>>, BerError> {
        let names = &self.attributes;
        let [name, uid, gid, gecos, home, shell] = find(
            entry,
            [
                &names.user_name,
                &names.user_uid,
                &names.user_gid,
                &names.user_gecos,
                &names.user_home,
                &names.user_shell,
            ],
        )?;
        let mut account = self.account(entry)?;
        if self.member_range.is_some() && !self.facts.is_empty() {
            // Each user of Active Directory has these bits. Without the right to read them, no lock is known.
            account.add_missing(AccountFact::Control);
        }
        let mut gecos = gecos.first.unwrap_or_default();
        for name in self.person_names() {
            if gecos.is_empty() {
                gecos = first_value(entry, name)?.unwrap_or_default();
            }
        }
        let read = || {
            let name = self.entry_name(name.in_rdn(entry)?);
            let (uid, gid) = match &self.sids {
                Some(sids) => sids.user_ids(uid.one()?, gid.number()?)?,
                None => (uid.number()?, gid.number()?),
            };
            let mut user = DirectoryUser {
                uid,
                gid,
                gecos: Cow::Borrowed(gecos),
                dir: Cow::Borrowed(home.at_most_one()?.unwrap_or_default()),
                shell: Cow::Borrowed(shell.at_most_one()?.unwrap_or_default()),
                reference: self.reference(entry),
                name,
                account,
            };
            overrides::apply(&self.overrides, &self.domain, &mut user);
            if user.dir.is_empty() && !self.empty_homes {
                let text = format!("{} is missing", home.name);
                return Err(Reason::new(&directory::HOME_MISSING, text));
            }
            Ok(user)
        };
        Ok(read())
    }

    /// Reads the account attributes of a user.
    fn account<'a>(&self, entry: &RawEntry<'a>) -> Result<Account<'a>, BerError> {
        let mut account = Account::default();
        if self.facts.is_empty() {
            return Ok(account);
        }
        for attribute in entry.attributes() {
            let (name, values) = attribute?;
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            for (_, fact) in self.facts.iter().filter(|(other, _)| is(other)) {
                for value in values {
                    let value = value?;
                    if *fact != AccountFact::LockingRole || is_locking(value) {
                        account.add(*fact, Cow::Borrowed(value));
                    }
                }
            }
        }
        Ok(account)
    }

    /// Reads a group, with `with_members` also its members from each attribute that lists members. A list makes the
    /// group unreadable if it has another option than a range from its beginning, because its missing part is unknown.
    pub fn group<'a>(
        &self,
        entry: &RawEntry<'a>,
        with_members: bool,
    ) -> Result<ReadResult<PartialGroup<'a>>, BerError> {
        let names = &self.attributes;
        let [name, gid] = find(entry, [&names.group_name, &names.group_gid])?;
        let mut members = with_members.then(Vec::new);
        let mut rest = Vec::new();
        let mut wrong = None;
        if let Some(members) = &mut members {
            for attribute in 0..self.members.len() {
                match self.members(entry, RemainingMembers { attribute, from: 0 }, members)? {
                    Ok(next) => rest.extend(next),
                    Err(reason) => wrong = Some(reason),
                }
            }
        }
        let version = self.version(entry)?;
        let read = || {
            let gid = match &self.sids {
                Some(sids) => Some(sids.group_id(gid.one()?)?),
                None => gid.optional_number()?,
            };
            let name = match (name.in_rdn(entry), gid) {
                (Ok(name), _) => name,
                // Lists name it by its DN. No rule has an empty name.
                (Err(_), None) => b"",
                (Err(reason), Some(_)) => return Err(reason),
            };
            let group = DirectoryGroup {
                name: self.entry_name(name),
                gid,
                reference: self.reference(entry),
                members,
            };
            wrong.map_or(Ok(PartialGroup { group, rest, version }), Err)
        };
        Ok(read())
    }

    /// Returns the DN of an entry as member lists name it. Empty if lists have no DNs.
    #[must_use]
    pub fn reference<'a>(&self, entry: &RawEntry<'a>) -> Cow<'a, [u8]> {
        if self.has_dns() { dn::normalise(entry.dn) } else { Cow::Borrowed(&b""[..]) }
    }

    /// Returns the attribute description that requests the rest of a list.
    #[must_use]
    pub fn remaining_members_attribute(&self, rest: RemainingMembers) -> String {
        let name = self.members.get(rest.attribute).map_or("", |attribute| &attribute.name);
        match self.member_range {
            Some(count) => {
                let last = rest.from.saturating_add(count.saturating_sub(1));
                format!("{name};{RANGE}{}-{last}", rest.from)
            }
            None => format!("{name};{RANGE}{}-*", rest.from),
        }
    }

    /// Returns the whole lists of a group, each from its beginning.
    #[must_use]
    pub fn whole_lists(&self) -> Vec<RemainingMembers> {
        (0..self.members.len()).map(|attribute| RemainingMembers { attribute, from: 0 }).collect()
    }

    /// Reads the members that an entry shows of one list from a position on. Returns the start of the rest, or `None`
    /// at the end of the list. An entry may lack a list, but not the rest of one, and no members of a range.
    pub fn members<'a>(
        &self,
        entry: &RawEntry<'a>,
        shown: RemainingMembers,
        members: &mut Vec<Member<'a>>,
    ) -> Result<ReadResult<Option<RemainingMembers>>, BerError> {
        let Some(MemberAttribute { name, values: kind }) = self.members.get(shown.attribute) else {
            return Ok(Ok(None));
        };
        let mut rest = None;
        let mut is_shown = shown.from == 0;
        for attribute in entry.attributes() {
            let (description, values) = attribute?;
            let Some(options) = attribute_options(description, name) else { continue };
            is_shown |= !options.is_empty();
            let mut end = None;
            if !options.is_empty() {
                match range(options) {
                    Some((first, last)) if first == shown.from => {
                        end = last.and_then(|last| last.checked_add(1));
                        rest = end.map(|from| RemainingMembers { from, ..shown });
                    }
                    _ => return Ok(Err(unreadable_list_reason(description))),
                }
            }
            let mut position = shown.from;
            for value in values {
                is_shown = true;
                position = position.saturating_add(1);
                members.extend(self.member(*kind, value?));
            }
            if end.is_some_and(|end| end != position) {
                return Ok(Err(unfilled_range_reason(description)));
            }
        }
        Ok(if is_shown { Ok(rest) } else { Err(incomplete_list_reason(shown)) })
    }

    /// Returns the member that a value names, unless it is empty.
    fn member<'a>(&self, kind: MemberValues, value: &'a [u8]) -> Option<Member<'a>> {
        let member = match kind {
            MemberValues::Names => Member::Name(self.comparable_name(value)),
            MemberValues::Dns => Member::Dn(dn::normalise(value)),
            MemberValues::DnsWithUids => Member::Dn(dn::normalise(strip_uid(value))),
        };
        let (Member::Name(text) | Member::Dn(text)) = &member;
        (!text.is_empty()).then_some(member)
    }
}

/// Syntax of the members in an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberSyntax {
    /// Users by name.
    Name,
    /// Users and groups by DN.
    Dn,
}

impl MemberSyntax {
    fn from_values(values: MemberValues) -> Self {
        match values {
            MemberValues::Names => Self::Name,
            MemberValues::Dns | MemberValues::DnsWithUids => Self::Dn,
        }
    }
}

/// Returns the DN in a value of `uniqueMember`. A UID such as `#'0101'B` may follow it (RFC 4517, 3.3.21). The UID
/// distinguishes entries that had the same DN one after the other. An entry does not show its own UID.
fn strip_uid(value: &[u8]) -> &[u8] {
    let dn = value.strip_suffix(b"'B").and_then(|rest| {
        let bits = rest.iter().rev().take_while(|byte| matches!(byte, b'0' | b'1')).count();
        rest.get(..rest.len() - bits)?.strip_suffix(b"#'")
    });
    dn.unwrap_or(value)
}

/// A group, and the parts of its member lists that the server did not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialGroup<'a> {
    /// The group with the members that were shown.
    pub group: DirectoryGroup<'a>,
    /// The missing parts, at most one of each attribute.
    pub rest: Vec<RemainingMembers>,
    /// The version of the entry. All parts of its lists need the same one.
    pub version: &'a [u8],
}

/// Members that the server did not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingMembers {
    /// Index of the attribute among the attributes with members.
    attribute: usize,
    /// Position of the first missing member.
    pub from: u32,
}

/// The option for a part of a long list in Active Directory (MS-ADTS 3.1.1.3.1.3.3).
const RANGE: &str = "range=";

/// Returns the options of an attribute description, if it is of this attribute. Empty without options.
fn attribute_options<'a>(description: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (of, options) = description.split_at_checked(name.len())?;
    if !of.eq_ignore_ascii_case(name.as_bytes()) {
        return None;
    }
    if options.is_empty() { Some(options) } else { options.strip_prefix(b";") }
}

/// Returns the first and last position of the option `range=first-last`. `range=first-*` has no last position.
fn range(option: &[u8]) -> Option<(u32, Option<u32>)> {
    let (name, positions) = option.split_at_checked(RANGE.len())?;
    let positions = std::str::from_utf8(positions).ok()?;
    let (first, last) = positions.split_once('-')?;
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten()
    };
    let first = number(first)?;
    let last = if last == "*" { None } else { Some(number(last)?) };
    let is_range = name.eq_ignore_ascii_case(RANGE.as_bytes());
    (is_range && last.is_none_or(|last| last >= first && last < u32::MAX)).then_some((first, last))
}

/// Returns the reason to skip a group with an incomplete list.
pub(crate) fn incomplete_list_reason(rest: RemainingMembers) -> Reason {
    let text = format!("the server returns only the first {} members", rest.from);
    Reason::new(&directory::MEMBERS_CUT, text)
}

/// Returns the reason to skip an entry that cannot be searched by its DN.
pub(crate) fn dn_not_utf8() -> Reason {
    Reason::new(&directory::DN_NOT_UTF8, "the DN is not UTF-8")
}

/// Returns the reason to skip a list of members with possibly missing parts.
fn unreadable_list_reason(description: &[u8]) -> Reason {
    let text = format!("list {} has an unknown form", printable(description));
    Reason::new(&directory::MEMBERS_UNREADABLE, text)
}

/// Returns the reason to skip a list of members with a range of another length than its values.
fn unfilled_range_reason(description: &[u8]) -> Reason {
    let text = format!("list {} has another number of members", printable(description));
    Reason::new(&directory::MEMBERS_UNREADABLE, text)
}

/// Returns the attributes of accounts. Two facts may have the same attribute. Lists of hosts and services, which may be
/// long, are among them only if a check reads them.
fn facts(names: &AttributeNames, checks: &[AccountCheck]) -> Vec<(String, AccountFact)> {
    let facts = [
        (&names.shadow_last_change, AccountFact::LastChange),
        (&names.shadow_max, AccountFact::MaxDays),
        (&names.shadow_warning, AccountFact::WarnDays),
        (&names.shadow_inactive, AccountFact::InactiveDays),
        (&names.shadow_expire, AccountFact::ExpireDay),
        (&names.locked_time, AccountFact::LockedTime),
        (&names.password_reset, AccountFact::MustChange),
        (&names.account_lock, AccountFact::AccountLock),
        (&names.role, AccountFact::LockingRole),
        (&names.account_control, AccountFact::Control),
        (&names.account_expires, AccountFact::Expires),
        (&names.account_control_computed, AccountFact::ControlComputed),
        (&names.lockout_time, AccountFact::LockoutTime),
        (&names.ssh_key, AccountFact::SshKey),
    ];
    let lists = [
        (&names.host, AccountFact::Host, AccountCheck::Host),
        (
            &names.authorized_service,
            AccountFact::AuthorizedService,
            AccountCheck::AuthorizedService,
        ),
        (&names.rhost, AccountFact::RemoteHost, AccountCheck::RemoteHost),
    ];
    let lists = lists.into_iter().filter(|(_, _, check)| checks.contains(check));
    let all = facts.into_iter().chain(lists.map(|(name, fact, _)| (name, fact)));
    all.map(|(name, fact)| (name.clone(), fact)).collect()
}

/// Roles of locked accounts in 389 Directory Server.
const LOCKING_ROLES: [&[u8]; 3] =
    [b"nsmanageddisabledrole", b"nsnesteddisabledrole", b"nsdisabledrole"];

/// Returns whether a role, which is a DN, locks accounts.
fn is_locking(role: &[u8]) -> bool {
    dn::first_rdn(&dn::normalise(role)).is_some_and(|(_, name)| {
        LOCKING_ROLES.iter().any(|locking| name.eq_ignore_ascii_case(locking))
    })
}

/// Returns the first value of an attribute.
fn first_value<'a>(entry: &RawEntry<'a>, name: &str) -> Result<Option<&'a [u8]>, BerError> {
    entry.values(name)?.next().transpose()
}

/// The values of one attribute in an entry.
#[derive(Clone, Copy, Debug)]
struct FoundAttribute<'a, 'n> {
    name: &'n str,
    values: Option<AttributeValues<'a>>,
    first: Option<&'a [u8]>,
    count: usize,
}

/// Finds several attributes in one pass over the entry.
fn find<'a, 'n, const N: usize>(
    entry: &RawEntry<'a>,
    names: [&'n str; N],
) -> Result<[FoundAttribute<'a, 'n>; N], BerError> {
    let mut found = names.map(|name| FoundAttribute { name, values: None, first: None, count: 0 });
    for attribute in entry.attributes() {
        let (name, values) = attribute?;
        for found in
            found.iter_mut().filter(|found| name.eq_ignore_ascii_case(found.name.as_bytes()))
        {
            found.values = Some(values);
            found.first = values.clone().next().transpose()?;
            for value in values {
                value?;
                found.count += 1;
            }
        }
    }
    Ok(found)
}

impl<'a> FoundAttribute<'a, '_> {
    fn at_most_one(&self) -> ReadResult<Option<&'a [u8]>> {
        if self.count > 1 {
            let text = format!("{} has {} values", self.name, self.count);
            return Err(Reason::new(&directory::ATTRIBUTE_WITH_SEVERAL_VALUES, text));
        }
        Ok(self.first)
    }

    fn one(&self) -> ReadResult<&'a [u8]> {
        match self.at_most_one()? {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) => {
                Err(Reason::new(&directory::ATTRIBUTE_EMPTY, format!("{} is empty", self.name)))
            }
            None => {
                let text = format!("{} is missing", self.name);
                Err(Reason::new(&directory::ATTRIBUTE_MISSING, text))
            }
        }
    }

    /// Returns the number, or `None` if the entry lacks the attribute.
    fn optional_number(&self) -> ReadResult<Option<u32>> {
        if self.count == 0 { Ok(None) } else { self.number().map(Some) }
    }

    fn number(&self) -> ReadResult<u32> {
        let value = self.one()?;
        let digits = value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.filter(|_| digits).ok_or_else(|| {
            let (value, most) = (printable(value), u32::MAX);
            let text = format!("{} {value:?} is not a number from 0 to {most}", self.name);
            Reason::new(&directory::NUMBER_INVALID, text)
        })
    }

    /// Returns the only value. If there are several, returns the value at the start of the DN.
    fn in_rdn(&self, entry: &RawEntry<'_>) -> ReadResult<&'a [u8]> {
        if self.count < 2 {
            return self.one();
        }
        let in_rdn = dn::rdn_values(entry.dn, self.name);
        if in_rdn.len() > RDN_VALUES_MAX {
            let most = RDN_VALUES_MAX;
            let text = format!("the DN begins with more than {most} values of {}", self.name);
            return Err(Reason::new(&directory::DN_WITH_TOO_MANY_NAMES, text));
        }
        let mut named = self.values.into_iter().flatten().flatten().filter(|value| {
            in_rdn.iter().any(|rdn| rdn.eq_ignore_ascii_case(value)) && !value.is_empty()
        });
        match (named.next(), named.next()) {
            (Some(value), None) => Ok(value),
            _ => {
                let text =
                    format!("{} has {} values and the DN does not name one", self.name, self.count);
                Err(Reason::new(&directory::NAME_AMBIGUOUS, text))
            }
        }
    }
}

/// Parses the value of a UUID attribute as the key of an entry. The value is text of 32 hexadecimal digits with dashes
/// or braces anywhere (entryUUID, nsUniqueId, ipaUniqueID), or 16 octets (objectGUID).
#[must_use]
pub fn entry_id(value: &[u8]) -> Option<EntryId> {
    if let Ok(octets) = value.try_into() {
        return Some(EntryId(octets));
    }
    let mut id = [0; 16];
    let mut digits = 0;
    for &byte in value {
        if byte.is_ascii_hexdigit() {
            let octet = id.get_mut(digits / 2)?;
            *octet = *octet << 4 | dn::hex_value(byte);
            digits += 1;
        } else if !matches!(byte, b'-' | b'{' | b'}') {
            return None;
        }
    }
    (digits == 32).then_some(EntryId(id))
}

/// Returns the key of the group in an entry. An entry that is also a user thus has two keys. The key is the key of the
/// entry with two inverted bits, which are the same in every UUID (RFC 4122's variant).
#[must_use]
pub fn group_id(id: EntryId) -> EntryId {
    let EntryId(mut octets) = id;
    octets[8] ^= 0xc0;
    EntryId(octets)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    fn attribute(name: &str, values: MemberValues) -> MemberAttribute {
        MemberAttribute { name: name.to_owned(), values }
    }

    /// A mapping with the usual attributes.
    pub(crate) fn mapping(case_sensitive: bool) -> AttributeMapping {
        let case = if case_sensitive { NameCase::Sensitive } else { NameCase::Insensitive };
        let text = |text: &str| text.to_owned();
        AttributeMapping {
            attributes: AttributeNames {
                user_name: text("uid"),
                user_uid: text("uidnumber"),
                user_gid: text("gidnumber"),
                user_gecos: text("gecos"),
                user_home: text("homedirectory"),
                user_shell: text("loginshell"),
                group_name: text("cn"),
                group_gid: text("gidnumber"),
                ssh_key: text("sshpublickey"),
                shadow_last_change: text("shadowlastchange"),
                shadow_max: text("shadowmax"),
                shadow_warning: text("shadowwarning"),
                shadow_inactive: text("shadowinactive"),
                shadow_expire: text("shadowexpire"),
                locked_time: text("pwdaccountlockedtime"),
                password_reset: text("pwdreset"),
                account_lock: text("nsaccountlock"),
                role: text("nsrole"),
                account_control: text("useraccountcontrol"),
                account_expires: text("accountexpires"),
                account_control_computed: text("msds-user-account-control-computed"),
                lockout_time: text("lockouttime"),
                host: text("host"),
                authorized_service: text("authorizedservice"),
                rhost: text("rhost"),
                uuid: None,
            },
            members: vec![
                attribute("memberuid", MemberValues::Names),
                attribute("member", MemberValues::Dns),
                attribute("uniquemember", MemberValues::DnsWithUids),
            ],
            case,
            overrides: HomeShellOverrides::default(),
            empty_homes: false,
            domain: text("corp"),
            facts: Vec::new(),
            sids: None,
            member_range: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::mapping;
    use super::*;
    use crate::message::testing::{entry, raw};
    use roster_config::SidMapping;

    type Values<'a> = (&'a str, &'a [&'a [u8]]);

    const NAME: Values<'_> = ("uid", &[b"Alice"]);
    const UID: Values<'_> = ("uidNumber", &[b"5001"]);
    const GID: Values<'_> = ("gidNumber", &[b"5000"]);
    const HOME: Values<'_> = ("homeDirectory", &[b"/home/alice"]);

    /// Returns the name of a user with these attributes, or the reason that it is unusable.
    fn read(dn: &str, attributes: &[Values<'_>]) -> ReadResult<String> {
        let message = entry(dn, attributes);
        let user = mapping(false).user(&raw(&message)).unwrap()?;
        Ok(String::from_utf8(user.name.into_owned()).unwrap())
    }

    #[test]
    fn a_user_has_its_fields_under_the_configured_names() {
        let message = entry("uid=Alice,dc=x", &[NAME, UID, GID, HOME, ("GECOS", &[b"A. Lice"])]);
        let user = mapping(false).user(&raw(&message)).unwrap().unwrap();
        assert_eq!((&*user.name, user.uid, user.gid), (&b"alice"[..], 5001, 5000));
        assert_eq!((&*user.gecos, &*user.shell), (&b"A. Lice"[..], &b""[..]));
        assert_eq!(&*user.reference, b"uid=alice,dc=x");
        let sensitive = mapping(true).user(&raw(&message)).unwrap().unwrap();
        assert_eq!(
            (&*sensitive.name, &*sensitive.reference),
            (&b"Alice"[..], &b"uid=alice,dc=x"[..])
        );
    }

    #[test]
    fn what_is_said_of_an_account_is_read_where_people_log_in() {
        let keys: Values<'_> = ("sshPublicKey", &[b"ssh-ed25519 AAAA", b"ssh-rsa AAAA"]);
        let roles: Values<'_> = ("nsRole", &[b"cn=staff,dc=x", b"cn=nsManagedDisabledRole,dc=x"]);
        let expire: Values<'_> = ("SHADOWEXPIRE", &[b"20000"]);
        let message = entry("uid=Alice,dc=x", &[NAME, UID, GID, HOME, keys, roles, expire]);
        let without = mapping(false);
        let user = without.user(&raw(&message)).unwrap().unwrap();
        assert_eq!(user.account, Account::default());
        let facts = facts(&without.attributes, &AccountCheck::DEFAULT);
        let user = AttributeMapping { facts, ..without }.user(&raw(&message)).unwrap().unwrap();
        let values = |fact| user.account.values_of(fact).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(values(AccountFact::SshKey), [&b"ssh-ed25519 AAAA"[..], b"ssh-rsa AAAA"]);
        assert_eq!(values(AccountFact::LockingRole), [b"cn=nsManagedDisabledRole,dc=x"]);
        assert_eq!(values(AccountFact::ExpireDay), [b"20000"]);
        assert_eq!(values(AccountFact::LastChange), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn account_lists_are_read_for_their_checks_only() {
        let hosts: Values<'_> = ("HOST", &[b"web1", b"!web2"]);
        let message = entry("uid=Alice,dc=x", &[NAME, UID, GID, HOME, hosts, ("rhost", &[b"*"])]);
        for (checks, count) in [(&[][..], 0), (&[AccountCheck::Host], 2)] {
            let mapping = mapping(false);
            let mapping = AttributeMapping { facts: facts(&mapping.attributes, checks), ..mapping };
            let user = mapping.user(&raw(&message)).unwrap().unwrap();
            assert_eq!(user.account.values_of(AccountFact::Host).count(), count);
            assert_eq!(user.account.values_of(AccountFact::RemoteHost).count(), 0);
        }
    }

    #[test]
    fn of_several_names_the_one_in_the_dn_counts() {
        let names: Values<'_> = ("uid", &[b"al", b"Alice", b"alicia"]);
        assert_eq!(read("UID=alice,dc=x", &[names, UID, GID, HOME]), Ok("alice".to_owned()));
        for dn in ["cn=Alice,dc=x", "uid=bob,dc=x", "uid=al+uid=alice,dc=x"] {
            let reason = read(dn, &[names, UID, GID, HOME]).unwrap_err();
            assert_eq!(reason.text, "uid has 3 values and the DN does not name one", "{dn}");
            assert_eq!(reason.message, &directory::NAME_AMBIGUOUS);
        }
    }

    #[test]
    fn a_dn_that_begins_with_too_many_names_is_not_searched_for_one() {
        let names: Values<'_> = ("uid", &[b"a0", b"b"]);
        let dn = |count: usize| {
            let parts: Vec<String> = (0..count).map(|number| format!("uid=a{number}")).collect();
            format!("{},dc=x", parts.join("+"))
        };
        let read = |count| read(&dn(count), &[names, UID, GID, HOME]);
        assert_eq!(read(RDN_VALUES_MAX), Ok("a0".to_owned()));
        let reason = read(RDN_VALUES_MAX + 1).unwrap_err();
        assert_eq!(reason.message, &directory::DN_WITH_TOO_MANY_NAMES);
        assert_eq!(reason.text, "the DN begins with more than 16 values of uid");
    }

    #[test]
    fn numbers_must_be_one_and_a_number() {
        let with = |values: &'static [&'static [u8]]| {
            read("uid=a,dc=x", &[NAME, ("uidNumber", values), GID, HOME]).unwrap_err()
        };
        let several = with(&[b"1", b"2"]);
        assert_eq!(several.text, "uidnumber has 2 values");
        assert_eq!(several.message, &directory::ATTRIBUTE_WITH_SEVERAL_VALUES);
        assert_eq!(with(&[b""]).message, &directory::ATTRIBUTE_EMPTY);
        for bad in [
            &b"-1"[..],
            b"+1",
            b"0x10",
            b"1 ",
            b"1.0",
            b"4294967296",
            b"99999999999999999999",
            b"one",
        ] {
            let reason = read("uid=a,dc=x", &[NAME, ("uidNumber", &[bad]), GID, HOME]).unwrap_err();
            assert!(reason.text.contains("is not a number from 0 to 4294967295"), "{reason}");
            assert_eq!(reason.message, &directory::NUMBER_INVALID);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = [NAME, UID, GID, HOME];
        for (left_out, (named, message)) in [
            ("uid is missing", &directory::ATTRIBUTE_MISSING),
            ("uidnumber is missing", &directory::ATTRIBUTE_MISSING),
            ("gidnumber is missing", &directory::ATTRIBUTE_MISSING),
            ("homedirectory is missing", &directory::HOME_MISSING),
        ]
        .iter()
        .enumerate()
        {
            let mut some = all.to_vec();
            some.remove(left_out);
            let reason = read("uid=Alice,dc=x", &some).unwrap_err();
            assert_eq!((&*reason.text, reason.message), (*named, *message));
        }
    }

    #[test]
    fn members_are_in_canonical_form_and_not_copied_when_they_are_already() {
        let attributes: [Values<'_>; 3] =
            [("cn", &[b"staff"]), GID, ("member", &[b"uid=a,dc=x", b"UID=B, dc=x", b""])];
        let message = entry("cn=staff,dc=x", &attributes);
        let read = mapping(false).group(&raw(&message), true).unwrap().unwrap();
        assert_eq!(read.rest, []);
        let members = read.group.members.unwrap();
        assert_eq!(members, [dn(b"uid=a,dc=x"), dn(b"uid=b,dc=x")]);
        assert!(matches!(members[0], Member::Dn(Cow::Borrowed(_))));
        let read = mapping(false).group(&raw(&message), false).unwrap().unwrap();
        assert_eq!(read.group.members, None);
    }

    #[test]
    fn members_of_all_attributes_are_read() {
        let attributes: [Values<'_>; 5] = [
            ("cn", &[b"staff"]),
            GID,
            ("uniqueMember", &[b"uid=c,dc=x#'0101'B", b"UID=d,dc=x", b"uid=e,dc=x#''B"]),
            ("memberUid", &[b"Alice", b""]),
            ("member", &[b"uid=alice,dc=x", b"uid=b,dc=x#'0'B"]),
        ];
        let message = entry("cn=staff,dc=x", &attributes);
        let read = |mapping: &AttributeMapping| {
            let read = mapping.group(&raw(&message), true).unwrap().unwrap();
            read.group.members.unwrap()
        };
        let all = mapping(false);
        let [by_name, by_dn] = [name(b"alice"), dn(b"uid=alice,dc=x")];
        let uid_kept = dn(b"uid=b,dc=x\\23'0'b");
        let [c, d, e] = [b"uid=c,dc=x", b"uid=d,dc=x", b"uid=e,dc=x"].map(|text| dn(text));
        assert_eq!(read(&all), [by_name.clone(), by_dn, uid_kept, c, d, e]);
        let mut one = all;
        one.members.truncate(1);
        assert_eq!(read(&one), [by_name]);
        let group = one.group(&raw(&message), false).unwrap().unwrap().group;
        assert!(group.reference.is_empty(), "no list names it");
    }

    #[test]
    fn unique_members_lose_only_uids() {
        for (value, dn) in [
            ("cn=a#'01'B", "cn=a"),
            ("cn=a#''B", "cn=a"),
            ("cn=a#'01'b", "cn=a#'01'b"),
            ("cn=a#'012'B", "cn=a#'012'B"),
            ("cn=a#01'B", "cn=a#01'B"),
            ("cn=a'01'B", "cn=a'01'B"),
            ("'B", "'B"),
            ("#'1'B", ""),
        ] {
            assert_eq!(strip_uid(value.as_bytes()), dn.as_bytes(), "{value}");
        }
    }

    fn dn(dn: &[u8]) -> Member<'_> {
        Member::Dn(Cow::Borrowed(dn))
    }

    fn name(name: &[u8]) -> Member<'_> {
        Member::Name(Cow::Borrowed(name))
    }

    /// The list of `member`.
    const MEMBER: usize = 1;

    /// Returns the number of members in a group with this list, and the start of the rest.
    fn members(description: &str, from: u32) -> ReadResult<(usize, Option<u32>)> {
        let list: Values<'_> = (description, &[b"uid=a,dc=x", b"uid=b,dc=x"]);
        let message = entry("cn=staff,dc=x", &[("cn", &[b"staff"]), GID, ("member", &[]), list]);
        let mapping = mapping(false);
        let mut members = Vec::new();
        let shown = RemainingMembers { attribute: MEMBER, from };
        let rest = mapping.members(&raw(&message), shown, &mut members).unwrap()?;
        if from == 0 {
            let read = mapping.group(&raw(&message), true).unwrap()?;
            assert_eq!(read.rest, Vec::from_iter(rest));
            assert_eq!(read.group.members.as_ref(), Some(&members));
        }
        Ok((members.len(), rest.map(|rest| rest.from)))
    }

    #[test]
    fn members_in_range_continue_each_list() {
        let attributes: [Values<'_>; 4] = [
            ("cn", &[b"staff"]),
            GID,
            ("memberUid;range=0-1", &[b"a", b"b"]),
            ("uniqueMember;range=0-0", &[b"uid=c,dc=x"]),
        ];
        let message = entry("cn=staff,dc=x", &attributes);
        let mapping = mapping(false);
        let read = mapping.group(&raw(&message), true).unwrap().unwrap();
        assert_eq!(read.group.members.unwrap().len(), 3);
        let rest: Vec<String> =
            read.rest.into_iter().map(|rest| mapping.remaining_members_attribute(rest)).collect();
        assert_eq!(rest, ["memberuid;range=2-*", "uniquemember;range=1-*"]);
    }

    #[test]
    fn members_in_range_tell_next_position() {
        assert_eq!(members("member;range=0-1", 0), Ok((2, Some(2))));
        assert_eq!(members("MEMBER;Range=0-*", 0), Ok((2, None)));
        assert_eq!(members("member;range=1500-1501", 1500), Ok((2, Some(1502))));
        assert_eq!(members("member;range=1500-*", 1500), Ok((2, None)));
        let rest = RemainingMembers { attribute: MEMBER, from: 1500 };
        assert_eq!(mapping(false).remaining_members_attribute(rest), "member;range=1500-*");
    }

    #[test]
    fn members_with_other_option_are_unreadable() {
        for (description, from) in [
            ("member;lang-ja", 0),
            ("member;range=0-1499;lang-ja", 0),
            ("member;range=1-1499", 0),
            ("member;range=0-1499", 1500),
            // Members are missing, or there are too many.
            ("member;range=0-2", 0),
            ("member;range=0-0", 0),
            ("member;range=1500-2999", 1500),
            ("member;range=5-4", 5),
            ("member;range=0-4294967295", 0),
            ("member;range=-1", 0),
            ("member;range=+0-*", 0),
            ("member;range=0", 0),
            ("member;range=", 0),
            ("member;", 0),
        ] {
            let read = members(description, from);
            if description == "member;" {
                assert_eq!(read, Ok((2, None)), "no option");
            } else {
                let reason = read.unwrap_err();
                assert_eq!(reason.message, &directory::MEMBERS_UNREADABLE, "{description}");
                assert!(reason.text.contains(description), "{description}");
            }
        }
        assert_eq!(members("memberOf;range=0-1", 0), Ok((0, None)), "another attribute");
    }

    #[test]
    fn attributes_with_options_of_a_user_are_left_aside() {
        let japanese: Values<'_> = ("uid;lang-ja", &[b"arisu"]);
        let binary: Values<'_> = ("uidNumber;binary", &[b"1"]);
        let all = [NAME, japanese, UID, binary, GID, HOME];
        assert_eq!(read("uid=Alice,dc=x", &all), Ok("alice".to_owned()));
    }

    /// A mapping of Active Directory with ids from SIDs.
    fn ad_mapping() -> AttributeMapping {
        let text = |text: &str| text.to_owned();
        let attributes = AttributeNames {
            user_name: text("samaccountname"),
            user_uid: text("objectsid"),
            user_gid: text("primarygroupid"),
            user_home: text("unixhomedirectory"),
            group_name: text("samaccountname"),
            group_gid: text("objectsid"),
            ..mapping(false).attributes
        };
        let (min, max, size) = (200_000, 2_000_200_000, 200_000);
        let config = SidMapping { min, max, size, slice: None, reserved: Vec::new() };
        let sids = Arc::new(SidIds::new(&config));
        sids.set_domain(&sid(&[])).expect("a domain");
        let members = vec![MemberAttribute { name: text("member"), values: MemberValues::Dns }];
        let (sids, member_range) = (Some(sids), Some(1_500));
        AttributeMapping { attributes, members, sids, member_range, ..mapping(false) }
    }

    /// The SID of a domain, or of an account.
    fn sid(rid: &[u32]) -> Vec<u8> {
        let numbers = [&[21, 3_623_811_015, 3_361_044_348, 30_300_820][..], rid].concat();
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [&[1, (numbers.len() / 4) as u8, 0, 0, 0, 0, 0, 5][..], &numbers].concat()
    }

    #[test]
    fn ad_user_ids_come_from_sids() {
        let user_sid = sid(&[1104]);
        let ids: [Values<'_>; 3] = [
            ("sAMAccountName", &[b"Alice"]),
            ("objectSid", &[&user_sid]),
            ("primaryGroupID", &[b"513"]),
        ];
        let home: Values<'_> = ("unixHomeDirectory", &[b"/home/alice"]);
        let read = |more: &[Values<'_>]| {
            let message = entry("CN=Alice,DC=x", &[&ids[..], &[home], more].concat());
            let user = ad_mapping().user(&raw(&message)).unwrap().unwrap();
            (user.uid, user.gid, String::from_utf8(user.gecos.into_owned()).unwrap())
        };
        let name: Values<'_> = ("name", &[b"Alice in x"]);
        let display: Values<'_> = ("displayName", &[b"Alice"]);
        let (uid, gid) = (674_001_104, 674_000_513);
        assert_eq!(read(&[name]), (uid, gid, "Alice in x".to_owned()));
        assert_eq!(read(&[name, display]), (uid, gid, "Alice".to_owned()));
        assert_eq!(read(&[name, display, ("gecos", &[b"A"])]), (uid, gid, "A".to_owned()));
    }

    #[test]
    fn ad_user_without_control_bits_is_unknown() {
        let user_sid = sid(&[1104]);
        let attributes: [Values<'_>; 4] = [
            ("sAMAccountName", &[b"Alice"]),
            ("objectSid", &[&user_sid]),
            ("primaryGroupID", &[b"513"]),
            ("unixHomeDirectory", &[b"/home/alice"]),
        ];
        let with_facts = |mapping: AttributeMapping| {
            let facts = facts(&mapping.attributes, &[]);
            AttributeMapping { facts, ..mapping }
        };
        let read = |mapping: &AttributeMapping, more: &[Values<'_>]| {
            let message = entry("CN=Alice,DC=x", &[&attributes[..], more].concat());
            let account = mapping.user(&raw(&message)).unwrap().unwrap().account;
            account.values_of(AccountFact::Control).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let mapping = with_facts(ad_mapping());
        let control: Values<'_> = ("userAccountControl", &[b"514"]);
        assert_eq!(read(&mapping, &[control]), [b"514"]);
        assert_eq!(read(&mapping, &[]), [b""]);
        // Without logins, no rule reads it.
        assert_eq!(read(&ad_mapping(), &[]), Vec::<Vec<u8>>::new());
        let posix = AttributeMapping { member_range: None, ..with_facts(ad_mapping()) };
        assert_eq!(read(&posix, &[]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn ad_group_of_other_domain_is_refused() {
        let [own, builtin] =
            [sid(&[512]), b"\x01\x02\0\0\0\0\0\x05\x20\0\0\0\x20\x02\0\0".to_vec()];
        let read = |sid: &[u8]| {
            let attributes: [Values<'_>; 2] =
                [("sAMAccountName", &[b"Admins"]), ("objectSid", &[sid])];
            let message = entry("CN=Admins,DC=x", &attributes);
            ad_mapping().group(&raw(&message), true).unwrap().map(|read| read.group.gid)
        };
        assert_eq!(read(&own), Ok(Some(674_000_512)));
        let reason = read(&builtin).expect_err("builtin");
        assert_eq!(reason.message, &directory::SID_OF_OTHER_DOMAIN);
        assert_eq!(read(&[]).expect_err("empty").message, &directory::ATTRIBUTE_EMPTY);
    }

    #[test]
    fn ad_lists_are_requested_in_ranges() {
        let mapping = ad_mapping();
        assert_eq!(
            mapping.group_attributes(true),
            ["samaccountname", "objectsid", "member;range=0-1499", "uSNChanged"]
        );
        assert_eq!(mapping.group_attributes(false), ["samaccountname", "objectsid"]);
        let rest = RemainingMembers { attribute: 0, from: 1500 };
        assert_eq!(mapping.remaining_members_attribute(rest), "member;range=1500-2999");
        let attributes = mapping.user_attributes();
        assert!(
            ["displayname", "name"].iter().all(|name| attributes.iter().any(|own| own == name))
        );
        let posix = testing::mapping(false);
        assert_eq!(posix.version_attribute(), None);
        assert_eq!(posix.group_attributes(true).len(), 5);
    }

    #[test]
    fn keys_are_read_in_every_spelling() {
        let id = EntryId(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        for text in [
            &b"01234567-89ab-cdef-0123-456789abcdef"[..],
            b"01234567-89ABCDEF-01234567-89ABCDEF",
            b"{0123456789abcdef0123456789abcdef}",
            &id.0,
        ] {
            assert_eq!(entry_id(text), Some(id));
        }
        for text in [
            &b""[..],
            b"01234567-89ab-cdef-0123-456789abcde",
            b"x1234567-89ab-cdef-0123-456789abcdef",
            &[b'a'; 33],
        ] {
            assert_eq!(entry_id(text), None, "{text:?}");
        }
        assert_ne!(group_id(id), id);
        assert_eq!(group_id(group_id(id)), id);
    }
}
