//! What `roster-exec` and the daemon that runs commands for it say to each other, as
//! docs/exec-protocol.md has it; and the words of the program's command line, of which its parser, its
//! help, its man page and its completions are made.
//!
//! Small, for it is in a program that has to start in no time. Decides nothing and starts nothing.

#![forbid(unsafe_code)]

pub mod options;
pub mod wire;
