// Random calls with random handles, good and bad, from several threads for a second (LEDGERLINE_ATTACK: that many
// seconds). Nothing may crash or hang. The threads also charge a second ledger properly through the same calls. It
// must end with exactly the units that they hold.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, HANDLES = 64 };

static ledgerline_group_t proper;
static _Atomic uint64_t ledgers[HANDLES], owners[HANDLES], ids[HANDLES], registered[HANDLES];
static atomic_ullong held, succeeded, owned, gone;
static time_t until;

struct lots {
    uint64_t state;
};

static uint64_t lot(struct lots *lots) {
    lots->state ^= lots->state << 13;
    lots->state ^= lots->state >> 7;
    lots->state ^= lots->state << 17;
    return lots->state;
}

// Returns mostly an existing or former number, sometimes any number, or one with a wrong bit.
static uint64_t some(struct lots *lots, uint64_t known) {
    switch (lot(lots) % 12) {
    case 0: return lot(lots);
    case 1: return known ^ (uint64_t)1 << lot(lots) % 64;
    case 2: return lot(lots) % 3;
    default: return known;
    }
}

static uint64_t units(struct lots *lots) {
    return lot(lots) >> lot(lots) % 64;
}

static uint64_t reclaim(void *data, uint64_t need) {
    ledgerline_group_t group = {atomic_load(&owners[need % HANDLES]), atomic_load(&ids[need % HANDLES])};
    (void)data;
    (void)ledgerline_try_charge(group, need);
    (void)ledgerline_uncharge(group, need % 1000);
    return need;
}

static void let_go(void *data) {
    (void)data;
    atomic_fetch_add(&gone, 1);
}

static int32_t look(void *data, const ledgerline_group_snapshot_t *group) {
    const struct lots *lots = data;
    CHECK(strlen(group->path) == group->path_length);
    return lots->state % 5 == 0;
}

static void cancelled(void *data, const char *why) {
    (void)data;
    CHECK(strlen(why) > 0);
}

