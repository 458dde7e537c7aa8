//! Known regressions and published cases: types and profiles come from their descriptions, and the same search runs for
//! all.

use std::path::{Path, PathBuf};

use crate::compile;
use crate::golden;
use ledgerline_advise::advice::{Advice, Wishes, advise};
use ledgerline_advise::cost::{Question, difference};
use ledgerline_advise::pieces::Freedom;
use ledgerline_advise::print::{self, Language, Options};
use ledgerline_advise::profile::{Known, Profile};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::pick;

const POINTS: usize = 6;

/// Returns the types of a source document.
fn documented(name: &str, options: &[&str]) -> Option<Types> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../layout/tests/fixtures");
    compile::types(&fixtures.join(format!("{name}.c")), options)
}

fn published() -> Option<Types> {
    compile::types(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published.c"), &[])
}

fn profile(name: &str) -> Profile {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/profiles/{name}.toml"));
    Profile::open(&path, &Known::default()).unwrap()
}

fn id(types: &Types, name: &str) -> TypeId {
    pick(types, &[name.to_owned()]).unwrap()[0].1
}

fn advised(types: &Types, profile_name: &str, wishes: &Wishes) -> Advice {
    let profile = profile(profile_name);
    let machine = Machine::open(profile.machine.as_deref().unwrap()).unwrap();
    let question = Question { machine: &machine, cpus: profile.cpus.unwrap(), points: POINTS };
    let of = &profile.types[0];
    advise(types, id(types, &of.name), of, &question, wishes).unwrap()
}

/// Returns the offset of a field, today or as proposed.
fn at(advice: &Advice, path: &str) -> u64 {
    let spot = advice.uses.spots.iter().position(|spot| spot.path == path).expect(path);
    advice.proposal.as_ref().map_or(advice.place.offsets[spot], |of| of.place.offsets[spot])
}

fn lines(advice: &Advice, paths: &[&str]) -> std::collections::BTreeSet<u64> {
    paths.iter().map(|path| at(advice, path) / 64).collect()
}

/// Checks the properties of every proposal.
fn sound(advice: &Advice) {
    let Some(proposal) = &advice.proposal else { return };
    let mut end = 0;
    for &index in &proposal.order {
        let piece = &advice.pieces.list[index];
        let offset = proposal.offsets[index];
        assert!(offset >= end, "{} overlaps what comes before", piece.name());
        assert!(offset.is_multiple_of(piece.align), "{}", piece.name());
        if piece.held.is_some_and(|held| held != ledgerline_advise::pieces::Held::Last) {
            assert_eq!(offset, piece.offset, "{}", piece.name());
        }
        end = offset + piece.size;
    }
    assert!(end <= proposal.size && proposal.size <= advice.size_max);
    let change = difference(&advice.today, &proposal.cost).change;
    assert!(change.high < 0.0, "{change:?}");
    assert_eq!(change, proposal.change.change);
    assert!(!proposal.moves.is_empty());
    for of in &proposal.moves {
        assert!(!of.reason.is_empty() && !of.reason.contains('\n'), "{of:?}");
    }
}

const LIMITS: [&str; 5] = ["min", "low", "high", "max", "parent"];

#[test]
fn the_counter_gets_usage_alone_and_the_limits_beside_parent() {
    let Some(types) = documented("page_counter", &[]) else { return };
    let advice = advised(&types, "page_counter", &Wishes::default());
    sound(&advice);
    assert_eq!(&*advice.today.pairs[0].writer, "usage");
    assert!(advice.proposal.is_some());
    assert_eq!(lines(&advice, &LIMITS).len(), 1, "{:?}", lines(&advice, &LIMITS));
    let usage = at(&advice, "usage") / 128;
    for spot in &advice.uses.spots {
        assert!(spot.path == "usage" || at(&advice, &spot.path) / 128 != usage, "{}", spot.path);
    }
}

#[test]
fn of_the_group_what_is_read_stays_together_and_away_from_what_is_written() {
    let Some(types) = documented("mem_cgroup", &["-DAFTER"]) else { return };
    let advice = advised(&types, "mem_cgroup", &Wishes::default());
    sound(&advice);
    let read = ["moving_account", "move_lock_task", "stat_cpu"];
    let worst = &advice.today.pairs[0];
    assert_eq!((&*worst.writer, &*worst.victim), ("stat[13]", "stat_cpu"));
    assert!(advice.proposal.is_some());
    assert_eq!(lines(&advice, &read).len(), 1);
    for written in ["stat[13]", "events[20]"] {
        assert_ne!(at(&advice, written) / 128, at(&advice, "stat_cpu") / 128, "{written}");
    }
}

#[test]
fn of_the_good_group_nothing_that_was_together_is_parted() {
    let Some(types) = documented("mem_cgroup", &[]) else { return };
    let advice = advised(&types, "mem_cgroup", &Wishes::default());
    sound(&advice);
    let read = ["moving_account", "move_lock_task", "stat_cpu"];
    assert_eq!(lines(&advice, &read).len(), 1);
}

#[test]
fn a_pointer_leaves_the_neighbour_of_a_written_line() {
    let Some(types) = published() else { return };
    let advice = advised(&types, "adjacent_pair", &Wishes::default());
    sound(&advice);
    assert!(advice.proposal.is_some());
    assert_ne!(at(&advice, "vmstats_percpu") / 128, at(&advice, "vmstats") / 128);
    // `css` begins the record.
    assert!(at(&advice, "vmstats_percpu") >= 128);
}

#[test]
fn a_contended_lock_gets_a_line_without_what_is_read() {
    let Some(types) = published() else { return };
    let advice = advised(&types, "mmap_lock", &Wishes::default());
    sound(&advice);
    assert!(advice.proposal.is_some());
    for read in ["task_size", "pgd"] {
        assert_ne!(at(&advice, "mmap_lock") / 128, at(&advice, read) / 128, "{read}");
    }
}

#[test]
fn what_a_path_reads_is_gathered_on_fewer_lines() {
    let Some(types) = published() else { return };
    let advice = advised(&types, "gathered", &Wishes::default());
    sound(&advice);
    assert!(advice.proposal.is_some());
    let fields = ["a", "b", "c", "d", "e", "f"];
    assert_eq!(lines(&advice, &fields).len(), 1, "{:?}", lines(&advice, &fields));
}

#[test]
fn pins_and_the_size_are_heeded_and_what_cannot_be_is_said() {
    let Some(types) = documented("page_counter", &[]) else { return };
    let pinned = |names: &[&str]| Freedom {
        pinned: names.iter().map(|&name| name.to_owned()).collect(),
        ..Freedom::default()
    };
    let wishes = Wishes { freedom: pinned(&["high", "usage"]), ..Wishes::default() };
    let advice = advised(&types, "page_counter", &wishes);
    sound(&advice);
    assert_eq!((at(&advice, "usage"), at(&advice, "high")), (0, 24));
    // There is no room to separate them: the fields take all of today's bytes.
    let wishes = Wishes { size_max: Some(112), ..Wishes::default() };
    let advice = advised(&types, "page_counter", &wishes);
    sound(&advice);
    if let Some(proposal) = &advice.proposal {
        assert_eq!(proposal.size, 112);
    }
    let profile = profile("page_counter");
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 72, points: 1 };
    let error = |wishes: &Wishes| {
        let id = id(&types, "page_counter");
        advise(&types, id, &profile.types[0], &question, wishes).unwrap_err().to_string()
    };
    let wrong = Wishes { freedom: pinned(&["usgae"]), ..Wishes::default() };
    assert!(error(&wrong).contains("did you mean `usage`?"), "{}", error(&wrong));
    let wrong = Wishes { size_max: Some(64), ..Wishes::default() };
    assert_eq!(error(&wrong), "page_counter has 112 bytes today; let it have as many at least");
    let question = Question { cpus: 100, ..question };
    let id = id(&types, "page_counter");
    let error = advise(&types, id, &profile.types[0], &question, &Wishes::default()).unwrap_err();
    assert!(error.to_string().starts_with("100 CPUs are asked for, "), "{error}");
}

