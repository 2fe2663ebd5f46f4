// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts nslcd.conf into one domain. `nslcd_lines` parses the lines, and `render` writes the result.
//!
//! Each option has a row in `OPTIONS`, or code in this file. An unknown option stops the conversion.

use crate::nslcd_lines::{self, NslcdOption};
use crate::plan::{DomainPlan, Origin, Outcome, Password, Plan, Waivers};
use crate::source_file::{self, SourceError};
use crate::sssd::HostFacts;
use crate::sssd::section::{Conversion, Setting};
use crate::values::{self, SearchBase, list, quoted};
use std::path::Path;

/// Section of the options in reports.
const SECTION: &str = "nslcd";

/// A parsed nslcd.conf.
#[derive(Clone, Debug, Default)]
pub struct NslcdConf {
    path: std::path::PathBuf,
    options: Vec<NslcdOption>,
}

impl NslcdConf {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or parsed, or other users can change it.
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        Self::parse(path, &source_file::read_trusted(path)?)
    }

    /// Parses the text of the file.
    ///
    /// # Errors
    ///
    /// The text is too large, or not UTF-8.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, SourceError> {
        let options =
            nslcd_lines::parse(bytes).map_err(|error| SourceError::syntax(path, error))?;
        Ok(Self { path: path.to_owned(), options })
    }
}

/// Converts the file into a domain of that name.
#[must_use]
pub fn convert(conf: &NslcdConf, name: &str, facts: &HostFacts, waivers: &mut Waivers) -> Plan {
    let plan = Plan { sources: vec![conf.path.clone()], ..Plan::default() };
    let mut work = Work {
        conversion: Conversion { plan, waivers },
        domain: DomainPlan {
            name: name.to_owned(),
            section: SECTION.to_owned(),
            ..DomainPlan::default()
        },
        facts,
        uris: Vec::new(),
        bases: Default::default(),
        scope: Default::default(),
        filters: Default::default(),
        ssl: String::new(),
        has_sasl: false,
    };
    work.domain.keys.set("provider", quoted("ldap"));
    // A later map of the same attribute wins, as in nslcd.
    for option in &conf.options {
        let origin = Origin { file: conf.path.clone(), line: option.line };
        let setting = Setting { name: option.name.clone(), value: option.value.clone(), origin };
        work.option(option, &setting);
    }
    let missing = Setting {
        name: "base".into(),
        value: "(missing)".into(),
        origin: Origin { file: conf.path.clone(), line: 1 },
    };
    work.finish(&missing);
    let Work { mut conversion, domain, .. } = work;
    conversion.plan.domains.push(domain);
    conversion.plan
}

/// The maps that Roster serves, and their keys.
#[derive(Default)]
struct PerMap<T> {
    all: T,
    passwd: T,
    group: T,
}

impl<T> PerMap<T> {
    /// Returns the part of a map. `None` for a map that Roster does not serve.
    fn map_part(&mut self, map: &str) -> Option<&mut T> {
        match map {
            "" => Some(&mut self.all),
            "passwd" => Some(&mut self.passwd),
            "group" => Some(&mut self.group),
            _ => None,
        }
    }
}

struct Work<'w, 'f> {
    conversion: Conversion<'w>,
    domain: DomainPlan,
    facts: &'f HostFacts,
    uris: Vec<String>,
    bases: PerMap<Vec<String>>,
    scope: PerMap<Option<&'static str>>,
    filters: PerMap<Option<String>>,
    ssl: String,
    has_sasl: bool,
}

/// Maps of nslcd that Roster does not serve.
const OTHER_MAPS: [&str; 9] = [
    "aliases",
    "ethers",
    "hosts",
    "netgroup",
    "networks",
    "protocols",
    "rpc",
    "services",
    "shadow",
];

const NO_MAP: &str =
    "Roster serves users and groups only. Keep `ldap` on the other lines of nsswitch.conf.";
const NO_TUNING: &str = "Roster needs no such tuning.";

/// A note, or the reason and the cure of a stop.
type Fate = Result<&'static str, (&'static str, &'static str)>;

