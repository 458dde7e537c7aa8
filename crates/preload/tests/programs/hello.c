/* Allocates a little, makes a child do so too, and reports it. */
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
