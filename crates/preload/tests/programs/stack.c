/* stack: asks for 50 MiB, two calls deep. Prints the places of both functions in the file. */
#include "common.h"

__attribute__((noinline)) void *inner(size_t size) {
    void *block = allocate(size);
    check(!block || size < 100);
    return block;
}

__attribute__((noinline)) void *outer(size_t size) {
    void *block = inner(size);
    return block ? (char *)block + 1 : NULL;
}

int main(void) {
    Dl_info info;
    check(dladdr((void *)outer, &info));
    unsigned long base = (unsigned long)info.dli_fbase;
    say("%lu %lu\n", (unsigned long)inner - base, (unsigned long)outer - base);
    check(!outer(50 << 20));
    /* Only the first one is reported. */
    check(!outer(60 << 20));
    errno = 77;
    check(inner(50) && errno == 77);
    _exit(0);
}
