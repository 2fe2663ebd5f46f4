// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-lab`: loads and measures identity services, and warns about misleading figures.
//!
//! The steps of a run, one module each. A module depends only on those below it:
//!
//! | | |
//! |---|---|
//! | [`commands`] | subcommands: from options or a plan to runs and reports |
//! | `args`, `plan`, [`template`] | options, and texts with parts that vary |
//! | [`preflight`] | checks before a run |
//! | [`runner`] | threads of a run, and the sum of their figures |
//! | [`load_thread`], [`schedule`] | one thread: starts of requests, and their results |
//! | [`ldap`], [`dns`], [`krb5`], [`nss`], [`command`] | engines: requests of one protocol |
//! | [`message_engine`], [`blocking_engine`], [`ber`] | common parts of engines |
//! | [`dlopen`] | libraries that are loaded at run time |
//! | [`net`], [`poll`] | non-blocking sockets, and epoll |
//! | [`recorder`], [`request_error`], [`server_usage`], [`ephemeral_ports`], [`clock_checks`] | measurements and their limits |
//! | [`locust`] | the protocol between a Locust worker and its master |
//! | [`report`] | figures and warnings |
//! | [`password_schemes`] | ranking of password storage schemes |
//! | [`trace`] | times of requests by stage |
//! | [`compare`], [`bisect`] | comparison of reports, and search for a release |
//! | `coded` | errors with codes |
//!
//! This crate depends on no service of Roster, only on `roster-cli-docs` and `roster-messages`. The lab measures Roster
//! from outside, like every other server.

// The library serves the programs and tests of this package.
#![allow(missing_docs)]
// `dlopen` has the only unsafe code.
#![deny(unsafe_code)]
// Both macros panic if the stream is full or closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
pub mod ber;
pub mod bisect;
pub mod bisect_metric;
pub mod blocking_engine;
pub mod clock_checks;
mod coded;
pub mod command;
pub mod commands;
pub mod compare;
pub mod dlopen;
pub mod dns;
pub mod ephemeral_ports;
mod fd_limit;
mod help_text;
pub mod krb5;
pub mod ldap;
mod live_view;
pub mod load_thread;
pub mod locust;
mod man_pages;
pub mod message_engine;
pub mod net;
pub mod nss;
pub mod password_schemes;
mod plan;
pub mod poll;
pub mod preflight;
pub mod recorder;
pub mod report;
pub mod request_error;
pub mod runner;
pub mod schedule;
pub mod server_usage;
pub mod template;
pub mod trace;
