/* A library whose thread-locals lie in the static block, as those of a library that is linked at start do. */
static __thread char here[SIZE] __attribute__((tls_model("initial-exec")));

char *filled(void) {
    here[0] = 1;
    return here;
}
