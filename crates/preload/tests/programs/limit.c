/* limit fill: allocates until it is refused, checks the rest, and continues.
   limit grow: one block grows from 4 MiB to 7, and in small steps.
   limit kill: allocates blocks of 65536.
   limit hold SIZE: allocates one block, says so, waits for a signal.
   limit threads: four threads at the limit. */
#include "common.h"

static char *blocks[100000];

static void fill(void) {
    int count = 0;
    errno = 0;
    while ((blocks[count] = allocate(65536))) count++;
    check(errno == ENOMEM);
    errno = 0;
    check(!calloc(1, 100000) && errno == ENOMEM);
    errno = 0;
    check(!memalign(64, 100000) && errno == ENOMEM);
    errno = 0;
    check(!aligned_alloc(64, 128000) && errno == ENOMEM);
    errno = 77;
    void *untouched = &count;
    check(posix_memalign(&untouched, 64, 100000) == ENOMEM);
    check(untouched == &count && errno == 77);
    memset(blocks[0], 'y', 65536);
    size_t usable = malloc_usable_size(blocks[0]);
    errno = 0;
    check(!realloc(blocks[0], 300000) && errno == ENOMEM);
    check(malloc_usable_size(blocks[0]) == usable);
    for (int i = 0; i < 65536; i++) check(blocks[0][i] == 'y');
    /* The block still has its account: it can be freed and makes room again. */
    for (int i = 0; i < 10; i++) free(blocks[i]);
    for (int i = 0; i < 10; i++) check((blocks[i] = allocate(65536)));
    /* Growth into the room that one block left. */
    free(blocks[--count]);
    check((blocks[0] = realloc(blocks[0], 130000)));
    check(!allocate(65536));
    /* A block that shrinks is never refused. */
    check((blocks[0] = realloc(blocks[0], 1000)));
    say("%d\n", count);
    while (count) free(blocks[--count]);
    void *again = allocate(2 << 20);
    check(again);
    free(again);
}

static void grow(void) {
    char *block = allocate(4 << 20);
    check(block);
    block[0] = 'x';
    check((block = realloc(block, 7 << 20)));
    check(block[0] == 'x');
    check(!realloc(block, 9 << 20));
    check((block = realloc(block, 1 << 20)));
    /* The returned bytes are available to others. */
    void *other = allocate(6 << 20);
    check(other);
    free(other);
    for (size_t size = 1 << 20; size < 7 << 20; size += 4096) check((block = realloc(block, size)));
    free(block);
    block = NULL;
    for (size_t size = 1; size < 100000; size += 100) check((block = realloc(block, size)));
    free(block);
}

static void *worker(void *unused) {
    void *mine[40] = {0};
    for (int i = 0; i < 4000; i++) {
        free(mine[i % 40]);
        mine[i % 40] = allocate(60000);
    }
    for (int i = 0; i < 40; i++) free(mine[i]);
    return unused;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "fill")) fill();
    if (!strcmp(argv[1], "grow")) grow();
    if (!strcmp(argv[1], "kill"))
        for (int i = 0; i < 100000; i++) allocate(65536);
    if (!strcmp(argv[1], "hold")) {
        char *block = allocate(strtoul(argv[2], NULL, 10));
        check(block);
        block[0] = 1;
        say("holds\n");
        pause();
    }
    if (!strcmp(argv[1], "threads")) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) check(!pthread_create(&threads[i], NULL, worker, NULL));
        for (int i = 0; i < 4; i++) check(!pthread_join(threads[i], NULL));
        void *all = allocate(7 << 20);
        check(all);
        free(all);
    }
    _exit(0);
}
