//! Blocks of another allocator: the system's, behind the back of the global one.

use crate::common::{Random, fork, in_both_modes, ran_alone, unique, wait};
use ledgerline::alloc::block::{self, Owner};
use ledgerline::alloc::{self, Policy};
use ledgerline::{Group, Ledger, Limit, Mistakes, current};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;

fn ledger() -> &'static Ledger {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    ledger
}

fn group() -> Group<'static> {
    ledger().root().create("tenant").unwrap().create("query").unwrap()
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size.max(16), 16).unwrap()
}

/// A block that was not charged.
fn make(size: usize) -> NonNull<u8> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { System.alloc(layout(size)) }).expect("there is memory")
}

fn free(block: NonNull<u8>, size: usize) -> usize {
    let released = block::release(block);
    // SAFETY: it was made in this layout.
    unsafe { System.dealloc(block.as_ptr(), layout(size)) };
    released
}

/// As a hook of `realloc`.
fn resize(block: NonNull<u8>, old: usize, new: usize) -> Option<NonNull<u8>> {
    let resizing = block::resize(block, new).ok()?;
    // SAFETY: it was made in this layout.
    let moved = unsafe { System.realloc(block.as_ptr(), layout(old), layout(new).size()) };
    let moved = NonNull::new(moved).expect("there is memory");
    resizing.moved(moved);
    Some(moved)
}

struct Sent(NonNull<u8>);
// SAFETY: a block is the one's who has it.
unsafe impl Send for Sent {}

impl Sent {
    fn free(self, size: usize) -> usize {
        free(self.0, size)
    }
}

#[test]
fn a_block_of_another_allocator_is_charged_to_the_current_group_and_credited_from_any_thread() {
    let [a, b] = [group(), group()];
    for size in [1, 16, 17, 512, 65_534, 65_535, 65_536, 70_000, 1 << 20, 9 << 20] {
        let block = make(size);
        assert_eq!(a.scope(|| block::charge(block, size)), Ok(Some(a)));
        assert_eq!((a.precise(), b.precise()), (size as u64, 0));
        let labelled = block::labelled(block).unwrap();
        assert_eq!((labelled.owner().group(), labelled.size), (Some(a), size));
        let sent = Sent(block);
        let released = std::thread::spawn(move || b.scope(|| sent.free(size))).join().unwrap();
        assert_eq!((released, a.precise(), b.precise()), (size, 0, 0));
        assert!(block::labelled(block).is_none());
    }
}

#[test]
fn a_block_that_nobody_charged_is_nobodys_whoever_frees_or_grows_it() {
    let group = group();
    let block = make(100);
    group.scope(|| {
        let moved = resize(block, 100, 5000).unwrap();
        assert!(block::labelled(moved).is_none());
        assert_eq!(free(moved, 5000), 0);
    });
    let block = make(100);
    assert_eq!(block::charge(block, 100), Ok(None), "nobody is current");
    assert_eq!((free(block, 100), group.precise()), (0, 0));
}

#[test]
fn the_owner_pays_for_growth_whoever_is_current() {
    let [a, b] = [group(), group()];
    let mut size = 100;
    let mut block = make(size);
    a.scope(|| block::charge(block, size)).unwrap();
    for new in [101, 5000, 200_000, 3000, 64, 1 << 20, 1, 17] {
        block = b.scope(|| resize(block, size, new)).unwrap();
        size = new;
        assert_eq!((a.precise(), b.precise()), (size as u64, 0));
    }
    assert_eq!(free(block, size), size);
    assert_eq!(a.precise(), 0);
}

#[test]
fn a_limit_refuses_a_block_and_its_growth_and_leaves_all_as_it_was() {
    let group = group();
    group.set_max(Limit::units(10_000)).unwrap();
    let [first, second] = [make(6000), make(6000)];
    group.scope(|| {
        assert!(block::charge(first, 6000).is_ok());
        let refusal = block::charge(second, 6000).unwrap_err();
        assert_eq!((refusal.group, refusal.requested, refusal.limit), (group.id(), 6000, 10_000));
        assert_eq!(alloc::last_refusal(), Some(refusal));
        assert!(block::labelled(second).is_none());
        assert!(block::resize(first, 11_000).is_err());
        assert_eq!(block::labelled(first).unwrap().size, 6000);
        assert!(block::charge_to(group, second, 4001).is_err());
        assert_eq!(block::charge_to(group, second, 4000), Ok(Some(group)));
    });
    assert_eq!(group.precise(), 10_000);
    assert_eq!((free(first, 6000), free(second, 6000), group.precise()), (6000, 4000, 0));
}

#[test]
fn a_resize_that_failed_beneath_changes_nothing() {
    let group = group();
    let block = make(70_000);
    group.scope(|| block::charge(block, 70_000)).unwrap();
    drop(block::resize(block, 900_000).unwrap());
    assert_eq!(group.precise(), 70_000);
    assert_eq!((free(block, 70_000), group.precise()), (70_000, 0));
}

#[test]
fn a_block_of_no_bytes_is_charged_with_one() {
    let group = group();
    let block = make(0);
    assert_eq!(group.scope(|| block::charge(block, 0)), Ok(Some(group)));
    assert_eq!((group.precise(), free(block, 0), group.precise()), (1, 1, 0));
}

