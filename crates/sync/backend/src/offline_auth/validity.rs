// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validity of a stored credential before a comparison. The comparison of the password is in `offline_auth`.

use roster_config::OfflineConfig as Settings;
use roster_domain_cache::credentials::StoredCredential;
use std::time::Duration;

/// Delay of a refusal after the time of a hash. An attacker waits for it at each guess. It is constant: a longer delay
/// after earlier guesses would reveal existing users.
const PAUSE: Duration = Duration::from_millis(500);

/// Validity of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialValidity {
    /// The credential may be compared.
    Valid,
    /// The credential is locked until that time.
    LockedUntil(u64),
    /// The credential's date is later than the present time, from another clock.
    FromFuture,
    /// The credential has expired.
    Expired,
    /// The credential belongs to an earlier user of the same name.
    OtherUser,
}

/// Returns the validity of a credential at a time.
#[must_use]
pub fn credential_validity(
    credential: &StoredCredential,
    uid: u32,
    now: u64,
    settings: &Settings,
) -> CredentialValidity {
    let StoredCredential { verified_unix, failures, failed_unix, .. } = *credential;
    if credential.uid != uid {
        return CredentialValidity::OtherUser;
    }
    let Some(age) = now.checked_sub(verified_unix) else { return CredentialValidity::FromFuture };
    if age > settings.life.as_secs() {
        return CredentialValidity::Expired;
    }
    let until = failed_unix.saturating_add(settings.lockout.as_secs());
    // A later date came from a clock that was ahead and has been corrected since.
    if failures >= settings.failures && failed_unix <= now && now < until {
        return CredentialValidity::LockedUntil(until);
    }
    CredentialValidity::Valid
}

/// Returns the time until a password is refused.
#[must_use]
pub fn refusal_delay(settings: &Settings) -> Duration {
    settings.hash_time.saturating_add(PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        life: Duration::from_secs(1000),
        failures: 3,
        lockout: Duration::from_secs(60),
        hash_time: Duration::from_millis(10),
    };

    fn stands(failures: u32, failed_unix: u64, now: u64) -> CredentialValidity {
        let hash = String::new();
        let credential =
            StoredCredential { uid: 1, hash, verified_unix: 5000, failures, failed_unix };
        credential_validity(&credential, 1, now, &SETTINGS)
    }

    #[test]
    fn a_credential_is_good_for_its_life() {
        assert_eq!(stands(0, 0, 5000), CredentialValidity::Valid);
        assert_eq!(stands(0, 0, 6000), CredentialValidity::Valid);
        assert_eq!(stands(0, 0, 6001), CredentialValidity::Expired);
        assert_eq!(stands(0, 0, 4999), CredentialValidity::FromFuture, "it is of another clock");
    }

    #[test]
    fn failures_lock_for_a_time_and_each_further_one_locks_again() {
        assert_eq!(stands(2, 5100, 5100), CredentialValidity::Valid);
        assert_eq!(stands(3, 5100, 5100), CredentialValidity::LockedUntil(5160));
        assert_eq!(stands(3, 5100, 5159), CredentialValidity::LockedUntil(5160));
        assert_eq!(stands(3, 5100, 5160), CredentialValidity::Valid);
        assert_eq!(stands(4, 5160, 5161), CredentialValidity::LockedUntil(5220));
    }

    #[test]
    fn offline_lockout_by_fast_clock_is_corrected() {
        assert_eq!(stands(3, 9_000_000, 5100), CredentialValidity::Valid);
        assert_eq!(stands(3, 5100, 5100), CredentialValidity::LockedUntil(5160));
    }

    #[test]
    fn who_has_the_name_of_another_has_not_the_password() {
        let hash = String::new();
        let credential =
            StoredCredential { uid: 1, hash, verified_unix: 5000, failures: 0, failed_unix: 0 };
        assert_eq!(
            credential_validity(&credential, 2, 5000, &SETTINGS),
            CredentialValidity::OtherUser
        );
    }
}
