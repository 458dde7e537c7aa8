// Queries whose containers live in memory resources: each is charged where its memory is, and returned when it goes.
//
// No code of a query counts bytes. A query that would go beyond its limit, or its tenant's, gets std::bad_alloc's heir
// `refused`, which says who is full; what it held is free by then, and the others go on.
#include <atomic>
#include <iostream>
#include <ledgerline.hpp>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int queries = 12;
constexpr int runaway = 5;

// Counts how often each word comes; all that is kept lies in `memory`.
std::size_t count(std::pmr::memory_resource &memory, std::size_t words) {
    std::pmr::map<std::pmr::string, std::size_t> counts(&memory);
    std::pmr::vector<std::pmr::string> seen(&memory);
    for (std::size_t i = 0; i < words; i++) {
        // Longer than what a string holds by itself.
        std::pmr::string word("a word of some length, number ", &memory);
        word += std::to_string(i % 100);
        counts[word]++;
        seen.push_back(std::move(word));
    }
    return counts.size();
}

} // namespace

int main() {
    auto ledger = ledgerline::ledger::make();
    const auto tenant = ledger.root().create("acme");
    tenant.set_max(64 << 20);

    std::atomic<int> done{0}, refused{0};
    std::string why;
    std::vector<std::thread> threads;
    std::vector<ledgerline::group> groups;
    for (int i = 0; i < queries; i++) {
        groups.push_back(tenant.create("q" + std::to_string(i)));
        groups.back().set_max(4 << 20);
        threads.emplace_back([&, i, group = groups.back()] {
            ledgerline::memory_resource charged(group);
            // Small blocks come from pools, which ask for memory in large pieces: one charge for many blocks.
            std::pmr::unsynchronized_pool_resource memory(&charged);
            try {
                if (count(memory, i == runaway ? 100'000'000 : 10'000) == 100) done++;
            } catch (const ledgerline::refused &error) {
                refused++;
                why = error.what();
            }
        });
    }
    for (auto &thread : threads) thread.join();

    std::cout << done << " queries counted their words; refused: " << why << '\n';
    std::uint64_t largest = 0;
    for (const auto &group : groups) largest = std::max(largest, group.peak().value);
    std::cout << "the largest query held " << largest << " bytes of " << (4 << 20) << "; " << tenant.usage()
              << " are left\n";
    if (done != queries - 1 || refused != 1 || why.find("/acme/q5 is full") != 0) return 1;
    if (largest > 4 << 20 || tenant.usage() != 0) return 1;
    std::cout << "ok\n";
}
