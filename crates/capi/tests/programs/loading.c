// The library is loaded by dlopen, used in a thread that already existed, closed, and loaded again. Its handles are
// still valid, since it stays loaded.
#include <dlfcn.h>
#include <ledgerline.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static ledgerline_ledger_t ledger;
static ledgerline_group_t root;

// Takes a function out of the library. C has no other way to convert such a pointer.
static void take(void *library, const char *name, void *function) {
    void *const found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

static void *use(void *name) {
    void *const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    ledgerline_code_t (*make)(const ledgerline_options_t *, ledgerline_ledger_t *);
    ledgerline_code_t (*top)(ledgerline_ledger_t, ledgerline_group_t *);
    ledgerline_code_t (*charge)(ledgerline_group_t, uint64_t);
    ledgerline_code_t (*last)(char *, size_t, size_t *);
    take(library, "ledgerline_ledger_new", &make);
    take(library, "ledgerline_ledger_root", &top);
    take(library, "ledgerline_try_charge_units", &charge);
    take(library, "ledgerline_last_error", &last);
    if (ledger.number == 0) {
        CHECK(make(NULL, &ledger) == LEDGERLINE_OK && top(ledger, &root) == LEDGERLINE_OK);
    }
    CHECK(charge(root, 5) == LEDGERLINE_OK);
    CHECK(charge((ledgerline_group_t){1, 1}, 5) == LEDGERLINE_ERROR_HANDLE);
    char why[100];
    CHECK(last(why, sizeof why, NULL) == LEDGERLINE_OK && strlen(why) > 10);
    CHECK(dlclose(library) == 0);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int time = 0; time < 3; time++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use, arguments[1]) == 0 && pthread_join(thread, NULL) == 0);
        use(arguments[1]);
        // Its fork handlers are still installed.
        const pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            use(arguments[1]);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(process, &status, 0) == process && status == 0);
    }
    return 0;
}
