// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors 0 to 2 of a command, and the check whether a caller may pass them. This module reads and writes none of
//! them: `command_io` and the callers of roster-exec do.

use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, makedev};
use std::os::fd::BorrowedFd;

/// /dev/null: devices.txt of Linux.
const NULL: (u32, u32) = (1, 3);

/// Descriptors 0 to 2 of a command.
#[derive(Clone, Copy, Debug)]
pub struct StdStreams<'s> {
    /// Standard input.
    pub stdin: BorrowedFd<'s>,
    /// Standard output.
    pub stdout: BorrowedFd<'s>,
    /// Standard error.
    pub stderr: BorrowedFd<'s>,
}

impl StdStreams<'_> {
    /// Returns the reason for which a caller may not pass them. A program that opens /dev/stdin or /dev/stderr opens
    /// the file again with its own rights. The caller therefore needs a descriptor for the direction of that access.
    #[must_use]
    pub fn fault(&self) -> Option<CodedError> {
        let streams = [
            (self.stdin, OFlags::WRONLY),
            (self.stdout, OFlags::RDONLY),
            (self.stderr, OFlags::RDONLY),
        ];
        (0..).zip(streams).find_map(|(number, (stream, wrong))| {
            let text = format!("descriptor {number} {}", fault(stream, wrong)?);
            Some(CodedError::new(&commands::STREAM_REFUSED, text))
        })
    }
}

fn fault(stream: BorrowedFd<'_>, wrong: OFlags) -> Option<&'static str> {
    let Ok(flags) = fcntl_getfl(stream) else { return Some("is closed") };
    if flags.contains(OFlags::PATH) {
        return Some("is open only by its path (O_PATH)");
    }
    if flags & OFlags::ACCMODE != wrong {
        return None;
    }
    // A closed stream is /dev/null in the wrong direction. Pipes and sockets have no second direction.
    let status = fstat(stream).ok();
    match status.map(|status| (FileType::from_raw_mode(status.st_mode), status.st_rdev)) {
        Some((FileType::Fifo | FileType::Socket, _)) => None,
        Some((FileType::CharacterDevice, device)) if device == makedev(NULL.0, NULL.1) => None,
        _ if wrong == OFlags::WRONLY => Some("is a file that is not open for reading"),
        _ => Some("is a file that is not open for writing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn streams_of_other_direction_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let write = File::create(&path).unwrap();
        let read = File::open(&path).unwrap();
        let by_path = OFlags::PATH.bits().cast_signed();
        let by_path = File::options().read(true).custom_flags(by_path).open(&path).unwrap();
        let null = File::open("/dev/null").unwrap();
        let of = |stdin: &File, stdout: &File, stderr: &File| {
            let [stdin, stdout, stderr] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
            StdStreams { stdin, stdout, stderr }.fault().map(|fault| {
                assert_eq!(fault.message, &commands::STREAM_REFUSED);
                fault.text
            })
        };
        assert_eq!(of(&read, &write, &write), None);
        assert_eq!(of(&null, &null, &null), None);
        let zero = File::open("/dev/zero").unwrap();
        assert!(of(&zero, &write, &write).is_none() && of(&zero, &zero, &write).is_some());
        let told = of(&read, &write, &read);
        assert_eq!(told.as_deref(), Some("descriptor 2 is a file that is not open for writing"));
        let told = of(&write, &write, &write);
        assert_eq!(told.as_deref(), Some("descriptor 0 is a file that is not open for reading"));
        for told in [of(&by_path, &write, &write), of(&read, &by_path, &write)] {
            assert!(told.is_some_and(|told| told.ends_with("is open only by its path (O_PATH)")));
        }
    }
}
