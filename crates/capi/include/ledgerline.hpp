// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ledgerline for C++17: the C interface of ledgerline.h with RAII values, exceptions, and memory resources and
// allocators that charge. This header is complete; link the same library.
//
//     auto ledger = ledgerline::ledger::make();
//     auto query = ledger.root().create("q42");
//     query.set_max(64 << 20);
//     ledgerline::memory_resource memory(query);
//     std::pmr::vector<int> rows(&memory);     // charged to /q42; throws `refused`, a std::bad_alloc, if that is full
//
// The errors, threads and signals of each function are those of its namesake in ledgerline.h. Functions that throw
// throw `ledgerline::error` with the code and the message. `try_` functions do not throw, and return a code.

#ifndef LEDGERLINE_HPP
#define LEDGERLINE_HPP

#include "ledgerline.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ledgerline {

// The result of a call.
using code = ledgerline_code_t;

// No limit.
inline constexpr std::uint64_t no_limit = LEDGERLINE_NO_LIMIT;

// Returns the message of the last error in this thread.
inline std::string last_error() {
    std::size_t needed = 0;
    ledgerline_last_error(nullptr, 0, &needed);
    std::string text(needed, '\0');
    // The NUL behind a string's characters may be overwritten by a NUL.
    ledgerline_last_error(text.data(), needed + 1, &needed);
    return text;
}

// The exception of a call that did nothing. what() is the message.
class error : public std::runtime_error {
public:
    explicit error(ledgerline::code got) : std::runtime_error(last_error()), code_(got) {}
    ledgerline::code code() const noexcept { return code_; }

private:
    ledgerline::code code_;
};

// The exception of a refused charge. It is also a std::bad_alloc, which users of containers expect.
class refused : public std::bad_alloc {
public:
    explicit refused(ledgerline::code got) : why_(std::make_shared<error>(got)) {}
    // Names the full group, the requested units and the units in use.
    const char *what() const noexcept override { return why_->what(); }
    ledgerline::code code() const noexcept { return why_->code(); }

private:
    std::shared_ptr<const error> why_;
};

namespace detail {

inline void check(code got) {
    if (got != LEDGERLINE_OK) {
        throw error(got);
    }
}

// Fills a string by a call that fills a buffer. Repeats the call if the text has grown meanwhile.
template <class Fill>
std::string text(Fill fill) {
    std::string said(120, '\0');
    for (;;) {
        std::size_t needed = 0;
        const code got = fill(said.data(), said.size() + 1, &needed);
        if (got == LEDGERLINE_OK) {
            said.resize(needed);
            return said;
        }
        if (got != LEDGERLINE_ERROR_BUFFER) {
            throw error(got);
        }
        said.resize(needed);
    }
}

} // namespace detail

class group;

// Units that are charged to a group, and returned when this is destroyed. Can be moved, not copied.
class charge {
public:
    charge() noexcept = default;
    charge(charge &&other) noexcept
        : group_(other.group_), units_(std::exchange(other.units_, 0)) {}
    charge &operator=(charge &&other) noexcept {
        if (this != &other) {
            reset();
            group_ = other.group_;
            units_ = std::exchange(other.units_, 0);
        }
        return *this;
    }
    charge(const charge &) = delete;
    charge &operator=(const charge &) = delete;
    ~charge() { reset(); }

    // Takes over units that are charged to the group already, by the C interface or by release().
    static charge adopt(ledgerline_group_t of, std::uint64_t count) noexcept { return charge(of, count); }

    // Returns the number of units.
    std::uint64_t units() const noexcept { return units_; }
    explicit operator bool() const noexcept { return units_ != 0; }
    // Returns the group that holds them.
    inline ledgerline::group group() const noexcept;

    // Returns the units now.
    void reset() noexcept {
        if (units_ != 0) {
            ledgerline_uncharge(group_, std::exchange(units_, 0));
        }
    }
    // Gives the units up: the caller returns them by ledgerline_uncharge.
    std::uint64_t release() noexcept { return std::exchange(units_, 0); }

    // Splits off some of the units, at most as many as it holds.
    charge split(std::uint64_t count) noexcept {
        const std::uint64_t taken = count < units_ ? count : units_;
        units_ -= taken;
        return charge(group_, taken);
    }

    // Moves the units to another group of the ledger. If it throws `refused`, it holds them as before.
    inline void transfer(const ledgerline::group &to);

private:
    friend class ledgerline::group;
    charge(ledgerline_group_t of, std::uint64_t count) noexcept : group_(of), units_(count) {}
    ledgerline_group_t group_{0, 0};
    std::uint64_t units_ = 0;
};

