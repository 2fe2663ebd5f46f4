//! Where a path really leads, as Python's `os.path.realpath` finds out: what is not there, or cannot
//! be seen, is taken for no link.

use crate::host::Facts;
use crate::python::{is_absolute, join, normpath};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// More links on one way are a loop: the kernel gives up at 40.
const LINKS_MAX: usize = 1000;

/// The real path; empty where it is relative and the working folder is gone.
pub(crate) fn realpath(facts: &dyn Facts, path: &OsStr) -> Vec<u8> {
    walk(facts, path, &mut |_| {})
}

/// The same, telling of each path that is looked at on the way.
pub(crate) fn walk(facts: &dyn Facts, path: &OsStr, passes: &mut dyn FnMut(&Path)) -> Vec<u8> {
    let mut walker = Walker { facts, seen: HashMap::new(), links: 0, passes };
    let (real, _) = walker.follow(Vec::new(), path.as_bytes());
    if is_absolute(&real) {
        return normpath(&real);
    }
    match facts.working_folder() {
        Some(folder) => normpath(&join(folder.as_os_str().as_bytes(), &real)),
        None => Vec::new(),
    }
}

struct Walker<'f> {
    facts: &'f dyn Facts,
    /// Where each link leads; `None` while that is being found out.
    seen: HashMap<Vec<u8>, Option<Vec<u8>>>,
    links: usize,
    passes: &'f mut dyn FnMut(&Path),
}

impl Walker<'_> {
    /// The real path of `rest` as seen from `path`, and whether no loop was met.
    fn follow(&mut self, mut path: Vec<u8>, rest: &[u8]) -> (Vec<u8>, bool) {
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
                Some(None) => return (join(&next, rest), false),
                None if self.links == LINKS_MAX => return (join(&next, rest), false),
                None => {}
            }
            self.links += 1;
            self.seen.insert(next.clone(), None);
            let (real, whole) = self.follow(path, &target.into_os_string().into_vec());
            if !whole {
                return (join(&real, rest), false);
            }
            self.seen.insert(next, Some(real.clone()));
            path = real;
        }
        (path, true)
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
            String::from_utf8(real).unwrap().replace(root.to_str().unwrap(), "")
        };
        assert_eq!(real("b/../b//x"), "/a/x");
        assert_eq!(real("./a/.."), "");
        assert_eq!(real("loop/x/.."), "/loop");
        assert_eq!(real("no/../such"), "/such");
        assert_eq!(realpath(&host, OsStr::new("//x")), b"/x");
        let here = std::env::current_dir().unwrap();
        assert_eq!(realpath(&host, OsStr::new("x")), here.join("x").as_os_str().as_bytes());
    }
}
