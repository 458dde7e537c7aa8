//! Objects are found at their places, for as long as they exist.

use super::support;
use super::support::{Test, record};
use ledgerline_advise::recording::plan::Heap;
use ledgerline_advise::recording::report;

#[test]
fn blocks_of_the_heap_are_objects_until_they_are_freed() {
    let source = r#"
        #include <stdlib.h>
        struct counter { long usage; long rest[8]; };
        struct other { long fields[20]; };
        __attribute__((noinline)) static struct counter *make(void) { return malloc(sizeof(struct counter)); }
        __attribute__((noinline)) static void hit(volatile long *at) { *at = 1; }
        int main(void) {
            for (int i = 0; i < 100; i++) {
                struct counter *one = make();
                hit(&one->usage);
                free(one);
                /* The address is used again, for something else. */
                long *text = malloc(sizeof(struct counter) - 8);
                hit(text);
                free(text);
            }
            struct counter *row = calloc(5, sizeof *row);
            hit(&row[3].usage);
            hit(&row[4].rest[7]);
            struct counter *grown = make();
            struct other *moved = realloc(grown, sizeof(struct other));
            hit((long *)moved);
            free(moved);
            void *aligned;
            if (posix_memalign(&aligned, 64, sizeof(struct counter))) return 1;
            hit(aligned);
            free(aligned);
            struct counter *last = aligned_alloc(64, 72);
            hit(&last->usage);
            return 0;
        }"#;
    let test = |heap, sites| Test {
        source,
        flags: &["-O2"],
        types: &["counter"],
        heap,
        sites,
        ..Test::default()
    };
    let Some(run) = record(&test(Heap::Exact, &[])) else { return };
    assert_eq!(run.all("counter", "usage"), [0, 103, 0]);
    assert_eq!(run.all("counter", "rest[7]"), [0, 1, 0]);
    // A hundred, two of the row, two aligned.
    assert_eq!(run.objects("counter"), (104, 0));
    let sites = &run.recordings[0].sites;
    let make = sites.iter().find(|site| site.blocks == 101).expect("who made them");
    assert_eq!(run.program.function_at(make.address.unwrap()).as_deref(), Some("make"));
    let Some(run) = record(&test(Heap::Exact, &["make"])) else { return };
    assert_eq!(run.all("counter", "usage"), [0, 100, 0]);
    let Some(run) = record(&test(Heap::None, &[])) else { return };
    assert!(run.recordings[0].threads.is_empty());
}

#[test]
fn arrays_are_taken_where_asked_and_ambiguous_sizes_never() {
    let source = r#"
        #include <stdlib.h>
        struct a { long x[3]; };
        struct b { long y[3]; };
        struct c { long z[5]; };
        struct a *a_pointer; struct c *c_pointer;
        struct b b_global;
        int main(void) {
            volatile long *one = malloc(24), *row = malloc(3 * 40);
            one[0] = 1;
            row[14] = 1;
            *(volatile long *)&b_global.y[1] = 2;
            return 0;
        }"#;
    let test = |heap| Test { source, types: &["a", "b", "c"], heap, ..Test::default() };
    let Some(run) = record(&test(Heap::Exact)) else { return };
    assert_eq!((run.total("a"), run.total("b"), run.total("c")), (0, 1, 0));
    assert_eq!(run.all("b", "y[1]"), [0, 1, 0]);
    let losses = run.recordings[0].losses;
    assert_eq!((losses.ambiguous, losses.ambiguous_size), (1, 24));
    assert_eq!(run.plan.types[0].alike, ["b"]);
    let Some(run) = record(&Test { types: &["c"], ..test(Heap::Arrays) }) else { return };
    assert_eq!(run.all("c", "z[4]"), [0, 1, 0]);
}

