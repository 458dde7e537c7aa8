/* A malloc_usable_size that keeps eight bytes of each block for itself. */
#include "common.h"

size_t malloc_usable_size(void *block) {
    size_t (*whole)(void *) = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    check(whole);
    return block ? whole(block) - 8 : 0;
}
