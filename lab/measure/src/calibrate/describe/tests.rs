use super::*;
use crate::calibrate::probe::Found;
use crate::calibrate::topology::Place;
use crate::golden::same as golden;

/// Returns the model's times of fights for a transfer of this length. The request is half of it, and the stay three
/// tenths of it.
fn fought(transfer: f64) -> Vec<f64> {
    let mut settings = Machine::built_in("zen4-2vcpu").unwrap().best();
    settings.transfer = [[(1000.0 * transfer) as u64; 2]; 5];
    (settings.request, settings.handover, settings.keep) = (0.5, 0.5, (300.0 * transfer) as u64);
    (settings.keep_spread, settings.closing) = (0.2, 0);
    let known = Known { settings: &settings, modified: 1000.0 * transfer, multiplication: 3.0 };
    fights::all().map(|fight| known.simulated(fight, &settings)).collect()
}

/// Returns a visit to two CPUs whose transfers take `transfer` nanoseconds, give or take a twentieth.
fn found(transfer: f64, round: usize) -> Found {
    let off = 1.0 + 0.05 * ((round * 7 % 11) as f64 / 5.0 - 1.0);
    let transfer = transfer * off;
    Found {
        before: transfer,
        after: transfer * 1.001,
        cycle: 0.27,
        multiplication: 0.81,
        time_stamp: 2.6,
        load: 1.1,
        atomic: 2.0,
        value: 1.0,
        modified: transfer * 1.1,
        returned: transfer * 1.1,
        upgrade: transfer * 1.2,
        moved: 3.5,
        fights: fought(1.1 * transfer),
        early: 0.9,
        same: 8.0,
        neighbour: 2.01,
        apart: 2.0,
        ticket: 3.0 * transfer,
        queue: 2.0 * transfer,
    }
}

fn places(packages: &[usize]) -> Places {
    let place = |(core, package): (usize, &usize)| Place {
        package: package.to_string(),
        complex: package.to_string(),
        core: core.to_string(),
    };
    Places::from(packages.iter().enumerate().map(place).collect(), packages.len() == 2)
}

fn pair(cpus: [usize; 2], distance: Distance, transfers: &[f64]) -> Pair {
    let visits = transfers.iter().enumerate().map(|(round, &ns)| found(ns, round)).collect();
    Pair { cpus, distance, visits }
}

fn describe(places: &Places, pairs: &[Pair], caches: Caches) -> Vec<Described> {
    let subject = Subject { model: "A \"quoted\" CPU", date: "2026-11-21", places, pairs, caches };
    pairs[0].modes().iter().map(|mode| subject.in_mode(mode).unwrap()).collect()
}

const QUICK: Caches = Caches { second: None, memory: None };

#[test]
fn rounds_that_were_disturbed_in_one_figure_or_another_are_left_out_of_it() {
    let mut disturbed = pair([0, 1], Distance::Near, &[28.0; 5]);
    disturbed.visits[0].atomic = f64::NAN;
    disturbed.visits[1].modified = f64::NAN;
    disturbed.visits[2].fights.fill(f64::NAN);
    let quiet = [pair([0, 1], Distance::Near, &[28.0; 5])];
    let places = places(&[0, 0]);
    let [found, expected] = [[disturbed], quiet].map(|pairs| {
        let latency = describe(&places, &pairs, QUICK).remove(0).machine.latency;
        latency.near_modified.value
    });
    assert!((found / expected - 1.0).abs() < 0.1, "{found} and {expected}");
}

#[test]
fn a_machine_in_two_modes_makes_two_files_that_are_read_back() {
    let pairs = [pair([0, 1], Distance::Near, &[28.0, 28.0, 112.0, 28.0, 112.0, 28.0, 112.0])];
    let described = describe(&places(&[0, 0]), &pairs, QUICK);
    let transfers: Vec<f64> =
        described.iter().map(|mode| mode.machine.latency.near_modified.value).collect();
    assert!((transfers[0] / 30.8 - 1.0).abs() < 0.2, "{transfers:?}");
    assert!((transfers[1] / 123.2 - 1.0).abs() < 0.2, "{transfers:?}");
    for Described { machine, .. } in &described {
        let again = Machine::parse("again", &machine.to_toml()).unwrap();
        assert_eq!(again.to_toml(), machine.to_toml());
        // The figures fitted to the fights come out near the input.
        let Range { low, best, high, .. } = again.nuisance.request;
        assert!(low <= best && best <= high);
        assert!((best - 0.5).abs() < 0.2, "{best}");
        assert_eq!(again.nuisance.migratory.best, 1.0);
        assert_eq!(again.nuisance.atomic_ahead.best, 0.5);
        assert_eq!(again.nuisance.early_request.best, 1.0);
        assert!(again.nuisance.pair.best < 0.01);
    }
    golden("calibrated.toml", &described[0].machine.to_toml());
}

