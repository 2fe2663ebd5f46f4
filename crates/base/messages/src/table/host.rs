//! Findings of `roster doctor` about the host.

crate::messages! {}
