//! LDAP directories: connection, schema mapping, change tracking.

#![forbid(unsafe_code)]
