// Loads the library into a program in which other libraries have taken most of the static block for thread-locals.
// Each thread has its own texts of errors, uncut, and they are freed with the thread.
#include <dlfcn.h>
#include <ledgerline.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, dlerror());                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static ledgerline_code_t (*create)(ledgerline_group_t, const char *, size_t, ledgerline_group_t *);
static ledgerline_code_t (*last)(char *, size_t, size_t *);

// Counts the mappings of this process.
static int mappings(void) {
    FILE *const file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    int lines = 0;
    for (int byte; (byte = fgetc(file)) != EOF;) lines += byte == '\n';
    fclose(file);
    return lines;
}

// Finds the size of the library's thread-locals. A toolchain that puts them into the static block takes as much of it
// for each thread.
static int size_of_locals(struct dl_phdr_info *object, size_t size, void *found) {
    (void)size;
    if (!strstr(object->dlpi_name, "libledgerline")) return 0;
    for (int at = 0; at < object->dlpi_phnum; at++) {
        if (object->dlpi_phdr[at].p_type == PT_TLS) *(size_t *)found = object->dlpi_phdr[at].p_memsz;
    }
    return 1;
}

// Makes an error whose text is longer than a line: it names a name that is too long.
static void *fails(void *unused) {
    (void)unused;
    char why[4096], name[2000];
    CHECK(last(why, sizeof why, NULL) == LEDGERLINE_OK && why[0] == 0);
    memset(name, 'x', sizeof name);
    ledgerline_group_t group;
    CHECK(create((ledgerline_group_t){1, 1}, name, sizeof name, &group) != LEDGERLINE_OK);
    CHECK(last(why, sizeof why, NULL) == LEDGERLINE_OK && strlen(why) > 10);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count > 2);
    // Loads the fillers, of decreasing sizes, until none fits.
    int fitted = 0;
    for (int at = 2; at < count; at++) fitted += dlopen(arguments[at], RTLD_NOW) != NULL;
    CHECK(fitted > 0);
    void *const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    size_t locals = 0;
    CHECK(dl_iterate_phdr(size_of_locals, &locals) == 1 && locals > 0 && locals <= 512);
    void *found = dlsym(library, "ledgerline_group_create");
    CHECK(found != NULL);
    memcpy(&create, &found, sizeof found);
    found = dlsym(library, "ledgerline_last_error");
    CHECK(found != NULL);
    memcpy(&last, &found, sizeof found);

    fails(NULL);
    int before = 0;
    for (int time = 0; time < 200; time++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, fails, NULL) == 0 && pthread_join(thread, NULL) == 0);
        if (time == 20) before = mappings();
    }
    // Without the unmapping, each ended thread would leave a page: 180 in all.
    CHECK(mappings() < before + 50);
    printf("%d fillers\n", fitted);
    return 0;
}
