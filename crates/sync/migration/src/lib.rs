// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way from SSSD or nslcd to Roster: [`sssd`] and [`nslcd`] convert configurations into a [`Plan`], [`render()`] writes
//! it as roster.toml, and [`check`] parses the result as rosterd does. [`cache`] reads the cache of SSSD, and [`compare`]
//! compares it with the entries of a snapshot.
//!
//! A setting that restricts logins or entries and has no counterpart stops the conversion. The tables of settings are in
//! `sssd/settings.rs` and `nslcd.rs`. Every parser of this crate accepts any bytes and has bounds.
#![forbid(unsafe_code)]

pub mod cache;
pub mod compare;
pub mod ini;
pub mod krb5_conf;
pub mod nslcd;
pub mod nslcd_lines;
mod plan;
mod render;
mod result_check;
mod source_file;
pub mod sssd;
mod syntax;
mod values;

pub use plan::{DomainPlan, Item, Origin, Outcome, Password, Plan, TomlTable, Waivers};
pub use render::render;
pub use result_check::check;
pub use source_file::{SourceError, SourceErrorKind};
pub use syntax::SyntaxError;
