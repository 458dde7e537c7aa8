// Maps memory by itself, in the way that its argument names, and leaves it as it is when it ends.

#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static char *map(size_t length, int protection) {
    char *at = mmap(NULL, length, protection, PRIVATE, -1, 0);
    assert(at != MAP_FAILED);
    return at;
}

static void reserve(void) {
    char *at = map(1024 * MIB, PROT_NONE);
    assert(mprotect(at + 5 * MIB, 2 * MIB, RW) == 0);
    // Half of it again, and what is beside it.
    assert(mprotect(at + 6 * MIB, 2 * MIB, RW) == 0);
    memset(at + 5 * MIB, 1, 3 * MIB);
}

static void give_back(void) {
    char *at = map(8 * MIB, RW);
    memset(at, 1, 8 * MIB);
    assert(munmap(at, MIB) == 0);
    // Held as long as it has its pages.
    assert(mprotect(at + 1 * MIB, MIB, PROT_NONE) == 0);
    assert(mprotect(at + 2 * MIB, MIB, PROT_NONE) == 0);
    assert(madvise(at + 2 * MIB, MIB, MADV_DONTNEED) == 0);
    assert(madvise(at + 3 * MIB, MIB, MADV_DONTNEED) == 0);
    assert(mprotect(at + 3 * MIB, MIB, PROT_READ) == 0);
    // A reservation in the place of what was there.
    assert(mmap(at + 4 * MIB, MIB, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0) == at + 4 * MIB);
    // Writable, and so still counted.
    assert(madvise(at + 5 * MIB, MIB, MADV_DONTNEED) == 0);
}

