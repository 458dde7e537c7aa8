//! Limits in human notation.

use ledgerline::size::{self, SizeError};
use ledgerline::{Ledger, Limit};

#[test]
fn a_limit_is_a_number_with_a_unit_or_max_in_either_case() {
    for (text, units) in [
        ("0", 0),
        ("4096", 4096),
        ("100B", 100),
        ("64k", 64 << 10),
        ("64K", 64 << 10),
        ("512M", 512 << 20),
        ("512Mi", 512 << 20),
        ("1.5G", 3 << 29),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        (" 2G\n", 2 << 30),
        ("3T", 3 << 40),
        ("5P", 5 << 50),
        ("3E", 3 << 60),
    ] {
        assert_eq!(text.parse(), Ok(Limit::units(units)), "{text:?}");
        assert_eq!(size::parse(text), Ok(Some(units)), "{text:?}");
    }
    for text in ["max", "MAX", "Max", " max "] {
        assert_eq!(text.parse(), Ok(Limit::MAX), "{text:?}");
        assert_eq!(size::parse(text), Ok(None), "{text:?}");
    }
}

#[test]
fn what_is_no_limit_is_refused_with_the_text_and_how_to_write_it() {
    type Why = fn(String) -> SizeError;
    let (malformed, negative, large): (Why, Why, Why) =
        (SizeError::Malformed, SizeError::Negative, SizeError::TooLarge);
    let ambiguous: Why = SizeError::Ambiguous;
    for (text, why) in [
        ("5iB", malformed),
        ("5 iB", malformed),
        ("5MB", ambiguous),
        ("1.5 kb", ambiguous),
        ("5KiiB", malformed),
        ("12Q", malformed),
        ("1.5", malformed),
        ("1e9", malformed),
        ("0x10", malformed),
        ("+5", malformed),
        ("K", malformed),
        ("5 5", malformed),
        ("maximum", malformed),
        ("none", malformed),
        ("-1", negative),
        ("-1M", negative),
        ("4E", large),
        ("4611686018427387904", large),
        ("99999999999999999999", large),
    ] {
        let error = text.parse::<Limit>().unwrap_err();
        assert_eq!(error, why(text.to_owned()), "{text:?}");
        let told = error.to_string();
        let how = if error == ambiguous(text.to_owned()) { "iB" } else { "max" };
        assert!(told.contains(&format!("'{text}'")) && told.contains(how), "{told}");
    }
    for text in ["", " "] {
        assert_eq!(text.parse::<Limit>(), Err(SizeError::Empty));
    }
}

#[test]
fn a_limit_prints_exactly_and_reads_back_as_it_was() {
    for (limit, text) in [
        (Limit::ZERO, "0"),
        (Limit::units(1000), "1000"),
        (Limit::units(1536), "1536"),
        (Limit::units(3 << 10), "3K"),
        (Limit::units(512 << 20), "512M"),
        (Limit::units((1 << 62) - 1), "4611686018427387903"),
        (Limit::units(1 << 62), "max"),
        (Limit::MAX, "max"),
    ] {
        assert_eq!((limit.to_string(), text.parse()), (text.to_owned(), Ok(limit)));
    }
    let mut limits = ["max", "1G", "0", "64K"].map(|text| text.parse::<Limit>().unwrap());
    limits.sort();
    assert_eq!(limits.map(|limit| limit.to_string()), ["0", "64K", "1G", "max"]);
}

#[test]
fn no_limit_is_what_a_group_begins_with_and_what_max_takes_it_back_to() {
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("g").unwrap();
    assert_eq!((group.max(), group.high()), (Limit::MAX, Limit::MAX));
    assert_eq!((group.low(), group.min()), (Limit::ZERO, Limit::ZERO));
    group.set_max("4K".parse().unwrap()).unwrap();
    assert_eq!(group.max().get(), Some(4096));
    assert!(group.try_charge(4097).is_err());
    group.set_max("MAX".parse().unwrap()).unwrap();
    assert_eq!(group.max().get(), None);
    drop(group.try_charge(1 << 61).unwrap());
    assert_eq!(Limit::units(8191).round_down(4096), Limit::units(4096));
    assert_eq!(Limit::MAX.round_down(4096), Limit::MAX);
}
