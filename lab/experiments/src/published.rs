//! Published layout changes beside the model's predictions.

use super::options::ReproduceArgs;
use super::words::wrapped;
use ledgerline_coherence::published::{BUILT_IN, Case, Decided, Predicted, table};
use ledgerline_view::terminal::progress::Progress;
use serde_json::{Value, json};

/// Default number of design points: a case has more unknowns than a document.
const POINTS: usize = 32;

/// Returns the text of these cases, or of all built-in ones.
///
/// # Errors
/// One line for the user: a file that is no case, or a case that cannot be simulated.
pub(super) fn text(args: &ReproduceArgs, names: &[String]) -> Result<String, String> {
    // A mistake in the last file is reported before the first case is simulated.
    let cases: Vec<Case> = match names {
        [] => BUILT_IN.iter().filter_map(|(name, _)| Case::built_in(name)).collect(),
        names => {
            let opened = names.iter().map(|name| Case::open(name));
            opened.collect::<Result<_, _>>().map_err(|error| error.to_string())?
        }
    };
    let progress = Progress::on_stderr();
    let points = args.points_of(POINTS);
    let predicted = cases.into_iter().map(|case| {
        progress.show(format_args!("{}: predicting, {points} design points", case.name));
        let told = |error| format!("{}: {error}", case.name);
        let (rows, decided) = (case.predict(points).map_err(told)?, case.decide().map_err(told)?);
        Ok((case, rows, decided))
    });
    let predicted = predicted.collect::<Result<Vec<_>, String>>()?;
    drop(progress);
    if args.json {
        let lines = predicted.iter().flat_map(|(case, rows, decided)| objects(case, rows, decided));
        return Ok(lines.map(|object| format!("{object}\n")).collect());
    }
    let told = predicted.iter().filter(|_| !names.is_empty());
    let told: String =
        told.map(|(case, rows, decided)| in_columns(&case.describe(rows, decided))).collect();
    Ok(told + &table(&predicted))
}

/// Wraps lines at 100 columns. Continuations begin below the text that follows a line's first words.
fn in_columns(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some((first, rest)) if line.starts_with(' ') => {
            wrapped(&format!("{first}: "), rest, first.chars().count() + 2, 100)
        }
        _ => wrapped("", line, 2, 100),
    });
    lines.collect::<String>() + "\n"
}

/// Returns an object for each row of a case.
fn objects(case: &Case, rows: &[Predicted], decided: &Decided) -> Vec<Value> {
    // Rounds to a tenth of a per cent, which is finer than any figure here.
    let rounded = |value: f64| (value * 10.0).round() / 10.0;
    let turns: Vec<&str> = decided.turns_on().map(|alone| alone.name.as_str()).collect();
    let object = |row: &Predicted| {
        json!({
            "schema": "ledgerline/reproduce-published.v1",
            "case": case.name,
            "source": case.source,
            "machine": case.machine_name,
            "cpus": row.cpus,
            "unit": "% of throughput",
            "published": rounded(row.published),
            "within": row.within,
            "predicted": rounded(row.predicted.median),
            "low": rounded(row.predicted.low),
            "high": rounded(row.predicted.high),
            "right_sign": row.right_sign(),
            "inside": row.inside(),
            "reached": row.reached,
            "turns_on": turns,
            "assumes": case.assumes,
        })
    };
    rows.iter().map(object).collect()
}
