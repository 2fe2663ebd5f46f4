//! A domain's durable cache.

#![forbid(unsafe_code)]