#[test]
fn a_base_that_is_hardly_known_is_paid_for_by_every_place() {
    let Some(types) = documented("page_counter", &[]) else { return };
    let wishes = Wishes { base: Some(8), ..Wishes::default() };
    let advice = advised(&types, "page_counter", &wishes);
    sound(&advice);
    assert_eq!(advice.place.base, 8);
    if let Some(proposal) = &advice.proposal {
        // A begun line helps only if objects begin lines, so the type gets an alignment.
        assert!(proposal.align == 8 || proposal.place.base == proposal.align);
    }
}

#[test]
fn the_same_question_has_the_same_answer() {
    let Some(types) = documented("page_counter", &[]) else { return };
    let text = || {
        let advice = advised(&types, "page_counter", &Wishes::default());
        let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
        let question = Question { machine: &machine, cpus: 72, points: POINTS };
        let options = Options { question: &question, profile: "p.toml", line: 64, colour: false };
        let id = id(&types, "page_counter");
        let mut out = String::new();
        print::text(&types, id, &advice, &options, &mut out);
        (out, print::json(&types, id, &advice, &options))
    };
    assert_eq!(text(), text());
}

/// Checks that a compiled sketch has the proposal's offsets.
fn compiles(types: &Types, name: &str, declarations: &str, advice: &Advice) {
    let Some(proposal) = &advice.proposal else { return };
    let text = print::sketch(types, id(types, name), advice, Language::C);
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sketch-{name}.c"));
    std::fs::write(&source, format!("{declarations}\n{text}\nstruct {name} one;\n")).unwrap();
    let Some(new) = compile::types(&source, &[]) else { return };
    let new_id = id(&new, name);
    for &index in &proposal.order {
        let piece = &advice.pieces.list[index];
        let Some(leaf) = ledgerline_layout::leaf::find(&new, new_id, piece.name()) else {
            continue;
        };
        assert_eq!(leaf.offset(), proposal.offsets[index], "{}\n{text}", piece.name());
    }
    assert_eq!(new.size(new_id), Some(proposal.size), "{text}");
}

