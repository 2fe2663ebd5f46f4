//! The private message bus: names, interfaces, request coalescing, and what back-ends hand to the publisher.

#![forbid(unsafe_code)]
