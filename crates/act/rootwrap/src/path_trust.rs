//! Whether anybody but root, or the user that asks, could change what is at a path: its owner and
//! mode, and those of all folders and links on the way. For strict mode; what comes of it is for the
//! callers to say.

use crate::host_facts::{FileKind, FileStatus, HostFacts};
use crate::python_strings::{is_absolute, join};
use crate::realpath::walk_realpath;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const STICKY: u32 = 0o1000;
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;

/// Why a path is not to be believed, or `None`.
pub(crate) fn distrust(facts: &dyn HostFacts, path: &OsStr) -> Option<String> {
    if is_plainly_trusted(facts, path.as_bytes()) { None } else { reason(facts, path) }
}

/// Whether an absolute path has no link in it and is to be believed. Most are so, and this takes no memory.
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
    // The folders above the working folder are on the way too.
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
            // What the link leads to is looked at next; the link itself is its maker's to change.
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
    // Who may not remove another's file from a folder may still add to it.
    if let Some((path, status)) = last
        && status.mode & BY_OTHERS != 0
    {
        reason.get_or_insert_with(|| format!("{} is writable by all", path.display()));
    }
    reason
}

/// Why somebody else than root and this user could change it.
pub(crate) fn distrust_of(user: u32, status: &FileStatus) -> Option<String> {
    let FileStatus { kind, uid, mode, .. } = *status;
    if uid != 0 && uid != user {
        return Some(format!("belongs to uid {uid}"));
    }
    // In a sticky folder nobody removes or renames what is another's.
    if kind == FileKind::Directory && mode & STICKY != 0 {
        return None;
    }
    is_writable_by(status)
}

/// Who may write besides the owner, in words.
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

    /// As the kernel has a list of tags, rights and ids.
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
        // There the link may be another's, wherever it leads.
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
                // It lets nobody write whose mask does not.
                mode(name, 0o755);
                assert_eq!(why("folder/file"), None);
            }
        }
        mode("folder/file", 0o757);
        assert!(why("folder/file").is_some());
        assert!(why("no").is_some_and(|why| why.ends_with(" does not exist")));
    }
}
