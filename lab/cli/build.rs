//! Builds the library that `layout record` preloads, so that it lies inside the command.

fn main() {
    ledgerline_interpose::build::carry("record", &["recorder"]);
}
