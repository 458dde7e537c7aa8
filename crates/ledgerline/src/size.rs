//! Sizes as text: the parsing of `512M` and `max`, and the printing of sizes.

use crate::counter::COUNTER_MAX;
use std::fmt;
use std::str::FromStr;

/// A limit in units; [`Limit::MAX`] is no limit.
///
/// It is parsed like [`parse`], from `512M` or `max` in either case. Its printed form parses back to the same limit.
///
/// ```
/// use ledgerline::Limit;
/// let limit: Limit = "512M".parse()?;
/// assert_eq!((limit.get(), limit.to_string().as_str()), (Some(512 << 20), "512M"));
/// assert_eq!("MAX".parse(), Ok(Limit::MAX));
/// # Ok::<(), ledgerline::size::SizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u64);

impl Limit {
    /// No limit: prints and parses as `max`.
    pub const MAX: Limit = Limit(COUNTER_MAX);
    /// A limit of zero units.
    pub const ZERO: Limit = Limit(0);

    /// Returns a limit of this many units. A number that no counter can reach (2^62) is no limit.
    pub const fn units(units: u64) -> Limit {
        if units < COUNTER_MAX { Limit(units) } else { Limit::MAX }
    }

    /// Returns the units, or `None` without a limit.
    pub const fn get(self) -> Option<u64> {
        if self.0 < COUNTER_MAX { Some(self.0) } else { None }
    }

    /// Returns the limit rounded down to a multiple of `unit`, as the kernel rounds to pages.
    pub const fn round_down(self, unit: u64) -> Limit {
        match self.get() {
            Some(units) if unit > 1 => Limit(units - units % unit),
            _ => self,
        }
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0
    }
}

impl From<u64> for Limit {
    /// Same as [`Limit::units`].
    fn from(units: u64) -> Limit {
        Limit::units(units)
    }
}

impl FromStr for Limit {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Limit, SizeError> {
        Ok(parse(text)?.map_or(Limit::MAX, Limit::units))
    }
}

impl fmt::Display for Limit {
    /// Writes the exact number with the largest unit that divides it (`512M`, `1000`), or `max`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(units) = self.get() else { return f.pad("max") };
        let (shift, suffix) = SUFFIXES
            .iter()
            .rev()
            .find(|(shift, _)| units > 0 && units.is_multiple_of(1 << shift))
            .map_or((0, ""), |&(shift, suffix)| (shift, suffix));
        f.pad(&format!("{}{suffix}", units >> shift))
    }
}

const SUFFIXES: [(u32, &str); 6] =
    [(10, "K"), (20, "M"), (30, "G"), (40, "T"), (50, "P"), (60, "E")];

/// The reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeError {
    /// The text is empty.
    Empty,
    /// It has a sign.
    Negative(String),
    /// It is not a number with an optional unit.
    Malformed(String),
    /// Its unit may mean powers of 1000 or of 1024, like `MB`.
    Ambiguous(String),
    /// It is 2^62 or more.
    TooLarge(String),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::Empty => f.write_str("a size is missing; write it like 512M, or max"),
            SizeError::Negative(text) => {
                write!(f, "'{text}' is negative; for no limit write max")
            }
            SizeError::Malformed(text) => write!(
                f,
                "'{text}' is not a size; write a number with K, M, G, T, P or E, like 512M or 1.5G, \
                 or max"
            ),
            SizeError::Ambiguous(text) => {
                // Without its last letter the unit has one meaning: powers of 1024.
                let text = text.trim();
                let short = text.strip_suffix(['b', 'B']).unwrap_or(text);
                write!(
                    f,
                    "'{text}' may mean powers of 1000 or of 1024; for powers of 1024 write {short} or {short}iB"
                )
            }
            SizeError::TooLarge(text) => {
                write!(f, "'{text}' is too large; for no limit write max")
            }
        }
    }
}

impl std::error::Error for SizeError {}

