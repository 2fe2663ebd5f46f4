//! One `[domain.NAME]`: what follows from what, and which keys contradict each other.

use crate::access;
use crate::keys::Table;
use crate::read::{Report, Section, Value};
use crate::syntax;
use crate::{
    Access, Attributes, Auth, AuthMethod, Bind, Domain, Files, Host, Krb5, Ldap, MemberAttribute,
    MemberValues, Mode, Offline, Overrides, Provider, Search, Server, Validate,
};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// The path of a domain's table, as it stands between brackets.
pub(crate) fn domain_path(name: &str) -> String {
    format!("domain.{}", bare_or_quoted(name))
}

/// A key, in quotes if it needs them.
pub(crate) fn bare_or_quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { format!("{name:?}") }
}

/// Reads `[domain.NAME]`.
pub(crate) fn domain<'d>(
    report: &mut Report<'_>,
    host: &Host,
    name: &str,
    found: (Range<usize>, &'d Spanned<DeValue<'d>>),
) -> Domain {
    let path = domain_path(name);
    let mut section = Section::new(report, Table::Domain, &path, Some(found));
    let provider: String = section.take("provider");
    let mode: String = section.take("mode");
    let mode = if mode == "on-demand" { Mode::OnDemand } else { Mode::Replicate };
    let (min_id, max_id) = ids(&mut section, host);
    let auth = auth(&mut section, &provider);
    let mut domain = Domain {
        name: name.to_owned(),
        min_id,
        max_id,
        mode,
        overrides: overrides(&mut section),
        mass_deletion: section.take("mass_deletion"),
        refresh: on_demand(&mut section, mode, "refresh"),
        negative: on_demand(&mut section, mode, "negative"),
        provider: provider_of(&mut section, &provider, mode, host, auth.method == AuthMethod::Ldap),
        auth,
        access: Access::unconfigured(),
    };
    let found = section.entry("access");
    let authenticates = domain.auth.method != AuthMethod::None;
    domain.access = access::access(&mut section, found, authenticates);
    if matches!(&domain.provider, Provider::Ldap(ldap) if !ldap.case_sensitive) {
        domain.access = domain.access.lower_case();
    }
    access::check(&mut section, &domain);
    domain
}

/// Keys that mean nothing where nobody is asked about passwords.
const OF_AUTH: [&str; 7] = [
    "auth_timeout",
    "offline_credentials",
    "offline_life",
    "offline_failures",
    "offline_lockout",
    "password_hash_time",
    "allow_clear_user_passwords",
];

/// Keys that mean nothing where no credentials are kept.
const OF_OFFLINE: [&str; 4] =
    ["offline_life", "offline_failures", "offline_lockout", "password_hash_time"];

fn auth(section: &mut Section<'_, '_, '_, '_>, provider: &str) -> Auth {
    let method: String = section.take("auth");
    let method = match method.as_str() {
        "ldap" => AuthMethod::Ldap,
        "krb5" => AuthMethod::Krb5,
        _ => AuthMethod::None,
    };
    if method == AuthMethod::Ldap && provider == "files" {
        section.wrong("auth", "there is no directory to ask", "remove it");
    }
    if method == AuthMethod::None {
        for name in OF_AUTH {
            if section.has(name) {
                section.warn(
                    name,
                    "has no effect where passwords are nobody's business",
                    "set auth, or remove it",
                );
            }
        }
    }
    let timeout = section.take("auth_timeout");
    let kept: bool = section.take("offline_credentials");
    if !kept {
        for name in OF_OFFLINE {
            if section.has(name) {
                section.warn(
                    name,
                    "has no effect where no credentials are kept",
                    "remove it, or offline_credentials = false",
                );
            }
        }
    }
    let offline = Offline {
        life: section.take("offline_life"),
        failures: section.take("offline_failures"),
        lockout: section.take("offline_lockout"),
        hash_time: section.take("password_hash_time"),
    };
    let krb5 = krb5(section, method).map(Box::new);
    let kept = kept && method != AuthMethod::None;
    Auth { method, timeout, offline: Some(offline).filter(|_| kept), krb5 }
}

