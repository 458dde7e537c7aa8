//! The changes that the command line requests.

use crate::sizes;
use ledgerline::Limit;
use ledgerline_protocol::MOST_BYTES;

/// A limit of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Max,
    High,
    Low,
    Min,
}

impl Which {
    const ALL: [Which; 4] = [Which::Max, Which::High, Which::Low, Which::Min];

    pub(super) fn name(self) -> &'static str {
        match self {
            Which::Max => "max",
            Which::High => "high",
            Which::Low => "low",
            Which::Min => "min",
        }
    }
}

/// A requested limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) which: Which,
    pub(super) limit: Limit,
    /// Whether it is a small number without a unit, which in a ledger of bytes is a slip.
    pub(super) is_bare: bool,
}

/// Parses `max=300M`. A cgroup's file name, `memory.max`, is accepted as well.
pub(super) fn parse(text: &str) -> Result<Change, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("a limit is written like max=300M: max, high, low or min, with its new value")?;
    let name = name.strip_prefix("memory.").unwrap_or(name);
    if ["max-heap", "max_heap"].contains(&name) {
        return Err("the limit of blocks alone (run --max-heap) stays as it was at the run's start; max limits blocks \
                    and mappings together"
            .to_owned());
    }
    let which = Which::ALL
        .into_iter()
        .find(|which| which.name() == name)
        .ok_or_else(|| format!("there is no limit {name:?}; there are max, high, low and min"))?;
    let limit: Limit = value.parse().map_err(|error| format!("{error}"))?;
    if limit.get().is_some_and(|units| units > MOST_BYTES) {
        return Err(format!("{value} is more than any machine holds; for no limit write max"));
    }
    let is_bare = sizes::slip(value, limit).is_some();
    Ok(Change { which, limit, is_bare })
}

/// Refuses contradictory changes.
pub(super) fn check(changes: &[Change], now: bool) -> Result<(), String> {
    for (at, change) in changes.iter().enumerate() {
        if changes[..at].iter().any(|earlier| earlier.which == change.which) {
            return Err(format!("{} is given twice", change.which.name()));
        }
    }
    if now && !changes.iter().any(|change| change.which == Which::Max) {
        return Err("--now is about max; give one".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_name_and_a_size() {
        let of = |which, limit| Ok(Change { which, limit, is_bare: false });
        assert_eq!(parse("max=300M"), of(Which::Max, Limit::units(300 << 20)));
        assert_eq!(parse("memory.high=max"), of(Which::High, Limit::MAX));
        assert_eq!(parse("low=0"), of(Which::Low, Limit::ZERO));
        for (text, why) in [
            ("max", "like max=300M"),
            ("swap=1M", "there is no limit"),
            ("max-heap=1M", "stays as it was at the run's start"),
            ("max=", "a size is missing"),
            ("max=1Q", "is not a size"),
            ("min=-1", "is negative"),
            ("max=1E", "more than any machine"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}: {:?}", parse(text));
        }
        assert!(parse("max=512").unwrap().is_bare && !parse("max=512K").unwrap().is_bare);
        let max = parse("max=1M").unwrap();
        assert!(check(&[max, max], false).unwrap_err().contains("max is given twice"));
        assert!(check(&[parse("low=1M").unwrap()], true).unwrap_err().contains("--now"));
        assert_eq!(check(&[max, parse("low=1M").unwrap()], true), Ok(()));
    }
}
