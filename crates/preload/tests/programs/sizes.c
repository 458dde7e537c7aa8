/* sizes pairs N: N pairs of malloc and free; prints how often the allocator was asked for a size.
   sizes churn:   blocks of many sizes come, change and go, also in another thread than theirs; prints the rest, in
                  blocks and bytes. With one more word all of it is freed before. */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>

enum { LIVE = 4000 };

static void *blocks[LIVE];
static unsigned random_state = 12345;

static unsigned below(unsigned n) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

/* Mostly small ones, as in real programs. */
static size_t size(void) { return below(8) ? 1 + below(300) : 1 + below(9000); }

static void *churn(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        void **place = &blocks[below(LIVE)];
        switch (below(6)) {
        case 0: *place = *place ? realloc(*place, size()) : calloc(1, size()); break;
        case 1:
            free(*place);
            check(!posix_memalign(place, 64, size()));
            break;
        case 2: free(*place), *place = NULL; break;
        default: free(*place), *place = allocate(size());
        }
        if (*place) memset(*place, i, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "pairs")) {
        unsigned long (*asked)(void) = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "times_asked");
        for (int i = 0; i < atoi(argv[2]); i++) {
            void *block = allocate(1 + i % 300);
            free(block);
        }
        say("%lu\n", asked ? asked() : 0);
        _exit(0);
    }
    churn((void *)40000L);
    /* One thread after the other, so that each frees blocks of the previous ones. */
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        check(!pthread_create(&thread, NULL, churn, (void *)10000L));
        check(!pthread_join(thread, NULL));
    }
    churn((void *)10000L);
    size_t bytes = 0, count = 0;
    for (int i = 0; i < LIVE; i++)
        if (blocks[i]) bytes += malloc_usable_size(blocks[i]), count++;
    say("%zu %zu\n", count, bytes);
    if (argc > 2)
        for (int i = 0; i < LIVE; i++) free(blocks[i]);
    _exit(0);
}
