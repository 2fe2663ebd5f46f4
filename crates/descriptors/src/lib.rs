//! Descriptors that others send over a socket. Whoever may connect can leave some in a connection that make close(2)
//! wait for as long as they like, and whoever reads past them, or closes the connection, is who waits. So they are
//! refused where the kernel can do that ([`refuse`]), and what waits is cut short ([`closing`]). [`peer`] says who they
//! are.

pub mod closing;
mod option;

pub use option::{Peer, peer, refuse};
