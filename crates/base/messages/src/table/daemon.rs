//! Log lines of the monitor, the publisher and the responders.

crate::messages! {}
