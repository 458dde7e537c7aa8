use super::*;
use crate::fleet::sample;
use crate::golden::same as golden;
use ledgerline_fleet::book::{BudgetView, HoldView};
use std::sync::Arc;
use std::time::Duration;

fn seen(now: Instant) -> Seen {
    Seen { books: Some((Arc::new(sample::books()), now)), trouble: None, readings: 1 }
}

fn scraped(seen: Seen, now: Instant) -> String {
    crate::serve::encoded(Scrape { seen, now }).unwrap()
}

#[test]
fn metrics_are_as_they_were_and_say_how_old_they_are() {
    let began = Instant::now();
    let now = began + Duration::from_millis(1_500);
    golden("fleet/metrics.txt", &scraped(seen(began), now));
}

#[test]
fn the_document_is_as_it_was() {
    let document = serde_json::to_string_pretty(&document::text(&sample::books())).unwrap();
    golden("fleet/books.json", &(document + "\n"));
}

#[test]
fn a_store_that_is_lost_is_down_and_what_was_read_stays_with_its_age() {
    let began = Instant::now();
    let now = began + Duration::from_secs(12);
    let trouble = Some("redis at 10.0.0.5:6379 did not <answer> in time".to_owned());
    let lost = Seen { trouble: trouble.clone(), ..seen(began) };
    let told = scraped(lost.clone(), now);
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
    let told = scraped(never.clone(), now);
    assert!(told.contains("ledgerline_fleet_up 0.0\n") && !told.contains("_bytes"), "{told}");
    assert!(json(&never, now).contains("\"age_ms\":null"));
}

#[test]
fn the_page_is_as_it_was() {
    let now = Instant::now();
    golden("fleet/page.html", &page::of(&seen(now), now, Duration::from_secs(5)));
}

#[test]
fn a_page_of_many_nodes_and_budgets_has_those_that_lease_most_and_counts_the_others() {
    let now = Instant::now();
    let mut books = sample::books();
    let view = &mut books.books[0].view;
    let hold = view.budgets[1].holds[0].clone();
    let many = (0..1000).map(|at| HoldView { node: format!("n{at}"), lease: at, ..hold.clone() });
    view.budgets[0].holds = many.collect();
    let budget = view.budgets[0].clone();
    view.budgets.resize(502, BudgetView { holds: Vec::new(), ..budget });
    let many = Seen { books: Some((Arc::new(books), now)), ..seen(now) };
    let page = page::of(&many, now, Duration::from_secs(1));
    assert!(page.contains(">n999<") && page.contains(">n980<") && !page.contains(">n979<"));
    let rest = (0..980).sum();
    assert!(
        page.contains(&format!("980 nodes more have {}<", ledgerline::size::format(rest))),
        "{page}"
    );
    assert!(page.contains("2 budgets more: "), "{page}");
}

#[test]
fn names_on_the_page_stay_text_and_nothing_is_inline() {
    let now = Instant::now();
    let mut books = sample::books();
    books.books[0].organisation = "<script>alert(1)</script>\u{1b}".to_owned();
    books.books[0].view.refusals[0].group = "/acme/\"><img src=x>".to_owned();
    let evil = Seen { books: Some((Arc::new(books), now)), ..seen(now) };
    let page = page::of(&evil, now, Duration::from_secs(1));
    for wrong in ["<script", "<img", "<style", "style=", "onclick", "\u{1b}", "javascript:"] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
}
