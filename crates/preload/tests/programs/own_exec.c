// Defines functions with names of the C library's, and starts another program by those that take words. The C library
// calls none of a program's own functions for that.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int execv(const char *path, char *const words[]) {
    (void)words;
    printf("own execv: %s\n", path);
    return -1;
}

int execvp(const char *file, char *const words[]) {
    (void)words;
    printf("own execvp: %s\n", file);
    return -1;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "file"))
        execlp("echo", "echo", "started", (char *)0);
    else
        execl("/bin/echo", "echo", "started", (char *)0);
    return 1;
}
