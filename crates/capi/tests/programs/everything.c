// Makes every call once as intended, and with its own errors.
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void versions(void) {
    OK(ledgerline_check_abi());
    CHECK(ledgerline_abi_version() == LEDGERLINE_ABI_VERSION);
    GIVES(LEDGERLINE_ERROR_ABI, ledgerline_fits_abi(LEDGERLINE_ABI_VERSION + 1));
    CHECK(strlen(ledgerline_version()) >= 5);
    for (int code = -40; code <= 10; code++) {
        CHECK(strlen(ledgerline_error_text(code)) > 3);
    }
    CHECK(strcmp(ledgerline_error_text(-23), ledgerline_error_text(-24)) != 0);
    CHECK(strcmp(ledgerline_error_text(-24), ledgerline_error_text(INT32_MIN)) == 0);
}

static void charges_and_limits(void) {
    ledgerline_group_t root, tenant, query, found, parent;
    ledgerline_ledger_t ledger = small_ledger(&root);
    tenant = child(root, "acme");
    OK(ledgerline_group_create(tenant, "q42 and more", 3, &query));
    OK(ledgerline_ledger_find(ledger, "/acme/q42", NUL, &found));
    CHECK(found.id == query.id && found.ledger == query.ledger);
    OK(ledgerline_group_parent(query, &parent));
    CHECK(parent.id == tenant.id);
    GIVES(LEDGERLINE_ERROR_ROOT, ledgerline_group_parent(root, &parent));

    OK(ledgerline_group_set_max(tenant, 1000));
    OK(ledgerline_try_charge(query, 700));
    CHECK(usage(tenant) == 700);
    char text[200];
    size_t needed = 0;
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(query, 301));
    OK(ledgerline_last_error(text, sizeof text, &needed));
    CHECK(strcmp(text, "/acme is full: 301 requested, 700 of max 1000 in use") == 0 && needed == strlen(text));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge_units(query, 302));
    OK(ledgerline_last_error(text, sizeof text, NULL));
    CHECK(strcmp(text, "/acme is full: 302 requested, 700 of max 1000 in use") == 0);
    GIVES(LEDGERLINE_ERROR_BUFFER, ledgerline_last_error(text, 6, &needed));
    CHECK(strcmp(text, "/acme") == 0 && needed == 52);
    OK(ledgerline_charge(query, 400));
    CHECK(usage(tenant) == 1100);
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge_wait(query, 1, 20, 0));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_try_charge_wait(query, 1, 20, 4));
    GIVES(LEDGERLINE_ERROR_BUSY, ledgerline_group_set_max(tenant, 900));
    uint64_t above = 0;
    OK(ledgerline_group_set_max_now(tenant, 900, &above));
    CHECK(above == 200);
    OK(ledgerline_uncharge(query, 1000));
    OK(ledgerline_uncharge(query, 100));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_uncharge(query, 1 << 30));
    ledgerline_mistakes_t mistakes;
    OK(ledgerline_ledger_mistakes(ledger, &mistakes));
    CHECK(mistakes.underflows == 1 && mistakes.strays == 0 && mistakes.audited == 0);

    OK(ledgerline_group_set_high(tenant, 500));
    OK(ledgerline_group_set_low(tenant, 200));
    OK(ledgerline_group_set_min(tenant, 100));
    ledgerline_limits_t limits;
    OK(ledgerline_group_limits(tenant, &limits));
    CHECK(limits.max == 900 && limits.high == 500 && limits.low == 200 && limits.min == 100);
    OK(ledgerline_group_limits(root, &limits));
    CHECK(limits.max == LEDGERLINE_NO_LIMIT && limits.high == LEDGERLINE_NO_LIMIT && limits.low == 0);

    // Above high, a charge with the flag pays with time, and is granted.
    OK(ledgerline_try_charge_wait(query, 600, 0, LEDGERLINE_THROTTLED));
    ledgerline_group_t other = child(tenant, "other");
    OK(ledgerline_transfer(query, other, 250));
    CHECK(usage(query) == 350 && usage(other) == 250 && usage(tenant) == 600);
    OK(ledgerline_group_set_max(other, 300));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_transfer(query, other, 51));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_transfer(query, other, 351));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_transfer(query, (ledgerline_group_t){ledger.number + 4096, 1}, 1));
    CHECK(usage(query) == 350 && usage(other) == 250);

    ledgerline_estimate_t estimate, peak;
    OK(ledgerline_group_estimate(tenant, &estimate));
    CHECK(estimate.value >= 600 && estimate.value - estimate.bound <= 600);
    OK(ledgerline_group_peak(tenant, &peak));
    CHECK(peak.value >= 1100);
    OK(ledgerline_group_reset_peak(tenant));
    OK(ledgerline_group_peak(tenant, &peak));
    CHECK(peak.value < 1100 && peak.value >= 600);

    uint32_t mode = 9;
    OK(ledgerline_group_set_mode(other, LEDGERLINE_MEASURE));
    OK(ledgerline_group_mode(other, &mode));
    CHECK(mode == LEDGERLINE_MEASURE);
    OK(ledgerline_try_charge(other, 100));
    OK(ledgerline_uncharge(other, 100));
    OK(ledgerline_group_set_mode(other, LEDGERLINE_OFF));
    OK(ledgerline_try_charge(other, 100));
    OK(ledgerline_uncharge(other, 100));
    OK(ledgerline_group_set_mode(other, LEDGERLINE_ENFORCE));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_group_set_mode(other, 3));

    OK(ledgerline_group_exists(other));
    GIVES(LEDGERLINE_ERROR_CHILDREN, ledgerline_group_destroy(tenant, NULL));
    GIVES(LEDGERLINE_ERROR_ROOT, ledgerline_group_destroy(root, NULL));
    ledgerline_settled_t settled;
    OK(ledgerline_group_destroy(other, &settled));
    CHECK(settled.leftover == 250 && settled.charges >= 1);
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_group_exists(other));
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_group_destroy(other, NULL));
    // Exactly the units that it still held can be returned.
    OK(ledgerline_uncharge(other, 250));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_uncharge(other, 250));
    CHECK(usage(tenant) == 350);
    OK(ledgerline_group_destroy_tree(tenant, &settled));
    CHECK(settled.leftover == 350);
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_group_exists(query));
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_try_charge(query, 1));
    OK(ledgerline_uncharge(query, 350));
    CHECK(usage(root) == 0);
    OK(ledgerline_ledger_free(ledger));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_ledger_free(ledger));
}

