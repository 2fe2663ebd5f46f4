// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares a list of hosts or services of an entry with the host or the service of a login. The parent module `access`
//! decides.
//!
//! `!value` denies, whatever else is listed. A value or `*` allows. Case does not matter.

/// The result of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMatch<'a> {
    /// The value that denies.
    DeniedBy(&'a [u8]),
    /// The value that allows; no value denies.
    AllowedBy(&'a [u8]),
    /// No value matches.
    NoMatch,
    /// The list has no value.
    Empty,
}

/// Kind of the values of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedValues {
    /// Names of hosts. A dot at the end does not matter.
    Hosts,
    /// Names of PAM services.
    Services,
}

impl ListedValues {
    fn are_equal(self, one: &[u8], other: &[u8]) -> bool {
        let plain = |name| match self {
            Self::Hosts => <[u8]>::strip_suffix(name, b".").unwrap_or(name),
            Self::Services => name,
        };
        let (one, other): (&[u8], &[u8]) = (plain(one), plain(other));
        !one.is_empty() && one.eq_ignore_ascii_case(other)
    }
}

/// Compares a list with the names of a host, or with a service.
pub fn match_list<'a>(
    kind: ListedValues,
    values: impl Iterator<Item = &'a [u8]>,
    names: &[&str],
) -> ListMatch<'a> {
    let is_named = |value: &[u8]| names.iter().any(|name| kind.are_equal(name.as_bytes(), value));
    let mut found = ListMatch::Empty;
    for value in values {
        match value.strip_prefix(b"!") {
            Some(denied) if denied == b"*" || is_named(denied) => {
                return ListMatch::DeniedBy(value);
            }
            None if value == b"*" || is_named(value) => found = ListMatch::AllowedBy(value),
            _ if found == ListMatch::Empty => found = ListMatch::NoMatch,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(kind: ListedValues, values: &[&'static str], names: &[&str]) -> ListMatch<'static> {
        match_list(kind, values.iter().map(|value| value.as_bytes()), names)
    }

    #[test]
    fn value_list_deny_wins_over_any_value() {
        let ours = ["web1", "web1.example.com"];
        let hosts = |values: &[&'static str]| matched(ListedValues::Hosts, values, &ours);
        assert_eq!(hosts(&[]), ListMatch::Empty);
        for allowing in ["web1", "WEB1.Example.COM", "web1.example.com.", "*"] {
            for values in [vec![allowing], vec!["web2", allowing], vec![allowing, "!web2", "web2"]]
            {
                assert_eq!(hosts(&values), ListMatch::AllowedBy(allowing.as_bytes()), "{values:?}");
            }
            for denying in ["!web1", "!WEB1.example.com.", "!*"] {
                for values in [[allowing, denying], [denying, allowing]] {
                    assert_eq!(hosts(&values), ListMatch::DeniedBy(denying.as_bytes()));
                }
            }
        }
        for other in ["web2", "web1x", "we", "web*", "!", ".", "example.com", "!web2", " web1"] {
            assert_eq!(hosts(&[other]), ListMatch::NoMatch, "{other}");
        }
    }

    #[test]
    fn value_list_services_keep_their_dots() {
        let services =
            |service: &str| matched(ListedValues::Services, &["sshd", "!cron"], &[service]);
        assert_eq!(services("SSHD"), ListMatch::AllowedBy(b"sshd"));
        assert_eq!(services("cron"), ListMatch::DeniedBy(b"!cron"));
        for other in ["sshd.", "*", "!cron", "sshd\n", ""] {
            assert_eq!(services(other), ListMatch::NoMatch, "{other:?}");
        }
    }
}
