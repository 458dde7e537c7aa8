/* reload PLUGIN...: loads each, makes it allocate, and unloads it before the next. Prints the address of each
   function. */
#include "common.h"

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW);
        check(plugin);
        void (*give)(void) = (void (*)(void))dlsym(plugin, "give");
        check(give);
        give();
        say("%lu\n", (unsigned long)give);
        check(!dlclose(plugin));
    }
    _exit(0);
}
