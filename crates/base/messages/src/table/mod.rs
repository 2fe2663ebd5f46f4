// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of codes: one file for each area, which has a thousand numbers. This table has no values at hand: they are
//! in the code that reports a message.

use crate::Message;
use std::ops::RangeInclusive;

pub mod commands;
pub mod config;
pub mod daemon;
pub mod directory;
pub mod host;
pub mod lab;
pub mod login;
pub mod status;
pub mod tools;

/// An area of the table.
pub struct Area {
    /// The area's heading on the page of messages.
    pub name: &'static str,
    /// The numbers of its codes.
    pub numbers: RangeInclusive<u32>,
    /// The area's messages in the order of their codes.
    pub messages: &'static [&'static Message],
}

/// All areas.
pub static AREAS: &[Area] = &[
    Area { name: "Configuration: roster.toml", numbers: 1000..=1999, messages: config::MESSAGES },
    Area { name: "Host: roster doctor", numbers: 2000..=2999, messages: host::MESSAGES },
    Area {
        name: "State of rosterd: roster status",
        numbers: 3000..=3999,
        messages: status::MESSAGES,
    },
    Area {
        name: "Daemon: monitor, publisher, responders",
        numbers: 4000..=4999,
        messages: daemon::MESSAGES,
    },
    Area {
        name: "Directory: backends and their cache",
        numbers: 5000..=5999,
        messages: directory::MESSAGES,
    },
    Area { name: "Logins", numbers: 6000..=6999, messages: login::MESSAGES },
    Area {
        name: "Commands: rootwrap and roster-exec",
        numbers: 7000..=7999,
        messages: commands::MESSAGES,
    },
    Area { name: "Lab: roster-lab", numbers: 8000..=8999, messages: lab::MESSAGES },
    Area { name: "Tools: roster and roster nscd", numbers: 9000..=9999, messages: tools::MESSAGES },
];
