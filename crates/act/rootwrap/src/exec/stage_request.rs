// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request to a stage, as bytes. Strings have a length and lists a count before them, as 32-bit little-endian
//! numbers. Sender and receiver are the same executable. `setuid_stage` does the work of a request.

use super::credentials::Credentials;
use super::rlimits::CommandRlimit;
use crate::evaluate::{KillRequest, ProcessIdentity};
use crate::python_strings::os_string;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;

/// The kernel accepts 2 MiB of arguments and variables by default, and at most 6 MiB.
pub(super) const STAGE_REQUEST_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct StageRequest {
    pub(super) credentials: Credentials,
    pub(super) limits: Vec<CommandRlimit>,
    /// True if the first process adopts orphans of its descendants.
    pub(super) adopts_orphans: bool,
    /// True if a descriptor of the working directory follows.
    pub(super) has_working_dir: bool,
    pub(super) action: StageAction,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StageAction {
    /// Become a command.
    Run {
        candidates: Vec<OsString>,
        /// The name in a directory that follows as a descriptor. It replaces the candidates.
        executable_name: Option<OsString>,
        argv: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
    },
    /// Send a signal to a process. 0 only checks that it exists.
    Signal(KillRequest),
}

impl StageRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Credentials { uid, gid, groups } = &self.credentials;
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        for number in [*uid, *gid, count(groups.len())].iter().chain(groups) {
            out.extend(number.to_le_bytes());
        }
        out.extend(count(self.limits.len()).to_le_bytes());
        for limit in &self.limits {
            out.extend(limit.code().to_le_bytes());
            out.extend(limit.value().to_le_bytes());
        }
        out.extend([self.adopts_orphans, self.has_working_dir].map(u8::from));
        match &self.action {
            StageAction::Run { candidates, executable_name: image, argv, environment } => {
                out.push(b'R');
                put_strings(&mut out, candidates.iter().map(OsString::as_os_str));
                put_strings(&mut out, image.iter().map(OsString::as_os_str));
                put_strings(&mut out, argv.iter().map(OsString::as_os_str));
                put_strings(&mut out, environment.iter().map(|(name, _)| name.as_os_str()));
                put_strings(&mut out, environment.iter().map(|(_, value)| value.as_os_str()));
            }
            StageAction::Signal(KillRequest { process, signal }) => {
                out.push(b'S');
                out.extend(process.pid.to_le_bytes());
                out.extend(process.started.to_le_bytes());
                out.extend(signal.to_le_bytes());
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = StageRequestReader(bytes);
        let (uid, gid, count) = (rest.read_number()?, rest.read_number()?, rest.read_number()?);
        let groups = (0..count).map(|_| rest.read_number()).collect::<io::Result<_>>()?;
        let limits = (0..rest.read_number()?)
            .map(|_| {
                let (code, value) = (rest.read_number()?, u64::from_le_bytes(*rest.take_array()?));
                CommandRlimit::from_code(code, value).ok_or_else(|| ErrorKind::InvalidData.into())
            })
            .collect::<io::Result<_>>()?;
        let [adopts, has_folder] = rest.take_array()?.map(|flag| flag != 0);
        let action = match rest.take_array::<1>()? {
            b"R" => {
                let (candidates, image, argv) =
                    (rest.read_strings()?, rest.read_strings()?.pop(), rest.read_strings()?);
                let environment =
                    rest.read_strings()?.into_iter().zip(rest.read_strings()?).collect();
                StageAction::Run { candidates, executable_name: image, argv, environment }
            }
            b"S" => {
                let pid = i64::from_le_bytes(*rest.take_array()?);
                let started = u64::from_le_bytes(*rest.take_array()?);
                let signal = i32::from_le_bytes(*rest.take_array()?);
                StageAction::Signal(KillRequest {
                    process: ProcessIdentity { pid, started },
                    signal,
                })
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let credentials = Credentials { uid, gid, groups };
        Ok(Self {
            credentials,
            limits,
            adopts_orphans: adopts,
            has_working_dir: has_folder,
            action,
        })
    }
}

fn put_strings<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w OsStr>) {
    out.extend(u32::try_from(words.len()).unwrap_or(u32::MAX).to_le_bytes());
    for word in words {
        out.extend(u32::try_from(word.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(word.as_bytes());
    }
}

struct StageRequestReader<'b>(&'b [u8]);

impl<'b> StageRequestReader<'b> {
    fn take_array<const N: usize>(&mut self) -> io::Result<&'b [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn read_number(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(*self.take_array()?))
    }

    fn read_strings(&mut self) -> io::Result<Vec<OsString>> {
        (0..self.read_number()?).map(|_| self.read_string()).collect()
    }

    fn read_string(&mut self) -> io::Result<OsString> {
        let length = usize::try_from(self.read_number()?).map_err(|_| ErrorKind::InvalidData)?;
        let (word, rest) = self.0.split_at_checked(length).ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(os_string(word.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_as_it_was_sent_or_not_at_all() {
        let credentials = Credentials { uid: 7, gid: 8, groups: vec![8, 9] };
        let odd = os_string(vec![0xff, b'=', b'\n']);
        let run = StageAction::Run {
            candidates: vec!["/bin/a".into(), "b".into()],
            executable_name: Some("a".into()),
            argv: vec![odd.clone(), OsString::new()],
            environment: vec![("A".into(), odd)],
        };
        let process = ProcessIdentity { pid: 1, started: u64::MAX };
        let signal = StageAction::Signal(KillRequest { process, signal: -1 });
        for action in [run, signal] {
            let limits = vec![
                CommandRlimit::Files(7),
                CommandRlimit::Memory(u64::MAX),
                CommandRlimit::Seconds(1),
            ];
            let credentials = credentials.clone();
            let order = StageRequest {
                credentials,
                limits,
                adopts_orphans: true,
                has_working_dir: false,
                action,
            };
            let bytes = order.encode();
            assert_eq!(StageRequest::decode(&bytes).unwrap(), order);
            for end in 0..bytes.len() {
                assert!(StageRequest::decode(&bytes[..end]).is_err());
            }
        }
    }
}
