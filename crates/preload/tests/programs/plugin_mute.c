/* The allocator of plugin_says.c that does not say beforehand what it gives. */
#define MUTE
#include "plugin_says.c"
