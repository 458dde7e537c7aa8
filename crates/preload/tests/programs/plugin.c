/* 300 blocks of 2000 from a library, and a block of its own while it is loaded. */
#include <stdlib.h>

static void *own;
static void *kept[300];

__attribute__((constructor)) static void loaded(void) { own = malloc(5000); }
__attribute__((destructor)) static void unloaded(void) { free(own); }

void give(void) {
    for (int i = 0; i < 300; i++) kept[i] = malloc(2000);
}

void take(void) {
    for (int i = 0; i < 300; i++) free(kept[i]);
}
