/* heap alone:   blocks until one is refused, then mappings; blocks again once some are free.
   heap both:    mappings until one is refused, then no block either; once they are gone, blocks up to the limit.
   heap fork:    a child takes the room that its parent left, and returns it at its end. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define BLOCK 65536
#define MIB (1 << 20)

static char *blocks[100000];
static int count;

static void fill(void) {
    errno = 0;
    while ((blocks[count] = allocate(BLOCK))) count++;
    check(errno == ENOMEM);
}

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void alone(void) {
    fill();
    say("%d\n", count);
    for (int i = 0; i < 50; i++) {
        char *at = map(MIB);
        check(at);
        at[0] = 1;
        check(!allocate(BLOCK));
        if (i % 2) check(!munmap(at, MIB));
    }
    /* The room of one freed block serves the next, and no more. */
    for (int i = 0; i < 1000; i++) {
        free(blocks[--count]);
        check((blocks[count++] = allocate(BLOCK)));
        check(!allocate(BLOCK));
    }
    while (count) free(blocks[--count]);
}

static void both(void) {
    char *mapped[1000];
    int mappings = 0;
    errno = 0;
    while ((mapped[mappings] = map(MIB))) mappings++;
    check(errno == ENOMEM);
    while (allocate(BLOCK)) count++;
    /* The mapping left less room than that, and the limit for blocks is far. */
    check(count < MIB / BLOCK);
    int left = count;
    while (mappings) check(!munmap(mapped[--mappings], MIB));
    count = 0;
    fill();
    say("%d\n", count + left);
    while (count) free(blocks[--count]);
}

static void family(void) {
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 20; i++) check((blocks[count++] = allocate(BLOCK)));
        int before = count;
        pid_t child = fork();
        check(child >= 0);
        if (child == 0) {
            fill();
            /* The inherited blocks are still its parent's. */
            for (int i = 0; i < before; i++) free(blocks[i]);
            check(!allocate(BLOCK));
            _exit(count - before);
        }
        int status;
        check(waitpid(child, &status, 0) == child);
        check(WIFEXITED(status));
        say("%d\n", WEXITSTATUS(status) + before);
    }
    fill();
    say("%d\n", count);
    while (count) free(blocks[--count]);
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "alone")) alone();
    if (!strcmp(argv[1], "both")) both();
    if (!strcmp(argv[1], "fork")) family();
    _exit(0);
}
