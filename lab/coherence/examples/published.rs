//! Holds the model against published layout changes: `published [--points N] [--all] [CASE|FILE.toml]...`
//!
//! Without cases it takes all that come with the crate. `--all` prints everything about each case: sources,
//! assumptions, and the effect of each unknown alone.

use ledgerline_coherence::published::{BUILT_IN, Case, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let (mut points, mut all, mut names) = (16, false, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--points" => points = arguments.next().unwrap_or_default().parse()?,
            "--all" => all = true,
            _ => names.push(argument),
        }
    }
    if names.is_empty() {
        names = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    let mut cases = Vec::new();
    for name in names {
        let case = Case::open(&name)?;
        let (rows, decided) = (case.predict(points)?, case.decide()?);
        if all {
            println!("{}", case.describe(&rows, &decided));
        }
        cases.push((case, rows, decided));
    }
    print!("{}", table(&cases));
    Ok(())
}