#[test]
fn blocks_that_may_be_arrays_are_told_where_asking_would_help() {
    let source = r#"
        #include <stdlib.h>
        #include "ledgerline_record.h"
        struct c { long z[5]; };
        struct c *c_pointer;
        __attribute__((noinline)) static void hit(volatile long *at) { *at = 1; }
        __attribute__((noinline)) static void work(volatile long *at) { *at = 2; }
        int main(void) {
            long *row = malloc(3 * sizeof(struct c)), *freed = malloc(2 * sizeof(struct c));
            hit(row);
            work(row + 14);
            hit(freed + 9);
            free(freed);
            /* Nobody uses these, or they are no array, or the program itself says what they are. */
            c_pointer = malloc(5 * sizeof(struct c));
            hit(malloc(4 * sizeof(struct c) + 8));
            hit(malloc(sizeof(struct c)));
            long *pool = malloc(100 * sizeof(struct c));
            hit(pool);
            LEDGERLINE_ARRAY(pool, 2, "c");
            hit(pool + 7);
            hit(pool + 400);
            return 0;
        }"#;
    let test = |heap, operations| Test {
        source,
        flags: &["-O2"],
        types: &["c"],
        heap,
        operations,
        ..Test::default()
    };
    let Some(run) = record(&test(Heap::Exact, &[])) else { return };
    assert_eq!(run.all("c", "z[4]"), [0, 0, 0]);
    assert_eq!(run.total("c"), 2);
    assert_eq!(run.recordings[0].unasked.clone().into_iter().collect::<Vec<_>>(), [(0, 2)]);
    assert_eq!(run.recordings[0].losses.unasked, 2);
    let recorded = run.profile();
    let text = report::text(&run.plan, &run.recordings, &recorded, &|_| None);
    assert!(
        text.contains(
            "2 blocks of several times the size of `c`, in use and maybe arrays; --heap arrays"
        ),
        "{text}"
    );
    // Operations are named, so blocks that are used outside of them do not count.
    let Some(run) = record(&test(Heap::Exact, &["work"])) else { return };
    assert_eq!(run.recordings[0].losses.unasked, 1);
    let Some(run) = record(&test(Heap::Arrays, &[])) else { return };
    assert_eq!(run.recordings[0].losses.unasked, 0);
    assert_eq!(run.all("c", "z[4]"), [0, 2, 0]);
    let Some(run) = record(&test(Heap::None, &[])) else { return };
    assert_eq!(run.recordings[0].losses.unasked, 0);
}

#[test]
fn a_program_of_many_buffers_is_not_watched_for_ever() {
    let source = r#"
        #include <stdlib.h>
        struct c { long z[5]; } global;
        int main(void) {
            for (int i = 0; i < 70000; i++) {
                volatile long *buffer = malloc(2 * sizeof(struct c));
                buffer[i % 10] = 1;
                free((void *)buffer);
            }
            return 0;
        }"#;
    let Some(run) = record(&Test { source, types: &["c"], ..Test::default() }) else { return };
    assert_eq!(run.recordings[0].losses.unasked, 1 << 16);
}

#[test]
fn what_the_program_says_comes_before_what_sizes_say() {
    let source = r#"
        #include <stdlib.h>
        #include "ledgerline_record.h"
        struct counter { long usage, max; };
        struct alike { long other[2]; };
        int main(void) {
            char *pool = malloc(4096);
            volatile struct counter *c = (void *)(pool + 100);
            c->usage = 1;                                   /* not said yet */
            LEDGERLINE_OBJECT((void *)c, "struct counter");
            c->usage = 1;
            LEDGERLINE_FORGET((void *)c, sizeof *c);
            c->usage = 1;
            LEDGERLINE_ARRAY(pool, 4, "counter");
            ((volatile struct counter *)pool)[3].max = 1;
            LEDGERLINE_OBJECT(pool, "countre");
            free(pool);
            pool = malloc(4096);
            ((volatile struct counter *)pool)->max = 1;     /* not any more */
            struct alike *block = malloc(sizeof *block);
            LEDGERLINE_OBJECT(block, "counter");
            ((volatile struct counter *)block)->usage = 1;
            return 0;
        }"#;
    let Some(run) = record(&Test { source, types: &["counter", "alike"], ..Test::default() })
    else {
        return;
    };
    assert_eq!(run.all("counter", "usage"), [0, 2, 0]);
    assert_eq!(run.all("counter", "max"), [0, 1, 0]);
    assert_eq!(run.total("alike"), 0);
    assert_eq!(run.recordings[0].losses.unknown_names, 1);
    // The program also runs without the library.
    let Some(built) = support::build(source, "", &[]) else { return };
    assert!(support::command(&built.path).status().unwrap().success());
}

