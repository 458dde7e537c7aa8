//! Objects of different CPUs in a row share lines. That costs the same as fields of one object on one line.

use ledgerline_advise::cost::{self, Place, Question};
use ledgerline_advise::profile::{Instances, Kind, Phase, Profile, Role, Row};
use ledgerline_advise::uses::{Spot, Touch, Uses};
use ledgerline_coherence::machine::Machine;

fn row(stride: u64, begins: Option<u64>) -> Instances {
    Instances::Row(Row { stride, begins })
}

fn touch(spot: usize) -> Vec<Touch> {
    vec![Touch { spot, kind: Kind::Atomic, times: 1.0 }]
}

/// Returns roles that each add to a counter.
fn uses(instances: Instances, offsets: &[u64]) -> Uses {
    let spot = |&offset: &u64| Spot {
        path: format!("at{offset}"),
        offset,
        size: 8,
        divided: false,
        awaited: true,
    };
    let share = 1.0 / offsets.len() as f64;
    let role = |spot: usize| {
        let phases = vec![Phase { name: "add".to_owned(), times: 1.0, accesses: touch(spot) }];
        Role { name: spot.to_string(), share, work_ns: 60.0, basis: Default::default(), phases }
    };
    Uses {
        name: "counter".to_owned(),
        instances,
        spots: offsets.iter().map(spot).collect(),
        roles: (0..offsets.len()).map(role).collect(),
        unknown: Vec::new(),
        settled: Vec::new(),
    }
}

#[test]
fn a_row_costs_what_the_same_bytes_of_one_object_cost() {
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 4, points: 4 };
    let cost = |uses: &Uses| cost::of(&question, uses, &Place::of(uses)).unwrap();
    for stride in [8, 40, 64, 72] {
        let row = uses(row(stride, Some(0)), &[0]);
        let offsets: Vec<u64> = (0..4).map(|cpu| cpu * stride).collect();
        let fields = uses(Instances::Shared, &offsets);
        let (row, fields) = (cost(&row).nanoseconds.median, cost(&fields).nanoseconds.median);
        assert!((row / fields - 1.0).abs() < 0.02, "{stride}: {row} {fields}");
    }
    // Objects that are apart cost the same as objects on lines of their own.
    let apart = cost(&uses(row(128, Some(0)), &[0]));
    let own = cost(&uses(Instances::PerCpu, &[0]));
    // Only the begin of the simulation differs.
    let (apart, own) = (apart.nanoseconds.median, own.nanoseconds.median);
    assert!((apart / own - 1.0).abs() < 1e-3, "{apart} {own}");
}

#[test]
fn a_row_of_another_size_keeps_what_lies_between_and_where_it_begins_if_it_may() {
    let row = |stride, begins| Row { stride, begins };
    assert_eq!(row(40, Some(16)).of_size(40, 48, 8), row(48, Some(16)));
    // The space that malloc adds is kept.
    assert_eq!(row(48, None).of_size(40, 64, 16), row(80, None));
    assert_eq!(row(40, Some(16)).of_size(40, 64, 64), row(64, None));
    assert_eq!(row(40, Some(64)).of_size(40, 64, 64), row(64, Some(64)));
    assert_eq!([40, 64, 72, 128, 512].map(|stride| row(stride, None).base()), [8, 64, 8, 128, 128]);
}

#[test]
fn a_row_in_a_profile_is_read_and_what_is_wrong_of_it_is_said() {
    let parse = |lines: &str| {
        let text = format!("[types.t]\nwork_ns = 5\nfields = {{ a = {{ atomic = 1 }} }}\n{lines}");
        Profile::parse(&text, "t.toml", &Default::default()).map(|of| of.types[0].instances)
    };
    let own = "instances = \"per cpu\"\n";
    assert_eq!(parse(&format!("{own}stride = 40")).unwrap(), row(40, None));
    assert_eq!(parse(&format!("{own}stride = 64\nbegins = 16")).unwrap(), row(64, Some(16)));
    for (lines, said) in [
        ("stride = 40".to_owned(), "`stride` stands without \"per cpu\""),
        ("instances = 4\nstride = 40".to_owned(), "`stride` stands without \"per cpu\""),
        (format!("{own}begins = 8"), "`begins` stands without `stride`"),
        (format!("{own}stride = 0"), "`stride` is 0"),
        (format!("{own}stride = 40\nbegins = 128"), "`begins` is 128"),
    ] {
        let error = parse(&lines).expect_err(&lines).to_string();
        assert!(error.contains(said) && error.contains("line "), "{lines}: {error}");
    }
}
