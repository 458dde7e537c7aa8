//! Names that the linker knows.

/// A symbol's name with the library's version: two versions in one program have two symbols.
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

pub(super) use of_this_version;
