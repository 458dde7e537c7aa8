/* exec N...: allocates N blocks of 10000, then becomes what the next number says. */
#include "common.h"

int main(int argc, char **argv) {
    for (int i = atoi(argv[1]); i; i--) check(allocate(10000));
    if (argc > 2) {
        argv[1] = argv[0];
        execv("/proc/self/exe", argv + 1);
        check(0);
    }
    _exit(0);
}