/// Options without code.
const OPTIONS: &[(&str, Fate)] = &[
    ("uid", Ok("Each role of rosterd has its own user.")),
    ("gid", Ok("Each role of rosterd has its own group.")),
    ("threads", Ok(NO_TUNING)),
    ("log", Ok("See `level` of [log] in roster.toml(5).")),
    ("ldap_version", Ok("Roster uses version 3.")),
    ("rootpwmoddn", Ok("root changes passwords with the directory's own tools.")),
    ("rootpwmodpw", Ok("root changes passwords with the directory's own tools.")),
    ("sasl_realm", Ok("The realm belongs to bind_principal.")),
    ("sasl_secprops", Ok("The layer follows from TLS.")),
    ("sasl_canonicalize", Ok("Roster does not look names up backwards.")),
    ("sasl_authzid", Ok("Roster reads with the identity of the bind.")),
    ("krb5_ccname", Ok("Roster gets its ticket from the keytab.")),
    ("deref", Ok("Roster does not follow aliases.")),
    ("referrals", Ok("Roster does not follow referrals. roster status warns of them.")),
    ("idle_timelimit", Ok("A mirror keeps one connection.")),
    ("reconnect_sleeptime", Ok(NO_TUNING)),
    ("reconnect_retrytime", Ok(NO_TUNING)),
    ("reconnect_invalidate", Ok("The snapshot follows the directory.")),
    ("cache", Ok("The snapshot takes the place of the cache.")),
    ("tls_reqcert", Ok("Roster always checks certificates.")),
    ("tls_reqsan", Ok("Roster always checks the names in certificates.")),
    ("tls_randfile", Ok(NO_TUNING)),
    ("tls_ciphers", Ok("Roster accepts TLS 1.2 and 1.3 with the ciphers of rustls.")),
    (
        "tls_crlcheck",
        Err(("revoked certificates would be accepted", "Renew the authority instead.")),
    ),
    (
        "tls_crlfile",
        Err(("revoked certificates would be accepted", "Renew the authority instead.")),
    ),
    ("nss_nested_groups", Ok("Roster follows nested groups.")),
    ("nss_getgrent_skipmembers", Ok("`getent group` lists members.")),
    ("pam_authc_ppolicy", Ok("Roster requests the password policy at each bind.")),
    (
        "pam_password_prohibit_message",
        Ok("The directory decides whether a user may change the password."),
    ),
    (
        "pam_authz_search",
        Err((
            "the search of any entry decides about logins",
            "Write a `filter` into [domain.NAME.access] that matches the user's own entry. It may have %{host} and \
             %{service}.",
        )),
    ),
    ("nss_uid_offset", Err(("uids would be other ones", "Correct the ids in the directory."))),
    ("nss_gid_offset", Err(("gids would be other ones", "Correct the ids in the directory."))),
    (
        "validnames",
        Err((
            "names that the expression excludes would be served",
            "Exclude them with `filter passwd` and `filter group`.",
        )),
    ),
];

impl Work<'_, '_> {
    fn option(&mut self, option: &NslcdOption, setting: &Setting) {
        match &*option.name {
            "uri" => self.uri(setting),
            "base" => self.base(option, setting),
            "scope" => self.scope(option, setting),
            "filter" => self.filter(option, setting),
            "map" => self.map(option, setting),
            "binddn" => self.text(setting, "bind_dn"),
            "bindpw" => {
                let file =
                    self.facts.password_directory.join(format!("{}.password", self.domain.name));
                let file = quoted(&file.display().to_string());
                self.domain.keys.set("bind_password_file", file);
                self.domain.password = Some(Password::new(&setting.value));
                self.mapped(setting, "bind_password_file");
            }
            "sasl_mech" => self.sasl(setting),
            "sasl_authcid" => self.text(setting, "bind_principal"),
            "ssl" => {
                self.ssl = setting.value.to_ascii_lowercase();
                self.mapped(setting, "start_tls");
            }
            "tls_cacertfile" => self.text(setting, "tls_ca"),
            "tls_cert" => self.text(setting, "tls_cert"),
            "tls_key" => self.text(setting, "tls_key"),
            "tls_cacertdir" if setting.value.trim_end_matches('/') == "/etc/ssl/certs" => {
                self.note(setting, "Roster uses the host's own authorities by default.");
            }
            "tls_cacertdir" => {
                let cure = "Concatenate its certificates into one file, and name the file in tls_cacertfile.";
                let reason = "Roster would trust other authorities than those of the directory";
                self.conversion.stop(SECTION, setting, reason, cure);
            }
            "bind_timelimit" => self.seconds(setting, "connect_timeout", 300),
            "timelimit" => self.seconds(setting, "search_timeout", 3600),
            "pagesize" => self.page_size(setting),
            "nss_min_uid" => self.min_uid(setting),
            "nss_initgroups_ignoreusers" => self.ignored_users(setting),
            "nss_disable_enumeration" => {
                let disabled = self.flag(setting);
                self.domain.keys.set("enumerate", (!disabled).to_string());
                self.mapped(setting, "enumerate");
            }
            "pam_authc_search"
                if matches!(&*setting.value.to_ascii_uppercase(), "BASE" | "NONE") =>
            {
                self.note(setting, "Roster verifies the password by the bind alone.");
            }
            "pam_authc_search" => {
                let reason = "a search after the bind must find an entry";
                let cure =
                    "Write a `filter` into [domain.NAME.access] that matches the user's own entry.";
                self.conversion.stop(SECTION, setting, reason, cure);
            }
            "ignorecase" => {
                let case = if self.flag(setting) { "insensitive" } else { "sensitive" };
                self.domain.keys.set("case", quoted(case));
                self.mapped(setting, "case");
            }
            _ => self.by_table(setting),
        }
    }

