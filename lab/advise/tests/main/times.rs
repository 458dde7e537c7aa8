//! Profiles with times of whole operations: the work is found, and with it the cost of another layout.

use ledgerline_advise::cost::{self, Place, Question, Timed, Work};
use ledgerline_advise::profile::{Instances, Kind, Phase, Role, WorkBasis};
use ledgerline_advise::uses::{Spot, Touch, Uses};
use ledgerline_coherence::experiments::Interval;
use ledgerline_coherence::machine::Machine;

/// Returns two roles, each with a counter of its own. The counters share a line.
fn uses(kind: Kind, works: [f64; 2], bases: [WorkBasis; 2]) -> Uses {
    let spot = |path: &str, offset| Spot {
        path: path.to_owned(),
        offset,
        size: 8,
        divided: false,
        awaited: true,
    };
    let role = |spot: usize| {
        let accesses = vec![Touch { spot, kind, times: 1.0 }];
        let phases = vec![Phase { name: "always".to_owned(), times: 1.0, accesses }];
        let name = ["one", "other"][spot].to_owned();
        Role { name, share: 0.5, work_ns: works[spot], basis: bases[spot], phases }
    };
    Uses {
        name: "counters".to_owned(),
        instances: Instances::Shared,
        spots: vec![spot("a", 0), spot("b", 8)],
        roles: vec![role(0), role(1)],
        unknown: Vec::new(),
        settled: Vec::new(),
    }
}

fn two_cpus() -> Machine {
    Machine::built_in("zen4-2vcpu").unwrap()
}

const STATED: [WorkBasis; 2] = [WorkBasis::Stated; 2];

fn takes(ns: f64) -> [WorkBasis; 2] {
    [WorkBasis::Takes { ns, recording_ns: 0.0 }; 2]
}

fn apart(uses: &Uses) -> Place {
    Place { offsets: vec![0, 128], ..Place::of(uses) }
}

/// Returns the works that the times of today's layout give, on the machine of the question.
fn settled(question: &Question<'_>, timed: &Uses) -> (Uses, Vec<Work>) {
    cost::settle(question, None, timed.clone(), &Place::of(timed)).unwrap()
}

#[test]
fn the_work_that_made_a_time_is_found_from_the_time() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    for work in [15.0, 60.0, 200.0] {
        let known = uses(Kind::Atomic, [work; 2], STATED);
        let today = cost::of(&question, &known, &Place::of(&known)).unwrap().nanoseconds.median;
        let after = cost::of(&question, &known, &apart(&known)).unwrap().nanoseconds.median;

        let timed = uses(Kind::Atomic, [0.0; 2], takes(today));
        let (found, works) = settled(&question, &timed);
        assert_eq!(works.len(), 2);
        for found in &works {
            assert!(found.work_ns.holds(work), "{work}: {found:?}");
            assert!(found.least_ns.is_none(), "{work}: {found:?}");
        }
        let again = cost::of(&question, &found, &Place::of(&found)).unwrap().nanoseconds;
        assert!((again.median / today - 1.0).abs() < 0.05, "{work}: {again:?} for {today}");
        let moved = cost::of(&question, &found, &apart(&found)).unwrap().nanoseconds;
        assert!(moved.holds(after), "{work}: {moved:?} for {after}");
    }
}

#[test]
fn roles_that_differ_have_works_that_differ() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 4 };
    let bases = [
        WorkBasis::Takes { ns: 90.0, recording_ns: 0.0 },
        WorkBasis::Takes { ns: 300.0, recording_ns: 0.0 },
    ];
    let timed = uses(Kind::Atomic, [0.0; 2], bases);
    let (_, works) = settled(&question, &timed);
    assert!(works[0].work_ns.median < 88.0 && works[1].work_ns.low > 200.0, "{works:?}");
    assert!(works[1].work_ns.median < 295.0, "{works:?}");
    // If the program hides its waiting, all of a time is work.
    assert!(works[0].work_ns.high <= 90.0 && works[1].work_ns.high <= 300.0, "{works:?}");
}

#[test]
fn what_recording_took_is_no_work() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    let work = |basis: WorkBasis| {
        let timed = uses(Kind::Load, [0.0; 2], [basis; 2]);
        settled(&question, &timed).1[0].clone()
    };
    let plain = work(WorkBasis::Takes { ns: 100.0, recording_ns: 0.0 });
    let recorded = work(WorkBasis::Takes { ns: 160.0, recording_ns: 60.0 });
    assert!((plain.work_ns.median - recorded.work_ns.median).abs() < 6.0);
    assert_eq!(recorded.takes_ns, Some(100.0));
    // The cost of recording has an error of a tenth.
    let width = recorded.work_ns.high - recorded.work_ns.low;
    assert!(width > plain.work_ns.high - plain.work_ns.low && width < 20.0, "{recorded:?}");
}

