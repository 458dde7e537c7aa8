/* hooks PLUGIN: malloc wherever a program may call it: constructors and destructors, before dlsym was
   used, handlers of fork, thread-specific data at thread exit, the smallest of stacks, dlopen. */
#include "common.h"

static void *early, *around, *mains;
static pthread_key_t key;

__attribute__((constructor(101))) static void first(void) {
    early = malloc(1000);
    void *(*found)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
    check(found);
    free(found(100));
    free(dlsym(RTLD_NEXT, "no such function") ? NULL : calloc(3, 3));
    (void)!dlerror();
}

__attribute__((destructor(101))) static void last(void) {
    free(early);
    free(malloc(10));
    say("destructor\n");
}

static void at_end(void) { free(realloc(malloc(10), 1000)); }

static void before(void) { check((around = malloc(3000))); }
static void in_parent(void) { free(around); }
static void in_child(void) {
    free(around);
    check((around = calloc(7, 11)));
}

static void destructor(void *block) {
    free(block);
    free(malloc(50));
    void *next = pthread_getspecific(key);
    check(!next);
    static __thread int rounds;
    if (rounds++ < 2) check(!pthread_setspecific(key, malloc(100)));
}

static void *worker(void *unused) {
    check(!prctl(PR_SET_NAME, "worker"));
    check(!pthread_setspecific(key, malloc(1234)));
    for (int i = 0; i < 500; i++) free(malloc((size_t)i * 7));
    return unused;
}

static void *small(void *unused) {
    check(!prctl(PR_SET_NAME, "small"));
    void *block = malloc(100);
    block = realloc(block, 200000);
    check(block);
    free(block);
    check((mains = realloc(mains, 300000)));
    free(mains);
    return unused;
}

int main(int argc, char **argv) {
    check(early);
    check(!atexit(at_end));
    check(!pthread_key_create(&key, destructor));
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        check(!pthread_create(&thread, NULL, worker, NULL));
        check(!pthread_join(thread, NULL));
    }
    pthread_attr_t attributes;
    pthread_t thread;
    check((mains = malloc(1000)));
    check(!pthread_attr_init(&attributes));
    check(!pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    check(!pthread_create(&thread, &attributes, small, NULL));
    check(!pthread_join(thread, NULL));
    for (int i = 0; i < 20; i++) {
        void *plugin = dlopen(argv[1], i % 2 ? RTLD_NOW : RTLD_LAZY);
        check(plugin);
        ((void (*)(void))dlsym(plugin, "give"))();
        ((void (*)(void))dlsym(plugin, "take"))();
        check(!dlclose(plugin));
    }
    check(!pthread_atfork(before, in_parent, in_child));
    for (int i = 0; i < 20; i++) {
        int child = fork();
        check(child >= 0);
        if (!child) {
            check(malloc(1000));
            _exit(0);
        }
        reap(child);
    }
    say("main\n");
    return 0;
}
