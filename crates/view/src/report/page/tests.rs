//! The treatment of untrusted names on a page.

use super::*;
use crate::report::{Recorder, Settings};
use crate::watch::{Counts, Look, Row};
use ledgerline::GroupId;
use std::time::{Duration, UNIX_EPOCH};

/// Returns a recording in which the command and a group have this name.
fn named(name: &str) -> Recording {
    let row = |index: u32, path: String, depth: u32| Row {
        name: path.clone(),
        depth,
        pid: index,
        program: name.to_owned(),
        current: 5000,
        peak: 6000,
        counts: Counts { charges: 1, ..Counts::default() },
        ..Row::new(GroupId::from_parts(index, 1), &path)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let settings =
        Settings { title: name.into(), every: Duration::from_millis(100), size: 1 << 20 };
    let mut recorder = Recorder::create(&path, settings).unwrap();
    for second in 1..4 {
        let rows = vec![row(0, "/".into(), 0), row(1, format!("/{name}"), 1)];
        let clock = Duration::from_secs(second);
        let look =
            Look { at: UNIX_EPOCH, clock, unit: "bytes", steady: true, damaged: false, rows };
        recorder.push(&look).unwrap();
    }
    recorder.end(name).unwrap();
    Recording::open(&path).unwrap()
}

/// Returns the data of a page as the browser finds it: up to the end of the element.
fn embedded(page: &str) -> &str {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let rest = &page[start..];
    &rest[..rest.to_ascii_lowercase().find("</script").unwrap()]
}

#[test]
fn no_name_breaks_out_of_the_page() {
    for name in [
        "</script><script>alert(1)</script>",
        "</ScRiPt ><img src=x onerror=alert(1)>",
        "<!--<script>",
        "]]></noscript></svg><script>alert(1)</script>",
        "\" onload=\"alert(1)",
        "'><b>&lt;b&gt;",
        "\u{2028}\u{2029}\u{202e}\u{1b}[31m\0\u{7f}",
        "${alert(1)}`\\",
    ] {
        let page = html(&named(name)).unwrap();
        let plain = html(&named("plain")).unwrap();
        let count = |page: &str, what: &str| page.to_ascii_lowercase().matches(what).count();
        for what in [
            "<script",
            "</script",
            "<!--",
            "</svg",
            "<svg",
            "<img",
            "<b>",
            "</noscript",
            "onload=\"",
        ] {
            assert_eq!(count(&page, what), count(&plain, what), "{what} of {name:?}");
        }
        let data: serde_json::Value = serde_json::from_str(embedded(&page)).unwrap();
        assert_eq!(data["groups"][1]["program"], name, "the data says what it was");
        assert!(!page.contains(['\0', '\u{1b}', '\u{202e}', '\u{2028}']), "{name:?}");
    }
}

#[test]
fn the_page_loads_nothing() {
    let page = html(&named("plain")).unwrap();
    // An XML namespace is not an address that is loaded.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for what in [
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(h",
        "src=",
        "<link",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(what), "{what}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_page_has_what_was_recorded() {
    let page = html(&named("job.7")).unwrap();
    let data: serde_json::Value = serde_json::from_str(embedded(&page)).unwrap();
    assert_eq!(data["seconds"], 2.0);
    let job = &data["groups"][1];
    assert_eq!(
        (&job["path"], &job["parent"], &job["peak"]),
        (&"/job.7".into(), &0.into(), &6000.into())
    );
    assert_eq!(job["last"].as_array().unwrap().last().unwrap(), 5000);
    assert_eq!(job["first"], 0);
}

/// Returns the luminance of a colour, by WCAG.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let part = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn words_and_areas_stand_out_from_what_is_behind_them_light_and_dark() {
    let sheets: Vec<&str> = STYLE.split(":root {").skip(1).collect();
    assert_eq!(sheets.len(), 3, "light, dark, printed");
    for sheet in sheets {
        let sheet = sheet.split('}').next().unwrap();
        let colour = |name: &str| {
            let value = sheet.split(&format!("--{name}: ")).nth(1);
            value.unwrap_or_else(|| panic!("{name}")).split(';').next().unwrap()
        };
        for ground in ["ground", "raised"] {
            for words in ["ink", "quiet", "link"] {
                let found = contrast(colour(words), colour(ground));
                assert!(found >= 4.5, "{words} on {ground}: {found:.2}");
            }
        }
    }
    assert_eq!(contrast("#000000", "#ffffff").round(), 21.0);
    // Colours that carry meaning alone, in both themes: 4.5 for text. Areas border on each other, and are named in
    // order.
    for (dark, names) in [(false, ["#9a4a00", "#0a6b45"]), (true, ["#ffa657", "#3fb950"])] {
        let ground = if dark { "#161b22" } else { "#f6f8fa" };
        for name in names {
            assert!(STYLE.contains(name) && contrast(name, ground) >= 4.5, "{name} on {ground}");
        }
    }
}
