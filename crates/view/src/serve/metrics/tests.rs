use super::*;

#[test]
fn what_is_accepted_is_what_is_sent() {
    assert!(wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"));
    assert!(wants_openmetrics("text/plain, Application/OpenMetrics-Text; version=0.0.1; q=0.75"));
    for other in [
        "",
        "*/*",
        "text/plain;version=0.0.4",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.0",
    ] {
        assert!(!wants_openmetrics(other), "{other:?}");
    }
}

#[test]
fn a_label_has_no_quote_backslash_or_end_of_line_of_its_own_and_steers_no_terminal() {
    assert_eq!(label("a\"b\\c\nd"), r#"a\"b\\c\\u{a}d"#);
    assert_eq!(label("\u{1b}[31m\u{202e}"), r"\\u{1b}[31m\\u{202e}");
    assert_eq!(label("größe {x=\"y\"}"), "größe {x=\\\"y\\\"}");
}

#[test]
fn the_older_format_names_counters_by_their_samples_and_has_no_units() {
    let openmetrics = "# HELP a_bytes Some bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{x=\"# y\"} 1\n\
                       # HELP b Build.\n# TYPE b info\nb_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 3\n# EOF\n";
    let text = "# HELP a_bytes_total Some bytes.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"# y\"} 1\n\
                # HELP b_info Build.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 3\n";
    assert_eq!(older(openmetrics), text);
}
