// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link options of the module.

fn main() {
    for argument in [
        "-Wl,-soname,pam_roster.so",
        // Symbols outside libpam and libc are not allowed. A reachable panic calls an undefined symbol and fails the
        // link here.
        "-Wl,-z,defs",
        // Without constructors and destructors, no code runs when the module is loaded.
        "-nostartfiles",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // The run-time name of the library, so that no development package is needed.
        "-l:libpam.so.0",
        "-lc",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
