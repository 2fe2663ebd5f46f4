// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meaning of roster.toml, and the report of every mistake.

use roster_config::{
    AccountCheck, AuthConfig, AuthMethod, BindMethod, DomainMode, KdcValidation, LdapServer,
    ListenAddress, MemberValues, OfflineConfig, ParsedConfig, PasswordChangeConfig,
    PasswordOperation, PrivateGroups, ProviderConfig, SearchBase, SecretFile, explain::explain,
    parse,
};
use roster_messages::table::config;
use roster_messages::{Diagnostic, Message, Severity};
use std::path::Path;
use std::time::Duration;

/// The example of the manual.
const EXAMPLE: &str = r#"
[host]
domains = ["corp", "lab"]          # in order of precedence
min_id = 1000

[domain.corp]
provider = "ldap"
uris = ["ldaps://ldap1.example.com", "ldaps://ldap2.example.com"]
base = "dc=example,dc=com"
schema = "rfc2307bis"              # rfc2307 | rfc2307bis
mode = "replicate"                 # replicate | on-demand
bind_dn = "cn=reader,dc=example,dc=com"
bind_password_file = "/etc/roster/corp.password"
tls_ca = "/etc/ssl/certs/corp.pem"
start_tls = false

[domain.lab]
provider = "files"
passwd = "/srv/lab/passwd"
group = "/srv/lab/group"
"#;

/// One LDAP domain with more keys.
fn corp(keys: &str) -> String {
    format!(
        "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\n\
         uris = [\"ldaps://ldap1\"]\nbase = \"dc=x\"\n{keys}\n"
    )
}

fn well(text: &str) -> ParsedConfig {
    parse(text).unwrap_or_else(|problems| panic!("{}", rendered(&problems).join("\n")))
}

fn quiet(text: &str) -> ParsedConfig {
    let parsed = well(text);
    assert_eq!(rendered(&parsed.warnings), [""; 0]);
    parsed
}

