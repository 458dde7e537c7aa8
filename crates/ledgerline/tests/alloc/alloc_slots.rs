//! The numbers by which blocks name their owners: 65 535 groups may hold blocks at a time. The test takes all of them, in its
//! own process.

use crate::common::{ran_alone, unique};
use ledgerline::{Group, Ledger, Mistakes, alloc};

#[test]
fn when_all_numbers_are_taken_blocks_are_charged_to_the_nearest_ancestor_that_has_one() {
    if ran_alone(
        "when_all_numbers_are_taken_blocks_are_charged_to_the_nearest_ancestor_that_has_one",
    ) {
        return;
    }
    const NUMBERS: usize = 65_535;
    let ledger = Ledger::new().unwrap().into_static();
    let tenant = ledger.root().create("tenant").unwrap();
    let of_tenant = tenant.scope(|| Box::new([0u8; 7]));
    // The root and the tenant have a number each, and each of these groups another.
    const QUERIES: usize = NUMBERS - 2;
    let mut groups: Vec<Group<'static>> = Vec::with_capacity(NUMBERS);
    let mut blocks = Vec::with_capacity(NUMBERS);
    for _ in 0..QUERIES {
        let group = tenant.create(&unique("query")).unwrap();
        blocks.push(group.scope(|| Box::new([0u8; 16])));
        groups.push(group);
    }
    assert!(groups.iter().step_by(4099).all(|group| group.precise() == 16));
    assert_eq!(tenant.precise(), 16 * (QUERIES as u64) + 7);
    assert_eq!(alloc::counts().above, 0);

    // One group too many: the nearest ancestor with a number is charged, credited, and reported.
    let late = tenant.create("late").unwrap().create("later").unwrap();
    let [mut first, second] =
        late.scope(|| [Vec::<u8>::with_capacity(100), Vec::with_capacity(50)]);
    let all = 16 * (QUERIES as u64) + 7;
    assert_eq!((late.precise(), tenant.precise()), (0, all + 150));
    assert_eq!(alloc::counts().above, 2);
    first.reserve_exact(1000);
    assert_eq!((late.precise(), tenant.precise()), (0, all + 1050), "it stays its owner's");
    drop(second);
    assert_eq!(tenant.precise(), all + 1000);

    // A destroyed group that still holds a block keeps its number; one that holds nothing gives it up.
    groups[100].destroy().unwrap();
    groups[200].destroy().unwrap();
    let freed = groups[200];
    drop(blocks.swap_remove(200));
    // Its row is free now, and no other group has it. Free numbers are searched for now and then.
    let is_late = |_| {
        // A reading of a ledger with so many groups takes a while.
        let before = alloc::counts().above;
        // Without `black_box` an optimising compiler removes the unused block.
        drop(late.scope(|| std::hint::black_box(Box::new(1u64))));
        alloc::counts().above == before
    };
    assert!((0..300).any(is_late), "it has {freed:?}'s number");
    let own = late.scope(|| Box::new([0u8; 64]));
    assert_eq!(late.precise(), 64);
    assert_eq!(groups[100].precise(), 0);
    assert_eq!(ledger.leaks().iter().map(|leak| leak.units).sum::<u64>(), 16);
    // A new group in the row of an ended one: the number has gone to another group in the meantime.
    let next = tenant.create("next").unwrap();
    assert_eq!(next.id().index(), freed.id().index());
    let above = tenant.precise();
    let of_next = next.scope(|| Box::new([0u8; 32]));
    assert_eq!((next.precise(), tenant.precise()), (0, above + 32));

    drop((own, of_next, first, of_tenant, blocks));
    assert_eq!((late.precise(), ledger.root().precise()), (0, 0));
    assert_eq!(ledger.leaks(), []);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}