/// Keys that mean nothing where no KDC is asked.
const OF_KRB5: [&str; 10] = [
    "krb5_realm",
    "krb5_kdcs",
    "krb5_kpasswd",
    "krb5_discover",
    "krb5_keytab",
    "krb5_validate",
    "krb5_cache",
    "krb5_lifetime",
    "krb5_renewable",
    "krb5_forwardable",
];

fn krb5(section: &mut Section<'_, '_, '_, '_>, method: AuthMethod) -> Option<Krb5> {
    let realm: Option<String> = section.take_if("krb5_realm");
    let validate: String = section.take("krb5_validate");
    let cache: String = section.take("krb5_cache");
    let krb5 = Krb5 {
        realm: realm.unwrap_or_default(),
        kdcs: section.take("krb5_kdcs"),
        kpasswd: section.take("krb5_kpasswd"),
        discover: section.take("krb5_discover"),
        keytab: section.take("krb5_keytab"),
        validate: match validate.as_str() {
            "auto" => Validate::Auto,
            "off" => Validate::Off,
            _ => Validate::Required,
        },
        cache: Some(cache).filter(|cache| cache != "none"),
        lifetime: section.take("krb5_lifetime"),
        renewable: section.take("krb5_renewable"),
        forwardable: section.take("krb5_forwardable"),
    };
    section.note_unset("krb5_kpasswd");
    if method != AuthMethod::Krb5 {
        for name in OF_KRB5 {
            if section.has(name) {
                section.warn(
                    name,
                    "has no effect where no KDC is asked",
                    "set auth = \"krb5\", or remove it",
                );
            }
        }
        return None;
    }
    if !section.has("krb5_realm") {
        section.wrong("auth", "a KDC is asked in a realm", "add krb5_realm = \"EXAMPLE.COM\"");
    }
    if !krb5.discover && (!section.has("krb5_kdcs") || section.is_empty_list("krb5_kdcs")) {
        section.wrong(
            if section.has("krb5_kdcs") { "krb5_kdcs" } else { "auth" },
            "no KDC is named",
            "name some, krb5_kdcs = [\"kdc1.example.com\"], or find them by DNS, krb5_discover = true",
        );
    }
    Some(krb5)
}

fn ids(section: &mut Section<'_, '_, '_, '_>, host: &Host) -> (u32, u32) {
    let min_id = section.take_or("min_id", host.min_id, Value::Integer);
    let max_id = section.take_or("max_id", host.max_id, Value::Integer);
    let everywhere =
        |name, bound| format!("{name} of [host], {bound}, which holds for every domain");
    if section.has("min_id") && min_id < host.min_id {
        let what = format!("{min_id} is below {}", everywhere("min_id", host.min_id));
        section.wrong("min_id", what, "lower that one");
    }
    if section.has("max_id") && max_id > host.max_id && host.max_id > 0 {
        let what = format!("{max_id} is above {}", everywhere("max_id", host.max_id));
        section.wrong("max_id", what, "raise that one");
    }
    if section.has("min_id") || section.has("max_id") {
        check_ids(section, min_id, max_id);
    }
    (min_id, max_id)
}

/// A value with a mistake is 0, and was complained of.
pub(crate) fn check_ids(section: &mut Section<'_, '_, '_, '_>, min: u32, max: u32) {
    if min > max && max > 0 {
        let name = if section.has("max_id") { "max_id" } else { "min_id" };
        section.wrong(
            name,
            format!("no id is at least min_id ({min}) and at most max_id ({max})"),
            "make max_id the larger one",
        );
    }
}

fn overrides(section: &mut Section<'_, '_, '_, '_>) -> Overrides {
    let overrides = Overrides {
        home: section.take_if("home"),
        fallback_home: section.take_if("fallback_home"),
        shell: section.take_if("shell"),
        fallback_shell: section.take_if("fallback_shell"),
    };
    for (always, fallback) in [("home", "fallback_home"), ("shell", "fallback_shell")] {
        if section.has(always) && section.has(fallback) {
            let what = format!("has no effect beside {always}");
            section.warn(fallback, what, "remove one of the two");
        }
    }
    overrides
}

/// A key of domains that are asked on demand.
fn on_demand(section: &mut Section<'_, '_, '_, '_>, mode: Mode, name: &str) -> Duration {
    if mode == Mode::Replicate && section.has(name) {
        section.warn(
            name,
            "has no effect on a domain that is mirrored",
            "remove it, or set mode = \"on-demand\"",
        );
    }
    section.take(name)
}

