/* The allocator of plugin_malloc.c without a malloc_usable_size: the one that a program finds is glibc's, which knows
   nothing of these blocks. */
#define SECRET
#include "plugin_malloc.c"
