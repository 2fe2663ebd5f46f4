// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that include a domain: `alice@corp` and `CORP\alice`. `fold` decides whether two names are equal.

/// A name with its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualifiedName<'a> {
    /// Name of the user or group in the domain.
    pub name: &'a [u8],
    /// Name of the domain, or its short name.
    pub domain: &'a [u8],
}

/// Returns the readings of a name as a name with a domain: by its last `@`, and by its first `\`. Neither part is
/// empty.
///
/// ```
/// use roster_names::{QualifiedName, qualified_forms};
///
/// let alice = |name| QualifiedName { name, domain: b"corp" };
/// assert_eq!(qualified_forms(b"alice@corp"), [Some(alice(b"alice")), None]);
/// assert_eq!(qualified_forms(b"corp\\alice"), [None, Some(alice(b"alice"))]);
/// assert_eq!(qualified_forms(b"a@b@corp"), [Some(alice(b"a@b")), None]);
/// assert_eq!(qualified_forms(b"alice"), [None, None]);
/// ```
#[inline(never)] // one copy in each module
#[must_use]
pub fn qualified_forms(name: &[u8]) -> [Option<QualifiedName<'_>>; 2] {
    let at = name.iter().rposition(|byte| *byte == b'@').and_then(|place| split(name, place));
    let backslash =
        name.iter().position(|byte| *byte == b'\\').and_then(|place| split(name, place));
    [
        at.map(|(name, domain)| QualifiedName { name, domain }),
        backslash.map(|(domain, name)| QualifiedName { name, domain }),
    ]
}

/// Splits a name at a separator into two parts that are not empty.
fn split(name: &[u8], place: usize) -> Option<(&[u8], &[u8])> {
    let (before, rest) = name.split_at_checked(place)?;
    let (_, after) = rest.split_first()?;
    (!before.is_empty() && !after.is_empty()).then_some((before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_forms_need_both_parts() {
        for name in [&b""[..], b"@", b"\\", b"alice@", b"@corp", b"corp\\", b"\\alice", b"alice"] {
            assert_eq!(qualified_forms(name), [None, None], "{}", name.escape_ascii());
        }
        let both = qualified_forms(b"corp\\alice@lab");
        assert_eq!(both[0], Some(QualifiedName { name: b"corp\\alice", domain: b"lab" }));
        assert_eq!(both[1], Some(QualifiedName { name: b"alice@lab", domain: b"corp" }));
    }
}
