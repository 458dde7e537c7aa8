// Ledgers are made and freed while other threads charge them, read them, and wait in them. A late call gets an error
// code, and no call charges the next ledger, which has the same address.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 3, LEDGERS = 200 };

static _Atomic uint64_t number, id;
static atomic_int done, charged, refused;

static void expect(int code) {
    if (code == LEDGERLINE_OK) {
        atomic_fetch_add_explicit(&charged, 1, memory_order_relaxed);
    } else {
        CHECK(code == LEDGERLINE_ERROR_HANDLE || code == LEDGERLINE_ERROR_GONE || code == LEDGERLINE_ERROR_LIMIT);
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    }
}

static void *charge_it(void *data) {
    const int kind = *(const int *)data;
    while (!atomic_load(&done)) {
        const ledgerline_group_t group = {atomic_load(&number), atomic_load(&id)};
        for (int time = 0; time < 200; time++) {
            const int code = ledgerline_try_charge_units(group, 3);
            expect(code);
            // If the ledger was freed after the charge, nothing is left to return.
            if (code == LEDGERLINE_OK) {
                const int returned = ledgerline_uncharge(group, 3);
                CHECK(returned == LEDGERLINE_OK || returned == LEDGERLINE_ERROR_HANDLE);
            }
        }
        uint64_t units;
        char text[100];
        switch (kind) {
        case 0: expect(ledgerline_group_usage(group, &units)); break;
        case 1: expect(ledgerline_group_path(group, text, sizeof text, NULL)); break;
        default: expect(ledgerline_try_charge_wait(group, 1 << 20, 1, 0)); break;
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    int kinds[THREADS];
    for (int at = 0; at < THREADS; at++) {
        kinds[at] = at;
        CHECK(pthread_create(&threads[at], NULL, charge_it, &kinds[at]) == 0);
    }
    for (int turn = 0; turn < LEDGERS; turn++) {
        ledgerline_group_t root, group;
        const ledgerline_ledger_t ledger = small_ledger(&root);
        group = child(root, "g");
        OK(ledgerline_group_set_max(group, 100000));
        OK(ledgerline_try_charge(group, 50000));
        atomic_store(&id, group.id);
        atomic_store(&number, group.ledger);
        const struct timespec time = {0, turn % 4 == 0 ? 1000000 : turn % 4 * 50000};
        nanosleep(&time, NULL);
        OK(ledgerline_ledger_free(ledger));
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_try_charge_units(group, 3));
        if (turn % 2 == 0) {
            // No other thread knows this ledger, so it has exactly the charges of this thread, despite late calls for
            // the last one.
            const ledgerline_ledger_t next = small_ledger(&root);
            group = child(root, "g");
            OK(ledgerline_try_charge(group, 50000));
            nanosleep(&time, NULL);
            CHECK(usage(root) == 50000);
            OK(ledgerline_ledger_free(next));
        }
    }
    atomic_store(&done, 1);
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    CHECK(atomic_load(&charged) > 0 && atomic_load(&refused) > 0);
    return 0;
}
