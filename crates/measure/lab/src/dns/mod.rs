// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DNS codec of queries over UDP or TCP. [`message_engine`](crate::message_engine) sends them.

pub mod message;

use crate::message_engine::MessageCodec;
use crate::request_error::{CodeSource, RequestError};
use crate::template::Template;
use message::{DnsReply, RecordType};

/// Names and record type of the queries.
#[derive(Clone, Debug)]
pub struct DnsCodec {
    name: Template,
    kind: RecordType,
    scratch: Vec<u8>,
}

impl DnsCodec {
    /// Creates the codec for these names.
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
        // Numbers are consecutive, so no two queries of a user in flight have the same.
        let id = (request & u64::from(u16::MAX)) as u16;
        message::write_query(id, &self.scratch, self.kind, out).map_err(RequestError::InvalidName)
    }

    fn read(&self, answer: &[u8], asked: &[u8]) -> Option<Result<(), RequestError>> {
        match message::read(answer, asked) {
            Err(what) => Some(Err(RequestError::Malformed(what))),
            Ok(DnsReply::Other) => None,
            Ok(DnsReply::Code(0)) => Some(Ok(())),
            Ok(DnsReply::Code(code)) => {
                let name = message::name(code);
                Some(Err(RequestError::ErrorCode(CodeSource::Dns, code.into(), name)))
            }
            Ok(DnsReply::Empty) => {
                Some(Err(RequestError::ErrorCode(CodeSource::DnsNoData, 0, "NODATA".into())))
            }
            Ok(DnsReply::Truncated) => {
                Some(Err(RequestError::ErrorCode(CodeSource::DnsTruncated, 0, "truncated".into())))
            }
        }
    }
}
