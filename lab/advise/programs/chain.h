/* Shared by the programs here: a clock, and a chain of dependent work. */
#include <stdint.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* A chain of shifts, some five cycles a round. */
static inline uint64_t work(uint64_t x, int rounds) {
    for (int round = 0; round < rounds; round++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}
