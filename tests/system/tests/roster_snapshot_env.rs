// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of the snapshot. A program of root or with privilege ignores `ROSTER_SNAPSHOT`. Any other program reads
//! the file of that name, or nothing if that cannot be trusted. No answer is better than one from another place than
//! the variable says.

use roster_system_tests::test_host::RECOMMENDED_NSSWITCH;
use roster_system_tests::{
    Corpus, ProgramOutput, TestHost, c_program, c_program_with, needs_root, run,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// The result of a program with a variable that names an untrusted snapshot.
const REFUSED: &str = "alice: EIO";

const STRANGER: u32 = 12345;
const NOBODY: u32 = 65534;

/// A host on which alice is "default", beside a snapshot in which she is "other".
struct Two {
    host: TestHost,
    /// Holds `roster.v3.snap`; its parents are the host's directory and the machine's temporary one.
    folder: PathBuf,
}

impl Two {
    fn new() -> Self {
        let local = Corpus::new("", b"root:x:0:0:::\n", b"root:x:0:\n", b"");
        let host = TestHost::new(&local, RECOMMENDED_NSSWITCH);
        host.publish(&alice("other"));
        let folder = host.path("other");
        fs::create_dir(&folder).expect("create the other folder");
        set_mode(&folder, 0o755);
        fs::rename(host.snapshot_path(), folder.join("roster.v3.snap")).expect("move the snapshot");
        host.publish(&alice("default"));
        Self { host, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("roster.v3.snap")
    }

    /// Returns the alice that an ordinary program sees when the variable names `path`.
    fn answer(&self, path: &Path) -> String {
        self.answer_at(path, &c_program("lookup"), 0o755, AS_NOBODY)
    }

    /// Returns the alice that a program copied to the host sees, with these owner, mode and command line.
    fn answer_of(&self, program: &Path, mode: u32, command_line: &str) -> String {
        self.answer_at(&self.file(), program, mode, command_line)
    }

    fn answer_at(&self, path: &Path, program: &Path, mode: u32, command_line: &str) -> String {
        let script = format!(
            "cp \"$1\" /var/lib/program; chmod {mode:o} /var/lib/program
             export ROSTER_SNAPSHOT=\"$2\"; {command_line}"
        );
        let mut command = self.host.command("sh");
        which(&run(command.args(["-ec", &script, "sh"]).arg(program).arg(path)))
    }
}

fn alice(gecos: &str) -> Corpus {
    let passwd = format!("alice:x:1000:1000:{gecos}::\n");
    Corpus::new("", passwd.as_bytes(), b"people:x:1000:\n", b"")
}

fn which(told: &ProgramOutput) -> String {
    let text = told.text();
    text.split(':').nth(3).unwrap_or(&text).to_owned()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// In a user namespace the directories above belong to unknown users, so that nothing is trusted there; these need the
/// real root.
macro_rules! two_or_return {
    () => {{
        if !needs_root() {
            return;
        }
        Two::new()
    }};
}

#[test]
fn an_ordinary_program_reads_the_snapshot_it_is_told_to() {
    let two = two_or_return!();
    assert_eq!(two.answer(&two.file()), "other");
}

#[test]
fn without_the_variable_the_default_answers() {
    let two = two_or_return!();
    assert_eq!(which(&two.host.run(c_program("lookup"), &["alice"])), "default");
}

#[test]
fn a_relative_path_is_refused() {
    let two = two_or_return!();
    let line = format!("cd {}; ROSTER_SNAPSHOT=roster.v3.snap {AS_NOBODY}", two.folder.display());
    assert_eq!(two.answer_of(&c_program("lookup"), 0o755, &line), REFUSED);
    assert_eq!(two.answer(Path::new("")), REFUSED);
}

#[test]
fn a_symbolic_link_is_not_followed_wherever_it_stands() {
    let two = two_or_return!();
    let link = two.folder.join("link.snap");
    symlink(two.file(), &link).expect("link to the file");
    assert_eq!(two.answer(&link), REFUSED);
    let folder = two.host.path("link");
    symlink(&two.folder, &folder).expect("link to the folder");
    assert_eq!(two.answer(&folder.join("roster.v3.snap")), REFUSED);
}

#[test]
fn a_folder_that_others_can_write_is_not_trusted_unless_it_is_sticky() {
    let two = two_or_return!();
    set_mode(&two.folder, 0o777);
    assert_eq!(two.answer(&two.file()), REFUSED);
    set_mode(&two.folder, 0o1777);
    assert_eq!(two.answer(&two.file()), "other");
}

/// A directory further up is not trusted either: its writer may rename a directory and so replace all in it.
#[test]
fn a_folder_above_that_others_can_write_is_not_trusted() {
    let two = two_or_return!();
    let parent = two.folder.parent().expect("the host's folder").to_owned();
    set_mode(&parent, 0o757);
    assert_eq!(two.answer(&two.file()), REFUSED);
    set_mode(&parent, 0o755);
    assert_eq!(two.answer(&two.file()), "other");
}

#[test]
fn a_strangers_folder_is_not_trusted() {
    let two = two_or_return!();
    chown(&two.folder, Some(STRANGER), None).expect("chown");
    assert_eq!(two.answer(&two.file()), REFUSED);
}

#[test]
fn a_strangers_file_is_not_trusted() {
    let two = two_or_return!();
    chown(two.file(), Some(STRANGER), None).expect("chown");
    assert_eq!(two.answer(&two.file()), REFUSED);
}

#[test]
fn a_file_that_group_or_others_can_write_is_not_trusted() {
    let two = two_or_return!();
    for (mode, answer) in [(0o664, REFUSED), (0o646, REFUSED), (0o644, "other")] {
        set_mode(&two.file(), mode);
        assert_eq!(two.answer(&two.file()), answer, "{mode:o}");
    }
}

const AS_NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups /var/lib/program alice";

#[test]
fn an_ordinary_user_trusts_his_own_file_and_roots_and_no_strangers() {
    let two = two_or_return!();
    for (owner, answer) in [(0, "other"), (NOBODY, "other"), (STRANGER, REFUSED)] {
        chown(&two.folder, Some(owner), None).expect("chown");
        chown(two.file(), Some(owner), None).expect("chown");
        assert_eq!(two.answer_of(&c_program("lookup"), 0o755, AS_NOBODY), answer, "{owner}");
    }
}

/// An unprivileged caller's variable outlives a set-uid program that becomes root and starts another.
#[test]
fn root_program_ignores_variable() {
    let two = two_or_return!();
    let program = c_program("lookup");
    for line in ["/var/lib/program alice", "ROSTER_SNAPSHOT=nowhere /var/lib/program alice"] {
        assert_eq!(two.answer_of(&program, 0o755, line), "default");
    }
}

#[test]
fn a_set_uid_program_ignores_the_variable() {
    let two = two_or_return!();
    let program = c_program("lookup");
    assert_eq!(two.answer_of(&program, 0o755, AS_NOBODY), "other");
    assert_eq!(two.answer_of(&program, 0o4755, AS_NOBODY), "default");
}

/// There the C library's own guard of the environment was seen to fail.
#[test]
fn a_static_set_uid_program_ignores_the_variable() {
    let two = two_or_return!();
    let program = c_program_with("lookup", "lookup-static", &["-static"]);
    assert_eq!(two.answer_of(&program, 0o755, AS_NOBODY), "other");
    assert_eq!(two.answer_of(&program, 0o4755, AS_NOBODY), "default");
}

#[test]
fn a_set_gid_program_ignores_the_variable() {
    let two = two_or_return!();
    let program = c_program("lookup");
    let line =
        format!("chgrp {STRANGER} /var/lib/program; chmod 2755 /var/lib/program; {AS_NOBODY}");
    assert_eq!(two.answer_of(&program, 0o755, &line), "default");
}

/// A daemon that dropped its rights for a while acts for another user, even if the kernel reported none at its start.
#[test]
fn a_program_whose_real_and_effective_user_differ_ignores_the_variable() {
    let two = two_or_return!();
    let line = "/var/lib/program --effective 65534 alice";
    assert_eq!(two.answer_of(&c_program("lookup"), 0o755, line), "default");
}
