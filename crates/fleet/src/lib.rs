//! One budget for a tenant on many machines. `README.md` of this crate says what its budgets promise.

pub mod book;
pub mod fleet;
pub mod message;
pub mod node;
pub mod store;

/// A panic of somebody's reclaimer leaves what a lock guards as it should be, and nothing else panics under one.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
