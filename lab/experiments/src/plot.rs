//! A plot of letters: cost by number of CPUs, both on logarithmic scales.

use super::scale::{Scale, ends};
use super::words::figure;

/// Rows of a plot.
const HEIGHT: usize = 14;
/// Columns left of the axis, for its figures.
const MARGIN: usize = 11;

/// Values by number of CPUs, and the letter that stands for them.
pub(super) struct Series {
    pub(super) mark: char,
    pub(super) values: Vec<(usize, f64)>,
}

/// Returns the plot, at most `width` columns wide. `paint` colours the text of a mark.
pub(super) fn plot(
    series: &[Series],
    width: usize,
    paint: impl Fn(char, &str) -> String,
) -> String {
    let all = || series.iter().flat_map(|series| &series.values);
    let columns = width.saturating_sub(MARGIN + 3).max(8);
    let across = scale(all().map(|&(cpus, _)| cpus as f64), columns);
    let up = scale(all().map(|&(_, value)| value), HEIGHT);
    let column = |cpus: usize| across.at(cpus as f64).round() as usize;
    let mut cells = vec![vec![' '; columns]; HEIGHT];
    for series in series {
        for &(cpus, value) in &series.values {
            let cell = &mut cells[HEIGHT - 1 - up.at(value).round() as usize][column(cpus)];
            *cell = if *cell == ' ' { series.mark } else { '*' };
        }
    }
    let mut text = String::new();
    for (row, cells) in cells.iter().enumerate() {
        // Every fourth row and the last one have a figure.
        let labelled = row % 4 == 0 || row == HEIGHT - 1;
        let label =
            if labelled { figure(up.value((HEIGHT - 1 - row) as f64)) } else { String::new() };
        let mut line = format!("{label:>MARGIN$} |");
        let end = cells.iter().rposition(|&cell| cell != ' ').map_or(0, |last| last + 1);
        for &cell in &cells[..end] {
            if cell == ' ' {
                line.push(' ');
            } else {
                line += &paint(cell, &cell.to_string());
            }
        }
        text += &line;
        text.push('\n');
    }
    text += &format!("{:>MARGIN$} +{}\n", "CPUs", "-".repeat(columns));
    let mut labels = vec![' '; columns + 8];
    let mut free = 0;
    let mut numbers: Vec<usize> = all().map(|&(cpus, _)| cpus).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for cpus in numbers {
        let label = cpus.to_string();
        let at = column(cpus).saturating_sub(label.len() / 2);
        if at >= free && at + label.len() <= labels.len() {
            labels.splice(at..at + label.len(), label.chars());
            free = at + label.len() + 1;
        }
    }
    let labels: String = labels.into_iter().collect();
    text += format!("{:>MARGIN$}  {labels}", "").trim_end();
    text.push('\n');
    text
}

/// Returns a logarithmic scale over `cells` cells, from the first to the last.
fn scale(values: impl Iterator<Item = f64>, cells: usize) -> Scale {
    let (low, high) = ends(values).unwrap_or((1.0, 1.0));
    // The least range keeps the noise of nearly constant values small.
    Scale::logarithmic(low, high.max(1.2 * low), 0.0, (cells - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_data_are_the_ends_of_the_plot_and_nothing_is_wider_than_asked() {
        let series = [
            Series { mark: 'b', values: vec![(1, 100.0), (32, 1000.0), (1024, 100_000.0)] },
            Series { mark: 'o', values: vec![(1, 100.0), (32, 100.0), (1024, 100.0)] },
        ];
        for width in [40, 70, 100] {
            let text = plot(&series, width, |_, cell| cell.to_owned());
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), HEIGHT + 2);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{text}");
            assert!(lines[0].ends_with('b') && lines[0].contains("100000"), "{text}");
            let floor = lines[HEIGHT - 1];
            assert!(floor.contains("100 |*") && floor.ends_with('o'), "{text}");
            assert!(
                lines[HEIGHT + 1].trim().starts_with('1') && lines[HEIGHT + 1].ends_with("1024")
            );
        }
    }

    #[test]
    fn equal_values_make_a_flat_line() {
        let series = [Series { mark: 'a', values: vec![(1, 5.0), (2, 5.0)] }];
        let text = plot(&series, 60, |_, cell| cell.to_owned());
        assert_eq!(
            text.lines().filter(|line| line.contains("| a") || line.contains("|a")).count(),
            1
        );
    }
}