/// An operation may be shorter than the error of the cost of recording. Then all of its time may be that cost.
#[test]
fn an_operation_that_was_nearly_all_recording_has_no_work() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 4 };
    let bases = [WorkBasis::Takes { ns: 19.5, recording_ns: 19.5 }; 2];
    let timed = uses(Kind::Load, [0.0; 2], bases);
    let (found, works) = settled(&question, &timed);
    assert!(
        works.iter().all(|work| work.takes_ns == Some(0.0) && work.work_ns.high < 3.0),
        "{works:?}"
    );
    assert!(cost::of(&question, &found, &Place::of(&found)).unwrap().nanoseconds.median > 0.0);
}

#[test]
fn a_time_that_no_work_explains_is_said_and_met_by_waiting_less() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    let timed = uses(Kind::Atomic, [0.0; 2], takes(2.0));
    let (found, works) = settled(&question, &timed);
    let least = works[0].least_ns.unwrap();
    assert!(least.low > 2.0 && works[0].work_ns.high <= 2.0, "{works:?}");
    // The time of each alone remains, since waiting cannot be less than zero.
    let today = cost::of(&question, &found, &Place::of(&found)).unwrap().nanoseconds;
    let apart = cost::of(&question, &found, &apart(&found)).unwrap().nanoseconds;
    assert!(today.median < least.low && (today.median / apart.median - 1.0).abs() < 0.01);
}

/// A time does not tell whether a program waits for every line or works meanwhile.
#[test]
fn what_a_time_does_not_tell_widens_what_is_predicted() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 16 };
    let gain = |basis: WorkBasis| {
        let timed = uses(Kind::Atomic, [0.0; 2], [basis; 2]);
        let (found, _) = settled(&question, &timed);
        let today = cost::of(&question, &found, &Place::of(&found)).unwrap();
        cost::difference(&today, &cost::of(&question, &found, &apart(&found)).unwrap())
    };
    let together = gain(WorkBasis::Takes { ns: 90.0, recording_ns: 0.0 });
    let alone = gain(WorkBasis::Alone { ns: 60.0, takes_ns: Some(90.0) });
    let width = |gain: &cost::Difference| gain.change.high - gain.change.low;
    assert!(alone.change.holds(-30.0) && together.change.holds(-30.0), "{alone:?} {together:?}");
    assert!(width(&together) > 1.5 * width(&alone), "{alone:?} {together:?}");
    // A program that hides all of its waiting is no argument against another layout.
    let hidden = gain(WorkBasis::Takes { ns: 200.0, recording_ns: 0.0 });
    assert!(hidden.change.high >= 0.0 && hidden.is_sure(), "{hidden:?}");
}

#[test]
fn a_range_of_work_widens_what_is_predicted() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    let cost = |basis: WorkBasis| {
        let stated = uses(Kind::Load, [300.0; 2], [basis; 2]);
        let (found, _) = settled(&question, &stated);
        cost::of(&question, &found, &Place::of(&found)).unwrap().nanoseconds
    };
    let (sure, unsure) =
        (cost(WorkBasis::Stated), cost(WorkBasis::Within { low: 200.0, high: 400.0 }));
    assert!(unsure.low < sure.low - 50.0 && unsure.high > sure.high + 50.0, "{sure:?} {unsure:?}");
    assert!((unsure.median / sure.median - 1.0).abs() < 0.2, "{sure:?} {unsure:?}");
}

#[test]
fn times_are_of_the_machine_on_which_they_were_taken() {
    let (here, there) = (two_cpus(), Machine::built_in("four-socket-144").unwrap());
    let question = Question { machine: &there, cpus: 144, points: 3 };
    let timed = uses(Kind::Atomic, [0.0; 2], takes(100.0));
    let place = Place::of(&timed);
    let taken = Timed { machine: here.clone(), cpus: 2 };
    let (_, works) = cost::settle(&question, Some(&taken), timed.clone(), &place).unwrap();
    let same = Question { machine: &here, cpus: 2, points: 3 };
    assert_eq!(works, cost::settle(&same, None, timed, &place).unwrap().1);
}

/// Returns the times alone, beside others, and apart, on a machine whose window hides `hides` of a wait.
fn timed_twice(machine: &Machine, work: f64, hides: f64) -> (f64, f64, f64) {
    let mut machine = machine.clone();
    let window = &mut machine.nuisance.window_ns;
    (window.low, window.best, window.high) = (hides, hides, hides);
    let known = uses(Kind::Atomic, [work; 2], STATED);
    let cost = |cpus, place: &Place| {
        let question = Question { machine: &machine, cpus, points: 8 };
        cost::of(&question, &known, place).unwrap().nanoseconds.median
    };
    (cost(1, &Place::of(&known)), cost(2, &Place::of(&known)), cost(2, &apart(&known)))
}

