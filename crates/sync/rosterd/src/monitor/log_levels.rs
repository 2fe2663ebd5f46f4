// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log levels that an administrator has set at run time. The monitor hands them to roles that start later. They hold
//! until a configuration with another level is in force. `monitor::dbus` receives the requests.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The levels, shared by the loop of the monitor and its object on the bus.
#[derive(Clone, Default)]
pub struct LogLevels(Arc<Mutex<LevelOverrides>>);

#[derive(Default)]
struct LevelOverrides {
    /// The level of all roles without their own.
    all: Option<String>,
    roles: BTreeMap<String, String>,
}

impl LogLevels {
    /// Sets the level of a role.
    pub fn set(&self, role: &str, level: &str) {
        self.0.lock().roles.insert(role.to_owned(), level.to_owned());
    }

    /// Sets the level of all roles, also of those that had their own.
    pub fn set_all(&self, level: &str) {
        *self.0.lock() =
            LevelOverrides { all: Some(level.to_owned()), ..LevelOverrides::default() };
    }

    /// Drops all levels: the one of the configuration holds again.
    pub fn clear(&self) {
        *self.0.lock() = LevelOverrides::default();
    }

    /// Returns the level of a role. `configured` is the one of the configuration.
    pub fn level_of(&self, role: &str, configured: &str) -> String {
        let levels = self.0.lock();
        let level = levels.roles.get(role).or(levels.all.as_ref());
        level.map_or(configured, String::as_str).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_of_role_precedes_common_one() {
        let levels = LogLevels::default();
        let of = |role| levels.level_of(role, "info");
        assert_eq!(of("publisher"), "info");
        levels.set("publisher", "trace");
        assert_eq!((of("publisher"), of("responder:pam")), ("trace".into(), "info".into()));
        levels.set_all("debug");
        assert_eq!((of("publisher"), of("responder:pam")), ("debug".into(), "debug".into()));
        levels.set("publisher", "warn");
        levels.clear();
        assert_eq!((of("publisher"), of("responder:pam")), ("info".into(), "info".into()));
    }
}
