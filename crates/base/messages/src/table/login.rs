//! Refused and failed logins.

crate::messages! {}
