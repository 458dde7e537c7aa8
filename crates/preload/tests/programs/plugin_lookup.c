/* A dl_iterate_phdr in front of the C library's, like those of some tools. It allocates while malloc's library looks up the
   libraries behind it. LOOKUP names its further actions:
     recursion        tries every function of the family in the middle of the look-up
     thread           starts a thread there, which does so as well
     full             allocates there until there is no more
     constructor      asks for more than the library could give by itself, before that is started
     without          hides the C library from searches for malloc's family */
#include "common.h"

#include <link.h>
#include <semaphore.h>

/* The smallest distance of two blocks, and the memory that is available before the next allocator is known. */
enum { STEP = 16, ALL = 64 << 10, KEPT = 400 };

static struct kept {
    unsigned char *block;
    size_t size, usable;
    unsigned char byte;
} kept[KEPT];
static int count;
static pthread_t thread;
static sem_t served, proceed;

static void verify(void) {
    for (int i = 0; i < count; i++) {
        check(malloc_usable_size(kept[i].block) == kept[i].usable);
        for (size_t at = 0; at < kept[i].usable; at++) check(kept[i].block[at] == kept[i].byte);
    }
}

/* Fills the usable bytes of a new block, and checks that nothing else changed. */
static void *keep(void *block, size_t size, size_t align) {
    check(block && (uintptr_t)block % align == 0 && count < KEPT);
    struct kept *one = &kept[count];
    *one = (struct kept){block, size, malloc_usable_size(block), (unsigned char)(count + 1)};
    check(one->usable >= size && one->usable < size + STEP);
    memset(block, one->byte, one->usable);
    count++;
    verify();
    return block;
}

static void family(void) {
    for (size_t size = 0; size < 70; size += 3) keep(malloc(size), size, STEP);
    for (size_t size = 1; size < 70; size += 7) {
        unsigned char *block = calloc(size, 3);
        for (size_t at = 0; at < malloc_usable_size(block); at++) check(!block[at]);
        keep(block, 3 * size, STEP);
    }
    for (size_t align = 8; align <= 4096; align *= 2) {
        keep(memalign(align, 40 + align / 64), 40 + align / 64, align < STEP ? STEP : align);
        keep(aligned_alloc(align, align / 4), align / 4, align);
        void *block = NULL;
        errno = 7;
        check(!posix_memalign(&block, align, 24) && errno == 7);
        keep(block, 24, align);
    }
    /* It moves with its content; the old block is unchanged. */
    unsigned char *small = keep(malloc(100), 100, STEP);
    unsigned char *large = realloc(small, 300);
    for (int at = 0; at < 100; at++) check(large != small && large[at] == small[at]);
    keep(large, 300, STEP);
    unsigned char *less = realloc(large, 10);
    for (int at = 0; at < 10; at++) check(less[at] == large[at]);
    keep(less, 10, STEP);
    keep(realloc(NULL, 33), 33, STEP);
    free(malloc(50));
    free(NULL);
    verify();
    /* Impossible requests are refused, and take nothing away. */
    size_t never[] = {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 8, SIZE_MAX - 24, SIZE_MAX / 2, ALL, ALL - STEP};
    for (int i = 0; i < 7; i++) {
        errno = 0;
        check(!allocate(never[i]) && errno == ENOMEM);
        errno = 0;
        check(!calloc(never[i], 1) && errno == ENOMEM);
        void *block = NULL;
        errno = 7;
        check(posix_memalign(&block, 64, never[i]) == ENOMEM && !block && errno == 7);
        errno = 0;
        check(!memalign(64, never[i]) && errno == ENOMEM);
        check(!aligned_alloc(64, never[i]));
        check(!realloc(small, never[i]));
    }
    errno = 0;
    volatile size_t half = SIZE_MAX / 2 + 2;
    check(!calloc(half, 2) && errno == ENOMEM);
    verify();
}

/* Takes memory to the last chunk. */
static void fill(void) {
    size_t all = 0, size = 1000;
    for (; size > 0; size /= 2) {
        for (void *block; count < KEPT && (block = malloc(size)); all += (size + 8 + 15) / 16 * 16)
            keep(block, size, STEP);
    }
    check(count < KEPT && all <= ALL - STEP && all > ALL - 64);
    check(!malloc(0) && !calloc(1, 1) && !realloc(kept[0].block, 2000));
}

static void *other(void *unused) {
    family();
    check(!sem_post(&served));
    check(!sem_wait(&proceed));
    /* By now the next allocator is known. */
    verify();
    check(!prctl(PR_SET_NAME, "other"));
    for (int i = 0; i < 100; i++) check(allocate(1000));
    return unused;
}

typedef int (*each_object)(struct dl_phdr_info *, size_t, void *);

struct call {
    each_object each;
    void *data;
};

static int visible(struct dl_phdr_info *info, size_t size, void *data) {
    struct call *call = data;
    if (strstr(info->dlpi_name, "libc.so")) return 0;
    return call->each(info, size, call->data);
}

int dl_iterate_phdr(each_object each, void *data) {
    static int (*real)(each_object, void *);
    static int depth, asked;
    if (!real) real = (int (*)(each_object, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
    check(real);
    const char *what = getenv("LOOKUP");
    if (!what || !strcmp(what, "nothing") || !strcmp(what, "constructor")) return real(each, data);
    depth++;
    if (!asked) {
        /* The first block of the program triggers the look-up of the next allocator. */
        asked = 1;
        free(malloc(1));
    } else if (asked == 1 && depth == 2) {
        /* In the middle of that look-up. */
        asked = 2;
        if (!strcmp(what, "recursion")) family();
        if (!strcmp(what, "full")) fill();
        if (!strcmp(what, "thread")) {
            check(!sem_init(&served, 0, 0) && !sem_init(&proceed, 0, 0));
            check(!pthread_create(&thread, NULL, other, NULL));
            check(!sem_wait(&served));
        }
        if (!strcmp(what, "without")) {
            struct call call = {each, data};
            int result = real(visible, &call);
            depth--;
            return result;
        }
    }
    int result = real(each, data);
    depth--;
    return result;
}

/* This library is loaded after the one under test, and so is started before it. */
__attribute__((constructor)) static void constructor(void) {
    const char *what = getenv("LOOKUP");
    for (int i = 0; what && !strcmp(what, "constructor") && i < 200; i++) check(allocate(1000));
}

/* Functions for the program's checks. */
int early_count(void) { return count; }
unsigned char *early_block(int at) { return kept[at].block; }
void early_verify(void) { verify(); }
void early_join(void) {
    check(!sem_post(&proceed));
    check(!pthread_join(thread, NULL));
}
