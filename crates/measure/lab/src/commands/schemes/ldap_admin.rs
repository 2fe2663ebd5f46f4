// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrator's LDAP client: one request at a time, each with a deadline. The engine of the load is
//! [`ldap`](crate::ldap).

use super::{CONFIG, SCHEME};
use crate::args;
use crate::coded::{Coded, ensure_coded};
use crate::commands::engines::{resolve_option, uri};
use crate::ldap::reply::{self, EntryAttributes};
use crate::ldap::{ConnectionMode, LdapEngine, LdapRequest, LdapSettings, SearchScope, TlsMode};
use crate::load_thread::run_sequentially;
use crate::net::{CloseMode, Route, TlsSettings};
use crate::password_schemes::{self, StoredPassword};
use crate::request_error::{CodeSource, RequestError};
use crate::template::Template;
use anyhow::{Context, Result};
use roster_messages::table::lab;
use std::sync::Arc;
use std::time::Duration;

const PLUGINS: &str = "cn=Password Storage Schemes,cn=plugins,cn=config";
/// Timeout of one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Result code noSuchObject.
const NO_SUCH_OBJECT: u32 = 32;
/// Result code entryAlreadyExists.
const ENTRY_ALREADY_EXISTS: u32 = 68;

/// A client of one server with one bind DN.
#[derive(Debug)]
pub struct AdminClient {
    route: Route,
    security: TlsMode,
    bind: (Template, Template),
}

/// Returns a text without variable parts.
pub fn fixed_template(text: &str) -> Template {
    Template::constant(text.as_bytes().to_vec())
}

/// Attributes of an entry. Values of an attribute are adjacent.
pub type AttributeValues<'v> = [(&'static str, &'v str)];

impl AdminClient {
    pub fn new(args: &args::SchemesArgs) -> Result<Self> {
        let (is_tls, host, port) = uri(&args.uri)?;
        let target = resolve_option("URI", &args.uri, &host, port)?;
        let tls = || TlsSettings::new(&host, args.tls_ca.as_deref());
        let security = if is_tls { TlsMode::Ldaps(tls()?) } else { TlsMode::Clear };
        let route = Route { target, sources: Vec::new(), close: CloseMode::Reset };
        let bind = (fixed_template(&args.bind_dn), args.bind_password.clone());
        Ok(Self { route, security, bind })
    }

    /// Returns the settings of a load with this request, on persistent connections.
    pub fn for_users(&self, request: &LdapRequest) -> Result<Arc<LdapSettings>> {
        self.settings(request, None).map_err(|failure| failure.into_error(self.route.target))
    }

    fn settings(
        &self,
        request: &LdapRequest,
        bind: Option<&(Template, Template)>,
    ) -> Result<Arc<LdapSettings>, RequestError> {
        let (route, security) = (self.route.clone(), self.security.clone());
        LdapSettings::new(route, security, ConnectionMode::Reuse, request, bind)
            .map(Arc::new)
            .map_err(RequestError::InvalidFilter)
    }

    /// Makes the requests with these numbers, up to the first failure. Returns the received entries.
    pub fn send_requests(
        &self,
        request: &LdapRequest,
        numbers: impl Iterator<Item = u64>,
    ) -> Result<Vec<EntryAttributes>, RequestError> {
        let mut ldap = LdapEngine::new(self.settings(request, Some(&self.bind))?, 1, 0);
        ldap.collect_entries();
        run_sequentially(&mut ldap, numbers, REQUEST_TIMEOUT)?;
        let entries = ldap.take_entries();
        entries
            .iter()
            .map(|one| reply::attributes(one))
            .collect::<Result<_, _>>()
            .map_err(RequestError::Malformed)
    }

    /// Makes a single request. Returns `None` if the entry does not exist.
    fn send_request(&self, request: &LdapRequest) -> Result<Option<Vec<EntryAttributes>>> {
        match self.send_requests(request, 0..1) {
            Ok(found) => Ok(Some(found)),
            Err(RequestError::ErrorCode(CodeSource::LdapEmptySearch, ..)) => Ok(Some(Vec::new())),
            Err(RequestError::ErrorCode(_, NO_SUCH_OBJECT, _)) => Ok(None),
            Err(failure) => Err(failure.into_error(self.route.target)),
        }
    }

