// Checks of the programs: a failed one prints a line and exits with an error code.
#ifndef CHECK_H
#define CHECK_H

#include <ledgerline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUL LEDGERLINE_NUL_TERMINATED

static inline void fail_at(const char *file, int line, const char *what, long long got) {
    char why[512] = "";
    ledgerline_last_error(why, sizeof why, NULL);
    fprintf(stderr, "%s:%d: %s: %lld (last error: %s)\n", file, line, what, got, why);
    exit(1);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fail_at(__FILE__, __LINE__, #condition, 0);                                                                \
        }                                                                                                              \
    } while (0)

// Checks that the call returns this code.
#define GIVES(expected, call)                                                                                          \
    do {                                                                                                               \
        const long long code_of_call = (call);                                                                         \
        if (code_of_call != (expected)) {                                                                              \
            fail_at(__FILE__, __LINE__, #call " is not " #expected, code_of_call);                                     \
        }                                                                                                              \
    } while (0)

#define OK(call) GIVES(LEDGERLINE_OK, call)

// Makes a ledger of a few groups, and returns its root.
static inline ledgerline_ledger_t small_ledger(ledgerline_group_t *root) {
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    ledgerline_ledger_t ledger;
    options.capacity = 64;
    OK(ledgerline_ledger_new(&options, &ledger));
    OK(ledgerline_ledger_root(ledger, root));
    return ledger;
}

static inline ledgerline_group_t child(ledgerline_group_t parent, const char *name) {
    ledgerline_group_t group;
    OK(ledgerline_group_create(parent, name, NUL, &group));
    return group;
}

static inline uint64_t usage(ledgerline_group_t group) {
    uint64_t units = 0;
    OK(ledgerline_group_usage(group, &units));
    return units;
}

#endif
