// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of an LDAP server: no bytes may crash their reading or the mapping of entries, and all output is part of
//! the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_config::{LdapConfig, ProviderConfig, parse};
use roster_provider::Member;
use roster_provider_ldap::ber::{MessageFrame, frame};
use roster_provider_ldap::dn;
use roster_provider_ldap::filter::EncodedFilter;
use roster_provider_ldap::message::{LdapResponse, ResponseOperation, SyncInfo};
use roster_provider_ldap::schema::{AttributeMapping, entry_id};
use roster_provider_ldap::search::mirror_searches;
use std::sync::LazyLock;

const BYTES_MAX: usize = 1 << 20;

fn mapping(schema: &str, case: &str) -> (AttributeMapping, LdapConfig) {
    let text = format!(
        "[host]\ndomains = ['fuzz']\n[domain.fuzz]\nprovider = 'ldap'\nuris = ['ldaps://x']\nbase = 'dc=x'\n\
         schema = '{schema}'\ncase = '{case}'\nhome = '/home/%d/%u%o%%'\n\
         [domain.fuzz.access]\nenabled = true\n"
    );
    let domain = parse(&text).unwrap().config.domains.remove(0);
    let ProviderConfig::Ldap(ldap) = &domain.provider else { unreachable!("it is ldap") };
    (AttributeMapping::new(&domain, ldap), ldap.as_ref().clone())
}

static MAPPINGS: LazyLock<[(AttributeMapping, LdapConfig); 2]> =
    LazyLock::new(|| [mapping("rfc2307", "sensitive"), mapping("rfc2307bis", "preserving")]);

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(MessageFrame::Whole(length)) = frame(rest, BYTES_MAX) {
        assert!(length > 0 && length <= rest.len());
        let (message, after) = rest.split_at(length);
        rest = after;
        if let Ok(response) = LdapResponse::parse(message) {
            read(&response);
        }
    }
    let canonical = dn::normalise(bytes).into_owned();
    assert_eq!(dn::normalise(&canonical), canonical, "the canonical form is its own");
    let _ = (dn::first_rdn(bytes), dn::rdn_values(bytes, "uid"), entry_id(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = EncodedFilter::parse(text);
    }
});

fn read(response: &LdapResponse<'_>) {
    let _ = (response.controls.page_cookie(), response.controls.change_type());
    let _ = (response.controls.sync_state(), response.controls.password_policy());
    match response.operation {
        ResponseOperation::Entry(entry) => {
            for attribute in entry.attributes().flatten() {
                let _ = attribute.1.flatten().map(entry_id).count();
            }
            for (mapping, ldap) in MAPPINGS.iter() {
                for search in mirror_searches(ldap, mapping).unwrap() {
                    let _ = search.classify(&entry, mapping);
                }
                if let Ok(Ok(user)) = mapping.user(&entry) {
                    assert!(!user.name.is_empty() && !user.dir.is_empty());
                }
                if let Ok(Ok(read)) = mapping.group(&entry, true) {
                    let group = read.group;
                    assert!(!group.name.is_empty());
                    let is_named = |member: &Member<'_>| match member {
                        Member::Name(text) | Member::Dn(text) => !text.is_empty(),
                    };
                    assert!(group.members.unwrap().iter().all(is_named));
                }
            }
        }
        ResponseOperation::Intermediate(_, Some(value)) => {
            if let Ok(SyncInfo::Set { uuids, .. }) = SyncInfo::parse(value) {
                let _ = uuids.count();
            }
        }
        ResponseOperation::BindDone(outcome) | ResponseOperation::SearchDone(outcome) => {
            assert!(!outcome.to_string().contains('\n'));
        }
        _ => {}
    }
}
