//! One budget for a tenant on many machines. `README.md` of this crate documents the guarantees.

pub mod book;
pub mod fleet;
pub mod message;
pub mod node;
pub mod store;

/// Locks a mutex and ignores poisoning. Only a reclaimer of the caller can panic under a lock, and such a panic leaves the
/// guarded data intact.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
