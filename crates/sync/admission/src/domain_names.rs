// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of a domain's entries: the form in which they are served, and the names that find them. `roster_names`
//! decides which spellings are equal.

use roster_config::{DomainConfig, NameCase, NameConfig};
use roster_names::{compose, equals_folded, fold, is_folded, qualified_forms};
use std::borrow::Cow;

/// The form in which a domain names its users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainNames {
    domain: String,
    config: NameConfig,
    /// Names and short names of the other domains.
    others: Vec<String>,
}

impl DomainNames {
    /// Makes the names of a domain. `all` has the names and the short names of all domains.
    pub fn new<'n>(
        domain: &str,
        config: &NameConfig,
        all: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Self {
        let others = all.into_iter().filter(|(name, _)| *name != domain);
        let others = others.flat_map(|(name, short_name)| [name, short_name]);
        let others = others.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Self { domain: domain.to_owned(), config: config.clone(), others }
    }

    /// Makes the names of a domain without other domains.
    #[must_use]
    pub fn of_domain(domain: &DomainConfig) -> Self {
        Self::new(&domain.name, &domain.names, [])
    }

    /// Returns the name of the domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the configuration of the names.
    #[must_use]
    pub fn config(&self) -> &NameConfig {
        &self.config
    }

    /// Returns whether any spelling of a name finds an entry.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.config.case.ignores_case()
    }

    /// Returns whether entries are served with the domain only.
    #[must_use]
    pub fn is_qualified(&self) -> bool {
        self.config.qualified
    }

    /// Returns whether the domain has that name or short name.
    #[must_use]
    pub fn is_called(&self, name: &[u8]) -> bool {
        let own = [&self.domain, &self.config.short_name];
        own.iter().any(|own| !own.is_empty() && equals_folded(own.as_bytes(), name))
    }

    /// Returns the name of an entry without its domain: as the backend has it, or in the form of a domain that ignores
    /// case. That form is composed (NFC), so that two encodings of one text are one name.
    #[must_use]
    pub fn base<'n>(&self, native: &'n [u8]) -> Cow<'n, [u8]> {
        if self.config.case == NameCase::Sensitive {
            return Cow::Borrowed(native);
        }
        let composed = compose(native);
        match self.config.case {
            NameCase::Insensitive if !is_folded(&composed) => {
                Cow::Owned(fold(&composed).into_owned())
            }
            _ => composed,
        }
    }

    /// Returns a base name with the domain. A name that already ends with the domain stays as it is.
    #[must_use]
    pub fn qualified<'n>(&self, base: &'n [u8]) -> Cow<'n, [u8]> {
        let [at, _] = qualified_forms(base);
        match at.is_some_and(|form| self.is_called(form.domain)) {
            true => Cow::Borrowed(base),
            false => Cow::Owned([base, b"@", self.domain.as_bytes()].concat()),
        }
    }

    /// Returns the name under which an entry is known, unless an entry of another domain has it.
    #[must_use]
    pub fn preferred<'n>(&self, native: &'n [u8]) -> Cow<'n, [u8]> {
        let base = self.base(native);
        match self.config.qualified {
            true => Cow::Owned(self.qualified(&base).into_owned()),
            false => base,
        }
    }

    /// Returns the name of a request in the form of preferred names. Readers of the snapshot do not compose names, so
    /// this form does not either.
    #[must_use]
    pub fn requested<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.config.qualified {
            true => self.qualified(name),
            false => Cow::Borrowed(name),
        }
    }

    /// Returns whether a name without a domain means the entry of that base name.
    #[must_use]
    pub fn matches(&self, base: &[u8], name: &[u8]) -> bool {
        match self.ignores_case() {
            true => equals_folded(base, name),
            false => base == name,
        }
    }

    /// Returns a name as the domain compares it.
    #[must_use]
    pub fn comparable<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.ignores_case() {
            true => fold(name),
            false => Cow::Borrowed(name),
        }
    }

    /// Returns whether a name has the form of a name with this domain: `alice@corp` means the entry `alice`.
    #[must_use]
    pub fn is_of_own_domain(&self, name: &[u8]) -> bool {
        qualified_forms(name).into_iter().flatten().any(|form| self.is_called(form.domain))
    }

    /// Returns whether a name means an entry of another domain.
    #[must_use]
    pub fn is_of_other_domain(&self, name: &[u8]) -> bool {
        qualified_forms(name).into_iter().flatten().any(|form| {
            self.others.iter().any(|other| equals_folded(other.as_bytes(), form.domain))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(case: NameCase, qualified: bool) -> DomainNames {
        let config =
            NameConfig { case, qualified, short_name: "CORP".into(), ..NameConfig::default() };
        DomainNames::new("corp.example", &config, [("corp.example", "CORP"), ("lab", "")])
    }

    #[test]
    fn names_are_served_by_case_of_domain() {
        let decomposed = "Zoe\u{308}".as_bytes();
        for (case, served) in [
            (NameCase::Sensitive, "Zoe\u{308}"),
            (NameCase::Insensitive, "zo\u{eb}"),
            (NameCase::Preserving, "Zo\u{eb}"),
        ] {
            assert_eq!(*names(case, false).base(decomposed), *served.as_bytes(), "{case:?}");
        }
        assert_eq!(*names(NameCase::Preserving, false).base(b"A\xff"), *b"A\xff");
    }

    #[test]
    fn names_match_in_any_case_where_ignored() {
        let exact = names(NameCase::Sensitive, false);
        assert!(exact.matches(b"Alice", b"Alice") && !exact.matches(b"Alice", b"alice"));
        let any = names(NameCase::Preserving, false);
        assert!(any.matches(b"Alice", b"ALICE") && !any.matches(b"Alice", b"alicia"));
    }

    #[test]
    fn names_with_domain_are_qualified_once() {
        let corp = names(NameCase::Sensitive, true);
        assert_eq!(*corp.preferred(b"alice"), *b"alice@corp.example");
        assert_eq!(*corp.preferred(b"alice@Corp.Example"), *b"alice@Corp.Example");
        assert_eq!(*corp.preferred(b"alice@lab"), *b"alice@lab@corp.example");
        assert_eq!(*names(NameCase::Sensitive, false).preferred(b"alice"), *b"alice");
    }

    #[test]
    fn names_of_other_domains_are_recognised() {
        let corp = names(NameCase::Sensitive, false);
        for name in [&b"alice@lab"[..], b"alice@LAB", b"Lab\\alice", b"a@b@lab"] {
            assert!(corp.is_of_other_domain(name), "{}", name.escape_ascii());
        }
        for name in
            [&b"alice"[..], b"alice@corp", b"alice@corp.example", b"alice@example.com", b"lab"]
        {
            assert!(!corp.is_of_other_domain(name), "{}", name.escape_ascii());
        }
    }
}
