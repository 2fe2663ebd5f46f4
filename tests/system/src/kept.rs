//! A daemon that keeps passwords, and its directory, which a test takes away. Campaigns on storage use both.

use crate::pam::{self, PASSWORD};
use crate::rosterd::{Domain, Rosterd, SOON};
use crate::servers::{Server, Slapd};
use crate::wait::{wait_for, wait_until};
use crate::{Directory, Schema};
use roster_wire::pam::{Kind, Verdict};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const LINES_SHOWN: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct Kept {
    /// The directory.
    pub slapd: Slapd,
    /// The daemon, as the invoking user.
    pub rosterd: Rosterd,
    users: Vec<String>,
}

impl Kept {
    /// A daemon that is configured and not started.
    ///
    /// # Panics
    /// If the directory does not come up; so do the other functions when what they wait for does not come about.
    #[must_use]
    pub fn prepared(users: &[&str]) -> Self {
        let slapd = pam::directory(users);
        let rosterd = Rosterd::prepared(&[Self::domain(&slapd)]);
        Self { slapd, rosterd, users: users.iter().map(|user| (*user).to_owned()).collect() }
    }

    /// A daemon that runs, and keeps the passwords of all users.
    #[must_use]
    pub fn started(users: &[&str]) -> Self {
        let mut kept = Self::prepared(users);
        kept.launch();
        kept.log_all_in();
        kept
    }

    /// Starts the daemon, and waits until it knows the host's own accounts and its domain.
    pub fn launch(&mut self) {
        self.rosterd.launch();
        wait_for(SOON, || match self.verdict("local", "a guess") {
            Ok(Verdict::NotOurs | Verdict::UnknownUser) => Ok(()),
            said => Err(format!("{said:?}: {}", self.log())),
        });
        self.wait_for_backend();
    }

    fn wait_for_backend(&self) {
        wait_until(SOON, "the backend answers", || {
            self.rosterd.roster(&["cache", "credentials"]).code == 0
        });
    }

    /// The domain of a directory.
    #[must_use]
    pub fn domain(slapd: &Slapd) -> Domain {
        pam::domain(slapd)
            .with("connect_timeout", "\"1s\"")
            .with("offline_life", "\"7d\"")
            .with("offline_failures", "1000")
            .with("password_hash_time", "\"10ms\"")
    }

    /// Everybody logs in once.
    pub fn log_all_in(&self) {
        for user in &self.users {
            self.log_in(user, PASSWORD);
        }
    }

    /// Asks the responder about a password.
    ///
    /// # Errors
    /// The failure of the connection, with the log.
    pub fn verdict(&self, user: &str, password: &str) -> Result<Verdict, String> {
        pam::verdict(&self.rosterd, Kind::Authenticate, user, password)
    }

    /// Asks again until the daemon knows its users.
    #[must_use]
    pub fn settled(&self, user: &str, password: &str) -> Verdict {
        wait_for(SOON, || match self.verdict(user, password) {
            Ok(Verdict::NotOurs | Verdict::UnknownUser) => Err(self.log()),
            said => said,
        })
    }

    /// Waits until the responder says that of a password.
    #[track_caller]
    pub fn expect(&self, user: &str, password: &str, wanted: Verdict) {
        wait_for(SOON, || match self.verdict(user, password)? {
            said if said == wanted => Ok(()),
            said => Err(format!("{user}: {said:?} and not {wanted:?}: {}", self.log())),
        });
    }

    /// Logs in while the directory answers, and waits until that is kept.
    #[track_caller]
    pub fn log_in(&self, user: &str, password: &str) {
        self.expect(user, password, Verdict::Success);
        wait_until(SOON, "it is kept", || {
            let told = self.rosterd.roster(&["cache", "credentials"]);
            String::from_utf8_lossy(&told.stdout).contains(user)
        });
    }

    /// The user's passwd line with that shell.
    #[must_use]
    pub fn line(&self, user: &str, shell: &str) -> String {
        let place = self.users.iter().position(|one| one == user).expect("a user of the test");
        let id = pam::FIRST + u32::try_from(place).expect("a few users");
        format!("{user}:*:{id}:{id}:{user} of dc=example,dc=com:/home/{user}:{shell}")
    }

    /// Changes a user in the directory.
    pub fn set(&self, user: &str, attribute: &str, value: &str) {
        let directory = Directory::new(Schema::Rfc2307);
        self.slapd.set(&directory.user_dn(user), attribute, &[value]);
    }

    /// Stops the directory, until the daemon knows.
    pub fn take_away(&mut self) {
        pam::take_away(&mut self.slapd, &self.rosterd);
    }

    /// Starts the directory, until the daemon knows.
    pub fn bring_back(&mut self) {
        self.slapd.start();
        self.rosterd.expect_of_domain("corp", "online", true);
    }

    /// The end of the daemon's log, for people.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.rosterd.log();
        let lines: Vec<_> = log.lines().collect();
        format!("\n  {}", lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n  "))
    }

    /// Waits until the status has no error of the files of passwords.
    pub fn expect_well(&self) {
        self.rosterd.expect_of_domain("corp", "credentials_error", Value::Null);
    }

    /// Kills a role, and waits until it runs again.
    pub fn restart_role(&self, role: &str) {
        let before = self.rosterd.wait_for_role(role);
        let _ = kill_process(before, Signal::KILL);
        wait_until(SOON, "another one runs", || {
            self.rosterd.role(role).is_some_and(|now| now != before)
        });
        self.wait_for_backend();
    }
}