    fn by_table(&mut self, setting: &Setting) {
        let row = OPTIONS.iter().find(|(name, _)| *name == setting.name).map(|(_, fate)| *fate);
        let is_off = matches!(&*setting.value.to_ascii_lowercase(), "0" | "none" | "no" | "off");
        match row {
            Some(Ok(note)) => self.note(setting, note),
            Some(Err(_)) if is_off && setting.name != "validnames" => {
                self.note(setting, "It is off, and Roster has no counterpart.");
            }
            Some(Err((reason, cure))) => self.conversion.stop(SECTION, setting, reason, cure),
            None => {
                let reason = "migrate-config does not know it, and it may restrict logins";
                let cure = "Correct its name, or check nslcd.conf(5) and name it in --without.";
                self.conversion.stop(SECTION, &setting.without_value(), reason, cure);
            }
        }
        if setting.name == "tls_reqcert" && !matches!(&*setting.value, "demand" | "hard") {
            self.conversion.plan.note(
                "Roster always checks the servers' certificates. Set tls_ca, and check the names in the certificates.",
            );
        }
    }

    fn mapped(&mut self, setting: &Setting, key: &str) {
        let key = format!("domain.{}.{key}", self.domain.name);
        self.conversion.mapped(SECTION, setting, key);
    }

    fn note(&mut self, setting: &Setting, note: &str) {
        self.conversion.dropped(SECTION, setting, note);
    }

    fn text(&mut self, setting: &Setting, key: &str) {
        self.domain.keys.set(key, quoted(&setting.value));
        self.mapped(setting, key);
    }

    fn flag(&mut self, setting: &Setting) -> bool {
        self.conversion.flag(SECTION, setting).unwrap_or(false)
    }

    fn seconds(&mut self, setting: &Setting, key: &str, max: u64) {
        let Some(value) = self.conversion.number(SECTION, setting) else { return };
        if value == 0 {
            return self.note(setting, "0 means no limit in nslcd. Roster has a limit by default.");
        }
        self.domain.keys.set(key, quoted(&format!("{}s", value.min(max))));
        self.mapped(setting, key);
    }

    fn page_size(&mut self, setting: &Setting) {
        match self.conversion.number(SECTION, setting) {
            Some(0) => self.note(setting, "Roster always reads in pages."),
            Some(value) => {
                self.domain.keys.set("page_size", value.min(1_000_000).to_string());
                self.mapped(setting, "page_size");
            }
            None => {}
        }
    }

    fn min_uid(&mut self, setting: &Setting) {
        let value = if setting.value.eq_ignore_ascii_case("ALLLOCAL") {
            self.facts.local_users.len() as u64
        } else {
            let Some(value) = self.conversion.number(SECTION, setting) else { return };
            value
        };
        let value = value.clamp(1, 4_294_967_294);
        if value < 1000 {
            self.conversion.plan.host.set("min_id", value.to_string());
        }
        self.domain.keys.set("min_id", value.to_string());
        self.mapped(setting, "min_id");
    }

    fn ignored_users(&mut self, setting: &Setting) {
        let is_local = |name: &&str| {
            name.eq_ignore_ascii_case("ALLLOCAL")
                || *name == "root"
                || self.facts.local_users.iter().any(|user| user == name)
        };
        let names: Vec<&str> = setting.value.split([',', ' ']).map(str::trim).collect();
        let foreign =
            names.into_iter().filter(|name| !name.is_empty()).find(|name| !is_local(name));
        match foreign {
            None => self.note(setting, "Local users have no groups of the directory in Roster."),
            Some(name) => {
                let reason =
                    format!("{name} is not a local user, and would get groups of the directory");
                let cure = "Remove the user from the groups, or name the setting in --without.";
                self.conversion.stop(SECTION, setting, &reason, cure);
            }
        }
    }

