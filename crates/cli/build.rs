//! Builds the library that the command preloads, so that it lies inside it.

fn main() {
    ledgerline_interpose::build::carry("preload", &[]);
}
