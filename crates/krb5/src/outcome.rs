//! What the errors of a KDC mean for who logs in: one table, without the library.

/// What became of a log-in or of a change of password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The password is right, and the KDC is who it says it is, if that was to be found out.
    Success,
    /// It is wrong.
    WrongPassword,
    /// The KDC does not know the user.
    UnknownUser,
    /// The password is right, and has expired.
    MustChange,
    /// The KDC has locked or disabled the user.
    Locked,
    /// The account has expired, or is not valid yet.
    AccountExpired,
    /// The KDC does not let this user in, for another reason.
    Refused,
    /// The server does not take the new password.
    NewPasswordRefused,
    /// No KDC answers.
    Unreachable,
    /// Something has to be set right: on this host, or at the KDC.
    Misconfigured,
    /// The KDC does not know this host's key: it is another one, or this host's keytab is old.
    NotVerified,
    /// Something went wrong that has no name here.
    Failed,
}

impl Outcome {
    /// All, by their codes.
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

    /// In a message.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Out of a message.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The first error of <krb5.h>; those of RFC 4120 follow by their numbers there.
const BASE: i32 = -1_765_328_384;

/// Errors of a KDC, and of libkrb5 in its own name, by their distance from [`BASE`].
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
    // libkrb5's own.
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

/// What an error means when a password was to get a ticket. What is not here is [`Outcome::Failed`]:
/// never a success.
#[must_use]
pub fn of_log_in(code: i32) -> Outcome {
    use error::*;
    match code.wrapping_sub(BASE) {
        PREAUTH_FAILED | AP_BAD_INTEGRITY | AP_MODIFIED | PREAUTH_FAILED_HERE => {
            Outcome::WrongPassword
        }
        C_PRINCIPAL_UNKNOWN | WRONG_REALM => Outcome::UnknownUser,
        // Whether the password is right is found out by asking for another ticket.
        KEY_EXP => Outcome::MustChange,
        CLIENT_REVOKED | TGT_REVOKED => Outcome::Locked,
        NAME_EXP | CLIENT_NOTYET => Outcome::AccountExpired,
        POLICY | NULL_KEY | NEVER_VALID | CANNOT_POSTDATE | BADOPTION | CLIENT_NOT_TRUSTED => {
            Outcome::Refused
        }
        KDC_UNREACH | REALM_CANT_RESOLVE | SVC_UNAVAILABLE => Outcome::Unreachable,
        AP_SKEW | KDCREP_SKEW | AP_TKT_NYV | AP_TKT_EXPIRED | REALM_UNKNOWN | ETYPE_NOSUPP
        | SUMTYPE_NOSUPP | PADATA_TYPE_NOSUPP | PREAUTH_REQUIRED | PREAUTH_BAD_TYPE
        | PREAUTH_NO_KEY | PROG_ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP | NOPERM_ETYPE
        | S_PRINCIPAL_UNKNOWN | PRINCIPAL_NOT_UNIQUE | SERVICE_REVOKED | SERVICE_NOTYET => {
            Outcome::Misconfigured
        }
        FAST_REQUIRED => Outcome::NotVerified,
        _ => Outcome::Failed,
    }
}

/// Whether the KDC was to speak under this host's key (FAST), and has not done so.
#[must_use]
pub fn is_without_fast(code: i32) -> bool {
    code.wrapping_sub(BASE) == error::FAST_REQUIRED
}

/// What an error means when it mattered only whether a KDC answers. That DNS names none is no answer.
#[must_use]
pub fn of_presence(code: i32) -> Outcome {
    match code.wrapping_sub(BASE) {
        error::REALM_UNKNOWN => Outcome::Unreachable,
        _ => of_log_in(code),
    }
}

/// What an error means when the KDC was to show that it knows this host's key.
#[must_use]
pub fn of_verification(code: i32) -> Outcome {
    use error::*;
    match code.wrapping_sub(BASE) {
        KDC_UNREACH | REALM_CANT_RESOLVE | SVC_UNAVAILABLE => Outcome::Unreachable,
        AP_SKEW | AP_TKT_NYV | AP_TKT_EXPIRED | ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP
        | NOPERM_ETYPE => Outcome::Misconfigured,
        // A key that the KDC does not have, or has no more, and whatever else there may be.
        _ => Outcome::NotVerified,
    }
}

/// What the person in charge is told to do, for the outcomes that need one.
#[must_use]
pub fn advice(code: i32) -> &'static str {
    use error::*;
    match code.wrapping_sub(BASE) {
        AP_SKEW | KDCREP_SKEW | AP_TKT_NYV => {
            "the clocks of this host and of the KDC differ by more than five minutes: see to time \
             synchronization"
        }
        KT_NOTFOUND | KT_KVNONOTFOUND | AP_BADKEYVER | AP_NOKEY | S_PRINCIPAL_UNKNOWN => {
            "the keytab does not have the key that the KDC has for this host: see klist -k"
        }
        ETYPE_NOSUPP | PROG_ETYPE_NOSUPP | CONFIG_ETYPE_NOSUPP | NOPERM_ETYPE => {
            "the KDC has no AES key of this user or host, or does not know that it may use it: keys are made \
             when a password is set; in Active Directory see msDS-SupportedEncryptionTypes"
        }
        FAST_REQUIRED => {
            "a KDC that does not know FAST (RFC 6113) cannot show that a password has expired, so it is not \
             believed: switch FAST on there, or change the password elsewhere"
        }
        REALM_UNKNOWN => "no KDC is known of the realm: see krb5_kdcs and krb5_discover",
        PREAUTH_REQUIRED | PREAUTH_BAD_TYPE | PREAUTH_NO_KEY | PADATA_TYPE_NOSUPP => {
            "the KDC wants more than a password of this user"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_whatever_is_a_success() {
        for distance in -300..400 {
            let code = BASE + distance;
            assert_ne!(of_log_in(code), Outcome::Success, "{distance}");
            assert_ne!(of_verification(code), Outcome::Success, "{distance}");
        }
        // Errors of the system, as from a full table of files.
        assert_eq!(of_log_in(23), Outcome::Failed);
    }

    #[test]
    fn errors_of_a_kdc_are_told_apart() {
        let cases = [
            (-1_765_328_360, Outcome::WrongPassword),
            (-1_765_328_353, Outcome::WrongPassword),
            (-1_765_328_378, Outcome::UnknownUser),
            (-1_765_328_361, Outcome::MustChange),
            (-1_765_328_366, Outcome::Locked),
            (-1_765_328_383, Outcome::AccountExpired),
            (-1_765_328_372, Outcome::Refused),
            (-1_765_328_228, Outcome::Unreachable),
            (-1_765_328_164, Outcome::Unreachable),
            (-1_765_328_347, Outcome::Misconfigured),
            (-1_765_328_236, Outcome::Misconfigured),
            (-1_765_328_230, Outcome::Misconfigured),
        ];
        for (code, outcome) in cases {
            assert_eq!(of_log_in(code), outcome, "{code}");
        }
        assert_eq!(of_presence(-1_765_328_230), Outcome::Unreachable);
        assert_eq!(of_presence(-1_765_328_347), Outcome::Misconfigured);
        assert_eq!(of_verification(-1_765_328_377), Outcome::NotVerified);
        assert_eq!(of_verification(-1_765_328_228), Outcome::Unreachable);
        assert!(advice(-1_765_328_236).contains("clocks"));
    }

    #[test]
    fn every_outcome_travels() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::of_code(outcome.code()), Some(outcome));
        }
        assert_eq!(Outcome::of_code(12), None);
    }
}
