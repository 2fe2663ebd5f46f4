//! Log lines of backends: directory servers, mappings, the cache of a domain.

crate::messages! {}
