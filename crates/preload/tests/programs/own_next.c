/* A program that defines functions of malloc's family by the next ones, which it looks up at the first call. JUMP:
   malloc ends in a jump to the next one. MOST: it leaves realloc to the library behind. */
#include "common.h"

static long counted;

static void *next(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function) _exit(95);
    return function;
}

#define NEXT(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))next(#name)

void *malloc(size_t size) {
    NEXT(malloc);
#ifdef JUMP
    return real(size);
#else
    void *block = real(size);
    counted += block != NULL;
    return block;
#endif
}

void free(void *block) {
    NEXT(free);
    real(block);
}

void *calloc(size_t number, size_t size) {
    NEXT(calloc);
    return real(number, size);
}

#ifndef MOST
void *realloc(void *block, size_t size) {
    NEXT(realloc);
    return real(block, size);
}
#endif

int main(void) {
    /* A look-up within a look-up would confuse the C library: all of them come before one that fails. */
    free(realloc(malloc(1), 2));
    free(calloc(1, 1));
    /* A name that is not found leaves an error, whose text is allocated and freed by the functions above. */
    for (int i = 0; i < 3; i++) check(!dlsym(RTLD_DEFAULT, "no such function") && !dlopen("/no/such/file", RTLD_NOW));
    check(dlerror());
    void *blocks[100];
    for (int i = 0; i < 100; i++) check((blocks[i] = i % 2 ? allocate(3000) : calloc(3, 1000)));
    for (int i = 0; i < 100; i++) check((blocks[i] = realloc(blocks[i], 6000)));
    for (int i = 0; i < 50; i++) free(blocks[i]);
    check(counted >= 0);
    say("done\n");
    return 0;
}
