//! Errors of `roster` commands and of `roster nscd`.

crate::messages! {}