static void call(struct lots *lots) {
    const size_t at = lot(lots) % HANDLES, put = lot(lots) % HANDLES;
    const ledgerline_ledger_t ledger = {some(lots, atomic_load(&ledgers[at]))};
    const ledgerline_group_t group = {some(lots, atomic_load(&owners[at])), some(lots, atomic_load(&ids[at]))};
    const ledgerline_group_t other = {group.ledger, some(lots, atomic_load(&ids[put]))};
    const uint64_t number = some(lots, atomic_load(&registered[at])), n = units(lots);
    static const char *const names[] = {"a", "b", "", "\xff", "a/b", "/a", "/", "blocks_live", "x"};
    const char *const name = names[lot(lots) % 9];
    const size_t length = lot(lots) % 4 == 0 ? strlen(name) : NUL;
    char text[64];
    size_t needed;
    ledgerline_group_t made = {0, 0};
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    ledgerline_ledger_t fresh;
    ledgerline_limits_t limits;
    ledgerline_estimate_t estimate;
    ledgerline_events_t events;
    ledgerline_mistakes_t mistakes;
    ledgerline_settled_t settled;
    ledgerline_reclaimer_t reclaimer;
    ledgerline_reclaim_report_t report;
    ledgerline_watch_t watch;
    ledgerline_token_t token;
    ledgerline_victim_t victim;
    uint64_t value;
    int64_t own;
    uint32_t mode;
    int32_t descriptor;
    int code = 1;
    switch (lot(lots) % 46) {
    case 0:
        if (lot(lots) % 8 == 0) {
            options.capacity = (uint32_t)(lot(lots) % 20);
            options.flags = (uint32_t)(lot(lots) % 5);
            options.reclaim_ms = 1;
            options.throttle_ms = 1;
            options.victim_ms = 1;
            code = ledgerline_ledger_new(&options, &fresh);
            if (code == LEDGERLINE_OK) {
                (void)ledgerline_ledger_free((ledgerline_ledger_t){atomic_exchange(&ledgers[put], fresh.number)});
                (void)ledgerline_ledger_root(fresh, &made);
                // A handle of two halves that do not belong together is one more bad one.
                atomic_store(&owners[put], made.ledger);
                atomic_store(&ids[put], made.id);
            }
        }
        break;
    case 1: code = lot(lots) % 8 == 0 ? ledgerline_ledger_free(ledger) : 1; break;
    case 2: code = ledgerline_ledger_root(ledger, &made); break;
    case 3: code = ledgerline_ledger_find(ledger, name, length, &made); break;
    case 4: code = ledgerline_ledger_mistakes(ledger, &mistakes); break;
    case 5: code = ledgerline_ledger_item(ledger, name, length, &mode); break;
    case 6: code = ledgerline_ledger_snapshot(ledger, look, lots); break;
    case 7:
    case 8: code = ledgerline_group_create(group, name, length, &made); break;
    case 9: code = ledgerline_group_destroy(group, &settled); break;
    case 10: code = ledgerline_group_destroy_tree(group, lot(lots) % 2 ? &settled : NULL); break;
    case 11: code = ledgerline_group_exists(group); break;
    case 12: code = ledgerline_group_path(group, text, lot(lots) % 64, &needed); break;
    case 13: code = ledgerline_group_parent(group, &made); break;
    case 14:
    case 15: code = ledgerline_try_charge(group, n); break;
    case 16: code = ledgerline_try_charge_units(group, n); break;
    case 17: code = ledgerline_charge(group, n); break;
    case 18:
    case 19: code = ledgerline_uncharge(group, n); break;
    case 20: code = ledgerline_try_charge_wait(group, n, lot(lots) % 2, (uint32_t)(lot(lots) % 5)); break;
    case 21: code = ledgerline_transfer(group, other, n); break;
    case 22: code = ledgerline_group_set_max(group, n); break;
    case 23: code = ledgerline_group_set_max_now(group, n, &value); break;
    case 24: code = ledgerline_group_set_high(group, n); break;
    case 25: code = ledgerline_group_set_low(group, n); break;
    case 26: code = ledgerline_group_set_min(group, n); break;
    case 27: code = ledgerline_group_limits(group, &limits); break;
    case 28: code = ledgerline_group_set_mode(group, (uint32_t)(lot(lots) % 4)); break;
    case 29: code = ledgerline_group_mode(group, &mode); break;
    case 30: code = ledgerline_group_usage(group, &value); break;
    case 31: code = ledgerline_group_estimate(group, &estimate); break;
    case 32: code = ledgerline_group_peak(group, &estimate); break;
    case 33: code = ledgerline_group_reset_peak(group); break;
    case 34: code = ledgerline_group_events(group, &events); break;
    case 35: code = ledgerline_group_add_stat(group, (uint32_t)n, (int64_t)n); break;
    case 36: code = ledgerline_group_stat(group, name, length, &own, NULL); break;
    case 37: code = ledgerline_group_diagnose(group, text, sizeof text, NULL); break;
    case 38: code = ledgerline_current_swap(group, lot(lots) % 2 ? &made : NULL); break;
    case 39:
        if (lot(lots) % 2) {
            code = ledgerline_add_reclaimer(group, (int32_t)n, reclaim, NULL, &reclaimer);
        } else {
            atomic_fetch_add(&owned, 1);
            code = ledgerline_add_reclaimer_owning(group, (int32_t)n, reclaim, NULL, let_go, &reclaimer);
        }
        if (code == LEDGERLINE_OK) {
            (void)ledgerline_remove_reclaimer((ledgerline_reclaimer_t){atomic_exchange(&registered[put], reclaimer.number)});
        }
        break;
    case 40:
        code = ledgerline_watch_open(group, &watch, &descriptor);
        if (code == LEDGERLINE_OK) {
            (void)ledgerline_watch_close((ledgerline_watch_t){atomic_exchange(&registered[put], watch.number)});
        }
        break;
    case 41:
        code = ledgerline_token_new(&token);
        (void)ledgerline_token_on_cancel(token, cancelled, NULL);
        if (ledgerline_add_victim(group, token, &victim) == LEDGERLINE_OK) {
            (void)ledgerline_remove_victim((ledgerline_victim_t){atomic_exchange(&registered[put], victim.number)});
        }
        if (lot(lots) % 2) {
            (void)ledgerline_token_cancel(token);
        }
        (void)ledgerline_token_free(token);
        break;
    case 42:
        (void)ledgerline_remove_victim((ledgerline_victim_t){number});
        (void)ledgerline_watch_look((ledgerline_watch_t){number});
        (void)ledgerline_reclaimer_report((ledgerline_reclaimer_t){number}, &report);
        code = ledgerline_token_check((ledgerline_token_t){number});
        break;
    case 43: code = ledgerline_settle_dead(ledger, lot(lots) % 2 ? &value : NULL); break;
    case 44: code = ledgerline_fold_ended(group, lot(lots) % 2 ? &value : NULL); break;
    default:
        (void)ledgerline_watch_close((ledgerline_watch_t){number});
        code = ledgerline_remove_reclaimer((ledgerline_reclaimer_t){number});
        break;
    }
    CHECK(code != LEDGERLINE_ERROR_INTERNAL);
    if (code == LEDGERLINE_OK) {
        atomic_fetch_add_explicit(&succeeded, 1, memory_order_relaxed);
        if (made.ledger != 0 && lot(lots) % 2) {
            atomic_store(&owners[put], made.ledger);
            atomic_store(&ids[put], made.id);
        }
    }
}

