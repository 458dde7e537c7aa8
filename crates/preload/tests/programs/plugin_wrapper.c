/* Functions that pass everything to glibc's and count, like those of heap profilers. The rest of the family, and
   malloc_usable_size, are glibc's own. */
#include "common.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

static atomic_long calls;

void *malloc(size_t size) {
    calls++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    calls++;
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    calls++;
    return __libc_realloc(block, size);
}

void free(void *block) {
    calls++;
    __libc_free(block);
}
