//! What is kept of passwords for when nobody can be asked about them, and what is made of it.

use roster_provider::log_in::{Answer, Person};
use roster_secret::Secret;
use roster_wire::pam::Verdict;
use std::sync::Arc;

/// The credentials of a domain's users.
#[derive(Debug)]
pub struct Offline;

impl Offline {
    /// A domain of which nothing is kept.
    #[must_use]
    pub fn none() -> Self {
        Self
    }

    /// Whether there is something to go by for that person.
    #[must_use]
    pub fn has(&self, _: &Person) -> bool {
        false
    }

    /// What is to be said while nobody who knows can be asked, which `unreachable` says.
    pub async fn check(&self, _: &Person, _: &Secret, unreachable: Answer) -> Answer {
        unreachable
    }

    /// Who knows has answered. What has to be written is written after the person was told.
    pub fn heard(self: &Arc<Self>, _: &Person, _: &Secret, _: Verdict) {}

    /// The password was changed to this.
    pub fn changed(self: &Arc<Self>, _: &Person, _: &Secret) {}
}
