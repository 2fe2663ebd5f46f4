//! rosterd: monitor, back-ends, publisher and responders.

#![forbid(unsafe_code)]
