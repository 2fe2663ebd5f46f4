// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes passwords from the options of reports, because people share and archive reports. Options of the run itself
//! stay unchanged. `report` stores the options.

const REDACTED: &str = "(left out)";
/// Parts of the names of options, variables and attributes with a password.
const NAMES: [&str; 9] =
    ["passw", "passphrase", "pwd", "secret", "token", "apikey", "api-key", "api_key", "nthash"];
/// Attributes with values that are equivalent to passwords.
const ATTRIBUTES: [&str; 2] = ["krbprincipalkey", "krbmkey"];
/// Option of LDAP tools for a password.
const SHORT: &str = "-w";

/// Returns the value of an option without secrets. `@FILE` is a path, and stays.
pub fn redact_value(option: &str, value: &str) -> String {
    if option.contains("password") && !value.starts_with('@') {
        return REDACTED.to_owned();
    }
    match value.split_once('=') {
        Some((attribute, behind)) if option == "value" && is_secret(attribute) => {
            format!("{attribute}={}", redact(behind))
        }
        _ => value.to_owned(),
    }
}

/// Returns the arguments of a command without secrets. A secret is recognized by the name before it, also within an
/// argument.
pub fn redact_arguments(words: &[String]) -> Vec<String> {
    let mut follows = false;
    let mut shown = |piece: &str| {
        let text = piece.trim_end();
        let space = &piece[text.len()..];
        if text.is_empty() {
            return piece.to_owned();
        }
        let expected = std::mem::replace(&mut follows, is_option_of_secret(text));
        format!("{}{space}", if expected { redact(text).to_owned() } else { redact_argument(text) })
    };
    let within =
        |word: &String| word.split_inclusive(char::is_whitespace).map(&mut shown).collect();
    words.iter().map(within).collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_file = name.ends_with("file");
    !is_file && (NAMES.iter().any(|part| name.contains(part)) || ATTRIBUTES.contains(&&*name))
}

/// Returns whether the next argument is a secret.
fn is_option_of_secret(word: &str) -> bool {
    word == SHORT || word.starts_with("--") && !word.contains('=') && is_secret(word)
}

/// Redacts `NAME=SECRET` and `scheme://user:SECRET@host`.
fn redact_argument(text: &str) -> String {
    if let Some((name, behind)) = text.split_once('=')
        && is_secret(name)
    {
        return format!("{name}={}", redact(behind));
    }
    let place = text.split_once("://").and_then(|(scheme, behind)| {
        let (user, host) = behind.split_once('@')?;
        let (user, _) = user.split_once(':').filter(|(user, _)| !user.contains('/'))?;
        Some(format!("{scheme}://{user}:{REDACTED}@{host}"))
    });
    place.unwrap_or_else(|| text.to_owned())
}

/// Redacts a value unless it is the name of a file or variable.
fn redact(value: &str) -> &str {
    let is_name =
        ['@', '$'].iter().any(|&mark| value.trim_start_matches(['"', '\'']).starts_with(mark));
    if is_name { value } else { REDACTED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_passwords_are_left_out_and_places_of_them_are_told() {
        for (option, value, told) in [
            ("password", "geheim", "(left out)"),
            ("bind_password", "@/etc/pw", "@/etc/pw"),
            ("value", "userPassword=geheim{n}", "userPassword=(left out)"),
            ("value", "unicodePwd=x", "unicodePwd=(left out)"),
            ("value", "krbPrincipalKey=x", "krbPrincipalKey=(left out)"),
            ("value", "description=password", "description=password"),
            ("uri", "ldap://a", "ldap://a"),
        ] {
            assert_eq!(redact_value(option, value), told, "{option}");
        }
    }

    #[test]
    fn words_of_a_command_that_hold_one_are_left_out() {
        let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for (given, told) in [
            (
                &["ldapwhoami", "-x", "-w", "geheim", "-D", "cn=x"][..],
                &["ldapwhoami", "-x", "-w", "(left out)", "-D", "cn=x"][..],
            ),
            (&["x", "--password", "geheim", "y"], &["x", "--password", "(left out)", "y"]),
            (&["x", "--password=geheim", "y"], &["x", "--password=(left out)", "y"]),
            (&["x", "--password-file", "/etc/pw"], &["x", "--password-file", "/etc/pw"]),
            (
                &["sh", "-c", "PGPASSWORD=geheim  psql -w $PW\n id u{0..9}"],
                &["sh", "-c", "PGPASSWORD=(left out)  psql -w $PW\n id u{0..9}"],
            ),
            (&["curl", "http://me:geheim@host/a"], &["curl", "http://me:(left out)@host/a"]),
            (&["curl", "http://host/a:b@c"], &["curl", "http://host/a:b@c"]),
            (&["id", "alice"], &["id", "alice"]),
        ] {
            assert_eq!(redact_arguments(&words(given)), words(told), "{given:?}");
        }
    }
}
