/* seccomp HOW WHEN: puts itself under a filter that ends it for every system call but those that it makes by itself.
   HOW it does so:
     prctl, seccomp, raw (prctl by syscall), all (seccomp, for all threads), asm (prctl by an instruction)
   WHEN, and what it does then:
     self     allocates
     thread   starts a thread that allocates
     waiting  has a thread from before that allocates now
     fork     forks a child that allocates
     deep     forks a child that forks one that allocates
     bare     makes a child by a bare clone
     child    forks a child that puts itself under the filter before it allocates
     from     starts a thread that forks a child that allocates
     crowd    starts eight threads that allocate and return as fast as they can, whatever is refused, a thread included
     vfork    makes a child with its own memory that puts itself under the filter; then a thread allocates
     failing  fails to install a filter in several ways; then a thread allocates
     limit    allocates until there is no more
     exec     executes itself, to allocate
     fence    has a filter that ends it for membarrier alone, and executes itself, to allocate
     fences   has two of those
     vfence   makes a child with its own memory that has two, and executes this program, to allocate
   or `seccomp strict`, `seccomp strict-thread`, `seccomp strict-limit` (where 16 MiB are too much) and `seccomp work`, which allocates without any filter.
   Whoever allocates has 300 blocks of 1000 bytes in the end. */
#include "common.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/mman.h>

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static const char *how;

static void install_this(struct sock_fprog program) {
    check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (!strcmp(how, "prctl")) {
        check(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    } else if (!strcmp(how, "raw")) {
        check(!syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    } else if (!strcmp(how, "asm")) {
        long result = SYS_prctl;
        __asm__ volatile("syscall"
                         : "+a"(result)
                         : "D"(PR_SET_SECCOMP), "S"(SECCOMP_MODE_FILTER), "d"(&program)
                         : "rcx", "r11", "memory");
        check(!result);
    } else {
        int flags = strcmp(how, "all") ? 0 : SECCOMP_FILTER_FLAG_TSYNC;
        check(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
    }
}

/* Allows the calls of this program, glibc's malloc, threads and fork. */
static void install(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),
        ALLOW(SYS_write),
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_mmap),
        ALLOW(SYS_munmap),
        ALLOW(SYS_mremap),
        ALLOW(SYS_mprotect),
        ALLOW(SYS_brk),
        ALLOW(SYS_futex),
        ALLOW(SYS_clone),
        ALLOW(SYS_wait4),
        ALLOW(SYS_rt_sigreturn),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_rt_sigaction),
        ALLOW(SYS_sched_getaffinity),
        ALLOW(SYS_set_robust_list),
        ALLOW(SYS_rseq),
        /* glibc falls back to clone. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 435 /* clone3 */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        /* The calls that return a thread's stack and a malloc arena, and no others of madvise. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* The loader's calls, which this program makes only if it executes itself. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ACCMODE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_execve),
        ALLOW(SYS_close),
        ALLOW(SYS_newfstatat),
        ALLOW(SYS_fstat),
        ALLOW(SYS_pread64),
        ALLOW(SYS_access),
        ALLOW(SYS_arch_prctl),
        ALLOW(SYS_set_tid_address),
        ALLOW(SYS_prlimit64),
        ALLOW(SYS_getrandom),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    install_this((struct sock_fprog){sizeof filter / sizeof *filter, filter});
}

/* This program needs no membarrier; the library makes one in each program that it accounts. */
static void forbid_fences(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install_this((struct sock_fprog){sizeof filter / sizeof *filter, filter});
}

static int forbid_fences_and_execute(void *unused) {
    (void)unused;
    forbid_fences();
    forbid_fences();
    execl("/proc/self/exe", "seccomp", "work", NULL);
    return 1;
}

static void *kept[300];

static void *work(void *unused) {
    for (int i = 0; i < 300; i++) {
        free(allocate((size_t)i * 100));
        check((kept[i] = i % 3 ? allocate(1000) : realloc(calloc(1, 10), 1000)));
        void *block = NULL;
        check(!posix_memalign(&block, 64, 2000));
        free(block);
    }
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mapped != MAP_FAILED && !munmap(mapped, 1 << 20));
    return unused;
}

static sem_t installed;

static void *waiting(void *unused) {
    check(!sem_wait(&installed));
    return work(unused);
}

static void in_child(int forked, void (*act)(void)) {
    check(forked >= 0);
    if (!forked) {
        act();
        _exit(0);
    }
    reap(forked);
    say("%d\n", forked);
}

static void *named(void *unused) {
    check(!prctl(PR_SET_NAME, "named"));
    return work(unused);
}

static void *hurry(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    void *blocks[50] = {NULL};
    for (int i = 0; i < 4000; i++) {
        int at = (int)(next_random(&state) % 50);
        free(blocks[at]);
        /* Some requests exceed any limit. */
        size_t most = i % 64 == 0 ? 16 << 20 : i % 2 ? 2000 : 100000;
        blocks[at] = allocate(most / 2 + next_random(&state) % most / 2);
    }
    for (int at = 0; at < 50; at++) free(blocks[at]);
    return NULL;
}

