//! Builds the preloaded library, so that the command can embed it.

fn main() {
    ledgerline_interpose::build::carry("preload", &[]);
}
