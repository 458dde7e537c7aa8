// C++'s operators in a library that was loaded by itself: each kind of delete comes before any new, sized ones first.
#include <cstdlib>
#include <new>

// Not static: g++ would drop a variable that is not visible.
void *volatile kept;

// The standard one is in the C++ library, which may be missing.
static const std::nothrow_t quietly{};

static void *block() { return std::malloc(2000); }

extern "C" void give() {
#if defined(__cpp_sized_deallocation)
    ::operator delete(block(), std::size_t{2000});
    ::operator delete[](block(), std::size_t{2000});
#endif
    ::operator delete(block());
    ::operator delete[](block());
    ::operator delete(block(), quietly);
    for (int i = 0; i < 100; i++) {
        kept = ::operator new(2000);
        ::operator delete(kept);
        kept = new char[2000];
        delete[] static_cast<char *>(kept);
        kept = ::operator new(2000, quietly);
        ::operator delete(kept, quietly);
    }
    ::operator delete(nullptr);
}
