//! Findings of `roster status` about the running daemon.

crate::messages! {}
