//! C functions that get their caller's address.

/// Exports C functions, each as its body with one more argument: the return address, which identifies the caller. The
/// registers are those of that argument on x86-64 and on arm64: the first ones that are free.
#[macro_export]
macro_rules! export {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $x86:literal, $arm:literal, $body:path;)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                concat!("mov ", $x86, ", [rsp]"),
                "jmp {body}",
                body = sym $body,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                concat!("mov ", $arm, ", x30"),
                "b {body}",
                body = sym $body,
            );
        }
    )*};
}
