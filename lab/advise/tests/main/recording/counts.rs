//! Counts are those of the source, for any interleaving of threads.

use super::support;
use super::support::{Test, record};
use ledgerline_advise::recording::read::RowKind;

#[test]
fn two_threads_are_counted_exactly() {
    let source = r#"
        #include <pthread.h>
        #include <stdatomic.h>
        struct counter { atomic_long usage; long max; long peak; int quiet; short small[4]; char name[8]; };
        struct counter shared;
        static void *work(void *argument) {
            volatile long sum = 0;
            struct counter *c = argument;
            for (int i = 0; i < 5000; i++) sum += *(volatile long *)&c->max;
            for (int i = 0; i < 3000; i++) atomic_fetch_add(&c->usage, 1);
            for (int i = 0; i < 700; i++) *(volatile long *)&c->peak = i;
            for (int i = 0; i < 20; i++) sum += atomic_load(&c->usage);
            for (int i = 0; i < 3; i++) atomic_store(&c->usage, 1);
            return 0;
        }
        int main(void) {
            pthread_t threads[2];
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, &shared);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            return 0;
        }"#;
    // By default, clang leaves out the probe of a read before a write.
    let every = &["-O2", "-mllvm", "-tsan-instrument-read-before-write"];
    for (compiler, flags) in [("gcc", &["-O0"][..]), ("gcc", &["-O2"]), ("clang", every)] {
        let Some(run) = record(&Test { source, compiler, flags, ..Test::default() }) else {
            continue;
        };
        assert_eq!(run.all("counter", "max"), [10_000, 0, 0], "{flags:?}");
        assert_eq!(run.all("counter", "usage"), [40, 6, 6000], "{flags:?}");
        assert_eq!(run.all("counter", "peak"), [0, 1400, 0], "{flags:?}");
        assert_eq!(run.total("counter"), 10_000 + 6046 + 1400, "{flags:?}");
        assert_eq!(run.objects("counter"), (1, 1), "{flags:?}");
        let threads = &run.recordings[0].threads;
        assert_eq!(
            threads.iter().map(|thread| thread.operations).collect::<Vec<_>>(),
            [8723, 8723]
        );
        assert!(threads.iter().all(|thread| thread.measured.nanoseconds > 0), "{threads:?}");
    }
}

#[test]
fn each_way_of_reaching_a_field_counts_for_that_field() {
    let source = r#"
        struct inner { int a, b; };
        struct thing {
            struct inner one; struct inner many[3]; unsigned low : 3, high : 5, wide : 24;
            union { long whole; int half[2]; }; char text[12]; long last;
        };
        struct thing thing, copy;
        __attribute__((noinline)) static void touch(volatile struct thing *t) {
            t->one.b = 1;
            t->many[2].a = 2;
            t->half[1] = 3;
            t->text[5] = 'x';
            t->last++;
        }
        __attribute__((noinline)) static void duplicate(struct thing *to, struct thing *from) { *to = *from; }
        int main(void) {
            touch(&thing);
            duplicate(&copy, &thing);
            return 0;
        }"#;
    let test = Test { source, flags: &["-O2"], types: &["thing"], ..Test::default() };
    let Some(run) = record(&test) else { return };
    // The copy reads and writes each field once.
    for (field, counts) in [
        ("one.a", [1, 1, 0]),
        ("one.b", [1, 2, 0]),
        ("many[0]", [1, 1, 0]),
        ("many[2]", [1, 2, 0]),
        ("whole", [1, 2, 0]),
        ("text", [1, 2, 0]),
        ("last", [2, 2, 0]),
    ] {
        assert_eq!(run.all("thing", field), counts, "{field}");
    }
}

#[test]
fn blocks_of_memory_are_seen_where_the_compiler_was_told() {
    let source = r#"
        #include <string.h>
        struct a { long x, y; } one, two;
        int main(void) {
            memset(&one, 0, sizeof one);
            memcpy(&two, &one, sizeof one);
            memmove(&one.y, &two.x, 8);
            return 0;
        }"#;
    let flags =
        &["-O2", "-Dmemcpy=__tsan_memcpy", "-Dmemmove=__tsan_memmove", "-Dmemset=__tsan_memset"];
    let Some(run) = record(&Test { source, flags, ..Test::default() }) else { return };
    assert_eq!(run.all("a", "x"), [2, 2, 0]);
    assert_eq!(run.all("a", "y"), [1, 3, 0]);
}

