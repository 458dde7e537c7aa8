//! Predictions of our own design, and on other numbers of CPUs.

use ledgerline_coherence::experiments::study::{MOST_CPUS, NAMES, Study};
use ledgerline_coherence::experiments::{FITTED_ON, ours};

#[test]
fn every_row_has_a_figure_of_ours_but_those_in_which_nothing_is_counted() {
    for name in NAMES {
        let study = Study::fit(name, 2, FITTED_ON).unwrap();
        let table = study.table().unwrap();
        let ours = study.ours().unwrap();
        assert_eq!((table.name, ours.len()), (name, table.rows.len()));
        for (row, ours) in table.rows.iter().zip(ours) {
            let uncounted = ["none", "all in root"].contains(&row.name.as_str());
            assert_eq!(ours.is_none(), uncounted, "{name}: {}", row.name);
            if let Some(ours) = ours {
                assert!(ours.low <= ours.median && ours.median <= ours.high, "{name}: {ours:?}");
            }
        }
        assert!(!ours::assumptions(name).is_empty());
    }
}

#[test]
fn a_threshold_costs_ours_nothing_where_it_costs_the_document_twice_its_floor() {
    let study = Study::fit("numa-threshold", 4, FITTED_ON).unwrap();
    let table = study.table().unwrap();
    let ours = study.ours().unwrap();
    assert!(table.rows[0].predicted.median > 2.0 * 394.0);
    // It lies at the floor of one-byte differences, to within a row's repeatability.
    assert!((ours[0].unwrap().median / 394.0 - 1.0).abs() < 0.02, "{:?}", ours[0]);
}

/// Checks the README's figures for the walk: with a loop that another CPU can make fail, it would cost four times as
/// much at 72 CPUs.
#[test]
fn the_walk_of_ours_holds_where_every_cpu_of_two_sockets_walks_one_group() {
    let study = Study::fit("page-counter-layout", 3, FITTED_ON).unwrap();
    for (cpus, most) in [(36, 1.12), (72, 1.25)] {
        let scale = study.at(cpus).unwrap();
        assert!(scale.ours.median < most * scale.after.median, "{scale:?}");
        assert!(scale.ours.median < scale.before.median, "{scale:?}");
    }
}

#[test]
fn the_curve_goes_through_the_document_at_its_number_of_cpus() {
    for name in NAMES {
        let study = Study::fit(name, 3, FITTED_ON).unwrap();
        let table = study.table().unwrap();
        let scale = study.at(study.curve().document_cpus).unwrap();
        let median = |row: &str| {
            table.rows.iter().find(|candidate| candidate.name == row).unwrap().predicted.median
        };
        let (change, expected) = match name {
            "numa-threshold" => {
                (scale.before.median / scale.after.median, median("125") / median("65533"))
            }
            "memcg-layout" => {
                (scale.before.median / scale.after.median, 1.0 + median("after") / 100.0)
            }
            "page-counter-layout" => {
                (scale.before.median / scale.after.median, median("A+B+C") / median("three levels"))
            }
            // The curve's points take the numbers of visits in turn; the table takes all. The fitted figures are the
            // same.
            _ => (scale.after.median * 2.69, median("lockless")),
        };
        assert!((change / expected - 1.0).abs() < 0.05, "{name}: {change} {expected} {scale:?}");
        assert!(!scale.grown);
    }
}

#[test]
fn curves_are_the_same_every_time_and_grow_the_machine_by_whole_sockets() {
    let curve = || Study::fit("memcg-layout", 2, FITTED_ON).unwrap().at(100).unwrap();
    assert_eq!(curve(), curve());
    // A socket has 36 CPUs.
    assert_eq!((curve().sockets, curve().grown), (3, true));
}

#[test]
fn what_cannot_be_fitted_or_run_is_refused_in_one_line() {
    let told = |study: Result<Study, _>| -> String {
        match study {
            Ok(_) => panic!("not refused"),
            Err(error) => ToString::to_string(&error as &ledgerline_coherence::simulate::Error),
        }
    };
    assert_eq!(
        told(Study::fit("abacus", 2, FITTED_ON)),
        "no experiment is called abacus: page-counter-lockless, numa-threshold, memcg-layout, \
         page-counter-layout"
    );
    assert_eq!(
        told(Study::fit("memcg-layout", 0, FITTED_ON)),
        "no design points; one is the least"
    );
    assert_eq!(
        told(Study::fit("numa-threshold", 2, 33)),
        "the document has no row for threshold 33"
    );
    let study = Study::fit("memcg-layout", 1, FITTED_ON).unwrap();
    for cpus in [0, MOST_CPUS + 1] {
        let error = study.at(cpus).unwrap_err().to_string();
        assert_eq!(error, format!("{cpus} CPUs; from 1 to 1024 are simulated"));
    }
}
