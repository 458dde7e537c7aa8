/* known COUNT KEEP: COUNT blocks of known sizes, from COUNT / 8 in threads; of every KEEP one stays
   (1: all). tests/main/account.rs knows the sizes, too. */
#include "common.h"

static void *blocks[20000];
static int count, keep;

static size_t size_of(int i) { return i % 50 == 49 ? 150000 + 16 * i : (size_t)i * 7919 % 4000; }

static void *worker(void *argument) {
    int mine = (int)(intptr_t)argument;
    for (int i = mine; i < count; i += 4) check((blocks[i] = allocate(size_of(i))));
    return NULL;
}

int main(int argc, char **argv) {
    count = atoi(argv[1]);
    keep = atoi(argv[2]);
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) {
        check(!pthread_create(&threads[i], NULL, worker, (void *)i));
        check(!pthread_join(threads[i], NULL));
    }
    for (int i = 0; i < count; i++)
        if (i % keep) free(blocks[i]);
    _exit(0);
}
