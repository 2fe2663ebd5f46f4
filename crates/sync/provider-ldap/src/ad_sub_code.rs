// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sub-code that Active Directory adds to a refused bind: "…, data 52e, …" in the text of invalidCredentials. Pure.
//!
//! Reads nothing else of the text, which differs between versions. `bind_result` interprets all other replies.

use roster_messages::{Message, table::login};
use roster_request::AuthResult;

/// Text in front of the sub-code.
const MARK: &[u8] = b", data ";
/// Longest sub-code, in hexadecimal digits of 32 bits.
const DIGITS_MAX: usize = 8;

/// The reason of a refused bind: an error number of Windows (MS-ERREF 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdSubCode(u32);

impl AdSubCode {
    /// Finds the sub-code in the text of a result. `None` without one.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let start = message.windows(MARK.len()).position(|part| part == MARK)? + MARK.len();
        let rest = message.get(start..)?;
        let end = rest.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at_checked(end)?;
        let is_delimited = matches!(after.first(), None | Some(b',' | b' ' | b'\0'));
        if !is_delimited || digits.len() > DIGITS_MAX {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok().map(Self)
    }

    /// Returns the result of the login. The server compared the password first, except for a locked account: each other
    /// known sub-code than a wrong password proves that the password is right.
    pub fn result(self) -> AuthResult {
        match self.0 {
            // No such user; wrong password.
            0x525 | 0x52e => AuthResult::WrongPassword,
            0x532 | 0x773 => AuthResult::PasswordExpired,
            0x533 => AuthResult::Disabled,
            0x701 => AuthResult::AccountExpired,
            0x775 => AuthResult::Locked,
            // Not at this time; not from this workstation; reasons that this table does not have.
            _ => AuthResult::Denied,
        }
    }

    /// Returns the row of the table, if the result alone is not sufficient.
    pub fn message(self) -> Option<&'static Message> {
        match self.0 {
            0x530 => Some(&login::AD_LOGON_HOURS),
            0x531 => Some(&login::AD_LOGON_WORKSTATION),
            0x773 => Some(&login::AD_PASSWORD_MUST_CHANGE),
            0x525 | 0x52e | 0x532 | 0x533 | 0x701 | 0x775 => None,
            _ => Some(&login::AD_SUB_CODE_UNKNOWN),
        }
    }

    /// Returns the message for a user with the right password. `None` if the password may be wrong.
    pub fn user_text(self) -> Option<&'static str> {
        match self.0 {
            0x530 => Some("You may not log in at this time."),
            0x531 => Some("You may not log in from this host."),
            0x532 => Some("Your password has expired. Ask an administrator for a new one."),
            0x533 => Some("Your account is disabled. Ask an administrator."),
            0x701 => Some("Your account has expired. Ask an administrator."),
            0x773 => Some(
                "Your password must be changed, which is not possible here. Ask an administrator.",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(data: &str) -> String {
        format!(
            "80090308: LdapErr: DSID-0C0903A9, comment: AcceptSecurityContext error, data {data}, v1db1"
        )
    }

    #[test]
    fn sub_code_is_read_from_data() {
        for (data, number) in [("52e", 0x52e), ("775", 0x775), ("52E", 0x52e), ("0", 0)] {
            assert_eq!(AdSubCode::parse(text(data).as_bytes()), Some(AdSubCode(number)));
        }
        for end in ["", "\0", " ", ", v4563"] {
            let text = format!("comment: error, data 533{end}");
            assert_eq!(AdSubCode::parse(text.as_bytes()), Some(AdSubCode(0x533)), "{text}");
        }
        // Text that is not UTF-8 does not hide it.
        assert_eq!(AdSubCode::parse(b"\xff\xfe, data 532,"), Some(AdSubCode(0x532)));
    }

    #[test]
    fn sub_code_needs_delimited_number() {
        for text in [
            "",
            "data 52e",
            "invalid credentials",
            ", data ",
            ", data , v1",
            ", data 52g, v1",
            ", data 0x52e, v1",
            ", data 123456789, v1",
            ", Data 52e, v1",
        ] {
            assert_eq!(AdSubCode::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sub_codes_have_results_and_texts() {
        let rows = [
            (0x525, AuthResult::WrongPassword, None, false),
            (0x52e, AuthResult::WrongPassword, None, false),
            (0x530, AuthResult::Denied, Some(&login::AD_LOGON_HOURS), true),
            (0x531, AuthResult::Denied, Some(&login::AD_LOGON_WORKSTATION), true),
            (0x532, AuthResult::PasswordExpired, None, true),
            (0x533, AuthResult::Disabled, None, true),
            (0x701, AuthResult::AccountExpired, None, true),
            (0x773, AuthResult::PasswordExpired, Some(&login::AD_PASSWORD_MUST_CHANGE), true),
            (0x775, AuthResult::Locked, None, false),
            (0x52f, AuthResult::Denied, Some(&login::AD_SUB_CODE_UNKNOWN), false),
        ];
        for (number, result, message, has_text) in rows {
            let code = AdSubCode(number);
            assert_eq!(code.result(), result, "{number:x}");
            assert_eq!(code.message(), message, "{number:x}");
            assert_eq!(code.user_text().is_some(), has_text, "{number:x}");
        }
    }

    #[test]
    fn sub_code_is_never_a_success() {
        for number in 0..0x1000 {
            let result = AdSubCode(number).result();
            assert!(!matches!(result, AuthResult::Success | AuthResult::MustChange), "{number:x}");
        }
    }
}
