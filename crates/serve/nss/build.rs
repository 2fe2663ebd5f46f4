// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linker arguments of the module.

/// Discards a section.
const TABLES_SCRIPT: &str = "no-unwind-tables.ld";

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = format!("-Wl,-T,{directory}/{TABLES_SCRIPT}");
    for argument in [
        // The file name that glibc derives from the service name `roster`.
        "-Wl,-soname,libnss_roster.so.2",
        // All undefined symbols must be in libc. A reachable panic calls a symbol that does not exist, so the link
        // fails.
        "-Wl,-z,defs",
        // No constructors or destructors: loading the module runs no code.
        "-nostartfiles",
        // Binds symbols at load time: a lookup must not run the dynamic linker.
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // The handler that is registered with fork(3) must stay mapped.
        "-Wl,-z,nodelete",
        "-lc",
        // Without the tables below an index of them has no use.
        "-Wl,--no-eh-frame-hdr",
        &script,
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={TABLES_SCRIPT}");
}
