use super::*;
use crate::fleet::sample;
use crate::golden::same as golden;
use crate::top::other::Depth;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

const UNICODE: Theme = Theme { depth: Depth::True, unicode: true };
const ASCII: Theme = Theme { depth: Depth::None, unicode: false };

fn state(read: Instant) -> State {
    let mut state = State { interval: Duration::from_secs(1), ..State::default() };
    let books = Some((Arc::new(sample::books()), read));
    state.see(Seen { books, ..Seen::default() });
    state
}

fn drawn(state: &mut State, theme: &Theme, (width, height): (u16, u16), now: Instant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::screen(frame, state, theme, now)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, keys: &str) {
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        state.obey(command(KeyEvent::new(code, KeyModifiers::NONE)).expect("a key"));
    }
}

#[test]
fn a_screen_is_as_it_was() {
    let now = Instant::now();
    let mut state = state(now);
    golden("fleet/top.txt", &drawn(&mut state, &UNICODE, (118, 18), now));
    press(&mut state, "j");
    golden(
        "fleet/top-chosen.txt",
        &drawn(&mut state, &UNICODE, (130, 18), now + Duration::from_secs(2)),
    );
    golden("fleet/top-ascii-narrow.txt", &drawn(&mut state, &ASCII, (60, 14), now));
    press(&mut state, "a");
    golden("fleet/top-amiss.txt", &drawn(&mut state, &ASCII, (100, 14), now));
    press(&mut state, "?");
    golden("fleet/top-help.txt", &drawn(&mut state, &ASCII, (100, 14), now));
}

#[test]
fn an_error_of_the_store_is_shown_with_the_age_of_what_is_shown() {
    let now = Instant::now();
    let mut state = state(now);
    let trouble = Some("redis at 10.0.0.5:6379 did not answer in time".to_owned());
    state.see(Seen { trouble, ..Seen::default() });
    let shown = drawn(&mut state, &ASCII, (110, 8), now + Duration::from_secs(12));
    assert!(shown.contains("LOST, this is 12 s old: redis at 10.0.0.5:6379 did not"), "{shown}");
    assert!(shown.contains("/acme"), "what was read stays: {shown}");
    let mut nothing = State::default();
    nothing.see(Seen { trouble: Some("no route".to_owned()), ..Seen::default() });
    assert!(drawn(&mut nothing, &ASCII, (80, 8), now).contains("LOST: no route"));
}

#[test]
fn a_chosen_budget_stays_chosen_whatever_comes_before_it_and_screens_of_any_size_are_drawn() {
    let now = Instant::now();
    let mut state = state(now);
    press(&mut state, "Gk");
    assert_eq!(state.chosen, "/zeta/b/c", "a level stands below the one above it");
    let mut books = sample::books();
    books.books[1]
        .view
        .budgets
        .insert(0, BudgetView { path: "/a".to_owned(), ..BudgetView::default() });
    let later = Some((Arc::new(books.clone()), now + Duration::from_secs(1)));
    state.see(Seen { books: later, ..Seen::default() });
    assert_eq!(state.chosen, "/zeta/b/c");
    books.books[1].view.budgets.pop();
    let later = Some((Arc::new(books), now + Duration::from_secs(2)));
    state.see(Seen { books: later, ..Seen::default() });
    assert_eq!(state.chosen, "/zeta/b x", "the one that took its line");
    for (width, height) in [(1, 1), (5, 3), (20, 2), (41, 7), (400, 100)] {
        drawn(&mut state, &UNICODE, (width, height), now);
    }
    press(&mut state, "]]p[\x1b");
    assert!(state.paused && state.pane_hidden && state.interval == Duration::from_secs(2));
}

#[test]
fn every_letter_that_the_help_shows_does_something() {
    let keys = HELP.iter().chain(&keys::LINE).flat_map(|(keys, _)| keys.split(' '));
    for key in keys.filter(|key| key.len() == 1 || *key == "[]") {
        for letter in key.chars() {
            let event = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE);
            if let Some(Command::Terminal(_)) = command(event) {
                continue;
            }
            let now = Instant::now();
            let mut state = state(now);
            press(&mut state, "j");
            let before = drawn(&mut state, &UNICODE, (118, 18), now);
            press(&mut state, &letter.to_string());
            assert_ne!(drawn(&mut state, &UNICODE, (118, 18), now), before, "{letter}");
        }
    }
}
