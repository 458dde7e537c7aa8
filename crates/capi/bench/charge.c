// Times a charge and its uncharge through the C ABI and the same loop in Rust, in turns, in one process. Counts the
// thread's CPU time. Prints JSON. `bench/run` builds and runs it, linked with the shared and with the static library.

#include <ledgerline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void baseline_units(uint64_t pairs);

enum { ROUNDS = 41 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void check(int code, const char *what) {
    if (code != LEDGERLINE_OK) {
        fprintf(stderr, "%s: %s\n", what, ledgerline_error_text(code));
        exit(1);
    }
}

static double by_c(ledgerline_group_t group, uint64_t pairs, int units_only) {
    const double start = now();
    for (uint64_t pair = 0; pair < pairs; pair++) {
        // The handle comes from memory, as in a program's own structures.
        __asm__ volatile("" : "+m"(group));
        const int code = units_only ? ledgerline_try_charge_units(group, 64) : ledgerline_try_charge(group, 64);
        if (code != LEDGERLINE_OK) {
            abort();
        }
        __asm__ volatile("" : "+m"(group));
        if (ledgerline_uncharge(group, 64) != LEDGERLINE_OK) {
            abort();
        }
    }
    return now() - start;
}

static double by_rust(uint64_t pairs) {
    const double start = now();
    baseline_units(pairs);
    return now() - start;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, double *figures, const char *after) {
    qsort(figures, ROUNDS, sizeof *figures, ascending);
    printf("  \"%s\": {\"median\": %.3f, \"quartiles\": [%.3f, %.3f]}%s\n", name, figures[ROUNDS / 2],
           figures[ROUNDS / 4], figures[3 * ROUNDS / 4], after);
}

int main(int count, char **arguments) {
    const uint64_t pairs = count > 1 ? strtoull(arguments[1], NULL, 10) : 200000;
    ledgerline_ledger_t ledger;
    ledgerline_group_t root, tenant, query;
    check(ledgerline_check_abi(), "the ABI");
    check(ledgerline_ledger_new(NULL, &ledger), "a ledger");
    check(ledgerline_ledger_root(ledger, &root), "the root");
    check(ledgerline_group_create(root, "tenant", LEDGERLINE_NUL_TERMINATED, &tenant), "a group");
    check(ledgerline_group_create(tenant, "query", LEDGERLINE_NUL_TERMINATED, &query), "a group");
    check(ledgerline_charge(query, 1 << 20), "a charge");
    static double rust[ROUNDS], c[ROUNDS], c_units[ROUNDS], more[ROUNDS];
    by_c(query, pairs, 0);
    baseline_units(pairs);
    for (int round = 0; round < ROUNDS; round++) {
        rust[round] = by_rust(pairs) / (double)pairs;
        c[round] = by_c(query, pairs, 0) / (double)pairs;
        c_units[round] = by_c(query, pairs, 1) / (double)pairs;
        more[round] = c[round] - rust[round];
    }
    printf("{\n  \"what\": \"nanoseconds for a charge and its uncharge of 64 units, depth 2\",\n");
    printf("  \"linked\": \"%s\", \"pairs\": %llu, \"rounds\": %d,\n", LINKED, (unsigned long long)pairs, ROUNDS);
    print("rust_units", rust, ",");
    print("c_try_charge", c, ",");
    print("c_try_charge_units", c_units, ",");
    print("c_more_than_rust", more, "");
    printf("}\n");
    return 0;
}