struct seen {
    int groups, stop_after;
    char paths[200];
};

static int32_t see(void *data, const ledgerline_group_snapshot_t *group) {
    struct seen *seen = data;
    CHECK(strlen(group->path) == group->path_length && group->state == LEDGERLINE_STATE_LIVE);
    if (strcmp(group->path, "/a/b") == 0) {
        CHECK(group->usage == 70 && group->depth == 2 && group->limits.max == 100 && group->peak.value >= 70);
        OK(ledgerline_group_exists(group->group));
    }
    strcat(strcat(seen->paths, group->path), " ");
    return ++seen->groups == seen->stop_after;
}

// Charges that no limit refuses, but that exceed the counters.
static void more_than_is_counted(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    const ledgerline_group_t group = child(root, "g"), limited = child(root, "limited");
    const uint64_t most = UINT64_C(1) << 62;
    char text[200];
    OK(ledgerline_charge(group, most - 1));
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_charge(group, 5));
    OK(ledgerline_last_error(text, sizeof text, NULL));
    CHECK(strcmp(text, "/ cannot hold 5 more, 4.0E in use: no group counts beyond 4.0E") == 0);
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_try_charge(group, 5));
    OK(ledgerline_last_error(text, sizeof text, NULL));
    CHECK(strcmp(text, "/ cannot hold 5 more, 4.0E in use: no group counts beyond 4.0E") == 0);
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_try_charge_units(group, 5));
    // A limit still works; a charge that goes over it is not refused by it.
    OK(ledgerline_group_set_max(limited, 3));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(limited, 4));
    OK(ledgerline_uncharge(group, most - 1));
    OK(ledgerline_charge(limited, most - 1));
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_charge(limited, 5));
    OK(ledgerline_group_set_max_now(root, 7, NULL));
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_charge(limited, 5));
    OK(ledgerline_last_error(text, sizeof text, NULL));
    CHECK(strcmp(text, "/limited cannot hold 5 more, 4.0E in use: no group counts beyond 4.0E") == 0);
    GIVES(LEDGERLINE_ERROR_RANGE, ledgerline_charge(group, most + 1));
    OK(ledgerline_uncharge(limited, most - 1));
    CHECK(usage(root) == 0);
    OK(ledgerline_ledger_free(ledger));
}

