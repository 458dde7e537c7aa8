//! The arrival of a line at the CPU that requests it, and its stay there.

use super::*;

/// Returns a setup of two CPUs that store to one field and add to another, over and over.
fn store_and_add(early_request: bool) -> Setup {
    let mut layout = Layout::new();
    let (one, other) =
        (layout.object("one", Scope::Machine), layout.object("other", Scope::Machine));
    let (stored, added) = (layout.field(one, "stored", 0), layout.field(other, "added", 0));
    let steps = [Step::compute(4000.0), Step::store(stored), Step::rmw(added)];
    let mut setup = Setup::uniform(settings(), layout, Program::new("both", steps), 2);
    setup.settings.early_request = early_request;
    setup.during(20_000.0, 2_020_000.0)
}

#[test]
fn an_atomic_that_asks_early_hides_its_way_behind_the_stores_before_it() {
    let [late, early] = [false, true].map(|early| store_and_add(early).run().unwrap());
    // Beside the work and the atomic itself, two transfers come one after the other, or both at once.
    let ways = |outcome: &Outcome| outcome.nanoseconds() - (4000.0 / 2.3 + 5.6);
    let ratio = ways(&late) / ways(&early);
    assert!((1.8..2.05).contains(&ratio), "{ratio}");
    // It waits for the store and the rest of its own transfer: no longer than before.
    assert!(early.stalled < late.stalled, "{} {}", early.stalled, late.stalled);
}

#[test]
fn a_line_that_came_early_and_was_taken_again_is_asked_for_again() {
    // Another CPU adds to the same field all the time, and this CPU's stores arrive late.
    let mut setup = store_and_add(true);
    let added = match setup.programs[0].steps[2] {
        Step::Rmw(field) => field,
        _ => unreachable!("it adds"),
    };
    setup.programs.push(Program::new("hammer", [Step::rmw(added)]));
    setup.cpus = vec![0, 1, 0];
    setup.settings.keep = 0;
    let outcome = setup.run().unwrap();
    assert_eq!(Ok(&outcome), oracle::run(&setup).as_ref());
    assert!(outcome.operations.iter().all(|&done| done > 100), "{:?}", outcome.operations);
}

#[test]
fn who_had_a_copy_keeps_the_line_for_its_share_of_a_stay() {
    let (layout, fields, locks) = playground();
    let cost = |upgrade_keep: f64| {
        let steps = [Step::Acquire(locks[0]), Step::load(fields[3]), Step::Release(locks[0])];
        let program = Program::new("hand over", steps);
        let mut setup = Setup::uniform(settings(), layout.clone(), program, 2);
        setup.settings.keep = 100_000;
        setup.settings.handover = 1.0;
        setup.settings.upgrade_keep = upgrade_keep;
        setup.run().unwrap().nanoseconds()
    };
    // Each release of the lock stores to a line that the next CPU in turn has a copy of.
    let (whole, half, none) = (cost(1.0), cost(0.5), cost(0.0));
    assert!(whole > half + 50.0 && half > none + 50.0, "{whole} {half} {none}");
}

#[test]
fn an_atomic_on_a_line_from_elsewhere_takes_what_the_machine_says_and_no_other_does() {
    let [plain, dearer] = [0, 7_000].map(|moved| {
        let mut setup = counter(2, 4000.0, 1).during(20_000.0, 2_020_000.0);
        setup.settings.moved = moved;
        setup.run().unwrap()
    });
    // Nearly every atomic finds that the other CPU has taken the line.
    let more = dearer.nanoseconds() - plain.nanoseconds();
    let taken = dearer.lines[0].transfers as f64 / dearer.total() as f64;
    assert!((more - 7.0 * taken).abs() < 1.0, "{more} for {taken}");
    let alone = |moved: u64| {
        let mut setup = counter(1, 4000.0, 1);
        setup.settings.moved = moved;
        setup.run().unwrap()
    };
    assert_eq!(alone(0), alone(7_000));
}

#[test]
fn stays_that_differ_have_the_same_mean() {
    let run = |keep_spread: f64| {
        let mut setup = counter(8, 0.0, 1).during(5_000.0, 2_005_000.0);
        setup.settings.keep = 200_000;
        setup.settings.keep_spread = keep_spread;
        setup.run().unwrap()
    };
    let (same, differ) = (run(0.0), run(0.8));
    assert_ne!(same, differ);
    let ratio = differ.total() as f64 / same.total() as f64;
    assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
}

