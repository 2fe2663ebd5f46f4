// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics of core, whose accesses are points of a switch with `--cfg loom`. They are valid as zeros, as the file needs.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub use switching::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(loom)]
mod switching {
    use crate::threads::switch_point;
    use core::sync::atomic::{self, Ordering};

    macro_rules! atomic {
        ($name:ident$(<$parameter:ident>)?, $value:ty) => {
            #[repr(transparent)]
            pub struct $name$(<$parameter>)?(atomic::$name$(<$parameter>)?);

            impl$(<$parameter>)? $name$(<$parameter>)? {
                pub const fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    switch_point();
                    self.0.load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    switch_point();
                    self.0.store(value, order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    switch_point();
                    self.0.swap(value, order)
                }

                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    switch_point();
                    self.0.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    macro_rules! counter {
        ($name:ident, $value:ty) => {
            impl $name {
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    switch_point();
                    self.0.fetch_add(value, order)
                }

                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    switch_point();
                    self.0.fetch_sub(value, order)
                }

                /// As core does it: a load, then exchanges until one succeeds.
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    mut change: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut before = self.load(fetch);
                    while let Some(after) = change(before) {
                        match self.compare_exchange(before, after, set, fetch) {
                            Ok(before) => return Ok(before),
                            Err(now) => before = now,
                        }
                    }
                    Err(before)
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicI32, i32);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);
    atomic!(AtomicPtr<T>, *mut T);
    counter!(AtomicU32, u32);
    counter!(AtomicUsize, usize);
}