// A group: a handle of two numbers, copied at will. A stale one is refused.
class group {
public:
    group() noexcept = default;
    explicit group(ledgerline_group_t handle) noexcept : raw_(handle) {}
    ledgerline_group_t raw() const noexcept { return raw_; }

    friend bool operator==(const group &a, const group &b) noexcept {
        return a.raw_.ledger == b.raw_.ledger && a.raw_.id == b.raw_.id;
    }
    friend bool operator!=(const group &a, const group &b) noexcept { return !(a == b); }

    // The group of a process that ended exists until some process calls ledger::settle_dead.
    bool exists() const noexcept { return ledgerline_group_exists(raw_) == LEDGERLINE_OK; }

    group create(std::string_view name) const {
        group child;
        detail::check(ledgerline_group_create(raw_, name.data() ? name.data() : "", name.size(), &child.raw_));
        return child;
    }
    ledgerline_settled_t destroy() const {
        ledgerline_settled_t settled{};
        detail::check(ledgerline_group_destroy(raw_, &settled));
        return settled;
    }
    ledgerline_settled_t destroy_tree() const {
        ledgerline_settled_t settled{};
        detail::check(ledgerline_group_destroy_tree(raw_, &settled));
        return settled;
    }
    // Folds the groups of processes that ended and were settled into this one, which has the same parent. Returns the
    // number of those processes.
    std::uint64_t fold_ended() const {
        std::uint64_t processes = 0;
        detail::check(ledgerline_fold_ended(raw_, &processes));
        return processes;
    }
    std::string path() const {
        return detail::text([this](char *buffer, std::size_t size, std::size_t *needed) {
            return ledgerline_group_path(raw_, buffer, size, needed);
        });
    }
    group parent() const {
        group above;
        detail::check(ledgerline_group_parent(raw_, &above.raw_));
        return above;
    }

    // Charges within the limits, or throws `refused`.
    ledgerline::charge charge_within(std::uint64_t units) const {
        return take(ledgerline_try_charge(raw_, units), units);
    }
    // Charges even over the limits; throws `refused` for a group that is gone.
    ledgerline::charge charge_over(std::uint64_t units) const {
        return take(ledgerline_charge(raw_, units), units);
    }
    // Charges within the limits, and waits for room; throws `refused` when the time is up.
    ledgerline::charge charge_waiting(std::uint64_t units, std::uint64_t milliseconds, std::uint32_t flags = 0) const {
        return take(ledgerline_try_charge_wait(raw_, units, milliseconds, flags), units);
    }
    // Charges within the limits and stores the charge in `into`, which returns its previous units. Does not throw.
    code try_charge(std::uint64_t units, ledgerline::charge &into) const noexcept {
        const code got = ledgerline_try_charge(raw_, units);
        if (got == LEDGERLINE_OK) {
            into = ledgerline::charge(raw_, units);
        }
        return got;
    }

    void set_max(std::uint64_t max) const { detail::check(ledgerline_group_set_max(raw_, max)); }
    std::uint64_t set_max_now(std::uint64_t max) const {
        std::uint64_t above = 0;
        detail::check(ledgerline_group_set_max_now(raw_, max, &above));
        return above;
    }
    void set_high(std::uint64_t high) const { detail::check(ledgerline_group_set_high(raw_, high)); }
    void set_low(std::uint64_t low) const { detail::check(ledgerline_group_set_low(raw_, low)); }
    void set_min(std::uint64_t min) const { detail::check(ledgerline_group_set_min(raw_, min)); }
    ledgerline_limits_t limits() const { return read<ledgerline_limits_t>(ledgerline_group_limits); }

    std::uint64_t usage() const { return read<std::uint64_t>(ledgerline_group_usage); }
    ledgerline_estimate_t estimate() const { return read<ledgerline_estimate_t>(ledgerline_group_estimate); }
    ledgerline_estimate_t peak() const { return read<ledgerline_estimate_t>(ledgerline_group_peak); }
    void reset_peak() const { detail::check(ledgerline_group_reset_peak(raw_)); }
    ledgerline_events_t events() const { return read<ledgerline_events_t>(ledgerline_group_events); }
    std::string diagnose() const {
        return detail::text([this](char *buffer, std::size_t size, std::size_t *needed) {
            return ledgerline_group_diagnose(raw_, buffer, size, needed);
        });
    }

private:
    template <class T>
    T read(code (*call)(ledgerline_group_t, T *)) const {
        T value{};
        detail::check(call(raw_, &value));
        return value;
    }
    ledgerline::charge take(code got, std::uint64_t units) const {
        if (got != LEDGERLINE_OK) {
            throw refused(got);
        }
        return ledgerline::charge(raw_, units);
    }
    ledgerline_group_t raw_{0, 0};
};

