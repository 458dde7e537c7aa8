/* The allocator of plugin_says.c without predictions. */
#define MUTE
#include "plugin_says.c"
