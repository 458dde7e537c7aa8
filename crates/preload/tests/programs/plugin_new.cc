// Blocks by way of C++'s operators, which live in another library.
#include <memory>
#include <new>

struct alignas(64) Wide {
    char bytes[1000];
};

// (Not static: g++ leaves out an allocation that nobody can see.)
void *kept[400];

extern "C" void give() {
    for (int i = 0; i < 100; i++) {
        kept[4 * i] = ::operator new(2000);
        kept[4 * i + 1] = new char[2000];
        kept[4 * i + 2] = ::operator new(2000, std::nothrow);
        kept[4 * i + 3] = new Wide;
    }
    // What is refused is thrown, through us.
    bool thrown = false;
    volatile std::size_t huge = static_cast<std::size_t>(-1) / 2;
    try {
        kept[0] = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || ::operator new(huge, std::nothrow)) __builtin_trap();
}