    fn uri(&mut self, setting: &Setting) {
        for uri in setting.value.split_whitespace() {
            let upper = uri.to_ascii_uppercase();
            if let Some(domain) = upper.strip_prefix("DNS:") {
                let domain = uri[uri.len() - domain.len()..].trim_end_matches('.').to_owned();
                self.domain.keys.set("discover", quoted(&domain));
            } else if upper == "DNS" {
                match &self.facts.dns_domain {
                    Some(domain) => self.domain.keys.set("discover", quoted(domain)),
                    None => {
                        let reason = "the DNS domain of this host is unknown";
                        self.conversion.fail(SECTION, setting, reason, "Write dns:DOMAIN.");
                    }
                }
            } else {
                self.uris.push(uri.to_owned());
            }
        }
        self.mapped(setting, "uris");
    }

    fn base(&mut self, option: &NslcdOption, setting: &Setting) {
        let (map, dn) = map_and_rest(option);
        match self.bases.map_part(map) {
            Some(_) if dn.eq_ignore_ascii_case("DOMAIN") => {
                let reason = "Roster does not derive the base from the host's name";
                self.conversion.fail(SECTION, setting, reason, "Write the base as a DN.");
            }
            Some(bases) => {
                bases.push(dn.to_owned());
                let key = base_key(map);
                self.mapped(setting, key);
            }
            None => self.note(setting, NO_MAP),
        }
    }

    fn scope(&mut self, option: &NslcdOption, setting: &Setting) {
        let (map, scope) = map_and_rest(option);
        let scope = match &*scope.to_ascii_lowercase() {
            "sub" | "subtree" | "children" => None,
            "one" | "onelevel" => Some("one"),
            "base" => Some("base"),
            _ => {
                return self.conversion.fail(
                    SECTION,
                    setting,
                    "the scope is unknown",
                    "Write sub, one or base.",
                );
            }
        };
        match self.scope.map_part(map) {
            Some(place) => {
                *place = scope;
                self.mapped(setting, base_key(map));
            }
            None => self.note(setting, NO_MAP),
        }
    }

    fn filter(&mut self, option: &NslcdOption, setting: &Setting) {
        let (map, text) = map_and_rest(option);
        match self.filters.map_part(map).filter(|_| !map.is_empty()) {
            Some(place) => {
                *place = self.conversion.filter(SECTION, setting, text);
                self.mapped(setting, if map == "passwd" { "user_filter" } else { "group_filter" });
            }
            None => self.note(setting, NO_MAP),
        }
    }

    fn sasl(&mut self, setting: &Setting) {
        self.has_sasl = true;
        match &*setting.value.to_ascii_uppercase() {
            "GSSAPI" | "GSS-SPNEGO" => self.domain.keys.set("bind", quoted("gssapi")),
            "EXTERNAL" => self.domain.keys.set("bind", quoted("external")),
            _ => {
                let reason = "Roster binds by GSSAPI, by EXTERNAL or with a password";
                return self.conversion.fail(SECTION, setting, reason, "Use one of them.");
            }
        }
        self.mapped(setting, "bind");
    }
}

fn base_key(map: &str) -> &'static str {
    match map {
        "passwd" => "user_base",
        "group" => "group_base",
        _ => "base",
    }
}

/// Splits the optional name of a map from the rest.
fn map_and_rest(option: &NslcdOption) -> (&str, &str) {
    let (first, rest) = option.first_word();
    let is_map = matches!(first, "passwd" | "group") || OTHER_MAPS.contains(&first);
    if is_map && !rest.is_empty() { (first, rest) } else { ("", &option.value) }
}

/// Attributes of maps: nslcd's name, and Roster's key.
const ATTRIBUTES: [(&str, &str, &str); 13] = [
    ("passwd", "uid", "user_name"),
    ("passwd", "uidnumber", "user_uid"),
    ("passwd", "gidnumber", "user_gid"),
    ("passwd", "gecos", "user_gecos"),
    ("passwd", "homedirectory", "user_home"),
    ("passwd", "loginshell", "user_shell"),
    ("group", "cn", "group_name"),
    ("group", "gidnumber", "group_gid"),
    ("shadow", "shadowlastchange", "shadow_last_change"),
    ("shadow", "shadowmax", "shadow_max"),
    ("shadow", "shadowwarning", "shadow_warning"),
    ("shadow", "shadowinactive", "shadow_inactive"),
    ("shadow", "shadowexpire", "shadow_expire"),
];

