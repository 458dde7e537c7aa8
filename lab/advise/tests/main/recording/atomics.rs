//! Atomic operations have their effect, with or without recording.

use super::support;
use super::support::{Test, record};

/// Compares every operation of every size with the same on plain numbers, then checks sums under contention.
const SOURCE: &str = r#"
    #include <pthread.h>
    #include <stdint.h>
    typedef unsigned __int128 uint128_t;
    #define ALL(bits) \
        static uint##bits##_t variable##bits; \
        static int check##bits(void) { \
            typedef uint##bits##_t number; \
            number *v = &variable##bits; \
            number seen, old = (number)0x0123456789abcdefull, other = (number)0xf0e1d2c3b4a59687ull; \
            old |= old << (bits / 2); other ^= other << (bits / 2 - 1); \
            __atomic_store_n(v, old, __ATOMIC_RELEASE); \
            if (__atomic_load_n(v, __ATOMIC_ACQUIRE) != old) return 1; \
            if (__atomic_exchange_n(v, other, __ATOMIC_ACQ_REL) != old || __atomic_load_n(v, 0) != other) return 2; \
            __atomic_store_n(v, old, __ATOMIC_SEQ_CST); \
            if (__atomic_fetch_add(v, other, 0) != old || *v != (number)(old + other)) return 3; \
            if (__atomic_fetch_sub(v, other, 5) != (number)(old + other) || *v != old) return 4; \
            if (__atomic_fetch_and(v, other, 2) != old || *v != (old & other)) return 5; \
            *v = old; if (__atomic_fetch_or(v, other, 3) != old || *v != (old | other)) return 6; \
            *v = old; if (__atomic_fetch_xor(v, other, 4) != old || *v != (old ^ other)) return 7; \
            *v = old; if (__atomic_fetch_nand(v, other, 5) != old || *v != (number)~(old & other)) return 8; \
            *v = old; if (__atomic_add_fetch(v, other, 5) != (number)(old + other)) return 9; \
            *v = old; seen = other; \
            if (__atomic_compare_exchange_n(v, &seen, 1, 0, 5, 0) || seen != old || *v != old) return 10; \
            if (!__atomic_compare_exchange_n(v, &seen, other, 0, 5, 0) || *v != other) return 11; \
            seen = other; \
            while (!__atomic_compare_exchange_n(v, &seen, old, 1, 2, 0)) if (seen != other) return 12; \
            if (*v != old || __sync_val_compare_and_swap(v, old, other) != old || *v != other) return 13; \
            *v = 0; \
            return 0; \
        } \
        static void add##bits(void) { \
            for (int i = 0; i < 20000; i++) { \
                __atomic_fetch_add(&variable##bits, 1, __ATOMIC_RELAXED); \
                uint##bits##_t seen = __atomic_load_n(&variable##bits, __ATOMIC_RELAXED); \
                while (!__atomic_compare_exchange_n(&variable##bits, &seen, seen + 2, 1, 5, 0)); \
            } \
        }
    ALL(8) ALL(16) ALL(32) ALL(64) ALL(128)
    static void *work(void *none) { add8(); add16(); add32(); add64(); add128(); return none; }
    int main(void) {
        int bad = check8() + 20 * check16() + 400 * check32() + 8000 * check64() + 160000 * check128();
        if (bad) { __builtin_printf("%d\n", bad); return 1; }
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        uint64_t sum = 3 * 60000;
        if (variable8 != (uint8_t)sum || variable16 != (uint16_t)sum || variable32 != sum || variable64 != sum
            || variable128 != sum) return 2;
        return 0;
    }"#;

#[test]
fn every_atomic_operation_is_done_and_sums_are_right_under_contention() {
    for flags in [&["-O0", "-Wno-tsan"], &["-O2", "-Wno-tsan"]] {
        let Some(built) = support::build(SOURCE, "", flags) else { return };
        let output = support::command(&built.path).output().unwrap();
        assert!(output.status.success(), "{flags:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn atomic_operations_on_recorded_fields_are_done_and_counted_by_kind() {
    let source = r#"
        #include <pthread.h>
        #include <stdatomic.h>
        #include <stdbool.h>
        struct s { atomic_uchar a; atomic_ushort b; atomic_uint c; atomic_ulong d; atomic_bool flag; } object;
        static void *work(void *none) {
            for (int i = 0; i < 10000; i++) {
                object.a++; object.b += 2; object.c += 3; object.d += 4;
                atomic_store_explicit(&object.flag, true, memory_order_relaxed);
                (void)atomic_load(&object.flag);
            }
            return none;
        }
        int main(void) {
            pthread_t threads[3];
            for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            return !(object.a == (30000 & 255) && object.b == (60000 & 65535) && object.c == 90000
                && object.d == 120000);
        }"#;
    let test = Test { source, flags: &["-O2"], types: &["s"], ..Test::default() };
    let Some(run) = record(&test) else { return };
    for field in ["a", "b", "c", "d"] {
        assert_eq!(run.all("s", field), [1, 0, 30_000], "{field}");
    }
    assert_eq!(run.all("s", "flag"), [30_000, 30_000, 0]);
}
