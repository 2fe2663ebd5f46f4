// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the limits of a domain.

use super::*;
use crate::NUMBERS_MAX;
use crate::engine::no_number_reason;
use roster_system_tests::logged_codes::logged_codes;

fn engine_of(loaded: LoadedCache) -> Arc<Engine> {
    let engine = Engine::new(settings(DomainMode::Replicate), loaded, None, None);
    engine.set_parts(vec![USERS, GROUPS]);
    engine
}

#[test]
fn limits_no_entry_number_rejects_the_entry() {
    let engine = engine_of(LoadedCache::without_free_numbers());
    refresh(&engine, &["alice"], &[], "1");
    assert_eq!(fetched(&engine).names(), [""; 0]);
    let rejected = &engine.rejections(0, 1)[0];
    assert_eq!(rejected.name, "alice");
    assert_eq!(rejected.code, directory::ENTRY_NUMBERS_EXHAUSTED.code);
}

#[test]
fn limits_domain_too_large_from_half() {
    let half = NUMBERS_MAX as usize / 2;
    assert_eq!(no_number_reason(half - 1).0, &directory::ENTRY_NUMBERS_EXHAUSTED);
    assert_eq!(no_number_reason(half).0, &directory::DOMAIN_TOO_LARGE);
}

#[test]
fn limits_no_reference_number_is_logged_once() {
    let engine = engine_of(LoadedCache::without_free_references());
    let logged = logged_codes(|| {
        refresh(&engine, &[], &[("staff", &["last", "alice"]), ("other", &["bob"])], "1");
    });
    assert_eq!(logged, [&directory::TOO_MANY_MEMBER_NAMES]);
    let members = fetched(&engine).fact("staff").members.clone();
    assert_eq!(members, Some(vec![NUMBERS_MAX - 1, NO_REFERENCE]), "alice is omitted");
}
