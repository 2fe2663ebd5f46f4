// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meaning of KDC errors for a login: one table, without the library. `auth_request` and `bind_exchange` apply it.

use roster_messages::Message;
use roster_messages::table::{directory, login};

/// Outcome of a login or of a password change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdcOutcome {
    /// The password is correct, and the KDC is verified, if that was requested.
    Success,
    /// The password is wrong.
    WrongPassword,
    /// The KDC does not know the user.
    UnknownUser,
    /// The password is correct, and has expired.
    MustChange,
    /// The KDC has locked or disabled the user.
    Locked,
    /// The account has expired, or is not valid yet.
    AccountExpired,
    /// The KDC refuses this user for another reason.
    Refused,
    /// The server rejects the new password.
    NewPasswordRefused,
    /// No KDC replies.
    Unreachable,
    /// The configuration is wrong, on this host or at the KDC.
    Misconfigured,
    /// The KDC does not know this host's key: it is a false one, or this host's keytab is outdated.
    NotVerified,
    /// Another failure.
    Failed,
}

impl KdcOutcome {
    /// All outcomes by their codes.
    const ALL: [Self; 12] = [
        Self::Success,
        Self::WrongPassword,
        Self::UnknownUser,
        Self::MustChange,
        Self::Locked,
        Self::AccountExpired,
        Self::Refused,
        Self::NewPasswordRefused,
        Self::Unreachable,
        Self::Misconfigured,
        Self::NotVerified,
        Self::Failed,
    ];

    /// Returns the code in a message.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the row of the table. `None` for a success.
    #[must_use]
    pub fn message(self) -> Option<&'static Message> {
        Some(match self {
            Self::Success => return None,
            Self::WrongPassword => &login::WRONG_PASSWORD,
            Self::UnknownUser => &login::UNKNOWN_USER,
            Self::MustChange => &login::PASSWORD_MUST_CHANGE,
            Self::Locked => &login::ACCOUNT_LOCKED,
            Self::AccountExpired => &login::ACCOUNT_EXPIRED,
            Self::Refused => &login::KDC_REFUSED,
            Self::NewPasswordRefused => &login::NEW_PASSWORD_REJECTED,
            Self::Unreachable => &login::KDC_UNREACHABLE,
            Self::NotVerified => &login::KDC_NOT_VERIFIED,
            Self::Misconfigured | Self::Failed => &login::KDC_ERROR,
        })
    }

    /// Returns the outcome of a code in a message.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The first error of <krb5.h>; the errors of RFC 4120 follow by their numbers there.
const BASE: i32 = -1_765_328_384;

/// Errors of a KDC, and errors of libkrb5 itself, by their distance from [`BASE`].
mod error {
    pub const NAME_EXP: i32 = 1;
    pub const C_PRINCIPAL_UNKNOWN: i32 = 6;
    pub const S_PRINCIPAL_UNKNOWN: i32 = 7;
    pub const PRINCIPAL_NOT_UNIQUE: i32 = 8;
    pub const NULL_KEY: i32 = 9;
    pub const CANNOT_POSTDATE: i32 = 10;
    pub const NEVER_VALID: i32 = 11;
    pub const POLICY: i32 = 12;
    pub const BADOPTION: i32 = 13;
    pub const ETYPE_NOSUPP: i32 = 14;
    pub const SUMTYPE_NOSUPP: i32 = 15;
    pub const PADATA_TYPE_NOSUPP: i32 = 16;
    pub const CLIENT_REVOKED: i32 = 18;
    pub const SERVICE_REVOKED: i32 = 19;
    pub const TGT_REVOKED: i32 = 20;
    pub const CLIENT_NOTYET: i32 = 21;
    pub const SERVICE_NOTYET: i32 = 22;
    pub const KEY_EXP: i32 = 23;
    pub const PREAUTH_FAILED: i32 = 24;
    pub const PREAUTH_REQUIRED: i32 = 25;
    pub const SVC_UNAVAILABLE: i32 = 29;
    pub const AP_BAD_INTEGRITY: i32 = 31;
    pub const AP_TKT_EXPIRED: i32 = 32;
    pub const AP_TKT_NYV: i32 = 33;
    pub const AP_SKEW: i32 = 37;
    pub const AP_MODIFIED: i32 = 41;
    pub const AP_BADKEYVER: i32 = 44;
    pub const AP_NOKEY: i32 = 45;
    pub const CLIENT_NOT_TRUSTED: i32 = 62;
    pub const WRONG_REALM: i32 = 68;
    // Errors of libkrb5 itself.
    pub const KDCREP_SKEW: i32 = 148;
    pub const PROG_ETYPE_NOSUPP: i32 = 150;
    pub const REALM_UNKNOWN: i32 = 154;
    pub const KDC_UNREACH: i32 = 156;
    pub const KT_NOTFOUND: i32 = 181;
    pub const PREAUTH_BAD_TYPE: i32 = 208;
    pub const PREAUTH_NO_KEY: i32 = 209;
    pub const PREAUTH_FAILED_HERE: i32 = 210;
    pub const REALM_CANT_RESOLVE: i32 = 220;
    pub const KT_KVNONOTFOUND: i32 = 230;
    pub const NOPERM_ETYPE: i32 = 236;
    pub const CONFIG_ETYPE_NOSUPP: i32 = 237;
    pub const FAST_REQUIRED: i32 = 252;
}

