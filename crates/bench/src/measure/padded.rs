//! Keeps what one CPU writes away from what another reads.

/// A value alone on its pair of cache lines (CPUs fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
