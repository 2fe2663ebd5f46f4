// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon that caches credentials, and its directory, which a test takes down. Campaigns on storage use both.

use crate::pam::{self, PASSWORD};
use crate::rosterd::{DomainTable, Rosterd, SOON};
use crate::servers::{DirectoryServer, Slapd};
use crate::wait::{wait_for, wait_until};
use crate::{LdifBuilder, Schema};
use roster_request::{AuthRequestKind, AuthResult};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const LINES_SHOWN: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct OfflineFixture {
    /// The directory.
    pub slapd: Slapd,
    /// The daemon, as the invoking user.
    pub rosterd: Rosterd,
    users: Vec<String>,
}

impl OfflineFixture {
    /// A daemon that is configured and not started.
    ///
    /// # Panics
    /// If the directory does not come up; so do the other functions when the expected event does not occur.
    #[must_use]
    pub fn prepared(users: &[&str]) -> Self {
        let slapd = pam::slapd_with_users(users);
        let rosterd = Rosterd::prepared(&[Self::domain(&slapd)]);
        Self { slapd, rosterd, users: users.iter().map(|user| (*user).to_owned()).collect() }
    }

    /// A daemon that runs, and keeps the passwords of all users.
    #[must_use]
    pub fn started(users: &[&str]) -> Self {
        let mut kept = Self::prepared(users);
        kept.launch();
        kept.login_all();
        kept
    }

    /// Starts the daemon, and waits until it knows the host's own accounts and its domain.
    pub fn launch(&mut self) {
        self.rosterd.launch();
        wait_for(SOON, || match self.auth_result("local", "a guess") {
            Ok(AuthResult::NotHandled | AuthResult::UnknownUser) => Ok(()),
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
    pub fn domain(slapd: &Slapd) -> DomainTable {
        pam::domain(slapd)
            .with("connect_timeout", "\"1s\"")
            .with("offline_credentials_expiration", "\"7d\"")
            .with("offline_failed_login_attempts", "1000")
            .with("argon2_target_time", "\"10ms\"")
    }

    /// Logs each user in once.
    pub fn login_all(&self) {
        for user in &self.users {
            self.login(user, PASSWORD);
        }
    }

    /// Sends a password to the responder.
    ///
    /// # Errors
    /// The failure of the connection, with the log.
    pub fn auth_result(&self, user: &str, password: &str) -> Result<AuthResult, String> {
        pam::auth_result(&self.rosterd, AuthRequestKind::Authenticate, user, password)
    }

    /// Repeats the request until the daemon knows its users.
    #[must_use]
    pub fn auth_result_when_known(&self, user: &str, password: &str) -> AuthResult {
        wait_for(SOON, || match self.auth_result(user, password) {
            Ok(AuthResult::NotHandled | AuthResult::UnknownUser) => Err(self.log()),
            said => said,
        })
    }

    /// Waits until the responder returns this result for a password.
    #[track_caller]
    pub fn expect_auth_result(&self, user: &str, password: &str, wanted: AuthResult) {
        wait_for(SOON, || match self.auth_result(user, password)? {
            said if said == wanted => Ok(()),
            said => Err(format!("{user}: {said:?} and not {wanted:?}: {}", self.log())),
        });
    }

    /// Logs in while the directory answers, and waits until the credentials are cached.
    #[track_caller]
    pub fn login(&self, user: &str, password: &str) {
        self.expect_auth_result(user, password, AuthResult::Success);
        wait_until(SOON, "it is kept", || {
            let told = self.rosterd.roster(&["cache", "credentials"]);
            String::from_utf8_lossy(&told.stdout).contains(user)
        });
    }

    /// The user's passwd line with that shell.
    #[must_use]
    pub fn passwd_line(&self, user: &str, shell: &str) -> String {
        let place = self.users.iter().position(|one| one == user).expect("a user of the test");
        let id = pam::FIRST_LOGIN_UID + u32::try_from(place).expect("a few users");
        format!("{user}:*:{id}:{id}:{user} of dc=example,dc=com:/home/{user}:{shell}")
    }

    /// Changes a user in the directory.
    pub fn set_attribute(&self, user: &str, attribute: &str, value: &str) {
        let directory = LdifBuilder::new(Schema::Rfc2307);
        self.slapd.set(&directory.user_dn(user), attribute, &[value]);
    }

    /// Stops the directory, until the daemon knows.
    pub fn stop_directory(&mut self) {
        pam::stop_server(&mut self.slapd, &self.rosterd);
    }

    /// Starts the directory, until the daemon knows.
    pub fn start_directory(&mut self) {
        self.slapd.start();
        self.rosterd.expect_domain_status("corp", "online", true);
    }

    /// The end of the daemon's log, for failure messages.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.rosterd.log();
        let lines: Vec<_> = log.lines().collect();
        format!("\n  {}", lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n  "))
    }

    /// Waits until the status has no error of the files of passwords.
    pub fn expect_no_errors(&self) {
        self.rosterd.expect_domain_status("corp", "credentials_error", Value::Null);
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
