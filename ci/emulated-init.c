/* The first program of the small systems that `ci/arm64` and `ci/kernels` boot: it runs the programs in /programs one
   after the other, a line each: a name, a folder, variables of the environment, the program and its arguments, with single
   spaces between. Then it turns the machine off. */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64 };

static void mounted(const char *kind, const char *at) {
    mkdir(at, 0755);
    if (mount(kind, at, kind, 0, NULL) != 0) perror(at);
}

/* Programs that use the network locally need 127.0.0.1. */
static void loopback(void) {
    struct ifreq ask = {.ifr_name = "lo"};
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ask.ifr_flags = IFF_UP | IFF_RUNNING;
    if (descriptor < 0 || ioctl(descriptor, SIOCSIFFLAGS, &ask) != 0) perror("lo");
    if (descriptor >= 0) close(descriptor);
}

static void run(char **words, int count) {
    struct timespec start, end;
    int status = 0;
    printf("\n== %s\n", words[0]);
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child == 0) {
        int at = 2;
        if (chdir(words[1]) != 0) perror(words[1]);
        for (; at < count && strchr(words[at], '=') != NULL && words[at][0] != '/'; at++) putenv(words[at]);
        execvp(words[at], words + at);
        perror(words[at]);
        _exit(127);
    }
    /* This program also collects orphans. */
    for (pid_t ended; (ended = wait(&status)) != child && ended > 0;) {
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("\n== %s ended: %d, after %ld s\n", words[0], code, (long)(end.tv_sec - start.tv_sec));
    fflush(stdout);
}

int main(void) {
    char line[4096];
    mounted("proc", "/proc");
    mounted("sysfs", "/sys");
    mounted("devtmpfs", "/dev");
    /* The system's own folder, in memory like the whole system: the tests' programs may be below it. */
    mkdir("/tmp", 01777);
    chmod("/tmp", 01777);
    mounted("tmpfs", "/dev/shm");
    mkdir("/dev/pts", 0755);
    mounted("devpts", "/dev/pts");
    loopback();
    setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin", 1);
    setenv("HOME", "/tmp", 1);
    FILE *programs = fopen("/programs", "re");
    while (programs != NULL && fgets(line, sizeof line, programs) != NULL) {
        char *words[WORDS + 1] = {NULL};
        int count = 0;
        for (char *word = strtok(line, " \n"); word != NULL && count < WORDS; word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count >= 3) run(words, count);
    }
    printf("\n== the end\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 1;
}
