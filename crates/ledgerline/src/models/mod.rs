//! Every interleaving of the protocols, by loom: `RUSTFLAGS="--cfg loom" cargo test --release --lib`.
//!
//! The code under test is the code that ships, on loom's atomics. Loom cannot see the assembly, so there is a twin below
//! (`Cpu`): a section in plain steps whose commit fails if the CPU was fenced since its start. `percpu/inject.rs` tests on
//! the machine that the real sections keep that promise.

mod ahead;
mod changes;
mod idle;
mod order;
mod owned;
mod thread_caches;
mod waiting;

use crate::counter::moves::Moves;
use crate::counter::walk::{self, NotGranted};
use crate::counter::{NotSet, PageCounter};
use crate::gate::Gate;
use crate::percpu::word::{self, Cell};
use crate::region::free_list::FreeList;
use crate::seed;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Runs a body in every order of its threads with at most three switches besides those that blocking forces. This bound is
/// known to find nearly all bugs.
fn model(body: impl Fn() + Send + Sync + 'static) {
    check(3, body);
}

/// Like `model`, for three threads that all write one counter. A third switch multiplies the number of orders, so it is left
/// to `LEDGERLINE_SOAK=long`.
fn model_of_three(body: impl Fn() + Send + Sync + 'static) {
    check(if seed::long() { 3 } else { 2 }, body);
}

fn check(switches: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(body);
}

/// A leaf below a root.
struct Two {
    leaf: PageCounter,
    root: PageCounter,
}

impl Two {
    fn new(leaf: u64, root: u64) -> Arc<Two> {
        Arc::new(Two { leaf: PageCounter::new(leaf), root: PageCounter::new(root) })
    }

    fn try_charge(&self, n: u64) -> Result<(), NotGranted> {
        walk::try_charge(&[&self.leaf, &self.root], n).map_err(|(no, _)| no)
    }

    fn uncharge(&self, n: u64) {
        let (_, result) = walk::uncharge(&[&self.leaf, &self.root], n);
        result.unwrap();
    }
}

#[test]
fn of_two_charges_that_do_not_both_fit_exactly_one_is_granted() {
    model(|| {
        let two = Two::new(100, 10);
        let other = two.clone();
        let there = thread::spawn(move || other.try_charge(6).is_ok());
        let here = two.try_charge(6).is_ok();
        assert!(two.root.usage() <= 10);
        let there = there.join().unwrap();
        assert!(here != there, "one and only one: {here} {there}");
        assert_eq!((two.leaf.usage(), two.root.usage()), (6, 6));
        assert_eq!((two.leaf.watermark(), two.root.watermark()), (6, 6));
        assert_eq!(two.root.pending(), 0);
    });
}

#[test]
fn a_charge_that_cannot_succeed_never_refuses_one_that_can() {
    model(|| {
        let two = Two::new(100, 10);
        let other = two.clone();
        let big = thread::spawn(move || other.try_charge(11));
        assert_eq!(two.try_charge(10), Ok(()));
        assert_eq!(big.join().unwrap(), Err(NotGranted::Full { level: 1 }));
        assert_eq!(two.root.watermark(), 10);
    });
}

#[test]
fn a_walk_that_is_taken_back_leaves_no_trace() {
    model(|| {
        // If both try at once, the leaf refuses after the root has reserved.
        let two = Two::new(6, 100);
        let other = two.clone();
        let there = thread::spawn(move || other.try_charge(4));
        let here = two.try_charge(4);
        let there = there.join().unwrap();
        let granted = u64::from(here.is_ok()) + u64::from(there.is_ok());
        assert_eq!(granted, 1);
        assert_eq!(two.root.usage(), 4);
        assert_eq!((two.leaf.peak(), two.root.peak()), ((4, 4), (4, 4)), "rolled back, not seen");
        assert_eq!(two.root.pending() + two.leaf.pending(), 0);
        two.uncharge(4);
        assert_eq!((two.leaf.usage(), two.root.usage()), (0, 0));
    });
}

