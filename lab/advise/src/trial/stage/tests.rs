use super::*;
use crate::profile::{Kind, Phase, Role};
use crate::uses::{Spot, Touch};
use ledgerline_bench::measure::machine::allowed_cpus;

fn spot(path: &str, offset: u64) -> Spot {
    Spot { path: path.to_owned(), offset, size: 8, divided: false, awaited: false }
}

/// Returns a role that only adds to one word.
fn adder(name: &str, spot: usize, share: f64, work_ns: f64) -> Role<Touch> {
    let accesses = vec![Touch { spot, kind: Kind::Atomic, times: 1.0 }];
    let phases = vec![Phase { name: "add".to_owned(), times: 1.0, accesses }];
    Role { name: name.to_owned(), share, work_ns, basis: Default::default(), phases }
}

/// Returns two counters, each with a CPU of its own that adds to it.
fn counters(instances: Instances, work_ns: f64) -> Uses {
    Uses {
        name: "counters".to_owned(),
        instances,
        spots: vec![spot("one", 0), spot("other", 8)],
        roles: vec![adder("one", 0, 0.5, work_ns), adder("other", 1, 0.5, work_ns)],
        unknown: Vec::new(),
        settled: Vec::new(),
    }
}

fn order(offsets: [u64; 2], size: u64) -> Order {
    Order { size, place: Place { offsets: offsets.to_vec(), base: 128, row: None } }
}

/// Returns the gain in per cent of separating the counters. Takes the best of some tries, because other programs may
/// have the CPUs.
fn gain(uses: &Uses, cpus: &[usize], good: impl Fn(&Interval) -> bool) -> Interval {
    let (today, apart) = (order([0, 8], 16), order([0, 128], 256));
    let plan = Plan { uses, today: &today, proposed: Some(&apart), cpus, seconds: 0.1 };
    let mut last = None;
    for _ in 0..20 {
        let measured = measure(&plan, &|_| ()).unwrap();
        let (_, gain) = measured.proposed.unwrap();
        last = Some(gain.throughput);
        if good(&gain.throughput) {
            break;
        }
    }
    last.unwrap()
}

#[test]
fn counters_of_two_cpus_are_faster_apart_and_by_more_the_less_they_work() {
    let cpus = allowed_cpus().unwrap();
    let [one, other, ..] = cpus[..] else {
        eprintln!("one CPU: nothing is shared");
        return;
    };
    let uses = counters(Instances::Shared, 20.0);
    let tight = gain(&uses, &[one, other], |gain| gain.median > 30.0);
    assert!(tight.median > 30.0, "{tight:?}");
    let uses = counters(Instances::Shared, 3000.0);
    let loose = gain(&uses, &[one, other], |gain| gain.median < 10.0);
    assert!(loose.median < 10.0, "{loose:?}");
}

#[test]
fn objects_of_a_row_are_faster_where_each_begins_a_pair_of_lines() {
    let cpus = allowed_cpus().unwrap();
    let [one, other, ..] = cpus[..] else {
        eprintln!("one CPU: nothing is shared");
        return;
    };
    let mut uses = counters(Instances::Row(Row { stride: 16, begins: Some(0) }), 20.0);
    uses.roles = vec![adder("all", 0, 1.0, 20.0)];
    let (mut today, mut apart) = (order([0, 8], 16), order([0, 8], 128));
    today.place.row = uses.instances.row();
    apart.place.row = Some(Row { stride: 128, begins: None });
    let cpus = [one, other];
    let plan =
        Plan { uses: &uses, today: &today, proposed: Some(&apart), cpus: &cpus, seconds: 0.1 };
    let tried = (0..20).map(|_| measure(&plan, &|_| ()).unwrap().proposed.unwrap().1.throughput);
    let gains: Vec<f64> = tried.map(|gain| gain.median).take_while(|&gain| gain <= 30.0).collect();
    assert!(gains.len() < 20, "{gains:?}");
}

#[test]
fn counters_that_nobody_shares_are_as_fast_together() {
    let cpus = allowed_cpus().unwrap();
    let near = |gain: &Interval| gain.median.abs() < 10.0;
    // Each CPU has counters of its own, or is alone.
    let own = gain(&counters(Instances::PerCpu, 100.0), &cpus[..cpus.len().min(2)], near);
    assert!(near(&own), "{own:?}");
    let dealt = gain(&counters(Instances::Dealt(50), 100.0), &cpus[..cpus.len().min(2)], near);
    assert!(near(&dealt), "{dealt:?}");
    let alone = gain(&counters(Instances::Shared, 100.0), &cpus[..1], near);
    assert!(near(&alone), "{alone:?}");
}

