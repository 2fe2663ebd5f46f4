// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of search bases: their form in TOML, and the form of SSSD, which is refused with the text to write instead.
//! `value_syntax` parses the DN, and `toml_section` the list.

use crate::value_syntax;
use crate::{SearchBase, SearchScope};
use roster_messages::CodedError;
use roster_messages::table::config as codes;

/// Checks the DN of a base. `place` is the text before the value that replaces a text of SSSD's form.
pub(crate) fn base_dn(text: &str, place: &str) -> Result<(), CodedError> {
    match sssd_bases(text) {
        Some(bases) => {
            let written = if place.is_empty() { elements(&bases) } else { list(&bases) };
            let error = format!("{text:?} has the form of another program");
            Err(CodedError::new(&codes::BASE_OF_OTHER_FORM, error)
                .fix(format!("Write {place}{written}.")))
        }
        None => value_syntax::dn(text),
    }
}

/// Returns the bases of a text in SSSD's form, `base?scope?filter`, which may repeat. `None` for another text.
fn sssd_bases(text: &str) -> Option<Vec<SearchBase>> {
    let parts: Vec<&str> = text.split('?').collect();
    if parts.len() < 2 {
        return None;
    }
    let mut bases = Vec::new();
    for base in parts.chunks(3) {
        let (dn, scope) = (base.first()?.trim(), base.get(1).copied().unwrap_or_default());
        value_syntax::dn(dn).ok()?;
        let scope = match scope.trim().to_ascii_lowercase().as_str() {
            "" | "sub" | "subtree" => SearchScope::Subtree,
            "one" | "onelevel" => SearchScope::One,
            "base" => SearchScope::Base,
            _ => return None,
        };
        let filter = base.get(2).map(|filter| filter.trim()).filter(|filter| !filter.is_empty());
        let filter = filter.map(|filter| match filter.starts_with('(') {
            true => filter.to_owned(),
            false => format!("({filter})"),
        });
        bases.push(SearchBase { base: dn.to_owned(), scope, filter });
    }
    Some(bases)
}

/// Formats bases as the value of a key.
pub(crate) fn value(bases: &[SearchBase]) -> String {
    match bases {
        [one] if one.is_plain() => string(&one.base),
        several => list(several),
    }
}

fn list(bases: &[SearchBase]) -> String {
    format!("[{}]", elements(bases))
}

fn elements(bases: &[SearchBase]) -> String {
    bases.iter().map(element).collect::<Vec<_>>().join(", ")
}

fn element(base: &SearchBase) -> String {
    if base.is_plain() {
        return string(&base.base);
    }
    let mut text = format!("{{ base = {}", string(&base.base));
    if base.scope != SearchScope::Subtree {
        text += &format!(", scope = \"{}\"", base.scope.word());
    }
    if let Some(filter) = &base.filter {
        text += &format!(", filter = {}", string(filter));
    }
    text + " }"
}

fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fix(text: &str, place: &str) -> String {
        let error = base_dn(text, place).unwrap_err();
        assert_eq!(error.message, &codes::BASE_OF_OTHER_FORM);
        error.to_string()
    }

    #[test]
    fn bases_sssd_form_names_line() {
        for (text, written) in [
            (
                "ou=people,dc=x?onelevel?(uid=a)",
                r#"Write user_base = [{ base = "ou=people,dc=x", scope = "one", filter = "(uid=a)" }]."#,
            ),
            ("dc=x?subtree?", r#"Write user_base = ["dc=x"]."#),
            (
                "dc=x?sub?uid=a?dc=y?base",
                r#"Write user_base = [{ base = "dc=x", filter = "(uid=a)" }, { base = "dc=y", scope = "base" }]."#,
            ),
        ] {
            let told = fix(text, "user_base = ");
            assert!(told.contains(written), "{told}");
        }
        assert!(fix("dc=x?one", "").contains(r#"Write { base = "dc=x", scope = "one" }."#));
    }

    #[test]
    fn bases_question_mark_in_name_is_kept() {
        for text in ["ou=who?,dc=x", "ou=a?b=c?d,dc=x"] {
            assert!(base_dn(text, "base = ").is_ok(), "{text}");
        }
        assert_eq!(base_dn("people", "").unwrap_err().message, &codes::INVALID_DN);
    }
}
