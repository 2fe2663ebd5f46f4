//! `roster-lab`: loads and times identity services, and says when a figure is not what it seems.
//!
//! The way of a run, one module a step, each of which knows only those after it:
//!
//! | | |
//! |---|---|
//! | [`program`] | what was typed, or written in a plan, becomes runs; their reports |
//! | `cli`, `plan`, [`template`] | options, and texts that vary from request to request |
//! | [`probes`] | what is found out of a server before its figures are believed |
//! | [`run`] | threads, one clock, one sum |
//! | [`worker`], [`schedule`] | one thread: when requests start, and what became of them |
//! | [`ldap`], [`dns`], [`krb5`], [`nss`], [`command`] | engines: one request in some protocol |
//! | [`exchange`], [`blocking`], [`ber`] | what several engines have in common |
//! | [`foreign`] | libraries that are loaded while we run |
//! | [`net`], [`poll`] | sockets that do not block, and waiting for many at once |
//! | [`recorder`], [`failure`], [`server`], [`ports`], [`clock`] | what is measured, and by what it is bounded |
//! | [`locust`] | what a worker of Locust and its master say to each other |
//! | [`report`] | figures, and what to think of them |
//! | [`schemes`] | ways to store passwords, ranked |
//! | [`trace`] | at which hop requests spend their time |
//! | [`compare`], [`bisect`] | reports side by side, as a page or a picture too; one after the other |
//!
//! But for `roster-manual`, which knows no program, nothing here knows another crate of Roster: the lab measures it
//! from outside as it does all others.

// But for `foreign`, as the workspace has it.
#![deny(unsafe_code)]
// Those two end the program where a stream is full or broken.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod ber;
pub mod bisect;
pub mod blocking;
mod cli;
pub mod clock;
pub mod command;
pub mod compare;
pub mod dns;
pub mod exchange;
pub mod failure;
pub mod foreign;
pub mod krb5;
pub mod ldap;
mod limits;
pub mod locust;
pub mod net;
pub mod nss;
mod pages;
mod plan;
pub mod poll;
pub mod ports;
pub mod probes;
pub mod program;
pub mod recorder;
pub mod report;
pub mod run;
pub mod schedule;
pub mod schemes;
pub mod server;
pub mod template;
pub mod trace;
mod view;
pub mod worker;
