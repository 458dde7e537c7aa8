use super::*;
use crate::cells::Cells;
use crate::plan::{Heap, Wanted};
use crate::read::Table;
use proptest::collection::vec;
use proptest::prelude::*;

/// As many fields as the types of these tests have; the last two cells are one field.
const FIELDS: [&str; 5] = ["a", "b", "c", "d", "d"];

fn plan(named: bool) -> Plan {
    let paths = FIELDS.map(str::to_owned).to_vec();
    let cells = Cells { paths, map: (0..5).flat_map(|cell| [cell; 8]).collect() };
    Plan {
        types: vec![Wanted {
            name: "t".to_owned(),
            size: 40,
            cells,
            alike: Vec::new(),
            alike_rounded: Vec::new(),
        }],
        operations: if named { vec!["operation".to_owned()] } else { Vec::new() },
        identity: (0, 0),
        heap: Heap::Exact,
        operation_ranges: Vec::new(),
        site_ranges: Vec::new(),
        globals: Vec::new(),
    }
}

/// Operations of a thread, each by the cells that it touches and how often, in every way.
type Operations = Vec<Vec<[u64; KINDS]>>;

fn operations() -> impl Strategy<Value = Operations> {
    let counts = prop_oneof![2 => Just([0; KINDS]), 1 => [0..3u64, 0..3u64, 0..3u64]];
    vec(vec(counts, FIELDS.len()), 1..30)
}

/// A thread's rows as the library makes them, with room for a few combinations.
fn rows(operations: &Operations, room: usize) -> Vec<Row> {
    let empty = vec![[0; KINDS]; FIELDS.len()];
    let mut rows = vec![Row { kind: RowKind::Outside, operations: 0, counts: empty.clone() }];
    for operation in operations {
        let touched: Vec<u16> = (0..5u16)
            .filter(|&cell| operation[usize::from(cell)].iter().any(|&count| count > 0))
            .collect();
        if touched.is_empty() {
            continue;
        }
        let kind = RowKind::Together(touched);
        let full = rows.len() > room && rows.iter().all(|row| row.kind != kind);
        let kind = if full { RowKind::Rest } else { kind };
        let at = rows.iter().position(|row| row.kind == kind).unwrap_or_else(|| {
            rows.push(Row { kind, operations: 0, counts: empty.clone() });
            rows.len() - 1
        });
        rows[at].operations += 1;
        for (sum, counts) in rows[at].counts.iter_mut().zip(operation) {
            (0..KINDS).for_each(|kind| sum[kind] += counts[kind]);
        }
    }
    rows
}

proptest! {
    /// Roles and phases are only a way to put it: what an operation does on average is what was counted.
    #[test]
    fn no_count_is_lost_on_the_way_to_the_profile(threads in vec(operations(), 1..5), room in 1..12usize) {
        let threads: Vec<Thread> = threads.iter().enumerate().map(|(number, operations)| Thread {
            number,
            operations: operations.len() as u64,
            tables: vec![Table { ty: 0, rows: rows(operations, room) }],
            ..Thread::default()
        }).collect();
        let recording = Recording { threads: threads.clone(), ..Recording::default() };
        let recorded = profile(&plan(true), &[recording]);
        let busy: Vec<&Thread> = threads.iter().filter(|thread| thread.tables[0].rows.len() > 1).collect();
        let Some(of) = recorded.profile.of("t") else {
            prop_assert!(busy.is_empty());
            return Ok(());
        };
        prop_assert_eq!(recorded.types[0].threads, busy.len());
        let shares: f64 = of.roles.iter().map(|role| role.share).sum();
        prop_assert!((shares - 1.0).abs() < 1e-9);
        prop_assert!(of.roles.iter().all(|role| role.phases.len() <= MOST_PHASES));
        for field in ["a", "b", "c", "d"] {
            for (index, kind) in [Kind::Load, Kind::Store, Kind::Atomic].into_iter().enumerate() {
                // By role, since threads of one role may have done different numbers of operations.
                let mut wanted = 0.0;
                let mut seen = 0;
                for (role, rests) in of.roles.iter().zip(&recorded.types[0].roles) {
                    let mut times = 0.0;
                    for phase in &role.phases {
                        let here = phase.accesses.iter().filter(|a| a.field == field && a.kind == kind);
                        times += phase.times * here.map(|access| access.times).sum::<f64>();
                    }
                    wanted += times * rests.operations as f64;
                    seen += rests.operations;
                }
                let counted: u64 = busy.iter().flat_map(|thread| &thread.tables[0].rows)
                    .flat_map(|row| FIELDS.iter().zip(&row.counts))
                    .filter(|(name, _)| **name == field)
                    .map(|(_, counts)| counts[index]).sum();
                prop_assert!((wanted - counted as f64).abs() < 1e-6, "{} {:?}: {} {}", field, kind, wanted, counted);
                prop_assert_eq!(seen, busy.iter().map(|thread| thread.operations).sum::<u64>());
            }
        }
        // What is written can be read.
        let text = recorded.profile.to_toml();
        let again = Profile::parse(&text, "", &Default::default());
        prop_assert!(again.is_ok(), "{:?}\n{}", again.err(), text);
    }
}

fn shared(threads: usize, objects: &[(u64, u64)]) -> Instances {
    let threads = (0..threads).map(|number| {
        let operations = vec![vec![[1, 0, 0]; FIELDS.len()]];
        let tables = vec![Table { ty: 0, rows: rows(&operations, 9) }];
        Thread { number, operations: 1, tables, ..Thread::default() }
    });
    let objects = objects.iter().map(|&(users, objects)| Used { ty: 0, users, objects });
    let recording = Recording {
        threads: threads.collect(),
        objects: objects.collect(),
        ..Recording::default()
    };
    profile(&plan(true), &[recording]).profile.types[0].instances
}

#[test]
fn who_uses_which_objects_says_how_they_are_shared() {
    assert_eq!(shared(2, &[(0b11, 1)]), Instances::Shared);
    assert_eq!(shared(2, &[(0b01, 1), (0b10, 1)]), Instances::PerCpu);
    assert_eq!(shared(2, &[(0b01, 5), (0b10, 5), (0b11, 1)]), Instances::Shared);
    assert_eq!(shared(4, &[(0b0011, 1), (0b1100, 1)]), Instances::Dealt(2));
    assert_eq!(shared(4, &[(0b1111, 7)]), Instances::Shared);
    assert_eq!(shared(1, &[(1, 1)]), Instances::Shared);
    assert_eq!(shared(1, &[(1, 3)]), Instances::Dealt(3));
    // Who only set objects up (thread 5 here) is no user of them.
    assert_eq!(shared(2, &[(0b10_0001, 1), (0b10_0010, 1)]), Instances::PerCpu);
    // The last bit stands for all threads from the 64th on.
    assert_eq!(shared(70, &[(1 << 63, 1)]), Instances::Dealt(35));
}
