// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access rules of a domain. Each rule of SSSD becomes a rule of Roster, or stops the conversion. `domain` calls it,
//! and `plan` has the result.

use super::ad;
use super::section::{Conversion, Section, Setting};
use crate::ini;
use crate::plan::DomainPlan;
use crate::values::{all_of, list, quoted};

/// Checks that Roster makes by default.
const DEFAULT_CHECKS: [&str; 4] =
    ["shadow-expire", "password-policy", "account-lock", "active-directory"];

/// Checks and filters of the access rules, beside their lists.
#[derive(Default)]
struct Rules {
    /// Checks beside those of the default.
    checks: Vec<&'static str>,
    /// Filters that must all match.
    filters: Vec<String>,
    /// `ldap_pwd_policy` in lower case. Empty without the setting.
    password_policy: String,
    /// A rule `pwd_expire_policy_…` applies the policy to each login.
    has_expiry_rule: bool,
}

impl Rules {
    fn check(&mut self, check: &'static str) {
        if !self.checks.contains(&check) {
            self.checks.push(check);
        }
    }
}

pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    let mut rules = Rules::default();
    password_policy(conversion, section, &mut rules);
    let setting = section.take_setting("access_provider");
    let provider =
        setting.as_ref().map_or("permit", |setting| &*setting.value).to_ascii_lowercase();
    if let Some(setting) = &setting {
        conversion.mapped(&name, setting, format!("{name}.access"));
    }
    match (&*provider, &setting) {
        ("permit", _) => {}
        ("deny", _) => domain.access.set("allowed_users", "[]".into()),
        ("simple", Some(setting)) => simple(conversion, domain, section, setting),
        ("ldap", Some(setting)) => ldap(conversion, domain, section, setting, &mut rules),
        ("ad", Some(_)) if domain.is_active_directory => {
            rules.filters.extend(ad::access(conversion, section));
        }
        ("krb5", Some(setting)) => {
            let reason = "Roster does not read ~/.k5login, which can deny its user";
            let cure = "Write rules with access_provider = simple.";
            conversion.stop(&name, setting, reason, cure);
        }
        (_, Some(setting)) => {
            let reason = "the rules of this provider decide about logins, and have no counterpart";
            let cure = "Write the rules with access_provider = simple or ldap, or into [domain.NAME.access] \
                        of roster.toml.";
            conversion.stop(&name, setting, reason, cure);
        }
        (_, None) => {}
    }
    unused_rules(conversion, section, &provider);
    shadow_users(conversion, domain, section, &mut rules);
    if !rules.filters.is_empty() {
        domain.access.set("filter", quoted(&all_of(&rules.filters)));
    }
    if !rules.checks.is_empty() {
        let all: Vec<&str> = DEFAULT_CHECKS.iter().copied().chain(rules.checks).collect();
        domain.access.set("account_checks", list(&all));
    }
    // Another PAM module may authenticate, and SSSD's account phase still applies the rules.
    let has_rules = provider != "permit" || !domain.access.is_empty();
    if has_rules && domain.keys.get("auth") == Some("\"none\"") {
        domain.access.set("enabled", "true".into());
    }
}

/// `ldap_pwd_policy` denies passwords that have expired by the user's attributes.
fn password_policy(conversion: &mut Conversion<'_>, section: &mut Section, rules: &mut Rules) {
    let name = section.name.clone();
    let Some(setting) = section.take_setting("ldap_pwd_policy") else { return };
    rules.password_policy = setting.value.to_ascii_lowercase();
    match &*rules.password_policy {
        "none" => {
            conversion.dropped(&name, &setting, "Roster checks the age only with `password-age`.");
        }
        "shadow" => {
            rules.check("password-age");
            conversion.mapped(&name, &setting, format!("{name}.access.account_checks"));
        }
        _ => {
            let reason =
                "expired passwords would be accepted: Roster does not read these attributes";
            let cure = "Let the KDC or the server's password policy expire passwords.";
            conversion.stop(&name, &setting, reason, cure);
        }
    }
}

/// With the policy `shadow` SSSD refuses users without the day of the last change. Roster's check admits them.
fn shadow_users(
    conversion: &mut Conversion<'_>,
    domain: &DomainPlan,
    section: &Section,
    rules: &mut Rules,
) {
    let applies = domain.keys.get("auth") == Some("\"ldap\"") || rules.has_expiry_rule;
    if rules.password_policy != "shadow" || !applies {
        return;
    }
    let attribute = section.peek("ldap_user_shadow_last_change").unwrap_or("shadowLastChange");
    rules.filters.push(format!("({attribute}=*)"));
    conversion.plan.note(format!(
        "[{}]: `filter` denies users without {attribute}, as SSSD does with ldap_pwd_policy = shadow.",
        section.name
    ));
}

