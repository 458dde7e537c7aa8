// Reclaimers, tokens and victims: asked, charging themselves, taken out while they run.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
    // Its own charges are served if there is room, and ask no reclaimer.
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

// One thread is inside the function while another takes it out: the other one waits.
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

static void let_go(void *data) {
    struct cache *cache = data;
    CHECK(!atomic_load(&cache->inside));
    atomic_fetch_add(&cache->removed, 1);
}

static uint64_t remove_itself_and_go_on(void *data, uint64_t need) {
    struct cache *cache = data;
    atomic_store(&cache->inside, 1);
    (void)remove_itself(data, need);
    CHECK(!atomic_load(&cache->removed));
    atomic_store(&cache->inside, 0);
    return 0;
}

// The library frees its data once, when no thread uses it any more.
static void owned(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    struct cache cache = {.group = child(root, "cache")};
    OK(ledgerline_group_set_max(cache.group, 10));
    OK(ledgerline_try_charge(cache.group, 8));
    OK(ledgerline_add_reclaimer_owning(cache.group, 0, evict, &cache, let_go, &cache.self));
    CHECK(!atomic_load(&cache.removed));
    OK(ledgerline_remove_reclaimer(cache.self));
    CHECK(atomic_load(&cache.removed) == 1);
    OK(ledgerline_add_reclaimer_owning(cache.group, 0, evict, &cache, NULL, &cache.self));
    OK(ledgerline_remove_reclaimer(cache.self));
    // Inside itself, and with its ledger.
    atomic_store(&cache.removed, 0);
    OK(ledgerline_add_reclaimer_owning(cache.group, 0, remove_itself_and_go_on, &cache, let_go, &cache.self));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(cache.group, 9));
    CHECK(atomic_load(&cache.calls) == 1 && atomic_load(&cache.removed) == 1);
    OK(ledgerline_add_reclaimer_owning(cache.group, 0, evict, &cache, let_go, &cache.self));
    OK(ledgerline_ledger_free(ledger));
    CHECK(atomic_load(&cache.removed) == 2);
    // It is also freed if the call fails.
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_add_reclaimer_owning(cache.group, 0, evict, &cache, let_go, &cache.self));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_add_reclaimer_owning(cache.group, 0, NULL, &cache, let_go, &cache.self));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_add_reclaimer_owning(cache.group, 0, evict, &cache, let_go, NULL));
    CHECK(atomic_load(&cache.removed) == 5);
}

static void note(void *data, const char *why) {
    CHECK(strlen(why) > 10);
    atomic_fetch_add((atomic_int *)data, 1);
}

struct runaway {
    ledgerline_group_t group;
    ledgerline_token_t token;
};

// Works until its token is cancelled, and gives everything back.
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

// The child of a fork while another thread is inside a callback: that call ends in the parent alone, and the child
// does not wait for it.
static void in_a_child(void (*act)(struct cache *), struct cache *cache) {
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        alarm(30);
        act(cache);
        // Not `_exit`: there, a sanitizer reports threads of the parent that had just ended as never joined.
        syscall(SYS_exit_group, 0);
    }
    int status = 1;
    CHECK(waitpid(process, &status, 0) == process);
    CHECK(status == 0);
}

static void child_takes_it_out(struct cache *cache) {
    const int calls = atomic_load(&cache->calls);
    // It is not asked again, since its state is unknown.
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(cache->group, 10));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge_wait(cache->group, 10, 20, LEDGERLINE_OOM));
    CHECK(atomic_load(&cache->calls) == calls);
    OK(ledgerline_remove_reclaimer(cache->self));
    // Another reclaimer is asked.
    struct cache other = {.group = cache->group, .held = 5};
    OK(ledgerline_add_reclaimer(other.group, 0, evict, &other, &other.self));
    OK(ledgerline_try_charge(other.group, 10));
    CHECK(atomic_load(&other.calls) >= 1);
    OK(ledgerline_remove_reclaimer(other.self));
    OK(ledgerline_ledger_free((ledgerline_ledger_t){cache->group.ledger}));
}

static void child_frees_the_ledger(struct cache *cache) {
    OK(ledgerline_ledger_free((ledgerline_ledger_t){cache->group.ledger}));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_reclaimer(cache->self));
}

