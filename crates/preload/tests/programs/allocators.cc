// Blocks by every function of C and C++, for a program with another allocator than the C library's.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cassert>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

struct alignas(128) Wide {
    char bytes[1000];
};

static std::vector<void (*)(void *)> ends;
static std::vector<void *> blocks;

template <typename Make> static void keep(Make make, void (*end)(void *)) {
    blocks.push_back(make());
    ends.push_back(end);
    assert(blocks.back());
    memset(blocks.back(), 1, 1000);
}

// Some 50 MB in total.
static void fill(int rounds) {
    using std::align_val_t;
    using std::nothrow;
    for (int i = 0; i < rounds; i++) {
        keep([] { return ::operator new(1000); }, [](void *p) { ::operator delete(p); });
        keep([] { return ::operator new[](1000); }, [](void *p) { ::operator delete[](p); });
        keep([] { return ::operator new(1000, nothrow); }, [](void *p) { ::operator delete(p, nothrow); });
        keep([] { return ::operator new[](1000, nothrow); }, [](void *p) { ::operator delete[](p, nothrow); });
        keep([] { return ::operator new(1000, align_val_t(128)); },
             [](void *p) { ::operator delete(p, align_val_t(128)); });
        keep([] { return ::operator new[](1000, align_val_t(128)); },
             [](void *p) { ::operator delete[](p, align_val_t(128)); });
        keep([] { return ::operator new(1000, align_val_t(64), nothrow); },
             [](void *p) { ::operator delete(p, align_val_t(64), nothrow); });
        keep([] { return ::operator new[](1000, align_val_t(64), nothrow); },
             [](void *p) { ::operator delete[](p, align_val_t(64), nothrow); });
        keep([] { return ::operator new(1000); }, [](void *p) { ::operator delete(p, std::size_t(1000)); });
        keep([] { return ::operator new[](1000); }, [](void *p) { ::operator delete[](p, std::size_t(1000)); });
        keep([] { return ::operator new(1000, align_val_t(128)); },
             [](void *p) { ::operator delete(p, 1000, align_val_t(128)); });
        keep([] { return static_cast<void *>(new Wide); }, [](void *p) { delete static_cast<Wide *>(p); });
        keep([] { return malloc(1000); }, free);
        keep([] { return calloc(10, 100); }, free);
        keep([] { return realloc(malloc(10), 1000); }, free);
        keep([] { return aligned_alloc(64, 1024); }, free);
        // Blocks smaller than a window of shadow, freed by sizes that the allocator relies on.
        ::operator delete(::operator new(1), std::size_t(1));
        ::operator delete[](::operator new[](8), std::size_t(8));
    }
}

// From here on any call of prctl ends the process.
static void forbid_prctl() {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int count, char **arguments) {
    assert(count > 1);
    std::string what = arguments[1];
    if (what == "hold") {
        fill(3000);
    } else if (what == "return") {
        fill(3000);
        for (size_t i = 0; i < blocks.size(); i++) ends[i](blocks[i]);
        std::vector<void *>().swap(blocks);
        ends.clear();
        ends.shrink_to_fit();
    } else if (what == "limit") {
        // Allocates until a block is refused; the exception is caught, and all are freed.
        bool thrown = false;
        try {
            for (;;) {
                void *block = ::operator new(100000);
                blocks.push_back(block);
            }
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        assert(thrown && blocks.size() > 10);
        assert(!::operator new(1 << 20, std::nothrow));
        // A handler that makes room is called, and then the block is granted.
        std::set_new_handler([] {
            assert(!blocks.empty());
            ::operator delete(blocks.back());
            blocks.pop_back();
        });
        size_t before = blocks.size();
        void *block = ::operator new(100000);
        assert(block && blocks.size() < before);
        printf("%zu\n", before);
    } else if (what == "nothing") {
        // `realloc` to zero bytes keeps its meaning.
        void *left = realloc(malloc(100), 0);
        printf("%s\n", left ? "a block" : "none");
        free(left);
    } else if (what == "pairs") {
        free(malloc(100));
        forbid_prctl();
        for (int i = 0; i < 10000; i++) free(malloc(100 + i % 7));
    } else {
        return 2;
    }
    return 0;
}