/// Returns the meaning of an error for a login. An unknown error is [`KdcOutcome::Failed`], never a success.
#[must_use]
pub fn login_outcome(code: i32) -> KdcOutcome {
    use error::*;
    match code.wrapping_sub(BASE) {
        PREAUTH_FAILED | AP_BAD_INTEGRITY | AP_MODIFIED | PREAUTH_FAILED_HERE => {
            KdcOutcome::WrongPassword
        }
        C_PRINCIPAL_UNKNOWN | WRONG_REALM => KdcOutcome::UnknownUser,
        // A request for another ticket shows whether the password is correct.
        KEY_EXP => KdcOutcome::MustChange,
        CLIENT_REVOKED | TGT_REVOKED => KdcOutcome::Locked,
        NAME_EXP | CLIENT_NOTYET => KdcOutcome::AccountExpired,
        POLICY | NULL_KEY | NEVER_VALID | CANNOT_POSTDATE | BADOPTION | CLIENT_NOT_TRUSTED => {
            KdcOutcome::Refused
        }
        KDC_UNREACH | REALM_CANT_RESOLVE | SVC_UNAVAILABLE => KdcOutcome::Unreachable,
        AP_SKEW | KDCREP_SKEW | AP_TKT_NYV | AP_TKT_EXPIRED | REALM_UNKNOWN | ETYPE_NOSUPP
        | SUMTYPE_NOSUPP | PADATA_TYPE_NOSUPP | PREAUTH_REQUIRED | PREAUTH_BAD_TYPE
        | PREAUTH_NO_KEY | PROG_ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP | NOPERM_ETYPE
        | S_PRINCIPAL_UNKNOWN | PRINCIPAL_NOT_UNIQUE | SERVICE_REVOKED | SERVICE_NOTYET => {
            KdcOutcome::Misconfigured
        }
        FAST_REQUIRED => KdcOutcome::NotVerified,
        _ => KdcOutcome::Failed,
    }
}

/// Whether the KDC should use this host's key (FAST), and does not.
#[must_use]
pub fn lacks_fast(code: i32) -> bool {
    code.wrapping_sub(BASE) == error::FAST_REQUIRED
}

/// Returns the meaning of an error for a probe. A realm without KDCs in DNS counts as unavailable.
#[must_use]
pub fn probe_outcome(code: i32) -> KdcOutcome {
    match code.wrapping_sub(BASE) {
        error::REALM_UNKNOWN => KdcOutcome::Unreachable,
        _ => login_outcome(code),
    }
}

/// Returns the meaning of an error for the verification of the KDC.
#[must_use]
pub fn verification_outcome(code: i32) -> KdcOutcome {
    use error::*;
    match code.wrapping_sub(BASE) {
        KDC_UNREACH | REALM_CANT_RESOLVE | SVC_UNAVAILABLE => KdcOutcome::Unreachable,
        AP_SKEW | AP_TKT_NYV | AP_TKT_EXPIRED | ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP
        | NOPERM_ETYPE => KdcOutcome::Misconfigured,
        // A key that the KDC does not have, or no longer has, and any other error.
        _ => KdcOutcome::NotVerified,
    }
}

