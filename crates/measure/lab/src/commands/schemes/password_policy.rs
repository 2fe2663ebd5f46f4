//! Has new passwords stored by a scheme, everywhere or below an entry, as `dsconf` sets such a policy.

use super::ldap_admin::{AdminClient, AttributeValues};
use super::{CONFIG, LOCAL_POLICIES, SCHEME};
use crate::commands::print_error;
use anyhow::{Context, Result};

/// Everywhere, or below this entry: by the policy that it has already, or by one of its own.
pub fn apply(server: &AdminClient, scheme: &str, subtree: Option<&str>) -> Result<()> {
    let Some(subtree) = subtree else { return server.set(CONFIG, SCHEME, scheme) };
    match find_policy(server, subtree)? {
        Some(policy) => server.set(&policy, SCHEME, scheme)?,
        None => create(server, scheme, subtree)?,
    }
    server.set(CONFIG, LOCAL_POLICIES, "on")
}

fn definition(subtree: &str) -> String {
    format!("cn=nsPwPolicy_CoS,{subtree}")
}

/// The policy of an entry, whatever its name is.
fn find_policy(server: &AdminClient, subtree: &str) -> Result<Option<String>> {
    let definition = definition(subtree);
    let Some(template) = server.value(&definition, "cosTemplateDn")? else { return Ok(None) };
    let policy = server.value(&template, "pwdpolicysubentry")?;
    policy.map(Some).with_context(|| {
        format!("{definition}: its template, {template}, names no policy; mend or remove both")
    })
}

/// Adds all that a policy consists of, or nothing.
fn create(server: &AdminClient, scheme: &str, subtree: &str) -> Result<()> {
    let container = format!("cn=nsPwPolicyContainer,{subtree}");
    let named = |what: &str| format!("cn={},{container}", escaped(&format!("cn={what},{subtree}")));
    let (policy, template) = (named("nsPwPolicyEntry_subtree"), named("nsPwTemplateEntry"));
    let definition = definition(subtree);
    let entries: [(&str, &AttributeValues<'_>); 4] = [
        (
            &container,
            &[
                ("objectClass", "top"),
                ("objectClass", "nsContainer"),
                ("cn", "nsPwPolicyContainer"),
            ],
        ),
        (
            &policy,
            &[
                ("objectClass", "top"),
                ("objectClass", "ldapsubentry"),
                ("objectClass", "passwordpolicy"),
                (SCHEME, scheme),
            ],
        ),
        (
            &template,
            &[
                ("objectClass", "top"),
                ("objectClass", "extensibleObject"),
                ("objectClass", "costemplate"),
                ("objectClass", "ldapsubentry"),
                ("cosPriority", "1"),
                ("pwdpolicysubentry", &policy),
            ],
        ),
        (
            &definition,
            &[
                ("objectClass", "top"),
                ("objectClass", "ldapsubentry"),
                ("objectClass", "cosSuperDefinition"),
                ("objectClass", "cosPointerDefinition"),
                ("cn", "nsPwPolicy_CoS"),
                ("cosTemplateDn", &template),
                ("cosAttribute", "pwdpolicysubentry default operational-default"),
            ],
        ),
    ];
    let mut added = Vec::new();
    for (dn, values) in entries {
        match server.add(dn, values) {
            Ok(true) => added.push(dn),
            // Of an earlier policy, whose other parts are gone.
            Ok(false) => {}
            Err(why) => {
                for dn in added.into_iter().rev() {
                    if let Err(why) = server.remove(dn) {
                        print_error(&format!("roster-lab: {why:#}"));
                    }
                }
                return Err(why);
            }
        }
    }
    // One that was there may be of another scheme.
    server.set(&policy, SCHEME, scheme)
}

/// A text as a value within a DN.
fn escaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if matches!(char, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=') {
            value.push('\\');
        }
        value.push(char);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_within_a_name_has_its_own_marks_escaped() {
        assert_eq!(escaped("cn=x,ou=a\\,b"), "cn\\=x\\,ou\\=a\\\\\\,b");
    }
}
