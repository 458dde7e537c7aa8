//! The global allocator against a simple map: random blocks on several threads, in groups that come and go.

use crate::common::{Random, in_both_modes, unique};
use ledgerline::{Group, GroupId, Ledger, Mistakes, current};
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const THREADS: u64 = 4;
const GROUPS: usize = 12;
const TURNS: u64 = 12_000;

struct Block {
    address: usize,
    layout: Layout,
    /// The group that it was charged to when it was allocated, if any.
    owner: Option<GroupId>,
    mark: u8,
}

/// The state that all threads share. Its own memory is not charged.
struct World {
    ledger: &'static Ledger,
    tenants: [Group<'static>; 3],
    groups: Mutex<Vec<Group<'static>>>,
    blocks: Mutex<Vec<Block>>,
    /// The expected units of each group. Those of destroyed groups count for their tenant.
    truth: Mutex<Truth>,
}

#[derive(Default)]
struct Truth {
    of_group: HashMap<GroupId, i64>,
    of_tenant: HashMap<GroupId, i64>,
    tenant_of: HashMap<GroupId, GroupId>,
}

impl Truth {
    fn add(&mut self, group: GroupId, units: i64) {
        *self.of_group.entry(group).or_default() += units;
        *self.of_tenant.entry(self.tenant_of[&group]).or_default() += units;
    }
}

impl World {
    fn make_group(&self, tenant: Group<'static>) -> Group<'static> {
        let group = tenant.create(&unique("query")).unwrap();
        self.truth.lock().unwrap().tenant_of.insert(group.id(), tenant.id());
        group
    }

    fn layout(random: &mut Random) -> Layout {
        let power = 1 + random.below(20);
        let size = 1 + random.below(1 << power);
        Layout::from_size_align(size as usize, 1 << random.below(13)).unwrap()
    }

    fn work(&self, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..TURNS {
            let mark = random.below(255) as u8 + 1;
            match random.below(100) {
                // A group ends, and another begins. The units of the first stay in the tenant.
                0 => {
                    let pick = random.below(GROUPS as u64) as usize;
                    // No thread may be charging it: `truth` knows blocks by the group that was current.
                    let mut groups = self.groups.lock().unwrap();
                    let old = groups[pick];
                    let tenant = self.tenants[random.below(3) as usize];
                    old.destroy().unwrap();
                    groups[pick] = self.make_group(tenant);
                }
                1..45 => {
                    let layout = Self::layout(&mut random);
                    // Locked, so that the group does not end in between.
                    let groups = self.groups.lock().unwrap();
                    let owner = (random.below(10) > 0)
                        .then(|| groups[random.below(GROUPS as u64) as usize]);
                    let zeroed = random.below(3) == 0;
                    // SAFETY: not empty.
                    let get = || unsafe {
                        if zeroed {
                            std::alloc::alloc_zeroed(layout)
                        } else {
                            std::alloc::alloc(layout)
                        }
                    };
                    let block = match owner {
                        Some(group) => group.scope(get),
                        None => current::unattributed(get),
                    };
                    assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                    // SAFETY: it has that size.
                    unsafe {
                        if zeroed {
                            assert_eq!((block.read(), block.add(layout.size() - 1).read()), (0, 0));
                        }
                        block.write(mark);
                        block.add(layout.size() - 1).write(mark);
                    }
                    let owner = owner.map(Group::id);
                    if let Some(owner) = owner {
                        self.truth.lock().unwrap().add(owner, layout.size() as i64);
                    }
                    drop(groups);
                    let block = Block { address: block.addr(), layout, owner, mark };
                    self.blocks.lock().unwrap().push(block);
                }
                45..60 => {
                    // Grows or shrinks, with another current group. A destroyed owner's block would move; see `alloc/`.
                    let groups = self.groups.lock().unwrap();
                    let Some(mut block) = self.take(&mut random) else { continue };
                    let alive = |owner: GroupId| groups.iter().any(|group| group.id() == owner);
                    if block.owner.is_none_or(alive) {
                        let size = Self::layout(&mut random).size();
                        let other = groups[random.below(GROUPS as u64) as usize];
                        let address = block.address as *mut u8;
                        // SAFETY: only this thread has the block, and it is in its layout.
                        let moved = other
                            .scope(|| unsafe { std::alloc::realloc(address, block.layout, size) });
                        assert!(
                            !moved.is_null() && moved.addr().is_multiple_of(block.layout.align())
                        );
                        // SAFETY: it has that size.
                        unsafe {
                            assert_eq!(moved.read(), block.mark);
                            moved.add(size - 1).write(block.mark);
                        }
                        if let Some(owner) = block.owner {
                            let more = size as i64 - block.layout.size() as i64;
                            self.truth.lock().unwrap().add(owner, more);
                        }
                        block.layout = Layout::from_size_align(size, block.layout.align()).unwrap();
                        block.address = moved.addr();
                    }
                    self.blocks.lock().unwrap().push(block);
                }
                _ => {
                    if let Some(block) = self.take(&mut random) {
                        self.free(block);
                    }
                }
            }
        }
    }

    fn take(&self, random: &mut Random) -> Option<Block> {
        let mut blocks = self.blocks.lock().unwrap();
        let count = blocks.len() as u64;
        (count > 0).then(|| blocks.swap_remove(random.below(count) as usize))
    }

    fn free(&self, block: Block) {
        let address = block.address as *mut u8;
        // SAFETY: only this thread has the block, and it is in its layout.
        unsafe {
            assert_eq!(address.read(), block.mark);
            assert_eq!(address.add(block.layout.size() - 1).read(), block.mark);
            std::alloc::dealloc(address, block.layout);
        }
        if let Some(owner) = block.owner {
            self.truth.lock().unwrap().add(owner, -(block.layout.size() as i64));
        }
    }

    fn compare(&self) {
        let truth = self.truth.lock().unwrap();
        for group in self.groups.lock().unwrap().iter() {
            let wanted = truth.of_group.get(&group.id()).copied().unwrap_or(0);
            assert_eq!(group.precise() as i64, wanted, "{group:?}");
        }
        for tenant in self.tenants {
            let wanted = truth.of_tenant.get(&tenant.id()).copied().unwrap_or(0);
            assert_eq!(tenant.precise() as i64, wanted, "{tenant:?}");
        }
        assert_eq!(self.ledger.mistakes(), Mistakes::default());
    }
}

#[test]
fn every_group_holds_what_its_blocks_are_whatever_threads_did() {
    in_both_modes("every_group_holds_what_its_blocks_are_whatever_threads_did", || {
        for batch in [64, 262_144] {
            let ledger =
                Ledger::builder().batch(batch).capacity(4096).anonymous().unwrap().into_static();
            let tenants = ["a", "b", "c"].map(|name| ledger.root().create(name).unwrap());
            let world = World {
                ledger,
                tenants,
                groups: Mutex::default(),
                blocks: Mutex::default(),
                truth: Mutex::default(),
            };
            for number in 0..GROUPS {
                let group = world.make_group(tenants[number % 3]);
                world.groups.lock().unwrap().push(group);
            }
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let world = &world;
                let workers: Vec<_> = (0..THREADS)
                    .map(|thread| scope.spawn(move || world.work(batch + 1000 * thread + 7)))
                    .collect();
                // Cells are drained meanwhile.
                let (done, tenants) = (&done, &tenants);
                scope.spawn(move || {
                    while !done.load(Relaxed) {
                        tenants[0].drain();
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                });
                workers.into_iter().for_each(|worker| worker.join().unwrap());
                done.store(true, Relaxed);
            });
            world.compare();
            let blocks = std::mem::take(&mut *world.blocks.lock().unwrap());
            assert!(blocks.len() > 100);
            blocks.into_iter().for_each(|block| world.free(block));
            world.compare();
            assert_eq!(ledger.root().precise(), 0);
            assert_eq!(ledger.leaks(), []);
        }
    });
}
