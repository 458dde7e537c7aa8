/* Measures how the cost of false sharing depends on data dependences. Two threads use words of one line, with work between
 * two operations. Prints nanoseconds an operation for each length of work, of one thread alone and of both. Each figure is
 * the mean; the least of four tries counts, since a machine may change meanwhile.
 *
 *     dependence MODE
 *
 * The place of the word is known before the work, or depends on its result ("late"). The work that follows depends on the
 * accessed value, or does not. The same combinations run in the model with
 *
 *     cargo run --release -p ledgerline-coherence --example dependence -- MACHINE
 *
 * Build, on x86-64: cc -O2 -pthread dependence.c -o dependence */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "chain.h"

static _Alignas(128) _Atomic uint64_t words[16];
static atomic_int waited_for, stop;
static int rounds, alone, late, needed, mode;
static double took[2];
static volatile uint64_t sink;
static const char *const modes[] = {"atomics", "atomic-load", "load-atomic", "reader"};

#define ADD(at) atomic_fetch_add_explicit(&words[at], 1, memory_order_relaxed)
#define LOAD(at) atomic_load_explicit(&words[at], memory_order_relaxed)

/* Always inlined, so that each combination is compiled by itself and the loop decides nothing. */
static inline __attribute__((always_inline)) double loop(long me, int mode, int late, int needed) {
    uint64_t x = 88172645463325252ull + me, count = 0;
    double start = now();
    for (; !atomic_load_explicit(&stop, memory_order_relaxed); count += 64) {
        for (int at = 0; at < 64; at++) {
            x = work(x, rounds);
            uint64_t place = late ? x : 0, value = 0;
            if (late) __asm__ volatile("and $0, %0" : "+r"(place));
            if (mode == 0 || (mode == 3 && me == 0)) value = ADD(me + place);
            if (mode == 1) {
                value = ADD(me + place);
                value += LOAD(me + 4 + place);
            }
            if (mode == 2) {
                value = LOAD(me + 4 + place);
                value += ADD(me + place);
            }
            if (mode == 3 && me == 1) value = LOAD(me + place);
            if (needed) {
                __asm__ volatile("and $7, %0" : "+r"(value));
                x += value;
            } else {
                __asm__ volatile("" : : "r"(value));
            }
        }
        if ((me == 0 || alone) && count % 1024 == 0 && now() - start > 20e6) atomic_store(&stop, 1);
    }
    sink += x;
    return (now() - start) / count;
}

#define DEPENDENCE(me, mode) \
    (late ? (needed ? loop(me, mode, 1, 1) : loop(me, mode, 1, 0)) : (needed ? loop(me, mode, 0, 1) : loop(me, mode, 0, 0)))

static void *play(void *argument) {
    long me = (long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(me, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    atomic_fetch_sub(&waited_for, 1);
    while (atomic_load(&waited_for) > 0)
        ;
    switch (mode) {
    case 0: took[me] = DEPENDENCE(me, 0); break;
    case 1: took[me] = DEPENDENCE(me, 1); break;
    case 2: took[me] = DEPENDENCE(me, 2); break;
    default: took[me] = DEPENDENCE(me, 3);
    }
    return 0;
}

static double run(int threads) {
    pthread_t started[2];
    alone = threads == 1;
    waited_for = threads;
    stop = 0;
    for (long me = 0; me < threads; me++) pthread_create(&started[me], 0, play, (void *)me);
    for (long me = 0; me < threads; me++) pthread_join(started[me], 0);
    return threads == 1 ? took[0] : (took[0] + took[1]) / 2;
}

int main(int count, char **given) {
    while (mode < 4 && (count != 2 || strcmp(given[1], modes[mode]))) mode++;
    if (mode == 4) {
        fprintf(stderr, "dependence atomics|atomic-load|load-atomic|reader\n");
        return 2;
    }
    const int lengths[] = {2, 6, 12, 20, 30, 45, 60, 90};
    for (int row = 0; row < 4; row++) {
        late = row / 2, needed = row % 2;
        printf("%-5s %-6s", late ? "late" : "known", needed ? "needed" : "not");
        for (int at = 0; at < 8; at++) {
            rounds = lengths[at];
            double by_itself = run(1), both = run(2);
            for (int again = 0; again < 3; again++) {
                double next = run(2);
                if (next < both) both = next;
            }
            printf("  %4.0f -> %3.0f", by_itself, both);
        }
        printf("\n");
    }
    return 0;
}
