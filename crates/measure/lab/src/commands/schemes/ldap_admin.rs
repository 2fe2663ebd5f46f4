//! The server, asked as who may do anything: one question at a time, each with a deadline.

use super::{CONFIG, SCHEME};
use crate::args;
use crate::commands::engines::uri;
use crate::ldap::reply::{self, EntryAttributes};
use crate::ldap::{ConnectionMode, LdapEngine, LdapRequest, LdapSettings, SearchScope, TlsMode};
use crate::load_thread::run_sequentially;
use crate::net::{CloseMode, Route, TlsSettings, resolve};
use crate::password_schemes::{self, StoredPassword};
use crate::request_error::RequestError;
use crate::template::Template;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::sync::Arc;
use std::time::Duration;

const PLUGINS: &str = "cn=Password Storage Schemes,cn=plugins,cn=config";
/// Of one question.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// noSuchObject, entryAlreadyExists.
const NO_SUCH_OBJECT: u32 = 32;
const ENTRY_ALREADY_EXISTS: u32 = 68;

/// How it is reached, and as whom.
#[derive(Debug)]
pub struct AdminClient {
    route: Route,
    security: TlsMode,
    bind: (Template, Template),
}

/// A text in which nothing varies.
pub fn fixed_template(text: &str) -> Template {
    Template::constant(text.as_bytes().to_vec())
}

/// An entry's attributes; values of one stand side by side.
pub type AttributeValues<'v> = [(&'static str, &'v str)];

impl AdminClient {
    pub fn new(args: &args::SchemesArgs) -> Result<Self> {
        let (is_tls, host, port) = uri(&args.uri)?;
        let target =
            resolve(&host, port).with_context(|| format!("{}: cannot find {host}", args.uri))?;
        let tls = || TlsSettings::new(&host, args.tls_ca.as_deref());
        let security = if is_tls { TlsMode::Ldaps(tls()?) } else { TlsMode::Clear };
        let route = Route { target, sources: Vec::new(), close: CloseMode::Reset };
        let bind = (fixed_template(&args.bind_dn), args.bind_password.clone());
        Ok(Self { route, security, bind })
    }

    /// For users who make such requests, each on a connection that it keeps.
    pub fn for_users(&self, request: &LdapRequest) -> Result<Arc<LdapSettings>> {
        self.settings(request, None).map_err(|why| anyhow!("{why}"))
    }

    fn settings(
        &self,
        request: &LdapRequest,
        bind: Option<&(Template, Template)>,
    ) -> Result<Arc<LdapSettings>, RequestError> {
        let (route, security) = (self.route.clone(), self.security.clone());
        LdapSettings::new(route, security, ConnectionMode::Reuse, request, bind)
            .map(Arc::new)
            .map_err(RequestError::Setup)
    }

    /// Makes the requests of these numbers; the entries that they bring. The first failure ends it.
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

    /// A single request; none if there is no such entry.
    fn send_request(&self, request: &LdapRequest) -> Result<Option<Vec<EntryAttributes>>> {
        match self.send_requests(request, 0..1) {
            Ok(found) => Ok(Some(found)),
            Err(RequestError::ErrorCode(_, NO_SUCH_OBJECT, _)) => Ok(None),
            Err(why) => Err(anyhow!("{}: {why}", self.route.target)),
        }
    }

    /// The entries that are found; none if there is no such base.
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
        .with_context(|| format!("cannot read {base}"))
    }

    fn search(
        &self,
        base: &str,
        scope: SearchScope,
        filter: &str,
        names: &[&str],
    ) -> Result<Vec<EntryAttributes>> {
        self.find(base, scope, filter, names)?.with_context(|| format!("{base}: is not there"))
    }

    /// A value of an entry; none as well if there is no such entry.
    pub fn value(&self, dn: &str, name: &str) -> Result<Option<String>> {
        let found = self.find(dn, SearchScope::Base, "(objectClass=*)", &[name])?;
        Ok(found.unwrap_or_default().first().and_then(|entry| first_value(entry, name)))
    }

    pub fn set(&self, dn: &str, name: &str, value: &str) -> Result<()> {
        let request =
            LdapRequest::Modify(fixed_template(dn), name.to_owned(), fixed_template(value));
        let set =
            self.send_request(&request).with_context(|| format!("cannot set {name} of {dn}"))?;
        ensure!(set.is_some(), "cannot set {name} of {dn}: there is no such entry");
        Ok(())
    }

    /// Adds an entry; false if there is one of that name already.
    pub fn add(&self, dn: &str, attributes: &AttributeValues<'_>) -> Result<bool> {
        let values =
            attributes.iter().map(|&(name, value)| (name, fixed_template(value))).collect();
        match self.send_requests(&LdapRequest::Add(fixed_template(dn), values), 0..1) {
            Ok(_) => Ok(true),
            Err(RequestError::ErrorCode(_, ENTRY_ALREADY_EXISTS, _)) => Ok(false),
            Err(why) => bail!("cannot add {dn}: {why}"),
        }
    }

    /// Removes an entry; one that is not there is as good as gone.
    pub fn remove(&self, dn: &str) -> Result<()> {
        let removed = self.send_request(&LdapRequest::Delete(fixed_template(dn)));
        removed.with_context(|| format!("cannot remove {dn}")).map(drop)
    }

    /// Removes an entry and those right below it.
    pub fn remove_with_children(&self, dn: &str) -> Result<()> {
        // Policies are shown to those who ask for them only.
        let all = "(|(objectClass=*)(objectClass=ldapsubentry))";
        let children = self.find(dn, SearchScope::One, all, &["entryDN"])?.unwrap_or_default();
        let names: Vec<Vec<u8>> = children
            .iter()
            .filter_map(|entry| Some(first_value(entry, "entryDN")?.into_bytes()))
            .collect();
        let count = names.len() as u64;
        let removed =
            self.send_requests(&LdapRequest::Delete(Template::from_list(names)), 0..count);
        removed.map_err(|why| anyhow!("cannot remove what is below {dn}: {why}"))?;
        self.remove(dn)
    }

    /// How new passwords are stored.
    pub fn default_scheme(&self) -> Result<Option<String>> {
        self.value(CONFIG, SCHEME)
    }

    /// The schemes that it can store passwords by.
    pub fn offered_schemes(&self) -> Result<Vec<String>> {
        let on = "(nsslapd-pluginEnabled=on)";
        let found = self.search(PLUGINS, SearchScope::One, on, &["cn"])?;
        let mut names: Vec<String> =
            found.iter().filter_map(|entry| first_value(entry, "cn")).collect();
        names.sort();
        ensure!(!names.is_empty(), "{PLUGINS}: names no scheme");
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
