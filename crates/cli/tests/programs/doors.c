/* doors HOW PROGRAM: executes `PROGRAM say 1 2 3 4 5 6 7 8 9` by each function of the C library's.
   doors say WORD...: prints its words and X of its environment.
   The functions that take an environment pass X=mine; if PASS is set, also the variables LEDGERLINE* and LD_PRELOAD*. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    (void)argc;
    const char *how = argv[1], *path = argv[2];
    if (!strcmp(how, "say")) {
        for (int i = 2; argv[i]; i++) printf("%s ", argv[i]);
        printf("X=%s\n", getenv("X") ? getenv("X") : "");
        /* Allocates something. */
        char *volatile block = malloc(1000);
        free(block);
        return 0;
    }
    char *words[] = {(char *)path, "say", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL};
    char *mine[64] = {"X=mine"};
    int count = 1;
    if (getenv("PASS"))
        for (char **one = environ; *one && count < 62; one++)
            if (!strncmp(*one, "LEDGERLINE", 10) || !strncmp(*one, "LD_PRELOAD", 10)) mine[count++] = *one;
    char *name = strrchr(path, '/') + 1;
    int child;
    if (!strcmp(how, "execve")) execve(path, words, mine);
    if (!strcmp(how, "execv")) execv(path, words);
    if (!strcmp(how, "execvp")) execvp(name, words);
    if (!strcmp(how, "execvpe")) execvpe(name, words, mine);
    if (!strcmp(how, "execl")) execl(path, path, "say", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL);
    if (!strcmp(how, "execl-short")) execl(path, path, "say", NULL);
    if (!strcmp(how, "execl-six")) execl(path, path, "say", "1", "2", "3", "4", NULL);
    if (!strcmp(how, "execlp")) execlp(name, path, "say", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL);
    if (!strcmp(how, "execle"))
        execle(path, path, "say", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL, mine);
    if (!strcmp(how, "execle-short")) execle(path, path, "say", NULL, mine);
    if (!strcmp(how, "fexecve")) fexecve(open(path, O_RDONLY), words, mine);
    if (!strcmp(how, "execveat")) execveat(AT_FDCWD, path, words, mine, 0);
    if (!strcmp(how, "execveat-empty")) execveat(open(path, O_PATH), "", words, mine, AT_EMPTY_PATH);
    if (!strcmp(how, "spawn")) {
        if (posix_spawn(&child, path, NULL, NULL, words, mine)) return 3;
        wait(NULL);
        return 0;
    }
    if (!strcmp(how, "spawnp")) {
        if (posix_spawnp(NULL, name, NULL, NULL, words, environ)) return 3;
        wait(NULL);
        return 0;
    }
    if (!strcmp(how, "vfork")) {
        if (!(child = vfork())) {
            execve(path, words, mine);
            _exit(4);
        }
        wait(NULL);
        return 0;
    }
    if (!strcmp(how, "nothing")) {
        /* Failures leave errno as without the library, and no row. */
        execl("/nonexistent", "x", NULL);
        perror("execl");
        execve(path, words, (char **)8);
        perror("execve");
        execve("/etc/passwd", words, mine);
        perror("execve");
        return 0;
    }
    perror(how);
    return 2;
}
