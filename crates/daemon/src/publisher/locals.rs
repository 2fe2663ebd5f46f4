//! The host's own accounts, read from its passwd and group files.

use super::admit::Locals;
use anyhow::{Context as _, ensure};
use roster_record::text::{Line, group_line, passwd_line};
use roster_record::{Group, User, is_nis};
use std::path::Path;

/// Reads both files. Lines that `files` passes over are passed over: they are nobody's.
pub fn read(passwd: &Path, group: &Path) -> anyhow::Result<Locals> {
    let mut locals = Locals::default();
    for_each_line(passwd, |line| {
        if let Line::Entry(User { name, uid, .. }) = passwd_line(line)
            && !is_nis(name)
        {
            locals.user_names.insert(name.to_owned());
            locals.uids.insert(uid);
        }
    })?;
    // Whoever writes it in place empties it first.
    ensure!(locals.uids.contains(&0), "{} has no user 0: it is not whole", passwd.display());
    for_each_line(group, |line| {
        if let Line::Entry(line) = group_line(line) {
            let Group { name, gid, .. } = line.group;
            if !is_nis(name) {
                locals.group_names.insert(name.to_owned());
                locals.gids.insert(gid);
            }
        }
    })?;
    Ok(locals)
}

fn for_each_line(path: &Path, act: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.split(|&byte| byte == b'\n').for_each(act);
    Ok(())
}
