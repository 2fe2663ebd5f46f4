//! What a kept password is worth, before it is compared with anything.

use roster_config::Offline as Settings;
use roster_store::credentials::Credential;
use std::time::Duration;

/// How much later than a hash takes a password is refused: who guesses at a user waits for that each time.
/// Always the same, or it would tell at whom somebody has guessed before, and so who exists.
const PAUSE: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be compared.
    Good,
    /// Not before that time.
    LockedUntil(u64),
    /// It is of a later time than now: of another clock.
    Undated,
    /// Its life is over.
    TooOld,
    /// It is of somebody who had the name before.
    SomebodyElse,
}

/// How a credential stands at a time.
#[must_use]
pub fn standing(credential: &Credential, uid: u32, now: u64, settings: &Settings) -> Standing {
    let Credential { verified_unix, failures, failed_unix, .. } = *credential;
    if credential.uid != uid {
        return Standing::SomebodyElse;
    }
    let Some(age) = now.checked_sub(verified_unix) else { return Standing::Undated };
    if age > settings.life.as_secs() {
        return Standing::TooOld;
    }
    let until = failed_unix.saturating_add(settings.lockout.as_secs());
    // One that is later than now was counted by a clock that was ahead, and has been put right since.
    if failures >= settings.failures && failed_unix <= now && now < until {
        return Standing::LockedUntil(until);
    }
    Standing::Good
}

/// How long it takes until a password is refused.
#[must_use]
pub fn refusal(settings: &Settings) -> Duration {
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

    fn stands(failures: u32, failed_unix: u64, now: u64) -> Standing {
        let hash = String::new();
        let credential = Credential { uid: 1, hash, verified_unix: 5000, failures, failed_unix };
        standing(&credential, 1, now, &SETTINGS)
    }

    #[test]
    fn a_credential_is_good_for_its_life() {
        assert_eq!(stands(0, 0, 5000), Standing::Good);
        assert_eq!(stands(0, 0, 6000), Standing::Good);
        assert_eq!(stands(0, 0, 6001), Standing::TooOld);
        assert_eq!(stands(0, 0, 4999), Standing::Undated, "it is of another clock");
    }

    #[test]
    fn failures_lock_for_a_time_and_each_further_one_locks_again() {
        assert_eq!(stands(2, 5100, 5100), Standing::Good);
        assert_eq!(stands(3, 5100, 5100), Standing::LockedUntil(5160));
        assert_eq!(stands(3, 5100, 5159), Standing::LockedUntil(5160));
        assert_eq!(stands(3, 5100, 5160), Standing::Good);
        assert_eq!(stands(4, 5160, 5161), Standing::LockedUntil(5220));
    }

    #[test]
    fn a_lock_by_a_clock_that_was_ahead_ends_when_it_is_put_right() {
        assert_eq!(stands(3, 9_000_000, 5100), Standing::Good);
        assert_eq!(stands(3, 5100, 5100), Standing::LockedUntil(5160));
    }

    #[test]
    fn who_has_the_name_of_another_has_not_the_password() {
        let hash = String::new();
        let credential =
            Credential { uid: 1, hash, verified_unix: 5000, failures: 0, failed_unix: 0 };
        assert_eq!(standing(&credential, 2, 5000, &SETTINGS), Standing::SomebodyElse);
    }
}
