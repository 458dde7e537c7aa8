// C++ code in a plug-in: every operator, the C++ library's own allocations, a handler for refusals, and objects that
// another plug-in destroys. OWN: it defines its own operators. They mark each block, and end the program at a block
// without a mark.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#ifdef OWN
static long made, unmade;

static void *marked(std::size_t size, std::size_t align) {
    if (align < 32) align = 32;
    void *whole = std::aligned_alloc(align, (size + 2 * align - 1) / align * align);
    if (!whole) throw std::bad_alloc();
    char *block = static_cast<char *>(whole) + align;
    reinterpret_cast<std::size_t *>(block)[-1] = 0x5eed;
    reinterpret_cast<std::size_t *>(block)[-2] = align;
    made++;
    return block;
}

static void unmarked(void *block) {
    if (!block) return;
    std::size_t *words = static_cast<std::size_t *>(block);
    if (words[-1] != 0x5eed) {
        static const char text[] = "a foreign block\n";
        if (write(1, text, sizeof text - 1)) _exit(97);
    }
    words[-1] = 0;
    std::free(static_cast<char *>(block) - words[-2]);
    unmade++;
}

void *operator new(std::size_t size) { return marked(size, 16); }
void *operator new[](std::size_t size) { return marked(size, 16); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return marked(size, 16); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return marked(size, 16); }
void *operator new(std::size_t size, std::align_val_t align) { return marked(size, std::size_t(align)); }
void *operator new[](std::size_t size, std::align_val_t align) { return marked(size, std::size_t(align)); }
void operator delete(void *block) noexcept { unmarked(block); }
void operator delete[](void *block) noexcept { unmarked(block); }
void operator delete(void *block, std::size_t) noexcept { unmarked(block); }
void operator delete[](void *block, std::size_t) noexcept { unmarked(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { unmarked(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { unmarked(block); }
void operator delete(void *block, std::align_val_t) noexcept { unmarked(block); }
void operator delete[](void *block, std::align_val_t) noexcept { unmarked(block); }
void operator delete(void *block, std::size_t, std::align_val_t) noexcept { unmarked(block); }
void operator delete[](void *block, std::size_t, std::align_val_t) noexcept { unmarked(block); }
#endif

// Objects that any plug-in can destroy. In an unnamed namespace the compiler would know all classes, and call no
// virtual destructor.
struct Base {
    virtual ~Base() {}
};

namespace {

struct alignas(128) Wide {
    char bytes[1000];
};

// Its destructor frees it as its last step: by a jump, from any caller.
struct Thing : Base {
    std::vector<int> numbers;
    explicit Thing(int count) : numbers(count, 7) {}
    ~Thing() override {}
};

// Not static: g++ would drop a variable that is not visible.
void *volatile seen;

template <typename T> T *keep(T *block) {
    seen = block;
    return static_cast<T *>(seen);
}

} // namespace

extern "C" void *make(void) { return keep<Base>(new Thing(5000)); }

// Destroys an object of any plug-in.
extern "C" void unmake(void *thing) { delete static_cast<Base *>(thing); }

extern "C" void work(void) {
    for (int i = 1; i < 100; i++) {
        delete keep(new long(i));
        delete[] keep(new char[i * 100]);
        ::operator delete(keep(::operator new(i, std::nothrow)), std::nothrow);
        delete keep(new Wide);
        delete[] keep(new Wide[2]);
        // As another compiler may emit it, without the size.
        ::operator delete(keep(::operator new(i * 10)));
        std::string text(i * 50, 'x');
        text += std::to_string(i);
        seen = text.data();
        try {
            throw std::runtime_error(text);
        } catch (const std::exception &error) {
            seen = const_cast<char *>(error.what());
        }
    }
    delete keep(static_cast<long *>(nullptr));
#ifdef OWN
    char line[100];
    int length = std::snprintf(line, sizeof line, "made %ld, unmade %ld\n", made, unmade);
    if (write(1, line, length) != length) _exit(96);
#endif
}

// A request that no allocator can serve throws. An allocator in C ends the program.
extern "C" void exceed(void) {
    volatile std::size_t huge = static_cast<std::size_t>(-1) / 2;
    try {
        seen = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        seen = nullptr;
    }
    const char *line = seen ? "granted\n" : "refused\n";
    if (write(1, line, 8) != 8) _exit(95);
}