#[test]
fn a_parent_never_holds_less_than_its_child() {
    model(|| {
        let two = Two::new(100, 100);
        let other = two.clone();
        let there = thread::spawn(move || {
            other.try_charge(3).unwrap();
            other.uncharge(2);
        });
        // The child is read first: its present units were in the parent before.
        let leaf = two.leaf.usage();
        if leaf == 3 {
            assert!(two.root.usage() >= 1);
        }
        there.join().unwrap();
        assert_eq!((two.leaf.usage(), two.root.usage()), (1, 1));
    });
}

#[test]
fn either_the_charger_sees_the_new_limit_or_the_setter_sees_the_charge() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        let other = counter.clone();
        let set = thread::spawn(move || other.set_max(5, || true).is_ok());
        let charged = walk::try_charge(&[&counter], 8).is_ok();
        assert!(counter.usage() <= counter.max());
        let set = set.join().unwrap();
        assert!(!(set && charged), "a limit of 5 over a usage of 8");
        assert!(set || charged, "one of the two had no reason to fail");
        assert!(counter.usage() <= counter.max());
        assert_eq!(counter.pending(), 0);
    });
}

#[test]
fn a_limit_that_is_refused_is_never_seen_by_a_charger() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        walk::try_charge(&[&counter], 4).unwrap();
        let other = counter.clone();
        let set = thread::spawn(move || other.set_max(3, || true));
        assert!(walk::try_charge(&[&counter], 6).is_ok(), "the limit is 10 all the time");
        assert!(set.join().unwrap().is_err());
        assert_eq!(counter.max(), 10);
    });
}

#[test]
fn two_setters_leave_one_of_their_limits_and_it_holds() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        walk::try_charge(&[&counter], 4).unwrap();
        let other = counter.clone();
        let set = thread::spawn(move || other.set_max(6, || true).unwrap());
        counter.set_max(5, || true).unwrap();
        set.join().unwrap();
        assert!(matches!(counter.max(), 5 | 6));
        assert_eq!((counter.usage(), counter.pending()), (4, 0));
    });
}

#[test]
fn a_limit_that_is_set_at_once_holds_for_what_begins_later_whatever_is_on_its_way() {
    model(|| {
        let counter = Arc::new(PageCounter::new(10));
        let other = counter.clone();
        let on_its_way = thread::spawn(move || walk::try_charge(&[&other], 8).is_ok());
        counter.set_max_now(5, || true).unwrap();
        assert!(walk::try_charge(&[&counter], 6).is_err(), "it began later");
        let small = walk::try_charge(&[&counter], 2).is_ok();
        let granted = on_its_way.join().unwrap();
        assert!(granted != small, "one of the two was in the way of the other");
        assert_eq!((counter.max(), counter.pending()), (5, 0));
    });
    // A row that is closed meanwhile is freed once, and the thread that sets its limit gets that result.
    model(|| {
        let row = Arc::new(PageCounter::new(10));
        let other = row.clone();
        let destroyer = thread::spawn(move || {
            other.close();
            usize::from(other.let_go())
        });
        let freed = match row.set_max_now(5, || true) {
            Err(NotSet::Emptied) => 1,
            Ok(()) | Err(_) => 0,
        };
        assert_eq!(freed + destroyer.join().unwrap(), 1, "freed exactly once");
    });
}

#[test]
fn a_closed_row_is_freed_once_by_whoever_returns_its_last_unit() {
    model(|| {
        let row = Arc::new(PageCounter::new(100));
        walk::try_charge(&[&row], 5).unwrap();
        let other = row.clone();
        let late = thread::spawn(move || {
            let (emptied, result) = walk::uncharge(&[&other], 5);
            result.unwrap();
            emptied.levels().count()
        });
        row.close();
        assert!(walk::try_charge(&[&row], 1).is_err());
        let here = usize::from(row.let_go());
        assert_eq!(here + late.join().unwrap(), 1, "freed exactly once");
    });
}

const ID: u64 = word::empty(1);
const TAKE: u64 = word::CHARGE.wrapping_sub(3);