/// Returns the cost for two CPUs that add to one field, with work in between that does not depend on it.
fn adders(cycles: f64, window: u64) -> f64 {
    let mut layout = Layout::new();
    let one = layout.object("one", Scope::Machine);
    let added = layout.field(one, "added", 0);
    let program = Program::new("add", [Step::work(cycles), Step::rmw(added)]);
    let mut setup = Setup::uniform(settings(), layout, program, 2);
    setup.settings.window = window;
    let setup = setup.during(20_000.0, 520_000.0);
    let outcome = setup.run().unwrap();
    assert_eq!(Ok(&outcome), oracle::run(&setup).as_ref());
    outcome.nanoseconds()
}

#[test]
fn work_goes_on_while_a_cpu_waits_as_far_as_the_window_reaches() {
    // A thousand nanoseconds of work, and a wait that is shorter.
    let work = 2300.0;
    let (none, some, all) = (adders(work, 0), adders(work, 20_000), adders(work, 2_000_000));
    assert!(none > 1000.0 + 40.0, "{none}");
    assert!((none - some - 20.0).abs() < 2.0, "{none} {some}");
    assert!((all - 1000.0).abs() < 5.0, "all of the wait is hidden: {all}");
}

#[test]
fn an_atomic_does_not_begin_on_a_line_that_is_about_to_go() {
    let mut layout = Layout::new();
    let one = layout.object("one", Scope::Machine);
    let added = layout.field(one, "added", 0);
    let cost = |closing: u64| {
        let program = Program::new("add", [Step::rmw(added)]);
        let mut setup = Setup::uniform(settings(), layout.clone(), program, 2);
        (setup.settings.keep, setup.settings.closing) = (60_000, closing);
        setup.during(20_000.0, 220_000.0).run().unwrap().nanoseconds()
    };
    // Half of a visit's sixty nanoseconds come too late, so a visit has half as many operations.
    let (whole, half) = (cost(0), cost(30_000));
    assert!((1.5..3.0).contains(&(half / whole)), "{whole} {half}");
}

#[test]
fn loads_behind_an_atomic_are_lost_to_others_until_it_is_final() {
    let mut layout = Layout::new();
    let one = layout.object("one", Scope::Machine);
    let fields = [0, 8, 256].map(|at| layout.field(one, &format!("at {at}"), at));
    let cost = |behind: u64, read: usize| {
        let steps = [Step::rmw(fields[0]), Step::load(fields[read]), Step::compute(60.0)];
        let mut setup = Setup::uniform(settings(), layout.clone(), Program::new("add", steps), 2);
        (setup.settings.keep, setup.settings.behind) = (60_000, behind);
        setup.during(20_000.0, 220_000.0).run().unwrap().nanoseconds()
    };
    // A load from another line is not affected. The line itself stays for sixty nanoseconds: until the atomic is
    // final, the load finds it lost.
    assert!((cost(60_000, 2) / cost(0, 2) - 1.0).abs() < 0.02);
    assert!((cost(0, 1) / cost(0, 2) - 1.0).abs() < 0.02);
    let (kept, lost) = (cost(0, 1), cost(60_000, 1));
    assert!(lost > 1.3 * kept, "{kept} {lost}");
}

#[test]
fn a_line_that_a_store_brings_serves_the_load_behind_it() {
    let mut layout = Layout::new();
    let one = layout.object("one", Scope::Machine);
    let words = [0, 8].map(|at| layout.field(one, &format!("at {at}"), at));
    let programs = [0, 1].map(|cpu: usize| {
        Program::new("exchange", [Step::load(words[1 - cpu]), Step::store(words[cpu])])
    });
    let mut setup = Setup::uniform(settings(), layout, programs[0].clone(), 2);
    (setup.programs, setup.cpus) = (programs.to_vec(), vec![0, 1]);
    (setup.settings.keep, setup.settings.migratory) = (100_000, true);
    // A visit of a hundred nanoseconds has room for many operations. A load that waited for the line by itself, behind
    // the store that brings it, would wait for the end of the visit: then each operation took one.
    let cost = setup.during(20_000.0, 220_000.0).run().unwrap().nanoseconds();
    assert!(cost < 40.0, "{cost}");
}