#[test]
fn locks_count_as_what_they_write() {
    let source = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        struct s {
            pthread_mutex_t mutex; pthread_rwlock_t shared; pthread_spinlock_t spin; long guarded;
        } object = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER, 0, 0 };
        static void *work(void *none) {
            for (int i = 0; i < 1000; i++) {
                pthread_mutex_lock(&object.mutex);
                object.guarded++;
                pthread_mutex_unlock(&object.mutex);
                pthread_rwlock_rdlock(&object.shared);
                pthread_rwlock_unlock(&object.shared);
                pthread_spin_lock(&object.spin);
                object.guarded++;
                pthread_spin_unlock(&object.spin);
            }
            return none;
        }
        int main(void) {
            pthread_t threads[2];
            pthread_spin_init(&object.spin, 0);
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            return 0;
        }"#;
    let test = Test { source, flags: &["-O2"], types: &["s"], ..Test::default() };
    let Some(run) = record(&test) else { return };
    let paths = &run.plan.types[0].cells.paths;
    let first =
        |of: &str| paths.iter().find(|path| path.starts_with(of)).expect("a field of the lock");
    assert_eq!(run.all("s", first("mutex")), [0, 0, 4000]);
    assert_eq!(run.all("s", first("shared")), [0, 0, 4000]);
    assert_eq!(run.all("s", "spin"), [0, 2000, 2000]);
    assert_eq!(run.all("s", "guarded"), [4000, 4000, 0]);
}

#[test]
fn operations_tell_what_is_touched_together() {
    let source = r#"
        #include <pthread.h>
        struct s { long often, rare, also_rare, outside; } object;
        __attribute__((noinline)) static void operation(int i) {
            object.often++;
            if (i % 8 == 0) { object.rare++; object.also_rare = i; }
        }
        static void *work(void *none) {
            for (int i = 0; i < 8000; i++) { operation(i); }
            object.outside = 1;
            return none;
        }
        int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); return 0; }"#;
    let test = Test {
        source,
        flags: &["-O2"],
        types: &["s"],
        operations: &["operation"],
        ..Test::default()
    };
    let Some(run) = record(&test) else { return };
    assert_eq!(run.operations(), 8000);
    assert_eq!(run.inside("s", "often"), [8000, 8000, 0]);
    assert_eq!(run.inside("s", "rare"), [1000, 1000, 0]);
    assert_eq!(run.inside("s", "outside"), [0, 0, 0]);
    assert_eq!(run.all("s", "outside"), [0, 1, 0]);
    let rows = &run.recordings[0].threads[0].tables[0].rows;
    let rows: Vec<_> = rows.iter().map(|row| (row.kind.clone(), row.operations)).collect();
    assert_eq!(
        rows,
        [
            (RowKind::Outside, 0),
            (RowKind::Together(vec![0, 1, 2]), 1000),
            (RowKind::Together(vec![0]), 7000)
        ]
    );
}

#[test]
fn more_combinations_than_there_are_rows_lose_no_count() {
    let source = r#"
        struct s { long f[10]; } object;
        __attribute__((noinline)) static void operation(int mask) {
            for (int i = 0; i < 10; i++) if (mask & 1 << i) object.f[i]++;
        }
        int main(void) { for (int mask = 0; mask < 1024; mask++) operation(mask); return 0; }"#;
    let test = Test {
        source,
        flags: &["-O1"],
        types: &["s"],
        operations: &["operation"],
        ..Test::default()
    };
    let Some(run) = record(&test) else { return };
    for field in 0..10 {
        assert_eq!(run.inside("s", &format!("f[{field}]")), [512, 512, 0]);
    }
    let rows = &run.recordings[0].threads[0].tables[0].rows;
    assert_eq!(rows.last().map(|row| &row.kind), Some(&RowKind::Rest));
    // The operation with mask 0 touched nothing.
    assert_eq!(rows.iter().map(|row| row.operations).sum::<u64>(), 1023);
    let profile = run.profile().profile;
    let of = profile.of("s").unwrap();
    assert!(of.roles[0].phases.len() <= 8, "{of:?}");
    for field in 0..10 {
        let times = of.times(&format!("f[{field}]"), ledgerline_advise::profile::Kind::Store);
        assert!((times - 0.5).abs() < 1e-9, "{times}");
    }
}

