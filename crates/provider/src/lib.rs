//! What a source of users and groups is, and the provider that reads files.

#![forbid(unsafe_code)]
