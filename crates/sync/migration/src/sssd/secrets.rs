// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides by section and name which values of settings are secrets. Their values are never printed and never written
//! as comments. The value of a setting with an unknown name is hidden by the calling code. `section` applies the
//! decision.

/// Stands for the value of a secret.
pub(super) const HIDDEN: &str = "(hidden)";

/// Names that look like those of secrets, and have other values.
const PLAIN: [&str; 8] = [
    "krb5_store_password_if_offline",
    "ldap_default_authtok_type",
    "ldap_tls_key",
    "ldap_use_tokengroups",
    "ldap_user_ssh_public_key",
    "pam_password_prohibit_message",
    "passwd_files",
    "tls_key",
];

/// Parts of names of secrets.
const PARTS: [&str; 6] = ["passw", "passphrase", "secret", "authtok", "token", "header_value"];

/// Words at the end of names of secrets.
const END_WORDS: [&str; 5] = ["pin", "pwd", "pass", "key", "psk"];

/// Returns whether the value of a setting may be a secret. The section `secrets` holds secrets of programs.
pub(super) fn is_secret(section: &str, name: &str) -> bool {
    let service = section.split('/').next().unwrap_or(section);
    if service.eq_ignore_ascii_case("secrets") {
        return true;
    }
    let last = name.rsplit('_').next().unwrap_or(name);
    !PLAIN.contains(&name)
        && (PARTS.iter().any(|part| name.contains(part))
            || END_WORDS.contains(&last)
            || name.ends_with("pw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_section_and_name() {
        for (section, name) in [
            ("domain/corp", "ldap_default_authtok"),
            ("domain/corp", "ldap_default_authtokn"),
            ("domain/corp", "idp_client_secret"),
            ("nslcd", "bindpw"),
            ("nslcd", "rootpwmodpw"),
            ("pam", "p11_pin"),
            ("kcm", "auth_header_value"),
            ("secrets", "provider"),
            ("Secrets/users/1000", "x"),
        ] {
            assert!(is_secret(section, name), "{section} {name}");
        }
        for name in PLAIN {
            assert!(!is_secret("domain/corp", name), "{name}");
        }
        for name in [
            "ldap_pwd_policy",
            "krb5_keytab",
            "passkey_debug",
            "auth_header_name",
            "ldap_id_mapping",
        ] {
            assert!(!is_secret("domain/corp", name), "{name}");
        }
    }
}