#[test]
fn globals_are_found_by_type_however_deep_they_lie() {
    let source = r#"
        typedef struct { long hits; int id; } counter;
        struct tenant { char name[24]; counter counters[2]; };
        counter plain;
        static counter row[2][3];
        const volatile counter fixed = { 1, 2 };
        struct tenant tenants[2];
        static struct {
            long before;
            counter each[3];
            union { char bytes[64]; counter of; } last;
        } unnamed[2];
        typedef struct { counter of; char behind[48]; } padded;
        static padded kept[2];
        __attribute__((noinline)) static counter *local(void) { static counter hidden; return &hidden; }
        _Thread_local counter mine;
        __attribute__((noinline)) static void hit(volatile long *at) { *at = 1; }
        int main(void) {
            counter stack = { 0, 0 };
            hit(&plain.hits);
            hit(&row[1][2].hits);
            hit(&tenants[1].counters[1].hits);
            hit(&local()->hits);
            hit(&unnamed[1].each[2].hits);
            hit(&unnamed[1].last.of.hits);
            hit(&kept[1].of.hits);
            hit(&mine.hits);
            hit(&stack.hits);
            return (int)fixed.id - 2;
        }"#;
    let Some(run) = record(&Test { source, types: &["counter"], ..Test::default() }) else {
        return;
    };
    assert_eq!(run.plan.globals(), 1 + 6 + 1 + 4 + 1 + 8 + 2);
    // Neither the thread-local counter nor those on the stack are counted.
    assert_eq!(run.all("counter", "hits"), [0, 7, 0]);
    assert_eq!(run.all("counter", "id")[support::STORE], 0);
    assert_eq!(run.objects("counter").0, 7 + run.all("counter", "id")[support::LOAD]);
}

#[test]
fn many_objects_come_and_go_on_many_threads() {
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        struct counter { long usage; long rest[6]; };
        static void *work(void *none) {
            struct counter *kept[64] = { 0 };
            unsigned random = (unsigned)(size_t)none + 1;
            for (int i = 0; i < 20000; i++) {
                random = random * 1664525u + 1013904223u;
                struct counter **slot = &kept[random >> 26];
                if (*slot) { free(*slot); *slot = 0; }
                else { *slot = malloc(sizeof **slot); *(volatile long *)&(*slot)->usage = 1; }
            }
            for (int i = 0; i < 64; i++) free(kept[i]);
            return 0;
        }
        int main(void) {
            pthread_t threads[100];
            for (long i = 0; i < 100; i += 4) {
                for (long j = i; j < i + 4; j++) pthread_create(&threads[j], 0, work, (void *)j);
                for (long j = i; j < i + 4; j++) pthread_join(threads[j], 0);
            }
            return 0;
        }"#;
    let test = Test { source, flags: &["-O2"], types: &["counter"], ..Test::default() };
    let Some(run) = record(&test) else { return };
    let threads = &run.recordings[0].threads;
    assert_eq!(threads.len(), 100);
    let stores = run.all("counter", "usage")[support::STORE];
    // Half of the turns make one; each was used by the thread that made it.
    assert!((1_000_000..=1_003_200).contains(&stores), "{stores}");
    assert_eq!(run.objects("counter").0, stores);
    assert_eq!(run.recordings[0].losses.no_room, 0);
    let blocks: u64 = run.recordings[0].sites.iter().map(|site| site.blocks).sum();
    assert_eq!(blocks, stores);
}
