// Null, made-up, stale, foreign and freed handles, NULL and unaligned pointers, invalid texts and sizes beyond range:
// to every call, from several threads at once. Each returns an error code with a text.
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, TIMES = 40 };

static ledgerline_group_t stale, good_root;
static ledgerline_ledger_t freed, good;
static ledgerline_group_t freeds_group;

static uint64_t give_nothing(void *data, uint64_t need) {
    (void)data, (void)need;
    return 0;
}

static int32_t look_at_nothing(void *data, const ledgerline_group_snapshot_t *group) {
    (void)data, (void)group;
    return 0;
}

static void told(void *data, const char *why) {
    (void)data, (void)why;
}

// Checks for an error with a text. For a group, the error is that it has no ledger or is gone.
static void error(int expected, int got, int line) {
    const int of_a_handle = expected == LEDGERLINE_ERROR_HANDLE || expected == LEDGERLINE_ERROR_GONE;
    if (!(got == expected || (of_a_handle && got == LEDGERLINE_ERROR_MISTAKE))) {
        fail_at(__FILE__, line, "another error than expected", got);
    }
    char text[300] = "";
    OK(ledgerline_last_error(text, sizeof text, NULL));
    if (strlen(text) < 10) {
        fail_at(__FILE__, line, "an error without a text", got);
    }
}

#define GROUP(call) error(code, call, __LINE__)

// Makes every call with an invalid group.
static void of_groups(ledgerline_group_t group, int code) {
    ledgerline_group_t got;
    ledgerline_settled_t settled;
    ledgerline_limits_t limits;
    ledgerline_estimate_t estimate;
    ledgerline_events_t events;
    ledgerline_reclaimer_t reclaimer;
    ledgerline_watch_t watch;
    ledgerline_victim_t victim;
    ledgerline_token_t token;
    char text[100];
    uint64_t units;
    uint32_t mode;
    int64_t own;
    int32_t descriptor;
    OK(ledgerline_token_new(&token));
    GROUP(ledgerline_group_create(group, "a", 1, &got));
    GROUP(ledgerline_group_destroy(group, &settled));
    GROUP(ledgerline_group_destroy_tree(group, &settled));
    GROUP(ledgerline_group_exists(group));
    GROUP(ledgerline_fold_ended(group, NULL));
    GROUP(ledgerline_group_path(group, text, sizeof text, NULL));
    GROUP(ledgerline_group_parent(group, &got));
    for (uint64_t n = 0; n < 2; n++) {
        GROUP(ledgerline_try_charge(group, n));
        GROUP(ledgerline_try_charge_units(group, n));
        GROUP(ledgerline_charge(group, n));
        GROUP(ledgerline_try_charge_wait(group, n, 1000000, 0));
        GROUP(ledgerline_transfer(group.ledger == good.number ? good_root : group, group, n));
    }
    GROUP(ledgerline_uncharge(group, 1));
    GROUP(ledgerline_group_set_max(group, 1));
    GROUP(ledgerline_group_set_max_now(group, 1, &units));
    GROUP(ledgerline_group_set_high(group, 1));
    GROUP(ledgerline_group_set_low(group, 1));
    GROUP(ledgerline_group_set_min(group, 1));
    GROUP(ledgerline_group_limits(group, &limits));
    GROUP(ledgerline_group_set_mode(group, LEDGERLINE_MEASURE));
    GROUP(ledgerline_group_mode(group, &mode));
    GROUP(ledgerline_group_usage(group, &units));
    GROUP(ledgerline_group_estimate(group, &estimate));
    GROUP(ledgerline_group_peak(group, &estimate));
    GROUP(ledgerline_group_reset_peak(group));
    GROUP(ledgerline_group_events(group, &events));
    GROUP(ledgerline_group_local_events(group, &events));
    GROUP(ledgerline_group_add_stat(group, 0, 1));
    GROUP(ledgerline_group_stat(group, "blocks_live", NUL, &own, &own));
    GROUP(ledgerline_group_stat_text(group, text, sizeof text, NULL));
    GROUP(ledgerline_group_diagnose(group, text, sizeof text, NULL));
    GROUP(ledgerline_add_reclaimer(group, 0, give_nothing, NULL, &reclaimer));
    GROUP(ledgerline_add_reclaimer_owning(group, 0, give_nothing, NULL, NULL, &reclaimer));
    GROUP(ledgerline_add_victim(group, token, &victim));
    GROUP(ledgerline_watch_open(group, &watch, &descriptor));
    GROUP(ledgerline_group_set_oom_group(group, 1));
    OK(ledgerline_token_free(token));
}