#[test]
fn a_take_against_a_drain_loses_no_unit() {
    model(|| {
        let cell = Arc::new(Cell::new(word::empty(1) | 4, 8));
        let other = cell.clone();
        let taker = thread::spawn(move || {
            let taken = 3 * u64::from(other.update(ID, TAKE, false));
            let put = 2 * u64::from(other.update(ID, word::UNCHARGE + 2, true));
            taken.wrapping_sub(put)
        });
        let was = cell.freeze();
        assert_eq!(was & word::FROZEN, 0);
        let drained = word::stock(cell.word.load(Ordering::Acquire));
        cell.cap.store(0, Ordering::Relaxed);
        cell.open(word::empty(1));
        let net = taker.join().unwrap();
        let left = word::stock(cell.word.load(Ordering::Relaxed));
        assert_eq!(drained.wrapping_add(left).wrapping_add(net), 4);
    });
}

/// A CPU as a section sees it: its fences are counted, and a commit checks that count in the same step.
struct Cpu {
    fences: Mutex<u64>,
    cell: Cell,
}

impl Cpu {
    fn new(word: u64, cap: u32) -> Arc<Cpu> {
        Arc::new(Cpu { fences: Mutex::new(0), cell: Cell::new(word, cap) })
    }

    /// The twin of `rseq::take` and `rseq::put`: plain loads and a plain store.
    fn section(&self, id: u64, delta: u64, put: bool) -> bool {
        loop {
            let armed = *self.fences.lock().unwrap();
            let sum = self.cell.word.load(Ordering::Acquire).wrapping_add(delta);
            let cap = u64::from(self.cell.cap.load(Ordering::Relaxed));
            if put && word::stock(sum) > cap || !word::passes(sum, id) {
                return false;
            }
            let fences = self.fences.lock().unwrap();
            if *fences == armed {
                // On the machine this is a plain store. Here it is an exchange whose result is ignored: loom orders two
                // stores only if one happens before the other, but hardware keeps one order for each word.
                self.cell.word.swap(sum, Ordering::AcqRel);
                return true;
            }
        }
    }

    fn fence(&self) {
        *self.fences.lock().unwrap() += 1;
    }

    /// The twin of the drain: freezes, fences, looks again.
    fn drain(&self, fenced: bool, reopened: u64) -> u64 {
        loop {
            self.cell.freeze();
            if fenced {
                self.fence();
            }
            if self.cell.word.load(Ordering::Acquire) & word::FROZEN != 0 {
                break;
            }
        }
        let word = self.cell.word.load(Ordering::Acquire);
        self.cell.cap.store(0, Ordering::Relaxed);
        self.cell.open(reopened);
        word::stock(word)
    }
}

fn section_against_drain(fenced: bool) {
    model(move || {
        let cpu = Cpu::new(word::empty(1) | 4, 8);
        let other = cpu.clone();
        let owner = thread::spawn(move || {
            let taken = 3 * u64::from(other.section(ID, TAKE, false));
            let put = 2 * u64::from(other.section(ID, word::UNCHARGE + 2, true));
            taken.wrapping_sub(put)
        });
        let drained = cpu.drain(fenced, word::empty(1));
        let net = owner.join().unwrap();
        let left = word::stock(cpu.cell.word.load(Ordering::Relaxed));
        assert_eq!(drained.wrapping_add(left).wrapping_add(net), 4);
    });
}

#[test]
fn a_section_against_a_remote_drain_loses_no_unit() {
    section_against_drain(true);
}

#[test]
#[should_panic(expected = "assertion")]
fn without_the_fence_units_are_lost_and_the_model_sees_it() {
    section_against_drain(false);
}

#[test]
fn a_stale_id_never_reaches_the_next_group_of_its_row() {
    model(|| {
        // By section.
        let cpu = Cpu::new(word::empty(1) | 4, 8);
        let other = cpu.clone();
        let stale =
            thread::spawn(move || 2 * u64::from(other.section(ID, word::UNCHARGE + 2, true)));
        let drained = cpu.drain(true, word::empty(1) | word::FROZEN);
        cpu.cell.cap.store(8, Ordering::Relaxed);
        cpu.cell.open(word::empty(2));
        assert_eq!(drained, 4 + stale.join().unwrap(), "credited before the drain, or refused");
        assert_eq!(cpu.cell.word.load(Ordering::Relaxed), word::empty(2));
    });
    model(|| {
        // By atomics.
        let cell = Arc::new(Cell::new(word::empty(1) | 4, 8));
        let other = cell.clone();
        let stale =
            thread::spawn(move || 2 * u64::from(other.update(ID, word::UNCHARGE + 2, true)));
        cell.freeze();
        let drained = word::stock(cell.word.load(Ordering::Acquire));
        cell.open(word::empty(2));
        assert_eq!(drained, 4 + stale.join().unwrap());
        assert_eq!(cell.word.load(Ordering::Relaxed), word::empty(2));
    });
}

