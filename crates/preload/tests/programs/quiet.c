/* quiet: allocates nothing, and prints whether it has a heap nevertheless. */
#include "common.h"
#include <fcntl.h>

int main(void) {
    static char maps[1 << 16];
    int file = open("/proc/self/maps", O_RDONLY);
    check(file >= 0);
    for (ssize_t at = 0, got; (got = read(file, maps + at, sizeof maps - 1 - at)) > 0;) at += got;
    say("%d\n", strstr(maps, "[heap]") != NULL);
    return 0;
}
