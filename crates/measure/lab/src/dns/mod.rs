//! DNS queries, over UDP or TCP.

pub mod message;

use crate::message_engine::MessageCodec;
use crate::request_error::RequestError;
use crate::template::Template;
use message::{DnsReply, RecordType};

/// What is asked.
#[derive(Clone, Debug)]
pub struct DnsCodec {
    name: Template,
    kind: RecordType,
    scratch: Vec<u8>,
}

impl DnsCodec {
    /// Of these names.
    #[must_use]
    pub fn new(name: Template, kind: RecordType) -> Self {
        Self { name, kind, scratch: Vec::new() }
    }
}

impl MessageCodec for DnsCodec {
    const LENGTH_OCTETS: usize = 2;
    const IS_NUMBERED: bool = true;

    fn write(&mut self, request: u64, out: &mut Vec<u8>) -> Result<(), RequestError> {
        self.scratch.clear();
        self.name.write(request, &mut self.scratch);
        // One after the other: no two of a user in flight have the same.
        let id = (request & u64::from(u16::MAX)) as u16;
        message::write_query(id, &self.scratch, self.kind, out)
            .map_err(|what| RequestError::Setup(what.to_owned()))
    }

    fn read(&self, answer: &[u8], asked: &[u8]) -> Option<Result<(), RequestError>> {
        match message::read(answer, asked) {
            Err(what) => Some(Err(RequestError::Malformed(what))),
            Ok(DnsReply::Other) => None,
            Ok(DnsReply::Code(0)) => Some(Ok(())),
            Ok(DnsReply::Code(code)) => {
                Some(Err(RequestError::ErrorCode("DNS", code.into(), message::name(code))))
            }
            Ok(DnsReply::Empty) => Some(Err(RequestError::ErrorCode("DNS", 0, "NODATA".into()))),
            Ok(DnsReply::Truncated) => {
                Some(Err(RequestError::ErrorCode("DNS", 0, "truncated".into())))
            }
        }
    }
}
