// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in the filter of access rules: `%{host}` and `%{service}`.
//!
//! A value enters the filter escaped (RFC 4515, section 3), so that it can only be a part of a value. The service comes
//! from a program, and may be any text.

use crate::ldap_filter::check_filter;
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use std::fmt::Write as _;

/// Start of a template.
const START: &str = "%{";
const HOST: &str = "%{host}";
const SERVICE: &str = "%{service}";

/// Returns whether the filter depends on the host.
#[must_use]
pub fn names_host(filter: &str) -> bool {
    filter.contains(HOST)
}

/// Returns whether the filter depends on the PAM service.
#[must_use]
pub fn names_service(filter: &str) -> bool {
    filter.contains(SERVICE)
}

/// Returns the filter for a host and a service. `None` if a value that the filter needs is empty.
#[must_use]
pub fn expand(filter: &str, host: &str, service: &str) -> Option<String> {
    if (names_host(filter) && host.is_empty()) || (names_service(filter) && service.is_empty()) {
        return None;
    }
    let mut text = String::with_capacity(filter.len());
    let mut rest = filter;
    while let Some(at) = rest.find(START) {
        let (before, template) = rest.split_at(at);
        text.push_str(before);
        rest = match (template.strip_prefix(HOST), template.strip_prefix(SERVICE)) {
            (Some(after), _) => {
                escape(&mut text, host);
                after
            }
            (None, Some(after)) => {
                escape(&mut text, service);
                after
            }
            // The configuration has no other template.
            (None, None) => return None,
        };
    }
    text.push_str(rest);
    Some(text)
}

/// Appends a value. All bytes except letters, digits, dots and dashes are escaped.
fn escape(text: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\{byte:02x}");
        }
    }
}

/// Checks a filter with templates.
pub(crate) fn check(text: &str) -> Result<(), CodedError> {
    check_filter(text)?;
    if expand(text, "x", "x").is_some() {
        return Ok(());
    }
    let known = |template: &str| template.starts_with(HOST) || template.starts_with(SERVICE);
    let unknown = text.match_indices(START).find_map(|(at, _)| {
        let template = text.get(at..)?;
        let name = template.split_inclusive('}').next()?;
        (!known(template)).then_some(name)
    });
    let text = format!("unknown template {:?}", unknown.unwrap_or(START));
    Err(CodedError::new(&codes::FILTER_TEMPLATE_UNKNOWN, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ldap_filter::{FilterExpr, MatchOperator, parse};

    #[test]
    fn filter_template_values_are_escaped() {
        let filter = "(&(host=%{host})(authorizedService=%{service}))";
        assert_eq!(
            expand(filter, "web1.example.com", "ssh_d").as_deref(),
            Some("(&(host=web1.example.com)(authorizedService=ssh\\5fd))")
        );
        for service in ["*", ")(uid=*", "a)(|(uid=*\\00", "\\2a", "%{host}", "é\0", " "] {
            let text = expand(filter, "h", service).unwrap();
            let equal = |name: &str, value: &str| {
                FilterExpr::Compare(MatchOperator::Equal, name.into(), value.into())
            };
            let meant =
                FilterExpr::All(vec![equal("host", "h"), equal("authorizedService", service)]);
            assert_eq!(parse(&text), Ok(meant), "{text}");
        }
    }

    #[test]
    fn filter_template_without_value_is_none() {
        assert_eq!(expand("(a=%{host})", "", "sshd"), None);
        assert_eq!(expand("(a=%{service})", "h", ""), None);
        assert_eq!(expand("(a=b)", "", "").as_deref(), Some("(a=b)"));
        assert!(names_service("(a=%{service})") && !names_service("(a=%{host})"));
    }

    #[test]
    fn filter_template_unknown_is_error() {
        for good in ["(a=%{host})", "(a=x%{service}*)", "(a=100%)", "(!(a=%{host}%{service}))"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for (bad, name) in
            [("(a=%{user})", "%{user}"), ("(&(a=%{host})(a=%{hosts}))", "%{hosts}"), ("(a=%{", "")]
        {
            let error = check(bad).unwrap_err();
            let is_template = error.message == &codes::FILTER_TEMPLATE_UNKNOWN;
            assert!(is_template && error.text.contains(name) || bad.ends_with('{'), "{error}");
        }
        for bad in ["(%{host}=x)", "(a=\\%{host})", "(a:%{host}:=x)"] {
            assert_eq!(check(bad).unwrap_err().message, &codes::INVALID_FILTER, "{bad}");
        }
    }
}
