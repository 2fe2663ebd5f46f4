//! What libkrb5 goes by: a text in the syntax of krb5.conf(5), made of a domain's configuration. The
//! host's /etc/krb5.conf has no part in it.

use std::fmt::Write as _;

/// A realm and who serves it. What is in it was checked: none of it has white space, braces or quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realm {
    /// Its name.
    pub name: String,
    /// KDCs in order of preference, `HOST[:PORT]`.
    pub kdcs: Vec<String>,
    /// Servers that change passwords, likewise; those of `kdcs` by the usual port when empty.
    pub kpasswds: Vec<String>,
    /// Whether DNS is asked for servers, behind those that are named.
    pub discover: bool,
}

/// Those that are neither weak nor made of a password without salt.
const ENCTYPES: &str = "aes256-cts-hmac-sha1-96 aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128 \
                        aes128-cts-hmac-sha1-96";

impl Realm {
    /// The same with this KDC in front; passwords are changed where they were.
    #[must_use]
    pub fn with_first(mut self, kdc: &str) -> Self {
        if self.kpasswds.is_empty() {
            self.kpasswds = self.kdcs.iter().map(|kdc| host(kdc).to_owned()).collect();
        }
        self.kdcs.retain(|other| other != kdc);
        self.kdcs.insert(0, kdc.to_owned());
        self
    }

    /// The same with this KDC alone.
    #[must_use]
    pub fn with_only(self, kdc: &str) -> Self {
        Self { kdcs: vec![kdc.to_owned()], discover: false, ..self }
    }

    /// The text. `default_cache` is the collection in which new caches are made.
    #[must_use]
    pub fn text(&self, default_cache: Option<&str>) -> String {
        let Self { name, kdcs, kpasswds, discover } = self;
        // A clock that is wrong is told of rather than made up for: a ticket that this host takes for
        // one of another time is of no use to anybody.
        let mut text = format!(
            "[libdefaults]\ndefault_realm = {name}\ndns_lookup_kdc = {discover}\n\
             dns_uri_lookup = {discover}\ndns_lookup_realm = false\n\
             dns_canonicalize_hostname = false\nrdns = false\nkdc_timesync = 0\n\
             noaddresses = true\npermitted_enctypes = {ENCTYPES}\n"
        );
        if let Some(cache) = default_cache {
            let _ = writeln!(text, "default_ccache_name = {cache}");
        }
        let _ = writeln!(text, "[realms]\n{name} = {{");
        for kdc in kdcs {
            let _ = writeln!(text, "kdc = {kdc}");
        }
        for server in kpasswds {
            let _ = writeln!(text, "kpasswd_server = {server}");
        }
        if kpasswds.is_empty() {
            for kdc in kdcs {
                let _ = writeln!(text, "kpasswd_server = {}", host(kdc));
            }
        }
        text.push_str("}\n");
        text
    }
}

/// A server without its port.
fn host(server: &str) -> &str {
    match server.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_names_its_servers_in_order_and_passwords_go_to_the_same_hosts() {
        let mut realm = Realm {
            name: "LAB.TEST".into(),
            kdcs: vec!["kdc1:750".into(), "[2001:db8::1]:88".into(), "kdc2".into()],
            ..Realm::default()
        };
        let text = realm.text(None);
        assert!(text.contains("kdc = kdc1:750\nkdc = [2001:db8::1]:88\nkdc = kdc2\n"), "{text}");
        let servers =
            "kpasswd_server = kdc1\nkpasswd_server = [2001:db8::1]\nkpasswd_server = kdc2\n";
        assert!(text.contains(servers), "{text}");
        let text = realm.clone().with_first("[2001:db8::1]:88").text(None);
        assert!(text.contains("{\nkdc = [2001:db8::1]:88\nkdc = kdc1:750\nkdc = kdc2\n"), "{text}");
        assert!(text.contains(servers), "{text}");
        realm.discover = true;
        let text = realm.clone().with_only("192.0.2.1:88").text(None);
        assert_eq!(text.matches("\nkdc = ").count(), 1, "{text}");
        assert!(text.contains("dns_lookup_kdc = false"));
        realm.discover = false;
        let text = realm.text(None);
        assert!(text.contains("dns_lookup_kdc = false") && !text.contains("default_ccache_name"));
        realm.kpasswds = vec!["kdc1:464".into()];
        let text = realm.text(Some("KEYRING:persistent:1000"));
        assert!(text.contains("kpasswd_server = kdc1:464\n}"), "{text}");
        assert!(text.contains("default_ccache_name = KEYRING:persistent:1000\n"));
    }
}
