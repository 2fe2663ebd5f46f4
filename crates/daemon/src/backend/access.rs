//! Whether a user may in: what the domain's rules and the account itself say, whoever authenticated
//! them.

use roster_bus::interfaces::LogIn;
use roster_provider::log_in::Answer;
use roster_wire::pam::Verdict;

/// The rules of a domain.
#[derive(Debug)]
pub struct Access;

impl Access {
    /// A domain without rules.
    #[must_use]
    pub fn open() -> Self {
        Self
    }

    /// Whether the user may in by that service now.
    pub async fn decide(&self, _: &LogIn) -> Answer {
        Answer::of(Verdict::Success)
    }
}
