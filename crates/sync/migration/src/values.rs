// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of roster.toml: TOML strings and lists, filters, templates. `render` writes them as a file.

use roster_config::ldap_filter;

/// Formats a text as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => {
                out.push('\\');
                out.push(char);
            }
            char if char.is_control() => out += &format!("\\u{:04X}", u32::from(char)),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// Formats texts as a TOML list.
pub(crate) fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// Escapes a value for a search filter (RFC 4515).
pub(crate) fn filter_value(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '*' | '(' | ')' | '\\' | '\0' => out += &format!("\\{:02x}", u32::from(char)),
            char => out.push(char),
        }
    }
    out
}

/// Adds the outer parentheses that Roster requires, and escapes what Roster would read as a template.
pub(crate) fn filter(text: &str) -> String {
    let text = text.trim().replace("%{", "\\25{");
    if text.starts_with('(') { text } else { format!("({text})") }
}

/// Converts a filter, and parses it as rosterd does. The error describes the mistake.
pub(crate) fn checked_filter(text: &str) -> Result<String, String> {
    let filter = filter(text);
    match ldap_filter::parse(&filter) {
        Ok(_) => Ok(filter),
        Err(mistake) => Err(format!("the filter {filter} is not valid: {mistake}")),
    }
}

/// Joins filters with "and".
pub(crate) fn all_of(filters: &[String]) -> String {
    match filters {
        [one] => one.clone(),
        filters => format!("(&{})", filters.concat()),
    }
}

/// A base of searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchBase {
    pub base: String,
    pub scope: Option<&'static str>,
    pub filter: Option<String>,
}

impl SearchBase {
    pub(crate) fn whole(base: &str) -> Self {
        Self { base: base.to_owned(), scope: None, filter: None }
    }

    fn toml(&self) -> String {
        if self.scope.is_none() && self.filter.is_none() {
            return quoted(&self.base);
        }
        let scope = self.scope.map(|scope| format!(", scope = \"{scope}\"")).unwrap_or_default();
        let filter = self.filter.as_deref().map(|filter| format!(", filter = {}", quoted(filter)));
        format!("{{ base = {}{scope}{} }}", quoted(&self.base), filter.unwrap_or_default())
    }
}

/// Formats bases as a DN, or as a list.
pub(crate) fn bases(bases: &[SearchBase]) -> String {
    match bases {
        [one] if one.scope.is_none() && one.filter.is_none() => quoted(&one.base),
        bases => {
            let elements: Vec<String> = bases.iter().map(SearchBase::toml).collect();
            format!("[{}]", elements.join(", "))
        }
    }
}

/// Parses `BASE[?SCOPE?[FILTER]]`, repeated with `?` between.
pub(crate) fn search_bases(text: &str) -> Result<Vec<SearchBase>, String> {
    let parts: Vec<&str> = text.split('?').map(str::trim).collect();
    if let [base] = parts[..] {
        return if base.is_empty() {
            Err("is empty".into())
        } else {
            Ok(vec![SearchBase::whole(base)])
        };
    }
    if !parts.len().is_multiple_of(3) {
        return Err("is not of the form BASE?SCOPE?FILTER".into());
    }
    let mut bases = Vec::new();
    for part in parts.chunks(3) {
        let scope = match &*part[1].to_ascii_lowercase() {
            "" | "sub" | "subtree" => None,
            "one" | "onelevel" => Some("one"),
            "base" => Some("base"),
            other => return Err(format!("has the unknown scope {other:?}")),
        };
        if part[0].is_empty() {
            return Err("has an empty base".into());
        }
        let filter = Some(part[2]).filter(|text| !text.is_empty()).map(checked_filter).transpose();
        let filter = filter.map_err(|mistake| format!("is wrong: {mistake}"))?;
        bases.push(SearchBase { base: part[0].to_owned(), scope, filter });
    }
    Ok(bases)
}

/// Converts a template for home directories. The error is the sequence without a counterpart.
pub(crate) fn home_template(text: &str, substring: Option<&str>) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some(char @ ('u' | 'U' | 'd' | 'o' | 'l' | 'f' | 'h' | '%')) => {
                out.push('%');
                out.push(char);
            }
            Some('H') => match substring {
                Some(text) => out += &text.replace('%', "%%"),
                None => out += "/home",
            },
            Some(other) => return Err(format!("%{other}")),
            None => return Err("%".into()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_string_escapes_quotes_and_controls() {
        assert_eq!(quoted("a\"b\\c\u{1}\n"), "\"a\\\"b\\\\c\\u0001\\u000A\"");
        assert_eq!(list(&["a", "b"]), "[\"a\", \"b\"]");
    }

    #[test]
    fn search_base_form_of_sssd_is_split() {
        let one = search_bases("ou=p,dc=x").unwrap();
        assert_eq!(bases(&one), "\"ou=p,dc=x\"");
        let two = search_bases("ou=a,dc=x?onelevel?(uid=a)?ou=b,dc=x??uid=b").unwrap();
        assert_eq!(
            bases(&two),
            "[{ base = \"ou=a,dc=x\", scope = \"one\", filter = \"(uid=a)\" }, \
             { base = \"ou=b,dc=x\", filter = \"(uid=b)\" }]"
        );
        for text in ["", "a?b", "a?wide?", "?sub?", "a?sub?(b"] {
            assert!(search_bases(text).is_err(), "{text}");
        }
    }

    #[test]
    fn filter_gets_parentheses_and_no_template() {
        assert_eq!(filter("memberOf=cn=a"), "(memberOf=cn=a)");
        assert_eq!(filter(" (uid=%{host})"), "(uid=\\25{host})");
        assert_eq!(filter_value("a*(b)\\"), "a\\2a\\28b\\29\\5c");
        assert_eq!(checked_filter("a=%{b}").unwrap(), "(a=\\25{b})");
        assert!(checked_filter("(a=1)(b=2)").unwrap_err().contains("(b=2)"));
        assert_eq!(all_of(&["(a=1)".into(), "(b=2)".into()]), "(&(a=1)(b=2))");
    }

    #[test]
    fn home_template_without_counterpart_is_named() {
        assert_eq!(home_template("/h/%d/%l/%u%%", None).unwrap(), "/h/%d/%l/%u%%");
        assert_eq!(home_template("%H/%u", Some("/net")).unwrap(), "/net/%u");
        assert_eq!(home_template("/home/%P", None).unwrap_err(), "%P");
    }
}
