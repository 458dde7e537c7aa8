//! Protection is shared as in the kernel: the kernel's own test of `memory.min` and `memory.low`
//! (`test_memcg_protection` of Linux's selftests), with caches in the place of the page cache.

use ledgerline::{Charge, Group, Ledger, Limit, Protection, Refused, Unclaimed};
use outside::cache::Cache;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Sets one of the two protections.
type Protect = fn(Group<'static>, Limit);

/// A may use 200 MiB. B, below it, is protected with 50. In B, C claims 75 of that, D 25, E nothing and F 500; C, D
/// and E have 50 MiB cached each. G, beside B, requests memory.
struct Tree {
    a: Group<'static>,
    b: Group<'static>,
    /// C, D, E and F.
    caches: [Cache; 4],
    g: Group<'static>,
}

impl Tree {
    fn new(protect: Protect) -> Tree {
        let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
        let a = ledger.root().create("A").unwrap();
        a.set_max("200M".parse().unwrap()).unwrap();
        let [b, g] = ["B", "G"].map(|name| a.create(name).unwrap());
        protect(b, "50M".parse().unwrap());
        let children = [("C", "75M", 50), ("D", "25M", 50), ("E", "0", 50), ("F", "500M", 0)];
        let caches = children.map(|(name, claim, cached)| {
            let cache = Cache::new(b.create(name).unwrap(), PAGE);
            protect(cache.group, claim.parse().unwrap());
            cache.fill(cached * MIB).unwrap();
            cache
        });
        Tree { a, b, caches, g }
    }

    /// Allocates page by page, like a process in G.
    fn allocate(&self, units: u64) -> Result<Vec<Charge<'static>>, Refused> {
        (0..units / PAGE).map(|_| self.g.try_charge(PAGE)).collect()
    }

    /// Returns the units of C, D, E and F, in MiB.
    fn left(&self) -> [f64; 4] {
        self.caches.each_ref().map(|cache| {
            assert_eq!(cache.holds(), cache.group.precise());
            mib(cache.holds())
        })
    }
}

fn mib(units: u64) -> f64 {
    units as f64 / MIB as f64
}

/// Compares within a tenth, like the kernel's test.
#[track_caller]
fn close(found: f64, published: f64) {
    assert!((found - published).abs() <= published / 10.0, "{found} MiB, published: {published}");
}

/// The first half of the kernel's test: G takes everything that is not protected, and gives it back.
#[track_caller]
fn pressure_leaves_what_the_kernel_leaves(tree: &Tree) {
    drop(tree.allocate(148 * MIB).unwrap());
    let [c, d, e, f] = tree.left();
    close(mib(tree.b.precise()), 50.0);
    close(c, 29.0);
    close(d, 21.0);
    // B has 52 left, of which 50 are protected: E may keep a share of the two.
    assert!(e <= 2.0 && f == 0.0, "E holds {e} MiB and F {f}");
}

#[test]
fn min_is_shared_out_as_by_the_kernel_and_kept_when_that_means_a_refusal() {
    let tree = Tree::new(Group::set_min);
    pressure_leaves_what_the_kernel_leaves(&tree);
    let refused = tree.allocate(170 * MIB).unwrap_err();
    assert_eq!(refused.group, "/A");
    close(mib(tree.b.precise()), 50.0);
    assert!(tree.b.precise() >= 50 * MIB, "min is never reclaimed");
    assert_eq!(tree.a.events().low, 0);
}

#[test]
fn low_is_shared_out_as_by_the_kernel_and_given_up_with_an_event_when_nothing_else_is_left() {
    let tree = Tree::new(Group::set_low);
    pressure_leaves_what_the_kernel_leaves(&tree);
    assert_eq!(tree.a.events().low, 0, "there was enough that is not protected");
    let _held = tree.allocate(170 * MIB).unwrap();
    close(mib(tree.b.precise()), 30.0);
    let events = tree.caches.each_ref().map(|cache| cache.group.events().low);
    assert!(events[0] > 0 && events[1] > 0, "C and D were protected: {events:?}");
    assert_eq!(events[2..], [0, 0], "E and F had nothing that was protected");
}

#[test]
fn what_reclaim_must_leave_is_told_by_claims_and_what_is_unclaimed_only_if_that_is_asked_for() {
    for (protect, of) in [
        (Group::set_min as Protect, (|it| it.min) as fn(Protection) -> u64),
        (Group::set_low, |it| it.low),
    ] {
        let tree = Tree::new(protect);
        tree.a.drain();
        let told = |top, unclaimed| {
            tree.caches.each_ref().map(|cache| of(cache.group.protection(top, unclaimed)))
        };
        // C claims the 50 MiB that it holds, and D 25: B's 50 are split between them two to one.
        let by_claims = [50 * MIB * 2 / 3, 50 * MIB / 3, 0, 0];
        assert_eq!(told(tree.a, Unclaimed::Lost), by_claims);
        assert_eq!(told(tree.a, Unclaimed::Shared), by_claims, "nothing is unclaimed");
        // In a reclaim of B itself, each has its own setting.
        assert_eq!(told(tree.b, Unclaimed::Lost), [75 * MIB, 25 * MIB, 0, 500 * MIB]);
        assert_eq!(told(tree.g, Unclaimed::Lost), [0; 4], "none of them is below G");
        // With 90 for B, 15 are unclaimed. D and E have 25 and 50 beyond their claims.
        protect(tree.b, Limit::units(90 * MIB));
        assert_eq!(told(tree.a, Unclaimed::Lost), [50 * MIB, 25 * MIB, 0, 0]);
        assert_eq!(told(tree.a, Unclaimed::Shared), [50 * MIB, 30 * MIB, 10 * MIB, 0]);
    }
}
