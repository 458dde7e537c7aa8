// Blocks by C++'s operators, which are in another library.
#include <memory>
#include <new>

struct alignas(64) Wide {
    char bytes[1000];
};

// Not static: g++ would drop an allocation that is not visible.
void *kept[400];

extern "C" void give() {
    for (int i = 0; i < 100; i++) {
        kept[4 * i] = ::operator new(2000);
        kept[4 * i + 1] = new char[2000];
        kept[4 * i + 2] = ::operator new(2000, std::nothrow);
        kept[4 * i + 3] = new Wide;
    }
    // A refusal throws through the library.
    bool thrown = false;
    volatile std::size_t huge = static_cast<std::size_t>(-1) / 2;
    try {
        kept[0] = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || ::operator new(huge, std::nothrow)) __builtin_trap();
}
