// Maps memory by itself, in the way that its argument names, and keeps it to the end.

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

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

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
    // Half of it again, and memory beside it.
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
    // A reservation replaces the old mapping.
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
    // Written pages of it are the program's own.
    assert(mmap(NULL, PAGE, RW, MAP_PRIVATE, file, 0) != MAP_FAILED);
}

// Prints the number of mebibytes that it got.
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
        // This is the child's copy: the account of its parent stays.
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

// The kind of each page, by the rules that the library states.
enum kind { NONE, RESERVED, WRITABLE, HELD, DROPPED };

// Returns whether a stretch moves to its place. If it fails, kernels before 6.17 may have emptied the place.
static int moves_to(char *there, char *at, size_t length, int flags, enum kind *other) {
    if (mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | flags, there) != MAP_FAILED) return 1;
    unsigned char resident;
    for (size_t page = 0; page < length / PAGE; page++) {
        if (mincore(there + page * PAGE, PAGE, &resident) != 0) other[page] = NONE;
    }
    return 0;
}

// Prints the number of bytes that count.
static void at_random(unsigned seed) {
    enum { PAGES = 300, STEPS = 20000 };
    static enum kind both[2][PAGES];
    // Two places that no other mapping takes: freed, and taken again in pieces.
    char *place = map(2 * PAGES * PAGE, PROT_NONE);
    assert(munmap(place, 2 * PAGES * PAGE) == 0);
    long moves = 0;
    for (int step = 0; step < STEPS; step++) {
        int side = rand_r(&seed) % 2;
        enum kind *pages = both[side], *other = both[!side];
        int from = rand_r(&seed) % PAGES;
        int to = from + 1 + rand_r(&seed) % (PAGES - from);
        char *at = place + (side * PAGES + from) * PAGE;
        char *there = place + (!side * PAGES + from) * PAGE;
        size_t length = (to - from) * PAGE;
        int all = 1;
        for (int page = from; page < to; page++) all &= pages[page] != NONE;
        int writable = rand_r(&seed) % 2;
        switch (rand_r(&seed) % 7) {
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
                // The call changes the part before the first hole, and fails. No real program does that.
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
        case 4: {
            // Shorter, over any pieces behind the end.
            if (!all) break;
            size_t left = length / PAGE / 2 * PAGE;
            if (left == 0) break;
            assert(mremap(at, length, left, 0) == at);
            for (int page = from + left / PAGE; page < to; page++) pages[page] = NONE;
            break;
        }
        case 5:
            // Moved, if it is one mapping for the kernel, or many for a new kernel.
            if (!all || !moves_to(there, at, length, 0, other + from)) break;
            moves++;
            for (int page = from; page < to; page++) other[page] = pages[page], pages[page] = NONE;
            break;
        case 6:
            // Only the pages move.
            if (!all || !moves_to(there, at, length, MREMAP_DONTUNMAP, other + from)) break;
            moves++;
            for (int page = from; page < to; page++) {
                other[page] = pages[page];
                if (pages[page] == WRITABLE) pages[page] = DROPPED;
                else if (pages[page] == HELD) pages[page] = RESERVED;
            }
            break;
        }
    }
    assert(moves > 20);
    size_t counted = 0;
    for (int side = 0; side < 2; side++)
        for (int page = 0; page < PAGES; page++) counted += both[side][page] >= WRITABLE;
    printf("%zu\n", counted * PAGE);
}

