/* Random events around the loader: driver SEED EVENTS DEPTH PLUGIN... prints a line for each, the same for the same seed.
 *
 * Libraries are opened (locally or globally, now or lazily), closed, and opened into namespaces of their own; blocks come from
 * them and go back to them, also through another one of the same kind, in threads, and after a fork; processes fork, and
 * execute this program again. */
#define _GNU_SOURCE
#include "plugin.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANDLES 12
#define BLOCKS 64
#define NAMESPACES 2

/* The kinds of blocks: any library of a kind may free one of that kind. */
enum { OF_C, OF_CXX, KINDS };

typedef struct {
    void *handle;
    const Plugin *plugin;
    int kind;
} Library;

typedef struct {
    unsigned char *at;
    size_t size;
    int kind;
} Block;

static Library libraries[HANDLES];
static Block blocks[BLOCKS];
static int namespaces, files;
static char **file;
static uint64_t state;
static volatile sig_atomic_t signals;

static uint64_t chance(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

/* Not through stdio, whose buffer a fork would copy. */
static void line(const char *what, long number) {
    char text[128];
    const int length = snprintf(text, sizeof text, "%s %ld\n", what, number);
    if (write(1, text, length) != length) _exit(99);
}

static void wrong(const char *what) {
    line(what, -1);
    _exit(98);
}

static void fill(Block *block) {
    /* A C++ library's `resize` wants the size. */
    memset(block->at, (int)(block->size % 251), block->size);
    memcpy(block->at, &block->size, sizeof block->size);
}

static void check(const Block *block) {
    size_t size;
    memcpy(&size, block->at, sizeof size);
    if (size != block->size) wrong("a block's size");
    for (size_t at = sizeof size; at < size; at++) {
        if (block->at[at] != size % 251) wrong("a block's bytes");
    }
}

/* A library that is open in the program's own namespace, of a kind; NULL if there is none. */
static const Library *any(int kind) {
    const uint64_t first = chance(HANDLES);
    for (int step = 0; step < HANDLES; step++) {
        const Library *const library = &libraries[(first + step) % HANDLES];
        if (library->handle && library->kind == kind) return library;
    }
    return NULL;
}

static void give(Block *block) {
    check(block);
    const Library *const library = any(block->kind);
    if (library) {
        library->plugin->give(block->at);
    } else if (block->kind == OF_C) {
        free(block->at);
    } else {
        return;
    }
    block->at = NULL;
}

static void open_one(void) {
    Library *const place = &libraries[chance(HANDLES)];
    const int which = (int)chance(files), lazy = (int)chance(2), global = (int)chance(2);
    if (place->handle) return line("open: taken", which);
    void *const handle = dlopen(file[which], (lazy ? RTLD_LAZY : RTLD_NOW) | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!handle) return line("open: refused", which);
    const Plugin *const plugin = dlsym(handle, "plugin");
    if (!plugin) wrong("no plugin");
    *place = (Library){handle, plugin, which % KINDS};
    line("open", which);
}

static void close_one(void) {
    Library *const library = &libraries[chance(HANDLES)];
    if (!library->handle) return line("close: nothing", 0);
    const int kind = library->kind, closed = dlclose(library->handle);
    library->handle = NULL;
    line("close", kind + 10 * closed);
}

/* A namespace has a C library of its own, so its blocks do not leave it. */
static void open_apart(void) {
    if (namespaces == NAMESPACES) return line("apart: enough", 0);
    void *const handle = dlmopen(LM_ID_NEWLM, file[0], RTLD_NOW);
    if (!handle) return line("apart: refused", 0);
    namespaces++;
    const Plugin *const plugin = dlsym(handle, "plugin");
    if (!plugin) wrong("no plugin apart");
    Block block = {plugin->take(5000), 5000, OF_C};
    fill(&block);
    block.at = plugin->resize(block.at, 9000);
    plugin->give(block.at);
    line("apart", plugin->fails());
    if (chance(2)) line("apart: close", dlclose(handle));
}

static void take(void) {
    Block *const block = &blocks[chance(BLOCKS)];
    const int kind = (int)chance(KINDS);
    /* Of all sizes up to some hundred kilobytes, small ones mostly. */
    const size_t size = sizeof(size_t) + chance(1 + (1 << chance(19)));
    if (block->at) {
        give(block);
        return line("give", (long)block->size);
    }
    const Library *const library = any(kind);
    if (!library && kind != OF_C) return line("take: nobody", kind);
    *block = (Block){library ? library->plugin->take(size) : malloc(size), size, kind};
    if (!block->at) wrong("no memory");
    fill(block);
    line("take", (long)size);
}

static void resize(void) {
    Block *const block = &blocks[chance(BLOCKS)];
    const size_t size = sizeof(size_t) + chance(1 + (1 << chance(19)));
    const Library *const library = block->at ? any(block->kind) : NULL;
    if (!library) return line("resize: nothing", 0);
    check(block);
    block->at = library->plugin->resize(block->at, size);
    if (!block->at) wrong("no memory");
    block->size = size;
    fill(block);
    line("resize", (long)size);
}

static void fail(void) {
    const int kind = (int)chance(KINDS);
    /* mimalloc is in C, so its `new` cannot throw: it aborts. Under the command it throws. */
    const Library *const library = kind == OF_CXX && getenv("NEW_ABORTS") ? NULL : any(kind);
    line("fail", library ? library->plugin->fails() : 2);
}

static void look_up(void) {
    /* Not C++'s operators: the preloaded library has them, so they are found before a C++ library is there. */
    static const char *const names[] = {"malloc", "free", "plugin", "no_such_function", "pthread_create"};
    const int which = (int)chance(5);
    dlerror();
    void *const found = dlsym(chance(2) ? RTLD_DEFAULT : RTLD_NEXT, names[which]);
    /* Whether `plugin` is there depends on what was opened globally, the same each time. */
    line(names[which], (found != NULL) + 2 * (dlerror() != NULL));
}

static void *works(void *seed) {
    uint64_t mine = (uintptr_t)seed;
    unsigned char *own[16] = {NULL};
    uintptr_t sum = 0;
    for (int turn = 0; turn < 400; turn++) {
        mine ^= mine << 13, mine ^= mine >> 7, mine ^= mine << 17;
        unsigned char **const place = &own[mine % 16];
        const size_t size = 1 + mine / 16 % 3000;
        *place = realloc(*place, size);
        if (!*place) wrong("no memory in a thread");
        (*place)[size - 1] = (unsigned char)mine;
        sum += (*place)[size - 1];
    }
    for (int at = 0; at < 16; at++) free(own[at]);
    return (void *)sum;
}

static void threads(void) {
    pthread_t thread[4];
    const int many = 1 + (int)chance(4);
    for (int at = 0; at < many; at++) {
        if (pthread_create(&thread[at], NULL, works, (void *)(uintptr_t)(1 + chance(1 << 30)))) wrong("no thread");
    }
    uintptr_t sum = 0;
    for (int at = 0; at < many; at++) {
        void *part;
        if (pthread_join(thread[at], &part)) wrong("no join");
        sum += (uintptr_t)part;
    }
    line("threads", (long)sum);
}

static void hears(int number) { signals += number != 0; }

static void map(void) {
    const size_t size = (1 + chance(64)) << 14;
    unsigned char *const at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) wrong("no mapping");
    at[size - 1] = 1;
    const int way = (int)chance(3);
    if (way == 1) madvise(at, size, MADV_DONTNEED);
    if (way == 2) munmap(at, size / 2);
    line("map", munmap(way == 2 ? at + size / 2 : at, way == 2 ? size - size / 2 : size));
}