static void of_current(ledgerline_group_t group) {
    if (group.ledger != 0 || group.id != 0) {
        CHECK(ledgerline_current_swap(group, NULL) != LEDGERLINE_OK);
    }
    ledgerline_group_t now;
    OK(ledgerline_current_get(&now));
    CHECK(now.ledger == 0 && now.id == 0);
}

static void of_ledgers(ledgerline_ledger_t ledger) {
    const int code = LEDGERLINE_ERROR_HANDLE;
    ledgerline_group_t got;
    ledgerline_mistakes_t mistakes;
    uint32_t item;
    GROUP(ledgerline_ledger_root(ledger, &got));
    GROUP(ledgerline_ledger_find(ledger, "/", 1, &got));
    GROUP(ledgerline_ledger_attach(ledger, "a", 1, &got));
    GROUP(ledgerline_ledger_mistakes(ledger, &mistakes));
    GROUP(ledgerline_ledger_item(ledger, "a", 1, &item));
    GROUP(ledgerline_settle_dead(ledger, NULL));
    GROUP(ledgerline_ledger_keep(ledger));
    GROUP(ledgerline_ledger_snapshot(ledger, look_at_nothing, NULL));
    GROUP(ledgerline_ledger_free(ledger));
}

static void of_registrations(uint64_t number) {
    const int code = LEDGERLINE_ERROR_HANDLE;
    ledgerline_reclaim_report_t report;
    ledgerline_victim_t victim;
    char text[100];
    GROUP(ledgerline_remove_reclaimer((ledgerline_reclaimer_t){number}));
    GROUP(ledgerline_reclaimer_report((ledgerline_reclaimer_t){number}, &report));
    GROUP(ledgerline_watch_look((ledgerline_watch_t){number}));
    GROUP(ledgerline_watch_close((ledgerline_watch_t){number}));
    GROUP(ledgerline_token_check((ledgerline_token_t){number}));
    GROUP(ledgerline_token_cancel((ledgerline_token_t){number}));
    GROUP(ledgerline_token_why((ledgerline_token_t){number}, text, sizeof text, NULL));
    GROUP(ledgerline_token_on_cancel((ledgerline_token_t){number}, told, NULL));
    GROUP(ledgerline_token_free((ledgerline_token_t){number}));
    GROUP(ledgerline_add_victim(good_root, (ledgerline_token_t){number}, &victim));
    GROUP(ledgerline_remove_victim((ledgerline_victim_t){number}));
}

// A handle of one kind is not accepted as one of another kind.
static void of_other_kinds(void) {
    ledgerline_token_t token;
    OK(ledgerline_token_new(&token));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_reclaimer((ledgerline_reclaimer_t){token.number}));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_watch_close((ledgerline_watch_t){token.number}));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_remove_victim((ledgerline_victim_t){token.number}));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_ledger_free((ledgerline_ledger_t){token.number}));
    OK(ledgerline_token_free(token));
}

