//! `roster-lab`: loads and times identity services, and says when a figure is not what it seems.
//!
//! The way of a run, one module a step, each of which knows only those after it:
//!
//! | | |
//! |---|---|
//! | [`commands`] | what was typed, or written in a plan, becomes runs; their reports |
//! | `args`, `plan`, [`template`] | options, and texts that vary from request to request |
//! | [`preflight`] | what is found out of a server before its figures are believed |
//! | [`runner`] | threads, one clock, one sum |
//! | [`load_thread`], [`schedule`] | one thread: when requests start, and what became of them |
//! | [`ldap`], [`dns`], [`krb5`], [`nss`], [`command`] | engines: one request in some protocol |
//! | [`message_engine`], [`blocking_engine`], [`ber`] | what several engines have in common |
//! | [`dlopen`] | libraries that are loaded while we run |
//! | [`net`], [`poll`] | sockets that do not block, and waiting for many at once |
//! | [`recorder`], [`request_error`], [`server_usage`], [`ephemeral_ports`], [`clock_checks`] | what is measured, and by what it is bounded |
//! | [`locust`] | what a worker of Locust and its master say to each other |
//! | [`report`] | figures, and what to think of them |
//! | [`password_schemes`] | ways to store passwords, ranked |
//! | [`trace`] | at which hop requests spend their time |
//! | [`compare`], [`bisect`] | reports side by side, as a page or a picture too; one after the other |
//!
//! But for `roster-cli-docs`, which knows no program, nothing here knows another crate of Roster: the lab measures it
//! from outside as it does all others.

// The library serves the programs and tests of this package.
#![allow(missing_docs)]
// But for `foreign`, as the workspace has it.
#![deny(unsafe_code)]
// Those two end the program where a stream is full or broken.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
pub mod ber;
pub mod bisect;
pub mod blocking_engine;
pub mod clock_checks;
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
pub mod metric;
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
