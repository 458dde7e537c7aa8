//! Linker symbols, and thread-local variables that the linker puts at the same distance from the thread pointer in all
//! threads, so that sections find them.

/// Makes a symbol's name with the library's version, so that two versions in one program have two symbols.
macro_rules! of_this_version {
    ($name:literal) => {
        concat!(
            $name,
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH")
        )
    };
}

/// Defines such a variable by its section, the section's kind, its size, which is also its alignment, and its initial
/// content. `$name` is a macro that makes its name. The variable has a constant initial value and no destructor: it
/// exists before `main`, and until the thread's last instruction.
macro_rules! thread_local_at_a_distance {
    ($name:ident in $section:literal $kind:literal, $size:literal: $content:literal $($operands:tt)*) => {
        std::arch::global_asm!(
            concat!(".pushsection ", $section, $name!(), ",\"awT\",", $kind),
            concat!(".balign ", $size),
            concat!(".globl ", $name!()),
            concat!(".hidden ", $name!()),
            concat!(".type ", $name!(), ", @tls_object"),
            concat!(".size ", $name!(), ", ", $size),
            concat!($name!(), ":"),
            $content,
            ".popsection"
            $($operands)*
        );
    };
}

/// Returns the distance of that variable from the thread pointer, the same in every thread.
macro_rules! distance_of {
    ($name:ident) => {{
        let distance: isize;
        // SAFETY: reads a value that the linker or the loader wrote.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                concat!("mov {distance}, qword ptr [rip + ", $name!(), "@GOTTPOFF]"),
                distance = out(reg) distance,
                options(nostack, readonly, preserves_flags, pure),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                concat!("adrp {distance}, :gottprel:", $name!()),
                concat!("ldr {distance}, [{distance}, :gottprel_lo12:", $name!(), "]"),
                distance = out(reg) distance,
                options(nostack, readonly, preserves_flags, pure),
            );
        }
        distance
    }};
}

pub(super) use {distance_of, of_this_version, thread_local_at_a_distance};