/// Returns the row of the table for an error with a known cause. `None`: that of the outcome.
#[must_use]
pub fn error_message(code: i32) -> Option<&'static Message> {
    use error::*;
    Some(match code.wrapping_sub(BASE) {
        AP_SKEW | KDCREP_SKEW | AP_TKT_NYV => &login::CLOCK_SKEW,
        KT_NOTFOUND | KT_KVNONOTFOUND | AP_BADKEYVER | AP_NOKEY | S_PRINCIPAL_UNKNOWN => {
            &login::KEYTAB_KEY_MISMATCH
        }
        ETYPE_NOSUPP | PROG_ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP | NOPERM_ETYPE => {
            &login::ENCRYPTION_TYPE_MISSING
        }
        FAST_REQUIRED => &login::FAST_REQUIRED,
        REALM_UNKNOWN => &login::REALM_UNKNOWN,
        PREAUTH_REQUIRED | PREAUTH_BAD_TYPE | PREAUTH_NO_KEY | PADATA_TYPE_NOSUPP => {
            &login::PREAUTHENTICATION_UNSUPPORTED
        }
        _ => return None,
    })
}

/// Returns the row of the table for a failed request of the ticket of `krb5_fast_principal`. `None`: that of the outcome.
#[must_use]
pub fn fast_ticket_message(code: i32) -> Option<&'static Message> {
    use error::*;
    match code.wrapping_sub(BASE) {
        KT_NOTFOUND => Some(&login::FAST_KEY_MISSING),
        C_PRINCIPAL_UNKNOWN | PREAUTH_FAILED | PREAUTH_FAILED_HERE | AP_BAD_INTEGRITY
        | KT_KVNONOTFOUND | CLIENT_REVOKED | NAME_EXP | KEY_EXP | WRONG_REALM => {
            Some(&login::FAST_TICKET_REFUSED)
        }
        _ => error_message(code),
    }
}

/// Returns the row of the table for a ticket that this host requests with its key. `with_service` is for the ticket of
/// a directory server, otherwise for the first ticket.
#[must_use]
pub fn host_ticket_message(code: i32, with_service: bool) -> &'static Message {
    use error::*;
    match code.wrapping_sub(BASE) {
        S_PRINCIPAL_UNKNOWN | SERVICE_NOTYET | SERVICE_REVOKED if with_service => {
            &directory::SERVICE_PRINCIPAL_UNKNOWN
        }
        KT_NOTFOUND => &directory::BIND_KEY_MISSING,
        C_PRINCIPAL_UNKNOWN | CLIENT_NOTYET | CLIENT_REVOKED | NAME_EXP | WRONG_REALM => {
            &directory::BIND_PRINCIPAL_UNKNOWN
        }
        PREAUTH_FAILED | PREAUTH_FAILED_HERE | AP_BAD_INTEGRITY | KT_KVNONOTFOUND | KEY_EXP => {
            &directory::BIND_KEY_OUTDATED
        }
        KDC_UNREACH | REALM_CANT_RESOLVE | SVC_UNAVAILABLE => &directory::BIND_KDC_UNREACHABLE,
        AP_BADKEYVER | AP_NOKEY | AP_MODIFIED => &directory::GSSAPI_BIND_REJECTED,
        _ => error_message(code).unwrap_or(&directory::GSSAPI_FAILED),
    }
}

