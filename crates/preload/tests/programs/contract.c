/* Every corner of the family, one line each: the same with and without the library. */
#include "common.h"
#include <limits.h>

#define show(text, value)                                             \
    do {                                                              \
        long value_ = (long)(value);                                  \
        say("%s: %ld errno %d\n", text, value_, errno);               \
    } while (0)
/* A value of errno that nothing here sets. */
#define fresh() (errno = 77)

/* The compiler must not know these functions. */
static void *(*volatile malloc_)(size_t) = malloc;
static void *(*volatile calloc_)(size_t, size_t) = calloc;
static void *(*volatile realloc_)(void *, size_t) = realloc;
static void *(*volatile reallocarray_)(void *, size_t, size_t) = reallocarray;
static void *(*volatile aligned_alloc_)(size_t, size_t) = aligned_alloc;
static void *(*volatile memalign_)(size_t, size_t) = memalign;
static int (*volatile posix_memalign_)(void **, size_t, size_t) = posix_memalign;

static long aligned(void *block, size_t align) { return block && (uintptr_t)block % align == 0; }

int main(void) {
    /* Prints which blocks have mappings of their own, by the flag in their header. The threshold for that grows when
       such a block is freed, so none may be freed behind the test's back. */
    for (size_t size = 100 << 10; size <= 4 << 20; size *= 2) {
        size_t *block = malloc_(size);
        show("mapped", block[-1] & 2); show("usable", malloc_usable_size(block));
    }
    fresh(); void *p = malloc_(0); show("malloc 0", p != NULL);
    fresh(); free(p); show("free keeps errno", 0);
    fresh(); free(NULL); show("free null", 0);
    fresh(); show("malloc max", malloc_(SIZE_MAX));
    for (int i = 0; i < 12; i++) { fresh(); show("malloc near max", malloc_(SIZE_MAX - i)); }
    fresh(); show("malloc half", malloc_((size_t)PTRDIFF_MAX + 1));
    fresh(); show("calloc overflow", calloc_(SIZE_MAX / 2, 3));
    fresh(); show("calloc near overflow", calloc_(1, SIZE_MAX - 2));
    fresh(); p = calloc_(0, 5); show("calloc 0", p != NULL); free(p);
    unsigned char *z = malloc_(70000); memset(z, 255, 70000); free(z);
    z = calloc_(700, 100); long sum = 0;
    for (int i = 0; i < 70000; i++) sum += z[i];
    show("calloc zeroes", sum); free(z);
    fresh(); p = realloc_(NULL, 50); show("realloc null", p != NULL);
    memset(p, 'a', 50);
    fresh(); show("realloc max", realloc_(p, SIZE_MAX - 1));
    show("still whole", ((char *)p)[49]);
    p = realloc_(p, 100000); show("realloc keeps", ((char *)p)[49]);
    p = realloc_(p, 10); show("realloc shrinks", ((char *)p)[9]);
    fresh(); show("realloc 0", realloc_(p, 0));
    fresh(); p = realloc_(NULL, 0); show("realloc null 0", p != NULL); free(p);
    fresh(); show("reallocarray overflow", reallocarray_(NULL, SIZE_MAX / 4, 5));
    fresh(); p = reallocarray_(NULL, 10, 10); show("reallocarray", p != NULL); free(p);
    for (size_t align = 1; align <= 1 << 20; align *= 2) {
        fresh(); p = memalign_(align, 100); show("memalign", aligned(p, align)); free(p);
        fresh(); p = aligned_alloc_(align, align); show("aligned_alloc", aligned(p, align)); free(p);
        void *q = (void *)5;
        fresh(); int result = posix_memalign_(&q, align, 33);
        show("posix_memalign", result); show("result", result ? q == (void *)5 : aligned(q, align));
        if (!result) free(q);
    }
    fresh(); p = memalign_(48, 100); show("memalign odd", aligned(p, 64)); free(p);
    void *q = (void *)5;
    fresh(); show("posix_memalign 0", posix_memalign_(&q, 0, 10));
    fresh(); show("posix_memalign 3", posix_memalign_(&q, 24, 10));
    fresh(); show("posix_memalign max", posix_memalign_(&q, 64, SIZE_MAX - 2));
    show("untouched", q == (void *)5);
    fresh(); show("memalign max", memalign_(64, SIZE_MAX - 2));
    fresh(); show("aligned_alloc max", aligned_alloc_(64, SIZE_MAX - 2));
    fresh(); p = valloc(10); show("valloc", aligned(p, 4096)); free(p);
    fresh(); p = pvalloc(4097); show("pvalloc", aligned(p, 4096) && malloc_usable_size(p) >= 8192);
    free(p);
    fresh(); show("pvalloc max", pvalloc(SIZE_MAX - 10));
    fresh(); show("usable null", malloc_usable_size(NULL));
    for (size_t size = 0; size < 3000; size += 7) {
        p = malloc_(size);
        check(malloc_usable_size(p) >= size && aligned(p, 16));
        memset(p, 1, malloc_usable_size(p));
        p = realloc_(p, size * 2 + 1);
        for (size_t i = 0; i < size; i++) check(((char *)p)[i] == 1);
        free(p);
    }
    char *text = strdup("text"); show("strdup", text[3]); free(text);
    text = NULL; show("asprintf", asprintf(&text, "%d", 12345)); free(text);
    /* errno keeps its value while many blocks are freed. */
    static void *many[5000];
    for (int i = 0; i < 5000; i++) many[i] = malloc_((size_t)i * 37 % 9000);
    long kept = 0;
    for (int i = 0; i < 5000; i++) { fresh(); free(many[i]); kept += errno == 77; }
    show("errno kept", kept);
    fresh(); p = malloc_(100); show("malloc keeps errno", p != NULL);
    fresh(); show("reallocarray leaves the block", reallocarray_(p, SIZE_MAX / 4, 5));
    fresh(); show("realloc half", realloc_(p, (size_t)PTRDIFF_MAX + 1));
    memset(p, 1, malloc_usable_size(p)); free(p);
    say("end\n");
    return 0;
}