    /// Searches entries. Returns `None` if the base does not exist.
    pub fn find(
        &self,
        base: &str,
        scope: SearchScope,
        filter: &str,
        names: &[&str],
    ) -> Result<Option<Vec<EntryAttributes>>> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.send_request(&LdapRequest::Search(
            fixed_template(base),
            scope,
            filter.to_owned(),
            names,
        ))
        .with_context(|| format!("{base}: cannot be read"))
    }

    fn search(
        &self,
        base: &str,
        scope: SearchScope,
        filter: &str,
        names: &[&str],
    ) -> Result<Vec<EntryAttributes>> {
        let text = format_args!("{base}: does not exist");
        self.find(base, scope, filter, names)?.coded(&lab::LDAP_ENTRY_MISSING, text)
    }

    /// Returns a value of an entry; `None` if the entry or the value does not exist.
    pub fn value(&self, dn: &str, name: &str) -> Result<Option<String>> {
        let found = self.find(dn, SearchScope::Base, "(objectClass=*)", &[name])?;
        Ok(found.unwrap_or_default().first().and_then(|entry| first_value(entry, name)))
    }

    pub fn set(&self, dn: &str, name: &str, value: &str) -> Result<()> {
        let request =
            LdapRequest::Modify(fixed_template(dn), name.to_owned(), fixed_template(value));
        let problem = || format!("{dn}: cannot set {name}");
        let set = self.send_request(&request).with_context(problem)?;
        ensure_coded!(set.is_some(), LDAP_ENTRY_MISSING, "{}: no such entry", problem());
        Ok(())
    }

    /// Adds an entry. Returns false if it exists already.
    pub fn add(&self, dn: &str, attributes: &AttributeValues<'_>) -> Result<bool> {
        let values =
            attributes.iter().map(|&(name, value)| (name, fixed_template(value))).collect();
        match self.send_requests(&LdapRequest::Add(fixed_template(dn), values), 0..1) {
            Ok(_) => Ok(true),
            Err(RequestError::ErrorCode(_, ENTRY_ALREADY_EXISTS, _)) => Ok(false),
            Err(failure) => Err(failure.into_error(format_args!("{dn}: cannot be added"))),
        }
    }

    /// Removes an entry, if it exists.
    pub fn remove(&self, dn: &str) -> Result<()> {
        let removed = self.send_request(&LdapRequest::Delete(fixed_template(dn)));
        removed.with_context(|| format!("{dn}: cannot be removed")).map(drop)
    }

    /// Removes an entry and its children.
    pub fn remove_with_children(&self, dn: &str) -> Result<()> {
        // The server returns policies only for a filter that names their class.
        let all = "(|(objectClass=*)(objectClass=ldapsubentry))";
        let children = self.find(dn, SearchScope::One, all, &["entryDN"])?.unwrap_or_default();
        let names: Vec<Vec<u8>> = children
            .iter()
            .filter_map(|entry| Some(first_value(entry, "entryDN")?.into_bytes()))
            .collect();
        let count = names.len() as u64;
        let removed =
            self.send_requests(&LdapRequest::Delete(Template::from_list(names)), 0..count);
        let problem = format_args!("{dn}: children cannot be removed");
        removed.map_err(|failure| failure.into_error(problem))?;
        self.remove(dn)
    }

    /// Returns the scheme of new passwords.
    pub fn default_scheme(&self) -> Result<Option<String>> {
        self.value(CONFIG, SCHEME)
    }

    /// Returns the enabled schemes of the server.
    pub fn offered_schemes(&self) -> Result<Vec<String>> {
        let on = "(nsslapd-pluginEnabled=on)";
        let found = self.search(PLUGINS, SearchScope::One, on, &["cn"])?;
        let mut names: Vec<String> =
            found.iter().filter_map(|entry| first_value(entry, "cn")).collect();
        names.sort();
        ensure_coded!(!names.is_empty(), NO_SCHEMES, "{PLUGINS}: no enabled scheme");
        Ok(names)
    }

    pub fn passwords(&self, base: &str) -> Result<Vec<(String, StoredPassword)>> {
        let names = ["userPassword", "entryDN"];
        let found = self.search(base, SearchScope::Sub, "(userPassword=*)", &names)?;
        let of = |entry: &EntryAttributes| {
            let (_, values) = entry.iter().find(|(name, _)| name == b"userpassword")?;
            Some((first_value(entry, "entrydn")?, password_schemes::read(values.first()?)))
        };
        Ok(found.iter().filter_map(of).collect())
    }
}

fn first_value(entry: &EntryAttributes, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (_, values) = entry.iter().find(|(one, _)| *one == name.as_bytes())?;
    values.first().map(|value| String::from_utf8_lossy(value).into_owned())
}
