// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies to netlogon pings: no bytes may crash or delay their parser, and each name is one line of bounded length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_provider_ldap::netlogon::{ControllerReply, parse_reply};

/// Longest name in text form.
const NAME_BYTES_MAX: usize = 253;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = parse_reply(bytes, 1, "lab.test") {
        assert!(reply.domain.eq_ignore_ascii_case("lab.test"));
        check(&reply);
    }
    if let Ok(reply) = ControllerReply::parse(bytes) {
        check(&reply);
    }
});

fn check(reply: &ControllerReply) {
    let ControllerReply { forest, domain, host, netbios_domain, netbios_host, .. } = reply;
    let sites = [&reply.server_site, &reply.client_site];
    for name in [forest, domain, host, netbios_domain, netbios_host].into_iter().chain(sites) {
        assert!(name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control), "{name:?}");
    }
}
