//! The operator's arguments: organisations, paths, sizes and times.

use ledgerline::size;
use ledgerline_fleet::message::MAX_UNITS;

/// A number of a budget to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The most that may be leased.
    Max(u64),
    /// The part that is kept from others for each node.
    Min(u64),
}

/// Reads `max=200G`.
///
/// # Errors
/// A sentence that names the mistake.
pub fn size_of(text: &str) -> Result<Size, String> {
    let written = "a size is written like max=200G: max or min, with its new value";
    let (name, value) = text.split_once('=').ok_or(written)?;
    let units = match size::parse(value) {
        Ok(Some(units)) if units <= MAX_UNITS => units,
        Ok(Some(_)) | Err(size::SizeError::TooLarge(_)) => {
            return Err(format!("{value} is more than a store counts (2^53, 8P)"));
        }
        Ok(None) => {
            return Err(
                "a budget has a limit: there is none without (`delete` takes the budget away)"
                    .into(),
            );
        }
        Err(error @ size::SizeError::Ambiguous(_)) => return Err(error.to_string()),
        Err(_) => {
            return Err(format!(
                "{value:?} is no size: a number, and K, M, G, T or P, as in 1536M or 1.5G"
            ));
        }
    };
    // A budget spans machines: a small number without a unit is a slip.
    let is_slip = (1..1 << 20).contains(&units) && value.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        "max" | "min" if is_slip => {
            Err(format!("{value} is {value} bytes; write it like {value}G or {value}M"))
        }
        "max" => Ok(Size::Max(units)),
        "min" => Ok(Size::Min(units)),
        _ => Err(format!("there is no {name:?} of a budget; there are max and min")),
    }
}

/// Reads `10s`, `1500ms` or `2min`.
///
/// # Errors
/// A sentence about the format of times.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let time = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    time.ok_or_else(|| {
        "a time is a whole number of ms, s, min or h, as in 1500ms or 10s".to_owned()
    })
}

/// Reads the name of an organisation; a leading slash is ignored.
///
/// # Errors
/// A sentence that names the mistake.
pub fn organisation(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('/').unwrap_or(text);
    match name.split_once('/') {
        Some((first, _)) if !first.is_empty() => Err(format!(
            "an organisation is the first name of its budgets' paths: {first}, which has {text} in it"
        )),
        _ if name.is_empty() || name.contains('/') => {
            Err(format!("{text:?} is no organisation: that is the acme of /acme/batch"))
        }
        _ => Ok(name.to_owned()),
    }
}

/// Returns the organisation of a budget's path.
///
/// # Errors
/// A sentence about the format of paths.
pub fn organisation_of(path: &str) -> Result<&str, String> {
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if first.is_empty() {
        return Err(format!(
            "{path:?} is no path of a budget: those are like /acme or /acme/batch"
        ));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_what_is_wrong_is_said() {
        assert_eq!(size_of("max=200G"), Ok(Size::Max(200 << 30)));
        assert_eq!(size_of("min=0"), Ok(Size::Min(0)));
        for (wrong, told) in [
            ("max", "written like max=200G"),
            ("max=max", "there is none without"),
            ("high=1G", "there are max and min"),
            ("max=16P", "more than a store counts"),
            ("max=8E", "more than a store counts"),
            ("max=999999999999999999999", "more than a store counts"),
            ("max=-1", "is no size: a number"),
            ("max=1.5", "is no size: a number"),
            ("max=5MB", "5M or 5MiB"),
            ("max=", "is no size: a number"),
            ("=1", "there are max and min"),
            ("max=200", "write it like 200G"),
        ] {
            let said = size_of(wrong).unwrap_err();
            assert!(said.contains(told) && !said.contains("write max"), "{wrong}: {said}");
        }
        for (time, told) in
            [("10s", 10_000), ("1500ms", 1500), ("2min", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(milliseconds(time), Ok(told));
        }
        for wrong in ["10", "s", "ms", "-1s", "1.5s", "2m", "99999999999999999999s"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_organisation_may_have_its_slash_and_a_path_is_none() {
        assert_eq!(organisation("acme"), Ok("acme".to_owned()));
        assert_eq!(organisation("/acme"), Ok("acme".to_owned()));
        assert!(organisation("/acme/batch").unwrap_err().contains("paths: acme, which"));
        for wrong in ["", "/", "//", "//a"] {
            assert!(organisation(wrong).unwrap_err().contains("is no organisation"), "{wrong}");
        }
        assert_eq!(organisation_of("/acme/batch"), Ok("acme"));
        for wrong in ["acme", "/", ""] {
            assert!(organisation_of(wrong).is_err(), "{wrong}");
        }
    }
}
