/* A program with its own malloc, which its libraries call too. */
#include "common.h"

static char heap[1 << 20];
static size_t used;

void *malloc(size_t size) {
    used = (used + 15) & ~(size_t)15;
    char *block = heap + used;
    if (size > sizeof heap - used) return NULL;
    used += size;
    return block;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size) {
    (void)block;
    return malloc(size);
}

int main(void) {
    check(malloc(100));
    _exit(0);
}
