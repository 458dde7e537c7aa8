/* An allocator of the test's own that predicts the size for a request (nallocx), and counts how often it is asked
   for the size of a block. SAYS=no: it predicts nothing, and could not, since every other block is larger. */
#include "common.h"

#include <sys/mman.h>

enum { STEP = 16, CLASSES = 8192 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;
static void *unused[CLASSES];
static unsigned long asked;
#ifdef MUTE
static unsigned long given;
#endif

static size_t *header(void *block) { return (size_t *)block - 2; }
static size_t rounded(size_t size) { return (size + STEP - 1) & ~(size_t)(STEP - 1); }

static void *get(size_t align, size_t size) {
    size_t bytes = rounded(size);
    pthread_mutex_lock(&lock);
#ifdef MUTE
    if (++given % 2) bytes += STEP;
#endif
    void *block;
    size_t class = bytes / STEP;
    if (align <= STEP && class < CLASSES && unused[class]) {
        block = unused[class];
        unused[class] = *(void **)block;
    } else {
        if ((size_t)(end - next) < bytes + align + 2 * STEP) {
            size_t more = bytes + align + (16 << 20);
            next = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            check(next != MAP_FAILED);
            end = next + more;
        }
        if (align < STEP) align = STEP;
        block = (void *)(((uintptr_t)next + STEP + align - 1) & ~(align - 1));
        next = (char *)block + bytes;
    }
    *header(block) = bytes;
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size) { return get(STEP, size); }
void *memalign(size_t align, size_t size) { return get(align, size); }
void *aligned_alloc(size_t align, size_t size) { return get(align, size); }

int posix_memalign(void **into, size_t align, size_t size) {
    *into = get(align, size);
    return 0;
}

void free(void *block) {
    if (!block) return;
    size_t class = *header(block) / STEP;
    pthread_mutex_lock(&lock);
    if (class < CLASSES) {
        *(void **)block = unused[class];
        unused[class] = block;
    }
    pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t size) {
    return memset(get(STEP, count * size), 0, count * size);
}

/* A block that shrinks stays in place, and returns the rest. */
void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    size_t held = *header(block), bytes = rounded(size);
    if (bytes <= held) {
        *header(block) = bytes ? bytes : STEP;
        return block;
    }
    void *moved = memcpy(get(STEP, size), block, held);
    free(block);
    return moved;
}

size_t malloc_usable_size(void *block) {
    __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
    return block ? *header(block) : 0;
}

unsigned long times_asked(void) { return asked; }

#ifndef MUTE
size_t nallocx(size_t size, int flags) {
    check(size && !flags);
    return rounded(size);
}
#endif
