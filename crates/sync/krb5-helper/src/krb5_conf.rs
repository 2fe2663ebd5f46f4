// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the krb5.conf(5) text for libkrb5 from the checked fields of a caller. Callers and files of the host cannot
//! add a line. `realm` has the fields, and `libkrb5` parses the text.

use roster_krb5_helper::realm::Realm;
use std::fmt::Write as _;

/// Encryption types that are neither weak nor derived from a password without salt.
const ENCTYPES: &str = "aes256-cts-hmac-sha1-96 aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128 \
                        aes128-cts-hmac-sha1-96";

/// A profile without realms, to open caches.
pub const EMPTY_PROFILE: &str = "[libdefaults]\n";

/// Returns the text for exchanges with the servers of a realm.
pub fn realm_profile(realm: &Realm) -> String {
    let Realm { name, kdcs, discover, .. } = realm;
    // A wrong clock is reported and not compensated: a ticket that this host assigns to another time is useless.
    let mut text = format!(
        "[libdefaults]\ndefault_realm = {name}\ndns_lookup_kdc = {discover}\n\
         dns_uri_lookup = {discover}\ndns_lookup_realm = false\n\
         dns_canonicalize_hostname = false\nrdns = false\nkdc_timesync = 0\n\
         noaddresses = true\npermitted_enctypes = {ENCTYPES}\n[realms]\n{name} = {{\n"
    );
    for kdc in kdcs {
        let _ = writeln!(text, "kdc = {kdc}");
    }
    for server in realm.kpasswd_servers() {
        let _ = writeln!(text, "kpasswd_server = {server}");
    }
    text.push_str("}\n");
    text
}

/// Returns the text for new caches in a collection. `name` is a checked cache name of
/// [`roster_krb5_helper::session_ticket`].
pub fn collection_profile(name: &str) -> String {
    format!("[libdefaults]\ndefault_ccache_name = {name}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_lists_servers_in_order() {
        let mut realm = Realm {
            name: "LAB.TEST".into(),
            kdcs: vec!["kdc1:750".into(), "[2001:db8::1]:88".into(), "kdc2".into()],
            ..Realm::default()
        };
        let text = realm_profile(&realm);
        assert!(
            text.ends_with(
                "[realms]\nLAB.TEST = {\nkdc = kdc1:750\nkdc = [2001:db8::1]:88\nkdc = kdc2\n\
                 kpasswd_server = kdc1\nkpasswd_server = [2001:db8::1]\nkpasswd_server = kdc2\n}\n"
            ),
            "{text}"
        );
        assert!(text.contains("dns_lookup_kdc = false") && !text.contains("default_ccache_name"));
        realm.kpasswds = vec!["kdc1:464".into()];
        realm.discover = true;
        let text = realm_profile(&realm);
        assert!(text.ends_with("kdc = kdc2\nkpasswd_server = kdc1:464\n}\n"), "{text}");
        assert!(text.contains("dns_lookup_kdc = true\ndns_uri_lookup = true\n"), "{text}");
    }
}