static void of_pointers(void) {
    const int code = LEDGERLINE_ERROR_ARGUMENT;
    uint64_t room[40];
    // Through a number, since a compiler may assume that a pointer is aligned.
    volatile uintptr_t crooked = (uintptr_t)room + 1;
    for (int turn = 0; turn < 2; turn++) {
        void *const nowhere = turn ? (void *)crooked : NULL;
        GROUP(ledgerline_ledger_new(NULL, nowhere));
        GROUP(ledgerline_ledger_create_in(NULL, 0, nowhere));
        GROUP(ledgerline_ledger_open_in(0, nowhere));
        GROUP(ledgerline_ledger_attach(good, "a", 1, nowhere));
        GROUP(ledgerline_ledger_root(good, nowhere));
        GROUP(ledgerline_ledger_find(good, "/", 1, nowhere));
        GROUP(ledgerline_ledger_mistakes(good, nowhere));
        GROUP(ledgerline_ledger_item(good, "a", 1, nowhere));
        GROUP(ledgerline_group_create(good_root, "a", 1, nowhere));
        GROUP(ledgerline_group_parent(good_root, nowhere));
        GROUP(ledgerline_group_limits(good_root, nowhere));
        GROUP(ledgerline_group_mode(good_root, nowhere));
        GROUP(ledgerline_group_usage(good_root, nowhere));
        GROUP(ledgerline_group_estimate(good_root, nowhere));
        GROUP(ledgerline_group_peak(good_root, nowhere));
        GROUP(ledgerline_group_events(good_root, nowhere));
        GROUP(ledgerline_group_local_events(good_root, nowhere));
        GROUP(ledgerline_current_get(nowhere));
        GROUP(ledgerline_add_reclaimer(good_root, 0, give_nothing, NULL, nowhere));
        GROUP(ledgerline_add_reclaimer_owning(good_root, 0, give_nothing, NULL, NULL, nowhere));
        GROUP(ledgerline_reclaimer_report((ledgerline_reclaimer_t){1}, nowhere));
        GROUP(ledgerline_token_new(nowhere));
        GROUP(ledgerline_add_victim(good_root, (ledgerline_token_t){1}, nowhere));
        ledgerline_watch_t watch;
        int32_t descriptor;
        GROUP(ledgerline_watch_open(good_root, nowhere, &descriptor));
        GROUP(ledgerline_watch_open(good_root, &watch, nowhere));
    }
    ledgerline_reclaimer_t reclaimer;
    ledgerline_token_t token;
    ledgerline_group_t group;
    OK(ledgerline_token_new(&token));
    GROUP(ledgerline_add_reclaimer(good_root, 0, NULL, NULL, &reclaimer));
    GROUP(ledgerline_token_on_cancel(token, NULL, NULL));
    GROUP(ledgerline_ledger_snapshot(good, NULL, NULL));
    GROUP(ledgerline_group_create(good_root, NULL, 1, &group));
    GROUP(ledgerline_group_create(good_root, NULL, NUL, &group));
    GROUP(ledgerline_ledger_find(good, NULL, NUL, &group));
    GROUP(ledgerline_group_path(good_root, NULL, 10, NULL));
    GROUP(ledgerline_last_error(NULL, 10, NULL));
    GIVES(LEDGERLINE_ERROR_BUFFER, ledgerline_group_path(good_root, NULL, 0, NULL));
    OK(ledgerline_token_free(token));
}

static void of_texts(void) {
    const int code = LEDGERLINE_ERROR_NAME;
    const char *const names[] = {"", "a/b", "a\x80", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "a\nb",
                                 "\x1b[2J", "\xe2\x80\xae", "a\xc3"};
    ledgerline_group_t group;
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        GROUP(ledgerline_group_create(good_root, names[at], NUL, &group));
        GROUP(ledgerline_group_create(good_root, names[at], strlen(names[at]), &group));
    }
    GROUP(ledgerline_group_create(good_root, "a\0b", 3, &group));
    char longest[9000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    GROUP(ledgerline_group_create(good_root, longest, NUL, &group));
    GROUP(ledgerline_group_create(good_root, longest, 57, &group));
    GROUP(ledgerline_group_create(good_root, "short", (size_t)1 << 62, &group));
    GROUP(ledgerline_group_create(good_root, "short", SIZE_MAX - 1, &group));
    GROUP(ledgerline_ledger_find(good, longest, NUL, &group));
    GROUP(ledgerline_ledger_find(good, "/a\xff", NUL, &group));
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_ledger_find(good, "/there/is/none", NUL, &group));
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_ledger_find(good, "", NUL, &group));
    uint32_t item;
    int64_t own;
    GROUP(ledgerline_ledger_item(good, "\xff", NUL, &item));
    GROUP(ledgerline_group_stat(good_root, "\xff", NUL, &own, NULL));
}