#[test]
fn a_free_row_is_handed_out_once() {
    model(|| {
        let list = Arc::new(FreeList::new());
        let next = Arc::new([AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)]);
        list.push(1, &next[1]);
        list.push(2, &next[2]);
        let (list2, next2) = (list.clone(), next.clone());
        let there = thread::spawn(move || {
            let row = list2.pop(|row| Some(&next2[row as usize]));
            if let Some(row) = row {
                list2.push(row, &next2[row as usize]);
            }
            list2.pop(|row| Some(&next2[row as usize]))
        });
        let here = list.pop(|row| Some(&next[row as usize]));
        let there = there.join().unwrap();
        assert!(here.is_some() && there.is_some());
        assert_ne!(here, there, "the same row for two groups");
        assert_eq!(list.pop(|row| Some(&next[row as usize])), None);
    });
}

/// Closes a gate with so many slots in one thread, while another passes it.
fn close_against_a_passer(slots: usize) {
    model(move || {
        let gate = Arc::new(Gate::new(slots));
        let inside = Arc::new(AtomicU64::new(0));
        let (gate2, inside2) = (gate.clone(), inside.clone());
        let there = thread::spawn(move || {
            let _pass = gate2.enter(1 << 6);
            inside2.fetch_add(1, Ordering::Relaxed);
            inside2.fetch_sub(1, Ordering::Relaxed);
        });
        if gate.close(2 << 6) {
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            gate.open();
        }
        there.join().unwrap();
        assert!(gate.quiet().is_some());
    });
}

#[test]
fn a_closed_gate_has_nobody_inside() {
    close_against_a_passer(1);
}

#[test]
fn a_closed_gate_has_nobody_inside_who_found_no_slot() {
    close_against_a_passer(0);
}

#[test]
fn who_was_inside_between_two_looks_at_a_quiet_gate_is_seen() {
    model(|| {
        let gate = Arc::new(Gate::new(1));
        let seen = Arc::new(AtomicU64::new(0));
        let (gate2, seen2) = (gate.clone(), seen.clone());
        let there = thread::spawn(move || {
            let _pass = gate2.enter(1 << 6);
            seen2.fetch_add(1, Ordering::AcqRel);
            seen2.fetch_add(1, Ordering::AcqRel);
        });
        let before = gate.quiet();
        let half_done = seen.load(Ordering::Acquire) == 1;
        if before.is_some() && before == gate.quiet() {
            assert!(!half_done, "a step of a thread inside was seen, and the thread was not");
        }
        there.join().unwrap();
    });
}

#[test]
fn a_reading_between_two_quiet_moments_shows_a_transfer_whole_or_not_at_all() {
    model(|| {
        let [from, to] = [0, 1].map(|_| Arc::new(PageCounter::new(100)));
        walk::try_charge(&[&from], 5).unwrap();
        let moves = Arc::new(Moves::default());
        let other = (from.clone(), to.clone(), moves.clone());
        let mover = thread::spawn(move || {
            let (from, to, moves) = other;
            let under_way = moves.begin();
            walk::try_charge(&[&to], 5).unwrap();
            walk::uncharge(&[&from], 5).1.unwrap();
            drop(under_way);
        });
        let before = moves.quiet();
        let seen = (from.usage(), to.usage());
        if before.is_some() && moves.quiet() == before {
            assert!(matches!(seen, (5, 0) | (0, 5)), "{seen:?}");
        }
        mover.join().unwrap();
        assert_eq!(moves.quiet(), Some(1));
        assert_eq!((from.usage(), to.usage()), (0, 5));
    });
}
