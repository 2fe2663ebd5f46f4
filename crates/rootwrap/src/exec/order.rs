//! What a stage is told to do, as bytes: lengths of four bytes, little-endian, before strings, and
//! counts before lists. Both ends are one executable.

use super::credentials::Credentials;
use super::limit::Limit;
use crate::conf::os;
use crate::judge::{Kill, Process};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;

/// The kernel takes 2 MiB of words and variables by default, and 6 MiB at the most.
pub(super) const ORDER_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) credentials: Credentials,
    pub(super) limits: Vec<Limit>,
    /// Whether whoever a descendant leaves behind is the command's first process's.
    pub(super) adopts: bool,
    /// Whether the descriptor of a folder to run in comes along.
    pub(super) has_folder: bool,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Become a command.
    Run {
        candidates: Vec<OsString>,
        /// The name in a folder whose descriptor comes along, instead of the candidates.
        image: Option<OsString>,
        argv: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
    },
    /// Signal a process as long as it is that one; 0 only looks for it.
    Signal(Kill),
}

impl Order {
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
        out.extend([self.adopts, self.has_folder].map(u8::from));
        match &self.action {
            Action::Run { candidates, image, argv, environment } => {
                out.push(b'R');
                put_all(&mut out, candidates.iter().map(OsString::as_os_str));
                put_all(&mut out, image.iter().map(OsString::as_os_str));
                put_all(&mut out, argv.iter().map(OsString::as_os_str));
                put_all(&mut out, environment.iter().map(|(name, _)| name.as_os_str()));
                put_all(&mut out, environment.iter().map(|(_, value)| value.as_os_str()));
            }
            Action::Signal(Kill { process, signal }) => {
                out.push(b'S');
                out.extend(process.pid.to_le_bytes());
                out.extend(process.started.to_le_bytes());
                out.extend(signal.to_le_bytes());
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = Rest(bytes);
        let (uid, gid, count) = (rest.number()?, rest.number()?, rest.number()?);
        let groups = (0..count).map(|_| rest.number()).collect::<io::Result<_>>()?;
        let limits = (0..rest.number()?)
            .map(|_| {
                let (code, value) = (rest.number()?, u64::from_le_bytes(*rest.take()?));
                Limit::of(code, value).ok_or_else(|| ErrorKind::InvalidData.into())
            })
            .collect::<io::Result<_>>()?;
        let [adopts, has_folder] = rest.take()?.map(|flag| flag != 0);
        let action = match rest.take::<1>()? {
            b"R" => {
                let (candidates, image, argv) = (rest.all()?, rest.all()?.pop(), rest.all()?);
                let environment = rest.all()?.into_iter().zip(rest.all()?).collect();
                Action::Run { candidates, image, argv, environment }
            }
            b"S" => {
                let pid = i64::from_le_bytes(*rest.take()?);
                let started = u64::from_le_bytes(*rest.take()?);
                let signal = i32::from_le_bytes(*rest.take()?);
                Action::Signal(Kill { process: Process { pid, started }, signal })
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let credentials = Credentials { uid, gid, groups };
        Ok(Self { credentials, limits, adopts, has_folder, action })
    }
}

fn put_all<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w OsStr>) {
    out.extend(u32::try_from(words.len()).unwrap_or(u32::MAX).to_le_bytes());
    for word in words {
        out.extend(u32::try_from(word.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(word.as_bytes());
    }
}

struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take<const N: usize>(&mut self) -> io::Result<&'b [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(*self.take()?))
    }

    fn all(&mut self) -> io::Result<Vec<OsString>> {
        (0..self.number()?).map(|_| self.word()).collect()
    }

    fn word(&mut self) -> io::Result<OsString> {
        let length = usize::try_from(self.number()?).map_err(|_| ErrorKind::InvalidData)?;
        let (word, rest) = self.0.split_at_checked(length).ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(os(word.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_as_it_was_sent_or_not_at_all() {
        let credentials = Credentials { uid: 7, gid: 8, groups: vec![8, 9] };
        let odd = os(vec![0xff, b'=', b'\n']);
        let run = Action::Run {
            candidates: vec!["/bin/a".into(), "b".into()],
            image: Some("a".into()),
            argv: vec![odd.clone(), OsString::new()],
            environment: vec![("A".into(), odd)],
        };
        let process = Process { pid: 1, started: u64::MAX };
        let signal = Action::Signal(Kill { process, signal: -1 });
        for action in [run, signal] {
            let limits = vec![Limit::Files(7), Limit::Memory(u64::MAX), Limit::Seconds(1)];
            let credentials = credentials.clone();
            let order = Order { credentials, limits, adopts: true, has_folder: false, action };
            let bytes = order.encode();
            assert_eq!(Order::decode(&bytes).unwrap(), order);
            for end in 0..bytes.len() {
                assert!(Order::decode(&bytes[..end]).is_err());
            }
        }
    }
}
