//! DNS queries, over UDP or TCP.

pub mod message;

use crate::exchange::Dialect;
use crate::failure::Failure;
use crate::template::Template;
use message::{Reply, Type};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Dns {
    name: Template,
    kind: Type,
    scratch: Vec<u8>,
}

impl Dns {
    /// Of these names.
    #[must_use]
    pub fn new(name: Template, kind: Type) -> Self {
        Self { name, kind, scratch: Vec::new() }
    }
}

impl Dialect for Dns {
    const LENGTH_OCTETS: usize = 2;
    const IS_NUMBERED: bool = true;

    fn write(&mut self, request: u64, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.scratch.clear();
        self.name.write(request, &mut self.scratch);
        // One after the other: no two of a user in flight have the same.
        let id = (request & u64::from(u16::MAX)) as u16;
        message::write_query(id, &self.scratch, self.kind, out)
            .map_err(|what| Failure::Setup(what.to_owned()))
    }

    fn read(&self, answer: &[u8], asked: &[u8]) -> Option<Result<(), Failure>> {
        match message::read(answer, asked) {
            Err(what) => Some(Err(Failure::Malformed(what))),
            Ok(Reply::Other) => None,
            Ok(Reply::Code(0)) => Some(Ok(())),
            Ok(Reply::Code(code)) => {
                Some(Err(Failure::Answered("DNS", code.into(), message::name(code))))
            }
            Ok(Reply::Empty) => Some(Err(Failure::Answered("DNS", 0, "NODATA".into()))),
            Ok(Reply::Truncated) => Some(Err(Failure::Answered("DNS", 0, "truncated".into()))),
        }
    }
}
