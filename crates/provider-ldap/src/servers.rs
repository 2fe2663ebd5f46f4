//! Which servers to try, in which order, and how long to wait between two rounds.

use roster_config::{Ldap, Server};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first wait; most failures are a server that is being restarted.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// While a server may be back any moment, waits stay below this, so that two seconds after it is
/// back we are too …
const WAIT_EAGER: Duration = Duration::from_millis(1500);
/// … for this many rounds, some three minutes.
const EAGER_ROUNDS: u32 = 120;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A server as its URI.
pub fn describe(server: &Server) -> String {
    let bracketed =
        |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match server {
        Server::Ldap { host, port } => format!("ldap://{}:{port}", bracketed(host)),
        Server::Ldaps { host, port } => format!("ldaps://{}:{port}", bracketed(host)),
        Server::Ldapi { path } => format!("ldapi://{}", path.display()),
    }
}

/// The servers of a domain.
pub struct Servers {
    configured: Vec<Server>,
}

impl Servers {
    /// From a domain's configuration.
    pub fn new(ldap: &Ldap) -> Self {
        Self { configured: ldap.servers.clone() }
    }

    /// All that are known now, the preferred first.
    pub async fn list(&self) -> Vec<Server> {
        self.configured.clone()
    }
}

/// The waits between rounds: they double, and each is of random length so that hosts which lost a
/// server together do not come back together.
#[derive(Debug)]
pub struct Backoff {
    round: u32,
    random: RandomState,
}

impl Backoff {
    /// From the beginning.
    pub fn new() -> Self {
        Self { round: 0, random: RandomState::new() }
    }

    /// How long to wait now.
    pub fn next(&mut self) -> Duration {
        let share = self.random.hash_one(self.round) as u32;
        let wait = wait(self.round, share);
        self.round = self.round.saturating_add(1);
        wait
    }
}

/// The wait after so many rounds; `random` spreads it between its half and its whole.
fn wait(round: u32, random: u32) -> Duration {
    let cap = if round < EAGER_ROUNDS { WAIT_EAGER } else { WAIT_MAX };
    let doublings = if round < EAGER_ROUNDS { round } else { round - EAGER_ROUNDS + 3 };
    let whole =
        WAIT_MIN.saturating_mul(1_u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX)).min(cap);
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_caps_and_are_never_more_than_that() {
        assert!(wait(0, 0) == WAIT_MIN / 2 && wait(0, u32::MAX) == WAIT_MIN);
        for round in 0..1000 {
            let (least, most) = (wait(round, 0), wait(round, u32::MAX));
            assert!(least >= WAIT_MIN / 2 && most <= WAIT_MAX && least <= most);
            assert!(round >= EAGER_ROUNDS || most <= WAIT_EAGER, "round {round}");
        }
        assert_eq!(wait(500, u32::MAX), WAIT_MAX);
    }

    #[test]
    fn a_server_is_written_as_its_uri() {
        let server = Server::Ldap { host: "::1".to_owned(), port: 3890 };
        assert_eq!(describe(&server), "ldap://[::1]:3890");
    }
}