/// Lists of `access_provider = simple`, and their keys.
const LISTS: [(&str, &str); 4] = [
    ("simple_allow_users", "allowed_users"),
    ("simple_allow_groups", "allowed_groups"),
    ("simple_deny_users", "denied_users"),
    ("simple_deny_groups", "denied_groups"),
];

fn simple(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    provider: &Setting,
) {
    let name = section.name.clone();
    let mut has_lists = false;
    for (setting, key) in LISTS {
        let Some(setting) = section.take_setting(setting) else { continue };
        has_lists = true;
        let names = ini::list(&setting.value);
        if names.is_empty() {
            let cure = "Remove the setting, or write at least one name.";
            conversion.stop(&name, &setting, "an empty list has no clear meaning", cure);
            continue;
        }
        match plain_names(domain, &names) {
            Ok(names) => {
                let names = if key == "denied_groups" { names } else { spellings(domain, names) };
                domain.access.set(key, list(&names));
                conversion.mapped(&name, &setting, format!("{name}.access.{key}"));
            }
            Err(foreign) => {
                let reason = format!("{foreign:?} names another domain or has an unsupported form");
                let cure = "List users and groups of this domain only, by their short names.";
                conversion.stop(&name, &setting, &reason, cure);
            }
        }
    }
    if !has_lists {
        conversion.dropped(
            &name,
            provider,
            "Without lists every user of the domain may log in, as in SSSD.",
        );
    }
}

/// Removes the name of this domain. The error is a name of another domain.
fn plain_names(domain: &DomainPlan, names: &[&str]) -> Result<Vec<String>, String> {
    let plain = |name: &&str| {
        let name = match name.rsplit_once('@') {
            Some((plain, of)) if of.eq_ignore_ascii_case(&domain.name) => plain,
            Some(_) => return Err((*name).to_owned()),
            None => name,
        };
        if name.is_empty() || name.contains(['\\', ':']) {
            return Err(name.to_owned());
        }
        Ok(name.to_owned())
    };
    names.iter().map(plain).collect()
}

/// Adds the qualified form of names in a domain with qualified names. A denied group needs no second form: if one form is
/// unknown, every login is denied.
fn spellings(domain: &DomainPlan, names: Vec<String>) -> Vec<String> {
    if domain.keys.get("qualified_names") != Some("true") {
        return names;
    }
    let both = |name: String| [format!("{name}@{}", domain.name), name];
    names.into_iter().flat_map(both).collect()
}

fn ldap(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    provider: &Setting,
    rules: &mut Rules,
) {
    let name = section.name.clone();
    let order = section.take_setting("ldap_access_order");
    let text = order.as_ref().map_or("filter", |order| &*order.value);
    let names: Vec<String> = ini::list(text).iter().map(|rule| rule.to_ascii_lowercase()).collect();
    let owner = order.as_ref().unwrap_or(provider);
    if let Some(order) = &order {
        conversion.mapped(&name, order, format!("{name}.access"));
    }
    if names.is_empty() {
        return conversion.stop(&name, owner, "the list of rules is empty", "List the rules.");
    }
    for rule in &names {
        match &**rule {
            "filter" => access_filter(conversion, domain, section, owner, rules),
            "expire" => expiry(conversion, section, owner),
            // The default check of the password policy covers both. It is stricter: a lock without a known duration
            // lasts until the server removes it.
            "lockout" | "ppolicy" => conversion.plan.note(format!(
                "[{name}]: set lockout_duration in [domain.{}.access] to the server's pwdLockoutDuration.",
                domain.name
            )),
            "pwd_expire_policy_reject" | "pwd_expire_policy_warn" | "pwd_expire_policy_renew" => {
                expiry_of_passwords(conversion, rule, &name, owner, rules);
            }
            "host" => rules.check("host"),
            "authorized_service" => rules.check("authorized-service"),
            "rhost" => rules.check("rhost"),
            other => {
                let reason = format!("the rule {other:?} has no counterpart");
                conversion.stop(&name, owner, &reason, "Replace the rule, or remove it.");
            }
        }
    }
    if let Some(setting) = section.take_setting("ldap_pwdlockout_dn") {
        let note = "Set lockout_duration in [domain.NAME.access]. Without it a lock lasts until the server removes it.";
        conversion.dropped(&name, &setting, note);
    }
}

