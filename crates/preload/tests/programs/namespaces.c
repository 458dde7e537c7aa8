/* namespaces PLUGIN [HOW]: loads a plug-in into its own namespace, in which it allocates. HOW: "name" loads it by a
   name that LD_LIBRARY_PATH leads to, "missing" loads a file that does not exist. */
#include "common.h"

int main(int argc, char **argv) {
    check(argc >= 2);
    const char *how = argc > 2 ? argv[2] : "";
    void *plugin = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!strcmp(how, "missing")) {
        say(plugin ? "found\n" : "missing\n");
        return 0;
    }
    if (!plugin) say("%s\n", dlerror());
    check(plugin);
    void (*give)(void) = (void (*)(void))dlsym(plugin, "give");
    check(give);
    give();
    /* Loading into the program's own namespace works as before. */
    void *same = dlmopen(LM_ID_BASE, NULL, RTLD_NOW);
    check(same);
    if (!strcmp(how, "fork")) {
        int child = fork();
        if (!child) {
            check(allocate(1000));
            _exit(0);
        }
        reap(child);
    }
    say("done\n");
    return 0;
}
