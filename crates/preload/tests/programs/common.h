/* Common code of the programs. Nothing here allocates: no stdio. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define check(condition)                                                  \
    do {                                                                  \
        if (!(condition)) {                                               \
            say("line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            _exit(99);                                                    \
        }                                                                 \
    } while (0)

__attribute__((unused, format(printf, 1, 2))) static void say(const char *format, ...) {
    char text[400];
    va_list list;
    int errno_ = errno;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (write(1, text, length) != length) _exit(98);
    errno = errno_;
}

/* The compiler must not pair an allocation with its free. */
__attribute__((unused)) static void *(*volatile allocate)(size_t) = malloc;

__attribute__((unused)) static unsigned next_random(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

__attribute__((unused)) static void reap(int child) {
    int status;
    check(waitpid(child, &status, 0) == child);
    check(status == 0);
}
