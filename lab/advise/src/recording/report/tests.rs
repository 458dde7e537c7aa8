use super::{json, path, rate, short, text};
use crate::recording::cells::Cells;
use crate::recording::plan::{Heap, Plan, Wanted};
use crate::recording::profile::profile;
use crate::recording::read::{
    Cost, Losses, Measured, Recording, Row, RowKind, Site, Table, Thread, Used,
};

#[test]
fn a_rate_has_four_figures_and_no_idle_zeros() {
    for (times, text) in [
        (0.0, "."),
        (1.0, "1"),
        (2.5, "2.5"),
        (1.0 / 64.0 + 1e-9, "0.01563"),
        (98.4375, "98.44"),
        (123_456.7, "123457"),
        (1e-12, "0"),
    ] {
        assert_eq!(rate(times), text);
    }
}

#[test]
fn long_names_lose_what_a_source_does_not_spell() {
    for (whole, printed) in [
        ("memory.usage", "memory.usage"),
        ("stat[3]", "stat[3]"),
        ("nodes.std::_Base<a::b, c<d.e> >._M_impl.std::data._M_start", "nodes._M_impl._M_start"),
        ("std::empty", "std::empty"),
        ("", ""),
        ("a<b", "a<b"),
    ] {
        assert_eq!(path(whole), printed);
    }
    assert_eq!(short("pool<int>"), "pool<int>");
    assert_eq!(
        short("std::map<std::string, std::vector<std::string> >::node"),
        "std::map<..>::node"
    );
    assert_eq!(short("a\x1b[2J"), "a\\u{1b}[2J");
}

fn plan(operations: &[&str]) -> Plan {
    let paths = ["usage", "max", "name", "parent"].map(str::to_owned).to_vec();
    let alike = vec!["window".to_owned(), "task\x1b[2J".to_owned()];
    let cells = Cells { paths, map: vec![0; 32] };
    Plan {
        types: vec![Wanted {
            name: "page_counter".to_owned(),
            size: 32,
            cells,
            alike,
            alike_rounded: vec!["slot".to_owned()],
        }],
        operations: operations.iter().map(|&name| name.to_owned()).collect(),
        identity: (0, 0),
        heap: Heap::Exact,
        operation_ranges: Vec::new(),
        site_ranges: Vec::new(),
        globals: Vec::new(),
    }
}

fn row(kind: RowKind, operations: u64, counts: [[u64; 3]; 4]) -> Row {
    Row { kind, operations, counts: counts.to_vec() }
}

fn thread(number: usize, name: &str, operations: u64, rows: Vec<Row>) -> Thread {
    let measured = Measured {
        nanoseconds: operations * 150,
        operations,
        probes: operations * 5,
        counted: operations * 3,
    };
    let tables = vec![Table { ty: 0, rows }];
    Thread { number, name: name.to_owned(), operations, measured, tables }
}

fn recordings() -> Vec<Recording> {
    let none = [0; 3];
    let worker = |number| {
        thread(
            number,
            "worker",
            6400,
            vec![
                row(RowKind::Outside, 0, [[0, 1, 0], [0, 1, 0], none, none]),
                row(RowKind::Together(vec![1, 0]), 6300, [[0, 0, 6300], [6300, 0, 0], none, none]),
                row(
                    RowKind::Together(vec![1, 0, 3]),
                    100,
                    [[0, 0, 200], [100, 0, 0], none, [150, 0, 0]],
                ),
            ],
        )
    };
    let main = thread(0, "main", 0, vec![row(RowKind::Outside, 0, [[0, 1, 0], none, none, none])]);
    let reader = thread(
        3,
        "rea\x1bder",
        8,
        vec![
            row(RowKind::Outside, 0, [none; 4]),
            row(RowKind::Together(vec![2]), 8, [none, none, [16, 0, 0], none]),
        ],
    );
    vec![Recording {
        neighbours: Vec::new(),
        process: 7,
        threads: vec![main, worker(1), worker(2), reader],
        objects: vec![
            Used { ty: 0, users: 0b1110, objects: 1 },
            Used { ty: 0, users: 0b10, objects: 3 },
        ],
        sites: vec![
            Site { address: Some(16), ty: 0, rounded: false, blocks: 3 },
            Site { address: Some(16), ty: 0, rounded: true, blocks: 5 },
            Site { address: Some(99), ty: 0, rounded: false, blocks: 1 },
            Site { address: None, ty: 0, rounded: false, blocks: 2 },
        ],
        unasked: [(0, 9)].into(),
        losses: Losses {
            no_room: 1,
            overlapping: 2,
            ambiguous: 3,
            ambiguous_size: 32,
            ambiguous_align: 1,
            unasked: 9,
            unknown_names: 4,
            dropped: 5,
            unfinished: 6,
        },
        cost: Cost { probe: 2.0, count: 10.0, operation: 20.0 },
    }]
}

#[test]
fn the_report_is_as_a_person_has_seen_it() {
    let name = |at| (at == 16).then(|| "make".to_owned());
    let mut printed = String::new();
    for operations in [&["charge"][..], &[]] {
        let (plan, recordings) = (plan(operations), recordings());
        let recorded = profile(&plan, &recordings);
        printed.push_str(&text(&plan, &recordings, &recorded, &name));
        let json = serde_json::to_string_pretty(&json(&plan, &recordings, &recorded)).unwrap();
        printed.push_str(&format!("\n{json}\n----\n"));
    }
    crate::golden::same("recording/report.txt", &printed);
    assert!(!printed.contains('\x1b'));
}