static void of_sizes(void) {
    const int code = LEDGERLINE_ERROR_RANGE;
    const uint64_t limit = (uint64_t)1 << 62, beyond[] = {limit + 1, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX};
    ledgerline_group_t group;
    /* Several threads come here. */
    static _Atomic int number;
    char name[40];
    snprintf(name, sizeof name, "sizes %d", number++);
    OK(ledgerline_group_create(good_root, name, NUL, &group));
    for (size_t at = 0; at < 4; at++) {
        GROUP(ledgerline_try_charge(group, beyond[at]));
        GROUP(ledgerline_try_charge_units(group, beyond[at]));
        GROUP(ledgerline_charge(group, beyond[at]));
        GROUP(ledgerline_try_charge_wait(group, beyond[at], UINT64_MAX, 0));
        GROUP(ledgerline_uncharge(group, beyond[at]));
        GROUP(ledgerline_transfer(group, good_root, beyond[at]));
        if (at < 3) {
            GROUP(ledgerline_group_set_max(group, beyond[at]));
            GROUP(ledgerline_group_set_max_now(group, beyond[at], NULL));
            GROUP(ledgerline_group_set_high(group, beyond[at]));
            GROUP(ledgerline_group_set_low(group, beyond[at]));
            GROUP(ledgerline_group_set_min(group, beyond[at]));
        }
    }
    GROUP(ledgerline_group_set_max(group, limit));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_uncharge(group, limit));
    OK(ledgerline_group_set_max(group, limit - 1));
    OK(ledgerline_group_set_max(group, LEDGERLINE_NO_LIMIT));
    OK(ledgerline_group_destroy(group, NULL));

    ledgerline_ledger_t ledger;
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 1;
    GROUP(ledgerline_ledger_new(&options, &ledger));
    options.capacity = UINT32_MAX;
    GROUP(ledgerline_ledger_new(&options, &ledger));
    options = (ledgerline_options_t)LEDGERLINE_OPTIONS_INIT;
    options.batch = (uint64_t)1 << 29;
    GROUP(ledgerline_ledger_new(&options, &ledger));
    options = (ledgerline_options_t)LEDGERLINE_OPTIONS_INIT;
    options.item_count = 25;
    GROUP(ledgerline_ledger_new(&options, &ledger));
    const char *items[] = {"Not an item"}, *crooked[] = {"\xff"}, *none[] = {NULL};
    options.item_count = 1;
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_new(&options, &ledger));
    options.items = items;
    GROUP(ledgerline_ledger_new(&options, &ledger));
    options.items = crooked;
    GIVES(LEDGERLINE_ERROR_NAME, ledgerline_ledger_new(&options, &ledger));
    options.items = none;
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_new(&options, &ledger));
    for (uint32_t wrong = 0; wrong < 3; wrong++) {
        options = (ledgerline_options_t)LEDGERLINE_OPTIONS_INIT;
        options.size = wrong == 0 ? 0 : options.size;
        options.flags = wrong == 1 ? 4 : 0;
        options.reserved = wrong == 2;
        GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_new(&options, &ledger));
    }
    // Options of a later header: unknown fields must be zero, or are refused.
    struct {
        ledgerline_options_t known;
        uint64_t unknown;
    } later = {LEDGERLINE_OPTIONS_INIT, 0};
    later.known.size = sizeof later;
    later.known.capacity = 8;
    OK(ledgerline_ledger_new(&later.known, &ledger));
    OK(ledgerline_ledger_free(ledger));
    later.unknown = 1;
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_new(&later.known, &ledger));
}

static void *all_of_it(void *data) {
    (void)data;
    for (int time = 0; time < TIMES; time++) {
        const uint64_t numbers[] = {0, 1, freed.number, good.number ^ 1, good.number + 4096, UINT64_MAX, (uint64_t)1 << 63};
        for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
            const uint64_t ids[] = {0, freeds_group.id, good_root.id, UINT64_MAX};
            of_ledgers((ledgerline_ledger_t){numbers[at]});
            of_registrations(numbers[at] == 0 ? 0 : numbers[at] | 0x40000000);
            const ledgerline_group_t group = {numbers[at], ids[time % 4]};
            of_groups(group, LEDGERLINE_ERROR_HANDLE);
            of_current(group);
        }
        const uint64_t ids[] = {0, 1, stale.id, stale.id + 1, UINT64_MAX, good_root.id | (uint64_t)1 << 40,
                                good_root.id + ((uint64_t)1 << 48), good_root.id | 1000000, good_root.id | 0x7fffffff};
        for (size_t at = 0; at < sizeof ids / sizeof *ids; at++) {
            const ledgerline_group_t group = {good.number, ids[at]};
            of_groups(group, LEDGERLINE_ERROR_GONE);
            of_current(group);
        }
    }
    of_other_kinds();
    of_pointers();
    of_texts();
    of_sizes();
    return NULL;
}

int main(void) {
    ledgerline_group_t root;
    freed = small_ledger(&root);
    freeds_group = child(root, "g");
    OK(ledgerline_try_charge(freeds_group, 10));
    OK(ledgerline_ledger_free(freed));
    good = small_ledger(&good_root);
    stale = child(good_root, "gone");
    // The next group gets its row.
    OK(ledgerline_group_destroy(stale, NULL));
    const ledgerline_group_t next = child(good_root, "next");
    CHECK((next.id & 0xffffffff) == (stale.id & 0xffffffff) && next.id != stale.id);
    // Uses the row of `stale.id + 1`, so that this id names a group that is gone.
    const ledgerline_group_t later = child(good_root, "later");
    OK(ledgerline_group_destroy(later, NULL));
    OK(ledgerline_try_charge(next, 77));
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, all_of_it, NULL) == 0);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    CHECK(usage(next) == 77 && usage(good_root) == 77);
    OK(ledgerline_ledger_free(good));
    return 0;
}
