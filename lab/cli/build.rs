//! Builds the library that `layout record` preloads and embeds it in the command.

fn main() {
    ledgerline_interpose::build::carry("record", &["recorder"]);
}
