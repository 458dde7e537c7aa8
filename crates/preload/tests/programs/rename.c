/* rename: charges under two names. rename many: under three hundred. rename odd: under some that are no text. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "odd")) {
        /* An override of direction and a line; a cut letter; bytes that are no text. */
        const char *names[] = {"\xe2\x80\xae" "evil\n", "gr\xc3\xb6\xc3", "\xff\x1b[2J"};
        for (int i = 0; i < 3; i++) {
            check(!prctl(PR_SET_NAME, names[i]));
            for (int j = 0; j <= i; j++) check(allocate(1000));
        }
        _exit(0);
    }
    if (argc > 1) {
        for (int i = 0; i < 300; i++) {
            char name[16];
            snprintf(name, sizeof name, "name %d", i);
            check(!pthread_setname_np(pthread_self(), name));
            for (int j = 0; j < 3; j++) check(allocate(1000));
        }
        /* Back to a name that has its row. */
        check(!prctl(PR_SET_NAME, "name 7"));
        check(allocate(1000));
        _exit(0);
    }
    check(!pthread_setname_np(pthread_self(), "one/er"));
    void *first = allocate(1000);
    for (int i = 0; i < 99; i++) check(allocate(1000));
    check(!prctl(PR_SET_NAME, "two"));
    for (int i = 0; i < 50; i++) check(allocate(3000));
    free(first);
    char name[16];
    check(!prctl(PR_GET_NAME, name) && !strcmp(name, "two"));
    _exit(0);
}
