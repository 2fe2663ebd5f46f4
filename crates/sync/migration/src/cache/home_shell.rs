// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of `[nss]` and of the domain by which SSSD's NSS responder changes the entries of the cache: homes, shells,
//! hidden names, members.

use crate::ini;
use crate::sssd::{AD_FALLBACK_HOME, NOLOGIN_SHELL, SHELL_FALLBACK, SssdConf};
use std::collections::BTreeSet;

/// The settings that change entries in replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeShell {
    override_home: Option<String>,
    fallback_home: Option<String>,
    substring: Option<String>,
    override_shell: Option<String>,
    default_shell: Option<String>,
    vetoed: Vec<String>,
    allowed: Vec<String>,
    /// Paths in /etc/shells.
    etc_shells: BTreeSet<String>,
    shell_fallback: Option<String>,
    /// Users that are not served, also not as members.
    pub(super) hidden_users: BTreeSet<String>,
    /// Groups that are not served.
    pub(super) hidden_groups: BTreeSet<String>,
    /// Groups are served without members.
    pub ignores_members: bool,
}

impl HomeShell {
    /// Reads the settings of a domain. The domain's setting wins.
    #[must_use]
    pub fn for_domain(conf: &SssdConf, domain: &str) -> Self {
        let value = |name: &str| {
            let of_domain = conf.value(&format!("domain/{domain}"), name);
            let found = of_domain.or_else(|| conf.value("nss", name));
            found.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let of_domain = |name: &str| conf.value(&format!("domain/{domain}"), name);
        // The default of this provider wins over the setting of `[nss]`.
        let is_ad = of_domain("id_provider").is_some_and(|name| name.eq_ignore_ascii_case("ad"));
        let fallback_home = match (is_ad, of_domain("fallback_homedir")) {
            (true, None) => Some(AD_FALLBACK_HOME.to_owned()),
            (true, Some(template)) => Some(template.to_owned()),
            (false, _) => value("fallback_homedir"),
        };
        let hidden = |name: &str| {
            let lists = [conf.value("nss", name), conf.value(&format!("domain/{domain}"), name)];
            let names = lists.into_iter().flatten().flat_map(ini::list);
            names
                .map(|name| match name.rsplit_once('@') {
                    Some((plain, of)) if of.eq_ignore_ascii_case(domain) => plain.to_owned(),
                    _ => name.to_owned(),
                })
                .collect()
        };
        let shells = |name: &str| {
            let list = value(name).unwrap_or_default();
            ini::list(&list).into_iter().map(str::to_owned).collect()
        };
        Self {
            hidden_users: hidden("filter_users"),
            hidden_groups: hidden("filter_groups"),
            override_home: value("override_homedir"),
            fallback_home,
            substring: value("homedir_substring"),
            override_shell: value("override_shell"),
            default_shell: value("default_shell"),
            vetoed: shells("vetoed_shells"),
            allowed: shells("allowed_shells"),
            etc_shells: BTreeSet::new(),
            shell_fallback: value("shell_fallback"),
            ignores_members: value("ignore_group_members")
                .is_some_and(|value| value.eq_ignore_ascii_case("true")),
        }
    }

    /// Returns the settings on a host with these paths in /etc/shells.
    #[must_use]
    pub fn with_etc_shells(self, shells: impl IntoIterator<Item = String>) -> Self {
        Self { etc_shells: shells.into_iter().collect(), ..self }
    }

    pub(super) fn home(&self, name: &str, uid: u32, domain: &str, cached: Option<&str>) -> String {
        let cached = cached.filter(|home| !home.is_empty());
        let template = self.override_home.as_deref().or(cached).or(self.fallback_home.as_deref());
        let Some(template) = template else { return String::new() };
        if self.override_home.is_none() && cached.is_some() && !template.contains("%H") {
            return template.to_owned();
        }
        let mut out = String::new();
        let mut chars = template.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                out.push(char);
                continue;
            }
            match chars.next() {
                Some('u') => out += name,
                Some('U') => out += &uid.to_string(),
                Some('d') => out += domain,
                Some('f') => out += &format!("{name}@{domain}"),
                Some('l') => out.extend(name.chars().next()),
                Some('o') => out += cached.unwrap_or_default(),
                Some('h') => out += &cached.unwrap_or_default().to_lowercase(),
                Some('H') => out += self.substring.as_deref().unwrap_or("/home"),
                Some(other) => out.push(other),
                None => {}
            }
        }
        out
    }

    pub(super) fn shell(&self, cached: Option<&str>) -> String {
        if let Some(shell) = &self.override_shell {
            return shell.clone();
        }
        let cached = cached.filter(|shell| !shell.is_empty());
        let shell = cached.or(self.default_shell.as_deref()).unwrap_or_default();
        let has_lists = !self.vetoed.is_empty() || !self.allowed.is_empty();
        if shell.is_empty() || !has_lists {
            return shell.to_owned();
        }
        let is_one = |list: &[String]| list.iter().any(|one| one == shell);
        if !is_one(&self.vetoed) && self.etc_shells.contains(shell) {
            return shell.to_owned();
        }
        let allows_any = self.allowed.first().is_some_and(|first| first == "*");
        if is_one(&self.vetoed) || allows_any || is_one(&self.allowed) {
            return self.shell_fallback.clone().unwrap_or_else(|| SHELL_FALLBACK.to_owned());
        }
        NOLOGIN_SHELL.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn home_of_active_directory_has_own_fallback() {
        let mut conf = SssdConf::default();
        let text = "[nss]\nfallback_homedir = /h/%u\n[domain/a]\nid_provider = ad\n\
                    [domain/b]\nid_provider = ad\nfallback_homedir = /b/%u\n[domain/c]\nid_provider = ldap\n";
        conf.add(Path::new("sssd.conf"), text.as_bytes()).unwrap();
        let homes = ["a", "b", "c"]
            .map(|domain| HomeShell::for_domain(&conf, domain).home("alice", 7, domain, None));
        assert_eq!(homes, ["/home/a/alice", "/b/alice", "/h/alice"]);
    }

    #[test]
    fn home_of_override_and_fallback_expands() {
        let mut conf = SssdConf::default();
        let text = "[nss]\noverride_homedir = /h/%d/%l/%u\ndefault_shell = /bin/zsh\nvetoed_shells = /bin/x\n\
                    [domain/corp]\noverride_homedir = %H/%f%%%U\nhomedir_substring = /net\n";
        conf.add(Path::new("sssd.conf"), text.as_bytes()).unwrap();
        let corp = HomeShell::for_domain(&conf, "corp");
        assert_eq!(corp.home("alice", 7, "corp", Some("/home/x")), "/net/alice@corp%7");
        let lab = HomeShell::for_domain(&conf, "lab");
        let lab = lab.with_etc_shells(["/bin/sh", "/bin/x", "/bin/zsh"].map(str::to_owned));
        assert_eq!(lab.home("alice", 7, "lab", None), "/h/lab/a/alice");
        assert_eq!(
            [Some("/bin/sh"), Some("/bin/x"), None].map(|shell| lab.shell(shell)),
            ["/bin/sh", "/bin/sh", "/bin/zsh"]
        );
        assert_eq!(lab.shell(Some("/bin/y")), "/sbin/nologin");
        let text = "[domain/lab]\nallowed_shells = /bin/y\nshell_fallback = /bin/dash\n";
        conf.add(Path::new("conf.d/0.conf"), text.as_bytes()).unwrap();
        let lab = HomeShell::for_domain(&conf, "lab");
        assert_eq!(
            ["/bin/y", "/bin/x", "/bin/z"].map(|shell| lab.shell(Some(shell))),
            ["/bin/dash", "/bin/dash", "/sbin/nologin"]
        );
        let text = "[nss]\nfilter_users = root, a@CORP, b@lab\n[domain/corp]\nfilter_users = c\n";
        conf.add(Path::new("conf.d/1.conf"), text.as_bytes()).unwrap();
        let hidden = HomeShell::for_domain(&conf, "corp").hidden_users;
        assert_eq!(hidden.into_iter().collect::<Vec<_>>(), ["a", "b@lab", "c", "root"]);
        let plain = HomeShell::default();
        assert_eq!(plain.home("alice", 7, "corp", Some("/100%/x")), "/100%/x");
    }
}
