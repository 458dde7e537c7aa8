//! The instructions of the sections on arm64.
//!
//! Other CPUs may see this machine's plain loads and stores in another order than program order. `../README.md` lists
//! the orderings that the sections' proof needs (O1 to O5). A load that must come before the next is `ldar`, whose
//! partner is the release store of the thread that opened the word. A commit is a plain store.

/// Arms a restartable section: descriptor, abort trampoline, the section's instructions.
///
/// `{a}` is a register for the address of the area's `rseq_cs`, and `{area}` the register with its distance from the
/// thread pointer. Local labels: 4 descriptor, 2 start, 3 behind the commit, 5 abort address, 6 restart. The restart
/// arms the section again, since the kernel disarms it on abort.
///
/// The macro uses `x16` and `x17`. They have to be free in any case: if the trampoline is too far for its branch, the
/// linker inserts a veneer that may use these two. The trampoline keeps a body's other registers, but a body computes
/// everything again after a restart.
///
/// One abort in `PATIENCE` fails the section instead (`../instructions.rs`), except with `for_ever`.
macro_rules! armed {
    ([$($body:expr),* $(,)?] $($operands:tt)*) => {
        armed!(
            @with [
                "adrp x16, {aborts}",
                "add x16, x16, :lo12:{aborts}",
                "ldr w17, [x16]",
                "subs w17, w17, 1",
                "str w17, [x16]",
                // A conditional branch does not reach as far.
                "b.le 7f",
                "b 6f",
                "7:",
                "mov w17, {patience}",
                "str w17, [x16]",
                "b {no}",
            ] [$($body),*]
            aborts = sym $crate::percpu::instructions::ABORTS,
            patience = const $crate::percpu::instructions::PATIENCE,
            $($operands)*
        )
    };
    (for_ever [$($body:expr),* $(,)?] $($operands:tt)*) => {
        armed!(@with ["b 6f"] [$($body),*] $($operands)*)
    };
    (@with [$($abort:expr),* $(,)?] [$($body:expr),*] $($operands:tt)*) => {
        std::arch::asm!(
            descriptor!(),
            ".pushsection .text.rseq_abort, \"ax\", %progbits, unique, .Lledgerline_descriptors",
            ".balign 4",
            ".inst 0xd428bc00",
            "5:",
            abort_count!(),
            $($abort,)*
            ".popsection",
            "mrs {a}, tpidr_el0",
            "add {a}, {a}, {area}",
            "6:",
            "adrp x16, 4b",
            "add x16, x16, :lo12:4b",
            "str x16, [{a}]",
            "2:",
            $($body,)*
            "3:",
            out("x16") _,
            out("x17") _,
            a = out(reg) _,
            $($operands)*
            options(nostack),
        )
    };
}

