//! A scheduler that switches stacks by itself keeps each fiber's current group by `swap`.

use ledgerline::current::{self, Current};
use ledgerline::{Group, Ledger};
use std::cell::RefCell;
use std::mem::zeroed;

/// Bytes of a fiber's stack.
const STACK: usize = 256 << 10;
const ROUNDS: usize = 50;

/// Two stacks on one thread: the scheduler's and the fiber's.
struct Fiber {
    context: Box<libc::ucontext_t>,
    scheduler: Box<libc::ucontext_t>,
    _stack: Vec<u8>,
    current: Current,
    group: Group<'static>,
    other: Group<'static>,
    seen: usize,
    done: bool,
}

thread_local! {
    static RUNS: RefCell<*mut Fiber> = const { RefCell::new(std::ptr::null_mut()) };
}

/// Returns the thread to the scheduler.
fn yield_now() {
    let fiber = RUNS.with_borrow(|fiber| *fiber);
    // SAFETY: both contexts live as long as the fiber, which runs; the scheduler waits in `resume`.
    unsafe { assert_eq!(libc::swapcontext(&mut *(*fiber).context, &*(*fiber).scheduler), 0) };
}

/// The work of each fiber, on its own stack.
extern "C" fn body() {
    let fiber = RUNS.with_borrow(|fiber| *fiber);
    // SAFETY: it lives as long as it runs, and the scheduler looks at it only in between.
    let (group, other) = unsafe { ((*fiber).group, (*fiber).other) };
    for round in 0..ROUNDS {
        assert_eq!(current::group(), Some(group));
        let held = current::try_charge(64).unwrap().expect("a group is current");
        yield_now();
        assert_eq!(current::group(), Some(group), "after the others ran");
        // A guard and a scope live across a switch.
        let entered = other.enter();
        yield_now();
        assert_eq!(current::group(), Some(other));
        current::unattributed(|| {
            yield_now();
            assert_eq!(current::group(), None);
        });
        drop(entered);
        drop(held);
        // SAFETY: as above.
        unsafe { (*fiber).seen = round + 1 };
    }
    // SAFETY: as above.
    unsafe { (*fiber).done = true };
    yield_now();
    unreachable!("a fiber that is done is not resumed");
}

impl Fiber {
    fn new(group: Group<'static>, other: Group<'static>) -> Box<Fiber> {
        let mut stack = vec![0u8; STACK];
        // SAFETY: `getcontext` fills it in.
        let mut context: Box<libc::ucontext_t> = Box::new(unsafe { zeroed() });
        // SAFETY: the stack lives as long as the context, beside it.
        unsafe {
            assert_eq!(libc::getcontext(&mut *context), 0);
            context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
            context.uc_stack.ss_size = STACK;
            libc::makecontext(&mut *context, body, 0);
        }
        Box::new(Fiber {
            context,
            // SAFETY: `swapcontext` fills it in.
            scheduler: Box::new(unsafe { zeroed() }),
            _stack: stack,
            current: group.into(),
            group,
            other,
            seen: 0,
            done: false,
        })
    }
}

/// Runs a fiber until it yields, as a runtime does with `swap`.
fn resume(fiber: *mut Fiber) {
    RUNS.set(fiber);
    // SAFETY: the fiber is not running, and this waits until it yields.
    unsafe {
        let scheduler = current::swap((*fiber).current);
        assert_eq!(libc::swapcontext(&mut *(*fiber).scheduler, &*(*fiber).context), 0);
        (*fiber).current = current::swap(scheduler);
    }
}

#[test]
fn fibers_that_alternate_on_one_thread_keep_their_groups_across_guards_and_scopes() {
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap().into_static();
    let groups: [Group<'static>; 8] =
        std::array::from_fn(|number| ledger.root().create(&number.to_string()).unwrap());
    let scheduler = ledger.root().create("scheduler").unwrap();
    let _entered = scheduler.enter();
    let fibers: Vec<*mut Fiber> =
        (0..8).map(|at| Box::into_raw(Fiber::new(groups[at], groups[(at + 3) % 8]))).collect();
    let mut turns = 0;
    // SAFETY: each was created above, and none runs while the scheduler does.
    while let Some(_left) = fibers.iter().find(|&&fiber| unsafe { !(*fiber).done }) {
        for &fiber in &fibers {
            // SAFETY: as above.
            if unsafe { !(*fiber).done } {
                resume(fiber);
                turns += 1;
                assert_eq!(current::group(), Some(scheduler));
            }
        }
    }
    assert_eq!(turns, 8 * (3 * ROUNDS + 1));
    for fiber in fibers {
        // SAFETY: each is freed once; its stack is empty.
        let fiber = unsafe { Box::from_raw(fiber) };
        assert_eq!((fiber.seen, fiber.current.group()), (ROUNDS, Some(fiber.group)));
        assert_eq!(fiber.group.precise(), 0);
    }
}
