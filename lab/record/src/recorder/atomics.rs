//! The compiler's calls for atomic operations. Each is done, with at least the requested ordering, and counted.
//!
//! An atomic load counts as a read, an atomic store as a write. An operation that reads and writes in one counts as
//! atomic. So does a compare-and-swap that fails, since it also takes the line.

use crate::format::{ATOMIC, LOAD, STORE};
use crate::recorder::touch::touch;
use crate::recorder::wide::AtomicU128;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// C's number of the strongest order; hardware hints may be set in higher bits.
const SEQUENTIAL: c_int = 5;

fn strongest(order: c_int) -> bool {
    order & 0xff == SEQUENTIAL
}

// Loads acquire and stores release at least. Operations that do both are sequential, which costs nothing more here.

/// Exports a change of one size, within its module.
macro_rules! change {
    ($bits:literal, $change:ident) => {
        /// Changes a value atomically. Returns the value before.
        ///
        /// # Safety
        /// The address is an atomic variable's.
        #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_", stringify!($change)))]
        pub unsafe extern "C" fn $change(at: *mut Value, operand: Value, _: c_int) -> Value {
            touch(at as usize, SIZE, ATOMIC);
            // SAFETY: R5.
            unsafe { Atomic::from_ptr(at) }.$change(operand, Ordering::SeqCst)
        }
    };
}

/// Exports a compare-and-swap of one size, within its module. The weak one never fails spuriously either.
macro_rules! compare {
    ($bits:literal, $compare:ident) => {
        /// Compares and swaps. Returns whether the value was swapped.
        ///
        /// # Safety
        /// The first address is an atomic variable's, the second a variable's.
        #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_", stringify!($compare)))]
        pub unsafe extern "C" fn $compare(
            at: *mut Value,
            expected: *mut Value,
            new: Value,
            _: c_int,
            _: c_int,
        ) -> c_int {
            // SAFETY: R5.
            unsafe {
                let wanted = *expected;
                let found = compare_exchange_val(at, wanted, new, SEQUENTIAL, SEQUENTIAL);
                if found != wanted {
                    *expected = found;
                }
                c_int::from(found == wanted)
            }
        }
    };
}

/// Exports the operations on one size: `__tsan_atomic8_load` and the like.
macro_rules! export {
    ($module:ident, $atomic:ty, $value:ty, $bits:literal) => {
        mod $module {
            use super::*;
            type Value = $value;
            type Atomic = $atomic;
            const SIZE: usize = size_of::<Value>();

            /// Loads atomically.
            ///
            /// # Safety
            /// The address is an atomic variable's.
            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_load"))]
            pub unsafe extern "C" fn load(at: *mut Value, order: c_int) -> Value {
                touch(at as usize, SIZE, LOAD);
                let order = if strongest(order) { Ordering::SeqCst } else { Ordering::Acquire };
                // SAFETY: R5.
                unsafe { Atomic::from_ptr(at) }.load(order)
            }

            /// Stores atomically.
            ///
            /// # Safety
            /// The address is an atomic variable's.
            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_store"))]
            pub unsafe extern "C" fn store(at: *mut Value, value: Value, order: c_int) {
                touch(at as usize, SIZE, STORE);
                let order = if strongest(order) { Ordering::SeqCst } else { Ordering::Release };
                // SAFETY: R5.
                unsafe { Atomic::from_ptr(at) }.store(value, order);
            }

            /// Exchanges atomically. Returns the value before.
            ///
            /// # Safety
            /// The address is an atomic variable's.
            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_exchange"))]
            pub unsafe extern "C" fn exchange(at: *mut Value, value: Value, _: c_int) -> Value {
                touch(at as usize, SIZE, ATOMIC);
                // SAFETY: R5.
                unsafe { Atomic::from_ptr(at) }.swap(value, Ordering::SeqCst)
            }

            change! { $bits, fetch_add }
            change! { $bits, fetch_sub }
            change! { $bits, fetch_and }
            change! { $bits, fetch_or }
            change! { $bits, fetch_xor }
            change! { $bits, fetch_nand }

            compare! { $bits, compare_exchange_strong }
            compare! { $bits, compare_exchange_weak }

            /// Compares and swaps. Returns the value before.
            ///
            /// # Safety
            /// The address is an atomic variable's.
            #[unsafe(export_name = concat!("__tsan_atomic", $bits, "_compare_exchange_val"))]
            pub unsafe extern "C" fn compare_exchange_val(
                at: *mut Value,
                expected: Value,
                new: Value,
                _: c_int,
                _: c_int,
            ) -> Value {
                touch(at as usize, SIZE, ATOMIC);
                // SAFETY: R5.
                let atomic = unsafe { Atomic::from_ptr(at) };
                match atomic.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(found) | Err(found) => found,
                }
            }
        }
    };
}

export! { of_8, AtomicU8, u8, 8 }
export! { of_16, AtomicU16, u16, 16 }
export! { of_32, AtomicU32, u32, 32 }
export! { of_64, AtomicU64, u64, 64 }
export! { of_128, AtomicU128, u128, 128 }

/// Issues a fence between threads.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_thread_fence(order: c_int) {
    match order & 0xff {
        0 => {}
        SEQUENTIAL => fence(Ordering::SeqCst),
        _ => fence(Ordering::AcqRel),
    }
}

/// Does nothing: the call itself is a fence between a thread and its own signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_signal_fence(_order: c_int) {}
