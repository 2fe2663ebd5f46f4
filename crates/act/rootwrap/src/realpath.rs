// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolution of links as by Python's `os.path.realpath`. A path that does not exist, or is not visible, counts as no
//! link. `path_trust` observes the paths on the way.

use crate::host_facts::HostFacts;
use crate::python_strings::{is_absolute, join, normpath};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Limit of links. The kernel stops at 40.
const LINKS_MAX: usize = 1000;

/// Reasons for which a path is resolved only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// A link leads to itself, possibly through others.
    Loop,
    /// There are more than 1,000 links.
    TooManyLinks,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loop => write!(f, "contains a link that leads to itself"),
            Self::TooManyLinks => write!(f, "contains more than {LINKS_MAX} links"),
        }
    }
}

/// A resolved path.
pub(crate) struct ResolvedPath {
    /// The path. Empty if it is relative and the working directory does not exist.
    pub(crate) path: Vec<u8>,
    /// The reason for which it may contain links.
    pub(crate) error: Option<ResolveError>,
}

pub(crate) fn realpath(facts: &dyn HostFacts, path: &OsStr) -> ResolvedPath {
    walk_realpath(facts, path, &mut |_| {})
}

/// Resolves a path, and reports each path on the way.
pub(crate) fn walk_realpath(
    facts: &dyn HostFacts,
    path: &OsStr,
    passes: &mut dyn FnMut(&Path),
) -> ResolvedPath {
    let mut walker = PathWalker { facts, seen: HashMap::new(), links: 0, visit: passes };
    let (real, unresolved) = walker.follow(Vec::new(), path.as_bytes());
    let path = match facts.working_dir() {
        _ if is_absolute(&real) => normpath(&real),
        Some(folder) => normpath(&join(folder.as_os_str().as_bytes(), &real)),
        None => Vec::new(),
    };
    ResolvedPath { path, error: unresolved }
}

struct PathWalker<'f> {
    facts: &'f dyn HostFacts,
    /// Resolved links. `None` during the resolution.
    seen: HashMap<Vec<u8>, Option<Vec<u8>>>,
    links: usize,
    visit: &'f mut dyn FnMut(&Path),
}

impl PathWalker<'_> {
    /// Resolves `rest` as seen from `path`. Returns the reason for links that remain.
    fn follow(&mut self, mut path: Vec<u8>, rest: &[u8]) -> (Vec<u8>, Option<ResolveError>) {
        let mut rest = rest;
        if let Some(behind) = rest.strip_prefix(b"/") {
            rest = behind;
            path = b"/".to_vec();
        }
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'/');
            let name = &rest[..end.unwrap_or(rest.len())];
            rest = end.map_or(&[][..], |end| &rest[end + 1..]);
            match name {
                b"" | b"." => continue,
                b".." => {
                    path = parent_path(&path);
                    continue;
                }
                _ => {}
            }
            let next = join(&path, name);
            let shown = PathBuf::from(OsStr::from_bytes(&next));
            (self.visit)(&shown);
            let Some(target) = self.facts.link(&shown) else {
                path = next;
                continue;
            };
            match self.seen.get(&next) {
                Some(Some(known)) => {
                    path = known.clone();
                    continue;
                }
                Some(None) => return (join(&next, rest), Some(ResolveError::Loop)),
                None if self.links == LINKS_MAX => {
                    return (join(&next, rest), Some(ResolveError::TooManyLinks));
                }
                None => {}
            }
            self.links += 1;
            self.seen.insert(next.clone(), None);
            let (real, unresolved) = self.follow(path, &target.into_os_string().into_vec());
            if unresolved.is_some() {
                return (join(&real, rest), unresolved);
            }
            self.seen.insert(next, Some(real.clone()));
            path = real;
        }
        (path, None)
    }
}

/// Returns the parent of a path that contains `..` only at its start.
fn parent_path(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return b"..".to_vec();
    }
    let name_start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let folder = crate::python_strings::dirname(path);
    if &path[name_start..] == b".." { join(&join(folder, b".."), b"..") } else { folder.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_what_is_not_there_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let host = LocalHost::new();
        let real = |path: &str| {
            let real = realpath(&host, root.join(path).as_os_str());
            assert_eq!(real.error.is_some(), path.starts_with("loop"), "{path}");
            String::from_utf8(real.path).unwrap().replace(root.to_str().unwrap(), "")
        };
        assert_eq!(real("b/../b//x"), "/a/x");
        assert_eq!(real("./a/.."), "");
        assert_eq!(real("loop/x/.."), "/loop");
        assert_eq!(real("no/../such"), "/such");
        assert_eq!(realpath(&host, OsStr::new("//x")).path, b"/x");
        let here = std::env::current_dir().unwrap();
        assert_eq!(realpath(&host, OsStr::new("x")).path, here.join("x").as_os_str().as_bytes());
    }

    #[test]
    fn realpath_beyond_link_limit_is_unresolved() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let mut path = root.clone();
        for number in 0..=LINKS_MAX {
            let name = format!("l{number}");
            symlink(".", root.join(&name)).unwrap();
            path.push(name);
        }
        let host = LocalHost::new();
        let unresolved = |path: &Path| realpath(&host, path.as_os_str()).error;
        assert_eq!(unresolved(&path), Some(ResolveError::TooManyLinks));
        // A link that occurs again is not counted.
        assert_eq!(unresolved(&path.parent().unwrap().join("l0")), None);
    }
}
