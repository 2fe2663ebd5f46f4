// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of a command for setrlimit(2). `exec_toml` has their values, and `setuid_stage` applies them before the
//! command starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandRlimit {
    /// Open files.
    Files(u64),
    /// Bytes of address space.
    Memory(u64),
    /// Seconds of a processor.
    Seconds(u64),
}

impl CommandRlimit {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Files(_) => 0,
            Self::Memory(_) => 1,
            Self::Seconds(_) => 2,
        }
    }

    pub(super) fn value(self) -> u64 {
        match self {
            Self::Files(value) | Self::Memory(value) | Self::Seconds(value) => value,
        }
    }

    pub(super) fn from_code(code: u32, value: u64) -> Option<Self> {
        [Self::Files(value), Self::Memory(value), Self::Seconds(value)]
            .into_iter()
            .find(|limit| limit.code() == code)
    }

    /// Limits this process and the command that it becomes. A lower limit stays.
    pub(super) fn impose(self) -> io::Result<()> {
        let resource = match self {
            Self::Files(_) => Resource::Nofile,
            Self::Memory(_) => Resource::As,
            Self::Seconds(_) => Resource::Cpu,
        };
        let maximum = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(self.value());
        Ok(setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?)
    }
}
