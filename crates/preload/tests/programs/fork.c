/* fork HOW: a parent with 1000 blocks forks; the child frees and reallocs inherited blocks and allocates its own.
   HOW: none, fork, raw (no handlers run), deep (the child's child does it). Prints the id of the process that did
   it. */
#include "common.h"

static void *blocks[1000];

static int raw_fork(void) {
#ifdef SYS_fork
    return (int)syscall(SYS_fork);
#else
    return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}

static void child(void) {
    for (int i = 0; i < 900; i++) free(blocks[i]);
    for (int i = 900; i < 950; i++) check(realloc(blocks[i], 3000));
    for (int i = 0; i < 200; i++) check(allocate(5000));
    free(allocate(5000));
    say("%d\n", getpid());
    _exit(0);
}

int main(int argc, char **argv) {
    const char *how = argv[1];
    for (int i = 0; i < 1000; i++) check((blocks[i] = allocate(1000)));
    if (!strcmp(how, "none")) _exit(0);
    int forked = !strcmp(how, "raw") ? raw_fork() : fork();
    check(forked >= 0);
    if (!forked) {
        if (!strcmp(how, "deep")) {
            check((forked = fork()) >= 0);
            if (forked) {
                reap(forked);
                _exit(0);
            }
        }
        child();
    }
    reap(forked);
    /* The parent's own blocks are unchanged. */
    for (int i = 0; i < 500; i++) free(blocks[i]);
    for (int i = 0; i < 500; i++) check(allocate(1000));
    _exit(0);
}
