/* Allocates a little, and has a child do it; says so. */
#include "common.h"

int main(void) {
    check(malloc(100));
    int child = fork();
    check(child >= 0);
    if (!child) {
        check(malloc(100));
        _exit(0);
    }
    reap(child);
    say("hello\n");
    return 0;
}
