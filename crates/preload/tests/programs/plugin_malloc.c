/* An allocator of the test's own. Its blocks lie as close as 16 bytes, like musl's. The word before a block is like
   glibc's for blocks below 100000 bytes, and meaningless for larger ones: only the owner of malloc shows that these
   headers cannot be relied on. */
#include "common.h"

#include <sys/mman.h>

enum { STEP = 16, CLASSES = 128, LARGE = 1 << 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;
static void *unused[CLASSES];

static size_t *header(void *block) { return (size_t *)block - 1; }

/* Returns the word for a number. */
static size_t coded(size_t number) {
#ifdef SECRET
    return ~number;
#else
    return number;
#endif
}

static void *take(size_t chunk, size_t align) {
    if ((size_t)(end - next) < chunk + align + STEP) {
        size_t more = chunk + align + (16 << 20);
        next = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(next != MAP_FAILED);
        end = next + more;
    }
    char *block = (char *)(((uintptr_t)next + 8 + align - 1) & ~(align - 1));
    /* The next block's header is in the last word of this chunk, like in glibc. */
    next = block + chunk - 8;
    return block;
}

/* Chunks of at least 16 bytes, which is less than glibc's 32. */
static void *get(size_t align, size_t size) {
    if (size > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    size_t chunk = (size + 8 + STEP - 1) & ~(size_t)(STEP - 1);
    int large = align <= STEP && size >= 100000;
    chunk += large ? STEP : 0;
    pthread_mutex_lock(&lock);
    void *block = NULL;
    if (align <= STEP && chunk / STEP < CLASSES && unused[chunk / STEP]) {
        block = unused[chunk / STEP];
        unused[chunk / STEP] = *(void **)block;
    } else {
        block = take(chunk, align < STEP ? STEP : align);
    }
    if (large) {
        block = (char *)block + STEP;
        header(block)[-1] = chunk - STEP;
        chunk = LARGE;
    }
    *header(block) = coded(chunk | 1);
    pthread_mutex_unlock(&lock);
    return block;
}

static size_t usable(void *block) {
    size_t chunk = coded(*header(block)) & ~(size_t)7;
    return (chunk == LARGE ? header(block)[-1] : chunk) - 8;
}

void *malloc(size_t size) { return get(STEP, size); }
void *memalign(size_t align, size_t size) { return get(align, size); }
void *aligned_alloc(size_t align, size_t size) { return get(align, size); }

/* Calls its own functions by their names, like simple allocators. Another library may replace them. */
int posix_memalign(void **into, size_t align, size_t size) {
    void *block = memalign(align, size);
    if (!block) return ENOMEM;
    *into = block;
    return 0;
}

void free(void *block) {
    if (!block) return;
    pthread_mutex_lock(&lock);
    size_t class = (usable(block) + 8) / STEP;
    if (class < CLASSES) {
        *(void **)block = unused[class];
        unused[class] = block;
    }
    pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) return NULL;
    void *block = malloc(all);
    return block ? memset(block, 0, all) : NULL;
}

void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    void *moved = malloc(size);
    if (!moved) return NULL;
    memcpy(moved, block, usable(block) < size ? usable(block) : size);
    free(block);
    return moved;
}

#ifndef SECRET
size_t malloc_usable_size(void *block) {
    free(malloc(1));
    return block ? usable(block) : 0;
}
#endif
