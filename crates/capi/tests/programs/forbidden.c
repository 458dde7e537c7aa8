// A sandbox forbids the remote fence after start-up, and also its substitute, the visit of each CPU. Then a freed
// ledger is given up: no thread can be forced out of it, so its memory stays. Its handles are still refused. A thread
// charges it all the while.
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic uint64_t number, id;
static atomic_int done;

static void *charge_it(void *data) {
    (void)data;
    while (!atomic_load(&done)) {
        const ledgerline_group_t group = {atomic_load(&number), atomic_load(&id)};
        if (ledgerline_try_charge_units(group, 3) == LEDGERLINE_OK) {
            (void)ledgerline_uncharge(group, 3);
        }
    }
    return NULL;
}

static int forbid_the_fence(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// Returns the bytes of mapped address space.
static unsigned long mapped(void) {
    unsigned long pages = 0;
    FILE *const file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages;
}

int main(void) {
    ledgerline_group_t root;
    ledgerline_ledger_t ledger = small_ledger(&root);
    ledgerline_group_t group = child(root, "g");
    OK(ledgerline_try_charge(group, 50000));
    atomic_store(&id, group.id);
    atomic_store(&number, group.ledger);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, charge_it, NULL) == 0);
    if (!forbid_the_fence()) {
        printf("skipped: no filter can be installed here\n");
        atomic_store(&done, 1);
        return pthread_join(thread, NULL);
    }
    const unsigned long before = mapped();
    for (int turn = 0; turn < 20; turn++) {
        OK(ledgerline_ledger_free(ledger));
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_try_charge(group, 1));
        GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_ledger_free(ledger));
        ledger = small_ledger(&root);
        group = child(root, "g");
        OK(ledgerline_try_charge(group, 50000));
        atomic_store(&id, group.id);
        atomic_store(&number, group.ledger);
    }
    // Without restartable sequences nothing is lent, and no memory must stay.
    const char *const mode = getenv("LEDGERLINE_PERCPU");
    CHECK((mode != NULL && strcmp(mode, "fallback") == 0) || mapped() > before);
    atomic_store(&done, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(ledgerline_ledger_free(ledger));
    return 0;
}