fn provider_of(
    section: &mut Section<'_, '_, '_, '_>,
    provider: &str,
    mode: Mode,
    host: &Host,
    binds_as_users: bool,
) -> Provider {
    match provider {
        "files" => {
            section.refuse_strangers(Some("files"));
            if mode == Mode::OnDemand {
                section.wrong("mode", "text is always mirrored", "remove it");
            }
            Provider::Files(files(section, host))
        }
        "ldap" => {
            section.refuse_strangers(Some("ldap"));
            Provider::Ldap(Box::new(ldap(section, binds_as_users)))
        }
        // A mistake, which was complained of; it stands for no provider, and asks for no keys.
        _ => {
            section.refuse_strangers(None);
            Provider::Files(Files { passwd: PathBuf::new(), group: PathBuf::new() })
        }
    }
}

fn files(section: &mut Section<'_, '_, '_, '_>, host: &Host) -> Files {
    let files = Files { passwd: section.take("passwd"), group: section.take("group") };
    let (passwd, group) = (&files.passwd, &files.group);
    if passwd == group && section.has("passwd") && passwd.has_root() {
        section.wrong("group", "is the same file as passwd", "name the one with groups");
    }
    for (name, own, host) in [("passwd", passwd, &host.passwd), ("group", group, &host.group)] {
        if own == host && own.has_root() {
            section.wrong(
                name,
                "is the host's own file, with which every entry would clash",
                "name another one; local accounts need no domain",
            );
        }
    }
    files
}

fn ldap(section: &mut Section<'_, '_, '_, '_>, binds_as_users: bool) -> Ldap {
    let (servers, discover) = servers(section);
    let base: String = section.take("base");
    let member_attributes = member_attributes(section);
    let mut search = |base_key, filter_key| Search {
        base: section.take_or(base_key, base.clone(), Value::Text),
        filter: section.take(filter_key),
    };
    let users = search("user_base", "user_filter");
    let groups = search("group_base", "group_filter");
    let case_sensitive = section.take("case_sensitive");
    let bind = bind(section, &servers, discover.is_some());
    let start_tls: bool = section.take("start_tls");
    let tls_ca: Option<PathBuf> = section.take_if("tls_ca");
    section.note_unset("tls_ca");
    let allow_clear_password: bool = section.take("allow_clear_password");
    let allow_clear_identities: bool = section.take("allow_clear_identities");
    let allow_clear_user_passwords: bool = section.take("allow_clear_user_passwords");
    let transport = transport(section, &servers, discover.is_some(), start_tls);
    if let (true, false, Some(server)) =
        (binds_as_users, allow_clear_user_passwords, &transport.without_tls)
    {
        section.wrong(
            "auth",
            format!("users' passwords would travel to {server} for everybody on the way to read"),
            "use ldaps:// in uris or start_tls = true; if the network is to be trusted, \
             allow_clear_user_passwords = true",
        );
    }
    if !start_tls {
        identities_in_clear(section, &servers, discover.is_some(), allow_clear_identities);
    }
    let in_clear = matches!(bind, Bind::Simple { .. }) && !allow_clear_password;
    if let (true, Some(server)) = (in_clear, transport.without_tls) {
        section.wrong(
            "bind_password_file",
            format!("the password would travel to {server} for everybody on the way to read"),
            "use ldaps:// in uris or start_tls = true; if the network is to be trusted, \
             allow_clear_password = true",
        );
    }
    Ldap {
        page_size: section.take("page_size"),
        connect_timeout: section.take("connect_timeout"),
        search_timeout: section.take("search_timeout"),
        poll: section.take("poll"),
        sweep: section.take("sweep"),
        full_refresh: section.take("full_refresh"),
        fail_back: section.take("fail_back"),
        message_bytes_max: section.take("message_bytes_max"),
        attributes: attributes(section),
        servers,
        discover,
        base,
        users,
        groups,
        member_attributes,
        case_sensitive,
        bind,
        start_tls,
        tls_ca,
        allow_clear_password,
        allow_clear_identities,
        allow_clear_user_passwords,
    }
}

