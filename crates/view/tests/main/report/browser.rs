//! The page in a real browser, if Debian's chromium is installed: it is operated by keys alone, no error is logged, and
//! untrusted names stay text.

use ledgerline::GroupId;
use ledgerline_view::report::{Recorder, Recording, Settings, page};
use ledgerline_view::watch::{Counts, Look, Row};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// Makes a page of a recording with three hundred groups, one of which has such a name.
fn made(name: &str, folder: &std::path::Path) -> String {
    let row = |index: u32, path: String, second: u64| Row {
        depth: u32::from(index > 0),
        name: path.clone(),
        pid: index,
        program: name.to_owned(),
        current: (u64::from(index) + 1) * 4096 * second,
        peak: (u64::from(index) + 1) * 50_000,
        counts: Counts {
            charges: 1,
            refused: second * u64::from(index == 3 || index == 0),
            ..Counts::default()
        },
        ..Row::new(GroupId::from_parts(index, 1), &path)
    };
    let file = folder.join("job.rec");
    let settings = Settings { title: name.into(), every: Duration::from_secs(1), size: 16 << 20 };
    let mut recorder = Recorder::create(&file, settings).unwrap();
    for second in 1..12 {
        let mut rows = vec![row(0, "/".into(), second), row(1, format!("/{name}"), second)];
        rows.extend((2..300).map(|index| row(index, format!("/group.{index}"), second)));
        let clock = Duration::from_secs(second);
        let (at, unit) = (UNIX_EPOCH, "bytes");
        recorder.push(&Look { at, clock, unit, steady: true, damaged: false, rows }).unwrap();
    }
    recorder.end("exit code 0").unwrap();
    page::html(&Recording::open(&file).unwrap()).unwrap()
}

/// The pressed keys, and the expected results.
const KEYS: &str = r##"
<script>
const seen = {};
const press = (key) => document.getElementById("areas").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const said = () => document.getElementById("said").textContent;
const first = () => document.querySelector("#groups tbody td").textContent;
document.getElementById("areas").focus();
seen.focus = document.activeElement.id;
press("End"); seen.end = said();
const axis = () => [...document.querySelectorAll("#areas text")].map((text) => text.textContent).join(" ");
seen.before = axis(); press("+"); press("+"); seen.zoomed = axis(); press("0"); seen.all = axis();
press("ArrowLeft"); seen.left = said();
press("Escape"); seen.none = said();
seen.rows = document.querySelectorAll("#groups tbody tr").length;
seen.largest = first();
const heads = document.querySelectorAll("#groups th button");
heads[0].click(); seen.sorted = document.querySelector("#groups th").getAttribute("aria-sort");
const filter = document.getElementById("filter");
filter.value = "group.29"; filter.dispatchEvent(new Event("input"));
seen.many = document.getElementById("many").textContent; seen.filtered = first();
seen.areas = document.querySelectorAll("#areas path[fill]").length;
seen.marks = document.querySelectorAll("#areas .refused").length > 0;
seen.lives = document.querySelectorAll("#lives rect").length;
seen.images = document.images.length; seen.alerts = window.alerts || 0;
seen.wide = document.documentElement.scrollWidth <= innerWidth;
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen);
document.body.append(out);
</script></body>"##;

#[test]
fn the_page_is_worked_by_keys_and_runs_nothing_of_others() {
    let browser = ["chromium", "chromium-browser"].into_iter().find(|name| {
        let mut probe = Command::new(name);
        probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    let Some(browser) = browser else {
        eprintln!("skipped: chromium is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let name = "</script><img src=x onerror='window.alerts=1'><script>window.alerts=1</script>";
    let page = made(name, folder.path()).replace("</body>", KEYS);
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--enable-logging=stderr",
            "--window-size=1200,900",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("CONSOLE"), "{log}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let start = dom.find("<pre id=\"seen\">").unwrap_or_else(|| panic!("{log}")) + 15;
    let text = dom[start..].split("</pre>").next().unwrap();
    let text = html_escape::decode_html_entities(text);
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    let says = |what: &str| seen[what].as_str().unwrap().to_owned();
    assert_eq!(says("focus"), "areas");
    assert!(says("end").starts_with("At 10.0 s / held"), "{seen}");
    assert!(says("left").starts_with("At 9.") && says("none").is_empty(), "{seen}");
    assert!(says("zoomed") != says("before") && says("all") == says("before"), "{seen}");
    assert_eq!((&seen["rows"], says("largest")), (&300.into(), "/group.299".into()), "{seen}");
    assert_eq!((says("sorted"), says("many")), ("ascending".into(), "11 of 300".into()));
    assert_eq!(says("filtered"), "/group.29");
    assert_eq!((&seen["areas"], &seen["lives"]), (&8.into(), &40.into()), "{seen}");
    assert_eq!((&seen["marks"], &seen["wide"]), (&true.into(), &true.into()), "{seen}");
    assert_eq!((&seen["images"], &seen["alerts"]), (&0.into(), &0.into()), "{seen}");
}
