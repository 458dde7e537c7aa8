/* If the program lies at a fixed address, its code has malloc's address as a constant: that of a stub of the
   linker's. */
#include "common.h"

__attribute__((noinline)) static void *(*address(void))(size_t) { return malloc; }

int main(void) {
    check(address()(1000));
    _exit(0);
}
