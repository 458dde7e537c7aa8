// Blocks by C++'s operators, which a library finds only where libstdc++ was loaded with it.
#include <cstring>
#include <new>
extern "C" {
#include "plugin.h"
}

namespace {
void *take(size_t size) { return new char[size]; }
void give(void *block) { delete[] static_cast<char *>(block); }

// The caller has put the old size into the first word.
void *resize(void *block, size_t size) {
    size_t before;
    std::memcpy(&before, block, sizeof before);
    char *const now = new char[size];
    std::memcpy(now, block, before < size ? before : size);
    give(block);
    return now;
}

int fails() {
    volatile size_t huge = static_cast<size_t>(-1) / 2;
    try {
        give(take(huge));
    } catch (const std::bad_alloc &) {
        return ::operator new(huge, std::nothrow) == nullptr;
    }
    return 0;
}
} // namespace

extern "C" const Plugin plugin = {take, resize, give, fails};
