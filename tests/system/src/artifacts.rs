// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files under test, built when missing or old: the module, the programs `roster` and `rosterd`, and the C helpers.
//! Test binaries run side by side, so one file lock covers every build.

use crate::test_host::run;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The directory with `libnss_roster.so.2` alone, fit for LD_LIBRARY_PATH.
///
/// # Panics
/// If the module cannot be built; so do the other functions of this file.
pub fn library_dir() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let _lock = lock_builds();
        if let Some(module) = installed_file("libnss_roster.so.2") {
            let folder = scratch_dir().join("installed");
            fs::create_dir_all(&folder).expect("create the library folder");
            let fresh = folder.join("fresh");
            fs::copy(&module, &fresh).unwrap_or_else(|e| panic!("{}: {e}", module.display()));
            fs::rename(&fresh, folder.join("libnss_roster.so.2")).expect("move the module");
            return folder;
        }
        cargo_build(&["-p", "roster-nss", "--profile", "module"]);
        let built = target_dir().join("module/libnss_roster.so");
        let folder = scratch_dir().join("lib");
        fs::create_dir_all(&folder).expect("create the library folder");
        let module = folder.join("libnss_roster.so.2");
        if is_older(&module, &[&built]) {
            let fresh = folder.join("fresh");
            fs::copy(&built, &fresh).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
            fs::rename(&fresh, &module).expect("move the module into place");
        }
        folder
    })
}

/// `pam_roster.so`, as `make module` makes it.
pub fn pam_module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(module) = installed_file("pam_roster.so") {
            return module;
        }
        let _lock = lock_builds();
        cargo_build(&["-p", "roster-pam", "--profile", "module"]);
        target_dir().join("module/libpam_roster.so")
    })
}

/// The `roster` program, as `make build` makes it.
pub fn roster_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("roster"))
}

/// The program `rosterd`, as `make build` makes it.
pub fn rosterd_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("rosterd"))
}

/// The program `roster-krb5`, as `make build` makes it.
pub fn krb5_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("roster-krb5"))
}

/// The program `roster-rootwrap-daemon`, as `make build` makes it.
pub fn rootwrap_daemon_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("roster-rootwrap-daemon"))
}

/// The program `roster-rootwrap`, as `make build` makes it.
pub fn rootwrap_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("roster-rootwrap"))
}

/// `roster-exec` as `make build` links it.
pub fn exec_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = installed_file("roster-exec") {
            return program;
        }
        let _lock = lock_builds();
        cargo(
            "rustc",
            &[
                ["-p", "roster-exec", "--bin", "roster-exec"],
                ["--no-default-features", "--features", "program", "--profile=client"],
                ["--", "-Ctarget-feature=+crt-static", "-C", "relocation-model=static"],
            ]
            .concat(),
        );
        target_dir().join("client/roster-exec")
    })
}

/// The file of that name out of `ROSTER_INSTALLED`, the DESTDIR of an installation, if that is set.
fn installed_file(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(std::env::var_os("ROSTER_INSTALLED")?).join("usr");
    let libraries = "lib/x86_64-linux-gnu lib/aarch64-linux-gnu lib64".split(' ');
    let folders = ["bin", "sbin", "libexec/roster"].into_iter().chain(libraries);
    let mut files = folders.flat_map(|folder| {
        [root.join(folder).join(name), root.join(folder).join("security").join(name)]
    });
    let file = files.find(|file| file.is_file());
    Some(file.unwrap_or_else(|| panic!("ROSTER_INSTALLED: {name} is not installed below {root:?}")))
}

/// The directory of snapshots, relative to the state directory. Older installations keep snapshots in the state
/// directory itself.
pub(crate) fn snapshots_dir() -> &'static str {
    let has_folder = |root| Path::new(&root).join("var/lib/roster/snap").is_dir();
    if std::env::var_os("ROSTER_INSTALLED").is_none_or(has_folder) { "snap" } else { "" }
}

/// The program of that name out of `ROSTER_INSTALLED`, or `built`.
#[must_use]
pub fn program_under_test(name: &str, built: &str) -> PathBuf {
    installed_file(name).unwrap_or_else(|| built.into())
}

/// The program of that name out of `ROSTER_INSTALLED` or the directory `ROSTER_PROGRAMS`, or built. All programs are
/// built together: one alone would have its dependencies rebuilt, with fewer features.
fn program(name: &str) -> PathBuf {
    if let Some(program) = installed_file(name) {
        return program;
    }
    if let Some(folder) = std::env::var_os("ROSTER_PROGRAMS") {
        return Path::new(&folder).join(name);
    }
    let _lock = lock_builds();
    cargo_build(&["--release"]);
    target_dir().join("release").join(name)
}

/// The program made of `c/NAME.c`.
pub fn c_program(name: &str) -> PathBuf {
    c_program_with(name, name, &["-pthread"])
}

