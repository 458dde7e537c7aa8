/* crowd HOW COUNT: while threads allocate and take new names, COUNT children come and go. HOW: fork,
   spawn (posix_spawn, system and vfork in turn). */
#include "common.h"

extern char **environ;
static atomic_int stop;

static void *worker(void *argument) {
    unsigned state = (unsigned)(intptr_t)argument;
    char name[16];
    void *blocks[64] = {0};
    for (int i = 0; !stop; i++) {
        if (i % 5000 == 0 && i < 50 * 5000) {
            snprintf(name, sizeof name, "w%d.%d", (int)(intptr_t)argument, i / 5000);
            check(!pthread_setname_np(pthread_self(), name));
        }
        unsigned at = next_random(&state) % 64;
        free(blocks[at]);
        check((blocks[at] = allocate(next_random(&state) % (at ? 2000 : 200000))));
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return NULL;
}

int main(int argc, char **argv) {
    int count = atoi(argv[2]);
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++) check(!pthread_create(&threads[i], NULL, worker, (void *)(i + 1)));
    for (int i = 0; i < count; i++) {
        int child;
        char *words[] = {"true", NULL};
        if (!strcmp(argv[1], "fork")) {
            check((child = fork()) >= 0);
            if (!child) {
                for (int j = 0; j < 100; j++) check(allocate(1000));
                for (int j = 0; j < 100; j++) free(allocate(20000));
                _exit(0);
            }
        } else if (i % 3 == 0) {
            check(!posix_spawnp(&child, "true", NULL, NULL, words, environ));
        } else if (i % 3 == 1) {
            check(system("true") == 0);
            continue;
        } else {
            check((child = vfork()) >= 0);
            if (!child) {
                execvp("true", words);
                _exit(1);
            }
        }
        reap(child);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) check(!pthread_join(threads[i], NULL));
    _exit(0);
}
