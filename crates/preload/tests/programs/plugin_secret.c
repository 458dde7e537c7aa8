/* The allocator of plugin_malloc.c without a malloc_usable_size. The program finds glibc's, which does not know
   these blocks. */
#define SECRET
#include "plugin_malloc.c"
