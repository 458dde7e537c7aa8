use super::*;
use crate::golden::same as golden;
use crate::top::list::List;
use crate::top::order::Choice;
use crate::top::sample::{look, row, tenants};
use crate::top::theme::Depth;
use crate::watch::find::{Found, Kind};
use crate::watch::{Look, Row, State as RowState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

const UNICODE: Theme = Theme { depth: Depth::True, unicode: true };
const ASCII: Theme = Theme { depth: Depth::None, unicode: false };

fn state(look: Look) -> State {
    State::new("server.ledger", Choice::default(), Duration::from_secs(1), look)
}

/// Returns the state after a second look, in which a tenant grew and was refused.
fn grown() -> State {
    let mut state = state(tenants());
    let mut later = tenants();
    later.clock = Duration::from_secs(2);
    for place in [0, 1, 2] {
        later.rows[place].current += 3 << 20;
        later.rows[place].peak = later.rows[place].current;
        later.rows[place].counts.charges += 50;
    }
    later.rows[4].counts.refused += 5;
    later.rows[4].counts.max_events += 5;
    later.rows[6].state = RowState::Exited;
    state.looked(later);
    state
}

fn buffer(state: &mut State, theme: &Theme, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen(frame, state, theme)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, keys: &str) {
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

#[test]
fn a_screen_is_as_it_was() {
    let mut state = grown();
    golden("top/wide.txt", &text(&buffer(&mut state, &UNICODE, 130, 14)));
    golden("top/usual.txt", &text(&buffer(&mut state, &UNICODE, 80, 14)));
    golden("top/ascii.txt", &text(&buffer(&mut state, &ASCII, 130, 14)));
    golden("top/narrow.txt", &text(&buffer(&mut state, &UNICODE, 40, 8)));
    press(&mut state, "j\n");
    golden("top/pane.txt", &text(&buffer(&mut state, &UNICODE, 100, 24)));
    press(&mut state, "-/bo");
    golden("top/typing.txt", &text(&buffer(&mut state, &UNICODE, 100, 14)));
    press(&mut state, "\n\n?");
    golden("top/help.txt", &text(&buffer(&mut state, &UNICODE, 100, 24)));
}

#[test]
fn a_screen_of_merged_programs_is_as_it_was() {
    let rows = vec![
        row("/", 9 << 20),
        row("/cc1.7", 5 << 20),
        row("/sh.1", 1 << 20),
        row("/sh.3", 2 << 20),
    ];
    let mut state = state(look(rows));
    press(&mut state, "mj\n");
    golden("top/merged.txt", &text(&buffer(&mut state, &UNICODE, 80, 14)));
}

#[test]
fn a_ledger_that_was_written_over_says_so_and_shows_no_numbers_of_the_row() {
    let mut bad = tenants();
    bad.damaged = true;
    bad.rows[4].state = RowState::Damaged;
    bad.rows[2].name = "\x1b[2J\u{202e}\n".to_owned();
    bad.rows[2].path = "/acme/\x1b[2J\u{202e}\n".to_owned();
    let mut state = state(bad);
    state.ended = true;
    press(&mut state, "\nG");
    let shown = text(&buffer(&mut state, &UNICODE, 130, 24));
    assert!(shown.contains("ENDED: this is the last look; DAMAGED"), "{shown}");
    let line = shown.lines().find(|line| line.contains("bolt")).unwrap();
    assert!(line.ends_with("damaged") && !line.contains(|it: char| it.is_ascii_digit()), "{shown}");
    assert!(shown.contains(r"\u{1b}[2J\u{202e}\u{a}"), "{shown}");
    let steers = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!shown.contains(steers), "{shown:?}");
}

#[test]
fn a_ledger_that_cannot_be_read_any_more_says_so_and_keeps_its_last_look() {
    let mut state = grown();
    state.lost = Some("server.ledger cannot be read: it became shorter".to_owned());
    let shown = text(&buffer(&mut state, &UNICODE, 130, 14));
    let told = "ledgerline top server.ledger";
    assert!(shown.starts_with(told), "{shown}");
    assert!(shown.contains("LOST: this is the last look; server.ledger cannot be read"), "{shown}");
    assert!(shown.contains("bolt"), "{shown}");
    let narrow = text(&buffer(&mut state, &UNICODE, 60, 14));
    assert!(narrow.contains("LOST: this is the last look"), "{narrow}");
}

#[test]
fn the_keys_are_always_in_the_last_line_and_no_size_is_too_small() {
    for (width, height) in
        [(1, 1), (2, 2), (5, 3), (16, 4), (33, 5), (80, 6), (200, 60), (0, 5), (5, 0)]
    {
        for keys in ["", "\n", "?", "/"] {
            let mut state = grown();
            press(&mut state, keys);
            let shown = text(&buffer(&mut state, &UNICODE, width, height));
            if width >= 16 && keys != "/" {
                assert!(shown.lines().last().unwrap().starts_with("q quit  ? help"), "{shown}");
            }
        }
    }
}

#[test]
fn without_colours_there_are_none_and_what_they_say_is_said_by_marks() {
    let mut state = grown();
    let shown = buffer(&mut state, &ASCII, 130, 14);
    assert!(shown.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let shown = text(&shown);
    let mark = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap().chars().next();
    assert_eq!((mark(" bolt"), mark(" acme"), mark(" cone")), (Some('!'), Some(' '), Some('x')));
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn the_background_is_the_terminals_own_and_the_chosen_row_is_reversed() {
    let mut state = grown();
    press(&mut state, "j");
    let shown = buffer(&mut state, &UNICODE, 130, 14);
    assert!(shown.content.iter().all(|cell| cell.bg == Color::Reset));
    let reversed = |y: u16| shown[(50, y)].modifier.contains(Modifier::REVERSED);
    assert_eq!((0..14).filter(|&y| reversed(y)).collect::<Vec<_>>(), [4]);
}

#[test]
fn the_list_of_ledgers_is_as_it_was() {
    let shown = |list: &mut List, height| {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).unwrap();
        terminal.draw(|frame| super::list::screen(frame, list, &UNICODE)).unwrap();
        text(terminal.backend().buffer())
    };
    let mut list = List::default();
    golden("top/list-empty.txt", &shown(&mut list, 6));
    let listed = |pid: u32, title: &str| Found {
        title: title.to_owned(),
        path: "/dev/shm/x".into(),
        kind: Kind::Mapped,
        program: "sort".to_owned(),
        pid,
        running: pid != 3,
        groups: pid * 1000,
    };
    let hostile = listed(3, "orders: \x1b[2J (3, ended)");
    list.update(vec![listed(1, "sort (run 1)"), listed(2, "orders: server (2)"), hostile]);
    list.trouble = Some("/dev/shm/x is not a ledger".to_owned());
    golden("top/list.txt", &shown(&mut list, 8));
    for height in 1..8 {
        shown(&mut list, height);
    }
}

/// Pseudo-random numbers (a linear congruence).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn number(&mut self) -> u64 {
        [0, 1, 4711, 1 << 40, i64::MAX as u64, u64::MAX][self.below(6) as usize]
    }

    fn look(&mut self) -> Look {
        let mut rows = Vec::new();
        for number in 0..1 + self.below(30) {
            let name =
                ["a", "漢字", "\x1b[2J", "", "a/b", "\u{202e}\u{301}"][self.below(6) as usize];
            let mut row = row(&format!("/{}{name}", self.below(5)), self.number());
            row.depth = [0, 1, 2, 3, 7, u32::MAX][self.below(6) as usize];
            row.state =
                [RowState::Live, RowState::Exited, RowState::Damaged][self.below(3) as usize];
            (row.peak, row.counts.charges, row.counts.refused) =
                (self.number(), self.number(), self.number());
            (row.low, row.counts.max_events, row.counts.high_events) =
                (self.number(), self.number(), self.number());
            row.max = (self.below(2) == 0).then(|| self.number());
            row.pid = self.below(4) as u32;
            rows.push(if number == 0 { Row { depth: 0, ..row } } else { row });
        }
        Look { clock: Duration::from_nanos(self.number()), ..look(rows) }
    }
}

#[test]
fn whatever_looks_say_and_whichever_keys_are_pressed_a_screen_is_drawn() {
    let mut chance = Chance(crate::seed::seed(1));
    for _ in 0..300 {
        let mut state = state(chance.look());
        for _ in 0..6 {
            state.looked(chance.look());
            for _ in 0..chance.below(8) {
                let keys = b"jkGg lh+-3<>rtm/\np[]?ax\x1b";
                press(
                    &mut state,
                    &char::from(keys[chance.below(keys.len() as u64) as usize]).to_string(),
                );
            }
            let (width, height) = (chance.below(200) as u16, chance.below(40) as u16);
            let shown = text(&buffer(&mut state, &UNICODE, width, height));
            assert!(!shown.contains('\x1b'), "{shown:?}");
            assert!(state.chosen().is_none_or(|line| line < state.lines().len()));
        }
    }
}
