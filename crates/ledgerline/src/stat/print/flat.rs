//! Prints one name and one value per line: `/proc/vmstat`, `memory.stat`, `numastat`.

use super::{Stat, Word};
use std::fmt;

/// Prints each stat as a line `name value`.
///
/// ```
/// use ledgerline::stat::print::{Flat, Stat};
///
/// let stats = [Stat::bytes("anon", 2, 4096), Stat::new("pgfault", 7)];
/// assert_eq!(Flat(&stats).to_string(), "anon 8192\npgfault 7\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Flat<'a>(pub &'a [Stat]);

impl fmt::Display for Flat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|stat| writeln!(f, "{} {}", Word(&stat.name, 0), stat.value))
    }
}