/// Without TLS, each router on the way to a server can change the users and groups of this host.
fn identities_in_clear(
    section: &mut Section<'_, '_, '_, '_>,
    servers: &[Server],
    discover: bool,
    is_allowed: bool,
) {
    let what = |server: &str| {
        format!("each router on the way to {server} can change the users and groups of this host")
    };
    let (tls, allow) = ("use ldaps://, or set start_tls = true", "allow_clear_identities = true");
    for server in servers {
        if matches!(server, Server::Ldap { .. }) && !server.is_this_host() {
            let at = |text: &str| syntax::server(text).as_ref() == Ok(server);
            let what = what(&server.to_string());
            if is_allowed {
                section.warn_at("uris", at, what, tls);
            } else {
                let remedy = format!("{tls}; if the network is to be trusted, {allow}");
                section.wrong_at("uris", at, what, remedy);
            }
        }
    }
    if discover {
        let what = what("servers that DNS names");
        if is_allowed {
            section.warn("discover", what, "set start_tls = true");
        } else {
            let remedy = format!("set start_tls = true; if the network is to be trusted, {allow}");
            section.wrong("discover", what, remedy);
        }
    }
}

fn servers(section: &mut Section<'_, '_, '_, '_>) -> (Vec<Server>, Option<String>) {
    let servers = section.take("uris");
    let discover = section.take_if("discover");
    section.note_unset("uris");
    if !section.has("uris") && !section.has("discover") {
        section.wrong(
            "uris",
            "is missing",
            "name servers, uris = [\"ldaps://ldap1.example.com\"], or find them by DNS, \
             discover = \"example.com\"",
        );
    } else if section.is_empty_list("uris") {
        section.wrong("uris", "names no server", "name one, or remove it and set discover");
    }
    (servers, discover)
}

fn bind(section: &mut Section<'_, '_, '_, '_>, servers: &[Server], discover: bool) -> Bind {
    let fallback = if section.has("bind_dn") { "simple" } else { "anonymous" };
    let bind = section.take_or("bind", fallback.to_owned(), Value::Text);
    let dn: Option<String> = section.take_if("bind_dn");
    let password_file: Option<PathBuf> = section.take_if("bind_password_file");
    match &*bind {
        "simple" => {
            if !section.has("bind_dn") {
                section.wrong("bind", "a simple bind needs a DN", "add bind_dn = \"cn=…\"");
            }
            if !section.has("bind_password_file") {
                let place = if section.has("bind_dn") { "bind_dn" } else { "bind" };
                section.wrong(
                    place,
                    "a simple bind needs a password",
                    "put it into a file with mode 0600, and name that in bind_password_file",
                );
            }
            Bind::Simple {
                dn: dn.unwrap_or_default(),
                password_file: password_file.unwrap_or_default(),
            }
        }
        "external" => {
            for server in servers {
                if !matches!(server, Server::Ldapi { .. }) {
                    section.wrong_at(
                        "uris",
                        |text| syntax::server(text).as_ref() == Ok(server),
                        format!("{server} does not know the uid that bind = \"external\" goes by"),
                        "use ldapi://, or bind_dn and bind_password_file",
                    );
                }
            }
            if discover {
                section.wrong(
                    "discover",
                    "bind = \"external\" is for ldapi://, which is not found by DNS",
                    "remove one of the two",
                );
            }
            superfluous(section, "external");
            Bind::External
        }
        _ => {
            if section.has("bind") {
                superfluous(section, "anonymous");
            } else if section.has("bind_password_file") {
                section.wrong(
                    "bind_password_file",
                    "a password without a name",
                    "add bind_dn, or remove it",
                );
            }
            Bind::Anonymous
        }
    }
}

fn superfluous(section: &mut Section<'_, '_, '_, '_>, bind: &str) {
    for name in ["bind_dn", "bind_password_file"] {
        if section.has(name) {
            section.wrong(
                name,
                format!("contradicts bind = \"{bind}\""),
                "remove it, or set bind = \"simple\"",
            );
        }
    }
}

/// What TLS covers.
struct Transport {
    /// Some of it.
    tls: bool,
    /// One that it does not.
    without_tls: Option<String>,
}

