//! Numbers in the form of a screen.

use crate::top::column::Column;
use crate::top::entry::Figures;
use crate::top::history::LOOKS;
use ledgerline::size;

/// The letters of a bar, without the share in percent.
pub const BAR: usize = 8;

/// Returns a figure in the form of its column; nothing for the name.
pub fn figure(figures: &Figures, column: Column) -> String {
    match column {
        Column::Name => String::new(),
        Column::Current => size::format(figures.current),
        Column::Peak => size::format(figures.peak),
        Column::Growth => growth(figures.growth),
        Column::Share => figures.share.map_or_else(|| "-".to_owned(), percent),
        Column::Limits => often(figures.limits),
        Column::Refused => often(figures.refused),
        Column::Charges => often(figures.charges),
    }
}

/// Returns a rate of growth: with a sign, and `0` for no change.
pub fn growth(units: f64) -> String {
    let size = size::format(units.abs().round() as u64);
    match units {
        _ if units.abs() < 0.5 => "0".to_owned(),
        _ if units < 0.0 => format!("-{size}"),
        _ => format!("+{size}"),
    }
}

/// Returns a rate per second, in at most six letters: `0`, `0.4`, `12`, `34.5k`, `6.7M`.
pub fn often(times: f64) -> String {
    match times {
        _ if times <= 0.0 => "0".to_owned(),
        _ if times < 0.1 => "<0.1".to_owned(),
        _ if times < 9.95 => format!("{times:.1}"),
        _ if times < 9_999.5 => format!("{times:.0}"),
        _ if times < 999_950.0 => format!("{:.1}k", times / 1e3),
        _ if times < 999_950_000.0 => format!("{:.1}M", times / 1e6),
        _ => format!("{:.1}G", times / 1e9),
    }
}

/// Returns a share in percent. Rounding never makes a share above or below the whole equal to it.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent > 999.0 => ">999%".to_owned(),
        _ if percent < 100.0 => format!("{}%", percent.round().min(99.0)),
        _ => format!("{}%", percent.round()),
    }
}

/// Returns a limit, in cgroup v2's words.
pub fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max".to_owned(), size::format)
}

/// Returns a bar of [`BAR`] letters, filled by a share.
pub fn bar(share: f64, unicode: bool) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = share.clamp(0.0, 1.0);
    let mut bar = String::new();
    if unicode {
        let eighths = (share * (BAR * 8) as f64) as usize;
        // A share that is not zero is never drawn as nothing.
        let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
        bar.extend(std::iter::repeat_n('█', eighths / 8));
        bar.extend(eighths.checked_rem(8).filter(|&rest| rest > 0).map(|rest| EIGHTHS[rest - 1]));
    } else {
        let full = (share * BAR as f64) as usize;
        bar.extend(std::iter::repeat_n('#', if share > 0.0 { full.max(1) } else { 0 }));
    }
    let missing = BAR - bar.chars().count();
    bar.extend(std::iter::repeat_n(' ', missing));
    bar
}

/// Returns the holdings of a group in the last looks as a line from zero to their maximum, with a gap for a look
/// without it.
pub fn sparkline(history: &[Option<u64>; LOOKS], unicode: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 4] = ['_', '.', '-', '='];
    let levels: &[char] = if unicode { &BLOCKS } else { &ASCII };
    let most = history.iter().copied().flatten().max().unwrap_or(0).max(1);
    let level = |held: u64| {
        // The lowest level stands for zero alone.
        let above = u128::from(held) * (levels.len() as u128 - 1);
        levels[above.div_ceil(u128::from(most)) as usize]
    };
    history.iter().map(|held| held.map_or(' ', level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fit_their_columns_whatever_they_are() {
        let rates = [0.0, 0.04, 0.44, 9.94, 9.96, 12.0, 9999.4, 9999.6, 999_949.0, 999_951.0, 2e9];
        let shown = rates.map(often);
        let expected =
            ["0", "<0.1", "0.4", "9.9", "10", "12", "9999", "10.0k", "999.9k", "1.0M", "2.0G"];
        assert_eq!(shown, expected);
        assert_eq!([0.0, 0.4, -0.4].map(growth), ["0"; 3]);
        assert_eq!([1024.0, -1536.0].map(growth), ["+1.0K", "-1.5K"]);
    }

    #[test]
    fn a_share_below_the_whole_is_never_called_the_whole() {
        let shown = [0.0, 0.344, 0.9999, 1.0, 1.5, 50.0].map(percent);
        assert_eq!(shown, ["0%", "34%", "99%", "100%", "150%", ">999%"]);
    }

    #[test]
    fn a_bar_has_its_width_and_draws_something_for_something() {
        for unicode in [false, true] {
            for share in [0.0, 1e-9, 0.3, 0.999, 1.0, 7.0] {
                let bar = bar(share, unicode);
                assert_eq!(bar.chars().count(), BAR, "{share}: {bar:?}");
                assert_eq!(bar.trim().is_empty(), share == 0.0, "{share}: {bar:?}");
                assert_eq!(bar.ends_with(['█', '#']), share >= 1.0, "{share}: {bar:?}");
            }
        }
    }

    #[test]
    fn a_sparkline_goes_from_nothing_to_the_most_and_leaves_gaps() {
        let mut history = [None; LOOKS];
        history[LOOKS - 4..].copy_from_slice(&[Some(0), Some(1), Some(50), Some(100)]);
        assert_eq!(sparkline(&history, true).trim_start(), "▁▂▅█");
        assert_eq!(sparkline(&history, false).trim_start(), "_.-=");
        assert_eq!(sparkline(&[Some(0); LOOKS], true), "▁".repeat(LOOKS));
        assert_eq!(sparkline(&[Some(u64::MAX - 1); LOOKS], false), "=".repeat(LOOKS));
    }
}