/// Whether the KDC does not have the client, so that another one may work.
#[must_use]
pub fn is_client_unknown(code: i32) -> bool {
    code.wrapping_sub(BASE) == error::C_PRINCIPAL_UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_whatever_is_a_success() {
        for distance in -300..400 {
            let code = BASE + distance;
            assert_ne!(login_outcome(code), KdcOutcome::Success, "{distance}");
            assert_ne!(verification_outcome(code), KdcOutcome::Success, "{distance}");
        }
        // Errors of the system, for example because of a full table of files.
        assert_eq!(login_outcome(23), KdcOutcome::Failed);
    }

    #[test]
    fn errors_of_a_kdc_are_told_apart() {
        let cases = [
            (-1_765_328_360, KdcOutcome::WrongPassword),
            (-1_765_328_353, KdcOutcome::WrongPassword),
            (-1_765_328_378, KdcOutcome::UnknownUser),
            (-1_765_328_361, KdcOutcome::MustChange),
            (-1_765_328_366, KdcOutcome::Locked),
            (-1_765_328_383, KdcOutcome::AccountExpired),
            (-1_765_328_372, KdcOutcome::Refused),
            (-1_765_328_228, KdcOutcome::Unreachable),
            (-1_765_328_164, KdcOutcome::Unreachable),
            (-1_765_328_347, KdcOutcome::Misconfigured),
            (-1_765_328_236, KdcOutcome::Misconfigured),
            (-1_765_328_230, KdcOutcome::Misconfigured),
        ];
        for (code, outcome) in cases {
            assert_eq!(login_outcome(code), outcome, "{code}");
        }
        assert_eq!(probe_outcome(-1_765_328_230), KdcOutcome::Unreachable);
        assert_eq!(probe_outcome(-1_765_328_347), KdcOutcome::Misconfigured);
        assert_eq!(verification_outcome(-1_765_328_377), KdcOutcome::NotVerified);
        assert_eq!(verification_outcome(-1_765_328_228), KdcOutcome::Unreachable);
        for (code, message) in [
            (-1_765_328_236, &login::CLOCK_SKEW),
            (BASE + error::KT_NOTFOUND, &login::KEYTAB_KEY_MISMATCH),
            (BASE + error::FAST_REQUIRED, &login::FAST_REQUIRED),
            (BASE + error::REALM_UNKNOWN, &login::REALM_UNKNOWN),
            (BASE + error::PREAUTH_REQUIRED, &login::PREAUTHENTICATION_UNSUPPORTED),
        ] {
            assert_eq!(error_message(code), Some(message), "{code}");
        }
        for (code, message) in
            [(BASE + error::POLICY, &login::KDC_REFUSED), (23, &login::KDC_ERROR)]
        {
            assert_eq!(error_message(code), None, "{code}");
            assert_eq!(login_outcome(code).message(), Some(message), "{code}");
        }
    }

    #[test]
    fn host_ticket_error_names_its_cure() {
        use error::*;
        for (distance, message) in [
            (KT_NOTFOUND, &directory::BIND_KEY_MISSING),
            (C_PRINCIPAL_UNKNOWN, &directory::BIND_PRINCIPAL_UNKNOWN),
            (PREAUTH_FAILED, &directory::BIND_KEY_OUTDATED),
            (KT_KVNONOTFOUND, &directory::BIND_KEY_OUTDATED),
            (KDC_UNREACH, &directory::BIND_KDC_UNREACHABLE),
            (AP_SKEW, &login::CLOCK_SKEW),
            (ETYPE_NOSUPP, &login::ENCRYPTION_TYPE_MISSING),
            (POLICY, &directory::GSSAPI_FAILED),
        ] {
            for with_service in [false, true] {
                assert_eq!(host_ticket_message(BASE + distance, with_service), message);
            }
        }
        let unknown = BASE + S_PRINCIPAL_UNKNOWN;
        assert_eq!(host_ticket_message(unknown, true), &directory::SERVICE_PRINCIPAL_UNKNOWN);
        assert_eq!(
            host_ticket_message(BASE + AP_NOKEY, true),
            &directory::GSSAPI_BIND_REJECTED,
            "the server has another key than the KDC"
        );
        assert!(is_client_unknown(BASE + C_PRINCIPAL_UNKNOWN) && !is_client_unknown(unknown));
        assert_eq!(host_ticket_message(0, true), &directory::GSSAPI_FAILED);
    }

    #[test]
    fn every_outcome_travels() {
        for outcome in KdcOutcome::ALL {
            assert_eq!(KdcOutcome::from_code(outcome.code()), Some(outcome));
        }
        assert_eq!(KdcOutcome::from_code(12), None);
    }
}