#[test]
fn the_sketches_compile_to_what_is_proposed() {
    const ATOMIC: &str = "typedef struct { long counter; } atomic_long_t;
        typedef struct { int counter; } atomic_t;
        typedef struct { unsigned int lock; } spinlock_t;
        struct cgroup_file { void *kn; unsigned long notified_at; };
        struct css { void *cgroup; char above[120]; };";
    let Some(counter) = documented("page_counter", &[]) else { return };
    let advice = advised(&counter, "page_counter", &Wishes::default());
    compiles(&counter, "page_counter", ATOMIC, &advice);
    let group = documented("mem_cgroup", &["-DAFTER"]).unwrap();
    compiles(&group, "mem_cgroup", ATOMIC, &advised(&group, "mem_cgroup", &Wishes::default()));
    let types = published().unwrap();
    for (name, profile) in
        [("mem_cgroup", "adjacent_pair"), ("mm", "mmap_lock"), ("connection", "gathered")]
    {
        compiles(&types, name, ATOMIC, &advised(&types, profile, &Wishes::default()));
    }
}

/// Replaces figures, which depend on machines and the simulator, by `#`, and runs of spaces by one.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                let bare = word.trim_matches(|c: char| "().,;:".contains(c));
                let number = bare.trim_start_matches('-').parse::<f64>().is_ok();
                if number { word.replace(bare, "#") } else { word.to_owned() }
            })
            .collect();
        let text = words.join(" ").replace(" (# .. #)", "");
        out.push_str(&text);
        out.push('\n');
    }
    out
}

#[test]
fn the_text_has_its_form() {
    let Some(types) = documented("page_counter", &[]) else { return };
    let advice = advised(&types, "page_counter", &Wishes::default());
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 72, points: POINTS };
    let options = Options { question: &question, profile: "charges.toml", line: 64, colour: false };
    let mut out = String::new();
    print::text(&types, id(&types, "page_counter"), &advice, &options, &mut out);
    // The pairs that wait and the reasons of moves depend on figures, too.
    let kept = masked(&out);
    let (before, rest) = kept.split_once("Who makes whom wait").expect(&kept);
    let (head, table) = before.split_once("\nAn operation takes #").expect(&kept);
    let (_, table) = table.split_once("\n\n").expect(&kept);
    let (_, rest) = rest.split_once("\nA better order").expect(&kept);
    let (rest, _) = rest.split_once("Moves, each").expect(&kept);
    let text = format!("{head}\n...\n{table}...\nA better order{rest}");
    // clang writes `unsigned long` for gcc's `long unsigned int`.
    golden::same("page_counter.advice", &text.replace("unsigned long ", "long unsigned int "));
}
