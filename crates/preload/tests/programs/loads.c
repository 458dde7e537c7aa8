/* loads HOW PLUGIN...: loads plug-ins, makes each work, and destroys each one's objects in the last. The letters of
   HOW: l LOCAL, g GLOBAL, d DEEPBIND; n NOW, z LAZY; c closes them and loads them once more; t does so in threads; h
   asks for more than there is. */
#include "common.h"

enum { MOST = 8 };
static int mode;
static char **paths;
static int count;

static void *function(void *plugin, const char *name) {
    void *found = dlsym(plugin, name);
    if (!found) say("%s\n", dlerror());
    check(found);
    return found;
}

static int is_huge;

static void *all(void *is_closed) {
    void *plugins[MOST], *things[MOST];
    for (int i = 0; i < count; i++) {
        plugins[i] = dlopen(paths[i], mode);
        if (!plugins[i]) say("%s\n", dlerror());
        check(plugins[i]);
    }
    for (int i = 0; i < count; i++) {
        ((void (*)(void))function(plugins[i], "work"))();
        if (is_huge) ((void (*)(void))function(plugins[i], "exceed"))();
        things[i] = ((void *(*)(void))function(plugins[i], "make"))();
    }
    void (*unmake)(void *) = (void (*)(void *))function(plugins[count - 1], "unmake");
    for (int i = 0; i < count; i++) unmake(things[i]);
    for (int i = 0; is_closed && i < count; i++) check(!dlclose(plugins[i]));
    return NULL;
}

int main(int argc, char **argv) {
    check(argc > 2 && argc - 2 <= MOST);
    const char *how = argv[1];
    mode |= strchr(how, 'g') ? RTLD_GLOBAL : RTLD_LOCAL;
    mode |= strchr(how, 'z') ? RTLD_LAZY : RTLD_NOW;
    if (strchr(how, 'd')) mode |= RTLD_DEEPBIND;
    is_huge = strchr(how, 'h') != NULL;
    paths = argv + 2;
    count = argc - 2;
    void *closes = strchr(how, 'c') ? argv : NULL;
    for (int round = 0; round < (closes ? 3 : 1); round++) {
        if (strchr(how, 't')) {
            pthread_t thread;
            check(!pthread_create(&thread, NULL, all, closes));
            check(!pthread_join(thread, NULL));
        } else {
            all(closes);
        }
    }
    return 0;
}