/// The program made of `c/SOURCE.c` with more compiler flags, such as `-static`.
pub fn c_program_with(source: &str, output: &str, flags: &[&str]) -> PathBuf {
    compile_c("cc", source, output, flags)
}

/// The static program made of `c/SOURCE.c` with musl for its C library.
pub fn musl_program(source: &str) -> PathBuf {
    compile_c("musl-gcc", source, &format!("{source}-musl"), &["-static"])
}

fn compile_c(compiler: &str, source: &str, output: &str, flags: &[&str]) -> PathBuf {
    let _lock = lock_builds();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let source = folder.join(source).with_extension("c");
    let program = scratch_dir().join(output);
    if is_older(&program, &[&source, &folder.join("nss.h")]) {
        let fresh = program.with_extension("fresh");
        let needs = if compiler == "cc" { "gcc and libc6-dev" } else { "musl-tools" };
        let mut compiler = Command::new(compiler);
        compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        compiler.arg(&source).arg("-o").arg(&fresh).args(flags);
        // Its output counts only when it fails: it warns of every lookup in a static program.
        let done = compiler
            .output()
            .unwrap_or_else(|e| panic!("no compiler: {e}: install the Debian packages {needs}"));
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{} does not compile:\n{words}", source.display());
        fs::rename(&fresh, &program).expect("move the program into place");
    }
    program
}

/// The directory with the files of a Debian package, which is not installed.
pub(crate) fn unpack_package(package: &str) -> PathBuf {
    let packages = scratch_dir().join("packages");
    let folder = packages.join(package);
    let _lock = lock_builds();
    if folder.is_dir() {
        return folder;
    }
    let fresh = packages.join(format!("{package}.new"));
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).expect("create a folder for the package");
    let mut fetch = Command::new("apt-get");
    fetch.args(["-q", "-o", "APT::Sandbox::User=root", "download", package]).current_dir(&fresh);
    let done = run(&mut fetch);
    assert_eq!(done.code, 0, "apt-get download {package} (after apt-get update): {}", done.error());
    let archive =
        fs::read_dir(&fresh).expect("read it").flatten().next().expect("an archive").path();
    let files = fresh.join("files");
    let done = run(Command::new("dpkg").arg("-x").arg(&archive).arg(&files));
    assert_eq!(done.code, 0, "dpkg -x {}: {}", archive.display(), done.error());
    // /lib is /usr/lib here, and some packages are older than that.
    if files.join("lib").is_dir() {
        let merge = "mkdir -p usr && cp -a lib usr/";
        assert_eq!(
            run(Command::new("sh").args(["-c", merge]).current_dir(&files)).code,
            0,
            "{merge}"
        );
    }
    fs::rename(&files, &folder).expect("move the files into place");
    fs::remove_dir_all(&fresh).expect("remove the archive");
    folder
}

/// A directory for files that the harness makes and keeps between runs.
pub(crate) fn scratch_dir() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let scratch = target_dir().join("system-tests");
        fs::create_dir_all(&scratch)
            .unwrap_or_else(|e| panic!("create {}: {e}", scratch.display()));
        scratch
    })
}

/// Cargo's target directory: test binaries lie in its `PROFILE/deps`.
fn target_dir() -> PathBuf {
    let binary = std::env::current_exe().expect("the test's own path");
    binary.ancestors().nth(3).expect("a test binary lies in target/PROFILE/deps").to_owned()
}

fn cargo_build(args: &[&str]) {
    cargo("build", args);
}

/// Runs cargo, unless the suite sets `ROSTER_BUILT` because everything is built.
fn cargo(command: &str, args: &[&str]) {
    if std::env::var_os("ROSTER_BUILT").is_some() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(env!("CARGO"));
    // Variables that cargo set for this test's own package. Build scripts read them, so their output would be rebuilt,
    // with all that depends on it.
    let of_this_package =
        |name: &str| ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.starts_with(start));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_this_package) {
            cargo.env_remove(name);
        }
    }
    let done = cargo
        .args([command, "--quiet", "--target-dir"])
        .arg(target_dir())
        .args(args)
        .current_dir(root)
        .status()
        .unwrap_or_else(|e| panic!("{}: {e}", env!("CARGO")));
    assert!(done.success(), "cargo {command} {} failed", args.join(" "));
}

/// Whether `product` has to be made again from `sources`. Missing sources are ignored.
fn is_older(product: &Path, sources: &[&Path]) -> bool {
    let Some(made) = modified_at(product) else { return true };
    sources.iter().filter_map(|source| modified_at(source)).any(|changed| changed > made)
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

/// Held while something is built; the kernel releases it when the file is closed.
fn lock_builds() -> File {
    let file = File::create(scratch_dir().join("lock")).expect("create the build lock");
    flock(&file, FlockOperation::LockExclusive).expect("take the build lock");
    file
}
