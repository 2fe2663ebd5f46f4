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

/// Expands `%u` user name, `%U` uid, `%d` domain, `%f` name with the domain, `%l` first letter of the name, `%o` original
/// value, `%h` original value in lower case, `%%` percent sign. The configuration parser rejects other letters. Here
/// they stay unchanged.
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
            b'f' => {
                out.extend_from_slice(&user.name);
                out.push(b'@');
                out.extend_from_slice(domain.as_bytes());
            }
            b'l' => out.extend_from_slice(first_letter(&user.name)),
            b'o' => out.extend_from_slice(own),
            b'h' => out.extend_from_slice(&lower_case(own)),
            b'%' => out.push(b'%'),
            other => out.extend_from_slice(&[b'%', other]),
        }
    }
    out
}

/// Returns the first character of a name, or its first byte if the name is not UTF-8.
fn first_letter(name: &[u8]) -> &[u8] {
    let first = std::str::from_utf8(name).ok().and_then(|name| name.chars().next());
    &name[..first.map_or(1, char::len_utf8).min(name.len())]
}

/// Returns a text in lower case. Bytes that are not UTF-8 stay as they are.
fn lower_case(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        out.extend_from_slice(chunk.valid().to_lowercase().as_bytes());
        out.extend_from_slice(chunk.invalid());
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
    fn home_template_letters_expand_as_in_sssd() {
        let home = |template: &str, name: &'static str, own: &'static str| {
            let overrides =
                HomeShellOverrides { home: some(template), ..HomeShellOverrides::default() };
            let mut user = user(own, "");
            user.name = Cow::Borrowed(name.as_bytes());
            apply(&overrides, "corp", &mut user);
            String::from_utf8(user.dir.into_owned()).unwrap()
        };
        assert_eq!(home("/home/%l/%f", "alice", ""), "/home/a/alice@corp");
        assert_eq!(home("/home/%l/%u", "ägnes", ""), "/home/ä/ägnes");
        assert_eq!(home("/home/%l/%u", "", ""), "/home//");
        assert_eq!(home("%h", "alice", "/Home/ÄLICE"), "/home/älice");
        assert_eq!(home("/net%h%%l", "alice", "/Home/Alice"), "/net/home/alice%l");
        assert_eq!(
            (first_letter(b"\xff\xfe"), &*lower_case(b"A\xffB")),
            (&b"\xff"[..], &b"a\xffb"[..])
        );
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
