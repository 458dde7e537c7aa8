/* owners [header]: small blocks side by side that belong to two names in turn, by every function of the family.
   Prints for each name the remaining blocks, their usable bytes in total, and how many of them glibc mapped by
   themselves. The last number needs the word before a block, and so the argument. */
#include "common.h"

enum { BLOCKS = 6000 };

static void *blocks[BLOCKS];

static void *one(int i) {
    static const size_t sizes[] = {1, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 100, 1000, 5000, 120000};
    size_t size = sizes[i / 8 % 15];
    void *block = NULL;
    switch (i / 2 % 8) {
    case 0: return malloc(size);
    case 1: return calloc(size, 1);
    case 2: return realloc(malloc(1), size);
    case 3: return memalign(16, size);
    case 4: return posix_memalign(&block, 16, size) ? NULL : block;
    case 5: return reallocarray(NULL, size, 1);
    case 6: return aligned_alloc(8, (size + 7) / 8 * 8);
    default: return realloc(calloc(40, 1), size);
    }
}

int main(int argc, char **argv) {
    int header = argc > 1 && !strcmp(argv[1], "header");
    static const char *names[] = {"even", "odd"};
    size_t left[2] = {0, 0}, usable[2] = {0, 0}, mapped[2] = {0, 0};
    for (int i = 0; i < BLOCKS; i++) {
        check(!prctl(PR_SET_NAME, names[i % 2]));
        check((blocks[i] = one(i)));
        memset(blocks[i], i, malloc_usable_size(blocks[i]));
    }
    check(!prctl(PR_SET_NAME, "the end"));
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 5 && i % 3) {
            free(blocks[i]);
        } else {
            left[i % 2]++;
            usable[i % 2] += malloc_usable_size(blocks[i]);
            mapped[i % 2] += header && ((size_t *)blocks[i])[-1] & 2;
        }
    }
    for (int i = 0; i < 2; i++) say("%zu %zu %zu\n", left[i], usable[i], mapped[i]);
    return 0;
}
