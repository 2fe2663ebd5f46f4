//! roster.toml: parse, check, explain.

#![forbid(unsafe_code)]
