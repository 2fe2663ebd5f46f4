//! How the module is linked.

fn main() {
    for argument in [
        "-Wl,-soname,pam_roster.so",
        // Whatever is neither in libpam nor in libc must not be there: a reachable panic calls a symbol
        // that is nowhere, and fails the link here.
        "-Wl,-z,defs",
        // No constructors, no destructors: nothing runs when the module is loaded.
        "-nostartfiles",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // By the name that it has where it runs: what a development package adds is not needed.
        "-l:libpam.so.0",
        "-lc",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
