// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of this host that several commands use. Paths of one command are in its module.

/// Default configuration of rosterd.
pub const CONFIG: &str = "/etc/roster/roster.toml";
/// State directory of rosterd.
pub const STATE_DIR: &str = "/var/lib/roster";

/// Directory of the sockets of rosterd.
pub const RUN_DIR: &str = "/run/roster";
/// Name services of glibc.
pub const NSSWITCH: &str = "/etc/nsswitch.conf";
/// Configuration of SSSD.
pub const SSSD_CONF: &str = "/etc/sssd/sssd.conf";
/// Directory of SSSD's cache.
pub const SSSD_CACHE_DIR: &str = "/var/lib/sss/db";
/// Configuration of libkrb5.
pub const KRB5_CONF: &str = "/etc/krb5.conf";
