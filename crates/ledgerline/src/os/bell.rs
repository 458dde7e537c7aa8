//! A bell: a descriptor that becomes readable when somebody rings it.

#[cfg(target_os = "linux")]
mod eventfd;
#[cfg(not(target_os = "linux"))]
mod nowhere;

#[cfg(target_os = "linux")]
pub(crate) use eventfd::Bell;
#[cfg(not(target_os = "linux"))]
pub(crate) use nowhere::Bell;
