use super::*;
use crate::golden::same as golden;
use crate::sample;
use std::sync::Arc;
use std::time::Duration;

fn seen(now: Instant) -> Seen {
    Seen { books: Some((Arc::new(sample::books()), now)), trouble: None, readings: 1 }
}

#[test]
fn metrics_are_as_they_were_and_say_how_old_they_are() {
    let began = Instant::now();
    let now = began + Duration::from_millis(1_500);
    golden("metrics.txt", &metrics::of(seen(began), now).unwrap());
}

#[test]
fn a_store_that_is_lost_is_down_and_what_was_read_stays_with_its_age() {
    let began = Instant::now();
    let now = began + Duration::from_secs(12);
    let trouble = Some("redis at 10.0.0.5:6379 did not <answer> in time".to_owned());
    let lost = Seen { trouble: trouble.clone(), ..seen(began) };
    let told = metrics::of(lost.clone(), now).unwrap();
    for line in
        ["ledgerline_fleet_up 0.0\n", "ledgerline_fleet_age_seconds 12.0\n", "budget=\"/acme\""]
    {
        assert!(told.contains(line), "{line}: {told}");
    }
    let page = page::of(&lost, now, Duration::from_secs(1));
    assert!(
        page.contains("this is 12 s old.</strong> redis at 10.0.0.5:6379 did not &lt;answer&gt;"),
        "{page}"
    );
    let document: serde_json::Value = serde_json::from_str(&json(&lost, now)).unwrap();
    assert_eq!((&document["age_ms"], &document["more"]), (&12_000.into(), &3.into()));
    let never = Seen { trouble, ..Seen::default() };
    let told = metrics::of(never.clone(), now).unwrap();
    assert!(told.contains("ledgerline_fleet_up 0.0\n") && !told.contains("_bytes"), "{told}");
    assert!(json(&never, now).contains("\"age_ms\":null"));
}

#[test]
fn names_on_the_page_stay_text_and_nothing_is_inline() {
    let now = Instant::now();
    let mut books = sample::books();
    books.books[0].organisation = "<script>alert(1)</script>\u{1b}".to_owned();
    books.books[0].view.refusals[0].group = "/acme/\"><img src=x>".to_owned();
    let evil = Seen { books: Some((Arc::new(books), now)), ..seen(now) };
    let page = page::of(&evil, now, Duration::from_secs(1));
    for wrong in ["<script", "<img", "<style", "style=", "\u{1b}", "javascript:"] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
}