#[test]
fn a_pair_has_rounds_enough_when_one_of_its_modes_has() {
    let settled = |transfers: &[f64]| pair([0, 1], Distance::Near, transfers).settled();
    assert!(!settled(&[28.0, 112.0]) && !settled(&[28.0, 112.0, 28.0, 112.0]));
    assert!(settled(&[28.0, 112.0, 28.0, 112.0, 28.0]));
}

#[test]
fn what_is_not_measured_is_said_line_by_line() {
    let mut told = String::new();
    let near = || pair([0, 1], Distance::Near, &[28.0; 5]);
    let remote = pair([0, 2], Distance::Remote, &[150.0; 5]);
    let measured = Some(Spread { value: 100.0, low: 98.0, high: 103.0 });
    for (title, places, pairs, caches) in [
        ("two CPUs of a virtual machine, quickly", places(&[0, 0]), vec![near()], QUICK),
        (
            "two sockets",
            places(&[0, 0, 1, 1]),
            vec![near(), remote],
            Caches { second: measured, memory: measured },
        ),
    ] {
        told.push_str(title);
        told.push('\n');
        for refusal in &describe(&places, &pairs, caches)[0].refusals {
            assert!(!refusal.contains('\n'));
            told.push_str(&format!("    {refusal}\n"));
        }
    }
    golden("calibrated-refusals.txt", &told);
}

#[test]
fn a_distance_that_was_measured_has_its_own_figures() {
    let pairs =
        [pair([0, 1], Distance::Near, &[28.0; 5]), pair([0, 2], Distance::Remote, &[150.0; 5])];
    let described = describe(&places(&[0, 0, 1, 1]), &pairs, QUICK);
    let machine = &described[0].machine;
    let ratio = machine.latency.remote_homed_at_owner.value / machine.latency.near_modified.value;
    assert!((ratio - 150.0 / 28.0).abs() < 0.01, "{ratio}");
    assert!(machine.latency.memory_remote.source.starts_with("inferred: "));
    assert!(Machine::parse("again", &machine.to_toml()).is_ok());
}

#[test]
fn a_figure_that_was_always_disturbed_is_refused_by_name() {
    type Figure = fn(&mut Found) -> &mut f64;
    let disturbed: [(&str, Figure); 11] = [
        ("the clock", |found| &mut found.cycle),
        ("the first cache", |found| &mut found.load),
        ("atomics", |found| &mut found.atomic),
        ("a transfer", |found| &mut found.modified),
        ("atomics on lines of another CPU", |found| &mut found.moved),
        ("atomics with work behind them", |found| &mut found.value),
        ("neighbouring lines", |found| &mut found.same),
        ("neighbouring lines", |found| &mut found.neighbour),
        ("neighbouring lines", |found| &mut found.apart),
        ("migration", |found| &mut found.returned),
        ("atomics behind stores", |found| &mut found.early),
    ];
    let places = places(&[0, 0]);
    for (name, figure) in disturbed {
        let mut pair = pair([0, 1], Distance::Near, &[28.0; 5]);
        pair.visits.iter_mut().for_each(|visit| *figure(visit) = f64::NAN);
        let (pairs, model, date) = ([pair], "CPU", "2026-11-21");
        let subject = Subject { model, date, places: &places, pairs: &pairs, caches: QUICK };
        let error = subject.in_mode(&pairs[0].modes()[0]).unwrap_err();
        assert!(error.starts_with(&format!("{name} could not be measured: ")), "{error}");
    }
}

#[test]
fn fights_of_which_most_were_disturbed_are_refused_by_name() {
    let mut pair = pair([0, 1], Distance::Near, &[28.0; 5]);
    pair.visits.iter_mut().for_each(|visit| visit.fights[20..].fill(f64::NAN));
    let (pairs, model, date) = ([pair], "CPU", "2026-11-21");
    let places = places(&[0, 0]);
    let subject = Subject { model, date, places: &places, pairs: &pairs, caches: QUICK };
    let error = subject.in_mode(&pairs[0].modes()[0]).unwrap_err();
    assert!(error.starts_with("fights for a line could not be measured: "), "{error}");
}
