/* Blocks by C's functions. */
#include "plugin.h"
#include <stdlib.h>

static int fails(void) {
    volatile size_t huge = (size_t)-1 / 2;
    void *volatile block = malloc(huge);
    return block == NULL;
}

const Plugin plugin = {malloc, realloc, free, fails};
