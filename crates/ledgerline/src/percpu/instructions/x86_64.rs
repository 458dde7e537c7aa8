//! The instructions of the sections on x86-64.
//!
//! Loads keep their order here, and so do stores: no section needs more than plain instructions.
//!
//! A processor forwards a whole word from a store to the next load at once, but a byte only after many cycles: on Zen 4
//! an update of a lane takes 2.4 ns by bytes, and 0.6 ns by words.

/// Arms a restartable section: descriptor, abort trampoline, the section's instructions.
///
/// `{t}` is a scratch register, and `{area}` the register with the address of the area's `rseq_cs` relative to the
/// thread pointer. Local labels: 4 descriptor, 2 start, 3 behind the commit, 5 abort address, 6 restart. The restart
/// arms the section again, since the kernel disarms it on abort.
///
/// One abort in `PATIENCE` fails the section instead (`../instructions.rs`), except with `for_ever`.
macro_rules! armed {
    ([$($body:expr),* $(,)?] $($operands:tt)*) => {
        armed!(
            @with [
                "dec dword ptr [rip + {aborts}]",
                "jg 6f",
                "mov dword ptr [rip + {aborts}], {patience}",
                "jmp {no}",
            ] [$($body),*]
            aborts = sym $crate::percpu::instructions::ABORTS,
            patience = const $crate::percpu::instructions::PATIENCE,
            $($operands)*
        )
    };
    (for_ever [$($body:expr),* $(,)?] $($operands:tt)*) => {
        armed!(@with ["jmp 6f"] [$($body),*] $($operands)*)
    };
    (@with [$($abort:expr),* $(,)?] [$($body:expr),*] $($operands:tt)*) => {
        std::arch::asm!(
            descriptor!(),
            ".pushsection .text.rseq_abort, \"ax\", %progbits, unique, .Lledgerline_descriptors",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "5:",
            abort_count!(),
            $($abort,)*
            ".popsection",
            "6:",
            "lea {t}, [rip + 4b]",
            "mov fs:[{area}], {t}",
            "2:",
            $($body,)*
            "3:",
            $($operands)*
            options(nostack),
        )
    };
}

