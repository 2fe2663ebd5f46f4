// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the missing package if libkrb5 is not installed, before the linker fails.

use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let probe = Path::new(&folder).join("probe.so");
    // The C compiler that links Rust programs. It has the same search path as the program's link.
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let linked = Command::new(linker)
        .args(library_dirs())
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-lkrb5", "-lgssapi_krb5", "-o"])
        .arg(probe)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !linked.is_ok_and(|status| status.success()) {
        println!(
            "cargo::error=roster-krb5 is linked with MIT Kerberos, which is not here: install \
             libkrb5-dev (Debian, Ubuntu) or krb5-devel (Fedora, openSUSE)"
        );
    }
}

/// Returns the library directories in the flags of rustc, as flags of the C compiler.
fn library_dirs() -> Vec<String> {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let flags: Vec<_> = flags.split('\x1f').collect();
    let dirs = flags.windows(2).filter(|pair| pair[0] == "-L");
    dirs.map(|pair| format!("-L{}", pair[1].trim_start_matches("native="))).collect()
}
