// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of paths through symbolic links.

use roster_module_sys::syscalls::{open, open_following_symlinks};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

#[test]
fn a_link_is_followed_only_where_an_administrator_may_have_made_it() {
    let folder = std::env::temp_dir().join(format!("roster-calls-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (file, link) = (folder.join("file"), folder.join("link"));
    fs::write(&file, "text").unwrap();
    symlink(&file, &link).unwrap();
    let path = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).unwrap();
    let opened = [&file, &link].map(|one| {
        let one = path(one);
        (
            open(None, &one, libc::O_RDONLY).is_ok(),
            open_following_symlinks(&one, libc::O_RDONLY).is_ok(),
        )
    });
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(opened, [(true, true), (false, true)]);
}
