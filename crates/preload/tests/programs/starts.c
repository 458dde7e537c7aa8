/* starts HOW SCRIPT: makes a shell run the script, and prints its status. */
#include "common.h"

extern char **environ;

int main(int argc, char **argv) {
    check(argc == 3);
    char *words[] = {"sh", "-c", argv[2], NULL};
    int status = -1;
    if (!strcmp(argv[1], "system")) {
        status = system(argv[2]);
    } else {
        pid_t child;
        if (!strcmp(argv[1], "spawn")) {
            check(!posix_spawnp(&child, "sh", NULL, NULL, words, environ));
        } else if (!(child = fork())) {
            execlp("sh", "sh", "-c", argv[2], (char *)NULL);
            _exit(98);
        }
        check(waitpid(child, &status, 0) == child);
    }
    say("%d\n", status);
    _exit(0);
}
