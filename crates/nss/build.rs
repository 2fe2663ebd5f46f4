//! How the module is linked.

fn main() {
    for argument in [
        // The name under which glibc asks for the service `roster`.
        "-Wl,-soname,libnss_roster.so.2",
        // Whatever is not in libc must not be there: a reachable panic calls a symbol that is
        // nowhere, and fails the link here.
        "-Wl,-z,defs",
        // No constructors, no destructors: nothing runs when the module is loaded.
        "-nostartfiles",
        // Bind at once: a look-up must not run the dynamic linker.
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // What is registered with fork(3) must stay where it is.
        "-Wl,-z,nodelete",
        "-lc",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