impl Work<'_, '_> {
    fn map(&mut self, option: &NslcdOption, setting: &Setting) {
        let mut words = option.value.splitn(3, char::is_whitespace);
        let (map, attribute) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let value = words.next().unwrap_or("").trim();
        let attribute = attribute.to_ascii_lowercase();
        if value.is_empty() {
            return self.conversion.fail(
                SECTION,
                setting,
                "the new attribute is missing",
                "Complete the line.",
            );
        }
        let is_expression = value.contains(['$', '"', ' ', ':', '/']);
        match (map, &*attribute) {
            ("passwd" | "group" | "shadow", "userpassword") => {
                self.note(setting, "Roster serves no password hashes.");
            }
            ("passwd", "gecos") if is_expression => {
                self.note(setting, "Roster takes gecos from one attribute.");
            }
            ("passwd", "homedirectory") if is_expression => self.expression(setting, value, "home"),
            ("passwd", "loginshell") if is_expression => self.expression(setting, value, "shell"),
            ("group", "member" | "memberuid") if !is_expression => {
                self.domain.keys.set("member_attributes", list(&[value]));
                self.mapped(setting, "member_attributes");
            }
            _ => {
                let row = ATTRIBUTES.iter().find(|(of, name, _)| *of == map && *name == attribute);
                match row {
                    Some((_, _, key)) if !is_expression => {
                        self.domain.attributes.set(key, quoted(value));
                        self.mapped(setting, &format!("attributes.{key}"));
                    }
                    Some(_) => {
                        let reason =
                            "Roster takes ids and names from attributes, not from expressions";
                        let cure = "Write the attributes to the directory.";
                        self.conversion.fail(SECTION, setting, reason, cure);
                    }
                    None => self.note(setting, NO_MAP),
                }
            }
        }
    }

    /// Converts the two common forms: a constant with `$uid`, and a default for a missing attribute.
    fn expression(&mut self, setting: &Setting, value: &str, key: &str) {
        let text = value.trim_matches('"');
        let attribute = if key == "home" { "homeDirectory" } else { "loginShell" };
        let default =
            text.strip_prefix(&format!("${{{attribute}:-")).and_then(|rest| rest.strip_suffix('}'));
        let (key, text) = match default {
            Some(default) => (format!("fallback_{key}"), default),
            None => (key.to_owned(), text),
        };
        let text = text.replace('%', "%%").replace("${uid}", "%u").replace("$uid", "%u");
        if text.contains('$') || !text.starts_with('/') {
            let reason = "the expression has no counterpart, and the value would change";
            let cure = "Write it with $uid only, or write the attribute to the directory.";
            return self.conversion.stop(SECTION, setting, reason, cure);
        }
        self.domain.keys.set(&key, quoted(&text));
        self.mapped(setting, &key);
    }

    /// Derives the keys that depend on several options.
    fn finish(&mut self, missing: &Setting) {
        self.servers();
        self.searches(missing);
        if self.domain.keys.get("member_attributes").is_none() {
            self.domain.keys.set("member_attributes", list(&["memberUid", "member"]));
        }
        if self.has_sasl {
            for key in ["bind_dn", "bind_password_file"] {
                self.domain.keys.remove(key);
            }
            self.domain.password = None;
        } else {
            self.check_simple_bind();
        }
        if self.domain.keys.get("min_id").is_none() {
            let note =
                "Ids below 1000 are refused. nslcd serves them without nss_min_uid: see min_id.";
            self.conversion.plan.note(note);
        }
        self.conversion.plan.note(
            "Roster follows nested groups. nslcd does so with nss_nested_groups only: compare groups before the move.",
        );
        if self.domain.keys.get("home").is_none() && self.domain.keys.get("fallback_home").is_none()
        {
            self.domain.keys.set("allow_empty_home", "true".into());
        }
        if self.domain.keys.get("bind") == Some("\"gssapi\"") {
            self.kdcs(missing);
        }
        if self.domain.keys.get("auth") == Some("\"ldap\"") {
            // nslcd keeps no passwords.
            self.domain.keys.set("offline_credentials", "false".into());
        }
    }

