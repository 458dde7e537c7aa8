use super::*;
use crate::recording::cells::Cells;
use crate::recording::plan::{Heap, Wanted};
use crate::recording::read::{Neighbours, Table};
use proptest::collection::vec;
use proptest::prelude::*;

/// The fields of the types in these tests. The last two cells are one field.
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

/// Operations of a thread: for each cell, the number of accesses of each kind.
type Operations = Vec<Vec<[u64; KINDS]>>;

fn operations() -> impl Strategy<Value = Operations> {
    let counts = prop_oneof![2 => Just([0; KINDS]), 1 => [0..3u64, 0..3u64, 0..3u64]];
    vec(vec(counts, FIELDS.len()), 1..30)
}

/// Returns a thread's rows as the library makes them, with room for a few combinations.
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
    #![proptest_config(crate::cases::few(file!(), 256))]

    /// Roles and phases preserve the counts: the average accesses of an operation are those that were counted.
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
        // The written profile can be read.
        let text = recorded.profile.to_toml();
        let again = Profile::parse(&text, "", &Default::default());
        prop_assert!(again.is_ok(), "{:?}\n{}", again.err(), text);
    }
}

fn shared(threads: usize, objects: &[(u64, u64)]) -> Instances {
    beside(threads, objects, &[])
}

/// Returns the instances of objects of which some lie side by side. For each such pair: their distance, the begin of
/// the first, the threads that used only one of the two, and the number of pairs.
fn beside(
    threads: usize,
    objects: &[(u64, u64)],
    neighbours: &[(u64, u64, u64, u64)],
) -> Instances {
    let threads = (0..threads).map(|number| {
        let operations = vec![vec![[1, 0, 0]; FIELDS.len()]];
        let tables = vec![Table { ty: 0, rows: rows(&operations, 9) }];
        Thread { number, operations: 1, tables, ..Thread::default() }
    });
    let objects = objects.iter().map(|&(users, objects)| Used { ty: 0, users, objects });
    let neighbours = neighbours.iter().map(|&(stride, begins, differ, pairs)| Neighbours {
        ty: 0,
        stride,
        begins,
        differ,
        pairs,
    });
    let recording = Recording {
        threads: threads.collect(),
        objects: objects.collect(),
        neighbours: neighbours.collect(),
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
    // Thread 5 only initialized objects and does not count as a user.
    assert_eq!(shared(2, &[(0b10_0001, 1), (0b10_0010, 1)]), Instances::PerCpu);
    // The last bit stands for all threads from the 64th on.
    assert_eq!(shared(70, &[(1 << 63, 1)]), Instances::Dealt(35));
}

#[test]
fn own_objects_on_the_lines_of_others_lie_in_a_row() {
    let row = |stride, begins| Instances::Row(profile::Row { stride, begins: Some(begins) });
    let two = [(0b01, 1), (0b10, 1)];
    assert_eq!(beside(2, &two, &[(40, 8, 0b11, 1)]), row(40, 8));
    // The other thread only initialized the objects, so they belong to one thread.
    assert_eq!(beside(2, &two, &[(40, 8, 0b10_0000, 1)]), Instances::PerCpu);
    // The most frequent distance wins, although some objects are aligned better than others.
    let four = [(0b0001, 1), (0b0010, 1), (0b0100, 1), (0b1000, 1)];
    let lie = [(48, 112, 0b0011, 1), (48, 32, 0b0110, 1), (48, 80, 0b0110, 1), (64, 64, 0b1100, 2)];
    assert_eq!(beside(4, &four, &lie), row(48, 112));
    // A few of many objects that lie so by chance are not a row.
    let many = [(0b01, 50), (0b10, 50)];
    assert_eq!(beside(2, &many, &[(40, 8, 0b11, 24)]), Instances::PerCpu);
    assert_eq!(beside(2, &many, &[(40, 8, 0b11, 25)]), row(40, 8));
    // If several threads use each object, its neighbours matter less.
    assert_eq!(beside(2, &[(0b11, 2)], &[(40, 8, 0b01, 1)]), Instances::Shared);
}

#[test]
fn threads_that_are_not_told_apart_make_no_object_shared_where_others_are_known() {
    let mut objects: Vec<(u64, u64)> = (0..63).map(|thread| (1 << thread, 1)).collect();
    objects.push((1 << 63, 7));
    assert_eq!(beside(70, &objects, &[]), Instances::PerCpu);
}

#[test]
fn who_adds_all_up_now_and_then_does_not_hide_whose_objects_they_are() {
    let thread = |number, operations: u64| {
        let touched = vec![vec![[1, 0, 0]; FIELDS.len()]];
        let tables = vec![Table { ty: 0, rows: rows(&touched, 9) }];
        Thread { number, operations, tables, ..Thread::default() }
    };
    let used = |users| Used { ty: 0, users, objects: 1 };
    let taken_as = |seldom: u64| {
        let recording = Recording {
            threads: vec![thread(0, 10_000), thread(1, 9_000), thread(2, seldom)],
            objects: vec![used(0b101), used(0b110)],
            neighbours: vec![Neighbours { ty: 0, stride: 16, begins: 32, differ: 0b011, pairs: 1 }],
            ..Recording::default()
        };
        profile(&plan(true), &[recording]).profile.types[0].instances
    };
    assert_eq!(taken_as(21), Instances::Row(profile::Row { stride: 16, begins: Some(32) }));
    assert_eq!(taken_as(5_000), Instances::Dealt(2));
}

#[test]
fn a_row_begins_where_its_pairs_fit_best() {
    let places = |list: &[(u64, u64)]| list.iter().copied().collect::<BTreeMap<u64, u64>>();
    // 32, 80, and on the next pair 0 and 48: the second and the third do not meet.
    assert_eq!(first_of(&places(&[(0, 1), (32, 1)]), 48, (32, 4)), Some(32));
    // The first is alone on its pair.
    assert_eq!(first_of(&places(&[(0, 1)]), 40, (40, 3)), Some(88));
    assert_eq!(first_of(&places(&[(0, 1)]), 40, (40, 2)), Some(0));
}
