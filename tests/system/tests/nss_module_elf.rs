// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of `libnss_roster.so.2` that lets every process load it: static ones, set-uid ones, and
//! processes with little free stack.

use roster_system_tests::{find_tool, library_dir, run};
use std::process::Command;

/// The goal is 56 kB. Lower the limit with each saving.
const SIZE_MAX: u64 = 54_300;

fn readelf(option: &str) -> String {
    let mut readelf = Command::new(find_tool("readelf", "binutils"));
    run(readelf.args([option, "-W"]).arg(library_dir().join("libnss_roster.so.2"))).text()
}

/// A module with thread-local storage crashes statically linked programs.
#[test]
fn it_has_no_thread_local_storage() {
    assert!(!readelf("--segments").lines().any(|line| line.trim().starts_with("TLS")));
}

/// Each process would map them. No exception passes through the module.
#[test]
fn module_has_no_unwind_tables() {
    assert!(!readelf("--sections").contains(".eh_frame"));
}

#[test]
fn it_needs_nothing_but_libc() {
    let dynamic = readelf("--dynamic");
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().all(|line| line.contains("[libc.so.6]")), "{needed:?}");
}

#[test]
fn it_has_the_name_that_glibc_asks_for() {
    assert!(readelf("--dynamic").contains("Library soname: [libnss_roster.so.2]"));
}

/// Static programs take modules for plugins: they have to be loadable, and bound at once, because a
/// symbol that fails to bind later would end the host process.
#[test]
fn it_is_bound_when_loaded_and_may_be_opened_by_anybody() {
    let dynamic = readelf("--dynamic");
    assert!(dynamic.contains("BIND_NOW") || dynamic.contains("Flags: NOW"), "{dynamic}");
    assert!(!dynamic.contains("NOOPEN"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
}

#[test]
fn it_exports_the_service_functions_and_nothing_else() {
    let symbols = readelf("--dyn-syms");
    let exported: Vec<_> = symbols
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() == 8 && fields[4] != "LOCAL" && fields[6] != "UND")
        .filter(|fields| fields[0].ends_with(':') && fields[0] != "Num:")
        .map(|fields| fields[7].to_owned())
        .collect();
    for name in &exported {
        assert!(name.starts_with("_nss_roster_"), "{name} is exported");
    }
    for function in [
        "getpwnam_r",
        "getpwuid_r",
        "setpwent",
        "getpwent_r",
        "endpwent",
        "getgrnam_r",
        "getgrgid_r",
        "setgrent",
        "getgrent_r",
        "endgrent",
        "getspnam_r",
        "setspent",
        "getspent_r",
        "endspent",
        "initgroups_dyn",
    ] {
        assert!(exported.contains(&format!("_nss_roster_{function}")), "{function} is missing");
    }
}

/// Each would cost a write to a fresh page in every process.
#[test]
fn it_has_no_relative_relocations() {
    let relocations = readelf("--relocs");
    assert!(!relocations.contains("RELATIVE"), "{relocations}");
    assert!(!readelf("--dynamic").contains("(RELR)"));
}

#[test]
fn it_is_small() {
    let module = library_dir().join("libnss_roster.so.2");
    let size = module.metadata().expect("the module was built").len();
    assert!(size <= SIZE_MAX, "{size} bytes");
}

/// Data and code are apart: nothing that can be written can be run.
#[test]
fn it_has_no_writable_code_and_no_executable_stack() {
    let segments = readelf("--segments");
    assert!(!segments.contains("RWE"), "{segments}");
}
