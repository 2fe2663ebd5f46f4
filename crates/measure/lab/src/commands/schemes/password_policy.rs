// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the scheme of new passwords, for the whole server or a subtree, as `dsconf` does. Stored passwords stay
//! unchanged. `ldap_admin` sends the changes.

use super::ldap_admin::{AdminClient, AttributeValues};
use super::{CONFIG, LOCAL_POLICIES, SCHEME};
use crate::coded::Coded;
use crate::commands::print_failure;
use anyhow::Result;
use roster_messages::table::lab;

/// Sets the scheme for the whole server, or for a subtree by its existing or a new policy.
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

/// Finds the policy of an entry by its definition.
fn find_policy(server: &AdminClient, subtree: &str) -> Result<Option<String>> {
    let definition = definition(subtree);
    let Some(template) = server.value(&definition, "cosTemplateDn")? else { return Ok(None) };
    let policy = server.value(&template, "pwdpolicysubentry")?;
    let text = format_args!("{definition}: the template {template} names no policy");
    policy.map(Some).coded(&lab::POLICY_TEMPLATE, text)
}

/// Adds all entries of a policy, or none.
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
            // The entry is left from an incomplete policy.
            Ok(false) => {}
            Err(error) => {
                for dn in added.into_iter().rev() {
                    if let Err(error) = server.remove(dn) {
                        print_failure(&error);
                    }
                }
                return Err(error);
            }
        }
    }
    // An existing entry may have another scheme.
    server.set(&policy, SCHEME, scheme)
}

/// Escapes a value within a DN.
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
