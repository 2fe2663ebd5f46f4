// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of shuttle with `--cfg loom`, of the system otherwise.

#[cfg(loom)]
pub use shuttle::thread::spawn;
#[cfg(not(loom))]
pub use std::thread::spawn;

/// Another thread may run now.
pub fn switch_point() {
    #[cfg(loom)]
    shuttle::sync::atomic::AtomicBool::new(false).load(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(loom))]
    std::thread::yield_now();
}
