/* reserve: is refused, then allocates small blocks until it is refused again; repeats that after a quiet second.
   reserve threads: four threads do so at a time. */
#include "common.h"

/* Returns the number of small blocks that are granted after a refusal, and keeps them. */
static unsigned long spared(size_t size) {
    unsigned long bytes = 0;
    void *block;
    while (bytes < 100 << 20 && (block = allocate(size))) bytes += malloc_usable_size(block) + 8;
    return bytes;
}

static void *worker(void *unused) {
    while (allocate(4000)) {
    }
    spared(100);
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        pthread_t threads[4];
        int count = 0;
        /* Another process may have filled the ledger: then a thread cannot be made. */
        while (count < 4 && !pthread_create(&threads[count], NULL, worker, NULL)) count++;
        worker(NULL);
        while (count) check(!pthread_join(threads[--count], NULL));
        _exit(0);
    }
    void *last = NULL, *block;
    while ((block = allocate(4000))) last = block;
    /* Large requests are refused as before. */
    check(!allocate(20000) && !allocate(1 << 20));
    unsigned long first = spared(100);
    /* Nothing is left for this process. */
    check(!allocate(100));
    /* Freed blocks make room for all processes, and are no part of the reserve. */
    usleep(1300000);
    free(last);
    unsigned long again = spared(100);
    say("%lu %lu\n", first, again);
    _exit(0);
}