static void readings(void) {
    const char *items[] = {"rows_read", "spills"};
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 16;
    options.items = items;
    options.item_count = 2;
    options.flags = LEDGERLINE_FLOWS;
    options.reclaim_ms = options.throttle_ms = options.victim_ms = 5;
    options.batch = 4096;
    ledgerline_ledger_t ledger;
    ledgerline_group_t root;
    OK(ledgerline_ledger_new(&options, &ledger));
    OK(ledgerline_ledger_root(ledger, &root));
    ledgerline_group_t a = child(root, "a"), b = child(a, "b");
    OK(ledgerline_group_set_max(b, 100));
    OK(ledgerline_try_charge(b, 70));
    uint32_t item = 9;
    OK(ledgerline_ledger_item(ledger, "spills", NUL, &item));
    CHECK(item == 1);
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_ledger_item(ledger, "spill", NUL, &item));
    OK(ledgerline_group_add_stat(b, item, 5));
    OK(ledgerline_group_add_stat(a, item, -2));
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_group_add_stat(b, 2, 5));
    int64_t own = 0, subtree = 0;
    OK(ledgerline_group_stat(a, "spills", NUL, &own, &subtree));
    CHECK(own == -2 && subtree == 3);
    OK(ledgerline_group_stat(b, "charged", NUL, &own, NULL));
    CHECK(own == 70);
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_group_stat(b, "charge", NUL, &own, NULL));
    char text[4000];
    OK(ledgerline_group_stat_text(a, text, sizeof text, NULL));
    CHECK(strstr(text, "spills 3\n") != NULL);
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(b, 31));
    OK(ledgerline_group_diagnose(b, text, sizeof text, NULL));
    CHECK(strstr(text, "/a/b") != NULL);
    OK(ledgerline_group_path(b, text, sizeof text, NULL));
    CHECK(strcmp(text, "/a/b") == 0);
    ledgerline_events_t events;
    OK(ledgerline_group_events(root, &events));
    CHECK(events.max == 1);
    OK(ledgerline_group_local_events(root, &events));
    CHECK(events.max == 0);
    struct seen seen = {0, 0, ""};
    OK(ledgerline_ledger_snapshot(ledger, see, &seen));
    CHECK(seen.groups == 3 && strcmp(seen.paths, "/ /a /a/b ") == 0);
    seen = (struct seen){0, 2, ""};
    OK(ledgerline_ledger_snapshot(ledger, see, &seen));
    CHECK(seen.groups == 2);
    OK(ledgerline_ledger_free(ledger));
}

static void audited(void) {
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 4;
    options.flags = LEDGERLINE_AUDIT;
    ledgerline_ledger_t ledger;
    ledgerline_group_t root;
    OK(ledgerline_ledger_new(&options, &ledger));
    OK(ledgerline_ledger_root(ledger, &root));
    ledgerline_group_t a = child(root, "a"), b = child(root, "b");
    OK(ledgerline_try_charge(a, 900));
    OK(ledgerline_charge(a, 100));
    OK(ledgerline_uncharge(a, 100));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_uncharge(a, 100));
    GIVES(LEDGERLINE_ERROR_MISTAKE, ledgerline_transfer(a, b, 100));
    OK(ledgerline_transfer(a, b, 900));
    ledgerline_mistakes_t mistakes;
    OK(ledgerline_ledger_mistakes(ledger, &mistakes));
    CHECK(mistakes.audited == 2 && usage(a) == 0 && usage(b) == 900);
    OK(ledgerline_ledger_free(ledger));
}

