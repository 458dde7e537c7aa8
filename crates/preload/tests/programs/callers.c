/* callers PLUGIN...: allocates 100 blocks of 1000 itself and makes each plugin allocate some, too. */
#include "common.h"

int main(int argc, char **argv) {
    for (int i = 0; i < 100; i++) check(allocate(1000));
    for (int i = 1; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW);
        if (!plugin) say("%s\n", dlerror());
        check(plugin);
        void (*give)(void) = (void (*)(void))dlsym(plugin, "give");
        check(give);
        give();
    }
    _exit(0);
}