static void events(int many, int depth, char *self);

static int ended(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) wrong("no child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static void in_a_fork(int many, int depth, char *self) {
    const uint64_t seed = 1 + chance(1 << 30);
    if (depth == 0) return line("fork: too deep", 0);
    const pid_t child = fork();
    if (child < 0) wrong("no fork");
    if (child == 0) {
        state = seed;
        events(many / 2, depth - 1, self);
        _exit(0);
    }
    line("fork", ended(child));
}

static void again(int many, int depth, char *self) {
    char seed[24], events[24], deep[24];
    snprintf(seed, sizeof seed, "%lu", (unsigned long)(1 + chance(1 << 30)));
    snprintf(events, sizeof events, "%d", many / 2);
    snprintf(deep, sizeof deep, "%d", depth - 1);
    char *words[5 + 16] = {self, seed, events, deep};
    memcpy(words + 4, file, files * sizeof *file);
    const int without = (int)chance(2);
    if (depth == 0) return line("exec: too deep", 0);
    const pid_t child = without ? fork() : vfork();
    if (child < 0) wrong("no fork");
    if (child == 0) {
        execv(self, words);
        _exit(97);
    }
    line("exec", ended(child));
}

static void events(int many, int depth, char *self) {
    for (int event = 0; event < many; event++) {
        switch (chance(20)) {
        case 0: case 1: case 2: open_one(); break;
        case 3: case 4: close_one(); break;
        case 5: open_apart(); break;
        case 6: fail(); break;
        case 7: look_up(); break;
        case 8: threads(); break;
        case 9: raise(SIGUSR1); line("signal", signals); break;
        case 10: map(); break;
        case 11: in_a_fork(many, depth, self); break;
        case 12: again(many, depth, self); break;
        case 13: line("open: no file", dlopen("/no/such/library.so", RTLD_NOW) == NULL && dlerror() != NULL); break;
        case 14: case 15: resize(); break;
        default: take(); break;
        }
    }
}

int main(int count, char **words) {
    if (count < 5 || count > 20) return 2;
    state = strtoull(words[1], NULL, 10) * 0x9e3779b97f4a7c15u | 1;
    file = words + 4, files = count - 4;
    signal(SIGUSR1, hears);
    events(atoi(words[2]), atoi(words[3]), words[0]);
    for (int at = 0; at < BLOCKS; at++) {
        if (blocks[at].at) give(&blocks[at]);
    }
    line("end", 0);
    return (int)(chance(7));
}
