//! `perf c2c report --stdio`: its table of lines by offset, the *Shared Cache Line Distribution Pareto*.
//!
//! For each place in a line and each instruction, the table has the share of the line's loads that hit a line modified
//! elsewhere, the shares of its stores, the number of samples, and the number of CPUs. With `--node-info` it lists the
//! CPUs. The stores are the shares times the line's stores, and the loads are the rest of the samples. If the table has
//! only a number of CPUs, the CPUs from 0 on are taken.
//!
//! Columns differ from version to version (`Peer`, `N/A`, `Any Lvl`, none of them). The header names them.

use ledgerline_layout::Error;

use super::dotted::Dotted;
use super::samples::{Place, Samples, Who};
use super::{Kind, Known, Profile};

/// The title of the table.
pub(super) const TITLE: &str = "Shared Cache Line Distribution Pareto";
/// The most CPUs of a machine. A report with more is wrong.
const MOST_CPUS: u64 = 1 << 13;
/// The most CPUs of all rows together. A report has some thousand rows.
const MOST_SHARES: usize = 1 << 24;

/// The columns of a row.
struct Columns {
    /// Number of shares in per cent at the start of a row.
    shares: usize,
    /// The shares that are of stores, as indices into the shares.
    stores: Vec<usize>,
    /// The columns of the samples and of the CPUs, counted after the shares.
    records: usize,
    cpus: usize,
}

pub(super) fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
    let mut samples = Samples::of(known)?;
    samples.need_addresses()?;
    let mut left = MOST_SHARES;
    let from = text.lines().position(|line| line.contains(TITLE)).unwrap_or_default();
    let mut columns: Option<Columns> = None;
    // The line that the rows describe, and its stores by column.
    let mut line_of: Option<(u64, Vec<f64>)> = None;
    let mut headers: [&str; 2] = [""; 2];
    for (number, line) in text.lines().enumerate().skip(from) {
        let damaged = |what: &str| {
            Error::new(what)
                .within(format_args!("line {}", number + 1))
                .advise("give the text of `perf c2c report --stdio` as it is")
        };
        let trimmed = line.trim_start();
        if let Some(comment) = trimmed.strip_prefix('#') {
            // The names of the columns are above their dots.
            if comment.trim_start().starts_with("...") {
                line_of = None;
                let indent = line.len() - trimmed.len() + 1;
                columns = Some(
                    read_columns(comment, headers[1].get(indent..).unwrap_or_default())
                        .ok_or_else(|| {
                            damaged("the header of the table has no Offset, records or cpu")
                        })?,
                );
            }
            headers = [headers[1], line];
            continue;
        }
        let Some(columns) = &columns else { continue };
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        if first.starts_with("---") {
            continue;
        }
        if first.ends_with('%') {
            let (address, stores) =
                line_of.as_ref().ok_or_else(|| damaged("a row belongs to no line"))?;
            let cpus = row(line, &words, columns, (*address, stores), &mut samples)
                .ok_or_else(|| damaged("a row is cut off or has no figures"))?;
            left = left
                .checked_sub(cpus)
                .ok_or_else(|| damaged("there are more rows and CPUs than a report has"))?;
        } else if words.len() == columns.shares + 2
            && let Some(address) = hexadecimal(words[words.len() - 1])
            && let Some(counts) =
                words[1..=columns.shares].iter().map(|word| word.parse().ok()).collect()
        {
            line_of = Some((address, counts));
        }
    }
    if columns.is_none() {
        return Err(Error::new(format!("it has no table {TITLE:?}"))
            .advise("give `perf c2c report --stdio`, not --stats"));
    }
    samples.profile(source)
}

/// Reads the columns. `dots` has a run of dots for each column, and `names` the name above it.
fn read_columns(dots: &str, names: &str) -> Option<Columns> {
    let names: Vec<&str> = Dotted::of(dots, names).names().collect();
    let offset = names.iter().position(|name| *name == "Offset")?;
    // The first column is the number of the line.
    let shares = names.get(1..offset)?;
    let store = |name: &str| name.starts_with("L1") || name == "N/A" || name == "Any Lvl";
    let find = |wanted: &str| names.iter().position(|name| *name == wanted);
    Some(Columns {
        shares: shares.len(),
        stores: (0..shares.len()).filter(|&index| store(shares[index])).collect(),
        records: find("records")?.checked_sub(1)?,
        cpus: find("cnt")?.checked_sub(1)?,
    })
}

/// Adds a row; returns the number of its CPUs.
fn row(
    line: &str,
    words: &[&str],
    columns: &Columns,
    (address, counts): (u64, &[f64]),
    samples: &mut Samples<'_>,
) -> Option<usize> {
    let share = |word: &str| word.strip_suffix('%')?.parse::<f64>().ok();
    let shares: Vec<f64> =
        words.get(..columns.shares)?.iter().map(|word| share(word)).collect::<Option<_>>()?;
    let offset = hexadecimal(words.get(columns.shares)?)?;
    let records: f64 = words.get(columns.records)?.parse().ok()?;
    let cpus: u64 = words.get(columns.cpus)?.parse().ok()?;
    if !(records.is_finite() && records >= 0.0 && shares.iter().all(|share| share.is_finite())) {
        return None;
    }
    let stores: f64 =
        columns.stores.iter().map(|&index| shares[index] / 100.0 * counts[index]).sum();
    let stores = stores.round().clamp(0.0, records);
    let who = match named_cpus(line) {
        named if named.is_empty() => (0..cpus.clamp(1, MOST_CPUS)).collect(),
        named => named,
    };
    let place = Place::Address(address.checked_add(offset)?);
    for (kind, times) in [(Kind::Load, records - stores), (Kind::Store, stores)] {
        if times > 0.0 {
            let each = times / who.len() as f64;
            who.iter().for_each(|&cpu| samples.add(place, kind, Who::Cpu(cpu), each));
        }
    }
    Some(who.len())
}

/// Returns the CPUs of the last column, like `0{36-39,41} 1{0}`; none if it has only nodes.
fn named_cpus(line: &str) -> Vec<u64> {
    let mut cpus = Vec::new();
    for group in line.split('}') {
        let Some((before, list)) = group.rsplit_once('{') else { continue };
        if !before.ends_with(|last: char| last.is_ascii_digit()) {
            continue;
        }
        for range in list.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>())
                && to < MOST_CPUS
                && cpus.len() < MOST_CPUS as usize
            {
                cpus.extend(from..=to);
            }
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names_and_nothing_is_taken_for_granted() {
        let dots = " ... .... ...... ....... ......";
        let read = |names: &str| read_columns(dots, names).map(|columns| columns.records);
        assert_eq!(read(" Num  Rmt Offset records    cnt"), Some(2));
        for names in ["", " Num  Rmt Offset", " records  Rmt Offset", " é Offset records cnt"] {
            assert_eq!(read(names), None, "{names}");
        }
        let first = read_columns(" ....... ...... ...", " records Offset cnt");
        assert!(first.is_none_or(|columns| columns.shares == 0));
    }

    #[test]
    fn cpus_are_read_as_ranges_and_lists() {
        assert_eq!(named_cpus("a [k] f::{0}::g x.c:1  0{0-2,9}  1{36}"), [0, 1, 2, 9, 36]);
        assert_eq!(named_cpus(" 0  1"), [0u64; 0]);
        assert_eq!(named_cpus("0{ 1  50.0%  9.1%} 1{999999999-99999999999} 2{5-3}"), [0u64; 0]);
    }
}
