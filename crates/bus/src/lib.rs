//! The private message bus: who is called what, what each offers, how equal requests in flight
//! become one, and the form in which a back-end hands its domain to the publisher.
//!
//! The bus is a `dbus-daemon` of the monitor's own; no role talks to another in any other way. What
//! travels is small: bulk data goes as a sealed memfd whose descriptor is in the message.
#![forbid(unsafe_code)]

pub mod coalesce;
pub mod exchange;
pub mod interfaces;
pub mod names;
pub mod secrets;

pub use zbus;