// Acts on memory that is many stretches in the account, and one for the kernel.
static void pieces(void) {
    // A page that was written, and a reservation behind it: the removed part was never charged.
    for (int i = 0; i < 8; i++) {
        char *at = map(16 * MIB, PROT_NONE);
        assert(mprotect(at, PAGE, RW) == 0);
        at[0] = 1;
        assert(mremap(at, 16 * MIB, PAGE, 0) == at);
    }
    // A shared mapping has no owner, wherever its pages are.
    char *shared = mmap(NULL, 16 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(shared != MAP_FAILED);
    char *moved = mremap(shared, 16 * MIB, 16 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (moved != MAP_FAILED) assert(munmap(moved, 16 * MIB) == 0);
    assert(munmap(shared, 16 * MIB) == 0);
    // A reservation that grows stays one, even after a part of it was written.
    char *reserved = mmap(NULL, 64 * MIB, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
    assert(reserved != MAP_FAILED && mprotect(reserved, PAGE, RW) == 0);
    reserved[0] = 1;
    assert(mprotect(reserved, PAGE, PROT_NONE) == 0);
    // For kernels before 6.17 it is two mappings by then, which do not grow.
    char *grown = mremap(reserved, 64 * MIB, 128 * MIB, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) assert(munmap(reserved, 64 * MIB) == 0);
    else assert(munmap(grown, 128 * MIB) == 0);
    // Onto memory that is charged already.
    char *mine = map(6 * MIB, RW);
    assert(mmap(mine, 6 * MIB, RW, PRIVATE | MAP_FIXED, -1, 0) == mine);
    char *other = map(MIB, RW);
    assert(mremap(other, MIB, 6 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, mine) == mine);
    assert(munmap(mine, 6 * MIB) == 0);
    // The remaining limit is enforced.
    char *much = mmap(NULL, 9 * MIB, RW, PRIVATE, -1, 0);
    assert(much == MAP_FAILED && errno == ENOMEM);
}

// Checks that failures set errno, and that successes leave it alone.
static void errors(void) {
    char *at = map(2 * PAGE, RW);
    assert(munmap(at + PAGE, PAGE) == 0);
    char *hole = at + PAGE;
    int status = fcntl(-1, F_GETFD);
    assert(status == -1 && errno == EBADF);
#define FAILS(call, with) do { errno = ENOTTY; assert((call) == -1 && errno == (with)); } while (0)
    FAILS(munmap(at + 1, PAGE), EINVAL);
    FAILS(mprotect(hole, PAGE, PROT_READ), ENOMEM);
    FAILS(mprotect(at + 1, PAGE, PROT_READ), EINVAL);
#ifdef __GLIBC__
    FAILS(pkey_mprotect(at, PAGE, PROT_READ, 15), EINVAL);
#endif
    FAILS(madvise(hole, PAGE, MADV_DONTNEED), ENOMEM);
    FAILS(madvise(at + 1, PAGE, MADV_DONTNEED), EINVAL);
    FAILS((intptr_t)mremap(at, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE), EFAULT);
    FAILS((intptr_t)mremap(at, PAGE, PAGE, MREMAP_FIXED, hole), EINVAL);
    FAILS((intptr_t)mmap(at + 1, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0), EINVAL);
    errno = ENOTTY;
    assert(mprotect(at, PAGE, PROT_READ) == 0 && madvise(at, PAGE, MADV_DONTNEED) == 0);
    assert(mmap(hole, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0) == hole && munmap(at, 2 * PAGE) == 0);
    assert(errno == ENOTTY);
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

/* The kernel has one mapping throughout. */
static void sieve(void) {
    size_t length = 600 * MIB;
    char *at = map(length, RW);
    for (size_t i = 0; i < length; i += 2 * PAGE) assert(madvise(at + i, PAGE, MADV_DONTNEED) == 0);
    assert(munmap(at, length) == 0);
    map(MIB, RW);
}

/* It also merges mappings that two owners make in turns. The library distinguishes these, and has no room for all of
   them. */
static void crowd(void) {
    size_t count = 80000;
    char *at = map(count * PAGE, PROT_NONE);
    for (size_t i = 0; i < count; i++) {
        assert(pthread_setname_np(pthread_self(), i % 2 ? "odd" : "even") == 0);
        char *page = mmap(at + i * PAGE, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
        assert(page == at + i * PAGE);
    }
    assert(munmap(at, count * PAGE) == 0);
    map(MIB, RW);
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
    else if (!strcmp(what, "pieces")) pieces();
    else if (!strcmp(what, "errors")) errors();
    else if (!strcmp(what, "sieve")) sieve();
    else if (!strcmp(what, "crowd")) crowd();
    else return 2;
    return 0;
}
