//! Times the fast path as README promises it, called from an outside crate:
//!
//! ```text
//! cargo run --release --bin timing             a table
//! cargo run --release --bin timing -- --json   a line of JSON for each figure
//! ```

use outside::fast_path;
use std::error::Error;

const ROUNDS: usize = 31;
const OPERATIONS: u64 = 300_000;

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().skip(1).any(|argument| argument == "--json");
    for threads in [1, 2] {
        let figures = fast_path::figures(threads, ROUNDS, OPERATIONS)?;
        if !json {
            println!("{threads} thread(s)      ns/op   fastest .. slowest");
        }
        for figure in &figures {
            let ratio = figure.median / figures[0].median;
            let outside::rounds::Figure { name, median, fastest, slowest } = figure;
            if json {
                println!(
                    "{{\"case\":\"{name}\",\"threads\":{threads},\"ns_per_op\":{median:.3},\
                     \"min\":{fastest:.3},\"max\":{slowest:.3},\"times_units\":{ratio:.3}}}"
                );
            } else {
                println!(
                    "{name:16} {median:8.2}  {fastest:7.2} .. {slowest:.2}  {ratio:.2}x units"
                );
            }
        }
    }
    Ok(())
}