/// Marks a numbered place inside a section at which a test can hold the thread (see `../inject.rs`).
#[cfg(test)]
macro_rules! point {
    ($number:literal) => {
        concat!(
            "cmp dword ptr [rip + ledgerline_inject_point], ",
            $number,
            "\n jne 99f",
            "\n mov dword ptr [rip + ledgerline_inject_reached], ",
            $number,
            "\n 98: pause",
            "\n cmp dword ptr [rip + ledgerline_inject_point], ",
            $number,
            "\n je 98b",
            "\n 99:"
        )
    };
}
#[cfg(test)]
macro_rules! abort_count {
    () => {
        "lock inc dword ptr [rip + ledgerline_inject_aborts]\n mov dword ptr [rip + ledgerline_inject_point], 0"
    };
}
/// Runs a section by its name: its instructions, with the caller's operands. Operands that differ by machine are made
/// from the expressions in parentheses.
macro_rules! section {
    (add: $($operands:tt)*) => {
        armed!(for_ever [
            point!(1),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {c}, {stride}",
            point!(3),
            "add qword ptr [{c} + {base}], {n}",
        ] $($operands)*)
    };
    (add_tagged: $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {c}, {stride}",
            "add {c}, {cell}",
            "cmp {tag}, qword ptr [{c}]",
            "jne {no}",
            point!(3),
            "add qword ptr [{c} + {offset}], {n}",
        ] $($operands)*)
    };

    (take: $($operands:tt)*) => { section!(@any [] $($operands)*) };
    // The word is read before the cap: an open word is stored after its cap (`Cell::open`).
    (put: $($operands:tt)*) => {
        section!(@any ["cmp {t:e}, dword ptr [{c} + {cell} + 8]", "ja {no}"] $($operands)*)
    };
    (@any $cap:tt $($operands:tt)*) => {
        section!(@update $cap ["xor {x}, {id}", point!(4), "test {x}, {test}"] $($operands)*)
    };
    (take_first: $($operands:tt)*) => { section!(@first [] $($operands)*) };
    (put_first: $($operands:tt)*) => {
        section!(@first ["cmp {t:e}, dword ptr [{c} + {cell} + 8]", "ja {no}"] $($operands)*)
    };
    (@first $cap:tt $($operands:tt)*) => {
        section!(
            @update $cap
            ["shr {x}, {first_shift}", point!(4), "and {x:e}, {test}", "cmp {x:e}, {first}"]
            $($operands)*
        )
    };
    (@update [$($cap:literal),*] [$($test:expr),*] $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "shl {c}, {shift}",
            "mov {t}, qword ptr [{c} + {cell}]",
            point!(3),
            "add {t}, {delta}",
            $($cap,)*
            "mov {x}, {t}",
            $($test,)*
            "jne {no}",
            point!(5),
            "mov qword ptr [{c} + {cell}], {t}",
        ] $($operands)*)
    };

    (compare_store: $($operands:tt)*) => {
        armed!([
            point!(1),
            "cmp {column:e}, dword ptr fs:[{area} + {index}]",
            "jne {no}",
            point!(2),
            "cmp {expected}, qword ptr [{cell}]",
            "jne {no}",
            point!(3),
            "mov qword ptr [{cell}], {new}",
        ] $($operands)*)
    };

    (take_lent($lent:expr): $($operands:tt)*) => { section!(@update_lent $lent, [] $($operands)*) };
    (put_lent($lent:expr): $($operands:tt)*) => {
        section!(@update_lent $lent, ["cmp {t:e}, dword ptr [{c} + 8]", "ja {no}"] $($operands)*)
    };
    (@update_lent $lent:expr, [$($cap:literal),*] $($operands:tt)*) => {
        armed!([
            point!(1),
            "cmp qword ptr [{lent}], {number}",
            "jne {no}",
            point!(2),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            "mov {x:e}, {id:e}",
            "shl {c}, {shift}",
            "shl {x}, {cell_shift}",
            "add {c}, qword ptr [{lent} + 8]",
            "add {c}, {x}",
            "mov {t}, qword ptr [{c}]",
            point!(3),
            "add {t}, {delta}",
            $($cap,)*
            "mov {x}, {t}",
            "xor {x}, {id}",
            point!(4),
            "test {x}, qword ptr [rip + {test}]",
            "jne {no}",
            point!(5),
            "mov qword ptr [{c}], {t}",
        ]
        lent = in(reg) $lent,
        test = sym $crate::percpu::word::TESTED,
        $($operands)*)
    };

    (add_return: $($operands:tt)*) => {
        armed!(for_ever [
            point!(1),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {c}, {stride}",
            "mov {t}, qword ptr [{c} + {base}]",
            point!(3),
            "add {t}, {n}",
            point!(4),
            "mov qword ptr [{c} + {base}], {t}",
        ] $($operands)*)
    };
    (add_marked: $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {c:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {c}, {stride}",
            "mov {t}, qword ptr [{c} + {base}]",
            point!(3),
            "test {t:l}, {mark}",
            "je {no}",
            "add {t}, {delta}",
            "jo {no}",
            point!(4),
            "mov qword ptr [{c} + {base}], {t}",
        ] $($operands)*)
    };

    // The limits are loaded before the word.
    (up_u8($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, "movzx {x:e}, byte ptr [{o} + {block}]", "movzx {y:e}, {y:l}", "ja {no}", $($operands)*)
    };
    (down_u8($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, "movzx {x:e}, byte ptr [{o} + {block} + 1]", "movzx {y:e}, {y:l}", "jl {no}", $($operands)*)
    };
    (up_u16($lane:expr): $($operands:tt)*) => {
        section!(@bounded $lane, "movzx {x:e}, word ptr [{o} + {block}]", "movzx {y:e}, {y:x}", "ja {no}", $($operands)*)
    };
    (@bounded $lane:expr, $limit:literal, $cut:literal, $fail:literal, $($operands:tt)*) => {
        section!(@lane $lane, $limit, $fail, [$cut, "add {y:e}, {n:e}"], ["cmp {y:e}, {x:e}"] $($operands)*)
    };
    (inc_u8($lane:expr): $($operands:tt)*) => {
        section!(@by_one $lane, "movzx {x:e}, byte ptr [{o} + {block}]", "jae {no}", $($operands)*)
    };
    (dec_u8($lane:expr): $($operands:tt)*) => {
        section!(@by_one $lane, "movzx {x:e}, byte ptr [{o} + {block} + 1]", "jbe {no}", $($operands)*)
    };
    (@by_one $lane:expr, $limit:literal, $fail:literal, $($operands:tt)*) => {
        section!(@lane $lane, $limit, $fail, [], ["cmp {y:l}, {x:l}"] $($operands)*)
    };
    (@lane $lane:expr, $limit:literal, $fail:literal, [$($add:literal),*], [$compare:literal] $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {o:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {o}, {stride}",
            $limit,
            point!(3),
            "mov {t}, qword ptr [{o} + {word}]",
            "mov {y}, {t}",
            "shr {y}, cl",
            $($add,)*
            "add {t}, {shifted}",
            point!(4),
            $compare,
            $fail,
            point!(5),
            "mov qword ptr [{o} + {word}], {t}",
        ]
        block = in(reg) $lane.block,
        in("ecx") $lane.shift,
        $($operands)*)
    };
    (add_i64: $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {o:e}, dword ptr fs:[{area} + {index}]",
            point!(2),
            "imul {o}, {stride}",
            point!(3),
            "mov {t}, qword ptr [{o} + {word}]",
            point!(4),
            "add {t}, {n}",
            "jo {no}",
            point!(5),
            "mov qword ptr [{o} + {word}], {t}",
        ] $($operands)*)
    };
    (compare_store_lane($limits:expr): $($operands:tt)*) => {
        armed!([
            point!(1),
            "cmp {column:e}, dword ptr fs:[{area} + {index}]",
            "jne {no}",
            point!(2),
            "cmp word ptr [{block}], {limits:x}",
            "jne {no}",
            point!(3),
            "cmp {old}, qword ptr [{word}]",
            "jne {no}",
            point!(4),
            "mov qword ptr [{word}], {new}",
        ]
        limits = in(reg) $limits,
        $($operands)*)
    };

    (take_from_thread_cache: $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {thread_cache}, qword ptr fs:[{mine}]",
            "cmp qword ptr [{thread_cache} + {group_at}], {group}",
            "jne {no}",
            point!(2),
            "mov {t}, qword ptr [{thread_cache}]",
            point!(3),
            "sub {t}, {delta}",
            "jl {no}",
            point!(4),
            "mov {number:e}, dword ptr [{thread_cache} + {number_at}]",
            "mov word ptr [{label}], {number:x}",
            point!(5),
            "mov qword ptr [{thread_cache}], {t}",
        ] $($operands)*)
    };
    // The word is read before `most`: it is opened last.
    (put_into_thread_cache($guards:expr): $($operands:tt)*) => {
        armed!([
            point!(1),
            "mov {thread_cache}, qword ptr fs:[{mine}]",
            "cmp qword ptr [{thread_cache} + {number_at}], {number}",
            "jne {no}",
            point!(2),
            "mov {t}, qword ptr [{thread_cache}]",
            point!(3),
            "add {t}, {delta}",
            "cmp {t}, qword ptr [{thread_cache} + {most_at}]",
            "ja {no}",
            point!(4),
            "test {t:e}, {guards}",
            "jne {no}",
            point!(5),
            "mov qword ptr [{thread_cache}], {t}",
        ]
        guards = const $guards,
        $($operands)*)
    };
}