#[test]
fn work_behind_an_atomic_goes_on_before_it_is_done_and_another_atomic_does_not() {
    let mut layout = Layout::new();
    let own = layout.object("own", Scope::Cpu);
    let word = layout.field(own, "word", 0);
    let cost = |ahead: u64, cycles: f64| {
        let work = Step::Compute { cycles, spread: Spread::Fixed };
        let program = Program::new("add", [Step::rmw(word), work]);
        let mut setup = Setup::uniform(settings(), layout.clone(), program, 1);
        (setup.settings.atomic, setup.settings.ahead) = (8_000, ahead);
        setup.during(2_000.0, 22_000.0).run().unwrap().nanoseconds()
    };
    let long = 100.0;
    assert!((cost(0, long) - cost(6_000, long) - 6.0).abs() < 0.1);
    assert!((cost(0, 0.0) / cost(6_000, 0.0) - 1.0).abs() < 0.02);
}

/// Runs two CPUs that work and use words of one line, whose places they know. `hides` are the lead, the window and the flush.
fn knowing(steps: [Vec<Step>; 2], layout: &Layout, hides: [u64; 3]) -> Outcome {
    let programs =
        steps.map(|steps| Program { knows_places: true, ..Program::new("knows", steps) });
    let mut setup = Setup::uniform(settings(), layout.clone(), programs[0].clone(), 2);
    (setup.programs, setup.cpus) = (programs.to_vec(), vec![0, 1]);
    let settings = &mut setup.settings;
    (settings.request, settings.handover, settings.keep) = (0.6, 0.4, 10_000);
    [settings.lead, settings.window, settings.flush] = hides;
    let setup = setup.during(20_000.0, 520_000.0);
    let outcome = setup.run().unwrap();
    assert_eq!(Ok(&outcome), oracle::run(&setup).as_ref());
    outcome
}

/// Returns a line with two words for each of two CPUs.
fn words() -> (Layout, [FieldId; 4]) {
    let mut layout = Layout::new();
    let one = layout.object("one", Scope::Machine);
    let words = [0, 8, 16, 24].map(|offset| layout.field(one, &format!("w{offset}"), offset));
    (layout, words)
}

/// Returns the nanoseconds in which a CPU works for a thousand and reads a word beside one that another CPU writes
/// after every `cycles` cycles of work.
fn reading_beside(cycles: f64, hides: [u64; 3]) -> f64 {
    let (layout, words) = words();
    let reads = vec![Step::work(2300.0), Step::load(words[0])];
    let writes = vec![Step::work(cycles), Step::store(words[1])];
    500_000.0 / knowing([reads, writes], &layout, hides).operations[0] as f64
}

#[test]
fn a_line_that_is_asked_for_ahead_comes_while_its_cpu_works() {
    // The writer seldom comes between.
    let [late, ahead] = [0, 500_000].map(|lead| reading_beside(2300.0, [lead, 0, 0]));
    let transfer = settings().transfer[1][1] as f64 / 1000.0;
    assert!(late > 1000.0 + 0.7 * transfer, "{late}");
    assert!(ahead < 1000.0 + 0.3 * transfer, "{ahead}");
}

#[test]
fn a_line_that_is_lost_before_its_turn_is_asked_for_again() {
    let (layout, words) = words();
    let run = |lead| {
        let adds = |word| vec![Step::work(1000.0), Step::rmw(word)];
        knowing([adds(words[0]), adds(words[1])], &layout, [lead, 0, 0])
    };
    let (late, ahead) = (run(0), run(2_000_000));
    // It goes back and forth while both work, and is there at once or soon when its turn comes.
    let transfers = |outcome: &Outcome| outcome.lines[0].transfers as f64 / outcome.total() as f64;
    assert!(transfers(&ahead) > 2.0 * transfers(&late), "{ahead:?} {late:?}");
    assert!(ahead.stalled < late.stalled * 3 / 4, "{} {}", ahead.stalled, late.stalled);
}

#[test]
fn work_behind_a_load_beside_the_atomic_is_done_again() {
    let (layout, words) = words();
    let run = |window, loads: bool| {
        let steps = |me: usize| {
            let load = loads.then(|| Step::load(words[me + 2]));
            [Step::work(1000.0), Step::rmw(words[me])].into_iter().chain(load).collect()
        };
        knowing([steps(0), steps(1)], &layout, [0, window, 0]).nanoseconds()
    };
    let hidden = |loads| run(0, loads) - run(2_000_000, loads);
    assert!(hidden(false) > 20.0, "{}", hidden(false));
    assert!(hidden(true) < 0.3 * hidden(false), "{} of {}", hidden(true), hidden(false));
}

#[test]
fn a_load_whose_line_was_lost_before_its_turn_costs_a_flush() {
    // The writer comes between nearly every time.
    let [none, some] = [0, 9_000].map(|flush| reading_beside(700.0, [2_000_000, 0, flush]));
    let more = some - none;
    assert!((6.0..11.5).contains(&more), "{more}");
}