    /// Sets the realm and its KDCs for the ticket of the reader.
    fn kdcs(&mut self, missing: &Setting) {
        let option = self.conversion.plan.items.iter().find(|item| item.setting == "sasl_realm");
        let realm = option.map(|item| item.value.clone());
        let krb5 = &self.facts.krb5;
        let Some(realm) = realm.or_else(|| krb5.libdefaults.get("default_realm").cloned()) else {
            let setting = Setting { name: "sasl_realm".into(), ..missing.clone() };
            let cure = "Write sasl_realm, or default_realm in krb5.conf.";
            return self.conversion.fail(SECTION, &setting, "the realm is unknown", cure);
        };
        let kdcs = krb5.realms.get(&realm).map(|realm| realm.kdcs.clone()).unwrap_or_default();
        self.domain.keys.set("krb5_realm", quoted(&realm));
        if kdcs.is_empty() {
            self.domain.keys.set("krb5_discover", "true".into());
        } else {
            self.domain.keys.set("krb5_kdcs", list(&kdcs));
        }
    }

    fn check_simple_bind(&mut self) {
        let has_dn = self.domain.keys.get("bind_dn").is_some();
        if has_dn && self.domain.password.is_none() {
            let item = self.conversion.plan.items.iter_mut().find(|item| item.setting == "binddn");
            if let Some(item) = item {
                item.outcome = Outcome::Stopped {
                    reason: "the password is missing, and Roster does not bind without one".into(),
                    cure: "Write bindpw, or remove the DN for anonymous searches.".into(),
                    can_be_waived: false,
                };
            }
        } else if !has_dn {
            self.domain.keys.remove("bind_password_file");
            self.domain.password = None;
        }
    }

    fn servers(&mut self) {
        let uses_tls = matches!(&*self.ssl, "on" | "yes" | "true");
        if uses_tls {
            for uri in &mut self.uris {
                if let Some(rest) = uri.strip_prefix("ldap://") {
                    *uri =
                        format!("ldaps://{}", rest.trim_end_matches('/').trim_end_matches(":389"));
                }
            }
        }
        if !self.uris.is_empty() {
            self.domain.keys.set("uris", list(&self.uris));
        }
        let clear = self.uris.iter().any(|uri| uri.starts_with("ldap://"))
            || self.domain.keys.get("discover").is_some();
        let start_tls = self.ssl == "start_tls";
        let is_gssapi = self.domain.keys.get("bind") == Some("\"gssapi\"");
        if clear && start_tls {
            self.domain.keys.set("start_tls", "true".into());
        } else if clear {
            if !is_gssapi {
                self.domain.keys.set("allow_clear_identities", "true".into());
            }
            if self.domain.password.is_some() {
                self.domain.keys.set("allow_clear_password", "true".into());
            }
        }
        if clear && !start_tls {
            self.domain.keys.set("auth", quoted("none"));
            self.conversion.plan.note(
                "nslcd sent passwords without TLS, and the result has auth = \"none\". Set start_tls = true or ldaps:// \
                 URIs, and auth = \"ldap\", before you move logins.",
            );
        } else {
            self.domain.keys.set("auth", quoted("ldap"));
        }
    }

    fn searches(&mut self, missing: &Setting) {
        let scopes = [self.scope.all, self.scope.passwd, self.scope.group];
        let common = std::mem::take(&mut self.bases.all);
        if common.is_empty() && self.bases.passwd.is_empty() {
            let cure = "Write base with the DN of the directory.";
            return self.conversion.fail(SECTION, missing, "nslcd asks the server for it", cure);
        }
        let search = |bases: &[String], scope: Option<&'static str>| -> Vec<SearchBase> {
            bases.iter().map(|base| SearchBase { scope, ..SearchBase::whole(base) }).collect()
        };
        let of_map =
            [std::mem::take(&mut self.bases.passwd), std::mem::take(&mut self.bases.group)];
        let first = if common.is_empty() { &of_map[0] } else { &common };
        let base = search(first, scopes[0]);
        self.domain.keys.set("base", values::bases(&base));
        for (place, (bases, key)) in of_map.iter().zip(["user_base", "group_base"]).enumerate() {
            let scope = scopes[place + 1].or(scopes[0]);
            if !bases.is_empty() || scopes[place + 1].is_some() {
                let bases = if bases.is_empty() { &common } else { bases };
                self.domain.keys.set(key, values::bases(&search(bases, scope)));
            }
        }
        for (filter, key) in [
            (self.filters.passwd.take(), "user_filter"),
            (self.filters.group.take(), "group_filter"),
        ] {
            if let Some(filter) = filter {
                self.domain.keys.set(key, quoted(&filter));
            }
        }
    }
}