#[test]
fn a_block_outlives_its_group_at_its_ancestors() {
    let query = group();
    let tenant = query.parent().unwrap();
    let [kept, grown] = [make(1000), make(2000)];
    query.scope(|| {
        block::charge(kept, 1000).unwrap();
        block::charge(grown, 2000).unwrap();
    });
    assert_eq!(query.destroy().unwrap().leftover, 3000);
    let grown = resize(grown, 2000, 5000).unwrap();
    assert_eq!(block::labelled(grown).unwrap().owner().group(), Some(tenant));
    assert_eq!(tenant.precise(), 6000);
    let late = make(10);
    assert_eq!(query.scope(|| block::charge(late, 10)), Ok(Some(tenant)));
    assert_eq!((free(kept, 1000), free(grown, 5000), free(late, 10)), (1000, 5000, 10));
    assert_eq!((tenant.precise(), tenant.ledger().mistakes()), (0, Mistakes::default()));
}

#[test]
fn an_audit_finds_each_block_charged_once_and_credited_once() {
    let ledger = Ledger::builder().capacity(16).audit(true).anonymous().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    let mut block = make(100);
    group.scope(|| block::charge(block, 100)).unwrap();
    block = resize(block, 100, 300).unwrap();
    drop(block::resize(block, 400).unwrap());
    block = resize(block, 300, 50).unwrap();
    free(block, 50);
    assert_eq!((group.precise(), ledger.mistakes()), (0, Mistakes::default()));
    assert_eq!(ledger.audit_report(), Default::default());
}

#[test]
fn a_runtime_labels_blocks_with_units_that_it_prepaid() {
    let group = group();
    let owner = Owner::of(group).expect("a number is left");
    group.try_charge_units(1000).unwrap();
    let [first, second] = [make(300), make(700)];
    assert!(owner.label(first, 300) && owner.label(second, 700));
    let taken = block::unlabel(first).unwrap();
    assert_eq!((taken.number, taken.size), (owner.number(), 300));
    assert!(block::unlabel(first).is_none());
    assert_eq!((free(first, 300), group.precise()), (0, 1000), "the units are the runtime's");
    group.uncharge_units(300);
    // Code that does not know of the runtime's units credits the group itself.
    assert_eq!((free(second, 700), group.precise()), (700, 0));
    assert_eq!(group.destroy().unwrap().leftover, 0);
    let never = self::group();
    never.destroy().unwrap();
    assert!(Owner::of(never).is_none());
}

#[test]
fn a_child_has_its_own_copy_of_labels_of_a_ledger_in_memory() {
    if ran_alone("a_child_has_its_own_copy_of_labels_of_a_ledger_in_memory") {
        return;
    }
    let group = group();
    let block = make(1000);
    group.scope(|| block::charge(block, 1000)).unwrap();
    let child = fork(|| {
        let before = group.precise();
        let released = block::release(block);
        i32::from((before, released, group.precise()) != (1000, 1000, 0))
    });
    assert_eq!(wait(child), 0);
    assert_eq!((group.precise(), free(block, 1000), group.precise()), (1000, 1000, 0));
}

/// The state that the threads of the random test share: blocks with their size and owner, and the sum of each group.
#[derive(Default)]
struct World {
    blocks: Vec<(usize, usize, Option<usize>)>,
    truth: HashMap<usize, u64>,
}

#[test]
fn random_blocks_on_threads_leave_each_group_with_the_sum_of_its_blocks() {
    let test = "random_blocks_on_threads_leave_each_group_with_the_sum_of_its_blocks";
    in_both_modes(test, random_blocks);
}

fn random_blocks() {
    const GROUPS: usize = 5;
    let ledger = ledger();
    let groups: Vec<_> =
        (0..GROUPS).map(|_| ledger.root().create(&unique("group")).unwrap()).collect();
    let world = Mutex::new(World::default());
    let work = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..4000 {
            let owner = random.below(GROUPS as u64 + 1) as usize;
            let power = 1 + random.below(19);
            let size = 1 + random.below(1 << power) as usize;
            let turn = random.below(3);
            let kept = (turn > 0)
                .then(|| {
                    let mut world = world.lock().unwrap();
                    let count = world.blocks.len() as u64;
                    (count > 0).then(|| world.blocks.swap_remove(random.below(count) as usize))
                })
                .flatten();
            let charged = match kept {
                None => {
                    let block = make(size);
                    let group = groups.get(owner).copied();
                    let charge = || block::charge(block, size).unwrap();
                    let charged = match group {
                        Some(group) => group.scope(charge),
                        None => current::unattributed(charge),
                    };
                    assert_eq!(charged, group);
                    (block, size, group.map(|_| owner), 0)
                }
                Some((address, old, owner)) => {
                    let block = NonNull::new(address as *mut u8).unwrap();
                    if turn == 1 {
                        let released = free(block, old);
                        assert_eq!(released, if owner.is_some() { old } else { 0 });
                        if let Some(owner) = owner {
                            *world.lock().unwrap().truth.entry(owner).or_default() -= old as u64;
                        }
                        continue;
                    }
                    (resize(block, old, size).unwrap(), size, owner, old as u64)
                }
            };
            let (block, size, owner, before) = charged;
            let mut world = world.lock().unwrap();
            if let Some(owner) = owner {
                let held = world.truth.entry(owner).or_default();
                *held = *held + size as u64 - before;
            }
            world.blocks.push((block.addr().get(), size, owner));
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || current::unattributed(|| work(seed + 1)));
        }
    });
    let World { blocks, truth } = world.into_inner().unwrap();
    for (number, group) in groups.iter().enumerate() {
        assert_eq!(group.precise(), truth.get(&number).copied().unwrap_or(0));
    }
    for (address, size, _) in blocks {
        free(NonNull::new(address as *mut u8).unwrap(), size);
    }
    for group in groups {
        assert_eq!(group.destroy().unwrap().leftover, 0);
    }
    assert_eq!(ledger.mistakes(), Mistakes::default());
}
