/* Two dozen small programs in which two threads share a structure, for ci/predictions. They are built twice:
 * as they are, and with -DAPART. Then the data of each thread begins a pair of lines of its own, and so does the data of
 * both. In the first dozen the threads share nothing then; in the second one they still share the data of both.
 *
 *     two_dozen NAME            runs one for a moment; prints nanoseconds an operation, for the one thread and for the other
 *     two_dozen NAME one|other  the same with one of the threads alone; nan for the other
 *
 * Each operation has work of its own: a chain of shifts, some five cycles a round, that continues across operations. In some
 * programs the chain depends on an accessed value. In the others, a processor may work on while it waits. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "chain.h"

#ifdef APART
#define OWN _Alignas(128)
#else
#define OWN
#endif
#define RELAXED memory_order_relaxed
#define QUEUE 1024

struct shared {
    _Alignas(128) _Atomic uint64_t a; /* the one thread's */
    volatile uint64_t plain_a;
    OWN _Atomic uint64_t b; /* the other's */
    volatile uint64_t plain_b;
    OWN _Atomic uint64_t total; /* both change it */
    volatile uint64_t value;
    OWN _Atomic uint64_t limit; /* both read it */
};
static struct shared shared;
static uint64_t slots[QUEUE];

#define ADD(field) atomic_fetch_add_explicit(&shared.field, 1, RELAXED)
#define SUB(field) atomic_fetch_sub_explicit(&shared.field, 1, RELAXED)
#define EACH(n, act) (at % (n) == 0 ? (void)(act) : (void)0)
#define LOAD(field) atomic_load_explicit(&shared.field, RELAXED)
#define STORE(field, value) atomic_store_explicit(&shared.field, (value), RELAXED)
#define LOCKED(lock, body)                                                                                             \
    do {                                                                                                               \
        while (atomic_exchange_explicit(&shared.lock, 1, memory_order_acquire))                                        \
            ;                                                                                                          \
        body;                                                                                                          \
        atomic_store_explicit(&shared.lock, 0, memory_order_release);                                                  \
    } while (0)

/* name, rounds of work, operation of the one thread, operation of the other */
#define PROGRAMS(P)                                                                                                    \
    P(tickets, 4, x += ADD(a), x += ADD(b))                           /* numbers that are used at once */              \
    P(ids, 20, x += ADD(a), x += ADD(b))                                                                               \
    P(counters, 4, ADD(a), ADD(b))                                    /* statistics without a reader */                \
    P(sums, 4, shared.plain_a++, shared.plain_b++)                                                                     \
    P(averages, 12, (x += shared.plain_a, shared.plain_a = x), (x += shared.plain_b, shared.plain_b = x))              \
    P(flag, 6, STORE(a, x), x += LOAD(b))                             /* a setting beside a written field */           \
    P(setting, 30, shared.plain_a++, x += LOAD(b))                                                                     \
    P(pointer, 60, ADD(a), x += LOAD(b))                                                                               \
    P(locks, 12, LOCKED(a, shared.plain_a += x & 7), LOCKED(b, shared.plain_b += x & 7))                               \
    P(references, 30, (ADD(a), x += SUB(a)), (ADD(b), x += SUB(b)))                                                    \
    P(queue, 10,                                                                                                       \
      while (LOAD(a) - atomic_load_explicit(&shared.b, memory_order_acquire) >= QUEUE) if (atomic_load(&stop)) break;  \
      slots[LOAD(a) % QUEUE] = x; atomic_store_explicit(&shared.a, LOAD(a) + 1, memory_order_release),                 \
      while (LOAD(b) == atomic_load_explicit(&shared.a, memory_order_acquire)) if (atomic_load(&stop)) break;          \
      x += slots[LOAD(b) % QUEUE]; atomic_store_explicit(&shared.b, LOAD(b) + 1, memory_order_release))                \
    P(versions, 90, (shared.plain_a++, shared.plain_a++), x += LOAD(b))                                                \
    /* The second dozen. */                                                                                            \
    P(totals, 20, (ADD(total), shared.plain_a++), (ADD(total), shared.plain_b++))                                      \
    P(events, 60, (ADD(total), shared.plain_a++), (ADD(total), shared.plain_b++))                                      \
    P(usage, 30, x += ADD(total) + LOAD(limit), x += ADD(total) + LOAD(limit))                                         \
    P(room, 80, (x += LOAD(limit), ADD(total)), (x += LOAD(limit), ADD(total)))                                        \
    P(charges, 40, (x += ADD(total) + LOAD(limit), shared.plain_a++), (x += ADD(total) + LOAD(limit), shared.plain_b++)) \
    P(handles, 60, (x += ADD(total) + LOAD(limit), SUB(total)), (x += ADD(total) + LOAD(limit), SUB(total)))           \
    P(batches, 10, (shared.plain_a++, EACH(4, ADD(total))), (shared.plain_b++, EACH(4, ADD(total))))                   \
    P(quotas, 20, (x += LOAD(limit), EACH(8, ADD(total))), (x += LOAD(limit), EACH(8, ADD(total))))                    \
    P(latest, 20, (STORE(total, x), shared.plain_a++), (x += LOAD(total), shared.plain_b++))                           \
    P(watched, 40, ADD(a), (x += LOAD(a), shared.plain_b++))                                                           \
    P(guarded, 60, LOCKED(total, shared.value += x & 7); shared.plain_a++,                                             \
      LOCKED(total, shared.value += x & 7); shared.plain_b++)                                                          \
    P(entries, 100, x += LOAD(limit); LOCKED(total, shared.value += x & 7),                                            \
      x += LOAD(limit); LOCKED(total, shared.value += x & 7))

