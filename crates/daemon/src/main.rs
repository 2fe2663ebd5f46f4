//! `rosterd`.
#![forbid(unsafe_code)]

fn main() {}