fn rendered(problems: &[Diagnostic]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn mistakes(text: &str) -> Vec<String> {
    rendered(&parse(text).err().unwrap_or_default())
}

fn ldap(parsed: &ParsedConfig) -> &roster_config::LdapConfig {
    match &parsed.config.domains[0].provider {
        ProviderConfig::Ldap(ldap) => ldap,
        ProviderConfig::Files(_) => panic!("not LDAP"),
    }
}

#[test]
fn the_example_means_what_it_says() {
    let parsed = quiet(EXAMPLE);
    let config = &parsed.config;
    assert_eq!((config.host.min_id, config.host.max_id), (1000, u32::MAX - 1));
    assert_eq!(config.host.passwd, Path::new("/etc/passwd"));
    assert_eq!(config.domains.iter().map(|d| &*d.name).collect::<Vec<_>>(), ["corp", "lab"]);
    assert_eq!((config.domains[0].min_id, config.domains[0].mode), (1000, DomainMode::Replicate));
    let ldap = ldap(&parsed);
    let server = |host: &str| LdapServer::Ldaps { host: host.to_owned(), port: 636 };
    assert_eq!(ldap.servers, [server("ldap1.example.com"), server("ldap2.example.com")]);
    assert_eq!(ldap.users.bases, [SearchBase::subtree("dc=example,dc=com")]);
    assert_eq!(ldap.users.filter, "(objectClass=posixAccount)");
    assert_eq!(ldap.groups.filter, "(objectClass=posixGroup)");
    assert_eq!(ldap.member_attributes.len(), 3);
    assert_eq!(ldap.attributes.user_uid, "uidnumber");
    assert_eq!(ldap.search_timeout, Duration::from_secs(30));
    assert_eq!(
        ldap.bind,
        BindMethod::Simple {
            dn: "cn=reader,dc=example,dc=com".to_owned(),
            password_file: SecretFile::Path("/etc/roster/corp.password".into())
        }
    );
    assert!(matches!(&config.domains[1].provider, ProviderConfig::Files(files)
        if files.passwd == Path::new("/srv/lab/passwd")));
    assert_eq!(config.publisher.interval, Duration::from_millis(100));
    assert_eq!((&*config.log.level, config.log.json), ("info", false));
    assert_eq!(config.metrics, None);
}

#[test]
fn every_key_can_be_set() {
    let parsed = quiet(
        r#"
        [host]
        domains = ["files.lab", "keyed", "corp"]
        default_domain = "corp"
        min_id = 500
        max_id = 0xffff_0000
        allowed_local_gids = [100]
        passwd = "/x/passwd"
        group = "/x/group"
        [domain."files.lab"]
        provider = "files"
        passwd = "/srv/p"
        group = "/srv/g"
        max_id = 3000
        fallback_home = "/home/%d/%u"
        fallback_shell = "/bin/bash"
        auth = "krb5"
        krb5_realm = "LAB.EXAMPLE"
        krb5_kdcs = ["kdc1", "[2001:db8::1]:750"]
        krb5_kpasswd = ["kdc1"]
        krb5_discover = true
        krb5_keytab = "/etc/lab.keytab"
        krb5_validate = "required"
        krb5_fast_principal = "host/client.lab.example"
        krb5_cache = "KEYRING:persistent:%{uid}"
        krb5_lifetime = "10h"
        krb5_renewable = 0
        krb5_forwardable = true
        [domain.keyed]
        provider = "ldap"
        uris = ["ldap://ldap1"]
        base = "dc=x"
        schema = "ad"
        member_range = 1000
        id_mapping = "sid"
        id_min = 100_000
        id_max = 1_100_000
        id_range = 20_000
        id_slice = 7
        bind = "gssapi"
        bind_principal = "host/client.lab.example"
        krb5_realm = "LAB.EXAMPLE"
        krb5_kdcs = ["kdc1"]
        [domain.keyed.access]
        enabled = true
        [domain.corp]
        provider = "ldap"
        mode = "on-demand"
        case = "insensitive"
        short_name = "CORP"
        qualified_names = true
        overrides_file = "/etc/roster/overrides.corp.toml"
        numeric_names = false
        min_id = 1000
        max_id = 2000
        home = "/net%o"
        shell = "/bin/%u"
        allowed_shells = ["/bin/bash", "/bin/zsh"]
        refused_shells = ["/bin/zsh"]
        replacement_shell = "/bin/false"
        unlisted_shell = "/bin/sh"
        allow_empty_home = false
        enumerate = false
        mass_deletion_threshold = 1
        refresh_interval = 60
        negative_ttl = "0s"
        auth = "ldap"
        auth_timeout = "5s"
        offline_credentials = true
        offline_credentials_expiration = "7d"
        offline_failed_login_attempts = 3
        offline_failed_login_delay = "1h"
        argon2_target_time = "250ms"
        uris = ["ldap://ldap1:3890", "ldap://[::1]"]
        discover = "example.com"
        discover_controllers = true
        site = "Berlin"
        base = "dc=x"
        schema = "rfc2307"
        member_attributes = ["memberUid", "mgrpMember"]
        user_base = "ou=people,dc=x"
        user_filter = "(&(objectClass=posixAccount)(!(uid=x)))"
        group_base = "ou=groups,dc=x"
        group_filter = "(objectClass=posixGroup)"
        bind = "simple"
        bind_dn = "cn=r,dc=x"
        bind_password_file = "/etc/roster/p"
        start_tls = true
        tls_ca = "/etc/ca.pem"
        tls_cert = "/etc/host.pem"
        tls_key = "credential:key"
        allow_clear_password = false
        allow_clear_identities = false
        allow_clear_user_passwords = false
        password_change = "extended"
        change_expired_password = true
        update_shadow_last_change = "never"
        page_size = 500
        connect_timeout = "500ms"
        search_timeout = "1m"
        poll_interval = "10s"
        reconcile_interval = "5m"
        full_refresh_interval = "12h"
        failback_interval = "1h"
        message_bytes_max = 1_000_000
        [domain.corp.attributes]
        user_name = "sAMAccountName"
        user_uid = "a"
        user_gid = "b"
        user_gecos = "displayName"
        user_home = "unixHomeDirectory"
        user_shell = "c"
        group_name = "d"
        group_gid = "e"
        uuid = "objectGUID"
        ssh_key = "ipaSshPubKey"
        shadow_last_change = "f"
        shadow_max = "g"
        shadow_warning = "h"
        shadow_inactive = "i"
        shadow_expire = "j"
        locked_time = "k"
        password_reset = "l"
        account_lock = "m"
        role = "n"
        account_control = "o"
        account_expires = "p"
        account_control_computed = "q"
        lockout_time = "r"
        host = "s"
        authorized_service = "t"
        rhost = "u"
        [domain.keyed.override.user.alice]
        name = "al"
        uid = 6000
        gid = 6000
        gecos = "Al"
        home = "/srv/al"
        shell = "/bin/zsh"
        [domain.keyed.override.group.staff]
        name = "crew"
        gid = 7000
        [domain.corp.access]
        enabled = true
        allowed_users = ["Alice"]
        allowed_groups = ["staff", "domain users"]
        denied_users = ["mallory"]
        denied_groups = ["suspended"]
        filter = "(employee=yes)"
        account_checks = ["account-lock", "shadow-expire"]
        lockout_duration = "30m"
        ssh_key_options = ["from", "no-pty"]
        ssh_keys_of_denied = true
        [domain.corp.access.service.sshd]
        allowed_users = ["bob"]
        [domain.corp.access.service."su-l"]
        denied_groups = ["guests"]
        [publisher]
        interval = "1s"
        [responder.pam]
        enabled = true
        trusted_users = ["www-data"]
        timeout = "20s"
        auth_attempts_per_minute = 5
        [metrics]
        listen = "[::1]:9273"
        [log]
        level = "debug"
        json = true
        "#,
    );
    let config = &parsed.config;
    assert_eq!((config.host.max_id, &*config.host.allowed_local_gids), (0xffff_0000, &[100][..]));
    assert_eq!(config.domains[0].name, "files.lab");
    let krb5 = config.domains[0].auth.krb5.as_deref().unwrap();
    assert_eq!((&*krb5.realm, krb5.validate), ("LAB.EXAMPLE", KdcValidation::Required));
    assert_eq!(krb5.kdcs, ["kdc1:88", "[2001:db8::1]:750"]);
    assert_eq!(krb5.kpasswd, ["kdc1:464"]);
    assert_eq!(krb5.cache.as_deref(), Some("KEYRING:persistent:%{uid}"));
    assert_eq!((krb5.lifetime, krb5.renewable), (Duration::from_secs(36_000), Duration::ZERO));
    let keyed = config.domains[1].sid_mapping().unwrap();
    let ids = (keyed.min, keyed.max, keyed.size, keyed.slice, keyed.slice_ids());
    assert_eq!(ids, (100_000, 1_100_000, 20_000, Some(7), Some((240_000, 259_999))));
    let corp = &config.domains[2];
    assert_eq!((corp.min_id, corp.max_id, corp.mode), (1000, 2000, DomainMode::OnDemand));
    assert_eq!((corp.refresh, corp.negative), (Duration::from_secs(60), Duration::ZERO));
    assert_eq!(corp.overrides.home.as_deref(), Some("/net%o"));
    let ProviderConfig::Ldap(ldap) = &corp.provider else { panic!("not LDAP") };
    assert_eq!(ldap.servers[1], LdapServer::Ldap { host: "::1".to_owned(), port: 389 });
    let site = ldap.controllers.as_ref().and_then(|controllers| controllers.site.as_deref());
    assert_eq!(site, Some("Berlin"));
    assert_eq!(ldap.attributes.user_name, "samaccountname");
    assert_eq!(ldap.attributes.uuid.as_deref(), Some("objectguid"));
    assert_eq!(ldap.attributes.ssh_key, "ipasshpubkey");
    let change = PasswordChangeConfig {
        operation: PasswordOperation::Extended,
        after_expiry: true,
        writes_shadow_day: false,
    };
    assert_eq!(ldap.password_change, change);
    let access = &corp.access;
    assert_eq!(access.lists.allowed_users.as_deref(), Some(&["alice".to_owned()][..]));
    assert_eq!(access.account_checks, [AccountCheck::ShadowExpire, AccountCheck::AccountLock]);
    assert_eq!(access.services.keys().collect::<Vec<_>>(), ["sshd", "su-l"]);
    assert_eq!(
        access.groups().collect::<Vec<_>>(),
        ["staff", "domain users", "suspended", "guests"]
    );
    assert!(config.domains.iter().all(roster_config::DomainConfig::has_logins));
    assert_eq!((ldap.page_size, ldap.message_bytes_max), (500, 1_000_000));
    assert_eq!(
        config.metrics.as_ref().unwrap().listen,
        ListenAddress::Tcp("[::1]:9273".parse().unwrap())
    );
    let day = Duration::from_secs(86_400);
    let offline = OfflineConfig {
        life: 7 * day,
        failures: 3,
        lockout: day / 24,
        hash_time: Duration::from_millis(250),
    };
    let timeout = Duration::from_secs(5);
    let auth = AuthConfig { method: AuthMethod::Ldap, timeout, offline: Some(offline), krb5: None };
    assert_eq!(corp.auth, auth);
    assert_eq!(config.pam.as_ref().map(|pam| pam.tries_per_minute), Some(5));
    // All keys of the manual were in use.
    let lines = explain(&parsed.settings);
    for key in roster_config::keys::KEYS {
        assert!(lines.contains(&format!("\n{} = ", key.name)), "{} is missing", key.name);
    }
}

#[test]
fn all_mistakes_are_found_at_once_with_line_and_remedy() {
    let text = r#"[host]
domains = ["corp", "lbb", "corp"]
min_id = 0
max_id = "5000"
allowed_local_gids = [100, 65534]
paswd = "/etc/passwd"

[domain.corp]
provider = "ldap"
uris = ["ldaps://ldap1.example.com", "ldap2"]
schema = "rfc2307bs"
user_filter = "(objectClass=posixAccount"
page_size = 99999999
start_tls = "true"
search_timeout = "half an hour"
bind_password = "secret"
home = "/home/%x"

[domain.corp.attributes]
user_nam = "cn"

[domain.lab]
provider = "files"
passwd = "srv/lab/passwd"
base = "dc=x"

[metrics]
listen = "0.0.0.0:9273"

[logs]
level = "info"
"#;
    assert_eq!(
        mistakes(text),
        [
            "roster.toml:2: host.domains: the table [domain.lbb] is missing. Did you mean \"lab\"? [RST-1059]",
            "roster.toml:2: host.domains: the list contains \"corp\" twice. Remove one of the two. [RST-1020]",
            "roster.toml:3: host.min_id: 0 is out of range. Write a number from 1 to 4294967294. [RST-1018]",
            "roster.toml:4: host.max_id: must be a number without quotes. Write 5000. [RST-1017]",
            "roster.toml:5: host.allowed_local_gids: gid 65534 is reserved. Remove the gid from the list. [RST-1021]",
            "roster.toml:6: host.paswd: is not a key of this table. Did you mean passwd? [RST-1001]",
            "roster.toml:8: domain.corp.base: is missing. Add it to [domain.corp]: base = \"dc=example,dc=com\". [RST-1005]",
            "roster.toml:10: domain.corp.uris: \"ldap2\" is not a valid URI. Did you mean \"ldaps://ldap2\"? [RST-1032]",
            "roster.toml:11: domain.corp.schema: unknown schema \"rfc2307bs\". Did you mean \"rfc2307bis\"? [RST-1019]",
            "roster.toml:12: domain.corp.user_filter: \"(objectClass=posixAccount\" is not a valid filter: a closing parenthesis is missing at the end. Write a filter such as \"(&(objectClass=posixAccount)(!(loginShell=/bin/false)))\". [RST-1046]",
            "roster.toml:13: domain.corp.page_size: 99999999 is out of range. Write a number from 1 to 1000000. [RST-1018]",
            "roster.toml:14: domain.corp.start_tls: must be true or false without quotes. Write true. [RST-1017]",
            "roster.toml:15: domain.corp.search_timeout: \"half an hour\" is not a valid duration. Write a number and ms, s, m, h or d, such as \"30s\". [RST-1022]",
            "roster.toml:16: domain.corp.bind_password: passwords are not allowed in this world-readable file. Write the password to a file with mode 0600, and set bind_password_file to its path. [RST-1003]",
            "roster.toml:17: domain.corp.home: unknown template %x in \"/home/%x\". Use %u (user name), %U (uid), %d (domain), %o (directory's value) or %% (percent sign). Home directories also take %f (name with the domain), %l (first letter) and %h (%o in lower case). [RST-1053]",
            "roster.toml:20: domain.corp.attributes.user_nam: is not a key of this table. Did you mean user_name? [RST-1001]",
            "roster.toml:22: warning: domain.lab: is not used. Add the name to domains in [host], or remove the table. [RST-1060]",
            "roster.toml:22: warning: domain.lab.group: is missing. Add it to [domain.lab]: group = \"/path/group\". [RST-1005]",
            "roster.toml:24: warning: domain.lab.passwd: \"srv/lab/passwd\" is not an absolute path. Write the absolute path, starting with /. [RST-1029]",
            "roster.toml:25: warning: domain.lab.base: requires provider = \"ldap\", and this domain has provider = \"files\". Remove the key, or change provider. [RST-1004]",
            "roster.toml:28: metrics.listen: 0.0.0.0 is not a loopback address. Write \"127.0.0.1:9273\", and let an agent on this host forward the metrics. [RST-1055]",
            "roster.toml:30: logs: is not a table of roster.toml. Did you mean [log]? [RST-1006]",
        ]
    );
}

#[test]
fn an_unused_table_is_a_warning_with_its_mistakes() {
    let parsed =
        well(&format!("{EXAMPLE}\n[domain.old]\nprovider = \"ldap\"\nuris = [\"ldaps://x\"]\n"));
    assert_eq!(
        rendered(&parsed.warnings),
        [
            "roster.toml:22: warning: domain.old: is not used. Add the name to domains in [host], or \
             remove the table. [RST-1060]",
            "roster.toml:22: warning: domain.old.base: is missing. Add it to [domain.old]: \
             base = \"dc=example,dc=com\". [RST-1005]",
        ]
    );
    assert!(parsed.warnings.iter().all(|warning| warning.severity == Severity::Warning));
}

#[test]
fn without_names_of_domains_no_table_is_called_unused() {
    let text = EXAMPLE.replace("domains = ", "domain = ").replace("rfc2307bis\"", "rfc2307b\"");
    assert_eq!(
        mistakes(&text),
        [
            "roster.toml:2: host.domains: is missing. Add it to [host]: domains = [\"corp\"]. [RST-1005]",
            "roster.toml:3: host.domain: is not a key of this table. Did you mean domains? [RST-1001]",
            "roster.toml:10: domain.corp.schema: unknown schema \"rfc2307b\". Did you mean \
             \"rfc2307\"? [RST-1019]",
        ]
    );
}

#[test]
fn elements_of_a_list_are_told_by_their_own_lines() {
    let text = corp("start_tls = true").replace(
        "[\"ldaps://ldap1\"]",
        "[\n  \"ldap3\",\n  \"ldap://ldap2\",\n  \"ldaps://ldap1\",\n]",
    );
    let lines: Vec<_> = mistakes(&text).iter().map(|said| said[..14].to_owned()).collect();
    assert_eq!(lines, ["roster.toml:6:", "roster.toml:8:"]);
}

/// One key a row, with the message without its position.
#[test]
fn each_mistake_has_its_remedy() {
    for (keys, said) in [
        (
            "start_tls = true",
            "uris: ldaps://ldap1 uses TLS from the start, and start_tls requires ldap://. Write ldap:// in uris, or remove start_tls. [RST-1088]",
        ),
        ("uri = 1", "uri: is not a key of this table. Did you mean uris? [RST-1001]"),
        (
            "tls_cacert = 1",
            "tls_cacert: is not a key of this table. Did you mean tls_ca? [RST-1001]",
        ),
        ("ldap_uri = 1", "ldap_uri: is not a key of this table. Did you mean uris? [RST-1001]"),
        ("domains = []", "domains: is not a key of this table. Move it to [host]. [RST-1002]"),
        ("listen = 1", "listen: is not a key of this table. Move it to [metrics]. [RST-1002]"),
        (
            "passwd = '/x'",
            "passwd: requires provider = \"files\", and this domain has provider = \"ldap\". Remove the key, or change provider. [RST-1004]",
        ),
        (
            "frobnicate = 1",
            "frobnicate: is not a key of this table. Correct the name, or remove the key. roster.toml(5) lists all keys. [RST-1001]",
        ),
        (
            "bind_dn = 'cn=x'",
            "bind_dn: a simple bind requires a password. Write the password to a file with mode 0600, and set bind_password_file to its path. [RST-1084]",
        ),
        (
            "bind_password_file = '/x'",
            "bind_password_file: is set without bind_dn. Add bind_dn, or remove bind_password_file. [RST-1086]",
        ),
        (
            "bind = 'external'",
            "uris: bind = \"external\" requires tls_cert for ldaps://ldap1. Set tls_cert and tls_key, or use ldapi://, or set bind_dn and bind_password_file. [RST-1752]",
        ),
        (
            "bind = 'gssapi'\nkrb5_kdcs = ['kdc']",
            "bind: bind = \"gssapi\" requires krb5_realm. Add krb5_realm = \"REALM\". [RST-1740]",
        ),
        (
            "bind = 'gssapi'\nkrb5_realm = 'LAB.TEST'",
            "bind: bind = \"gssapi\" requires krb5_kdcs or krb5_discover. Add krb5_kdcs = [\"HOST\"], or krb5_discover = true. [RST-1741]",
        ),
        (
            "bind_principal = 'host/x'",
            "bind_principal: requires bind = \"gssapi\". Set bind = \"gssapi\", or remove bind_principal. [RST-1743]",
        ),
        (
            "tls_cert = '/x'",
            "tls_cert: requires tls_key. Set tls_cert to the certificate, and tls_key to its private key. [RST-1745]",
        ),
        (
            "tls_key = '/x'",
            "tls_key: requires tls_cert. Set tls_cert to the certificate, and tls_key to its private key. [RST-1745]",
        ),
        (
            "bind = 'anonymous'\nbind_dn = 'cn=x'",
            "bind_dn: contradicts bind = \"anonymous\". Remove the key, or set bind = \"simple\". [RST-1087]",
        ),
        (
            "mode = 'mirror'",
            "mode: unknown mode \"mirror\". Write \"replicate\" or \"on-demand\". [RST-1019]",
        ),
        (
            "min_id = 500",
            "min_id: 500 is below min_id in [host] (1000). Raise it, or lower min_id in [host]. [RST-1062]",
        ),
        (
            "max_id = 999",
            "max_id: min_id (1000) is larger than max_id (999). Make max_id larger than min_id. [RST-1063]",
        ),
        (
            "mass_deletion_threshold = 50",
            "mass_deletion_threshold: 50 is out of range. Write a fraction from 0 to 1, such as 0.5. [RST-1018]",
        ),
        (
            "search_timeout = 0",
            "search_timeout: 0s is too short. Write a duration from \"1s\" to \"1h\". [RST-1018]",
        ),
        (
            "search_timeout = 1.5",
            "search_timeout: must be a duration such as \"30s\", and is a number. Write a value of the required type. roster.toml(5) lists the type of each key. [RST-1017]",
        ),
        (
            "qualified_names = 1",
            "qualified_names: must be true or false, and is a whole number. Write a value of the required type. roster.toml(5) lists the type of each key. [RST-1017]",
        ),
        (
            "fallback_home = '/home%h'",
            "fallback_home: %h is the directory's value, and this key applies to users without one. Remove %h. [RST-1052]",
        ),
        (
            "group_base = 1",
            "group_base: must be a DN, or a list of bases, and is a whole number. Write group_base = \"ou=people,dc=example,dc=com\". [RST-1017]",
        ),
        (
            "member_attributes = 1",
            "member_attributes: must be a list of attributes, and is a whole number. Write a value of the required type. roster.toml(5) lists the type of each key. [RST-1017]",
        ),
        (
            "allowed_shells = '/bin/bash'",
            "allowed_shells: must be a list of paths, and is a string. Write [\"/bin/bash\"]. [RST-1017]",
        ),
        (
            "refused_shells = ['csh']",
            "refused_shells: \"csh\" is not an absolute path. Write the absolute path, starting with /. [RST-1029]",
        ),
        (
            "refused_shells = []\nreplacement_shell = '/a:b'",
            "replacement_shell: an entry of passwd(5) cannot contain ':'. Remove the character. [RST-1050]",
        ),
        (
            "fallback_home = '%o'",
            "fallback_home: %o is the directory's value, and this key applies to users without one. Remove %o. [RST-1052]",
        ),
        (
            "tls_ca = 'ca.pem'",
            "tls_ca: \"ca.pem\" is not an absolute path. Write the absolute path, starting with /. [RST-1029]",
        ),
        (
            "discover_controllers = true",
            "discover_controllers: requires discover. Set discover = \"corp.example.com\", or remove discover_controllers. [RST-1850]",
        ),
        (
            "site = 'Berlin'",
            "site: requires discover_controllers = true. Set discover_controllers = true, or remove site. [RST-1851]",
        ),
        (
            "discover = 'a b'",
            "discover: \"a b\" is not a valid DNS name. Write letters, digits and dashes between dots, such as \"example.com\". [RST-1031]",
        ),
        (
            "user_base = 'people'",
            "user_base: \"people\" is not a valid DN: \"people\" lacks an equals sign. Write a DN such as \"ou=people,dc=example,dc=com\". [RST-1045]",
        ),
        (
            "message_bytes_max = 10",
            "message_bytes_max: 10 is out of range. Write a number from 65536 to 1073741824. [RST-1018]",
        ),
        (
            "page_size = -1",
            "page_size: -1 is out of range. Write a number from 1 to 1000000. [RST-1018]",
        ),
        (
            "page_size = 99999999999999999999",
            "page_size: 99999999999999999999 is out of range. Write a number from 1 to 1000000. [RST-1018]",
        ),
        (
            "attributes = 1",
            "attributes: must be a table. Write [domain.corp.attributes], and its keys below. [RST-1007]",
        ),
        (
            "attributes.user_uid = '1x'",
            "attributes.user_uid: \"1x\" is not a valid attribute name. Write a name of letters, digits and dashes, such as \"uidNumber\". [RST-1047]",
        ),
        (
            "attributes.user_uid = '1.3.6.1.1.1.1.0'",
            "attributes.user_uid: \"1.3.6.1.1.1.1.0\" is an OID; servers return attribute names. Write the name of the attribute, such as \"uidNumber\". [RST-1048]",
        ),
        (
            "attributes.user_name = 'userID'",
            "attributes.user_name: \"userID\" is an alias; servers return the primary name. Write \"uid\". [RST-1049]",
        ),
        (
            "attributes.user_ui = 'x'",
            "attributes.user_ui: is not a key of this table. Did you mean user_uid? [RST-1001]",
        ),
        (
            "attributes.uris = 'x'",
            "attributes.uris: is not a key of this table. Move it to [domain.NAME]. [RST-1002]",
        ),
    ] {
        let found = mistakes(&corp(keys));
        let found: Vec<_> = found
            .iter()
            .map(|line| line.splitn(3, ": ").skip(1).collect::<Vec<_>>().join(": "))
            .collect();
        assert_eq!(found, [format!("domain.corp.{said}")], "{keys}");
    }
}

#[test]
fn a_password_does_not_travel_in_clear_unless_told_to() {
    let domain = |uri: &str, more: &str| {
        format!(
            "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\nuris = [\"{uri}\"]\n\
             base = \"dc=x\"\nbind_dn = \"cn=x\"\nbind_password_file = \"/p\"\n{more}"
        )
    };
    assert_eq!(
        mistakes(&domain("ldap://ldap1", "allow_clear_identities = true")),
        [
            "roster.toml:5: warning: domain.corp.uris: unencrypted connection to ldap://ldap1: a network \
             attacker can alter users and groups. Use ldaps:// in uris, or set start_tls = true. [RST-1081]",
            "roster.toml:8: domain.corp.bind_password_file: the bind password would be sent to \
             ldap://ldap1 unencrypted. Use ldaps:// in uris, or set start_tls = true. In a trusted \
             network, set allow_clear_password = true. [RST-1082]"
        ]
    );
    let discovered = "discover = \"x.test\"\nallow_clear_identities = true";
    let told = mistakes(&domain("ldaps://ldap1", discovered));
    assert_eq!(
        told.iter().filter(|mistake| !mistake.contains(" warning: ")).count(),
        1,
        "{told:?}"
    );
    quiet(&domain("ldap://ldap1", "start_tls = true"));
    for here in ["localhost", "127.1.2.3", "[::1]:3890"] {
        quiet(&domain(&format!("ldap://{here}"), ""));
    }
    quiet(&domain("ldaps://ldap1", ""));
    quiet(&domain("ldapi://%2Frun%2Fldapi", ""));
}

/// A domain that binds by the key of the host.
fn gssapi(keys: &str) -> String {
    corp(&format!("bind = 'gssapi'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n{keys}"))
}

#[test]
fn gssapi_bind_needs_realm_and_no_tls() {
    let parsed = quiet(&gssapi("krb5_keytab = '/k'\nbind_principal = 'host/x@LAB.TEST'"));
    let BindMethod::Gssapi(bind) = &ldap(&parsed).bind else { panic!("another bind") };
    assert_eq!((&*bind.realm, &bind.kdcs[..]), ("LAB.TEST", &["kdc:88".to_owned()][..]));
    assert_eq!(bind.principal.as_deref(), Some("host/x@LAB.TEST"));
    assert_eq!(bind.keytab, SecretFile::Path("/k".into()));
    assert!(parsed.config.domains[0].auth.krb5.is_none());
    // The bind encrypts the connection, except for users' passwords.
    quiet(&gssapi("").replace("ldaps:", "ldap:"));
    let told = mistakes(&gssapi("auth = 'ldap'").replace("ldaps:", "ldap:"));
    assert!(told.len() == 1 && told[0].ends_with("[RST-1079]"), "{told:?}");
    let both = quiet(&gssapi("auth = 'krb5'\nkrb5_validate = 'off'"));
    assert!(both.config.domains[0].auth.krb5.is_some());
    // Keys of logins have no effect on it.
    let told = rendered(&well(&gssapi("krb5_validate = 'off'")).warnings);
    assert!(told.len() == 1 && told[0].contains("krb5_validate"), "{told:?}");
    for (keys, code) in [
        ("bind_dn = 'cn=x'", "RST-1087"),
        ("bind_principal = 'host/x@OTHER.TEST'", "RST-1744"),
        ("bind_principal = 'a b'", "RST-1744"),
        ("bind_principal = '@LAB.TEST'", "RST-1744"),
        ("bind_principal = 'a@b@LAB.TEST'", "RST-1744"),
    ] {
        let told = mistakes(&gssapi(keys));
        assert!(told.len() == 1 && told[0].ends_with(&format!("[{code}]")), "{keys}: {told:?}");
    }
    let socket = gssapi("").replace("ldaps://ldap1", "ldapi://%2Fx");
    assert!(mistakes(&socket)[0].ends_with("[RST-1742]"));
}

#[test]
fn krb5_fast_principal_verifies_each_kdc() {
    let krb5 = |keys: &str| {
        lab(&format!("auth = 'krb5'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n{keys}"))
    };
    let fast = "krb5_fast_principal = 'host/x.test'\n";
    for validate in ["", "krb5_validate = 'auto'", "krb5_validate = 'off'"] {
        let parsed = well(&krb5(&format!("{fast}{validate}")));
        let found = parsed.config.domains[0].auth.krb5.as_deref().unwrap();
        assert_eq!(found.fast_principal.as_deref(), Some("host/x.test"));
        assert_eq!(found.validate, KdcValidation::Required, "{validate}");
        let codes: Vec<_> = parsed.warnings.iter().map(|warning| warning.message).collect();
        let expected: &[_] = if validate.is_empty() { &[] } else { &[&config::VALIDATION_IMPLIED] };
        assert_eq!(codes, expected, "{validate}");
    }
    quiet(&krb5("krb5_fast_principal = 'host/x.test@LAB.TEST'"));
    let other = "krb5_fast_principal = 'principal@TEST.TEST'\n";
    let told = rendered(&well(&krb5(other)).warnings);
    assert!(told.len() == 1 && told[0].contains("krb5_fast_principal: logins fail"), "{told:?}");
    // DNS may name the KDCs of that realm.
    quiet(&krb5(&format!("{other}krb5_discover = true")));
    for text in ["", "a b", "@LAB.TEST"] {
        let told = mistakes(&krb5(&format!("krb5_fast_principal = '{text}'")));
        assert!(told.len() == 1 && told[0].ends_with("[RST-1744]"), "{text}: {told:?}");
    }
}

#[test]
fn client_certificate_is_for_connections_with_tls() {
    let files = "tls_cert = '/c'\ntls_key = 'credential:key'\n";
    let parsed = quiet(&corp(&format!("{files}bind = 'external'")));
    assert_eq!(ldap(&parsed).bind, BindMethod::External);
    let found = ldap(&parsed).client_certificate.as_ref().expect("set");
    assert_eq!(found.certificate, Path::new("/c"));
    assert_eq!(found.key, SecretFile::Credential("key".into()));
    let clear = corp(&format!("{files}bind = 'external'")).replace("ldaps:", "ldap:");
    quiet(&format!("{clear}start_tls = true\n"));
    let told = mistakes(&format!("{clear}allow_clear_identities = true\n"));
    assert!(told.iter().any(|line| line.ends_with("[RST-1085]")), "{told:?}");
    let local = corp(files).replace("ldaps://ldap1", "ldapi://%2Fx");
    let told = rendered(&well(&local).warnings);
    assert!(told.len() == 1 && told[0].ends_with("[RST-1746]"), "{told:?}");
}

#[test]
fn nor_do_passwords_of_users() {
    let auth = corp("auth = \"ldap\"");
    quiet(&auth);
    let told = mistakes(&auth.replace("ldaps:", "ldap:"));
    let what = "domain.corp.auth: passwords of users would be sent to ldap://ldap1 unencrypted";
    assert!(told.iter().any(|mistake| mistake.contains(what)), "{told:?}");
    let clear = "auth = \"ldap\"\nallow_clear_user_passwords = true\nallow_clear_identities = true";
    well(&corp(clear).replace("ldaps:", "ldap:"));
    quiet(&auth.replace("ldaps://ldap1", "ldap://127.0.0.1"));
    let told = mistakes(&corp("auth = \"ldap\"\ndiscover = 'x.test'"));
    assert!(told.iter().any(|mistake| mistake.contains("to servers from DNS unencr")), "{told:?}");
}

#[test]
fn log_ins_are_there_where_a_domain_asks_anybody_about_passwords() {
    assert_eq!(well(&corp("")).config.pam, None);
    let pam = well(&corp("auth = \"ldap\"")).config.pam.expect("there");
    assert_eq!((pam.trusted_users.len(), pam.tries_per_minute), (0, 20));
    let off = format!("{}\n[responder.pam]\nenabled = false\n", corp("auth = \"ldap\""));
    assert_eq!(well(&off).config.pam, None);
    let on = format!("{}\n[responder.pam]\nenabled = true\n", corp(""));
    assert!(well(&on).config.pam.is_some());
}

/// Returns key and row of all mistakes and warnings, by line.
fn messages(text: &str) -> Vec<(String, &'static Message)> {
    let problems = match parse(text) {
        Ok(parsed) => parsed.warnings,
        Err(problems) => problems,
    };
    problems.into_iter().map(|problem| (problem.key, problem.message)).collect()
}

/// One domain of the files provider with more keys.
fn lab(keys: &str) -> String {
    format!(
        "[host]\ndomains = ['lab']\n[domain.lab]\nprovider = 'files'\npasswd = '/p'\n\
         group = '/g'\n{keys}\n"
    )
}

#[test]
fn case_key_error_has_line_to_write() {
    for (old, new) in [("false", "insensitive"), ("true", "sensitive")] {
        let mistakes = mistakes(&corp(&format!("case_sensitive = {old}")));
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let fix = format!("Write case = \"{new}\". [RST-1700]");
        assert!(mistakes[0].ends_with(&fix), "{mistakes:?}");
    }
}

#[test]
fn access_names_have_form_of_domain() {
    let rules =
        "[domain.corp.access]\nallowed_users = ['ALICE', 'Bob@CORP', 'hq\\Zo\u{e9}', 'x@lab']\n";
    for (case, expected) in [
        ("sensitive", ["ALICE", "Bob", "Zo\u{e9}", "x@lab"]),
        ("preserving", ["alice", "bob", "zo\u{e9}", "x@lab"]),
    ] {
        let text = corp(&format!("case = '{case}'\nshort_name = 'HQ'\n{rules}"));
        let config = well(&text).config;
        let lists = &config.domains[0].access.lists;
        assert_eq!(lists.allowed_users.as_deref(), Some(&expected.map(str::to_owned)[..]));
    }
}

#[test]
fn contradiction_has_code_of_its_condition() {
    let no_domains = lab("").replace("'lab'", "");
    let same_file = lab("").replace("/g", "/p");
    let host_file = lab("").replace("/p", "/etc/passwd");
    let no_uris = corp("").replace("\"ldaps://ldap1\"", "");
    let clear = corp("auth = 'ldap'\nallow_clear_identities = true").replace("ldaps:", "ldap:");
    let socket = |keys: &str| corp(keys).replace("ldaps://ldap1", "ldapi://%2Frun%2Fldapi");
    let krb5 = "auth = 'krb5'\nkrb5_realm = 'LAB.TEST'\n";
    let access = |domain: &str, keys: &str| format!("[domain.{domain}.access]\n{keys}");
    let cases: &[(&str, &[(&str, &Message)])] = &[
        (&corp("[responder.nss]"), &[("responder.nss", &config::UNKNOWN_RESPONDER)]),
        (&corp("[responder.nscd]\nenabled = true"), &[("responder.nscd", &config::NSCD_RESPONDER)]),
        (
            &corp("[responder.pam]\ntrusted_users = ['a b']"),
            &[("responder.pam.trusted_users", &config::INVALID_LOCAL_USER)],
        ),
        (
            &corp("[responder.pam]\nauth_attempts_per_minute = 0"),
            &[("responder.pam.auth_attempts_per_minute", &config::OUT_OF_RANGE)],
        ),
        (&no_domains, &[("host.domains", &config::DOMAINS_EMPTY)]),
        (&corp("").replace("corp", "Corp"), &[("host.domains", &config::INVALID_DOMAIN_NAME)]),
        (&lab("mode = 'on-demand'"), &[("domain.lab.mode", &config::ON_DEMAND_FILES)]),
        (
            &corp("mode = 'on-demand'\nnumeric_names = true"),
            &[("domain.corp.numeric_names", &config::NUMERIC_NAMES_ON_DEMAND)],
        ),
        (
            &corp("case_sensitive = false"),
            &[("domain.corp.case_sensitive", &config::CASE_KEY_REPLACED)],
        ),
        (
            &lab("").replace("domains = ['lab']", "domains = ['lab']\ndefault_domain = 'corp'"),
            &[("host.default_domain", &config::DEFAULT_DOMAIN_UNKNOWN)],
        ),
        (
            &lab("short_name = 'X1'\n[domain.x1]\nprovider = 'files'\npasswd = '/x'\ngroup = '/y'")
                .replace("['lab']", "['lab', 'x1']"),
            &[("domain.lab.short_name", &config::SHORT_NAME_SHARED)],
        ),
        (&lab("short_name = 'A B'"), &[("domain.lab.short_name", &config::INVALID_DOMAIN_NAME)]),
        (
            &corp("refresh_interval = 60\nnegative_ttl = 5"),
            &[
                ("domain.corp.refresh_interval", &config::ON_DEMAND_KEY_UNUSED),
                ("domain.corp.negative_ttl", &config::ON_DEMAND_KEY_UNUSED),
            ],
        ),
        (
            &corp("home = '/h'\nfallback_home = '/f'"),
            &[("domain.corp.fallback_home", &config::FALLBACK_UNUSED)],
        ),
        (
            &corp("shell = '/h'\nfallback_shell = '/f'"),
            &[("domain.corp.fallback_shell", &config::FALLBACK_UNUSED)],
        ),
        (
            &corp("replacement_shell = '/bin/sh'\nenumerate = false"),
            &[("domain.corp.replacement_shell", &config::REPLACEMENT_SHELL_UNUSED)],
        ),
        (
            &corp("refused_shells = ['/bin/csh']\nunlisted_shell = '/bin/sh'\nenumerate = false"),
            &[("domain.corp.unlisted_shell", &config::REPLACEMENT_SHELL_UNUSED)],
        ),
        (
            &corp("refused_shells = ['/bin/../sh']"),
            &[("domain.corp.refused_shells", &config::SHELL_WITH_DOTS)],
        ),
        (
            &corp("allow_empty_home = true\nfallback_home = '/home/%l/%f'"),
            &[("domain.corp.allow_empty_home", &config::EMPTY_HOME_UNUSED)],
        ),
        (
            &corp("allow_empty_home = true\nhome = '/home/%u'"),
            &[("domain.corp.allow_empty_home", &config::EMPTY_HOME_UNUSED)],
        ),
        (&corp("allow_empty_home = true\nhome = '%h'"), &[]),
        (&same_file, &[("domain.lab.group", &config::SAME_SOURCE_FILE)]),
        (&host_file, &[("domain.lab.passwd", &config::HOST_SOURCE_FILE)]),
        (&lab("auth = 'ldap'"), &[("domain.lab.auth", &config::LDAP_AUTH_WITHOUT_DIRECTORY)]),
        (
            &corp("offline_credentials_expiration = '1d'"),
            &[("domain.corp.offline_credentials_expiration", &config::AUTH_KEY_UNUSED)],
        ),
        (
            &corp("auth = 'ldap'\noffline_credentials = false\noffline_failed_login_attempts = 2"),
            &[("domain.corp.offline_failed_login_attempts", &config::OFFLINE_KEY_UNUSED)],
        ),
        (&lab("krb5_realm = 'LAB.TEST'"), &[("domain.lab.krb5_realm", &config::KRB5_KEY_UNUSED)]),
        (
            &lab("auth = 'krb5'\nkrb5_kdcs = ['kdc']"),
            &[("domain.lab.auth", &config::KRB5_REALM_MISSING)],
        ),
        (&lab(krb5), &[("domain.lab.auth", &config::KRB5_KDC_MISSING)]),
        (
            &lab(&format!("{krb5}krb5_kdcs = []")),
            &[("domain.lab.krb5_kdcs", &config::KRB5_KDC_MISSING)],
        ),
        (
            &lab("auth = 'krb5'\nkrb5_realm = 'X\\n}'\nkrb5_discover = true"),
            &[("domain.lab.krb5_realm", &config::INVALID_REALM)],
        ),
        (&no_uris, &[("domain.corp.uris", &config::URIS_EMPTY)]),
        (
            &clear,
            &[
                ("domain.corp.uris", &config::CLEAR_IDENTITIES_ALLOWED),
                ("domain.corp.auth", &config::CLEAR_USER_PASSWORDS),
            ],
        ),
        (
            &corp("bind = 'simple'\nbind_password_file = '/x'"),
            &[("domain.corp.bind", &config::BIND_DN_MISSING)],
        ),
        (
            &corp("bind = 'simple'"),
            &[
                ("domain.corp.bind", &config::BIND_DN_MISSING),
                ("domain.corp.bind", &config::BIND_PASSWORD_MISSING),
            ],
        ),
        (&socket("start_tls = true"), &[("domain.corp.uris", &config::START_TLS_ON_SOCKET)]),
        (&socket("tls_ca = '/x'"), &[("domain.corp.tls_ca", &config::TLS_CA_UNUSED)]),
        (
            &corp(&access("corp", "enabled = false\nfilter = '(a=b)'")),
            &[("domain.corp.access.enabled", &config::ACCESS_DISABLED_WITH_RULES)],
        ),
        (
            &corp(&format!("auth = 'ldap'\n{}", access("corp", "enabled = false"))),
            &[("domain.corp.access.enabled", &config::ACCESS_DISABLED_WITH_RULES)],
        ),
        (
            &corp(&access("corp", "allowed_groups = []")),
            &[("domain.corp.access.allowed_groups", &config::ALLOW_LIST_EMPTY)],
        ),
        (
            &corp(&access("corp", "service.sshd.allowed_users = []")),
            &[("domain.corp.access.service.sshd.allowed_users", &config::ALLOW_LIST_EMPTY)],
        ),
        (
            &corp(&access("corp", "denied_users = []")),
            &[("domain.corp.access.denied_users", &config::DENY_LIST_EMPTY)],
        ),
        (
            &corp(&access("corp", "ssh_key_options = ['from=x']")),
            &[("domain.corp.access.ssh_key_options", &config::INVALID_KEY_OPTION)],
        ),
        (
            &lab(&access("lab", "filter = '(a=b)'")),
            &[("domain.lab.access", &config::ACCESS_FILTER_WITHOUT_DIRECTORY)],
        ),
        (
            &lab(&access("lab", "account_checks = ['shadow-expire', 'host']")),
            &[("domain.lab.access", &config::ACCOUNT_CHECK_WITHOUT_DIRECTORY)],
        ),
        (
            &corp(&access("corp", "filter = '(a=%{user})'")),
            &[("domain.corp.access.filter", &config::FILTER_TEMPLATE_UNKNOWN)],
        ),
        (
            &corp("auth = 'ldap'\npassword_change = 'modify'\nchange_expired_password = true"),
            &[("domain.corp.change_expired_password", &config::EXPIRED_CHANGE_BY_MODIFY)],
        ),
        (
            &corp("password_change = 'modify'"),
            &[("domain.corp.password_change", &config::LDAP_AUTH_KEY_UNUSED)],
        ),
        (
            "domain = 1\n[host]\ndomains = ['a']",
            &[("domain", &config::NOT_A_TABLE), ("host.domains", &config::DOMAIN_TABLE_MISSING)],
        ),
    ];
    for (text, expected) in cases {
        let found = messages(text);
        let found: Vec<_> = found.iter().map(|(key, message)| (&**key, *message)).collect();
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn identities_in_clear_are_refused_unless_allowed() {
    let warnings = |text: &str| rendered(&well(text).warnings);
    let plain = corp("").replace("ldaps:", "ldap:");
    let attack = "a network attacker can alter users and groups";
    let of = format!("unencrypted connection to ldap://ldap1: {attack}");
    assert_eq!(
        mistakes(&plain),
        [format!(
            "roster.toml:5: domain.corp.uris: {of}. Use ldaps:// in uris, or set start_tls = true. In a \
             trusted network, set allow_clear_identities = true. [RST-1080]"
        )]
    );
    let expected = format!(
        "roster.toml:5: warning: domain.corp.uris: {of}. Use ldaps:// in uris, or set start_tls = \
         true. [RST-1081]"
    );
    let allowed = corp("allow_clear_identities = true").replace("ldaps:", "ldap:");
    assert_eq!(warnings(&allowed), [expected]);
    let discovered = |more: &str| corp(&format!("discover = 'x.test'\n{more}"));
    let of = format!("unencrypted connection to servers from DNS: {attack}");
    assert_eq!(
        mistakes(&discovered("")),
        [format!(
            "roster.toml:7: domain.corp.discover: {of}. Set start_tls = true. In a trusted network, set \
             allow_clear_identities = true. [RST-1080]"
        )]
    );
    assert_eq!(
        warnings(&discovered("allow_clear_identities = true")),
        [format!(
            "roster.toml:7: warning: domain.corp.discover: {of}. Set start_tls = true. [RST-1081]"
        )]
    );
    for here in ["localhost", "127.1.2.3", "[::1]:3890"] {
        quiet(&plain.replace("ldap://ldap1", &format!("ldap://{here}")));
    }
    quiet(&plain.replace("base", "start_tls = true\nbase"));
}

#[test]
fn a_simple_bind_needs_both_its_parts() {
    assert_eq!(mistakes(&corp("bind = 'simple'")).len(), 2);
    assert_eq!(mistakes(&corp("bind_password_file = '/x'")).len(), 1);
    assert_eq!(mistakes(&corp("bind_dn = 'cn=x'")).len(), 1);
}

#[test]
fn the_uid_is_the_bind_over_a_socket() {
    let text = corp("bind = 'external'").replace("ldaps://ldap1", "ldapi://%2Frun%2Fldapi");
    assert_eq!(ldap(&quiet(&text)).bind, BindMethod::External);
}

#[test]
fn servers_are_named_or_found() {
    let text = corp("").replace("uris = [\"ldaps://ldap1\"]\n", "");
    assert_eq!(
        mistakes(&text),
        [
            "roster.toml:3: domain.corp.uris: is missing. Add uris = [\"ldaps://ldap1.example.com\"], or \
          discover = \"example.com\" to query DNS. [RST-1077]"
        ]
    );
    let found = text.replace("base", "discover = \"example.com\"\nstart_tls = true\nbase");
    assert_eq!(ldap(&quiet(&found)).discover.as_deref(), Some("example.com"));
}

#[test]
fn member_attributes_name_as_schemas_say() {
    let read = |keys: &str| -> Vec<(String, MemberValues)> {
        let attributes = ldap(&quiet(&corp(keys))).member_attributes.clone();
        attributes.into_iter().map(|one| (one.name, one.values)).collect()
    };
    let [names, dns, uids] = [
        ("memberuid".to_owned(), MemberValues::Names),
        ("member".to_owned(), MemberValues::Dns),
        ("uniquemember".to_owned(), MemberValues::DnsWithUids),
    ];
    let all = [names.clone(), dns.clone(), uids];
    assert_eq!(read(""), all);
    assert_eq!(read("schema = 'rfc2307bis'"), all);
    assert_eq!(read("schema = 'rfc2307bis'\nmember_attributes = ['MEMBERUID']"), [names]);
    assert_eq!(read("member_attributes = ['member', 'Member']"), [dns]);
    for (schema, values) in [("rfc2307", MemberValues::Names), ("rfc2307bis", MemberValues::Dns)] {
        let keys = format!("schema = '{schema}'\nmember_attributes = ['x']");
        assert_eq!(read(&keys), [("x".to_owned(), values)]);
    }
}

#[test]
fn member_attributes_reject_what_cannot_be() {
    for (keys, wrong) in [
        (
            "member_attributes = []",
            "so no group would have members. Remove member_attributes to use its default. [RST-1091]",
        ),
        (
            "member_attributes = 'member'",
            "must be a list of attributes, and is a string. Write [\"member\"]. [RST-1017]",
        ),
        (
            "attributes.group_member = 'uniqueMember'",
            "is not a key of this table. Did you mean member_attributes, under [domain.NAME]? [RST-1001]",
        ),
    ] {
        let found = mistakes(&corp(keys)).concat();
        assert!(found.ends_with(wrong), "{found}");
    }
}

#[test]
fn a_domain_behind_one_that_is_asked_on_demand_is_worth_a_warning() {
    let text = EXAMPLE.replace("mode = \"replicate\" ", "mode = \"on-demand\" ");
    assert_eq!(
        rendered(&well(&text).warnings),
        ["roster.toml:3: warning: host.domains: lab comes after the on-demand domain corp: every \
             lookup queries corp first. Put lab before corp, unless corp has to win name conflicts. \
             [RST-1061]"]
    );
    quiet(&text.replace("[\"corp\", \"lab\"]", "[\"lab\", \"corp\"]"));
}

#[test]
fn what_is_no_toml_is_told_by_line() {
    assert_eq!(
        mistakes(
            "[host]\ndomains = [\"corp\"]\nmin_id = \n[domain.corp]\nprovider = ldap\n[domain.x\n"
        ),
        [
            "roster.toml:3: min_id lacks a value. Write a value after the equals sign, or remove the \
             line. [RST-1013]",
            "roster.toml:5: the value of provider lacks quotes. Write provider = \"ldap\". [RST-1014]",
            "roster.toml:6: is not valid TOML: unclosed table, expected `]`. Correct the line. \
             https://toml.io describes the syntax. [RST-1016]",
        ]
    );
}

#[test]
fn printed_quotes_are_told_from_straight_ones() {
    assert_eq!(
        mistakes("[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \u{201c}ldap\u{201d}\n"),
        [
            "roster.toml:4: curly quotes are not valid in TOML. Write provider = \"ldap\". [RST-1015]"
        ]
    );
}

#[test]
fn a_key_that_is_there_twice_hides_no_other_mistake() {
    assert_eq!(
        mistakes(&corp("schema = 'rfc2307'\nschema = 'ad'\nmode = 'x'")),
        [
            "roster.toml:8: this key or table is defined twice. Remove one of the two definitions. \
             [RST-1012]",
            "roster.toml:9: domain.corp.mode: unknown mode \"x\". Write \"replicate\" or \"on-demand\". \
             [RST-1019]",
        ]
    );
}

#[test]
fn an_empty_file_lacks_what_must_be_there() {
    assert_eq!(
        mistakes(""),
        [
            "roster.toml:1: host.domains: is missing. Add it to [host]: domains = [\"corp\"]. [RST-1005]"
        ]
    );
}

#[test]
fn keys_outside_of_tables_are_sent_there() {
    assert_eq!(
        mistakes(&format!("min_id = 1\n{}", corp(""))),
        [
            "roster.toml:1: min_id: the key is above the first table. Move the key to the table that it \
             belongs to. roster.toml(5) lists all keys. [RST-1002]"
        ]
    );
    assert_eq!(
        mistakes("[host]\ndomains = ['a']\n[domain]\nprovider = 'ldap'\n"),
        [
            "roster.toml:2: host.domains: the table [domain.a] is missing. Add a table [domain.a] with its \
             provider. [RST-1059]",
            "roster.toml:4: domain.provider: is directly below [domain]. Write the keys of the domain below \
             [domain.NAME]. [RST-1009]",
        ]
    );
}

#[test]
fn more_domains_than_back_end_users_are_refused() {
    let names: Vec<_> = (0..33).map(|n| format!("'d{n}'")).collect();
    let tables: Vec<_> = (0..33)
        .map(|n| format!("[domain.d{n}]\nprovider = 'files'\npasswd = '/{n}'\ngroup = '/g{n}'\n"))
        .collect();
    let text = format!("[host]\ndomains = [{}]\n{}", names.join(", "), tables.concat());
    assert_eq!(
        mistakes(&text),
        ["roster.toml:2: host.domains: the list has 33 domains; the limit is 32. List at most 32 \
          domains. [RST-1058]"]
    );
}

#[test]
fn config_explain_names_origin_and_same_meaning() {
    let parsed = quiet(EXAMPLE);
    let text = explain(&parsed.settings);
    assert_eq!(
        text.lines()
            .filter(|line| line.contains("bind") || line.contains("base"))
            .collect::<Vec<_>>(),
        [
            "base = \"dc=example,dc=com\"                  # roster.toml:9",
            "user_base = \"dc=example,dc=com\"             # as base",
            "group_base = \"dc=example,dc=com\"            # as base",
            "bind = \"simple\"                             # simple with bind_dn, otherwise anonymous",
            "bind_dn = \"cn=reader,dc=example,dc=com\"     # roster.toml:12",
            "bind_password_file = \"/etc/roster/corp.password\"  # roster.toml:13",
            "# bind_principal                            # not set",
        ]
    );
    let words = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    let expected = [
        "[host]",
        "domains = [\"corp\", \"lab\"]  # roster.toml:3",
        "# default_domain           # not set",
        "min_id = 1000              # roster.toml:4",
        "max_id = 4294967294        # default",
    ];
    assert_eq!(text.lines().take(5).map(words).collect::<Vec<_>>(), expected.map(words));
    assert!(text.ends_with(
        "\n[publisher]\ninterval = \"100ms\"  # default\n\n\
         [log]\nlevel = \"info\"  # default\njson = false    # default\n"
    ));
    assert_eq!(well(&text).config, parsed.config);
}

#[test]
fn no_text_whatever_is_too_much_for_it() {
    let said = |text: &str| {
        let lines = text.matches('\n').count() + 1;
        for problem in parse(text).err().unwrap_or_default() {
            assert!((1..=lines).contains(&problem.line), "line {} of\n{text}", problem.line);
            assert!(!problem.text.is_empty());
        }
    };
    // Cut at any position, and with every character replaced by each special one.
    for (at, _) in EXAMPLE.char_indices() {
        said(&EXAMPLE[..at]);
        for char in ["", "\"", "[", "\n", "{", "ä"] {
            said(&format!("{}{char}{}", &EXAMPLE[..at], &EXAMPLE[at + 1..]));
        }
    }
    said(&format!("x = {}", "[".repeat(100_000)));
    said(&format!("{}x = 1", "a.".repeat(100_000)));
    said(&"x".repeat(2 << 20));
}

#[test]
fn a_realm_says_who_is_asked_there_and_where_tickets_are_kept() {
    let domain = |keys: &str| {
        format!(
            "[host]\ndomains = ['x']\n[domain.x]\nprovider = 'files'\npasswd = '/p'\ngroup = '/g'\n{keys}"
        )
    };
    let wrong = |keys: &str| {
        let problems = parse(&domain(keys)).unwrap_err();
        problems.iter().map(Diagnostic::without_position).collect::<Vec<_>>().join("\n")
    };
    let krb5 = "auth = 'krb5'\nkrb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']\n";
    let parsed = parse(&domain(krb5)).unwrap();
    let found = parsed.config.domains[0].auth.krb5.as_deref().unwrap();
    assert_eq!((found.validate, found.discover), (KdcValidation::Required, false));
    for (text, validate) in [("auto", KdcValidation::Auto), ("off", KdcValidation::Off)] {
        let parsed = parse(&domain(&format!("{krb5}krb5_validate = '{text}'\n"))).unwrap();
        assert_eq!(parsed.config.domains[0].auth.krb5.as_deref().unwrap().validate, validate);
    }
    assert_eq!(found.cache.as_deref(), Some("FILE:/tmp/krb5cc_%{uid}_XXXXXX"));
    let none = parse(&domain(&format!("{krb5}krb5_cache = 'none'\n"))).unwrap();
    assert_eq!(none.config.domains[0].auth.krb5.as_deref().unwrap().cache, None);
    assert!(wrong("auth = 'krb5'\n").contains("Add krb5_realm"));
    let kdc_missing = "requires krb5_kdcs or krb5_discover. ";
    assert!(wrong("auth = 'krb5'\nkrb5_realm = 'X'\n").contains(kdc_missing));
    assert!(wrong(&krb5.replace("'kdc'", "")).contains(kdc_missing));
    // Texts that could end a line of krb5.conf, or name another user's cache.
    assert!(wrong(&krb5.replace("LAB.TEST", "X\\n}")).contains("is not a valid realm"));
    assert!(wrong(&krb5.replace("'kdc'", "'kdc\\n}'")).contains("DNS name"));
    for (cache, why) in [
        ("FILE:/tmp/krb5cc_%{uid}", "RST-1043"),
        ("FILE:krb5cc_XXXXXX", "RST-1044"),
        ("MEMORY:x", "RST-1044"),
        ("KEYRING:persistent:1", "RST-1044"),
        ("FILE:/tmp/%{euid}_XXXXXX", "RST-1042"),
        ("FILE:/tmp/a b_XXXXXX", "RST-1042"),
    ] {
        let said = wrong(&format!("{krb5}krb5_cache = '{cache}'\n"));
        assert!(said.contains(why), "{cache}: {said}");
    }
    let unused = parse(&domain("krb5_realm = 'LAB.TEST'\n")).unwrap();
    assert!(unused.warnings[0].text.contains("no effect without auth = \"krb5\""));
}

/// Returns the messages about a table of access rules.
fn said_of_access(table: &str) -> Vec<String> {
    let text = format!(
        "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\nuris = [\"ldaps://x\"]\n\
         base = \"dc=x\"\n{table}\n"
    );
    let problems = match parse(&text) {
        Ok(parsed) => parsed.warnings,
        Err(problems) => problems,
    };
    problems.into_iter().map(|problem| format!("{}: {}", problem.key, problem.text)).collect()
}

#[test]
fn rules_that_let_nobody_in_or_mean_nothing_are_told() {
    for (table, said) in [
        ("[domain.corp.access]\nallowed_users = [\"alice\"]", vec![]),
        (
            "[domain.corp.access]\nallowed_users = []",
            vec!["domain.corp.access.allowed_users: is empty and denies all users"],
        ),
        (
            "[domain.corp.access]\ndenied_groups = []",
            vec!["domain.corp.access.denied_groups: is empty and denies no user"],
        ),
        (
            "[domain.corp.access.service.sshd]\nallowed_groups = []",
            vec!["domain.corp.access.service.sshd.allowed_groups: is empty and denies all users"],
        ),
        (
            "[domain.corp.access.service.sshd]\nfilter = \"(a=b)\"",
            vec!["domain.corp.access.service.sshd.filter: is not a key of this table"],
        ),
        (
            "[domain.corp.access]\nservice = \"sshd\"",
            vec!["domain.corp.access.service: must be a table"],
        ),
        (
            "[domain.corp.access]\nfilter = \"(a=b)\"\nenabled = false",
            vec![
                "domain.corp.access.enabled: enabled = false disables the access rules or auth of this \
                 domain",
            ],
        ),
        (
            "[domain.corp.access]\naccount_checks = [\"shadow\"]",
            vec!["domain.corp.access.account_checks: unknown account check \"shadow\""],
        ),
        (
            "[domain.corp.access]\nssh_key_options = [\"from=x\"]",
            vec!["domain.corp.access.ssh_key_options: \"from=x\" is not the name of an option"],
        ),
    ] {
        assert_eq!(said_of_access(table), said, "{table}");
    }
}

#[test]
fn account_checks_default_leaves_out_password_age() {
    let checks = |table: &str| well(&corp(table)).config.domains[0].access.account_checks.clone();
    assert_eq!(checks(""), AccountCheck::DEFAULT);
    assert_eq!(checks("[domain.corp.access]\nenabled = true"), AccountCheck::DEFAULT);
    assert!(!AccountCheck::DEFAULT.contains(&AccountCheck::PasswordAge));
    let all = format!("[domain.corp.access]\naccount_checks = {:?}", AccountCheck::NAMES);
    assert_eq!(checks(&all), AccountCheck::ALL);
    let config = well(&corp("[domain.corp.access]\nfilter = \"(host=%{host})\"")).config;
    assert!(config.domains[0].access.needs_host_names());
    assert!(!well(&corp("")).config.domains[0].access.needs_host_names());
}

#[test]
fn floor_has_gids_below_min_id() {
    let config = |gids: &[u32]| {
        format!(
            "[host]\ndomains = [\"lab\"]\nmin_id = 500\nallowed_local_gids = {gids:?}\n\
             [domain.lab]\nprovider = \"files\"\npasswd = \"/p\"\ngroup = \"/g\"\nmin_id = 2000\n"
        )
    };
    let floor = |gids: &[u32]| parse(&config(gids)).unwrap().config.host.floor().to_string();
    assert_eq!(floor(&[]), "min_id 500\ngid 100\n");
    assert_eq!(floor(&[100, 600, 499, 500]), "min_id 500\ngid 499\ngid 100\n");
    let most: Vec<u32> = (1..=31).chain(500..600).collect();
    assert_eq!(floor(&most).lines().count(), 33);
    let more: Vec<u32> = (1..=32).collect();
    assert_eq!(
        mistakes(&config(&more)),
        [
            "roster.toml:4: host.allowed_local_gids: has 33 gids below min_id; the limit is 32. Remove some \
             gids from allowed_local_gids, or lower min_id. [RST-1064]"
        ]
    );
}

#[test]
fn private_groups_kinds_are_parsed() {
    let kind = |keys: &str| well(&corp(keys)).config.domains[0].private_groups;
    assert_eq!(kind(""), PrivateGroups::Off);
    for (word, wanted) in [
        ("off", PrivateGroups::Off),
        ("always", PrivateGroups::Always),
        ("same-id", PrivateGroups::SameId),
    ] {
        assert_eq!(kind(&format!("private_groups = {word:?}")), wanted);
    }
    let told = mistakes(&corp("private_groups = \"hybrid\""));
    assert!(told.len() == 1 && told[0].contains("domain.corp.private_groups"), "{told:?}");
}
