// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trust in a path: only root and the present user may be able to change it. It depends on owner and mode of the file,
//! and of all directories and links on the way. Callers decide about the consequence. `host_facts` reads the owners and
//! modes.

use crate::host_facts::{FileKind, FileStatus, HostFacts};
use crate::python_strings::{is_absolute, join};
use crate::realpath::walk_realpath;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const STICKY: u32 = 0o1000;
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;

/// Returns the reason for which a path is not trusted.
pub(crate) fn distrust(facts: &dyn HostFacts, path: &OsStr) -> Option<String> {
    if is_plainly_trusted(facts, path.as_bytes()) { None } else { reason(facts, path) }
}

/// Returns true for a trusted absolute path without links. Most paths are so, and this takes no memory.
fn is_plainly_trusted(facts: &dyn HostFacts, path: &[u8]) -> bool {
    let user = facts.user();
    let status = |path: &[u8]| {
        let status = facts.status(Path::new(OsStr::from_bytes(path)))?;
        distrust_of(user, &status).is_none().then_some(status)
    };
    let Some(names) = path.strip_prefix(b"/") else { return false };
    if status(b"/").is_none() {
        return false;
    }
    let (mut end, mut last) = (0, None);
    for name in names.split(|&byte| byte == b'/') {
        end += 1 + name.len();
        if matches!(name, b"" | b"." | b"..") {
            return false;
        }
        let passed = &path[..end];
        if facts.link(Path::new(OsStr::from_bytes(passed))).is_some() {
            return false;
        }
        last = status(passed);
        if last.is_none() {
            return false;
        }
    }
    last.is_some_and(|last| last.mode & BY_OTHERS == 0)
}

fn reason(facts: &dyn HostFacts, path: &OsStr) -> Option<String> {
    // Directories above the working directory are on the way, too.
    let path = match facts.working_dir() {
        Some(folder) if !is_absolute(path.as_bytes()) => {
            OsString::from_vec(join(folder.as_os_str().as_bytes(), path.as_bytes()))
        }
        _ => path.to_owned(),
    };
    let mut reason = None;
    let mut last = None;
    let mut look = |passed: &Path| {
        if facts.link(passed).is_some() {
            // The target of the link is checked next. The owner of the directory can change the link.
            let folder = passed.parent().and_then(|folder| facts.status(folder));
            if folder.is_none_or(|folder| is_writable_by(&folder).is_some()) {
                reason.get_or_insert_with(|| {
                    format!("{} is a link in a directory that others can write", passed.display())
                });
            }
            return;
        }
        let Some(status) = facts.status(passed) else {
            reason.get_or_insert_with(|| format!("{} does not exist", passed.display()));
            return;
        };
        if let Some(why) = distrust_of(facts.user(), &status) {
            reason.get_or_insert_with(|| format!("{} {why}", passed.display()));
        }
        last = Some((passed.to_owned(), status));
    };
    look(Path::new("/"));
    if let Some(why) = walk_realpath(facts, &path, &mut look).error {
        reason.get_or_insert_with(|| format!("{} {why}", path.display()));
    }
    // In a sticky directory other users can add files.
    if let Some((path, status)) = last
        && status.mode & BY_OTHERS != 0
    {
        reason.get_or_insert_with(|| format!("{} is writable by all", path.display()));
    }
    reason
}

/// Returns the reason for which another user than root and this one could change a file.
pub(crate) fn distrust_of(user: u32, status: &FileStatus) -> Option<String> {
    let FileStatus { kind, uid, mode, .. } = *status;
    if uid != 0 && uid != user {
        return Some(format!("belongs to uid {uid}"));
    }
    // In a sticky directory users can remove and rename only their own files.
    if kind == FileKind::Directory && mode & STICKY != 0 {
        return None;
    }
    is_writable_by(status)
}

/// Returns the users with write access besides the owner, in words.
fn is_writable_by(status: &FileStatus) -> Option<String> {
    if status.mode & BY_OTHERS != 0 {
        return Some("is writable by all".into());
    }
    match status.mode & BY_GROUP != 0 {
        true if status.gid != 0 => Some(format!("is writable by gid {}", status.gid)),
        true if status.has_acl => {
            Some("has an access control list that allows others to write".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Encodes tags, rights and ids as the kernel does.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    #[test]
    fn what_others_could_change_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let host = LocalHost::new();
        let mode = |name: &str, mode: u32| {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let why = |name: &str| {
            let path = root.join(name);
            let why = distrust(&host, path.as_os_str());
            assert_eq!(why, reason(&host, path.as_os_str()), "{name}");
            why
        };
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/file"), "").unwrap();
        mode("folder/file", 0o755);
        mode("folder", 0o755);
        assert_eq!(why("folder/file"), None);
        symlink("folder", root.join("link")).unwrap();
        assert_eq!(why("link/file"), None);

        mode("folder", 0o777);
        let expected = format!("{} is writable by all", root.join("folder").display());
        assert_eq!(why("folder/file"), Some(expected.clone()));
        assert_eq!(why("link/file"), Some(expected.clone()));
        mode("folder", 0o1777);
        assert_eq!(why("folder/file"), None);
        assert_eq!(why("folder"), Some(expected));
        // In a sticky directory the link may belong to another user.
        symlink("file", root.join("folder/another")).unwrap();
        assert!(why("folder/another").is_some_and(|why| why.ends_with("that others can write")));
        mode("folder", 0o755);
        assert_eq!(why("folder/another"), None);
        mode("folder/file", 0o775);
        if rustix::process::geteuid().is_root() {
            assert_eq!(why("folder/file"), None);
            for name in ["folder/file", "folder"] {
                mode(name, 0o775);
                let names_nobody =
                    acl(&[(1, 7, !0), (2, 7, 65534), (4, 5, !0), (16, 7, !0), (32, 5, !0)]);
                let flags = rustix::fs::XattrFlags::empty();
                let list = "system.posix_acl_access";
                rustix::fs::setxattr(root.join(name), list, &names_nobody, flags).unwrap();
                assert!(why("folder/file").is_some_and(|why| why.contains("access control list")));
                // The mask without write access limits the entry.
                mode(name, 0o755);
                assert_eq!(why("folder/file"), None);
            }
        }
        mode("folder/file", 0o757);
        assert!(why("folder/file").is_some());
        assert!(why("no").is_some_and(|why| why.ends_with(" does not exist")));
    }
}
