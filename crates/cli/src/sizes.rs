//! Limits as the user types them.

use ledgerline::Limit;

/// A smaller number of bytes is a slip: no program starts with so little.
const LEAST: u64 = 1 << 20;

/// Parses a limit of bytes: `512M`, `1.5G`, `max`, or a number of bytes. A [slip] is refused.
pub fn limit(text: &str) -> Result<Limit, String> {
    let limit: Limit = text.parse().map_err(|error| format!("{error}"))?;
    slip(text, limit).map_or(Ok(limit), Err)
}

/// Returns the error for a small number of bytes without a unit, which usually lacks one. Zero needs none.
pub fn slip(text: &str, limit: Limit) -> Option<String> {
    let is_bare = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let bytes = limit.get().filter(|bytes| is_bare && (1..LEAST).contains(bytes))?;
    Some(format!(
        "{bytes} is {bytes} bytes; write {bytes}M, {bytes}K, or at least {LEAST} without a unit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_number_without_a_unit_is_asked_back() {
        for (text, units) in [
            ("512M", 512 << 20),
            ("512K", 512 << 10),
            ("0", 0),
            ("1048576", 1 << 20),
            ("0.5K", 512),
        ] {
            assert_eq!(limit(text), Ok(Limit::units(units)), "{text}");
        }
        assert_eq!(limit("max"), Ok(Limit::MAX));
        for text in ["1", "512", "1048575"] {
            let told = limit(text).unwrap_err();
            assert!(told.contains(&format!("write {text}M, {text}K")), "{told}");
        }
        assert!(limit("x").is_err());
    }
}
