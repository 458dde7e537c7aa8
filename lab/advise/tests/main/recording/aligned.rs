//! Objects that are aligned to cache lines are found like others.

use super::support;
use super::support::{Test, record};
use ledgerline_advise::recording::plan::Heap;

#[test]
fn a_block_that_is_rounded_up_to_its_alignment_holds_one_object() {
    let source = r#"
        #define _GNU_SOURCE
        #include <malloc.h>
        #include <stdlib.h>
        struct counter { long usage; long rest[8]; };
        struct pair { long usage; long rest[9]; } known;
        #define ROUNDED ((sizeof(struct counter) + 63) / 64 * 64)
        __attribute__((noinline)) static void hit(volatile long *at) { *at = 1; }
        int main(void) {
            /* C11 wants a multiple of the alignment. */
            struct counter *one = aligned_alloc(64, ROUNDED), *two = memalign(64, ROUNDED);
            void *three;
            if (posix_memalign(&three, 64, ROUNDED)) return 1;
            hit(&one->usage);
            hit(&two->usage);
            hit(&((struct counter *)three)->rest[7]);
            /* None of these is one: not aligned so, a line too large or too small, a page. */
            hit(malloc(ROUNDED));
            hit(aligned_alloc(64, ROUNDED + 64));
            hit(aligned_alloc(4096, 4096));
            free(one);
            one = aligned_alloc(64, 64);
            hit(&one->usage);
            return 0;
        }"#;
    let test =
        |heap| Test { source, flags: &["-O2"], types: &["counter"], heap, ..Test::default() };
    let Some(run) = record(&test(Heap::Exact)) else { return };
    assert_eq!(run.all("counter", "usage"), [0, 2, 0]);
    assert_eq!(run.all("counter", "rest[7]"), [0, 1, 0]);
    assert_eq!(run.objects("counter"), (3, 0));
    let sites = &run.recordings[0].sites;
    assert!(sites.iter().all(|site| site.rounded), "{sites:?}");
    assert_eq!(sites.iter().map(|site| site.blocks).sum::<u64>(), 3);
    assert_eq!(run.plan.types[0].alike_rounded, ["pair"]);
    let both = Test { types: &["counter", "pair"], ..test(Heap::Exact) };
    let Some(run) = record(&both) else { return };
    assert_eq!((run.total("counter"), run.total("pair")), (0, 0));
    let losses = run.recordings[0].losses;
    assert_eq!((losses.ambiguous, losses.ambiguous_size, losses.ambiguous_align), (3, 128, 64));
    let Some(run) = record(&test(Heap::None)) else { return };
    assert!(run.recordings[0].threads.is_empty());
}

#[test]
fn what_new_aligns_is_found() {
    let source = r#"
        #include <atomic>
        #include <memory>
        #include <new>
        struct alignas(64) hot { std::atomic<long> usage{0}; long max = 1; };
        struct odd { std::atomic<long> hits{0}; long rest[9] = {}; };
        template <typename T> __attribute__((noinline)) void hit(T &of) { of.fetch_add(1); }
        int main() {
            auto one = std::make_unique<hot>();
            hit(one->usage);
            hot *two = new (std::nothrow) hot;
            hit(two->usage);
            delete two;
            void *place = ::operator new(sizeof(odd), std::align_val_t(64));
            odd *three = new (place) odd;
            hit(three->hits);
            ::operator delete(place, std::align_val_t(64));
            hot *four = new hot[4];
            hit(four[3].usage);
            delete[] four;
            return 0;
        }"#;
    let test = Test {
        source,
        compiler: "g++",
        flags: &["-O1", "-std=c++17"],
        types: &["hot", "odd"],
        ..Test::default()
    };
    let Some(run) = record(&test) else { return };
    assert_eq!(run.all("hot", "usage")[support::ATOMIC], 2);
    assert_eq!(run.all("odd", "hits")[support::ATOMIC], 1);
    assert_eq!((run.objects("hot").0, run.objects("odd").0), (2, 1));
}
