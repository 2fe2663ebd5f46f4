// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private message bus: names and interfaces of the roles, coalescing of equal requests in flight, and the domain
//! image that a backend sends to the publisher.
//!
//! The monitor starts its own `dbus-daemon`. Roles communicate only over it. Messages are small: bulk data is in a
//! sealed memfd, and the message has its descriptor.
#![forbid(unsafe_code)]

pub mod bus_names;
pub mod coalesce;
pub mod domain_image;
pub mod interfaces;
pub mod secret_pipe;

pub use zbus;
