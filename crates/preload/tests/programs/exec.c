/* exec N...: allocates N blocks of 10000, then executes itself with the next number. A path before that number names
   the program to execute instead. */
#include "common.h"

int main(int argc, char **argv) {
    for (int i = atoi(argv[1]); i; i--) check(allocate(10000));
    if (argc > 2) {
        int is_named = argv[2][0] == '/';
        const char *next = is_named ? argv[2] : "/proc/self/exe";
        argv[1 + is_named] = argv[0];
        execv(next, argv + 1 + is_named);
        check(0);
    }
    _exit(0);
}
