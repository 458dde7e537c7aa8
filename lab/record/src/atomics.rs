//! The compiler's calls for atomic operations. Each is done, at least as strongly ordered as asked, and counted.
//!
//! An atomic load counts as a read, an atomic store as a write. An operation that reads and writes in one counts as
//! atomic; so does a compare-and-swap that fails, since it takes the line all the same.

use crate::format::{ATOMIC, LOAD, STORE};
use crate::touch::touch;
use crate::wide::AtomicU128;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// C's number of the strongest order; hints of the hardware's may stand above.
const SEQUENTIAL: c_int = 5;

fn strongest(order: c_int) -> bool {
    order & 0xff == SEQUENTIAL
}

// Loads acquire and stores release at least. Operations that do both are sequential, which costs nothing more here.

/// Exports the operations on one size.
macro_rules! export {
    ($atomic:ty, $value:ty, $size:literal,
     $load:ident $store:ident $exchange:ident $strong:ident $weak:ident $val:ident,
     $($rmw:ident $method:ident)*) => {
        /// An atomic load.
        ///
        /// # Safety
        /// The address is an atomic variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $load(at: *mut $value, order: c_int) -> $value {
            touch(at as usize, $size, LOAD);
            let order = if strongest(order) { Ordering::SeqCst } else { Ordering::Acquire };
            // SAFETY: R5.
            unsafe { <$atomic>::from_ptr(at) }.load(order)
        }

        /// An atomic store.
        ///
        /// # Safety
        /// The address is an atomic variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $store(at: *mut $value, value: $value, order: c_int) {
            touch(at as usize, $size, STORE);
            let order = if strongest(order) { Ordering::SeqCst } else { Ordering::Release };
            // SAFETY: R5.
            unsafe { <$atomic>::from_ptr(at) }.store(value, order);
        }

        /// An atomic exchange.
        ///
        /// # Safety
        /// The address is an atomic variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exchange(at: *mut $value, value: $value, _: c_int) -> $value {
            touch(at as usize, $size, ATOMIC);
            // SAFETY: R5.
            unsafe { <$atomic>::from_ptr(at) }.swap(value, Ordering::SeqCst)
        }

        $(
            /// An atomic change. Returns the value before.
            ///
            /// # Safety
            /// The address is an atomic variable's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $rmw(at: *mut $value, operand: $value, _: c_int) -> $value {
                touch(at as usize, $size, ATOMIC);
                // SAFETY: R5.
                unsafe { <$atomic>::from_ptr(at) }.$method(operand, Ordering::SeqCst)
            }
        )*

        /// A compare-and-swap. Returns whether it was done.
        ///
        /// # Safety
        /// The first address is an atomic variable's, the second a variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $strong(
            at: *mut $value,
            expected: *mut $value,
            new: $value,
            _: c_int,
            _: c_int,
        ) -> c_int {
            // SAFETY: R5.
            unsafe {
                let wanted = *expected;
                let found = $val(at, wanted, new, SEQUENTIAL, SEQUENTIAL);
                if found != wanted {
                    *expected = found;
                }
                c_int::from(found == wanted)
            }
        }

        /// As the strong one: it never fails without reason.
        ///
        /// # Safety
        /// The first address is an atomic variable's, the second a variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $weak(
            at: *mut $value,
            expected: *mut $value,
            new: $value,
            success: c_int,
            failure: c_int,
        ) -> c_int {
            // SAFETY: R5.
            unsafe { $strong(at, expected, new, success, failure) }
        }

        /// A compare-and-swap. Returns the value before.
        ///
        /// # Safety
        /// The address is an atomic variable's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $val(
            at: *mut $value,
            expected: $value,
            new: $value,
            _: c_int,
            _: c_int,
        ) -> $value {
            touch(at as usize, $size, ATOMIC);
            // SAFETY: R5.
            let atomic = unsafe { <$atomic>::from_ptr(at) };
            match atomic.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(found) | Err(found) => found,
            }
        }
    };
}

export! {
    AtomicU8, u8, 1,
    __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange
    __tsan_atomic8_compare_exchange_strong __tsan_atomic8_compare_exchange_weak
    __tsan_atomic8_compare_exchange_val,
    __tsan_atomic8_fetch_add fetch_add __tsan_atomic8_fetch_sub fetch_sub
    __tsan_atomic8_fetch_and fetch_and __tsan_atomic8_fetch_or fetch_or
    __tsan_atomic8_fetch_xor fetch_xor __tsan_atomic8_fetch_nand fetch_nand
}

export! {
    AtomicU16, u16, 2,
    __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange
    __tsan_atomic16_compare_exchange_strong __tsan_atomic16_compare_exchange_weak
    __tsan_atomic16_compare_exchange_val,
    __tsan_atomic16_fetch_add fetch_add __tsan_atomic16_fetch_sub fetch_sub
    __tsan_atomic16_fetch_and fetch_and __tsan_atomic16_fetch_or fetch_or
    __tsan_atomic16_fetch_xor fetch_xor __tsan_atomic16_fetch_nand fetch_nand
}

export! {
    AtomicU32, u32, 4,
    __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange
    __tsan_atomic32_compare_exchange_strong __tsan_atomic32_compare_exchange_weak
    __tsan_atomic32_compare_exchange_val,
    __tsan_atomic32_fetch_add fetch_add __tsan_atomic32_fetch_sub fetch_sub
    __tsan_atomic32_fetch_and fetch_and __tsan_atomic32_fetch_or fetch_or
    __tsan_atomic32_fetch_xor fetch_xor __tsan_atomic32_fetch_nand fetch_nand
}

export! {
    AtomicU64, u64, 8,
    __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange
    __tsan_atomic64_compare_exchange_strong __tsan_atomic64_compare_exchange_weak
    __tsan_atomic64_compare_exchange_val,
    __tsan_atomic64_fetch_add fetch_add __tsan_atomic64_fetch_sub fetch_sub
    __tsan_atomic64_fetch_and fetch_and __tsan_atomic64_fetch_or fetch_or
    __tsan_atomic64_fetch_xor fetch_xor __tsan_atomic64_fetch_nand fetch_nand
}

export! {
    AtomicU128, u128, 16,
    __tsan_atomic128_load __tsan_atomic128_store __tsan_atomic128_exchange
    __tsan_atomic128_compare_exchange_strong __tsan_atomic128_compare_exchange_weak
    __tsan_atomic128_compare_exchange_val,
    __tsan_atomic128_fetch_add fetch_add __tsan_atomic128_fetch_sub fetch_sub
    __tsan_atomic128_fetch_and fetch_and __tsan_atomic128_fetch_or fetch_or
    __tsan_atomic128_fetch_xor fetch_xor __tsan_atomic128_fetch_nand fetch_nand
}

/// A fence between threads.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_thread_fence(order: c_int) {
    match order & 0xff {
        0 => {}
        SEQUENTIAL => fence(Ordering::SeqCst),
        _ => fence(Ordering::AcqRel),
    }
}

/// A fence between a thread and its own signal handlers: the call itself is one.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_signal_fence(_order: c_int) {}
