//! Where a path really leads, as Python's `os.path.realpath` finds out: what is not there, or cannot
//! be seen, is taken for no link.

use crate::host::Facts;
use crate::python::{is_absolute, join, normpath};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The kernel gives up at 40 links.
const LINKS_MAX: usize = 1000;

/// Why a path is not resolved to its end. Links behind that place were not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// A link leads to itself, perhaps by way of others.
    Loop,
    /// There are more than 1,000 links.
    TooManyLinks,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loop => write!(f, "leads through a link to itself"),
            Self::TooManyLinks => write!(f, "leads through more than {LINKS_MAX} links"),
        }
    }
}

/// A path with its links resolved.
pub(crate) struct Real {
    /// Empty where the path is relative and the working directory is gone.
    pub(crate) path: Vec<u8>,
    /// Why links are left in it, if they may be.
    pub(crate) unresolved: Option<Unresolved>,
}

/// The real path.
pub(crate) fn realpath(facts: &dyn Facts, path: &OsStr) -> Real {
    walk(facts, path, &mut |_| {})
}

/// The same, telling of each path that is looked at on the way.
pub(crate) fn walk(facts: &dyn Facts, path: &OsStr, passes: &mut dyn FnMut(&Path)) -> Real {
    let mut walker = Walker { facts, seen: HashMap::new(), links: 0, passes };
    let (real, unresolved) = walker.follow(Vec::new(), path.as_bytes());
    let path = match facts.working_folder() {
        _ if is_absolute(&real) => normpath(&real),
        Some(folder) => normpath(&join(folder.as_os_str().as_bytes(), &real)),
        None => Vec::new(),
    };
    Real { path, unresolved }
}

struct Walker<'f> {
    facts: &'f dyn Facts,
    /// Where each link leads; `None` while that is being found out.
    seen: HashMap<Vec<u8>, Option<Vec<u8>>>,
    links: usize,
    passes: &'f mut dyn FnMut(&Path),
}

impl Walker<'_> {
    /// The real path of `rest` as seen from `path`, and what kept links in it.
    fn follow(&mut self, mut path: Vec<u8>, rest: &[u8]) -> (Vec<u8>, Option<Unresolved>) {
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
                    path = above(&path);
                    continue;
                }
                _ => {}
            }
            let next = join(&path, name);
            let shown = PathBuf::from(OsStr::from_bytes(&next));
            (self.passes)(&shown);
            let Some(target) = self.facts.link(&shown) else {
                path = next;
                continue;
            };
            match self.seen.get(&next) {
                Some(Some(known)) => {
                    path = known.clone();
                    continue;
                }
                Some(None) => return (join(&next, rest), Some(Unresolved::Loop)),
                None if self.links == LINKS_MAX => {
                    return (join(&next, rest), Some(Unresolved::TooManyLinks));
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

/// One step up from a path that holds `..` at its start only.
fn above(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return b"..".to_vec();
    }
    let name_start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let folder = crate::python::dirname(path);
    if &path[name_start..] == b".." { join(&join(folder, b".."), b"..") } else { folder.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_what_is_not_there_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let host = ThisHost::new();
        let real = |path: &str| {
            let real = realpath(&host, root.join(path).as_os_str());
            assert_eq!(real.unresolved.is_some(), path.starts_with("loop"), "{path}");
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
        let host = ThisHost::new();
        let unresolved = |path: &Path| realpath(&host, path.as_os_str()).unresolved;
        assert_eq!(unresolved(&path), Some(Unresolved::TooManyLinks));
        // A link that is met again is not counted.
        assert_eq!(unresolved(&path.parent().unwrap().join("l0")), None);
    }
}
