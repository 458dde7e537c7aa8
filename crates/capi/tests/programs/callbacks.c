// Reclaimers, tokens and victims: asked, charging themselves, taken out while they run.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void nap(long milliseconds) {
    const struct timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, NULL);
}

struct cache {
    ledgerline_group_t group;
    ledgerline_reclaimer_t self;
    atomic_ullong held;
    atomic_int inside, calls, removed, leave;
};

static uint64_t evict(void *data, uint64_t need) {
    struct cache *cache = data;
    atomic_fetch_add(&cache->calls, 1);
    // What it charges is served where there is room, and asks no reclaimer.
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(cache->group, 1 << 20));
    const uint64_t held = atomic_load(&cache->held), freed = need < held ? need : held;
    atomic_fetch_sub(&cache->held, freed);
    OK(ledgerline_uncharge(cache->group, freed));
    OK(ledgerline_try_charge(cache->group, 0));
    return freed;
}

static void asked(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    ledgerline_group_t tenant = child(root, "tenant"), query = child(tenant, "query");
    struct cache cache = {.group = child(tenant, "cache")};
    OK(ledgerline_group_set_max(tenant, 1000));
    OK(ledgerline_try_charge(cache.group, 900));
    atomic_store(&cache.held, 900);
    ledgerline_reclaimer_t reclaimer;
    OK(ledgerline_add_reclaimer(cache.group, 0, evict, &cache, &reclaimer));
    OK(ledgerline_try_charge(query, 600));
    CHECK(usage(cache.group) <= 400 && atomic_load(&cache.calls) >= 1);
    ledgerline_reclaim_report_t report;
    OK(ledgerline_reclaimer_report(reclaimer, &report));
    CHECK(report.runs == (uint64_t)atomic_load(&cache.calls) && report.freed >= 500 && report.short_runs == 0);
    OK(ledgerline_remove_reclaimer(reclaimer));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_reclaimer(reclaimer));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_reclaimer_report(reclaimer, &report));
    const int calls = atomic_load(&cache.calls);
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(query, 600));
    CHECK(atomic_load(&cache.calls) == calls);
    OK(ledgerline_ledger_free(ledger));
}

static uint64_t stay(void *data, uint64_t need) {
    struct cache *cache = data;
    (void)need;
    atomic_store(&cache->inside, 1);
    while (!atomic_load(&cache->leave)) {
        nap(1);
    }
    nap(20);
    CHECK(!atomic_load(&cache->removed));
    atomic_store(&cache->inside, 0);
    return 0;
}

static void *charge_much(void *data) {
    struct cache *cache = data;
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(cache->group, 10));
    return NULL;
}

static void *take_out(void *data) {
    struct cache *cache = data;
    OK(ledgerline_remove_reclaimer(cache->self));
    CHECK(!atomic_load(&cache->inside));
    atomic_store(&cache->removed, 1);
    return NULL;
}

// One thread is inside the function while another takes it out: that waits.
static void waited_for(int by_free) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    struct cache cache = {.group = child(root, "cache")};
    OK(ledgerline_group_set_max(cache.group, 10));
    OK(ledgerline_try_charge(cache.group, 5));
    OK(ledgerline_add_reclaimer(cache.group, 0, stay, &cache, &cache.self));
    pthread_t charging, removing;
    CHECK(pthread_create(&charging, NULL, charge_much, &cache) == 0);
    while (!atomic_load(&cache.inside)) {
        nap(1);
    }
    if (by_free) {
        atomic_store(&cache.leave, 1);
        OK(ledgerline_ledger_free(ledger));
        CHECK(!atomic_load(&cache.inside));
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_reclaimer(cache.self));
    } else {
        CHECK(pthread_create(&removing, NULL, take_out, &cache) == 0);
        nap(20);
        CHECK(!atomic_load(&cache.removed));
        atomic_store(&cache.leave, 1);
        CHECK(pthread_join(removing, NULL) == 0);
        OK(ledgerline_ledger_free(ledger));
    }
    CHECK(pthread_join(charging, NULL) == 0);
}

static uint64_t remove_itself(void *data, uint64_t need) {
    struct cache *cache = data;
    (void)need;
    atomic_fetch_add(&cache->calls, 1);
    OK(ledgerline_remove_reclaimer(cache->self));
    return 0;
}

