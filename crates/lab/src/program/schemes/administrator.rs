//! The server, asked as who may do anything: one question at a time, each with a deadline.

use super::{CONFIG, SCHEME};
use crate::cli;
use crate::failure::Failure;
use crate::ldap::reply::{self, Attributes};
use crate::ldap::{Connections, Ldap, Request, Scope, Security, Settings};
use crate::net::{Close, Route, Tls, resolve};
use crate::program::loads::uri;
use crate::schemes::{self, Stored};
use crate::template::Template;
use crate::worker::one_by_one;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::sync::Arc;
use std::time::Duration;

const PLUGINS: &str = "cn=Password Storage Schemes,cn=plugins,cn=config";
/// Of one question.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// noSuchObject, entryAlreadyExists.
const NOT_THERE: u32 = 32;
const THERE_ALREADY: u32 = 68;

/// How it is reached, and as whom.
#[derive(Debug)]
pub struct Administrator {
    route: Route,
    security: Security,
    bind: (Template, Template),
}

/// A text in which nothing varies.
pub fn fixed(text: &str) -> Template {
    Template::constant(text.as_bytes().to_vec())
}

/// An entry's attributes; values of one stand side by side.
pub type Values<'v> = [(&'static str, &'v str)];

impl Administrator {
    pub fn new(args: &cli::Schemes) -> Result<Self> {
        let (is_tls, host, port) = uri(&args.uri)?;
        let target =
            resolve(&host, port).with_context(|| format!("{}: cannot find {host}", args.uri))?;
        let tls = || Tls::new(&host, args.tls_ca.as_deref());
        let security = if is_tls { Security::Ldaps(tls()?) } else { Security::Clear };
        let route = Route { target, sources: Vec::new(), close: Close::Reset };
        let bind = (fixed(&args.bind_dn), args.bind_password.clone());
        Ok(Self { route, security, bind })
    }

    /// For users who make such requests, each on a connection that it keeps.
    pub fn for_users(&self, request: &Request) -> Result<Arc<Settings>> {
        self.settings(request, None).map_err(|why| anyhow!("{why}"))
    }

    fn settings(
        &self,
        request: &Request,
        bind: Option<&(Template, Template)>,
    ) -> Result<Arc<Settings>, Failure> {
        let (route, security) = (self.route.clone(), self.security.clone());
        Settings::new(route, security, Connections::Reuse, request, bind)
            .map(Arc::new)
            .map_err(Failure::Setup)
    }

    /// Makes the requests of these numbers; the entries that they bring. The first failure ends it.
    pub fn ask(
        &self,
        request: &Request,
        numbers: impl Iterator<Item = u64>,
    ) -> Result<Vec<Attributes>, Failure> {
        let mut ldap = Ldap::new(self.settings(request, Some(&self.bind))?, 1, 0);
        ldap.keep_entries();
        one_by_one(&mut ldap, numbers, PATIENCE)?;
        let entries = ldap.take_entries();
        entries
            .iter()
            .map(|one| reply::attributes(one))
            .collect::<Result<_, _>>()
            .map_err(Failure::Malformed)
    }

    /// A single request; none if there is no such entry.
    fn once(&self, request: &Request) -> Result<Option<Vec<Attributes>>> {
        match self.ask(request, 0..1) {
            Ok(found) => Ok(Some(found)),
            Err(Failure::Answered(_, NOT_THERE, _)) => Ok(None),
            Err(why) => Err(anyhow!("{}: {why}", self.route.target)),
        }
    }

    /// The entries that are found; none if there is no such base.
    pub fn find(
        &self,
        base: &str,
        scope: Scope,
        filter: &str,
        names: &[&str],
    ) -> Result<Option<Vec<Attributes>>> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.once(&Request::Search(fixed(base), scope, filter.to_owned(), names))
            .with_context(|| format!("cannot read {base}"))
    }

    fn search(
        &self,
        base: &str,
        scope: Scope,
        filter: &str,
        names: &[&str],
    ) -> Result<Vec<Attributes>> {
        self.find(base, scope, filter, names)?.with_context(|| format!("{base}: is not there"))
    }

    /// A value of an entry; none as well if there is no such entry.
    pub fn value(&self, dn: &str, name: &str) -> Result<Option<String>> {
        let found = self.find(dn, Scope::Base, "(objectClass=*)", &[name])?;
        Ok(found.unwrap_or_default().first().and_then(|entry| first(entry, name)))
    }

    pub fn set(&self, dn: &str, name: &str, value: &str) -> Result<()> {
        let request = Request::Modify(fixed(dn), name.to_owned(), fixed(value));
        let set = self.once(&request).with_context(|| format!("cannot set {name} of {dn}"))?;
        ensure!(set.is_some(), "cannot set {name} of {dn}: there is no such entry");
        Ok(())
    }

    /// Adds an entry; false if there is one of that name already.
    pub fn add(&self, dn: &str, attributes: &Values<'_>) -> Result<bool> {
        let values = attributes.iter().map(|&(name, value)| (name, fixed(value))).collect();
        match self.ask(&Request::Add(fixed(dn), values), 0..1) {
            Ok(_) => Ok(true),
            Err(Failure::Answered(_, THERE_ALREADY, _)) => Ok(false),
            Err(why) => bail!("cannot add {dn}: {why}"),
        }
    }

    /// Removes an entry; one that is not there is as good as gone.
    pub fn remove(&self, dn: &str) -> Result<()> {
        let removed = self.once(&Request::Delete(fixed(dn)));
        removed.with_context(|| format!("cannot remove {dn}")).map(drop)
    }

    /// Removes an entry and those right below it.
    pub fn remove_with_children(&self, dn: &str) -> Result<()> {
        // Policies are shown to those who ask for them only.
        let all = "(|(objectClass=*)(objectClass=ldapsubentry))";
        let children = self.find(dn, Scope::One, all, &["entryDN"])?.unwrap_or_default();
        let names: Vec<Vec<u8>> = children
            .iter()
            .filter_map(|entry| Some(first(entry, "entryDN")?.into_bytes()))
            .collect();
        let count = names.len() as u64;
        let removed = self.ask(&Request::Delete(Template::of_list(names)), 0..count);
        removed.map_err(|why| anyhow!("cannot remove what is below {dn}: {why}"))?;
        self.remove(dn)
    }

    /// How new passwords are stored.
    pub fn default_scheme(&self) -> Result<Option<String>> {
        self.value(CONFIG, SCHEME)
    }

    /// The schemes that it can store passwords by.
    pub fn offered(&self) -> Result<Vec<String>> {
        let on = "(nsslapd-pluginEnabled=on)";
        let found = self.search(PLUGINS, Scope::One, on, &["cn"])?;
        let mut names: Vec<String> = found.iter().filter_map(|entry| first(entry, "cn")).collect();
        names.sort();
        ensure!(!names.is_empty(), "{PLUGINS}: names no scheme");
        Ok(names)
    }

    /// Who has which stored password.
    pub fn passwords(&self, base: &str) -> Result<Vec<(String, Stored)>> {
        let names = ["userPassword", "entryDN"];
        let found = self.search(base, Scope::Sub, "(userPassword=*)", &names)?;
        let of = |entry: &Attributes| {
            let (_, values) = entry.iter().find(|(name, _)| name == b"userpassword")?;
            Some((first(entry, "entrydn")?, schemes::read(values.first()?)))
        };
        Ok(found.iter().filter_map(of).collect())
    }
}

fn first(entry: &Attributes, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (_, values) = entry.iter().find(|(one, _)| *one == name.as_bytes())?;
    values.first().map(|value| String::from_utf8_lossy(value).into_owned())
}