inline group charge::group() const noexcept { return ledgerline::group(group_); }

inline void charge::transfer(const ledgerline::group &to) {
    const code got = ledgerline_transfer(group_, to.raw(), units_);
    if (got != LEDGERLINE_OK) {
        throw refused(got);
    }
    group_ = to.raw();
}

// A ledger, which is freed when this is destroyed, unless it is kept. Can be moved, not copied. Charges and resources
// may outlive it: their units are then refused, not returned, and no pointer is followed.
class ledger {
public:
    ledger() noexcept = default;
    explicit ledger(ledgerline_ledger_t handle) noexcept : raw_(handle) {}
    ledger(ledger &&other) noexcept : raw_(std::exchange(other.raw_, ledgerline_ledger_t{0})) {}
    ledger &operator=(ledger &&other) noexcept {
        if (this != &other) {
            reset();
            raw_ = std::exchange(other.raw_, ledgerline_ledger_t{0});
        }
        return *this;
    }
    ledger(const ledger &) = delete;
    ledger &operator=(const ledger &) = delete;
    ~ledger() { reset(); }

    // Makes a ledger in memory, after checking that the library has this header's ABI.
    static ledger make(const ledgerline_options_t *options = nullptr) {
        detail::check(ledgerline_check_abi());
        ledger made;
        detail::check(ledgerline_ledger_new(options, &made.raw_));
        return made;
    }

    ledgerline_ledger_t raw() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_.number != 0; }

    ledgerline::group root() const {
        ledgerline_group_t top;
        detail::check(ledgerline_ledger_root(raw_, &top));
        return ledgerline::group(top);
    }
    ledgerline::group find(std::string_view path) const {
        ledgerline_group_t found;
        detail::check(ledgerline_ledger_find(raw_, path.data() ? path.data() : "", path.size(), &found));
        return ledgerline::group(found);
    }
    ledgerline_mistakes_t mistakes() const {
        ledgerline_mistakes_t counted;
        detail::check(ledgerline_ledger_mistakes(raw_, &counted));
        return counted;
    }
    // Settles the units that ended processes still hold, in a ledger that processes share, and returns their number.
    // Call it after a refusal, or every few seconds.
    std::uint64_t settle_dead() const {
        std::uint64_t units = 0;
        detail::check(ledgerline_settle_dead(raw_, &units));
        return units;
    }
    // Keeps it for good, so that its groups can be current.
    void keep() const { detail::check(ledgerline_ledger_keep(raw_)); }
    // Frees it now. If it is kept, only this value goes.
    void reset() noexcept {
        if (raw_.number != 0) {
            ledgerline_ledger_free(std::exchange(raw_, ledgerline_ledger_t{0}));
        }
    }

private:
    ledgerline_ledger_t raw_{0};
};

// Makes a group the thread's current one until this is destroyed, in that thread. The group's ledger is kept.
class scoped_current {
public:
    explicit scoped_current(const group &next) {
        detail::check(ledgerline_current_swap(next.raw(), &before_));
    }
    ~scoped_current() { ledgerline_current_swap(before_, nullptr); }
    scoped_current(const scoped_current &) = delete;
    scoped_current &operator=(const scoped_current &) = delete;

private:
    ledgerline_group_t before_{0, 0};
};

// Returns the thread's current group; one of zeros for none.
inline group current() {
    ledgerline_group_t now;
    detail::check(ledgerline_current_get(&now));
    return group(now);
}

// The behaviour of an allocation at a limit.
enum class at_limit {
    ask,     // asks the reclaimers, which run in the allocating thread, then refuses
    refuse,  // refuses, and runs no foreign code: for allocations under a lock that a reclaimer takes
    overrun, // goes over the limit, for allocations that must not fail
};

namespace detail {

inline void charge_bytes(ledgerline_group_t to, std::size_t bytes, at_limit at) {
    const code got = at == at_limit::ask      ? ledgerline_try_charge(to, bytes)
                      : at == at_limit::refuse ? ledgerline_try_charge_units(to, bytes)
                                               : ledgerline_charge(to, bytes);
    if (got != LEDGERLINE_OK) {
        throw refused(got);
    }
}

} // namespace detail

