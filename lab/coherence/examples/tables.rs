//! Prints a document's table: `tables numa-threshold|memcg-layout|page-counter-layout|page-counter-lockless
//! [POINTS [ROW]]`.

use ledgerline_coherence::experiments::study::Study;
use ledgerline_coherence::experiments::{Basis, FITTED_ON};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, otherwise: u32| -> Result<u32, std::num::ParseIntError> {
        arguments.get(index).map_or(Ok(otherwise), |argument| argument.parse())
    };
    let points = number(1, 8)?.max(1) as usize;
    let name = arguments.first().ok_or("name an experiment; see the head of this file")?;
    let experiment = Study::fit(name, points, number(2, FITTED_ON)?)?.table()?;
    println!("{}, {}, on {}", experiment.name, experiment.unit, experiment.machine);
    println!("calibrated on {}", experiment.calibrated_on);
    for row in &experiment.rows {
        let published = row.published.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let predicted = row.predicted;
        let mark = match (row.basis, row.published) {
            (Basis::Calibrated, _) => "calibrated on",
            (Basis::Floor, _) => "on a floor that was calibrated on",
            (Basis::Base, _) => "the base of the others",
            (Basis::Prediction, Some(value)) if !predicted.holds(value) => "outside",
            _ => "",
        };
        println!(
            "{:36}{published:>10}{:>10.1}  [{:.1} .. {:.1}] {mark}",
            row.name, predicted.median, predicted.low, predicted.high
        );
    }
    for gap in experiment.under_determined {
        println!("not given: {gap}");
    }
    Ok(())
}