/// Parses a size: a number of bytes with an optional `K`, `M`, `G`, `T`, `P` or `E`, or `max` in either case, which is
/// `None`. The letters are powers of 1024, in either case; `i` or `iB` may follow the letter, or `B` the number. With a letter
/// the number may have a fraction, `1.5G`; the part below a byte is cut off. `MB` and the like are refused, since they may
/// mean powers of 1000.
///
/// ```
/// use ledgerline::size::parse;
/// assert_eq!(parse("512M"), Ok(Some(512 << 20)));
/// assert_eq!(parse("512Mi"), parse("512M"));
/// assert_eq!(parse("1.5G"), Ok(Some(3 << 29)));
/// assert_eq!(parse("max"), Ok(None));
/// let error = parse("5MB").unwrap_err().to_string();
/// assert_eq!(error, "'5MB' may mean powers of 1000 or of 1024; for powers of 1024 write 5M or 5MiB");
/// assert!(parse("-1").is_err());
/// assert!(parse("12Q").is_err());
/// ```
///
/// # Errors
/// An empty text, a sign, garbage, and 2^62 or more. The message explains the mistake and how to write the size.
pub fn parse(text: &str) -> Result<Option<u64>, SizeError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(SizeError::Empty);
    }
    if trimmed.eq_ignore_ascii_case("max") {
        return Ok(None);
    }
    if trimmed.starts_with('-') {
        return Err(SizeError::Negative(text.into()));
    }
    let malformed = || SizeError::Malformed(text.into());
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = trimmed.split_at(digits(trimmed));
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let has_fraction = rest.starts_with('.');
    if number.is_empty() || has_fraction && fraction.is_empty() {
        return Err(malformed());
    }
    let unit = unit.trim_start().to_ascii_uppercase();
    // A bare "iB" leaves nothing, which is no suffix.
    let letter = unit.strip_suffix("IB").or(unit.strip_suffix('I'));
    let power = |letter: &str| SUFFIXES.iter().find(|(_, known)| *known == letter);
    let shift = match &*unit {
        "" | "B" if has_fraction => return Err(malformed()),
        "" | "B" => 0,
        _ if unit.strip_suffix('B').is_some_and(|letter| power(letter).is_some()) => {
            return Err(SizeError::Ambiguous(text.into()));
        }
        _ => power(letter.unwrap_or(&unit)).ok_or_else(malformed)?.0,
    };
    // Seventeen digits are more precise than any unit has bytes, and fit.
    let fraction = &fraction[..fraction.len().min(17)];
    let part = fraction.parse::<u128>().unwrap_or(0) << shift;
    let part = part / 10u128.pow(fraction.len() as u32);
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .and_then(|units| units.checked_add(u64::try_from(part).ok()?))
        .filter(|&units| units < COUNTER_MAX)
        .map(Some)
        .ok_or_else(|| SizeError::TooLarge(text.into()))
}

/// Formats a size for display: about three digits and a unit (`12.3M`, `640`, `1.0G`).
pub fn format(units: u64) -> String {
    let Some(at) = SUFFIXES.iter().rposition(|(shift, _)| units >> shift > 0) else {
        return units.to_string();
    };
    // Tenths, rounded to nearest, in integers: a float would be wrong above 2^53.
    let tenths = |shift: u32| ((u128::from(units) * 10) + (1 << (shift - 1))) >> shift;
    // A number that rounds to 1024 of a unit becomes one of the next.
    let next = tenths(SUFFIXES[at].0) >= 10_240 && at + 1 < SUFFIXES.len();
    let (shift, suffix) = SUFFIXES[at + usize::from(next)];
    format!("{}.{}{suffix}", tenths(shift) / 10, tenths(shift) % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_parsed_with_units_of_1024() {
        for (text, units) in [
            ("0", 0),
            ("1", 1),
            (" 7 ", 7),
            ("4k", 4096),
            ("4K", 4096),
            ("4Ki", 4096),
            ("512Mi", 512 << 20),
            ("512mi", 512 << 20),
            ("4KiB", 4096),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("0.001K", 1),
            ("1.25 MiB", 5 << 18),
            ("3.99999999999999999999999999E", COUNTER_MAX - 12),
            ("3 M", 3 << 20),
            ("100b", 100),
            ("3E", 3 << 60),
            ("4611686018427387903", COUNTER_MAX - 1),
        ] {
            assert_eq!(parse(text), Ok(Some(units)), "{text}");
        }
        for text in ["max", "MAX", "Max", " mAx "] {
            assert_eq!(parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_a_reason() {
        use SizeError::*;
        let cases = [
            "-1", "-5M", "12Q", "M", "1.5", "1.5B", "1.G", ".5G", "1.5.5G", "1,5G", "0x10", "1 2",
            "maxi", "4KKB", "1e3", "+4", "５", "5iB", "5 ib", "5IB", "iB", "5BB", "5iBB", "5KiiB",
            "5i", "5Kii",
        ];
        for text in cases {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, Negative(_) | Malformed(_)), "{text}: {error:?}");
            assert!(error.to_string().contains(text));
        }
        for text in ["", "  "] {
            assert_eq!(parse(text), Err(Empty));
        }
        for (text, write) in [("5MB", "write 5M or 5MiB"), ("1.5 gb ", "write 1.5 g or 1.5 giB")] {
            assert_eq!(parse(text), Err(Ambiguous(text.into())));
            assert!(parse(text).unwrap_err().to_string().ends_with(write), "{text}");
        }
        for text in ["4E", "99999999999G", "18446744073709551616", "4611686018427387904"] {
            assert!(matches!(parse(text), Err(TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        for (units, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (600 << 20, "600.0M"),
            ((1 << 20) - 1, "1.0M"),
            (((1 << 10) - 1) << 10, "1023.0K"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(format(units), text);
        }
    }

    #[test]
    fn limits_round_down_and_never_up() {
        assert_eq!(Limit::units(8191).round_down(4096), Limit::units(4096));
        assert_eq!(Limit::MAX.round_down(4096), Limit::MAX);
    }

    #[test]
    fn a_number_is_a_limit_of_so_many_units() {
        assert_eq!((Limit::from(512), u64::MAX.into()), (Limit::units(512), Limit::MAX));
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn a_limit_reads_back_as_it_was_printed(units in any::<u64>()) {
            let limit = Limit::units(units);
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,12}") {
            let _ = parse(&text);
        }
    }
}
