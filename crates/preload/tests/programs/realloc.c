/* realloc others: at a limit of 8 MiB a worker reallocs main's blocks.
   realloc own: triggered by a signal, when the worker's own row has a limit of 1 MiB.
   realloc fails: the allocator has no such block. */
#include "common.h"

static char *block;

static void *shrinks(void *unused) {
    check(!pthread_setname_np(pthread_self(), "worker"));
    check((block = realloc(block, 4 << 20)));
    return unused;
}

static void *grows(void *unused) {
    check(!pthread_setname_np(pthread_self(), "worker"));
    check((block = realloc(block, 6 << 20)));
    check(!realloc(block, 9 << 20) && errno == ENOMEM);
    return unused;
}

/* Small blocks too: a batch of them may lie prepaid, and the last may not. */
static void *fills(void *unused) {
    check(!pthread_setname_np(pthread_self(), "worker"));
    char **blocks = unused;
    for (int i = 0; blocks[i]; i++) {
        blocks[i][0] = i;
        if (!(blocks[i] = realloc(blocks[i], 30000))) check(0);
        check(blocks[i][0] == (char)i);
    }
    return unused;
}

static void *does_not(void *unused) {
    check(!pthread_setname_np(pthread_self(), "worker"));
    check(!realloc(block, (size_t)1 << 47) && errno == ENOMEM);
    return unused;
}

static void *limited(void *unused) {
    check(!pthread_setname_np(pthread_self(), "worker"));
    void *mine = allocate(1000);
    sigset_t *set = unused;
    int which;
    say("ready\n");
    check(!sigwait(set, &which));
    check((block = realloc(block, 5 << 20)));
    check((block = realloc(block, 3 << 20)));
    char *small = allocate(100000);
    check(small && !realloc(small, 2 << 20));
    free(small);
    free(mine);
    return unused;
}

static void in_a_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    check(!pthread_create(&thread, NULL, body, argument));
    check(!pthread_join(thread, NULL));
}

int main(int argc, char **argv) {
    check(argc == 2);
    if (!strcmp(argv[1], "others")) {
        check((block = allocate(5 << 20)));
        block[0] = 'x';
        in_a_thread(shrinks, NULL);
        check((block = realloc(block, 5 << 20)));
        in_a_thread(grows, NULL);
        check(block[0] == 'x');
        free(block);
        static char *blocks[251];
        for (int i = 0; i < 250; i++) check((blocks[i] = allocate(29000)));
        in_a_thread(fills, blocks);
        for (int i = 0; i < 250; i++) free(blocks[i]);
    }
    if (!strcmp(argv[1], "own")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        check(!pthread_sigmask(SIG_BLOCK, &set, NULL));
        check((block = allocate(4 << 20)));
        in_a_thread(limited, &set);
    }
    if (!strcmp(argv[1], "fails")) {
        check((block = allocate(4 << 20)));
        in_a_thread(does_not, NULL);
    }
    _exit(0);
}