static void remap(void) {
    char *at = map(4 * MIB, RW);
    memset(at, 1, 4 * MIB);
    at = mremap(at, 4 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    assert(at != MAP_FAILED && at[3 * MIB] == 1);
    at = mremap(at, 6 * MIB, 3 * MIB, 0);
    assert(at != MAP_FAILED);
    // Onto something else.
    char *other = map(5 * MIB, RW);
    assert(mremap(at, 3 * MIB, 3 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, other + MIB) == other + MIB);
    assert(other[MIB] == 1 && other[0] == 0);
}

static void shared_and_files(const char *self) {
    assert(mmap(NULL, 3 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    int file = open(self, O_RDONLY);
    assert(file >= 0);
    assert(mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED);
    // What is written of it is the program's own.
    assert(mmap(NULL, PAGE, RW, MAP_PRIVATE, file, 0) != MAP_FAILED);
}

// Prints how many mebibytes it got.
static void limit(void) {
    char *mapped[64];
    int count = 0;
    while (count < 64) {
        errno = 0;
        char *at = mmap(NULL, MIB, RW, PRIVATE, -1, 0);
        if (at == MAP_FAILED) break;
        mapped[count++] = at;
    }
    assert(errno == ENOMEM);
    printf("%d\n", count);
    char *reserved = map(4 * MIB, PROT_NONE);
    assert(mprotect(reserved, 4 * MIB, RW) == -1 && errno == ENOMEM);
    assert(mremap(mapped[0], MIB, 3 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    mapped[0][0] = 1;
    assert(sbrk(MIB) == (void *)-1 && errno == ENOMEM);
    for (int i = 0; i < count; i++) assert(munmap(mapped[i], MIB) == 0);
    assert(mprotect(reserved, 4 * MIB, RW) == 0);
    assert(munmap(reserved, 4 * MIB) == 0);
}

static void forked(void) {
    char *at = map(4 * MIB, RW);
    memset(at, 1, 4 * MIB);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        // Its copy: the account of its parent stays.
        assert(munmap(at, 2 * MIB) == 0);
        assert(mprotect(at + 2 * MIB, MIB, PROT_READ) == 0);
        map(MIB, RW);
        _exit(0);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
}

static void moved_break(void) {
    char *before = sbrk(0);
    assert(sbrk(3 * MIB) == before);
    memset(before, 1, 3 * MIB);
    assert(sbrk(-(intptr_t)MIB) != (void *)-1);
    assert(brk(before + 5 * MIB) == 0);
    assert(brk(before + 4 * MIB) == 0);
}

// What each page is, by the rules that the library states.
enum kind { NONE, RESERVED, WRITABLE, HELD, DROPPED };

// Prints how many bytes count.
static void at_random(unsigned seed) {
    enum { PAGES = 300, STEPS = 20000 };
    static enum kind pages[PAGES];
    // A place that nobody else takes: freed, and taken again by pieces.
    char *place = map(PAGES * PAGE, PROT_NONE);
    assert(munmap(place, PAGES * PAGE) == 0);
    for (int step = 0; step < STEPS; step++) {
        int from = rand_r(&seed) % PAGES;
        int to = from + 1 + rand_r(&seed) % (PAGES - from);
        char *at = place + from * PAGE;
        size_t length = (to - from) * PAGE;
        int all = 1;
        for (int page = from; page < to; page++) all &= pages[page] != NONE;
        int writable = rand_r(&seed) % 2;
        switch (rand_r(&seed) % 4) {
        case 0:
            assert(mmap(at, length, writable ? RW : PROT_NONE, PRIVATE | MAP_FIXED, -1, 0) == at);
            for (int page = from; page < to; page++) pages[page] = writable ? WRITABLE : RESERVED;
            break;
        case 1:
            assert(munmap(at, length) == 0);
            for (int page = from; page < to; page++) pages[page] = NONE;
            break;
        case 2:
            if (!all) {
                // Changes what lies before the first hole, and says that it failed: nobody does that.
                break;
            }
            assert(mprotect(at, length, writable ? RW : PROT_READ) == 0);
            for (int page = from; page < to; page++) {
                if (writable) pages[page] = WRITABLE;
                else if (pages[page] == WRITABLE) pages[page] = HELD;
                else if (pages[page] == DROPPED) pages[page] = RESERVED;
            }
            break;
        case 3:
            if (!all) break;
            assert(madvise(at, length, MADV_DONTNEED) == 0);
            for (int page = from; page < to; page++) {
                if (pages[page] == WRITABLE) pages[page] = DROPPED;
                else if (pages[page] == HELD) pages[page] = RESERVED;
            }
            break;
        }
    }
    size_t counted = 0;
    for (int page = 0; page < PAGES; page++) counted += pages[page] >= WRITABLE;
    printf("%zu\n", counted * PAGE);
}

static void *work(void *seed_of) {
    unsigned seed = (uintptr_t)seed_of;
    char *mapped[16] = {0};
    for (int step = 0; step < 5000; step++) {
        int at = rand_r(&seed) % 16;
        size_t length = 3 * PAGE;
        if (mapped[at]) {
            assert(munmap(mapped[at], length) == 0);
            mapped[at] = NULL;
        } else {
            mapped[at] = map(length, RW);
            mapped[at][PAGE] = 1;
        }
    }
    for (int at = 0; at < 16; at++)
        if (mapped[at]) assert(munmap(mapped[at], 3 * PAGE) == 0);
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    for (uintptr_t i = 0; i < 4; i++) assert(pthread_create(&all[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) assert(pthread_join(all[i], NULL) == 0);
}

int main(int count, char **arguments) {
    assert(count > 1);
    const char *what = arguments[1];
    if (!strcmp(what, "private")) map(8 * MIB, RW)[0] = 1;
    else if (!strcmp(what, "reserve")) reserve();
    else if (!strcmp(what, "give back")) give_back();
    else if (!strcmp(what, "remap")) remap();
    else if (!strcmp(what, "shared")) shared_and_files(arguments[0]);
    else if (!strcmp(what, "limit")) limit();
    else if (!strcmp(what, "fork")) forked();
    else if (!strcmp(what, "break")) moved_break();
    else if (!strcmp(what, "random")) at_random(atoi(arguments[2]));
    else if (!strcmp(what, "threads")) threads();
    else return 2;
    return 0;
}