static uint64_t free_its_ledger(void *data, uint64_t need) {
    struct cache *cache = data;
    (void)need;
    atomic_fetch_add(&cache->calls, 1);
    OK(ledgerline_ledger_free((ledgerline_ledger_t){cache->group.ledger}));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_try_charge(cache->group, 1));
    return 0;
}

// A reclaimer takes itself out, and another frees the ledger below the charge that asked it.
static void from_inside(void) {
    for (int frees = 0; frees < 2; frees++) {
        ledgerline_group_t root;
        ledgerline_ledger_t ledger = small_ledger(&root);
        struct cache cache = {.group = child(root, "cache")};
        OK(ledgerline_group_set_max(cache.group, 10));
        OK(ledgerline_add_reclaimer(cache.group, 0, frees ? free_its_ledger : remove_itself, &cache, &cache.self));
        OK(ledgerline_try_charge(cache.group, 8));
        GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(cache.group, 9));
        CHECK(atomic_load(&cache.calls) == 1);
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_reclaimer(cache.self));
        GIVES(frees ? LEDGERLINE_ERROR_HANDLE : LEDGERLINE_OK, ledgerline_ledger_free(ledger));
    }
}

static void note(void *data, const char *why) {
    CHECK(strlen(why) > 10);
    atomic_fetch_add((atomic_int *)data, 1);
}

struct runaway {
    ledgerline_group_t group;
    ledgerline_token_t token;
};

// Works until its token says stop, and gives everything back.
static void *run_away(void *data) {
    struct runaway *runaway = data;
    while (ledgerline_token_check(runaway->token) == LEDGERLINE_OK) {
        nap(1);
    }
    OK(ledgerline_uncharge(runaway->group, 90));
    return NULL;
}

static void victims(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    ledgerline_group_t tenant = child(root, "tenant"), query = child(tenant, "query");
    struct runaway runaway = {child(tenant, "runaway"), {0}};
    OK(ledgerline_token_new(&runaway.token));
    OK(ledgerline_token_check(runaway.token));
    atomic_int told = 0;
    OK(ledgerline_token_on_cancel(runaway.token, note, &told));
    ledgerline_victim_t victim;
    OK(ledgerline_add_victim(runaway.group, runaway.token, &victim));
    OK(ledgerline_group_set_max(tenant, 100));
    OK(ledgerline_try_charge(runaway.group, 90));
    OK(ledgerline_group_set_oom_group(tenant, 1));
    OK(ledgerline_group_set_oom_group(tenant, 0));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_group_set_oom_group(tenant, 2));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_away, &runaway) == 0);
    OK(ledgerline_try_charge_wait(query, 50, 60000, LEDGERLINE_OOM));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&told) == 1);
    char why[300];
    OK(ledgerline_token_why(runaway.token, why, sizeof why, NULL));
    CHECK(strstr(why, "/tenant/runaway was cancelled") != NULL);
    GIVES(LEDGERLINE_ERROR_CANCELLED, ledgerline_token_cancel(runaway.token));
    // Late callers are called at once.
    OK(ledgerline_token_on_cancel(runaway.token, note, &told));
    CHECK(atomic_load(&told) == 2);
    OK(ledgerline_remove_victim(victim));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_victim(victim));
    OK(ledgerline_token_free(runaway.token));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_token_check(runaway.token));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_token_free(runaway.token));

    // A victim whose token was freed can be cancelled, and its callback is not called.
    ledgerline_token_t token;
    OK(ledgerline_token_new(&token));
    OK(ledgerline_token_on_cancel(token, note, &told));
    OK(ledgerline_add_victim(query, token, &victim));
    OK(ledgerline_token_free(token));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge_wait(tenant, 60, 50, LEDGERLINE_OOM));
    ledgerline_events_t events;
    OK(ledgerline_group_events(tenant, &events));
    CHECK(events.oom_kill == 2 && atomic_load(&told) == 2);
    OK(ledgerline_ledger_free(ledger));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_victim(victim));
    OK(ledgerline_token_new(&token));
    OK(ledgerline_token_cancel(token));
    OK(ledgerline_token_free(token));
}

int main(void) {
    asked();
    waited_for(0);
    waited_for(1);
    from_inside();
    victims();
    return 0;
}
