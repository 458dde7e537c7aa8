/* A cache that fills the memory that others leave free, and shrinks when they need it.
 *
 * The cache takes every byte below the limit. To keep that from harming others, it has a reclaimer: before a
 * session's charge is refused, the library asks the cache for the missing bytes. A session that asks for more than
 * its own limit is refused by name, and the cache is not asked for that.
 */
#include <ledgerline.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 64 << 10, MAX = 16 << 20, SESSION_MAX = 4 << 20, SESSIONS = 8 };

struct page {
    struct page *older;
    char bytes[PAGE - sizeof(struct page *)];
};

struct cache {
    pthread_mutex_t lock;
    ledgerline_group_t group;
    struct page *newest;
    unsigned pages, evicted;
};

static void need(ledgerline_code_t code, const char *what) {
    if (code != LEDGERLINE_OK) {
        char why[200];
        ledgerline_last_error(why, sizeof why, NULL);
        fprintf(stderr, "%s: %s (%s)\n", what, ledgerline_error_text(code), why);
        exit(1);
    }
}

/* Evicts the newest page; returns whether there was one. A real cache would drop the oldest. */
static int evict(struct cache *cache) {
    pthread_mutex_lock(&cache->lock);
    struct page *page = cache->newest;
    if (page) {
        cache->newest = page->older;
        cache->pages--;
        cache->evicted++;
    }
    pthread_mutex_unlock(&cache->lock);
    if (!page) return 0;
    free(page);
    ledgerline_uncharge(cache->group, PAGE);
    return 1;
}

/* Called by the thread whose charge met a limit, without any lock held. */
static uint64_t reclaim(void *data, uint64_t wanted) {
    uint64_t freed = 0;
    while (freed < wanted && evict(data)) freed += PAGE;
    return freed;
}

static void fill(struct cache *cache) {
    for (uint64_t used = 0; used + PAGE <= MAX; used += PAGE) {
        need(ledgerline_try_charge(cache->group, PAGE), "a page");
        struct page *page = calloc(1, sizeof *page);
        if (!page) exit(1);
        pthread_mutex_lock(&cache->lock);
        page->older = cache->newest;
        cache->newest = page;
        cache->pages++;
        pthread_mutex_unlock(&cache->lock);
    }
}

/* Runs a session: it charges its buffer, works with it, and returns it. */
static void *session(void *data) {
    const ledgerline_group_t group = *(ledgerline_group_t *)data;
    need(ledgerline_try_charge(group, SESSION_MAX / 2), "a session");
    char *buffer = calloc(1, SESSION_MAX / 2);
    const int untouched = buffer != NULL && buffer[SESSION_MAX / 4] == 0;
    free(buffer);
    ledgerline_uncharge(group, SESSION_MAX / 2);
    return untouched ? NULL : data;
}

int main(void) {
    ledgerline_ledger_t ledger;
    ledgerline_group_t root, groups[SESSIONS];
    ledgerline_reclaimer_t reclaimer;
    struct cache cache = {.lock = PTHREAD_MUTEX_INITIALIZER};
    need(ledgerline_check_abi(), "the library");
    need(ledgerline_ledger_new(NULL, &ledger), "a ledger");
    need(ledgerline_ledger_root(ledger, &root), "its root");
    need(ledgerline_group_set_max(root, MAX), "a limit");
    need(ledgerline_group_create(root, "cache", LEDGERLINE_NUL_TERMINATED, &cache.group), "a group");
    need(ledgerline_add_reclaimer(cache.group, 0, reclaim, &cache, &reclaimer), "a reclaimer");
    fill(&cache);
    printf("the cache has %u pages of %u\n", cache.pages, MAX / PAGE);

    pthread_t threads[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        char name[16];
        snprintf(name, sizeof name, "session%d", i);
        need(ledgerline_group_create(root, name, LEDGERLINE_NUL_TERMINATED, &groups[i]), name);
        need(ledgerline_group_set_max(groups[i], SESSION_MAX), name);
        if (pthread_create(&threads[i], NULL, session, &groups[i]) != 0) return 1;
    }
    for (int i = 0; i < SESSIONS; i++) {
        void *failed;
        if (pthread_join(threads[i], &failed) != 0 || failed) return 1;
    }
    printf("%d sessions were served; the cache gave %u pages\n", SESSIONS, cache.evicted);
    const unsigned before = cache.evicted;
    const ledgerline_code_t code = ledgerline_try_charge(groups[0], SESSION_MAX + 1);
    char why[200];
    ledgerline_last_error(why, sizeof why, NULL);
    printf("too much: %s\n", why);
    if (code != LEDGERLINE_ERROR_LIMIT || cache.evicted != before || before == 0) return 1;
    while (evict(&cache)) {}
    need(ledgerline_remove_reclaimer(reclaimer), "the reclaimer");
    need(ledgerline_ledger_free(ledger), "the ledger");
    puts("ok");
    return 0;
}