// A memory resource that charges a group for the bytes that it requests from another resource. At a limit it throws
// `refused`, which is a std::bad_alloc.
class memory_resource final : public std::pmr::memory_resource {
public:
    explicit memory_resource(ledgerline::group charged, at_limit at = at_limit::ask,
                             std::pmr::memory_resource *from = std::pmr::get_default_resource()) noexcept
        : group_(charged), at_(at), upstream_(from) {}
    memory_resource(const memory_resource &) = delete;
    memory_resource &operator=(const memory_resource &) = delete;

    ledgerline::group group() const noexcept { return group_; }
    std::pmr::memory_resource *upstream() const noexcept { return upstream_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        detail::charge_bytes(group_.raw(), bytes, at_);
        // Returned if the other resource throws.
        charge charged = charge::adopt(group_.raw(), bytes);
        void *const block = upstream_->allocate(bytes, alignment);
        charged.release();
        return block;
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override {
        upstream_->deallocate(block, bytes, alignment);
        ledgerline_uncharge(group_.raw(), bytes);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        const auto *const same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->group_ == group_ && same->upstream_->is_equal(*upstream_);
    }

    ledgerline::group group_;
    at_limit at_;
    std::pmr::memory_resource *upstream_;
};

// An allocator that charges a group for its blocks from std::allocator. It moves and swaps with its container, so
// that each block is returned to the group that was charged for it.
template <class T>
class allocator {
public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    explicit allocator(ledgerline::group charged, at_limit limit = at_limit::ask) noexcept
        : group_(charged), at_(limit) {}
    template <class U>
    allocator(const allocator<U> &other) noexcept : group_(other.group()), at_(other.at()) {}

    T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        const std::size_t bytes = count * sizeof(T);
        detail::charge_bytes(group_.raw(), bytes, at_);
        charge charged = charge::adopt(group_.raw(), bytes);
        T *const block = std::allocator<T>().allocate(count);
        charged.release();
        return block;
    }
    void deallocate(T *block, std::size_t count) noexcept {
        std::allocator<T>().deallocate(block, count);
        ledgerline_uncharge(group_.raw(), count * sizeof(T));
    }

    ledgerline::group group() const noexcept { return group_; }
    at_limit at() const noexcept { return at_; }

    template <class U>
    friend bool operator==(const allocator &a, const allocator<U> &b) noexcept {
        return a.group() == b.group();
    }
    template <class U>
    friend bool operator!=(const allocator &a, const allocator<U> &b) noexcept {
        return !(a == b);
    }

private:
    ledgerline::group group_;
    at_limit at_;
};

// A function that gives back memory of a group, until this is destroyed. It takes the number of needed units, and
// returns how many it gave back. An exception counts as none.
template <class Function>
class reclaimer {
public:
    reclaimer(const group &of, std::int32_t priority, Function function) {
        auto *const owned = new Function(std::move(function));
        detail::check(ledgerline_add_reclaimer_owning(of.raw(), priority, call, owned, release, &raw_));
    }
    // Waits for the function if another thread is inside. Inside a reclaimer or another callback it does not wait: the
    // function and its captures by value then stay until that thread has left it. Its captures by reference must live
    // as long.
    ~reclaimer() { ledgerline_remove_reclaimer(raw_); }
    reclaimer(const reclaimer &) = delete;
    reclaimer &operator=(const reclaimer &) = delete;

    ledgerline_reclaim_report_t report() const {
        ledgerline_reclaim_report_t so_far{};
        detail::check(ledgerline_reclaimer_report(raw_, &so_far));
        return so_far;
    }

private:
    static std::uint64_t call(void *function, std::uint64_t need) noexcept {
        try {
            return (*static_cast<Function *>(function))(need);
        } catch (...) {
            return 0;
        }
    }
    static void release(void *function) noexcept { delete static_cast<Function *>(function); }
    ledgerline_reclaimer_t raw_{0};
};

// A watch for events, until this is destroyed.
class watch {
public:
    explicit watch(const group &top) { detail::check(ledgerline_watch_open(top.raw(), &raw_, &descriptor_)); }
    ~watch() { ledgerline_watch_close(raw_); }
    watch(const watch &) = delete;
    watch &operator=(const watch &) = delete;

    // Returns an eventfd for poll, readable after events.
    int descriptor() const noexcept { return descriptor_; }
    // Returns whether there were events since the last look.
    bool look() const noexcept { return ledgerline_watch_look(raw_) == LEDGERLINE_OK; }

private:
    ledgerline_watch_t raw_{0};
    std::int32_t descriptor_ = -1;
};

} // namespace ledgerline

#endif // LEDGERLINE_HPP
