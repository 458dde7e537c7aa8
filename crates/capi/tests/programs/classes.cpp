// The C++ header: values that clean up, move semantics, exceptions, memory resources, allocators.
#include <ledgerline.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#define CHECK(...)                                                                                                     \
    do {                                                                                                               \
        if (!(__VA_ARGS__)) {                                                                                          \
            std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #__VA_ARGS__, ledgerline::last_error().c_str()); \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

template <class Error, class Work>
static ledgerline::code thrown(Work work) {
    try {
        work();
    } catch (const Error &error) {
        CHECK(std::string(error.what()).size() > 5);
        return error.code();
    }
    return LEDGERLINE_OK;
}

using ledgerline::error;
using ledgerline::refused;

static_assert(std::is_nothrow_move_constructible_v<ledgerline::charge> && !std::is_copy_constructible_v<ledgerline::charge>);
static_assert(std::is_nothrow_move_constructible_v<ledgerline::ledger> && !std::is_copy_constructible_v<ledgerline::ledger>);
static_assert(std::is_trivially_copyable_v<ledgerline::group> && sizeof(ledgerline::group) == 16);
static_assert(std::is_base_of_v<std::bad_alloc, refused>);

static ledgerline::ledger small() {
    ledgerline_options_t options = LEDGERLINE_OPTIONS_INIT;
    options.capacity = 64;
    return ledgerline::ledger::make(&options);
}

static void charges() {
    auto ledger = small();
    const auto tenant = ledger.root().create("acme");
    const auto query = tenant.create(std::string_view("q42 and more", 3));
    CHECK(query.path() == "/acme/q42" && query.parent() == tenant && ledger.find("/acme/q42") == query);
    tenant.set_max(1000);
    {
        ledgerline::charge first = query.charge_within(600);
        CHECK(query.usage() == 600 && first.units() == 600 && first.group() == query);
        ledgerline::charge second = std::move(first);
        CHECK(first.units() == 0 && !first && second.units() == 600 && query.usage() == 600);
        ledgerline::charge part = second.split(200);
        CHECK(part.units() == 200 && second.units() == 400 && query.usage() == 600);
        part = std::move(second);
        CHECK(part.units() == 400 && query.usage() == 400);
        auto &same = part;
        part = std::move(same);
        CHECK(part.units() == 400);

        CHECK(thrown<refused>([&] { (void)query.charge_within(601); }) == LEDGERLINE_ERROR_LIMIT);
        try {
            (void)query.charge_within(601);
        } catch (const std::bad_alloc &bad) {
            CHECK(std::string(bad.what()) == "/acme is full: 601 requested, 400 of max 1000 in use");
        }
        CHECK(thrown<refused>([&] { (void)query.charge_waiting(601, 10); }) == LEDGERLINE_ERROR_LIMIT);
        ledgerline::charge into;
        CHECK(query.try_charge(601, into) == LEDGERLINE_ERROR_LIMIT && !into);
        CHECK(query.try_charge(100, into) == LEDGERLINE_OK && into.units() == 100);
        const auto other = tenant.create("other");
        into.transfer(other);
        CHECK(other.usage() == 100 && into.group() == other);
        other.set_max(150);
        CHECK(thrown<refused>([&] { part.transfer(other); }) == LEDGERLINE_ERROR_LIMIT && part.group() == query);
        auto over = query.charge_over(900);
        CHECK(tenant.usage() == 1400 && tenant.events().max > 0);
        CHECK(thrown<error>([&] { tenant.set_max(1); }) == LEDGERLINE_ERROR_BUSY);
        CHECK(tenant.set_max_now(1300) == 100);
        const auto units = over.release();
        CHECK(units == 900 && !over && query.usage() == 1300);
        over = ledgerline::charge::adopt(query.raw(), units);
    }
    CHECK(tenant.usage() == 0 && ledger.mistakes().underflows == 0);
    CHECK(tenant.limits().max == 1300 && tenant.limits().high == ledgerline::no_limit);
    CHECK(tenant.peak().value >= 1400 && tenant.estimate().value < 1000 && tenant.diagnose().size() > 20);
    tenant.reset_peak();
    CHECK(thrown<error>([&] { (void)tenant.create("a/b"); }) == LEDGERLINE_ERROR_NAME);
    CHECK(thrown<error>([&] { (void)tenant.create({}); }) == LEDGERLINE_ERROR_NAME);
    CHECK(thrown<error>([&] { (void)ledger.find("/none"); }) == LEDGERLINE_ERROR_NOT_FOUND);
    CHECK(query.destroy().leftover == 0 && !query.exists());
    CHECK(thrown<error>([&] { (void)query.path(); }) == LEDGERLINE_ERROR_GONE);
    CHECK(tenant.destroy_tree().charges > 0);

    // A charge that outlives its ledger follows nothing.
    auto held = ledger.root().charge_within(5);
    ledgerline::ledger moved = std::move(ledger);
    CHECK(!ledger && moved && moved.root().usage() == 5);
    moved = small();
    CHECK(!held.group().exists() && moved.root().usage() == 0);
    held.reset();
}

static void resources() {
    auto ledger = small();
    const auto query = ledger.root().create("q");
    query.set_max(1 << 20);
    {
        ledgerline::memory_resource memory(query);
        std::pmr::vector<int> rows(&memory);
        rows.resize(1000);
        CHECK(query.usage() == 4000);
        std::pmr::map<int, std::pmr::string> names(&memory);
        for (int at = 0; at < 100; at++) {
            names[at] = std::string(100, 'x').c_str();
        }
        CHECK(query.usage() > 4000 + 100 * 100);
        const auto before = query.usage();
        bool threw = false;
        try {
            rows.resize(1 << 20);
        } catch (const std::bad_alloc &) {
            threw = true;
        }
        CHECK(threw && query.usage() == before && rows.size() == 1000);
        ledgerline::memory_resource same(query), pool_below(query, ledgerline::at_limit::refuse, std::pmr::null_memory_resource());
        CHECK(memory.is_equal(same) && !memory.is_equal(pool_below));
        // What the resource above cannot get is not charged.
        CHECK([&] {
            try {
                (void)pool_below.allocate(100);
            } catch (const std::bad_alloc &) {
                return query.usage() == before;
            }
            return false;
        }());
        std::pmr::unsynchronized_pool_resource pool(&memory);
        std::pmr::deque<double> numbers(&pool);
        numbers.resize(500);
        CHECK(query.usage() > before);
        ledgerline::memory_resource over(query, ledgerline::at_limit::overrun);
        void *const block = over.allocate(2 << 20, 4096);
        CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0 && query.usage() > (2 << 20));
        over.deallocate(block, 2 << 20, 4096);
    }
    CHECK(query.usage() == 0 && ledger.mistakes().underflows == 0);
}

struct alignas(64) line {
    char bytes[64];
};

static void allocators() {
    auto ledger = small();
    const auto a = ledger.root().create("a"), b = ledger.root().create("b");
    a.set_max(100000);
    {
        using numbers = std::vector<int, ledgerline::allocator<int>>;
        numbers first(1000, 7, ledgerline::allocator<int>(a)), second(10, 8, ledgerline::allocator<int>(b));
        CHECK(a.usage() == 4000 && b.usage() == 40);
        first.swap(second);
        CHECK(second.get_allocator().group() == a && a.usage() == 4000);
        first = std::move(second);
        CHECK(first.size() == 1000 && a.usage() == 4000 && b.usage() == 0);
        std::vector<line, ledgerline::allocator<line>> lines(3, ledgerline::allocator<line>(first.get_allocator()));
        CHECK(a.usage() == 4192 && reinterpret_cast<std::uintptr_t>(lines.data()) % 64 == 0);
        bool threw = false;
        try {
            first.resize(1000000);
        } catch (const refused &why) {
            threw = why.code() == LEDGERLINE_ERROR_LIMIT;
        }
        CHECK(threw && a.usage() == 4192);
        auto shared = std::allocate_shared<line>(ledgerline::allocator<line>(b, ledgerline::at_limit::refuse));
        CHECK(b.usage() >= 64);
    }
    CHECK(a.usage() == 0 && b.usage() == 0);
}

static void scopes() {
    auto ledger = small();
    const auto a = ledger.root().create("a"), b = ledger.root().create("b");
    CHECK(thrown<error>([&] { ledgerline::scoped_current no(a); }) == LEDGERLINE_ERROR_NOT_KEPT);
    ledger.keep();
    {
        ledgerline::scoped_current outer(a);
        CHECK(ledgerline::current() == a);
        try {
            ledgerline::scoped_current inner(b);
            CHECK(ledgerline::current() == b);
            throw 1;
        } catch (int) {
        }
        CHECK(ledgerline::current() == a);
        std::thread([] { CHECK(ledgerline::current() == ledgerline::group()); }).join();
    }
    CHECK(ledgerline::current() == ledgerline::group());
    ledger.reset();
    CHECK(a.exists());
}

// A function of which another thread is inside, taken out where nobody waits: it stays until that thread has left it.
static void taken_out_within_another() {
    auto ledger = small();
    const auto one = ledger.root().create("one"), two = ledger.root().create("two");
    for (const auto &group : {one, two}) {
        group.set_max(10);
        (void)group.charge_within(5).release();
    }
    std::atomic<bool> inside{false}, leave{false}, gone{false};
    std::shared_ptr<void> owned(&gone, [&](void *) { gone = true; });
    auto stays = [&, held = std::move(owned), text = std::string(100, 'x')](std::uint64_t) {
        inside = true;
        while (!leave) {
            std::this_thread::yield();
        }
        CHECK(held && !gone && text == std::string(100, 'x'));
        return std::uint64_t{0};
    };
    std::optional<ledgerline::reclaimer<decltype(stays)>> first;
    first.emplace(one, 0, std::move(stays));
    std::thread charging([&] {
        ledgerline::charge charge;
        CHECK(one.try_charge(10, charge) == LEDGERLINE_ERROR_LIMIT);
    });
    while (!inside) {
        std::this_thread::yield();
    }
    {
        const ledgerline::reclaimer second(two, 0, [&](std::uint64_t) {
            first.reset();
            return std::uint64_t{0};
        });
        ledgerline::charge charge;
        CHECK(two.try_charge(10, charge) == LEDGERLINE_ERROR_LIMIT);
    }
    CHECK(!first && !gone);
    leave = true;
    charging.join();
    CHECK(gone);
    // Of a reclaimer that cannot be added nothing stays.
    std::shared_ptr<int> shared = std::make_shared<int>(7);
    ledger.reset();
    CHECK(thrown<error>([&] { ledgerline::reclaimer no(one, 0, [shared](std::uint64_t) { return std::uint64_t{0}; }); })
          == LEDGERLINE_ERROR_HANDLE);
    CHECK(shared.use_count() == 1);
}

static void callbacks() {
    auto ledger = small();
    const auto tenant = ledger.root().create("t"), cache = tenant.create("cache"), query = tenant.create("q");
    tenant.set_max(1000);
    std::vector<ledgerline::charge> pages;
    for (int at = 0; at < 9; at++) {
        pages.push_back(cache.charge_within(100));
    }
    const ledgerline::watch watch(tenant);
    {
        ledgerline::reclaimer evict(cache, 0, [&](std::uint64_t need) {
            std::uint64_t freed = 0;
            while (freed < need && !pages.empty()) {
                freed += pages.back().units();
                pages.pop_back();
            }
            return freed;
        });
        const auto sorted = query.charge_within(550);
        CHECK(pages.size() <= 4 && evict.report().runs >= 1);
    }
    {
        ledgerline::reclaimer throws(cache, 0, [](std::uint64_t) -> std::uint64_t { throw 7; });
        CHECK(!watch.look());
        CHECK(thrown<refused>([&] { (void)query.charge_within(999); }) == LEDGERLINE_ERROR_LIMIT);
        CHECK(throws.report().runs == 1);
    }
    pollfd wakes{watch.descriptor(), POLLIN, 0};
    CHECK(poll(&wakes, 1, 60000) == 1 && watch.look() && !watch.look());
}

int main() {
    charges();
    resources();
    allocators();
    scopes();
    callbacks();
    taken_out_within_another();
    return 0;
}
