/* The functions of a plugin: blocks by its own allocator, C's or C++'s. */
#include <stddef.h>

typedef struct {
    void *(*take)(size_t size);
    void *(*resize)(void *block, size_t size);
    void (*give)(void *block);
    /* An allocation that cannot be served: 1 if that was told as the language does. */
    int (*fails)(void);
} Plugin;
