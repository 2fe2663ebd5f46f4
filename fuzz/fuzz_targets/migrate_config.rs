// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts any text as sssd.conf and as nslcd.conf. Without a stop, the result has only comments, tables and keys: no value
//! breaks out of its line. The same text is the krb5.conf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_migration::krb5_conf::Krb5Conf;
use roster_migration::nslcd::{self, NslcdConf};
use roster_migration::sssd::{self, HostFacts, SssdConf};
use roster_migration::{Plan, Waivers, check, render};
use std::path::Path;

fuzz_target!(|input: &[u8]| {
    let mut facts = HostFacts { dns_domain: Some("example.com".into()), ..HostFacts::default() };
    let mut krb5 = Krb5Conf::default();
    if krb5.add(input).is_ok() {
        facts.krb5 = krb5;
    }
    let mut conf = SssdConf::default();
    if conf.add(Path::new("sssd.conf"), input).is_ok() {
        expect_lines(&sssd::convert(conf, &facts, &mut Waivers::default()));
    }
    if let Ok(conf) = NslcdConf::parse(Path::new("nslcd.conf"), input) {
        expect_lines(&nslcd::convert(&conf, "corp", &facts, &mut Waivers::default()));
    }
});

fn expect_lines(plan: &Plan) {
    if plan.stops().next().is_some() {
        return;
    }
    let text = render(plan);
    for line in text.lines() {
        let is_key = || {
            let key = line.split_once(" = ").map(|(key, _)| key);
            key.is_some_and(|key| {
                key.bytes().all(|byte| byte.is_ascii_lowercase() || b"_05".contains(&byte))
            })
        };
        assert!(line.is_empty() || line.starts_with(['#', '[']) || is_key(), "{line:?}");
    }
    // A value may be refused; the syntax is valid.
    if let Err(error) = check(&text) {
        assert!(!error.text.contains("RST-1016"), "{error}");
    }
}
