/* lookup WHAT: continues with the blocks that plugin_lookup.c allocated before the next allocator was known. */
#include "common.h"

static void *of_plugin(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    check(function);
    return function;
}

static int (*early_count)(void);
static unsigned char *(*early_block)(int);
static void (*early_verify)(void), (*early_join)(void);

/* Counts the blocks that share a span of 64 MiB with an early block. glibc's mappings for single blocks lie below
   the libraries, and so near the early blocks. */
static int neighbours(void) {
    int near = 0;
    for (int i = 0; i < 200; i++) {
        void *block = allocate(400000);
        near += (uintptr_t)block >> 26 == (uintptr_t)early_block(0) >> 26;
    }
    return near;
}

int main(int argc, char **argv) {
    check(argc == 2);
    early_count = (int (*)(void))of_plugin("early_count");
    early_block = (unsigned char *(*)(int))of_plugin("early_block");
    early_verify = (void (*)(void))of_plugin("early_verify");
    early_join = (void (*)(void))of_plugin("early_join");
    if (!strcmp(argv[1], "thread")) {
        early_join();
        say("%d\n", early_count());
        return 0;
    }
    check(early_count() > 0);
    int near = neighbours();
    early_verify();
    check(!prctl(PR_SET_NAME, "later"));
    /* Each moves to the next allocator or is freed, and is charged or costs nothing. */
    for (int i = 0; i < early_count(); i++) {
        unsigned char *block = early_block(i);
        if (i % 2) {
            free(block);
            continue;
        }
        size_t held = malloc_usable_size(block);
        unsigned char *moved = realloc(block, 5000);
        check(moved && moved != block && malloc_usable_size(moved) >= 5000);
        for (size_t at = 0; at < held && at < 5000; at++) check(moved[at] == block[at]);
    }
    early_verify();
    say("%d %d\n", early_count(), near);
    return 0;
}