static void forked_beside_a_reclaimer(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    struct cache cache = {.group = child(root, "cache")};
    OK(ledgerline_group_set_max(cache.group, 10));
    OK(ledgerline_try_charge(cache.group, 5));
    OK(ledgerline_add_reclaimer(cache.group, 0, stay, &cache, &cache.self));
    pthread_t charging;
    CHECK(pthread_create(&charging, NULL, charge_much, &cache) == 0);
    while (!atomic_load(&cache.inside)) {
        nap(1);
    }
    in_a_child(child_takes_it_out, &cache);
    in_a_child(child_frees_the_ledger, &cache);
    atomic_store(&cache.leave, 1);
    OK(ledgerline_ledger_free(ledger));
    CHECK(!atomic_load(&cache.inside));
    CHECK(pthread_join(charging, NULL) == 0);
}

struct told {
    ledgerline_token_t token;
    struct cache state;
};

static void stay_told(void *data, const char *why) {
    CHECK(strlen(why) > 10);
    (void)stay(data, 0);
}

static void *cancel(void *data) {
    struct told *told = data;
    OK(ledgerline_token_cancel(told->token));
    return NULL;
}

static void child_frees_the_token(struct cache *state) {
    const struct told *told = (const struct told *)(const void *)((const char *)state - offsetof(struct told, state));
    GIVES(LEDGERLINE_ERROR_CANCELLED, ledgerline_token_check(told->token));
    GIVES(LEDGERLINE_ERROR_CANCELLED, ledgerline_token_cancel(told->token));
    OK(ledgerline_token_free(told->token));
}

static void forked_beside_a_token(void) {
    struct told told = {{0}, {.leave = 0}};
    OK(ledgerline_token_new(&told.token));
    OK(ledgerline_token_on_cancel(told.token, stay_told, &told.state));
    pthread_t cancelling;
    CHECK(pthread_create(&cancelling, NULL, cancel, &told) == 0);
    while (!atomic_load(&told.state.inside)) {
        nap(1);
    }
    in_a_child(child_frees_the_token, &told.state);
    atomic_store(&told.state.leave, 1);
    OK(ledgerline_token_free(told.token));
    CHECK(!atomic_load(&told.state.inside));
    CHECK(pthread_join(cancelling, NULL) == 0);
}

static void child_registers(struct cache *cache) {
    ledgerline_token_t token;
    ledgerline_victim_t victim;
    OK(ledgerline_token_on_cancel((ledgerline_token_t){cache->self.number}, note, &cache->calls));
    OK(ledgerline_token_new(&token));
    OK(ledgerline_token_on_cancel(token, note, &cache->calls));
    OK(ledgerline_add_victim(cache->group, token, &victim));
    GIVES(LEDGERLINE_ERROR_CANCELLED, ledgerline_try_charge_wait(cache->group, 10, 20000, LEDGERLINE_OOM));
    OK(ledgerline_remove_victim(victim));
    OK(ledgerline_token_free(token));
}

static void *register_much(void *data) {
    struct cache *cache = data;
    for (int turn = 0; turn < 100000 && !atomic_load(&cache->leave); turn++) {
        OK(ledgerline_token_on_cancel((ledgerline_token_t){cache->self.number}, note, &cache->calls));
    }
    return NULL;
}

// A fork while other threads may hold any lock.
static void forked_beside_tokens(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    struct cache cache = {.group = child(root, "cache")};
    ledgerline_token_t token;
    OK(ledgerline_token_new(&token));
    cache.self.number = token.number;
    OK(ledgerline_group_set_max(cache.group, 10));
    OK(ledgerline_try_charge(cache.group, 5));
    pthread_t threads[2];
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_create(&threads[at], NULL, register_much, &cache) == 0);
    }
    for (int turn = 0; turn < 20; turn++) {
        nap(1);
        in_a_child(child_registers, &cache);
    }
    atomic_store(&cache.leave, 1);
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    OK(ledgerline_token_free(token));
    OK(ledgerline_ledger_free(ledger));
}

int main(void) {
    forked_beside_a_reclaimer();
    forked_beside_a_token();
    forked_beside_tokens();
    asked();
    waited_for(0);
    waited_for(1);
    from_inside();
    owned();
    victims();
    return 0;
}
