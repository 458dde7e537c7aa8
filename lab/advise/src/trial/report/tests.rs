use super::*;
use crate::cost::Place;
use crate::trial::Short;
use ledgerline_coherence::machine::Machine;

fn interval(low: f64, median: f64, high: f64) -> Interval {
    Interval { median, low, high }
}

fn gain(median: f64) -> Gain {
    let percent = interval(median - 8.0, median, median + 8.0);
    Gain { ns: interval(40.0, 48.5, 50.0), throughput: percent }
}

fn measured(median: f64) -> Measured {
    Measured {
        today: interval(118.0, 120.5, 131.25),
        proposed: Some((interval(71.0, 72.0, 80.0), gain(median))),
        rounds: 50,
        transfer_ns: Some(28.4),
        disturbed: 0.001,
        short: Vec::new(),
        absent: Vec::new(),
        objects: None,
    }
}

fn with<R>(measured: &Measured, asked: usize, then: impl Fn(&Report<'_>) -> R) -> R {
    let machine = Machine::built_in("zen4-2vcpu").unwrap();
    let question = Question { machine: &machine, cpus: 2, points: 16 };
    let order = |size| Order { size, place: Place { offsets: Vec::new(), base: 128, row: None } };
    let today = order(24);
    let proposed = order(256);
    let predicted = Predicted {
        today: interval(101.0, 110.0, 140.0),
        proposed: measured.proposed.map(|_| (interval(70.0, 71.0, 72.0), gain(60.0))),
    };
    then(&Report {
        name: "counters",
        profile: "counters.toml",
        from: if measured.proposed.is_some() {
            "order.txt"
        } else {
            "advise proposes no other order"
        },
        here: "A processor, 2 CPUs, Linux 6.18, 2026-11-23",
        asked,
        question: &question,
        assumed: asked > 2,
        today: &today,
        proposed: measured.proposed.map(|_| &proposed),
        measured,
        predicted: &predicted,
    })
}

fn text(measured: &Measured, asked: usize) -> String {
    with(measured, asked, |report| {
        let mut out = String::new();
        report.text(&mut out);
        out
    })
}

#[test]
fn a_report_stands_as_it_was_looked_at() {
    crate::golden::same("trial/trial.txt", &text(&measured(62.0), 2));
    crate::golden::same(
        "trial/trial.json",
        &format!("{}\n", with(&measured(62.0), 2, |report| report.json())),
    );
    // A report with every note.
    let all = Measured {
        proposed: None,
        transfer_ns: Some(102.5),
        disturbed: 0.21,
        short: vec![Short { role: "poll".to_owned(), wanted_ns: 2.0, replayed_ns: 4.5 }],
        absent: vec!["reclaim".to_owned()],
        objects: Some(4096),
        ..measured(0.0)
    };
    crate::golden::same("trial/trial-notes.txt", &text(&all, 72));
    crate::golden::same(
        "trial/trial-notes.json",
        &format!("{}\n", with(&all, 72, |report| report.json())),
    );
}

#[test]
fn the_measured_gain_lies_within_the_prediction_or_beside_it() {
    for (median, within, words) in [
        (62.0, true, "faster here; the measured gain lies within"),
        (45.0, false, "lies below what was predicted, and the ranges meet."),
        (40.0, false, "faster here; the measured gain lies below"),
        (90.0, false, "faster here; the measured gain lies above"),
        (-30.0, false, "slower here; the measured gain lies below"),
        (3.0, false, "cannot be told apart here; the measured gain lies below"),
    ] {
        let measured = measured(median);
        assert_eq!(with(&measured, 2, |report| report.within()), Some(within), "{median}");
        assert!(text(&measured, 2).contains(words), "{median}: {}", text(&measured, 2));
    }
}

#[test]
fn what_was_disturbed_or_too_short_is_held_against_no_prediction() {
    let short = Short { role: "all".to_owned(), wanted_ns: 2.0, replayed_ns: 4.5 };
    let disturbed = Measured { disturbed: 0.3, ..measured(62.0) };
    for measured in [disturbed, Measured { short: vec![short], ..measured(62.0) }] {
        assert_eq!(with(&measured, 2, |report| report.within()), None);
        let text = text(&measured, 2);
        let said = "faster here. This is not held against the prediction:\n";
        assert!(
            text.contains(&format!("{said}Other programs"))
                || text.contains(&format!("{said}An op")),
            "{text}"
        );
    }
}