static void *attack(void *data) {
    struct lots lots = {*(const uint64_t *)data};
    uint64_t mine = 0;
    while (time(NULL) < until) {
        for (int turn = 0; turn < 50; turn++) {
            call(&lots);
        }
        const uint64_t n = 1 + lot(&lots) % 1000;
        if (mine > 5000 || lot(&lots) % 2) {
            OK(ledgerline_uncharge(proper, mine));
            mine = 0;
        }
        OK(ledgerline_try_charge(proper, n));
        mine += n;
    }
    atomic_fetch_add(&held, mine);
    (void)ledgerline_current_swap(LEDGERLINE_NOBODY, NULL);
    return NULL;
}

int main(void) {
    const char *const soak = getenv("LEDGERLINE_SOAK"), *const seed = getenv("LEDGERLINE_SEED");
    const char *const asked = getenv("LEDGERLINE_ATTACK"), *const seconds = asked || !soak || strcmp(soak, "long") ? asked : "60";
    // Ordinary runs have the same seed each time, longer ones a new one.
    const uint64_t drawn = seconds ? (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000 : 1;
    const uint64_t first = seed ? strtoull(seed, NULL, 10) : drawn;
    printf("LEDGERLINE_SEED=%llu\n", (unsigned long long)first);
    fflush(stdout);
    until = time(NULL) + (seconds ? atoi(seconds) : 1) + 1;
    ledgerline_group_t root;
    const ledgerline_ledger_t ledger = small_ledger(&root);
    proper = child(root, "proper");
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];
    for (int at = 0; at < THREADS; at++) {
        seeds[at] = (first + (uint64_t)at + 1) * 0x9e3779b97f4a7c15u;
        CHECK(pthread_create(&threads[at], NULL, attack, &seeds[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    // Owned data is freed once, at the latest with its ledger.
    for (int at = 0; at < HANDLES; at++) {
        (void)ledgerline_ledger_free((ledgerline_ledger_t){atomic_load(&ledgers[at])});
    }
    CHECK(atomic_load(&gone) == atomic_load(&owned));
    CHECK(usage(proper) == atomic_load(&held) && usage(root) == atomic_load(&held));
    OK(ledgerline_uncharge(proper, atomic_load(&held)));
    ledgerline_mistakes_t mistakes;
    OK(ledgerline_ledger_mistakes(ledger, &mistakes));
    CHECK(mistakes.underflows == 0 && mistakes.strays == 0);
    CHECK(atomic_load(&succeeded) > 100);
    OK(ledgerline_ledger_free(ledger));
    return 0;
}
