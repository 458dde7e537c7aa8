// Processes share a ledger: the units of one that was killed go back when another process settles it.
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int file;

// Starts a process that has a group of its own, holds units there and below it, and waits for its end.
static pid_t holder(const char *name, uint64_t units) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        alarm(120);
        ledgerline_ledger_t ledger;
        ledgerline_group_t own;
        OK(ledgerline_ledger_open_in(file, &ledger));
        OK(ledgerline_ledger_attach(ledger, name, NUL, &own));
        OK(ledgerline_try_charge(own, units - 1));
        OK(ledgerline_try_charge(child(own, "below"), 1));
        CHECK(write(ready[1], "r", 1) == 1);
        for (;;) {
            pause();
        }
    }
    char byte;
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return process;
}

static void end(pid_t process) {
    CHECK(kill(process, SIGKILL) == 0);
    CHECK(waitpid(process, NULL, 0) == process);
}

// Leaves a zombie, like a parent that has not waited for its child yet.
static void end_unasked(pid_t process) {
    siginfo_t how;
    CHECK(kill(process, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)process, &how, WEXITED | WNOWAIT) == 0);
}

struct seen {
    uint32_t live, exited;
};

static int32_t count(void *data, const ledgerline_group_snapshot_t *group) {
    struct seen *seen = data;
    seen->live += group->state == LEDGERLINE_STATE_LIVE;
    seen->exited += group->state == LEDGERLINE_STATE_EXITED;
    return 0;
}

static struct seen states(ledgerline_ledger_t ledger) {
    struct seen seen = {0, 0};
    OK(ledgerline_ledger_snapshot(ledger, count, &seen));
    return seen;
}

int main(void) {
    file = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(file >= 0);
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 16;
    ledgerline_ledger_t ledger;
    ledgerline_group_t root, me, victim, other;
    OK(ledgerline_ledger_create_in(&options, file, &ledger));
    OK(ledgerline_ledger_root(ledger, &root));
    const ledgerline_group_t ended = child(root, "ended");
    OK(ledgerline_group_set_max(root, 100));
    OK(ledgerline_ledger_attach(ledger, "me", NUL, &me));
    const pid_t killed = holder("victim", 60), lives = holder("lives", 30);
    OK(ledgerline_ledger_find(ledger, "/victim", NUL, &victim));
    OK(ledgerline_ledger_find(ledger, "/lives", NUL, &other));

    // Units of living processes are not taken.
    uint64_t units = 7, processes = 7;
    OK(ledgerline_settle_dead(ledger, &units));
    OK(ledgerline_fold_ended(ended, &processes));
    CHECK(units == 0 && processes == 0 && usage(root) == 90);

    end_unasked(killed);
    GIVES(LEDGERLINE_ERROR_LIMIT, ledgerline_try_charge(me, 50));
    OK(ledgerline_group_exists(victim));
    OK(ledgerline_settle_dead(ledger, &units));
    CHECK(units >= 60 && usage(root) == 30);
    OK(ledgerline_try_charge(me, 50));
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_group_exists(victim));
    OK(ledgerline_group_exists(other));
    OK(ledgerline_group_exists(me));
    struct seen seen = states(ledger);
    CHECK(seen.exited == 2 && seen.live == 5);
    OK(ledgerline_settle_dead(ledger, &units));
    CHECK(units == 0);
    CHECK(waitpid(killed, NULL, 0) == killed);

    // Their groups make room for those of others.
    GIVES(LEDGERLINE_ERROR_GONE, ledgerline_fold_ended(victim, &processes));
    OK(ledgerline_fold_ended(ended, &processes));
    CHECK(processes == 1);
    seen = states(ledger);
    CHECK(seen.exited == 0 && seen.live == 5);
    GIVES(LEDGERLINE_ERROR_NOT_FOUND, ledgerline_ledger_find(ledger, "/victim", NUL, &victim));
    OK(ledgerline_uncharge(me, 50));

    // Any number of processes in succession. The settling process need not have attached.
    end(lives);
    for (int turn = 0; turn < 20; turn++) {
        end(holder("next", 70));
        const pid_t settles = fork();
        CHECK(settles >= 0);
        if (settles == 0) {
            ledgerline_ledger_t opened;
            OK(ledgerline_ledger_open_in(file, &opened));
            OK(ledgerline_settle_dead(opened, turn % 2 ? &units : NULL));
            CHECK(turn % 2 == 0 || units >= 70);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(settles, &status, 0) == settles && status == 0);
        CHECK(usage(root) == 0);
        OK(ledgerline_fold_ended(ended, NULL));
    }
    OK(ledgerline_ledger_free(ledger));

    // A ledger in memory has no other processes.
    ledger = small_ledger(&root);
    OK(ledgerline_try_charge(root, 5));
    OK(ledgerline_settle_dead(ledger, &units));
    CHECK(units == 0 && usage(root) == 5);
    OK(ledgerline_ledger_free(ledger));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_settle_dead(ledger, &units));
    GIVES(LEDGERLINE_ERROR_HANDLE, ledgerline_fold_ended(root, NULL));
    return 0;
}
