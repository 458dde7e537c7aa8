use super::*;

#[test]
fn figures_have_the_digits_that_matter() {
    let all = [(12345.6, "12346"), (99.94, "99.9"), (0.06, "0.1"), (0.0061, "0.01"), (0.001, "0")];
    for (value, text) in all {
        assert_eq!(figure(value), text);
    }
    assert_eq!(figure(-0.04), "-0.04");
    assert_eq!(range(&Interval { median: 2.0, low: 1.0, high: 3.5 }), "2.0 (1.0 .. 3.5)");
    let lost = Interval { median: -2.0, low: -3.5, high: -1.0 };
    assert_eq!(negated(&lost), Interval { median: 2.0, low: 1.0, high: 3.5 });
}
