/* A producer allocates, a consumer frees, a mover reallocs and keeps blocks. */
#include "common.h"

enum { COUNT = 20000, MOVED = 100 };
static _Atomic(void *) ring[256];

static void *producer(void *unused) {
    check(!pthread_setname_np(pthread_self(), "producer"));
    for (int i = 0; i < COUNT + MOVED; i++) {
        void *block = allocate(i < COUNT ? (size_t)i * 31 % 3000 : 1000);
        check(block);
        while (ring[i % 256]) sched_yield();
        ring[i % 256] = block;
    }
    return unused;
}

static void *take(int i) {
    void *block;
    while (!(block = atomic_exchange(&ring[i % 256], NULL))) sched_yield();
    return block;
}

static void *consumer(void *unused) {
    check(!pthread_setname_np(pthread_self(), "consumer"));
    for (int i = 0; i < COUNT; i++) free(take(i));
    return unused;
}

/* Prints the sizes of its blocks: glibc may serve a request with a freed chunk that is a little larger. */
static void *mover(void *unused) {
    check(!pthread_setname_np(pthread_self(), "mover"));
    size_t sum = 0;
    for (int i = COUNT; i < COUNT + MOVED; i++) {
        void *block = realloc(take(i), 2000);
        check(block);
        sum += malloc_usable_size(block) + 8;
    }
    char line[32];
    int length = snprintf(line, sizeof line, "%zu\n", sum);
    check(write(1, line, length) == length);
    return unused;
}

int main(void) {
    pthread_t threads[2];
    check(!pthread_create(&threads[0], NULL, producer, NULL));
    check(!pthread_create(&threads[1], NULL, consumer, NULL));
    check(!pthread_join(threads[1], NULL));
    check(!pthread_create(&threads[1], NULL, mover, NULL));
    check(!pthread_join(threads[1], NULL));
    check(!pthread_join(threads[0], NULL));
    _exit(0);
}