static void current(void) {
    ledgerline_group_t root, group, before, now, others_root;
    ledgerline_ledger_t ledger = small_ledger(&root), other = small_ledger(&others_root);
    group = child(root, "g");
    GIVES(LEDGERLINE_ERROR_NOT_KEPT, ledgerline_current_swap(group, &before));
    OK(ledgerline_ledger_keep(ledger));
    OK(ledgerline_ledger_keep(ledger));
    GIVES(LEDGERLINE_ERROR_KEPT, ledgerline_ledger_free(ledger));
    OK(ledgerline_current_swap(group, &before));
    CHECK(before.ledger == 0 && before.id == 0);
    GIVES(LEDGERLINE_ERROR_NOT_KEPT, ledgerline_current_swap(others_root, &before));
    OK(ledgerline_current_get(&now));
    CHECK(now.ledger == group.ledger && now.id == group.id);
    OK(ledgerline_try_charge(now, 5));
    CHECK(usage(root) == 5);
    OK(ledgerline_current_swap(root, &before));
    CHECK(before.id == group.id);
    // A group that was destroyed meanwhile may be put back, and is refused when it is used.
    OK(ledgerline_uncharge(group, 5));
    OK(ledgerline_group_destroy(group, NULL));
    OK(ledgerline_current_swap(before, NULL));
    OK(ledgerline_current_get(&now));
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_try_charge(now, 5));
    OK(ledgerline_current_swap(LEDGERLINE_NOBODY, NULL));
    OK(ledgerline_current_get(&now));
    CHECK(now.ledger == 0 && now.id == 0);
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_current_swap(group, NULL));
    OK(ledgerline_ledger_free(other));
}

static void *grow(void *fails, void *block, size_t size) {
    return fails ? NULL : realloc(block, size);
}

static void blocks(void) {
    ledgerline_group_t root, group, owner;
    ledgerline_ledger_t ledger = small_ledger(&root);
    group = child(root, "blocks");
    void *block = malloc(1000), *moved = NULL;
    size_t size = 1;
    GIVES(LEDGERLINE_ERROR_NOT_KEPT, ledgerline_block_charge(group, block, 1000));
    OK(ledgerline_ledger_keep(ledger));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_block_charge(group, NULL, 1000));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_block_charge(group, (char *)block + 8, 1000));
    // Nobody's, until a group is named or current.
    OK(ledgerline_block_charge(LEDGERLINE_NOBODY, block, 1000));
    OK(ledgerline_block_release(block, &size));
    CHECK(size == 0);
    OK(ledgerline_block_charge(group, block, 1000));
    OK(ledgerline_block_owner(block, &owner, &size));
    CHECK(owner.id == group.id && size == 1000 && usage(root) == 1000);
    // Its owner pays for what it grows by, up to the limit.
    OK(ledgerline_group_set_max(group, 90000));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_block_resize(block, 90001, grow, NULL, &moved));
    GIVES(LEDGERLINE_ERROR_SYSTEM, ledgerline_block_resize(block, 90000, grow, &size, &moved));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_block_resize(block, 90000, NULL, NULL, &moved));
    CHECK(usage(group) == 1000);
    OK(ledgerline_block_resize(block, 90000, grow, NULL, &moved));
    CHECK(usage(group) == 90000);
    void *other = malloc(70);
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_block_charge(group, other, 70));
    OK(ledgerline_block_resize(moved, 500, grow, NULL, &block));
    CHECK(usage(group) == 500);
    OK(ledgerline_current_swap(group, NULL));
    OK(ledgerline_block_charge(LEDGERLINE_NOBODY, other, 70));
    OK(ledgerline_current_swap(LEDGERLINE_NOBODY, NULL));
    CHECK(usage(group) == 570);
    OK(ledgerline_block_release(other, NULL));
    free(other);
    // A destroyed group's block is credited to its ancestors, and does not grow.
    OK(ledgerline_group_destroy(group, NULL));
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_block_resize(block, 600, grow, NULL, &moved));
    OK(ledgerline_block_release(block, &size));
    CHECK(size == 500 && usage(root) == 0);
    OK(ledgerline_block_release(NULL, &size));
    CHECK(size == 0);
    free(block);
}

