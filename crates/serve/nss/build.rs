// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linker arguments of the module.

fn main() {
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
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