fn transport(
    section: &mut Section<'_, '_, '_, '_>,
    servers: &[Server],
    discover: bool,
    start_tls: bool,
) -> Transport {
    let mut found = Transport { tls: start_tls, without_tls: None };
    for server in servers {
        match server {
            Server::Ldaps { .. } if start_tls => section.wrong_at(
                "uris",
                |text| syntax::server(text).as_ref() == Ok(server),
                format!("{server} has TLS from the start, and start_tls is for ldap://"),
                "write ldap:// here, or remove start_tls",
            ),
            Server::Ldaps { .. } => found.tls = true,
            Server::Ldap { .. } if !start_tls && !server.is_this_host() => {
                found.without_tls = Some(server.to_string());
            }
            Server::Ldapi { .. } if start_tls => section.warn_at(
                "uris",
                |text| syntax::server(text).as_ref() == Ok(server),
                "start_tls has no effect on a socket of this host",
                "remove it if there are no other servers",
            ),
            Server::Ldap { .. } | Server::Ldapi { .. } => {}
        }
    }
    if discover && !start_tls {
        found.without_tls = Some("servers that DNS names".to_owned());
    }
    if section.has("tls_ca") && !found.tls {
        section.warn(
            "tls_ca",
            "has no effect without TLS",
            "use ldaps:// in uris, or set start_tls = true",
        );
    }
    found
}

/// Attributes of either schema say by themselves how they name members.
fn member_attributes(section: &mut Section<'_, '_, '_, '_>) -> Vec<MemberAttribute> {
    let schema: String = section.take("schema");
    let names: Vec<String> = section.take("member_attributes");
    if section.is_empty_list("member_attributes") {
        section.wrong("member_attributes", "no group would have members", "remove it");
    }
    let others = if schema == "rfc2307bis" { MemberValues::Dns } else { MemberValues::Names };
    let mut attributes: Vec<MemberAttribute> = Vec::new();
    for name in names.iter().map(|name| name.to_ascii_lowercase()) {
        let values = match name.as_str() {
            "memberuid" => MemberValues::Names,
            "member" => MemberValues::Dns,
            "uniquemember" => MemberValues::DnsWithUids,
            _ => others,
        };
        if attributes.iter().all(|other| other.name != name) {
            attributes.push(MemberAttribute { name, values });
        }
    }
    attributes
}

fn attributes(section: &mut Section<'_, '_, '_, '_>) -> Attributes {
    let path = section.path_of("attributes");
    let found = section.entry("attributes");
    let mut section = Section::new(section.report, Table::Attributes, &path, found);
    let mut name = |key: &str| section.take::<String>(key).to_ascii_lowercase();
    let (user_name, user_uid, user_gid) = (name("user_name"), name("user_uid"), name("user_gid"));
    let (user_gecos, user_home) = (name("user_gecos"), name("user_home"));
    let (user_shell, group_name) = (name("user_shell"), name("group_name"));
    let group_gid = name("group_gid");
    let (ssh_key, shadow_last_change) = (name("ssh_key"), name("shadow_last_change"));
    let (shadow_max, shadow_warning) = (name("shadow_max"), name("shadow_warning"));
    let (shadow_inactive, shadow_expire) = (name("shadow_inactive"), name("shadow_expire"));
    let (locked_time, password_reset) = (name("locked_time"), name("password_reset"));
    let (account_lock, role) = (name("account_lock"), name("role"));
    let (account_control, account_expires) = (name("account_control"), name("account_expires"));
    let (account_control_computed, lockout_time) =
        (name("account_control_computed"), name("lockout_time"));
    let uuid: Option<String> = section.take_if("uuid");
    section.note_unset("uuid");
    section.refuse_strangers(Some("ldap"));
    Attributes {
        user_name,
        user_uid,
        user_gid,
        user_gecos,
        user_home,
        user_shell,
        group_name,
        group_gid,
        ssh_key,
        shadow_last_change,
        shadow_max,
        shadow_warning,
        shadow_inactive,
        shadow_expire,
        locked_time,
        password_reset,
        account_lock,
        role,
        account_control,
        account_expires,
        account_control_computed,
        lockout_time,
        uuid: uuid.map(|uuid| uuid.to_ascii_lowercase()),
    }
}