static atomic_int waited_for = 2, stop;
static int alone;
static double took[2] = {NAN, NAN};
static volatile uint64_t sink;
static const double MOMENT = 30e6;

#define LOOP(rounds, body)                                                                                             \
    for (; !atomic_load_explicit(&stop, RELAXED); count += 64) {                                                       \
        for (int at = 0; at < 64; at++) {                                                                              \
            x = work(x, rounds);                                                                                       \
            body;                                                                                                      \
        }                                                                                                              \
        if ((me == 0 || alone) && count % 1024 == 0 && now() - start > MOMENT) atomic_store(&stop, 1);                            \
    }

#define PROGRAM(name, rounds, one, other)                                                                              \
    static void *name(void *argument) {                                                                                \
        long me = (long)argument;                                                                                      \
        cpu_set_t set;                                                                                                 \
        CPU_ZERO(&set);                                                                                                \
        CPU_SET(me, &set);                                                                                             \
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);                                                      \
        uint64_t x = 88172645463325252ull + me, count = 0;                                                             \
        atomic_fetch_sub(&waited_for, 1);                                                                              \
        while (atomic_load(&waited_for) > 0)                                                                           \
            ;                                                                                                          \
        double start = now();                                                                                          \
        if (me == 0) { LOOP(rounds, one) } else { LOOP(rounds, other) }                                                \
        took[me] = (now() - start) / count;                                                                            \
        sink += x;                                                                                                     \
        return 0;                                                                                                      \
    }
PROGRAMS(PROGRAM)

#define ROW(name, rounds, one, other) {#name, name},
static const struct {
    const char *name;
    void *(*play)(void *);
} programs[] = {PROGRAMS(ROW)};

int main(int count, char **given) {
    long first = 0, last = 1;
    if (count == 3) {
        first = last = strcmp(given[2], "other") == 0;
        alone = waited_for = 1;
    }
    for (size_t at = 0; count > 1 && at < sizeof programs / sizeof *programs; at++) {
        if (strcmp(given[1], programs[at].name) == 0) {
            pthread_t threads[2];
            for (long me = first; me <= last; me++) pthread_create(&threads[me], 0, programs[at].play, (void *)me);
            for (long me = first; me <= last; me++) pthread_join(threads[me], 0);
            printf("%.3f %.3f\n", took[0], took[1]);
            return 0;
        }
    }
    fprintf(stderr, "two_dozen NAME [one|other]; there are:");
    for (size_t at = 0; at < sizeof programs / sizeof *programs; at++) fprintf(stderr, " %s", programs[at].name);
    fprintf(stderr, "\n");
    return 2;
}