/// Rules that apply `ldap_pwd_policy`. Roster lets a user with an expired password in after a password change.
fn expiry_of_passwords(
    conversion: &mut Conversion<'_>,
    rule: &str,
    section: &str,
    owner: &Setting,
    rules: &mut Rules,
) {
    if matches!(&*rules.password_policy, "" | "none") {
        let note = format!("[{section}]: without ldap_pwd_policy, {rule} has no effect in SSSD.");
        return conversion.plan.note(note);
    }
    rules.has_expiry_rule = true;
    match rule {
        "pwd_expire_policy_reject" => {
            let reason = "Roster demands a new password, and SSSD refuses the login with an expired password";
            let cure = "Use pwd_expire_policy_renew.";
            conversion.stop(section, owner, reason, cure);
        }
        "pwd_expire_policy_warn" => conversion.plan.note(format!(
            "[{section}]: SSSD warns of an expired password, and Roster demands a new one."
        )),
        _ => {}
    }
}

fn access_filter(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    owner: &Setting,
    rules: &mut Rules,
) {
    let name = section.name.clone();
    match section.take_setting("ldap_access_filter").filter(|setting| !setting.value.is_empty()) {
        Some(setting) => {
            let Some(filter) = conversion.filter(&name, &setting, &setting.value) else { return };
            rules.filters.push(filter);
            conversion.mapped(&name, &setting, format!("{name}.access.filter"));
        }
        None => {
            // SSSD then denies every user.
            domain.access.set("allowed_users", "[]".into());
            conversion.mapped(&name, owner, format!("{name}.access.allowed_users"));
            conversion.plan.note(format!(
                "[{name}]: without ldap_access_filter SSSD denies every user, and so does the result."
            ));
        }
    }
}

/// The default checks read the attributes of shadow, 389 Directory Server and Active Directory.
fn expiry(conversion: &mut Conversion<'_>, section: &mut Section, owner: &Setting) {
    let name = section.name.clone();
    let Some(setting) = section.take_setting("ldap_account_expire_policy") else {
        let reason = "the rule `expire` needs ldap_account_expire_policy, and SSSD denies every user without it";
        return conversion.stop(
            &name,
            owner,
            reason,
            "Write ldap_account_expire_policy, or remove `expire`.",
        );
    };
    match &*setting.value.to_ascii_lowercase() {
        "shadow" | "ad" | "rhds" | "ipa" | "389ds" => {
            conversion.mapped(&name, &setting, format!("{name}.access.account_checks"));
        }
        _ => {
            let reason =
                "expired accounts would be accepted: Roster does not read these attributes";
            conversion.stop(
                &name,
                &setting,
                reason,
                "Write an ldap_access_filter with these attributes.",
            );
        }
    }
}

/// Rules of a provider that is not active have no effect in SSSD.
fn unused_rules(conversion: &mut Conversion<'_>, section: &mut Section, provider: &str) {
    let name = section.name.clone();
    let of_simple = LISTS.map(|(setting, _)| setting);
    let of_ldap = [
        "ldap_access_filter",
        "ldap_access_order",
        "ldap_account_expire_policy",
        "ldap_pwdlockout_dn",
    ];
    for (keys, owner) in [(of_simple, "simple"), (of_ldap, "ldap")] {
        for setting in keys.iter().filter_map(|key| section.take_unused(key)) {
            let note = if provider == owner {
                "Without its rule in ldap_access_order it has no effect in SSSD.".to_owned()
            } else {
                format!("With access_provider = {provider} it has no effect in SSSD.")
            };
            conversion.dropped(&name, &setting, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_names_of_qualified_domain_doubled() {
        let mut domain = DomainPlan { name: "corp".into(), ..DomainPlan::default() };
        assert_eq!(spellings(&domain, vec!["a".into()]), ["a"]);
        domain.keys.set("qualified_names", "true".into());
        assert_eq!(spellings(&domain, vec!["a".into()]), ["a@corp", "a"]);
    }

    #[test]
    fn access_names_of_other_domains_are_refused() {
        let domain = DomainPlan { name: "corp".into(), ..DomainPlan::default() };
        assert_eq!(plain_names(&domain, &["a", "b@CORP"]).unwrap(), ["a", "b"]);
        for name in ["a@lab", "LAB\\a", "@corp"] {
            assert!(plain_names(&domain, &[name]).is_err(), "{name}");
        }
    }
}
