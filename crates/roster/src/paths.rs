//! Files and directories of this host that several commands name.

/// Where rosterd reads its configuration unless told otherwise.
pub const CONFIG: &str = "/etc/roster/roster.toml";
/// Where rosterd keeps its state.
pub const STATE_DIR: &str = "/var/lib/roster";

/// Where the sockets of rosterd are.
pub const RUN_DIR: &str = "/run/roster";
/// glibc's file.
pub const NSSWITCH: &str = "/etc/nsswitch.conf";
