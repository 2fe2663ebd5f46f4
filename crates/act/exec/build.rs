// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link options of the program.

fn main() {
    for argument in [
        // Its beginning is its own (`entry_point.rs`), and it has no C library.
        "-nostartfiles",
        "-nostdlib",
        // Nothing but itself is to be loaded, and nothing moved to where it was loaded: its code lies at the same place
        // each time, its stack and memory do not. It runs with its caller's rights, and reads what root's daemon says.
        "-static",
        "-no-pie",
        "-Wl,-z,noexecstack",
    ] {
        println!("cargo::rustc-link-arg-bin=roster-exec={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
