// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overrides of home directories and shells: applies a domain's [`HomeShellOverrides`] to a user. Every provider calls
//! it before it reports a user.

use crate::DirectoryUser;
use roster_config::HomeShellOverrides;
use std::borrow::Cow;

/// Sets the configured home directory and shell. The fallback values only replace empty ones.
pub fn apply(overrides: &HomeShellOverrides, domain: &str, user: &mut DirectoryUser<'_>) {
    let HomeShellOverrides { home, fallback_home, shell, fallback_shell } = overrides;
    let pick = |always: &Option<String>, fallback: &Option<String>, own: &[u8]| {
        let template = match (always, own) {
            (Some(always), _) => always,
            (None, []) => fallback.as_ref()?,
            (None, _) => return None,
        };
        Some(expand(template, domain, user, own))
    };
    let dir = pick(home, fallback_home, &user.dir);
    let shell = pick(shell, fallback_shell, &user.shell);
    if let Some(dir) = dir {
        user.dir = Cow::Owned(dir);
    }
    if let Some(shell) = shell {
        user.shell = Cow::Owned(shell);
    }
}

/// Expands `%u` user name, `%U` uid, `%d` domain, `%o` original value, `%%` percent sign. The configuration parser
/// rejects other letters. Here they stay unchanged.
fn expand(template: &str, domain: &str, user: &DirectoryUser<'_>, own: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len() + user.name.len());
    let mut rest = template.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let Some((&letter, after)) = rest.split_first() else {
            out.push(byte);
            break;
        };
        rest = after;
        match letter {
            b'u' => out.extend_from_slice(&user.name),
            b'U' => out.extend_from_slice(user.uid.to_string().as_bytes()),
            b'd' => out.extend_from_slice(domain.as_bytes()),
            b'o' => out.extend_from_slice(own),
            b'%' => out.push(b'%'),
            other => out.extend_from_slice(&[b'%', other]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;

    fn user(dir: &'static str, shell: &'static str) -> DirectoryUser<'static> {
        DirectoryUser {
            name: Cow::Borrowed(b"alice"),
            uid: 5000,
            gid: 5000,
            gecos: Cow::Borrowed(b""),
            dir: Cow::Borrowed(dir.as_bytes()),
            shell: Cow::Borrowed(shell.as_bytes()),
            reference: Cow::Borrowed(b"alice"),
            account: Account::default(),
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn what_is_set_replaces_and_what_is_a_fallback_fills() {
        let overrides = HomeShellOverrides {
            home: some("/srv/%d/%u/%U%%"),
            fallback_shell: some("/bin/dash"),
            ..HomeShellOverrides::default()
        };
        let mut with = user("/home/alice", "/bin/zsh");
        apply(&overrides, "corp", &mut with);
        assert_eq!((&*with.dir, &*with.shell), (&b"/srv/corp/alice/5000%"[..], &b"/bin/zsh"[..]));
        let mut without = user("", "");
        apply(&overrides, "corp", &mut without);
        assert_eq!(&*without.shell, b"/bin/dash");
    }

    #[test]
    fn the_directory_s_own_value_can_be_part_of_a_template() {
        let overrides =
            HomeShellOverrides { home: some("/net%o%"), ..HomeShellOverrides::default() };
        let mut user = user("/home/alice", "");
        apply(&overrides, "corp", &mut user);
        assert_eq!((&*user.dir, &*user.shell), (&b"/net/home/alice%"[..], &b""[..]));
    }
}
