//! Locks of the C library, which has no probes. Taking or releasing a lock that lies in an object counts as an access
//! to the lock's first field.

use crate::format::{ATOMIC, STORE};
use crate::recorder::next::look_up;
use crate::recorder::touch::touch;
use ledgerline_interpose::symbol;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Exports functions of one argument, the lock. Functions with a timeout are not counted.
macro_rules! export {
    ($($name:ident [$kind:expr];)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The same as for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: *mut c_void) -> c_int {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            const NAME: &CStr = symbol(concat!(stringify!($name), "\0"));
            touch(lock as usize, 4, $kind);
            let next = match NEXT.load(Ordering::Relaxed) {
                0 => find(&NEXT, NAME),
                next => next,
            };
            // SAFETY: found under the name of a C function of this type; R5.
            unsafe {
                let next: unsafe extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(next);
                next(lock)
            }
        }
    )*};
}

export! {
    pthread_mutex_lock [ATOMIC]; pthread_mutex_trylock [ATOMIC]; pthread_mutex_unlock [ATOMIC];
    pthread_rwlock_rdlock [ATOMIC]; pthread_rwlock_tryrdlock [ATOMIC]; pthread_rwlock_wrlock [ATOMIC];
    pthread_rwlock_trywrlock [ATOMIC]; pthread_rwlock_unlock [ATOMIC];
    pthread_spin_lock [ATOMIC]; pthread_spin_trylock [ATOMIC]; pthread_spin_unlock [STORE];
}

#[cold]
fn find(slot: &AtomicUsize, name: &CStr) -> usize {
    let address = look_up(name, "the C library lacks a function for locks");
    slot.store(address, Ordering::Relaxed);
    address
}
