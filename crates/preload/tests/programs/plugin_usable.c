/* A malloc_usable_size for which eight bytes of each block are not usable. */
#include "common.h"

size_t malloc_usable_size(void *block) {
    size_t (*whole)(void *) = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    check(whole);
    return block ? whole(block) - 8 : 0;
}
