/* Eight threads malloc, realloc, free and align at random, their own and each other's blocks. Each block is filled
   with a pattern of its address and size; at the end everything is freed. */
#include "common.h"

enum { THREADS = 8, SLOTS = 512, TURNS = 12000 };

struct block {
    size_t size;
    uint64_t words[];
};
static _Atomic(struct block *) shared[SLOTS];

static uint64_t word(size_t size, size_t i) { return (size * 0x9e3779b97f4a7c15u) ^ i; }
static size_t words(size_t size) { return (size - sizeof(struct block)) / 8; }

/* Checks all words of a small block, and some of a large one: enough to notice another thread's write. */
static size_t step(size_t size) { return size < 4096 ? 1 : words(size) / 64; }

static struct block *fill(struct block *block, size_t size) {
    check(block);
    check(malloc_usable_size(block) >= size);
    block->size = size;
    for (size_t i = 0; i < words(size); i += step(size)) block->words[i] = word(size, i);
    return block;
}

static void verify(struct block *block) {
    size_t size = block->size;
    for (size_t i = 0; i < words(size); i += step(size)) check(block->words[i] == word(size, i));
}

static size_t size_from(unsigned *state) {
    unsigned random = next_random(state);
    size_t size = random % 100 == 0 ? random % 400000 : random % 4 ? random % 300 : random % 9000;
    return sizeof(struct block) + 8 + size;
}

static struct block *make(unsigned *state) {
    size_t size = size_from(state), align = (size_t)16 << next_random(state) % 9;
    void *block = NULL;
    switch (next_random(state) % 8) {
    case 0: block = memalign(align, size); break;
    case 1: check(!posix_memalign(&block, align, size)); break;
    case 2: block = aligned_alloc(align, size); break;
    case 3:
        block = calloc(size, 1);
        for (size_t i = 0; block && i < size; i++) check(!((char *)block)[i]);
        align = 16;
        break;
    default: block = allocate(size), align = 16;
    }
    check((uintptr_t)block % align == 0);
    return fill(block, size);
}

static void *worker(void *argument) {
    unsigned state = (unsigned)(intptr_t)argument;
    char name[16];
    snprintf(name, sizeof name, "torture %u", state);
    check(!pthread_setname_np(pthread_self(), name));
    for (int i = 0; i < TURNS; i++) {
        _Atomic(struct block *) *slot = &shared[next_random(&state) % SLOTS];
        struct block *block = atomic_exchange(slot, NULL);
        if (!block) {
            block = make(&state);
        } else if (next_random(&state) % 2) {
            verify(block);
            free(block);
            continue;
        } else {
            verify(block);
            size_t size = size_from(&state), old = block->size, least = old < size ? old : size;
            block = realloc(block, size);
            check(block && block->size == old);
            for (size_t j = 0; j < words(least); j += step(old)) check(block->words[j] == word(old, j));
            fill(block, size);
        }
        block = atomic_exchange(slot, block);
        if (block) {
            verify(block);
            free(block);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) check(!pthread_create(&threads[i], NULL, worker, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++) check(!pthread_join(threads[i], NULL));
    for (int i = 0; i < SLOTS; i++) {
        if (shared[i]) verify(shared[i]);
        free(shared[i]);
    }
    _exit(0);
}