#[test]
fn an_operation_ends_when_its_frame_does() {
    let source = r#"
        #include <pthread.h>
        #include <setjmp.h>
        struct s { long in, out, deep; } object;
        static jmp_buf back;
        __attribute__((noinline)) static void deeper(int n) {
            object.deep++;
            if (n == 0) longjmp(back, 1);
            deeper(n - 1);
            object.deep++;
        }
        __attribute__((noinline)) static void jumps(void) { object.in++; deeper(5); object.in++; }
        __attribute__((noinline)) static long recurses(int n) {
            object.in++;
            return n == 0 ? object.in : recurses(n - 1) + object.in;
        }
        __attribute__((noinline)) static void other(void) { object.out++; }
        static void *leaves(void *none) { recurses(3); object.in++; pthread_exit(none); }
        int main(void) {
            for (volatile int i = 0; i < 10; i++) {
                if (setjmp(back) == 0) jumps();
                other();
                recurses(4);
                other();
            }
            pthread_t t;
            pthread_create(&t, 0, leaves, 0);
            pthread_join(t, 0);
            return 0;
        }"#;
    for flags in [&["-O0"], &["-O2"]] {
        let test = Test {
            source,
            flags,
            types: &["s"],
            operations: &["jumps", "recurses"],
            ..Test::default()
        };
        let Some(run) = record(&test) else { return };
        // A recursive call is part of the outer one.
        assert_eq!(run.operations(), 21, "{flags:?}");
        assert_eq!(run.inside("s", "out"), [0, 0, 0], "{flags:?}");
        assert_eq!(run.all("s", "out"), [20, 20, 0], "{flags:?}");
        assert_eq!(run.inside("s", "deep"), [60, 60, 0], "{flags:?}");
    }
}

#[test]
fn signal_handlers_lose_no_access_unseen() {
    let source = r#"
        #include <signal.h>
        #include <sys/time.h>
        struct s { volatile long main; volatile long handler; } object;
        static volatile sig_atomic_t handled;
        static void handle(int signal) { (void)signal; for (int i = 0; i < 10; i++) object.handler = i; handled++; }
        __attribute__((noinline)) static void operation(void) { object.main = 1; }
        int main(void) {
            struct itimerval every = { { 0, 1000 }, { 0, 1000 } };
            signal(SIGALRM, handle);
            setitimer(ITIMER_REAL, &every, 0);
            long n = 0;
            while (handled < 100) { operation(); n++; }
            struct itimerval never = { { 0, 0 }, { 0, 0 } };
            setitimer(ITIMER_REAL, &never, 0);
            struct { long n, handled; } said = { n, handled };
            return __builtin_printf("%ld %ld\n", said.n, said.handled) < 0;
        }"#;
    for operations in [&[][..], &["operation"]] {
        let test = Test { source, flags: &["-O2"], types: &["s"], operations, ..Test::default() };
        let Some(run) = record(&test) else { return };
        let said = String::from_utf8(run.output.stdout.clone()).unwrap();
        let said: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let counted =
            run.all("s", "main")[support::STORE] + run.all("s", "handler")[support::STORE];
        let unfinished = run.recordings[0].losses.unfinished;
        assert_eq!(run.recordings[0].losses.dropped + counted, said[0] + 10 * said[1]);
        assert_eq!(unfinished, 0);
        if operations.is_empty() {
            // Accesses of a handler may be dropped, but no access of the thread itself.
            assert_eq!(run.all("s", "main"), [0, said[0], 0]);
        }
    }
}

/// A signal arrives at each of the recorder's own calls of the C library: while a thread gets its block, a table, or a
/// row.
#[test]
fn a_signal_while_a_thread_begins_to_be_counted_loses_no_access_unseen() {
    let source = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        struct s { volatile long main; volatile long handler; } object;
        static volatile sig_atomic_t wanted, handled;
        static void handle(int signal) { (void)signal; for (int i = 0; i < 10; i++) object.handler = i; handled++; }
        int clock_gettime(clockid_t of, struct timespec *now) {
            if (wanted) raise(SIGUSR1);
            return syscall(SYS_clock_gettime, of, now);
        }
        __attribute__((noinline)) static void operation(void) { object.main = 1; }
        static void *work(void *none) { operation(); return none; }
        int main(void) {
            pthread_t threads[20];
            signal(SIGUSR1, handle);
            wanted = 1;
            for (int i = 0; i < 20; i++) {
                pthread_create(&threads[i], 0, work, 0);
                pthread_join(threads[i], 0);
            }
            wanted = 0;
            return __builtin_printf("%d\n", (int)handled) < 0;
        }"#;
    for operations in [&[][..], &["operation"]] {
        let test = Test { source, flags: &["-O2"], types: &["s"], operations, ..Test::default() };
        let Some(run) = record(&test) else { return };
        let said = String::from_utf8_lossy(&run.output.stdout);
        let handled: u64 = said.trim().parse().unwrap();
        assert!(handled >= 20, "{handled}");
        assert_eq!(run.all("s", "main"), [0, 20, 0], "{operations:?}");
        let counted = run.all("s", "handler")[support::STORE];
        let losses = &run.recordings[0].losses;
        assert_eq!(losses.dropped + counted, 10 * handled, "{operations:?}");
    }
}