#[test]
fn an_operation_takes_what_the_profile_says_where_nobody_shares_anything() {
    let cpus = allowed_cpus().unwrap();
    for work_ns in [50.0, 500.0] {
        let uses = counters(Instances::PerCpu, work_ns);
        let today = order([0, 8], 16);
        let plan =
            Plan { uses: &uses, today: &today, proposed: None, cpus: &cpus[..1], seconds: 0.1 };
        // An uncontended atomic takes some nanoseconds on any machine.
        let good = |ns: f64| (0.95 * work_ns..1.1 * work_ns + 20.0).contains(&ns);
        let tried = (0..20).map(|_| measure(&plan, &|_| ()).unwrap().today.median);
        assert!(tried.into_iter().any(good), "{work_ns}");
    }
}

#[test]
fn after_much_other_work_lines_come_from_the_second_cache() {
    let cpu = allowed_cpus().unwrap()[0];
    // Eight pointers that are followed, on one line or on eight.
    let mut uses = counters(Instances::Shared, 600.0);
    uses.spots = (0..8).map(|at| Spot { awaited: true, ..spot("pointer", 8 * at) }).collect();
    uses.roles.truncate(1);
    uses.roles[0].phases[0].accesses =
        (0..8).map(|spot| Touch { spot, kind: Kind::Load, times: 1.0 }).collect();
    let order = |apart: u64| Order {
        size: 512,
        place: Place { offsets: (0..8).map(|at| apart * at).collect(), base: 128, row: None },
    };
    let (today, together) = (order(64), order(8));
    let plan =
        Plan { uses: &uses, today: &today, proposed: Some(&together), cpus: &[cpu], seconds: 0.1 };
    // A second cache takes two nanoseconds longer than the first on any machine.
    let gains = |_| measure(&plan, &|_| ()).unwrap().proposed.unwrap().1.ns;
    assert!((0..20).map(gains).any(|gain| gain.median > 7.0 * 1.5 && gain.low > 0.0));
}

#[test]
fn what_cannot_be_replayed_as_it_is_is_said() {
    let cpus = allowed_cpus().unwrap();
    let today = order([0, 8], 16);
    let measured = |uses: &Uses, cpus: &[usize]| {
        let plan = Plan { uses, today: &today, proposed: None, cpus, seconds: 0.05 };
        measure(&plan, &|_| ()).unwrap()
    };
    let alone = measured(&counters(Instances::Shared, 100.0), &cpus[..1]);
    assert_eq!((alone.absent, alone.transfer_ns), (vec!["other".to_owned()], None));
    let many = measured(&counters(Instances::Dealt(100_000_000), 100.0), &cpus[..1]);
    assert_eq!(many.objects, Some(4 << 20));
    let mut short = counters(Instances::PerCpu, 0.0);
    for role in &mut short.roles {
        role.phases[0].accesses = vec![
            Touch { spot: 0, kind: Kind::Load, times: 0.1 },
            Touch { spot: 1, kind: Kind::Load, times: 0.1 },
        ];
    }
    let short = measured(&short, &cpus[..1]).short;
    assert_eq!(short.len(), 1);
    assert!(short[0].replayed_ns > short[0].wanted_ns, "{short:?}");
}

#[test]
fn wrong_plans_are_refused() {
    let uses = counters(Instances::Shared, 1.0);
    let refused = |size, cpus: &[usize], seconds| {
        let today = order([0, 8], size);
        let plan = Plan { uses: &uses, today: &today, proposed: None, cpus, seconds };
        measure(&plan, &|_| ()).unwrap_err().to_string()
    };
    assert_eq!(refused(16, &[], 1.0), "a replay needs a CPU");
    assert!(refused(16, &[0], 0.0).contains("more than no time"));
    assert!(refused(16, &[0], f64::NAN).contains("more than no time"));
    assert!(refused(16, &[8191], 1.0).starts_with("CPU 8191: "));
    let first = allowed_cpus().unwrap()[0];
    assert!(refused(1 << 40, &[first], 1.0).contains("too large"));
}

#[test]
fn objects_that_may_begin_anywhere_are_replayed_at_several_places() {
    let cpus = allowed_cpus().unwrap();
    let uses = counters(Instances::Shared, 100.0);
    let mut today = order([0, 8], 16);
    today.place.base = 16;
    let plan = Plan { uses: &uses, today: &today, proposed: None, cpus: &cpus[..1], seconds: 0.1 };
    let scenes = scenes(&plan).unwrap();
    assert_eq!(scenes.len(), PLACES);
    let measured = measure(&plan, &|_| ()).unwrap();
    // Without disturbance all rounds count.
    assert!((5..=PLACES * 5).contains(&measured.rounds), "{}", measured.rounds);
}