static void files(void) {
    const int file = memfd_create("ledger", MFD_CLOEXEC), empty = memfd_create("none", MFD_CLOEXEC);
    CHECK(file >= 0 && empty >= 0);
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 16;
    ledgerline_ledger_t made, opened;
    ledgerline_group_t root, mine, theirs;
    OK(ledgerline_ledger_create_in(&options, file, &made));
    GIVES(LEDGERLINE_ERROR_SYSTEM, ledgerline_ledger_create_in(&options, file, &opened));
    GIVES(LEDGERLINE_ERROR_FORMAT, ledgerline_ledger_open_in(empty, &opened));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_open_in(-1, &opened));
    GIVES(LEDGERLINE_ERROR_ARGUMENT, ledgerline_ledger_open_in(12345, &opened));
    OK(ledgerline_ledger_root(made, &root));
    mine = child(root, "mine");
    OK(ledgerline_try_charge(mine, 11));
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        OK(ledgerline_ledger_open_in(file, &opened));
        OK(ledgerline_ledger_attach(opened, "theirs", NUL, &theirs));
        OK(ledgerline_try_charge(theirs, 22));
        OK(ledgerline_ledger_find(opened, "/mine", NUL, &mine));
        CHECK(usage(mine) == 11);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    OK(ledgerline_ledger_find(made, "/theirs", NUL, &theirs));
    CHECK(usage(theirs) == 22 && usage(root) == 33);
    CHECK(fcntl(file, F_GETFD) >= 0);
    OK(ledgerline_ledger_free(made));
    close(file);
    close(empty);
}

static void forks(void) {
    ledgerline_group_t root, group;
    ledgerline_ledger_t ledger = small_ledger(&root);
    group = child(root, "g");
    OK(ledgerline_try_charge(group, 100));
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        CHECK(usage(group) == 100);
        OK(ledgerline_try_charge(group, 1));
        CHECK(usage(group) == 101);
        OK(ledgerline_ledger_free(ledger));
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_try_charge(group, 1));
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    CHECK(usage(group) == 100);
    OK(ledgerline_ledger_free(ledger));
}

static void watches(void) {
    ledgerline_group_t root, group;
    ledgerline_ledger_t ledger = small_ledger(&root);
    group = child(root, "g");
    ledgerline_watch_t watch;
    int32_t descriptor = -1;
    OK(ledgerline_watch_open(root, &watch, &descriptor));
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_watch_look(watch));
    OK(ledgerline_group_set_max(group, 10));
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(group, 11));
    struct pollfd poll_it = {descriptor, POLLIN, 0};
    CHECK(poll(&poll_it, 1, 60000) == 1);
    OK(ledgerline_watch_look(watch));
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_watch_look(watch));
    CHECK(poll(&poll_it, 1, 0) == 0);
    OK(ledgerline_watch_close(watch));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_watch_close(watch));
    CHECK(fcntl(descriptor, F_GETFD) == -1 && errno == EBADF);
    // Freeing a ledger ends its watches.
    OK(ledgerline_watch_open(root, &watch, &descriptor));
    OK(ledgerline_ledger_free(ledger));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_watch_look(watch));
    CHECK(fcntl(descriptor, F_GETFD) == -1);
}

static ledgerline_group_t signalled;
static volatile sig_atomic_t handled;

static void charge_in_a_handler(int signal) {
    (void)signal;
    const int before = errno;
    if (ledgerline_try_charge_units(signalled, 1000) == LEDGERLINE_OK && ledgerline_uncharge(signalled, 1000) == LEDGERLINE_OK
        && ledgerline_try_charge_units(signalled, 1 << 30) == LEDGERLINE_ERROR_LIMIT
        && ledgerline_group_exists(signalled) == LEDGERLINE_OK) {
        handled++;
    }
    errno = before;
}

// A signal handler charges while the thread that it interrupts is inside the library.
static void signals(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    signalled = child(root, "signalled");
    OK(ledgerline_group_set_max(signalled, 1 << 20));
    struct sigaction action = {0};
    action.sa_handler = charge_in_a_handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < 100) {
        OK(ledgerline_try_charge(signalled, 3000));
        OK(ledgerline_uncharge(signalled, 3000));
        const ledgerline_group_t other = child(signalled, "other");
        OK(ledgerline_try_charge(other, 1));
        OK(ledgerline_uncharge(other, 1));
        CHECK(usage(root) <= 1 << 20);
        // Returns BUSY only in a signal handler.
        OK(ledgerline_group_destroy(other, NULL));
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(usage(signalled) == 0);
    ledgerline_mistakes_t mistakes;
    OK(ledgerline_ledger_mistakes(ledger, &mistakes));
    CHECK(mistakes.underflows == 0 && mistakes.strays == 0);
    OK(ledgerline_ledger_free(ledger));
}

int main(void) {
    signals();
    versions();
    charges_and_limits();
    more_than_is_counted();
    readings();
    audited();
    current();
    blocks();
    files();
    forks();
    watches();
    return 0;
}