/* A thread needs memory, which is refused while the others hold all of it. It begins when they hold less. Waiting
   for that makes no system call. */
static void begin(pthread_t *thread, uintptr_t seed) {
    int refused;
    while ((refused = pthread_create(thread, NULL, hurry, (void *)seed)))
        check(refused == EAGAIN && errno == ENOMEM);
}

static void crowd(void) {
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++) begin(&threads[i], i + 1);
    for (int i = 0; i < 8; i++) check(!pthread_join(threads[i], NULL));
}

static int install_and_end(void *unused) {
    install();
    (void)unused;
    return 0;
}

static void failing(void) {
    struct sock_fprog none = {0, NULL};
    check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT);
    check(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1 && errno == EINVAL);
    unsigned action = SECCOMP_RET_ALLOW;
    check(!syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none) == -1 && errno == EINVAL);
    check(prctl(PR_SET_SECCOMP, 77, 0) == -1 && errno == EINVAL);
    check(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
    check(syscall(SYS_prctl, PR_GET_SECCOMP) == 0);
}

static void just_work(void) { work(NULL); }
static void *fork_and_work(void *unused) {
    in_child(fork(), just_work);
    return unused;
}
static void one_below(void) { in_child(fork(), just_work); }
static void install_and_work(void) {
    install();
    work(NULL);
}

/* Strict mode allows read, write, exit and rt_sigreturn. */
static void *strict(void *unused) {
    check(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    for (int i = 0; i < 300; i++) {
        free(allocate((size_t)i * 7));
        check((kept[i] = allocate(1000)));
    }
    /* This is refused before malloc would ask the kernel for it, which it must not. */
    if (!strcmp(how, "strict-limit")) check(!realloc(kept[0], 16 << 20) && errno == ENOMEM);
    say("%s\n", "end");
    syscall(SYS_exit, 0);
    return unused;
}

int main(int argc, char **argv) {
    check(argc > 1);
    how = argv[1];
    const char *when = argc > 2 ? argv[2] : how;
    pthread_t thread;
    static _Alignas(16) char stack[64 << 10];
    char *top = stack + sizeof stack;
    /* The heap need not grow any more. */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    void *first[60];
    for (int i = 0; i < 60; i++) check((first[i] = allocate(100000)));
    for (int i = 0; i < 60; i++) free(first[i]);
    if (!strcmp(when, "strict") || !strcmp(when, "strict-limit")) {
        strict(NULL);
    } else if (!strcmp(when, "strict-thread")) {
        check(!pthread_create(&thread, NULL, strict, NULL));
        check(!pthread_join(thread, NULL));
    } else if (!strcmp(when, "work")) {
        work(NULL);
    } else if (!strcmp(when, "child")) {
        in_child(fork(), install_and_work);
    } else if (!strcmp(when, "fence") || !strcmp(when, "fences")) {
        forbid_fences();
        if (!strcmp(when, "fences")) forbid_fences();
        execl("/proc/self/exe", "seccomp", "work", NULL);
    } else if (!strcmp(when, "vfence")) {
        reap(clone(forbid_fences_and_execute, top, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    } else if (!strcmp(when, "vfork") || !strcmp(when, "failing")) {
        if (!strcmp(when, "failing")) {
            failing();
        } else {
            reap(clone(install_and_end, top, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
        }
        check(!pthread_create(&thread, NULL, named, NULL));
        check(!pthread_join(thread, NULL));
    } else if (!strcmp(when, "waiting")) {
        check(!sem_init(&installed, 0, 0));
        check(!pthread_create(&thread, NULL, waiting, NULL));
        install();
        check(!sem_post(&installed));
        check(!pthread_join(thread, NULL));
    } else {
        install();
        if (!strcmp(when, "self")) work(NULL);
        if (!strcmp(when, "thread")) {
            check(!pthread_create(&thread, NULL, work, NULL));
            check(!pthread_join(thread, NULL));
        }
        if (!strcmp(when, "from")) {
            check(!pthread_create(&thread, NULL, fork_and_work, NULL));
            check(!pthread_join(thread, NULL));
        }
        if (!strcmp(when, "crowd")) crowd();
        if (!strcmp(when, "fork")) in_child(fork(), just_work);
        if (!strcmp(when, "deep")) in_child(fork(), one_below);
        if (!strcmp(when, "bare")) in_child((int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), just_work);
        if (!strcmp(when, "limit")) {
            int count = 0;
            while (allocate(100000)) count++;
            check(errno == ENOMEM && !allocate(1 << 20));
            say("%d\n", count);
        }
        if (!strcmp(when, "exec")) execl("/proc/self/exe", "seccomp", "work", NULL);
    }
    _exit(0);
}