/// Marks a numbered place inside a section at which a test can hold the thread (see `../inject.rs`). It changes the
/// flags.
#[cfg(test)]
macro_rules! point {
    ($number:literal) => {
        concat!(
            "adrp x16, ledgerline_inject_point",
            "\n add x16, x16, :lo12:ledgerline_inject_point",
            "\n ldr w17, [x16]",
            "\n cmp w17, ",
            $number,
            "\n b.ne 99f",
            "\n adrp x16, ledgerline_inject_reached",
            "\n add x16, x16, :lo12:ledgerline_inject_reached",
            "\n str w17, [x16]",
            "\n adrp x16, ledgerline_inject_point",
            "\n add x16, x16, :lo12:ledgerline_inject_point",
            "\n 98: yield",
            "\n ldr w17, [x16]",
            "\n cmp w17, ",
            $number,
            "\n b.eq 98b",
            "\n 99:"
        )
    };
}
/// Counts an abort, for tests. Two at once may be counted as one, since tests only check whether there was any.
#[cfg(test)]
macro_rules! abort_count {
    () => {
        "adrp x16, ledgerline_inject_aborts\n add x16, x16, :lo12:ledgerline_inject_aborts
         ldr w17, [x16]\n add w17, w17, 1\n str w17, [x16]
         adrp x16, ledgerline_inject_point\n add x16, x16, :lo12:ledgerline_inject_point
         str wzr, [x16]"
    };
}
/// Runs a section by its name: its instructions, with the caller's operands. Operands that differ by machine are made
/// from the expressions in parentheses.
macro_rules! section {
    // Only one word that other threads write is loaded, so no order is needed (O1). The same holds for `take`,
    // `add_return`, `add_marked`, `add_i64` and `take_from_thread_cache`.
    (add: $($operands:tt)*) => {
        armed!(for_ever [
            point!(1),
            "ldr {c:w}, [{a}, {index}]",
            point!(2),
            "mul {c}, {c}, {stride}",
            "ldr {t}, [{base}, {c}]",
            point!(3),
            "add {t}, {t}, {n}",
            point!(4),
            "str {t}, [{base}, {c}]",
        ] $($operands)*)
    };
    // The tag is loaded before the sum (O3): a tag is set by a release store after its sums were taken
    // (`table/sums.rs`).
    (add_tagged: $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {c:w}, [{a}, {index}]",
            point!(2),
            "mul {c}, {c}, {stride}",
            "add {c}, {c}, {cell}",
            "ldar {t}, [{c}]",
            "cmp {t}, {tag}",
            "b.ne {no}",
            point!(3),
            "ldr {t}, [{c}, {offset}]",
            "add {t}, {t}, {n}",
            point!(4),
            "str {t}, [{c}, {offset}]",
        ] $($operands)*)
    };

    (take: $($operands:tt)*) => {
        section!(@update "ldr {t}, [{c}]", ["add {t}, {t}, {delta}"] $($operands)*)
    };
    // The word is loaded before the cap (O2): an open word is stored after its cap, by a release store (`Cell::open`).
    (put: $($operands:tt)*) => {
        section!(
            @update
            "ldar {t}, [{c}]",
            ["ldr {x:w}, [{c}, 8]", "add {t}, {t}, {delta}", "cmp {t:w}, {x:w}", "b.hi {no}"]
            $($operands)*
        )
    };
    (@update $load:literal, [$($sum:literal),*] $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {c:w}, [{a}, {index}]",
            point!(2),
            "add {c}, {cell}, {c}, lsl {shift}",
            $load,
            point!(3),
            $($sum,)*
            "eor {x}, {t}, {id}",
            point!(4),
            "tst {x}, {test}",
            "b.ne {no}",
            point!(5),
            "str {t}, [{c}]",
        ] $($operands)*)
    };

    // Acquire and release, like the fallback's exchange: a slow path may rely on the order of its stores (O5).
    (compare_store: $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {t:w}, [{a}, {index}]",
            "cmp {t:w}, {column:w}",
            "b.ne {no}",
            point!(2),
            "ldar {t}, [{cell}]",
            "cmp {t}, {expected}",
            "b.ne {no}",
            point!(3),
            "stlr {new}, [{cell}]",
        ] $($operands)*)
    };

    (take_lent($lent:expr): $($operands:tt)*) => {
        section!(@update_lent $lent, "ldr {t}, [{c}]", ["add {t}, {t}, {delta}"] $($operands)*)
    };
    // The order is as in `put` (O2).
    (put_lent($lent:expr): $($operands:tt)*) => {
        section!(
            @update_lent
            $lent,
            "ldar {t}, [{c}]",
            ["ldr {x:w}, [{c}, 8]", "add {t}, {t}, {delta}", "cmp {t:w}, {x:w}", "b.hi {no}"]
            $($operands)*
        )
    };
    // The number is loaded before the cells' address (O4), by a dependency: the address is loaded from `cells` plus the
    // difference of the numbers, which is zero. That costs nothing, whereas an acquire would wait for the releases
    // before it.
    (@update_lent $lent:expr, $load:literal, [$($sum:literal),*] $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {x}, [{lent}]",
            "eor {x}, {x}, {number}",
            "cbnz {x}, {no}",
            point!(2),
            "ldr {c:w}, [{a}, {index}]",
            "ldr {t}, [{cells}, {x}]",
            "add {c}, {t}, {c}, lsl {shift}",
            "add {c}, {c}, {id:w}, uxtw {cell_shift}",
            $load,
            point!(3),
            $($sum,)*
            "eor {x}, {t}, {id}",
            point!(4),
            "tst {x}, {test}",
            "b.ne {no}",
            point!(5),
            "str {t}, [{c}]",
        ]
        lent = in(reg) &raw const $lent.number,
        cells = in(reg) &raw const $lent.cells,
        test = in(reg) $crate::percpu::word::TEST,
        $($operands)*)
    };

    // Like `add`, which leaves the sum and the distance in registers.
    (add_return: $($operands:tt)*) => { section!(add: $($operands)*) };
    (add_marked: $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {c:w}, [{a}, {index}]",
            point!(2),
            "mul {c}, {c}, {stride}",
            "ldr {t}, [{base}, {c}]",
            point!(3),
            "tst {t}, {mark}",
            "b.eq {no}",
            "adds {t}, {t}, {delta}",
            "b.vs {no}",
            point!(4),
            "str {t}, [{base}, {c}]",
        ] $($operands)*)
    };

    // The limits are loaded by `ldarb` or `ldarh`, so that the word is loaded after them (O3). The partner is the
    // release store that opens a block (`../../stat/fold.rs`).
    (up_u8($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, 0, "ldarb {x:w}, [{x}]", "and {y:w}, {y:w}, 0xff", "b.hi {no}", $($operands)*)
    };
    (down_u8($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, 1, "ldarb {x:w}, [{x}]", "and {y:w}, {y:w}, 0xff", "b.lt {no}", $($operands)*)
    };
    (up_u16($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, 0, "ldarh {x:w}, [{x}]", "and {y:w}, {y:w}, 0xffff", "b.hi {no}", $($operands)*)
    };
    (@bounded $lane:expr, $at:literal, $limit:literal, $cut:literal, $fail:literal, $($operands:tt)*) => {
        section!(@lane $lane, $at, $limit, $cut, $fail, ["add {y:w}, {y:w}, {n:w}"] $($operands)*)
    };
    (inc_u8($lane:expr): $($operands:tt)*) => { section!(@by_one $lane, 0, "b.hs {no}", $($operands)*) };
    (dec_u8($lane:expr): $($operands:tt)*) => { section!(@by_one $lane, 1, "b.ls {no}", $($operands)*) };
    (@by_one $lane:expr, $at:literal, $fail:literal, $($operands:tt)*) => {
        section!(@lane $lane, $at, "ldarb {x:w}, [{x}]", "and {y:w}, {y:w}, 0xff", $fail, [] $($operands)*)
    };
    (@lane $lane:expr, $at:literal, $limit:literal, $cut:literal, $fail:literal, [$($add:literal),*] $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {o:w}, [{a}, {index}]",
            point!(2),
            "mul {o}, {o}, {stride}",
            "add {x}, {o}, {limit}",
            $limit,
            point!(3),
            "ldr {t}, [{word}, {o}]",
            "lsr {y}, {t}, {shift:x}",
            $cut,
            $($add,)*
            "add {t}, {t}, {shifted}",
            point!(4),
            "cmp {y:w}, {x:w}",
            $fail,
            point!(5),
            "str {t}, [{word}, {o}]",
        ]
        limit = in(reg) $lane.block.wrapping_add($at),
        shift = in(reg) $lane.shift,
        $($operands)*)
    };
    (add_i64: $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {o:w}, [{a}, {index}]",
            point!(2),
            "mul {o}, {o}, {stride}",
            point!(3),
            "ldr {t}, [{word}, {o}]",
            point!(4),
            "adds {t}, {t}, {n}",
            "b.vs {no}",
            point!(5),
            "str {t}, [{word}, {o}]",
        ] $($operands)*)
    };
    (compare_store_lane($limits:expr): $($operands:tt)*) => {
        armed!([
            point!(1),
            "ldr {t:w}, [{a}, {index}]",
            "cmp {t:w}, {column:w}",
            "b.ne {no}",
            point!(2),
            "ldarh {t:w}, [{block}]",
            "cmp {t:w}, {limits:w}",
            "b.ne {no}",
            point!(3),
            "ldr {t}, [{word}]",
            "cmp {t}, {old}",
            "b.ne {no}",
            point!(4),
            "stlr {new}, [{word}]",
        ]
        limits = in(reg) u32::from($limits),
        $($operands)*)
    };

    (take_from_thread_cache: $($operands:tt)*) => {
        armed!([
            point!(1),
            "mrs {t}, tpidr_el0",
            "ldr {thread_cache}, [{t}, {mine}]",
            "ldr {t}, [{thread_cache}, {group_at}]",
            "cmp {t}, {group}",
            "b.ne {no}",
            point!(2),
            "ldr {t}, [{thread_cache}]",
            point!(3),
            "subs {t}, {t}, {delta}",
            "b.lt {no}",
            point!(4),
            "ldr {number}, [{thread_cache}, {number_at}]",
            "strh {number:w}, [{label}]",
            point!(5),
            "str {t}, [{thread_cache}]",
        ] $($operands)*)
    };
    // The word is loaded before `most` (O2): it is opened last, by a release store.
    (put_into_thread_cache($guards:expr): $($operands:tt)*) => {
        armed!([
            point!(1),
            "mrs {t}, tpidr_el0",
            "ldr {thread_cache}, [{t}, {mine}]",
            "ldr {t}, [{thread_cache}, {number_at}]",
            "cmp {t}, {number}",
            "b.ne {no}",
            point!(2),
            "ldar {t}, [{thread_cache}]",
            point!(3),
            "ldr {x}, [{thread_cache}, {most_at}]",
            "add {t}, {t}, {delta}",
            "cmp {t}, {x}",
            "b.hi {no}",
            point!(4),
            "tst {t:w}, {guards:w}",
            "b.ne {no}",
            point!(5),
            "str {t}, [{thread_cache}]",
        ]
        x = out(reg) _,
        guards = in(reg) $guards,
        $($operands)*)
    };
}
