//! Errors and warnings of `roster-lab`.

crate::messages! {}