/// The time beside others alone cannot distinguish a program that works while it waits from one that has less to do.
#[test]
fn a_time_alone_tells_work_from_waiting_whatever_the_processor_hides() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    for (work, hides) in [(40.0, 0.0), (40.0, 30.0), (120.0, 15.0)] {
        let (alone, beside, after) = timed_twice(&machine, work, hides);
        let basis = WorkBasis::Alone { ns: alone, takes_ns: Some(beside) };
        let timed = uses(Kind::Atomic, [0.0; 2], [basis; 2]);
        let (found, works) = settled(&question, &timed);
        assert!((works[0].work_ns.median / work - 1.0).abs() < 0.15, "{works:?}");
        let cost = |place: &Place| cost::of(&question, &found, place).unwrap().nanoseconds;
        let (today, moved) = (cost(&Place::of(&found)), cost(&apart(&found)));
        assert!((today.median / beside - 1.0).abs() < 0.05, "{hides}: {today:?} for {beside}");
        assert!((moved.median / after - 1.0).abs() < 0.08, "{hides}: {moved:?} for {after}");
        assert!(moved.holds(after), "{hides}: {moved:?} for {after}");
    }
}

/// A machine file that is wrong by half predicts too much waiting. The times give the correction.
#[test]
fn what_the_machine_file_is_wrong_by_is_corrected_by_both_times() {
    let right = two_cpus();
    let (alone, beside, after) = timed_twice(&right, 60.0, 0.0);
    let mut wrong = right.clone();
    let scale = &mut wrong.nuisance.latency_scale;
    (scale.low, scale.best, scale.high) = (0.5, 0.5, 0.5);
    let question = Question { machine: &wrong, cpus: 2, points: 8 };
    let basis = WorkBasis::Alone { ns: alone, takes_ns: Some(beside) };
    let timed = uses(Kind::Atomic, [0.0; 2], [basis; 2]);
    let (found, works) = settled(&question, &timed);
    assert!(works[0].waits.is_some_and(|waits| waits.median > 1.2), "{works:?}");
    let cost = |place: &Place| cost::of(&question, &found, place).unwrap();
    let (today, moved) = (cost(&Place::of(&found)), cost(&apart(&found)));
    assert!((today.nanoseconds.median / beside - 1.0).abs() < 0.05, "{today:?} for {beside}");
    assert!((moved.nanoseconds.median / after - 1.0).abs() < 0.08, "{moved:?} for {after}");
    // The waiting of lines is corrected, too.
    let lines = today.by_lines(&Place::of(&found), 64);
    let waiting: f64 = lines.iter().map(|line| line.waiting.median).sum();
    assert!((waiting / (beside - alone) - 1.0).abs() < 0.25, "{waiting} of {beside} less {alone}");
}

/// On another machine, the waiting is that machine's; the work is the program's own.
#[test]
fn a_correction_stays_on_the_machine_that_it_is_of() {
    let (here, there) = (two_cpus(), Machine::built_in("four-socket-144").unwrap());
    let basis = WorkBasis::Alone { ns: 62.0, takes_ns: Some(300.0) };
    let timed = uses(Kind::Atomic, [0.0; 2], [basis; 2]);
    let taken = Timed { machine: here.clone(), cpus: 2 };
    let settle = |machine, cpus| {
        let question = Question { machine, cpus, points: 3 };
        cost::settle(&question, Some(&taken), timed.clone(), &Place::of(&timed)).unwrap().0.settled
    };
    let (same, elsewhere) = (settle(&here, 2), settle(&there, 144));
    assert!(same.iter().all(|point| point.waits.iter().all(|&waits| waits > 1.5)), "{same:?}");
    assert!(elsewhere.iter().all(|point| point.waits.is_empty()), "{elsewhere:?}");
    assert_eq!(same[1].works, elsewhere[1].works);
}

/// A CPU may wait for a line and lose little by it, because its work goes on.
#[test]
fn what_is_said_of_lines_adds_up_to_what_is_lost_beyond_the_time_alone() {
    let machine = two_cpus();
    let question = Question { machine: &machine, cpus: 2, points: 8 };
    for hides in [0.0, 15.0] {
        let (alone, beside, _) = timed_twice(&machine, 120.0, hides);
        let basis = WorkBasis::Alone { ns: alone, takes_ns: Some(beside) };
        let timed = uses(Kind::Atomic, [0.0; 2], [basis; 2]);
        let (found, _) = settled(&question, &timed);
        let today = cost::of(&question, &found, &Place::of(&found)).unwrap();
        let lines = today.by_lines(&Place::of(&found), 64);
        let waiting: f64 = lines.iter().map(|line| line.waiting.median).sum();
        let lost = beside - alone;
        assert!((waiting / lost - 1.0).abs() < 0.25, "{hides}: {waiting} said, {lost} lost");
    }
}

#[test]
fn a_change_is_sure_where_it_is_nowhere_the_other_way() {
    let change = |percents: [f64; 3]| {
        let of = |factor: f64| Interval::of(percents.iter().map(|of| of * factor).collect());
        cost::Difference { change: of(0.5), percent: of(1.0), throughput: of(-1.0) }
    };
    assert!(change([-20.0, -10.0, 0.0]).is_sure() && change([0.01, 10.0, 20.0]).is_sure());
    assert!(!change([-20.0, -10.0, 1.0]).is_sure() && !change([-1.0, 10.0, 20.0]).is_sure());
    // A median that is too small cannot be distinguished from noise.
    assert!(!change([-20.0, -0.01, 0.0]).is_sure() && !change([0.0; 3]).is_sure());
}
