//! Framed local socket between the modules in programs and the responders.

#![no_std]
#![forbid(unsafe_code)]
