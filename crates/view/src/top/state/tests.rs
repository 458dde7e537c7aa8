use super::*;
use crate::top::sample::{look, row, tenants};

fn state() -> State {
    State::new("a ledger", Choice::default(), Duration::from_secs(1), tenants())
}

fn press(state: &mut State, keys: &str) -> Answer {
    let mut last = Answer::Show;
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        last = state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}

fn names(state: &State) -> String {
    state.lines().map(|entry| entry.name(state.look())).collect::<Vec<_>>().join(" ")
}

fn chosen(state: &State) -> &str {
    state.line(state.chosen().expect("a row is shown")).name(state.look())
}

#[test]
fn the_chosen_row_stays_on_its_group_when_rows_move() {
    let mut state = state();
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ bolt q3 acme q2 q1 cone", "/"));
    press(&mut state, "jjj");
    assert_eq!(chosen(&state), "acme");
    let mut later = tenants();
    later.rows[1].current = 1 << 40;
    state.looked(later);
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ acme q2 q1 bolt q3 cone", "acme"));
    press(&mut state, "r");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ cone bolt q3 acme q1 q2", "acme"));
}

#[test]
fn a_chosen_group_that_is_gone_leaves_the_choice_at_its_line() {
    let mut state = state();
    press(&mut state, "G");
    assert_eq!(chosen(&state), "cone");
    let mut later = tenants();
    later.rows.pop();
    state.looked(later);
    assert_eq!(chosen(&state), "q1");
    // A new group with that name is another group.
    state.looked(tenants());
    assert_eq!(chosen(&state), "q1");
}

#[test]
fn folding_chooses_the_group_that_hides_the_chosen_one() {
    let mut state = state();
    press(&mut state, "jj");
    assert_eq!(chosen(&state), "q3");
    press(&mut state, "-");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ bolt acme cone", "bolt"));
    press(&mut state, "l");
    assert_eq!(names(&state), "/ bolt q3 acme cone");
    press(&mut state, " ");
    assert_eq!(names(&state), "/ bolt acme cone");
    press(&mut state, "+");
    assert_eq!(names(&state), "/ bolt q3 acme q2 q1 cone");
    press(&mut state, "jh");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ bolt q3 acme q2 q1 cone", "bolt"));
    press(&mut state, "h");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ bolt acme q2 q1 cone", "bolt"));
    press(&mut state, "hh");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/", "/"));
    press(&mut state, "2");
    assert_eq!(names(&state), "/ bolt q3 acme q2 q1 cone");
}

#[test]
fn a_filter_that_is_typed_shows_at_once_and_hides_the_chosen_row_for_its_time_only() {
    let mut state = state();
    press(&mut state, "j");
    assert_eq!(chosen(&state), "bolt");
    press(&mut state, "/q1q");
    assert_eq!((names(&state).as_str(), state.chosen()), ("", None));
    press(&mut state, "\u{8}");
    assert_eq!(names(&state), "/ acme q1");
    assert!(state.typing);
    press(&mut state, "\n");
    // Keys have their commands again, and the filter stays.
    assert_eq!(press(&mut state, "q"), Answer::Quit);
    assert_eq!(names(&state), "/ acme q1");
    press(&mut state, "\u{1b}");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ bolt q3 acme q2 q1 cone", "bolt"));
    press(&mut state, "/q\u{1b}");
    assert!(!state.typing && state.choice.filter.is_empty());
}

#[test]
fn a_filter_holds_no_more_than_it_may_and_nothing_that_steers() {
    let mut state = state();
    press(&mut state, &format!("/{}\u{7}", "x".repeat(FILTER + 5)));
    assert_eq!(state.choice.filter.len(), FILTER);
}

#[test]
fn merging_chooses_the_program_of_the_chosen_group_and_back() {
    let rows = vec![row("/", 9), row("/sh.1", 3), row("/cc.2", 4), row("/sh.3", 2)];
    let mut state = State::new("x", Choice::default(), Duration::from_secs(1), look(rows));
    press(&mut state, "G");
    assert_eq!(chosen(&state), "sh.3");
    press(&mut state, "m");
    assert_eq!((names(&state).as_str(), chosen(&state)), ("/ sh cc", "sh"));
    press(&mut state, "m");
    assert_eq!(chosen(&state), "sh.1");
    press(&mut state, "gm");
    assert_eq!(chosen(&state), "/");
}

#[test]
fn keys_sort_by_each_column_and_change_the_interval_and_pause() {
    let mut state = state();
    assert_eq!(state.sorted(), "groups by current, largest first among siblings");
    press(&mut state, "<");
    assert_eq!(state.sorted(), "groups by name, a to z among siblings");
    press(&mut state, "<t");
    assert_eq!(state.sorted(), "groups by charges, largest first");
    press(&mut state, ">>>r");
    assert_eq!(state.sorted(), "groups by peak, smallest first");
    press(&mut state, "]]");
    assert_eq!(state.interval, Duration::from_secs(5));
    press(&mut state, &"[".repeat(20));
    assert_eq!(state.interval, Duration::from_millis(100));
    assert_eq!((press(&mut state, "p"), state.paused), (Answer::Show, true));
    assert_eq!((press(&mut state, "p"), state.paused), (Answer::Look, false));
}

#[test]
fn rates_are_made_of_two_looks() {
    let mut state = state();
    let mut later = tenants();
    later.clock = Duration::from_secs(2);
    later.rows[1].current += 4096;
    later.rows[1].counts.refused += 6;
    state.looked(later);
    let acme = state.lines().find(|entry| entry.row == 1).unwrap().figures;
    assert_eq!((acme.growth, acme.refused, acme.limits), (2048.0, 3.0, 3.0));
}

#[test]
fn the_window_always_has_the_chosen_row_and_no_empty_lines_that_could_be_rows() {
    let rows = (0..100).map(|number| row(&format!("/g{number:02}"), 1));
    let rows = std::iter::once(row("/", 100)).chain(rows).collect();
    let mut state = State::new("x", Choice::default(), Duration::from_secs(1), look(rows));
    let check = |state: &mut State, height: usize| {
        let window = state.window(height);
        let chosen = state.chosen().unwrap();
        assert!(window.contains(&chosen), "{window:?} of {chosen}");
        assert_eq!(window.len(), height.clamp(1, 101));
        window.start
    };
    assert_eq!(check(&mut state, 10), 0);
    press(&mut state, &"j".repeat(15));
    assert_eq!(check(&mut state, 10), 6);
    press(&mut state, "kkk");
    assert_eq!(check(&mut state, 10), 6, "rows stay while the chosen one is among them");
    press(&mut state, "G");
    assert_eq!(check(&mut state, 10), 91);
    assert_eq!(check(&mut state, 200), 0, "a larger screen");
    assert_eq!(check(&mut state, 0), 100, "a screen without room");
    state.key(KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE));
    check(&mut state, 10);
}

#[test]
fn what_hides_the_rows_lets_nothing_be_done_to_them() {
    let mut state = state();
    press(&mut state, "?");
    assert!(state.help);
    press(&mut state, "r");
    assert!(!state.help && !state.choice.reverse);
    press(&mut state, "?");
    assert_eq!(press(&mut state, "q"), Answer::Quit);
}
